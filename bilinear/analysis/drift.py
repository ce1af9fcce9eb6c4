"""The effect of rounding on a schedule as it runs: how far restored inputs drift, and how far C is from exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bilinear.analysis.rounding import SLACK
from bilinear.analysis.rounding_trace import OperandValue, Trace, Vector
from bilinear.ir.schedule import Block, Schedule

LARGEST_ROUNDOFF = 2.0**-24
"""Bounds are computed for the unit roundoff of float32. They hold for every finer type, because gamma_n / u grows with u."""


@dataclass(frozen=True)
class BlockDrift:
    """How far a restored block may be from its original, elementwise.

    |restored - original| <= u * sum of weight * max|block met| + e * sum of the losses whose block is not all zeros, where e is the
    smallest subnormal number. Losses come from multiplications with fractions that underflow; sums lose nothing.
    """

    block: Block
    weights: tuple[tuple[Block, float], ...]
    losses: tuple[tuple[Block, float], ...] = ()

    @property
    def coefficient(self) -> float:
        """The d in |restored - original| <= d * u * max(|blocks involved|), if nothing underflows."""
        return sum(weight for _, weight in self.weights) * SLACK

    @property
    def met(self) -> frozenset[Block]:
        """The blocks whose rounding errors remain in this one."""
        return frozenset(block for block, _ in self.weights + self.losses)


@dataclass(frozen=True)
class DriftBound:
    """The drift of one call for every block of A and B that the schedule restores; `lost` lists those that it does not.

    It holds if nothing overflows: `growth` is the largest ratio of a value in A or B to the largest entry that it is made of. It is
    infinite if a coefficient is not a normal number of float32; then there is no bound.
    """

    blocks: tuple[BlockDrift, ...]
    lost: tuple[Block, ...]
    growth: float

    def worst(self, operand: str | None = None) -> float:
        """The largest coefficient over the blocks of an operand, or of both."""
        return max((drift.coefficient for drift in self.blocks if operand in (None, drift.block.space)), default=0.0)

    @cached_property
    def by_block(self) -> dict[Block, BlockDrift]:
        """The drifts by block."""
        return {drift.block: drift for drift in self.blocks}


def drift_bound(schedule: Schedule, unit_roundoff: float = LARGEST_ROUNDOFF, summed: float | None = None) -> DriftBound:
    """The drift bound of a schedule exactly as it runs (flat, fused), for types with at most this unit roundoff.

    The schedule runs on exact forms. Each sum of t terms adds a local error of at most gamma_t * sum |c| * |computed value|. Later steps
    propagate it linearly with exact coefficients, so errors that the schedule itself subtracts again cancel here too. A block that is never
    written, or only copied, does not drift. `summed` is as in `rounding_trace`. Raises `ValueError` for a schedule with explicit scaling.
    """
    trace = Trace.of(schedule, unit_roundoff, summed=summed)
    blocks: list[BlockDrift] = []
    lost: list[Block] = []
    for name in ("A", "B"):
        originals = schedule.space(name).blocks
        for index, block in enumerate(originals):
            value = trace.state[block]
            if not isinstance(value, OperandValue) or value.space != name or value.form != {index: 1}:
                lost.append(block)
                continue
            blocks.append(BlockDrift(block, *(_by_block(originals, bound) for bound in (value.error, value.lost))))
    return DriftBound(tuple(blocks), tuple(lost), trace.growth * SLACK)


def _by_block(blocks: Sequence[Block], bound: Vector) -> tuple[tuple[Block, float], ...]:
    return tuple((block, float(weight) * SLACK) for block, weight in zip(blocks, bound, strict=True) if weight > 0)
