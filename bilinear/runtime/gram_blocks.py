"""A*A^T on arrays: block by block, one triangle multiplied and the other one mirrored, or by a scheme, depth first in one buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from types import ModuleType
from typing import NamedTuple

import numpy as np

from bilinear.analysis.accuracy import is_real
from bilinear.backends.array_sums import add, coefficient, combine
from bilinear.backends.capture import is_captured, not_captured
from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.factor import factor
from bilinear.backends.tensor_maps import clusters_here, gram_halves, takes
from bilinear.errors import BilinearError, fail
from bilinear.frontend import Loaded, LoadedGram, load_any, names_of_levels
from bilinear.frontend.algorithms import of_blocks
from bilinear.ir.element import HALVES, Element
from bilinear.ir.gram import GramScheme
from bilinear.ir.linear import Form
from bilinear.ir.matrix import Array, Dtype, Factor, indices, layout_of, matrix_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.halves import multiplies_triangle
from bilinear.planner.gram import ALIGNMENT, TRIANGLE_TILE, GramPlan, plan_by_size
from bilinear.planner.plan import LIBRARY
from bilinear.runtime.accept import accepted, check_out, shares_memory
from bilinear.runtime.arrays import Kind, half_of, multiplies_itself, name_of, tell_written, torch_of
from bilinear.runtime.decide import check_library_accuracy
from bilinear.runtime.devices_here import uses_library
from bilinear.runtime.gram_plans import TILE, described_plan, plan_for_call
from bilinear.runtime.half import FLOAT, by_half_itself
from bilinear.runtime.multiply import look, multiply
from bilinear.runtime.operands import require_budget, workspace_array
from bilinear.runtime.options import Named, Options, algorithm_as_it_is, check_options, named_levels, warn_unused
from bilinear.runtime.repeat import repeated
from bilinear.runtime.run import within_limits
from bilinear.verify.bilinear_map import prove_map

ROWS = 256  # Rows that are added at once: the height of buffers for scaled values and triangles.


AT_ONCE = 1024  # Rows of a block of 16-bit matrices, all multiplied by one call of the library.
WIDE = 1024  # Without a number of levels another one is taken while its blocks are so wide.


class Parts(NamedTuple):
    """The buffers of a level: the sums of blocks that a product multiplies, its value, and rows for scaled values."""

    left: Array
    right: Array
    product: Array
    scratch: Array


@lru_cache(maxsize=64)
def require_runs(gram: GramScheme, dtype: Dtype) -> None:
    """Refuse a scheme that computes no A*A^T (E350), or whose coefficients a type does not hold (E794)."""
    prove_map(gram.algorithm).require()
    numbers = [c for table in gram.scheme.tables for row in table for _, c in row]
    if not is_real(gram.scheme) or (dtype.kind in "iu" and any(getattr(c, "denominator", 2) != 1 for c in numbers)):
        raise fail("E794", f"{gram.name} over {gram.scheme.ring} has coefficients that {dtype} does not hold", "take another algorithm")


def elements_of(gram: GramScheme, n: int, k: int, levels: int) -> int:
    """The elements of the buffers of all levels for an n x k matrix."""
    total, s = 0, gram.scheme
    for _ in range(levels):
        n, k = n // s.m, k // s.k
        total += sum(rows * columns for rows, columns in _shapes(n, k))
    return total


def _shapes(height: int, width: int) -> tuple[tuple[int, int], ...]:
    return (height, width), (height, width), (height, height), (min(ROWS, height), height)


def _parts(buffer: Array, height: int, width: int) -> tuple[Parts, Array]:
    """The buffers of a level at the start of a buffer, and the rest of it."""
    found = []
    for rows, columns in _shapes(height, width):
        found.append(buffer[: rows * columns].reshape(rows, columns))
        buffer = buffer[rows * columns :]
    return Parts(*found), buffer


def by_scheme(gram: GramScheme, asked: Options, kind: Kind, x: Array, out: Array, triangle: str | None) -> Array:
    """alpha * x @ x^T + beta * out by a scheme for A*A^T; `asked` has the levels, and what multiplies its products of two matrices."""
    has_none = x.dtype.kind == "b" or x.dtype == np.float16
    if has_none or uses_library() or asked.levels == 0:
        if has_none:
            warn_unused(gram.name, f"no schedule runs on {x.dtype}")
        return gram_arrays(asked._replace(algorithm="auto", levels=0), kind, x, out, triangle)
    require_runs(gram, x.dtype)
    x = checked_operand(asked, kind, x, out, x.dtype)
    xp, shape = kind.module, x.shape[:-1] + x.shape[-2:-1]
    levels = _levels(gram, x.shape[-2], x.shape[-1]) if asked.levels == "auto" else int(asked.levels)
    alpha, beta = factor("alpha", asked.alpha, x.dtype), factor("beta", asked.beta, x.dtype if out is None else out.dtype)
    aside = out is not None and out.dtype != x.dtype  # integers that wrap around must do so as a whole, not in the type of `out`
    result = (xp.empty if triangle is None else xp.zeros)(shape, x.dtype) if out is None or aside else out
    buffer, rest = _workspace(gram, asked._replace(kind=kind), x, levels, result, result.nbytes if aside else 0)
    runner = Runner(gram, GramMultiplies(asked._replace(levels="auto", workspace=rest), kind))
    lower = lower_of(result, triangle)
    asked = runner.products.asked
    may_be_refused = asked.algorithm != "auto" and (asked.budget is not None or asked.buffer is not None)  # `auto` runs what is allowed
    if may_be_refused and x.size:
        first = (0,) * (x.ndim - 2)
        for operands in runner.operands(x[first], lower[first], levels, buffer):
            look(asked, kind, *operands)
    for index in indices(x.shape[:-2]):
        runner.run(x[index], lower[index], alpha, x.dtype.type(0) if aside else beta, levels, buffer)
    if aside:
        own, result = lower, out
        lower = lower_of(result, triangle)
        for index in indices(x.shape[:-2]):
            _add_below(xp, lower[index], own[index], own[index], 1, beta)
    if triangle is None:
        runner.products.mirror(lower)
    return result


def _levels(gram: GramScheme, n: int, k: int) -> int:
    found, s = 1, gram.scheme
    n, k = n // s.m, k // s.k
    while min(n // s.m, k // s.k) >= WIDE:
        found, n, k = found + 1, n // s.m, k // s.k
    return found


def _workspace(gram: GramScheme, options: Options, x: Array, levels: int, result: Array, aside: int) -> tuple[Array, Array]:
    """The buffer of all levels, and what is left for the products: bytes, None without a limit, or the rest of the caller's buffer.

    A result of `aside` bytes that is computed apart from `out` counts, but is not put into a buffer.
    """
    elements = elements_of(gram, x.shape[-2], x.shape[-1], levels)
    needed = elements * x.dtype.itemsize
    hint = "allow that many bytes, use fewer levels, or leave algorithm= out"
    buffer = workspace_array(options, gram.name, elements, x[..., :0], result, x, aside=aside, hint=hint)
    if options.buffer is None:
        return buffer, None if options.budget is None else options.budget - needed - aside
    rest = options.buffer.view(np.uint8)[needed:]
    return buffer, rest if rest.size else 0


class Runner(NamedTuple):
    """A scheme and what multiplies its products."""

    gram: GramScheme
    products: GramMultiplies

    def run(self, x: Array, lower: Array, alpha: Factor, beta: Factor, levels: int, buffer: Array) -> None:
        """The lower triangle of alpha * x @ x^T + beta * lower. Nothing above the diagonal is read or written."""
        s = self.gram.scheme
        n, k = x.shape[0] // s.m * s.m, x.shape[1] // s.k * s.k
        if levels == 0 or not (n and k):
            self.products.triangle(x, lower, alpha, beta)
            return
        self._core(x[:n, :k], lower[:n, :n], alpha, beta, levels, buffer)
        if k < x.shape[1]:
            self.products.triangle(x[:n, k:], lower[:n, :n], alpha, 1)
        if n < x.shape[0]:
            self.products.general(x[n:], x[:n].swapaxes(0, 1), lower[n:, :n], alpha, beta)
            self.products.triangle(x[n:], lower[n:, n:], alpha, beta)

    def operands(self, x: Array, lower: Array, levels: int, buffer: Array) -> Iterator[tuple[Array, Array, Array]]:
        """A, B and C of each kind of product of two matrices, as they will lie, without their values."""
        s = self.gram.scheme
        height, width = x.shape[0] // s.m, x.shape[1] // s.k
        if levels == 0 or not (height and width):
            return
        parts, rest = _parts(buffer, height, width)
        yield parts.left, parts.right.swapaxes(0, 1), parts.product
        yield from self.operands(parts.left, parts.product, levels - 1, rest)
        n = height * s.m
        if n < x.shape[0]:
            yield x[n:], x[:n].swapaxes(0, 1), lower[n:, :n]

    def _core(self, x: Array, lower: Array, alpha: Factor, beta: Factor, levels: int, buffer: Array) -> None:
        """The same for a matrix that the grid divides."""
        s = self.gram.scheme
        height, width = x.shape[0] // s.m, x.shape[1] // s.k
        parts, rest = _parts(buffer, height, width)
        blocks = [x[i * height : (i + 1) * height, j * width : (j + 1) * width] for i in range(s.m) for j in range(s.k)]
        c = lower.swapaxes(0, 1) if self.gram.upper else lower
        written: set[tuple[int, int]] = set()
        for number, (left, right) in enumerate(zip(s.tables[0], self.gram.right, strict=True)):
            outputs = list(self._outputs(number))
            first = _sum(left, blocks, parts.left)
            is_symmetric = number in self.gram.symmetric
            if is_symmetric:
                self._own(first, parts.product, alpha, levels - 1, rest, any(i != j for i, j, _ in outputs))
            else:
                second = _sum(right, blocks, parts.right)
                self.products.general(first, second.swapaxes(0, 1), parts.product, alpha, 0)
            for i, j, w in outputs:
                block = c[i * height : (i + 1) * height, j * height : (j + 1) * height]
                keep = 1 if (i, j) in written else beta
                written.add((i, j))
                if i != j:
                    _add(block, parts.product, parts.scratch, w, keep)
                elif self.gram.upper:
                    own = parts.product if is_symmetric else parts.product.swapaxes(0, 1)
                    _add_below(self.products.kind.module, block.swapaxes(0, 1), own, parts.scratch, w, keep)
                else:
                    _add_below(self.products.kind.module, block, parts.product, parts.scratch, w, keep)

    def _own(self, x: Array, out: Array, alpha: Factor, levels: int, buffer: Array, both: bool) -> None:
        """A product of a matrix by its own transpose: its lower triangle, or `both`."""
        if levels == 0:
            self.products.library(x, x.swapaxes(0, 1), out, alpha, 0)
            return
        self.run(x, out, alpha, 0, levels, buffer)
        if both:
            self.products.mirror(out)

    def _outputs(self, number: int) -> Iterator[tuple[int, int, Array]]:
        """The blocks of C that take a product up, and with what coefficient."""
        s = self.gram.scheme
        for i, j in self.gram.outputs:
            for product, w in s.tables[2][i * s.m + j]:
                if product == number:
                    yield i, j, w


def _sum(form: Form, blocks: list[Array], out: Array) -> Array:
    """A sum of blocks: the block itself if there is one, else in the buffer."""
    if len(form) == 1 and form[0][1] == 1:
        return blocks[form[0][0]]
    for rows in _row_ranges(out):
        scratch = np.empty_like(out[rows]) if any(c not in (1, -1) for _, c in form[1:]) else out
        combine(form, [block[rows] for block in blocks], out[rows], scratch)
    return out


def _row_ranges(out: Array) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, out.shape[0])) for start in range(0, out.shape[0], ROWS))


def _add(out: Array, value: Array, scratch: Array, w: Array, keep: Factor) -> None:
    """out = keep * out + w * value, some rows at a time."""
    factor = w if w in (1, -1) else coefficient(w, out.dtype)
    for rows in _row_ranges(out):
        height, width = rows.stop - rows.start, value.shape[1]
        add(out[rows], value[rows], scratch[:height, :width], factor, keep)


def _add_below(xp: ModuleType, out: Array, value: Array, scratch: Array, w: Array, keep: Factor) -> None:
    """The same for the lower triangle of a square; nothing above the diagonal is read or written."""
    for rows in _row_ranges(out):
        before = slice(0, rows.start)
        if rows.start:
            _add(out[rows, before], value[rows, before], scratch, w, keep)
        mask = xp.tri(rows.stop - rows.start, dtype=bool)
        new, own = (xp.zeros(mask.shape, x.dtype) for x in (out, value))
        xp.copyto(new, out[rows, rows], where=mask)
        xp.copyto(own, value[rows, rows], where=mask)
        _add(new, own, scratch, w, keep)
        xp.copyto(out[rows, rows], new, where=mask)


class GramMultiplies(NamedTuple):
    """The multiplies of a call, with its options; of arrays that hold the bits of an `element` of 16 bits if one is named."""

    asked: Options
    kind: Kind
    element: Element | None = None

    def general(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> None:
        """alpha * a @ b + beta * out by what the call asks for. A product that ran before on a GPU is found first."""
        asked = self.asked._replace(alpha=alpha, beta=beta)
        if self.element is not None:
            by_half_itself(asked, self.kind, self.element, a, b, out)
            return
        key, repeat = repeated(a, b, out, asked)
        if repeat is None or repeat.run(a, b, out, alpha, beta) is None:
            multiply(asked, self.kind, key, a, b, out)

    def library(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> None:
        """The same by the library."""
        library = self._replace(asked=self.asked._replace(algorithm="auto", levels=0, workspace=None))
        library.general(a, b, out, alpha, beta)

    def at_once(self, x: Array, out: Array) -> bool:
        """The lower triangle of 16-bit matrices by the library, most blocks in one call. False, with nothing written, for others."""
        element, asked = self.element or HALVES.get(str(x.dtype)), self.asked
        count, by_library = x.shape[-2] // AT_ONCE, (asked.algorithm == "auto" or asked.levels == 0) and asked.reproducible is None
        if count < 2 or element is None or not by_library or not self.kind.on_gpu or asked.alpha == 0:
            return False
        check_library_accuracy(asked.accuracy, x.shape[-1], x.dtype)
        alpha, beta = (float(factor(name, value, FLOAT)) for name, value in (("alpha", asked.alpha), ("beta", asked.beta)))
        size = x.shape[-2] // count // ALIGNMENT * ALIGNMENT
        n = size * count
        if not multiplies_triangle(element, matrix_of(x[..., :n, :]), matrix_of(out[..., :n, :n]), size, alpha, beta):
            return False
        if n < x.shape[-2]:
            self.library(x[..., n:, :], x.swapaxes(-1, -2), out[..., n:, :], alpha, beta)
        return True

    def triangle(self, x: Array, lower: Array, alpha: Factor, beta: Factor) -> None:
        """The lower triangle of alpha * x @ x^T + beta * lower by the library; nothing above the diagonal is read or written."""
        plan = plan_by_size(x.shape[-2], x.shape[-1], str(x.dtype), TILE[self.kind.on_gpu], LIBRARY)
        self.blocks(plan, x, lower, (alpha, beta), True)

    def blocks(self, plan: GramPlan, x: Array, lower: Array, factors: tuple[Factor, Factor], one_triangle: bool) -> None:
        """Compute the lower triangle block by block, and write nothing above it if there is to be `one_triangle`."""
        xp = self.kind.module
        for step in plan.steps:
            rows, columns = slice(*step.rows), slice(*step.columns)
            block, left, right = lower[..., rows, columns], x[..., rows, :], x[..., columns, :].swapaxes(-1, -2)
            if step.is_mirrored:
                self.by_triangle(left, right, block, *factors)
                continue
            multiply_block = self.library if step.plan == LIBRARY else self.general
            if not (step.is_diagonal and one_triangle):
                multiply_block(left, right, block, *factors)
            else:
                aside, mask = xp.zeros(block.shape, block.dtype), xp.tri(block.shape[-1], dtype=bool)
                if factors[1] != 0:
                    xp.copyto(aside, block, where=mask)
                multiply_block(left, right, aside, *factors)
                xp.copyto(block, aside, where=mask)

    def by_triangle(self, x: Array, transposed: Array, out: Array, alpha: Factor, beta: Factor) -> None:
        """Both triangles of alpha * x @ x^T + beta * out, of which the lower one is read, by digits in one launch; else by two matrices."""
        from bilinear.methods.digits.launches import triangle_multiply_of

        digits = Digits((), TRIANGLE_TILE)
        own = triangle_multiply_of(layout_of(x), layout_of(out), digits)
        if own is None:
            self.general(x, transposed, out, alpha, beta)
            self.mirror(out)
            return
        run = within_limits(self.asked, digits, own, x, transposed, out)
        run(x.data.ptr, x.data.ptr, out.data.ptr, alpha, beta)

    def mirror(self, lower: Array) -> None:
        """Copy the lower triangle to the upper one: by a launch on a GPU; else by tiles, so that what is read by columns stays cached."""
        xp, n, tile = self.kind.module, lower.shape[-1], TILE[False]
        if self.kind.on_gpu and not any(stride % lower.itemsize for stride in lower.strides):
            CudaExecutor().mirror(matrix_of(lower))
            return
        for start in range(0, n, tile):
            rows = slice(start, min(start + tile, n))
            for before in range(0, start, tile):
                columns = slice(before, before + tile)
                lower[..., columns, rows] = lower[..., rows, columns].swapaxes(-1, -2)
            square = lower[..., rows, rows]
            xp.copyto(square, square.swapaxes(-1, -2).copy(), where=~xp.tri(square.shape[-1], dtype=bool))


def gram_arrays(
    asked: Options, kind: Kind, x: Array, out: Array, triangle: str | None, plan: GramPlan | None = None, element: Element | None = None
) -> Array:
    """alpha * x @ x^T + beta * out on arrays of one kind, with options that were checked, by a plan or the one that is found.

    The algorithm is `auto` or was loaded. Arrays of integers hold the bits of an `element` of 16 bits if one is named.
    """
    xp, shape = kind.module, (*x.shape[:-1], x.shape[-2])
    x = checked_operand(asked, kind, x, out, x.dtype if element is None else FLOAT)
    result = (xp.empty if triangle is None else xp.zeros)(shape, x.dtype) if out is None else out
    products = GramMultiplies(asked, kind, element)
    if triangle is None and products.at_once(x, result):
        products.mirror(result)
        return result
    plan = plan or plan_for_call(asked, kind.on_gpu, triangle is not None, x)
    if asked.reproducible is None and any(step.plan == LIBRARY for step in plan.steps):
        check_library_accuracy(asked.accuracy, x.shape[-1], x.dtype)
    products.blocks(plan, x, lower_of(result, triangle), (asked.alpha, asked.beta), triangle is not None)
    if triangle is None and not (len(plan.steps) == 1 and plan.steps[0].is_mirrored):
        products.mirror(result)
    return result


def lower_of(result: Array, triangle: str | None) -> Array:
    """The result, turned so that the triangle to be computed is the lower one."""
    return result.swapaxes(-1, -2) if triangle == "upper" else result


def checked_operand(asked: Options, kind: Kind, x: Array, out: Array, dtype: Dtype) -> Array:
    """The operand, or a copy of one that `out` overlaps; alpha is to be of this type. Raises what refuses a call, before writing."""
    shape = (*x.shape[:-1], x.shape[-2])
    if kind.on_gpu and is_captured():
        raise not_captured("A*A^T takes small buffers from the pool", "multiply by the transpose with matmul and out=")
    factor("alpha", asked.alpha, dtype)
    if out is None:
        return x
    factor("beta", asked.beta, out.dtype if dtype == x.dtype else dtype)
    check_out(layout_of(out), shape[:-2], shape[-2:], x.dtype)
    if out.shape != shape:
        raise fail("E791", f"out has shape {out.shape}, the product {shape}", "give an out of that shape, or none")
    if not shares_memory(out, x):
        return x
    require_budget(asked, "a copy of an operand that out overlaps", x.nbytes, "give another out")
    return x.copy()


def own_product(asked: Options, kind: Kind, x: Array, out: Array) -> Array:
    """alpha * x @ x^T for `matmul`, where a plan of blocks is predicted to gain; Otherwise None, and nothing is written."""
    if multiplies_itself(x) or multiplies_itself(out):
        return None
    if out is not None and (out.dtype != x.dtype or out.shape != (*x.shape[:-1], x.shape[-2]) or shares_memory(out, x)):
        return None
    try:
        plan = described_plan(asked, kind.on_gpu, x)
        if plan is None or not plan.gains or (kind.on_gpu and is_captured()):
            return None
        return gram_arrays(asked, kind, x, out, None, plan)
    except BilinearError:  # raised before anything was written: a block has no plan within the limits
        return None


def gram_of_array(
    a: Array,
    out: Array,
    transposed: bool,
    triangle: str | None,
    algorithm: Named | LoadedGram,
    products: str | Loaded,
    asked: Options,
    stream: AbstractContextManager[object] | None,
) -> Array:
    """`gram` of an array, or of a tensor whose gradients are not recorded."""
    own: str | Loaded | LoadedGram
    if isinstance(algorithm, LoadedGram) or (isinstance(algorithm, str) and not names_of_levels(algorithm)):
        own, levels = algorithm, asked.levels
    else:
        own, levels = named_levels(algorithm, asked.levels)
    asked = asked._replace(algorithm=own.scheme.name if isinstance(own, LoadedGram) else own, levels=levels)
    torch = torch_of(a, out)
    element = None if torch is None else half_of(torch, a, a, out)
    if (
        element is not None
        and asked._replace(alpha=1, beta=0) == _AUTO
        and (own, products, triangle, stream) == ("auto", "auto", None, None)
    ):
        result = _halves_of_tensor(torch, element, a.mT if transposed and a.ndim > 1 else a, out, asked)
        if result is not None:
            return result
    check_options(asked, out)
    found = algorithm_as_it_is(own, load_any) if isinstance(own, str) and own != "auto" else own
    run: Callable[[Options, Kind, Array, Array, str | None], Array] = partial(gram_arrays, element=element)
    if isinstance(found, LoadedGram):
        if element is not None:
            what = f"{found.scheme.name} forms sums of {element}, which nothing rounds once"
            raise fail("E794", what, "name an algorithm for two matrices")
        run, other = partial(by_scheme, found.scheme), products if products == "auto" else algorithm_as_it_is(products)
    elif products != "auto":
        hint = "give algorithm='rxtx', or leave products= out"
        raise fail("E794", "products= belongs to an algorithm for A*A^T, and there is none", hint)
    else:
        other = found if isinstance(found, str) else of_blocks(found)
    is_here = torch is not None and isinstance(a, torch.Tensor) and not a.is_cuda
    half = HALVES.get(name_of(a.dtype)) if is_here else element
    if half is not None and asked.reproducible is not None:
        raise fail("E821", f"no kernels keep these bits for A*A^T of {half}", "convert the tensor to float32")
    if half is not None and isinstance(asked.accuracy, float | int):
        raise fail("E519", f"no error bound is known for A*A^T of {half}", "leave accuracy= out")
    if torch is not None and half is not element and (out is None or out.dtype in (a.dtype, torch.float32)):
        wide = None if out is None else out.float()  # processors sum in float32, too, and round once
        result = gram_of_array(a.float(), wide, transposed, triangle, algorithm, products, asked, stream)
        return result.to(a.dtype) if out is None else out.copy_(wide)
    with accepted({"a": a}, {"out": out}, asked.workspace, stream, bits=element is not None) as (kind, (x,), (target,), buffer):
        require_gram(x.ndim, x.dtype.kind, x.dtype)
        operand = x.swapaxes(-1, -2) if transposed else x
        result = run(asked._replace(algorithm=other, workspace=buffer), kind, operand, target, triangle)
        if out is not None:
            return out
        found = kind.give_back(result)
        return found if element is None else found.view(a.dtype)


_AUTO = Options()


def _halves_of_tensor(torch: ModuleType | None, element: Element, x: Array, out: Array, asked: Options) -> Array | None:
    """alpha * x @ x^T + beta * out of tensors of 16 bits that lie by rows, by the kernel for them, on PyTorch's stream and in its memory.

    None, with nothing written, for other tensors.
    """
    n, k = x.shape[-2:] if 2 <= x.ndim <= 3 else (0, 0)
    device = x.device.index
    if torch is None or uses_library() or device != torch.cuda.current_device() or not clusters_here(device):
        return None
    if out is not None and (
        out.dtype != x.dtype
        or out.shape != (*x.shape[:-1], n)
        or out.device != x.device
        or x.untyped_storage().data_ptr() == out.untyped_storage().data_ptr()
    ):
        return None
    lies = x.stride(-1) == 1 and (out is None or (out.stride(-1) == 1 and out.stride(-2) >= n))
    if not lies or (out is not None and out.ndim == 3 and out.stride(0) < n * out.stride(1)):
        return None
    result = torch.empty((*x.shape[:-1], n), dtype=x.dtype, device=x.device) if out is None else out
    size, count = element.bytes, 1 if x.ndim == 2 else x.shape[0]
    lines = [(y.data_ptr(), y.stride(-2) * size, y.stride(0) * size if y.ndim == 3 and count > 1 else 0) for y in (x, result)]
    if not takes(n, k, *(place for line in lines for place in line)):
        return None
    alpha, beta = (float(factor(name, value, FLOAT)) for name, value in (("alpha", asked.alpha), ("beta", asked.beta)))
    stream = torch.cuda.current_stream().cuda_stream
    for index in range(count):
        of_x, of_c = ((address + index * apart, line) for address, line, apart in lines)
        if not gram_halves(element, of_x, of_c, n, k, (alpha, beta), device, stream):
            return None
    tell_written(torch, out)
    return result


def require_gram(dimensions: int, kind: str, dtype: object) -> None:
    """Refuse an operand that is no matrix (E791) or of a kind of types, named as NumPy does, without A*A^T (E792)."""
    if dimensions < 2:
        raise fail("E791", f"an array of {dimensions} dimension(s) is not a matrix", "give an array of shape (..., n, k)")
    if kind not in "biuf":
        raise fail("E792", f"no A*A^T of {dtype}", "use matmul with the transpose or its conjugate" if kind == "c" else "use matmul")
