"""The results of a depth-first schedule: sums that products are added to, one after the other. They are exact.

Sets of values are integers, one bit a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations

from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, exact, rational
from bilinear.ir.schedule import Block, LinearStage, Space, Stage
from bilinear.lowering.place import stage_uses


@dataclass(frozen=True)
class Adding:
    """How sums change after a product, as bit sets of values.

    `live` are the values that are still needed or are results, `computed` the sums that get new terms.
    `aliases` maps a sum that begins as a multiple of a dying value to that value, so that nothing moves.
    """

    live: int
    computed: int
    aliases: Mapping[int, int]


class Results:
    """The results as sums of products and of other sums.

    Values are numbered: products first, then sums; `terms[v]` are those of sum v, `outputs` the results. A sum may begin before all its
    terms exist; each term is added once both exist. With `begun`, the results start with C's old value.
    """

    def __init__(self, linear: LinearMap, begun: bool) -> None:
        rank = linear.inputs
        used = _used(linear)
        number = {i: i for i in range(rank)} | {rank + s: rank + position for position, s in enumerate(used)}
        rows = [linear.steps[s] for s in used] + list(linear.outputs)
        self.rank = rank
        self.sums = range(rank, rank + len(rows))
        self.terms: dict[int, dict[int, Coefficient]] = {rank + i: {number[t]: c for t, c in row} for i, row in enumerate(rows)}
        self.outputs = tuple(range(rank + len(used), rank + len(rows)))
        self.needs = {s: _mask(terms) for s, terms in self.terms.items()}
        self.uses = [_mask(s for s in self.sums if v in self.terms[s]) for v in range(rank + len(rows))]
        self.results = _mask(self.outputs)
        self.useful = tuple(p for p in range(rank) if self.uses[p])
        self.everything = _mask(self.useful)
        self.at_start = self.results if begun else 0
        self._states: dict[int, tuple[int, int]] = {0: (self.at_start, self.at_start & _mask(s for s in self.sums if not self.terms[s]))}
        self._addings: dict[tuple[int, int], Adding] = {}
        self._live: dict[tuple[int, int], int] = {}

    @property
    def additions(self) -> int:
        """Block additions of all sums."""
        return sum(len(t) - 1 + bool(self.at_start >> s & 1) for s, t in self.terms.items())

    def state(self, done: int, product: int) -> tuple[int, int]:
        """The sums begun and the values complete after `product` is added to the products `done`."""
        after = done | 1 << product
        if after not in self._states:
            self._states[after] = self._settle(after, self.of(done)[0])
        return self._states[after]

    def of(self, done: int) -> tuple[int, int]:
        """The sums begun and the values complete after the products `done`, added in any order."""
        if done not in self._states:
            begun = self.at_start
            for product in members(done):
                begun = self._settle(done & ((2 << product) - 1), begun)[0]
            self._states[done] = self._settle(done, begun)
        return self._states[done]

    def live(self, begun: int, complete: int) -> int:
        """The values that need a place: sums begun but not complete, results, and values that wait to be added."""
        key = begun, complete
        if key not in self._live:
            waiting = _mask(v for v in members(complete & ~self.results) if self.uses[v] & ~begun)
            self._live[key] = begun & ~complete | begun & self.results | waiting
        return self._live[key]

    def takes(self, done: int, product: int) -> int | None:
        """The only sum that needs a product, if it has begun: then the product may be added to it as it is computed."""
        (*sums,) = members(self.uses[product])
        return sums[0] if len(sums) == 1 and self.of(done)[0] >> sums[0] & 1 else None

    def adding(self, done: int, product: int, directly: bool = False) -> Adding:
        """The changes after `product`, which follows the products `done`; with `directly`, it has already been added to its sum."""
        key = (done << 1 | directly, product)
        if key not in self._addings:
            self._addings[key] = self._adding(done, product, directly)
        return self._addings[key]

    def absorbed(self, total: int, begun: int, complete: int) -> int:
        """The terms that a sum holds already."""
        return self.needs[total] & complete if begun >> total & 1 else 0

    def _adding(self, done: int, product: int, directly: bool) -> Adding:
        before, after = self.of(done), self.state(done, product)
        own = 1 << product if directly else 0
        live = self.live(*after)
        computed = _mask(s for s in self.sums if self.absorbed(s, *after) & ~(self.absorbed(s, *before) | own & self.needs[s]))
        dying = (self.live(*before) | 1 << product) & ~live & ~computed
        aliases: dict[int, int] = {}
        for s in members(after[0] & ~before[0] & live):
            held = self.absorbed(s, *after)
            if held and not held & (held - 1) and held & dying:
                aliases[s] = held.bit_length() - 1
                dying &= ~held
        return Adding(live, computed & ~_mask(aliases), aliases)

    def _settle(self, done: int, begun: int) -> tuple[int, int]:
        """Begin sums while that does not raise the number of live values: each set of sums that begins lets as many values die."""
        while True:
            complete = self._complete(done, begun)
            if done == self.everything and self.results & ~begun:
                begun |= _mask(s for s in self.sums if self.terms[s])
                continue
            more = self._tight(begun, complete)
            if not more:
                return begun, complete
            begun |= more

    def _complete(self, done: int, begun: int) -> int:
        complete = done
        for s in self.sums:
            if begun >> s & 1 and not self.needs[s] & ~complete:
                complete |= 1 << s
        return complete

    def _tight(self, begun: int, complete: int) -> int:
        """Sums not begun that keep at least as many values alive, which no other sum needs.

        A bipartite matching of values with the sums that they wait for decides. A value that can only be matched by displacing others
        waits, together with them, for too few sums.
        """
        wanted = [w for v in members(complete & ~self.results) if (w := self.uses[v] & ~begun)]
        alone = next((w for w in wanted if not w & (w - 1)), 0)
        if alone:
            return alone
        matched: dict[int, int] = {}
        for v in range(len(wanted)):
            _match(v, wanted, matched, 0)
        reached = (_reached(v, wanted, matched) for v in range(len(wanted)))
        return min((sums for sums in reached if sums), key=int.bit_count, default=0)


def _match(value: int, wanted: Sequence[int], matched: dict[int, int], seen: int) -> int:
    """Match a value with a sum along an augmenting path; returns the sums that were tried, or -1 if it is matched."""
    for s in members(wanted[value]):
        if seen >> s & 1:
            continue
        seen |= 1 << s
        if s in matched:
            tried = _match(matched[s], wanted, matched, seen)
            if tried >= 0:
                seen |= tried
                continue
        matched[s] = value
        return -1
    return seen


def _reached(value: int, wanted: Sequence[int], matched: Mapping[int, int]) -> int:
    """The sums on alternating paths from a value; none if one of them is unmatched."""
    sums, values = 0, [value]
    while values:
        for s in members(wanted[values.pop()] & ~sums):
            if s not in matched:
                return 0
            sums |= 1 << s
            values.append(matched[s])
    return sums


def with_shared_sums(linear: LinearMap) -> LinearMap:
    """A map without steps, rewritten with repeated pairs of terms as steps: the most frequent pair first, until none repeats."""
    rows = [{i: rational(c) for i, c in row} for row in linear.matrix]
    steps: list[Form] = []
    while True:
        counts = Counter((i, j, row[j] / row[i]) for row in rows for i, j in combinations(sorted(row), 2))
        pair, times = max(counts.items(), key=lambda item: (item[1], *(-x for x in item[0])), default=((0, 0, Fraction(1)), 0))
        if times < 2:
            return LinearMap(linear.inputs, tuple(map(_exact, rows)), tuple(steps))
        i, j, ratio = pair
        name = linear.inputs + len(steps)
        steps.append(_exact({i: Fraction(1), j: ratio}))
        for row in rows:
            if i in row and row.get(j) == ratio * row[i]:
                row[name] = row.pop(i)
                del row[j]


def members(values: int) -> Iterator[int]:
    """The values of a set, in ascending order."""
    while values:
        low = values & -values
        yield low.bit_length() - 1
        values ^= low


def _used(linear: LinearMap) -> list[int]:
    """The steps that some output needs."""
    needed = {index for row in linear.outputs for index, _ in row}
    for s in reversed(range(len(linear.steps))):
        if linear.inputs + s in needed:
            needed |= {index for index, _ in linear.steps[s]}
    return [s for s in range(len(linear.steps)) if linear.inputs + s in needed]


def _mask(values: Iterable[int]) -> int:
    total = 0
    for value in values:
        total |= 1 << value
    return total


def _exact(row: Mapping[int, Fraction]) -> Form:
    return form((i, exact(c)) for i, c in row.items())


PLACE = "?"
"""The space of places."""

LETTERS = {"A": "X", "B": "Y", "C": "P"}
"""The first letter of a workspace's name, by its shape."""


@dataclass
class SumPlaces:
    """The shape of each place (the operand whose blocks have its size), and whether it lies in C. Places are numbered by their rows."""

    shapes: list[str] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)

    def new(self, shape: str, inside: bool = False) -> Block:
        """A new place."""
        self.shapes.append(shape)
        self.inside.append(inside)
        return Block(PLACE, len(self.shapes) - 1, 0)

    def is_beside(self, place: Block) -> bool:
        """True if the place lies outside C."""
        return not self.inside[place.row]


def merged(stages: Sequence[Stage], places: SumPlaces) -> tuple[Stage, ...]:
    """Merge the stage that sums factors into the preceding stage that sums products, if that costs no memory."""

    def shapes(stage: LinearStage) -> set[str]:
        return {places.shapes[m.targets[0].row] for m in stage.maps}

    together = tuple(stages)
    most = peak(together, places)
    for number in reversed(range(1, len(stages))):
        first, second = together[number - 1 : number + 1]
        if isinstance(first, LinearStage) and isinstance(second, LinearStage) and not shapes(first) & shapes(second):
            both = (*together[: number - 1], LinearStage(first.maps + second.maps), *together[number + 1 :])
            together = both if peak(both, places) <= most else together
    return together


def peak(stages: Sequence[Stage], places: SumPlaces) -> int:
    """The most places outside C that are alive at once."""
    alive = [span for place, span in _spans(stages).items() if places.is_beside(place)]
    return max((sum(first // 2 <= number <= last // 2 for first, last in alive) for number in range(len(stages))), default=0)


def _spans(stages: Sequence[Stage]) -> dict[Block, tuple[int, int]]:
    """The first and last use of each place, in half stages: a stage reads first and writes second."""
    spans: dict[Block, tuple[int, int]] = {}
    for number, stage in enumerate(stages):
        for half, blocks in enumerate(stage_uses(stage, {PLACE})):
            for block in blocks:
                first, last = spans.get(block, (2 * number + half, 0))
                spans[block] = min(first, 2 * number + half), max(last, 2 * number + half)
    return spans


def blocks_of_c(stages: Sequence[Stage], places: SumPlaces, final: Mapping[Block, Block]) -> dict[Block, Block]:
    """A block of C for each place in C; a place that holds a result at the end gets that result's block."""
    spans = {place: span for place, span in _spans(stages).items() if not places.is_beside(place)}
    spans |= {place: (spans[place][0], 2 * len(stages)) for place in final}
    columns = _columns(spans, {})
    blocks = {columns[place]: block for place, block in final.items()}
    return {place: blocks[column] for place, column in columns.items()}


def workspaces_of(stages: Sequence[Stage], places: SumPlaces) -> tuple[dict[Block, Block], tuple[Space, ...]]:
    """A workspace of one block for each place outside C; a memory is one workspace for every shape that it holds."""
    spans = {place: (first // 2, last // 2) for place, (first, last) in _spans(stages).items() if places.is_beside(place)}
    columns = _columns(spans, {place: places.shapes[place.row] for place in spans})
    kinds = sorted({(places.shapes[place.row], column) for place, column in columns.items()})
    many = {shape for shape, _ in kinds if sum(shape == other for other, _ in kinds) > 1}
    numbers = {kind: sum(other[0] == kind[0] for other in kinds[:i]) for i, kind in enumerate(kinds)}
    names = {kind: LETTERS[kind[0]] + (_letters(numbers[kind]) if kind[0] in many else "") for kind in kinds}
    blocks = {place: Block(names[places.shapes[place.row], column], 0, 0) for place, column in columns.items()}
    return blocks, tuple(Space(names[kind], kind[0], 1, 1) for kind in kinds)


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ...: letters, because nested levels append digits to workspace names."""
    return (_letters(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


def _columns(spans: Mapping[Block, tuple[int, int]], kinds: Mapping[Block, str]) -> dict[Block, int]:
    """Number the places so that those alive at once differ, with as few numbers as possible.

    Places of one kind share a number if they can.
    """
    ends: list[int] = []
    held: list[set[str]] = []
    columns: dict[Block, int] = {}
    for place, (first, last) in sorted(spans.items(), key=lambda item: (item[1], item[0])):
        free = [i for i, end in enumerate(ends) if end < first]
        kind = kinds.get(place, "")
        column = next((i for i in free if kind in held[i]), free[0] if free else len(ends))
        if column == len(ends):
            ends.append(last)
            held.append(set())
        ends[column] = last
        held[column].add(kind)
        columns[place] = column
    return columns
