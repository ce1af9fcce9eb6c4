"""Checks of the timed plans on the device that times them: exact on integers, restored inputs, and within the error bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bilinear.analysis.integer_range import integer_range
from bilinear.backends.timing import Call
from bilinear.ir.matrix import Array
from bilinear.ir.measurement import Shape, Trust
from bilinear.measure.bench_tasks import bound_of
from bilinear.planner.plan import Plan
from bilinear.runtime.operands import layouts_of
from bilinear.runtime.recipe import chosen_recipe, placement_for

LARGEST = 2  # The largest integer: sums stay below 2^24, even by four levels of Winograd's at 32768.
BAND = 2048  # Rows compared at once, so that little memory is needed in addition to A, B, C and a workspace.
SAMPLE = 64  # Rows of C whose error is measured in float64, or that decide whether a library is right.


def operands(shape: Shape, dtype: str) -> tuple[Array, Array, Array]:
    """Arrays for A, B and C on the current GPU that hold no values yet."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    m, k, n = shape
    return cupy.empty((m, k), dtype), cupy.empty((k, n), dtype), cupy.empty((m, n), dtype)


def check(call: Call, a: Array, b: Array, c: Array, inputs: str, bound: float, is_integral: bool) -> Trust:
    """Run c = a @ b on integers and then on normal data, each time into NaN; leaves normal data in `a` and `b`.

    The error compares a sample of rows with a multiply in float64, in units of max|A| * max|B|; of complex matrices part by part.
    """
    import cupy

    generator = cupy.random.default_rng(7)
    kept = fill_integers(a, b, generator)
    c.fill(cupy.nan)
    call()
    restored = inputs == "consume" or all(
        bool((x[rows] == y[rows]).all()) for x, y in zip((*parts_of(a), *parts_of(b)), kept, strict=True) for rows in bands(x.shape[0])
    )
    fill(a, b, kept)
    exact = all(bool((c[rows] == cupy.matmul(a[rows], b)).all()) for rows in bands(a.shape[0]))
    del kept
    fill_normal(a, b, generator)
    rows = slice(0, None, max(1, a.shape[0] // SAMPLE))
    wanted = _in_doubles(a[rows], b)
    size = _largest(a) * _largest(b)
    c.fill(cupy.nan)
    call()
    error = _largest(c[rows] - wanted) / size
    return Trust(exact, restored, error, bound, is_integral)


def trust_of(call: Call, plan: Plan, a: Array, b: Array, c: Array) -> Trust:
    """The checks of a plan, with its error bound for these operands."""
    recipe = chosen_recipe(plan)
    is_integral = recipe is None or all(integer_range(own.schedule) is not None for own in placement_for(recipe, layouts_of(a, b, c)).chain)
    bound = bound_of(plan, plan.problem.k, plan.problem.dtype)
    return check(call, a, b, c, plan.chosen.promise, bound, is_integral)


def wrong_libraries(calls: Mapping[str, Call], a: Array, b: Array, c: Array) -> dict[str, str]:
    """Library calls that fail or are not exact on integers, judged by a sample of rows, with reasons; leaves integers in `a` and `b`."""
    import cupy

    fill_integers(a, b, cupy.random.default_rng(7))
    rows = slice(0, None, max(1, a.shape[0] // SAMPLE))
    wanted = _in_doubles(a[rows], b)
    found = {}
    for name, call in calls.items():
        c.fill(cupy.nan)
        try:
            call()
        except Exception as error:  # of any library
            found[name] = f"{type(error).__name__}: {error}"
            continue
        if not bool((c[rows] == wanted).all()):
            found[name] = "it does not multiply integers exactly"
    return found


def parts_of(x: Array) -> tuple[Array, ...]:
    """The real and the imaginary part of a complex array; a real array itself."""
    return (x.real, x.imag) if x.dtype.kind == "c" else (x,)


def fill_integers(a: Array, b: Array, generator: Array) -> list[Array]:
    """Fill the parts of both with random integers; returns the integers themselves, stored in an eighth or a quarter of the memory."""
    kept = [generator.integers(-LARGEST, LARGEST + 1, x.shape, dtype="int8") for x in (*parts_of(a), *parts_of(b))]
    fill(a, b, kept)
    return kept


def fill(a: Array, b: Array, kept: Sequence[Array]) -> None:
    """Fill the parts of both."""
    for part, values in zip((*parts_of(a), *parts_of(b)), kept, strict=True):
        part[...] = values


def fill_normal(a: Array, b: Array, generator: Array) -> None:
    """Fill the parts of both with normal data."""
    for part in (*parts_of(a), *parts_of(b)):
        part[...] = generator.standard_normal(part.shape, dtype=part.dtype)


def _in_doubles(a: Array, b: Array) -> Array:
    import cupy

    wide = "complex128" if a.dtype.kind == "c" else "float64"
    return cupy.matmul(a.astype(wide), b.astype(wide, copy=False))


def _largest(x: Array) -> float:
    """The largest magnitude of a part; NaN if there is one."""
    return float(np.max([float(abs(part).max()) for part in parts_of(x)]))  # unlike max(), it keeps a NaN


def bands(rows: int) -> Iterator[slice]:
    """The rows of a matrix in bands of a few thousand."""
    return (slice(start, start + BAND) for start in range(0, rows, BAND))
