"""How a product of digits is bound: which launches multiply matrices of given layouts, also with the digits of one operand kept.

Or C is computed in blocks, one after the other, in the same workspace: first the scales of all lines are found, and whether there is an
Inf or a NaN. If there is one, no block is written, and the classical product computes all of C. The blocks of C in one block of rows have
the digits of A in common; those of B are made again for every block of rows.

Or in parts that keep digits in C itself: the digits of a part lie in rows of C that are computed later; those that do not fit there lie in
the workspace. The last rows are computed within the workspace, or by a product that needs none: one that cuts on load, or the plain
product of the type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from math import ceil

from bilinear.backends.bound_launches import run_launches
from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.gemm import ALIGNMENT
from bilinear.backends.machine import has_digit_units, multiplies_by_warps
from bilinear.errors import fail
from bilinear.ir.element import MULTIPLIED
from bilinear.ir.launch import AnyKernel
from bilinear.ir.matrix import Layout
from bilinear.ir.tile import BYTE_TILES, LOADING_TILES, PANEL, RESIDUE_TILES
from bilinear.methods.digits.choice import CELL, WORD, Digits, block_of, element_of
from bilinear.methods.digits.launches import (
    ByteMultiply,
    CutMultiply,
    DigitMultiply,
    LoadingMultiply,
    Passes,
    ResidueMultiply,
    StoredMultiply,
    cleared,
)
from bilinear.methods.program import BESIDE, WORKSPACE, Buffers, NamedLaunch, lay, once, shift

Make = Callable[[Layout, Layout, Layout, Digits], CutMultiply]  # What makes the product of a block.


class BlockwiseMultiply(CutMultiply):
    """The product of digits for matrices of these layouts, in `digits.cut` blocks of rows and of columns of C, or fewer."""

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits, make: Make) -> None:
        one = replace(digits, cut=(1, 1))
        self._whole = whole = stored(make(a, b, c, one))
        super().__init__(a, b, c, whole._scheme, whole._stem, whole._geometry.tile, whole._cut)
        (m, _), (_, n) = self._layouts[0].shape, self._layouts[1].shape
        height, width = block_of(m, digits.cut[0]), block_of(n, digits.cut[1])
        self._rows, self._columns = range(0, m, height), range(0, n, width)
        self._parts = {
            (rows, columns): stored(part_of(self._layouts, (rows, columns), one, make))
            for rows in {height, m - self._rows[-1]}
            for columns in {width, n - self._columns[-1]}
        }
        self._geometry = replace(self._parts[height, width]._geometry, blocks=(len(self._rows), len(self._columns)))
        self.workspace = self._geometry.places[-1] // c.itemsize
        self.writing = len(self.launches(True, 1))

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches of all blocks, in their order, with the values of their arguments."""
        own = {part: part.passes(is_aligned, multiprocessors) for part in self._parts.values()}
        g = self._geometry
        found = [cleared(g.words)]
        if g.lines == (self._rows.step, self._columns.step):  # each line has a scale of its own, whatever the blocks are
            found += [self._at(launch) for launch in self._whole.passes(is_aligned, multiprocessors).scales]
        else:
            found += [self._at(own[self._part(i, 0)].scales[0], i) for i in range(len(self._rows))]
            found += [self._at(own[self._part(0, j)].scales[1], 0, j) for j in range(len(self._columns))]
        for i in range(len(self._rows)):
            last: Passes | None = None
            for j in range(len(self._columns)):
                each = own[self._part(i, j)]
                launches = [*each.cutting[each is last :], *each.after[:-1]]  # digits of A are those of the block before
                found += [self._at(launch, i, j) for launch in launches]
                last = each
        return [*found, self._whole.on_flag(is_aligned, multiprocessors)]

    def _part(self, i: int, j: int) -> StoredMultiply:
        m, n = self._layouts[2].shape
        rows, columns = (min(own.step, end - own[at]) for own, end, at in ((self._rows, m, i), (self._columns, n, j)))
        return self._parts[rows, columns]

    def _at(self, launch: NamedLaunch, i: int = 0, j: int = 0) -> NamedLaunch:
        (kernel, values), (rows, columns) = launch, self._geometry.lines
        words = {"LA": WORD * i * rows, "LB": WORD * j * columns}
        return kernel, shift(values, words | corner_of(self._layouts, self._rows[i], self._columns[j]))


def part_of(layouts: tuple[Layout, Layout, Layout], extents: tuple[int, int], how: Digits, make: Make) -> CutMultiply:
    """The product of digits for this many rows and columns of a row-major C."""
    a, b, c = layouts
    (_, k), (m, n) = a.shape, extents
    a, b, c = (Layout(own, x.strides, x.dtype) for own, x in zip(((m, k), (k, n), extents), (a, b, c), strict=True))
    return make(a, b, c, how)


def stored(product: CutMultiply) -> StoredMultiply:
    """The product of a block."""
    if not isinstance(product, StoredMultiply):
        raise TypeError("the operands of blocks are cut by launches of their own")
    return product


def corner_of(layouts: tuple[Layout, ...], row: int, column: int) -> dict[str, int]:
    """How many bytes later the operands and C begin for the block of C at a corner."""
    (a, _), (_, b), (down, along) = (x.strides for x in layouts)
    return {"A": row * a, "B": column * b, "C": row * down + column * along}


AREAS = " ABP"  # Of a workspace: scales, which C always holds, digits of A, of B, and products.
AREA_OF = {"words": " ", "LA": " ", "LB": " ", "flag": " ", "DA": "A", "DB": "B", "P": "P"}
"""In which of them a buffer lies."""


class LentMultiply(CutMultiply):
    """The product of digits for matrices of these layouts, in the parts of C of `digits` and its rest. C has no gaps, and beta is 0.

    Raises `BilinearError` (E543) if the parts are not those of C, or if the rows behind a part do not hold what it keeps there.
    """

    lends = True

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits, make: Make) -> None:
        one = Digits(digits.levels, digits.tile)
        whole = make(a, b, c, one)
        super().__init__(a, b, c, whole._scheme, whole._stem, whole._geometry.tile, whole._cut)
        (rows, columns), later = self._layouts[2].shape, [part.extent for part in digits.rest]
        self._ends = tuple(accumulate((rows - sum(later), *later)))
        self._begins = (0, *self._ends[:-1])
        if any(begin % PANEL or begin + 1 >= end for begin, end in zip(self._begins, self._ends, strict=True)):
            raise fail("E543", f"the plan's parts of C do not fit {rows} rows", "plan again")
        hows = [replace(one, cut=digits.cut, lent=digits.lent)]
        hows += [part.choice if isinstance(part.choice, Digits) else one for part in digits.rest]  # of others the plain product is launched
        last = digits.rest[-1].choice
        self._plain = "" if isinstance(last, Digits) else last.tile
        extents = [(end - begin, columns) for begin, end in zip(self._begins, self._ends, strict=True)]
        self._parts = [part_of(self._layouts, own, replace(how, lent=""), make) for own, how in zip(extents, hows, strict=True)]
        placed = [self._placed(part, how.lent, end) for part, how, end in zip(self._parts[:-1], hows, self._ends, strict=False)]
        self._buffers = [buffers for buffers, _, _ in placed]
        if any(inside > self._place(rows) - CELL for _, inside, _ in placed):  # C may begin anywhere
            raise fail("E543", "the rows of C that are computed later do not hold the plan's digits", "plan again")
        most = 0 if self._plain else self._parts[-1].workspace
        self.workspace = max(most, *(outside // c.itemsize for _, _, outside in placed))
        self.writing = len(self.launches(True, 1))

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches of all parts, in their order, with the values of their arguments."""
        found: list[NamedLaunch] = []
        for number, (part, begin) in enumerate(zip(self._parts, self._begins, strict=True)):
            is_last = number == len(self._buffers)
            buffers = part.buffers() if is_last else self._buffers[number]
            own = [part.plain(self._plain)] if is_last and self._plain else part.launches(is_aligned, multiprocessors)
            corner = corner_of(self._layouts, begin, 0)
            found += [(kernel, lay(shift(values, corner), buffers)) for kernel, values in own]
        return found

    def _place(self, row: int) -> int:
        """Where the memory that C lends from a row on begins, in bytes."""
        return ceil(row * self._layouts[2].strides[0] / CELL) * CELL

    def _placed(self, part: CutMultiply, lent: str, end: int) -> tuple[Buffers, int, int]:
        """Where the buffers of a part lie whose rows end there; and how many bytes of C and of the workspace it needs."""
        starts, inside, outside = {}, self._place(end), 0
        for name, (begin, stop) in zip(AREAS, pairwise(part._geometry.places), strict=True):
            if name == " " or name in lent:
                starts[name] = BESIDE, inside - begin
                inside += stop - begin
            else:
                starts[name] = WORKSPACE, outside - begin
                outside += stop - begin
        own = dict(part.buffers())
        for name, area in AREA_OF.items():
            base, moved = starts[area]
            own[name] = base, own[name][1] + moved
        return own, inside, outside


def kernels_of(a: Layout, b: Layout, c: Layout, digits: Digits, by_warps: bool) -> tuple[AnyKernel, ...]:
    """The kernels, by warps or warpgroups, of a product of digits of these layouts at multiples of 16 bytes."""
    return tuple(dict.fromkeys(launch.kernel for launch, _ in multiply_of(a, b, c, digits, by_warps).launches(True, 1)))


def digit_multiply_of(a: Layout, b: Layout, c: Layout, digits: Digits) -> CutMultiply | None:
    """The product of digits on the current device; None for matrices of other types, or if it lacks the instructions."""
    element = element_of(digits.tile)
    types = {x.dtype for x in (a, b, c)}
    if not a.ndim == b.ndim == c.ndim == 2 or len(types) > 1:
        return None
    is_held = a.itemsize == element.bytes if digits.tile in BYTE_TILES else MULTIPLIED.get(types.pop().name) is element
    if not is_held:
        return None
    if c.dtype.kind == "c" and (digits.needs_little or digits.rest):
        return None
    if (digits.tile in LOADING_TILES and digits.levels) or not digits.suits(c, 0):
        return None
    if digits.tile in RESIDUE_TILES and RESIDUE_TILES[digits.tile].gaussian and c.dtype.kind != "c":
        return None
    if 0 in (*a.shape, *b.shape) or any(stride % x.itemsize for x in (a, b, c) for stride in x.strides):
        return None
    if not has_digit_units() or (digits.needs_little and multiplies_by_warps()):
        return None
    return once(multiply_of, a, b, c, digits, multiplies_by_warps())


def multiply_of(a: Layout, b: Layout, c: Layout, digits: Digits, by_warps: bool) -> CutMultiply:
    """The product for matrices of these layouts. Warps multiply, or warpgroups."""
    if digits.rest:
        return LentMultiply(a, b, c, digits, partial(multiply_of, by_warps=by_warps))
    if digits.cut != (1, 1):
        return BlockwiseMultiply(a, b, c, digits, partial(multiply_of, by_warps=by_warps))
    if digits.tile in LOADING_TILES:
        return LoadingMultiply(a, b, c, digits)
    own = ResidueMultiply if digits.tile in RESIDUE_TILES else ByteMultiply if digits.tile in BYTE_TILES else DigitMultiply
    return own(a, b, c, digits, by_warps)


Form = tuple[object, ...]  # What digits were cut for: equal forms read the same bytes.


class KeptMultiply(CutMultiply):
    """A product by pairs or residues, `whole`, with the digits of A (`side` 0) or of B (`side` 1) kept.

    What is kept holds the digits of that operand, the words that give its scales, and the flag of an Inf or a NaN, in this order. The other
    launches, and their order, are those of the whole product, so the bits of C are, too.

    `kept_bytes` are the bytes of the digits, the scales and the flag, which begins at byte `flag_at`. `form` tells digits for different
    schemes, tiles and chips apart. C lies by rows.
    """

    def __init__(self, whole: DigitMultiply | ResidueMultiply, side: int) -> None:
        super().__init__(*whole._layouts, whole._scheme, whole._stem, whole._geometry.tile, whole._cut)
        g = self._geometry
        self._whole, self._side, self._gone = whole, side, range(*g.places[1 + side : 3 + side])
        self.flag_at = len(self._gone) + WORD * g.lines[side]
        self.kept_bytes = self.flag_at + WORD
        self.form: Form = whole._scheme, g.tile, whole._cut, whole._by_warps, side, g.panels[side], g.slices, g.lines[side]
        self.workspace -= len(self._gone) // self._dtype.itemsize

    def buffers(self) -> Buffers:
        """The digits of the operand and their scales lie beside; what would lie behind these digits moves up."""
        own = {
            name: (base, place - len(self._gone) if place >= self._gone.stop else place)
            for name, (base, place) in super().buffers().items()
        }
        return own | {f"D{'AB'[self._side]}": (BESIDE, 0), f"L{'AB'[self._side]}": (BESIDE, len(self._gone))}

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches of a call in their order, with the values of their arguments."""
        own, other = self._whole.passes(is_aligned, multiprocessors), 1 - self._side
        return [own.clear, own.scales[other], own.cutting[other], *own.after]  # words that are kept elsewhere are cleared, too

    def fill(self, operand: int, kept: int) -> None:
        """Cut the operand into memory at a multiple of 256 bytes, on CuPy's stream. Raises `StageError` if a launch fails."""
        import cupy

        own = self._whole.passes(operand % ALIGNMENT == 0, cupy.cuda.Device().attributes["MultiProcessorCount"])
        count = self._geometry.lines[self._side] + 1
        beside = {"words": (BESIDE, len(self._gone)), "flag": (BESIDE, self.flag_at)}
        bound = self.laid_out([cleared(count), own.scales[self._side], own.cutting[self._side]], {**self.buffers(), **beside})
        with bound.ready((operand, operand, 0, 0, kept), *self.factors(1, 0), CudaExecutor().stream()) as steps:
            run_launches(steps, "cutting a prepared operand", 0)


def kept_multiply_of(a: Layout, b: Layout, c: Layout, digits: Digits, side: int) -> KeptMultiply | None:
    """The product for matrices of these layouts on the current device that finds the digits of A (0) or of B (1) kept.

    None if there is no such product of digits, if it computes C in blocks or cuts on load, or if C lies by columns: then the digits of the
    operands change places.
    """
    whole = digit_multiply_of(a, b, c, digits)
    if not isinstance(whole, DigitMultiply | ResidueMultiply) or whole.swaps:
        return None
    return once(KeptMultiply, whole, side)
