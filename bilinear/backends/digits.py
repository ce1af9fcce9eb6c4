"""Float32 products on the float16 matrix units of a GPU: numbers are cut into two digits, by kernels that also form a scheme's sums.

Launches: the largest magnitude of every line, which gives its scale; the forms of A and of B, cut; the products; the forms of the products.
A line that holds an Inf or a NaN sets a flag on the device. Then the others write nothing to C, and the classical product runs, the last
launch, which ends at once if the flag is clear.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import ceil

from bilinear.backends.bound_launches import Bound, Place, Values, run_launches
from bilinear.backends.cublas import Multiply
from bilinear.backends.cuda_executor import CudaExecutor, built_function, launch_kernel
from bilinear.backends.factor import factor
from bilinear.backends.thin import ALIGNMENT, MOST_KEPT, is_by_rows, is_in_lanes
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.lower_digits import DigitKernels, OperandOrder, lower_digits
from bilinear.codegen.names import stem
from bilinear.ir.digit_kernel import PANEL, SLICE, ClearKernel, DigitKernel, ExpandKernel, LargestKernel
from bilinear.ir.element import FLOAT32
from bilinear.ir.kernel import Argument, Cover, Grid, ProductKernel
from bilinear.ir.launch import Launch, PlainLaunch
from bilinear.ir.matrix import Factor, Layout
from bilinear.ir.scheme import Scheme
from bilinear.ir.tile import DIGIT_TILES, LARGE
from bilinear.lowering.prepare import plain, proved
from bilinear.planner.digits import BYTES, geometry_of, scheme_of
from bilinear.planner.plan import Digits
from bilinear.planner.ways import algorithm_named, follows_from_names

CAPABILITIES = ("90",)
"""Compute capabilities, times ten, that have the instructions."""
LEAST_DEPTH = 512
"""The least terms of a line that a block of threads searches for the largest magnitude."""
BLOCKS_EACH = 8
"""Blocks of threads for each multiprocessor that search for the largest magnitudes."""


@lru_cache(maxsize=64)
def proved_scheme(levels: tuple[str, ...]) -> Scheme:
    """The scheme of levels of shipped algorithms, each proved."""
    for name in levels:
        proved(algorithm_named(name).scheme)
    return scheme_of(levels)


class DigitMultiply:
    """C = alpha * A * B + beta * C for float32 matrices of these layouts on the current device, called with addresses like a library's.

    `workspace` is the number of elements that a call allocates from CuPy's pool. The caller's memory, in its place, must begin at a
    multiple of `alignment` bytes, because bulk copies read it.
    """

    alignment = ALIGNMENT

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits) -> None:
        self._swaps = not is_by_rows(c)
        self._layouts = (b.T, a.T, c.T) if self._swaps else (a, b, c)
        self._scheme, self._tile = proved_scheme(digits.levels), DIGIT_TILES[digits.tile]
        self._stem = stem("_".join(digits.levels) or "plain", len(digits.levels))
        (m, k), (_, n) = self._layouts[0].shape, self._layouts[1].shape
        self._extents = m, k, n
        self._geometry = geometry_of(digits.levels, self._extents, digits.tile)
        self._bound: dict[bool, Bound] = {}
        self.workspace = self._geometry.places[-1] // BYTES

    def __call__(self, a: int, b: int, c: int, alpha: Factor, beta: Factor, workspace: int = 0) -> None:
        """Launch on CuPy's current stream; `workspace` is the address of the caller's memory, if there is one, a multiple of 16.

        Raises `StageError` if a launch fails, and before that whatever says that there is no kernel or no memory.
        """
        import cupy

        if self._swaps:
            a, b = b, a
        kept = None
        if not workspace:
            kept = cupy.empty(self.workspace, "float32")  # freed in stream order
            workspace = kept.data.ptr
        is_aligned = (a | b | c) % ALIGNMENT == 0
        bound = self._bound.get(is_aligned) or self._bind(is_aligned)
        factors = factor("alpha", alpha, self._layouts[2].dtype), factor("beta", beta, self._layouts[2].dtype)
        with bound.ready((a, b, c, workspace), *factors, CudaExecutor().stream()) as steps:
            run_launches(steps, "a product of digits", 2)

    def within(self, workspace: int) -> Multiply:
        """The same, in the caller's memory at this address."""
        return lambda a, b, c, alpha, beta: self(a, b, c, alpha, beta, workspace)

    def _bind(self, is_aligned: bool) -> Bound:
        """The launches for operands at multiples of 16 bytes, or at any address."""
        import cupy

        device = cupy.cuda.Device()
        launches = self.launches(is_aligned, device.attributes["MultiProcessorCount"])
        loaded = [(launch, built_function(launch.kernel, device.id), values) for launch, values in launches]
        bound = self._bound[is_aligned] = Bound(FLOAT32, loaded, launch_kernel())
        return bound

    def kernels(self, is_aligned: bool) -> DigitKernels:
        """The kernels for operands at multiples of 16 bytes, or at any address."""
        a, b, c = self._layouts
        left = OperandOrder(is_by_rows(a), is_aligned and is_in_lanes(a))
        right = OperandOrder(not is_by_rows(b), is_aligned and is_in_lanes(b))
        return lower_digits(self._scheme, self._stem, self._tile, left, right, is_aligned and is_in_lanes(c))

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[tuple[Launch | PlainLaunch, Values]]:
        """The launches in their order, with the values of their arguments."""
        g, (m, k, n), (a, b, c) = self._geometry, self._extents, self._layouts
        (block_m, _, block_n), (words, *digits, _, _), own = g.block, g.places, self.kernels(is_aligned)
        largest = _at(words), _at(words + BYTES * block_m)
        scales = {"LA": largest[0], "LB": largest[1], "flag": _at(words + BYTES * (block_m + block_n))}
        left = _operand(0, a.strides, m, k, block_m) | {"largest": largest[0], "flag": scales["flag"]}
        right = _operand(1, b.strides[::-1], n, k, block_n) | {"largest": largest[1], "flag": scales["flag"]}
        result = _result(c, m, n) | scales
        return [
            _launch(ClearKernel(), ceil(g.words / 256), {"words": largest[0], "count": g.words}),
            *(_search(kernel, x, multiprocessors) for kernel, x in zip(own.largest, (left, right), strict=True)),
            *(self._expansion(*each) for each in zip(own.expand, (left, right), g.panels, digits, strict=True)),
            *self._products(own, result),
            self._classical(result),
        ]

    def _expansion(self, kernel: ExpandKernel, operand: Values, panels: int, place: int) -> tuple[PlainLaunch, Values]:
        g = self._geometry
        lines, terms = panels * PANEL, g.slices * SLICE
        fast, slow = (terms, lines) if kernel.along else (lines, terms)
        shape: Values = {"block_lines": operand["block"], "block_terms": g.block[1], "panels": panels, "slices": g.slices, "D": _at(place)}
        return _launch(kernel, ceil(fast / (kernel.threads[0] * kernel.lanes)) * ceil(slow / kernel.threads[1]), operand | shape)

    def _products(self, own: DigitKernels, result: Values) -> list[tuple[PlainLaunch, Values]]:
        g = self._geometry
        (block_m, _, block_n), (_, left, right, products, _), (panels_m, panels_n) = g.block, g.places, g.panels
        digits: Values = {"DA": _at(left), "DB": _at(right), "panels_m": panels_m, "panels_n": panels_n, "slices": g.slices}
        if own.recompose is None:
            return [_launch(own.product, panels_m * panels_n, result | digits)]
        into: Values = {"P": _at(products), "pitch": block_n}
        covers = ceil(block_n / (own.recompose.threads[0] * own.recompose.lanes)) * ceil(block_m / own.recompose.threads[1])
        return [
            _launch(own.product, panels_m * panels_n, digits | into | {"m": block_m}, g.rank),
            _launch(own.recompose, covers, result | into | {"block_m": block_m, "block_n": block_n}),
        ]

    def _classical(self, result: Values) -> tuple[Launch, Values]:
        """The product that runs if the flag is set."""
        (launch,) = schedule_to_launches(plain().schedule, FLOAT32, LARGE, "digit_classical")
        kernel = launch.kernel
        if not isinstance(kernel, ProductKernel):
            raise TypeError("the plain schedule is one product")
        guarded = replace(kernel, guarded=True, arguments=(*kernel.arguments, Argument("flag", "flag")))
        values = result | dict(zip(("bm", "bk", "bn"), self._extents, strict=True))
        for number, (name, x) in enumerate(zip("AB", self._layouts, strict=False)):
            values |= {name: Place(number, 0, x.strides, BYTES), f"{name}_rs": x.strides[0] // BYTES, f"{name}_cs": x.strides[1] // BYTES}
        return replace(launch, kernel=guarded), values


def _launch(kernel: DigitKernel, blocks: int, values: Values, rows: int = 1) -> tuple[PlainLaunch, Values]:
    return PlainLaunch(kernel, Grid(((Cover("blocks", 1),),), rows)), values | {"blocks": blocks}


def _search(kernel: LargestKernel, operand: Values, multiprocessors: int) -> tuple[PlainLaunch, Values]:
    """The launch that finds the largest magnitudes: lines are cut in parts so that all multiprocessors take part."""
    terms, tiles = operand["terms"], ceil(operand["lines"] / kernel.lines)
    parts = max(1, min(ceil(terms / LEAST_DEPTH), ceil(BLOCKS_EACH * multiprocessors / tiles)))
    depth = ceil(ceil(terms / parts) / 4) * 4
    parts = ceil(terms / depth)
    return _launch(kernel, tiles * parts, operand | {"depth": depth, "parts": parts})


def _operand(base: int, strides: tuple[int, ...], lines: int, terms: int, block: int) -> Values:
    place = Place(base, 0, strides, BYTES)
    own: Values = {"X": place, "X_line": strides[0] // BYTES, "X_term": strides[1] // BYTES}
    return own | {"lines": lines, "terms": terms, "block": block}


def _result(c: Layout, m: int, n: int) -> Values:
    own: Values = {"C": Place(2, 0, c.strides, BYTES), "C_rs": c.strides[0] // BYTES, "C_cs": c.strides[1] // BYTES, "m": m, "n": n}
    return own | {"alpha": "alpha", "beta": "beta"}


def _at(offset: int) -> Place:
    """A place in the workspace, which is base 3."""
    return Place(3, offset, (0, 0), BYTES)


def kernels_of(a: Layout, b: Layout, c: Layout, digits: Digits) -> tuple[DigitKernel, ...]:
    """The kernels of a product of digits of matrices of these layouts whose addresses are multiples of 16 bytes."""
    own = DigitMultiply(a, b, c, digits).kernels(is_aligned=True)
    return (*own.largest, *own.expand, own.product, *((own.recompose,) if own.recompose else ()))


def digit_multiply_of(a: Layout, b: Layout, c: Layout, digits: Digits) -> DigitMultiply | None:
    """The product of digits for matrices of these layouts on the current device.

    None if they are not three matrices of float32, or if the device lacks the instructions.
    """
    if not a.ndim == b.ndim == c.ndim == 2 or any(str(x.dtype) != FLOAT32.name for x in (a, b, c)):
        return None
    if 0 in (*a.shape, *b.shape) or any(stride % BYTES for x in (a, b, c) for stride in x.strides):
        return None
    import cupy

    device = cupy.cuda.Device()
    if device.compute_capability not in CAPABILITIES:
        return None
    return _kept(a, b, c, digits, device.id)


@lru_cache(MOST_KEPT)
def _kept(a: Layout, b: Layout, c: Layout, digits: Digits, device: int) -> DigitMultiply:
    """The product, with the launches that it has bound on a device."""
    return DigitMultiply(a, b, c, digits)


for cached in (proved_scheme, _kept):
    follows_from_names(cached.cache_clear)
