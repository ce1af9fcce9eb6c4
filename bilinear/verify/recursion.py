"""Whether a schedule may run each of its own products in place; if not, the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.schedule import AnySchedule, Block, Product, ProductStage, Result, ScaledSchedule
from bilinear.verify.facts import ShapeConditions
from bilinear.verify.hazards import contended, find_shared_operands, name_of, needed_after, written_operands
from bilinear.verify.symbols import Value, Word

EXTENTS = {"A": ("M", "K"), "B": ("K", "N"), "C": ("M", "N")}
WORDS = {"A": "a form over A", "B": "a form over B", "C": "a block of C's size"}


def shape_conditions(schedule: AnySchedule, history: Sequence[Mapping[Block, Value]]) -> ShapeConditions:
    """The conditions on M x K times K x N, from the states after each stage.

    A form over A has the shape of A's blocks, and so on; a product has that of C's. A temporary without a declared shape is as large as its
    contents require, but all values summed in it must have one shape.
    """
    equal: dict[str, str] = {extent: extent for extent in "MKN"}
    reasons: list[str] = []
    holds: dict[str, set[str]] = {}
    own = {space.name: space.shape for space in schedule.spaces}
    for number, block, held in _held(history):
        shapes = held | ({own[block.space]} if own[block.space] else set())
        if not own[block.space]:
            holds.setdefault(block.space, set()).update(held)
        if _unify(equal, shapes):
            what = " and ".join(WORDS[s] for s in sorted(shapes) if s != own[block.space])
            reasons.append(f"stage {number} leaves {what} in {block}")
    temporaries = tuple(f"{name} holds blocks as large as those of {' and '.join(sorted(shapes))}" for name, shapes in holds.items())
    return ShapeConditions(_statement(schedule, equal), tuple(reasons), temporaries)


def _held(history: Sequence[Mapping[Block, Value]]) -> Iterator[tuple[int, Block, set[str]]]:
    before: Mapping[Block, Value] = {}
    for number, state in enumerate(history, 1):
        for block, value in state.items():
            if value is not before.get(block) and (shapes := {_shape(word) for word in value}):
                yield number, block, shapes
        before = state


def _shape(word: Word) -> str:
    if word[4] or (word[2] and word[3]):
        return "C"
    return "A" if word[2] else "B"


def _unify(equal: dict[str, str], shapes: set[str]) -> bool:
    """Require these shapes to be equal; returns whether that is a new condition."""
    first, *rest = sorted(shapes)
    changed = False
    for other in rest:
        for x, y in zip(EXTENTS[first], EXTENTS[other], strict=True):
            low, high = sorted((equal[x], equal[y]), key="MKN".index)
            if low != high:
                changed = True
                equal.update({extent: low for extent, root in equal.items() if root == high})
    return changed


def _statement(schedule: AnySchedule, equal: Mapping[str, str]) -> str:
    sizes = {"M": schedule.m, "K": schedule.k, "N": schedule.n}
    groups = [[extent for extent in "MKN" if equal[extent] == root] for root in "MKN"]
    (joined,) = [group for group in groups if len(group) > 1] or [[]]
    if not joined:
        return ""
    same = len({sizes[extent] for extent in joined}) == 1
    text = " = ".join(extent if same or sizes[extent] == 1 else f"{extent}/{sizes[extent]}" for extent in joined)
    return f"square problems only: {text}" if len(joined) == 3 and same else f"only problems with {text}"


def why_not_recursive(schedule: AnySchedule, restored: tuple[str, ...]) -> str:
    """The first obstacle to in-place recursion, as a sentence; empty if it is safe.

    An inner level is the same schedule on the blocks of one product. It writes both operands, restores those in `restored`, and uses the
    target as its C. So nothing may be allocated, the products of a stage need disjoint operands, an operand that is not restored must not
    be needed afterwards, and explicit scaling must agree with the scaling of the products. If it overwrites C, each product must overwrite
    one block.
    """
    if schedule.workspaces:
        names = ", ".join(space.name for space in schedule.workspaces)
        return f"every level needs memory of its own for {names}"
    needed = needed_after(schedule) if {"A", "B"} - {*restored} else (frozenset(),) * len(schedule.stages)
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
    """Products that are not instances of the schedule's own result."""
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
    """Products that need more than an overwriting schedule computes."""
    what = f"{name_of(product)} in stage {number}"
    if len(product.targets) != 1:
        yield f"{what} has {len(product.targets)} targets, and the schedule one result"
    for target in product.targets:
        if target.kept:
            yield f"{what} adds to what {target.block} holds, which every inner level overwrites"


def _takes(parameter: Coefficient, value: Coefficient) -> bool:
    """True if alpha (or beta) of a result can take this value; a generator can take any."""
    return isinstance(parameter, Symbolic) or parameter == value
