"""Complex matrices for schedules of real products: their real and imaginary parts, and factors that are not real."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal, NamedTuple

from bilinear.backends.caches import Same
from bilinear.backends.executor import allocate_workspace, execute
from bilinear.backends.factor import factor
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.element import COMPLEX, IN_ARRAYS
from bilinear.ir.matrix import Array, ArrayT, Call, Factor, Matrix, call_of, layout_of, matrix_of
from bilinear.lowering.prepare import require_levels
from bilinear.runtime import devices_here
from bilinear.runtime.accept import accepted
from bilinear.runtime.arrays import Kind, make_executor
from bilinear.runtime.operands import accumulate, layouts_of
from bilinear.runtime.options import Named, check_levels, named_levels
from bilinear.runtime.recipe import Recipe, fitted_placement


class Turns(NamedTuple):
    """alpha and beta of a call; those that are not real multiply the result afterwards, and C before."""

    alpha: Factor
    turned: Factor | None
    beta_is_real: bool
    needs_result: bool  # Whether the product must be computed aside from C: it is to be turned, and C is not.

    @classmethod
    def of(cls, alpha: Array, beta: Array) -> Turns:
        """The factors, as numbers of the product's type and of C's; those of real arrays stay as they are."""
        if not _is_complex(alpha) and not _is_complex(beta):
            return cls(alpha, None, True, False)
        turned = alpha if alpha.imag != 0 else None
        return cls(alpha.real if turned is None else alpha.real.dtype.type(1), turned, not beta.imag, turned is not None and beta != 0)

    def call_of(self, a: Array, b: Array, c: Array, beta: Array, workspace: Matrix | None) -> Call:
        """The call of a schedule on these arrays, after C is multiplied by a beta that is not real."""
        call = call_of(a, b, c, self.alpha, beta, workspace)
        if c.dtype.kind != "c":
            return call
        if beta != 0 and not self.beta_is_real:
            c *= beta
            beta = beta.dtype.type(1)
        (x, xi), (y, yi), (z, zi) = call.a.parts, call.b.parts, call.c.parts
        kept: Array = getattr(beta, "real", beta)
        return Call(x, y, z, self.alpha, kept, workspace, None, (xi, yi, zi))

    def finish(self, c: Array) -> None:
        """Multiply the result by an alpha that is not real."""
        if self.turned is not None:
            c *= self.turned


def require_complex(algorithm: object, *arrays: Array) -> None:
    """Refuse (E799) an algorithm for complex numbers where neither an operand nor the result is complex."""
    is_real = not any(x is not None and x.dtype.kind == "c" for x in arrays)
    if is_real and isinstance(algorithm, Loaded) and algorithm.complex_core is not None:
        what = f"{algorithm.complex_core.name} multiplies complex numbers, and these arrays are of {arrays[0].dtype}"
        inner = algorithm.scheme.name
        raise fail("E799", what, f"name the algorithm that runs its real products: {inner}", "or convert the operands to a complex type")


def formed(conjugated: str, a: Array, b: Array) -> tuple[Array, Array]:
    """The operands with the conjugates of those that are named, as copies, for the library's multiply."""
    return a.conj() if "A" in conjugated else a, b.conj() if "B" in conjugated else b


def _is_complex(factor: Array) -> bool:
    return getattr(getattr(factor, "dtype", None), "kind", "") == "c"


Parts = tuple[Array, Array]  # The real and the imaginary part of a matrix.


def matmul_parts(
    a: tuple[ArrayT, ArrayT],
    b: tuple[ArrayT, ArrayT],
    out: tuple[ArrayT, ArrayT] | None = None,
    *,
    alpha: Factor = 1,
    beta: Factor = 0,
    algorithm: Named = "winograd",
    levels: int | Literal["auto"] = "auto",
    stream: AbstractContextManager[object] | None = None,
) -> tuple[ArrayT, ArrayT]:
    """alpha * A @ B + beta * C for complex matrices that are given as pairs of real ones, by real products of sums of their parts.

    The kernels read and write the parts where they lie; nothing is interleaved or copied.

    Parameters
    ----------
    a : pair of arrays (m, k)
        The real and the imaginary part: NumPy arrays, CuPy arrays or PyTorch tensors of float32 or float64, of any strides.
    b : pair of arrays (k, n)
        Of the same type.
    out : pair of arrays (m, n), optional
        Where the parts of the result are written. They may overlap the operands, not each other.
    alpha : real number
        As in `matmul`.
    beta : real number
        As in `matmul`.
    algorithm : str or Algorithm
        As in `matmul` for complex arrays: a scheme, which three real products run, or a composition such as `complex4 (x) strassen`;
        "classical" is three plain real products.
    levels : int or "auto"
        The number of levels of the scheme, from 1.
    stream : stream, optional
        As in `matmul`.

    Returns
    -------
    pair of arrays (m, n)
        `out` if it is given.

    Raises
    ------
    BilinearError
        E801 for what are not pairs of fitting matrices of one type, and those of `matmul`.

    Examples
    --------
    >>> import numpy as np
    >>> import bilinear
    >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])
    >>> real, imaginary = bilinear.matmul_parts((x, -x), (y, y))
    >>> float(real[0, 0]), float(imaginary[0, 0])
    (22.0, 0.0)
    """
    given = [*_pair("a", a), *_pair("b", b), *(() if out is None else _pair("out", out))]
    loaded, count = named_levels(algorithm, levels)
    check_levels(count, loaded)
    if count != "auto":
        require_levels(int(count))
    named = [f"the {part} part of {name}" for name in ("a", "b", "out") for part in ("real", "imaginary")]
    operands, outs = (dict(zip(named[at], given[at], strict=False)) for at in (slice(4), slice(4, None)))
    with accepted(operands, outs, stream=stream) as (kind, read, written, _):
        _require_fitting(read, written)
        real, imaginary = _multiply(kind, read, written, (alpha, beta), loaded, count)
        return out if out is not None else (kind.give_back(real), kind.give_back(imaginary))


def _pair(name: str, parts: Parts) -> Parts:
    if not isinstance(parts, tuple | list) or len(parts) != 2 or not all(hasattr(x, "dtype") for x in parts):
        raise fail("E801", f"{name} is not a pair of arrays", "give the real and the imaginary part: (x, y)")
    real, imaginary = parts
    return real, imaginary


def _require_fitting(read: list[Array], written: list[Array]) -> None:
    whole = [*read, *written]
    if {str(x.dtype) for x in whole} - set(IN_ARRAYS) or len({str(x.dtype) for x in whole}) > 1:
        raise fail("E801", f"the parts are of {', '.join(sorted({str(x.dtype) for x in whole}))}", "give all in float32, or all in float64")
    shapes = [tuple(x.shape) for x in whole]
    if any(len(shape) != 2 for shape in shapes) or any(x != y for x, y in zip(shapes[::2], shapes[1::2], strict=True)):
        raise fail("E801", f"the parts have the shapes {', '.join(map(str, shapes))}", "both parts of a matrix have its shape, m x k")
    (m, k), (inner, n) = shapes[0], shapes[2]
    if k != inner or (written and shapes[4] != (m, n)):
        out = f" into {shapes[4]}" if written else ""
        raise fail("E801", f"{shapes[0]} by {shapes[2]}{out} cannot be multiplied", "give A of m x k, B of k x n, and out of m x n")


def _multiply(
    kind: Kind, read: list[Array], written: list[Array], factors: tuple[Factor, Factor], loaded: Loaded, levels: int | str
) -> list[Array]:
    dtype, (m, k), n = read[0].dtype, read[0].shape, read[2].shape[1]
    alpha, beta = (factor(name, value, dtype) for name, value in zip(("alpha", "beta"), factors, strict=True))
    if not written and beta != 0:
        raise fail("E515", "beta scales out, and there is no out", "give out=, or leave beta at 0")
    result = written or [kind.module.empty((m, n), dtype) for _ in "ri"]
    if 0 in (m, n, k) or alpha == 0:
        for part in result:
            part[...] = part * beta if beta != 0 else 0
        return result
    device = devices_here.current_device() if kind.on_gpu else None
    tiled = None if device is None else Same(device)
    recipe = Recipe(loaded.by_level, levels, "preserve", device=tiled)
    whole = zip("ABC", read[::2] + result[:1], read[1::2] + result[1:], strict=True)
    columns = frozenset(name for name, *parts in whole if all(layout_of(x).is_by_column for x in parts))
    number = next(name for name, part in COMPLEX.items() if part.name == str(dtype))
    placement = fitted_placement(recipe, (m, k, n), kind.module.dtype(number), columns)
    aside = (placement.overwrites and beta != 0) or any(layouts_of(x, y, z).overlaps for z in written for x, y in (read[::2], read[1::2]))
    target = [kind.module.empty((m, n), dtype) for _ in "ri"] if aside else result
    executor = make_executor(kind)
    workspace = allocate_workspace(executor, placement, dtype)
    (x, xi, y, yi), (z, zi) = map(matrix_of, read), map(matrix_of, target)
    execute(executor, placement, Call(x, y, z, alpha, 0 if aside else beta, workspace, None, (xi, yi, zi)))
    if aside:
        for part, found in zip(result, target, strict=True):
            accumulate(part, found, beta)
    return result
