"""Bound launches: a placement's launches with their arguments in memory. A repeat only writes addresses and factors, and launches."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from bilinear.errors import StageError, fail
from bilinear.ir.element import Element, IntegerElement
from bilinear.ir.kernel import Grid
from bilinear.ir.matrix import Array, Factor
from bilinear.ir.placement import Placement

if TYPE_CHECKING:  # which stays out of what a first plan imports
    from bilinear.ir.launch import Launch, PlainLaunch

MOST_STREAMS = 16  # Streams that a stage's launches are dealt to; each costs an event and two waits a stage.


class SideStreams:
    """Streams and events of the current device, for one call at a time: every call records the events anew.

    If the caller's stream is being captured, what is forked from it becomes branches of the graph.
    """

    def __init__(self, count: int) -> None:
        import cupy

        self._streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(count)]
        self._ends = [cupy.cuda.Event(disable_timing=True) for _ in range(count)]
        self._begin = cupy.cuda.Event(disable_timing=True)

    def run(self, launches: Sequence[Callable[[int], None]], stream: int) -> None:
        """Run launches, each given the handle of its stream, after what `stream` holds and before what follows there."""
        from cupy.cuda import runtime

        used = list(zip(self._streams, self._ends, strict=True))[: len(launches)]
        runtime.eventRecord(self._begin.ptr, stream)
        for side, _ in used:
            runtime.streamWaitEvent(side.ptr, self._begin.ptr)
        try:
            for number, launch in enumerate(launches):
                launch(used[number % len(used)][0].ptr)
        finally:  # also after an error: a captured stream that is not joined spoils the graph
            for side, end in used:
                runtime.eventRecord(end.ptr, side.ptr)
                runtime.streamWaitEvent(stream, end.ptr)


class Function(Protocol):
    """A kernel's function on a device: CuPy's, with the driver's handle."""

    ptr: int

    def __call__(self, blocks: tuple[int, ...], threads: tuple[int, ...], arguments: tuple[object, ...], shared_bytes: int = 0) -> None:
        """Launch it on the current stream."""


Step = Callable[[], None]
Values = dict[str, Array]  # A kernel's arguments by name: integers, numbers or `alpha`, addresses or places.

Call = tuple[Callable[..., None], list[tuple[str, Array]], Function]
"""A launch that still needs its stream and parameters; the kind and value of each argument; and the kernel function, kept alive."""

_FACTORS = (("scalar", "alpha"), ("scalar", "beta"))
_TURNS = (("scalar", "alpha_im"), ("scalar", "beta_im"))
CELL = 8  # Bytes of the largest argument.
MOST_BLOCKS = (2**31 - 1, 65535)  # Largest extents of a launch grid along x and y.
MOST_DEPTH = 2**34  # Largest inner extent of a block: kernels count its slices in 32 bits.


@dataclass(frozen=True)
class InC:
    """A product as `templates/replay.c` issues it, which says what the numbers mean; `memory` are the arguments of its launches.

    It allocates `workspace` bytes. Some need addresses at multiples of 16. `alive` is what the numbers point to.
    """

    numbers: tuple[int, ...]
    memory: bytes
    workspace: int = 0
    is_aligned: bool = False
    swaps: bool = False
    alive: object = None


MOST_BYTES, MOST_ARGUMENTS = 4096, 512  # What C copies for a call; the most arguments of a launch.


@dataclass(frozen=True)
class MatrixPlace:
    """Where a matrix lies: `offset` bytes behind the base of number `base`, whose address a call knows. Strides are in bytes.

    The launches of a program name a buffer in its place, which lies at a base when they are bound.
    """

    base: int | str
    offset: int
    strides: tuple[int, ...]
    itemsize: int


def launch_values(
    placement: Placement,
    spaces: Mapping[str, Array],
    alpha: Factor | str,
    beta: Factor | str,
    address: Callable[[Array], object] | None = None,
) -> Values:
    """The arguments of every kernel of a placement, by name; the spaces are places, or `address` gives that of their first element."""
    bm, bk, bn = placement.block
    values: Values = {"bm": bm, "bk": bk, "bn": bn, "alpha": alpha, "beta": beta}
    for name, space in spaces.items():
        values[name] = space if address is None else address(space)
        values[f"{name}_rs"], values[f"{name}_cs"] = (stride // space.itemsize for stride in space.strides)
    return values


def grid_blocks(grid: Grid, values: Values) -> tuple[int, int]:
    """Blocks along x and y for these extents; raises `BilinearError` (E531) if there are too many."""
    x = 1
    for tiling in grid.tilings:
        blocks = 1
        for cover in tiling:
            blocks *= -(-int(values[cover.name]) // cover.step)
        x = max(x, blocks)
    if x > MOST_BLOCKS[0] or grid.y > MOST_BLOCKS[1]:
        raise fail("E531", f"a launch of {x} x {grid.y} blocks is more than a GPU takes", "use fewer levels, or multiply in parts")
    if values.get("bk", 0) > MOST_DEPTH:
        raise fail("E531", f"sums of {values['bk']} terms are longer than a kernel can count", "use more levels, or multiply in parts")
    return x, grid.y


def launch_arguments(launch: Launch | PlainLaunch, values: Values) -> tuple[Array, ...]:
    """The values of a launch's arguments, in the order of its kernel's parameters."""
    own = {**values, "first": launch.first}
    return tuple(own[argument.name] for argument in launch.kernel.arguments)


class BoundStage(NamedTuple):
    """The launches `begin` to `end`, `end` excluded, which one step runs; `number` is that of the schedule's stage if its mode cuts it."""

    number: int | None
    begin: int
    end: int
    at_once: bool


class BoundLaunches:
    """Launches whose arguments lie in memory.

    Each distinct argument has a cell of 64 bits. The cells that a call changes, addresses and factors, come first, so that one write
    changes them all. The parameters of a launch are the addresses of its cells, which the driver reads at the launch.
    """

    def __init__(
        self,
        element: Element | IntegerElement,
        launches: Iterable[tuple[Launch | PlainLaunch, Function, Values]],
        launch_kernel: Callable[..., None],
        is_complex: bool = False,
    ) -> None:
        """`launches` with their functions and the values of their arguments; `launch_kernel` is the driver's launch.

        If the matrices are complex, alpha and beta are complex numbers of NumPy, and the imaginary parts are arguments of their own.
        """
        self._is_complex = is_complex
        factors = (*_FACTORS, *_TURNS) if is_complex else _FACTORS
        self._calls: list[Call] = []
        self._stages: list[BoundStage] = []
        for launch, function, values in launches:
            again = launch.stage is not None and bool(self._stages) and self._stages[-1].number == launch.stage
            begin = self._stages.pop().begin if again else len(self._calls)
            self._stages.append(BoundStage(launch.stage, begin, len(self._calls) + 1, launch.at_once))
            kinds = (argument.kind for argument in launch.kernel.arguments)
            arguments = list(zip(kinds, launch_arguments(launch, values), strict=True))
            shape = *grid_blocks(launch.grid, values), 1, *launch.kernel.threads, 1, launch.kernel.shared_bytes
            self._calls.append((partial(launch_kernel, function.ptr, *shape), arguments, function))
        distinct = dict.fromkeys(argument for _, arguments, _ in self._calls for argument in arguments)
        places = [argument for argument in distinct if isinstance(argument[1], MatrixPlace)]
        constants = [argument for argument in distinct if not isinstance(argument[1], MatrixPlace | str)]
        scalar = f"{element.arithmetic.code}{CELL - element.arithmetic.bytes}x"
        self._pointers = [(place.base, place.offset) for _, place in places]
        self._changing = struct.Struct("<" + "Q" * len(places) + scalar * len(factors))
        fixed = "".join("q" if kind == "index" else scalar for kind, _ in constants)
        self._fixed = struct.pack("<" + fixed, *(value for _, value in constants))
        self._cell_of = {argument: CELL * number for number, argument in enumerate((*places, *factors, *constants))}
        self._idle: list[_Arguments] = []

    def ready(self, bases: Sequence[int], alpha: Factor, beta: Factor, stream: int) -> AbstractContextManager[Sequence[Step]]:
        """Each stage as a call of its launches, for these addresses of the bases and these factors, on the stream with this handle.

        The arguments belong to one call at a time, even among threads and signal handlers. The end of the block gives them back.
        """
        try:
            arguments = self._idle.pop()
        except IndexError:
            arguments = _Arguments(self._calls, self._stages, self._cell_of, self._changing.size, self._fixed, self._idle)
        if arguments.stream != stream:
            arguments.launch_on(stream)
        pointers = [bases[base] + offset for base, offset in self._pointers]
        if self._is_complex:
            parts = (getattr(x, part) for part in ("real", "imag") for x in (alpha, beta))
            self._changing.pack_into(arguments.memory, 0, *pointers, *parts)
        else:
            self._changing.pack_into(arguments.memory, 0, *pointers, alpha, beta)
        return arguments

    def in_c(self, alpha: Factor, beta: Factor) -> InC | None:
        """These launches with these factors; None if some run at once, or are too many."""
        memory = self._changing.pack(*(0 for _ in self._pointers), alpha, beta) + self._fixed
        numbers = [len(self._pointers), *(x for i, own in enumerate(self._pointers) for x in (CELL * i, *own)), len(self._calls)]
        for launch, arguments, _ in self._calls:
            numbers += [*launch.args, len(arguments), *(self._cell_of[argument] for argument in arguments)]  # type: ignore[attr-defined]
        is_at_once = any(stage.at_once and stage.end - stage.begin > 1 for stage in self._stages)
        most = max((len(arguments) for _, arguments, _ in self._calls), default=0)
        if self._is_complex or is_at_once or len(memory) > MOST_BYTES or most > MOST_ARGUMENTS:
            return None
        return InC(tuple(numbers), memory, alive=self)


def run_alone(step: Step, _: BoundLaunches) -> None:
    """Run a step of launches that are bound for it alone: without them, the memory that it reads its arguments from would be freed."""
    step()


def run_launches(steps: Sequence[Step], what: str, writing: int) -> None:
    """Run launches, of which the last `writing` write C. Raises `StageError` if the driver refuses one."""
    for number, step in enumerate(steps):
        try:
            step()
        except Exception as error:  # of the driver
            undefined = ("C",) if number >= len(steps) - writing else ()
            raise StageError(f"{what} failed: {type(error).__name__}: {error}", (), undefined) from error


class _Arguments:
    """The cells and parameters of some launches, and the calls that read them."""

    def __init__(
        self,
        calls: Sequence[Call],
        stages: Sequence[BoundStage],
        cell_of: dict[tuple[str, Array], int],
        changing: int,
        fixed: bytes,
        idle: list[_Arguments],
    ) -> None:
        self.stream: int | None = None
        self._calls, self._stages = calls, stages
        self.memory = bytearray(changing) + fixed
        self._idle = idle
        cells = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self._parameters = [(ctypes.c_void_p * len(own))(*(cells + cell_of[argument] for argument in own)) for _, own, _ in calls]
        self._steps: list[Step] = []
        self._beside: SideStreams | None = None

    def launch_on(self, stream: int) -> None:
        """Bind the calls to the stream with this handle. Most programs stay on one stream; then a call enters no function of ours."""
        self._steps = [self._step(stage, stream) for stage in self._stages]
        self.stream = stream

    def _step(self, stage: BoundStage, stream: int) -> Step:
        """One call for a stage: its launch, or all of them, one after the other or at once."""
        own = [(self._calls[number][0], ctypes.addressof(self._parameters[number])) for number in range(stage.begin, stage.end)]
        if stage.at_once and len(own) > 1:
            if self._beside is None:
                self._beside = SideStreams(MOST_STREAMS)
            return partial(self._beside.run, [partial(_launch_on, *pair) for pair in own], stream)
        steps = [partial(launch, stream, parameters, 0) for launch, parameters in own]
        return steps[0] if len(steps) == 1 else partial(one_by_one, steps)

    def __enter__(self) -> Sequence[Step]:
        return self._steps

    def __exit__(self, *_: object) -> None:
        self._idle.append(self)


def one_by_one(steps: Sequence[Step]) -> None:
    """Run steps, one after the other."""
    for step in steps:
        step()


def _launch_on(launch: Callable[..., None], parameters: int, stream: int) -> None:
    launch(stream, parameters, 0)
