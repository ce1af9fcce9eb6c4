"""The catalogue of known ranks: consistent with itself, with the totals that its source prints, and with what is shipped."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement, permutations
from math import log2

import pytest

from bilinear.ir.ring import Ring
from bilinear.ir.scheme import least_rank
from bilinear.reporting.catalogue import LARGEST, RINGS, KnownRank, compared, known_rank
from bilinear.reporting.shipped import library_rows

Sides = tuple[int, ...]
FORMATS = list(combinations_with_replacement(range(1, LARGEST + 1), 3))


def known(sides: Sides) -> KnownRank:
    found = known_rank(*sides)
    assert found is not None
    return found


def test_the_totals_are_those_that_the_source_prints() -> None:
    """680 formats, 365 of them with coefficients -1, 0 and 1, 34 with integers, 281 with fractions, and 31 better than Strassen's."""
    rows = [known(sides) for sides in FORMATS if sides[0] > 1]
    assert Counter(row.ring for row in rows) == dict(zip(RINGS, (281, 34, 365), strict=True))
    assert sum(row.exponent < log2(7) - 1e-12 for row in rows) == 31
    assert all(row.source and row.modulo_2 <= row.least[1] and sorted(row.least) == list(row.least) for row in rows)


@pytest.mark.parametrize(
    ("sides", "least", "modulo_2", "author"),
    [
        ((2, 2, 2), (7, 7, 7), 7, "Strassen"),
        ((3, 2, 5), (25, 25, 25), 25, "Hopcroft"),
        ((5, 4, 2), (32, 33, 33), 33, "Novikov"),
        ((3, 3, 3), (23, 23, 23), 23, "Laderman"),
        ((6, 3, 3), (40, 42, 42), 42, "Smirnov"),
        ((4, 4, 4), (48, 49, 49), 47, "Dumas"),
        ((5, 12, 5), (204, 204, 204), 204, "Perminov"),
        ((2, 10, 14), (217, 219, 220), 219, "Hopcroft"),
        ((7, 8, 8), (306, 310, 310), 302, "collected"),
        ((1, 9, 4), (36, 36, 36), 36, "the blocks"),
    ],
)
def test_a_format_has_the_published_ranks_by_ring(sides: Sides, least: Sides, modulo_2: int, author: str) -> None:
    found = known(sides)
    assert (found.least, found.modulo_2) == (least, modulo_2) and author in found.source
    assert [found.over(Ring(ring)) for ring in ("Q[sqrt(3)]", "Z", "Z/3", "Z/2")] == [least[0], least[1], least[1], modulo_2]


@pytest.mark.parametrize("over", ["Q", "Z"])
def test_no_sum_or_larger_format_beats_a_rank_and_all_orders_agree(over: str) -> None:
    """A missing column is a block of zeros, so ranks grow with the sides; two formats side by side need at most the sum."""
    ring = Ring(over)
    ranks = {turned: known(turned).over(ring) for sides in FORMATS for turned in permutations(sides)}
    for (m, k, n), rank in ranks.items():
        assert rank == ranks[n, m, k] == ranks[k, m, n] >= least_rank(m, k, n)
        assert all(ranks[m, k, smaller] <= rank <= ranks[m, k, smaller] + ranks[m, k, n - smaller] for smaller in range(1, n))


def test_no_shipped_scheme_has_fewer_products_than_are_known() -> None:
    rows = [row for row in library_rows() if row.known_rank is not None]
    assert all(row.known_rank <= row.rank for row in rows if row.known_rank is not None)
    assert {row.name for row in rows if row.known_rank == row.rank} >= {"strassen", "laderman", "smirnov_336", "walk_444_mod2", "dps_444"}


def test_a_rank_is_compared_in_a_line() -> None:
    assert compared(3, 6, 3, 44, Ring("Q"))[0].startswith("best known 40, here 44 (A. V. Smirnov")
    assert compared(4, 4, 4, 46, Ring("Z/2")) == ["46 are fewer than the best known 47"]
    assert compared(2, 2, 17, 60, Ring("Q")) == compared(3, 2, 2, 10, Ring("Q[lambda]")) == []
