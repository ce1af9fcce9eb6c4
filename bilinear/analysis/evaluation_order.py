"""Evaluation order of a linear map: inputs read once, few values live at a time, and groups of work that repeat on other blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache

from bilinear.analysis.block_maps import part_of, places_of_components
from bilinear.ir.linear import Add, Evaluation, Form, LinearMap, Operation, Read, Write
from bilinear.ir.schedule import Block, BlockMap

NOTHING = BlockMap((), (), LinearMap(0, ()))  # The map of no blocks.
Members = tuple[tuple[int, ...], ...]  # The parts of a group: for each layer the numbers of its parts.


class GroupLayer:
    """Simultaneous maps as one, and its independent parts; parts with equal maps have equal `kinds`, the numbers of the maps in `known`."""

    def __init__(self, whole: BlockMap, known: dict[LinearMap, int]) -> None:
        self.whole = whole
        self.places = tuple(places_of_components(whole))
        self.parts = tuple(part_of(whole, rows, steps) for rows, steps in self.places)
        self._together: dict[tuple[int, ...], BlockMap] = {(i,): part for i, part in enumerate(self.parts)}
        self.kinds = tuple(known.setdefault(part.map, len(known)) for part in self.parts)

    def together(self, numbers: tuple[int, ...]) -> BlockMap:
        """Some of the parts as one map, its values in the order of the whole map."""
        if numbers not in self._together:
            rows, steps = (sorted(i for number in numbers for i in self.places[number][side]) for side in (0, 1))
            self._together[numbers] = part_of(self.whole, rows, steps) if rows else NOTHING
        return self._together[numbers]


def equal_groups(layers: Sequence[GroupLayer], state: Callable[[Block], Hashable]) -> Iterable[tuple[Members, int]]:
    """One of each kind of group (alike but for names of blocks, with equal `state`s), and how many groups are of its kind."""
    kinds: dict[Hashable, tuple[Members, int]] = {}
    for members in _groups(layers):
        kind = _kind(layers, members, state)
        first, count = kinds.get(kind, (members, 0))
        kinds[kind] = first, count + 1
    return kinds.values()


def _groups(layers: Sequence[GroupLayer]) -> Iterator[Members]:
    parent: dict[Block, Block] = {}

    def root(block: Block) -> Block:
        while (above := parent[block]) is not block:
            parent[block] = block = parent[above]
        return block

    for layer in layers:
        for part in layer.parts:
            own = root(parent.setdefault(part.targets[0], part.targets[0]))
            for block in part.sources + part.targets:
                if block in parent:
                    parent[root(block)] = own
                else:
                    parent[block] = own
    found: dict[Block, tuple[list[int], ...]] = {}
    for place, layer in enumerate(layers):
        for i, part in enumerate(layer.parts):
            own = root(part.targets[0])
            if own not in found:
                found[own] = tuple([] for _ in layers)
            found[own][place].append(i)
    return (tuple(map(tuple, numbers)) for numbers in found.values())


def _kind(layers: Sequence[GroupLayer], members: Members, state: Callable[[Block], Hashable]) -> Hashable:
    names: dict[Block, int] = {}
    kind: list[Hashable] = []
    for place, numbers in enumerate(members):
        for i in numbers:
            part = layers[place].parts[i]
            blocks = tuple([names.setdefault(block, len(names)) for block in part.sources + part.targets])
            kind.append((place, layers[place].kinds[i], blocks, part.kept))
    return (*kind, tuple(map(state, names)))


@lru_cache(maxsize=256)
def evaluate(linear: LinearMap, own: tuple[int | None, ...] = ()) -> Evaluation:
    """The map in an order with few live values.

    `own` gives for each output the input at the same place in memory, which must be read before the output is written.
    """
    order = _Order(linear, own or (None,) * len(linear.outputs))
    while order.unread or order.held:
        order.release(order.cheapest())
    instructions = tuple(order.instructions)
    return Evaluation(instructions, max(live_values(instructions), default=0))


@lru_cache(maxsize=256)
def holds_at_most(linear: LinearMap, own: tuple[int | None, ...], most: int) -> bool:
    """True if no more than `most` values are live at a time in the order of `evaluate`."""
    order = _Order(linear, own or (None,) * len(linear.outputs))
    while order.unread or order.held:
        if len(order.held) + len(order.begun) > most and order.live > most:  # these values are read or added to later
            return False
        order.release(order.cheapest())
    return max(live_values(order.instructions), default=0) <= most


def own_inputs(block_map: BlockMap) -> tuple[int | None, ...]:
    """For each target, the index of the source that is the same block."""
    place = {block: i for i, block in enumerate(block_map.sources)}
    return tuple(place.get(target) for target in block_map.targets)


def read_ahead(evaluation: Evaluation, most: int) -> Evaluation:
    """The same instructions with each read moved as early as fewer than `most` values are live, so that later work hides its latency."""
    moved: list[Operation] = []
    live = [0]  # before the first instruction, and after each
    for instruction, count in zip(evaluation.instructions, live_values(evaluation.instructions), strict=True):
        place = len(moved)
        if isinstance(instruction, Read):
            while place and not isinstance(moved[place - 1], Read) and live[place - 1] < most:
                place -= 1
            live[place + 1 :] = [later + 1 for later in live[place:]]
        else:
            live.append(count)
        moved.insert(place, instruction)
    return Evaluation(tuple(moved), max(live_values(moved), default=0))


def live_values(instructions: Sequence[Operation]) -> tuple[int, ...]:
    """The number of values that a thread holds after each instruction and during writes: those begun before and read by it or later."""
    last: dict[int, int] = {}
    for position, instruction in enumerate(instructions):
        for value in _touched(instruction):
            last[value] = position
    held: set[int] = set()
    counts = []
    for position, instruction in enumerate(instructions):
        touched = _touched(instruction)
        held.update(touched)
        before = len(held)
        held.difference_update(value for value in touched if last[value] == position)
        counts.append(before if isinstance(instruction, Write) else len(held))
    return tuple(counts)


def _touched(instruction: Operation) -> tuple[int, ...]:
    terms = instruction.terms if isinstance(instruction, Add) else ()
    return (instruction.value, *(index for index, _ in terms))


class _Order:
    """The instructions so far, the values held, and what each form still lacks. Forms are the steps, then the outputs."""

    def __init__(self, linear: LinearMap, own: tuple[int | None, ...]) -> None:
        self.inputs, self.steps = linear.inputs, len(linear.steps)
        self.forms = [dict(f) for f in linear.steps + linear.outputs]
        used = {value for terms in self.forms for value in terms}
        self.lacks = [dict.fromkeys(terms) for terms in self.forms]
        for output, value in enumerate(own):
            if value in used:
                self.lacks[self.steps + output].setdefault(value)  # they wait for it, although it is not added
        self.readers: dict[int, dict[int, None]] = {value: {} for value in range(self.inputs + self.steps)}
        for number, lacking in enumerate(self.lacks):
            for value in lacking:
                self.readers[value][number] = None
        self.begun: set[int] = set()
        self.held: dict[int, None] = {}
        self.unread = {value for value in range(self.inputs) if self.readers[value]}
        self.instructions: list[Operation] = []
        self.costs: dict[int, int] = {}
        self.seen_by: tuple[defaultdict[int, set[int]], defaultdict[int, set[int]]] = defaultdict(set), defaultdict(set)
        for number, lacking in enumerate(self.lacks):
            if not lacking:  # an empty sum
                self._take(number)

    @property
    def live(self) -> int:
        """The number of values held for forms that still lack them, and of begun forms."""
        held = sum(1 for value in self.held if any(value in self.forms[number] for number in self.readers[value]))
        return held + sum(1 for number in self.begun if self.lacks[number])

    def cheapest(self) -> int:
        """The value, held or read with the held ones, whose release leaves the fewest live; then the one with fewest readers."""
        near = {v for value in self.held for number in self.readers[value] for v in self.lacks[number] if v in self.unread}
        return min(near.union(self.held) or self.unread, key=lambda value: (self._cost(value), len(self.readers[value]), value))

    def _cost(self, value: int) -> int:
        """The cost of releasing a value, kept until something that it was computed from changes."""
        if value not in self.costs:
            self.costs[value] = self._release_cost(value)
        return self.costs[value]

    def _changed(self, number: int, values: Iterable[int]) -> None:
        """Forget the costs that were computed from a form and values that have changed."""
        forms, known = self.seen_by
        for cost in forms.pop(number, ()):
            self.costs.pop(cost, None)
        for value in values:
            for cost in known.pop(value, ()):
                self.costs.pop(cost, None)

    def _release_cost(self, value: int) -> int:
        held, readers, forms, known = self.held, self.readers, *self.seen_by
        taken = dict.fromkeys((value,), 0)
        begun = set() if value in held else {value}
        numbers = list(readers[value])
        ended = set(numbers)
        while numbers:
            number = numbers.pop()
            forms[number].add(value)
            for lacking in self.lacks[number]:
                if lacking in taken:
                    taken[lacking] += 1
                    continue
                taken[lacking] = 1
                if lacking not in held:
                    begun.add(lacking)
                    if lacking >= self.inputs and lacking - self.inputs not in ended:
                        ended.add(lacking - self.inputs)
                        numbers.append(lacking - self.inputs)
        for v in taken:
            known[v].add(value)
        begun.update([self.inputs + number for number in ended if number < self.steps])
        dead = sum([times == len(readers[v]) for v, times in taken.items()])
        return len(begun) - dead - len(ended & self.begun)

    def release(self, value: int) -> None:
        """Form everything that reads a value."""
        self._hold(value)
        for number in sorted(self.readers[value], key=lambda n: (n < self.steps, len(self.lacks[n].keys() - self.held.keys()), n)):
            self._form(number)

    def _hold(self, value: int) -> None:
        if value in self.held:
            return
        if value >= self.inputs:
            self._form(value - self.inputs)
        elif value in self.unread:
            self.unread.remove(value)
            self.held[value] = None
            self._changed(-1, (value,))
            self.instructions.append(Read(value))
            self._settle([value])

    def _form(self, number: int) -> None:
        for value in list(self.lacks[number]):
            self._hold(value)
        if self.lacks[number]:
            self._settle(self._take(number))

    def _settle(self, values: Iterable[int]) -> None:
        """Form or begin every reader of these values that needs no additional live value."""
        values = list(values)
        while values:
            value = values.pop()
            for number in sorted(self.readers[value], key=lambda n: (n < self.steps, n)):
                lacking = self.lacks[number]
                if value not in lacking:
                    continue
                present = [v for v in lacking if v in self.held]
                dying = any(len(self.readers[v]) == 1 for v in present)
                whole = len(present) == len(lacking)
                if number in self.begun or (whole and (dying or number >= self.steps)) or (dying and len(present) > 1):
                    values += self._take(number)

    def _take(self, number: int) -> list[int]:
        """Add to a form the held values that it lacks; returns the values that may complete other forms."""
        value = self.inputs + number
        present = [v for v in self.lacks[number] if v in self.held]
        self._changed(number, (*present, value))
        terms: Form = tuple(sorted((v, self.forms[number][v]) for v in present if v in self.forms[number]))
        freed = []
        for v in present:
            del self.lacks[number][v], self.readers[v][number]
            if not self.readers[v]:
                del self.held[v]
            elif len(self.readers[v]) == 1:
                freed.append(v)
        whole = not self.lacks[number]
        alone = terms[0][0] if len(self.forms[number]) == 1 and terms and terms[0][1] == 1 else None
        if whole and number >= self.steps and alone is not None:
            self.instructions.append(Write(number - self.steps, alone))
            return freed
        if terms or (whole and number not in self.begun):
            self.instructions.append(Add(value, terms, number not in self.begun))
            self.begun.add(number)
        if whole and number < self.steps:
            if self.readers[value]:
                self.held[value] = None
                freed.append(value)
        elif whole:
            self.instructions.append(Write(number - self.steps, value))
        return freed
