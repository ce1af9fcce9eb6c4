"""Products of digits and of residues on a pretended GPU: real and complex, blocks, layouts, factors, budgets and values drawn.

Whole numbers come out bit for bit; others within the bound that the plan states; Inf and NaN where the classical product has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from runtime.pretended_gpu import Array, undescribed
from soak.case import PASSED, REFUSED, Case, Finding

import bilinear
from bilinear.emulator import guarded, skip_reason
from bilinear.errors import BilinearError, StageError
from bilinear.ir.element import MULTIPLIED
from bilinear.planner.device_files import load_device
from bilinear.planner.plan import Plan
from bilinear.runtime import devices_here

MOST_SECONDS = 300  # A case whose kernels were never compiled compiles them.
CASES_A_PROGRAM = 24  # Neighbouring seeds that draw from one program, so that most of them compile nothing.
H200 = load_device("h200")
__all__ = ["run", "skip_reason"]
PRODUCTS = {
    "pairs": ("float32", "complex64"),
    "residues7": ("float32", "complex64"),
    "residues8": ("float32", "complex64"),
    "gaussian7": ("complex64",),
    "gaussian15": ("complex128",),
    "residues13": ("float64", "complex128"),
    "residues14": ("float64", "complex128"),
}
LEVELS: tuple[tuple[str, ...], ...] = ((), (), ("winograd",), ("winograd", "winograd"), ("strassen",), ("laderman",))
SIDES = (1, 2, 7, 16, 31, 64, 65, 127, 128, 129, 130, 200)
WHOLE, NORMAL, DECADES, INFINITE, LARGEST, TINY = STYLES = ("whole", "normal", "decades", "infinite", "largest", "tiny")
FACTORS = (0, 1, -1, 2, 3, -0.5)


@dataclass(frozen=True)
class Program:
    """What kernels are made for."""

    products: str
    dtype: str
    levels: tuple[str, ...]
    by_columns: str

    @property
    def part(self) -> np.dtype[Any]:
        """The type of numbers, or of their parts."""
        return np.dtype(MULTIPLIED[self.dtype].name)


def run(case: Case) -> str:
    """One product."""
    program = _program(Case(case.kind, case.seed // CASES_A_PROGRAM, case.folder).generator())
    generator = case.generator()
    m, k, n = (int(generator.choice(SIDES) if generator.random() < 0.5 else generator.integers(1, 150)) for _ in range(3))
    workspace = int(generator.integers(0, 4_000_000)) if generator.random() < 0.2 else None
    try:
        plan = bilinear.plan(m, k, n, program.dtype, device=H200, levels=program.levels, products=program.products, workspace=workspace)
    except BilinearError as error:
        if workspace is None and error.diagnostics[0].code != "E592":  # too many levels for these residues
            raise Finding(f"{program}, {m} x {k} x {n}: {error}") from None
        return REFUSED
    style = str(generator.choice(STYLES))
    values = [_values(generator, shape, program, style) for shape in ((m, k), (k, n), (m, n))]
    alpha, beta = _factor(generator, program), _factor(generator, program)
    what = f"{program}, {m} x {k} x {n}, {style}, alpha {alpha!r}, beta {beta!r}, workspace {workspace}, seed {case.seed}"
    laid = [_laid(generator, x, name in program.by_columns) for name, x in zip("ABC", values, strict=True)]
    if beta == 0:
        laid[2][1][...] = np.nan  # the old values are not read
    before = [whole.copy() for whole, _ in laid]
    with pytest.MonkeyPatch.context() as patched, undescribed(patched) as gpu:
        patched.setattr(devices_here, "_described", lambda named, index: H200)
        arrays = [Array(view) for _, view in laid]
        try:
            bilinear.matmul(*arrays, plan=plan, alpha=alpha, beta=beta)
        except (BilinearError, StageError) as error:  # the emulator refuses a kernel's step, or the plan does not run
            raise Finding(f"{error}: {what}") from None
        if gpu.library:
            raise Finding(f"the library multiplied: {what}")
    for (whole, _), old in zip(laid[:2], before, strict=False):
        if not np.array_equal(whole.view(np.uint8), old.view(np.uint8)):
            raise Finding(f"an operand was written: {what}")
    (whole, view), old = laid[2], before[2]
    found = view.copy()
    view[...] = np.nan
    inside = whole.copy()
    view[...] = 0
    if not np.array_equal(np.isnan(inside) | (whole == old) | np.isnan(old), np.ones_like(whole, bool)):
        raise Finding(f"memory beside C was written: {what}")
    _check(found, values, (alpha, beta), plan, program, style, what)
    return PASSED


def _program(generator: np.random.Generator) -> Program:
    products = str(generator.choice(list(PRODUCTS)))
    by_columns = "".join(name for name in "ABC" if generator.random() < 0.4)
    return Program(products, str(generator.choice(PRODUCTS[products])), LEVELS[int(generator.integers(len(LEVELS)))], by_columns)


def _factor(generator: np.random.Generator, program: Program) -> Any:
    real = FACTORS[int(generator.integers(len(FACTORS)))]
    if np.dtype(program.dtype).kind == "c" and generator.random() < 0.4:
        return complex(real, FACTORS[int(generator.integers(len(FACTORS)))])
    return real


def _values(generator: np.random.Generator, shape: tuple[int, int], program: Program, style: str) -> Any:
    if np.dtype(program.dtype).kind != "c":
        return _real(generator, shape, program.part, style).astype(program.dtype)
    whole = np.empty(shape, program.dtype)
    whole.real, whole.imag = (_real(generator, shape, program.part, style) for _ in range(2))
    return whole


def _real(generator: np.random.Generator, shape: tuple[int, int], part: np.dtype[Any], style: str) -> Any:
    most, info = 30 if part == np.float32 else 2**19, np.finfo(part)
    if style == WHOLE:
        return generator.integers(-most, most + 1, shape)
    found = generator.standard_normal(shape)
    if style == DECADES:
        found *= 10 ** generator.uniform(-4.5, 4.5, shape)
    if style == LARGEST:  # sums stay finite
        found = generator.uniform(-1, 1, shape) * float(info.max) ** 0.5 / 64
    if style == TINY:
        found *= float(info.tiny) ** (0.6 if generator.random() < 0.5 else 0.4)
    if style == INFINITE:
        found = generator.integers(-9, 10, shape).astype(float)
        for _ in range(int(generator.integers(0, 4))):
            found[tuple(generator.integers(0, shape))] = generator.choice([np.inf, -np.inf, np.nan])
    return found


def _laid(generator: np.random.Generator, x: Any, by_columns: bool) -> tuple[Any, Any]:
    """The memory and the matrix in it: lines some elements apart, the first somewhere in its memory, the last at the end of a page."""
    lines = x.T if by_columns else x
    gap, first = int(generator.choice((0, 0, 1, 3, 4, 8))), int(generator.choice((0, 0, 1, 2, 4)))
    rows, columns = lines.shape
    memory = guarded(np.full(first + rows * (columns + gap) - gap, -7, x.dtype))
    size = x.dtype.itemsize
    view = np.lib.stride_tricks.as_strided(memory[first:], (rows, columns), ((columns + gap) * size, size))
    view[...] = lines
    return memory, view.T if by_columns else view


def _check(found: Any, values: list[Any], factors: tuple[Any, Any], plan: Plan, program: Program, style: str, what: str) -> None:
    """With alpha = 0 A and B are not read, with beta = 0 the old C."""
    (a, b, old), (alpha, beta) = values, factors
    wide = np.clongdouble if np.dtype(program.dtype).kind == "c" else np.longdouble
    reads = [*((a, b) if alpha else ()), *((old,) if beta else ())]
    with np.errstate(all="ignore"):
        exact = alpha * (a.astype(wide) @ b.astype(wide)) if alpha else np.zeros(old.shape, wide)
        exact = exact + beta * old.astype(wide) if beta else exact
    if style == WHOLE:
        if not np.array_equal(found, exact.astype(program.dtype)):
            raise Finding(f"{int((found != exact).sum())} of {found.size} are wrong: {what}")
        return
    if not all(np.isfinite(x).all() for x in reads):
        if not np.array_equal(np.isfinite(found), np.isfinite(exact)):
            raise Finding(f"Inf and NaN are elsewhere: {what}")
        found, exact = (np.where(np.isfinite(exact), x, 0) for x in (found, exact))
    u = float(np.finfo(program.part).eps)
    parts = [x.view(program.part) if x.size else x for x in (np.ascontiguousarray(y) for y in (a, b, old))]
    largest = [float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in parts]
    bound = plan.chosen.choice.bound(plan.problem.k, program.dtype)
    sizes = 2 * max(abs(alpha), 0) * largest[0] * largest[1]
    most = (bound + 4 * u * plan.problem.k) * sizes + 8 * u * abs(beta) * largest[2] + 4 * float(np.finfo(program.part).smallest_subnormal)
    off = float(np.abs(found - exact).max(initial=0)) if np.isfinite(found).all() else np.inf
    if not off <= most:
        raise Finding(f"an error of {off:.3g} is above the bound {most:.3g}: {what}")
