"""The report of a scheme that multiplies digits: one frozen object, of which text, JSON, Markdown and HTML are views."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import log2

from bilinear.analysis.accuracy import classical_bound
from bilinear.analysis.digit_bounds import Summation, block_bound, cutting_error, digit_bound, probable_classical, probable_digits
from bilinear.analysis.residue_bounds import probable_residues, residue_block_bound
from bilinear.errors import BilinearError
from bilinear.ir.digits import DigitScheme, Representation, digit_names
from bilinear.ir.residue_tile import LONGEST_SUM
from bilinear.reporting.map_page import map_page
from bilinear.reporting.report_facts import PROVED, REFUSED
from bilinear.reporting.scheme_facts import written_sum
from bilinear.reporting.table import aligned
from bilinear.verify.digits import DigitProof, prove_digits
from bilinear.verify.scheme import SchemeProof
from bilinear.visible import visible_lines

FORMAT = "bilinear-digits/1"
INNERS = (1024, 4096, 16384, 65536)
"""Errors are reported for sums of this many terms."""
Rows = tuple[tuple[str, str], ...]


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
class DigitReport:
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

    @property
    def proved(self) -> bool:
        """True if nothing was refused."""
        return self.verdict == PROVED

    def __str__(self) -> str:
        return visible_lines(self._lines())

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {"format_of_report": FORMAT, "proved": self.proved, **asdict(self)}

    def json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_json(), indent=1) + "\n"

    def markdown(self) -> str:
        """The report as Markdown."""
        return map_page(self, (), html=False)

    def html(self, date: str = "") -> str:
        """The report as one self-contained HTML page; its footer contains the `date` if one is given."""
        return map_page(self, (), html=True, date=date)

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

    def _lines(self) -> Iterator[str]:
        yield from (f"{self.algorithm}: {self.verdict}", "")
        yield from aligned([("", label, value) for label, value in self.facts], header=None)
        for title, lines in (("products", self.products), ("what does not hold", self.failures)):
            if lines:
                yield from ("", f"{title}:", *(f"  {line}" for line in lines))
        if self.errors:
            yield from ("", "errors:", *aligned(self.error_table[1:], self.error_table[0]))
        yield from self.notes


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
