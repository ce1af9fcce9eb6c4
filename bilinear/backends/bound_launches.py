"""Bound launches: the arguments of a placement's launches in memory, made once; a repeat changes addresses and factors, and launches."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from bilinear.errors import fail
from bilinear.ir.element import Element
from bilinear.ir.kernel import Grid, Launch, ScanLaunch
from bilinear.ir.matrix import Array, Factor
from bilinear.ir.placement import Placement


class Function(Protocol):
    """A kernel's function on a device: CuPy's, with the driver's handle."""

    ptr: int

    def __call__(self, blocks: tuple[int, ...], threads: tuple[int, ...], arguments: tuple[object, ...], shared_bytes: int = 0) -> None:
        """Launch it on the current stream."""


Step = Callable[[], None]
Values = dict[str, Array]
"""What the arguments of kernels are, by name: integers; numbers, or the names `alpha` and `beta`; addresses, or `Place`s."""

Call = tuple[Callable[..., None], list[tuple[str, Array]], Function]
"""The driver's launch of a function but for stream and parameters, the kind and value of each argument, and the function, kept alive."""

CELL = 8
"""Bytes of the largest argument."""
MOST_BLOCKS = (2**31 - 1, 65535)
"""Largest extents of a launch grid along x and y."""

MOST_DEPTH = 2**34
"""Largest inner extent of a block: kernels count its slices in 32 bits."""


@dataclass(frozen=True)
class Place:
    """Where a matrix lies: so many bytes behind the base of this number, whose address a call knows; strides in bytes."""

    base: int
    offset: int
    strides: tuple[int, ...]
    itemsize: int


def launch_values(
    placement: Placement, spaces: Mapping[str, Array], alpha: Factor | str, beta: Factor | str, address: Callable[[Array], object]
) -> Values:
    """What the arguments of every kernel of a placement are, by name; `address` gives the address of a space's first element."""
    bm, bk, bn = placement.block
    values: Values = {"bm": bm, "bk": bk, "bn": bn, "alpha": alpha, "beta": beta}
    for name, space in spaces.items():
        values[name] = address(space)
        values[f"{name}_rs"], values[f"{name}_cs"] = (stride // space.itemsize for stride in space.strides)
    return values


def grid_blocks(grid: Grid, values: Values) -> tuple[int, int]:
    """Blocks along x and y for these extents."""
    x = 1
    for tiling in grid.tilings:
        blocks = 1
        for cover in tiling:
            blocks *= -(-int(values[cover.name]) // cover.step)
        x = max(x, blocks)
    if x > MOST_BLOCKS[0] or grid.y > MOST_BLOCKS[1]:
        raise fail("E531", f"a launch of {x} x {grid.y} blocks is more than a GPU takes", "use fewer levels, or multiply in parts")
    if values.get("bk", 0) > MOST_DEPTH:
        raise fail("E531", f"sums of {values['bk']} terms are longer than a kernel counts", "use more levels, or multiply in parts")
    return x, grid.y


def launch_arguments(launch: Launch | ScanLaunch, values: Values) -> tuple[Array, ...]:
    """The values of a launch's arguments, in the order of its kernel's parameters."""
    own = {**values, "first": launch.first}
    return tuple(own[argument.name] for argument in launch.kernel.arguments)


class Bound:
    """Launches whose arguments lie in memory, made ready once.

    Each distinct value of an argument is a cell of 64 bits. Those that a call changes, addresses and factors, come first, so that they
    are written at once. The parameters of a launch are the addresses of its cells, which the driver reads when it launches.
    """

    def __init__(
        self, element: Element, launches: Iterable[tuple[Launch | ScanLaunch, Function, Values]], launch_kernel: Callable[..., None]
    ) -> None:
        """`launches` with their functions and the values of their arguments; `launch_kernel` is the driver's launch."""
        self._calls: list[Call] = []
        for launch, function, values in launches:
            kinds = (argument.kind for argument in launch.kernel.arguments)
            arguments = list(zip(kinds, launch_arguments(launch, values), strict=True))
            self._calls.append((partial(launch_kernel, function.ptr, *_shape(launch, values)), arguments, function))
        distinct = dict.fromkeys(argument for _, arguments, _ in self._calls for argument in arguments)
        places = [argument for argument in distinct if isinstance(argument[1], Place)]
        factors = [argument for argument in distinct if isinstance(argument[1], str)]
        constants = [argument for argument in distinct if not isinstance(argument[1], Place | str)]
        scalar = f"{element.code}{CELL - element.bytes}x"
        self._pointers = [(place.base, place.offset) for _, place in places]
        self._factors = [name == "alpha" for _, name in factors]
        self._changing = struct.Struct("<" + "Q" * len(places) + scalar * len(factors))
        fixed = "".join("q" if kind == "index" else scalar for kind, _ in constants)
        self._fixed = struct.pack("<" + fixed, *(value for _, value in constants))
        self._cell_of = {argument: CELL * number for number, argument in enumerate((*places, *factors, *constants))}
        self._idle: list[_Arguments] = []

    def ready(self, bases: Sequence[int], alpha: Factor, beta: Factor, stream: int) -> AbstractContextManager[Sequence[Step]]:
        """Each launch as a call, for these addresses of the bases and these factors, on the stream with this handle.

        The arguments belong to one call at a time, whatever threads and signal handlers do; they are given back at its end.
        """
        try:
            arguments = self._idle.pop()
        except IndexError:
            arguments = _Arguments(self._calls, self._cell_of, self._changing.size, self._fixed, self._idle)
        pointers = [bases[base] + offset for base, offset in self._pointers]
        factors = [alpha if is_alpha else beta for is_alpha in self._factors]
        self._changing.pack_into(arguments.memory, 0, *pointers, *factors)
        arguments.stream = stream
        return arguments


class _Arguments:
    """The cells and the parameters of some launches, and the calls that read them."""

    def __init__(
        self, calls: Sequence[Call], cell_of: dict[tuple[str, Array], int], changing: int, fixed: bytes, idle: list[_Arguments]
    ) -> None:
        self.stream = 0
        self._calls = calls
        self.memory = bytearray(changing) + fixed
        self._idle = idle
        cells = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self._parameters = [(ctypes.c_void_p * len(own))(*(cells + cell_of[argument] for argument in own)) for _, own, _ in calls]
        self._steps = [self._step(launch, ctypes.addressof(own)) for (launch, *_), own in zip(calls, self._parameters, strict=True)]

    def _step(self, launch: Callable[..., None], parameters: int) -> Step:
        return lambda: launch(self.stream, parameters, 0)

    def __enter__(self) -> Sequence[Step]:
        return self._steps

    def __exit__(self, *_: object) -> None:
        self._idle.append(self)


def _shape(launch: Launch | ScanLaunch, values: Values) -> tuple[int, ...]:
    """Blocks, threads and shared bytes as the driver takes them."""
    return (*grid_blocks(launch.grid, values), 1, *launch.kernel.threads, 1, launch.kernel.shared_bytes)
