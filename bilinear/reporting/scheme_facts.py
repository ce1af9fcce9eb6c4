"""The facts that a report gives about a scheme: its proof, its costs, and its exact tables as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bilinear.analysis.accuracy import growth_factor
from bilinear.analysis.identity import scheme_hash
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient, Symbolic, is_negative
from bilinear.ir.scheme import Scheme, block_names, exponent_of
from bilinear.verify.scheme import SchemeProof
from bilinear.verify.shortened import told

Entries = tuple[tuple[int, str], ...]
"""A sparse row: (column from 0, exact coefficient as text)."""


@dataclass(frozen=True)
class Tables:
    """The coefficient tables with changes of basis and sub-expressions expanded.

    `u` has a row for each product over the blocks `a`, `v` one over the blocks `b`; `w` has a row for each of the blocks `c` over the
    products.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    c: tuple[str, ...]
    products: tuple[str, ...]
    u: tuple[Entries, ...]
    v: tuple[Entries, ...]
    w: tuple[Entries, ...]


@dataclass(frozen=True)
class ProductLine:
    """One product as an equation: its factors, and the blocks of C that it is added to, with coefficients."""

    name: str
    left: str
    right: str
    targets: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FailingEquation:
    """A Brent equation that does not hold: the coefficient of `left` * `right` in `output`."""

    left: str
    right: str
    output: str
    found: str
    needed: str


@dataclass(frozen=True)
class SchemeFacts:
    """The proved and known facts about the scheme.

    `ring` is the ring of the decision, `valid_over` the rings over which it holds as written. `order` is the order of the error in lambda
    and `degree` the largest power of 1/lambda (None for exact schemes). `additions` are block additions on A, B and C as written; `growth`
    is the norm-wise growth factor of one level, empty if a coefficient is not real. `bases` and `subexpressions` are equations as written.
    `failing` is empty if the scheme is proved; `complete` is false if the search for more ended early.
    """

    name: str
    format: str
    ring: str
    valid_over: tuple[str, ...]
    order: int | None
    degree: int | None
    citation: str
    equations: int
    failing: tuple[FailingEquation, ...]
    complete: bool
    additions: tuple[int, int, int]
    scalings: int
    exponent: float
    growth: str
    bases: tuple[str, ...]
    subexpressions: tuple[str, ...]
    products: tuple[ProductLine, ...]
    tables: Tables
    sha256: str


def scheme_facts(scheme: Scheme, proof: SchemeProof) -> SchemeFacts:
    """The facts of a scheme and its proof, which may have failed."""
    maps: tuple[LinearMap, ...] = (scheme.u, scheme.v, scheme.w)
    tables = _tables(scheme)
    failing = tuple(FailingEquation(e.left, e.right, e.output, told(e.found), str(e.needed)) for e in proof.failures)
    return SchemeFacts(
        name=scheme.name,
        format=scheme.format,
        ring=str(scheme.ring),
        valid_over=proof.valid_over,
        order=proof.order,
        degree=proof.degree,
        citation=scheme.citation,
        equations=proof.equations,
        failing=failing,
        complete=proof.complete,
        additions=(scheme.u.additions, scheme.v.additions, scheme.w.additions),
        scalings=sum(linear.scalings for linear in maps),
        exponent=exponent_of(scheme.m, scheme.k, scheme.n, scheme.rank),
        growth=_growth(scheme),
        bases=tuple(_basis_lines(scheme, tables)),
        subexpressions=tuple(_subexpressions(scheme, tables)),
        products=_product_lines(scheme, tables),
        tables=tables,
        sha256=scheme_hash(scheme),
    )


def written_sum(terms: Iterable[tuple[Coefficient, str]]) -> str:
    """A linear form in the names of its values: `A11 - 2 A12 + (1+sqrt(3)) A21`."""
    text = ""
    for coefficient, name in terms:
        negative = is_negative(coefficient)
        size = -coefficient if negative else coefficient
        factor = "" if size == 1 else f"({size}) " if isinstance(size, Symbolic) and len(size.terms) > 1 else f"{size} "
        text += (" - " if negative else " + ") if text else "-" * negative
        text += factor + name
    return text or "0"


def _growth(scheme: Scheme) -> str:
    if scheme.ring.modulus or scheme.ring.is_approximate:
        return ""
    try:
        growth = growth_factor(scheme)
    except ValueError:
        return ""
    return f"{growth:.6g}" if isinstance(growth, float) else str(growth)


def _tables(scheme: Scheme) -> Tables:
    u, v, w = (tuple(tuple((i, str(c)) for i, c in row) for row in table) for table in scheme.tables)
    a, b, c = block_names("A", scheme.m, scheme.k), block_names("B", scheme.k, scheme.n), block_names("C", scheme.m, scheme.n)
    return Tables(a, b, c, scheme.products, u, v, w)


def _product_lines(scheme: Scheme, tables: Tables) -> tuple[ProductLine, ...]:
    u, v, w = scheme.tables
    targets: list[list[tuple[str, str]]] = [[] for _ in scheme.products]
    for block, row in zip(tables.c, w, strict=True):
        for product, coefficient in row:
            targets[product].append((block, str(coefficient)))
    rows = zip(scheme.products, u, v, targets, strict=True)
    return tuple(ProductLine(name, _form(a, tables.a), _form(b, tables.b), tuple(to)) for name, a, b, to in rows)


def _form(row: Form, names: Sequence[str]) -> str:
    return written_sum((coefficient, names[index]) for index, coefficient in row)


def _subexpressions(scheme: Scheme, tables: Tables) -> Iterable[str]:
    """The named sub-expressions as equations, in the order of A, B, C."""
    for linear, letter, inputs in ((scheme.u, "S", tables.a), (scheme.v, "T", tables.b), (scheme.w, "U", tables.products)):
        names = [*inputs]
        for number, step in enumerate(linear.steps):
            name = linear.names[number] if number < len(linear.names) and linear.names[number] else f"{letter}{number + 1}"
            yield f"{name} = {_form(step, names)}"
            names.append(name)


def _basis_lines(scheme: Scheme, tables: Tables) -> Iterable[str]:
    if scheme.bases is None:
        return
    changes = ((scheme.bases.a, tables.a, tables.a), (scheme.bases.b, tables.b, tables.b), (scheme.bases.c, tables.c, tables.c))
    for change, inputs, outputs in changes:
        for number, row in enumerate(change.matrix):
            if row != ((number, 1),):
                name = outputs[number] if len(change.matrix) == len(outputs) else f"{outputs[0][0]}'{number + 1}"
                names = inputs if change.inputs == len(inputs) else [f"{outputs[0][0]}'{i + 1}" for i in range(change.inputs)]
                yield f"{name} <- {_form(row, names)}"
