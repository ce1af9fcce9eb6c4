"""The steps of a schedule as written, and their single edits: a sign, a block or a step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bilinear.explain.repair.edits import Patch
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import (
    BETA,
    AnySchedule,
    Block,
    BlockMap,
    LinearStage,
    Product,
    ProductStage,
    ScaledSchedule,
    Schedule,
    Stage,
    Target,
)
from bilinear.source import Span


@dataclass(frozen=True)
class WrittenForm:
    """A step of a linear stage: a block becomes the sum of these terms, which include its own old value if it is kept."""

    target: Block
    terms: tuple[tuple[Block, Coefficient], ...]
    span: Span | None = None

    @property
    def side(self) -> str:
        """The operand whose blocks the step writes."""
        return self.target.space


@dataclass(frozen=True)
class WrittenProduct:
    """A step of a product stage: left * right, added to blocks of C."""

    left: Block
    right: Block
    targets: tuple[tuple[Block, Coefficient], ...]
    span: Span | None = None


WrittenStep = WrittenForm | WrittenProduct


@dataclass(frozen=True)
class WrittenSteps:
    """The stages of a schedule as lists of steps."""

    schedule: Schedule
    stages: tuple[tuple[WrittenStep, ...], ...]

    def build(self) -> Schedule:
        """The schedule with these steps, with the first ordered write of each block of C marked."""
        seen: set[Block] = set()
        stages = [_stage(steps, old, seen) for steps, old in zip(self.stages, self.schedule.stages, strict=True) if steps]
        return replace(self.schedule, stages=tuple(stages))


def read_steps(schedule: AnySchedule) -> WrittenSteps | None:
    """The steps of a schedule; None if it has workspaces, several levels or explicit scaling, is over Z/p, or maps into C."""
    if schedule.workspaces or schedule.levels != 1 or isinstance(schedule, ScaledSchedule) or schedule.ring.modulus:
        return None
    stages: list[tuple[WrittenStep, ...]] = []
    for stage in schedule.stages:
        if isinstance(stage, ProductStage):
            products = [WrittenProduct(p.left, p.right, tuple((t.block, t.coefficient) for t in p.targets), p.span) for p in stage.products]
            if any(t.space != "C" for p in products for t, _ in p.targets):
                return None
            stages.append(tuple(products))
        elif all(_is_of_one_operand(block_map) for block_map in stage.maps):
            steps = [step for block_map in stage.maps for step in _linear_steps(block_map)]
            stages.append(tuple(sorted(steps, key=lambda s: s.span.start if s.span is not None else 0)))
        else:
            return None
    return WrittenSteps(schedule, tuple(stages))


def _is_of_one_operand(block_map: BlockMap) -> bool:
    return {b.space for b in (*block_map.targets, *block_map.sources)} in ({"A"}, {"B"})


def _linear_steps(block_map: BlockMap) -> Iterator[WrittenForm]:
    spans = block_map.spans or (None,) * len(block_map.targets)
    for target, row, span in zip(block_map.targets, block_map.map.matrix, spans, strict=True):
        yield WrittenForm(target, tuple((block_map.sources[i], c) for i, c in row), span)


def _stage(steps: Sequence[WrittenStep], old: Stage, seen: set[Block]) -> Stage:
    if not isinstance(old, LinearStage):
        return ProductStage(tuple(_product(step, seen) for step in steps if isinstance(step, WrittenProduct)))
    linear = [step for step in steps if isinstance(step, WrittenForm)]
    sides = dict.fromkeys(step.side for step in linear)
    return LinearStage(tuple(_block_map([s for s in linear if s.side == side]) for side in sides), old.restores)


def _product(step: WrittenProduct, seen: set[Block]) -> Product:
    targets = []
    for block, coefficient in step.targets:
        targets.append(Target(block, coefficient, 1 if block in seen else BETA))
        seen.add(block)
    return Product(step.left, step.right, tuple(targets), step.span)


def _block_map(steps: Sequence[WrittenForm]) -> BlockMap:
    sources = tuple(sorted({block for step in steps for block, _ in step.terms}))
    number = {block: i for i, block in enumerate(sources)}
    outputs = tuple(form((number[block], c) for block, c in step.terms) for step in steps)
    spans = tuple(step.span for step in steps if step.span is not None)
    targets = tuple(step.target for step in steps)
    return BlockMap(sources, targets, LinearMap(len(sources), outputs), spans=spans if len(spans) == len(targets) else ())


_BLOCK = re.compile(r"[ABC](?:[1-9][1-9](?![A-Za-z0-9_])|\[[^\]\n;]*\])")
_OPERATOR = re.compile(r"[+-]?=")
_COMMENT = re.compile(r"#[^\n]*")
_NUMBER = re.compile(r"[0-9]+(?:[ \t]*/[ \t]*[0-9]+)?[ \t]*\*?[ \t]*\Z")


@dataclass(frozen=True)
class StepEdit:
    """One edit of a step. `number` counts the steps of its stage; one past the last adds a step. `new` is None if the step is removed.

    `side` is `A` or `B` if the values of an operand change, `C` if the targets of a product do.
    """

    kind: str
    side: str
    stage: int
    number: int
    new: WrittenStep | None
    text: str
    brief: str
    span: Span | None
    patches: tuple[Patch, ...] = ()


def step_edits(steps: WrittenSteps) -> Iterator[StepEdit]:
    """Every single edit of a schedule's steps, in the order of the text."""
    for stage, written in enumerate(steps.stages):
        for number, step in enumerate(written):
            found = _linear_edits(steps, step) if isinstance(step, WrittenForm) else _product_edits(steps, step)
            yield from (replace(e, stage=stage, number=number, text=f"{e.text} in stage {stage + 1}") for e in found)
            if len(written) > 1:
                yield _left_out(stage, number, step)
        if written and isinstance(written[0], WrittenForm):
            yield from _added_steps(steps, stage)


def _blocks(steps: WrittenSteps, space: str) -> tuple[Block, ...]:
    return steps.schedule.space(space).blocks


class _Text:
    """The tokens of a step in its text."""

    def __init__(self, span: Span) -> None:
        self.span = span
        text = _COMMENT.sub(lambda m: " " * len(m[0]), span.text)
        self.blanked = text
        operator = _OPERATOR.search(text)
        assert operator is not None, "a step has an operator"
        self.operator = operator
        found = list(_BLOCK.finditer(text))
        self.targets = [m for m in found if m.end() <= operator.start()]
        self.sources = [m for m in found if m.start() >= operator.end()]

    @property
    def sources_by_block(self) -> dict[str, re.Match[str]]:
        """The blocks on the right by name; empty if one stands twice."""
        found = {m[0]: m for m in self.sources}
        return found if len(found) == len(self.sources) else {}

    def at(self, start: int, end: int) -> Span:
        return Span(self.span.source, self.span.start + start, self.span.start + end)

    def sign(self, token: re.Match[str]) -> tuple[Patch, bool, Span]:
        """The patch that reverses the sign before a block, whether that sign is now a minus, and the place of sign and term."""
        start = token.start() - len(number[0]) if (number := _NUMBER.search(self.blanked[: token.start()])) else token.start()
        before = self.blanked[:start].rstrip()
        if not before.endswith(("+", "-")):
            whole = self.at(start, token.end())
            return (whole.start, whole.start, "-"), False, whole
        whole, minus = self.at(len(before) - 1, token.end()), before.endswith("-")
        return (whole.start, whole.start + 1, "+" if minus else "-"), minus, whole


def _edit(kind: str, side: str, new: WrittenStep | None, text: str, brief: str, span: Span | None, *patches: Patch) -> StepEdit:
    return StepEdit(kind, side, 0, 0, new, text, brief, span, patches)


def _linear_edits(steps: WrittenSteps, step: WrittenForm) -> Iterator[StepEdit]:
    text = _Text(step.span) if step.span is not None else None
    own = text is None or text.operator[0] != "="  # the step keeps its target's old value implicitly
    others = [(b, c) for b, c in step.terms if not (own and b == step.target)]
    places = text.sources_by_block if text is not None else {}
    for block, c in others:
        token = places.get(str(block))
        rest = tuple(t for t in step.terms if t[0] != block)
        yield _turned(step, block, text, token, len(others))
        for other in _blocks(steps, step.side):
            if other not in dict(step.terms):
                yield _renamed(replace(step, terms=(*rest, (other, c))), step.side, block, other, text, token)
    token = text.targets[0] if text is not None else None
    for other in _blocks(steps, step.side):
        if other != step.target:
            terms = tuple((other if own and b == step.target else b, c) for b, c in step.terms)
            if len(dict(terms)) == len(terms):
                yield _renamed(replace(step, target=other, terms=terms), step.side, step.target, other, text, token)
    if text is not None and own and len(others) > 1:
        kept = tuple((b, c if b == step.target else -c) for b, c in step.terms)
        yield _operator_turned(step.side, replace(step, terms=kept), text)
    yield from _replaced(steps, step)


def _replaced(steps: WrittenSteps, step: WrittenForm) -> Iterator[StepEdit]:
    """Another step in place of one."""
    for simple in _simple_steps(steps, step.side):
        if (simple.target, dict(simple.terms)) == (step.target, dict(step.terms)):
            continue
        shown, old = _shown(simple), step.span.text if step.span is not None else str(step.target)
        patches = ((step.span.start, step.span.end, shown),) if step.span is not None else ()
        new = replace(simple, span=step.span)
        yield _edit("step", step.side, new, f"writing {shown} for {old}", f"write {shown}", step.span, *patches)


def _turned(step: WrittenForm, block: Block, text: _Text | None, token: re.Match[str] | None, count: int) -> StepEdit:
    """The edit that reverses a sign: the operator's if it stands before a single term, else the term's."""
    new = replace(step, terms=tuple((b, -c if b == block else c) for b, c in step.terms))
    if text is None or token is None:
        return _edit("sign", step.side, new, f"turning the sign of {block} in the step of {step.target}", "turn the sign", step.span)
    if text.operator[0] != "=" and count == 1:
        return _operator_turned(step.side, new, text)
    patch, minus, span = text.sign(token)
    old, turned = ("-", "+") if minus else ("+", "-")
    shown = f"{turned}{block}"
    return _edit("sign", step.side, new, f"writing {shown} for {old}{block} in {text.span.text}", f"write {shown}", span, patch)


def _operator_turned(side: str, new: WrittenStep, text: _Text) -> StepEdit:
    """The edit of `+=` to `-=`, or back."""
    turned = "-=" if text.operator[0] == "+=" else "+="
    span = text.at(*text.operator.span())
    told = f"writing {turned} for {text.operator[0]} in {text.span.text}"
    return _edit("sign", side, new, told, f"write {turned}", span, (span.start, span.end, turned))


def _renamed(new: WrittenStep, side: str, old: Block, other: Block, text: _Text | None, token: re.Match[str] | None) -> StepEdit:
    """The edit of one block."""
    step = f" in {text.span.text}" if text is not None else ""
    if text is None or token is None:
        return _edit("operand", side, new, f"writing {other} for {old}{step}", f"write {other}", text.span if text is not None else None)
    span = text.at(*token.span())
    return _edit("operand", side, new, f"writing {other} for {old}{step}", f"write {other}", span, (span.start, span.end, str(other)))


def _simple_steps(steps: WrittenSteps, side: str) -> Iterator[WrittenForm]:
    """Every step that adds a block to another, or subtracts it."""
    blocks = _blocks(steps, side)
    for target in blocks:
        for source in blocks:
            if source != target:
                yield WrittenForm(target, ((target, 1), (source, 1)))
                yield WrittenForm(target, ((target, 1), (source, -1)))


def _shown(step: WrittenForm) -> str:
    (source, c), *_ = [t for t in step.terms if t[0] != step.target]
    return f"{step.target} {'-=' if c == -1 else '+='} {source}"


def _added_steps(steps: WrittenSteps, stage: int) -> Iterator[StepEdit]:
    written = [s for s in steps.stages[stage] if isinstance(s, WrittenForm)]
    last = written[-1].span
    for side in dict.fromkeys(step.side for step in written):
        for new in _simple_steps(steps, side):
            if any(new.target == s.target for s in written):
                continue
            patches = ((last.end, last.end, f" ; {_shown(new)}"),) if last is not None else ()
            text = f"adding {_shown(new)} to stage {stage + 1}"
            yield StepEdit("step", side, stage, len(written), new, text, f"add {_shown(new)}", last, patches)


def _left_out(stage: int, number: int, step: WrittenStep) -> StepEdit:
    side = step.side if isinstance(step, WrittenForm) else "C"
    shown = step.span.text if step.span is not None else f"step {number + 1}"
    patches = ((step.span.start, step.span.end, ""),) if step.span is not None else ()
    return StepEdit("drop", side, stage, number, None, f"leaving out {shown} in stage {stage + 1}", "leave this out", step.span, patches)


def _product_edits(steps: WrittenSteps, step: WrittenProduct) -> Iterator[StepEdit]:
    text = _Text(step.span) if step.span is not None else None
    left, right = text.sources if text is not None else (None, None)
    for other in _blocks(steps, "A"):
        if other != step.left:
            yield _renamed(replace(step, left=other), "A", step.left, other, text, left)
    for other in _blocks(steps, "B"):
        if other != step.right:
            yield _renamed(replace(step, right=other), "B", step.right, other, text, right)
    if text is not None and len(step.targets) > 1:
        yield _operator_turned("C", replace(step, targets=tuple((block, -c) for block, c in step.targets)), text)
    for number, (block, c) in enumerate(step.targets):
        token = text.targets[number] if text is not None else None
        yield _turned_target(step, number, text, token)
        for other in _blocks(steps, "C"):
            if other not in dict(step.targets):
                changed = (*step.targets[:number], (other, c), *step.targets[number + 1 :])
                yield _renamed(replace(step, targets=changed), "C", block, other, text, token)
        if len(step.targets) > 1:
            yield _target_left_out(step, number, text)
    for other in _blocks(steps, "C"):
        if other not in dict(step.targets):
            yield from (_target_added(step, other, sign) for sign in (1, -1))


def _turned_target(step: WrittenProduct, number: int, text: _Text | None, token: re.Match[str] | None) -> StepEdit:
    block, c = step.targets[number]
    new = replace(step, targets=(*step.targets[:number], (block, -c), *step.targets[number + 1 :]))
    if text is None or token is None:
        return _edit("sign", "C", new, f"turning the sign of {block}", "turn the sign", step.span)
    patch, minus, span = text.sign(token)
    patch = (patch[0], patch[1], patch[2].replace("+", ""))
    shown, old = (str(block), f"-{block}") if minus else (f"-{block}", str(block))
    return _edit("sign", "C", new, f"writing {shown} for {old} in {text.span.text}", f"write {shown}", span, patch)


def _target_left_out(step: WrittenProduct, number: int, text: _Text | None) -> StepEdit:
    block = step.targets[number][0]
    new = replace(step, targets=(*step.targets[:number], *step.targets[number + 1 :]))
    if text is None:
        return _edit("drop", "C", new, f"leaving out {block}", "leave this out", step.span)
    _, _, span = text.sign(text.targets[number])
    start = span.start if number == 0 else text.span.start + text.targets[number - 1].end()
    end = text.blanked.index(",", text.targets[0].end()) + 1 + text.span.start if number == 0 else span.end
    return _edit("drop", "C", new, f"leaving out {block} in {text.span.text}", "leave this out", span, (start, end, ""))


def _target_added(step: WrittenProduct, block: Block, sign: int) -> StepEdit:
    shown = f"{'-' if sign < 0 else ''}{block}"
    minus = step.span is not None and _Text(step.span).operator[0] == "-="
    new = replace(step, targets=(*step.targets, (block, -sign if minus else sign)))
    if step.span is None:
        return _edit("add", "C", new, f"adding the target {shown}", f"add {shown}", None)
    last = step.span.start + _Text(step.span).targets[-1].end()
    return _edit("add", "C", new, f"adding the target {shown} to {step.span.text}", f"add {shown}", step.span, (last, last, f", {shown}"))
