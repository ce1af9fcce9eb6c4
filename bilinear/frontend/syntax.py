"""The syntax of a `.bl` file as frozen dataclasses: what is written and where, without its meaning."""

from __future__ import annotations

from dataclasses import dataclass

from bilinear.source import Span


@dataclass(frozen=True)
class Word:
    """A token: its text and its place."""

    text: str
    span: Span


@dataclass(frozen=True)
class Plain:
    """A sign, an optional coefficient, and the name of a block, a sub-expression or a product."""

    sign: int
    number: Word | None
    name: Word
    span: Span


@dataclass(frozen=True)
class TermFactor:
    """A name, or a sum in parentheses."""

    terms: tuple[Plain, ...]
    span: Span


@dataclass(frozen=True)
class Term:
    """A sign, an optional coefficient, and one factor or a product of two."""

    sign: int
    number: Word | None
    factors: tuple[TermFactor, ...]
    span: Span


@dataclass(frozen=True)
class Update:
    """An equation of a scheme or a step of a stage: targets, operator, sum."""

    targets: tuple[Plain, ...]
    operator: Word
    terms: tuple[Term, ...]
    span: Span


@dataclass(frozen=True)
class TableRow:
    """A row of a coefficient table: the name of the product, and the text of its cells, which is split later."""

    name: Word
    cells: Word | None
    span: Span


@dataclass(frozen=True)
class Citation:
    """A `source` line; the text is unquoted."""

    text: str
    span: Span


@dataclass(frozen=True)
class SchemeHeader:
    """`scheme NAME <m,k,n;r> over RING: B = A^T`."""

    name: Word
    format: Word
    ring: Word | None
    span: Span
    claims: Word | None = None


@dataclass(frozen=True)
class SymmetryCall:
    """`rotate(...)` or `transpose(...)`."""

    function: Word
    argument: Expression
    span: Span


@dataclass(frozen=True)
class OperatorChain:
    """Schemes joined by operators, applied from the left: `(x)`, or `(+m)`, `(+k)` and `(+n)`."""

    first: Expression
    rest: tuple[tuple[Word, Expression], ...]
    span: Span


@dataclass(frozen=True)
class CompositionStatement:
    """`scheme NAME <m,k,n;r> over RING = EXPRESSION`; format and ring are optional."""

    name: Word
    format: Word | None
    ring: Word | None
    value: Expression
    span: Span


@dataclass(frozen=True)
class ScheduleHeader:
    """`schedule NAME of SCHEME: CLAIMS`."""

    name: Word
    scheme: Word
    claims: Word | None
    span: Span


@dataclass(frozen=True)
class DigitsHeader:
    """`digits NAME of TYPE: CLAIMS`."""

    name: Word
    of: Word
    claims: Word | None
    span: Span


@dataclass(frozen=True)
class StageStatement:
    """`stage { ... }` or `restore stage { ... }`; the span covers the keywords."""

    restores: bool
    steps: tuple[Update, ...]
    span: Span


@dataclass(frozen=True)
class BasisStatement:
    """`basis A { ... }`: a change of basis before (A, B) or after (C) the scheme; the span covers the keywords."""

    operand: Word
    steps: tuple[Update, ...]
    span: Span


@dataclass(frozen=True)
class Broken:
    """A statement that did not parse: the name it would have defined, or the header it would have been."""

    name: str
    header: bool
    span: Span


Expression = Word | SymmetryCall | OperatorChain
"""The expression of a scheme; a word is a name, a file in quotes, or a format, which stands for the classical scheme."""
Header = SchemeHeader | CompositionStatement | ScheduleHeader | DigitsHeader
Statement = Header | Citation | BasisStatement | TableRow | Update | StageStatement | Broken
