"""Turn the stages of a schedule into the IR."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.frontend.atoms import Grid, add_up, is_block, read_block, read_number
from bilinear.frontend.reporter import Reporter, shown
from bilinear.frontend.syntax import Plain, StageStatement, TermFactor, Update, Word
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Target
from bilinear.ir.schedule import Stage as StageIR
from bilinear.source import Span


@dataclass
class _Updates:
    """The linear steps of a stage on the blocks of one operand."""

    targets: list[Block] = field(default_factory=list)
    terms: list[list[tuple[Block, Coefficient]]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


class StageReader:
    """Reads the stages of one schedule and reports every error."""

    def __init__(self, blocks: Grid, reporter: Reporter, ring: Ring = RATIONALS) -> None:
        self.blocks = blocks
        self.reporter = reporter
        self.ring = ring

    def read(self, stage: StageStatement) -> StageIR | None:
        """The stage; None if an error was reported."""
        if not stage.steps:
            self.reporter.report(
                "E220", "a stage without steps", stage.span, "empty", hint="write a step, such as A21 += A22, or leave it out"
            )
            return None
        multiplies = [_multiplies(step) for step in stage.steps]
        if len(set(multiplies)) > 1:
            other = stage.steps[multiplies.index(not multiplies[0])]
            kind = "a linear step" if multiplies[0] else "a product"
            hint = "put products and linear steps into stages of their own"
            self.reporter.report(
                "E224", f"a stage of {'products' if multiplies[0] else 'linear steps'} holds {kind}", other.span, kind, hint=hint
            )
            return None
        if not multiplies[0]:
            return self._linear(stage)
        if stage.restores:
            hint = "write stage instead of restore stage, or restore with linear steps only"
            self.reporter.report("E226", "a restore stage holds products", stage.steps[0].span, "a product", hint=hint)
            return None
        products = [self._product(step) for step in stage.steps]
        kept = tuple(p for p in products if p is not None)
        return ProductStage(kept) if len(kept) == len(products) else None

    def _linear(self, stage: StageStatement) -> LinearStage | None:
        updates: dict[str, _Updates] = {}
        sound = [self._step(step, updates) for step in stage.steps]
        if not all(sound):
            return None
        maps = [self._block_map(u) for u in updates.values()]
        kept = tuple(m for m in maps if m is not None)
        return LinearStage(kept, stage.restores) if len(kept) == len(maps) else None

    def _step(self, step: Update, updates: dict[str, _Updates]) -> bool:
        """Add a linear step to the updates of its operand; False if an error was reported."""
        plain = step.targets[0]
        if len(step.targets) > 1 or plain.number is not None or plain.sign < 0:
            hint = "write each target as a step of its own, with coefficients on the right"
            self._unsupported("a linear step has one block as its target", step.targets[-1].span, hint)
            return False
        target = self._block(plain.name)
        if target is None:
            return False
        if target.space == "C":
            self._unsupported("a linear step into C", plain.span, "only products are added to blocks of C: C11 += A11 * B11")
            return False
        terms = self._terms(step, target)
        if terms is None:
            return False
        found = updates.setdefault(target.space, _Updates())
        found.targets.append(target)
        found.terms.append(terms)
        found.spans.append(step.span)
        return True

    def _terms(self, step: Update, target: Block) -> list[tuple[Block, Coefficient]] | None:
        sign = -1 if step.operator.text == "-=" else 1
        terms: list[tuple[Block, Coefficient]] = [] if step.operator.text == "=" else [(target, 1)]
        sound = True
        for term in step.terms:
            scale = self._coefficient(term.sign * sign, term.number)
            for plain in term.factors[0].terms:
                block, coefficient = self._block(plain.name), self._coefficient(plain.sign, plain.number)
                if block is not None and block.space != target.space:
                    message = f"{target} cannot take up {block}"
                    hint = f"blocks of {target.space} are updated by sums of blocks of {target.space}"
                    self.reporter.report("E211", message, plain.span, f"a block of {block.space}", hint=hint)
                    block = None
                if block is None or coefficient is None or scale is None:
                    sound = False
                    continue
                terms.append((block, coefficient * scale))
        return terms if sound else None

    def _block_map(self, updates: _Updates) -> BlockMap | None:
        sources = tuple(sorted({block for terms in updates.terms for block, _ in terms}))
        number = {block: i for i, block in enumerate(sources)}
        outputs = []
        for terms, span in zip(updates.terms, updates.spans, strict=True):
            output = add_up(((number[block], coefficient) for block, coefficient in terms), span, self.reporter)
            if output is None:
                return None
            outputs.append(output)
        return BlockMap(sources, tuple(updates.targets), LinearMap(len(sources), tuple(outputs)), spans=tuple(updates.spans))

    def _product(self, step: Update) -> Product | None:
        if step.operator.text == "=":
            hint = "write += or -=; the first product into a block of C carries beta"
            self._unsupported("a product that overwrites", step.operator.span, hint)
            return None
        if len(step.terms) > 1 or len(step.terms[0].factors) != 2:
            span = Span(step.span.source, step.terms[0].span.start, step.span.end)
            self._unsupported("a sum of products in one step", span, "write each product as a step of its own")
            return None
        term = step.terms[0]
        sign = term.sign if step.operator.text == "+=" else -term.sign
        scale = self._coefficient(sign, term.number)
        targets = [self._target(plain, scale) for plain in step.targets]
        left, right = self._operand(term.factors[0], "A"), self._operand(term.factors[1], "B")
        kept = tuple(t for t in targets if t is not None)
        if left is None or right is None or len(kept) < len(targets):
            return None
        return Product(left, right, kept, step.span)

    def _target(self, plain: Plain, scale: Coefficient | None) -> Target | None:
        block, coefficient = self._block(plain.name), self._coefficient(plain.sign, plain.number)
        if block is not None and block.space != "C":
            self._unsupported(f"a product into {block}", plain.span, "products are added to blocks of C")
            return None
        if block is None or coefficient is None or scale is None:
            return None
        return Target(block, coefficient * scale)

    def _operand(self, factor: TermFactor, space: str) -> Block | None:
        plain = factor.terms[0]
        if len(factor.terms) > 1 or plain.number is not None or plain.sign < 0:
            hint = "form the sum in a stage before, by a step such as A21 += A22"
            self._unsupported("an operand that is not a single block", factor.span, hint)
            return None
        block = self._block(plain.name)
        if block is not None and block.space != space:
            side = "left" if space == "A" else "right"
            message = f"the {side} operand must be a block of {space}"
            self.reporter.report("E212", message, factor.span, f"a block of {block.space}", hint="write A11 * B11")
            return None
        return block

    def _block(self, word: Word) -> Block | None:
        if is_block(word.text):
            return read_block(word, self.blocks, self.reporter)
        hint = "name it in the header, and what C becomes: C = A*B, temporaries X"
        self.reporter.report("E225", f"{shown(word.text)} is not a block", word.span, "not supported here", hint=hint)
        return None

    def _unsupported(self, message: str, span: Span, hint: str) -> None:
        self.reporter.report("E225", message, span, "not supported here", hint=hint)

    def _coefficient(self, sign: int, number: Word | None) -> Coefficient | None:
        value = 1 if number is None else read_number(number.text, number.span, self.reporter, self.ring)
        return value * sign if value is not None else None


def _multiplies(step: Update) -> bool:
    return any(len(term.factors) == 2 for term in step.terms)
