"""Calls of `matmul` on NumPy's arrays, everything drawn, beside the classical multiply in exact or extended arithmetic."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from soak.case import PASSED, REFUSED, Case, Finding
from soak.drawn_calls import ODD_OPTIONS, Call, draw_call
from soak.layouts import Array, Laid
from soak.odd_calls import run_odd
from soak.promised import WIDE, Promise, is_finite, number_of, products_of

import bilinear
from bilinear.errors import BilinearError

NEVER_RUN = {"E506", "E515", "E521", "E522", "E523", "E524"}
"""Reasons for which a schedule never runs."""
MOST_WHOLE = 64
"""Whole floats up to this size must come out exactly, where everything that is formed of them is exact."""


def run(case: Case) -> str:
    """One call."""
    generator = case.generator()
    if generator.random() < 0.01:
        return run_odd(generator, case.folder)
    call = draw_call(generator)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return judge(call)
    except Finding as found:
        raise Finding(f"{found}\n{call}") from None
    except Exception as error:
        error.add_note(str(call))
        raise


def judge(call: Call) -> str:
    """Make the call, and compare what it does with what is promised."""
    theirs = _theirs(call)
    out, workspace = (None if x is None else x.view for x in (call.out, call.workspace))
    options = call.options if workspace is None else {**call.options, "workspace": workspace}
    try:
        ours = bilinear.matmul(call.a.view, call.b.view, out, **options)
    except (BilinearError, TypeError, ValueError) as error:
        _check_refusal(call, theirs, error)
        return REFUSED
    _check_accepted(call, theirs)
    kinds = [(type(x).__name__, str(np.asarray(x).dtype), np.shape(x)) for x in (ours, theirs)]
    if call.out is None and kinds[0] != kinds[1] and not np.asarray(theirs).dtype.hasobject:
        raise Finding(f"the result is {kinds[0]}, NumPy's {kinds[1]}")
    if call.out is not None and ours is not call.out.view:
        raise Finding("what is returned is not out")
    promise = Promise.of(call, np.shape(ours))
    _check_operands(call, promise)
    _check_values(promise, np.asarray(ours))
    return PASSED


def _theirs(call: Call) -> Any:
    """What NumPy gives, or what it raises; without factors, but an object times alpha may be of another type."""
    try:
        product = np.matmul(call.a.again(), call.b.again())
        if not isinstance(product, np.ndarray | np.generic):
            product = number_of(call.options.get("alpha", 1)) * product
        return product if call.out is None else np.matmul(call.a.again(), call.b.again(), out=call.out.again())
    except (TypeError, ValueError) as error:
        return error


def _is_odd(call: Call) -> bool:
    return call.options["algorithm"] == "no_such_algorithm" or any(
        all(call.options.get(name) is value for name, value in odd.items()) for odd in ODD_OPTIONS[:-1]
    )


def _check_refusal(call: Call, theirs: Any, error: Exception) -> None:
    """Nothing was written, and there was a reason."""
    for laid in call.laid:
        if not laid.is_untouched():
            raise Finding(f"a call that was refused has written: {error}")
    if isinstance(theirs, Exception) or _is_odd(call):
        return
    promise = Promise.of(call, np.shape(theirs))
    if not isinstance(error, BilinearError):
        raise Finding(f"refused where NumPy multiplies: {type(error).__name__}: {error}") from error
    codes = {diagnostic.code for diagnostic in error.diagnostics}
    if not codes & promise.reasons():
        raise Finding(f"refused without a reason: {error}")


def _check_accepted(call: Call, theirs: Any) -> None:
    """A call that ran was one that may run."""
    if isinstance(theirs, Exception):
        raise Finding(f"ran where NumPy raises {type(theirs).__name__}: {theirs}")
    promise = Promise.of(call, np.shape(theirs))
    is_neutral = promise.alpha in (0, 1) and promise.beta in (0, 1)  # such as 0.0 for integers
    if not promise.factors_fit and not is_neutral and 0 not in (*promise.shape, promise.inner):
        raise Finding("ran with a factor that the type cannot hold, which is refused elsewhere (E528)")
    must_refuse = _is_odd(call) or "E520" in promise.reasons() or (not promise.is_library and bool(promise.reasons() & NEVER_RUN))
    if must_refuse:
        raise Finding("ran where it must be refused")


def _check_operands(call: Call, promise: Promise) -> None:
    """A and B are as promised, and nothing beside any array was written."""
    writes = promise.inputs != "preserve" and promise.key is not None
    shares_gaps = call.out is not None and writes and any(np.may_share_memory(call.out.base, laid.base) for laid in (call.a, call.b))
    if call.out is not None and not shares_gaps and not call.out.is_untouched_beside():
        raise Finding("something beside out was written")
    if call.workspace is not None and not call.workspace.is_untouched_beside():
        raise Finding("something beside the workspace was written")
    for name, laid in (("a", call.a), ("b", call.b)):
        if call.out is not None and laid.base is call.out.base:
            continue
        if not (laid.is_untouched_beside() if writes else laid.is_untouched()):
            raise Finding(f"{name} was written, or something beside it")
        if writes and promise.inputs == "restore":
            _check_restored(name, laid, call, promise)


def _check_restored(name: str, laid: Laid, call: Call, promise: Promise) -> None:
    if promise.product.kind not in "f":
        if not np.array_equal(laid.view, laid.values):
            raise Finding(f"{name} was not restored exactly")
        return
    moved = abs(laid.view.astype(WIDE) - laid.values.astype(WIDE))
    relative, lost = promise.drift(products_of(promise.shape, call))
    largest = abs(laid.values.astype(WIDE)).max(initial=0)
    if promise.inner * largest * 1e4 < np.finfo(promise.product).max and not (moved <= relative * largest + lost).all():
        raise Finding(f"restoring moved {name} by {moved.max()}, more than {relative * largest + lost}")
    tolerance = call.options.get("tolerance")
    if tolerance is None or laid.view.ndim != 2:
        return
    m, k, n = promise.grid()
    rows, columns = (m, k) if name == "a" else (k, n)
    height, width = laid.view.shape[0] // rows, laid.view.shape[1] // columns
    for i, j in np.ndindex(rows, columns) if height and width else ():
        block = slice(i * height, (i + 1) * height), slice(j * width, (j + 1) * width)
        if not moved[block].max() <= float(tolerance) * abs(laid.values[block]).max():
            raise Finding(f"block {i + 1},{j + 1} of {name} moved by {moved[block].max()} under tolerance={tolerance}")


def _check_values(promise: Promise, ours: Array) -> None:
    """C is alpha * a @ b + beta * out."""
    call = promise.call
    a, b = call.a.values, call.b.values
    c = call.out.values if call.out is not None and promise.beta != 0 else None
    if not ours.size or (promise.result.kind == "O") != (promise.product.kind == "O"):
        return
    if promise.product.kind == "O":
        is_exact = all(hasattr(x, "denominator") for x in (promise.alpha, promise.beta, *a.flat, *b.flat, *([] if c is None else c.flat)))
        if is_exact:
            _check_equal(ours, promise.wanted(a, b, c))
        return
    wanted = promise.wanted(a, b, c)
    if promise.result.kind in "biu":
        _check_equal(ours, wanted)
        return
    operands = [x for x in ((a, b) if promise.alpha != 0 else ()) + (c,) if x is not None]
    if not all(map(is_finite, operands)) or not all(map(_is_finite_factor, (promise.alpha, promise.beta))):
        _check_spread(promise, ours, wanted)
        return
    size = _whole_size(operands)
    if promise.product.kind in "fc" and size is not None and promise.is_exact(size):
        _check_equal(ours, wanted)
        return
    far = abs(ours.astype(wanted.dtype) - wanted)
    allowed = promise.allowed(a, b, c, wanted)
    if not (np.isposinf(allowed) | (far <= allowed)).all():
        raise Finding(f"an element is off by {np.nanmax(far)}, where {np.max(allowed)} is allowed")


def _is_finite_factor(value: Any) -> bool:
    return hasattr(value, "denominator") or bool(np.isfinite(value))


def _whole_size(operands: list[Array]) -> int | None:
    """The largest magnitude where all are small whole numbers."""
    largest = max((float(max(abs(x.real).max(initial=0), abs(x.imag).max(initial=0))) for x in operands), default=0)
    is_whole = largest <= MOST_WHOLE and all(bool((x.real == np.rint(x.real)).all()) for x in operands)
    return max(1, int(largest)) if is_whole else None


def _check_equal(ours: Array, wanted: Array) -> None:
    different = np.asarray(ours != wanted)
    if different.any():
        place = tuple(int(i) for i in np.argwhere(different)[0])
        raise Finding(f"{int(different.sum())} of {ours.size} elements are wrong, {place}: {ours[place]!r} for {wanted[place]!r}")


def _check_spread(promise: Promise, ours: Array, wanted: Array) -> None:
    """Where the classical product is not finite, because an operand or a factor is not, the result is not finite either."""
    is_lost = any(x != 0 and abs(x) < 1e-7 for x in (promise.alpha, promise.beta))  # what rounds to 0 may count as 0
    if promise.inner and not is_lost and not (~np.isfinite(ours[~np.isfinite(wanted)])).all():
        raise Finding("an Inf or a NaN of an operand is lost")
