"""`check`: bound the error of a product that was computed somehow, by random projections (docs/checking.md)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field, replace
from math import inf, isfinite
from numbers import Real

import numpy as np

from bilinear.analysis.accuracy import expected, least_exact_vectors, least_vectors, shrinking
from bilinear.backends.factor import factor
from bilinear.errors import BilinearError, fail
from bilinear.ir.matrix import Array, Dtype, Factor
from bilinear.runtime import projected
from bilinear.runtime.accept import accepted
from bilinear.runtime.arrays import Kind


@dataclass(frozen=True)
class Checked:
    """How far C is from alpha*A*B + beta*C0: norms of the difference D, in the Frobenius norm over all matrices of a batch.

    With a probability of at least `confidence` over the random vectors, |D| <= `bound` and no element of D is larger than `largest`.
    `at_least` <= |D| is certain. `estimate` is unbiased in its square. `relative` is `bound` in units of `scale`, which is
    |alpha| |A| |B| + |beta| |C0|. `rounding` is the part of `bound` that covers the roundings of the check itself. `row` is the index of
    the row of C with the largest projection, behind the indices of a batch. Arrays with a NaN or an Inf, or so large that squares
    overflow, have the bounds inf.

    For integers, which are checked modulo 2^w, `bound` is 0 if C passed and inf if it is certainly wrong.
    """

    shape: tuple[int, ...]
    dtype: str
    confidence: float
    vectors: int
    seed: int
    tolerance: float | None
    bound: float
    scale: float
    largest: float
    estimate: float
    at_least: float
    rounding: float
    row: tuple[int, ...]
    exact: bool = field(default=False)

    @property
    def relative(self) -> float:
        """`bound` in units of `scale`."""
        return 0.0 if self.bound == 0 else self.bound / self.scale if self.scale > 0 else float("inf")

    @property
    def passed(self) -> bool | None:
        """Whether `relative` is within the tolerance. None without a tolerance, except for integers, which are right or wrong."""
        if self.exact:
            return self.bound == 0
        return None if self.tolerance is None else self.relative <= self.tolerance

    def require(self) -> Checked:
        """The record itself, if it passed. Raises `BilinearError` (E704) otherwise, and E703 without a tolerance."""
        if self.passed is None:
            raise fail("E703", "a check without a tolerance has no verdict", "give check(..., tolerance=...), relative to |A| |B|")
        if not self.passed:
            what = self._verdict()
            raise fail("E704", what, "look at its row first; docs/checking.md says what the numbers mean", notes=tuple(self._facts()))
        return self

    def to_json(self) -> dict[str, object]:
        """The fields, `relative` and `passed`; a bound of inf is null."""
        facts = {**asdict(self), "relative": self.relative, "passed": self.passed}
        return {name: None if isinstance(value, float) and not isfinite(value) else value for name, value in facts.items()}

    def __repr__(self) -> str:
        return f"<Checked C of {self._size()}: {self._verdict()}>"

    def __str__(self) -> str:
        return "\n".join((f"C of {self._size()}, {self.dtype}: {self._verdict()}", *(f"  {fact}" for fact in self._facts())))

    def _size(self) -> str:
        return " x ".join(map(str, self.shape)) or "one element"

    def _verdict(self) -> str:
        if self.exact:
            return "the product, exactly" if self.bound == 0 else "certainly not the product"
        found = f"|C - AB| <= {self.relative:.3g} |A| |B|"
        if self.passed is None:
            return found
        return f"{found}, {'within' if self.passed else 'above'} the tolerance {self.tolerance:g}"

    def _facts(self) -> Iterator[str]:
        if not self.exact or self.bound == 0:
            yield f"with a probability of at least {self.confidence:.12g}, by {self.vectors} random vectors from seed {self.seed}"
        if self.exact:
            if self.bound > 0:
                yield f"row {self._row()} differs"
            return
        if self.bound == float("inf"):
            yield "there is a NaN, an Inf, or a sum that overflows"
            return
        yield f"|C - AB| is about {self.estimate:.3g}, at most {self.bound:.3g}, certainly at least {self.at_least:.3g} (Frobenius norm)"
        yield f"no element is off by more than {self.largest:.3g}; the most is in row {self._row()}"
        yield f"{self.rounding:.3g} of the bound covers roundings of the check itself"

    def _row(self) -> str:
        return ",".join(map(str, self.row))


VECTORS = 16  # With a confidence of 1 - 1e-6 the bound is then about four times the estimate.
MOST_VECTORS = 1024
SMALL = 1e-100  # A scale below which the arrays may be zero: underflow is counted in norms.
KINDS = {"f2": "f", "f4": "f", "f8": "f", "c8": "c", "c16": "c"}  # The floating-point types that are checked.


def check(
    a: Array,
    b: Array,
    c: Array,
    *,
    alpha: Factor = 1,
    beta: Factor = 0,
    before: Array = None,
    tolerance: float | None = None,
    confidence: float = 1 - 1e-6,
    vectors: int | None = None,
    seed: int = 0,
    stream: AbstractContextManager[object] | None = None,
) -> Checked:
    """How far `c` is from alpha * a @ b + beta * before: a bound after the fact, by products with a few random vectors.

    Each array is read once, in panels of rows, and multiplied by thin matrices with the arrays' own library; nothing is written, and no
    temporary is as large as a matrix. For floats and complex numbers the result bounds the Frobenius norm of the difference, and its
    largest element. The roundings of the check itself are bounded, without a probability, and are part of the bound. A NaN or an Inf in an
    array makes the bound inf. Integers are checked modulo 2^w, w the bits of `c`'s type; where the type of a @ b is narrower, its product,
    which wraps around there as in `matmul`, passes, too. The theory is in docs/checking.md.

    Parameters
    ----------
    a, b : arrays of shapes (..., m, k) and (..., k, n)
        Or vectors, as in `numpy.matmul`. Arrays of NumPy, CuPy, PyTorch, or a library that speaks DLPack.
    c : array of shape (..., m, n)
        The result that is checked.
    alpha : number
        The factor of A*B in the call.
    beta : number
        The factor of `before` in the call.
    before : array, optional
        C as it was before the call, needed if beta is not 0.
    tolerance : float, optional
        For `relative`, the bound in units of |alpha| |a| |b| + |beta| |before|: `passed` says whether it was met, and `require()` raises
        if not.
    confidence : float
        The bounds hold with at least this probability over the choice of the random vectors; a wrong product of integers passes with at
        most the rest.
    vectors : int, optional
        The number of random vectors, for floats 16. More make the bound tighter.
    seed : int
        Fixes the random vectors.
    stream : stream, optional
        As in `matmul`.

    Returns
    -------
    Checked
        Its text is a line that says it all.

    Raises
    ------
    BilinearError
        E702 for shapes and types that are not checked, E703 for options that no check meets, E528 for a factor that its type cannot hold,
        E511 for arrays on different devices.

    Examples
    --------
    >>> import numpy as np
    >>> import bilinear
    >>> a, b = np.arange(12).reshape(3, 4), np.arange(20).reshape(4, 5)
    >>> bilinear.check(a, b, a @ b).passed
    True
    >>> bilinear.check(a, b, a @ b + 1).passed
    False
    """
    a, b, c, before = (x.detach() if hasattr(x, "requires_grad") else x for x in (a, b, c, before))  # nothing is recorded here
    if beta != 0 and before is None:
        raise fail("E702", "beta is not 0, but C before the call is not given", "give before=, a copy of C from before the multiply")
    before = None if beta == 0 else before
    _check_options(tolerance, confidence, seed)
    named = {"a": a, "b": b, "c": c} | ({} if before is None else {"before": before})
    with ExitStack() as stack:
        try:
            kind, given, _, _ = stack.enter_context(accepted(named, {}, stream=stream))
        except BilinearError:
            raise
        except (BufferError, RuntimeError, TypeError, ValueError) as error:  # which one depends on the array's library
            raise fail("E702", f"an array cannot be checked as it lies in memory: {error}", "convert it, for example to float32") from None
        given = given if before is not None else [*given, None]
        dtype = _working_type([x.dtype for x in given if x is not None], given[2].dtype)
        risk = 1 - confidence
        exact = dtype.kind in "iu"
        least = least_exact_vectors(risk) if exact else least_vectors(risk / 2)
        count = (least if exact else max(VECTORS, least)) if vectors is None else vectors
        if not isinstance(count, int | np.integer) or not least <= count <= MOST_VECTORS:
            what = f"vectors={count!r} do not reach this confidence"
            raise fail("E703", what, f"give from {least} to {MOST_VECTORS}, or another confidence")
        count = int(count)
        problem = _problem(kind, given, alpha, beta, dtype, count, seed)
        with np.errstate(all="ignore"):
            checked = _exact(problem, given[2]) if dtype.kind in "iu" else _floats(problem, given[2], 1 - confidence)
        return replace(checked, confidence=confidence, tolerance=tolerance)


def _floats(problem: projected.CheckedProduct, c: Array, risk: float) -> Checked:
    """The bounds of floats. Half of the risk belongs to the norm, the other half to all rows at once."""
    found = projected.residuals_on_gpu(problem) or projected.residuals_of_floats(problem)
    shape, dtype, seed = tuple(c.shape), str(c.dtype), problem.seed
    if found.scale < SMALL and projected.is_zero(problem):  # what underflow may change is no multiple of a scale of 0
        return Checked(shape, dtype, 0.0, problem.count, seed, None, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, _place(problem, 0))
    rows, count = max(1, found.rows), problem.count
    inner = sum(x.shape[-1] + x.shape[-2] for x in (problem.a, problem.b))
    slack = 1 + 8 * projected.UNIT * (inner + rows + count + 100)  # of the norms themselves
    residual, rounding = found.norm, found.error
    whole, each = shrinking(risk / 2, count), shrinking(risk / 2 / rows, count)
    bound = slack * (residual + rounding) / whole
    largest = min(bound, slack * found.most / each) if each > 0 else bound
    underflow = (2 * count * rows * projected.TINY) ** 0.5  # that is in the norms, which are from above
    certain = max(0.0, residual / slack - slack * rounding - underflow) / (found.longest * slack)
    if not np.isfinite(bound):
        bound, largest, certain, residual, rounding = inf, inf, 0.0, inf, 0.0
    place = _place(problem, found.worst)
    estimate = residual / expected(count)
    return Checked(shape, dtype, 0.0, count, seed, None, bound, found.scale, largest, estimate, certain, rounding / whole, place)


def _exact(problem: projected.CheckedProduct, c: Array) -> Checked:
    """The verdict on integers: rows that are not mapped to 0 are certainly wrong.

    A C of a wider type than that of A*B holds either the product itself, or the product as `matmul` wraps it in the narrower type.
    """
    wrong, own = projected.residuals_exactly(problem), np.result_type(problem.a.dtype, problem.b.dtype)
    if wrong.any() and own.kind in "iu" and own.itemsize < problem.dtype.itemsize and projected.fits(problem, own):
        wrong = projected.residuals_exactly(replace(problem, dtype=own))
    is_wrong = bool(wrong.any())
    bound = inf if is_wrong else 0.0
    shape, dtype = tuple(c.shape), str(c.dtype)
    facts = bound, 1.0, bound, bound, float(is_wrong), 0.0, _place(problem, projected.largest_in(wrong))
    return Checked(shape, dtype, 0.0, problem.count, problem.seed, None, *facts, exact=True)


def _place(problem: projected.CheckedProduct, row: int) -> tuple[int, ...]:
    """The index of a row of C by its number; none if there are no rows."""
    shape = (*problem.batch, problem.c.shape[-2])
    return tuple(int(i) for i in np.unravel_index(row, shape)) if 0 not in shape else ()


def _working_type(dtypes: list[Dtype], result: Dtype) -> Dtype:
    if all(d.kind in "iu" for d in dtypes):
        return result
    for d in dtypes:
        short = f"{d.kind}{d.itemsize}"
        if short not in KINDS and not (d.kind in "iu" and d.itemsize <= 4):
            hint = "convert them to float32, float64 or a complex type, or all arrays to integers"
            raise fail("E702", f"arrays of {d} are not checked" + (" beside floats" if d.kind in "iu" else ""), hint)
    if result.kind in "iu":
        raise fail("E702", f"C of {result} is not checked against factors of floats", "convert C")
    return np.dtype("complex128" if any(d.kind == "c" for d in dtypes) else "float64")


def _check_options(tolerance: float | None, confidence: float, seed: int) -> None:
    if not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise fail("E703", f"confidence={confidence!r} is not a probability between 0 and 1", "give for example confidence=0.999999")
    if tolerance is not None and (not isinstance(tolerance, Real) or not 0 <= tolerance < inf):
        raise fail("E703", f"tolerance={tolerance!r} is not a number from 0", "give a multiple of |A| |B|, such as 1e-12")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise fail("E703", f"seed={seed!r} is not a whole number from 0", "give for example seed=1")


def _problem(kind: Kind, given: list[Array], alpha: Factor, beta: Factor, dtype: Dtype, count: int, seed: int) -> projected.CheckedProduct:
    """The arrays as batches of matrices, and the factors as numbers of the working type (E702, E528)."""
    a, b, c, before = given
    inner, outer = np.result_type(a.dtype, b.dtype), c.dtype
    factors = [factor(*named) for named in (("alpha", alpha, inner), ("beta", beta, outer))]
    if dtype.kind not in "iu":
        factors = [dtype.type(x) if dtype.kind == "c" else float(x) for x in factors]
    left, right = (a[None, :] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    fits = a.ndim and b.ndim and left.shape[-1] == right.shape[-2]
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2]) if fits else ()
    except ValueError:
        fits = False
    shape = (*batch, *(a.shape[-2:-1] if a.ndim > 1 else ()), *(b.shape[-1:] if b.ndim > 1 else ())) if fits else ()
    if not fits or c.shape != shape or (before is not None and before.shape != shape):
        told = ", ".join(f"{name} {x.shape}" for name, x in zip(("a", "b", "c", "before"), given, strict=True) if x is not None)
        raise fail("E702", f"no product has these shapes: {told}", "give A (..., m, k), B (..., k, n) and C (..., m, n)")
    full = (*batch, left.shape[-2], right.shape[-1])
    c, before = (None if x is None else x.reshape(full) for x in (c, before))
    return projected.CheckedProduct(
        kind.module, kind.on_gpu, left, right, c, before, factors[0], factors[1], dtype, tuple(batch), count, int(seed)
    )
