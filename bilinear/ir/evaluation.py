"""An evaluation: a linear map as instructions in order, which say when each value is read, formed and written.

Values are numbered as in the map: its inputs, its steps, and after those its outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bilinear.ir.linear import Form


@dataclass(frozen=True)
class Read:
    """The input `value` is read from memory."""

    value: int
    kind: Literal["read"] = field(default="read", init=False)


@dataclass(frozen=True)
class Add:
    """`value` becomes the form `terms` over other values, or, where it has begun before, the form is added to it."""

    value: int
    terms: Form
    begins: bool
    kind: Literal["add"] = field(default="add", init=False)


@dataclass(frozen=True)
class Write:
    """The output `output` is `value`, and is written to memory."""

    output: int
    value: int
    kind: Literal["write"] = field(default="write", init=False)


Instruction = Read | Add | Write


@dataclass(frozen=True)
class Evaluation:
    """Instructions that evaluate a linear map, and the most values that are live at once while they run."""

    instructions: tuple[Instruction, ...]
    live: int
