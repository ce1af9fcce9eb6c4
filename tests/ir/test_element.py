"""Element types, beside what NumPy, the C compiler and CUDA say of them; and tiles by name, size and unit."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from each_case import each

from bilinear.codegen.render import environment
from bilinear.emulator import compile_on_cpu, skip_reason
from bilinear.ir.element import ELEMENTS, FLOAT16, FLOAT32, FLOAT64, IN_ARRAYS, KNOWN, Element
from bilinear.ir.number import nearest
from bilinear.ir.tile import FMA_FLOAT32, LARGE, MMA_FLOAT64, SMALL, TILES, USUAL, Instruction, beside, tile_on

NUMPY_HAS = [name for name, element in KNOWN.items() if element.code]


@pytest.mark.parametrize("name", NUMPY_HAS)
def test_an_element_is_what_numpy_says(name: str) -> None:
    element, dtype, limits = KNOWN[name], np.dtype(name), np.finfo(name)
    assert element.name == str(element) == name
    assert (element.bytes, element.code) == (dtype.itemsize, dtype.char)
    assert element.significand == limits.nmant + 1 and element.unit_roundoff == limits.eps / 2
    assert struct.calcsize(f"<{element.code}") == element.bytes and element.lanes * element.bytes == 16
    assert element.suffix == f"f{limits.bits}"


def test_kernels_are_generated_for_known_types_that_have_tiles() -> None:
    assert ELEMENTS.items() <= KNOWN.items() and ELEMENTS.keys() == TILES.keys()


def test_arrays_hold_what_numpy_knows() -> None:
    assert list(IN_ARRAYS) == [name for name in ELEMENTS if name in np.sctypeDict and ELEMENTS[name].wider is None]


@pytest.mark.parametrize("element", KNOWN.values(), ids=str)
def test_a_wider_type_holds_every_number_and_rounds_less(element: Element) -> None:
    wide = element.arithmetic
    assert wide.arithmetic == wide and wide.significand >= element.significand
    assert wide.least <= element.least and wide.most >= element.most
    stored, summed = element.roundoffs
    rounded_twice = 1 + Fraction(stored) >= (1 + Fraction(summed)) * (1 + Fraction(element.unit_roundoff))
    assert summed == wide.unit_roundoff and (rounded_twice if element.wider else stored == summed)


@pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))
@pytest.mark.parametrize("element", ELEMENTS.values(), ids=str)
def test_the_types_in_kernel_text_are_as_wide_as_the_element(element: Element) -> None:
    text = environment().get_template(element.definition).render() if element.definition else ""
    sizes = f"{text}static_assert(sizeof({element.cuda}) == {element.bytes} && sizeof({element.bits}) == {element.bytes});"
    compile_on_cpu(sizes + ' extern "C" __global__ void nothing() {}', {"nothing": []})


@pytest.mark.parametrize("name", NUMPY_HAS)
def test_libraries_know_the_element_by_this_number(name: str) -> None:
    runtime = pytest.importorskip("cupy").cuda.runtime
    assert KNOWN[name].library == getattr(runtime, f"CUDA_R_{8 * KNOWN[name].bytes}F")


def nearest_to(numbers: np.ndarray[Any, np.dtype[np.float32]], element: Element) -> list[float]:
    """The numbers of an element type nearest to floats, by exact arithmetic; Inf and NaN stay."""
    return [
        nearest(Fraction(float(x)), element.name) * (-1 if np.signbit(x) and x == 0 else 1) if np.isfinite(x) else float(x) for x in numbers
    ]


@pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))
@pytest.mark.parametrize("element", [x for x in ELEMENTS.values() if x.wider and x.definition], ids=str)
def test_stored_numbers_are_the_nearest_ones(element: Element) -> None:
    """Every number of 16 bits there and back; and floats near the middle of two, at the ends of the range, and of all sizes."""
    source = (
        environment().get_template(element.definition).render()
        + f"""
extern "C" __global__ void back(const unsigned short* from, float* to, int n) {{
    for (int i = 0; i < n; ++i) {{ {element.cuda} x; x.bits = from[i]; to[i] = float(x); }}
}}
extern "C" __global__ void rounded(const float* from, float* to, unsigned short* bits, int n) {{
    for (int i = 0; i < n; ++i) {{ const {element.cuda} x(from[i]); to[i] = float(x); bits[i] = x.bits; }}
}}"""
    )
    module = compile_on_cpu(
        source, {"back": ["unsigned short *", "float *", "int"], "rounded": ["float *", "float *", "unsigned short *", "int"]}
    )
    bits = np.arange(2**16, dtype=np.uint16)
    held = np.empty(bits.size, np.float32)
    module.launch("back", 1, 1, [bits, held, bits.size])
    wanted = bits.view(np.float16).astype(np.float32) if element.code else (bits.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(held, wanted)
    finite = np.sort(held[np.isfinite(held)])
    middle = ((finite[:-1].astype(float) + finite[1:]) / 2).astype(np.float32)
    drawn = np.random.default_rng(1).integers(0, 2**32, 4096, np.uint32).view(np.float32)
    ends = np.array([0, -0.0, np.inf, -np.inf, element.largest, np.nan], np.float32)
    near = np.concatenate([np.nextafter(middle, np.float32(s * np.inf)) for s in (1, -1)])[::37]
    given = np.concatenate([finite[::5], middle[::3], near, drawn, ends, -ends])
    found, own = np.empty_like(given), np.empty(given.size, np.uint16)
    module.launch("rounded", 1, 1, [given, found, own, given.size])
    np.testing.assert_array_equal(found, np.array(nearest_to(given, element), np.float32))
    assert (np.signbit(found) == np.signbit(given))[~np.isnan(given)].all() and (own[np.isnan(given)] == 0x7FFF).all()


ALL_TILES = [(dtype, tile) for dtype in TILES for tile in TILES[dtype]]
SIZES = (USUAL, LARGE, SMALL)


@each(("dtype", "name"), ALL_TILES)
def test_a_tile_is_found_by_its_name_and_by_its_unit_and_size(dtype: str, name: str) -> None:
    tile = TILES[dtype][name]
    assert tile.name == name and tile_on(dtype, tile.instruction.unit, tile.size) == name
    assert beside(dtype, name, tile.size) == name


@each("size", SIZES)
@each(("dtype", "name"), ALL_TILES)
def test_beside_a_tile_is_one_of_every_size_on_its_unit(dtype: str, name: str, size: str) -> None:
    other = TILES[dtype][beside(dtype, name, size)]
    assert (other.size, other.instruction) == (size, TILES[dtype][name].instruction)


@pytest.mark.parametrize(("dtype", "unit"), [("float32", FMA_FLOAT32.unit), ("float64", MMA_FLOAT64.unit)])
def test_tiles_named_by_their_size_run_on_the_own_unit(dtype: str, unit: str) -> None:
    assert [tile_on(dtype, unit, size) for size in SIZES] == list(SIZES)
    assert tile_on(dtype, unit) == USUAL


def test_floats_have_tiles_on_the_units_for_doubles() -> None:
    assert [tile_on("float32", MMA_FLOAT64.unit, size) for size in SIZES] == ["doubles-usual", "doubles-large", "doubles-small"]


@pytest.mark.parametrize(("unit", "size"), [(FMA_FLOAT32.unit, USUAL), ("no such unit", USUAL), (MMA_FLOAT64.unit, "huge")])
def test_a_unit_without_a_tile_is_refused(unit: str, size: str) -> None:
    with pytest.raises(KeyError, match=f"no {size} tile of float64 runs on {unit}"):
        tile_on("float64", unit, size)


@each(("dtype", "name"), ALL_TILES)
def test_a_product_is_multiplied_and_added_up_in_the_types_of_the_instruction(dtype: str, name: str) -> None:
    own = ELEMENTS[dtype]
    inner = FLOAT64 if name.startswith("doubles") else own.arithmetic
    instruction = TILES[dtype][name].instruction
    assert instruction.multiplied == instruction.accumulated == inner


@each(
    ("shape", "lanes", "message"),
    [
        ((0, 8, 8), 32, "cannot share sums of 0 x 8"),
        ((16, 8, 0), 32, "cannot share sums of 16 x 8"),
        ((16, 8, -8), 32, "cannot share sums of 16 x 8"),
        ((16, 8, 8), 0, "0 threads cannot share"),
        ((16, 8, 8), 64, "64 threads cannot share"),
        ((4, 4, 4), 32, "32 threads cannot share sums of 4 x 4"),
        ((16, 4, 8), 128, "128 threads cannot share sums of 16 x 4"),
    ],
)
def test_an_instruction_whose_threads_cannot_share_its_sums_is_refused(shape: tuple[int, int, int], lanes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Instruction("wrong", "units", FLOAT32, FLOAT32, shape, lanes, 80)


@pytest.mark.parametrize(("multiplied", "accumulated"), [(FLOAT64, FLOAT32), (FLOAT32, FLOAT16)])
def test_an_instruction_with_sums_narrower_than_its_operands_is_refused(multiplied: Element, accumulated: Element) -> None:
    with pytest.raises(ValueError, match=f"sums of {accumulated} are narrower"):
        Instruction("wrong", "units", multiplied, accumulated, (16, 8, 8), 32, 80)


def test_an_instruction_may_have_sums_wider_than_its_operands() -> None:
    Instruction("mma.m16n8k16.f32.f16", "float16 matrix units", FLOAT16, FLOAT32, (16, 8, 16), 32, 80)
