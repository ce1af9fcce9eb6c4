"""Run a program from its output folder: the strips, then the core, launched as the manifest says (docs/manifest.md)."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from bilinear.artifact.read import EXTENTS, BuiltFolder, BuiltKernel, BuiltLaunch, BuiltProgram
from bilinear.backends.bound_launches import grid_blocks
from bilinear.ir.matrix import Array, Factor
from bilinear.ir.schedule import Space
from bilinear.ir.scheme import block_name

Values = dict[str, Array]
Shape = tuple[int, int, int]


class FolderMachine(Protocol):
    """Where launches run: emulated, or on a GPU."""

    def address(self, array: Array) -> Array:
        """The value passed for a pointer to the first element of a matrix."""

    def workspace(self, space: Space, rows: int, columns: int) -> Array:
        """An uninitialised matrix of this many elements."""

    def one(self) -> Factor:
        """The number 1, for `alpha` and `beta`."""

    def launch(self, kernel: BuiltKernel, blocks: tuple[int, int, int], arguments: tuple[tuple[str, Array], ...]) -> None:
        """Run one kernel; the arguments are pairs of a kind and a value."""


def core_of(folder: BuiltFolder, shape: Shape) -> Shape:
    """The part that the launches compute: the largest multiples of the grid; all 0 if one of them is 0."""
    m, k, n = (extent - extent % step for extent, step in zip(shape, folder.grid, strict=True))
    return (m, k, n) if m and k and n else (0, 0, 0)


def multiply(machine: FolderMachine, folder: BuiltFolder, program: BuiltProgram, operands: Values, alpha: Factor, beta: Factor) -> None:
    """C = alpha * A @ B + beta * C on 2-D arrays, named A, B and C, and Ai, Bi and Ci if these are the imaginary parts.

    If the launches overwrite C, beta must be 0.
    """
    shape = _shape(operands)
    m, k, n = core_of(folder, shape)
    rest, *strips = (
        _cut(operands, *ranges)
        for ranges in (
            (slice(m), slice(k, None), slice(n)),
            (slice(m), slice(None), slice(n, None)),
            (slice(m, None), slice(None), slice(None)),
        )
    )
    for strip in strips if folder.overwrites else (rest, *strips):
        _run_strip(machine, program, strip, alpha, beta)
    if m:
        core_beta = machine.one() if k < shape[1] and not folder.overwrites else beta
        _run_core(machine, folder, program, _cut(operands, slice(m), slice(k), slice(n)), alpha, core_beta)
    if folder.overwrites:
        _run_strip(machine, program, rest, alpha, machine.one())


def _shape(operands: Values) -> Shape:
    m, k = operands["A"].shape
    return m, k, operands["B"].shape[1]


def _cut(operands: Values, rows: slice, inner: slice, columns: slice) -> Values:
    """A part of the product: some rows and columns of C, and some of the terms."""
    ranges = {"A": (rows, inner), "B": (inner, columns), "C": (rows, columns)}
    return {name: x[ranges[name[0]]] for name, x in operands.items()}


def _run_strip(machine: FolderMachine, program: BuiltProgram, operands: Values, alpha: Factor, beta: Factor) -> None:
    if operands["A"].size and operands["C"].size:
        _run(machine, program.remainder, operands, _shape(operands), alpha, beta)


def _run_core(machine: FolderMachine, folder: BuiltFolder, program: BuiltProgram, operands: Values, alpha: Factor, beta: Factor) -> None:
    bm, bk, bn = (extent // steps for extent, steps in zip(_shape(operands), folder.grid, strict=True))
    spaces = dict(operands)
    extents_of = {"A": (bm, bk), "B": (bk, bn), "C": (bm, bn)}
    for space in folder.workspaces:
        height, width = extents_of[space.shape]
        spaces[space.name] = machine.workspace(space, space.rows * height, space.columns * width)
    _run(machine, program.launches, spaces, (bm, bk, bn), alpha, beta)


def first_difference(folder: BuiltFolder, shape: Shape, name: str, wrong: Array) -> str:
    """The first block that differs, and the number of such blocks."""
    rows, columns = {"A": (0, 1), "B": (1, 2), "C": (0, 2)}[name[0]]
    core = core_of(folder, shape)
    if core[0]:
        height, width = core[rows] // folder.grid[rows], core[columns] // folder.grid[columns]
        inner = wrong[: core[rows], : core[columns]].reshape(folder.grid[rows], height, folder.grid[columns], width).any(axis=(1, 3))
        places = np.argwhere(inner)
        if len(places):
            i, j = (int(x) for x in places[0])
            element = np.argwhere(wrong[i * height : (i + 1) * height, j * width : (j + 1) * width])[0]
            count = f"{len(places)} of {inner.size} blocks" if len(places) > 1 else "the only block"
            return f"{block_name(name[0], i, j)} differs, first in row {element[0]}, column {element[1]} of the block ({count})"
    i, j = (int(x) for x in np.argwhere(wrong)[0])
    return f"row {i}, column {j} differs, in the strips that the grid leaves over"


def _run(machine: FolderMachine, launches: tuple[BuiltLaunch, ...], spaces: Values, extents: Shape, alpha: Factor, beta: Factor) -> None:
    values: Values = {**dict(zip(EXTENTS, extents, strict=True)), "alpha": alpha, "beta": beta}
    for name, array in spaces.items():
        values[name] = machine.address(array)
        values[f"{name}_rs"], values[f"{name}_cs"] = (stride // array.itemsize for stride in array.strides)
    for launch in launches:
        own = {**values, "first": launch.first}
        arguments = tuple((argument.kind, own[argument.name]) for argument in launch.kernel.arguments)
        machine.launch(launch.kernel, (*grid_blocks(launch.grid, values), 1), arguments)
