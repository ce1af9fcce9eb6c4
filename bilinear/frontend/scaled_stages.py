"""The stages of a schedule with explicit scaling: a step names every factor, and may write any block."""

from __future__ import annotations

from collections.abc import Mapping

from bilinear.frontend.atoms import Grid, add_up, is_block, read_block
from bilinear.frontend.numbers import NumberError, parse_number
from bilinear.frontend.reporter import Reporter, did_you_mean, shown
from bilinear.frontend.stages import StageReader
from bilinear.frontend.syntax import Plain, StageStatement, Term, TermFactor, Update, Word
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.ring import Ring
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ScaledTarget, Space, Target

SCALES = frozenset({"alpha", "beta"})


class ScaledStageReader(StageReader):
    """Reads stages in which `=` overwrites, `+=` adds, and scalings are explicit, as [alpha] and [beta]."""

    def __init__(self, blocks: Grid, reporter: Reporter, ring: Ring, temporaries: Mapping[str, Space]) -> None:
        super().__init__(blocks, reporter, ring)
        self.temporaries = temporaries

    def _linear(self, stage: StageStatement) -> LinearStage | None:
        read = [self._row(step) for step in stage.steps]
        steps = [step for step in read if step is not None]
        if len(steps) < len(read):
            return None
        sources = tuple(sorted({block for _, row in steps for block, _ in row}))
        number = {block: i for i, block in enumerate(sources)}
        outputs = []
        for (_, row), step in zip(steps, stage.steps, strict=True):
            output = add_up(((number[block], coefficient) for block, coefficient in row), step.span, self.reporter)
            if output is None:
                return None
            outputs.append(output)
        spans = tuple(step.span for step in stage.steps)
        block_map = BlockMap(sources, tuple(target for target, _ in steps), LinearMap(len(sources), tuple(outputs)), spans=spans)
        return LinearStage((block_map,), stage.restores)

    def _row(self, step: Update) -> tuple[Block, list[tuple[Block, Coefficient]]] | None:
        """The target of a linear step, and the sum that it becomes."""
        if len(step.targets) > 1 or step.targets[0].number is not None or step.targets[0].sign < 0:
            hint = "write each target as a step of its own, with coefficients on the right"
            self._unsupported("a linear step has one block as its target", step.targets[-1].span, hint)
            return None
        target, terms = self._block(step.targets[0].name), self._sum(step, step.terms)
        return (target, self._with_old(step, target, terms)) if target is not None and terms is not None else None

    def _with_old(self, step: Update, target: Block, terms: list[tuple[Block, Coefficient]]) -> list[tuple[Block, Coefficient]]:
        return terms if step.operator.text == "=" else [(target, 1), *terms]

    def _sum(self, step: Update, terms: tuple[Term, ...]) -> list[tuple[Block, Coefficient]] | None:
        """The terms that are not products, signed by the operator; None if an error was reported."""
        sign = -1 if step.operator.text == "-=" else 1
        found: list[tuple[Block, Coefficient]] = []
        sound = True
        for term in terms:
            scale = self._coefficient(term.sign * sign, term.number)
            for plain in term.factors[0].terms:
                block, coefficient = self._block(plain.name), self._coefficient(plain.sign, plain.number)
                if block is None or coefficient is None or scale is None:
                    sound = False
                    continue
                found.append((block, coefficient * scale))
        return found if sound else None

    def _product(self, step: Update) -> Product | None:
        products = [term for term in step.terms if len(term.factors) == 2]
        if len(products) > 1:
            self._unsupported("a sum of products in one step", products[1].span, "write each product as a step of its own")
            return None
        (term,) = products
        sign = -term.sign if step.operator.text == "-=" else term.sign
        scale = self._coefficient(sign, term.number)
        plus = self._sum(step, tuple(t for t in step.terms if t is not term))
        left, right = self._operand(term.factors[0], "A"), self._operand(term.factors[1], "B")
        if left is None or right is None or plus is None or scale is None:
            return None
        targets = [self._scaled_target(step, plain, scale, plus) for plain in step.targets]
        kept = tuple(t for t in targets if t is not None)
        return Product(left, right, kept, step.span) if len(kept) == len(targets) else None

    def _scaled_target(self, step: Update, plain: Plain, scale: Coefficient, plus: list[tuple[Block, Coefficient]]) -> Target | None:
        block, coefficient = self._block(plain.name), self._coefficient(plain.sign, plain.number)
        if block is None or coefficient is None:
            return None
        if plus and coefficient != 1:
            self._unsupported("a target with a coefficient and a sum", plain.span, "write the coefficients on the right")
            return None
        terms = self._with_old(step, block, plus)
        blocks = sorted({block for block, _ in terms})
        form = add_up(((blocks.index(block), c) for block, c in terms), step.span, self.reporter)
        return ScaledTarget.of(block, coefficient * scale, tuple((blocks[i], c) for i, c in form)) if form is not None else None

    def _operand(self, factor: TermFactor, space: str) -> Block | None:
        plain = factor.terms[0]
        if len(factor.terms) > 1 or plain.number is not None or plain.sign < 0:
            return super()._operand(factor, space)
        return self._block(plain.name)

    def _block(self, word: Word) -> Block | None:
        if is_block(word.text):
            return read_block(word, self.blocks, self.reporter)
        if word.text in self.temporaries:
            return self.temporaries[word.text].blocks[0]
        hint = did_you_mean(word.text, self.temporaries) or f"name it in the header: temporaries {word.text[:40]}"
        self.reporter.report("E225", f"{shown(word.text)} is neither a block nor a temporary", word.span, "not known", hint=hint)
        return None

    def _coefficient(self, sign: int, number: Word | None) -> Coefficient | None:
        value = self._scale(number.text) if number is not None else None
        if value is None:
            return super()._coefficient(sign, number)
        assert number is not None
        if any(name in SCALES and exponent < 0 for monomial, _ in value.terms for name, exponent in monomial):
            self.reporter.report("E205", "alpha and beta may be zero, nothing can be divided by them", number.span, "a division")
            return None
        return value * sign

    def _scale(self, text: str) -> Symbolic | None:
        """A coefficient that contains alpha or beta; the scheme's ring reads any other."""
        try:
            value = parse_number(text)
        except NumberError:
            return None
        if isinstance(value, Symbolic) and SCALES & value.generators and value.generators <= SCALES | {self.ring.generator}:
            return value
        return None
