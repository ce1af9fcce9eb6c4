"""Calls of `matmul` that are odd in another way than by their numbers: files that change or shadow a name, many dimensions, `np.matrix`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from soak.case import PASSED, Finding
from soak.layouts import Array

import bilinear
from bilinear.errors import BilinearError
from bilinear.planner import ways

GOOD = "scheme mine <1,1,1;1>\n  M1: 1 | 1 | 1\n"
BROKEN = "scheme mine <1,1,1;1>\n  M1: 2 | 1 | 1\n"
SHADOWED = ("winograd", "strassen", "msmes")


def run_odd(generator: np.random.Generator, folder: Path) -> str:
    """One of them, in a folder of its own."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        odd = (_edited_file, _shadowed_name, _many_dimensions, _matrices)[int(generator.integers(4))]
        odd(generator)
    finally:
        os.chdir(before)
    return PASSED


def _operands(generator: np.random.Generator) -> tuple[Array, Array]:
    m, k, n = (int(e) for e in generator.integers(2, 40, 3))
    return generator.integers(-4, 5, (m, k)).astype(float), generator.integers(-4, 5, (k, n)).astype(float)


def _edited_file(generator: np.random.Generator) -> None:
    """A file that is named is read at every call."""
    a, b = _operands(generator)
    name = ("mine", "mine.bl", "./mine.bl")[int(generator.integers(3))]
    Path("mine.bl").write_text(GOOD, encoding="utf-8")
    if not np.array_equal(bilinear.matmul(a, b, algorithm=name, levels=1), a @ b):
        raise Finding(f"wrong by algorithm={name!r}")
    Path("mine.bl").write_text(BROKEN, encoding="utf-8")
    try:
        bilinear.matmul(a, b, algorithm=name, levels=1)
    except BilinearError:
        return
    raise Finding(f"algorithm={name!r} ran as it was before its file changed")


def _shadowed_name(generator: np.random.Generator) -> None:
    """A plan names shipped algorithms, whatever lies in the working folder."""
    name = SHADOWED[int(generator.integers(len(SHADOWED)))]
    Path(f"{name}.bl").write_text(("this is not a scheme\n", GOOD)[int(generator.integers(2))], encoding="utf-8")
    a, b = _operands(generator)
    (m, k), n = a.shape, b.shape[1]
    ways.forget_names()  # as in a fresh process
    try:
        plan = bilinear.plan(m, k, n, "float64", device="h200", levels=(name,), inputs="restore" if name == "msmes" else "preserve")
        result = bilinear.matmul(a.copy(), b.copy(), plan=plan)
    except BilinearError as error:
        raise Finding(f"./{name}.bl stops a plan that names the shipped {name}: {error}") from None
    finally:
        ways.forget_names()
    if not np.array_equal(result, a @ b):
        raise Finding(f"wrong by a plan beside ./{name}.bl")


def _many_dimensions(generator: np.random.Generator) -> None:
    """As many dimensions as NumPy has."""
    a, b = _operands(generator)
    count = int(generator.integers(1, 63))
    result = bilinear.matmul(a.reshape((1,) * count + a.shape), b, algorithm="strassen", levels=1)
    if not np.array_equal(result, np.matmul(a.reshape((1,) * count + a.shape), b)):
        raise Finding(f"wrong with {count + 2} dimensions")


def _matrices(generator: np.random.Generator) -> None:
    """`np.matrix` comes back as what NumPy's multiply makes of it."""
    a, b = _operands(generator)
    left = a.view(np.matrix)
    theirs = np.matmul(left, b)
    result = bilinear.matmul(left, b, algorithm="strassen", levels=1)
    if type(result) is not type(theirs) or not np.array_equal(result, theirs):
        raise Finding(f"a {type(result).__name__} for an np.matrix, where NumPy gives a {type(theirs).__name__}")
