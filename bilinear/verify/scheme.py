"""The proof of a scheme: its Brent equations, decided exactly over its ring.

`analysis.brent` computes the residual of the whole system in exact integers; this module turns it into a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bilinear.analysis.brent import (
    MOST_BITS,
    MOST_MULTIPLICATIONS,
    Residual,
    by_matrices,
    common_denominator,
    integers,
    needed_pairs,
    products_of_coefficients,
    residual,
    units_of,
)
from bilinear.errors import BilinearError, Diagnostic
from bilinear.ir.number import Coefficient
from bilinear.ir.scheme import Scheme, block_name
from bilinear.source import Span
from bilinear.verify.composed import is_product_of, require_expandable
from bilinear.verify.facts import Equation, told
from bilinear.verify.rings import RingFacts, facts_of

MOST_TERMS = 5_000_000  # The most products of three coefficients that a proof adds up one by one: a second.


@dataclass(frozen=True)
class SchemeProof:
    """The decision about one scheme: the number of equations checked, and those that fail.

    `ring` is the ring of the decision; `facts` gives other rings over which the scheme holds as written. For an approximate scheme `order`
    is the largest h such that it computes A*B + O(lambda^h) (None if it is exact), and `degree` the largest power of 1/lambda in a product.
    If very many equations fail the search stops early, and `complete` is false.
    """

    scheme: str
    format: str
    equations: int
    failures: tuple[Equation, ...]
    ring: str = "Q"
    facts: RingFacts | None = None
    complete: bool = True

    @property
    def holds(self) -> bool:
        """True if no equation fails."""
        return not self.failures

    @property
    def order(self) -> int | None:
        """The order of the error in lambda; None for an exact scheme, and for one that fails."""
        return self.facts.order if self.facts else None

    @property
    def degree(self) -> int | None:
        """The largest power of 1/lambda in a product; None for a scheme that is not over Q[lambda]."""
        return self.facts.degree if self.facts else None

    @property
    def valid_over(self) -> tuple[str, ...]:
        """The rings over which the scheme holds with its coefficients as written."""
        return self.facts.valid_over if self.facts else ()

    def require(self) -> None:
        """Raise `BilinearError` (E301) with the failing equations, if there are any."""
        if self.holds:
            return
        first = self.failures[0]
        over = "" if self.ring == "Q" else f" over {self.ring}"
        declared = [f"if that is the ring that is meant, say so in the header: over {ring}" for ring in self.valid_over[:1]]
        many = f"{len(self.failures)}" if self.complete else f"at least {len(self.failures)}"
        raise BilinearError(
            Diagnostic(
                "E301",
                f"{self.scheme} is not a multiplication{over}: {many} of {self.equations} Brent equations fail",
                first.span,
                label=str(first),
                notes=tuple(self._notes()),
                hints=(*declared, "compare the coefficients of the products that hold these blocks with their source"),
            )
        )

    def _notes(self) -> Iterator[str]:
        yield f"the coefficient of {self.failures[0]}"
        yield from map(str, self.failures[1:6])
        if len(self.failures) > 6:
            yield f"and {len(self.failures) - 6} more"
        if self.valid_over:
            yield f"as it is written it holds over {', '.join(self.valid_over)}"


def prove_scheme(scheme: Scheme) -> SchemeProof:
    """Decide all (mk)(kn)(mn) Brent equations of a scheme over its ring; over Q[lambda], all their coefficients of order 0 and below.

    A tensor product of two schemes is proved by them. Changes of basis are part of the proof: the scheme must multiply in the ordinary
    basis. Raises `BilinearError` if a coefficient is not in the ring (E302), or the tables are too large to prove (E303).
    """
    require_expandable(scheme)
    _require_coefficients(scheme)
    denominator = common_denominator(scheme) if is_product_of(scheme, multiplies) else None
    if denominator is not None:
        left = Residual(units_of(scheme), {})
    else:
        denominator = _require_size(scheme)
        left = residual(scheme)
    m, k, n = scheme.m, scheme.k, scheme.n
    failures = tuple(_failures(scheme, left))
    facts = facts_of(scheme, left, denominator)
    return SchemeProof(scheme.name, scheme.format, (m * k) * (k * n) * (m * n), failures, scheme.ring.name, facts, left.complete)


def multiplies(scheme: Scheme) -> bool:
    """The verdict of `prove_scheme`, decided at the first block that fails; the scheme must be no larger than one already proved."""
    _require_coefficients(scheme)
    return residual(scheme, most=1).is_zero


def _failures(scheme: Scheme, left: Residual) -> Iterator[Equation]:
    wrong: dict[int, list[tuple[int, Coefficient]]] = {}
    for output, pair, difference in left.differences():
        wrong.setdefault(output, []).append((pair, difference))
    for output, pairs in wrong.items():
        span = _place(scheme, output, [divmod(pair, scheme.k * scheme.n) for pair, _ in pairs])
        needed = frozenset(needed_pairs(scheme, output))
        for pair, difference in pairs:
            yield _equation(scheme, output, pair, difference, int(pair in needed), span)


def _equation(scheme: Scheme, output: int, pair: int, difference: Coefficient, needed: int, span: Span | None) -> Equation:
    left, right = divmod(pair, scheme.k * scheme.n)
    found = difference + needed
    return Equation(
        block_name("A", *divmod(left, scheme.k)),
        block_name("B", *divmod(right, scheme.n)),
        block_name("C", *divmod(output, scheme.n)),
        found % scheme.ring.modulus if scheme.ring.modulus and isinstance(found, int) else found,
        needed,
        span,
    )


def _place(scheme: Scheme, output: int, pairs: list[tuple[int, int]]) -> Span | None:
    """The span to show: the product in this output that touches most failing pairs, else the output itself."""
    if scheme.places is None:
        return None
    u, v, w = scheme.tables
    seen = pairs[:64]
    sides = {p: ({i for i, _ in u[p]}, {j for j, _ in v[p]}) for p, _ in w[output]}
    touched = {p: sum(i in left and j in right for i, j in seen) for p, (left, right) in sides.items()}
    if not any(touched.values()):
        return scheme.places.outputs[output]
    return scheme.places.products[max(touched, key=lambda p: (touched[p], -len(u[p]) * len(v[p])))]


def _require_coefficients(scheme: Scheme) -> None:
    if all(map(scheme.ring.holds, {value for rows in scheme.tables for row in rows for _, value in row})):
        return
    for table, rows in zip("UVW", scheme.tables, strict=True):
        for number, row in enumerate(rows):
            for column, value in row:
                if not scheme.ring.holds(value):
                    raise _foreign(scheme, table, number, column, value)


def _foreign(scheme: Scheme, table: str, row: int, column: int, value: Coefficient) -> BilinearError:
    product = column if table == "W" else row
    span = scheme.places.products[product] if scheme.places is not None else None
    place = f"row {row + 1} of {table} (product {scheme.products[product]})"
    what = f"the coefficient {told(value)} in {place} is not an element of {scheme.ring}"
    reason = "its denominator is not invertible there" if scheme.ring.modulus else f"elements of {scheme.ring} are written without it"
    hint = "declare the ring that its coefficients come from"
    return BilinearError(Diagnostic("E302", f"{scheme.name}: {what}", span, notes=(reason,), hints=(hint,)))


def _require_size(scheme: Scheme) -> int:
    """The common denominator of the tables; refuses tables that are too large to prove (E303)."""
    terms = products_of_coefficients(scheme)
    denominator = common_denominator(scheme)
    if denominator is not None and (terms <= MOST_TERMS or by_matrices(scheme, integers(scheme))):
        return denominator
    sums = f"its equations add up {terms} products of coefficients"
    reason = "its coefficients have no common denominator of reasonable length" if denominator is None else sums
    notes = (
        f"a proof adds up at most {MOST_TERMS} one by one, of fractions with a common denominator of at most {MOST_BITS} bits",
        f"by matrix products it makes at most {MOST_MULTIPLICATIONS} multiplications, of rationals whose sums float64 holds exactly",
    )
    message = f"{scheme.name} is too large to prove: {reason}"
    raise BilinearError(Diagnostic("E303", message, notes=notes, hints=("prove its parts, and compose them",)))
