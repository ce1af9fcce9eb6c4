"""Error bounds of complex products by real ones, part by part: three products compared with four.

Let A = A1 + i A2, B = B1 + i B2 with inner dimension K, and gamma_n = n u / (1 - n u). For products summed classically, in any order,

    four products:  |real error|, |imaginary error| <= gamma_(K+1) (|A1||B1| + |A2||B2|), gamma_(K+1) (|A1||B2| + |A2||B1|)
    three products: |real error|      <= gamma_(K+1) (|A1||B1| + |A2||B2|)
                    |imaginary error| <= gamma_(K+4) ((|A1| + |A2|)(|B1| + |B2|) + |A1||B1| + |A2||B2|)

A term of the third product carries the roundings of two sums, of K operations, and of the two subtractions: K + 4. So the error of the
imaginary part is relative to the largest parts of a row of A and a column of B: if A2 and B2 are tiny, most of it may be lost. By norm
there is no such loss. Source: N. J. Higham, *Stability of a method for multiplying complex matrices with three real matrix
multiplications*, SIAM J. Matrix Anal. Appl. 13, 1992, pages 681 to 687, equations (2.4) to (2.7).

Fast products have bounds by norm alone; `analysis.accuracy.run_error_bound` traces those of a whole schedule.
"""

from __future__ import annotations

from math import hypot, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bilinear.analysis.rounding import gamma

PROBABLE = sqrt(2)
"""The probable error by norm of three products, in units of that of four by the same real products, for independent centred parts.

With v the variance of the error of a product of parts whose entries have unit variance, the real part has variance 2v and the imaginary
part 4v + v + v, because the sums in the third product have twice the variance; four products have 2v and 2v.
"""

Parts = NDArray[np.float64]


class PartsBound(NamedTuple):
    """Bounds of the errors of the real and of the imaginary part, each in units of the largest magnitudes of parts of A and of B."""

    real: float
    imaginary: float

    @property
    def of_modulus(self) -> float:
        """The bound of |error|."""
        return hypot(self.real, self.imaginary)


def four_products_bound(inner: int, unit_roundoff: float) -> PartsBound:
    """The bounds for sums of `inner` terms by the definition."""
    found = 2 * inner * gamma(inner + 1, unit_roundoff)
    return PartsBound(found, found)


def three_products_bound(inner: int, unit_roundoff: float) -> PartsBound:
    """The bounds for sums of `inner` terms by three products, each summed classically."""
    return PartsBound(2 * inner * gamma(inner + 1, unit_roundoff), 6 * inner * gamma(inner + 4, unit_roundoff))


def element_bounds(a: NDArray[np.complex128], b: NDArray[np.complex128], unit_roundoff: float) -> tuple[Parts, Parts]:
    """The bounds of three products for every element of a @ b, of its real and of its imaginary part."""
    x, y, z, w = (np.abs(part) for part in (a.real, a.imag, b.real, b.imag))
    k, own = a.shape[-1], x @ z + y @ w
    return gamma(k + 1, unit_roundoff) * own, gamma(k + 4, unit_roundoff) * ((x + y) @ (z + w) + own)
