"""Products modulo p: checked by random vectors in Python's integers, and benched on the current GPU beside exact products by pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import ceil, log2
from statistics import median
from typing import Any

import numpy as np

from bilinear.analysis.integer_range import way_for
from bilinear.backends.timing import Call, interleaved
from bilinear.codegen.build import Progress, no_progress
from bilinear.errors import BilinearError
from bilinear.frontend import Loaded, load
from bilinear.ir.matrix import Array
from bilinear.ir.measurement import LeftOut, Shape
from bilinear.measure.bench_library import library_calls, machine
from bilinear.measure.bench_tasks import pinned
from bilinear.measure.check_multiply import Device, module_of, on_host, require_memory, timed
from bilinear.runtime.matmul import matmul

DOUBT = 64
"""A wrong result passes with a probability of at most 2^-DOUBT, modulo a prime."""
ALPHA, BETA = 2, 3


@dataclass(frozen=True)
class ModularCheck:
    """One checked multiply modulo p: whether C is exact, and A and B are as promised; times are single calls in seconds."""

    device: Device
    shape: tuple[int, int, int]
    modulus: int
    levels: int
    inputs: str
    exact: bool
    restored: bool
    seconds: float
    classical_seconds: float

    @property
    def passed(self) -> bool:
        """True if nothing is wrong."""
        return self.exact and self.restored

    def to_json(self) -> dict[str, object]:
        """The fields, and whether the check passed."""
        return {**asdict(self), "passed": self.passed}


def check_modulo(
    loaded: Loaded, shape: tuple[int, int, int], modulus: int, levels: int, inputs: str, device: Device = "cpu"
) -> ModularCheck:
    """Multiply random m x k by k x n modulo p, with alpha = 2 and beta = 3, and classically with 1 and 0.

    C X is compared with alpha*A (B X) + beta*C0 X, for random vectors X and in Python's integers. A row of C that is wrong passes one
    vector with a probability of at most 1/q, q the least prime factor of p (R. Freivalds, IFIP Congress 1977).
    """
    require_memory(shape)
    m, k, n = shape
    generator = np.random.default_rng(20_260)
    a, b, c = (generator.integers(0, modulus, size) for size in ((m, k), (k, n), (m, n)))
    xp = module_of(device)
    left, right, out = (xp.array(each) for each in (a, b, c))
    options: dict[str, Any] = {"algorithm": loaded, "levels": levels, "inputs": inputs, "modulus": modulus}
    seconds = timed(device, lambda: matmul(left, right, out, alpha=ALPHA, beta=BETA, **options))
    left, right, out = map(on_host, (left, right, out))
    x = generator.integers(0, modulus, (n, ceil(DOUBT / log2(modulus))))
    wanted = (ALPHA * _times(a, _times(b, x, modulus), modulus) + BETA * _times(c, x, modulus)) % modulus
    exact = bool((_times(out, x, modulus) == wanted).all() and (out >= 0).all() and (out < modulus).all())
    restored = inputs == "consume" or bool((left == a).all() and (right == b).all())
    x, y = xp.array(a), xp.array(b)
    classical = timed(device, lambda: matmul(x, y, modulus=modulus))
    return ModularCheck(device, shape, modulus, levels, inputs, exact, restored, seconds, classical)


def is_product_modulo(a: Array, b: Array, c: Array, modulus: int) -> bool:
    """Whether c is a @ b modulo p, from 0 to p - 1: compared on random vectors as in `check_modulo`, by products on the processors."""
    x = np.random.default_rng(5).integers(0, modulus, (b.shape[1], ceil(DOUBT / log2(modulus))))
    same = matmul(c, x, modulus=modulus) == matmul(a, matmul(b, x, modulus=modulus), modulus=modulus)
    return bool(same.all() and (c >= 0).all() and (c < modulus).all())


def _times(matrix: Array, vectors: Array, modulus: int) -> Array:
    """A product of few columns modulo p: in int64 if it can hold the sums, else in Python's integers."""
    fits = matrix.shape[1] * (modulus - 1) ** 2 < 2**63
    return (matrix @ vectors if fits else matrix.astype(object) @ vectors.astype(object)) % modulus


AUTO = "auto"
ROUNDS = 7


@dataclass(frozen=True)
class ModularTime:
    """An algorithm timed modulo p; milliseconds are medians over the rounds.

    `pieces_ms` is the time of the float64 products alone that an exact product by pieces takes: `pieces` of them, by the fastest library.
    What cuts the numbers, and reduces sums, is not in it. `exact` says that random vectors found no difference from the definition.
    """

    shape: Shape
    modulus: int
    asked: str
    ms: float
    pieces: int
    pieces_ms: float
    exact: bool

    @property
    def ratio(self) -> float:
        """How many times as fast as the float64 products it is."""
        return self.pieces_ms / self.ms

    @property
    def rate(self) -> float:
        """Operations of the definition, in TOP/s."""
        m, k, n = self.shape
        return 2e-9 * m * k * n / self.ms

    def to_json(self) -> dict[str, object]:
        """One row of a results file."""
        return {**asdict(self), "n": self.shape[2], "ratio": self.ratio, "TOP/s": self.rate}


def measure_modulo(
    shapes: Sequence[Shape], modulus: int, asked: Sequence[str], rounds: int = ROUNDS, progress: Progress = no_progress
) -> Iterator[ModularTime | LeftOut]:
    """The rows of all shapes as they are found, and what could not be measured. `asked` is `auto` or `NAME:LEVELS`."""
    for number, shape in enumerate(shapes):
        progress("x".join(map(str, shape)), number, len(shapes))
        try:
            yield from _of_shape(shape, modulus, asked, rounds)
        except Exception as error:  # CuPy and the driver raise many kinds, and the other shapes are still worth measuring
            yield LeftOut("x".join(map(str, shape)), f"{type(error).__name__}: {error}")


def modular_json(rows: Sequence[ModularTime], left_out: Sequence[LeftOut], command: Sequence[str]) -> str:
    """The results, and the machine, as JSON text."""
    found = {"benchmark": "bench", "machine": machine(), "command": list(command), "rows": [row.to_json() for row in rows]}
    return json.dumps(found | {"left_out": [asdict(one) for one in left_out]}, indent=1) + "\n"


def _of_shape(shape: Shape, modulus: int, asked: Sequence[str], rounds: int) -> Iterator[ModularTime | LeftOut]:
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    (m, k, n), generator = shape, cupy.random.default_rng(7)
    a, b = (generator.integers(0, modulus, extents) for extents in ((m, k), (k, n)))
    c, calls, exact = cupy.empty((m, n), "int64"), dict[str, Call](), dict[str, bool]()
    for word in asked:
        try:
            call = _call(word, a, b, c, modulus)
            c[...] = -1
            call()
        except (BilinearError, MemoryError) as error:
            told = error.diagnostics[0].message if isinstance(error, BilinearError) else f"out of memory: {error}"
            yield LeftOut(f"{word} at {'x'.join(map(str, shape))}", told)
            continue
        calls[word], exact[word] = call, is_product_modulo(_on_host(a), _on_host(b), _on_host(c), modulus)
    x, y, z = a.astype("float64"), b.astype("float64"), cupy.empty((m, n), "float64")
    pieces, libraries = len(way_for(modulus, modulus // 2, modulus // 2, k).pairs), library_calls(x, y, z)
    times = {name: median(found) for name, found in interleaved({**libraries, **calls}, rounds).items()}
    pieces_ms = pieces * min(times[name] for name in libraries)
    for word in calls:
        yield ModularTime(shape, modulus, word, times[word], pieces, pieces_ms, exact[word])


def _call(word: str, a: Array, b: Array, c: Array, modulus: int) -> Call:
    if word == AUTO:
        return partial(matmul, a, b, c, modulus=modulus)
    levels = pinned(word).levels
    is_mixed = len(set(levels)) > 1
    algorithm = load(" (x) ".join(levels) if is_mixed else levels[0])
    return partial(matmul, a, b, c, modulus=modulus, algorithm=algorithm, levels=1 if is_mixed else len(levels))


def _on_host(x: Array) -> Array:
    return x.get() if hasattr(x, "get") else x
