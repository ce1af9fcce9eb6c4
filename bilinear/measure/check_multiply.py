"""Run a multiply on real input and compare it with the classical one; refuse an algorithm that is less accurate than requested."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from math import inf
from types import ModuleType
from typing import Any, Literal

import numpy as np

from bilinear.analysis.accuracy import PROBABLE, drift_bound, error_allowance, schedule_bound
from bilinear.analysis.integer_range import integer_range
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array, Dtype, real_type
from bilinear.ir.schedule import Schedule
from bilinear.ir.scheme import Scheme
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import Level, prepare, prepare_complex
from bilinear.planner.choose import why_inaccurate
from bilinear.planner.library import Library
from bilinear.planner.plan import Candidate, name_of
from bilinear.planner.problem import require_accuracy
from bilinear.planner.profiles import growth_of
from bilinear.planner.scheduled import relative_above
from bilinear.runtime.matmul import matmul

Device = Literal["cpu", "gpu"]

BYTES_AN_ELEMENT = 16  # The least memory for an element of A, B, C: an int64, float32 before and after.
LARGEST, ALPHA, BETA = 4, 2, 3  # The largest element and the factors of the run on integers.


@dataclass(frozen=True)
class Check:
    """One checked multiply: exactness on integer input, and the error on normal input with its allowance.

    `exact`: the integers were exact bit for bit; None if floating point cannot be exact even for them (fractions such as 1/3, roots, too
    many bits). Then `integers_within` says whether they were within the allowance. `error` and its `allowance`, the proved bound, are max|C
    - A*B| in units of max|A| * max|B|, for complex matrices part by part. `drift` and its `drift_allowance` are max|A' - A| / max|A| over
    both operands after a call that restores them. `workspace_bytes` is what the call allocates beyond A, B and C; times are single calls in
    seconds.
    """

    device: Device
    shape: tuple[int, int, int]
    dtype: str
    levels: int
    inputs: str
    exact: bool | None
    restored: bool
    error: float
    allowance: float
    drift: float
    workspace_bytes: int
    seconds: float
    library_seconds: float
    drift_allowance: float = 0.0
    integers_within: bool = True

    @property
    def passed(self) -> bool:
        """True if integers are exact where possible, operands are restored, and error and drift are within their allowances."""
        keeps = self.inputs == "consume" or self.drift <= self.drift_allowance
        return self.exact is not False and self.integers_within and self.restored and keeps and self.error <= self.allowance

    def to_json(self) -> dict[str, object]:
        """The fields, and whether the check passed."""
        return {**asdict(self), "passed": self.passed}


def check(
    loaded: Loaded,
    shape: tuple[int, int, int],
    dtype: str,
    levels: int,
    inputs: str,
    device: Device = "cpu",
    tolerance: float | None = None,
) -> Check:
    """Multiply m x k by k x n twice: integers in -4..4 with alpha = 2 and beta = 3, and normal data.

    The integers must come out bit for bit if every intermediate value is exact in the element type, else within the proved bound. The
    reference is NumPy's classical multiply: exact for the integers; in float64 for float32 data; and for float64 data on operands split
    into halves of their bits, whose products are nearly exact.
    """
    require_memory(shape)
    m, k, n = shape
    xp = module_of(device)
    generator = np.random.default_rng(20_260)
    options: dict[str, Any] = {"algorithm": loaded, "levels": levels, "inputs": inputs, "tolerance": tolerance}

    number = np.dtype(dtype)
    whole = [_drawn(lambda size: generator.integers(-LARGEST, LARGEST + 1, size), number, size) for size in ((m, k), (k, n), (m, n))]
    a, b, c = (xp.array(x, dtype) for x in whole)
    matmul(a, b, c, alpha=ALPHA, beta=BETA, **options)
    computed = [on_host(x) for x in (a, b, c)]

    left, right = (_drawn(generator.standard_normal, number, size).astype(dtype) for size in ((m, k), (k, n)))
    a, b, c = xp.array(left), xp.array(right), xp.full((m, n), np.nan, dtype)
    seconds = timed(device, lambda: matmul(a, b, c, **options))
    scale = float(abs(_parts(left)).max() * abs(_parts(right)).max()) if left.size and right.size else 1.0
    difference = abs(_parts(on_host(c) - _reference(left, right)))
    error = float(difference.max()) / scale if difference.size else 0.0
    drift = max((float(abs(on_host(x) - y).max()) / float(abs(y).max()) for x, y in ((a, left), (b, right)) if y.size), default=0.0)
    xp.matmul(a, b)
    library_seconds = timed(device, lambda: xp.matmul(a, b))

    schedule = lowered_for(loaded, number, levels, inputs)
    itemsize = real_type(number).itemsize
    unit_roundoff = float(np.finfo(dtype).eps) / 2
    allowance = error_allowance(loaded.scheme, schedule, k, unit_roundoff)
    drift_allowance = drift_bound(schedule).worst() * unit_roundoff if inputs == "restore" else 0.0
    exact, restored, within = _integers(loaded.scheme, schedule, whole, computed, inputs, drift_allowance)
    workspace = place_schedule(schedule, m, k, n, itemsize).workspace_elements * itemsize
    trust = exact, restored, error, allowance, drift
    return Check(device, shape, dtype, levels, inputs, *trust, workspace, seconds, library_seconds, drift_allowance, within)


def lowered_for(loaded: Loaded, dtype: Dtype, levels: int, inputs: str) -> Schedule:
    """The schedule that runs."""
    if dtype.kind == "c":
        return prepare_complex((Level(loaded.scheme, loaded.schedule),) * levels, core=loaded.complex_core)
    return prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule


def _drawn(draw: Callable[[tuple[int, int]], Array], dtype: Dtype, size: tuple[int, int]) -> Array:
    """A matrix of drawn numbers, or one whose real and imaginary parts are drawn."""
    return draw(size) + 1j * draw(size) if dtype.kind == "c" else draw(size)


def _parts(array: Array) -> Array:
    """The real and the imaginary parts of a complex array; a real array itself."""
    return np.stack((array.real, array.imag)) if array.dtype.kind == "c" else array


def require_memory(shape: tuple[int, int, int]) -> None:
    """Refuse a check whose matrices, as integers and as numbers, do not fit into this machine's memory (E508)."""
    m, k, n = shape
    needed = BYTES_AN_ELEMENT * (m * k + k * n + m * n)
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # it is not known
        return
    if needed > memory:
        message = f"a check of {m} x {k} by {k} x {n} takes more than {needed / 2**30:.3g} GiB, and there are {memory / 2**30:.3g}"
        raise fail("E508", message, "give a smaller --shape")


def _integers(
    scheme: Scheme, schedule: Schedule, whole: list[Array], computed: list[Array], inputs: str, drift_allowance: float
) -> tuple[bool | None, bool, bool]:
    """Whether C is exact (None if it need not be), whether A and B are unchanged, and whether C is within the allowance.

    `whole` holds A, B and C as integers, `computed` their values after the multiply.
    """
    dtype, k = computed[2].dtype, whole[0].shape[1]
    wanted = ALPHA * _exact(whole[0], whole[1]) + BETA * whole[2]
    operands = [] if inputs == "consume" else list(zip(computed[:2], whole[:2], strict=True))
    if _is_exact(schedule, dtype, k):
        return bool(np.array_equal(computed[2], wanted.astype(dtype))), all(np.array_equal(x, y) for x, y in operands), True
    unit_roundoff = float(np.finfo(dtype).eps) / 2
    bound = schedule_bound(scheme, schedule, k, unit_roundoff)
    allowed = unit_roundoff * (ALPHA * bound.product * LARGEST**2 + BETA * bound.addend * LARGEST)
    restored = all(_distance(x, y) <= drift_allowance * LARGEST for x, y in operands)
    return None, restored, _distance(computed[2], wanted) <= allowed


def _is_exact(schedule: Schedule, dtype: Dtype, k: int) -> bool:
    """True if every value that the schedule forms from the integers is exact in a floating-point type."""
    found = integer_range(schedule)
    if found is None:
        return False
    depth = k // schedule.k
    rest = (k - depth * schedule.k) * (1 + schedule.is_complex)
    return found.size(np.finfo(str(dtype)).nmant + 1, depth, rest, ALPHA, BETA) >= LARGEST


def _distance(computed: Array, wanted: Array) -> float:
    """The largest difference, in double precision; infinite if a value is not finite."""
    worst = float(abs(_parts(computed - wanted)).max()) if wanted.size else 0.0
    return worst if worst < inf else inf


def module_of(device: Device) -> ModuleType:
    """NumPy, or CuPy."""
    return np if device == "cpu" else import_module("cupy")


def on_host(array: Array) -> Array:
    """The array in the host's memory."""
    return array if isinstance(array, np.ndarray) else array.get()


def timed(device: Device, call: Callable[[], object]) -> float:
    """The seconds of a single call, from and to an idle device."""
    _wait(device)
    start = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: Device) -> None:
    if device == "gpu":
        import cupy

        cupy.cuda.get_current_stream().synchronize()


def _exact(a: Array, b: Array) -> Array:
    """The exact integer product: the sums stay far below 2**53, so float64 holds them all."""
    if a.dtype.kind == "c":
        return a @ b
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)


def _reference(a: Array, b: Array) -> Array:
    """The classical product in higher precision: in float64 for float32, from split operands for float64."""
    if a.dtype.kind == "c":
        real = _reference(a.real, b.real) - _reference(a.imag, b.imag)
        return real + 1j * (_reference(a.real, b.imag) + _reference(a.imag, b.real))
    if a.dtype == np.float32:
        return a.astype(np.float64) @ b.astype(np.float64)
    high, low = _split(a)
    high_b, low_b = _split(b)
    return (high @ high_b) + (high @ low_b + low @ high_b + low @ low_b)


def _split(x: Array) -> tuple[Array, Array]:
    """x = high + low, with few enough bits in `high` that sums of products of highs are nearly exact in float64."""
    factor = float(2**32 + 1)
    scaled = x * factor
    high = scaled - (scaled - x)
    return high, x - high


def require_accurate(loaded: Loaded, inner: int, dtype: str, levels: int, inputs: str, accuracy: float | str) -> None:
    """Refuse an algorithm whose bound, or probable error, for `inner` terms is above the accuracy (E519); E543 for what is none."""
    require_accuracy(accuracy)
    number = np.dtype(dtype)
    u = float(np.finfo(dtype).eps) / 2  # for a complex type the type of its parts
    bound = error_allowance(loaded.scheme, lowered_for(loaded, number, levels, inputs), inner, u)
    probable = relative_above(growth_of((loaded.scheme,) * levels), loaded.scheme.k**levels, inner)
    probable *= PROBABLE if number.kind == "c" else 1
    why = why_inaccurate(Candidate(Library(), error=bound, probable=probable), accuracy)
    if why:
        what = f"{name_of((loaded.scheme.name,) * levels)} in {dtype}: {why}"
        raise fail("E519", what, "allow more, take fewer levels, or let `bilinear plan --accuracy` choose")
