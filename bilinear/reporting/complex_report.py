"""The report of the algorithms for complex numbers: one frozen object, of which text and JSON are views."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from math import prod

from bilinear.algebra.complex_products import complex_scheme, four_products, three_products
from bilinear.algebra.complex_tensor import is_real
from bilinear.algebra.tensor import tensor
from bilinear.analysis.accuracy import run_error_bound
from bilinear.analysis.complex_bounds import PROBABLE, four_products_bound, three_products_bound
from bilinear.codegen.build import Program
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.element import FLOAT64
from bilinear.ir.linear import Form
from bilinear.ir.schedule import AnySchedule, Schedule
from bilinear.lowering.prepare import Level, prepare_complex
from bilinear.lowering.proofs import proved
from bilinear.reporting.map_page import map_page
from bilinear.reporting.report import kernel_lines
from bilinear.reporting.report_facts import PROVED, KernelLine
from bilinear.reporting.rows import kernel_table
from bilinear.reporting.scheme_facts import written_sum
from bilinear.reporting.table import aligned
from bilinear.verify.bilinear_map import MapProof, prove_map

FORMAT = "bilinear-complex/1"
BOUNDS = ((three_products, three_products_bound), (four_products, four_products_bound))
"""The algorithms for complex numbers whose errors are bounded."""
INNERS = (1024, 4096, 16384, 65536)
"""Errors are reported for sums of this many terms."""
ERRORS = "errors: bounds of each part for all data, in units of the largest parts of A and of B, in float64,"
"""What the errors of a report are."""


@dataclass(frozen=True)
class PartErrors:
    """Error bounds of the real and the imaginary part for sums of `inner` terms, by this algorithm and by four products."""

    inner: int
    real: float
    imaginary: float
    four_products: float


@dataclass(frozen=True)
class ComplexReport:
    """The facts about an algorithm that multiplies complex numbers, or matrices, by real products; it is proved when it is reported.

    `schedule` says what runs for matrices, at all levels; it is empty for numbers.
    """

    algorithm: str
    format: str
    verdict: str
    computes: str
    ring: str
    rank: int
    additions: int
    equations: int
    proof: str
    schedule: str
    products: tuple[str, ...]
    errors: tuple[PartErrors, ...]
    notes: tuple[str, ...]
    source: str
    kernels: tuple[KernelLine, ...] = ()
    failures: tuple[str, ...] = field(default=(), init=False)

    @property
    def proved(self) -> bool:
        """True: what is wrong has no report."""
        return self.verdict == PROVED

    @property
    def lead(self) -> str:
        """What a page says first."""
        return "Complex numbers are multiplied by products of real ones."

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Labels and values."""
        return (
            ("computes", self.computes),
            ("costs", f"{self.rank} real products and {self.additions} additions"),
            ("proof", self.proof),
            *([("runs", self.schedule)] if self.schedule else []),
            *([("source", self.source)] if self.source else []),
        )

    @property
    def error_table(self) -> tuple[tuple[str, ...], ...]:
        """Header and rows of the table of errors; empty without errors."""
        rows = [(str(e.inner), *(f"{x:.1e}" for x in (e.real, e.imaginary, e.four_products))) for e in self.errors]
        return (("K", "real", "imaginary", "four products"), *rows) if rows else ()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {"format_of_report": FORMAT, **asdict(self)}

    def json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_json(), indent=1) + "\n"

    def markdown(self) -> str:
        """The report as Markdown."""
        return map_page(self, kernel_table(self.kernels), html=False)

    def html(self, date: str = "") -> str:
        """The report as one self-contained HTML page; its footer contains the `date` if one is given."""
        return map_page(self, kernel_table(self.kernels), html=True, date=date)

    def _lines(self) -> Iterator[str]:
        yield from (f"{self.algorithm}: {self.verdict}", "", *aligned([("", *fact) for fact in self.facts], header=None))
        yield from ("", "products:", *(f"  {line}" for line in self.products), "")
        if self.errors:
            yield from ("errors:", *aligned(self.error_table[1:], self.error_table[0]))
        yield from self.notes
        if self.kernels:
            table = kernel_table(self.kernels)
            yield from ("", "kernels:", *aligned(table[1:], table[0]))


def complex_report(
    found: ComplexAlgorithm, levels: int = 1, schedule: AnySchedule | None = None, programs: Sequence[Program] = ()
) -> ComplexReport:
    """The report of an algorithm for complex numbers, or with a block scheme, at so many levels of it, for complex matrices.

    A `schedule` of the block scheme runs in place of the usual one if it writes neither A nor B; `programs` are the kernels that are built.

    Raises `BilinearError`: E350 if it does not multiply complex numbers, E301 if the block scheme does not multiply matrices, and those of
    `prepare_complex`.
    """
    proof = prove_map(found.core)
    proof.require()
    if found.inside is None:
        return _of_numbers(found, proof)
    kernels = tuple(line for program in programs for line in kernel_lines(program))
    return replace(_of_matrices(found, Level(found.inside, schedule), proof, levels), kernels=kernels)


def _of_numbers(found: ComplexAlgorithm, proof: MapProof) -> ComplexReport:
    core, u = found.core, FLOAT64.unit_roundoff
    bounds = (bound for make, bound in BOUNDS if make().tables == core.tables)
    errors = tuple(PartErrors(k, *bound(k, u), four_products_bound(k, u).real) for bound in bounds for k in INNERS)
    notes = [f"{ERRORS} for products summed classically" if errors else "no bound of its errors is known"]
    equations = prod(core.target.sizes)
    return ComplexReport(
        found.name,
        found.format,
        PROVED,
        proof.title,
        proof.ring,
        found.rank,
        core.u.additions + core.v.additions + core.w.additions,
        equations,
        f"{equations} coefficients, exactly, over {proof.ring}, for matrices that do not commute, too",
        "",
        tuple(_products(core)),
        errors,
        (*notes, *_notes(core)),
        found.citation,
    )


def _of_matrices(found: ComplexAlgorithm, level: Level, proof: MapProof, levels: int) -> ComplexReport:
    """The report of an algorithm for complex numbers (x) levels of a block scheme, by the proofs of both and of the schedule that runs."""
    core, inside, u = found.core, level.scheme, FLOAT64.unit_roundoff
    schedule = prepare_complex((level,) * levels, core=core)
    blocks = proved(inside)
    one, whole = prod(core.target.sizes), complex_scheme(reduce(tensor, [inside] * levels), core=core)
    equations = f"{blocks.equations} Brent equations of {inside.name} over {blocks.ring}"
    errors = tuple(PartErrors(k, *_bounds(schedule, k, u), four_products_bound(k, u).real) for k in INNERS)
    return ComplexReport(
        found.name,
        f"<{whole.m},{whole.k},{whole.n};{whole.rank}>",
        PROVED,
        f"A*B of complex matrices, A in {whole.m} x {whole.k} and B in {whole.k} x {whole.n} blocks",
        str(schedule.ring),
        whole.rank,
        whole.u.additions + whole.v.additions + whole.w.additions,
        one + blocks.equations,
        f"{one} coefficients of {core.name} over {proof.ring} and {equations}, exactly; the tables are their Kronecker product",
        f"{schedule.name}: {schedule.products} real products in {len(schedule.stages)} stages, proved against both at {levels} level(s)",
        tuple(_products(core)),
        errors,
        (f"{ERRORS} as the schedule runs, its products summed classically", *_notes(core)),
        found.citation,
    )


def _bounds(schedule: Schedule, inner: int, u: float) -> tuple[float, float]:
    """The error bound of a schedule, which holds for both parts."""
    found = run_error_bound(schedule, inner, u).product * u
    return found, found


def _notes(core: BilinearAlgorithm) -> Iterator[str]:
    if core.tables == three_products().tables:
        yield f"three products have {PROBABLE:.2f} times the probable error by norm of four, and no bound for a small imaginary part"
    if is_real(core.ring):
        yield f"any scheme runs the products: matmul(a, b, algorithm='{core.name} (x) winograd') of complex arrays"


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
