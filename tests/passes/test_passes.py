"""Passes: what they promise, counted, and checked by exact execution; and levels of different schedules, nested."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from each_case import each
from oracle import computes

from bilinear.algebra.maps import fold_bases
from bilinear.analysis.block_maps import components
from bilinear.codegen.lower import schedule_to_launches
from bilinear.frontend import load, parse_source
from bilinear.ir.element import FLOAT64
from bilinear.ir.kernel import ProductKernel
from bilinear.ir.linear import LinearMap
from bilinear.ir.placement import ATOMICS
from bilinear.ir.schedule import ALPHA, BETA, Block, BlockMap, LinearStage, Product, ProductStage, Result, Schedule, Space, Stage, Target
from bilinear.lowering.prepare import prepare
from bilinear.passes.fuse_linear_stages import fuse_linear_stages
from bilinear.passes.imply_scaling import why_not_implied
from bilinear.passes.nest_levels import nest_levels, why_not_nested
from bilinear.passes.order_products import colour_products, mark_first_writes
from bilinear.passes.scheme_to_schedule import scheme_to_schedule
from bilinear.source import Source
from bilinear.verify.schedule import prove_schedule

A11, B11, B21, C11 = Block("A", 0, 0), Block("B", 0, 0), Block("B", 1, 0), Block("C", 0, 0)

SCHEMES = ("naive2x2", "strassen", "winograd", "laderman", "hopcroft_kerr", "karstadt_schwartz", "winograd_223")


def traffic(schedule: Schedule) -> float:
    """Blocks that the linear stages read and write, in units of N*N elements of a square problem."""
    maps = [m for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps]
    return sum(len(m.sources) + len(m.targets) for m in maps) / (schedule.m * schedule.k)


def msmes() -> Schedule:
    schedule = load("msmes").schedule
    assert isinstance(schedule, Schedule)
    return schedule


@each("name", SCHEMES)
@each("levels", [1, 2])
def test_the_three_phases_compute_the_product(name: str, levels: int) -> None:
    loaded = load(name)
    prepared = prepare(loaded.scheme, None, levels, "preserve")
    assert computes(prepared.schedule, trials=1)
    written = {t.space for stage in prepared.schedule.stages if isinstance(stage, LinearStage) for m in stage.maps for t in m.targets}
    assert not written & {"A", "B"}


def test_consumed_inputs_skip_the_restoration() -> None:
    loaded = load("msmes")
    kept, consumed = (prepare(loaded.scheme, loaded.schedule, 1, inputs).schedule for inputs in ("restore", "consume"))
    assert len(consumed.stages) == len(kept.stages) - 1
    assert computes(consumed)


def test_fusing_leaves_three_maps_and_two_product_stages_of_msmes() -> None:
    kinds = [type(stage) for stage in fuse_linear_stages(msmes()).stages]
    assert kinds == [LinearStage, ProductStage, LinearStage, ProductStage, LinearStage]


def test_traffic_of_msmes_falls_below_the_unfused_counts() -> None:
    assert traffic(fuse_linear_stages(msmes())) == 10
    assert traffic(fuse_linear_stages(nest_levels([msmes()] * 2))) <= 18.25
    assert traffic(fuse_linear_stages(nest_levels([msmes()] * 3))) <= 33.4


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_colour_adds_to_no_block_twice_and_every_block_has_one_first_write(levels: int) -> None:
    loaded = load("msmes")
    schedule = prepare(loaded.scheme, loaded.schedule, levels, "restore").schedule
    firsts = []
    for stage in schedule.stages:
        if isinstance(stage, ProductStage):
            targets = [t.block for p in stage.products for t in p.targets]
            assert len(targets) == len(set(targets))
            firsts += [t.block for p in stage.products for t in p.targets if t.kept == BETA]
    assert sorted(firsts) == sorted(schedule.space("C").blocks)


@each("levels", [1, 2])
@each(("name", "groups"), [("msmes", 4), ("winograd_in_place", 4), ("hopcroft_kerr_in_place", 7), ("laderman_in_place", 9)])
def test_at_once_products_only_add_and_colours_are_the_fewest_groups(name: str, groups: int, levels: int) -> None:
    loaded = load(name)
    prepared = prepare(loaded.scheme, loaded.schedule, levels, "restore", contention=ATOMICS)
    schedule, costs = prepared.schedule, prepared.authored_proof.costs
    assert computes(schedule, trials=1)
    assert sorted(block for stage in schedule.stages for block, kept in stage.writes if kept == BETA) == sorted(schedule.space("C").blocks)
    products = [(x.kernel, x.first, x.grid.y) for x in schedule_to_launches(schedule, FLOAT64) if isinstance(x.kernel, ProductKernel)]
    assert len(products) == sum(isinstance(stage, ProductStage) for stage in schedule.stages)
    for kernel, begin, count in products:
        own = kernel.products[begin : begin + count]
        written = [d for p in own for d in kernel.destinations[p.first_destination : p.first_destination + p.destinations]]
        places = Counter((d.space, d.row, d.column) for d in written)
        assert all(d.is_contended == (places[d.space, d.row, d.column] > 1) for d in written)
        assert all(d.kept == "1" for d in written if d.is_contended)
    coloured = colour_products(prepared.authored)
    assert costs is not None
    assert sum(costs.groups) == groups == sum(isinstance(stage, ProductStage) for stage in coloured.stages)


def test_parts_of_a_map_share_no_written_block() -> None:
    for levels in (1, 2):
        for stage in fuse_linear_stages(nest_levels([msmes()] * levels)).stages:
            if isinstance(stage, LinearStage):
                for block_map in stage.maps:
                    parts = components(block_map)
                    written = [set(part.targets) for part in parts]
                    read = [set(part.sources) for part in parts]
                    for i, targets in enumerate(written):
                        assert not any(targets & (written[j] | read[j]) for j in range(len(parts)) if j != i)


def test_folding_bases_keeps_the_tables_and_the_shared_sums() -> None:
    text = """scheme x <1,2,1;2>
      basis A { A11 += 2 A12 }
      basis B { B21 -= 2 B11 }
      basis C { C11 = 1/2 C11 }
      M1 = A11*B11 ; M2 = A12*B21 ; C11 = 2 M1 + 2 M2"""
    scheme = parse_source(Source("x.bl", text)).schemes[0]
    folded = fold_bases(scheme)
    assert folded.bases is None and folded.tables == scheme.tables
    assert folded.u.steps == (((0, 1), (1, 2)),)
    assert computes(prepare(scheme, None, 2, "preserve").schedule, trials=1)


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        (("X = C11", "C11 = [alpha] A11*B11", "C11 += [beta] X"), "C11 is not added to"),
        (("X = C11", "X = [alpha] A11*B11 + [beta] X", "C11 = X"), "a product is added to beta times X"),
        (("X = [beta] C11", "C11 = [beta] C11 + [alpha] A11*B11"), "a sum in X is scaled by beta"),
    ],
)
def test_what_does_not_keep_c_as_a_lowered_schedule_does_is_proved_and_not_lowered(stages: tuple[str, ...], why: str) -> None:
    """Each computes C = alpha*A*B + beta*C; without the steps' own scaling it would compute something else."""
    body = "".join(f"  stage {{ {step} }}\n" for step in stages)
    text = f"scheme one <1,1,1;1>\n  M1 = A11*B11\n  C11 = M1\nschedule s of one: C = alpha*A*B + beta*C, temporary X\n{body}"
    module = parse_source(Source("x.bl", text))
    (schedule,) = module.schedules
    assert prove_schedule(schedule, module.schemes[0]).holds
    assert why_not_implied(schedule) == why


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        (LinearStage((BlockMap((C11,), (B21,), LinearMap(1, (((0, 1),),))),)), "B21 takes up blocks of another size"),
        (ProductStage((Product(A11, B11, (Target(B21, kept=0),)),)), "a product goes into B21, which has not the size of blocks of C"),
        (ProductStage((Product(B11, B21, (Target(C11, 0, 1),)),)), "the operand B11 does not hold a block of the size of A's"),
    ],
)
def test_a_step_between_blocks_of_several_sizes_is_not_lowered(stage: Stage, why: str) -> None:
    """The first two write what nothing reads, so that the schedule is right for the problems where the sizes agree."""
    products = [ProductStage((Product(Block("A", 0, p), Block("B", p, 0), (Target(C11, kept=p if p else BETA),)),)) for p in (0, 1)]
    right = Schedule("two", "two", 1, 2, 1, tuple(products))
    assert why_not_implied(right) == ""
    assert why_not_implied(replace(right, stages=(*products, stage))) == why


def test_what_c_becomes_is_read_off_the_steps() -> None:
    """A schedule that overwrites a block of C anywhere has lost what C held."""
    product = Product(Block("A", 0, 0), Block("B", 0, 0), (Target(Block("C", 0, 0)),))
    keeps = Schedule("one", "one", 1, 1, 1, (ProductStage((product,)),))
    loses = replace(keeps, stages=(ProductStage((replace(product, targets=(Target(Block("C", 0, 0), kept=0),)),)),))
    assert (keeps.result, keeps.overwrites) == (Result(ALPHA, BETA), False)
    assert (loses.result, loses.overwrites) == (Result(ALPHA, 0), True)
    assert prove_schedule(mark_first_writes(keeps)).holds and prove_schedule(loses).holds and not prove_schedule(keeps).holds


def one_at_a_time() -> Schedule:
    """The classical 2 x 2 products, each overwriting a block; the second of a sum goes to a temporary and is added."""
    stages: list[Stage] = []
    for i in range(2):
        for j in range(2):
            result, spare = Block("C", i, j), Block("X", 0, 0)
            for p, target in enumerate((result, spare)):
                sign = -1 if p else 1
                stages.append(ProductStage((Product(Block("A", i, p), Block("B", p, j), (Target(target, sign, kept=0),)),)))
            stages.append(LinearStage((BlockMap((result, spare), (result,), LinearMap(2, (((0, 1), (1, -1)),))),)))
    return Schedule("one-at-a-time", "naive2x2", 2, 2, 2, tuple(stages), (Space("X", "C", 1, 1),))


def schedules() -> dict[str, Schedule]:
    msmes = load("msmes").schedule
    assert isinstance(msmes, Schedule)
    names = ("naive2x2", "strassen", "winograd", "hopcroft_kerr")
    return {"msmes": msmes, "one": one_at_a_time(), **{name: scheme_to_schedule(load(name).scheme) for name in names}}


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "names",
    [
        "winograd strassen",
        "hopcroft_kerr winograd",
        "winograd hopcroft_kerr",
        "msmes winograd",
        "msmes naive2x2",
        "msmes msmes winograd",
        "one",
        "one one",
        "one winograd",
        "one strassen winograd",
        "winograd one",
        "naive2x2 one one",
        "one hopcroft_kerr",
    ],
)
def test_mixed_levels_multiply(names: str) -> None:
    known = schedules()
    levels = [known[name] for name in names.split()]
    assert not any(why_not_nested(outer, inner) for outer, inner in pairwise(levels))
    flat = mark_first_writes(colour_products(fuse_linear_stages(nest_levels(levels))))
    assert flat.levels == len(levels) and flat.overwrites == levels[0].overwrites
    prove_schedule(flat).require()
    assert computes(flat, trials=2)


@pytest.mark.parametrize(
    ("names", "why"),
    [("winograd msmes", "writes its operands"), ("msmes one", "overwrites its result"), ("one msmes", "writes its operands")],
)
def test_what_cannot_stand_below_what(names: str, why: str) -> None:
    outer, inner = (schedules()[name] for name in names.split())
    assert why in why_not_nested(outer, inner)


def test_a_schedule_that_overwrites_reads_nothing_of_c() -> None:
    schedule = one_at_a_time()
    assert mark_first_writes(schedule) is schedule
    assert prove_schedule(schedule).holds
    first, *others = schedule.stages
    assert isinstance(first, ProductStage)
    (product,) = first.products
    adding = ProductStage((Product(product.left, product.right, (Target(product.targets[0].block),)),))
    wrong = Schedule("adds", "naive2x2", 2, 2, 2, (adding, *others), schedule.workspaces)
    assert any(d.code == "E405" for d in prove_schedule(wrong).failures)
