"""Read schedules from the comments of fflas-ffpack: one step a line, values by name, and the place of each.

    [FILE :: NAME]
    95: S3 = A11 - A21 -> C11
    117: P7 = a S3 T3 + b Z1 -> C22

A step names a value and puts it into a block; later steps name values, which remain where they were put. A comment that leaves out steps is
therefore noticed: some step uses a value that none computes or that has been overwritten, or computes one that none uses. In `a . S * T`,
`a S T` and `alpha S*T` the first factor is alpha; b and beta are beta. `U = P + Q = alpha S*T + Q` defines U twice and is computed as the
last sum says. Blocks of A, B and C stand for their originals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bilinear.errors import Diagnostic, fail
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient, generator
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Result, ScaledSchedule, ScaledTarget, Space, Stage
from bilinear.source import Source, Span

MOST_LINES = 10_000  # The most lines of one file.

_SECTION = re.compile(r"\[[^\]]*?::\s*([A-Za-z_][A-Za-z0-9_-]*)\s*\]")
_STEP = re.compile(r"([0-9]{1,9})\s*:\s*([A-Za-z_]\w*)\s*=\s*([^>]*?)\s*->\s*([A-Za-z_]\w*)")
_TOKEN = re.compile(r"\s*(?:([+-])|([A-Za-z_]\w*)|[.*])")
_SCALARS = {"a": "alpha", "alpha": "alpha", "b": "beta", "beta": "beta"}
_BLOCK = re.compile(r"([ABC])([12])([12])")


@dataclass(frozen=True)
class ForeignSchedule:
    """A schedule written by others; `gaps` lists what its source leaves out, in the order of the lines.

    A value that is missing or overwritten is read from a temporary of its name that nothing writes, so that its proof fails.
    """

    schedule: ScaledSchedule
    gaps: tuple[Diagnostic, ...]


def read_fflas(source: Source) -> tuple[ForeignSchedule, ...]:
    """Every schedule of a file as one of Winograd's scheme (2 x 2). Raises `BilinearError` (E261) if a line cannot be read."""
    sections: list[_Section] = []
    if len(source.line_starts) > MOST_LINES:
        raise fail("E261", f"the file has {len(source.line_starts)} lines", f"at most {MOST_LINES} are read")
    for number, start in enumerate(source.line_starts, 1):
        text = source.line(number)
        span = Span(source, start, start + len(text))
        header = _SECTION.fullmatch(text.strip())
        if header is not None:
            sections.append(_Section(header[1], span))
        elif text.strip() and not text.startswith("#"):
            if not sections:
                raise fail("E261", "a step before the first [FILE :: NAME]", span=span)
            sections[-1].read(text, span)
    return tuple(section.finish() for section in sections)


@dataclass(frozen=True)
class _Written:
    name: str
    block: Block
    line: str
    span: Span


@dataclass
class _Section:
    name: str
    span: Span
    stages: list[Stage] = field(default_factory=list)
    values: dict[str, _Written] = field(default_factory=dict)
    holds: dict[Block, _Written] = field(default_factory=dict)
    used: set[tuple[str, str]] = field(default_factory=set)  # Name and line of the values that a step reads.
    overwritten: list[tuple[_Written, _Written]] = field(default_factory=list)
    temporaries: dict[str, Space] = field(default_factory=dict)
    gaps: list[Diagnostic] = field(default_factory=list)
    scalars: set[str] = field(default_factory=set)

    def read(self, text: str, span: Span) -> None:
        match = _STEP.fullmatch(text.strip())
        if match is None:
            raise fail("E261", "this is not a step", "a step reads LINE: VALUE = SUM -> BLOCK", span=span)
        line, name, sums, place = match.groups()
        terms = list(_terms(sums.split("=")[-1], span))
        target = self._place(place, span)
        self.stages.append(self._stage(target, terms, line, span))
        written = _Written(name, target, line, span)
        before = self.holds.get(written.block)
        if before is not None:
            self.overwritten.append((before, written))
        self.holds[written.block] = self.values[written.name] = written

    def _stage(self, target: Block, terms: list[tuple[Coefficient, list[str]]], line: str, span: Span) -> Stage:
        self.scalars |= {g for c, _ in terms if not isinstance(c, int) for g in getattr(c, "generators", ())}
        sums = [(self._read(names[0], line, span), c) for c, names in terms if len(names) == 1]
        products = [(c, names) for c, names in terms if len(names) == 2]
        if len(products) > 1 or any(len(names) > 2 for _, names in terms):
            raise fail("E261", "a step with more than one product", "one product, and terms that are added to it", span=span)
        if products:
            ((scale, (left, right)),) = products
            blocks = sorted({block for block, _ in sums})
            added = form((blocks.index(block), c) for block, c in sums)
            product = Product(
                self._read(left, line, span),
                self._read(right, line, span),
                (ScaledTarget.of(target, scale, tuple((blocks[i], c) for i, c in added)),),
                span,
            )
            return ProductStage((product,))
        sources = tuple(sorted({block for block, _ in sums}))
        row = form((sources.index(block), c) for block, c in sums)
        return LinearStage((BlockMap(sources, (target,), LinearMap(len(sources), (row,)), spans=(span,)),))

    def _place(self, name: str, span: Span) -> Block:
        match = _BLOCK.fullmatch(name)
        if match is not None:
            return Block(match[1], int(match[2]) - 1, int(match[3]) - 1)
        if name in self.values:
            raise fail("E261", f"{name} is the name of a value, and cannot be that of a block", span=span)
        return self.temporaries.setdefault(name, Space(name, "", 0, 0)).blocks[0]

    def _read(self, name: str, line: str, span: Span) -> Block:
        """The block that holds a value; if none does, a temporary of its name that nothing writes."""
        match = _BLOCK.fullmatch(name)
        block = Block(match[1], int(match[2]) - 1, int(match[3]) - 1) if match is not None else None
        known = self.values.get(name)
        if block is None and known is not None:
            block = known.block
            self.used.add((known.name, known.line))
        if block is None:
            near = self.values.get(name.rstrip("_"))
            note = ""
            if near is not None:
                last = self.holds[near.block]
                fate = "it is still there" if last is near else f"line {last.line} puts {last.name} into its block {near.block}"
                note = f"{near.name} is computed in line {near.line}; {fate}"
            self._gap(f"{name} is used in line {line}, but no step computes it", span, "never computed", note)
            return self._missing(name)
        holder = self.holds.get(block)
        if holder is None or holder is known:
            return block
        note = f"line {holder.line} puts {holder.name} into {block}"
        self._gap(f"{name} is used in line {line}, but is no longer there", span, "overwritten", note)
        return self._missing(name)

    def _missing(self, name: str) -> Block:
        missing = f"{name}_original" if _BLOCK.fullmatch(name) is not None else name
        return self.temporaries.setdefault(missing, Space(missing, "", 0, 0)).blocks[0]

    def _check_use(self, value: _Written, note: str) -> None:
        if (value.name, value.line) not in self.used:
            self._gap(f"{value.name}, computed in line {value.line}, is used nowhere", value.span, "not used", note)

    def _gap(self, message: str, span: Span, label: str, note: str) -> None:
        hint = "the source does something here that its comments leave out"
        self.gaps.append(Diagnostic("E262", f"{self.name}: {message}", span, label, (note,) if note else (), (hint,)))

    def finish(self) -> ForeignSchedule:
        for value, later in self.overwritten:
            self._check_use(value, f"line {later.line} puts {later.name} into its block {later.block}")
        for value in self.holds.values():
            if value.block.space != "C":
                self._check_use(value, "")
        alpha = generator("alpha") if "alpha" in self.scalars else 1
        result = Result(alpha, generator("beta") if "beta" in self.scalars else 0)
        spaces = tuple(self.temporaries.values())
        schedule = ScaledSchedule(self.name, "winograd", 2, 2, 2, tuple(self.stages), spaces, span=self.span, result=result)
        return ForeignSchedule(schedule, tuple(sorted(self.gaps, key=lambda gap: gap.span.start if gap.span else 0)))


def _terms(text: str, span: Span) -> Iterator[tuple[Coefficient, list[str]]]:
    sign, place = 1, 0
    scale: Coefficient = 1
    names: list[str] = []
    text = text.strip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise fail("E261", f"{text[place : place + 20].strip()!r} cannot be read", "names, +, -, * and scalars a, b", span=span)
        place = match.end()
        if match[1] and names:
            yield scale * sign, names
            sign, scale, names = 1, 1, []
        if match[1] == "-":
            sign = -sign
        elif match[2] in _SCALARS and not names:
            scale = generator(_SCALARS[match[2]]) * scale
        elif match[2]:
            names.append(match[2])
    if not names:
        raise fail("E261", "a term is missing", span=span)
    yield scale * sign, names
