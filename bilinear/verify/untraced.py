"""Changes of the inputs that leave no trace at any input: the part of an operand that is lost for all inputs.

The contents are forms plus products a*b. A change d of the inputs adds the forms of d, and d_a*b + a*d_b + d_a*d_b for each product. That
is zero at every input, for blocks of any size and for every alpha and beta, exactly if d is in the kernel of certain rows. There is one row
for each word with one of its blocks removed; its entries are the coefficients of the words with each block in that place. (Then the d_a*d_b
cancel too: their sum is that of the a*d_b with d in place of the inputs.)
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping

from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import AnySchedule, Block, BlockMap, LinearStage, ProductStage, ScaledSchedule
from bilinear.verify.elimination import PivotRow, kernel, reduced
from bilinear.verify.rings import Number
from bilinear.verify.small import Small
from bilinear.verify.symbols import LETTERS, Symbols, Value, Word

SmallChange = dict[Block, Number]
"""The change of each block, as a multiple of one matrix X."""
TRIALS = 2
"""The number of random inputs at which the kernel's answer is executed."""
LARGEST = 99


def untraced_changes(side: str, schedule: AnySchedule, symbols: Symbols, contents: Mapping[Block, Value]) -> list[SmallChange]:
    """Changes that leave no trace at any input; their parts in one operand are a basis of all such parts.

    Changes of this operand alone come first; each is without fractions, and the coefficient of its first block is positive. `contents` is
    the state of A's and B's blocks. The changes are executed at random inputs of 2 x 2 blocks; the result is empty if execution disagrees.
    """
    inputs = list(symbols.original)
    own = [block for block in inputs if block.space == side]
    found: list[SmallChange] = []
    parts: list[PivotRow[Block]] = []
    for blocks in (own, inputs):
        for change in kernel(_rows(contents, symbols, set(blocks)), blocks, symbols.domain.one):
            part = PivotRow({block: c for block, c in change.items() if block.space == side})
            if len(reduced([*parts, part], own.index)) > len(parts):
                parts.append(part)
                found.append(_readable(change, symbols))
    return found if _leave_no_trace(found, schedule, symbols, contents) else []


def as_updates(change: SmallChange, symbols: Symbols) -> str:
    """A change of the inputs as steps with one matrix X."""
    steps = []
    for block, value in change.items():
        sign, size = symbols.signed(value)
        steps.append(f"{block} {sign}= {'' if size == '1' else size + ' '}X")
    return " ; ".join(steps)


def _readable(change: SmallChange, symbols: Symbols) -> SmallChange:
    """A multiple without fractions, in block order, with a positive first coefficient."""
    whole = dict(sorted(symbols.whole(change).items()))
    flip = symbols.signed(next(iter(whole.values())))[0] == "-"
    return {block: -value if flip else value for block, value in whole.items()}


def _rows(contents: Mapping[Block, Value], symbols: Symbols, changing: Collection[Block]) -> Iterator[PivotRow[Block]]:
    """The effect of a change of some blocks on the contents: one row for each word with one block removed."""
    block_of = {next(iter(value)): block for block, value in symbols.original.items()}
    for value in contents.values():
        rows: dict[Word, dict[Block, Number]] = {}
        for word, coefficient in value.items():
            for place in (place for place in LETTERS.values() if word[place]):
                block = block_of[tuple(word[place] if i == place else 0 for i in range(len(word)))]
                if block in changing:
                    rows.setdefault((*word[:place], 0, *word[place + 1 :]), {})[block] = coefficient
        yield from map(PivotRow, rows.values())


def _leave_no_trace(changes: list[SmallChange], schedule: AnySchedule, symbols: Symbols, contents: Collection[Block]) -> bool:
    """True if exact execution confirms all changes, each with a different matrix."""
    generator = random.Random(0)
    number = symbols.domain

    def matrix() -> Small:
        return Small(tuple(tuple(number(generator.randint(-LARGEST, LARGEST)) for _ in range(2)) for _ in range(2)))

    for _ in range(TRIALS if changes else 0):
        alpha, beta = (number(generator.randint(1, LARGEST)) for _ in range(2))
        first: SmallState = {block: matrix() for block in symbols.original}
        second = dict(first)
        for change in changes:
            x = matrix()
            second |= {block: second[block] + x.scaled(c) for block, c in change.items()}
        execution = Execution(schedule, symbols, alpha, beta, matrix().scaled(number.zero))
        ends = [execution.run(state) for state in (first, second)]
        if any(ends[0][block] != ends[1][block] for block in contents):
            return False
    return True


SmallState = dict[Block, Small]


class Execution:
    """A schedule with given alpha and beta, elements of the domain; a block that is read before it has a value counts as 0."""

    def __init__(self, schedule: AnySchedule, symbols: Symbols, alpha: Number, beta: Number, zero: Small) -> None:
        self.schedule = schedule
        self.symbols = symbols
        self.alpha, self.beta = alpha, beta
        self.implied = symbols.domain.one if isinstance(schedule, ScaledSchedule) else alpha
        self.zero = zero

    def run(self, state: SmallState) -> SmallState:
        """The final state of all blocks."""
        now = dict(state)
        for stage in self.schedule.stages:
            before = dict(now)
            if isinstance(stage, LinearStage):
                for block_map in stage.maps:
                    self._linear(block_map, before, now)
            else:
                self._products(stage, before, now)
        return now

    def _scalar(self, value: Coefficient) -> Number:
        scalar = self.symbols.scalar(value)
        number: Number = self.symbols.domain.zero if hasattr(scalar, "ring") else scalar
        terms = scalar.items() if hasattr(scalar, "ring") else ()
        return sum((c * self.alpha ** word[0] * self.beta ** word[1] for word, c in terms), number)

    def _sum(self, terms: Iterable[tuple[Block, Coefficient]], state: SmallState) -> Small:
        return sum((state.get(block, self.zero).scaled(self._scalar(c)) for block, c in terms), self.zero)

    def _linear(self, block_map: BlockMap, before: SmallState, now: SmallState) -> None:
        for target, row, kept in zip(block_map.targets, block_map.map.matrix, block_map.kept, strict=True):
            now[target] = self._sum([*((block_map.sources[i], c) for i, c in row), (target, kept)], before)

    def _products(self, stage: ProductStage, before: SmallState, now: SmallState) -> None:
        for product in stage.products:
            value = before.get(product.left, self.zero) * before.get(product.right, self.zero)
            for target in product.targets:
                block, added = target.block, value.scaled(self._scalar(target.coefficient))
                kept = self._sum([(block, target.kept)], now)
                now[block] = kept + self._sum(target.plus, before) + added.scaled(self.implied)
