"""Exact elimination on sparse rows that record how they were combined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Generic, TypeVar

from bilinear.analysis.block_maps import components, restrict
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, Symbolic, exact, generator
from bilinear.ir.schedule import Block, BlockMap, LinearStage
from bilinear.verify.rings import Number

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

    from bilinear.verify.engine import Domain, DomainMatrix


Column = TypeVar("Column")
Key = TypeVar("Key")


@dataclass
class CombinedRow(Generic[Column]):
    """A vector as column to coefficient, and the combination of the given rows (`made_of`) that produced it."""

    entries: dict[Column, Number]
    made_of: dict[str, Number] = field(default_factory=dict)

    def minus(self, factor: Number, other: CombinedRow[Column]) -> None:
        """Subtract a multiple of another row."""
        _subtract(self.entries, factor, other.entries)
        _subtract(self.made_of, factor, other.made_of)


def _subtract(mine: dict[Key, Number], factor: Number, theirs: dict[Key, Number]) -> None:
    for key, value in theirs.items():
        left = mine[key] - factor * value if key in mine else -(factor * value)
        if left:
            mine[key] = left
        else:
            mine.pop(key, None)


def reduced(rows: Iterable[CombinedRow[Column]], order: Callable[[Column], SupportsRichComparison]) -> dict[Column, CombinedRow[Column]]:
    """The reduced echelon form, by pivot; a row's pivot is its first column in this order."""
    pivots: dict[Column, CombinedRow[Column]] = {}
    for given in rows:
        row = CombinedRow(dict(given.entries), dict(given.made_of))
        for column in [column for column in row.entries if column in pivots]:
            row.minus(row.entries[column], pivots[column])
        if not row.entries:
            continue
        pivot = min(row.entries, key=order)
        scale = row.entries[pivot]
        row = CombinedRow({c: v / scale for c, v in row.entries.items()}, {t: v / scale for t, v in row.made_of.items()})
        for other in pivots.values():
            if pivot in other.entries:
                other.minus(other.entries[pivot], row)
        pivots[pivot] = row
    return pivots


def kernel(rows: Iterable[CombinedRow[Column]], columns: Sequence[Column], one: Number) -> list[dict[Column, Number]]:
    """A basis of the kernel of these rows, one vector for each free column, in order."""
    place = {column: i for i, column in enumerate(columns)}
    pivots = reduced(rows, lambda column: place[column])
    basis = []
    for free in columns:
        if free in pivots:
            continue
        vector = {pivot: -row.entries[free] for pivot, row in pivots.items() if free in row.entries}
        basis.append(vector | {free: one})
    return basis


OPERANDS = ("A", "B")


def invert_stage(stage: LinearStage) -> LinearStage:
    """The stage that undoes a linear stage's effect on A and B: the inverse of its matrix on their blocks, part by part.

    The stage's writes to C and workspaces are kept; if it writes nothing else, the inverse has no maps. Raises `ArithmeticError` if a block
    of A or B becomes a sum with blocks of C or a workspace, whose old values are gone, and `ZeroDivisionError` if the matrix is singular.
    Neither occurs for an in-place schedule without workspaces that is proved to restore.
    """
    return LinearStage(tuple(_inverse(part) for block_map in stage.maps for part in _on_operands(block_map)), restores=True)


def _on_operands(block_map: BlockMap) -> tuple[BlockMap, ...]:
    """The independent parts of a map's effect on A and B."""
    targets = {target for target in block_map.targets if target.space in OPERANDS}
    if not targets:
        return ()
    own = restrict(block_map, targets)
    foreign = next((source for source in own.sources if source.space not in OPERANDS), None)
    if foreign is not None:
        raise ArithmeticError(f"the stage writes A or B from {foreign}, which has no inverse on A and B alone")
    return components(own)


def _inverse(part: BlockMap) -> BlockMap:
    from bilinear.verify.engine import DMNonInvertibleMatrixError

    blocks = tuple(dict.fromkeys(part.sources + part.targets))
    place = {block: i for i, block in enumerate(blocks)}
    rows: dict[Block, Form] = {block: ((i, 1),) for block, i in place.items()}
    for target, row in zip(part.targets, part.map.matrix, strict=True):
        rows[target] = form((place[part.sources[i]], c) for i, c in row)
    domain = ExactDomain.of(_root(rows.values()))
    try:
        inverse = domain.matrix([rows[block] for block in blocks], len(blocks)).inv().to_sdm()
    except DMNonInvertibleMatrixError:
        raise ZeroDivisionError("the stage's matrix is singular") from None
    outputs = [form((j, domain.number(c)) for j, c in inverse.get(place[target], {}).items()) for target in part.targets]
    return BlockMap(blocks, part.targets, LinearMap(len(blocks), tuple(outputs)))


def _root(rows: Iterable[Form]) -> str:
    """The root that occurs in the coefficients; empty if there is none."""
    roots = {name for row in rows for _, c in row if isinstance(c, Symbolic) for name in c.generators}
    return min(roots, default="")


@dataclass(frozen=True)
class ExactDomain:
    """A sympy domain for Q, or for Q with a root, by the name of its generator."""

    generator: str
    domain: Domain

    @staticmethod
    def of(name: str) -> ExactDomain:
        """The domain of Q with this generator, `i` or `sqrt(d)`; Q itself if the generator is empty."""
        from bilinear.verify.engine import QQ, I, sqrt

        if not name:
            return ExactDomain(name, QQ)
        return ExactDomain(name, QQ.algebraic_field(I if name == "i" else sqrt(int(name[5:-1]))))

    def matrix(self, rows: Sequence[Form], columns: int) -> DomainMatrix:
        """Sparse rows as a sparse matrix."""
        from bilinear.verify.engine import DomainMatrix

        entries = {i: {j: self.element(value) for j, value in row} for i, row in enumerate(rows) if row}
        return DomainMatrix(entries, (len(rows), columns), self.domain)

    def element(self, value: Coefficient) -> Number:
        """A coefficient as an element of the domain."""
        from bilinear.verify.engine import QQ

        terms = {e: QQ(c.numerator, c.denominator) for e, c in _by_power(value)}
        whole: Number = terms.get(0, QQ(0))
        if self.generator:
            whole = self.domain([terms.get(1, QQ(0)), whole])
        return whole

    def number(self, value: Number) -> Coefficient:
        """An element of the domain as a coefficient."""
        powers = list(reversed(value.to_list())) if self.generator else [value]
        whole, *root = (Fraction(int(c.numerator), int(c.denominator)) for c in powers)
        return exact(whole + root[0] * generator(self.generator) if root else whole)


def _by_power(value: Coefficient) -> list[tuple[int, Fraction]]:
    if not isinstance(value, Symbolic):
        return [(0, Fraction(value))]
    return [(sum(e for _, e in monomial), c) for monomial, c in value.terms]
