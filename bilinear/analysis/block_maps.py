"""The algebra of block maps: run side by side, compose, and split into independent parts."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import wraps
from operator import itemgetter
from typing import ParamSpec, TypeVar

from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, to_float
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, ScaledTarget, Stage, Target
from bilinear.source import Span


@dataclass
class _StraightLine:
    """A straight-line program under construction, with the value that each block currently holds."""

    sources: tuple[Block, ...]
    steps: list[Form] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    holds: dict[Block, int] = field(default_factory=dict)
    kept: dict[Block, Coefficient] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.holds = {block: i for i, block in enumerate(self.sources)}

    def append(self, step: Form, name: str = "") -> int:
        self.steps.append(step)
        self.names.append(name)
        return len(self.sources) + len(self.steps) - 1

    def run(self, block_map: BlockMap) -> None:
        """Run one block map: read all sources, then write all targets."""
        values = [self.holds[block] for block in block_map.sources]
        names = block_map.map.names or ("",) * len(block_map.map.steps)
        for step, name in zip(block_map.map.steps, names, strict=True):
            values.append(self.append(_renamed(step, values), name))
        written = {}
        for target, output in zip(block_map.targets, block_map.map.outputs, strict=True):
            terms = _renamed(output, values)
            written[target] = terms[0][0] if is_plain(terms) else self.append(terms)
        self.holds.update(written)
        self.kept.update(zip(block_map.targets, block_map.kept, strict=True))

    def finish(self) -> BlockMap:
        """The block map from the sources to every block that is written; a step that only one output uses becomes that output."""
        first = len(self.sources)
        own = {block: i for i, block in enumerate(self.sources)}
        targets = tuple(block for block, value in self.holds.items() if own.get(block) != value)
        results = [self.holds[target] for target in targets]
        uses = Counter([index for step in self.steps for index, _ in step] + results)
        inlined = {value for value in results if value >= first and uses[value] == 1}
        kept = [i for i in range(len(self.steps)) if first + i not in inlined]
        numbers = list(range(first)) + [-1] * len(self.steps)
        for position, i in enumerate(kept):
            numbers[first + i] = first + position
        steps = tuple(_closed_up(self.steps[i], numbers) for i in kept)
        outputs = tuple(_closed_up(self.steps[v - first], numbers) if v in inlined else ((numbers[v], 1),) for v in results)
        named = tuple(self.names[i] for i in kept)
        factors = tuple(self.kept[target] for target in targets)
        return BlockMap(self.sources, targets, LinearMap(first, outputs, steps, named), factors)


def is_plain(terms: Form) -> bool:
    """True if a form is a single value with coefficient 1."""
    return len(terms) == 1 and terms[0][1] == 1


def _renamed(terms: Form, numbers: Sequence[int]) -> Form:
    """A form with renumbered values; two of them may get the same number."""
    if len(terms) == 1:
        ((index, coefficient),) = terms
        return ((numbers[index], coefficient),)
    moved = sorted([(numbers[index], coefficient) for index, coefficient in terms], key=itemgetter(0))
    return tuple(moved) if len({index for index, _ in moved}) == len(moved) else form(moved)


def _closed_up(terms: Form, numbers: Mapping[int, int] | Sequence[int]) -> Form:
    """A form with renumbered values, in the same order."""
    return tuple([(numbers[index], coefficient) for index, coefficient in terms])


def over_blocks(rows: Sequence[tuple[Block, Sequence[tuple[Block, Coefficient]]]], spans: tuple[Span, ...] = ()) -> BlockMap:
    """The map that writes to each block the form over blocks that is given with it."""
    sources = tuple(sorted({block for _, terms in rows for block, _ in terms}))
    place = {block: i for i, block in enumerate(sources)}
    outputs = tuple(form((place[block], c) for block, c in terms) for _, terms in rows)
    return BlockMap(sources, tuple(target for target, _ in rows), LinearMap(len(sources), outputs), spans=spans)


def restrict(block_map: BlockMap, targets: set[Block]) -> BlockMap:
    """The map restricted to these targets, without the steps and sources that they do not need."""
    rows = [i for i, target in enumerate(block_map.targets) if target in targets]
    return part_of(block_map, rows, range(len(block_map.map.steps)))


def part_of(block_map: BlockMap, rows: Sequence[int], steps: Sequence[int]) -> BlockMap:
    """The map restricted to these outputs and steps, which suffice for them, without the sources that they do not need."""
    old = block_map.map
    needed = {index for row in rows for index, _ in old.outputs[row]}
    for i in reversed(steps):
        if old.inputs + i in needed:
            needed.update([index for index, _ in old.steps[i]])
    targets, factors = tuple([block_map.targets[i] for i in rows]), tuple([block_map.kept[i] for i in rows])
    if len(rows) == len(old.outputs) and len(needed) == old.inputs + len(old.steps):
        return BlockMap(block_map.sources, targets, old, factors)
    order = sorted(needed)
    numbers = {index: position for position, index in enumerate(order)}
    kept = [i - old.inputs for i in order if i >= old.inputs]
    names = tuple([old.names[i] for i in kept]) if old.names else ()
    outputs = tuple([_closed_up(old.outputs[i], numbers) for i in rows])
    new = LinearMap(len(order) - len(kept), outputs, tuple([_closed_up(old.steps[i], numbers) for i in kept]), names)
    return BlockMap(tuple([block_map.sources[i] for i in order if i < old.inputs]), targets, new, factors)


def beside(maps: Iterable[BlockMap]) -> BlockMap:
    """Simultaneous maps as one map: all read the values from before."""
    maps = tuple(maps)
    if len(maps) == 1:
        return maps[0]
    sources = tuple(dict.fromkeys(block for m in maps for block in m.sources))
    place = {block: i for i, block in enumerate(sources)}
    steps: list[Form] = []
    names: list[str] = []
    outputs: list[Form] = []
    for m in maps:
        numbers = [place[block] for block in m.sources]
        for i, step in enumerate(m.map.steps):
            steps.append(_renamed(step, numbers))
            names.append(m.map.names[i] if m.map.names else "")
            numbers.append(len(sources) + len(steps) - 1)
        outputs += [_renamed(output, numbers) for output in m.map.outputs]
    targets = tuple(target for m in maps for target in m.targets)
    kept = tuple(factor for m in maps for factor in m.kept)
    return BlockMap(sources, targets, LinearMap(len(sources), tuple(outputs), tuple(steps), tuple(names)), kept)


def then(first: BlockMap, second: BlockMap) -> BlockMap:
    """`second` after `first` as one map that reads each source once: the product of their matrices.

    It keeps the shared values of both programs. A block whose old value one map keeps must not be a source or a target of the other.
    """
    known = {*first.sources, *first.targets}
    program = _StraightLine(first.sources + tuple([block for block in second.sources if block not in known]))
    program.run(first)
    program.run(second)
    return program.finish()


def pruned(block_map: BlockMap) -> BlockMap:
    """The map without targets that keep their value, and without sources that nothing reads."""
    own = {block: i for i, block in enumerate(block_map.sources)}
    rows = zip(block_map.targets, block_map.map.outputs, strict=True)
    kept = [(target, row) for target, row in rows if target not in own or row != ((own[target], 1),)]
    return restrict(block_map, {target for target, _ in kept})


def relabel(block_map: BlockMap, rename: Callable[[Block], Block]) -> BlockMap:
    """The same map on other blocks."""
    return BlockMap(tuple(map(rename, block_map.sources)), tuple(map(rename, block_map.targets)), block_map.map, block_map.kept)


def relabel_stage(stage: Stage, rename: Callable[[Block], Block]) -> Stage:
    """The same stage on other blocks."""
    if isinstance(stage, LinearStage):
        return replace(stage, maps=tuple(relabel(m, rename) for m in stage.maps))
    return ProductStage(tuple(_relabelled(product, rename) for product in stage.products))


def _relabelled(product: Product, rename: Callable[[Block], Block]) -> Product:
    def moved(target: Target) -> Target:
        new = replace(target, block=rename(target.block))
        return replace(new, plus=tuple((rename(b), c) for b, c in new.plus)) if isinstance(new, ScaledTarget) else new

    return Product(rename(product.left), rename(product.right), tuple(map(moved, product.targets)))


def components(block_map: BlockMap) -> tuple[BlockMap, ...]:
    """The independent parts of a map: no part reads or writes a block of another. Equal parts have equal maps."""
    return tuple(part_of(block_map, rows, steps) for rows, steps in places_of_components(block_map))


def places_of_components(block_map: BlockMap) -> Iterator[tuple[list[int], list[int]]]:
    """For each independent part of a map the numbers of its outputs, and those of the steps that they may need."""
    old = block_map.map
    parent = list(range(old.inputs + len(old.steps) + len(old.outputs)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for position, terms in enumerate(old.steps + old.outputs):
        own = root(old.inputs + position)
        for index, _ in terms:
            parent[root(index)] = own
    place = {block: i for i, block in enumerate(block_map.sources)}
    first_output = old.inputs + len(old.steps)
    for position, target in enumerate(block_map.targets):
        if target in place:
            parent[root(place[target])] = root(first_output + position)
    rows: dict[int, list[int]] = {}
    steps: dict[int, list[int]] = {}
    for position in range(len(block_map.targets)):
        rows.setdefault(root(first_output + position), []).append(position)
    for position in range(len(old.steps)):
        steps.setdefault(root(old.inputs + position), []).append(position)
    return ((own_rows, steps.get(number, [])) for number, own_rows in rows.items())


def headroom(linear: LinearMap) -> int:
    """The least h so that forms of numbers below 1 in magnitude are below 2^h: the largest sum of a row's |coefficients| is at most 2^h."""
    most = max(sum(abs(Fraction(to_float(c))) for _, c in row) for row in linear.matrix)
    h = 0
    while 2**h < most:
        h += 1
    return h


P = ParamSpec("P")
Returned = TypeVar("Returned")


def uncollected(function: Callable[P, Returned]) -> Callable[P, Returned]:
    """The function with Python's collector of cycles paused while it runs; the collector goes on afterwards, also after an exception.

    While millions of tuples are made, it would walk over all objects again and again, and find no cycle. A collector that is off stays off.
    """

    @wraps(function)
    def paused(*args: P.args, **kwargs: P.kwargs) -> Returned:
        if not gc.isenabled():
            return function(*args, **kwargs)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            gc.enable()

    return paused
