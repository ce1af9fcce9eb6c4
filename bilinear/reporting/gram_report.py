"""The report of a scheme for A*A^T: its proof, its counts and its error bound."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import log2

from bilinear.analysis.accuracy import error_bound, growth_factor, is_real
from bilinear.analysis.probable_error import probable_gram_error
from bilinear.ir.element import IN_ARRAYS
from bilinear.ir.gram import GramScheme
from bilinear.verify.bilinear_map import prove_map
from bilinear.visible import visible_lines

FORMAT = "bilinear-gram-scheme/1"
CONFIDENCE = 0.99
INNER = 4096
"""Errors are reported for sums of this many terms."""


@dataclass(frozen=True)
class GramReport:
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

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {"format_of_report": FORMAT, "proved": True, **asdict(self)}

    def json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_json(), indent=1) + "\n"

    def __str__(self) -> str:
        before, after = self.additions
        lines = [
            f"{self.algorithm}: proved",
            f"  computes         {self.computes}, over {self.ring}",
            f"  products         {self.general + self.symmetric}: {self.general} of two matrices, {self.symmetric} of one by its transpose",
            f"  additions        {before + after} = {before} of blocks of A + {after} of products",
            f"  multiplications  {self.work:.4g} of a classical triangle's, one level",
        ]
        if self.ratio is not None:
            lines.append(f"                   {self.ratio} of a product's by Strassen's algorithm, many levels")
        if self.growth is not None:
            lines.append(f"  growth           {self.growth:.4g} of the error, a level")
        lines += [f"  error, {dtype:<10}{bound:.3g} max|A|^2 at most, one level, K = {INNER}" for dtype, bound in self.errors]
        told = f"max|A|^2 with probability {CONFIDENCE}, one level, {INNER} x {INNER}"
        lines += [f"  likely, {dtype:<9}{bound:.3g} {told}" for dtype, bound in self.likely]
        if self.source:
            lines.append(f"  source           {self.source}")
        return visible_lines(lines)


def gram_report(gram: GramScheme) -> GramReport:
    """Prove a scheme, and count. Raises `BilinearError` (E350) if it does not compute A*A^T."""
    algorithm, own, symmetric = gram.algorithm, gram.scheme, len(gram.symmetric)
    prove_map(algorithm).require()
    u, _, w = own.tables
    right = [row for p, row in enumerate(gram.right) if p not in gram.symmetric]
    before, after = (sum(max(0, len(row) - 1) for row in rows) for rows in ((*u, *right), w))
    general, real = own.rank - symmetric, is_real(own)
    kinds = tuple(IN_ARRAYS.items()) if real else ()
    errors = tuple((name, own_error * kind.roundoffs[0]) for name, kind in kinds for own_error in (_bound(gram, *kind.roundoffs),))
    likely = tuple((name, probable_gram_error(gram, INNER, INNER, CONFIDENCE) * kind.unit_roundoff) for name, kind in kinds)
    growth = float(growth_factor(own)) if real else None
    work = (general + symmetric / 2) / (own.m**2 * own.k / 2)
    facts = own.format, str(own.ring), own.citation, general, symmetric, (before, after), work
    return GramReport(own.name, algorithm.target.title, *facts, _ratio(gram, general, symmetric), growth, errors, likely)


def _bound(gram: GramScheme, unit_roundoff: float, summed: float | None) -> float:
    """In unit roundoffs; a product by a scheme's own transpose is a product of two matrices in it."""
    return error_bound(gram.scheme, 1, INNER, unit_roundoff, summed).product


def _ratio(gram: GramScheme, general: int, symmetric: int) -> str | None:
    """S(n)/M(n) for S(n) = symmetric S(n/m) + general M(n/m) and M(n) = 7^i M(n/m), m = 2^i."""
    m, k = gram.scheme.m, gram.scheme.k
    if m != k or m == 1 or m & (m - 1) or symmetric >= 7 ** int(log2(m)):
        return None
    found = Fraction(general, 7 ** int(log2(m)) - symmetric)
    return f"{found}, {float(found):.4g}"
