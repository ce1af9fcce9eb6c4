"""Read plinopt's straight-line programs: `t4:=i1+i3; o0:=t4*2/3-i0;` (https://github.com/jgdumas/plinopt).

Inputs are i0, i1 and so on, outputs o0, o1 and so on; every other name is a temporary or a constant. A name may be reassigned. A temporary
becomes a step of the map, so the additions are the author's. The `;` at the end of a line is optional.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import cast

from bilinear.interchange.arithmetic import MOST_BYTES, Arithmetic, Linear, Value
from bilinear.interchange.placeholder import MarkedForm, Part, marked
from bilinear.interchange.reader_parts import MOST_NONZEROS, MOST_PRODUCTS, malformed, read_text
from bilinear.ir.number import rational
from bilinear.source import Source

_HEAD = re.compile(r"\b([A-Za-z]+[0-9]*)[ \t]*:=", re.ASCII)
_NUMBERED = re.compile(r"([io])([0-9]{1,6})")


def read_program(path: Path) -> Part:
    """The linear map that a program computes; its number of inputs is that of those it reads.

    Raises `BilinearError`: E251 if the file cannot be read, E252 if a part is not a program of a linear map, E254 if an output is missing.
    """
    program = _Program(read_text(path, MOST_BYTES))
    program.read()
    return program.finish()


class _Program:
    """A program being read: inputs are numbered -1, -2 and so on, steps from 0."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.steps: list[Linear] = []
        self.names: list[str] = []
        self.values: dict[str, Value] = {}
        self.inputs = 0
        self.nonzeros = 0

    def read(self) -> None:
        """Every assignment, in order."""
        text = re.sub(r"#[^\n]*", lambda comment: " " * len(comment[0]), self.source.text)
        source, heads = Source(self.source.name, text), list(_HEAD.finditer(text))
        self._require_blank(text, 0, heads[0].start() if heads else len(text))
        for number, head in enumerate(heads):
            end = heads[number + 1].start() if number + 1 < len(heads) else len(text)
            body = text[head.end() : end]
            sums = body.rstrip()
            last = number + 1 == len(heads)
            if not sums.endswith(";") and (last or "\n" not in body[len(sums) :]):
                at = head.end() + len(sums)
                what = "the program breaks off" if last else "an assignment does not end"
                raise malformed(self.source, at, at + 1, what, "';' is missing", code="E254" if last else "E252")
            value = Arithmetic(source, head.end(), head.end() + len(sums.removesuffix(";")), self._lookup, self._shared).whole_sum()
            self.values[head[1]] = self._kept(value, head[1])

    def _require_blank(self, text: str, start: int, end: int) -> None:
        rest = text[start:end].lstrip()
        if rest:
            raise malformed(self.source, end - len(rest), end, "this is not an assignment", "NAME := SUM;")

    def finish(self) -> Part:
        """The map; a step that only one output uses, once, becomes that output."""
        outputs = self._outputs()
        uses = Counter(i for form in (*self.steps, *outputs) for i in form)
        inlined = {i for form in outputs for i, c in form.items() if len(form) == 1 and c == 1 and uses[i] == 1 and cast(int, i) >= 0}
        kept = [i for i in range(len(self.steps)) if i not in inlined]
        numbers = {-1 - i: i for i in range(self.inputs)} | {step: self.inputs + place for place, step in enumerate(kept)}

        def renamed(form: Linear) -> MarkedForm:
            return tuple(sorted(((numbers[cast(int, i)], marked(rational(c))) for i, c in form.items() if c), key=lambda term: term[0]))

        rows = tuple(renamed(self.steps[cast(int, next(iter(form)))] if inlined & form.keys() else form) for form in outputs)
        names = tuple(self.names[i] for i in kept)
        return Part(self.source, self.inputs, rows, tuple(renamed(self.steps[i]) for i in kept), names, at_least=True)

    def _outputs(self) -> list[Linear]:
        found: dict[int, Linear] = {}
        for name, value in self.values.items():
            match = _NUMBERED.fullmatch(name)
            if match is not None and match[1] == "o":
                if not isinstance(value, dict):
                    raise malformed(self.source, 0, 1, f"the output {name} is a number", "of this program")
                found[int(match[2])] = value
        missing = next((i for i in range(len(found)) if i not in found), None)
        if missing is not None or not found:
            end = len(self.source.text)
            raise malformed(self.source, end, end, f"the output o{missing or 0} is missing", "the program ends here", code="E254")
        return [found[i] for i in range(len(found))]

    def _lookup(self, name: str) -> Value | None:
        if name in self.values:
            value = self.values[name]
            return dict(value) if isinstance(value, dict) else value
        match = _NUMBERED.fullmatch(name)
        if match is None or match[1] != "i" or int(match[2]) >= MOST_PRODUCTS:
            return None
        self.inputs = max(self.inputs, int(match[2]) + 1)
        return {-1 - int(match[2]): Fraction(1)}

    def _kept(self, value: Value, name: str) -> Value:
        """A value to be referred to by name: a sum becomes a step; a plain value or a constant stays."""
        if not isinstance(value, dict) or (len(value) == 1 and 1 in value.values()):
            return value
        return self._shared(value, name)

    def _shared(self, value: Linear, name: str = "") -> Linear:
        self.nonzeros += len(value)
        if self.nonzeros > MOST_NONZEROS:
            raise malformed(self.source, 0, 1, "the program is too large", f"more than {MOST_NONZEROS} terms")
        self.steps.append(value)
        self.names.append(name)
        return {len(self.steps) - 1: Fraction(1)}
