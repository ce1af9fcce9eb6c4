"""Exact linear maps, stored as the straight-line programs that their authors wrote; and the operations that evaluate them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Literal, TypeVar

from bilinear.ir.number import Coefficient, Symbolic, exact, square
from bilinear.ir.packed import Packed, Packing, widened

T = TypeVar("T")
Form = tuple[tuple[int, Coefficient], ...]  # A linear form: (index, nonzero coefficient), by ascending index.


MOST_DIGITS = 2**25  # The most digits of packed forms with which the matrix of a map is computed: 256 MiB.


def form(terms: Mapping[int, Coefficient] | Iterable[tuple[int, Coefficient]]) -> Form:
    """The linear form with these terms, sorted by index: equal indices are added up, zeros dropped."""
    total: dict[int, Coefficient] = {}
    for index, coefficient in terms.items() if isinstance(terms, Mapping) else terms:
        total[index] = total[index] + coefficient if index in total else coefficient
    return tuple((index, exact(total[index])) for index in sorted(total) if total[index])


def substitute(outer: Form, values: Sequence[Form]) -> Form:
    """The form `outer` with each variable replaced by a form from `values`."""
    return form((i, c * d) for index, c in outer for i, d in values[index])


def transposed_rows(rows: Iterable[Iterable[tuple[int, T]]], columns: int) -> tuple[tuple[tuple[int, T], ...], ...]:
    """The columns of a sparse matrix whose rows are (index, entry) pairs."""
    found: list[list[tuple[int, T]]] = [[] for _ in range(columns)]
    for number, row in enumerate(rows):
        for column, entry in row:
            found[column].append((number, entry))
    return tuple(map(tuple, found))


@dataclass(frozen=True)
class LinearMap:
    """A linear map of `inputs` values: a list of steps, then the outputs.

    Step `i` is a form over the inputs (numbered from 0) and earlier steps (numbered from `inputs`); an output is a form over inputs and
    steps. A coefficient table has no steps. Named sub-expressions are steps, so an author's own common sub-expressions are kept. `names`
    are the names of the steps.
    """

    inputs: int
    outputs: tuple[Form, ...]
    steps: tuple[Form, ...] = ()
    names: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def matrix(self) -> tuple[Form, ...]:
        """The outputs as forms over the inputs alone: the rows of the map's matrix."""
        if not self.steps:
            return tuple(map(form, self.outputs))
        if self.packs:
            return widened(lambda packing: tuple(map(packing.form, self.packed(packing))), self._root or "")
        values: list[Form] = [((i, 1),) for i in range(self.inputs)]
        for step in self.steps:
            values.append(substitute(step, values))
        return tuple(substitute(output, values) for output in self.outputs)

    def mapped(self, row: Callable[[Form], Form]) -> LinearMap:
        """The same map with every step and every output changed."""
        return LinearMap(self.inputs, tuple(map(row, self.outputs)), tuple(map(row, self.steps)), self.names)

    def additions_of_table(self, most: float = inf) -> int:
        """The additions of the map as a table; not all are counted if they are more than `most`."""
        if not self.packs:
            return LinearMap(self.inputs, self.matrix).additions
        return widened(lambda packing: self._counted(packing, most), self._root or "")

    def _counted(self, packing: Packing, most: float) -> int:
        count = 0
        for row in self.packed(packing):
            count += max(0, packing.terms(row) - 1)
            if count > most:
                break
        return count

    @property
    def packs(self) -> bool:
        """True if the matrix is computed on packed forms: the coefficients are rational, or hold one root, and there is room."""
        return self._root is not None and self.inputs * (self.inputs + len(self.steps)) <= MOST_DIGITS

    @property
    def _root(self) -> str | None:
        """The root that occurs in the coefficients; empty if they are rational, None if they hold more than one generator, or another."""
        numbers = (c for terms in self.steps + self.outputs for _, c in terms)
        names = {name for c in numbers if isinstance(c, Symbolic) for name in c.generators}
        name = "".join(names) if len(names) < 2 else "lambda"
        return name if not name or square(name) is not None else None

    def packed(self, packing: Packing) -> Iterator[Packed]:
        """The outputs as packed forms over the inputs."""
        values = [packing.unit(i) for i in range(self.inputs)]
        for step in self.steps:
            values.append(packing.sum([(values[i], c) for i, c in step]))
        return (packing.sum([(values[i], c) for i, c in output]) for output in self.outputs)

    @property
    def additions(self) -> int:
        """Block additions and subtractions, counted as written (a form of t terms costs t - 1)."""
        return sum(max(0, len(f) - 1) for f in self.steps + self.outputs)

    @property
    def scalings(self) -> int:
        """Multiplications of a block by a coefficient other than 1 and -1, counted as written."""
        return sum(1 for f in self.steps + self.outputs for _, c in f if c not in (1, -1))


def identity(size: int) -> LinearMap:
    """The identity map on `size` values."""
    return LinearMap(size, tuple(((i, 1),) for i in range(size)))


@dataclass(frozen=True)
class Read:
    """Read the input `value` from memory."""

    value: int
    kind: Literal["read"] = field(default="read", init=False)


@dataclass(frozen=True)
class Add:
    """Set `value` to the form `terms` over other values if it `begins` here; otherwise add the form to it."""

    value: int
    terms: Form
    begins: bool
    kind: Literal["add"] = field(default="add", init=False)


@dataclass(frozen=True)
class Write:
    """Write `value` to memory as the output `output`."""

    output: int
    value: int
    kind: Literal["write"] = field(default="write", init=False)


Operation = Read | Add | Write


@dataclass(frozen=True)
class Evaluation:
    """Instructions that evaluate a linear map, and the largest number of values that are live at once."""

    instructions: tuple[Operation, ...]
    live: int
