"""The expected error: a bound that holds with a stated confidence if rounding errors and data behave like random numbers."""

from __future__ import annotations

from functools import lru_cache
from math import cos, log, pi, sqrt

from bilinear.analysis.rounding import sides
from bilinear.ir.gram import GramScheme
from bilinear.ir.linear import Form
from bilinear.ir.number import to_float
from bilinear.ir.scheme import Scheme


def probable_error(
    scheme: Scheme,
    levels: int,
    shape: tuple[int, int, int],
    confidence: float = 0.99,
    means: tuple[float, float] = (0.0, 0.0),
    fine: float = 1.0,
) -> float:
    """A bound of max|C - A*B| over all entries, in units of u * rms(A) * rms(B), that holds with this probability in a model.

    The model: rounding errors are mean-independent and at most u relative to the value that is rounded (Higham and Mary 2019; Connolly,
    Higham and Mary 2021); the entries of A and of B are independent with one mean and one rms each (Higham and Mary 2020), and `means`
    are |mean| / rms of both, 0 for centred data and 1 for constant data; sums over the inner dimension behave like normal variables.
    Since rms <= max, the bound holds in units of u * max|A| * max|B| too.

    A partial sum of j products in a leaf has the second moment a*j + b*j**2. So the error of a leaf of depth K has at most the variance
    u**2 * (a*K**2/2 + b*K**3/3), where a and b follow from the 2-norms of the factors (with their means); the products of a C block add up
    in quadrature. For centred data the bound is proportional to K, which is sqrt(K) * u relative to an entry of C. The confidence covers
    all m * n entries together.

    `fine` is the unit roundoff in a leaf's sum, in units of u. If it is below 1, elements are computed in a wider type than they are stored
    in, and the sum is rounded once more when it is stored.
    """
    m, k, n = shape
    leaf = k // scheme.k**levels
    rest = k - leaf * scheme.k**levels
    mixed, constant = _leaf_weights(scheme, levels, means)
    left, right, out = _side_depths(scheme, levels)
    both = (means[0] * means[1]) ** 2
    variance = mixed * (_random(leaf, fine) + leaf * (left + right + out)) + constant * (
        _steady(leaf, fine) + leaf * (left + right) + leaf**2 * out
    )
    variance += (1 - both) * (_random(rest, fine) + rest * out) + both * (_steady(rest, fine) + rest**2 * out)
    if m % scheme.m**levels or n % scheme.n**levels:  # the strips of C are multiplied classically
        variance = max(variance, (1 - both) * _random(k, fine) + both * _steady(k, fine))
    return deviations(m * n, confidence) * sqrt(variance)


def probable_gram_error(gram: GramScheme, n: int, inner: int, confidence: float = 0.99, fine: float = 1.0) -> float:
    """The same for one level of a scheme for A*A^T, A n x inner with centred normal entries, in units of u * rms(A)**2.

    Element (i, j) of a product of sums of blocks takes row i of the left sum and row j of the right one. If i and j differ, the rows are
    independent, as those of A and B are. On the diagonal of a block they share entries: a term then has the mean <u_p, v_p>, over the
    blocks of A, and the variance |u_p|**2 |v_p|**2 + <u_p, v_p>**2. So its partial sums grow like those of constant terms, as on the
    diagonal of A*A^T by the classical multiply, whose terms have the mean 1. The worst block of C counts.
    """
    scheme = gram.scheme
    rows, leaf = n - n % scheme.m, inner // scheme.k
    rest = inner - leaf * scheme.k
    left, right, out = _side_depths(scheme, 1)
    mixed, constant = _gram_weights(gram)
    variance = mixed * (_random(leaf, fine) + leaf * (left + right + out))
    variance += constant * (_steady(leaf, fine) + leaf * (left + right) + leaf**2 * out)
    variance += 2 * (_random(rest, fine) + rest * out) + _steady(rest, fine) + rest**2 * out
    if rows < n:  # the last rows are multiplied classically
        variance = max(variance, 2 * _random(inner, fine) + _steady(inner, fine))
    return deviations(n * (n + 1) // 2, confidence) * sqrt(variance)


def _gram_weights(gram: GramScheme) -> tuple[float, float]:
    """The variances and the squared means of the terms on a diagonal, over the products of the worst block of C."""
    left, right = ([{i: to_float(c) for i, c in row} for row in table] for table in (gram.scheme.tables[0], gram.right))
    means = [sum(c * y.get(i, 0.0) for i, c in x.items()) for x, y in zip(left, right, strict=True)]
    sizes = [sum(c * c for c in x.values()) * sum(c * c for c in y.values()) for x, y in zip(left, right, strict=True)]
    both = []
    for i, j in gram.outputs:
        weights = [(to_float(c) ** 2, p) for p, c in gram.scheme.tables[2][i * gram.scheme.m + j]]
        both.append((sum(w * (sizes[p] + means[p] ** 2) for w, p in weights), sum(w * means[p] ** 2 for w, p in weights)))
    return max(mixed for mixed, _ in both), max(constant for _, constant in both)


def deviations(entries: int, confidence: float) -> float:
    """The number of standard deviations that none of `entries` entries exceeds, with this probability.

    An entry's error is close to the integral of one Brownian motion W along another, because the rounded partial sums are random too. Its
    moment generating function is cos(theta)**-0.5 for theta < pi/2 (Levy 1951), its variance 1/2, so by Chernoff's bound P(|error| > y) <=
    2 * cos(theta)**-0.5 * exp(-theta * y). That tail is heavier than normal, so the bound also holds for the normal parts.
    """
    tail = log(2 * max(1, entries) / (1 - confidence))
    thetas = (pi / 2 * step / 64 for step in range(1, 64))
    return min((tail - 0.5 * log(cos(theta))) / theta for theta in thetas) * sqrt(2)


def _random(depth: int, fine: float) -> float:
    """The sum of the second moments of the partial sums, of the products, and of the stored result, for centred terms."""
    return depth * (depth + 3) / 2 * fine**2 + (depth if fine < 1 else 0)


def _steady(depth: int, fine: float) -> float:
    """The same for constant terms."""
    return (depth * (depth + 1) * (2 * depth + 1) / 6 + depth) * fine**2 + (depth**2 if fine < 1 else 0)


def _leaf_weights(scheme: Scheme, levels: int, means: tuple[float, float]) -> tuple[float, float]:
    """a and b of the docstring of `probable_error`, summed over the products of the worst block of C.

    |u_p|**2 and (sum u_p)**2 are the second moment of a factor of centred and of constant blocks; both multiply from level to level.
    """
    a, b = (mean**2 for mean in means)
    norm, steady = _moments(scheme)
    kinds = {(i, j): _worst(scheme, (norm, steady)[i][0], (norm, steady)[j][1]) ** levels for i in (0, 1) for j in (0, 1)}
    mixed = (1 - a) * (1 - b) * kinds[0, 0] + (1 - a) * b * kinds[0, 1] + a * (1 - b) * kinds[1, 0]
    return mixed, a * b * kinds[1, 1]


Moments = tuple[tuple[float, ...], tuple[float, ...]]


@lru_cache(maxsize=64)
def _moments(scheme: Scheme) -> tuple[Moments, Moments]:
    """|u|**2 and |v|**2 of every product; (sum u)**2 and (sum v)**2."""
    u, v, _ = scheme.tables
    norms = tuple(tuple(sum(to_float(c) ** 2 for _, c in row) for row in table) for table in (u, v))
    sums = tuple(tuple(sum(to_float(c) for _, c in row) ** 2 for row in table) for table in (u, v))
    return (norms[0], norms[1]), (sums[0], sums[1])


def _worst(scheme: Scheme, left: tuple[float, ...], right: tuple[float, ...]) -> float:
    return max(_weighted(row, left, right) for row in scheme.tables[2])


def _weighted(row: Form, left: tuple[float, ...], right: tuple[float, ...]) -> float:
    return sum(to_float(c) ** 2 * left[p] * right[p] for p, c in row)


def _side_depths(scheme: Scheme, levels: int) -> tuple[float, float, float]:
    """Half the flat depth of each side: on average, a partial sum in a chain of additions has half the chain's variance."""
    depths = (side.flat_depth(levels) / 2 for side in sides(scheme))
    left, right, out = depths
    return left, right, out
