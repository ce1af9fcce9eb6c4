"""Chains: placements that compute C in parts, as the operands, the workspace and the lines of C of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from bilinear.ir.placement import Placement

Arrays = tuple[Any, Any, Any, Any]
"""A, B, C, and the workspace."""


def pieces_of(placement: Placement, a: Any, b: Any, c: Any, buffer: Any) -> list[tuple[Placement, Arrays]]:
    """Each placement of a chain with its operands, and with its workspace: what the next ones will overwrite, the buffer for the last."""
    pieces: list[tuple[Placement, Arrays]] = []
    by_column = "C" in placement.column_major
    for own, (left, right) in operands_of(placement, a, b):
        now, c = (c[:, : own.n], c[:, own.n :]) if by_column else (c[: own.m], c[own.m :])
        pieces.append((own, (left, right, now, buffer if own.rest is None else _lent(own, c.T if by_column else c))))
    return pieces


def operands_of(placement: Placement, a: Any, b: Any) -> list[tuple[Placement, tuple[Any, Any]]]:
    """Each placement of a chain with its rows of A, and with its columns of B; these may be batches."""
    found: list[tuple[Placement, tuple[Any, Any]]] = []
    for own in placement.chain:
        if "C" in placement.column_major:
            left, right, b = a, b[..., : own.n], b[..., own.n :]
        else:
            left, right, a = a[..., : own.m, :], b, a[..., own.m :, :]
        found.append((own, (left, right)))
    return found


def _lent(placement: Placement, later: Any) -> Any:
    """The workspace of a placement in a part of C that is computed later."""
    if not later.flags.c_contiguous:
        raise ValueError("C has gaps, and cannot hold workspaces")
    return later.reshape(-1)[: placement.workspace_elements]


@dataclass(frozen=True)
class Lines:
    """What a placement of a chain computes: rows `start` to `stop` of C, of those of A; with `by_columns` columns of C, of those of B.

    Its workspaces lie behind them, up to `end`.
    """

    start: int
    stop: int
    end: int
    by_columns: bool

    def told(self, changed: Iterable[str], undefined: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What is changed and what is undefined, by names of blocks of this placement, as what it is of the caller's matrices."""
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
    """Those of each placement of a chain; none where there is only one."""
    if placement.rest is None:
        return [None]
    by_columns = "C" in placement.column_major
    ends = list(accumulate(own.n if by_columns else own.m for own in placement.chain))
    return [Lines(start, stop, ends[-1], by_columns) for start, stop in zip((0, *ends), ends, strict=False)]
