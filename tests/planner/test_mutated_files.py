"""Files of devices and of plans with one field changed: what is read can be planned with and printed, the rest is a diagnostic."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from each_case import each

import bilinear
from bilinear.errors import BilinearError
from bilinear.ir.element import COMPLEX, ELEMENTS
from bilinear.ir.tile import SMALL, USUAL
from bilinear.methods.planning import plan_from_json
from bilinear.planner.device_files import device_json, load_device, parse_device
from bilinear.planner.kept_plans import plan_json
from bilinear.planner.plan import Plan
from bilinear.planner.roofline import roofline, streaming
from bilinear.reporting.plans import plan_table

H200 = load_device("h200")
LOST = object()
VALUES: tuple[Any, ...] = (
    LOST,
    None,
    True,
    0,
    -1,
    5e-324,
    1e-17,
    1e17,
    float("nan"),
    10**400,
    3,
    "x",
    [],
    {},
    [[1, 1]],
    "library",
    "restore",
    "pairs",
)
DTYPES = (*ELEMENTS, *COMPLEX)
SHAPES = ((1024, 1024, 1024), (4096, 64, 4096), (1000, 8, 8))


def mutants(whole: Any, generator: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """Fields and documents in which one field, chosen evenly among those of all depths, has another value or is missing."""
    places = [*_places(whole)]
    for _ in range(count):
        changed = copy.deepcopy(whole)
        *above, field = generator.choice(places)
        holder = changed
        for key in above:
            holder = holder[key]
        value = generator.choice(DTYPES if field == "dtype" else VALUES)
        if value is LOST:
            del holder[field]
        else:
            holder[field] = value
        yield f"{above} {field} {value}", json.dumps(changed)


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = value if isinstance(value, dict) else range(min(2, len(value))) if isinstance(value, list) else ()
    for key in keys:
        yield (*above, key)
        yield from _places(value[key], (*above, key))


def small_description() -> dict[str, Any]:
    """The H200's description with a few tiles of each kind, and few points of the library's times."""
    elements = tuple(
        (dtype, replace(own, tiles=tuple(tile for tile in own.tiles if tile.name in (USUAL, SMALL)))) for dtype, own in H200.elements
    )
    found: dict[str, Any] = json.loads(
        device_json(replace(H200, elements=elements, thin=tuple((d, replace(t, tiles=t.tiles[:3])) for d, t in H200.thin)))
    )
    for thin in found["thin"].values():
        thin["library"] |= {name: column[:8] for name, column in thin["library"].items() if name != "kernels"}
    return found


def is_refused(text: str, generator: random.Random) -> bool:
    """Read a description and plan with it; whether a diagnostic came instead."""
    try:
        device = parse_device(text.encode(), "mine.json")
        m, k, n = generator.choice(SHAPES)
        dtype, accuracy = generator.choice((("float32", None), ("float64", 1e-3)))
        plan = bilinear.plan(m, k, n, dtype, device=device, accuracy=accuracy)
        bilinear.plan_gram(1024, 64, dtype, device=device, accuracy=accuracy)
        assert roofline(plan, device) is not None and (streaming(plan, device) or True)
        assert plan_table(plan, explain=True)
    except BilinearError:
        return True
    return False


def test_a_description_with_a_changed_field_plans_or_is_refused() -> None:
    generator = random.Random(1)
    refused = {field: is_refused(text, generator) for field, text in mutants(small_description(), generator, 60)}
    assert {*refused.values()} == {True, False}


@pytest.mark.parametrize("change", [{"clock": 5e-324}, {"bandwidth": 1e-300}, {"clok": 1}])
def test_absurd_figures_and_fields_that_nothing_reads_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(BilinearError, match=rf"E542.*{next(iter(change))}"):
        parse_device(json.dumps(small_description() | change).encode(), "mine.json")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rates_that_a_description_lacks_are_not_needed(dtype: str) -> None:
    device = replace(H200, thin=(), digits=(), rounded=())
    plan = bilinear.plan_gram(4096, 64, dtype, device=device, accuracy="classical" if dtype == "float64" else 1e-2)
    assert plan.seconds and bilinear.plan(4096, 64, 4096, dtype, device=device, explain=True).chosen.ms


@each("accuracy", [None, 1e-3])
@each("dtype", ["complex64", "complex128", "float16", "bfloat16", "int8"])
def test_gram_is_planned_for_the_types_that_are_cut_by_time(dtype: str, accuracy: float | None) -> None:
    with pytest.raises(BilinearError, match=f"E543.*no plans of A\\*A\\^T for dtype='{dtype}'"):
        bilinear.plan_gram(4096, 4096, dtype, device="h200", accuracy=accuracy)


def plans() -> Iterator[Plan]:
    yield bilinear.plan(8192, 8192, 8192, "float32", device="h200", workspace=2**26)
    yield bilinear.plan(4096, 64, 4096, "float32", device="h200")
    yield bilinear.plan(4096, 4096, 4096, "complex64", device="h200")
    yield bilinear.plan(4096, 4096, 4096, "float64", device="h200", levels=("winograd",))


def test_a_plan_with_a_changed_field_is_read_or_refused() -> None:
    """The type of the problem is among the fields: a plan of real numbers is none of complex ones."""
    generator = random.Random(2)
    for plan in plans():
        whole = json.loads(plan_json(replace(plan, candidates=plan.candidates[:2])))
        others = [json.dumps(whole | {"problem": whole["problem"] | {"dtype": dtype}}) for dtype in DTYPES]
        for text in (*others, *(text for _, text in mutants(whole, generator, 60))):
            try:
                read = plan_from_json(text, "plan.json")
            except BilinearError:
                continue
            assert plan_table(read, explain=True) and plan_from_json(plan_json(read), "again") == read
