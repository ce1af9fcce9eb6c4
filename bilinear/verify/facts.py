"""What the proof of a schedule establishes, as frozen facts for reports."""

from __future__ import annotations

from dataclasses import dataclass

RESTORED, LINEAR, RECOMPUTE, LOST = "restored", "linearly recoverable", "recoverable by recomputing a product", "lost"
UNDECIDED = "undecided"
"""Products make the final state nonlinear, and neither a way back nor two inputs that end in one state were found."""


@dataclass(frozen=True)
class BlockState:
    """What a block holds after a stage.

    `kind` is `original`, `sum` (a linear form), `product` (products, perhaps with sums), `restored` (original again), or `undefined`.
    """

    block: str
    kind: str
    value: str


@dataclass(frozen=True)
class StageFact:
    """What one stage does: its number (from 1), its kind (linear, restore, product), its steps, and every block's state after it.

    `width` counts the steps that run at once; `contended` names the blocks of C that several products of the stage add to; `products` are
    the names of the scheme's products that the steps compute, up to a factor (empty where one is none of the scheme's).
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
    """What the final state (C excluded) tells of an operand's original blocks.

    `verdict` is one of RESTORED, LINEAR, RECOMPUTE, LOST, UNDECIDED. `restoring` are the steps that bring it back, in the language: one
    stage where it is LINEAR; where it is RECOMPUTE, blocks on the right that stand alone hold what is left at the end, and the factors of
    products are original blocks, restored by the steps before, or forms of original blocks that are told by what is left. `divisor` is
    what must be divided by for that where the ring does not let one (the integer 2 over Z, a polynomial over Q[lambda]); empty where
    these steps have all their coefficients in the ring.

    Where it is LOST, `confused` are changes of the inputs that leave no trace at any input, as steps with any matrix X ("A11 += X ;
    A21 += X"), and `lost_dimensions` counts them: their parts in this operand are independent, and there are no others. Where there are
    none, some inputs are told by the final state and some are not. `counterexample` tells two inputs that end in one state, block by
    block, confirmed by exact execution; without `confused` they may be special.
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
    """Which problems a schedule fits: `statement` says it, or is empty where any shape fits; each reason names a stage and a block.

    `temporaries` tell what the temporaries without a declared shape must be large enough to hold.
    """

    statement: str = ""
    reasons: tuple[str, ...] = ()
    temporaries: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScheduleCosts:
    """What a schedule takes, counted in blocks, steps and stages.

    `live_blocks`: the most blocks, between two stages, that hold a value which is not the original of their place and is still needed (read
    later, or a final block of C). `chain`: the longest chain of steps of which each reads what the one before wrote. `widths`: products
    at once, by product stage. `passes`: sweeps over the blocks, where neighbouring linear stages are one and product stages one each.
    """

    live_blocks: int
    chain: int
    widths: tuple[int, ...]
    passes: int
