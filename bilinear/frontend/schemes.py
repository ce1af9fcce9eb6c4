"""Turn the statements of a scheme into the IR: rows of a table or equations, and changes of basis."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import count

from bilinear.algebra.composition import INTEGERS
from bilinear.frontend.messages import Reporter, listed, shown
from bilinear.frontend.names import KINDS, FormatAndRing, Names, Value, add_up, is_block, number_of, read_block, read_format, read_number
from bilinear.frontend.syntax import (
    BasisStatement,
    Broken,
    Citation,
    Plain,
    SchemeHeader,
    StageStatement,
    Statement,
    TableRow,
    Term,
    TermFactor,
    Update,
    Word,
)
from bilinear.ir.linear import Form, LinearMap, identity
from bilinear.ir.number import Coefficient, exact
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Bases, Places, Scheme, WrittenSum, WrittenTerm, block_name
from bilinear.source import Span

TABLES = {"A": "u", "B": "v", "M": "w"}  # The map of a scheme that contains the forms of each kind.


@dataclass(frozen=True)
class TypedForm:
    """A linear form, what it is over (A, B or M, the products), and how it is written."""

    kind: str
    form: Form
    pieces: tuple[WrittenTerm, ...]


class EquationReader:
    """Reads the equations of one scheme in order. Every error is reported, and its target is then known without a value."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.reporter = names.reporter

    def read(self, equation: Update) -> None:
        """Read one equation and define its targets."""
        target = equation.targets[0]
        if equation.operator.text != "=" or len(equation.targets) > 1 or target.number is not None or target.sign < 0:
            place = equation.operator.span if equation.operator.text != "=" else equation.targets[-1].span
            hint = "an equation of a scheme reads NAME = sum; updates stand in the stages of a schedule"
            self.reporter.report("E218", "this is not an equation of a scheme", place, "expected NAME =", hint=hint)
            for name in (target.name.text for target in equation.targets):
                if not is_block(name):
                    self.names.values.setdefault(name, None)
        elif is_block(target.name.text):
            self._output(target.name, equation)
        else:
            self._define(target.name, equation)

    def _define(self, name: Word, equation: Update) -> None:
        if not self.names.is_new(name):
            return
        terms = equation.terms
        if len(terms) == 1 and len(terms[0].factors) == 2:
            factors = self._factors(terms[0], self.names.coefficient(terms[0].sign, terms[0].number))
            value = self._add_product(name.text, terms[0], factors, equation.span) if factors is not None else None
            self.names.define(name, value)
            return
        typed = self._sum(equation)
        if typed is None:
            self.names.define(name, None)
            return
        self._note(typed, True, len(self.names.steps[typed.kind]), _sum_span(equation))
        self.names.add_step(typed.kind, name, typed.form)

    def _add_product(self, name: str, term: Term, factors: tuple[TypedForm, TypedForm], span: Span) -> Value:
        value = self.names.add_product(name, factors[0].form, factors[1].form, span)
        for typed, factor in zip(factors, term.factors, strict=True):
            self._note(typed, False, value.index, factor.span, bare=factor.span == factor.terms[-1].name.span)
        return value

    def _note(self, typed: TypedForm, step: bool, row: int, span: Span, *, bare: bool = False) -> None:
        table = TABLES[typed.kind]
        self.names.sums.append(WrittenSum(table, step, row, span, bare))
        self.names.written += [replace(p, table=table, step=step, row=row) for p in typed.pieces]

    def _output(self, name: Word, equation: Update) -> None:
        block = read_block(name, self.names.blocks, self.reporter)
        if block is None:
            return
        if block.space != "C":
            message = f"{name.text} is given, an equation cannot define it"
            self.reporter.report("E213", message, name.span, "a block of an operand", hint="choose a name for the sum, such as S1")
            return
        index = number_of(block, self.names.blocks)
        if index in self.names.outputs:
            self.names.twice(name, self.names.outputs[index][1])
            return
        typed = self._sum(equation)
        if typed is not None and typed.kind != "M":
            message = f"{name.text} must be a sum of products, this is {KINDS[typed.kind]}"
            self.reporter.report("E211", message, _sum_span(equation), "no product in it")
            typed = None
        if typed is not None:
            self._note(typed, False, index, _sum_span(equation))
        self.names.outputs[index] = (typed.form if typed is not None else None, name.span)

    def _sum(self, equation: Update) -> TypedForm | None:
        kind = ""
        terms: list[tuple[int, Coefficient]] = []
        pieces: list[WrittenTerm] = []
        sound = True
        for term in equation.terms:
            typed = self._term(term)
            if typed is None:
                sound = False
                continue
            if kind and typed.kind != kind:
                message = f"{KINDS[kind]} cannot take up {KINDS[typed.kind]}"
                hint = "a sum is over blocks of A, or over blocks of B, or over products"
                self.reporter.report("E211", message, term.span, KINDS[typed.kind], hint=hint)
                return None
            kind = typed.kind
            terms += typed.form
            pieces += typed.pieces
        total = add_up(terms, equation.span, self.reporter) if sound else None
        return TypedForm(kind, total, tuple(pieces)) if total is not None else None

    def _term(self, term: Term) -> TypedForm | None:
        scale = self.names.coefficient(term.sign, term.number)
        if len(term.factors) == 1:
            return self._factor(term.factors[0], scale, term.number)
        factors = self._factors(term, 1)
        if factors is None or scale is None:
            return None
        value = self._add_product("", term, factors, term.span)
        return TypedForm("M", ((value.index, scale),), (WrittenTerm(value.index, scale, term.span, term.span, product=True),))

    def _factors(self, term: Term, scale: Coefficient | None) -> tuple[TypedForm, TypedForm] | None:
        """The two factors of a product, the left one scaled; None if they are not forms over A and B, which is reported (E212)."""
        left, right = self._factor(term.factors[0], scale, term.number), self._factor(term.factors[1], 1, signed=False)
        if left is None or right is None:
            return None
        if (left.kind, right.kind) == ("A", "B"):
            return left, right
        if (left.kind, right.kind) == ("B", "A"):
            self.reporter.report(
                "E212", "a product of B by A", term.span, "wrong order", hint="blocks do not commute: A stands left, B right"
            )
            return None
        wrong = 0 if left.kind != "A" else 1
        message = f"the {('left', 'right')[wrong]} factor must be a form over {'AB'[wrong]}"
        self.reporter.report("E212", message, term.factors[wrong].span, f"this is {KINDS[(left, right)[wrong].kind]}")
        return None

    def _factor(self, factor: TermFactor, scale: Coefficient | None, number: Word | None = None, signed: bool = True) -> TypedForm | None:
        """A factor as a form; None if it has none, which is reported. `number` precedes it; a sign may precede a `signed` one."""
        found: list[tuple[Plain, Value, Coefficient]] = []
        for plain in factor.terms:
            value, coefficient = self.names.look_up(plain), self.names.coefficient(plain.sign, plain.number)
            if value is not None and coefficient is not None and scale is not None:
                found.append((plain, value, coefficient * scale))
        if len(found) < len(factor.terms):
            return None
        kind = found[0][1].kind
        for plain, value, _ in found:
            if value.kind != kind:
                message = f"{KINDS[kind]} cannot take up {KINDS[value.kind]}"
                self.reporter.report("E211", message, plain.span, KINDS[value.kind])
                return None
        total = add_up([(value.index, coefficient) for _, value, coefficient in found], factor.span, self.reporter)
        bare = factor.span == factor.terms[-1].name.span
        pieces = tuple(
            WrittenTerm(value.index, coefficient, _unsigned(plain, number if bare else plain.number), plain.name.span, signed or not bare)
            for plain, value, coefficient in found
        )
        return TypedForm(kind, total, pieces) if total is not None else None


def _sum_span(equation: Update) -> Span:
    return Span(equation.span.source, equation.terms[0].span.start, equation.span.end)


def _unsigned(plain: Plain, number: Word | None) -> Span:
    """A term without its sign, from its coefficient (if any) to its name."""
    name = plain.name.span
    return Span(name.source, number.span.start if number is not None else name.start, name.end)


def read_bases(body: Sequence[Statement], names: Names) -> Bases | None:
    """The changes of basis of a scheme; None if there are none or an error was reported."""
    written = [s for s in body if isinstance(s, BasisStatement)]
    maps = {space: identity(rows * columns) for space, (rows, columns) in names.blocks.items()}
    first: dict[str, BasisStatement] = {}
    for basis in written:
        operand = basis.operand
        if operand.text not in maps:
            names.reporter.report("E228", f"{shown(operand.text)} has no basis", operand.span, "expected A, B or C")
            continue
        if first.setdefault(operand.text, basis) is not basis:
            names.reporter.report("E228", f"a second basis of {operand.text}", operand.span, "given again", hint="put both into one")
            continue
        maps[operand.text] = _BasisReader(operand.text, names).map(basis)
    return Bases(maps["A"], maps["B"], maps["C"]) if written else None


class _BasisReader:
    def __init__(self, space: str, names: Names) -> None:
        self.space, self.names, self.reporter = space, names, names.reporter

    def map(self, basis: BasisStatement) -> LinearMap:
        outputs: dict[int, Form] = {}
        for step in basis.steps:
            target = self.target(step)
            value = self.value(step, target) if target is not None else None
            if target is not None and target in outputs:
                self.reporter.report("E228", f"{step.targets[0].name.text} is changed twice", step.span, "changed again")
            if target is not None and value is not None:
                outputs[target] = value
        size = math.prod(self.names.blocks[self.space])
        return LinearMap(size, tuple(outputs.get(i, ((i, 1),)) for i in range(size)))

    def target(self, step: Update) -> int | None:
        plain = step.targets[0]
        if len(step.targets) > 1 or plain.number is not None or plain.sign < 0:
            hint = "write each target as a step of its own, with coefficients on the right"
            self.reporter.report("E228", "a step of a basis has one block as its target", step.targets[-1].span, "not one block", hint=hint)
            return None
        return self.number(plain.name)

    def number(self, word: Word) -> int | None:
        if word.text[0] != self.space or not word.text[1:]:
            message = f"{shown(word.text)} is not a block of {self.space}"
            self.reporter.report("E228", message, word.span, f"expected a block of {self.space}")
            return None
        block = read_block(word, self.names.blocks, self.reporter)
        return number_of(block, self.names.blocks) if block is not None else None

    def value(self, step: Update, target: int) -> Form | None:
        sign = -1 if step.operator.text == "-=" else 1
        found: list[tuple[int, Coefficient]] = [] if step.operator.text == "=" else [(target, 1)]
        sound = True
        for term in step.terms:
            if len(term.factors) > 1:
                self.reporter.report("E228", "a product in a change of basis", term.span, "a product", hint="bases are changed by sums")
                return None
            scale = self.names.coefficient(term.sign * sign, term.number)
            for plain in term.factors[0].terms:
                number, coefficient = self.number(plain.name), self.names.coefficient(plain.sign, plain.number)
                if number is None or coefficient is None or scale is None:
                    sound = False
                else:
                    found.append((number, coefficient * scale))
        return add_up(found, step.span, self.reporter) if sound else None


MOST_COUNTED = 100_000  # The most characters of a part of a row whose surplus coefficients are counted.
_SHORT = re.compile(r"[+-]?[0-9]{1,9}(?:/[1-9][0-9]{0,8})?")

Cells = list[Form]  # The three parts of a row as sparse forms, over the blocks of A, of B and of C.


def read_row(row: TableRow, header: FormatAndRing, reporter: Reporter) -> Cells | None:
    """The coefficients of a row; None if their number or one of them is wrong, which is reported (E206, E205)."""
    count = row.cells.text.count("|") + 1 if row.cells is not None else 0
    if count != 3:
        hint = "a row reads: M1: coefficients of A | of B | of C"
        parts_found = f"{count} part" + ("" if count == 1 else "s")
        place = row.cells.span if row.cells is not None else row.name.span
        message = f"row {row.name.text[:40]} has {parts_found}, a table has 3"
        reporter.report("E206", message, place, "expected 3 parts divided by |", hint=hint)
        return None
    parts = _parts(row.cells)
    shapes = (("A", header.m, header.k), ("B", header.k, header.n), ("C", header.m, header.n))
    forms = [_read_part(row, part, *shape, header.ring, reporter) for part, shape in zip(parts, shapes, strict=True)]
    read = [f for f in forms if f is not None]
    return read if len(read) == 3 else None


def _parts(cells: Word | None) -> list[Word]:
    if cells is None:
        return []
    source, place = cells.span.source, cells.span.start
    parts = []
    for text in cells.text.split("|"):
        parts.append(Word(text, Span(source, place, place + len(text))))
        place += len(text) + 1
    return parts


def _read_part(row: TableRow, part: Word, matrix: str, rows: int, columns: int, ring: Ring, reporter: Reporter) -> Form | None:
    wanted = rows * columns
    entries = part.text.split(None, wanted)
    if len(entries) != wanted:
        found = len(part.text.split()) if len(part.text) < MOST_COUNTED else f"more than {wanted}"
        reporter.report(
            "E206",
            f"row {row.name.text[:40]} has {found} of {wanted} coefficients of {matrix}",
            _trimmed(part),
            f"expected {wanted}",
            note=f"the columns are {_columns(matrix, rows, columns)}",
        )
        return None
    if set(entries) <= {"0", "1", "-1"}:
        return tuple((i, 1 if entry == "1" else -1) for i, entry in enumerate(entries) if entry != "0")
    terms: list[tuple[int, Coefficient]] = []
    sound = True
    for index, match in enumerate(re.finditer(r"\S+", part.text)):
        value = _simple(match[0]) if not ring.modulus and ring != INTEGERS else None
        if value is None:
            start = part.span.start + match.start()
            value = read_number(match[0], Span(part.span.source, start, start + len(match[0])), reporter, ring)
        sound = sound and value is not None
        if value:
            terms.append((index, value))
    return tuple(terms) if sound else None


@lru_cache(maxsize=1024)
def _simple(text: str) -> Coefficient | None:
    """A short coefficient, cached because it recurs; None if it is long or needs a diagnostic."""
    match = _SHORT.fullmatch(text)
    return exact(Fraction(text)) if match is not None else None


def _trimmed(part: Word) -> Span:
    text = part.text.strip()
    if not text:
        return part.span
    start = part.span.start + part.text.index(text[0])
    return Span(part.span.source, start, start + len(text))


def _columns(matrix: str, rows: int, columns: int) -> str:
    if rows * columns <= 9:
        return " ".join(block_name(matrix, i, j) for i in range(rows) for j in range(columns))
    return f"{block_name(matrix, 0, 0)} to {block_name(matrix, rows - 1, columns - 1)}, row by row"


Needed = Callable[[Sequence[int], int], Iterable[int]]
"""From the blocks of C that are defined, and the number of all, to those that have to be."""


def read_scheme(header: SchemeHeader, body: Sequence[Statement], reporter: Reporter, digits: Iterable[str] = ()) -> Scheme | None:
    """The scheme of a header and its statements; None if an error was reported. `digits` are the names of the file's representations."""
    format_ = read_format(header, reporter, digits)
    return read_scheme_of(format_, header, body, reporter) if format_ is not None else None


def read_scheme_of(
    format_: FormatAndRing, header: SchemeHeader, body: Sequence[Statement], reporter: Reporter, needed: Needed = lambda given, n: range(n)
) -> Scheme | None:
    """The scheme of a format, of whose n blocks of C those `needed` are defined; None if an error was reported."""
    before = reporter.count
    definitions = (s.targets[0].name for s in reversed(body) if isinstance(s, Update))  # the first of a name counts
    names = Names(format_, reporter, later={word.text: word.span for word in definitions})
    citation = read_citation(body, reporter)
    bases = read_bases(body, names)
    _read_body(names, body)
    if reporter.count > before or any(isinstance(s, Broken) for s in body):
        return None
    if any(isinstance(s, TableRow) for s in body):
        blocks = range(format_.m * format_.n)
        names.outputs = {i: (tuple(names.columns.get(i, ())), header.format.span) for i in blocks}
    given = [i for i, (form, _) in names.outputs.items() if form]
    if not _is_complete(header, names, reporter, needed(given, format_.m * format_.n)):
        return None
    return _scheme(header, names, citation, bases)


def read_citation(body: Sequence[Statement], reporter: Reporter) -> str:
    """The text of the `source` line; a second one is reported (E219)."""
    citations = [s for s in body if isinstance(s, Citation)]
    for second in citations[1:]:
        note = f"the first is at {citations[0].span}"
        reporter.report("E219", "a second citation", second.span, "given again", note=note, hint="put both into one text")
    return citations[0].text if citations else ""


def _read_body(names: Names, body: Sequence[Statement]) -> None:
    equations = EquationReader(names)
    kinds = [type(s) for s in body if isinstance(s, TableRow | Update)]
    for statement in body:
        if names.reporter.full:
            return
        if isinstance(statement, Broken):
            names.values.setdefault(statement.name, None)
        elif isinstance(statement, StageStatement):
            hint = "begin a schedule with: schedule NAME of SCHEME"
            names.reporter.report("E218", "a stage in a scheme", statement.span, "stages belong to schedules", hint=hint)
        elif isinstance(statement, TableRow | Update) and type(statement) is not kinds[0]:
            hint = "write the scheme as a table or as equations"
            names.reporter.report("E216", "rows of a table and equations in one scheme", statement.span, "of the other kind", hint=hint)
            return
        elif isinstance(statement, TableRow):
            _add_row(names, statement)
        elif isinstance(statement, Update):
            equations.read(statement)


def _add_row(names: Names, row: TableRow) -> None:
    if is_block(row.name.text):
        hint = "name the products M1, M2, ..."
        names.reporter.report("E213", f"a row names a product, {row.name.text} is a block", row.name.span, "a block", hint=hint)
        return
    if not names.is_new(row.name):
        return
    cells = read_row(row, names.header, names.reporter)
    names.define(row.name, None)
    if cells is None:
        return
    product = len(names.products)
    names.add_product(row.name.text, cells[0], cells[1], row.name.span)
    names.rows.append(row.cells.span if row.cells is not None else row.span)
    for index, coefficient in cells[2]:
        names.columns.setdefault(index, []).append((product, coefficient))


def _is_complete(header: SchemeHeader, names: Names, reporter: Reporter, needed: Iterable[int]) -> bool:
    """True if the number of products equals the rank (else E207) and every block of C that is needed is defined (else E215)."""
    h, found = names.header, len(names.products)
    if found != h.rank:
        message = f"{shown(header.name.text)} has {found} product{'' if found == 1 else 's'}, its format says {h.rank}"
        remedy = "add what is missing" if found < h.rank else "take out what is too much"
        hint = f"{remedy}, or write {re.sub(r';.*', f';{found}>', header.format.text)}"
        reporter.report("E207", message, header.format.span, f"rank {h.rank}", hint=hint if found else "write its table or its equations")
        return False
    missing = [block_name("C", *divmod(i, h.n)) for i in needed if i not in names.outputs]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        hint = f"add an equation: {missing[0]} = ..."
        reporter.report("E215", f"{listed(missing)} {verb} never defined", header.name.span, "an incomplete scheme", hint=hint)
    return not missing


def _scheme(header: SchemeHeader, names: Names, citation: str, bases: Bases | None) -> Scheme:
    h = names.header
    outputs = [names.outputs.get(i, ((), header.span)) for i in range(h.m * h.n)]
    return Scheme(
        header.name.text,
        h.m,
        h.k,
        h.n,
        _map(names, "A", tuple(p.left for p in names.products)),
        _map(names, "B", tuple(p.right for p in names.products)),
        _map(names, "M", tuple(f for f, _ in outputs if f is not None)),
        _product_names(names),
        h.ring,
        citation,
        Places(
            header.span,
            tuple(p.span for p in names.products),
            tuple(span for _, span in outputs),
            tuple(names.written),
            tuple(names.sums),
            tuple(names.rows),
        ),
        bases,
    )


def _map(names: Names, kind: str, outputs: tuple[Form, ...]) -> LinearMap:
    return LinearMap(names.inputs[kind], outputs, tuple(names.steps[kind]), tuple(names.step_names[kind]))


def _product_names(names: Names) -> tuple[str, ...]:
    """The names of the products; a product written inside a sum is named by its number if that name is free."""
    taken = set(names.values)
    chosen = []
    for number, product in enumerate(names.products, 1):
        free = (name for i in count() if (name := f"M{number}" + "_" * i) not in taken)
        name = product.name or next(free)
        taken.add(name)
        chosen.append(name)
    return tuple(chosen)
