"""Calls of `matmul` on NumPy's arrays of any numbers and of types that no other kind draws, and calls that must be refused.

A float result is within the proved bound of the classical product in extended precision; what is restored is within that of its drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from math import inf, prod
from typing import Any

import numpy as np
from soak.case import Case
from soak.homes import Held
from soak.layouts import Array
from soak.scene import IN_PLACE, Scene, play, wide

import bilinear
from bilinear.analysis.accuracy import DriftBound, classical_bound, drift_bound, schedule_bound
from bilinear.frontend import load
from bilinear.ir.schedule import Schedule
from bilinear.ir.scheme import Scheme
from bilinear.lowering.place import choose_levels
from bilinear.lowering.prepare import Level, prepare, prepare_complex

WIDE = np.longdouble
ALGORITHMS: dict[str, int] = {
    **dict.fromkeys(("strassen", "winograd", "msmes", "winograd_depth_first", "karstadt_schwartz", "classical"), 3),
    **dict.fromkeys(("naive2x2", "winograd_in_place", "hopcroft_kerr", "split_k", "winograd_223"), 2),
    **dict.fromkeys(("laderman", "laderman_in_place", "hopcroft_kerr_in_place", "accurate_halves", "accurate_sqrt3", "smirnov_336"), 1),
    **dict.fromkeys(("alphatensor_424", "benson_ballard_324", "perminov_333", "perminov_435", "dps_444", "moosbauer_poole_555"), 1),
    **dict.fromkeys(("winograd (x) strassen", "strassen (+n) <2,2,1>", "rotate(winograd_223)", "<2,1,2> (x) strassen"), 1),
}
"""Names, and the most levels that are drawn: a proof of more takes long."""
STYLES = ("normal", "normal", "scaled", "hostile")
FACTORS: tuple[Any, ...] = (
    *(0, 1, -1, 3, 0.5, -0.0, 0.1, 1e-30, float("nan"), float("inf"), True, Fraction(1, 3), Fraction(-7, 2)),
    *(np.float32(2), np.int8(3), np.array(-0.5), np.bool_(True)),
)
"""alpha and beta that every float type can hold."""
REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    *(({"inputs": "keep"}, "E513"), ({"levels": -1}, "E514"), ({"levels": 1.5}, "E514"), ({"levels": True}, "E514")),
    *(({"workspace": "some"}, "E534"), ({"workspace": -1}, "E534"), ({"tolerance": -1.0}, "E532"), ({"tolerance": "1"}, "E532")),
    *(({"beta": 1}, "E515"), ({"algorithm": "bini"}, "E506"), ({"algorithm": "no_such_algorithm"}, "E121")),
    *(({"alpha": value}, "E528") for value in (1j, "2", 10**400, np.ones(2))),
)
"""Options that no product of float64 has, and the codes by which they are refused."""
GROWTH = 1e4  # More than any sum that the drawn algorithms form grows over its largest entry.
HALF_ULPS = 4  # Roundings of a result on its way into an `out` of another type, of alpha and of beta.


def run(case: Case) -> str:
    """One call."""
    return play(case, _act, "numpy")


def _act(scene: Scene) -> str:
    return str(scene.one_of((_floats, _floats, _floats, _others, _refused))(scene))


def _shapes(scene: Scene, most: int | None = None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    m, k, n = scene.extents(3, most)
    batch = scene.extents(1, 3) if scene.chance(0.15) else ()
    left = (k,) if not batch and scene.chance(0.05) else (*batch, m, k)
    return left, (k,) if not batch and len(left) > 1 and scene.chance(0.05) else (k, n) if scene.chance(0.3) else (*batch, k, n)


def _refused(scene: Scene) -> str:
    """Options that are none, and shapes that do not fit."""
    a, b = (scene.integers(shape, "float64") for shape in ((5, 4), (4, 3)))
    options, code = scene.one_of(REFUSED)
    if scene.chance(0.3):
        b, options, code = scene.integers(scene.one_of(((5, 3), (5,), (3, 5, 3), ())), "float64"), {}, "E520"
    scene.say(f"matmul, {options}")
    return scene.refused(partial(bilinear.matmul, a.array, b.array, **{"algorithm": "strassen", "levels": 1, **options}), (code,))


def _others(scene: Scene) -> str:
    """Objects, Booleans and numbers in the other order of bytes, exactly."""
    left, right = _shapes(scene, 13)
    kind, options = str(scene.one_of(("objects", "fractions", "bool", "swapped"))), scene.options(writes=False)
    if kind == "swapped":
        dtype = scene.dtype("iufc").newbyteorder()
        values = [scene.whole(shape, dtype) for shape in (left, right)]
        exact = np.asarray(wide(values[0]) @ wide(values[1])).astype(dtype.newbyteorder("="))
    elif kind == "bool":
        values = [scene.whole(shape, "int8") > 1 for shape in (left, right)]
        exact = np.asarray(values[0] @ values[1])
    else:
        share = Fraction(1, 7) if kind == "fractions" else 10**30
        values = [scene.whole(shape, "int8").astype(object) * share for shape in (left, right)]
        if len(left) == len(right) == 1 or 0 in (*left, *right):
            return scene.refused(lambda: bilinear.matmul(*values, algorithm="no_such_algorithm"), ("E121",))
        exact = np.asarray(values[0] @ values[1])
    a, b = map(scene.put, values)
    out = None if scene.chance(0.5) else scene.put(np.zeros_like(exact))
    scene.say(f"matmul of {kind}, {options}")
    call = partial(bilinear.matmul, a.array, b.array, None if out is None else out.array, **options)
    reasons = scene.reasons(options, exact.dtype, out)
    return scene.settle(call, exact, exact.dtype, [out], reasons | {"E528"} if kind == "objects" else reasons)


def _floats(scene: Scene) -> str:
    """Floats and complex numbers: normal, of many decades, and full of what the type has."""
    left, right = _shapes(scene)
    dtype, style = np.dtype(scene.one_of(("f4", "f8", "f8", "F", "D"))), scene.one_of(STYLES)
    a, b = (scene.put(_numbers(scene, shape, dtype, style), repeats=True) for shape in (left, right))
    shape = np.matmul(np.empty(left), np.empty(right)).shape
    out = None if scene.chance(0.3) or not shape else scene.put(_numbers(scene, shape, scene.one_of(("f4", "f8", "D", dtype)), "normal"))
    name = scene.one_of(IN_PLACE if scene.chance(0.3) else tuple(ALGORITHMS))
    options: dict[str, Any] = {"algorithm": name, "levels": int(scene.draw.integers(0 if scene.chance(0.1) else 1, ALGORITHMS[name] + 1))}
    if ALGORITHMS[name] > 1 and scene.chance(0.1):
        options["levels"] = "auto"
    if name in IN_PLACE and scene.chance(0.7):
        options["inputs"] = scene.one_of(("restore", "restore", "consume"))
    if options.get("inputs") == "restore" and scene.chance(0.3):
        options["tolerance"] = scene.one_of((1e-3, 1e-6, 1e-12, 0.0))
    options |= {"alpha": scene.one_of(FACTORS)} if scene.chance(0.5) else {}
    options |= {"beta": scene.one_of(FACTORS)} if out is not None and scene.chance(0.5) else {}
    work = scene.put(np.zeros(scene.one_of((0, 1000, 30_000, 200_000)), dtype)) if scene.chance(0.1) else None
    scene.say(f"matmul of {style} numbers, {options}, workspace {work and work.laid}")
    promise = Promise(a, b, out, shape, options)
    if work is not None:
        options = {**options, "workspace": work.array}
    scene.differs, scene.is_back = promise.differs, promise.is_back
    call = partial(bilinear.matmul, a.array, b.array, None if out is None else out.array, **options)
    writes = promise.inputs != "preserve"
    reasons = scene.reasons({"inputs": promise.inputs}, dtype, out) | {"E501"}
    reasons |= ({"E529", "E535"} if work else set()) | ({"E524", "E533"} if writes else set())
    written = [*([a, b] if promise.inputs == "consume" else []), *([work] if work else [])]
    if promise.inputs == "restore" and promise.key and not all(np.isfinite(x.values).all() for x in (a, b)):
        return scene.refused(call, reasons)
    return scene.settle(call, promise.wanted(), dtype, [out], reasons, written, [a, b] if promise.inputs == "restore" else [])


def _numbers(scene: Scene, shape: Sequence[int], dtype: Any, style: str) -> Array:
    with np.errstate(all="ignore"):
        values = np.asarray(scene.draw.standard_normal(tuple(shape)))
        if np.dtype(dtype).kind == "c":
            values = values + 1j * scene.draw.standard_normal(values.shape)
        if style == "scaled":
            values = values * 10.0 ** scene.draw.integers(-8, 9, (*shape[:-1], 1))
        values = values.astype(dtype)
    if style == "hostile" and values.size:
        reach = np.finfo(dtype)
        for value in (np.nan, np.inf, -np.inf, reach.max, reach.smallest_subnormal, reach.tiny, -0.0, reach.max / 64):
            if scene.chance(0.4):
                values.flat[int(scene.draw.integers(values.size))] = value
    return values


@lru_cache(maxsize=256)
def _schedule(name: str, levels: int, inputs: str) -> tuple[Scheme, Schedule]:
    loaded = load(name)
    if not inputs:  # complex matrices
        return loaded.scheme, prepare_complex((Level(loaded.scheme, loaded.schedule),) * levels)
    return loaded.scheme, prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule


@lru_cache(maxsize=4096)
def _bound(name: str, levels: int, inputs: str, inner: int, u: float) -> tuple[float, float]:
    scheme, schedule = _schedule(name, levels, inputs)
    bound = schedule_bound(scheme, schedule, inner, u)
    return bound.product, bound.addend


@lru_cache(maxsize=256)
def _drift(name: str, levels: int, inputs: str) -> DriftBound:
    return drift_bound(_schedule(name, levels, inputs)[1])


@dataclass(frozen=True)
class Promise:
    """What holds of a call of floats whose result has this shape."""

    a: Held
    b: Held
    out: Held | None
    shape: tuple[int, ...]
    options: dict[str, Any]

    @property
    def inputs(self) -> str:
        return str(self.options.get("inputs", "preserve"))

    @property
    def key(self) -> tuple[str, int, str] | None:
        """The algorithm that runs, its levels and inputs, "" for complex matrices; None is the library."""
        name, levels = self.options["algorithm"], self.options["levels"]
        if levels == 0 or self.options.get("alpha", 1) == 0 or 0 in self.shape:
            return None
        m, n = (x.values.shape[axis] if x.values.ndim > 1 else 1 for x, axis in ((self.a, -2), (self.b, -1)))
        depth = max(1, choose_levels(load(name).scheme, m, self.a.values.shape[-1], n)) if levels == "auto" else int(levels)
        return name, depth, "" if self.a.values.dtype.kind == "c" else self.inputs

    def _factors(self) -> tuple[Any, Any]:
        """alpha and beta, rounded to the types that they multiply."""
        types = self.a.values.dtype.type, (self.a if self.out is None else self.out).values.dtype.type
        given = self.options.get("alpha", 1), self.options.get("beta", 0)
        return tuple(t(float(x)) for t, x in zip(types, given, strict=True))

    def _operands(self) -> list[Array]:
        """Those that are read, in extended precision."""
        alpha, beta = self._factors()
        read = [*([self.a, self.b] if alpha != 0 else []), *([self.out] if self.out and beta != 0 else [])]
        return [x.values.astype(_wide(x.values)) for x in read]

    def wanted(self) -> Array:
        """alpha * a @ b + beta * out."""
        alpha, beta = self._factors()
        with np.errstate(all="ignore"):
            a, b = (x.values.astype(_wide(x.values)) * (1 if alpha != 0 else 0) for x in (self.a, self.b))
            product = _wide(a)(alpha) * (a @ b) if alpha != 0 else np.zeros(self.shape, _wide(a))
            return np.asarray(product if self.out is None or beta == 0 else product + _wide(self.out.values)(beta) * self._operands()[-1])

    def differs(self, found: Array, wanted: Array) -> Any:
        """Which elements are further off than they may be; where an operand or a factor is not finite, which have lost that."""
        factors = self._factors()
        if not all(np.isfinite(x).all() for x in (*self._operands(), *factors)):
            is_lost = any(x != 0 and abs(x) < 1e-7 for x in factors)  # what rounds to 0 may count as 0
            return np.isfinite(found) & ~np.isfinite(wanted) & (self.a.values.shape[-1] > 0 and not is_lost)
        allowed = self._allowed(wanted)
        return ~(np.isposinf(allowed) | (abs(found.astype(wanted.dtype) - wanted) <= allowed))

    def _allowed(self, wanted: Array) -> Any:
        """How far a result may be from what is wanted; infinite where sums may overflow."""
        inner, dtype = self.a.values.shape[-1], self.a.values.dtype
        u = float(np.finfo(dtype).eps) / 2
        product, addend = (classical_bound(inner, u), 4.0) if self.key is None else _bound(*self.key, inner, u)
        product *= 4 if dtype.kind == "c" else 1
        limits = [np.finfo(x.values.dtype) for x in (self.a, self.out) if x is not None]
        alpha, beta = (abs(WIDE(x.real)) + abs(WIDE(x.imag)) for x in self._factors())
        a, b = (WIDE(abs(x.values.astype(_wide(x.values))).max(initial=0)) for x in (self.a, self.b))
        c = WIDE(0) if self.out is None or not beta else WIDE(abs(self._operands()[-1]).max(initial=0))
        a, b = (a, b) if alpha else (WIDE(0), WIDE(0))
        with np.errstate(all="ignore"):
            core = max(WIDE(1), alpha) * max(product, inner * GROWTH) * a * b + max(WIDE(1), beta) * c
            if not max(core, GROWTH * a, GROWTH * b) < min(WIDE(info.max) for info in limits):
                return inf
            lost = max(WIDE(info.smallest_subnormal) for info in limits) * max(WIDE(1), alpha, beta) * GROWTH * (inner + 1)
            aside = HALF_ULPS * WIDE(max(float(info.eps) / 2 for info in limits)) * (abs(wanted) + beta * c * 2)
            return WIDE(u) * (alpha * product * a * b + beta * addend * c) + aside + lost * max(WIDE(1), a, b)

    def is_back(self, held: Held, now: Array) -> bool:
        """Whether an operand was restored: to rounding, and each of its blocks within the tolerance."""
        if self.key is None:
            return np.array_equal(now, held.values, equal_nan=True)
        info, largest = np.finfo(now.dtype), abs(held.values.astype(WIDE)).max(initial=0)
        bound, products = _drift(*self.key), max(1, prod(self.shape[:-2]))
        lost = max((sum(loss for _, loss in block.losses) for block in bound.blocks), default=0.0) * 2 * float(info.smallest_subnormal)
        moved = abs(now.astype(WIDE) - held.values.astype(WIDE))
        overflows = self.a.values.shape[-1] * largest * GROWTH >= info.max
        is_near = overflows or bool((moved <= products * (1.01 * bound.worst() * float(info.eps) / 2 * largest + lost)).all())
        tolerance, schedule = self.options.get("tolerance"), _schedule(*self.key)[1]
        if tolerance is None or now.ndim != 2:
            return is_near
        grid = (schedule.m, schedule.k) if held is self.a else (schedule.k, schedule.n)
        height, width = (extent // count for extent, count in zip(now.shape, grid, strict=True))
        blocks = [np.s_[i * height : (i + 1) * height, j * width : (j + 1) * width] for i, j in np.ndindex(*grid)]
        return is_near and all(
            moved[block].max(initial=0) <= tolerance * abs(held.values[block]).max(initial=0) for block in blocks if height and width
        )


def _wide(x: Array) -> Any:
    return np.clongdouble if x.dtype.kind == "c" else WIDE
