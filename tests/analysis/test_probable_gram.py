"""The probable error of a scheme for A*A^T: by its formula for the definition, and beside measured errors of normal data."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

import bilinear
from bilinear.analysis.accuracy import deviations, probable_error, probable_gram_error
from bilinear.frontend import LoadedGram, load_any, parse_source
from bilinear.ir.gram import GramScheme
from bilinear.source import Source

U = 2.0**-24
DEFINITION = "scheme one <1,1,1;1>: B = A^T\n  M1 = A11 * B11\n  C11 = M1\n"


def rxtx() -> GramScheme:
    found = load_any("rxtx")
    assert isinstance(found, LoadedGram)
    return found.scheme


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
