"""Schedules of several levels proved by their levels, tensor products by their factors: verdicts are those of the whole, on mutants too."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from each_case import each

from bilinear.algebra.composition import tensor
from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.schedule import BETA, Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Stage, Target
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import Level, authored_schedule, lower_levels, prepare_levels
from bilinear.passes.order_products import mark_first_writes
from bilinear.source import Source
from bilinear.verify.composed import by_levels, is_product_of, prove_composed, prove_large
from bilinear.verify.schedule import prove_schedule
from bilinear.verify.scheme import multiplies, prove_scheme

CASES = [
    ("preserve", "winograd", "winograd"),
    ("preserve", "strassen", "winograd_223"),
    ("preserve", "karstadt_schwartz", "hopcroft_kerr"),
    ("preserve", "accurate_sqrt3", "winograd"),
    ("preserve", "accurate_halves", "accurate_sqrt3"),
    ("preserve", "winograd_depth_first", "winograd"),
    ("restore", "msmes", "msmes"),
    ("restore", "hopcroft_kerr_in_place", "msmes"),
    ("consume", "winograd_in_place", "winograd_in_place"),
]
MUTANTS, FEW = 60, 6  # Mutants of a case, and of one with a root, where the algebra takes a second for each.


OTHER = """
scheme other <1,1,1;1> over Q[sqrt(2)]
  M1 = [sqrt(2)] A11 * B11
  C11 = [1/2*sqrt(2)] M1
"""


def levels_and_flat(inputs: str, names: Sequence[str]) -> tuple[list[Schedule], Schedule]:
    authored = [authored_schedule(loaded.scheme, loaded.schedule, inputs) for loaded in map(load, names)]
    return [mark_first_writes(level) for level in authored], lower_levels(authored, inputs)


def other(block: Block, schedule: Schedule, chance: random.Random) -> Block:
    return chance.choice([b for b in schedule.space(block.space).blocks if b != block] or [block])


def changed_form(old: Form, inputs: int, chance: random.Random) -> Form:
    """One term with another coefficient, another value, or none."""
    if not old:
        return ((0, 1),)
    at = chance.randrange(len(old))
    i, c = old[at]
    new = chance.choice([[(i, -c)], [(i, c + 1)], [(i, c * Fraction(1, 2))], [(chance.randrange(inputs), c)], []])
    return form([*old[:at], *new, *old[at + 1 :]])


def changed_map(block_map: BlockMap, schedule: Schedule, chance: random.Random) -> BlockMap:
    old, kind = block_map.map, chance.randrange(5)
    if kind == 0 and old.steps:
        at = chance.randrange(len(old.steps))
        steps = (*old.steps[:at], changed_form(old.steps[at], old.inputs + at, chance), *old.steps[at + 1 :])
        return replace(block_map, map=replace(old, steps=steps))
    at = chance.randrange(len(old.outputs))
    if kind == 1:
        targets = (*block_map.targets[:at], other(block_map.targets[at], schedule, chance), *block_map.targets[at + 1 :])
        return replace(block_map, targets=targets)
    if kind == 2:
        kept = (*block_map.kept[:at], chance.choice([0, 1, BETA]), *block_map.kept[at + 1 :])
        return replace(block_map, kept=kept)
    outputs = (*old.outputs[:at], changed_form(old.outputs[at], old.inputs + len(old.steps), chance), *old.outputs[at + 1 :])
    return replace(block_map, map=LinearMap(old.inputs, outputs, old.steps))


def changed_product(product: Product, schedule: Schedule, chance: random.Random) -> Product:
    at, kind = chance.randrange(len(product.targets)), chance.randrange(6)
    if kind < 2:
        side = "left" if kind else "right"
        return replace(product, **{side: other(getattr(product, side), schedule, chance)})  # type: ignore[arg-type]
    target = product.targets[at]
    changes: list[tuple[Target, ...]] = [
        (),
        (replace(target, coefficient=target.coefficient * chance.choice([Fraction(-1), Fraction(2), Fraction(1, 3)])),),
        (replace(target, block=other(target.block, schedule, chance)),),
        (replace(target, kept=chance.choice([0, 1, BETA])),),
    ]
    return replace(product, targets=(*product.targets[:at], *changes[kind - 2], *product.targets[at + 1 :]))


def mutant(schedule: Schedule, chance: random.Random) -> Schedule:
    """The schedule with one step changed, or with two stages swapped, or without one."""
    at, stages = chance.randrange(len(schedule.stages)), list(schedule.stages)
    if chance.random() < 0.05:
        with_other = chance.randrange(len(stages))
        stages[at], stages[with_other] = stages[with_other], stages[at]
        return replace(schedule, stages=tuple(stages))
    stage: Stage = stages[at]
    if isinstance(stage, LinearStage):
        which = chance.randrange(len(stage.maps))
        new = changed_map(stage.maps[which], schedule, chance)
        stages[at] = replace(stage, maps=(*stage.maps[:which], new, *stage.maps[which + 1 :]))
    else:
        which = chance.randrange(len(stage.products))
        product = changed_product(stage.products[which], schedule, chance)
        stages[at] = ProductStage((*stage.products[:which], product, *stage.products[which + 1 :]))
    return replace(schedule, stages=tuple(stages))


@each("case", CASES)
def test_what_the_passes_make_is_proved_by_its_levels(case: tuple[str, ...]) -> None:
    levels, flat = levels_and_flat(case[0], case[1:])
    by_algebra, proof = prove_schedule(flat), by_levels(flat, levels)
    assert by_algebra.holds and proof is not None
    assert replace(by_algebra, stages=()) == proof


@pytest.mark.sample(1, slow=3)
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_no_mutant_gets_another_verdict_than_by_algebra(case: tuple[str, ...]) -> None:
    levels, flat = levels_and_flat(case[0], case[1:])
    chance, wrong = random.Random(24), 0
    count = FEW if any("sqrt3" in name for name in case) else MUTANTS
    for _ in range(count):
        changed = mutant(flat, chance)
        holds = prove_schedule(changed).holds
        proof = by_levels(changed, levels)
        assert proof is None or holds
        assert holds or not prove_composed(changed, levels).holds
        wrong += not holds
    assert wrong > count // 3


def test_levels_over_two_rings_are_refused() -> None:
    first, second = load("accurate_sqrt3").scheme, parse_source(Source("other.bl", OTHER)).schemes[0]
    with pytest.raises(BilinearError) as caught:
        prepare_levels((Level(first), Level(load("winograd").scheme), Level(second)), "preserve")
    assert caught.value.diagnostics[0].code == "E408"
    assert "accurate_sqrt3 is over Q[sqrt(3)], and other over Q[sqrt(2)]" in caught.value.diagnostics[0].message


def test_a_wrong_level_proves_nothing() -> None:
    levels, flat = levels_and_flat("preserve", ("strassen", "winograd"))
    chance = random.Random(1)
    wrong = [changed for _ in range(40) if not prove_schedule(changed := mark_first_writes(mutant(levels[0], chance))).holds]
    assert len(wrong) > 20
    for level in wrong:
        alone = lower_levels([replace(level, stages=level.stages), levels[1]], "preserve")
        assert by_levels(alone, [level, levels[1]]) is None
        assert by_levels(flat, [level, levels[1]]) is None


def test_other_levels_than_its_own_prove_nothing_and_algebra_decides() -> None:
    levels, flat = levels_and_flat("preserve", ("winograd", "hopcroft_kerr"))
    assert by_levels(flat, levels) is not None
    assert by_levels(flat, levels[::-1]) is None
    assert by_levels(flat, levels[:1]) is None
    assert prove_composed(flat, levels[::-1]).holds


@pytest.mark.slow
def test_one_level_of_a_large_scheme_is_proved_by_its_terms() -> None:
    scheme = load("dps_444 (x) laderman").scheme
    schedule = mark_first_writes(authored_schedule(scheme, None, "preserve"))
    proof = prove_large(schedule, scheme)
    assert proof is not None and proof.holds and proof.restored == ("A", "B")
    assert [fact.kind for fact in proof.stages] == ["linear", "product", "linear"]
    chance = random.Random(3)
    changed = [mutant(schedule, chance) for _ in range(4)]
    assert all(prove_large(other, scheme) is None for other in changed)
    assert prove_large(schedule, scheme, is_proved=True) == proof
    assert all(prove_large(other, scheme, is_proved=True) is None for other in changed)
    assert prove_large(schedule, load("laderman (x) dps_444").scheme, is_proved=True) is None
    small = load("strassen").scheme
    assert prove_large(mark_first_writes(authored_schedule(small, None, "preserve")), small) is None


PAIRS = [
    ("winograd", "hopcroft_kerr"),
    ("winograd_223", "accurate_halves"),
    ("accurate_sqrt3", "laderman"),
    ("strassen (x) winograd", "split_k"),
]


def composed(outer: str, inner: str) -> Scheme:
    return tensor(load(outer).scheme, load(inner).scheme)


def with_coefficient(scheme: Scheme, table: str, row: int, place: int) -> Scheme:
    """The scheme with half of one coefficient more, in a table without named sums."""
    linear = LinearMap(getattr(scheme, table).inputs, getattr(scheme, table).matrix)
    form = tuple((i, c + Fraction(1, 2) if number == place else c) for number, (i, c) in enumerate(linear.outputs[row]))
    outputs = (*linear.outputs[:row], form, *linear.outputs[row + 1 :])
    changed: dict[str, Any] = {table: replace(linear, outputs=outputs)}
    return replace(scheme, **changed)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_product_is_proved_with_the_facts_of_its_own_equations(pair: tuple[str, str]) -> None:
    scheme = composed(*pair)
    assert is_product_of(scheme, multiplies)
    alone = replace(scheme, factors=())
    assert not is_product_of(alone, multiplies)
    assert prove_scheme(scheme) == prove_scheme(alone) and prove_scheme(alone).holds


@pytest.mark.parametrize("table", ["u", "v", "w"])
def test_a_changed_product_falls_back_on_its_equations_and_fails(table: str) -> None:
    scheme = composed("winograd", "hopcroft_kerr")
    for row in range(0, 12, 5):
        wrong = with_coefficient(scheme, table, row, 0)
        assert not is_product_of(wrong, multiplies)
        assert not prove_scheme(wrong).holds


def test_factors_that_are_wrong_or_of_another_scheme_prove_nothing() -> None:
    wrong = with_coefficient(load("strassen").scheme, "w", 0, 0)
    product = tensor(wrong, load("winograd").scheme)
    assert not is_product_of(product, multiplies) and not prove_scheme(product).holds
    scheme = composed("winograd", "hopcroft_kerr")
    others = composed("strassen", "hopcroft_kerr").factors
    for factors in (scheme.factors[::-1], others, scheme.factors[:1]):
        assert not is_product_of(replace(scheme, factors=factors), multiplies)
        assert prove_scheme(replace(scheme, factors=factors)).holds


def test_approximate_and_modular_products_are_decided_by_their_equations() -> None:
    scheme = tensor(load("bini").scheme, load("split_k").scheme)
    assert not is_product_of(scheme, multiplies)
    assert prove_scheme(scheme).holds
