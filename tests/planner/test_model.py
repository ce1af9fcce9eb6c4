"""The performance model: its counts beside the launches that the lowering makes, its limits, and descriptions of devices."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from each_case import each

from bilinear.codegen.lower import schedule_to_launches
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.element import ELEMENTS, FLOAT64, IN_ARRAYS
from bilinear.ir.kernel import LinearKernel, ProductKernel
from bilinear.ir.placement import Strip
from bilinear.ir.tile import SMALL, TILES, USUAL
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare
from bilinear.planner.device import Policy, at
from bilinear.planner.device_files import device_json, device_named, load_device, parse_device, shipped_devices
from bilinear.planner.model import (
    LinearWork,
    ProductWork,
    each_tile,
    fastest_tile,
    geometric_mean,
    library_seconds,
    linear_seconds,
    product_seconds,
    profile_of,
    stage_seconds,
    strip_seconds,
    waves,
)

H200 = load_device("h200")
ELEMENT_RATES = json.loads(device_json(H200))["elements"]
RATES = ELEMENT_RATES["float32"]
POLICY = json.loads(device_json(H200))["policy"]
THIN = json.loads(device_json(H200))["thin"]["float32"]
LIBRARY = THIN["library"]


@each(("name", "inputs"), [("winograd", "preserve"), ("laderman", "preserve"), ("msmes", "restore"), ("msmes", "consume")])
@each("levels", [1, 2])
def test_the_counts_are_those_of_the_launches(name: str, inputs: str, levels: int) -> None:
    loaded = load(name)
    schedule = prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule
    launches = schedule_to_launches(schedule, FLOAT64)
    works = profile_of(schedule).works
    assert len(works) == len(launches)
    for work, launch in zip(works, launches, strict=True):
        if isinstance(work, ProductWork):
            assert isinstance(launch.kernel, ProductKernel)
            rows = launch.kernel.products[launch.first : launch.first + launch.grid.y]
            targets = [launch.kernel.destinations[r.first_destination + i] for r in rows for i in range(r.destinations)]
            assert work == ProductWork(len(rows), sum(t.kept == "1" for t in targets), len(targets))
        else:
            assert isinstance(launch.kernel, LinearKernel)
            parts = [launch.kernel.parts[place[0]] for place in launch.kernel.places[launch.first : launch.first + launch.grid.y]]
            assert sum(p.places for p in work.parts) == len(parts)
            assert sum(p.places * (p.sources + p.targets) for p in work.parts) == sum(len(p.sources) + len(p.targets) for p in parts)


def test_the_tiles_of_the_description_are_those_of_the_kernels() -> None:
    for dtype, tiles in ((name, TILES[name]) for name in IN_ARRAYS):
        described = [(own.name, own.rows, own.columns, own.blocks) for own in H200.rates(dtype).tiles]
        assert described == [(name, tile.m, tile.n, tile.blocks) for name, tile in tiles.items()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_large_product_runs_at_the_rate_of_the_full_device(dtype: str) -> None:
    n = 16896  # a multiple of the tiles and of their waves
    tiles = tuple(replace(own, start=0.0) for own in H200.rates(dtype).tiles)
    rates = replace(H200.rates(dtype), tiles=tiles, epilogue=1e12)
    device = replace(H200, launch=0.0).with_rates(dtype, rates)
    for own in tiles:
        assert (n // own.rows) * (n // own.columns) % (device.processors * own.blocks) == 0
        wanted = 2 * n**3 / (at(rates.product, n) * at(own.share, n) * 1e12)
        assert product_seconds(ProductWork(1, 0, 1), (n, n, n), dtype, device, n, tile=own.name) == pytest.approx(wanted)


def test_one_tile_more_than_a_wave_costs_more_than_a_part_of_it() -> None:
    device = replace(H200, launch=0.0, bandwidth=1e9)
    for own in H200.rates("float64").tiles:
        wave, block = H200.processors * own.blocks, (own.rows, 4096, own.columns)
        full, more = (
            product_seconds(ProductWork(tiles, 0, tiles), block, "float64", device, 4096, tile=own.name) for tiles in (wave, wave + 1)
        )
        assert (1 + 1 / own.blocks) * full < 1.05 * more <= 2.1 * full, own.name


@each(
    ("blocks", "tiles", "taken"),
    [(1, 133, 2.0), (1, 264, 2.0), (2, 264 + 133, 2.0), (2, 264 + 100, 1.625), (4, 528, 1.0), (4, 528 + 200, 1.5), (4, 300, 0.75)],
)
def test_a_last_wave_is_shorter_the_fewer_blocks_stand_beside_each_other(blocks: int, tiles: int, taken: float) -> None:
    assert waves(tiles, H200, replace(H200.rates("float64").tile(USUAL), blocks=blocks, lone=0.8)) == taken


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_add_to_the_time_by_every_block_that_a_product_goes_to(dtype: str) -> None:
    n, rates = 2048, H200.rates(dtype)
    device = replace(H200, bandwidth=1e9).with_rates(dtype, replace(rates, accumulating=1.0))
    times = [product_seconds(ProductWork(4, read, written), (n, n, n), dtype, device, n) for read, written in ((0, 0), (0, 4), (4, 4))]
    a_visit = rates.tile(USUAL).exposed * 4 * n * n * ELEMENTS[dtype].bytes / (rates.epilogue * 1e9)
    assert [y - x for x, y in pairwise(times)] == pytest.approx([a_visit, a_visit])


def test_a_linear_stage_takes_its_traffic() -> None:
    loaded = load("winograd")
    work = profile_of(prepare(loaded.scheme, None, 1, "preserve").schedule).works[0]
    assert isinstance(work, LinearWork)
    n = 4096
    device = replace(H200, launch=0.0).with_rates("float64", replace(H200.rates("float64"), streaming=((1.0, 1.0),)))
    seconds = linear_seconds(work, (n, n, n), "float64", device)
    assert seconds == pytest.approx(2 * (4 + 4) * n * n * 8 / (H200.bandwidth * 1e9))  # A and B: four blocks in, four sums out


@pytest.mark.parametrize("dtype", IN_ARRAYS)
def test_of_equally_fast_tiles_the_first_is_taken(dtype: str) -> None:
    """Without a core all tiles of a unit are equally fast, for strips run in the small one."""
    schedule = prepare(load("winograd").scheme, None, 1, "preserve").schedule
    plan = place_schedule(schedule, 1, 5, 5, ELEMENTS[dtype].bytes)
    assert plan.core[0] == 0
    times = list(each_tile(profile_of(schedule), plan, dtype, H200))
    assert fastest_tile(profile_of(schedule), plan, dtype, H200) == next(one for one in times if one[0] == min(times)[0])
    assert len(times) > len({seconds for seconds, _ in times})


def test_a_plan_is_its_strips_and_its_stages() -> None:
    loaded = load("winograd")
    schedule = prepare(loaded.scheme, None, 1, "preserve").schedule
    even, odd = (place_schedule(schedule, n, n, n, 8) for n in (2048, 2049))
    tiny = place_schedule(schedule, 1, 5, 5, 8)
    seconds, larger, least = (next(each_tile(profile_of(schedule), one, "float64", H200))[0] for one in (even, odd, tiny))
    assert seconds == pytest.approx(sum(stage_seconds(profile_of(schedule).works, even, "float64", H200)) + H200.call * 1e-6)
    assert len(odd.strips) == 3 and larger > seconds and least > 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_without_alignment_slow_down_a_product(dtype: str) -> None:
    device, n = replace(H200, launch=0.0, bandwidth=1e9), 4096
    for own in H200.rates(dtype).tiles:
        times = [product_seconds(ProductWork(1, 0, 0), (n, n, n), dtype, device, n, aligned, tile=own.name) for aligned in (True, False)]
        assert times[0] / times[1] == pytest.approx(own.unaligned)


@pytest.mark.parametrize(("name", "inputs", "aligned"), [("winograd", "preserve", True), ("msmes", "restore", False)])
def test_products_of_sums_read_a_workspace_whose_rows_are_aligned(name: str, inputs: str, aligned: bool) -> None:
    loaded = load(name)
    schedule = prepare(loaded.scheme, loaded.schedule, 1, inputs).schedule
    plan, works = place_schedule(schedule, 4097, 4097, 4097, 8, tile=SMALL), profile_of(schedule).works
    assert plan.block == (2048, 2048, 2048) and bool(plan.slots) == aligned
    for work, seconds in zip(works, stage_seconds(works, plan, "float64", H200), strict=True):
        if isinstance(work, ProductWork):
            assert seconds == product_seconds(work, plan.block, "float64", H200, geometric_mean(4097, 4097, 4097), aligned, False, SMALL)


def test_the_rest_of_the_sum_takes_its_traffic_or_its_arithmetic() -> None:
    m, depth, n = 8192, 127, 8192
    device = replace(H200, launch=0.0)
    for dtype, element in IN_ARRAYS.items():
        traffic = {k: (m * k + k * n + 2 * m * n) * element.bytes / (H200.bandwidth * 1e9) for k in (1, depth)}
        arithmetic = 2 * m * depth * n / (at(H200.rates(dtype).product, m) * 1e12)
        times = {k: strip_seconds(Strip((0, m), (m, m + k), (0, n)), dtype, device, m, True, USUAL) for k in (1, depth)}
        assert times == pytest.approx({1: traffic[1], depth: max(traffic[depth], arithmetic)})
        assert arithmetic > traffic[depth]


def test_the_library_is_bound_by_memory_where_one_extent_is_small() -> None:
    m, k, n = 20480, 20480, 2
    traffic = (m * k + k * n + m * n) * 8 / (H200.bandwidth * 1e9)
    assert library_seconds((m, k, n), "float64", H200) >= traffic


def test_tables_interpolate_between_their_keys_and_end_flat() -> None:
    table = ((1.0, 10.0), (4.0, 20.0))
    assert [at(table, key) for key in (0.5, 1.0, 2.0, 4.0, 9.0)] == [10.0, 10.0, 15.0, 20.0, 20.0]


def test_devices_are_found_by_short_name_file_and_full_name(tmp_path: Path) -> None:
    assert "h200" in shipped_devices()
    file = tmp_path / "mine.json"
    file.write_text(device_json(H200))
    assert load_device(str(file)) == H200 == device_named("NVIDIA H200") == load_device("H200")
    assert device_named("another") is None
    with pytest.raises(BilinearError, match=r"E541.*'no such'"):
        load_device("no such")
    with pytest.raises(BilinearError, match=r"E541.* cannot be read: .*\n  hint: give a file of `bilinear tune`"):
        load_device(str(tmp_path))


def with_float32(rates: Any) -> dict[str, Any]:
    return {"elements": {**ELEMENT_RATES, "float32": rates}}


def with_library(**columns: Any) -> dict[str, Any]:
    return {"thin": {"float32": {**THIN, "library": {**LIBRARY, **columns}}}}


@pytest.mark.sample(14)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "its format is not 'bilinear-device/12'"),
        ({"processors": 0}, "processors is not a number between 1e-18 and 1e+18"),
        ({"processors": 1.5}, "processors is not a whole number"),
        ({"bandwidth": "fast"}, "bandwidth is not a number between 1e-18 and 1e+18"),
        ({"bandwidth": float("nan")}, "bandwidth is not a number between 1e-18 and 1e+18"),
        ({"bandwidth": 10**400}, "bandwidth is not a number between 1e-18 and 1e+18"),
        ({"l2": float("inf")}, "l2 is not a number between 1e-18 and 1e+18"),
        ({"processors": True}, "processors is not a number between 1e-18 and 1e+18"),
        ({"launch": -1}, "launch is not a number between 1e-18 and 1e+18"),
        ({"elements": {"float64": ELEMENT_RATES["float64"]}}, "float32 is missing"),
        (with_float32({**RATES, "streaming": []}), "streaming is not a list of pairs"),
        (with_float32({**RATES, "streaming": [[2, 1], [1, 1]]}), "the keys of streaming do not rise"),
        (with_float32({}), "tiles is missing"),
        (
            with_float32({**RATES, "tiles": {USUAL: RATES["tiles"][USUAL]}}),
            f"tiles does not describe usual, small and others of the tiles {', '.join(TILES['float32'])}",
        ),
        (with_float32({**RATES, "tiles": {name: {**own, "lone": 2} for name, own in RATES["tiles"].items()}}), "lone is above 1"),
        (with_float32(3), "an object is missing"),
        ({"name": ""}, "name is not a short text"),
        ({"policy": {"least_gian": 0.1}}, f"policy names other thresholds than {', '.join(POLICY)}"),
        ({"policy": []}, f"policy names other thresholds than {', '.join(POLICY)}"),
        ({"policy": {**POLICY, "least_gain": 1.5}}, "least_gain is above 1"),
        ({"policy": {**POLICY, "least_block": 0.5}}, "least_block is not a whole number"),
        ({"policy": {**POLICY, "least_plain_block": {"int8": [1, 1, 1]}}}, f"least_plain_block has others than {', '.join(ELEMENTS)}"),
        ({"policy": {**POLICY, "least_plain_block": {"float32": [1, 1]}}}, "float32 is not a list of three extents"),
        ({"library_rules": 3}, "an object is missing"),
        ({"library_rules": {"short_sum": 1}}, "medium_sum is missing"),
        ({"thin": 3}, "thin has others than float32, float64"),
        ({"thin": {"int8": THIN}}, "thin has others than float32, float64"),
        ({"thin": {"float32": {}}}, "pipes is missing"),
        ({"thin": {"float32": {**THIN, "tail": 2}}}, "tail is above 1"),
        ({"thin": {"float32": {**THIN, "tiles": {"9x9": {}}}}}, "tiles has other tiles than those for thin products of float32"),
        ({"thin": {"float32": {**THIN, "tiles": {"64x4x64-16x1x16": {}}}}}, "along is missing"),
        ({"thin": {"float32": {**THIN, "library": {}}}}, "kernels is missing"),
        (with_library(m=[]), "m is not a list of 1 to 100000 values"),
        (with_library(n=[0.5] * len(LIBRARY["n"])), "n has other values than whole numbers"),
        (with_library(m=[7]), "the columns of library are not equally long"),
        (with_library(order=[4] * len(LIBRARY["m"])), "library names orders or kernels that there are not"),
        (with_library(kernels=["1.2.3"]), "library names orders or kernels that there are not"),
        (with_library(cublas=[0] * len(LIBRARY["m"])), "cublas has other values than numbers between 1e-18 and 1e+18"),
        (with_library(order=[True] * len(LIBRARY["m"])), "order has other values than numbers between -1 and 1e+18"),
        ({"estimate": 3}, "estimate is not text of at most 400 characters"),
    ],
)
def test_a_malformed_description_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BilinearError) as caught:
        parse_device(json.dumps({**json.loads(device_json(H200)), **change}).encode(), "mine.json")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E542" and diagnostic.message == f"mine.json is not a device description: {message}"


def test_thresholds_that_a_policy_does_not_name_are_the_usual_ones() -> None:
    text = json.dumps({**json.loads(device_json(H200)), "policy": {"least_block": 7, "least_plain_block": {}}})
    assert parse_device(text.encode(), "mine.json").policy == Policy(least_block=7, least_plain_block=())


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000, b"9" * 5000])
def test_what_is_no_description_at_all_is_refused(content: bytes) -> None:
    with pytest.raises(BilinearError, match="E542"):
        parse_device(content, "mine.json")


def test_missing_fields_are_named() -> None:
    whole = json.loads(device_json(H200))
    for name in set(whole) - {"format"}:
        with pytest.raises(BilinearError, match=f"{name} is missing"):
            parse_device(json.dumps({key: value for key, value in whole.items() if key != name}).encode(), "mine.json")
