"""The contents of blocks in terms of a schedule's products: short texts such as `M1 + M4 - M5`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bilinear.ir.number import Coefficient, exact, generator
from bilinear.ir.schedule import ALPHA, AnySchedule, Block, LinearStage, ProductStage, Schedule, Stage
from bilinear.reporting.scheme_facts import written_sum

Content = dict[str, Coefficient]
"""Coefficients by the name of a product, or of an original block."""
MOST_PRODUCTS = 200
"""Schedules with more products have no texts."""
MOST_TERMS = 12
"""The proof writes out sums of up to this many original blocks; this module writes longer ones."""


def product_sums(schedule: AnySchedule, names: Sequence[Sequence[str]], implied: bool) -> list[dict[str, str]]:
    """After each stage, the text of every block that holds products, or a long sum; `names` are those of the products, stage by stage.

    If the scaling is `implied`, or equal to the implied one, alpha, beta and the old C are left out. Very large schedules give no texts.
    """
    if sum(map(len, names)) > MOST_PRODUCTS:
        return [{} for _ in schedule.stages]
    products = {name for stage in names for name in stage}
    left_out = "C" if implied else ""
    alpha = implied and not isinstance(schedule, Schedule) and schedule.result.alpha == ALPHA
    state: dict[Block, Content] = {block: {} if block.space == left_out else {str(block): 1} for block in _originals(schedule)}
    after = []
    for stage, stage_names in zip(schedule.stages, names, strict=True):
        state = {**state, **_after(stage, stage_names, state, generator("alpha", -1) if alpha else 1)}
        held = {str(block): content for block, content in state.items() if _is_told(content, products)}
        after.append(
            {block: written_sum((c, name) for name, c in sorted(content.items(), key=_by_number)) for block, content in held.items()}
        )
    return after


def _is_told(content: Content, products: set[str]) -> bool:
    return len(content) > MOST_TERMS or not products.isdisjoint(content)


def _by_number(term: tuple[str, Coefficient]) -> tuple[int, str]:
    """The sort key that puts M2 before M10."""
    return len(term[0]), term[0]


def _originals(schedule: AnySchedule) -> Iterable[Block]:
    return (block for space in schedule.spaces[:3] for block in space.blocks)


def _after(stage: Stage, names: Sequence[str], state: dict[Block, Content], factor: Coefficient) -> dict[Block, Content]:
    """The blocks that a stage writes, with their contents; every step reads the values from before. Products are scaled by a `factor`."""
    new: dict[Block, Content] = {}
    if isinstance(stage, LinearStage):
        for block_map in stage.maps:
            for target, row, kept in zip(block_map.targets, block_map.map.matrix, block_map.kept, strict=True):
                new[target] = _sum([(state.get(target, {}), kept), *((state.get(block_map.sources[i], {}), c) for i, c in row)])
        return new
    return _after_products(stage, names, state, factor)


def _after_products(stage: ProductStage, names: Sequence[str], state: dict[Block, Content], factor: Coefficient) -> dict[Block, Content]:
    new: dict[Block, Content] = {}
    for product, name in zip(stage.products, names, strict=True):
        for target in product.targets:
            block = target.block
            others = [(state.get(other, {}), c) for other, c in target.plus]
            new[block] = _sum(
                [(new.get(block, state.get(block, {})), target.kept), *others, ({name: 1}, exact(target.coefficient * factor))]
            )
    return new


def _sum(parts: Iterable[tuple[Content, Coefficient]]) -> Content:
    total: Content = {}
    for content, factor in parts:
        for name, coefficient in content.items():
            total[name] = total.get(name, 0) + factor * coefficient
    return {name: coefficient for name, coefficient in total.items() if coefficient}
