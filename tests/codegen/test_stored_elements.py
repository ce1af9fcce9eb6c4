"""An element type that is computed in a wider one than it is stored in: float as it lies in memory, with sums and products in double."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifact.built_folders import needs_emulator, written
from codegen.emulated import EmulatedExecutor, address, c_types
from codegen.test_kernels_on_cpu import layout

from bilinear.artifact.check_folder import verify_built
from bilinear.backends.bound_launches import grid_blocks, launch_arguments
from bilinear.backends.executor import execute
from bilinear.cli.common import read_dtypes
from bilinear.codegen.build import build_program
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.render import render
from bilinear.emulator import compile_on_cpu
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.element import BFLOAT16, ELEMENTS, FLOAT16, FLOAT32, FLOAT64, IN_ARRAYS, KNOWN, Element
from bilinear.ir.kernel import LinearKernel, ScanKernel
from bilinear.ir.linear import Form
from bilinear.ir.matrix import call_of
from bilinear.ir.number import nearest, to_float
from bilinear.ir.schedule import LinearStage
from bilinear.ir.tile import TILES
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import plain, prepare
from bilinear.planner.device_files import device_json, load_device, parse_device
from bilinear.runtime.auto import plan

STORED = replace(FLOAT32, wider=FLOAT64)
NEW = replace(FLOAT32, name="floats_in_double", suffix="f32w", code="", wider=FLOAT64)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a type that is added: its entry, and its tiles."""
    for table in (KNOWN, ELEMENTS):
        monkeypatch.setitem(table, NEW.name, NEW)
    monkeypatch.setitem(TILES, NEW.name, TILES["float32"])
    return NEW.name


@pytest.mark.sample(2)
@needs_emulator
@pytest.mark.parametrize(("shape", "orders"), [((29, 19, 23), "CCC"), ((24, 48, 72), "CCC"), ((48, 24, 40), "FSF"), ((67, 65, 70), "SFC")])
@pytest.mark.parametrize("tile", ["usual", "doubles-usual"])
@pytest.mark.parametrize(("name", "inputs"), [("strassen", "preserve"), ("msmes", "restore")])
def test_integers_are_exact(name: str, inputs: str, tile: str, shape: tuple[int, int, int], orders: str) -> None:
    m, k, n = shape
    generator = np.random.default_rng(m)
    whole = [generator.integers(-4, 5, s) for s in ((m, k), (k, n), (m, n))]
    loaded = load(name)
    schedule = prepare(loaded.scheme, loaded.schedule, 1, inputs).schedule
    for beta in (0, -1):
        a, b, c = (layout(x.astype(np.float32), order) for x, order in zip(whole, orders, strict=True))
        if beta == 0:
            c[...] = np.nan
        placement = place_schedule(schedule, m, k, n, 4, frozenset(s for s, o in zip("ABC", orders, strict=True) if o == "F"), tile=tile)
        execute(EmulatedExecutor("random", seed=k, element=STORED), placement, call_of(a, b, c, 2, beta))
        np.testing.assert_array_equal(c, 2 * (whole[0] @ whole[1]) + beta * whole[2])
        np.testing.assert_array_equal(a, whole[0])


@pytest.mark.sample(2)
@needs_emulator
@pytest.mark.parametrize("element", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize(("shape", "orders"), [((29, 19, 23), "CCC"), ((24, 48, 72), "CFC")])
def test_integers_of_16_bits_are_exact(element: Element, shape: tuple[int, int, int], orders: str) -> None:
    m, k, n = shape
    generator = np.random.default_rng(m)
    whole = [generator.integers(-1, 2, s) for s in ((m, k), (k, n), (m, n))]
    a, b, c = (layout(as_stored(x, element), order) for x, order in zip(whole, orders, strict=True))
    schedule = prepare(load("winograd").scheme, None, 1, "preserve").schedule
    by_columns = frozenset(s for s, o in zip("ABC", orders, strict=True) if o == "F")
    execute(EmulatedExecutor("random", element=element), place_schedule(schedule, m, k, n, 2, by_columns), call_of(a, b, c, 2, -1))
    np.testing.assert_array_equal(as_floats(c, element), 2 * (whole[0] @ whole[1]) - whole[2])


def as_stored(x: Any, element: Element) -> Any:
    """Numbers that the type holds, as an array; NumPy lacks bfloat16, whose bits are the upper half of a float's."""
    if element == BFLOAT16:
        return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return x.astype(np.float16 if element == FLOAT16 else np.float32)


def as_floats(x: Any, element: Element) -> Any:
    return (x.astype(np.uint32) << 16).view(np.float32) if element == BFLOAT16 else x.astype(np.float32)


@needs_emulator
def test_products_are_summed_in_the_wider_type_and_rounded_once() -> None:
    a, b, c = np.array([[2.0**24, 1, -(2.0**24)]], np.float32), np.ones((3, 1), np.float32), np.full((1, 1), 2.0**24, np.float32)
    placement = place_schedule(plain().schedule, 1, 3, 1, 4)
    execute(EmulatedExecutor(element=STORED), placement, call_of(a, b, c, 2.0**-40, 2.0**-24))
    assert c[0, 0] == np.float32(1 + 2.0**-40) == 1
    execute(EmulatedExecutor(element=STORED), placement, call_of(a, b, c, 1, 0))
    assert c[0, 0] == 1
    execute(EmulatedExecutor(), placement, call_of(a, b, c, 1, 0))
    assert c[0, 0] == 0


def combined(terms: Form, values: list[Any]) -> Any:
    """A form of integers."""
    return sum((int(to_float(c)) * values[i] for i, c in terms), np.zeros_like(values[0]))


@needs_emulator
@pytest.mark.parametrize("element", [STORED, FLOAT16, BFLOAT16], ids=str)
def test_sums_of_blocks_are_computed_in_the_wider_type_and_rounded_once(element: Element) -> None:
    """The expansion of winograd's operands, whose forms have up to four terms, beside exact sums that are rounded once."""
    schedule = prepare(load("winograd").scheme, None, 1, "preserve").schedule
    launch, stage = schedule_to_launches(schedule, element)[0], schedule.stages[0]
    assert isinstance(launch.kernel, LinearKernel) and isinstance(stage, LinearStage)
    module = compile_on_cpu(render(launch.kernel), {launch.kernel.name: c_types(launch.kernel)})
    generator, size = np.random.default_rng(5), 6
    spaces = {s.name: as_stored(np.full((s.rows * size, s.columns * size), np.nan), element) for s in schedule.spaces}
    for name in "AB":
        spaces[name][...] = as_stored(generator.integers(-(2**element.significand), 2**element.significand, spaces[name].shape), element)
    values: dict[str, Any] = {"bm": size, "bk": size, "bn": size, "beta": 0.0}
    for name, array in spaces.items():
        values |= {name: address(array), f"{name}_rs": array.shape[1], f"{name}_cs": 1}
    grid, threads = (*grid_blocks(launch.grid, values), 1), (*launch.kernel.threads, 1)
    module.launch(launch.kernel.name, grid, threads, launch_arguments(launch, values))
    rounded = 0
    for block_map in stage.maps:
        exact = [
            as_floats(spaces[x.space][x.row * size :, x.column * size :][:size, :size], element).astype(int) for x in block_map.sources
        ]
        for terms in block_map.map.steps:
            exact.append(combined(terms, exact))
        for target, terms in zip(block_map.targets, block_map.map.outputs, strict=True):
            wanted = combined(terms, exact)
            found = as_floats(spaces[target.space][target.row * size :, target.column * size :][:size, :size], element)
            np.testing.assert_array_equal(
                found, [[nearest(int(x), element.name if element in KNOWN.values() else "float32") for x in row] for row in wanted]
            )
            rounded += int((found != wanted).sum())
    assert rounded > 0


@needs_emulator
@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
def test_the_scan_reads_what_is_stored(value: float) -> None:
    kernel = ScanKernel("scan", STORED)
    x, found = np.ones((5, 7), np.float32), np.zeros((), np.int32)
    x[3, 2] = value
    module = compile_on_cpu(render(kernel), {"scan": c_types(kernel)})  # type: ignore[arg-type]  # it has the arguments of one
    module.launch("scan", 2, 256, [address(x), 7, 1, 5, 7, address(found)])
    assert bool(found) == (not np.isfinite(value))


@pytest.mark.slow
@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize(
    ("element", "tile"), [(STORED, "usual"), (STORED, "doubles-usual"), (FLOAT16, "usual"), (BFLOAT16, "usual")], ids=str
)
def test_kernels_are_built(element: Element, tile: str) -> None:
    schedule = prepare(load("strassen").scheme, None, 1, "preserve").schedule
    for own in build_program(schedule, element, [CudaTarget("sm_80"), CudaTarget("sm_90")], tile).kernels:
        assert all(built.image.startswith(b"\x7fELF") for built in own.images)


@pytest.mark.slow
@needs_emulator
@pytest.mark.parametrize("algorithm", ["winograd", "msmes"])
def test_a_folder_of_an_added_type_is_proved(algorithm: str, known: str, tmp_path: Path) -> None:
    check = verify_built(written(tmp_path / "out", algorithm, dtypes=(known,)), seed=1)
    check.require()
    *sources, images = check.rows
    assert [row.verdict for row in sources] == ["passed"] * 8
    assert (images.verdict, images.reason) == ("skipped", f"CuPy has no arrays of {known}")


def test_an_added_type_is_planned_where_its_rates_are_described(known: str) -> None:
    device = load_device("h200")
    with pytest.raises(BilinearError, match=rf"error\[E543\]: the description of NVIDIA H200 has no rates of {known}"):
        plan(4096, 4096, 4096, known, device=device)
    described = replace(device, elements=(*device.elements, (known, device.rates("float32"))))
    assert parse_device(device_json(described).encode(), "added.json") == described
    candidates = plan(4096, 4096, 4096, known, device=described, explain=True).candidates
    finer = plan(4096, 4096, 4096, "float32", device=described, explain=True).candidates
    errors = {own.levels: own.error for own in finer}
    assert all(own.error is None or 0 < own.error < (errors[own.levels] or 0) for own in candidates) and any(x.error for x in candidates)


def test_commands_that_multiply_take_what_arrays_hold(known: str) -> None:
    assert known not in IN_ARRAYS and read_dtypes(f"{known}, float32", ELEMENTS) == (known, "float32")
    with pytest.raises(BilinearError, match=rf"error\[E503\]: no arrays of '{known}'\n  hint: choose one or more of float64, float32"):
        read_dtypes(known)
    with pytest.raises(BilinearError, match=r"error\[E503\]: no kernels for 'int8'"):
        read_dtypes("int8", ELEMENTS)
