"""Constants of kernels are rounded once, at any size; and a type that is computed in a wider one than it is stored in."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifact.built_folders import needs_emulator, refresh, refusal, written
from codegen.emulated import EmulatedExecutor, address, c_types
from codegen.test_kernels_on_cpu import layout
from each_case import each

import bilinear
from bilinear.artifact.check_folder import verify_built
from bilinear.artifact.read import read_folder
from bilinear.backends.array_sums import coefficient
from bilinear.backends.bound_launches import grid_blocks, launch_arguments
from bilinear.backends.executor import execute
from bilinear.cli.common import read_dtypes
from bilinear.codegen.build import build_program
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.render import environment, render
from bilinear.emulator import compile_on_cpu, field
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

INTEGERS = [2**24, 2**24 + 1, 2**24 + 3, 2**53, 2**53 + 1, 2**62 - 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64, 2**64 + 2**40, 2**126, 2**127 - 1]
HELD = [Fraction(1), Fraction(-1, 3), Fraction(2**24, 3), Fraction(7, 2**24)]
VALUES = [*HELD, *(Fraction(s * x) for x in INTEGERS for s in (1, -1)), *(Fraction(-1, x) for x in INTEGERS[:-1])]
QUOTIENTS = [Fraction(x, y) for x in INTEGERS for y in (3, 2**24 + 1, 2**63 - 25, 10**30)]


def rounded(value: Fraction, dtype: str) -> float:
    """The nearest number, found among a candidate and its neighbours by exact comparison; the even one of two equally near."""
    kind: Any = np.dtype(dtype).type
    first = kind(float(value))
    near = [first, np.nextafter(first, kind(np.inf)), np.nextafter(first, kind(-np.inf))]
    bits = {"float32": np.int32, "float64": np.int64}[dtype]
    return float(min(near, key=lambda x: (abs(Fraction(float(x)) - value), int(x.view(bits)) & 1)))


@pytest.mark.parametrize("dtype", IN_ARRAYS)
def test_the_nearest_number_is_found(dtype: str) -> None:
    for value in (*VALUES, *QUOTIENTS):
        assert nearest(value, dtype) == rounded(value, dtype) == coefficient(value, np.dtype(dtype))


def test_what_overflows_is_infinite_and_what_underflows_loses_bits() -> None:
    assert nearest(2**128 - 2**103 - 1, "float32") == float(np.finfo(np.float32).max)
    assert nearest(2**128 - 2**103, "float32") == nearest(10**400, "float64") == float("inf")
    assert nearest(Fraction(-3, 2**150), "float32") == -(2.0**-148) and nearest(Fraction(1, 2**150), "float32") == 0


@needs_emulator
@pytest.mark.parametrize("dtype", IN_ARRAYS)
def test_texts_are_these_numbers_and_over_the_field_the_rationals(dtype: str) -> None:
    values = [*VALUES, *QUOTIENTS]
    texts = [environment().filters["constant"](value, ELEMENTS[dtype]) for value in values]
    assert not any(abs(int(number)) > 2**24 for text in texts for number in re.findall(r"Real\((-?[0-9]+)\)", text))
    template = (Path(__file__).parents[2] / "templates" / "real.cu.j2").read_text()
    template = re.sub(r"{[%#].*[%#]}\n", "", template)  # no element type of these needs a definition
    head = template.replace("{{ kernel.element.arithmetic.cuda }}", ELEMENTS[dtype].cuda)
    body = " ".join(f"z[{i}] = {text};" for i, text in enumerate(texts))
    source = f'{head}\nextern "C" __global__ void k(Real* z)\n{{ {body} }}\n'
    z = np.zeros(len(values), dtype)
    compile_on_cpu(source, {"k": [f"{ELEMENTS[dtype].cuda} *"]}).launch("k", 1, 1, [z])
    assert z.tolist() == [rounded(value, dtype) for value in values]
    words = np.zeros(len(values), np.uint64)
    flags, types = (f"-DREAL={field.ELEMENT}",), {"k": [f"{field.ELEMENT} *"]}
    compile_on_cpu(source, types, flags=flags, include=(field.HEADER,)).launch("k", 1, 1, [words])
    assert words.tolist() == [value.numerator * pow(value.denominator, -1, field.PRIME) % field.PRIME for value in values]


def scaled(folder: Path, value: str, inverse: str) -> Path:
    file = folder / "v.bl"
    file.write_text(f"scheme v <1,1,1;1>\n  M1: {value} | 1 | {inverse}\n")
    return file


@pytest.mark.sample(3)
@needs_emulator
@pytest.mark.parametrize("value", [-(2**24) - 1, 2**53 + 1, -(2**63) - 1, 2**64, -(2**126) + 1])
@pytest.mark.parametrize("dtype", IN_ARRAYS)
def test_kernels_and_numpy_multiply_by_the_same_numbers(value: int, dtype: str, tmp_path: Path) -> None:
    """A scheme scales A by c and C by 1/c. On ones, C is fl(fl(1/c) * fl(c)), the same for both, and next to 1."""
    loaded = load(scaled(tmp_path, str(value), f"{'-' if value < 0 else ''}1/{abs(value)}"))
    schedule = prepare(loaded.scheme, loaded.schedule, 1, "preserve").schedule
    a, b, c = np.ones((3, 1), dtype), np.ones((1, 5), dtype), np.full((3, 5), np.nan, dtype)
    execute(EmulatedExecutor(), place_schedule(schedule, 3, 1, 5, a.itemsize), call_of(a, b, c, 1, 0))
    kind = np.dtype(dtype).type
    wanted = kind(rounded(Fraction(1, value), dtype)) * kind(rounded(Fraction(value), dtype))
    assert (c == wanted).all() and abs(wanted - 1) <= 2 * np.finfo(dtype).eps
    assert (bilinear.matmul(a, b, algorithm=loaded, levels=1) == wanted).all()


@pytest.mark.parametrize("value", [2**63 + 5, -(2**70) - 7])
def test_integers_wrap_around(value: int) -> None:
    for kind in (np.int8, np.int64, np.uint16, np.uint64):
        assert int(coefficient(value, np.dtype(kind))) == np.array([value % 2**64], np.uint64).astype(kind)[0]
        assert (int(coefficient(value, np.dtype(kind))) - value) % 2 ** (8 * np.dtype(kind).itemsize) == 0


@pytest.mark.sample(0)
@needs_emulator
@pytest.mark.parametrize(("value", "integers"), [(2**61, True), (-(2**63) - 1, False), (2**130 + 1, False)])
def test_folders_with_large_coefficients_are_read_and_proved(value: int, integers: bool, tmp_path: Path) -> None:
    file = scaled(tmp_path, str(value), f"{'-' if value < 0 else ''}1/{abs(value)}")
    folder = written(tmp_path / "out", file, dtypes=("float64",))
    assert (read_folder(folder).integers is not None) == integers
    check = verify_built(folder, seed=1)
    check.require()
    assert sum(row.verdict == "passed" for row in check.rows) == 8


@needs_emulator
@pytest.mark.parametrize(
    ("pattern", "new", "message"),
    [
        (r"p\+63, ", "p+64, ", "which is not the one nearest to -9223372036854775809"),
        (r"0x1.0000000000000p\+63", "0x1.0000000000001p+63", "which is not the one nearest to -9223372036854775809"),
        (r'"-9223372036854775809"', '"-9223372036854785809"', "which is not the one nearest to -9223372036854785809"),
        (r'"-9223372036854775809"', "TEXT", "has a constant that cannot be read"),
    ],
)
def test_a_constant_that_is_not_the_nearest_is_found(pattern: str, new: str, message: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "out", scaled(tmp_path, "-9223372036854775809", "-1/9223372036854775809"), dtypes=("float64",))
    (name,) = (path.stem for path in (folder / "src").iterdir() if "product" in path.name and path.name.startswith("v"))
    refresh(folder, name, lambda text: re.sub(pattern, new, text))
    found = refusal(folder)
    assert found.code == "E623" and message in found.message


@needs_emulator
def test_a_denominator_that_the_field_does_not_have_is_skipped(tmp_path: Path) -> None:
    file = scaled(tmp_path, str(field.PRIME), f"1/{field.PRIME}")
    (row, *_) = verify_built(written(tmp_path / "out", file), seed=1).rows
    assert (row.verdict, row.reason) == ("skipped", "the denominator of a constant is a multiple of 2^61-1")


@each("dtype", IN_ARRAYS)
@each(("power", "held"), [(40, ("float64",)), (50, ("float64",)), (320, ())])
@each("is_large", [True, False])
def test_what_a_type_cannot_hold_is_refused(power: int, held: tuple[str, ...], dtype: str, is_large: bool, tmp_path: Path) -> None:
    factors = [str(10**80)] * (power // 80) + [str(10 ** (power % 80))] * (power % 80 > 0)
    both = "*".join(factors), "/".join(["1", *factors])
    algorithm, a = bilinear.load(scaled(tmp_path, *both[:: 1 if is_large else -1])), np.ones((2, 2), dtype)
    algorithm.verify()
    if dtype in held:
        assert np.allclose(algorithm.matmul(a, a, levels=1), 2, rtol=1e-14)
        return
    for call in (partial(algorithm.matmul, a, a, levels=1), partial(algorithm.compile, dtypes=[dtype])):
        with pytest.raises(BilinearError) as caught:
            call()
        (found,) = caught.value.diagnostics
        assert found.code == "E528" and found.span is not None and found.hints
        assert found.message.startswith("v has the coefficient 1") and found.message.endswith(
            f", which is too large or too small for {dtype}"
        )


STORED = replace(FLOAT32, wider=FLOAT64)
NEW = replace(FLOAT32, name="floats_in_double", suffix="f32w", code="", wider=FLOAT64)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a type that is added: its entry, and its tiles."""
    for table in (KNOWN, ELEMENTS):
        monkeypatch.setitem(table, NEW.name, NEW)
    monkeypatch.setitem(TILES, NEW.name, TILES["float32"])
    return NEW.name


@pytest.mark.sample(2, slow=8)
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


@pytest.mark.sample(1)
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
@pytest.mark.parametrize("tile", ["usual", "doubles-usual"])
def test_kernels_are_built(tile: str) -> None:
    """Those of float16 and bfloat16 are among those of `test_sources`."""
    schedule = prepare(load("strassen").scheme, None, 1, "preserve").schedule
    for own in build_program(schedule, STORED, [CudaTarget("sm_80")], tile).kernels:
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


@pytest.mark.slow
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
