"""Element types, beside what NumPy, the C compiler and CUDA say of them."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest

from bilinear.codegen.render import environment
from bilinear.emulator import compile_on_cpu, skip_reason
from bilinear.ir.element import ELEMENTS, IN_ARRAYS, KNOWN, Element
from bilinear.ir.tile import TILES

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
    assert list(IN_ARRAYS) == [name for name in ELEMENTS if name in np.sctypeDict]


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
