"""The proof of a scheme: its Brent equations, decided exactly over the rationals.

With sympy's sparse exact matrices U (r x mk), V (r x kn) and W (mn x r) the whole system is one product: W times the matrix whose
row p is the Kronecker product of row p of U and row p of V must be the tensor of matrix multiplication (Brent 1970).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from bilinear.errors import BilinearError, Diagnostic
from bilinear.ir.linear import Coefficient, Form
from bilinear.ir.scheme import Scheme, block_name
from bilinear.source import Span

if TYPE_CHECKING:
    from sympy.polys.matrices import DomainMatrix


@dataclass(frozen=True)
class Equation:
    """A Brent equation that fails: the coefficient of `left` * `right` in `output`."""

    left: str
    right: str
    output: str
    found: Coefficient
    needed: Coefficient
    span: Span | None = None

    def __str__(self) -> str:
        return f"{self.left}*{self.right} in {self.output}: found {self.found}, needed {self.needed}"


@dataclass(frozen=True)
class SchemeProof:
    """The decision about one scheme: how many equations were checked, and those that fail."""

    scheme: str
    format: str
    equations: int
    failures: tuple[Equation, ...]

    @property
    def holds(self) -> bool:
        """Whether no equation fails."""
        return not self.failures

    def require(self) -> None:
        """Raise `BilinearError` (E301) naming the failing equations, unless the scheme holds."""
        if self.holds:
            return
        first = self.failures[0]
        more = tuple(str(equation) for equation in self.failures[1:6])
        rest = (f"and {len(self.failures) - 6} more",) if len(self.failures) > 6 else ()
        raise BilinearError(
            Diagnostic(
                "E301",
                f"{self.scheme} is not a multiplication: {len(self.failures)} of {self.equations} Brent equations fail",
                first.span,
                label=str(first),
                notes=(f"the coefficient of {first}", *more, *rest),
                hints=("compare the coefficients of the products that hold these blocks with their source",),
            )
        )


def prove_scheme(scheme: Scheme) -> SchemeProof:
    """Decide all (mk)(kn)(mn) Brent equations of a scheme."""
    m, k, n = scheme.m, scheme.k, scheme.n
    u, v, w = scheme.tables
    pairs = [_kronecker(left, right, k * n) for left, right in zip(u, v, strict=True)]
    computed = _matrix(w, scheme.rank) * _matrix(pairs, m * k * k * n)
    wrong = (computed - _matrix(_multiplication(m, k, n), m * k * k * n)).to_sdm()
    failures: list[Equation] = []
    for output, row in sorted(wrong.items()):
        span = _place(scheme, output, [divmod(pair, k * n) for pair in row])
        failures += [_equation(scheme, output, pair, _rational(difference), span) for pair, difference in sorted(row.items())]
    return SchemeProof(scheme.name, scheme.format, (m * k) * (k * n) * (m * n), tuple(failures))


def _kronecker(left: Form, right: Form, width: int) -> Form:
    return tuple((i * width + j, c * d) for i, c in left for j, d in right)


def _multiplication(m: int, k: int, n: int) -> list[Form]:
    """The matrix multiplication tensor: row (i,j) of C over the pairs (block of A, block of B)."""
    return [tuple(((i * k + p) * k * n + p * n + j, 1) for p in range(k)) for i in range(m) for j in range(n)]


def _matrix(rows: list[Form] | tuple[Form, ...], columns: int) -> DomainMatrix:
    from sympy import QQ
    from sympy.polys.matrices import DomainMatrix

    entries = {i: {j: QQ(value.numerator, value.denominator) for j, value in row if value} for i, row in enumerate(rows) if row}
    return DomainMatrix(entries, (len(rows), columns), QQ)


def _rational(value: object) -> Fraction:
    return Fraction(int(value.numerator), int(value.denominator))  # type: ignore[attr-defined]


def _equation(scheme: Scheme, output: int, pair: int, difference: Fraction, span: Span | None) -> Equation:
    k, n = scheme.k, scheme.n
    left, right = divmod(pair, k * n)
    needed = int(left % k == right // n and left // k == output // n and right % n == output % n)
    return Equation(
        block_name("A", *divmod(left, k)),
        block_name("B", *divmod(right, n)),
        block_name("C", *divmod(output, n)),
        _plain(difference + needed),
        needed,
        span,
    )


def _plain(value: Fraction) -> Coefficient:
    return int(value) if value.denominator == 1 else value


def _place(scheme: Scheme, output: int, pairs: list[tuple[int, int]]) -> Span | None:
    """Where to look: the product in this output that touches most of the failing pairs, else the output itself."""
    if scheme.places is None:
        return None
    u, v, w = scheme.tables
    touched = {p: sum(left in dict(u[p]) and right in dict(v[p]) for left, right in pairs) for p, _ in w[output]}
    if not any(touched.values()):
        return scheme.places.outputs[output]
    return scheme.places.products[max(touched, key=lambda p: (touched[p], -len(u[p]) * len(v[p])))]
