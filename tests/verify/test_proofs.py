"""The proofs against exact execution: they accept what computes the product, and refuse what does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from oracle import computes, scheme_computes

from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Target
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import prepare
from bilinear.passes.nest_levels import nest_levels
from bilinear.passes.order_products import mark_first_writes
from bilinear.reporting.shipped import library_rows
from bilinear.verify.elimination import invert_stage
from bilinear.verify.schedule import prove_schedule
from bilinear.verify.scheme import prove_scheme

NAMES = tuple(row.name for row in library_rows())


@pytest.mark.parametrize("name", NAMES)
def test_shipped_schemes_are_proved_and_compute_the_product(name: str) -> None:
    scheme = load(name).scheme
    proof = prove_scheme(scheme)
    assert proof.holds
    assert proof.equations == (scheme.m * scheme.k) * (scheme.k * scheme.n) * (scheme.m * scheme.n)
    assert scheme_computes(scheme) == (proof.order is None)


def mutated_schemes(scheme: Scheme) -> Iterator[Scheme]:
    """Every coefficient of the expanded tables replaced by -1, 0 and 1."""
    for table in ("u", "v", "w"):
        linear: LinearMap = getattr(scheme, table)
        for row, old in enumerate(linear.matrix):
            for column in range(linear.inputs):
                for value in (-1, 0, 1):
                    if dict(old).get(column, 0) == value:
                        continue
                    rows = list(linear.matrix)
                    rows[row] = form({**dict(old), column: value})
                    changed: dict[str, Any] = {table: LinearMap(linear.inputs, tuple(rows))}
                    yield replace(scheme, **changed)


@pytest.mark.parametrize("name", ["strassen", "winograd"])
def test_every_verdict_on_a_mutated_scheme_agrees_with_exact_execution(name: str) -> None:
    verdicts = {True: 0, False: 0}
    for mutant in mutated_schemes(load(name).scheme):
        holds = prove_scheme(mutant).holds
        assert holds == scheme_computes(mutant)
        verdicts[holds] += 1
    assert verdicts[False] > 100


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
    assert prepared.schedule_proof.restored == ("A", "B")
    assert computes(prepared.schedule, trials=2)


def test_interleaved_levels_agree_with_exact_execution() -> None:
    schedule = load("msmes").schedule
    assert isinstance(schedule, Schedule)
    assert computes(mark_first_writes(nest_levels([schedule] * 2)))


def mutated_schedules(schedule: Schedule) -> Iterator[Schedule]:
    """Every step dropped, negated, or moved to another block; every target dropped or negated."""
    for position, stage in enumerate(schedule.stages):
        changed = _linear_mutants(stage) if isinstance(stage, LinearStage) else _product_mutants(stage)
        for mutant in changed:
            yield replace(schedule, stages=(*schedule.stages[:position], mutant, *schedule.stages[position + 1 :]))


def _linear_mutants(stage: LinearStage) -> Iterator[LinearStage]:
    for which, block_map in enumerate(stage.maps):
        for i, target in enumerate(block_map.targets):
            own = block_map.sources.index(target)
            row = dict(block_map.map.outputs[i])
            other = next(j for j in row if j != own)
            rows = [form({own: 1}), form({**row, other: -row[other]}), form({own: 1, (other + 1) % len(block_map.sources): row[other]})]
            for changed in rows:
                outputs = (*block_map.map.outputs[:i], changed, *block_map.map.outputs[i + 1 :])
                mutant = BlockMap(block_map.sources, block_map.targets, LinearMap(block_map.map.inputs, outputs))
                yield replace(stage, maps=(*stage.maps[:which], mutant, *stage.maps[which + 1 :]))


def _product_mutants(stage: ProductStage) -> Iterator[ProductStage]:
    for i, product in enumerate(stage.products):
        moved = replace(product, left=Block("A", 1 - product.left.row, product.left.column))
        changed = [moved, replace(product, targets=())]
        for j, target in enumerate(product.targets):
            rest = (*product.targets[:j], *product.targets[j + 1 :])
            changed += [replace(product, targets=rest), replace(product, targets=(*rest, replace(target, coefficient=-target.coefficient)))]
        for mutant in changed:
            yield ProductStage((*stage.products[:i], mutant, *stage.products[i + 1 :]))
        yield ProductStage((*stage.products[:i], *stage.products[i + 1 :]))


def test_every_verdict_on_a_mutated_schedule_agrees_with_exact_execution() -> None:
    loaded = load("msmes")
    assert isinstance(loaded.schedule, Schedule)
    refused = 0
    for mutant in map(mark_first_writes, mutated_schedules(loaded.schedule)):
        holds = prove_schedule(mutant).holds
        assert holds == (computes(mutant) and prove_schedule(mutant).recursive)
        refused += not holds
    assert refused > 60


def in_place(*stages: LinearStage | ProductStage, scheme: str = "plain") -> Schedule:
    return Schedule("test", scheme, 2, 2, 2, stages, in_place=True, restores=("A", "B"))


def test_two_steps_that_write_one_block_are_a_hazard() -> None:
    a = [Block("A", 0, 0), Block("A", 0, 1), Block("A", 1, 0)]
    twice = BlockMap(tuple(a), (a[0], a[0]), LinearMap(3, (form({0: 1, 1: 1}), form({0: 1, 2: 1}))))
    codes = [d.code for d in prove_schedule(in_place(LinearStage((twice,)))).failures]
    assert "E401" in codes


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
