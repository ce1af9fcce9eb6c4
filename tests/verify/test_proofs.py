"""The proofs against exact execution: they accept what computes the product, and refuse what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oracle import computes, scheme_computes

from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Target
from bilinear.lowering.prepare import prepare
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
