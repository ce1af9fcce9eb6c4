"""What proofs say: the facts about a schedule, frozen, for reports; and numbers and failures that are not too long for a message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bilinear.errors import Diagnostic
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.source import Span

RESTORED, LINEAR, RECOMPUTE, LOST = "restored", "linearly recoverable", "recoverable by recomputing a product", "lost"
UNDECIDED = "undecided"
"""Products make the final state nonlinear, and the proof found neither a way back nor two inputs with the same final state."""


@dataclass(frozen=True)
class BlockState:
    """A block after a stage: `original`, `sum` (a form), `product` (and perhaps sums), `restored` or `undefined`."""

    block: str
    kind: str
    value: str


@dataclass(frozen=True)
class StageFact:
    """One stage: its number (from 1), its kind (linear, restore, product), its steps, and every block's state after it.

    `width` counts the simultaneous steps. `contended` names the blocks of C to which several products of the stage are added. `products`
    names the scheme's products that the steps compute, up to a factor (empty if one is not the scheme's).
    """

    number: int
    kind: str
    steps: tuple[str, ...]
    contended: tuple[str, ...] = ()
    width: int = 1
    states: tuple[BlockState, ...] = ()
    products: tuple[str, ...] = ()


@dataclass(frozen=True)
class OperandFate:
    """Whether an operand's original blocks can be recovered from the final state, C excluded.

    `verdict` is one of RESTORED, LINEAR, RECOMPUTE, LOST, UNDECIDED. `restoring` lists the stages that restore the operand, executed one
    after the other from the final state: a name stands for the content of its block at that moment, and the steps of one stage, separated
    by semicolons, read what was there before it. If a stage reads blocks of both operands, both operands that can be restored list the
    same stages, which restore both. `divisor` is a divisor in these steps that has no inverse in the ring (the integer 2 over Z, a
    polynomial over Q[lambda]); empty if all their coefficients are in the ring.

    If LOST, `confused` lists changes of the inputs that leave no trace at any input, as steps with any matrix X ("A11 += X ; A21 += X"),
    and `lost_dimensions` counts them: their parts in this operand are a basis of all such changes. If there are none, the final state
    determines some inputs and not others. `counterexample` shows two inputs with the same final state, block by block, confirmed by exact
    execution; without `confused` they may be special.
    """

    operand: str
    verdict: str
    restoring: tuple[str, ...] = ()
    divisor: str = ""
    lost_dimensions: int = 0
    confused: tuple[str, ...] = ()
    counterexample: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShapeConditions:
    """The shapes that a schedule fits, as a `statement` (empty: any) with reasons, and how large `temporaries` must be."""

    statement: str = ""
    reasons: tuple[str, ...] = ()
    temporaries: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScheduleCosts:
    """The costs of a schedule, in blocks, steps and stages.

    `live_blocks`: the most blocks, between two stages, with a value that is still needed (read later, or a final block of C) and is not the
    block's original. `chain`: the longest chain of steps, each reading what the one before wrote. `widths`: the number of simultaneous
    products of each product stage, and `groups` a lower bound of the groups that add to different blocks into which they can be divided:
    the most that add to one block. `passes`: sweeps over the blocks; neighbouring linear stages count as one, a product stage as one.
    """

    live_blocks: int
    chain: int
    widths: tuple[int, ...]
    groups: tuple[int, ...]
    passes: int


@dataclass(frozen=True)
class Equation:
    """An equation that fails: the coefficient of `left` * `right` in `output`."""

    left: str
    right: str
    output: str
    found: Coefficient
    needed: Coefficient
    span: Span | None = None

    def __str__(self) -> str:
        return f"{self.left}*{self.right} in {self.output}: found {told(self.found)}, needed {self.needed}"


MOST_LETTERS = 80  # The most characters of a number in a message.
MOST_WRITTEN_BITS = 4096  # The most bits of a number written in decimal; Python refuses far longer ones.
MOST_FAILURES = 50  # The most diagnostics reported for one proof.


def told(value: Coefficient) -> str:
    """A number as text, shortened if it is long."""
    numbers = [c for _, c in value.terms] if isinstance(value, Symbolic) else [value]
    bits = max(max(c.numerator.bit_length(), c.denominator.bit_length()) for c in numbers)
    return f"a number of {bits} bits" if bits > MOST_WRITTEN_BITS else shortened(str(value))


def shortened(text: str) -> str:
    """The text with its middle left out if it is long."""
    if len(text) <= MOST_LETTERS:
        return text
    half = MOST_LETTERS // 2 - 8
    return f"{text[:half]}...{text[-half:]} ({len(text)} characters)"


def first_of(failures: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The first failures; the last one reported says how many there are."""
    if len(failures) <= MOST_FAILURES:
        return tuple(failures)
    last = failures[MOST_FAILURES - 1]
    note = f"the first {MOST_FAILURES} of {len(failures)} faults are shown"
    return (*failures[: MOST_FAILURES - 1], replace(last, notes=(*last.notes, note)))
