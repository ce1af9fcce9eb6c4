"""Whether a schedule may run each of its own products in place, and if not, why."""

from __future__ import annotations

from collections.abc import Iterator

from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.schedule import AnySchedule, Product, ProductStage, Result, ScaledSchedule
from bilinear.verify.hazards import contended, find_shared_operands, name_of, written_operands
from bilinear.verify.steps import needed_after


def why_not_recursive(schedule: AnySchedule, restored: tuple[str, ...]) -> str:
    """The first obstacle, as a sentence; nothing where in-place recursion is safe.

    An inner level is the same schedule on the blocks of one product: it writes both operands, and leaves as they were those that are in
    `restored`; it uses the target as its C. So nothing may be allocated, the products of a stage need operands of their own, an operand
    that does not come back must not be needed afterwards, and a schedule that scales for itself must scale as its products need it.
    Where one overwrites C, each of its products must overwrite one block.
    """
    if schedule.workspaces:
        names = ", ".join(space.name for space in schedule.workspaces)
        return f"every level needs memory of its own for {names}"
    needed = needed_after(schedule)
    for number, stage in enumerate(schedule.stages, 1):
        if isinstance(stage, ProductStage):
            for reason in _obstacles(number, stage, schedule, restored, needed[number - 1]):
                return reason
    return ""


def _obstacles(
    number: int, stage: ProductStage, schedule: AnySchedule, restored: tuple[str, ...], needed: frozenset[object]
) -> Iterator[str]:
    for block, _ in find_shared_operands(number, stage, written_operands(schedule)):
        yield f"two products of stage {number} share the operand {block}, which an inner level writes"
    for product in stage.products:
        for side, block in (("A", product.left), ("B", product.right)):
            if side not in restored and block in needed:
                yield (
                    f"{name_of(product)} in stage {number} would overwrite its operand {block}, which is still needed:"
                    f" {schedule.name} does not restore {side}"
                )
        if isinstance(schedule, ScaledSchedule):
            yield from _unfit(number, product, schedule.result)
        elif schedule.overwrites:
            yield from _not_overwriting(number, product)
    if isinstance(schedule, ScaledSchedule) and contended(stage):
        yield f"two products of stage {number} write {contended(stage)[0]}, which every inner level uses as its own C"


def _unfit(number: int, product: Product, result: Result) -> Iterator[str]:
    """A product that is no instance of what the schedule computes."""
    what = f"{name_of(product)} in stage {number}"
    if len(product.targets) != 1:
        yield f"{what} has {len(product.targets)} targets, and the schedule one result"
    for target in product.targets:
        if not _takes(result.alpha, target.coefficient):
            yield f"{what} is scaled by {target.coefficient}, which {result} is not"
        for block, _ in target.plus[:1]:
            yield f"{what} adds {block} to its target, which {result} does not"
        if target.kept and not _takes(result.beta, target.kept):
            yield f"{what} adds to what {target.block} holds, which {result} does not"


def _not_overwriting(number: int, product: Product) -> Iterator[str]:
    """A product that needs more than what a schedule computes that overwrites C."""
    what = f"{name_of(product)} in stage {number}"
    if len(product.targets) != 1:
        yield f"{what} has {len(product.targets)} targets, and the schedule one result"
    for target in product.targets:
        if target.kept:
            yield f"{what} adds to what {target.block} holds, which every inner level overwrites"


def _takes(parameter: Coefficient, value: Coefficient) -> bool:
    """Whether alpha (or beta) of a result can be this value: a generator can be anything."""
    return isinstance(parameter, Symbolic) or parameter == value
