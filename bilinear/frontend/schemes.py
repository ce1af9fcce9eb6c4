"""Turn the statements of a scheme into the IR."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from bilinear.frontend.atoms import is_block
from bilinear.frontend.bases import read_bases
from bilinear.frontend.equations import EquationReader
from bilinear.frontend.headers import Format, read_format
from bilinear.frontend.names import Names
from bilinear.frontend.reporter import Reporter, listed, shown
from bilinear.frontend.syntax import Broken, Citation, Row, SchemeHeader, Stage, Statement, Update
from bilinear.frontend.tables import read_row
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.scheme import Bases, Places, Scheme, block_name
from bilinear.source import Span

Needed = Callable[[Sequence[int], int], Iterable[int]]
"""From the blocks of C that are defined, and the number of all, to those that have to be."""


def read_scheme(header: SchemeHeader, body: Sequence[Statement], reporter: Reporter, digits: Iterable[str] = ()) -> Scheme | None:
    """The scheme of a header and its statements; None if an error was reported. `digits` are the names of the file's representations."""
    format_ = read_format(header, reporter, digits)
    return read_scheme_of(format_, header, body, reporter) if format_ is not None else None


def read_scheme_of(
    format_: Format, header: SchemeHeader, body: Sequence[Statement], reporter: Reporter, needed: Needed = lambda given, n: range(n)
) -> Scheme | None:
    """The scheme of a format, whose header may read otherwise; None if an error was reported.

    `needed` says which of n blocks of C have to be defined, by those that are given; the others are empty.
    """
    before = len(reporter.found) + reporter.unreported
    names = Names(format_, reporter, later=_definitions(body))
    citation = read_citation(body, reporter)
    bases = read_bases(body, names)
    _read_body(names, body)
    if len(reporter.found) + reporter.unreported > before or any(isinstance(s, Broken) for s in body):
        return None
    if any(isinstance(s, Row) for s in body):
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


def _definitions(body: Sequence[Statement]) -> dict[str, Span]:
    """Where each name is first defined."""
    places: dict[str, Span] = {}
    for statement in body:
        if isinstance(statement, Update):
            word = statement.targets[0].name
            places.setdefault(word.text, word.span)
    return places


def _read_body(names: Names, body: Sequence[Statement]) -> None:
    """Read the rows or the equations, whichever come first."""
    equations = EquationReader(names)
    kinds = [type(s) for s in body if isinstance(s, Row | Update)]
    for statement in body:
        if names.reporter.full:
            return
        if isinstance(statement, Broken):
            names.values.setdefault(statement.name, None)
        elif isinstance(statement, Stage):
            hint = "begin a schedule with: schedule NAME of SCHEME"
            names.reporter.report("E218", "a stage in a scheme", statement.span, "stages belong to schedules", hint=hint)
        elif isinstance(statement, Row | Update) and type(statement) is not kinds[0]:
            hint = "write the scheme as a table or as equations"
            names.reporter.report("E216", "rows of a table and equations in one scheme", statement.span, "of the other kind", hint=hint)
            return
        elif isinstance(statement, Row):
            _add_row(names, statement)
        elif isinstance(statement, Update):
            equations.read(statement)


def _add_row(names: Names, row: Row) -> None:
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
