"""Bench products modulo p on the current GPU: residues by each algorithm, beside the float64 products of an exact product by pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median

from bilinear.analysis.integer_range import way_for
from bilinear.codegen.build import Progress, no_progress
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.matrix import Array
from bilinear.ir.measurement import LeftOut, Shape
from bilinear.measure.bench_library import library_calls
from bilinear.measure.bench_machine import machine
from bilinear.measure.bench_tasks import pinned
from bilinear.measure.check_modulo import is_product_modulo
from bilinear.measure.timing import Call, interleaved
from bilinear.runtime.matmul import matmul

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
