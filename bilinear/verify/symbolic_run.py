"""The symbolic run of a schedule: the state of every block after every stage, exactly.

The run defines the schedule's meaning. That C ends as alpha*A*B + beta*C and that A and B are restored are then equalities of polynomials,
decided exactly and not by sampling.

A value is an element of sympy's sparse ring K[alpha, beta, a, b, c]. Its words are blocks of A, of B and of C, and products of a block of A
and one of B: a**i stands for the i-th block of A, b**j for the j-th of B and c**k for the k-th of C, counted from 1. Every product
multiplies a form over A by a form over B, in this order (anything else is a failure), so a word a**i * b**j is one product of blocks, and
commuting variables lose nothing. Five letters keep words short for any number of blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import lcm
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from bilinear.analysis.brent import products_of_coefficients
from bilinear.analysis.schedule_run import ScheduleRun, Terms
from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic, square
from bilinear.ir.ring import Ring
from bilinear.ir.schedule import AnySchedule, Block, LinearStage, Product, ProductStage, ScaledSchedule, Schedule, Stage, Target
from bilinear.ir.scheme import Scheme
from bilinear.source import Span
from bilinear.verify.facts import BlockState, StageFact, shortened
from bilinear.verify.hazards import find_hazards, name_of, steps_of
from bilinear.verify.rings import Number

if TYPE_CHECKING:
    from bilinear.verify.engine import Domain, PolyElement


Key = TypeVar("Key")

LETTERS = {"A": 2, "B": 3, "C": 4}  # The positions of the spaces' exponents in a word (alpha, beta, a, b, c).
Word = tuple[int, ...]
Value: TypeAlias = "PolyElement"  # An element of the ring.


def domain_of(ring: Ring) -> Domain:
    """sympy's domain of a ring's coefficients, always a field: Z is looked at in Q."""
    from bilinear.verify.engine import GF, QQ, I, Symbol, sqrt

    if ring.modulus:
        return GF(ring.modulus, symmetric=False)
    if ring.is_approximate:
        return QQ.frac_field(Symbol("lambda"))
    root = square(ring.generator)
    return QQ if root is None else QQ.algebraic_field(I if root == -1 else sqrt(root))


class Symbols:
    """The ring of one schedule, its blocks as letters, and its values as text."""

    def __init__(self, schedule: AnySchedule) -> None:
        from bilinear.verify.engine import QQ, ZZ, ring

        self.domain = domain_of(schedule.ring)
        if self.domain == QQ and schedule.levels > 1 and all(isinstance(c, int) for c in schedule.coefficients):
            self.domain = ZZ  # nothing is divided in several levels, which have no explicit scaling, and arithmetic dominates the time
        self.ring, self.alpha, self.beta, *letters = ring("alpha beta a b c", self.domain)
        self.generators: dict[str, Value] = {"alpha": self.alpha, "beta": self.beta}
        self.original: dict[Block, Value] = {}
        self.names: list[list[str]] = []
        for space, letter in zip(schedule.spaces[:3], letters, strict=True):
            self.original |= {block: letter**number for number, block in enumerate(space.blocks, 1)}
            self.names.append([str(block) for block in space.blocks])

    def scalar(self, value: Coefficient) -> Value:
        """A coefficient as an element of the domain, or of the ring if it contains alpha or beta."""
        if not isinstance(value, Symbolic):
            whole = self.domain(value.numerator)
            return whole if value.denominator == 1 else whole / self.domain(value.denominator)
        zero, one = (self.ring.zero, self.ring.one) if value.generators & {"alpha", "beta"} else (self.domain.zero, self.domain.one)
        total = zero
        for monomial, coefficient in value.terms:
            term = one * self.scalar(coefficient)
            for name, exponent in monomial:
                term = term * self._generator(name) ** exponent if exponent > 0 else term * (1 / self._generator(name)) ** -exponent
            total += term
        return total

    def _generator(self, name: str) -> Value:
        if name not in self.generators:
            from bilinear.verify.engine import I, Symbol, sqrt

            root = square(name)
            element = Symbol(name) if root is None else I if root == -1 else sqrt(root)
            self.generators[name] = self.domain.from_sympy(element)
        return self.generators[name]

    def vanishes(self, value: Value) -> bool:
        """True if a value is zero; over Q[lambda], if all its terms have positive order in lambda."""
        if not value or not hasattr(self.domain, "field"):
            return not value
        return all(_order(coefficient) > 0 for coefficient in value.values())

    def is_form(self, value: Value, side: str) -> bool:
        """True if a value is a linear form over the blocks of one operand; its coefficients may contain alpha and beta."""
        letter = LETTERS[side]
        return all(word[letter] and sum(word[2:]) == word[letter] for word in value)

    def text(self, value: Value, limit: int = 12) -> str:
        """A value in terms of the block names, cut off after `limit` terms."""
        text = ""
        for word, coefficient in sorted(value.items(), key=_reading_order)[:limit]:
            sign, size = self.signed(coefficient)
            size = shortened(size)
            factors = [f"{name}^{e}" if e > 1 else name for name, e in zip(("alpha", "beta"), word[:2], strict=True) if e]
            factors += [names[e - 1] for names, e in zip(self.names, word[2:], strict=True) if e]
            body = "*".join(([size] if size != "1" or not factors else []) + factors)
            text += f" {sign} {body}" if text else f"{sign if sign == '-' else ''}{body}"
        return (text or "0") + (f" + ... ({len(value)} terms)" if len(value) > limit else "")

    def signed(self, coefficient: Number) -> tuple[str, str]:
        """A coefficient as a sign and the text after it."""
        shown = self.bracketed(coefficient)
        return ("-", shown[1:]) if shown.startswith("-") else ("+", shown)

    def whole(self, vector: Mapping[Key, Number]) -> dict[Key, Number]:
        """Over Q a multiple of the vector without fractions; over other rings the vector itself."""
        if not self.domain.is_QQ:
            return dict(vector)
        scale = lcm(*(int(value.denominator) for value in vector.values()))
        return {key: value * self.domain(scale) for key, value in vector.items()}

    def key(self, coefficient: Number) -> Number | str:
        """A hashable form of a coefficient that is equal for equal coefficients; sympy's algebraic numbers do not hash that way."""
        return coefficient if self.domain.is_QQ or self.domain.is_ZZ or self.domain.is_FiniteField else self.bracketed(coefficient)

    def length(self, coefficient: Number) -> int:
        """The bits of all numbers in a coefficient."""
        if self.domain.is_QQ:
            return int(coefficient.numerator.bit_length() + coefficient.denominator.bit_length())
        if self.domain.is_FiniteField:
            return 0
        ratio = None if self.domain.is_Algebraic else (coefficient.numer, coefficient.denom)
        numbers = coefficient.to_list() if ratio is None else [*ratio[0].values(), *ratio[1].values()]
        return sum(int(c.numerator).bit_length() + int(c.denominator).bit_length() for c in numbers)

    def bracketed(self, coefficient: Number) -> str:
        """A number as the language writes it, in brackets if it is not rational."""
        if self.domain.is_QQ or self.domain.is_ZZ:
            return str(coefficient)
        if hasattr(self.domain, "field") and len(coefficient.denom) == 1:
            shown = _laurent(coefficient)
        else:
            shown = str(self.domain.to_sympy(coefficient)).replace(" ", "").replace("**", "^").replace("I", "i")
        return shown if re.fullmatch(r"-?[0-9]+(/[0-9]+)?", shown) else f"[{shown}]"


def is_product(word: Word) -> bool:
    """True if a word is a block of A times a block of B."""
    return bool(word[2] and word[3])


def _reading_order(term: tuple[Word, Number]) -> tuple[tuple[int, int], tuple[int, ...]]:
    """The sort key of terms: highest powers of alpha and beta first, then letters a, b, c, each by its block number."""
    word = term[0]
    return (-word[0], -word[1]), tuple(e if e else 10**9 for e in word[2:])


def _laurent(coefficient: Number) -> str:
    """A rational function of lambda whose denominator is a power of lambda, as the language writes it: `lambda^2-1/2*lambda^-1`."""
    (((down,), scale),) = coefficient.denom.terms()
    text = ""
    for (up,), c in coefficient.numer.terms():
        size, power = c / scale, up - down
        letter = "lambda" + (f"^{power}" if power != 1 else "") if power else ""
        body = "*".join(([str(abs(size))] if abs(size) != 1 or not letter else []) + [letter] * bool(letter))
        text += ("-" if size < 0 else "+" if text else "") + body
    return text or "0"


def _order(coefficient: Number) -> int:
    return int(min(m[0] for m in coefficient.numer.monoms()) - min(m[0] for m in coefficient.denom.monoms()))


TOO_LARGE = "E412"
MOST_STATES = 50_000  # The most stages times blocks; every stage stores a state of every block.
MOST_WORK = 150_000
"""The most terms multiplied and added up; for a schedule of a large scheme, `WORK_OF_SCHEME` times the work of the scheme's proof."""
WORK_OF_SCHEME = 4
"""Expansion, products and recomposition take up to three times as many coefficient products as the proof of their scheme."""
MOST_BITS = 1600  # The most bits of a coefficient, over all its numbers.


class WorkLimit:
    """The work of one run so far; too much is refused (E412)."""

    def __init__(self, schedule: AnySchedule, symbols: Symbols, scheme: Scheme | None) -> None:
        self.schedule = schedule
        self.symbols = symbols
        self.work = 0
        self.most_work = max(MOST_WORK, WORK_OF_SCHEME * products_of_coefficients(scheme) if scheme is not None else 0)
        states = len(schedule.stages) * sum(len(space.blocks) for space in schedule.spaces)
        if states > MOST_STATES:
            raise self._refused(f"its stages have {states} states of blocks, at most {MOST_STATES} are followed")

    def count(self, terms: int) -> None:
        """Add the terms of a step that is about to be computed."""
        self.work += terms
        if self.work > self.most_work:
            raise self._refused(f"its steps add up more than {self.most_work} terms")

    def require_short(self, values: Iterable[Value]) -> None:
        """Refuse coefficients that have grown too long."""
        if any(self.symbols.length(coefficient) > MOST_BITS for value in values for coefficient in value.values()):
            raise self._refused(f"its coefficients grow to more than {MOST_BITS} bits")

    def _refused(self, told: str) -> BilinearError:
        hint = "prove its parts as schedules of their own"
        return fail(TOO_LARGE, f"{self.schedule.name} is too large to prove: {told}", hint, span=self.schedule.span)


class SymbolicRun(ScheduleRun[Value]):
    """A schedule running on symbols. `failures` collects every fault, `strangers` the products that are not the scheme's."""

    def __init__(self, schedule: AnySchedule, scheme: Scheme | None) -> None:
        self.schedule = schedule
        self.symbols = Symbols(schedule)
        self.identifier = Identifier(scheme, self.symbols) if scheme is not None and schedule.levels == 1 else None
        self.zero = self.symbols.ring.zero
        self.number, self.steps, self.names = 0, list[str](), list[str]()
        """The stage that runs, and what is told of its products so far."""
        self.implied = self.symbols.ring.one if isinstance(schedule, ScaledSchedule) else self.symbols.alpha
        """The common factor of all products, apart from the coefficients of their targets."""
        self.state: dict[Block, Value] = {b: v for b, v in self.symbols.original.items() if schedule.result.beta or b.space != "C"}
        self.history: list[dict[Block, Value]] = []
        """The state after each stage of a one-level schedule."""
        self.failures: list[Diagnostic] = []
        self.strangers: list[Diagnostic] = []
        self.facts: list[StageFact] = []
        self.unread: dict[Block, tuple[int, Span | None]] = {}
        """For each block, the stage and place of its last write, until it is read."""
        self.wasted: list[tuple[int, Block, Span | None]] = []
        """Writes that nothing reads."""
        self.bounds = WorkLimit(schedule, self.symbols, scheme) if schedule.levels == 1 else None

    def run(self, schedule: AnySchedule) -> None:
        """Run all stages; values that nothing reads are known afterwards."""
        for number, stage in enumerate(schedule.stages, 1):
            self.number = number
            self.failures += find_hazards(number, stage, schedule)
            if isinstance(stage, LinearStage):
                updates = self.run_maps(stage.maps)
                self._require_short(updates.values())
                steps = tuple(f"{target} = {self.symbols.text(value)}" for target, value in updates.items())
                self._add_fact(number, "restore" if stage.restores else "linear", steps, stage)
            else:
                self.steps, self.names = [], []
                self.run_products(stage.products)
                self._add_fact(number, "product", tuple(self.steps), stage, stage.contended, tuple(self.names))
            self._note_writes(number, stage)
            if schedule.levels == 1:
                self.history.append(dict(self.state))
        self.wasted += [(number, block, span) for block, (number, span) in self.unread.items() if block.space not in ("A", "B", "C")]

    def report(self, code: str, message: str, span: Span | None, *notes: str, hint: str = "") -> None:
        """Record a fault."""
        self.failures.append(Diagnostic(code, message, span, notes=notes, hints=(hint,) if hint else ()))

    def read(self, block: Block, span: Span | None) -> Value:
        """The value of a block; one without a value is reported once, and counts as zero afterwards."""
        if block not in self.state:
            notes = (f"C has no old value in a schedule that ends with {self.schedule.result}",) if block.space == "C" else ()
            self.report("E405", f"{block} is read before anything is written to it", span, *notes, hint="a step before this one is missing")
            self.state[block] = self.zero
        return self.state[block]

    def sum(self, form: Form, values: Sequence[Value]) -> Value:
        """A linear form over polynomials."""
        self._count([(values[i], c) for i, c in form])
        scalar, total = self.symbols.scalar, self.zero
        for index, c in form:
            total = total + values[index] if c == 1 else total - values[index] if c == -1 else total + values[index] * scalar(c)
        return total

    def plus(self, value: Value, block: Block, kept: Coefficient, span: Span | None) -> Value:
        """A sum beside what its block keeps."""
        return value + self.read(block, span) * self.symbols.scalar(kept)

    def target(self, value: Value, target: Target, terms: Terms[Value], span: Span | None) -> Value:
        """A product with its coefficient, beside what its target keeps and what is added to it."""
        kept = [(self.read(target.block, span), target.kept)] if target.kept else []
        self._count([*kept, *terms])
        added = value if target.coefficient == 1 else value * self.symbols.scalar(target.coefficient)
        first, *more = *(v if c == 1 else v * self.symbols.scalar(c) for v, c in (*kept, *terms)), added * self.implied
        total = sum(more, first)
        self._require_short((total,))
        return total

    def _identify(self, number: int, product: Product) -> str:
        assert self.identifier is not None
        left, right = self.state[product.left], self.state[product.right]
        if not (self.symbols.is_form(left, "A") and self.symbols.is_form(right, "B")):
            return ""
        found = self.identifier.identify(number, product, left, right)
        if isinstance(found, str):
            return found
        self.strangers.append(found)
        return ""

    def _describe(self, product: Product) -> str:
        text = self.symbols.text
        factors = f"({text(self.read(product.left, None))}) * ({text(self.read(product.right, None))})"
        if isinstance(self.schedule, Schedule):
            overwrites = self.schedule.overwrites and not any(target.kept for target in product.targets)
            return f"{', '.join(map(_target, product.targets))} {'=' if overwrites else '+='} {factors}"
        return " ; ".join(f"{t.block} = {_scaled(t, factors)}" for t in product.targets)

    def product(self, product: Product) -> Value:
        """The product of two forms; what is none is reported, and counts as zero."""
        left, right = self.read(product.left, product.span), self.read(product.right, product.span)
        sound = True
        for side, block, value in (("A", product.left, left), ("B", product.right, right)):
            if self.symbols.is_form(value, side):
                continue
            sound = False
            message = f"stage {self.number}: the {'left' if side == 'A' else 'right'} operand {block} is not a form over blocks of {side}"
            self.report("E402", message, product.span, f"it holds {self.symbols.text(value)}")
        if self.bounds is not None and sound:
            self.bounds.count(len(left) * len(right) * (1 + len(product.targets)))
        self.steps.append(self._describe(product))
        if self.identifier is not None:
            self.names.append(self._identify(self.number, product))
        return left * right if sound else self.zero

    def _count(self, terms: Iterable[tuple[Value, Coefficient]]) -> None:
        if self.bounds is not None:
            self.bounds.count(sum(len(value) * (len(c.terms) if isinstance(c, Symbolic) else 1) for value, c in terms))

    def _require_short(self, values: Iterable[Value]) -> None:
        if self.bounds is not None:
            self.bounds.require_short(values)

    def _note_writes(self, number: int, stage: Stage) -> None:
        if self.schedule.levels > 1:
            return
        steps = list(steps_of(stage))
        for step in steps:
            for block in step.reads:
                self.unread.pop(block, None)
        for step in steps:
            for block in step.writes:
                if block in self.unread and self.unread[block][0] < number:
                    earlier, span = self.unread[block]
                    self.wasted.append((earlier, block, span))
                self.unread[block] = (number, step.span)

    def _add_fact(
        self,
        number: int,
        kind: str,
        steps: tuple[str, ...],
        stage: Stage,
        contended_blocks: tuple[Block, ...] = (),
        products: tuple[str, ...] = (),
    ) -> None:
        width = len(stage.products) if isinstance(stage, ProductStage) else len(steps)
        blocks = [block for space in self.schedule.spaces for block in space.blocks if self.schedule.levels == 1]
        earlier = self.facts[-1].states if self.facts else (None,) * len(blocks)
        states = tuple(self._block_state(block, old) for block, old in zip(blocks, earlier, strict=True))
        self.facts.append(StageFact(number, kind, steps, tuple(map(str, contended_blocks)), width, states, products))

    def _block_state(self, block: Block, old: BlockState | None) -> BlockState:
        value = self.state.get(block)
        if value is None:
            return BlockState(str(block), "undefined", "")
        if value == self.symbols.original.get(block):
            return BlockState(str(block), "original" if old is None or old.kind == "original" else "restored", str(block))
        text = self.symbols.text(value)
        if old is not None and old.value == text and not text.endswith("terms)"):
            return old
        kind = "product" if any(map(is_product, value)) else "sum"
        return BlockState(str(block), kind, text)


def _target(target: Target) -> str:
    if target.coefficient in (1, -1):
        return f"{'-' if target.coefficient == -1 else ''}{target.block}"
    return f"{target.coefficient} {target.block}"


def _scaled(target: Target, factors: str) -> str:
    """A product with its coefficient and the terms added to it, as written."""
    sign = {1: "", -1: "-"}
    text = next((f"{s}{factors}" for c, s in sign.items() if target.coefficient == c), f"[{target.coefficient}] {factors}")
    for block, coefficient in target.terms:
        size = "" if coefficient in (1, -1) else f"[{coefficient}] "
        text += f" {'-' if coefficient == -1 else '+'} {size}{block}"
    return text


Signature = tuple[tuple[int, Number | str | int], ...]
"""A form up to a factor: block numbers from 0, and coefficients starting with 1."""


class Identifier:
    """The products of one scheme, found by their factors."""

    def __init__(self, scheme: Scheme, symbols: Symbols) -> None:
        self.symbols = symbols
        self.scheme = scheme.name
        u, v, _ = scheme.tables
        pairs = zip(u, v, scheme.products, strict=True)
        self.known = {(self._of_form(a), self._of_form(b)): name for a, b, name in pairs}

    def identify(self, number: int, product: Product, left: Value, right: Value) -> str | Diagnostic:
        """The name of the scheme's product that equals this one up to a factor; if none does, a diagnostic (E403)."""
        if not left or not right:
            return Diagnostic("E403", f"stage {number}: the product {name_of(product)} is always zero", product.span)
        found = self._of_value(left, "A"), self._of_value(right, "B")
        if found in self.known:
            return self.known[found]
        nearest = [name for (a, b), name in self.known.items() if a == found[0] or b == found[1]]
        hints = (f"one factor is that of {' and of '.join(nearest)}",) if nearest else ()
        message = f"stage {number}: {name_of(product)} is not a product of {self.scheme}"
        note = f"it multiplies ({self.symbols.text(left)}) by ({self.symbols.text(right)})"
        return Diagnostic("E403", message, product.span, notes=(note,), hints=hints)

    def _of_form(self, form: Form) -> Signature:
        scalars = [(i, scalar) for i, c in form if (scalar := self.symbols.scalar(c))]
        return tuple((i, self.symbols.key(c / scalars[0][1])) for i, c in scalars)

    def _of_value(self, value: Value, side: str) -> Signature:
        """The signature of a form. If its coefficients hold different powers of alpha and beta, it matches no product of a scheme."""
        letter = LETTERS[side]
        if len({word[:2] for word in value}) > 1:
            return ((-1, 0),)
        terms = sorted((word[letter] - 1, c) for word, c in value.items())
        return tuple((i, self.symbols.key(c / terms[0][1])) for i, c in terms)
