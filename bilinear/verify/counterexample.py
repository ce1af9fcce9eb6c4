"""Two inputs with the same final state: the proof that a schedule loses an operand.

The contents are forms plus products, so f(p + d) - f(p - d) is linear in d: every product a*b contributes twice p_a*d_b + d_a*p_b. A vector
d in the kernel of all these gives the counterexample p + d and p - d; if d changes one operand only, p + d and p. The search first changes
the blocks of one operand, then of both; blocks are first numbers, then 2 x 2 matrices. A counterexample is executed before it is reported.
It may be a special input; `untraced` finds losses at every input.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from bilinear.analysis.schedule_run import ScheduleRun, Terms
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.schedule import AnySchedule, Block, Product, ScaledSchedule, Target
from bilinear.source import Span
from bilinear.verify.elimination import CombinedRow, kernel, reduced
from bilinear.verify.rings import Number
from bilinear.verify.symbolic_run import LETTERS, Symbols, Value, Word, is_product

if TYPE_CHECKING:
    from bilinear.verify.engine import Domain


@dataclass(frozen=True)
class Small:
    """A square matrix, row by row."""

    rows: tuple[tuple[Number, ...], ...]

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __add__(self, other: Small) -> Small:
        return Small(tuple(tuple(x + y for x, y in zip(r, s, strict=True)) for r, s in zip(self.rows, other.rows, strict=True)))

    def __mul__(self, other: Small) -> Small:
        columns = list(zip(*other.rows, strict=True))
        products = [[[x * y for x, y in zip(row, column, strict=True)] for column in columns] for row in self.rows]
        return Small(tuple(tuple(sum(rest, first) for first, *rest in row) for row in products))

    def scaled(self, factor: Number) -> Small:
        """The matrix times a factor."""
        return Small(tuple(tuple(factor * x for x in row) for row in self.rows))

    def text(self, domain: Domain) -> str:
        """`3`, or `[0 1 | -1 0]`."""
        rows = [" ".join(str(domain.to_sympy(x)) for x in row) for row in self.rows]
        return rows[0] if self.size == 1 else f"[{' | '.join(rows)}]"


def constant(value: Number, size: int) -> Small:
    """A multiple of the identity matrix."""
    return Small(tuple(tuple(value if i == j else value - value for j in range(size)) for i in range(size)))


SmallChange = dict[Block, Number]  # The change of each block, as a multiple of one matrix X.
UNTRACED_TRIALS = 2  # The number of random inputs at which the kernel's answer is executed.
LARGEST = 99


def untraced_changes(side: str, schedule: AnySchedule, symbols: Symbols, contents: Mapping[Block, Value]) -> list[SmallChange]:
    """Changes that leave no trace at any input; their parts in one operand are a basis of all such parts.

    Changes of this operand alone come first; each is without fractions, and the coefficient of its first block is positive. `contents` is
    the state of A's and B's blocks. The changes are executed at random inputs of 2 x 2 blocks; the result is empty if execution disagrees.
    """
    inputs = list(symbols.original)
    own = [block for block in inputs if block.space == side]
    found: list[SmallChange] = []
    parts: list[CombinedRow[Block]] = []
    for blocks in (own, inputs):
        for change in kernel(_rows(contents, symbols, set(blocks)), blocks, symbols.domain.one):
            part = CombinedRow({block: c for block, c in change.items() if block.space == side})
            if len(reduced([*parts, part], own.index)) > len(parts):
                parts.append(part)
                whole = dict(sorted(symbols.whole(change).items()))
                flip = symbols.signed(next(iter(whole.values())))[0] == "-"
                found.append({block: -value if flip else value for block, value in whole.items()})
    return found if _leave_no_trace(found, schedule, symbols, contents) else []


def as_updates(change: SmallChange, symbols: Symbols) -> str:
    """A change of the inputs as steps with one matrix X."""
    steps = []
    for block, value in change.items():
        sign, size = symbols.signed(value)
        steps.append(f"{block} {sign}= {'' if size == '1' else size + ' '}X")
    return " ; ".join(steps)


def _rows(contents: Mapping[Block, Value], symbols: Symbols, changing: Collection[Block]) -> Iterator[CombinedRow[Block]]:
    """The effect of a change of some blocks on the contents: one row for each word with one block removed."""
    block_of = {next(iter(value)): block for block, value in symbols.original.items()}
    for value in contents.values():
        rows: dict[Word, dict[Block, Number]] = {}
        for word, coefficient in value.items():
            for place in (place for place in LETTERS.values() if word[place]):
                block = block_of[tuple(word[place] if i == place else 0 for i in range(len(word)))]
                if block in changing:
                    rows.setdefault((*word[:place], 0, *word[place + 1 :]), {})[block] = coefficient
        yield from map(CombinedRow, rows.values())


def _leave_no_trace(changes: list[SmallChange], schedule: AnySchedule, symbols: Symbols, contents: Collection[Block]) -> bool:
    """True if exact execution confirms all changes, each with a different matrix."""
    generator = random.Random(0)
    number = symbols.domain

    def matrix() -> Small:
        return Small(tuple(tuple(number(generator.randint(-LARGEST, LARGEST)) for _ in range(2)) for _ in range(2)))

    for _ in range(UNTRACED_TRIALS if changes else 0):
        alpha, beta = (number(generator.randint(1, LARGEST)) for _ in range(2))
        first: SmallState = {block: matrix() for block in symbols.original}
        second = dict(first)
        for change in changes:
            x = matrix()
            second |= {block: second[block] + x.scaled(c) for block, c in change.items()}
        execution = Execution(schedule, symbols, alpha, beta, matrix().scaled(number.zero))
        ends = [execution.final(state) for state in (first, second)]
        if any(ends[0][block] != ends[1][block] for block in contents):
            return False
    return True


SmallState = dict[Block, Small]


class Execution(ScheduleRun[Small]):
    """A schedule on matrices, with given alpha and beta, elements of the domain; a block that is read before it has a value counts as 0."""

    def __init__(self, schedule: AnySchedule, symbols: Symbols, alpha: Number, beta: Number, zero: Small) -> None:
        self.schedule, self.symbols, self.zero = schedule, symbols, zero
        self.alpha, self.beta = alpha, beta
        self.implied = symbols.domain.one if isinstance(schedule, ScaledSchedule) else alpha

    def final(self, state: SmallState) -> SmallState:
        """The final state of all blocks."""
        self.state = dict(state)
        self.run(self.schedule)
        return self.state

    def _scalar(self, value: Coefficient) -> Number:
        scalar = self.symbols.scalar(value)
        number: Number = self.symbols.domain.zero if hasattr(scalar, "ring") else scalar
        terms = scalar.items() if hasattr(scalar, "ring") else ()
        return sum((c * self.alpha ** word[0] * self.beta ** word[1] for word, c in terms), number)

    def read(self, block: Block, span: Span | None) -> Small:
        """The value of a block."""
        return self.state.get(block, self.zero)

    def product(self, product: Product) -> Small:
        """A product of two blocks."""
        return self.read(product.left, None) * self.read(product.right, None)

    def sum(self, form: Form, values: Sequence[Small]) -> Small:
        """A form over matrices."""
        return sum((values[i].scaled(self._scalar(c)) for i, c in form), self.zero)

    def plus(self, value: Small, block: Block, kept: Coefficient, span: Span | None) -> Small:
        """A sum beside what its block keeps."""
        return value + self.read(block, span).scaled(self._scalar(kept))

    def target(self, value: Small, target: Target, terms: Terms[Small], span: Span | None) -> Small:
        """A product with its coefficient, beside what its target keeps and what is added to it."""
        added = value.scaled(self._scalar(target.coefficient)).scaled(self.implied)
        return self.plus(sum((v.scaled(self._scalar(c)) for v, c in terms), added), target.block, target.kept, span)


TRIALS = 60  # Random inputs whose kernel is tried, for each alpha and beta; fewer if it takes long.
MOST_WORK = 10**6  # The limit on the cost of all trials; a trial costs the cube of the numbers that change.
MOST_SPECIAL = 12  # The most changing numbers for which inputs are sought as roots of a determinant.
SCALES = ((1, 1), (2, 3), (1, 0), (0, 1), (0, 0))  # Tried for alpha and beta if the contents depend on them.
MATRICES = (((0, 0), (0, 0)), ((1, 0), (0, 1)), ((-1, 0), (0, -1)), ((0, 1), (-1, 0)), ((0, 1), (0, 0)), ((0, 1), (1, 0)), ((1, 1), (0, 1)))
"""The blocks that are tried; they include roots of -1, 0 and 1."""

Entry = tuple[Block, int, int]  # One number of a block: the block, and the row and column in it.


@dataclass(frozen=True)
class Counterexample:
    """Two inputs, `first` and `second`, with the same final state."""

    side: str
    first: Mapping[Block, str]
    second: Mapping[Block, str]
    final: Mapping[Block, str]
    scales: tuple[str, ...]

    def told(self) -> tuple[str, ...]:
        """Three lines of text: both inputs, then the state that they share."""
        scales = f" with {' and '.join(self.scales)}" if self.scales else ""
        lines = [f"{name}{scales}: {_listed(state)}" for name, state in (("one input", self.first), ("another", self.second))]
        return (*lines, f"both end with: {_listed(self.final)}")


class CounterexampleSearch:
    """Searches for two inputs of a one-level schedule that end in the same state of A and B."""

    def __init__(
        self, schedule: AnySchedule, symbols: Symbols, contents: Mapping[Block, Value], known: Collection[Block], size: int
    ) -> None:
        """`contents` is the state of A's and B's blocks. Blocks that are `known` from it have the same values in both inputs."""
        self.schedule = schedule
        self.symbols = symbols
        self.contents = contents
        self.known = known
        self.number = symbols.domain
        self.size = size
        self.zero = constant(self.number.zero, size)
        self.inputs = list(symbols.original)
        self.block_of = {next(iter(value)): block for block, value in symbols.original.items()}
        self.random = random.Random(0)
        words = {word for value in contents.values() for word in value if is_product(word)}
        self.pairs = {frozenset(self.block_of[_letter(place, word[place])] for place in (2, 3)) for word in words}
        self.scaled = any(word[0] or word[1] for value in contents.values() for word in value)

    def find(self, side: str) -> Counterexample | None:
        """Two inputs that differ in an operand; None if none are found."""
        unknown = [block for block in self.inputs if block not in self.known]
        own = [block for block in unknown if block.space == side]
        for points in (self._points, self._special_points):
            for changing in (own, unknown) if len(own) < len(unknown) else (own,):
                for alpha, beta in self._scales():
                    found = (self._at(p, changing, side, alpha, beta) for p in points(changing, alpha, beta))
                    first = next((counterexample for counterexample in found if counterexample is not None), None)
                    if first is not None:
                        return first
        return None

    def from_zero(self, side: str, change: Mapping[Block, Number]) -> Counterexample | None:
        """A change that leaves no trace at any input, applied to the zero input."""
        nothing = dict.fromkeys(self.inputs, self.zero)
        changed = nothing | {block: constant(c, self.size) for block, c in change.items()}
        return self._confirmed(side, changed, nothing, *next(self._scales()))

    def _fixed(self, changing: list[Block]) -> list[Block]:
        """The blocks multiplied with a changing block; if both operands change, the changing blocks too."""
        one_side = len({block.space for block in changing}) == 1
        partners = set() if one_side else set(changing)
        for pair in self.pairs:
            if not pair.isdisjoint(changing):
                partners |= pair - set(changing) if one_side else pair
        return [block for block in self.inputs if block in partners]

    def _scales(self) -> Iterator[tuple[Number, Number]]:
        for alpha, beta in SCALES if self.scaled else SCALES[:1]:
            yield self.number(alpha), self.number(beta)

    def _points(self, changing: list[Block], alpha: Number, beta: Number) -> Iterator[SmallState]:
        """Points of small integers; zero everywhere comes last, where other points work as well."""
        fixed = self._fixed(changing)
        for trial in range(min(TRIALS, MOST_WORK // len(self._entries(changing)) ** 3) if fixed else 0):
            choices = (0, 1) if trial % 2 else (-1, 0, 1, 2)
            if self.size == 1:
                yield {block: constant(self.number(self.random.choice(choices)), 1) for block in fixed}
                continue
            tables = {block: self.random.choice(MATRICES) for block in fixed}
            yield {block: Small(tuple(tuple(map(self.number, row)) for row in table)) for block, table in tables.items()}
        yield dict.fromkeys(fixed, self.zero)

    def _special_points(self, changing: list[Block], alpha: Number, beta: Number) -> Iterator[SmallState]:
        """Points where the rows lose rank, unlike at nearby points: roots of det(M^T M), a polynomial, along lines."""
        if not self.number.is_QQ or self.size > 1 or len(changing) > MOST_SPECIAL:
            return
        for start in (*islice(self._points(changing, alpha, beta), 2), {}):
            for block in self._fixed(changing):
                moved = {**start, block: start.get(block, self.zero) + constant(self.number.one, 1)}
                roots = self._roots(start, moved, changing, alpha, beta)
                for root in (root for root in roots if root.denominator == 1 or self.schedule.ring.name != "Z"):
                    yield {**start, block: start.get(block, self.zero) + constant(root, 1)}

    def _roots(self, first: SmallState, second: SmallState, changing: list[Block], alpha: Number, beta: Number) -> list[Number]:
        """Where det(M^T M) is zero on the line through two points, with t = 0 at the first and t = 1 at the second."""
        from bilinear.verify.engine import DomainMatrix, Poly, Symbol

        ends = [list(self._rows(point, set(changing), alpha, beta)) for point in (first, second)]
        columns = self._entries(changing)
        domain = self.number[Symbol("t")]
        (t,) = domain.gens
        zero = self.number.zero
        rows = [
            [domain(a.entries.get(c, zero)) + t * domain(b.entries.get(c, zero) - a.entries.get(c, zero)) for c in columns]
            for a, b in zip(*ends, strict=True)
        ]
        matrix = DomainMatrix(rows, (len(rows), len(columns)), domain)
        determinant = Poly(domain.to_sympy((matrix.transpose() * matrix).charpoly()[-1]), Symbol("t"))
        return [self.number.from_sympy(root) for root in determinant.ground_roots()] if determinant.degree() > 0 else []

    def _entries(self, blocks: list[Block]) -> list[Entry]:
        return [(block, i, j) for block in blocks for i in range(self.size) for j in range(self.size)]

    def _at(self, point: SmallState, changing: list[Block], side: str, alpha: Number, beta: Number) -> Counterexample | None:
        """The counterexample around a point (blocks not given are 0) if some change of the blocks `changing` leaves no trace there."""
        basis = kernel(self._rows(point, set(changing), alpha, beta), self._entries(changing), self.number.one)
        telling = [vector for vector in basis if any(block.space == side for block, _, _ in vector)]
        if not telling:
            return None
        change = self._blocks(self.symbols.whole(telling[0]))
        back = self.number.zero if len({block.space for block in changing}) == 1 else -self.number.one
        first = {block: point.get(block, self.zero) + change.get(block, self.zero) for block in self.inputs}
        second = {block: point.get(block, self.zero) + change.get(block, self.zero).scaled(back) for block in self.inputs}
        return self._confirmed(side, first, second, alpha, beta)

    def _rows(self, point: SmallState, changing: set[Block], alpha: Number, beta: Number) -> Iterator[CombinedRow[Entry]]:
        """How each number of the contents changes with the numbers of the changing blocks."""
        for value in self.contents.values():
            scaled = [(word, c * alpha ** word[0] * beta ** word[1]) for word, c in value.items()]
            for _, i, j in self._entries([next(iter(self.contents))]):
                entries: dict[Entry, Number] = {}
                for word, coefficient in scaled:
                    for entry, factor in self._changes(word, point, i, j):
                        if entry[0] in changing:
                            entries[entry] = entries.get(entry, self.number.zero) + coefficient * factor
                yield CombinedRow({entry: c for entry, c in entries.items() if c})

    def _changes(self, word: Word, point: SmallState, i: int, j: int) -> Iterator[tuple[Entry, Number]]:
        """The derivative of the number (i, j) of a word with respect to its blocks, at a point."""
        blocks = [self.block_of[_letter(place, e)] for place, e in enumerate(word[2:], 2) if e]
        if len(blocks) == 1:
            yield (blocks[0], i, j), self.number.one
            return
        left, right = blocks
        for t in range(self.size):
            yield (left, i, t), point.get(right, self.zero).rows[t][j]
            yield (right, t, j), point.get(left, self.zero).rows[i][t]

    def _blocks(self, vector: Mapping[Entry, Number]) -> SmallState:
        zero, places = self.number.zero, range(self.size)
        blocks = dict.fromkeys(block for block, _, _ in vector)
        return {block: Small(tuple(tuple(vector.get((block, i, j), zero) for j in places) for i in places)) for block in blocks}

    def _confirmed(self, side: str, first: SmallState, second: SmallState, alpha: Number, beta: Number) -> Counterexample | None:
        """The counterexample if exact execution confirms it, else None."""
        execution = Execution(self.schedule, self.symbols, alpha, beta, self.zero)
        ends = [execution.final(state) for state in (first, second)]
        final = {block: ends[0][block] for block in self.contents}
        differ = any(first[block] != second[block] for block in first if block.space == side)
        if not differ or any(ends[1][block] != value for block, value in final.items()):
            return None
        has_c = any(state[block] != self.zero for state in (first, second) for block in state if block.space == "C")
        shown = [{b: v.text(self.number) for b, v in s.items() if b.space != "C" or has_c} for s in (first, second, final)]
        result = self.schedule.result
        scales = (("alpha", alpha, result.alpha), ("beta", beta, result.beta))
        named = tuple(f"{name} = {value}" for name, value, parameter in scales if isinstance(parameter, Symbolic) and self.scaled)
        return Counterexample(side, shown[0], shown[1], shown[2], named)


def _letter(place: int, exponent: int) -> Word:
    return tuple(exponent if i == place else 0 for i in range(5))


def _listed(state: Mapping[Block, str]) -> str:
    told = [f"{block} = {value}" for block, value in state.items() if set(value) - set("[]| 0")]
    spaces = sorted({block.space for block in state})
    if not told:
        return f"every block of {' and '.join(spaces)} is 0"
    return ", ".join(told) + (", all others 0" if len(told) < len(state) else "")
