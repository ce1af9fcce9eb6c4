"""The reports of algorithms for other bilinear maps: digits, complex numbers, A*A^T. Frozen objects, of which all views are made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import reduce
from math import log2, prod
from typing import Protocol

from bilinear.algebra.complex_products import complex_scheme, four_products, three_products
from bilinear.algebra.composition import is_real as is_over_reals
from bilinear.algebra.composition import tensor
from bilinear.analysis.accuracy import (
    PROBABLE,
    classical_bound,
    error_bound,
    four_products_bound,
    growth_factor,
    is_real,
    probable_gram_error,
    run_error_bound,
    three_products_bound,
)
from bilinear.analysis.digit_bounds import (
    Summation,
    block_bound,
    cutting_error,
    digit_bound,
    probable_classical,
    probable_digits,
    probable_residues,
    residue_block_bound,
)
from bilinear.codegen.build import LaunchProgram
from bilinear.errors import BilinearError
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.digits import DigitScheme, Representation, digit_names
from bilinear.ir.element import FLOAT64, IN_ARRAYS
from bilinear.ir.gram import GramScheme
from bilinear.ir.linear import Form
from bilinear.ir.schedule import AnySchedule, Schedule
from bilinear.ir.tile import LONGEST_SUM
from bilinear.lowering.prepare import Level, prepare_complex, proved
from bilinear.reporting.facts import PROVED, REFUSED, KernelLine, written_sum
from bilinear.reporting.report import kernel_lines
from bilinear.reporting.rows import kernel_table
from bilinear.reporting.table import aligned
from bilinear.verify.bilinear_map import MapProof, prove_map
from bilinear.verify.digits import DigitProof, prove_digits
from bilinear.verify.scheme import SchemeProof
from bilinear.version import __version__
from bilinear.visible import visible_lines

Rows = tuple[tuple[str, str], ...]
Table = tuple[tuple[str, ...], ...]
INNERS = (1024, 4096, 16384, 65536)
"""Errors are reported for sums of this many terms."""


class _ReportText(Protocol):
    """What the views of a report are made of."""

    @property
    def algorithm(self) -> str: ...
    @property
    def verdict(self) -> str: ...
    @property
    def facts(self) -> Rows: ...
    @property
    def products(self) -> tuple[str, ...]: ...
    @property
    def failures(self) -> tuple[str, ...]: ...
    @property
    def error_table(self) -> Table: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def kernels(self) -> tuple[KernelLine, ...]: ...
    def to_json(self) -> dict[str, object]: ...


class MapViews:
    """The views of a report: text, JSON, Markdown and HTML. What is proved is not built, and what is refused may have no report."""

    kernels: tuple[KernelLine, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def proved(self: _ReportText) -> bool:
        """True if nothing was refused."""
        return self.verdict == PROVED

    def __str__(self: _ReportText) -> str:
        return visible_lines(_lines(self))

    def json(self: _ReportText) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_json(), indent=1) + "\n"

    def markdown(self: _ReportText) -> str:
        """The report as Markdown."""
        return _page(self, html=False)

    def html(self: _ReportText, date: str = "") -> str:
        """The report as one self-contained HTML page; its footer contains the `date` if one is given."""
        return _page(self, html=True, date=date)


def _lines(report: _ReportText) -> Iterator[str]:
    yield from (f"{report.algorithm}: {report.verdict}", "")
    yield from aligned([("", label, value) for label, value in report.facts], header=None)
    for title, lines in (("products", report.products), ("what does not hold", report.failures)):
        if lines:
            yield from ("", f"{title}:", *(f"  {line}" for line in lines))
    if report.error_table:
        yield from ("", "errors:", *aligned(report.error_table[1:], report.error_table[0]))
    yield from report.notes
    if table := kernel_table(report.kernels):
        yield from ("", "kernels:", *aligned(table[1:], table[0]))


def _page(report: _ReportText, html: bool, date: str = "") -> str:
    from bilinear.reporting.pages import environment  # pages are imported on demand

    template = environment(html).get_template("report_map.html.j2" if html else "report_map.md.j2")
    kernels = kernel_table(report.kernels)
    return template.render(report=report, table=report.error_table, kernels=kernels, version=__version__, date=date)


def written_products(algorithm: BilinearAlgorithm) -> tuple[str, ...]:
    """The products of an algorithm for a bilinear map, and its outputs, as equations."""
    target, (u, v, w) = algorithm.target, algorithm.tables
    names = [f"M{number}" for number in range(1, algorithm.rank + 1)]
    factors = ((_factor(left, target.left), _factor(right, target.right)) for left, right in zip(u, v, strict=True))
    products = [f"{name} = {left} * {right}" for name, (left, right) in zip(names, factors, strict=True)]
    outputs = (f"{output} = {written_sum((c, names[p]) for p, c in row)}" for output, row in zip(target.outputs, w, strict=True))
    return *products, *outputs


def _factor(row: Form, names: tuple[str, ...]) -> str:
    text = written_sum((c, names[i]) for i, c in row)
    return text if len(row) == 1 else f"({text})"


@dataclass(frozen=True)
class DigitErrors:
    """The errors of products over K = `inner`.

    `always` bounds max|C - AB| / (max|A| max|B|) for all data, `element` |C - AB| / |A||B| for every element whose digits do not underflow
    (None below block levels, and for residues). `probable` is the probable error by norm. The last two are `always` and `probable` of a
    classical multiply in the represented type.
    """

    inner: int
    always: float
    element: float | None
    probable: float
    classical_always: float
    classical_probable: float


@dataclass(frozen=True)
class DigitReport(MapViews):
    """The facts about a digit scheme; `verdict` is `proved` or `refused`, and `failures` says why it is refused."""

    algorithm: str
    verdict: str
    format: str
    representation: str
    represents: str
    digits: tuple[str, ...]
    moduli: tuple[int, ...]
    equations: int
    order: int | None
    remainder: tuple[str, ...]
    facts: Rows
    products: tuple[str, ...]
    errors: tuple[DigitErrors, ...]
    notes: tuple[str, ...]
    failures: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {"format_of_report": "bilinear-digits/1", "proved": self.proved, **asdict(self)}

    @property
    def error_table(self) -> tuple[tuple[str, ...], ...]:
        """Header and rows of the table of errors; empty without errors."""
        if not self.errors:
            return ()
        header = ["K", "always", "of an element", "probable", "classical, always", "classical, probable"]
        rows = [[e.inner, e.always, e.element, e.probable, e.classical_always, e.classical_probable] for e in self.errors]
        columns = [i for i in range(len(header)) if rows[0][i] is not None]
        texts = ([str(row[0]), *(f"{row[i]:.1e}" for i in columns[1:])] for row in rows)
        return tuple(header[i] for i in columns), *map(tuple, texts)

    @property
    def lead(self) -> str:
        """What a page says first."""
        return f"Numbers of {self.represents} are multiplied by products of digits."


def digit_report(scheme: DigitScheme, levels: int = 1) -> tuple[DigitReport, BilinearError | None]:
    """The report of a digit scheme, with its errors below `levels` levels of the block scheme above it, and why it is refused if it is."""
    proof = prove_digits(scheme)
    error: BilinearError | None = None
    try:
        proof.require()
    except BilinearError as refused:
        error = refused
    representation = scheme.representation
    errors, notes = _errors(scheme, levels) if proof.holds else ((), ())
    report = DigitReport(
        scheme.name,
        PROVED if proof.holds else REFUSED,
        scheme.format,
        representation.name,
        representation.numbers,
        representation.digits,
        representation.moduli,
        proof.equations,
        proof.order,
        _remainder(proof),
        tuple(_facts(proof)),
        tuple(_products(scheme)),
        errors,
        notes,
        proof.failures,
    )
    return report, error


def _facts(proof: DigitProof) -> Iterator[tuple[str, str]]:
    scheme, r = proof.scheme, proof.scheme.representation
    yield "format", scheme.format
    yield "digits", f"{r.name}: {', '.join(r.claims)}"
    yield "a number", f"{r.bytes} bytes as digits, {r.of.bytes * (1 + r.gaussian)} bytes as {r.numbers}"
    yield "cut", _cut(r)
    if scheme.above is not None:
        yield "blocks above", f"{_block(scheme.above.name, proof.above)}; sums are formed in {r.of}, before numbers are cut"
    if scheme.inside is not None:
        yield "blocks inside", f"{_block(scheme.inside.name, proof.inside)}; sums are formed from residues, exactly"
    yield "proof", _proved(proof)
    if proof.maps[0].remainder:
        yield "dropped", " + ".join(_remainder(proof))
    if r.is_modular:
        limit = f"rows and columns are scaled to integers of 2-norm at most R = 2^{log2(r.norm_limit):.1f}"
        yield "range", f"M = 2^{log2(r.product):.1f}; {limit}"
        yield "exact", "2 sum |a'||b'| <= 2 R^2 < M for every input; the result is put together modulo M and rounded once"
        yield "sums", f"int32 holds {LONGEST_SUM} products modulo every p; longer sums are cut there"
    if scheme.citation:
        yield "source", scheme.citation


def _block(name: str, proof: SchemeProof | None) -> str:
    assert proof is not None
    held = "hold" if proof.holds else f"do not all hold: {len(proof.failures)} fail"
    return f"{name} {proof.format}, whose {proof.equations} Brent equations {held}"


def _cut(r: Representation) -> str:
    if r.is_modular:
        nearest = "the nearest integer, ties to even" if r.rounded else "an integer, truncated"
        if r.gaussian:
            return f"both parts times 2^e as {nearest}; x + i y by the residues of x + r y and x - r y, r^2 = -1 modulo p, in int8"
        return f"x * 2^e as {nearest}, by its residues of least size, in int8"
    how = "rounded to nearest, ties to even" if r.rounded else "truncated"
    powers = ("", "lambda ", *(f"lambda^{i} " for i in range(2, r.count)))
    terms = " + ".join(f"{power}{d}" for power, d in zip(powers, r.digits, strict=True))
    left = cutting_error(r)
    rest = f"at most 2^{log2(left):.0f} |x| is left over" if left else "nothing is left over"
    low = "divided by their power of lambda" if r.shifted else "as the parts of x that they are"
    stored = f"; low digits are stored {low}" if r.count > 1 else ""
    return f"x = {terms}, each digit what is left of x, {how}; {rest}{stored}"


def _proved(proof: DigitProof) -> str:
    r = proof.scheme.representation
    if not proof.holds:
        return f"{len(proof.failures)} of {proof.equations} coefficients differ"
    if r.is_modular:
        return f"the products put together are x*y modulo each of {r.count} coprime moduli: {proof.equations} coefficients, exactly"
    order = f" up to O(lambda^{proof.order})" if proof.order is not None else ""
    return f"the products of digits are x*y{order}: {proof.equations} coefficients, exactly"


def _remainder(proof: DigitProof) -> tuple[str, ...]:
    """The terms of x*y that the scheme leaves out: needed - found."""
    differences = ((d.needed - d.found, f"{d.left}*{d.right}") for d in proof.maps[0].remainder)
    return tuple(written_sum([difference]) for difference in differences)


def _products(scheme: DigitScheme) -> Iterator[str]:
    core, (left, right) = scheme.core, digit_names(scheme.representation)
    if scheme.representation.is_modular:
        moduli = ", ".join(map(str, scheme.representation.moduli))
        if scheme.representation.gaussian:
            yield "P = (A.re + r A.im) * (B.re + r B.im), Q = (A.re - r A.im) * (B.re - r B.im) modulo each p, with r^2 = -1"
            yield "C.re = sum of e_p (P + Q) / 2, C.im = sum of e_p (P - Q) / 2r modulo M, with e_p = 1 modulo p and 0 modulo the others,"
            yield f"for p = {moduli}"
            return
        yield f"C = sum of e_p (A.p * B.p) modulo M, with e_p = 1 modulo p and 0 modulo the others, for p = {moduli}"
        return
    u, v, (w,) = core.tables
    for name, x, y in zip(scheme.products, u, v, strict=True):
        factors = (written_sum((c, names[i]) for i, c in row) for row, names in ((x, left), (y, right)))
        yield f"{name} = {' * '.join(f'({factor})' if ' ' in factor else factor for factor in factors)}"
    yield f"C = {written_sum((c, scheme.products[p]) for p, c in w)}"


def _errors(scheme: DigitScheme, levels: int) -> tuple[tuple[DigitErrors, ...], tuple[str, ...]]:
    """The errors and their meaning; none if a bound is not known."""
    r = scheme.representation
    try:
        rows = tuple(_errors_at(scheme, levels, inner) for inner in INNERS)
    except (ValueError, BilinearError) as unknown:
        return (), (f"no errors are known: {unknown if isinstance(unknown, ValueError) else unknown.diagnostics[0].message}",)
    told = ["always: max|C - AB| in units of max|A| * max|B|, for all data"]
    if rows[0].element is not None:
        told.append("of an element: in units of (|A||B|)[i,j], for all data, where no digit underflows")
    told += ["probable: by norm, for independent centred data", f"classical: a multiply in {r.numbers}"]
    if r.gaussian:
        told.append("complex numbers: of each part, in units of the largest parts")
    if not r.is_modular:
        chunk = Summation().chunk
        told.append(f"products of first digits are added up in float32 every {chunk} terms, the others in the unit for all of K")
    return rows, tuple(told)


def _errors_at(scheme: DigitScheme, levels: int, inner: int) -> DigitErrors:
    u = scheme.representation.of.unit_roundoff
    terms = inner * (1 + scheme.representation.gaussian)  # the real products in the sum of a part of C
    classical = classical_bound(terms, u) * u, probable_classical(inner, u)
    if scheme.representation.is_modular:
        return DigitErrors(inner, residue_block_bound(scheme, terms, levels), None, probable_residues(scheme, terms, levels), *classical)
    always = block_bound(scheme.above, levels, inner, lambda k: digit_bound(scheme, k).of_largest if k else 0.0)
    element = digit_bound(scheme, inner).relative if scheme.above is None else None
    return DigitErrors(inner, always, element, probable_digits(scheme, inner, levels=levels), *classical)


BOUNDS = ((three_products, three_products_bound), (four_products, four_products_bound))
"""The algorithms for complex numbers whose errors are bounded."""
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
class ComplexReport(MapViews):
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

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {"format_of_report": "bilinear-complex/1", **asdict(self)}


def complex_report(
    found: ComplexAlgorithm, levels: int = 1, schedule: AnySchedule | None = None, programs: Sequence[LaunchProgram] = ()
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
        written_products(core),
        errors,
        (*notes, *_complex_notes(core)),
        found.citation,
    )


def _of_matrices(found: ComplexAlgorithm, level: Level, proof: MapProof, levels: int) -> ComplexReport:
    """The report of an algorithm for complex numbers (x) levels of a block scheme, by the proofs of both and of the schedule that runs."""
    core, inside, u = found.core, level.scheme, FLOAT64.unit_roundoff
    schedule = prepare_complex((level,) * levels, core=core)
    blocks = proved(inside)
    one, whole = prod(core.target.sizes), complex_scheme(reduce(tensor, [inside] * levels), core=core)
    equations = f"{blocks.equations} Brent equations of {inside.name} over {blocks.ring}"
    errors = tuple(PartErrors(k, *_complex_bounds(schedule, k, u), four_products_bound(k, u).real) for k in INNERS)
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
        written_products(core),
        errors,
        (f"{ERRORS} as the schedule runs, its products summed classically", *_complex_notes(core)),
        found.citation,
    )


def _complex_bounds(schedule: Schedule, inner: int, u: float) -> tuple[float, float]:
    """The error bound of a schedule, which holds for both parts."""
    found = run_error_bound(schedule, inner, u).product * u
    return found, found


def _complex_notes(core: BilinearAlgorithm) -> Iterator[str]:
    if core.tables == three_products().tables:
        yield f"three products have {PROBABLE:.2f} times the probable error by norm of four, and no bound for a small imaginary part"
    if is_over_reals(core.ring):
        yield f"any scheme runs the products: matmul(a, b, algorithm='{core.name} (x) winograd') of complex arrays"


CONFIDENCE = 0.99
INNER = 4096
"""Errors are reported for sums of this many terms."""


@dataclass(frozen=True)
class GramReport(MapViews):
    """The facts about a proved scheme for A*A^T.

    `general` products multiply two matrices, `symmetric` ones a sum of blocks by its own transpose. `additions` counts one level as it
    runs: additions of blocks of A for the factors, and of products; a sum on the diagonal of C counts whole. `work` is the ratio of
    multiplications of one level above the classical multiply to those of a classical triangle; `ratio` that of many levels to Strassen's
    algorithm for two matrices (None unless A is cut into 2^i x 2^i blocks). `growth` is the error's growth factor. `errors` bound, for an
    element type, max|C - A*A^T| / max|A|^2 of one level for sums of `INNER` terms, for all data; `likely` bound it for an `INNER` x `INNER`
    matrix A of independent normal entries, with the probability `CONFIDENCE`.
    """

    algorithm: str
    computes: str
    format: str
    ring: str
    source: str
    general: int
    symmetric: int
    additions: tuple[int, int]
    work: float
    ratio: str | None
    growth: float | None
    errors: tuple[tuple[str, float], ...]
    likely: tuple[tuple[str, float], ...]
    products: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """Proved: what is wrong has no report."""
        return PROVED

    @property
    def lead(self) -> str:
        """What a page says first."""
        return "A matrix is multiplied by its own transpose."

    @property
    def facts(self) -> Rows:
        """Labels and values."""
        before, after = self.additions
        products = f"{self.general + self.symmetric}: {self.general} of two matrices, {self.symmetric} of one by its transpose"
        return (
            ("computes", f"{self.computes}, over {self.ring}"),
            ("products", products),
            ("additions", f"{before + after} = {before} of blocks of A + {after} of products"),
            ("multiplications", f"{self.work:.4g} of a classical triangle's, one level"),
            *([("", f"{self.ratio} of a product's by Strassen's algorithm, many levels")] if self.ratio is not None else []),
            *([("growth", f"{self.growth:.4g} of the error, a level")] if self.growth is not None else []),
            *([("source", self.source)] if self.source else []),
        )

    @property
    def error_table(self) -> Table:
        """Header and rows of the table of errors; empty without errors."""
        likely = dict(self.likely)
        rows = ((dtype, f"{bound:.3g}", f"{likely[dtype]:.3g}") for dtype, bound in self.errors)
        return (("dtype", "at most", "likely"), *rows) if self.errors else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the errors are."""
        what = f"errors of one level in units of max|A|^2 for K = {INNER}, for all data"
        return (f"{what}; likely: with probability {CONFIDENCE} for {INNER} x {INNER} normal entries",) if self.errors else ()

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {"format_of_report": "bilinear-gram-scheme/1", "proved": True, **asdict(self)}


def gram_report(gram: GramScheme) -> GramReport:
    """Prove a scheme, and count. Raises `BilinearError` (E350) if it does not compute A*A^T."""
    algorithm, own, symmetric = gram.algorithm, gram.scheme, len(gram.symmetric)
    prove_map(algorithm).require()
    u, _, w = own.tables
    right = [row for p, row in enumerate(gram.right) if p not in gram.symmetric]
    before, after = (sum(max(0, len(row) - 1) for row in rows) for rows in ((*u, *right), w))
    general, real = own.rank - symmetric, is_real(own)
    kinds = tuple(IN_ARRAYS.items()) if real else ()
    errors = tuple((name, own_error * kind.roundoffs[0]) for name, kind in kinds for own_error in (_gram_bound(gram, *kind.roundoffs),))
    likely = tuple((name, probable_gram_error(gram, INNER, INNER, CONFIDENCE) * kind.unit_roundoff) for name, kind in kinds)
    growth = float(growth_factor(own)) if real else None
    work = (general + symmetric / 2) / (own.m**2 * own.k / 2)
    facts = own.format, str(own.ring), own.citation, general, symmetric, (before, after), work
    return GramReport(
        own.name, algorithm.target.title, *facts, _ratio(gram, general, symmetric), growth, errors, likely, written_products(algorithm)
    )


def _gram_bound(gram: GramScheme, unit_roundoff: float, summed: float | None) -> float:
    """In unit roundoffs; a product by a scheme's own transpose is a product of two matrices in it."""
    return error_bound(gram.scheme, 1, INNER, unit_roundoff, summed).product


def _ratio(gram: GramScheme, general: int, symmetric: int) -> str | None:
    """S(n)/M(n) for S(n) = symmetric S(n/m) + general M(n/m) and M(n) = 7^i M(n/m), m = 2^i."""
    m, k = gram.scheme.m, gram.scheme.k
    if m != k or m == 1 or m & (m - 1) or symmetric >= 7 ** int(log2(m)):
        return None
    found = Fraction(general, 7 ** int(log2(m)) - symmetric)
    return f"{found}, {float(found):.4g}"
