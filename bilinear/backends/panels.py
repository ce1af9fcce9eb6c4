"""Panels: C is computed in parts by a chain of placements. Each has its operands, its workspace, and its rows or columns of C."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from bilinear.ir.matrix import Call, Matrix
from bilinear.ir.placement import Placement


def pieces_of(placement: Placement, call: Call) -> list[tuple[Placement, Call]]:
    """Each placement of a chain with its own call. Its workspace is the part of C that later placements write; the last uses the buffer."""
    pieces: list[tuple[Placement, Call]] = []
    c, by_column = call.c, "C" in placement.column_major
    for own, (left, right) in operands_of(placement, call.a, call.b):
        m, n = c.layout.shape
        if by_column:
            now, c = c.part((0, m), (0, own.n)), c.part((0, m), (own.n, n))
        else:
            now, c = c.part((0, own.m), (0, n)), c.part((own.m, m), (0, n))
        workspace = call.workspace if own.rest is None else (c.T if by_column else c).start(own.workspace_elements)
        pieces.append((own, call._replace(a=left, b=right, c=now, workspace=workspace)))
    return pieces


def operands_of(placement: Placement, a: Matrix, b: Matrix) -> list[tuple[Placement, tuple[Matrix, Matrix]]]:
    """Each placement of a chain with its operands: its rows of A and all of B, or all of A and its columns of B. They may be batches."""
    found: list[tuple[Placement, tuple[Matrix, Matrix]]] = []
    for own in placement.chain:
        (m, k), n = a.layout.shape[-2:], b.layout.shape[-1]
        if "C" in placement.column_major:
            left, right, b = a, b.part((0, k), (0, own.n)), b.part((0, k), (own.n, n))
        else:
            left, right, a = a.part((0, own.m), (0, k)), b, a.part((own.m, m), (0, k))
        found.append((own, (left, right)))
    return found


@dataclass(frozen=True)
class Lines:
    """The rows `start` to `stop` of C that a placement of a chain computes from the same rows of A, or columns of C and B if `by_columns`.

    Its workspaces lie in C behind them, up to `end`.
    """

    start: int
    stop: int
    end: int
    by_columns: bool

    def told(self, changed: Iterable[str], undefined: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The changed and the undefined blocks of this placement, named as parts of the caller's matrices."""
        changed, undefined = list(changed), list(undefined)
        earlier = [self._range("C", 0, self.start)] if self.start else []
        behind = [self._range("C", self.start, self.end)] if self.start or any(name[0] == "C" for name in (*changed, *undefined)) else []
        return (*earlier, *self._operands(changed)), (*behind, *self._operands(undefined))

    def _operands(self, names: Iterable[str]) -> Iterator[str]:
        cut = "B" if self.by_columns else "A"
        for name in names:
            if name[0] != "C":
                yield f"{name} of {self._range(cut, self.start, self.stop)}" if name[0] == cut else name

    def _range(self, matrix: str, start: int, stop: int) -> str:
        return f"{matrix}[:, {start}:{stop}]" if self.by_columns else f"{matrix}[{start}:{stop}, :]"


def lines_of(placement: Placement) -> list[Lines | None]:
    """The lines of each placement of a chain; a single None if there is only one placement."""
    if placement.rest is None:
        return [None]
    by_columns = "C" in placement.column_major
    ends = list(accumulate(own.n if by_columns else own.m for own in placement.chain))
    return [Lines(start, stop, ends[-1], by_columns) for start, stop in zip((0, *ends), ends, strict=False)]
