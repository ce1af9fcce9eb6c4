"""Thin products on a GPU: one launch that reads matrices as they lie, and a second one that adds up sums which were split."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from bilinear.backends.bound_launches import MatrixPlace, Values
from bilinear.backends.gemm import is_by_rows, is_in_lanes
from bilinear.backends.machine import target_here
from bilinear.ir.element import IN_ARRAYS, Element
from bilinear.ir.kernel import PartsKernel, ThinKernel
from bilinear.ir.launch import PlainLaunch
from bilinear.ir.matrix import Layout
from bilinear.ir.thin_tile import THIN_TILES, AnyThinTile
from bilinear.methods.program import GRID, WORKSPACE, Buffers, NamedLaunch, Program, matrix, once
from bilinear.methods.thin.choice import Thin

MOST_SHARERS, BUSY_THREADS = 32, 2**18
"""The most threads that share the parts of an element, and the number of threads with which a launch that adds parts keeps a GPU busy."""
MOST_UNITS = 2**31 - 1  # Units of a launch are counted in 32 bits.


class ThinMultiply(Program):
    """A thin product. Its workspace holds partial results, if sums are split, and may begin at any element."""

    alignment = 1
    what = "a thin product"

    def __init__(self, a: Layout, b: Layout, c: Layout, thin: Thin) -> None:
        self._own: Element = IN_ARRAYS[str(c.dtype)]
        super().__init__((b.T, a.T, c.T) if thin.swaps else (a, b, c), thin.swaps, self._own)
        self._tile = THIN_TILES[self._own.name][thin.tile]
        (self._m, self._k), self._n = self._layouts[0].shape, self._layouts[1].shape[1]
        self._depth = ceil(ceil(self._k / thin.parts) / self._tile.k) * self._tile.k
        self._parts = ceil(self._k / self._depth)
        self.workspace = self._parts * self._m * self._n if self._parts > 1 else 0

    @property
    def units(self) -> int:
        """Tiles of the result, each as often as its sums are split."""
        return ceil(self._m / self._tile.m) * ceil(self._n / self._tile.n) * self._parts

    def buffers(self) -> Buffers:
        """Where named buffers lie, `P` with the partial results among them."""
        return {**super().buffers(), "P": (WORKSPACE, 0)}

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches in their order, with the values of their arguments."""
        import cupy

        kernel = kernel_for(self._own, self._tile, *self._layouts, is_aligned)
        slots = multiprocessors * kernel.resident_in(cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])
        values: Values = {"m": self._m, "k": self._k, "n": self._n, "parts": self._parts, "depth": self._depth, "apart": 0}
        values |= {"blocks": min(self.units, slots), "alpha": "alpha", "beta": "beta"}
        for name, x in zip("ABC", self._layouts, strict=True):
            values |= matrix(name, x)
        if self._parts == 1:
            return [(PlainLaunch(kernel, GRID), values)]
        adds = parts_kernel(self._own, self._m * self._n, self._parts)
        rs, cs = (self._n, 1) if kernel.by_rows else (1, self._m)
        place = MatrixPlace("P", 0, (rs * self._dtype.itemsize, cs * self._dtype.itemsize), self._dtype.itemsize)
        partial = values | {"C": place, "C_rs": rs, "C_cs": cs, "apart": self._m * self._n, "alpha": 1, "beta": 0}
        line, lines = (self._n, self._m) if kernel.by_rows else (self._m, self._n)
        apart, neighbour = ("C_rs", "C_cs") if kernel.by_rows else ("C_cs", "C_rs")
        own: Values = {"P": MatrixPlace("P", 0, (0, 0), self._dtype.itemsize), "C": values["C"], "lines": lines, "line": line}
        own |= {"C_line": values[apart], "C_neighbour": values[neighbour], "parts": self._parts}
        return [
            (PlainLaunch(kernel, GRID), partial),
            (PlainLaunch(adds, GRID), own | {"alpha": "alpha", "beta": "beta", "blocks": ceil(self._m * self._n / adds.threads[0])}),
        ]


def kernels_of(a: Layout, b: Layout, c: Layout, thin: Thin) -> tuple[ThinKernel | PartsKernel, ...]:
    """The kernels for matrices of these layouts whose addresses are multiples of 16 bytes."""
    element = IN_ARRAYS[str(c.dtype)]
    layouts = (b.T, a.T, c.T) if thin.swaps else (a, b, c)
    kernel = kernel_for(element, THIN_TILES[element.name][thin.tile], *layouts, is_aligned=True)
    return (kernel,) if thin.parts == 1 else (kernel, parts_kernel(element, c.shape[0] * c.shape[1], thin.parts))


def thin_multiply_of(a: Layout, b: Layout, c: Layout, thin: Thin) -> ThinMultiply | None:
    """The thin product of matrices of these layouts on the current device.

    None if they are not three matrices of one type that has kernels, if they lie as the tile cannot read them, if they are too large,
    or if the device does not have the instructions of the tile.
    """
    if not a.ndim == b.ndim == c.ndim == 2 or not a.dtype == b.dtype == c.dtype or str(a.dtype) not in THIN_TILES:
        return None
    if 0 in (*a.shape, *b.shape) or any(stride % a.itemsize for x in (a, b, c) for stride in x.strides):
        return None
    element = IN_ARRAYS[str(a.dtype)]
    tile, (left, right) = THIN_TILES[element.name][thin.tile], (b.T, a.T) if thin.swaps else (a, b)
    if not tile.holds(right.shape[0], right.shape[1], thin.parts):
        return None
    if not tile.admits(element.lanes, is_by_rows(left), not is_by_rows(right)):
        return None
    found = once(_made, a, b, c, thin)
    return found if found is not None and found.units <= MOST_UNITS else None


def _made(a: Layout, b: Layout, c: Layout, thin: Thin) -> ThinMultiply | None:
    """The thin product; None if the current device does not have the instructions of the tile."""
    tile = THIN_TILES[str(c.dtype)][thin.tile]
    return ThinMultiply(a, b, c, thin) if tile.runs_on(target_here().capability) else None


def parts_kernel(element: Element, count: int, parts: int) -> PartsKernel:
    """The kernel that adds up so many partial results of `count` elements: the fewer elements there are, the more threads share each."""
    sharers = 1
    while sharers < min(MOST_SHARERS, parts) and count * sharers < BUSY_THREADS:
        sharers *= 2
    return PartsKernel(f"sum_parts_{sharers}_{element.suffix}", element, (max(32, 256 // sharers), sharers))


def kernel_for(element: Element, tile: AnyThinTile, a: Layout, b: Layout, c: Layout, is_aligned: bool) -> ThinKernel:
    """The kernel for matrices of these layouts, whose addresses are multiples of 16 bytes or not."""
    left_along, right_along = is_by_rows(a), not is_by_rows(b)
    left, right = (element.lanes if is_aligned and is_in_lanes(x) else 1 for x in (a, b))
    kernel = ThinKernel("", element, tile, left_along, right_along, is_by_rows(c), left, right)
    orders = "".join("ca"[along] for along in (left_along, right_along)) + "cr"[kernel.by_rows]
    tile_name = tile.name.replace("-", "_")
    return replace(kernel, name=f"thin_{tile_name}_{orders}_{left}_{right}_{element.suffix}")
