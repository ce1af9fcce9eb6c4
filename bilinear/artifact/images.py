"""Test the images of an output folder on a GPU: integer input in the exact range, compared with the classical product.

The range follows from the significant bits of the element type, the inner extent, and the folder's `integers` (the growth of intermediate
values). Every element of A, B and C is uniform on 2 r + 1 integers. If a fault leaves C a polynomial of degree 2 in them, it passes one
trial with probability at most 2 / (2 r + 1) (Schwartz 1980), so the range determines the number of trials. The bound treats the generator
of the elements, seeded with 128 bits from the system, as random.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from bilinear.artifact.findings import BuiltRow
from bilinear.artifact.read import AGAIN, BuiltFolder, BuiltKernel, BuiltProgram, Shape, core_of, first_difference, multiply
from bilinear.backends.bound_launches import Function
from bilinear.backends.doctor import why_no_device
from bilinear.backends.loaded_kernels import load_function
from bilinear.codegen.build import Progress
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.errors import Diagnostic, fail
from bilinear.ir.element import COMPILED, MULTIPLIED
from bilinear.ir.matrix import Array
from bilinear.ir.schedule import Space

FACTORS = (1, 2, 3, -1, -2, -3)  # The values of alpha and beta.
LARGEST_FACTOR = 3
BOUND = 100  # A wrong image passes with a probability below 2^-BOUND.
DEGREE = 2


def shapes(folder: BuiltFolder) -> tuple[Shape, ...]:
    """A shape that the grid divides, with several tiles a block if the grid is coarse, and two that leave strips on every side."""
    gm, gk, gn = folder.grid
    wide = max(32, 528 // max(gm, gn))
    return (
        (gm * wide, gk * 64, gn * wide),
        (gm * 67 + gm - 1, gk * 33 + gk - 1, gn * 29 + gn - 1),
        (gm * 5 + gm - 1, gk * 130 + gk - 1, gn * 2 + gn - 1),
    )


def integer_size(folder: BuiltFolder, dtype: str, shape: Shape) -> int:
    """The largest r for which everything is exact with elements in -r ... r and alpha and beta in -3 ... 3; 0 if there is none."""
    if folder.integers is None:
        return 0
    inner, significand = core_of(folder, shape)[1], COMPILED[dtype].significand
    rest = (shape[1] - inner) * (2 if folder.is_complex else 1)  # a part of a complex product is a sum of two
    return folder.integers.size(significand, inner // folder.grid[1], rest, LARGEST_FACTOR, LARGEST_FACTOR)


def trials_for(size: int) -> int:
    """The trials with integers in -size ... size that bound the chance of a wrong image to pass by 2^-BOUND."""
    return math.floor(BOUND / math.log2((2 * size + 1) / DEGREE)) + 1


def check_images(folder: BuiltFolder, program: BuiltProgram, seed: int, progress: Progress) -> Iterator[BuiltRow | Diagnostic]:
    """Test the images of one program on the current device: a row for each target and shape.

    Images for other devices, or all without a device, are rows that say so. A diagnostic (E623, E624) follows the first wrong row and ends
    the test.
    """
    reason = why_no_device() if program.dtype in MULTIPLIED else f"CuPy has no arrays of {program.dtype}"
    targets = list(dict.fromkeys(target for kernel in program.kernels for target, *_ in kernel.images))
    if reason is not None:
        yield BuiltRow(program.dtype, f"GPU, {', '.join(map(str, targets))}", "-", "-", 0, "", "skipped", reason)
        return
    import cupy

    capability = int(cupy.cuda.Device().compute_capability)
    for target in targets:
        where = f"GPU, {target}"
        if not target.runs_on(capability):
            yield BuiltRow(program.dtype, where, "-", "-", 0, "", "skipped", f"this device is sm_{capability}")
            continue
        for number, shape in enumerate(shapes(folder)):
            progress(f"{program.dtype} images for {target}", number, len(shapes(folder)))
            for found in _check_shape(folder, program, target, shape, (seed, number)):
                yield found
                if isinstance(found, Diagnostic):
                    return
        progress(f"{program.dtype} images for {target}", len(shapes(folder)), len(shapes(folder)))


def _check_shape(
    folder: BuiltFolder, program: BuiltProgram, target: CudaTarget, shape: Shape, seed: tuple[int, int]
) -> Iterator[BuiltRow | Diagnostic]:
    start = time.perf_counter()
    size = integer_size(folder, program.dtype, shape)
    where, text = f"GPU, {target}", "x".join(map(str, shape))
    if size < 1:
        yield BuiltRow(program.dtype, where, text, "-", 0, "", "skipped", "no integers are exact here: see `integers` in manifest.json")
        return
    trials, detail = trials_for(size), f"integers of -{size} ... {size}"
    fault: tuple[str, str] | None = None
    for trial in range(trials):
        try:
            wrong = _trial(folder, program, target, shape, size, np.random.default_rng((*seed, trial)))
        except Exception as error:  # CuPy and the driver have many kinds, none of which may end in a traceback
            fault = ("E624", f"the {target} images fail: {type(error).__name__}: {error}")
            break
        if wrong is not None:
            fault = ("E623", wrong)
            break
    seconds = time.perf_counter() - start
    if fault is None:
        exponent = math.floor(trials * math.log2((2 * size + 1) / DEGREE))
        yield BuiltRow(program.dtype, where, text, detail, trials, f"2^-{exponent}", "passed", "", seconds)
        return
    yield BuiltRow(program.dtype, where, text, detail, trials, "", "wrong", "", seconds)
    note = f"{program.dtype}, {target}, {text}, {detail}"
    yield fail(*fault, AGAIN, notes=(note,)).diagnostics[0]


def _trial(
    folder: BuiltFolder, program: BuiltProgram, target: CudaTarget, shape: Shape, size: int, generator: np.random.Generator
) -> str | None:
    """Run one multiply; describes what is wrong. In every third trial, and if the launches overwrite C, beta is 0 and C undefined."""
    import cupy

    m, k, n = shape
    whole = [_drawn(generator, size, extents, folder.is_complex) for extents in ((m, k), (k, n), (m, n))]
    alpha, beta = (int(factor) for factor in generator.choice(FACTORS, 2))
    by_column = generator.integers(0, 2, 3)
    a, b, c = (cupy.array(x, program.dtype, order="CF"[f]) for x, f in zip(whole, by_column, strict=True))
    if generator.integers(0, 3) == 0 or folder.overwrites:
        beta = 0
        c.fill(np.nan)
    operands = {"A": a, "B": b, "C": c}
    if folder.is_complex:
        operands = {f"{name}{end}": part for name, x in operands.items() for end, part in (("", x.real), ("i", x.imag))}
    multiply(OnDevice(COMPILED[program.dtype].name, target), folder, program, operands, alpha, beta)
    cupy.cuda.get_current_stream().synchronize()
    wanted = alpha * (whole[0] @ whole[1]) + (beta * whole[2] if beta else 0)
    kept = () if folder.inputs == "consume" else (("A", a, whole[0]), ("B", b, whole[1]))
    for name, x, right in (*kept, ("C", c, wanted)):
        wrong = x.get() != right
        if wrong.any():
            what = "C is not alpha * A * B + beta * C" if name == "C" else f"{name} is not what it was"
            return f"{what}: {first_difference(folder, shape, name, wrong)}"
    return None


def _drawn(generator: np.random.Generator, size: int, extents: tuple[int, int], is_complex: bool) -> Array:
    real, imaginary = (generator.integers(-size, size + 1, extents).astype(np.float64) for _ in "ri")
    return real + 1j * imaginary if is_complex else real


@cache
def _function(image: bytes, name: str, shared_bytes: int, device: int) -> Function:
    return load_function(image, name, shared_bytes)


@dataclass(frozen=True)
class OnDevice:
    """The current device as a machine, with the images for one target."""

    dtype: str
    target: CudaTarget

    def address(self, array: Array) -> Array:
        """The address of the first element."""
        return array.data.ptr

    def workspace(self, space: Space, rows: int, columns: int) -> Array:
        """A matrix of NaNs."""
        import cupy

        return cupy.full((rows, columns), np.nan, self.dtype)

    def launch(self, kernel: BuiltKernel, blocks: tuple[int, int, int], arguments: tuple[tuple[str, Array], ...]) -> None:
        """Run one kernel on the current stream."""
        import cupy

        types: dict[str, Callable[[Array], object]] = {"pointer": np.uint64, "index": np.int64, "scalar": np.dtype(self.dtype).type}
        values = tuple(types[kind](value) for kind, value in arguments)
        image = next(image for target, _, image in kernel.images if target == self.target)
        function = _function(image, kernel.name, kernel.shared_bytes, cupy.cuda.Device().id)
        function(blocks, (*kernel.threads, 1), values, kernel.shared_bytes)
