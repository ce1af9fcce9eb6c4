"""An evaluation: a linear map as a list of instructions that read, form and write its values.

Values are numbered as in the map: inputs first, then steps, then outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bilinear.ir.linear import Form


@dataclass(frozen=True)
class Read:
    """Read the input `value` from memory."""

    value: int
    kind: Literal["read"] = field(default="read", init=False)


@dataclass(frozen=True)
class Add:
    """Set `value` to the form `terms` over other values if it `begins` here; otherwise add the form to it."""

    value: int
    terms: Form
    begins: bool
    kind: Literal["add"] = field(default="add", init=False)


@dataclass(frozen=True)
class Write:
    """Write `value` to memory as the output `output`."""

    output: int
    value: int
    kind: Literal["write"] = field(default="write", init=False)


Instruction = Read | Add | Write


@dataclass(frozen=True)
class Evaluation:
    """Instructions that evaluate a linear map, and the largest number of values that are live at once."""

    instructions: tuple[Instruction, ...]
    live: int
