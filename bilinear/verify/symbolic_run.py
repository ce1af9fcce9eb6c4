"""The symbolic run of a schedule: the state of every block after every stage, exactly.

The run defines the schedule's meaning. That C ends as alpha*A*B + beta*C and that A and B are restored are then equalities of polynomials,
decided exactly and not by sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bilinear.errors import Diagnostic
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.schedule import AnySchedule, Block, BlockMap, LinearStage, Product, ProductStage, ScaledSchedule, Schedule, Stage, Target
from bilinear.ir.scheme import Scheme
from bilinear.source import Span
from bilinear.verify.elements import Number
from bilinear.verify.facts import BlockState, StageFact
from bilinear.verify.hazards import contended, find_hazards, name_of
from bilinear.verify.proof_limits import Bounds
from bilinear.verify.steps import steps_of
from bilinear.verify.symbols import LETTERS, Symbols, Value, is_product


class SymbolicRun:
    """A schedule running on symbols. `failures` collects every fault, `strangers` the products that are not the scheme's."""

    def __init__(self, schedule: AnySchedule, scheme: Scheme | None) -> None:
        self.schedule = schedule
        self.symbols = Symbols(schedule)
        self.identifier = Identifier(scheme, self.symbols) if scheme is not None and schedule.levels == 1 else None
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
        self.bounds = Bounds(schedule, self.symbols, scheme) if schedule.levels == 1 else None

    def run(self) -> None:
        """Run all stages; values that nothing reads are known afterwards."""
        for number, stage in enumerate(self.schedule.stages, 1):
            self.failures += find_hazards(number, stage, self.schedule)
            if isinstance(stage, LinearStage):
                self._linear(number, stage)
            else:
                self._products(number, stage)
            self._note_writes(number, stage)
            if self.schedule.levels == 1:
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
            self.state[block] = self.symbols.ring.zero
        return self.state[block]

    def _linear(self, number: int, stage: LinearStage) -> None:
        updates: dict[Block, Value] = {}
        for block_map in stage.maps:
            updates |= self._evaluate(block_map)
        self._require_short(updates.values())
        self.state.update(updates)
        steps = tuple(f"{target} = {self.symbols.text(value)}" for target, value in updates.items())
        self._add_fact(number, "restore" if stage.restores else "linear", steps, stage)

    def _evaluate(self, block_map: BlockMap) -> dict[Block, Value]:
        ring, scalar = self.symbols.ring, self.symbols.scalar
        spans = block_map.spans or (None,) * len(block_map.targets)
        values = [self.read(block, spans[0]) for block in self._read_sources(block_map)]
        for step in block_map.map.steps:
            self._count((values[i], c) for i, c in step)
            values.append(_sum(step, values, scalar, ring.zero))
        updates = {}
        for target, output, kept, span in zip(block_map.targets, block_map.map.outputs, block_map.kept, spans, strict=True):
            self._count((values[i], c) for i, c in output)
            updates[target] = _sum(output, values, scalar, ring.zero)
            if kept:
                updates[target] += self.read(target, span) * scalar(kept)
        return updates

    def _read_sources(self, block_map: BlockMap) -> tuple[Block, ...]:
        """The sources of a map. A source without a value whose coefficients are all 0 is not read."""
        used = {index for form in block_map.map.steps + block_map.map.outputs for index, _ in form}
        for i, block in enumerate(block_map.sources):
            if i not in used and block not in self.state:
                self.state[block] = self.symbols.ring.zero
        return block_map.sources

    def _products(self, number: int, stage: ProductStage) -> None:
        results = [self._multiply(number, product) for product in stage.products]
        steps = tuple(self._describe(product) for product in stage.products)
        names = tuple(self._identify(number, product) for product in stage.products) if self.identifier is not None else ()
        writes = [(target, value, p.span) for p, value in zip(stage.products, results, strict=True) for target in p.targets]
        others = [self._terms(target.plus, span) for target, _, span in writes]  # what other blocks hold before the stage
        for (target, value, span), terms in zip(writes, others, strict=True):
            added = value if target.coefficient == 1 else value * self.symbols.scalar(target.coefficient)
            kept = self._terms(((target.block, target.kept),), span) if target.kept else []
            first, *more = *kept, *terms, added * self.implied
            self.state[target.block] = sum(more, first)
            self._require_short((self.state[target.block],))
        self._add_fact(number, "product", steps, stage, contended(stage), names)

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

    def _multiply(self, number: int, product: Product) -> Value:
        left, right = self.read(product.left, product.span), self.read(product.right, product.span)
        sound = True
        for side, block, value in (("A", product.left, left), ("B", product.right, right)):
            if self.symbols.is_form(value, side):
                continue
            sound = False
            message = f"stage {number}: the {'left' if side == 'A' else 'right'} operand {block} is not a form over blocks of {side}"
            self.report("E402", message, product.span, f"it holds {self.symbols.text(value)}")
        if self.bounds is not None and sound:
            self.bounds.count(len(left) * len(right) * (1 + len(product.targets)))
        return left * right if sound else self.symbols.ring.zero

    def _count(self, terms: Iterable[tuple[Value, Coefficient]]) -> None:
        if self.bounds is not None:
            self.bounds.count(sum(len(value) * (len(c.terms) if isinstance(c, Symbolic) else 1) for value, c in terms))

    def _require_short(self, values: Iterable[Value]) -> None:
        if self.bounds is not None:
            self.bounds.require_short(values)

    def _terms(self, form: Iterable[tuple[Block, Coefficient]], span: Span | None) -> list[Value]:
        """The terms of a form over blocks as they are now."""
        terms = [(self.read(block, span), c) for block, c in form]
        self._count(terms)
        return [value if c == 1 else value * self.symbols.scalar(c) for value, c in terms]

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
        states = self._states() if self.schedule.levels == 1 else ()
        self.facts.append(StageFact(number, kind, steps, tuple(map(str, contended_blocks)), width, states, products))

    def _states(self) -> tuple[BlockState, ...]:
        blocks = [block for space in self.schedule.spaces for block in space.blocks]
        earlier = self.facts[-1].states if self.facts else (None,) * len(blocks)
        return tuple(self._block_state(block, old) for block, old in zip(blocks, earlier, strict=True))

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


def _sum(terms: Form, values: list[Value], scalar: Callable[[Coefficient], Value], zero: Value) -> Value:
    """A linear form over values."""
    total = zero
    for index, c in terms:
        total = total + values[index] if c == 1 else total - values[index] if c == -1 else total + values[index] * scalar(c)
    return total


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
