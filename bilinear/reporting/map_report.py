"""The reports of algorithms for other bilinear maps: digits, complex numbers, A*A^T. Frozen objects, of which all views are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import reduce
from math import log2, prod
from typing import ClassVar

from bilinear.algebra.complex_products import complex_scheme, four_products, on_complex_blocks, three_products
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
    largest_scaled,
    probable_classical,
    probable_digits,
    probable_residues,
    residue_block_bound,
    same_bits_bound,
)
from bilinear.codegen.build import LaunchProgram
from bilinear.errors import BilinearError, fail
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.complex_scheme import ComplexAlgorithm, ComplexScheme
from bilinear.ir.digits import DigitScheme, Representation, digit_names
from bilinear.ir.element import FLOAT64, IN_ARRAYS
from bilinear.ir.gram import GramScheme
from bilinear.ir.linear import Form
from bilinear.ir.schedule import AnySchedule
from bilinear.ir.tile import LONGEST_SUM
from bilinear.lowering.prepare import Level, prepare_complex, proved
from bilinear.reporting.facts import PROVED, REFUSED, KernelLine, form_text, written_sum
from bilinear.reporting.report import ReportViews, Rows, Table, kernel_lines, kernel_table
from bilinear.reporting.table import aligned
from bilinear.verify.bilinear_map import prove_map
from bilinear.verify.digits import DigitProof, prove_digits
from bilinear.verify.scheme import SchemeProof

INNERS = (1024, 4096, 16384, 65536)  # Errors are reported for sums of this many terms.


@dataclass(frozen=True, kw_only=True)
class MapReport(ReportViews):
    """The facts about an algorithm for another bilinear map. `lead` is what a page says first; `failures` say why it is refused."""

    kind: ClassVar[str]
    algorithm: str
    format: str
    verdict: str = PROVED
    lead: str
    facts: Rows
    products: tuple[str, ...]
    error_table: Table
    notes: tuple[str, ...]
    failures: tuple[str, ...] = ()
    kernels: tuple[KernelLine, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        own = {name: value for name, value in asdict(self).items() if name not in ("lead", "error_table")}
        return {"format_of_report": self.kind, "proved": self.proved, **own}

    def lines(self) -> Iterator[str]:
        """The report as text."""
        yield from (f"{self.algorithm}: {self.verdict}", "")
        yield from aligned([("", label, value) for label, value in self.facts], header=None)
        for title, lines in (("products", self.products), ("what does not hold", self.failures)):
            if lines:
                yield from ("", f"{title}:", *(f"  {line}" for line in lines))
        if self.error_table:
            yield from ("", "errors:", *aligned(self.error_table[1:], self.error_table[0]))
        yield from self.notes
        if table := kernel_table(self.kernels):
            yield from ("", "kernels:", *aligned(table[1:], table[0]))

    def page(self, html: bool) -> tuple[str, dict[str, object]]:
        """The template of a page, and what it prints."""
        return "report_map", {"table": self.error_table, "kernels": kernel_table(self.kernels)}


def written_products(algorithm: BilinearAlgorithm) -> tuple[str, ...]:
    """The products of an algorithm for a bilinear map, and its outputs, as equations."""
    target, (u, v, w) = algorithm.target, algorithm.tables
    names = [f"M{number}" for number in range(1, algorithm.rank + 1)]
    factors = ((_factor(left, target.left), _factor(right, target.right)) for left, right in zip(u, v, strict=True))
    products = [f"{name} = {left} * {right}" for name, (left, right) in zip(names, factors, strict=True)]
    outputs = (f"{output} = {form_text(row, names)}" for output, row in zip(target.outputs, w, strict=True))
    return *products, *outputs


def _factor(row: Form, names: tuple[str, ...]) -> str:
    text = form_text(row, names)
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


@dataclass(frozen=True, kw_only=True)
class DigitReport(MapReport):
    """The facts about a digit scheme."""

    kind = "bilinear-digits/1"
    representation: str
    represents: str
    digits: tuple[str, ...]
    moduli: tuple[int, ...]
    equations: int
    order: int | None
    remainder: tuple[str, ...]
    errors: tuple[DigitErrors, ...]


def _digit_error_table(errors: Sequence[DigitErrors]) -> Table:
    if not errors:
        return ()
    header = ["K", "always", "of an element", "probable", "classical, always", "classical, probable"]
    rows = [[e.inner, e.always, e.element, e.probable, e.classical_always, e.classical_probable] for e in errors]
    columns = [i for i in range(len(header)) if rows[0][i] is not None]
    texts = ([str(row[0]), *(f"{row[i]:.1e}" for i in columns[1:])] for row in rows)
    return tuple(header[i] for i in columns), *map(tuple, texts)


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
        algorithm=scheme.name,
        format=scheme.format,
        verdict=PROVED if proof.holds else REFUSED,
        lead=f"Numbers of {representation.numbers} are multiplied by products of digits.",
        facts=tuple(_facts(proof)),
        products=tuple(_products(scheme)),
        error_table=_digit_error_table(errors),
        notes=notes,
        failures=proof.failures,
        representation=representation.name,
        represents=representation.numbers,
        digits=representation.digits,
        moduli=representation.moduli,
        equations=proof.equations,
        order=proof.order,
        remainder=_remainder(proof),
        errors=errors,
    )
    return report, error


def with_bits(report: DigitReport, scheme: DigitScheme) -> DigitReport:
    """The report with the argument why products by `reproducible="bitwise"` depend on the numbers alone.

    Refuses (E507) digits that are rounded, and schemes with blocks, whose argument is that of their residues.
    """
    r = scheme.representation
    if not r.is_modular or r.gaussian or scheme.parts:
        raise fail("E507", f"{scheme.name} promises no bits: residues of real numbers do", "bilinear verify residues14 --bits")
    rows = [
        *(fact for fact in report.facts if fact[0] not in ("range", "exact")),  # which are of scales by 2-norms
        ("range", f"M = 2^{log2(r.product):.1f}"),
        ("scales", "a line is multiplied by the largest 2^e for which its largest magnitude is at most T, which follows from M and K"),
        ("integers", "its numbers, rounded to nearest, ties to even, are at most T in size for every finite input: T is an integer"),
        ("their sum", "2 |sum a'b'| <= 2 K T^2 < M for every input: its residues determine it, whatever adds them up and in which order"),
        ("roundings", "one where numbers are cut, one of the sum divided by both scales; integers modulo p lose nothing in between"),
    ]
    for inner in INNERS:
        t = largest_scaled(r, inner)
        share = f"2 K T^2 = {2 * inner * int(t) ** 2 / r.product:.9f} M"
        rows.append(
            (f"K = {inner}", f"T = {int(t)}, {share}, error at most {same_bits_bound(t, inner, r.of.unit_roundoff):.1e} max|A| max|B|")
        )
    return replace(report, facts=tuple(rows))


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
        factors = (form_text(row, names) for row, names in ((x, left), (y, right)))
        yield f"{name} = {' * '.join(f'({factor})' if ' ' in factor else factor for factor in factors)}"
    yield f"C = {form_text(w, scheme.products)}"


def _errors(scheme: DigitScheme, levels: int) -> tuple[tuple[DigitErrors, ...], tuple[str, ...]]:
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


@dataclass(frozen=True, kw_only=True)
class ComplexReport(MapReport):
    """The facts about an algorithm that multiplies complex numbers, or matrices, by real products; it is proved when it is reported.

    `schedule` says what runs for matrices, at all levels; it is empty for numbers.
    """

    kind = "bilinear-complex/1"
    computes: str
    ring: str
    rank: int
    additions: int
    equations: int
    proof: str
    schedule: str
    errors: tuple[PartErrors, ...]
    source: str


def complex_report(
    found: ComplexAlgorithm, levels: int = 1, schedule: AnySchedule | None = None, programs: Sequence[LaunchProgram] = ()
) -> ComplexReport:
    """The report of an algorithm for complex numbers, or with a block scheme, at so many levels of it, for complex matrices.

    A `schedule` of the block scheme runs in place of the usual one if it writes neither A nor B; `programs` are the kernels that are built.

    Raises `BilinearError`: E350 if it does not multiply complex numbers, E301 if the block scheme does not multiply matrices, and those of
    `prepare_complex`.
    """
    core, inside, u = found.core, found.inside, FLOAT64.unit_roundoff
    proof = prove_map(core)
    proof.require()
    equations = prod(core.target.sizes)
    if inside is None:
        bounds = (bound for make, bound in BOUNDS if make().tables == core.tables)
        errors = tuple(PartErrors(k, *bound(k, u), four_products_bound(k, u).real) for bound in bounds for k in INNERS)
        form, computes, ring, runs = found.format, proof.title, proof.ring, ""
        whole: BilinearAlgorithm | ComplexScheme = core
        proved_by = f"{equations} coefficients, exactly, over {ring}, for matrices that do not commute, too"
        told = f"{ERRORS} for products summed classically" if errors else "no bound of its errors is known"
    else:
        prepared = prepare_complex((Level(inside, schedule),) * levels, core=core)
        blocks = proved(inside)
        deep = not inside.ring.is_complex  # a complex scheme runs at one level
        whole = complex_scheme(reduce(tensor, [inside] * levels), core=core) if deep else on_complex_blocks(core, inside)
        most = ((k, run_error_bound(prepared, k, u).product * u) for k in INNERS)  # of both parts
        errors = tuple(PartErrors(k, bound, bound, four_products_bound(k, u).real) for k, bound in most)
        m, k, n = (size**levels for size in (inside.m, inside.k, inside.n))
        form, ring = f"<{m},{k},{n};{whole.rank}>", str(prepared.ring)
        computes = f"A*B of complex matrices, A in {m} x {k} and B in {k} x {n} blocks"
        both = f"{equations} coefficients of {core.name} over {proof.ring} and {blocks.equations} Brent equations of {inside.name}"
        proved_by = f"{both} over {blocks.ring}, exactly; the tables are their Kronecker product"
        stages = f"{prepared.products} real products in {len(prepared.stages)} stages"
        runs = f"{prepared.name}: {stages}, proved against both at {levels} level(s)"
        told = f"{ERRORS} as the schedule runs, its products summed classically"
        equations += blocks.equations
    notes = []
    if core.tables == three_products().tables:
        notes.append(
            f"three products have {PROBABLE:.2f} times the probable error by norm of four, and no bound for a small imaginary part"
        )
    if is_over_reals(core.ring):
        notes.append(f"any scheme runs the products: matmul(a, b, algorithm='{core.name} (x) winograd') of complex arrays")
    additions = whole.u.additions + whole.v.additions + whole.w.additions
    costs = f"{whole.rank} real products and {additions} additions"
    rows = (("computes", computes), ("costs", costs), ("proof", proved_by), ("runs", runs), ("source", found.citation))
    table = tuple((str(e.inner), *(f"{x:.1e}" for x in (e.real, e.imaginary, e.four_products))) for e in errors)
    return ComplexReport(
        algorithm=found.name,
        format=form,
        lead="Complex numbers are multiplied by products of real ones.",
        facts=tuple(row for row in rows if row[1]),
        products=written_products(core),
        error_table=(("K", "real", "imaginary", "four products"), *table) if table else (),
        notes=(told, *notes),
        kernels=tuple(line for program in programs for line in kernel_lines(program)),
        computes=computes,
        ring=ring,
        rank=whole.rank,
        additions=additions,
        equations=equations,
        proof=proved_by,
        schedule=runs,
        errors=errors,
        source=found.citation,
    )


CONFIDENCE = 0.99
INNER = 4096  # Errors are reported for sums of this many terms.


@dataclass(frozen=True, kw_only=True)
class GramReport(MapReport):
    """The facts about a proved scheme for A*A^T.

    `general` products multiply two matrices, `symmetric` ones a sum of blocks by its own transpose. `additions` counts one level as it
    runs: additions of blocks of A for the factors, and of products; a sum on the diagonal of C counts whole. `work` is the ratio of
    multiplications of one level above the classical multiply to those of a classical triangle; `ratio` that of many levels to Strassen's
    algorithm for two matrices (None unless A is cut into 2^i x 2^i blocks). `growth` is the error's growth factor. `errors` bound, for an
    element type, max|C - A*A^T| / max|A|^2 of one level for sums of `INNER` terms, for all data; `likely` bound it for an `INNER` x `INNER`
    matrix A of independent normal entries, with the probability `CONFIDENCE`.
    """

    kind = "bilinear-gram-scheme/1"
    computes: str
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


def gram_report(gram: GramScheme) -> GramReport:
    """Prove a scheme, and count. Raises `BilinearError` (E350) if it does not compute A*A^T."""
    algorithm, own, symmetric = gram.algorithm, gram.scheme, len(gram.symmetric)
    prove_map(algorithm).require()
    u, _, w = own.tables
    right = [row for p, row in enumerate(gram.right) if p not in gram.symmetric]
    before, after = (sum(max(0, len(row) - 1) for row in rows) for rows in ((*u, *right), w))
    general, real = own.rank - symmetric, is_real(own)
    kinds = tuple(IN_ARRAYS.items()) if real else ()
    # a product by a scheme's own transpose is a product of two matrices in it
    errors = tuple((name, error_bound(own, 1, INNER, *kind.roundoffs).product * kind.roundoffs[0]) for name, kind in kinds)
    likely = tuple((name, probable_gram_error(gram, INNER, INNER, CONFIDENCE) * kind.unit_roundoff) for name, kind in kinds)
    growth = float(growth_factor(own)) if real else None
    work = (general + symmetric / 2) / (own.m**2 * own.k / 2)
    ratio = _ratio(gram, general, symmetric)
    told = f"errors of one level in units of max|A|^2 for K = {INNER}, for all data"
    rows = (
        ("computes", f"{algorithm.target.title}, over {own.ring}"),
        ("products", f"{general + symmetric}: {general} of two matrices, {symmetric} of one by its transpose"),
        ("additions", f"{before + after} = {before} of blocks of A + {after} of products"),
        ("multiplications", f"{work:.4g} of a classical triangle's, one level"),
        ("", "" if ratio is None else f"{ratio} of a product's by Strassen's algorithm, many levels"),
        ("growth", "" if growth is None else f"{growth:.4g} of the error, a level"),
        ("source", own.citation),
    )
    table = tuple((name, f"{bound:.3g}", f"{most:.3g}") for (name, bound), (_, most) in zip(errors, likely, strict=True))
    return GramReport(
        algorithm=own.name,
        format=own.format,
        lead="A matrix is multiplied by its own transpose.",
        facts=tuple(row for row in rows if row[1]),
        products=written_products(algorithm),
        error_table=(("dtype", "at most", "likely"), *table) if table else (),
        notes=(f"{told}; likely: with probability {CONFIDENCE} for {INNER} x {INNER} normal entries",) if table else (),
        computes=algorithm.target.title,
        ring=str(own.ring),
        source=own.citation,
        general=general,
        symmetric=symmetric,
        additions=(before, after),
        work=work,
        ratio=ratio,
        growth=growth,
        errors=errors,
        likely=likely,
    )


def _ratio(gram: GramScheme, general: int, symmetric: int) -> str | None:
    """S(n)/M(n) for S(n) = symmetric S(n/m) + general M(n/m) and M(n) = 7^i M(n/m), m = 2^i."""
    m, k = gram.scheme.m, gram.scheme.k
    if m != k or m == 1 or m & (m - 1) or symmetric >= 7 ** int(log2(m)):
        return None
    found = Fraction(general, 7 ** int(log2(m)) - symmetric)
    return f"{found}, {float(found):.4g}"
