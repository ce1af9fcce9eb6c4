"""Tiles by name, size and unit, and the instructions that they run on."""

from __future__ import annotations

import pytest

from bilinear.ir.element import ELEMENTS, FLOAT16, FLOAT32, FLOAT64, Element, Precision
from bilinear.ir.tile import FMA_FLOAT32, LARGE, MMA_FLOAT64, SMALL, TILES, USUAL, Instruction, beside, precision_of, tile_on

ALL_TILES = [(dtype, tile) for dtype in TILES for tile in TILES[dtype]]
SIZES = (USUAL, LARGE, SMALL)


@pytest.mark.parametrize(("dtype", "name"), ALL_TILES)
def test_a_tile_is_found_by_its_name_and_by_its_unit_and_size(dtype: str, name: str) -> None:
    tile = TILES[dtype][name]
    assert tile.name == name and tile_on(dtype, tile.instruction.unit, tile.size) == name
    assert beside(dtype, name, tile.size) == name


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("dtype", "name"), ALL_TILES)
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


@pytest.mark.parametrize(("dtype", "name"), ALL_TILES)
def test_a_product_is_multiplied_and_added_up_in_the_types_of_the_instruction(dtype: str, name: str) -> None:
    own = ELEMENTS[dtype]
    inner = FLOAT64 if name.startswith("doubles") else own.arithmetic
    assert precision_of(own, TILES[dtype][name]) == Precision(own, inner, inner, own)


@pytest.mark.parametrize(
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
