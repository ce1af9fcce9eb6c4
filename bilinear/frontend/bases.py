"""Read changes of basis: `basis A { A12 -= A22 ; ... }`. The steps are simultaneous; blocks not mentioned stay unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from bilinear.frontend.atoms import add_up, number_of, read_block, read_number
from bilinear.frontend.headers import Format
from bilinear.frontend.names import Names
from bilinear.frontend.reporter import Reporter, shown
from bilinear.frontend.syntax import Basis, Plain, Statement, Update, Word
from bilinear.ir.linear import Form, LinearMap, identity
from bilinear.ir.number import Coefficient
from bilinear.ir.scheme import Bases


def read_bases(body: Sequence[Statement], names: Names) -> Bases | None:
    """The changes of basis of a scheme; None if there are none or an error was reported."""
    written = [s for s in body if isinstance(s, Basis)]
    maps = {space: identity(rows * columns) for space, (rows, columns) in names.blocks.items()}
    first: dict[str, Basis] = {}
    for basis in written:
        operand = basis.operand
        if operand.text not in maps:
            names.reporter.report("E228", f"{shown(operand.text)} has no basis", operand.span, "expected A, B or C")
            continue
        if first.setdefault(operand.text, basis) is not basis:
            names.reporter.report("E228", f"a second basis of {operand.text}", operand.span, "given again", hint="put both into one")
            continue
        maps[operand.text] = _Reader(operand.text, names).map(basis)
    return Bases(maps["A"], maps["B"], maps["C"]) if written else None


class _Reader:
    """Reads the steps of one basis; every fault is reported."""

    def __init__(self, space: str, names: Names) -> None:
        self.space = space
        self.blocks = names.blocks
        self.header: Format = names.header
        self.reporter: Reporter = names.reporter

    def map(self, basis: Basis) -> LinearMap:
        rows, columns = self.blocks[self.space]
        outputs: dict[int, Form] = {}
        for step in basis.steps:
            target = self.target(step)
            value = self.value(step, target) if target is not None else None
            if target is not None and target in outputs:
                self.reporter.report("E228", f"{step.targets[0].name.text} is changed twice", step.span, "changed again")
            if target is not None and value is not None:
                outputs[target] = value
        return LinearMap(rows * columns, tuple(outputs.get(i, ((i, 1),)) for i in range(rows * columns)))

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
        block = read_block(word, self.blocks, self.reporter)
        return number_of(block, self.blocks) if block is not None else None

    def value(self, step: Update, target: int) -> Form | None:
        sign = -1 if step.operator.text == "-=" else 1
        found: list[tuple[int, Coefficient]] = [] if step.operator.text == "=" else [(target, 1)]
        sound = True
        for term in step.terms:
            if len(term.factors) > 1:
                self.reporter.report("E228", "a product in a change of basis", term.span, "a product", hint="bases are changed by sums")
                return None
            scale = self.coefficient(term.sign * sign, term.number)
            for plain in term.factors[0].terms:
                read = self.term(plain, scale)
                sound = sound and read is not None
                found += [read] if read is not None else []
        return add_up(found, step.span, self.reporter) if sound else None

    def term(self, plain: Plain, scale: Coefficient | None) -> tuple[int, Coefficient] | None:
        number, coefficient = self.number(plain.name), self.coefficient(plain.sign, plain.number)
        if number is None or coefficient is None or scale is None:
            return None
        return number, coefficient * scale

    def coefficient(self, sign: int, number: Word | None) -> Coefficient | None:
        value = 1 if number is None else read_number(number.text, number.span, self.reporter, self.header.ring)
        return value * sign if value is not None else None
