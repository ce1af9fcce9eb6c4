"""Calls of `matmul`, drawn: everything that a caller may give, in every layout, and some of what nobody may."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from soak.layouts import GUARD, Array, Laid, laid_out, placed

Generator = np.random.Generator

ALGORITHMS: dict[str, int] = {
    **dict.fromkeys(("strassen", "winograd", "msmes", "winograd_depth_first", "karstadt_schwartz", "classical"), 3),
    **dict.fromkeys(("naive2x2", "winograd_in_place", "hopcroft_kerr", "split_k", "winograd_223"), 2),
    **dict.fromkeys(("laderman", "laderman_in_place", "hopcroft_kerr_in_place", "accurate_halves", "accurate_sqrt3", "smirnov_336"), 1),
    **dict.fromkeys(("alphatensor_424", "benson_ballard_324", "perminov_333", "perminov_435", "dps_444", "moosbauer_poole_555"), 1),
    **dict.fromkeys(("bini", "no_such_algorithm"), 1),
}
"""Names, and the most levels that are drawn: a proof of more takes long."""
IN_PLACE = ("msmes", "winograd_in_place", "hopcroft_kerr_in_place", "laderman_in_place", "classical")
COMPOSED = ("winograd (x) strassen", "strassen (+n) <2,2,1>", "rotate(winograd_223)", "<2,1,2> (x) strassen")
FLOATS, INTEGERS, OTHERS = ("f8", "f8", "f4"), ("i8", "i4", "i2", "i1", "u8", "u4", "u1"), ("f2", "F", "D", "?", "O", "O")
SIDES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 27, 31, 32, 33, 48, 64, 65, 100, 129, 150)
FACTORS: tuple[Any, ...] = (0, 1, -1, 2, 3, 0.5, -0.25, np.float32(2), np.int8(3), np.array(2), True, Fraction(3))
"""alpha and beta that most types can hold."""
ODD_FACTORS: tuple[Any, ...] = (
    *(0.0, -0.0, 0.1, 1e300, -1e300, 1e-300, 2**70, float("nan"), float("inf"), 1j, "2", 300, Fraction(1, 3), Fraction(-7, 2)),
    *(np.float64(0.1), np.uint8(2), np.bool_(True), np.array(-0.5), np.ones(2)),
)
ODD_OPTIONS: tuple[dict[str, Any], ...] = (
    *({"inputs": "keep"}, {"levels": -1}, {"levels": 1.5}, {"levels": True}, {"workspace": "some"}, {"workspace": -1}),
    *({"tolerance": -1.0}, {"tolerance": "1"}, {"tolerance": float("nan")}, {"beta": 1}),
)


@dataclass(frozen=True)
class Call:
    """What `matmul` is given. `overlaps` says that `out` was laid over an operand."""

    a: Laid
    b: Laid
    out: Laid | None
    overlaps: bool
    workspace: Laid | None
    options: dict[str, Any]

    @property
    def laid(self) -> tuple[Laid, ...]:
        """All arrays of the call."""
        return tuple(x for x in (self.a, self.b, self.out, self.workspace) if x is not None)

    def __str__(self) -> str:
        told = {"a": self.a, "b": self.b, "out": self.out, **{name: repr(value) for name, value in self.options.items()}}
        if self.workspace is not None:
            told["workspace"] = f"array {self.workspace}"
        return "matmul(" + ", ".join(f"{name}={value}" for name, value in told.items()) + ")"


def chance(generator: Generator, probability: float) -> bool:
    """True with this probability."""
    return bool(generator.random() < probability)


def one_of(generator: Generator, choices: Any) -> Any:
    """One of some values, as it is."""
    return choices[int(generator.integers(len(choices)))]


def draw_call(generator: Generator) -> Call:
    """A call of which most can run."""
    types = [_type(generator)] * 2 if chance(generator, 0.92) else [_type(generator), _type(generator)]
    is_slow = any(t.kind == "O" for t in types)
    left, right = _shapes(generator, 13 if is_slow else 150)
    style = one_of(generator, ("whole", "whole", "whole", "normal", "normal", "scaled", "hostile"))
    a, b = (
        laid_out(generator, values_of(generator, shape, t, style), plain=chance(generator, 0.3), repeats=chance(generator, 0.08))
        for shape, t in zip((left, right), types, strict=True)
    )
    if left == right and types[0] == types[1] and chance(generator, 0.2):
        b = a
    options = _options(generator)
    out, overlaps = _out(generator, a, b, style)
    if out is not None and chance(generator, 0.5):
        options["beta"] = _factor(generator)
    if options.get("inputs", "preserve") == "preserve" and chance(generator, 0.3):
        a.view.flags.writeable = b.view.flags.writeable = False
    workspace = _workspace(generator, a) if chance(generator, 0.1) and "workspace" not in options else None
    if workspace is None and "workspace" not in options and chance(generator, 0.15):
        options["workspace"] = one_of(generator, ("none", "unlimited", 0, 1000, 100_000, np.int64(10**6), 10**12, 10**12))
    return Call(a, b, out, overlaps, workspace, options)


def _factor(generator: Generator) -> Any:
    return one_of(generator, ODD_FACTORS if chance(generator, 0.25) else FACTORS)


def _type(generator: Generator) -> np.dtype[Any]:
    group = one_of(generator, (FLOATS, FLOATS, FLOATS, FLOATS, INTEGERS, OTHERS))
    dtype = np.dtype(one_of(generator, group))
    swapped: np.dtype[Any] = dtype.newbyteorder()
    return swapped if chance(generator, 0.05) and not dtype.hasobject else dtype


def _shapes(generator: Generator, most: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    is_batch = chance(generator, 0.12)
    most = min(most, 20) if is_batch else most
    m, k, n = (min(most, int(one_of(generator, SIDES) if chance(generator, 0.35) else generator.integers(0, 100))) for _ in range(3))
    left: tuple[int, ...] = (m, k) if chance(generator, 0.94) else (k,)
    right: tuple[int, ...] = (k, n) if chance(generator, 0.94) else (k,)
    if chance(generator, 0.02):
        right = (k + 1, *right[1:])
    if chance(generator, 0.01):
        left = ()
    if is_batch:
        batch = [int(e) for e in generator.integers(0 if chance(generator, 0.1) else 1, 4, int(generator.integers(1, 3)))]
        each = [tuple(1 if chance(generator, 0.3) else e for e in batch[int(chance(generator, 0.2)) :]) for _ in range(2)]
        left, right = (each[0] + left if len(left) == 2 else left), (each[1] + right if len(right) == 2 else right)
    return left, right


def values_of(generator: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], style: str) -> Array:
    """Numbers of a type: whole and small, or full of what the type has."""
    small = generator.integers(-4, 5, shape)
    if dtype.kind == "b":
        return small > 2
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        is_small = style in ("whole", "scaled") or not chance(generator, 0.8)
        return (
            abs(small).astype(dtype) if is_small else generator.integers(info.min, info.max, shape, dtype.newbyteorder("="), endpoint=True)
        )
    if dtype.kind == "O":
        found = np.empty(shape, object)
        scale = 10**30 if style != "whole" else 1
        found[...] = np.vectorize(lambda x: Fraction(int(x), 7) if style == "normal" else int(x) * scale, otypes=[object])(small)
        return found
    if style == "whole" or dtype.kind == "c":
        return small.astype(dtype)
    with np.errstate(over="ignore", under="ignore"):
        values = np.asarray(generator.standard_normal(shape))
        if style == "scaled":
            values = values * 10.0 ** generator.integers(-8, 9, (*shape[:-1], 1) if shape else ())
        values = values.astype(dtype)
    if style == "hostile" and values.size:
        reach = np.finfo(dtype)
        bad = (np.nan, np.inf, -np.inf, reach.max, reach.smallest_subnormal, reach.tiny, -0.0, reach.max / 64)
        for _ in range(int(generator.integers(1, 5))):
            values.flat[int(generator.integers(values.size))] = one_of(generator, bad)
    return values


def _options(generator: Generator) -> dict[str, Any]:
    name = one_of(generator, IN_PLACE if chance(generator, 0.3) else tuple(ALGORITHMS))
    options: dict[str, Any] = {
        "algorithm": name,
        "levels": int(generator.integers(0 if chance(generator, 0.2) else 1, ALGORITHMS[name] + 1)),
    }
    if chance(generator, 0.01):
        options = {"algorithm": one_of(generator, COMPOSED), "levels": 1}
    elif chance(generator, 0.05):
        options = {"algorithm": "auto"}
    elif chance(generator, 0.1) and ALGORITHMS[name] > 1:
        options["levels"] = "auto"
    if (name in IN_PLACE and chance(generator, 0.7)) or chance(generator, 0.03):
        options["inputs"] = one_of(generator, ("restore", "restore", "consume"))
    if options.get("inputs") == "restore" and chance(generator, 0.3):
        options["tolerance"] = one_of(generator, (1e-3, 1e-6, 1e-12, 0.0))
    if chance(generator, 0.5):
        options["alpha"] = _factor(generator)
    if chance(generator, 0.02):
        options |= one_of(generator, ODD_OPTIONS)
    return options


def _out(generator: Generator, a: Laid, b: Laid, style: str) -> tuple[Laid | None, bool]:
    if chance(generator, 0.3) or not a.view.ndim or not b.view.ndim:
        return None, False
    try:
        batch = np.broadcast_shapes(a.view.shape[:-2], b.view.shape[:-2])
    except ValueError:
        batch = ()
    shape = batch + a.view.shape[-2:-1] * (a.view.ndim > 1) + b.view.shape[-1:] * (b.view.ndim > 1)
    dtype = np.result_type(a.view.dtype, b.view.dtype)
    if chance(generator, 0.1):
        dtype = _type(generator)
    if chance(generator, 0.03):
        shape = (*shape, 1) if chance(generator, 0.5) else tuple(e + 1 for e in shape)
    if chance(generator, 0.06):
        over = _over(generator, one_of(generator, (a, b)), shape)
        if over is not None:
            return over, True
    plain = "whole" if style == "hostile" and chance(generator, 0.5) else style
    out = laid_out(generator, values_of(generator, shape, dtype, plain), plain=chance(generator, 0.4), repeats=chance(generator, 0.02))
    if chance(generator, 0.02):
        out.view.flags.writeable = False
    return out, False


def _over(generator: Generator, operand: Laid, shape: tuple[int, ...]) -> Laid | None:
    """A result over an operand: in the operand's own order, a little before or behind its first element."""
    x = operand.view
    if len(shape) != x.ndim or x.dtype.hasobject or 0 in x.strides or any(e > f for e, f in zip(shape, x.shape, strict=True)):
        return None
    offset = operand.offset + x.itemsize * int(generator.integers(-GUARD, GUARD + 1)) * int(chance(generator, 0.6))
    try:
        return Laid.of(placed(operand.base, x.dtype, shape, offset, x.strides), operand.base, offset)
    except (ValueError, TypeError):
        return None


def _workspace(generator: Generator, a: Laid) -> Laid:
    """An array to work in: often too small, of another type, or not writable."""
    dtype = a.view.dtype if chance(generator, 0.7) else np.dtype(one_of(generator, ("u1", "f4", "f8", "O")))
    size = int(one_of(generator, (0, 10, 1000, 30_000, 200_000)))
    values = np.zeros(min(size, 1000) if dtype.hasobject else size, dtype)
    workspace = laid_out(generator, values, plain=chance(generator, 0.8))
    if chance(generator, 0.05):
        workspace.view.flags.writeable = False
    return workspace
