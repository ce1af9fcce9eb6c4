"""sympy, all of it or nothing: the names that the proofs use, and their only way to them.

Python forgets a package whose import was broken off, by Ctrl-C or for want of memory, but not the parts that were ready by then. A second
import would take those for whole, and sympy would lack them for as long as the process lives. So they are forgotten first.
"""

from __future__ import annotations

import sys


def forget_halves(*packages: str) -> None:
    """Forget the parts of packages that are not imported themselves."""
    halves = tuple(f"{package}." for package in packages if package not in sys.modules)
    for name in [name for name in sys.modules if name.startswith(halves)]:
        del sys.modules[name]


forget_halves("mpmath", "sympy")

from sympy import GF, QQ, ZZ, I, Poly, Symbol, sqrt  # noqa: E402 - after what must be forgotten
from sympy.polys.domains.domain import Domain  # noqa: E402
from sympy.polys.matrices import DomainMatrix  # noqa: E402
from sympy.polys.matrices.exceptions import DMNonInvertibleMatrixError  # noqa: E402
from sympy.polys.rings import PolyElement, ring  # noqa: E402

__all__ = ["GF", "QQ", "ZZ", "DMNonInvertibleMatrixError", "Domain", "DomainMatrix", "I", "Poly", "PolyElement", "Symbol", "ring", "sqrt"]
