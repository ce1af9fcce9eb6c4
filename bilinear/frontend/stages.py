"""Turn the claims and the stages of a schedule into the IR."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

from bilinear.frontend.messages import Reporter, did_you_mean, shown
from bilinear.frontend.names import Grid, NumberError, add_up, claims_in, is_block, parse_number, read_block, read_number
from bilinear.frontend.syntax import Plain, StageStatement, Term, TermFactor, Update, Word
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, Symbolic, exact, generator
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Result, ScaledTarget, Space, Target
from bilinear.ir.schedule import Stage as StageIR
from bilinear.source import Span

_CLAIMS = ("in-place", "restores A", "restores B", "restores A B", "C = alpha*A*B + beta*C", "temporaries X Y")
_NUMBER = r"[0-9]{1,9}(?:/[1-9][0-9]{0,8})?"
_RESULT = re.compile(rf"C=(-?)(?:(alpha|{_NUMBER})\*)?A\*B(?:([+-])(?:(beta|{_NUMBER})\*)?C)?")
_TEMPORARIES = re.compile(r"temporar(?:y|ies)((?: [A-Za-z_][A-Za-z0-9_]*)+?)(?: like ([ABC]))?")


@dataclass
class ScheduleClaims:
    """The promises of a schedule, the result that it states if its scaling is explicit, and its blocks other than A, B and C."""

    in_place: bool = False
    restores: tuple[str, ...] = ()
    result: Result | None = None
    temporaries: dict[str, Space] = field(default_factory=dict)
    place: Span | None = None  # The place where the first temporaries are named.


def read_claims(word: Word | None, reporter: Reporter) -> ScheduleClaims:
    """The claims of a header; unknown and contradictory ones are reported (E223)."""
    claims = ScheduleClaims()
    if word is None:
        return claims
    if word.text.strip(" \t,:") == "":
        reporter.report("E223", "no claim follows the colon", word.span, "expected a claim", hint=f"known claims: {'; '.join(_CLAIMS)}")
    for claim, span in claims_in(word):
        _read_claim(claim, span, claims, reporter)
    if claims.temporaries and claims.result is None:
        hint = "say what C becomes, such as C = alpha*A*B + beta*C; every step then says all that it computes"
        reporter.report("E223", "temporaries without a claim of what C becomes", claims.place, "not enough", hint=hint)
    if claims.temporaries and claims.in_place:
        reporter.report("E223", "an in-place schedule has no temporaries", claims.place, "a contradiction", hint="leave out in-place")
    return claims


def _read_claim(claim: str, span: Span, claims: ScheduleClaims, reporter: Reporter) -> None:
    result = _RESULT.fullmatch(claim.replace(" ", ""))
    operands = re.fullmatch(r"restores((?: [AB])+)", claim)
    temporaries = _TEMPORARIES.fullmatch(claim)
    if claim == "in-place":
        claims.in_place = True
    elif operands is not None:
        claims.restores = tuple(sorted({*claims.restores, *operands[1].split()}))
    elif result is not None and claims.result is None:
        alpha, beta = _coefficient(result[1], result[2]), _coefficient(result[3], result[4]) if result[3] else 0
        claims.result = Result(alpha, beta)
    elif result is not None:
        reporter.report("E223", "a second claim of what C becomes", span, "claimed again", hint="leave one of them out")
    elif temporaries is not None:
        claims.place = claims.place or span
        _add_temporaries(temporaries[1].split(), temporaries[2] or "", span, claims, reporter)
    else:
        hint = did_you_mean(claim, _CLAIMS) or f"known claims: {'; '.join(_CLAIMS)}"
        reporter.report("E223", f"{shown(claim)} is not a claim", span, "not known", hint=hint)
        if re.match(r"C *[+-]?=", claim):  # its stages scale explicitly
            claims.result = claims.result or Result()


def _add_temporaries(names: list[str], shape: str, span: Span, claims: ScheduleClaims, reporter: Reporter) -> None:
    for name in names:
        if name in ("A", "B", "C", "like") or is_block(name) or name in claims.temporaries:
            what = "is named twice" if name in claims.temporaries else "is not a name for a temporary"
            reporter.report("E223", f"{shown(name)} {what}", span, "another name is needed", hint="choose a name such as X")
            return
        claims.temporaries[name] = Space(name, shape, 0, 0)


def _coefficient(sign: str, text: str | None) -> Coefficient:
    value = 1 if text is None else generator(text) if text.isalpha() else exact(Fraction(text))
    return -value if sign == "-" else value


Terms = list[tuple[Block, Coefficient]]
Row = tuple[Block, Terms, Span]  # A linear step: its target, the sum that it becomes, and its place.


@dataclass
class StageReader:
    """Reads the stages of one schedule and reports every error."""

    scales: ClassVar[bool] = False  # with explicit scaling a linear step may write any block, and a stage is one map

    blocks: Grid
    reporter: Reporter
    ring: Ring = RATIONALS

    def read(self, stage: StageStatement) -> StageIR | None:
        """The stage; None if an error was reported."""
        if not stage.steps:
            self.reporter.report(
                "E220", "a stage without steps", stage.span, "empty", hint="write a step, such as A21 += A22, or leave it out"
            )
            return None
        multiplies = [any(len(term.factors) == 2 for term in step.terms) for step in stage.steps]
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
        read = [self._row(step) for step in stage.steps]
        rows = [row for row in read if row is not None]
        if len(rows) < len(read):
            return None
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault("" if self.scales else row[0].space, []).append(row)
        maps = [self._block_map(group) for group in groups.values()]
        kept = tuple(m for m in maps if m is not None)
        return LinearStage(kept, stage.restores) if len(kept) == len(maps) else None

    def _row(self, step: Update) -> Row | None:
        plain = step.targets[0]
        if len(step.targets) > 1 or plain.number is not None or plain.sign < 0:
            hint = "write each target as a step of its own, with coefficients on the right"
            self._unsupported("a linear step has one block as its target", step.targets[-1].span, hint)
            return None
        target = self._block(plain.name)
        if target is None:
            return None
        if target.space == "C" and not self.scales:
            self._unsupported("a linear step into C", plain.span, "only products are added to blocks of C: C11 += A11 * B11")
            return None
        terms = self._sum(step, step.terms, target)
        return (target, self._with_old(step, target, terms), step.span) if terms is not None else None

    def _with_old(self, step: Update, target: Block, terms: Terms) -> Terms:
        return terms if step.operator.text == "=" else [(target, 1), *terms]

    def _sum(self, step: Update, terms: Sequence[Term], target: Block | None = None) -> Terms | None:
        sign = -1 if step.operator.text == "-=" else 1
        found: Terms = []
        sound = True
        for term in terms:
            scale = self._coefficient(term.sign * sign, term.number)
            for plain in term.factors[0].terms:
                block, coefficient = self._block(plain.name), self._coefficient(plain.sign, plain.number)
                if block is not None and target is not None and block.space != target.space and not self.scales:
                    hint = f"blocks of {target.space} are updated by sums of blocks of {target.space}"
                    self.reporter.report("E211", f"{target} cannot take up {block}", plain.span, f"a block of {block.space}", hint=hint)
                    block = None
                if block is None or coefficient is None or scale is None:
                    sound = False
                else:
                    found.append((block, coefficient * scale))
        return found if sound else None

    def _block_map(self, rows: Sequence[Row]) -> BlockMap | None:
        sources = tuple(sorted({block for _, terms, _ in rows for block, _ in terms}))
        number = {block: i for i, block in enumerate(sources)}
        outputs = []
        for _, terms, span in rows:
            output = add_up(((number[block], coefficient) for block, coefficient in terms), span, self.reporter)
            if output is None:
                return None
            outputs.append(output)
        targets, spans = tuple(row[0] for row in rows), tuple(row[2] for row in rows)
        return BlockMap(sources, targets, LinearMap(len(sources), tuple(outputs)), spans=spans)

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


SCALES = frozenset({"alpha", "beta"})


@dataclass
class ScaledStageReader(StageReader):
    """Reads stages in which `=` overwrites, `+=` adds, and scalings are explicit, as [alpha] and [beta]."""

    scales = True
    temporaries: Mapping[str, Space] = field(default_factory=dict)

    def _product(self, step: Update) -> Product | None:
        products = [term for term in step.terms if len(term.factors) == 2]
        if len(products) > 1:
            self._unsupported("a sum of products in one step", products[1].span, "write each product as a step of its own")
            return None
        (term,) = products
        sign = -term.sign if step.operator.text == "-=" else term.sign
        scale = self._coefficient(sign, term.number)
        plus = self._sum(step, [t for t in step.terms if t is not term])
        left, right = self._operand(term.factors[0], "A"), self._operand(term.factors[1], "B")
        if left is None or right is None or plus is None or scale is None:
            return None
        targets = [self._scaled_target(step, plain, scale, plus) for plain in step.targets]
        kept = tuple(t for t in targets if t is not None)
        return Product(left, right, kept, step.span) if len(kept) == len(targets) else None

    def _scaled_target(self, step: Update, plain: Plain, scale: Coefficient, plus: Terms) -> Target | None:
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
        try:
            value = parse_number(number.text) if number is not None else None
        except NumberError:
            value = None
        is_scale = isinstance(value, Symbolic) and SCALES & value.generators and value.generators <= SCALES | {self.ring.generator}
        if number is None or not isinstance(value, Symbolic) or not is_scale:  # then the scheme's ring reads it
            return super()._coefficient(sign, number)
        if any(name in SCALES and exponent < 0 for monomial, _ in value.terms for name, exponent in monomial):
            self.reporter.report("E205", "alpha and beta may be zero, nothing can be divided by them", number.span, "a division")
            return None
        return value * sign
