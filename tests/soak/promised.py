"""What is promised of a call of `matmul`: its exact result, how far from it floats may be, and which refusals have a reason."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import inf, isfinite, prod
from typing import Any

import numpy as np
from soak.drawn_calls import COMPOSED, Call
from soak.layouts import Array

from bilinear.analysis.accuracy import DriftBound, classical_bound, drift_bound, schedule_bound
from bilinear.analysis.integer_range import IntegerRange, integer_range
from bilinear.frontend import Loaded, load
from bilinear.ir.matrix import layout_of
from bilinear.ir.schedule import Schedule
from bilinear.lowering.place import choose_levels
from bilinear.lowering.prepare import Level, prepare, prepare_complex

WIDE = np.longdouble
HALF_ULPS = 4
"""Roundings of a result on its way into an `out` of another type, of alpha and of beta."""
COMPLEX = "complex"
"""Stands for `inputs` where complex matrices are multiplied."""
GROWTH = 1e4
"""More than any sum that the drawn algorithms form grows over its largest entry."""

_loaded = lru_cache(maxsize=64)(load)


@lru_cache(maxsize=256)
def _schedule(name: str, levels: int, inputs: str) -> tuple[Loaded, Schedule]:
    loaded = _loaded(name)
    if inputs == COMPLEX:
        return loaded, prepare_complex((Level(loaded.scheme, loaded.schedule),) * levels)
    return loaded, prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule


@lru_cache(maxsize=4096)
def _bound(name: str, levels: int, inputs: str, inner: int, u: float) -> tuple[float, float]:
    loaded, schedule = _schedule(name, levels, inputs)
    bound = schedule_bound(loaded.scheme, schedule, inner, u)
    return bound.product, bound.addend


@lru_cache(maxsize=256)
def _range(name: str, levels: int, inputs: str) -> IntegerRange | None:
    return integer_range(_schedule(name, levels, inputs)[1])


@lru_cache(maxsize=256)
def _drift(name: str, levels: int, inputs: str) -> DriftBound:
    return drift_bound(_schedule(name, levels, inputs)[1])


def number_of(value: Any) -> Any:
    """alpha or beta as a plain number, or whatever else it is."""
    return value.item() if getattr(value, "shape", None) == () else value


def fits(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a type can hold alpha or beta, as the documentation of `matmul` says."""
    if np.ndim(value) or not isinstance(number_of(value), numbers.Number):
        return False
    value = number_of(value)
    if dtype.kind == "O":
        return True
    if dtype.kind in "iub" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if dtype.kind in "iu":
        return isinstance(value, numbers.Integral) and np.iinfo(dtype).min <= int(value) <= np.iinfo(dtype).max
    if dtype.kind == "b":
        return isinstance(value, numbers.Integral) and value in (0, 1)
    if isinstance(value, complex):
        return dtype.kind == "c"
    try:
        wide = float(value)
    except OverflowError:
        return False
    return not isfinite(wide) or abs(wide) <= float(np.finfo(dtype).max)


@dataclass(frozen=True)
class Promise:
    """What holds of a call whose shapes and types fit. `key` is the algorithm that runs, its levels and inputs; None is the library."""

    call: Call
    shape: tuple[int, ...]
    product: np.dtype[Any]
    result: np.dtype[Any]
    alpha: Any
    beta: Any

    @classmethod
    def of(cls, call: Call, shape: tuple[int, ...]) -> Promise:
        product = np.result_type(call.a.view.dtype, call.b.view.dtype)
        result = product if call.out is None else call.out.view.dtype
        return cls(call, shape, product, result, number_of(call.options.get("alpha", 1)), number_of(call.options.get("beta", 0)))

    @property
    def inner(self) -> int:
        return int(self.call.a.view.shape[-1])

    @property
    def inputs(self) -> str:
        return str(self.call.options.get("inputs", "preserve"))

    @property
    def is_library(self) -> bool:
        """Whether no schedule runs."""
        options, kind = self.call.options, self.product.kind
        is_asked = options["algorithm"] == "auto" or options.get("levels", "auto") == 0
        return is_asked or self.alpha == 0 or kind not in "fiucO" or self.product.char == "e" or 0 in self.shape

    @property
    def key(self) -> tuple[str, int, str] | None:
        if self.is_library:
            return None
        name, levels = self.call.options["algorithm"], self.call.options.get("levels", "auto")
        m, n = (x.view.shape[axis] if x.view.ndim > 1 else 1 for x, axis in ((self.call.a, -2), (self.call.b, -1)))
        depth = max(1, choose_levels(_loaded(name).scheme, m, self.inner, n)) if levels == "auto" else int(levels)
        return name, depth, COMPLEX if self.product.kind == "c" else self.inputs

    def reasons(self) -> set[str]:
        """The codes of the diagnostics that this call gives a reason for."""
        options, laid = self.call.options, self.call.laid[:2]
        dtypes, batches = {x.view.dtype for x in self.call.laid[:3]} | {self.product}, {x.view.shape[:-2] for x in laid}
        writes, consumes = self.inputs != "preserve", self.inputs == "consume"
        budget = options.get("workspace")
        reasons = {
            "E501": options.get("levels", 0) in (3, "auto"),
            "E506": options["algorithm"] == "bini",
            "E515": self.call.out is None and self.beta != 0,
            "E520": self.call.out is not None and layout_of(self.call.out.view).overlaps_itself,
            "E521": writes and not all(x.view.flags.writeable for x in laid),
            "E522": writes and any(layout_of(x.view).overlaps_itself for x in laid),
            "E523": writes and self.shares_memory,
            "E524": self.inputs == "restore" and not all(is_finite(x.values) for x in laid),
            "E525": writes,
            "E526": writes and (len(dtypes) > 1 or not self.product.isnative),
            "E527": consumes and len(batches | {self.shape[:-2]}) > 1,
            "E528": not self.factors_fit or (self.product.kind in "iuO" and self._has_fractions()),
            "E529": self.call.workspace is not None,
            "E532": consumes,
            "E533": writes and options.get("tolerance") is not None,
            "E785": writes and self.product.kind == "c",
            "E535": self.call.workspace is not None or budget not in (None, "unlimited", 10**12),
        }
        return {code for code, holds in reasons.items() if holds}

    def _has_fractions(self) -> bool:
        """Whether a scheme may have coefficients that are no integers."""
        name = self.call.options["algorithm"]
        return name.startswith(("accurate", "smirnov", "dps", "alphatensor", "bini")) or name in COMPOSED

    @property
    def shares_memory(self) -> bool:
        """Whether two of a, b and out have an element in common."""
        views = [x.view for x in self.call.laid[:3] if x is not self.call.workspace]
        return any(np.shares_memory(x, y) for x, y in combinations(views, 2))

    @property
    def factors_fit(self) -> bool:
        return fits(self.call.options.get("alpha", 1), self.product) and fits(self.call.options.get("beta", 0), self.result)

    def wanted(self, a: Array, b: Array, c: Array | None) -> Array:
        """alpha * a @ b + beta * c, exactly where the type is exact, else in extended precision; c only where beta is not 0."""
        kind = self.product.kind
        if kind == "b":
            value: Array = ((a.astype(np.int64) @ b.astype(np.int64)) > 0) & bool(self.alpha)
            if self.result.kind != "b":
                return self._added(value, c)
            return value if c is None else value | (c & bool(self.beta))
        if kind in "iu":
            return self._added(_modular(self.alpha, a, b).astype(self.product), c)
        if kind == "O":
            total = np.asarray(exact_product(a, b) * self.alpha, object)
            return total if c is None else total + c * self.beta
        wide = np.clongdouble if kind == "c" or self.result.kind == "c" else WIDE
        with np.errstate(all="ignore"):
            value = (np.zeros((), wide) if self.alpha == 0 else wide(_rounded(self.alpha, self.product))) * _classical(
                a, b, wide, self.alpha
            )
            return value if c is None else value + wide(_rounded(self.beta, self.result)) * c.astype(wide)

    def _added(self, value: Array, c: Array | None) -> Array:
        """A product of an exact type, put into `out` or added to it in its type."""
        if self.result.kind in "iu":
            old = 0 if c is None else np.asarray(c).astype(np.int64).astype(np.uint64) * np.uint64(int(self.beta) % 2**64)
            with np.errstate(all="ignore"):
                return (value.astype(np.int64).astype(np.uint64) + old).astype(self.result)
        if self.result.kind == "O":
            return value.astype(object) if c is None else value.astype(object) + c * self.beta
        wide = np.clongdouble if self.result.kind == "c" else WIDE
        with np.errstate(all="ignore"):
            return value.astype(wide) if c is None else value.astype(wide) + wide(_rounded(self.beta, self.result)) * c.astype(wide)

    def is_exact(self, style_bits: int) -> bool:
        """Whether floats must be exact for whole operands whose elements are at most `style_bits` large."""
        alpha, beta = self.alpha, self.beta
        if not all(isinstance(x, int | float) and isfinite(x) and x == int(x) and abs(x) <= 3 for x in (alpha, beta)):
            return False
        bits = min(np.finfo(t).nmant + 1 for t in (self.product, self.result) if t.kind in "fc")
        if self.key is None:
            return bool((self.inner * 2 * style_bits**2 * max(1, abs(alpha)) + abs(beta) * style_bits) <= 2**bits)
        found, (name, levels, inputs) = _range(*self.key), self.key
        grid = _schedule(name, levels, inputs)[1].k
        depth = self.inner // grid
        rest = (self.inner - depth * grid) * (2 if inputs == COMPLEX else 1)
        return found is not None and found.size(bits, depth, rest, int(alpha), int(beta)) >= style_bits

    def allowed(self, a: Array, b: Array, c: Array | None, wanted: Array) -> Any:
        """How far a float result may be from what is wanted; infinite where sums may overflow."""
        if self.product.kind not in "fc":
            u, product, addend = 0.0, 0.0, 4.0
        else:
            u = float(np.finfo(self.product).eps) / 2
            product, addend = (classical_bound(self.inner, u), 4.0) if self.key is None else _bound(*self.key, self.inner, u)
            product *= 4 if self.product.kind == "c" else 1
        limits = [np.finfo(t) for t in (self.product, self.result) if t.kind in "fc"]
        alpha, beta = (abs(WIDE(_rounded(x, t).real)) + abs(WIDE(_rounded(x, t).imag)) for x, t in self._factors())
        sizes = _largest(a), _largest(b), WIDE(0) if c is None else _largest(c)
        with np.errstate(all="ignore"):
            core = max(WIDE(1), alpha) * max(product, self.inner * GROWTH) * sizes[0] * sizes[1] + max(WIDE(1), beta) * sizes[2]
            if not max(core, GROWTH * sizes[0], GROWTH * sizes[1]) < min(WIDE(info.max) for info in limits):
                return inf
            lost = max(WIDE(info.smallest_subnormal) for info in limits) * max(WIDE(1), alpha, beta) * GROWTH * (self.inner + 1)
            lost = lost * max(WIDE(1), *sizes[:2])
            roundoff = max(float(info.eps) / 2 for info in limits)
            aside = HALF_ULPS * WIDE(roundoff) * (abs(wanted) + beta * sizes[2] * 2)
            return WIDE(u) * (alpha * product * sizes[0] * sizes[1] + beta * addend * sizes[2]) + aside + lost

    def _factors(self) -> tuple[tuple[Any, np.dtype[Any]], ...]:
        return (self.alpha, self.product), (self.beta, self.result)

    def drift(self, products: int) -> tuple[float, float]:
        """How far restoring may move an element: relative to the largest of its operand, and what underflow may lose besides."""
        if self.key is None:
            return 0.0, 0.0
        bound, info = _drift(*self.key), np.finfo(self.product)
        lost = max((sum(loss for _, loss in block.losses) for block in bound.blocks), default=0.0)
        return 1.01 * products * bound.worst() * float(info.eps) / 2, 2 * products * lost * float(info.smallest_subnormal)

    def grid(self) -> tuple[int, int, int]:
        """Blocks of the whole schedule in each dimension."""
        assert self.key is not None
        schedule = _schedule(*self.key)[1]
        return schedule.m, schedule.k, schedule.n


def _modular(alpha: Any, a: Array, b: Array) -> Array:
    """alpha * a @ b modulo 2**64, by the classical multiply."""
    left, right = (x.astype(np.int64).astype(np.uint64) if x.dtype.kind != "u" else x.astype(np.uint64) for x in (a, b))
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(left, right) * np.uint64(int(alpha) % 2**64))


def _classical(a: Array, b: Array, wide: Any, alpha: Any) -> Array:
    if alpha == 0:  # then a and b are not read
        return np.asarray(np.matmul(np.zeros(a.shape, wide), np.zeros(b.shape, wide)))
    return np.asarray(np.matmul(a.astype(wide), b.astype(wide)))


def exact_product(a: Array, b: Array) -> Array:
    """a @ b of Python numbers, by the definition."""
    left, right = (
        a.astype(object) if a.ndim > 1 else a.astype(object)[None, :],
        b.astype(object) if b.ndim > 1 else b.astype(object)[:, None],
    )
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left, right = np.broadcast_to(left, batch + left.shape[-2:]), np.broadcast_to(right, batch + right.shape[-2:])
    result = np.empty((*batch, left.shape[-2], right.shape[-1]), object)
    for *rest, i, j in np.ndindex(*result.shape):
        at = tuple(rest)
        result[(*at, i, j)] = sum(x * y for x, y in zip(left[at][i], right[at][:, j], strict=True))
    if a.ndim == 1:
        result = result[..., 0, :]
    return result[..., 0] if b.ndim == 1 else result


def _rounded(value: Any, dtype: np.dtype[Any]) -> Any:
    """alpha or beta as a number of a type."""
    if dtype.kind not in "fc":
        return np.float64(float(value)) if not isinstance(value, complex) else np.complex128(value)
    with np.errstate(all="ignore"):
        return dtype.type(complex(value) if dtype.kind == "c" else float(value))


def _largest(x: Array) -> Any:
    return WIDE(abs(x.astype(np.clongdouble if x.dtype.kind == "c" else WIDE)).max()) if x.size else WIDE(0)


def is_finite(x: Array) -> bool:
    """Whether every element is finite."""
    return x.dtype.kind not in "fc" or bool(np.isfinite(x).all())


def products_of(shape: tuple[int, ...], call: Call) -> int:
    """How many products of matrices a call is."""
    return max(1, prod(shape[: max(0, len(shape) - 2)]))
