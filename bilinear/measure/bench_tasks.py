"""Bench tasks: the shapes to measure, which plans on them, and their kernels, built in advance."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, islice
from math import exp, log, sqrt
from pathlib import Path

import numpy as np

from bilinear.codegen.build import Progress, no_progress
from bilinear.errors import BilinearError, fail
from bilinear.frontend.algorithms import names_of_levels
from bilinear.ir.element import COMPLEX, IN_ARRAYS
from bilinear.ir.measurement import Shape
from bilinear.ir.placement import LEVELS_ALLOWED, MOST_LEVELS
from bilinear.lowering.prepare import natural_inputs
from bilinear.methods.registry import METHODS
from bilinear.planner.device import Device
from bilinear.planner.library import LIBRARY_ITSELF
from bilinear.planner.plan import Plan
from bilinear.planner.problem import BITWISE, require_accuracy
from bilinear.planner.ways import algorithm_named
from bilinear.reading import read_input
from bilinear.runtime import auto
from bilinear.runtime.ahead import fill_cache
from bilinear.source import Source, Span

LARGEST_SIDE = 20_000
MOST_FLOPS = 9e12  # The most operations of a grid's shape: 0.2 s at 50 TFLOP/s, so a run takes minutes.
FAMILIES = (13, 27, 13, 27, 13, 27, 20, 20, 20, 20)
"""The number of shapes in the grid: powers of two (cubes, others), primes, odd, tall (m, k), wide (k, m)."""
FRESH = 20  # Where the points of the second grid begin, in thousands.
ROOT = 1.2207440846057596
"""The real root of x^4 = x + 1. Multiples of its powers, modulo 1, fill the cube evenly.

M. Roberts, The unreasonable effectiveness of quasirandom sequences (2018).
"""
WORD = re.compile(r"\S+")
SIZES = re.compile(r"([1-9][0-9]{0,9})(?:[x,]([1-9][0-9]{0,9})[x,]([1-9][0-9]{0,9}))?")
DTYPES = tuple(IN_ARRAYS)


def read_sizes(text: str) -> tuple[Shape, ...]:
    """Sizes separated by commas or spaces, each N or MxKxN (E681)."""
    found = tuple(_shape(word) for word in re.split(r"[,\s]+", text.strip()) if word)
    if not found:
        raise _no_shape(text)
    return found


def read_shapes_file(path: Path) -> tuple[Shape, ...]:
    """The shapes of a file, N or MxKxN or M,K,N a line, with comments after # (E681, with its place)."""
    try:
        source = Source(str(path), read_input(path).decode())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise fail("E681", f"cannot read {path}: {why}", "name a file with a shape a line") from None
    found = []
    for number, start in enumerate(source.line_starts, 1):
        for match in WORD.finditer(source.line(number).split("#")[0]):
            span = Span(source, start + match.start(), start + match.end())
            found.append(_shape(match.group(), span))
    if not found:
        raise fail("E681", f"{path} holds no shape", "write N or MxKxN, one a line")
    return tuple(found)


def _shape(word: str, span: Span | None = None) -> Shape:
    match = SIZES.fullmatch(word)
    if match is None:
        raise _no_shape(word, span)
    m, k, n = (int(side) if side else int(match[1]) for side in match.groups())
    return m, k, n


def _no_shape(word: str, span: Span | None = None) -> BilinearError:
    return fail("E681", f"{word!r} is not a shape", "write N for square matrices, or MxKxN", span=span)


def grid(fresh: bool = False) -> tuple[tuple[Shape, str], ...]:
    """200 shapes with sides from 1 to 20000 and their element types, always the same.

    Powers of two, primes, odd, tall, wide, 40 of each.

    The `fresh` grid has other shapes except for 13 cubes. A third of the first three families are cubes. Tall is m x k by k x n with a
    large m or a large k and two small sides; wide has one small side. Shapes that take too long are skipped.
    """
    primes, begin = _primes(LARGEST_SIDE), FRESH if fresh else 0
    families: list[Iterator[Shape]] = []
    for number, rounded in enumerate((_power, lambda u: min(primes, key=lambda p: abs(p - _side(u))), lambda u: _side(u) - 1 | 1)):
        families += [_spread(begin + 3 * number, rounded), _spread(begin + 3 * number + 1, rounded, rounded, rounded)]
    families += [_spread(begin + 9, _large, _small, _small), _spread(begin + 10, _small, _large, _small)]
    families += [_spread(begin + 11, _large, _small, _large), _spread(begin + 12, _small, _large, _large)]
    known: set[Shape] = set()
    shapes = [shape for number, family in enumerate(families) for shape in islice(_new(family, known), FAMILIES[number])]
    return tuple((shape, DTYPES[i % 2]) for i, shape in enumerate(shapes))


def _new(family: Iterator[Shape], known: set[Shape]) -> Iterator[Shape]:
    """The shapes that did not occur before."""
    for shape in family:
        if shape not in known:
            known.add(shape)
            yield shape


def _spread(start: int, *sides: Callable[[float], int]) -> Iterator[Shape]:
    """Shapes whose sides come from points that fill the cube evenly; cubes if there is one kind of side."""
    for i in count(1 + 1000 * start):
        point = (0.5 + i / ROOT ** (axis + 1) for axis in range(3))
        m, k, n = (side(x - int(x)) for side, x in zip(sides if len(sides) > 1 else sides * 3, point, strict=True))
        shape = (m, k, n) if len(sides) > 1 else (m, m, m)
        if 2.0 * shape[0] * shape[1] * shape[2] <= MOST_FLOPS:
            yield shape


def _side(u: float) -> int:
    """A side from 1 to the largest, large ones more often: uniform in the square of the logarithm."""
    return round(exp(sqrt(u) * log(LARGEST_SIDE)))


def _power(u: float) -> int:
    return 1 << int(15 * sqrt(u))


def _small(u: float) -> int:
    return round(exp(u * log(64)))


def _large(u: float) -> int:
    return round(1000 * exp(u * log(LARGEST_SIDE / 1000)))


def _primes(most: int) -> list[int]:
    sieve = bytearray([1]) * (most + 1)
    sieve[:2] = b"\0\0"
    for p in range(2, int(sqrt(most)) + 1):
        if sieve[p]:
            sieve[p * p :: p] = bytes(len(range(p * p, most + 1, p)))
    return [p for p in range(most + 1) if sieve[p]]


PRODUCTS = tuple(name for method in METHODS for name in method.products)
"""The products that are named below levels, as in `winograd+pairs`."""


@dataclass(frozen=True)
class BenchCase:
    """What to measure on a problem: the planner's choice within limits, pinned levels, or a plain `matmul` call.

    `asked` names it: `plan`, `auto`, `bitwise`, or the levels, with the `products` below them, if these are digits or rounded numbers.
    `budget` limits the workspace in units of C's size (None: the device's memory), and `accuracy` the error, as in `matmul`. `kept` is the
    operand that is prepared, `left` or `right`.
    """

    inputs: str = "preserve"
    budget: float | None = None
    levels: tuple[str, ...] = ()
    asked: str = "plan"
    accuracy: float | str | None = None
    kept: str = ""
    products: str = ""

    @property
    def by_auto(self) -> bool:
        """True if only the arrays, and perhaps an accuracy, are given."""
        return self.asked == "auto"


PLANNED = (BenchCase(), BenchCase("restore", 0.0), BenchCase("preserve", 0.0))
"""The columns of docs/results.md: unlimited memory; in place, inputs restored; in place, inputs untouched."""
AUTO = BenchCase(asked="auto")


@dataclass(frozen=True)
class BenchTask:
    """One problem and the cases to measure on it."""

    shape: Shape
    dtype: str
    cases: tuple[BenchCase, ...] = PLANNED

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape))} {self.dtype}"


def tasks_for(
    sizes: str,
    file: Path | None,
    is_grid: bool,
    dtypes: Sequence[str],
    algorithms: Sequence[str],
    accuracy: float | str | None = None,
    kept: Sequence[str] = (),
) -> tuple[BenchTask, ...]:
    """The tasks for the grid, a file or sizes; `algorithms` is read by `asked_cases` (E681, E682). E543 for what is not an accuracy.

    Cases with all memory whose inputs are only read are repeated with each of the `kept` operands prepared.
    """
    require_accuracy(accuracy)
    plain = [replace(case, accuracy=accuracy) for word in algorithms for case in asked_cases(word)]
    keeping = [case for case in plain if case.inputs == "preserve" and case.budget is None and not case.by_auto]
    cases = (*plain, *(replace(case, kept=side, asked=f"{case.asked}, {side} kept") for case in keeping for side in kept))
    if is_grid:
        return tuple(BenchTask(shape, dtype, cases) for shape, dtype in grid() if dtype in dtypes)
    shapes = read_sizes(sizes) if file is None else read_shapes_file(file)
    return tuple(
        BenchTask(shape, dtype, tuple(case for case in cases if dtype not in COMPLEX or case not in PLANNED[1:]))
        for dtype in dtypes
        for shape in shapes
    )


def asked_cases(word: str) -> tuple[BenchCase, ...]:
    """`plan` is the planner's choice under three limits, `auto` a plain call, `bitwise` the same bits, anything else pinned levels."""
    return {"plan": PLANNED, "auto": (AUTO,), BITWISE: (BenchCase(asked=BITWISE),)}.get(word) or (pinned(word),)


def pinned(word: str) -> BenchCase:
    """`msmes:2`, or mixed levels `winograd_depth_first+winograd`, the outermost first, as a case (E682).

    The last name may be one of products, as in `winograd+pairs`. The inputs are those that the algorithms are made for. Plans that leave
    inputs undefined are refused, because they cannot be repeated.
    """
    *outer, last = names_of_levels(word) or (word,)
    if ":" in last or len(outer) >= MOST_LEVELS:
        hint = f"write NAME:LEVELS, as msmes:2, or OUTER+INNER for mixed levels: {LEVELS_ALLOWED}"
        raise fail("E682", f"{word!r} names no levels", hint)
    products = last if last in PRODUCTS and ":" not in word else ""
    found = tuple(outer if products else [*outer, last])
    promises = {natural_inputs(algorithm_named(name).schedule) for name in found}
    if "consume" in promises:
        raise fail("E682", f"{word!r} leaves its inputs undefined, but a benchmark runs on them again", "choose one that restores them")
    return BenchCase("restore" if "restore" in promises else "preserve", None, found, word, products=products)


def choose(task: BenchTask, case: BenchCase, device: Device) -> Plan:
    """The plan of a case; raises `BilinearError` (E543, E408) if there is none. A plain call also uses kept plans of the current GPU."""
    m, k, n = task.shape
    budget = None if case.budget is None else int(case.budget * m * n * np.dtype(task.dtype).itemsize)
    known = None if case.by_auto else device
    options = {
        "inputs": case.inputs,
        "workspace": budget,
        "accuracy": case.accuracy,
        "levels": case.levels or None,
        "products": case.products or None,
        "reproducible": BITWISE if case.asked == BITWISE else None,
    }
    return auto.plan(m, k, n, task.dtype, device=known, **options)  # type: ignore[arg-type]  # each of its own type


def bound_of(plan: Plan | None, inner: int, dtype: str) -> float:
    """The proved error bound of the chosen candidate; a plan contains it only if it was requested."""
    chosen = LIBRARY_ITSELF if plan is None else plan.chosen
    return chosen.choice.bound(inner, dtype) if chosen.error is None else chosen.error


def build_ahead(tasks: Sequence[BenchTask], device: Device, progress: Progress = no_progress) -> None:
    """Fill the cache of kernels, several at once, so that the GPU does not wait for compilation."""
    plans = []
    for task in tasks:
        for case in task.cases:
            with suppress(BilinearError):  # failures are reported when the case is measured
                plans.append(choose(task, case, device))
    fill_cache(plans, progress)
