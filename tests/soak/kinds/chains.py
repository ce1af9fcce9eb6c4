"""Chains through `multi_dot`: order, types, layouts, vectors, `out`, workspace and algorithm drawn, beside exact products one by one."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from runtime.operands import LAYOUTS, laid_out
from soak.case import PASSED, REFUSED, Case, Finding

import bilinear
from bilinear.errors import BilinearError

DTYPES = ("int8", "int64", "float32", "float64", "object")
OUTS = ("none", "new", "an operand", "another shape")


def run(case: Case) -> str:
    """One chain."""
    generator = case.generator()
    extents = [int(extent) for extent in generator.integers(0 if generator.random() < 0.1 else 1, 10, generator.integers(2, 7))]
    dtypes = [str(generator.choice(DTYPES)) for _ in extents[1:]]
    dtypes = dtypes[:1] * len(dtypes) if generator.random() < 0.6 else dtypes
    most = 1 if np.result_type(*dtypes) == np.float32 else 9  # float32 holds no larger products
    matrices = [_matrix(generator, shape, own, most) for shape, own in zip(pairwise(extents), dtypes, strict=True)]
    if generator.random() < 0.1 and matrices[0].size:
        matrices = [matrices[0][:, :1] * matrices[0][:1, :] % 3] * int(
            generator.integers(1, 6)
        )  # nothing fits, or one matrix again and again
    if generator.random() < 0.2:
        matrices[0] = matrices[0][0] if len(matrices[0]) else matrices[0].ravel()
    if generator.random() < 0.2 and matrices[-1].ndim == 2 and len(matrices) > 1:
        matrices[-1] = matrices[-1][:, :1].ravel()
    before = [x.copy() for x in matrices]
    out, options = _out(generator, matrices), _options(generator)
    what = f"{[(x.dtype.name, x.shape, x.strides) for x in matrices]}, out {None if out is None else (out.dtype, out.shape)}, {options}"
    blank = None if out is None else out.copy()
    try:
        found = bilinear.multi_dot(matrices, out=out, **options)
    except (BilinearError, TypeError, ValueError) as error:
        same = [x is y or (np.asarray(x == y).all()) for x, y in zip([*matrices, out], [*before, blank], strict=True)]
        if not all(same) or not _may_refuse(before, out, options, str(error)):
            raise Finding(f"{error}\n{what}") from None
        return REFUSED
    _check(found, before, matrices, out, what)
    return PASSED


def _matrix(generator: np.random.Generator, shape: tuple[int, int], dtype: str, most: int) -> Any:
    layout = str(generator.choice(LAYOUTS[:-1] if dtype == "object" else LAYOUTS))
    return laid_out(generator.integers(-most, most + 1, shape).astype(dtype), layout)


def _options(generator: np.random.Generator) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if generator.random() < 0.3:
        options |= {"algorithm": str(generator.choice(["strassen", "winograd", "laderman"])), "levels": int(generator.integers(0, 3))}
    if generator.random() < 0.3:
        options["workspace"] = int(generator.integers(0, 20_000))
    if generator.random() < 0.2:
        options["device"] = "h200"
    return options


def _out(generator: np.random.Generator, matrices: list[Any]) -> Any:
    """Where the result may go; it is filled with what must not be read."""
    kind = str(generator.choice(OUTS, p=(0.35, 0.35, 0.2, 0.1)))
    shape = (*matrices[0].shape[:-1], *matrices[-1].shape[1:])
    if kind == "an operand":
        fitting = [x for x in matrices if x.shape == shape]
        return fitting[int(generator.integers(len(fitting)))] if fitting else None
    if kind == "none":
        return None
    dtype = np.result_type(*matrices) if generator.random() < 0.8 else np.dtype(str(generator.choice(DTYPES)))
    return np.full(shape if kind == "new" else (*shape, 2), 77).astype(dtype)


def _may_refuse(matrices: list[Any], out: Any, options: dict[str, Any], said: str) -> bool:
    """Whether a refusal has its reason."""
    shape = (*matrices[0].shape[:-1], *matrices[-1].shape[1:])
    ends = [(1, *x.shape) if x.ndim == 1 and at == 0 else (*x.shape, 1)[:2] for at, x in enumerate(matrices)]
    fits = len(matrices) > 1 and all(left[1] == right[0] for left, right in pairwise(ends))
    if "E550" in said:
        return not fits or (out is not None and out.shape != shape)
    if "E535" in said:
        return "workspace" in options
    return "cannot hold" in said and out is not None and not np.can_cast(np.result_type(*matrices), out.dtype, "same_kind")


def _check(found: Any, before: list[Any], matrices: list[Any], out: Any, what: str) -> None:
    expected = reduce(lambda x, y: np.asarray(x).dot(y), [x.astype(object) for x in before])
    dtype = np.result_type(*before) if out is None else out.dtype
    if np.shape(found) != np.shape(expected) or (out is not None and found is not out):
        raise Finding(f"the result is {np.shape(found)}, not {np.shape(expected)}, or not out: {what}")
    if out is None and not dtype.hasobject and np.asarray(found).dtype != dtype:
        raise Finding(f"the result is of {np.asarray(found).dtype}, not {dtype}: {what}")
    wanted = np.asarray(expected).astype(np.float64).astype(dtype).astype(object) if dtype.kind == "f" else expected
    bits = [8 * own.itemsize for own in (dtype, np.result_type(*before)) if own.kind == "i"]
    wrong = np.asarray(found).astype(object) - wanted
    wrong = wrong % 2 ** min(bits) if bits else wrong  # integers wrap
    if np.asarray(wrong != 0).any():
        raise Finding(f"the result is wrong: {what}")
    for x, y in zip(matrices, before, strict=True):
        if (out is None or not np.shares_memory(x, out)) and not np.asarray(x == y).all():
            raise Finding(f"an operand was written: {what}")
