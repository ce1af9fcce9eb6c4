"""Constants of kernels compared with exact quotients: rounded once, at any size, and refused if the type cannot hold them."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifact.built_folders import needs_emulator, refresh, refusal, written
from codegen.emulated import EmulatedExecutor

import bilinear
from bilinear.artifact.check_folder import verify_built
from bilinear.artifact.read import read_folder
from bilinear.backends.array_sums import coefficient
from bilinear.backends.executor import execute
from bilinear.codegen.render import environment
from bilinear.emulator import compile_on_cpu, field
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.matrix import call_of
from bilinear.ir.number import nearest
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare

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
    template = "\n".join((Path(__file__).parents[2] / "templates" / "linear.cu.j2").read_text().splitlines()[3:13])
    template = re.sub(r"{%.*%}\n", "", template)  # no element type of these needs a definition
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


@pytest.mark.sample(1)
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


@pytest.mark.parametrize("dtype", IN_ARRAYS)
@pytest.mark.parametrize(("power", "held"), [(40, ("float64",)), (50, ("float64",)), (320, ())])
@pytest.mark.parametrize("is_large", [True, False])
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
