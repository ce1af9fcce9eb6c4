"""In-place schedules that are found: proved, executed exactly, written and read again, and no dearer than the published ones."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations

import pytest
import sympy
from each_case import each
from oracle import computes
from published import needs_folder, published

from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend.printer import print_schedule, print_scheme
from bilinear.ir.linear import Form, LinearMap, form, transposed_rows
from bilinear.ir.ring import RATIONALS
from bilinear.ir.schedule import AnySchedule, LinearStage, ProductStage, Schedule
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import prepare, runnable
from bilinear.passes.fuse_linear_stages import fuse_linear_stages
from bilinear.passes.nest_levels import nest_levels
from bilinear.passes.order_products import colour_products
from bilinear.scheduling.in_place.find import find_in_place
from bilinear.scheduling.in_place.partitions import Independence, StageProgress, find_partition
from bilinear.scheduling.in_place.walks import PRIME, OperandSide, SumSearch
from bilinear.scheduling.scaling import explicit_in_place
from bilinear.source import Source
from bilinear.verify.schedule import prove_schedule

SHIPPED = {"strassen": 2, "winograd": 2, "naive2x2": 2, "hopcroft_kerr": 3, "laderman": 3}
"""The least product stages: as many as the blocks of an operand allow."""


@lru_cache(maxsize=16)
def found(name: str, **options: object) -> Schedule:
    quick = {"seconds": 0.0} if name in ("hopcroft_kerr", "laderman") else {}
    return find_in_place(load(name).scheme, **quick, **options)  # type: ignore[arg-type]


def additions(schedule: AnySchedule) -> int:
    return sum(m.map.additions for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps)


def traffic(schedule: Schedule) -> int:
    """Blocks that the fused linear stages read and write."""
    maps = [m for stage in fuse_linear_stages(schedule).stages if isinstance(stage, LinearStage) for m in stage.maps]
    return sum(len(m.sources) + len(m.targets) for m in maps)


def widths(schedule: AnySchedule) -> list[int]:
    return [len(stage.products) for stage in schedule.stages if isinstance(stage, ProductStage)]


def scaled(factor: Fraction, rows: tuple[Form, ...], inputs: int) -> LinearMap:
    return LinearMap(inputs, tuple(tuple((i, factor * c) for i, c in row) for row in rows))


def sheared(scheme: Scheme, q: Fraction) -> Scheme:
    """The scheme in another basis, A*P and P^-1*B with P = ((1, q), (0, 1)), its left forms with alternating signs."""
    u, v, w = scheme.tables
    signs = [(-1) ** p for p in range(scheme.rank)]
    left = tuple(
        form((place, s * c * x) for i, c in row for place, x in (((i, 1),) if i % 2 == 0 else ((i, 1), (i - 1, q))))
        for s, row in zip(signs, u, strict=True)
    )
    right = tuple(form((place, c * x) for i, c in row for place, x in (((i, 1), (i + 2, -q)) if i < 2 else ((i, 1),))) for row in v)
    outputs = tuple(tuple((p, signs[p] * c) for p, c in row) for row in w)
    u_map, v_map, w_map = LinearMap(4, left), LinearMap(4, right), LinearMap(scheme.rank, outputs)
    return replace(scheme, u=u_map, v=v_map, w=w_map, ring=RATIONALS)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("levels", [1, 2])
def test_every_shipped_scheme_is_run_in_place_and_proved(name: str, levels: int) -> None:
    scheme, schedule = load(name).scheme, found(name)
    assert schedule.in_place and schedule.runs_in_place and schedule.restores == ("A", "B")
    prepared = prepare(scheme, schedule, levels, "restore")
    assert prepared.authored_proof.recursive
    assert computes(prepared.schedule, trials=1)


@pytest.mark.parametrize(("name", "stages"), SHIPPED.items())
def test_as_few_product_stages_as_the_blocks_allow(name: str, stages: int) -> None:
    assert len(widths(found(name))) == stages
    assert sum(widths(found(name))) == load(name).scheme.rank


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_found_is_written_and_read_again(name: str) -> None:
    text = print_scheme(load(name).scheme) + print_schedule(found(name))
    (schedule,) = parse_source(Source("found.bl", text)).schedules
    assert schedule == found(name)


def test_strassen_and_winograd_cost_no_more_than_the_thesis() -> None:
    thesis = load("msmes").schedule
    assert isinstance(thesis, Schedule) and (additions(thesis), traffic(thesis)) == (16, 40)
    assert (additions(found("strassen")), traffic(found("strassen"))) == (16, 38)
    assert (additions(found("winograd")), traffic(found("winograd"))) == (15, 36)


@pytest.mark.parametrize("name", ["strassen", "winograd"])
def test_the_maps_between_nested_levels_move_no_more_than_those_of_the_thesis(name: str) -> None:
    moved = [traffic(nest_levels([found(name)] * levels)) / 4**levels for levels in (1, 2, 3)]
    assert all(ours <= bound for ours, bound in zip(moved, (10, 18.25, 33.4), strict=True))


def test_the_plain_scheme_moves_nothing_and_its_stages_have_no_contention() -> None:
    schedule = found("naive2x2")
    assert all(isinstance(stage, ProductStage) and not stage.contended for stage in schedule.stages)
    assert widths(schedule) == [4, 4]


def test_the_search_depends_on_its_seed_alone() -> None:
    scheme = load("strassen").scheme
    assert found("strassen") == find_in_place(replace(scheme))


@pytest.mark.slow
def test_progress_tells_the_best_so_far() -> None:
    told: list[StageProgress] = []
    schedule = find_in_place(load("strassen").scheme, progress=told.append)
    last = told[-1]
    assert (last.stages, last.fewest, last.additions, last.traffic) == (2, 2, additions(schedule), traffic(schedule))
    assert [(p.additions, p.traffic) for p in told] == sorted(((p.additions, p.traffic) for p in told), reverse=True)
    assert str(last) == (
        "600/600 steps: 2 product stages (no fewer are possible), 5 launches of products (at least 4 are needed),"
        " 16 additions, 38 blocks moved"
    )


def launches(schedule: Schedule) -> int:
    return len(widths(colour_products(schedule)))


def fewest_launches(scheme: Scheme, *, with_maps_on_c: bool) -> int:
    """Of every partition of the products into sets that may run at once, the fewest sets: ranks are exact, and nothing is left out.

    A launch adds to a block of C once. If C could be mapped, too, independent forms would be enough there as in A and B.
    """
    u, v, w = scheme.tables
    tables = (u, v, transposed_rows(w, scheme.rank))

    def stands(products: tuple[int, ...]) -> bool:
        left, right, out = (sympy.Matrix([[dict(table[p]).get(i, 0) for i in range(4)] for p in products]) for table in tables)
        apart = out.rank() == len(products) if with_maps_on_c else all(sum(map(bool, out.col(i))) <= 1 for i in range(4))
        return apart and left.rank() == right.rank() == len(products)

    sets = [sum(1 << p for p in group) for size in range(1, 5) for group in combinations(range(scheme.rank), size) if stands(group)]
    fewest = [0] + [scheme.rank + 1] * (2**scheme.rank - 1)
    for mask in range(1, 2**scheme.rank):
        fewest[mask] = 1 + min(fewest[mask & ~group] for group in sets if group & mask)
    return fewest[-1]


@pytest.mark.parametrize(("name", "fewest"), [("strassen", 4), ("winograd", 4), ("naive2x2", 2)])
def test_no_partition_has_fewer_launches_than_the_search_finds(name: str, fewest: int) -> None:
    scheme = load(name).scheme
    assert fewest_launches(scheme, with_maps_on_c=False) == fewest
    assert fewest_launches(scheme, with_maps_on_c=True) == 2


@pytest.mark.parametrize(
    ("name", "fewest", "stages"), [("strassen", 4, 2), ("winograd", 4, 2), ("naive2x2", 2, 2), ("hopcroft_kerr", 4, 4), ("laderman", 7, 3)]
)
def test_launches_are_as_few_as_the_bound(name: str, fewest: int, stages: int) -> None:
    told: list[StageProgress] = []
    scheme = load(name).scheme
    schedule = find_in_place(scheme, few_launches=True, seconds=0.0, progress=told.append)
    assert (launches(schedule), len(widths(schedule))) == (fewest, stages) == (told[-1].launches, told[-1].stages)
    assert told[-1].least == fewest
    prepared = prepare(scheme, schedule, 1, "restore")
    assert prepared.authored_proof.recursive and computes(prepared.schedule, trials=1)


@pytest.mark.parametrize(("name", "most"), [("strassen", 10), ("winograd", 10), ("laderman", 60)])
def test_consumed_inputs_are_cheaper(name: str, most: int) -> None:
    schedule = found(name, consume=True)
    assert not any(isinstance(stage, LinearStage) and stage.restores for stage in schedule.stages)
    assert isinstance(schedule.stages[-1], ProductStage) and schedule.restores == ()
    assert additions(schedule) <= most
    assert computes(prepare(load(name).scheme, schedule, 1, "consume").schedule)


def test_fractions_of_forms_go_into_the_coefficients_of_c() -> None:
    strassen = load("strassen").scheme
    u, v, w = strassen.tables
    twisted = replace(
        strassen, u=scaled(Fraction(3, 7), u, 4), v=scaled(Fraction(-1, 2), v, 4), w=scaled(Fraction(-14, 3), w, 7), ring=RATIONALS
    )
    schedule = find_in_place(twisted)
    assert computes(prepare(twisted, schedule, 2, "restore").schedule, trials=1)
    assert additions(schedule) == 16


@each("q", [Fraction(1), Fraction(1, 3**40)])
@each("name", ["winograd", "naive2x2"])
@each("options", [{}, {"temporaries": 1}, {"temporaries": 4, "keep": ("A", "B")}, {"consume": True}])
def test_fractions_of_any_size_are_exact(q: Fraction, name: str, options: dict[str, object]) -> None:
    scheme = sheared(load(name).scheme, q)
    schedule = find_in_place(scheme, seconds=0.0, **options)  # type: ignore[arg-type]
    assert computes(runnable(schedule), trials=1)
    assert prove_schedule(runnable(schedule), scheme).holds


def test_products_that_are_zero_are_left_out() -> None:
    strassen = load("strassen").scheme
    u, v, w = strassen.tables
    padded = replace(
        strassen,
        u=LinearMap(4, ((), *u)),
        v=LinearMap(4, (u[0], *v)),
        w=scaled(Fraction(1), tuple(((0, 1), *((p + 1, c) for p, c in row)) for row in w), 8),
        products=("Z", *strassen.products),
    )
    schedule = find_in_place(padded)
    assert sorted(widths(schedule)) == [3, 4]
    assert computes(prepare(padded, schedule, 1, "restore").schedule)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["strassen", "winograd", "hopcroft_kerr"])
@pytest.mark.parametrize("temporaries", [1, 2])
def test_temporaries_take_sums_out_of_a_and_b(name: str, temporaries: int) -> None:
    schedule = found(name, temporaries=temporaries)
    assert all(len(space.blocks) <= temporaries for space in schedule.workspaces)
    assert computes(prepare(load(name).scheme, schedule, 1, "restore").schedule)
    assert not schedule.workspaces or not prove_schedule(runnable(schedule)).recursive
    if name != "hopcroft_kerr":
        assert schedule.workspaces and additions(schedule) < additions(found(name))


@pytest.mark.sample(2)
@pytest.mark.parametrize("keep", [("A",), ("B",), ("A", "B")])
@pytest.mark.parametrize("temporaries", [1, 2])
def test_a_kept_operand_is_never_written(keep: tuple[str, ...], temporaries: int) -> None:
    schedule = found("winograd", keep=keep, temporaries=temporaries)
    written = {t.space for s in schedule.stages if isinstance(s, LinearStage) for m in s.maps for t in m.targets}
    assert not written & set(keep)
    assert computes(prepare(load("winograd").scheme, schedule, 1, "restore").schedule)


def test_two_temporaries_hold_winograds_sums_one_after_the_other() -> None:
    schedule = found("winograd", keep=("A", "B"), temporaries=1)
    assert [space.shape for space in schedule.workspaces] == ["A", "B"]
    assert additions(schedule) == 8, "each of Winograd's eight sums is one addition: from blocks, or from the sum before it"
    assert len(widths(schedule)) == 4, "four forms of A are sums, and one is held at a time"


def test_single_blocks_need_no_temporary_to_be_kept() -> None:
    schedule = found("naive2x2", keep=("A", "B"))
    assert widths(schedule) == [8]
    assert computes(prepare(load("naive2x2").scheme, schedule, 2, "restore").schedule, trials=1)


@pytest.mark.slow
def test_a_schedule_with_temporaries_is_written_as_one_that_scales_for_itself() -> None:
    scheme = load("winograd").scheme
    schedule = explicit_in_place(found("winograd", temporaries=1))
    text = print_schedule(schedule)
    assert text.splitlines()[0] == (
        "schedule winograd-staged of winograd: C = A*B + C, restores A B, temporary S1 like A, temporary T1 like B"
    )
    (again,) = parse_source(Source("found.bl", print_scheme(scheme) + text)).schedules
    assert again == schedule
    assert prove_schedule(again, scheme).holds


def test_forms_that_depend_on_each_other_are_not_put_into_one_stage() -> None:
    forms = ((1, 0, 0), (0, 1, 0), (1, PRIME - 1, 0), (0, 0, 1))
    side = OperandSide(forms, 3)
    assert (side.needs([0, 1, 2]), side.needs([0, 1, 3])) == (1, 0)
    assert side.needs([0, 1, 2, 3]) == 1
    partition = find_partition(Independence([side]), 4, 2, random.Random(0), 100)
    assert partition is not None and not any({0, 1, 2} <= group for group in partition)
    assert find_partition(Independence([side]), 4, 1, random.Random(0), 100) is None


def test_forms_equal_up_to_a_factor_bound_the_stages() -> None:
    assert OperandSide(((1, 2, 0), (2, 4, 0), (3, 6, 0), (0, 0, 1)), 3).fewest_stages == 3


@each("name", ["hopcroft_kerr", "laderman"])
@each("seed", [0, 1, 2])
def test_the_counts_of_the_search_are_those_of_the_fused_schedule(name: str, seed: int) -> None:
    told: list[StageProgress] = []
    schedule = find_in_place(load(name).scheme, seconds=0.0, seed=seed, progress=told.append)
    assert (told[-1].additions, told[-1].traffic) == (additions(schedule), traffic(schedule))


def test_a_walk_counts_its_additions_and_blocks() -> None:
    walk = SumSearch(OperandSide(((1, 1, 0), (0, 0, 1)), 3), [[(1, 1, 0), (0, 0, 1)]], restores=True).run()
    assert (walk.additions, walk.traffic) == (2, 6), "one block added to another, and taken off again"
    assert [len(moves) for moves in walk.moves] == [1, 1]


@pytest.mark.parametrize("name", ["strassen", "hopcroft_kerr"])
def test_an_operand_whose_sums_have_no_place_cannot_be_kept(name: str) -> None:
    with pytest.raises(BilinearError) as caught:
        find_in_place(load(name).scheme, keep=("A",))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E552"
    assert diagnostic.message == f"{name} cannot run with A never written"
    assert diagnostic.notes[0].startswith("M1 multiplies a sum of A11 and A")


def test_other_numbers_than_rationals_are_refused() -> None:
    text = print_scheme(load("strassen").scheme).replace("<2,2,2;7>", "<2,2,2;7> over Z/2")
    with pytest.raises(BilinearError, match=r"error\[E551\].*Z and Q, and strassen is over Z/2"):
        find_in_place(parse_source(Source("two.bl", text)).schemes[0])


@pytest.mark.parametrize("options", [{"keep": ("C",)}, {"temporaries": -1}, {"effort": 0}, {"few_launches": True, "overwrite": True}])
def test_options_without_meaning_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(BilinearError, match="E553"):
        find_in_place(load("strassen").scheme, **options)  # type: ignore[arg-type]


@needs_folder
@pytest.mark.parametrize(
    ("part", "stages"), [("alpha_tensor/2x3x4_m20_ZT", 4), ("ZT/4x4x4_m49_ZT", 4), ("eliminated/smirnov336-40-657", 5), ("ZT/2x4x4_m26", 4)]
)
def test_published_schemes_are_run_in_place(part: str, stages: int) -> None:
    scheme = next(read for name, read in published().items() if part in name)()
    schedule = find_in_place(scheme, seconds=0.0)
    assert len(widths(schedule)) <= stages
    assert computes(prepare(scheme, schedule, 1, "restore").schedule, trials=1)
