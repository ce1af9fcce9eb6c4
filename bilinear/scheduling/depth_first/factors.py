"""The factors of a depth-first schedule: exact sums of blocks, each formed before a product, usually from a sum that is still held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from bilinear.ir.linear import Form, form
from bilinear.ir.number import rational


@dataclass(frozen=True)
class Making:
    """How to make a line from another: `factor` times the held line, plus `rest`, a form over the operand's blocks."""

    factor: Fraction
    rest: Form

    @cached_property
    def additions(self) -> int:
        """Block additions; a line made from nothing needs one fewer."""
        return len(self.rest) - (not self.factor)

    @property
    def traffic(self) -> int:
        """Blocks read and written."""
        return len(self.rest) + bool(self.factor) + 1


class Factors:
    """The factors of one operand: `lines` are the sums up to a multiple; `line[p]` is the line of product p, or -1 for a single block.

    `scale[p]` is the multiple of the line, or of the block `block[p]`.
    """

    def __init__(self, rows: Sequence[Form]) -> None:
        self.lines: list[Form] = []
        self.line: list[int] = []
        self.scale: list[Fraction] = []
        self.block: list[int] = []
        for row in rows:
            self._add(row)
        self.users = [frozenset(p for p, own in enumerate(self.line) if own == i) for i in range(len(self.lines))]
        self._makings: dict[tuple[int, int], Making] = {}

    def _add(self, row: Form) -> None:
        index, first = row[0] if row else (0, 0)
        if len(row) <= 1:
            line, scale = -1, rational(first)
        else:
            known = next((i for i, line in enumerate(self.lines) if _multiple(row, line) is not None), None)
            line = len(self.lines) if known is None else known
            self.lines += [row] if known is None else []
            scale = _multiple(row, self.lines[line]) or Fraction(1)
        self.line.append(line)
        self.scale.append(scale)
        self.block.append(index)

    def making(self, line: int, held: int) -> Making:
        """The cheapest way from the held line `held` (-1: nothing) to `line`."""
        if (line, held) not in self._makings:
            self._makings[line, held] = self._cheapest(self.lines[line], self.lines[held] if held >= 0 else ())
        return self._makings[line, held]

    def best(self, line: int, held: Sequence[int]) -> tuple[int, Making]:
        """The cheapest way to a line from one of these, or from nothing."""
        ways = [(h, self.making(line, h)) for h in (-1, *held)]
        return min(ways, key=lambda way: (way[1].additions, way[1].traffic))

    def cheapest(self, line: int) -> int:
        """The fewest additions that make a line from any other."""
        return min(self.making(line, h).additions for h in range(-1, len(self.lines)) if h != line)

    @staticmethod
    def _cheapest(wanted: Form, held: Form) -> Making:
        have = {i: rational(c) for i, c in held}
        factors = {Fraction(0)} | {rational(c) / have[i] for i, c in wanted if i in have}
        ways = [Making(f, form([*wanted, *((i, -f * c) for i, c in have.items())])) for f in sorted(factors)]
        return min((way for way in ways if bool(way.factor) == bool(held)), key=lambda w: w.additions, default=Making(Fraction(0), wanted))


def _multiple(row: Form, line: Form) -> Fraction | None:
    """The factor of `row` to `line`; None if it is not a multiple."""
    factor = rational(row[0][1]) / rational(line[0][1])
    return factor if row == form((i, factor * rational(c)) for i, c in line) else None
