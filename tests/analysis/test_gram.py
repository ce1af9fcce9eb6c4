"""A*A^T: its operations beside the published recurrences, and its probable error beside its formula and measured errors."""

from __future__ import annotations

import re
from fractions import Fraction
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from gram_counts import by_halving, by_scheme, product

import bilinear
from bilinear.analysis.accuracy import deviations, probable_error, probable_gram_error
from bilinear.frontend import LoadedGram, load_any, parse_source
from bilinear.ir.gram import GramScheme
from bilinear.source import Source

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "gram.md"


def rxtx() -> GramScheme:
    found = load_any("rxtx")
    assert isinstance(found, LoadedGram)
    return found.scheme


@pytest.mark.parametrize("levels", range(1, 6))
def test_multiplications_follow_the_recurrences(levels: int) -> None:
    """Rybin, Zhang, Luo (2025), table 1: 26 M(n/4) + 8 R(n/4) and 4 S(n/2) + 2 M(n/2), above triangles of one block."""
    n = 4**levels
    halves, schemes = [Fraction(1, 2)], [Fraction(1, 2)]
    for level in range(2 * levels):
        halves.append(4 * halves[-1] + 2 * 7**level)
    for level in range(levels):
        schemes.append(8 * schemes[-1] + 26 * 49**level)
    assert product(n, n, n).multiplications == 49**levels
    assert by_scheme(rxtx(), n, n).multiplications == schemes[-1]
    assert by_halving(n, n).multiplications == halves[-1]
    assert halves[1] == 4 and halves[2] == schemes[1] == 30, "one level of the scheme saves nothing beside two halvings"
    for found, limit, rest in ((schemes[-1], Fraction(26, 41), 8**levels), (halves[-1], Fraction(2, 3), 16**levels)):
        assert found - limit * 49**levels == (Fraction(1, 2) - limit) * rest


def test_the_page_has_these_counts() -> None:
    rows = re.findall(r"^\| (\d+) \| ([0-9.]+) \| ([0-9.]+) \| ([0-9.]+) \| ([0-9.]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [int(row[0]) for row in rows] == [4, 16, 64, 256]
    for blocks, *told in rows:
        n = int(blocks)
        halved, schemed = by_halving(n, n), by_scheme(rxtx(), n, n)
        ratios = [x.multiplications / Fraction(n**3, 2) for x in (halved, schemed)] + [x.additions / n**2 for x in (halved, schemed)]
        assert [f"{float(r):.3f}" for r in ratios[:2]] + [f"{float(r):.1f}" for r in ratios[2:]] == told


U = 2.0**-24
DEFINITION = "scheme one <1,1,1;1>: B = A^T\n  M1 = A11 * B11\n  C11 = M1\n"


def test_the_definition_has_terms_of_mean_one_and_variance_two_less_one() -> None:
    """On the diagonal a sum of j squares of normal numbers has the second moment 2 j + j^2, and every sum and square is rounded once."""
    (gram,) = parse_source(Source("x.bl", DEFINITION)).grams
    k, n = 100, 8
    moments = sum(2 * j + j * j for j in range(1, k + 1)) + 3 * k
    assert probable_gram_error(gram, n, k) == pytest.approx(deviations(n * (n + 1) // 2, 0.99) * sqrt(moments), rel=1e-12)


def test_a_diagonal_is_less_accurate_than_a_product_of_independent_matrices() -> None:
    gram = rxtx()
    independent = probable_error(gram.scheme, 1, (512, 1024, 512))
    assert probable_gram_error(gram, 512, 1024) > 3 * independent > 0


@pytest.mark.parametrize(("n", "k"), [(512, 1024), (130, 1001), (258, 64)])
def test_measured_errors_stay_below_it_and_come_near(n: int, k: int) -> None:
    gram, generator = rxtx(), np.random.default_rng(n)
    ratios = []
    for _ in range(3):
        a = generator.standard_normal((n, k)).astype("float32")
        wide = a.astype("float64")
        found = bilinear.gram(a, algorithm="rxtx", levels=1)
        ratios.append(float(abs(found - wide @ wide.T).max()) / (probable_gram_error(gram, n, k) * U * float((wide**2).mean())))
    assert max(ratios) < 1
    assert max(ratios) > 0.01, "products are summed pairwise by the library, and the model sums in order"
