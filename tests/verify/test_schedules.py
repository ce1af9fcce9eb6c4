"""Every verdict on a mutated schedule agrees with exact execution: all orders of the steps of a stage, and two levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from each_case import each
from oracle import computes, scheme_computes
from schedule_oracle import computes_in_every_order, computes_interleaved

from bilinear.analysis.block_maps import restrict
from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import AnySchedule, Block, BlockMap, LinearStage, Product, ProductStage, ScaledSchedule, Schedule, Stage, Target
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import prepare
from bilinear.passes.nest_levels import nest_levels
from bilinear.passes.order_products import mark_first_writes
from bilinear.reporting.shipped import library_rows
from bilinear.source import Source
from bilinear.verify.elimination import invert_stage
from bilinear.verify.schedule import prove_schedule
from bilinear.verify.scheme import prove_scheme

WINOGRAD_IN_PLACE = """
schedule winograd_ip of winograd: C = A*B, in-place
  source "The order of fflas-ffpack's Winograd_LR_S, which uses the blocks of A, B and C alone and keeps neither operand."
  stage { C11 = A11 - A21 } ; stage { A21 += A22 } ; stage { C22 = B12 - B11 } ; stage { B12 = B22 - B12 }
  stage { C21 = C11 * B12 } ; stage { C12 = A21 - A11 } ; stage { C11 = A11 * B11 } ; stage { B11 = B22 - C22 }
  stage { A11 = A21 * C22 } ; stage { C22 = B11 - B21 } ; stage { A21 = A22 * C22 } ; stage { A22 = A12 - C12 }
  stage { C22 = C12 * B11 } ; stage { C22 += C11 } ; stage { C12 = A12 * B21 } ; stage { C11 += C12 }
  stage { C12 = C22 + A11 } ; stage { C22 += C21 } ; stage { C21 = C22 - A21 } ; stage { C22 += A11 }
  stage { A12 = A22 * B22 } ; stage { C12 += A12 }
"""
STRAIGHT = """
schedule straight of naive2x2: in-place, restores A B
  stage { C11 += A11*B11 ; C12 += A11*B12 ; C21 += A21*B11 ; C22 += A21*B12 }
  stage { C11 += A12*B21 ; C12 += A12*B22 ; C21 += A22*B21 ; C22 += A22*B22 }
"""


def written(text: str) -> AnySchedule:
    return parse_source(Source("x.bl", text)).schedules[0]


def shipped(name: str) -> AnySchedule:
    schedule = load(name).schedule
    assert schedule is not None
    return schedule


SCHEDULES = {"msmes": shipped("msmes"), "winograd_ip": written(WINOGRAD_IN_PLACE), "straight": written(STRAIGHT)}


def scheme_of(schedule: AnySchedule) -> Scheme:
    return load(schedule.scheme).scheme


def with_stage(schedule: AnySchedule, position: int, stages: tuple[Stage, ...], taken: int = 1) -> AnySchedule:
    return replace(schedule, stages=(*schedule.stages[:position], *stages, *schedule.stages[position + taken :]))


def dropped_stages(schedule: AnySchedule) -> Iterator[AnySchedule]:
    for position in range(len(schedule.stages)):
        yield with_stage(schedule, position, ())


def swapped_stages(schedule: AnySchedule) -> Iterator[AnySchedule]:
    for position in range(len(schedule.stages) - 1):
        first, second = schedule.stages[position : position + 2]
        yield with_stage(schedule, position, (second, first), 2)


def merged_stages(schedule: AnySchedule) -> Iterator[AnySchedule]:
    """Neighbouring stages of one kind as one stage: hazards, unless they are independent."""
    for position in range(len(schedule.stages) - 1):
        first, second = schedule.stages[position : position + 2]
        if isinstance(first, LinearStage) and isinstance(second, LinearStage):
            yield with_stage(schedule, position, (LinearStage(first.maps + second.maps),), 2)
        if isinstance(first, ProductStage) and isinstance(second, ProductStage):
            yield with_stage(schedule, position, (ProductStage(first.products + second.products),), 2)


def changed_steps(schedule: AnySchedule) -> Iterator[AnySchedule]:
    """Every step dropped, with a sign flipped, or with a block changed, wherever a block stands."""
    for position, stage in enumerate(schedule.stages):
        for mutant in linear_mutants(stage, schedule) if isinstance(stage, LinearStage) else product_mutants(stage, schedule):
            yield with_stage(schedule, position, (mutant,))


def others(block: Block, schedule: AnySchedule) -> list[Block]:
    """The next block of the same space, and the block of another one that stands in the same place."""
    blocks = schedule.space(block.space).blocks
    near = [blocks[(blocks.index(block) + step) % len(blocks)] for step in (1, 2)]
    return [*near, block._replace(space="CA"[block.space == "C"])] if isinstance(schedule, ScaledSchedule) else near


Step = tuple[Block, list[tuple[Block, Coefficient]]]


def linear_mutants(stage: LinearStage, schedule: AnySchedule) -> Iterator[LinearStage]:
    for which, old in enumerate(stage.maps):
        steps: list[Step] = [(t, [(old.sources[i], c) for i, c in row]) for t, row in zip(old.targets, old.map.matrix, strict=True)]
        for i, (target, terms) in enumerate(steps):
            changed: list[Step] = [(target, [(target, 1)])]
            changed += [(target, [(b, -c) if b == flipped else (b, c) for b, c in terms]) for flipped, _ in terms]
            changed += [
                (target, [(new, c) if b == moved else (b, c) for b, c in terms]) for moved, _ in terms for new in others(moved, schedule)
            ]
            changed += [(new, terms) for new in others(target, schedule)]
            for step in changed:
                new_map = block_map([*steps[:i], step, *steps[i + 1 :]])
                yield replace(stage, maps=(*stage.maps[:which], new_map, *stage.maps[which + 1 :]))


def block_map(steps: list[Step]) -> BlockMap:
    sources = tuple(sorted({block for _, terms in steps for block, _ in terms}))
    rows = tuple(form((sources.index(block), c) for block, c in terms) for _, terms in steps)
    return BlockMap(sources, tuple(target for target, _ in steps), LinearMap(len(sources), rows))


def product_mutants(stage: ProductStage, schedule: AnySchedule) -> Iterator[ProductStage]:
    for i, product in enumerate(stage.products):
        changed: list[Product] = [replace(product, left=b) for b in others(product.left, schedule)]
        changed += [replace(product, right=b) for b in others(product.right, schedule)]
        for j, target in enumerate(product.targets):
            rest = [replace(target, coefficient=-target.coefficient), *(replace(target, block=b) for b in others(target.block, schedule))]
            changed += [with_targets(product, j, (new,)) for new in rest]
            changed.append(with_targets(product, j, ()))
        for mutant in changed:
            yield ProductStage((*stage.products[:i], mutant, *stage.products[i + 1 :]))
        yield ProductStage((*stage.products[:i], *stage.products[i + 1 :]))


def with_targets(product: Product, position: int, targets: tuple[Target, ...]) -> Product:
    return replace(product, targets=(*product.targets[:position], *targets, *product.targets[position + 1 :]))


def moved_steps(schedule: AnySchedule) -> Iterator[AnySchedule]:
    """Every step moved into the stage before or after, where that is of the same kind."""
    for position, stage in enumerate(schedule.stages):
        for neighbour in (position - 1, position + 1):
            other = schedule.stages[neighbour] if 0 <= neighbour < len(schedule.stages) else None
            for rest, longer in moves(stage, other):
                stages = list(schedule.stages)
                stages[position], stages[neighbour] = rest, longer
                yield replace(schedule, stages=tuple(stages))


def moves(stage: Stage, other: Stage | None) -> Iterator[tuple[Stage, Stage]]:
    """One step of a stage taken out and put at the end of the other stage."""
    if isinstance(stage, ProductStage) and isinstance(other, ProductStage):
        for i, product in enumerate(stage.products):
            rest = ProductStage((*stage.products[:i], *stage.products[i + 1 :]))
            yield rest, ProductStage((*other.products, product))
    if isinstance(stage, LinearStage) and isinstance(other, LinearStage):
        for which, old in enumerate(stage.maps):
            for target in old.targets:
                kept, taken = restrict(old, set(old.targets) - {target}), restrict(old, {target})
                rest_maps = (*stage.maps[:which], *((kept,) if kept.targets else ()), *stage.maps[which + 1 :])
                yield replace(stage, maps=rest_maps), replace(other, maps=(*other.maps, taken))


MUTATIONS = {"moved": moved_steps, "dropped": dropped_stages, "swapped": swapped_stages, "merged": merged_stages, "changed": changed_steps}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_schedules_themselves(name: str) -> None:
    schedule = mark_first_writes(SCHEDULES[name])
    proof = prove_schedule(schedule, scheme_of(schedule))
    assert proof.holds and proof.recursive and not proof.direct
    assert computes_in_every_order(schedule) and computes_interleaved(schedule)
    if isinstance(schedule, Schedule):
        assert prove_schedule(mark_first_writes(nest_levels([schedule] * 2))).holds


@pytest.mark.sample(6)
@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_verdict_on_a_mutant_agrees_with_exact_execution(name: str, mutation: str) -> None:
    original = SCHEDULES[name]
    scheme = scheme_of(original)
    verdicts = {True: 0, False: 0}
    for mutant in map(mark_first_writes, MUTATIONS[mutation](original)):
        proof = prove_schedule(mutant, scheme)
        right = computes_in_every_order(mutant)
        hazards = {d.code for d in proof.failures} - {"E404"}
        assert right == (not hazards), (mutant, proof.failures)
        if right:
            assert computes_interleaved(mutant) == proof.recursive, (mutant, proof.why_not)
            assert proof.holds or not proof.recursive
        verdicts[proof.holds] += 1
    assert verdicts[False] or (name == "straight" and mutation in ("swapped", "merged", "moved"))


NAMES = tuple(row.name for row in library_rows())


@each("name", NAMES)
def test_shipped_schemes_are_proved_and_compute_the_product(name: str) -> None:
    scheme = load(name).scheme
    proof = prove_scheme(scheme)
    assert proof.holds
    assert proof.equations == (scheme.m * scheme.k) * (scheme.k * scheme.n) * (scheme.m * scheme.n)
    assert scheme_computes(scheme) == (proof.order is None)


def test_a_wrong_scheme_is_refused_by_the_name_of_the_equation() -> None:
    scheme = load("strassen").scheme
    rows = list(scheme.w.outputs)
    rows[0] = form({**dict(rows[0]), 4: 1})
    proof = prove_scheme(replace(scheme, w=LinearMap(7, tuple(rows))))
    assert [str(equation) for equation in proof.failures] == [
        "A11*B22 in C11: found 2, needed 0",
        "A12*B22 in C11: found 2, needed 0",
    ]
    with pytest.raises(BilinearError) as caught:
        proof.require()
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E301"
    assert "2 of 64 Brent equations fail" in diagnostic.message
    assert diagnostic.span is not None
    assert diagnostic.span.text.strip().startswith("M5")


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_msmes_is_proved_in_place_at_every_level(levels: int) -> None:
    loaded = load("msmes")
    prepared = prepare(loaded.scheme, loaded.schedule, levels, "restore")
    assert prepared.authored_proof.recursive
    assert prove_schedule(prepared.schedule).restored == ("A", "B")
    assert computes(prepared.schedule, trials=2)


def in_place(*stages: LinearStage | ProductStage, scheme: str = "plain") -> Schedule:
    return Schedule("test", scheme, 2, 2, 2, stages, in_place=True, restores=("A", "B"))


def test_products_that_share_an_operand_are_a_hazard_in_place() -> None:
    left, right = Block("A", 0, 0), (Block("B", 0, 0), Block("B", 0, 1))
    stage = ProductStage(tuple(Product(left, b, (Target(Block("C", 0, j)),)) for j, b in enumerate(right)))
    other = Block("A", 0, 1)
    writes = [LinearStage((BlockMap((left, other), (left,), LinearMap(2, (form({0: 1, 1: c}),))),)) for c in (1, -1)]
    proof = prove_schedule(mark_first_writes(in_place(writes[0], stage, writes[1])))
    assert "E404" in [d.code for d in proof.failures]
    assert not proof.recursive
    assert "two products of stage 2 share the operand A11" in proof.why_not
    assert "E404" not in [d.code for d in prove_schedule(mark_first_writes(in_place(stage))).failures]  # nothing ever writes A


def test_a_product_that_is_not_the_schemes_is_named() -> None:
    loaded = load("msmes")
    assert loaded.schedule is not None
    stages = list(loaded.schedule.stages)
    assert isinstance(stages[1], ProductStage)
    first, *rest = stages[1].products
    stages[1] = ProductStage((replace(first, right=Block("B", 1, 1)), *rest))
    proof = prove_schedule(mark_first_writes(replace(loaded.schedule, stages=tuple(stages))), loaded.scheme)
    wrong = next(d for d in proof.failures if d.code == "E403")
    assert "A21*B22 is not a product of strassen" in wrong.message


def test_inverse_stages_bring_every_linear_stage_back() -> None:
    loaded = load("msmes")
    assert loaded.schedule is not None
    for stage in loaded.schedule.stages:
        if isinstance(stage, LinearStage):
            both = replace(loaded.schedule, stages=(stage, invert_stage(stage)), restores=("A", "B"))
            assert prove_schedule(both).restored == ("A", "B")
