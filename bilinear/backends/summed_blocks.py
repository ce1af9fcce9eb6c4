"""Placements whose sums of blocks are generated kernels, while another engine multiplies the blocks, one product at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from bilinear.backends.bound_launches import BoundLaunches, MatrixPlace, launch_values, one_by_one, run_alone
from bilinear.backends.caches import Same
from bilinear.backends.cuda_executor import CudaExecutor, Step, launch_kernel
from bilinear.backends.executor import ready_on_views
from bilinear.backends.loaded_kernels import loaded_launches
from bilinear.ir.element import Element
from bilinear.ir.matrix import Call, Factor, Matrix
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import Block, LinearStage, Product, ProductStage, Schedule, Stage


@dataclass
class SummingExecutor(CudaExecutor):
    """Runs placements on matrices of an element type, whatever dtype their arrays name. A subclass says how it multiplies blocks."""

    element: Element

    @abstractmethod
    def product(self, schedule: Schedule, spaces: dict[str, Matrix], alpha: Factor, beta: Factor, product: Product) -> Step:
        """One product of blocks, added to its targets, as a call."""

    def ready(self, placement: Placement, call: Call) -> AbstractContextManager[Sequence[Step]]:
        """Each strip and each stage of the core as a call."""
        return ready_on_views(self, placement, call)

    def kinds(self) -> tuple[tuple[Element, bool | None], ...]:
        """The element types of sums, each with whose: C's (True), those of A and B (False), or all (None)."""
        return ((self.element, None),)

    def steps(self, placement: Placement, stages: tuple[Stage, ...], spaces: dict[str, Matrix], alpha: Factor, beta: Factor) -> list[Step]:
        """Each stage as a call: the launches of its sums, or its products."""
        if not stages:
            return []
        schedule = placement.schedule
        if stages is not schedule.stages:
            placement = replace(placement, schedule=replace(schedule, stages=stages, name=f"{schedule.name}-undo"))
        sums = [self._sums(placement, spaces, beta, *kind) for kind in self.kinds()]
        products = partial(self.product, schedule, spaces, alpha, beta)
        return [
            partial(one_by_one, [*map(products, stage.products)] if isinstance(stage, ProductStage) else [x[at] for x in sums if at in x])
            for at, stage in enumerate(stages)
        ]

    def _sums(
        self, placement: Placement, spaces: dict[str, Matrix], beta: Factor, element: Element, of_result: bool | None
    ) -> dict[int, Step]:
        """The launch of each linear stage by its number, of maps that `_only_sums` keeps; the bases of their arguments are the spaces."""
        own, numbers = _only_sums(Same(placement.schedule), of_result)
        if not own.stages:
            return {}
        places = {name: MatrixPlace(number, 0, x.layout.strides, x.layout.itemsize) for number, (name, x) in enumerate(spaces.items())}
        values = launch_values(placement, places, 1, "beta")
        launches = loaded_launches(own, element, placement.tile, placement.mode)
        bound = BoundLaunches(element, ((launch, function, values) for launch, function in launches), launch_kernel())
        with bound.ready([x.address for x in spaces.values()], 1, beta, self.stream()) as steps:
            return {number: partial(run_alone, step, bound) for number, step in zip(numbers, steps, strict=True)}


def block_of(schedule: Schedule, spaces: dict[str, Matrix], block: Block) -> Matrix:
    """A block of a space."""
    whole, grid = spaces[block.space], schedule.space(block.space)
    height, width = whole.layout.shape[0] // grid.rows, whole.layout.shape[1] // grid.columns
    return whole.part((block.row * height, (block.row + 1) * height), (block.column * width, (block.column + 1) * width))


@lru_cache(maxsize=64)
def _only_sums(schedule: Same[Schedule], of_result: bool | None) -> tuple[Schedule, tuple[int, ...]]:
    """The linear stages of a schedule, numbered and kept: all their maps, those with blocks of C's shape, or the others."""
    whole, found = schedule.what, dict[int, LinearStage]()
    for number, stage in enumerate(whole.stages):
        if isinstance(stage, LinearStage):
            maps = tuple(m for m in stage.maps if of_result is None or (whole.space(m.targets[0].space).shape == "C") == of_result)
            found |= {number: replace(stage, maps=maps)} if maps else {}
    return replace(whole, stages=tuple(found.values())), tuple(found)
