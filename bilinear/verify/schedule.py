"""The proof of a schedule: run it on symbols, exactly, and compare.

The state of every block is a polynomial of sympy's sparse ring QQ[alpha, beta, a, b, c], where a**i stands for the i-th block of A, b**j
for the j-th of B and c**k for the k-th of C. Every product multiplies a form over A by a form over B, in this order (anything else is a
failure), so a word a**i * b**j is one product of blocks and commuting loses nothing. The run is the schedule's meaning; that C ends as
alpha*A*B + beta*C and that A and B come back is then an equality of polynomials: a decision, not a sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from bilinear.errors import BilinearError, Diagnostic
from bilinear.ir.linear import Coefficient
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Target
from bilinear.ir.scheme import Scheme
from bilinear.source import Span

LETTERS = {"A": 2, "B": 3}
"""Where the exponents of an operand's blocks stand in a word (alpha, beta, a, b, c)."""


@dataclass(frozen=True)
class StageFact:
    """What one stage does: its number (from 1), its kind, and each product as the forms that meet there."""

    number: int
    kind: str
    steps: tuple[str, ...]
    contended: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScheduleProof:
    """The decision about one schedule."""

    schedule: str
    scheme: str
    levels: int
    stages: tuple[StageFact, ...]
    restored: tuple[str, ...]
    recursive: bool
    failures: tuple[Diagnostic, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing fails."""
        return not self.failures

    def require(self) -> None:
        """Raise `BilinearError` with every failure, unless the schedule holds."""
        if not self.holds:
            raise BilinearError(self.failures)


@dataclass
class _Run:
    """The symbolic state while a schedule runs."""

    schedule: Schedule
    scheme: Scheme | None
    failures: list[Diagnostic] = field(default_factory=list)
    facts: list[StageFact] = field(default_factory=list)
    recursive: bool = True

    def __post_init__(self) -> None:
        from sympy import QQ
        from sympy.polys.rings import ring

        self.ring, self.alpha, self.beta, *letters = ring("alpha beta a b c", QQ)
        self.original: dict[Block, Any] = {}
        for space, letter in zip(self.schedule.spaces[:3], letters, strict=True):
            self.original |= {block: letter**number for number, block in enumerate(space.blocks, 1)}
        self.state: dict[Block, Any] = dict(self.original)
        self.rational = QQ

    def scalar(self, value: Coefficient) -> Any:
        return self.rational(value.numerator, value.denominator)

    def report(self, code: str, message: str, span: Span | None, *notes: str, hint: str = "") -> None:
        self.failures.append(Diagnostic(code, message, span, notes=notes, hints=(hint,) if hint else ()))

    def read(self, block: Block, span: Span | None) -> Any:
        if block not in self.state:
            self.report("E405", f"{block} is read before anything is written to it", span)
            self.state[block] = self.ring.zero
        return self.state[block]

    def is_form(self, value: Any, side: str) -> bool:
        """Whether a value is a linear form over the blocks of one operand, with number coefficients."""
        letter = LETTERS[side]
        return all(word[letter] and sum(word) == word[letter] for word in value)

    def brief(self, value: Any, limit: int = 12) -> str:
        """A polynomial in the names of the blocks, cut after `limit` terms."""
        names = [[str(block) for block in space.blocks] for space in self.schedule.spaces[:3]]
        text = ""
        for word, coefficient in sorted(value.items(), key=lambda term: term[0][:2] + tuple(-e for e in term[0][2:]), reverse=True)[:limit]:
            factors = ["alpha"] * word[0] + ["beta"] * word[1] + [names[i][e - 1] for i, e in enumerate(word[2:]) if e]
            size = abs(coefficient)
            body = "*".join(([str(size)] if size != 1 or not factors else []) + factors)
            sign = "-" if coefficient < 0 else "+"
            text += f" {sign} {body}" if text else f"{'-' * (sign == '-')}{body}"
        return (text or "0") + (f" + ... ({len(value)} terms)" if len(value) > limit else "")

    def linear(self, number: int, stage: LinearStage) -> None:
        steps = []
        self.find_hazards(number, stage)
        updates: dict[Block, Any] = {}
        for block_map in stage.maps:
            for target, value, span in self.evaluate(block_map):
                scaled = self.alpha * value + self.beta * self.read(target, span) if target.space == "C" else value
                updates[target] = scaled
                steps.append(f"{target} = {self.brief(scaled)}")
        self.state.update(updates)
        kind = "restore" if stage.restores else "linear"
        self.facts.append(StageFact(number, kind, tuple(steps)))

    def evaluate(self, block_map: BlockMap) -> Iterable[tuple[Block, Any, Span | None]]:
        first_span = block_map.spans[0] if block_map.spans else None
        values = [self.read(block, first_span) for block in block_map.sources]
        for step in block_map.map.steps:
            values.append(sum((values[i] * self.scalar(c) for i, c in step), self.ring.zero))
        spans = block_map.spans or (None,) * len(block_map.targets)
        for target, output, span in zip(block_map.targets, block_map.map.outputs, spans, strict=True):
            yield target, sum((values[i] * self.scalar(c) for i, c in output), self.ring.zero), span

    def find_hazards(self, number: int, stage: LinearStage) -> None:
        writers: dict[Block, Span | None] = {}
        for block_map in stage.maps:
            spans = block_map.spans or (None,) * len(block_map.targets)
            for target, span in zip(block_map.targets, spans, strict=True):
                if target not in writers:
                    writers[target] = span
                    continue
                other = writers[target]
                where = f"the other step is at {other}" if other is not None else f"both steps are in stage {number}"
                hint = "put one of the steps into a stage of its own"
                self.report("E401", f"hazard in stage {number}: two steps write {target}", span, where, hint=hint)

    def products(self, number: int, stage: ProductStage) -> None:
        self.find_shared_operands(number, stage)
        contended = _contended(stage)
        results = [(product, self.multiply(number, product)) for product in stage.products]
        for product, value in results:
            for target in product.targets:
                self.add(target, value, product.span)
        names = [f"{', '.join(map(_target, p.targets))} += {self.factors(p)}" for p, _ in results]
        self.facts.append(StageFact(number, "product", tuple(names), contended))

    def factors(self, product: Product) -> str:
        return f"({self.brief(self.state[product.left])}) * ({self.brief(self.state[product.right])})"

    def multiply(self, number: int, product: Product) -> Any:
        left, right = self.read(product.left, product.span), self.read(product.right, product.span)
        for side, block, value in (("A", product.left, left), ("B", product.right, right)):
            if not self.is_form(value, side):
                message = f"stage {number}: the {'left' if side == 'A' else 'right'} operand {block} is no form over blocks of {side}"
                self.report("E402", message, product.span, f"it holds {self.brief(value)}")
        if self.scheme is not None and self.schedule.levels == 1:
            self.identify(number, product, left, right)
        return left * right

    def identify(self, number: int, product: Product, left: Any, right: Any) -> None:
        """Every product must be one of the scheme's, up to a factor."""
        if not left or not right:
            self.report("E403", f"stage {number}: the product {product.left}*{product.right} is always zero", product.span)
            return
        wanted = _signatures(self.scheme) if self.scheme is not None else {}
        found = _signature(_terms(left, "A")), _signature(_terms(right, "B"))
        if found not in wanted:
            nearest = [name for (a, b), name in wanted.items() if a == found[0] or b == found[1]]
            hint = f"one factor is that of {' and of '.join(nearest)}" if nearest else ""
            message = f"stage {number}: {product.left}*{product.right} is no product of {self.schedule.scheme}"
            self.report("E403", message, product.span, f"it multiplies ({self.brief(left)}) by ({self.brief(right)})", hint=hint)

    def add(self, target: Target, value: Any, span: Span | None) -> None:
        added = value * self.scalar(target.coefficient)
        if target.block.space == "C":
            before = self.state[target.block]
            self.state[target.block] = (self.beta * before if target.first else before) + self.alpha * added
        elif target.first:
            self.state[target.block] = added
        else:
            self.state[target.block] = self.read(target.block, span) + added

    def find_shared_operands(self, number: int, stage: ProductStage) -> None:
        """In-place recursion lets a product write both its operands, so no two products of a stage may share one."""
        seen: dict[Block, Product] = {}
        for product in stage.products:
            for block in (product.left, product.right):
                other = seen.setdefault(block, product)
                if other is product:
                    continue
                self.recursive = False
                if self.schedule.in_place:
                    message = f"hazard in stage {number}: two products use {block}, which both would write when they recurse in place"
                    notes = (f"{other.left}*{other.right} and {product.left}*{product.right}",)
                    self.report("E404", message, product.span, *notes, hint="put the products into two stages")

    def finish(self) -> tuple[str, ...]:
        """Compare the final state with what was promised; the operands that are as they were."""
        s = self.schedule
        for i in range(s.m):
            for j in range(s.n):
                product = sum((self.original[Block("A", i, p)] * self.original[Block("B", p, j)] for p in range(s.k)), self.ring.zero)
                block = Block("C", i, j)
                wrong = self.state[block] - self.alpha * product - self.beta * self.original[block]
                if wrong:
                    message, difference = f"{s.name}: {block} is not alpha*A*B + beta*C", f"the difference is {self.brief(wrong)}"
                    hint = "a product is missing, doubled, or has the wrong sign in this block"
                    self.report("E406", message, s.span, difference, hint=hint)
        changed = {"A": [], "B": []}  # type: dict[str, list[Block]]
        for block, value in self.original.items():
            if block.space in changed and self.state[block] != value:
                changed[block.space].append(block)
        for name in s.restores:
            for block in changed[name]:
                message = f"{s.name} promises to restore {name}, but {block} does not come back"
                self.report("E407", message, s.span, f"{block} ends as {self.brief(self.state[block])}")
        return tuple(name for name, blocks in changed.items() if not blocks)


def prove_schedule(schedule: Schedule, scheme: Scheme | None = None) -> ScheduleProof:
    """Decide whether a schedule with marked first writes computes alpha*A*B + beta*C and keeps its promises.

    `scheme` is the scheme whose products a schedule of one level must use. In-place recursion is safe where it is safe for one level:
    an inner level adds its product and gives its operands back, which is all that the outer level assumes.
    """
    run = _Run(schedule, scheme)
    for number, stage in enumerate(schedule.stages, 1):
        if isinstance(stage, LinearStage):
            run.linear(number, stage)
        else:
            run.products(number, stage)
    restored = run.finish()
    recursive = run.recursive and schedule.runs_in_place and set(restored) == {"A", "B"}
    return ScheduleProof(schedule.name, schedule.scheme, schedule.levels, tuple(run.facts), restored, recursive, tuple(run.failures))


def _contended(stage: ProductStage) -> tuple[str, ...]:
    counts: dict[Block, int] = {}
    for product in stage.products:
        for target in product.targets:
            counts[target.block] = counts.get(target.block, 0) + 1
    return tuple(str(block) for block, count in sorted(counts.items()) if count > 1)


def _target(target: Target) -> str:
    if target.coefficient in (1, -1):
        return f"{'-' if target.coefficient < 0 else ''}{target.block}"
    return f"{target.coefficient} {target.block}"


def _terms(value: Any, side: str) -> dict[int, Fraction]:
    """A form as block number (from 0) to coefficient."""
    letter = LETTERS[side]
    return {word[letter] - 1: Fraction(int(c.numerator), int(c.denominator)) for word, c in value.items()}


Signature = tuple[tuple[int, Fraction], ...]


def _signature(terms: dict[int, Fraction]) -> Signature:
    """A form up to a factor: its first coefficient made 1."""
    ordered = sorted(terms.items())
    return tuple((i, c / ordered[0][1]) for i, c in ordered) if ordered else ()


def _signatures(scheme: Scheme) -> dict[tuple[Signature, Signature], str]:
    u, v, _ = scheme.tables
    return {
        (_signature({i: Fraction(c) for i, c in a}), _signature({i: Fraction(c) for i, c in b})): name
        for a, b, name in zip(u, v, scheme.products, strict=True)
    }
