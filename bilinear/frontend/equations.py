"""Turn equations into the forms of a scheme, typed by their right-hand sides."""

from __future__ import annotations

from dataclasses import dataclass

from bilinear.frontend.atoms import add_up, is_block, number_of, read_block, read_number
from bilinear.frontend.names import KINDS, Names, Value
from bilinear.frontend.syntax import Plain, Term, TermFactor, Update, Word
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient
from bilinear.ir.scheme import WrittenSum, WrittenTerm
from bilinear.source import Span

TABLES = {"A": "u", "B": "v", "M": "w"}
"""The map of a scheme that contains the forms of each kind."""


@dataclass(frozen=True)
class TermPiece:
    """A term as written: what it adds to its form, its place without the sign, and the place of its name."""

    index: int
    coefficient: Coefficient
    span: Span
    name: Span
    signed: bool = True
    product: bool = False


@dataclass(frozen=True)
class TypedForm:
    """A linear form, what it is over (A, B or M, the products), and how it is written."""

    kind: str
    form: Form
    pieces: tuple[TermPiece, ...]


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
            self._give_up(equation)
        elif is_block(target.name.text):
            self._output(target.name, equation)
        else:
            self._define(target.name, equation)

    def _give_up(self, equation: Update) -> None:
        for target in equation.targets:
            if not is_block(target.name.text):
                self.names.values.setdefault(target.name.text, None)

    def _define(self, name: Word, equation: Update) -> None:
        if not self.names.is_new(name):
            return
        terms = equation.terms
        if len(terms) == 1 and len(terms[0].factors) == 2:
            factors = self._factors(terms[0], self._coefficient(terms[0].sign, terms[0].number))
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
        """Record where a form and its terms are written."""
        table = TABLES[typed.kind]
        self.names.sums.append(WrittenSum(table, step, row, span, bare))
        self.names.written += [
            WrittenTerm(table, step, row, p.index, p.coefficient, p.span, p.name, p.signed, p.product) for p in typed.pieces
        ]

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
        """The right-hand side as one form; None if it has none, which is reported."""
        kind = ""
        terms: list[tuple[int, Coefficient]] = []
        pieces: list[TermPiece] = []
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
        scale = self._coefficient(term.sign, term.number)
        if len(term.factors) == 1:
            return self._factor(term.factors[0], scale, term.number)
        factors = self._factors(term, 1)
        if factors is None or scale is None:
            return None
        value = self._add_product("", term, factors, term.span)
        return TypedForm("M", ((value.index, scale),), (TermPiece(value.index, scale, term.span, term.span, product=True),))

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
            value, coefficient = self.names.look_up(plain), self._coefficient(plain.sign, plain.number)
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
            TermPiece(value.index, coefficient, _unsigned(plain, number if bare else plain.number), plain.name.span, signed or not bare)
            for plain, value, coefficient in found
        )
        return TypedForm(kind, total, pieces) if total is not None else None

    def _coefficient(self, sign: int, number: Word | None) -> Coefficient | None:
        if number is None:
            return sign
        value = read_number(number.text, number.span, self.reporter, self.names.header.ring)
        return value * sign if value is not None else None


def _sum_span(equation: Update) -> Span:
    return Span(equation.span.source, equation.terms[0].span.start, equation.span.end)


def _unsigned(plain: Plain, number: Word | None) -> Span:
    """A term without its sign, from its coefficient (if any) to its name."""
    name = plain.name.span
    return Span(name.source, number.span.start if number is not None else name.start, name.end)
