"""Recipes: what is to run, and its placement for a shape, which is made once and cached."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from bilinear.backends.caches import Same
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.matrix import Dtype, Layout, real_type
from bilinear.ir.number import to_float
from bilinear.ir.placement import COLOURS, Placement
from bilinear.ir.schedule import ProductStage, Schedule
from bilinear.ir.tile import USUAL
from bilinear.lowering.place import borrowing, choose_levels, place_schedule
from bilinear.lowering.prepare import Level, prepare, prepare_complex, prepare_levels, require_elements, require_residues
from bilinear.passes.split_operand import split_operand
from bilinear.planner.device import Device
from bilinear.planner.kept_plans import check_same
from bilinear.planner.model import fastest_tile, profile_of
from bilinear.planner.plan import Plan
from bilinear.planner.ways import algorithm_named
from bilinear.runtime.operands import Layouts


@dataclass(frozen=True)
class Recipe:
    """What is to run: the algorithm of each level, the outermost first, and what may happen to A and B (`inputs`).

    A single algorithm runs `levels` levels, a number or `auto`. `tile` names the tile of the products on a GPU; with a `device`, the tile
    that the model predicts to be fastest there is used instead. If an operand is `kept` ("A" or "B"), what is computed from it alone was
    computed before. With a `rest`, this recipe computes all but the last `left` rows of C (columns, if C lies `by_columns`), and the rest
    computes those afterwards. With a `modulus`, numbers are integers modulo it. Complex matrices are multiplied by products of real
    ones, three unless the algorithm has a `complex_core`, each of which runs by these levels; operands in `conjugated` ("", "A", "B", "AB")
    are conjugated. `contention` is one of `CONTENTION`.
    """

    algorithms: tuple[Loaded, ...]
    levels: int | str
    inputs: str
    tile: str = USUAL
    rest: Recipe | None = None
    left: int = 0
    by_columns: bool = False
    device: Same[Device] | None = None
    kept: str = ""
    modulus: int = 0
    conjugated: str = ""
    contention: str = COLOURS

    def suits(self, out: Layout | None) -> bool:
        """Whether the result may be computed in `out` (None: a new array). Parts keep temporaries in C, so C needs the planned layout."""
        if self.rest is None:
            return True
        return not self.by_columns if out is None else not out.has_gaps and out.is_by_column == self.by_columns

    @property
    def promise(self) -> str:
        """What may happen to A and B over all parts."""
        return self.inputs if self.rest is None or self.inputs != "preserve" else self.rest.promise

    @property
    def writing(self) -> Recipe:
        """The part that writes A and B; the last part if none does."""
        return self if self.rest is None or self.inputs != "preserve" else self.rest.writing

    @property
    def loaded(self) -> Loaded:
        """The algorithm of the outermost level."""
        return self.algorithms[0]


def chosen_recipe(plan: Plan) -> Recipe | None:
    """The recipe of a plan; None if no schedule runs. Raises `BilinearError` (E546) if the plan would run differently now."""
    chosen = plan.chosen.choice
    if chosen.has_kernels:
        check_same(plan, "this plan")
    recipe, left, by_columns = None, 0, plan.problem.by_columns
    extents = [0, *(part.extent for part in chosen.rest)]
    for part, extent in zip(reversed(chosen.lowered_parts), reversed(extents), strict=False):
        same = part.levels[:1] if len(set(part.levels)) == 1 else part.levels
        recipe = Recipe(tuple(map(algorithm_named, same)), len(part.levels), part.inputs, part.tile, recipe, left, by_columns)
        left += extent
    return None if recipe is None else replace(recipe, contention=chosen.contention)


def placement_for(recipe: Recipe, layouts: Layouts) -> Placement:
    """The placement of a recipe for matrices, or batches of them, of one type. If `out` does not suit it, it is for a new result."""
    by_column = frozenset(layouts.by_column)
    if recipe.rest is not None:
        by_column = by_column - {"C"} | ({"C"} if recipe.by_columns else set())
    return fitted_placement(recipe, layouts.extents, layouts.a.dtype, by_column)


def fitted_placement(recipe: Recipe, extents: tuple[int, int, int], dtype: Dtype, by_column: frozenset[str] = frozenset()) -> Placement:
    """The placement of a recipe for an m x k by k x n multiply of a NumPy dtype; its schedule is proved.

    `by_column` names the operands whose columns are contiguous. Raises `BilinearError` if a proof fails, if the dtype cannot hold a
    coefficient, or if the parts do not fit this multiply (E543).
    """
    m, k, n = extents
    if not 0 <= recipe.left < (n if "C" in by_column else m):
        raise fail("E543", f"the plan's parts of C do not fit a multiply of {m} x {k} by {k} x {n}", "plan again")
    left = recipe.left
    own, later = ((m, k, n - left), (m, k, left)) if "C" in by_column else ((m - left, k, n), (left, k, n))
    first = _fitted(tuple(map(Same, recipe.algorithms)), replace(recipe, algorithms=(), rest=None), own, dtype, by_column)
    return first if recipe.rest is None else _joined(Same(first), Same(fitted_placement(recipe.rest, later, dtype, by_column)))


def largest_scaling(placement: Placement) -> float:
    """The largest magnitude of a coefficient, apart from alpha, that multiplies a product of the placement."""
    return max(_largest_scaling(Same(own.schedule)) for own in placement.chain)


@lru_cache(maxsize=256)
def _largest_scaling(schedule: Same[Schedule]) -> float:
    stages = (stage for stage in schedule.what.stages if isinstance(stage, ProductStage))
    return max((abs(to_float(t.coefficient)) for stage in stages for x in stage.products for t in x.targets), default=0.0)


@lru_cache(maxsize=64)
def parted(schedule: Same[Schedule], operand: str) -> tuple[Schedule, Schedule]:
    """What a schedule computes from an operand alone, and the rest. Refuses (E539) one that computes nothing before it needs both."""
    parts = split_operand(schedule.what, operand)
    if parts is None:
        message = f"{schedule.what.name} computes nothing from {operand} alone that could be kept"
        raise fail("E539", message, "prepare for a schedule that expands its operands, such as winograd")
    return parts


@lru_cache(maxsize=256)
def _joined(first: Same[Placement], rest: Same[Placement]) -> Placement:
    return borrowing(first.what, rest.what)


@lru_cache(maxsize=256)
def _fitted(
    algorithms: tuple[Same[Loaded], ...], asked: Recipe, extents: tuple[int, int, int], dtype: Dtype, by_column: frozenset[str]
) -> Placement:
    each = tuple(Level(same.what.scheme, same.what.schedule) for same in algorithms)
    scheme, own, modulus = each[0].scheme, each[0].schedule, asked.modulus
    depth = int(asked.levels) if asked.levels != "auto" else 1 if scheme.ring.is_complex else max(1, choose_levels(scheme, *extents))
    is_complex, dtype = dtype.kind == "c", real_type(dtype)
    if is_complex:
        schedule = prepare_complex(each * depth if len(each) == 1 else each, asked.conjugated, algorithms[0].what.complex_core)
    elif len(each) == 1:
        schedule = prepare(scheme, own, depth, asked.inputs, modulus=modulus, contention=asked.contention).schedule
    else:
        schedule = prepare_levels(each, asked.inputs, modulus, asked.contention)
    if modulus:
        require_residues(scheme, schedule.coefficients, modulus)
    else:
        require_elements(scheme, schedule.coefficients, str(dtype), dtype.kind)
    first, schedule = parted(Same(schedule), asked.kept) if asked.kept else (None, schedule)
    filled = frozenset(space.name for space in first.workspaces) if first is not None else frozenset()
    placement = place_schedule(schedule, *extents, dtype.itemsize, by_column, tile=asked.tile, filled=filled)
    if asked.device is None:
        return placement
    return replace(placement, tile=fastest_tile(profile_of(schedule), placement, str(dtype), asked.device.what)[1])
