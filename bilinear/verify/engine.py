"""sympy, all of it or nothing: the names that the proofs use are imported here only.

If Ctrl-C or a lack of memory interrupts the import of a package, Python forgets the package, but not its parts that were complete. A second
import would use those, and sympy would stay incomplete as long as the process lives. So this module forgets the parts first.
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
from sympy.polys.rings import PolyElement, ring  # noqa: E402

__all__ = ["GF", "QQ", "ZZ", "Domain", "DomainMatrix", "I", "Poly", "PolyElement", "Symbol", "ring", "sqrt"]
