"""The best case of a proved schedule on a GPU's data sheet: the performance model of Krishnan's thesis (2021, section 3.5.2).

The time is at least the longest of three: all arithmetic at the peak, all traffic of the memory, and all traffic of the shared memory, at
their bandwidths. The thesis counts them for MSMES; here they are counted for any schedule.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

from bilinear.analysis.block_maps import components, restrict
from bilinear.errors import fail
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.schedule import LinearStage, ProductStage, Schedule
from bilinear.lowering.prepare import Level, authored_schedule, natural_inputs, plain, prepare_levels
from bilinear.passes.nest_levels import nest_levels
from bilinear.planner.device import Extents
from bilinear.planner.device_files import data_sheets, known_devices
from bilinear.planner.estimates import DataSheet
from bilinear.planner.ways import algorithm_named, forget_changed_files, kept_by_names

BlockExtents = tuple[float, float, float]  # The extents (m, k, n) of a block, which peeling would make whole.
BLOCK, THREAD = (64, 128), (8, 8)  # The tile of 8 x 8 results of 128 threads (section 3.4.3), by each.
USUAL_LEVELS = (("msmes",), ("msmes",) * 2, ("msmes",) * 3)  # What the thesis measured.


@dataclass(frozen=True)
class WorkCounts:
    """What a schedule does, in blocks: `added` and `touched` (all but products' own reads) by whose blocks they are."""

    launches: int
    products: int
    added: Counter[str]
    touched: Counter[str]

    def flops(self, block: BlockExtents) -> float:
        """Operations: the products', one for each element that they are added to, and the sums'."""
        return 2 * self.products * prod(block) + _elements(self.added, block)

    def traffic(self, block: BlockExtents, tile: tuple[int, int]) -> float:
        """Elements that are accessed, if a product reads its operands in tiles of these sides and a block counts once per kernel."""
        height, width = tile
        return self.products * (prod(block) / height + prod(block) / width) + _elements(self.touched, block)


def _elements(blocks: Counter[str], block: BlockExtents) -> float:
    m, k, n = block
    return blocks["A"] * m * k + blocks["B"] * k * n + blocks["C"] * m * n


def counts_of(schedule: Schedule, apart: bool = False) -> WorkCounts:
    """The work of a schedule; with `apart`, each sum of a stage has threads of its own, as in the thesis, and reads its blocks itself."""
    shape_of = {space.name: space.shape for space in schedule.spaces}
    added, touched, products = Counter[str](), Counter[str](), 0
    for stage in schedule.stages:
        for whole in stage.maps if isinstance(stage, LinearStage) else ():
            for part in (restrict(whole, {target}) for target in whole.targets) if apart else components(whole):
                shape = shape_of[part.targets[0].space]
                added[shape] += part.map.additions
                touched[shape] += len({*part.sources, *part.targets})
        for product in stage.products if isinstance(stage, ProductStage) else ():
            products += 1
            for target in product.targets:
                shape = shape_of[target.block.space]
                added[shape] += target.kept != 0
                touched[shape] += 1
    return WorkCounts(len(schedule.stages), products, added, touched)


@dataclass(frozen=True)
class BestCase:
    """A schedule on a data sheet: operations, bytes of both memories, launches, and the seconds that each of the three takes at least."""

    levels: tuple[str, ...]
    schedule: str
    launches: int
    flops: float
    memory: float
    shared: float
    seconds: tuple[float, float, float]

    @property
    def least(self) -> float:
        """The bound: the longest of the three."""
        return max(self.seconds)


def best_cases(shape: Extents, dtype: str, sheet: DataSheet, levels: tuple[str, ...] | None = None) -> tuple[BestCase, ...]:
    """The plain multiply, then these levels, or one to three of MSMES, each as its author wrote it and as it is compiled.

    All are proved. Blocks have the extents' quotients, so what peeling leaves over counts as if the grid divided it. Raises `BilinearError`
    for unknown levels (E121), wrong ones (E301, E4xx), and other types than float32 and float64 (E528).
    """
    if dtype not in IN_ARRAYS or ELEMENTS[dtype].bytes < 4:
        raise fail("E528", f"the model has no peak of {dtype}", "name float32 or float64")
    forget_changed_files()
    forms = [*_forms(()), *(form for names in (USUAL_LEVELS if levels is None else (levels,)) for form in _forms(names))]
    size, peak = ELEMENTS[dtype].bytes, 1e12 * (sheet.float64_units if dtype == "float64" else sheet.float32)
    # 32 banks of a multiprocessor give 4 bytes a cycle each, 8 on Kepler (CUDA C++ Programming Guide, capabilities)
    banks = sheet.processors * 32 * (8 if sheet.capability // 10 == 3 else 4) * sheet.clock * 1e6
    found = []
    for names, name, grid, work in forms:
        m, k, n = (whole / parts for whole, parts in zip(shape, grid, strict=True))
        flops, memory, shared = work.flops((m, k, n)), size * work.traffic((m, k, n), BLOCK), size * work.traffic((m, k, n), THREAD)
        seconds = flops / peak, memory / (sheet.bandwidth * 1e9), shared / banks
        found.append(BestCase(names, name, work.launches, flops, memory, shared, seconds))
    return tuple(found)


CountedForm = tuple[tuple[str, ...], str, Extents, WorkCounts]
"""Levels, how their schedule is taken, its grid, and what it does."""


@kept_by_names(64)
def _forms(names: tuple[str, ...]) -> tuple[CountedForm, ...]:
    """The plain multiply, or a proved schedule as its author wrote it and as it is compiled."""
    if not names:
        return (((), "plain", (1, 1, 1), counts_of(plain().schedule)),)
    own = tuple(Level(x.scheme, x.schedule) for x in map(algorithm_named, names))
    inputs = "restore" if any(natural_inputs(one.schedule) != "preserve" for one in own) else "preserve"
    compiled = prepare_levels(own, inputs)
    written = nest_levels([authored_schedule(one.scheme, one.schedule, inputs) for one in own])
    grid = compiled.m, compiled.k, compiled.n
    return (names, "as written", grid, counts_of(written, apart=True)), (names, "as compiled", grid, counts_of(compiled))


def sheet_named(name: str) -> DataSheet:
    """The shipped data sheet of this short name; raises `BilinearError` (E541) if there is none."""
    sheets = data_sheets()
    if name.lower() not in sheets:
        what = f"there is no data sheet of {name or 'a GPU without a name'!r}"
        raise fail("E541", what, f"choose --device from {', '.join(known_devices())}")
    return sheets[name.lower()]
