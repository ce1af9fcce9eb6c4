"""The report of the algorithms for complex numbers: one frozen object, of which text and JSON are views."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bilinear.algebra.complex_products import four_products, three_products
from bilinear.analysis.complex_bounds import PROBABLE, four_products_bound, three_products_bound
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.element import FLOAT64
from bilinear.ir.linear import Form
from bilinear.reporting.report_facts import PROVED
from bilinear.reporting.scheme_facts import written_sum
from bilinear.reporting.table import aligned
from bilinear.verify.bilinear_map import prove_map

FORMAT = "bilinear-complex/1"
BOUNDS = ((three_products, three_products_bound), (four_products, four_products_bound))
"""The algorithms for complex numbers whose errors are bounded."""
INNERS = (1024, 4096, 16384, 65536)
"""Errors are reported for sums of this many terms."""
NOTES = (
    "errors: bounds of each part for all data, in units of the largest parts of A and of B, for products summed classically in float64",
    f"three products have {PROBABLE:.2f} times the probable error by norm of four, and no bound for a small imaginary part by itself",
    "every product runs by any scheme: matmul(a, b, algorithm='winograd') of complex arrays proves and runs complex3 (x) winograd",
)


@dataclass(frozen=True)
class PartErrors:
    """Error bounds of the real and the imaginary part for sums of `inner` terms, by this algorithm and by four products."""

    inner: int
    real: float
    imaginary: float
    four_products: float


@dataclass(frozen=True)
class ComplexReport:
    """The facts about an algorithm that multiplies complex numbers by real products; it is proved when it is reported."""

    algorithm: str
    verdict: str
    computes: str
    ring: str
    rank: int
    additions: int
    equations: int
    products: tuple[str, ...]
    errors: tuple[PartErrors, ...]
    source: str

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def json(self) -> str:
        """The report as JSON text."""
        return json.dumps({"format_of_report": FORMAT, **asdict(self)}, indent=1) + "\n"

    def _lines(self) -> Iterator[str]:
        facts = (
            ("computes", self.computes),
            ("costs", f"{self.rank} real products and {self.additions} additions"),
            ("proof", f"{self.equations} coefficients, exactly, over {self.ring}, for matrices that do not commute, too"),
            ("source", self.source),
        )
        yield from (f"{self.algorithm}: {self.verdict}", "", *aligned([("", *fact) for fact in facts], header=None))
        yield from ("", "products:", *(f"  {line}" for line in self.products), "")
        if not self.errors:
            yield "no bound of its errors is known"
            return
        yield "errors:"
        rows = [(e.inner, *(f"{x:.1e}" for x in (e.real, e.imaginary, e.four_products))) for e in self.errors]
        yield from (*aligned(rows, ("K", "real", "imaginary", "four products")), *NOTES)


def complex_report(found: ComplexAlgorithm) -> ComplexReport:
    """The report of an algorithm for complex numbers. Raises `BilinearError` (E350) if it does not multiply them."""
    algorithm, u = found.core, FLOAT64.unit_roundoff
    proof = prove_map(algorithm)
    proof.require()
    bounds = (bound for make, bound in BOUNDS if make().tables == algorithm.tables)
    errors = tuple(PartErrors(k, *bound(k, u), four_products_bound(k, u).real) for bound in bounds for k in INNERS)
    a, b, c = algorithm.target.sizes
    additions = algorithm.u.additions + algorithm.v.additions + algorithm.w.additions
    products = tuple(_products(algorithm))
    return ComplexReport(
        found.name, PROVED, proof.title, proof.ring, algorithm.rank, additions, a * b * c, products, errors, found.citation
    )


def _products(algorithm: BilinearAlgorithm) -> Iterator[str]:
    target, (u, v, w) = algorithm.target, algorithm.tables
    names = [f"M{number}" for number in range(1, algorithm.rank + 1)]
    for name, left, right in zip(names, u, v, strict=True):
        yield f"{name} = {_factor(left, target.left)} * {_factor(right, target.right)}"
    for output, row in zip(target.outputs, w, strict=True):
        yield f"{output} = {written_sum((c, names[p]) for p, c in row)}"


def _factor(row: Form, names: tuple[str, ...]) -> str:
    text = written_sum((c, names[i]) for i, c in row)
    return text if len(row) == 1 else f"({text})"
