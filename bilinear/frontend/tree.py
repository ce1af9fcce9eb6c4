"""Convert lark's tree to the syntax dataclasses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from bilinear.frontend.syntax import (
    BasisStatement,
    Citation,
    CompositionStatement,
    DigitsHeader,
    Expression,
    OperatorChain,
    Plain,
    ScheduleHeader,
    SchemeHeader,
    StageStatement,
    Statement,
    SymmetryCall,
    TableRow,
    Term,
    TermFactor,
    Update,
    Word,
)
from bilinear.source import Source, Span

if TYPE_CHECKING:
    from lark import Token, Tree

    Child = Tree[Token] | Token | None

MOST_NESTED = 50
"""The deepest nesting of parentheses in an expression."""
NESTED = "("
"""The text of the word that replaces deeper nesting."""


class TreeReader:
    """Reads the tree of one source; children are in the order of the grammar's rule."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def statements(self, tree: Tree[Token]) -> list[Statement]:
        """The statements of a whole text, in order."""
        return [self._statement(cast("Tree[Token]", child)) for child in tree.children]

    def _statement(self, tree: Tree[Token]) -> Statement:
        children = cast("list[Child]", tree.children)
        if tree.data == "update":
            return self._update(children)
        if tree.data == "row":
            return self._row(children)
        if tree.data == "stage":
            return self._stage(children)
        if tree.data == "basis":
            return self._basis(children)
        if tree.data == "citation":
            return self._citation(children)
        if tree.data == "composition":
            return self._composition(children)
        words = [self._word(child) if child is not None else None for child in children]
        span = self._span(words[0], next(word for word in reversed(words) if word is not None))
        if tree.data == "scheme":
            return SchemeHeader(_sure(words[1]), _sure(words[2]), words[3], span, words[4])
        header = DigitsHeader if tree.data == "digits" else ScheduleHeader
        return header(_sure(words[1]), _sure(words[3]), words[4], span)

    def _composition(self, children: Sequence[Child]) -> CompositionStatement:
        word, name, format_, ring = (self._word(child) if child is not None else None for child in children[:4])
        value = self._expression(children[5], MOST_NESTED)
        return CompositionStatement(_sure(name), format_, ring, value, Span(self.source, _sure(word).span.start, value.span.end))

    def _expression(self, child: Child, depth: int) -> Expression:
        """An expression; text nested deeper than `depth` becomes one word, which names nothing."""
        tree = cast("Tree[Token]", child)
        kind = getattr(tree, "data", None)
        if kind is None:
            return self._word(child)
        children = cast("list[Child]", tree.children)
        if kind in ("call", "enclosed"):
            function = self._word(children[0])
            span = Span(self.source, function.span.start, self._word(children[-1]).span.end)
            if depth == 0:
                return Word(NESTED, span)
            value = self._expression(children[-2], depth - 1)
            return SymmetryCall(function, value, span) if kind == "call" else value
        if len(children) == 1:
            return self._expression(children[0], depth)
        parts = [self._expression(part, depth) for part in children[::2]]
        rest = tuple(zip(map(self._word, children[1::2]), parts[1:], strict=True))
        return OperatorChain(parts[0], rest, Span(self.source, parts[0].span.start, parts[-1].span.end))

    def _word(self, child: Child) -> Word:
        token = cast("Token", child)
        text = token.value.rstrip()
        start = cast(int, token.start_pos)
        return Word(text, Span(self.source, start, start + len(text)))

    def _span(self, first: Word | None, last: Word | None) -> Span:
        return Span(self.source, _sure(first).span.start, _sure(last).span.end)

    def _citation(self, children: Sequence[Child]) -> Citation:
        word, string = self._word(children[0]), self._word(children[1])
        return Citation(_unescaped(string.text[1:-1]), self._span(word, string))

    def _row(self, children: Sequence[Child]) -> TableRow:
        label = self._word(children[0])
        name = label.text[:-1].rstrip()
        place = Word(name, Span(self.source, label.span.start, label.span.start + len(name)))
        cells = self._word(children[1]) if children[1] is not None else None
        return TableRow(place, cells, self._span(label, cells or label))

    def _stage(self, children: Sequence[Child]) -> StageStatement:
        restore = self._word(children[0]) if children[0] is not None else None
        word = self._word(children[1])
        steps = tuple(self._update(cast("Tree[Token]", child).children) for child in children[3:-1])
        return StageStatement(restore is not None, steps, self._span(restore or word, word))

    def _basis(self, children: Sequence[Child]) -> BasisStatement:
        word, operand = self._word(children[0]), self._word(children[1])
        steps = tuple(self._update(cast("Tree[Token]", child).children) for child in children[3:-1])
        return BasisStatement(operand, steps, self._span(word, operand))

    def _update(self, children: Sequence[Child]) -> Update:
        targets = tuple(self._plain(cast("Tree[Token]", child).children) for child in cast("Tree[Token]", children[0]).children)
        terms = self._sum(cast("Tree[Token]", children[2]).children)
        span = Span(self.source, targets[0].span.start, terms[-1].span.end)
        return Update(targets, self._word(children[1]), terms, span)

    def _sum(self, children: Sequence[Child]) -> tuple[Term, ...]:
        return tuple(self._term(sign, cast("Tree[Token]", tree).children) for sign, tree in zip(children[::2], children[1::2], strict=True))

    def _term(self, sign: Child, children: Sequence[Child]) -> Term:
        number = self._word(children[0]) if children[0] is not None else None
        factors = tuple(self._factor(child) for child in children[1:] if child is not None)
        start = number.span.start if number is not None else factors[0].span.start
        return Term(_sign(sign), number, factors, Span(self.source, start, factors[-1].span.end))

    def _factor(self, child: Child) -> TermFactor:
        group = cast("Tree[Token]", child)
        if getattr(group, "data", None) != "group":
            plain = self._plain((None, None, child))
            return TermFactor((plain,), plain.span)
        children = cast("list[Child]", group.children)
        pairs = zip(children[1:-1:2], children[2:-1:2], strict=True)
        terms = tuple(self._plain((sign, *cast("Tree[Token]", tree).children)) for sign, tree in pairs)
        return TermFactor(terms, self._span(self._word(children[0]), self._word(children[-1])))

    def _plain(self, children: Sequence[Child]) -> Plain:
        sign, number, name = children
        first = next(child for child in children if child is not None)
        coefficient = self._word(number) if number is not None else None
        word = self._word(name)
        return Plain(_sign(sign), coefficient, word, self._span(self._word(first), word))


_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)")
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}


def _sign(child: Child) -> int:
    return -1 if child is not None and cast("Token", child).value == "-" else 1


def _sure(word: Word | None) -> Word:
    assert word is not None, "the grammar requires this word"
    return word


def _unescaped(text: str) -> str:
    """The text between quotes with its escapes replaced."""
    return _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if m[1][1:] else _NAMED.get(m[1], m[1]), text)
