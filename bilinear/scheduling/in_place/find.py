"""In-place schedules for any scheme: C += A*B with sums formed in A and B themselves, nothing allocated, and A and B restored.

Every bilinear program can run this way, one product at a time (Dumas, Grenet, "In-place accumulation of fast multiplication formulae",
ISSAC 2024). Here products run in stages as wide as the blocks allow: the left forms of a stage stand in different blocks of A at once, the
right ones in blocks of B, so each product may recurse in place. The search minimizes the number of stages first, then block additions, then
traffic (blocks that fused linear stages move).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence

from bilinear.errors import fail
from bilinear.ir.linear import Form, transposed_rows
from bilinear.ir.number import residue
from bilinear.ir.schedule import Schedule
from bilinear.ir.scheme import Scheme, block_name
from bilinear.lowering.prepare import require_rationals
from bilinear.scheduling.in_place.partitions import ScratchSearch, StageEffort, StageProgress, StageSearch
from bilinear.scheduling.in_place.schedule import write_schedule
from bilinear.scheduling.in_place.walks import PRIME, OperandSide, Row, is_sum

__all__ = ["StageProgress", "find_in_place"]


def find_in_place(
    scheme: Scheme,
    *,
    consume: bool = False,
    keep: Collection[str] = (),
    temporaries: int = 0,
    overwrite: bool = False,
    scratch: Collection[str] = ("A", "B"),
    effort: int = 1,
    seconds: float = math.inf,
    seed: int = 0,
    progress: Callable[[StageProgress], None] = lambda _: None,
) -> Schedule:
    """Find an in-place schedule of one level for a scheme over Z or Q: few product stages, then few additions, then little traffic.

    `consume` leaves A and B undefined; operands in `keep` are never written, not even for a moment. Up to `temporaries` blocks for sums of
    A, and as many for sums of B, are allocated if they help; such a schedule does not recurse in place. With `overwrite` it computes C =
    alpha*A*B, and blocks of C hold sums of the operands in `scratch` until a product is written there; the proof states the shape that this
    requires (K/k = N/n for sums of A, M/m = K/k for sums of B). The result depends only on `seed`; `effort` multiplies the number of
    candidates, and `seconds` ends the search early with the best so far. Raises `BilinearError`: E551 if a coefficient is not rational,
    E552 and E559 if an operand cannot be kept, E553 and E560 if an option is invalid.
    """
    _check_options(keep, scratch, temporaries, effort)
    tables = rational_tables(scheme)
    for name, rows in zip("AB", tables, strict=False):
        if name in keep and not temporaries and not (overwrite and name in scratch):
            _check_kept(scheme, name, rows)
    useful = useful_products(tables)
    sides = [
        OperandSide(residues([rows[p] for p in useful], size), size, temporaries, name in keep)
        for name, rows, size in zip("AB", tables, (scheme.m * scheme.k, scheme.k * scheme.n), strict=False)
    ]
    outputs = [frozenset(i for i, _ in tables[2][p]) for p in useful]
    search = StageSearch(sides, outputs, not consume, seed)
    if overwrite:
        search = ScratchSearch(sides, outputs, not consume, seed, ("A" in scratch, "B" in scratch), scheme.m * scheme.n)
    best = search.run(effort_for(scheme.rank * max(side.blocks for side in sides), effort, seconds), progress)
    order = tuple(frozenset(useful[i] for i in group) for group in best.order)
    return write_schedule(scheme, order, (best.walks[0], best.walks[1]), not consume, temporaries, best.lent)


def effort_for(size: int, effort: int, seconds: float) -> StageEffort:
    """The search effort for a scheme of this size (products times blocks)."""
    candidates = effort * max(60, min(600, 150_000 // size))
    return StageEffort(candidates, 4 if size < 500 else 2, 32 if size < 500 else 8, time.monotonic() + seconds)


def rational_tables(scheme: Scheme) -> tuple[tuple[Form, ...], tuple[Form, ...], tuple[Form, ...]]:
    """U, V and the columns of W: three forms a product. Schemes over other rings than Z and Q are refused (E551)."""
    u, v, w = scheme.tables
    require_rationals(scheme, "E551", "in-place schedules", "take a scheme with rational coefficients, or write the schedule by hand")
    return u, v, transposed_rows(w, scheme.rank)


def useful_products(tables: Sequence[Sequence[Form]]) -> tuple[int, ...]:
    """The products that are not zero and are used."""
    return tuple(p for p, forms in enumerate(zip(*tables, strict=True)) if all(forms))


def residues(rows: Sequence[Form], blocks: int) -> tuple[Row, ...]:
    """Forms as dense rows of residues."""
    table = []
    for row in rows:
        dense = [0] * blocks
        for index, coefficient in row:
            dense[index] = residue(coefficient, PRIME)
        table.append(tuple(dense))
    return tuple(table)


def _check_options(keep: Collection[str], scratch: Collection[str], temporaries: int, effort: int) -> None:
    if unknown := sorted(set(keep) - {"A", "B"}):
        raise fail("E553", f"keep={unknown[0]!r}: A and B are the operands that can be kept")
    if temporaries < 0 or effort < 1:
        raise fail("E553", f"temporaries={temporaries}, effort={effort}: at least 0 and at least 1 are possible")
    if unknown := sorted(set(scratch) - {"A", "B"}):
        raise fail("E560", f"scratch={unknown[0]!r}: blocks of C may hold sums of A and of B")


def _check_kept(scheme: Scheme, name: str, rows: Sequence[Form]) -> None:
    """Refuse to keep an operand whose sums have no place (E552)."""
    columns = scheme.k if name == "A" else scheme.n
    for product, row in zip(scheme.products, residues(rows, (scheme.m if name == "A" else scheme.k) * columns), strict=True):
        if is_sum(row):
            terms = " and ".join(block_name(name, *divmod(i, columns)) for i, x in enumerate(row) if x)
            note = f"{product} multiplies a sum of {terms}, and without temporaries it has no place but {name}"
            raise fail("E552", f"{scheme.name} cannot run with {name} never written", "allow a temporary", notes=(note,))
