"""How far from exact a schedule may end, in floating point."""

from __future__ import annotations

from fractions import Fraction

from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.schedule import LinearStage, Schedule
from bilinear.ir.scheme import Scheme


def growth_factor(scheme: Scheme) -> Fraction:
    """The largest amplification of one level, E = max over outputs of sum over products of |w| * |u|_1 * |v|_1.

    The norm-wise growth factor of Brent and Higham in the form of Ballard, Benson, Druinsky, Lipshitz and Schwartz (2016).
    """
    u, v, w = scheme.tables
    weights = [_norm(a) * _norm(b) for a, b in zip(u, v, strict=True)]
    return max(sum((abs(Fraction(c)) * weights[p] for p, c in row), Fraction(0)) for row in w)


def error_allowance(scheme: Scheme, schedule: Schedule, inner: int, unit_roundoff: float) -> float:
    """An allowance for max|C - A*B| in units of max|A| * max|B|, for one multiply with alpha = 1 and beta = 0.

    First-order: a leaf product of depth K0 = inner / k**levels errs by at most K0**2 * u, every value it meets has gone through at most
    d additions (the longest chain of the schedule's linear stages and of its sums into one block), and each level amplifies by the
    growth factor: growth**levels * K0 * (K0 + d) * u. Second-order terms are covered by a factor of 2.
    """
    levels = schedule.levels
    depth = max(1, -(-inner // schedule.k))
    chain = sum(max(_longest_chain(m.map) for m in stage.maps) for stage in schedule.stages if isinstance(stage, LinearStage))
    chain += scheme.rank * levels
    growth = float(growth_factor(scheme)) ** levels
    return 2.0 * growth * depth * (depth + chain) * unit_roundoff


def _norm(row: Form) -> Fraction:
    return sum((abs(Fraction(c)) for _, c in row), Fraction(0))


def _longest_chain(linear: LinearMap) -> int:
    """The most additions and scalings that lie between an input and an output."""
    depths = [0] * linear.inputs
    for step in linear.steps + linear.outputs:
        depths.append(len(step) + max((depths[i] for i, _ in step if i < len(depths)), default=0))
    return max(depths)
