"""What execution modes cost: equation 4.1 of Kasiviswanathan (2013), and an extension with memory traffic (docs/modes.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby
from math import ceil, prod
from typing import NamedTuple

from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.executor import allocate_workspace, execute
from bilinear.backends.timing import Call
from bilinear.codegen.lower import schedule_to_launches
from bilinear.frontend import load_shipped
from bilinear.ir.element import ELEMENTS
from bilinear.ir.kernel import Cover, LinearKernel, Part, ProductKernel
from bilinear.ir.launch import Launch
from bilinear.ir.matrix import call_of
from bilinear.ir.placement import Placement
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare
from bilinear.planner.device import Device, at
from bilinear.planner.model import ProductWork, geometric_mean, is_aligned, product_seconds

SCHEME = "winograd"
IN_A_ROW = 5


@dataclass(frozen=True)
class ModeRates:
    """What a device does with the execution modes of docs/modes.md. Times are in microseconds.

    The first six are those of equation 4.1 of Kasiviswanathan (2013): `groups` blocks of threads at a time (G_prac), `items` threads of a
    block, or `warps` with paths of their own, at a time (I_prac), and the time to start blocks (`group`, L_g), to start threads (`item`,
    L_i), and of a single calculation (`single`, B). `branch` is what one more kernel among those at once takes, `again` the rate in GB/s,
    by mode, at which blocks are read that were read before, and `warp_tile` the rate in TFLOP/s, by element type, of products that a warp
    computes alone.
    """

    groups: int
    items: int
    warps: int
    group: float
    item: float
    single: float
    branch: float
    again: tuple[tuple[str, float], ...]
    warp_tile: tuple[tuple[str, float], ...]

    @property
    def without_calculations(self) -> ModeRates:
        """The rates of blocks and threads that do nothing."""
        return replace(self, single=0.0)


H200 = ModeRates(
    132,
    1024,
    32,
    0.2425,
    0.0,
    0.1523,
    0.6475,
    (("S-M-T", 1e09), ("S-T-M", 5510.5), ("M-M-M", 5587.6)),
    (("float64", 17.32), ("float32", 32.17)),
)
"""The rates of an H200, found by the thesis's pilot programs and by one level of Winograd's scheme in each mode (docs/modes.md)."""


@dataclass(frozen=True)
class Steps:
    """A kernel in the words of equation 4.1: G groups of I items, each of which does C calculations on S elements.

    Items that are not `alike` take paths of their own; then an item is a warp.
    """

    groups: int
    items: int
    size: int
    calculations: int
    alike: bool = True


def published(kernels: Iterable[Steps], rates: ModeRates) -> float:
    """The time of kernels that run one after the other, by equations 4.1 to 4.3, in the unit of the rates.

    T = L_g * sum(G_steps) + L_i * sum(G_steps * I_steps) + B * sum(S * C * G_steps * I_steps), where G_steps = ceil(G / G_prac) and
    I_steps = ceil(I / I_prac); what is added up are the kernels.
    """
    time = 0.0
    for kernel in kernels:
        groups = ceil(kernel.groups / rates.groups)
        items = groups * ceil(kernel.items / (rates.items if kernel.alike else rates.warps))
        time += rates.group * groups + rates.item * items + rates.single * kernel.size * kernel.calculations * items
    return time


def steps_of(stage: Sequence[Launch], placement: Placement) -> tuple[Steps, ...]:
    """The kernels of a linear stage in the words of equation 4.1; kernels at once are one kernel of all their groups, as in table 5.1.

    A calculation forms an element of one block, whatever the number of its terms.
    """
    found = []
    for launch in stage:
        kernel = launch.kernel
        assert isinstance(kernel, LinearKernel), "the equation is about sums of blocks"
        items = prod(kernel.threads) if kernel.beside == 1 else kernel.beside
        most = max(len(part.targets) for part in kernel.parts)
        found.append(Steps(_tiles(launch, placement) * launch.grid.y, items, kernel.lanes, most, alike=kernel.beside == 1))
    if not stage[0].at_once:
        return tuple(found)
    largest = max(found, key=lambda steps: steps.size)
    return (replace(largest, groups=sum(steps.groups for steps in found)),)


def published_seconds(launches: Sequence[Launch], placement: Placement, rates: ModeRates) -> tuple[float | None, ...]:
    """The published time of each stage; None for products, of which the thesis gives no counts."""
    return tuple(published(steps_of(stage, placement), rates) * 1e-6 if _is_linear(stage) else None for stage in stages_of(launches))


def extended_seconds(launches: Sequence[Launch], placement: Placement, dtype: str, device: Device, rates: ModeRates) -> tuple[float, ...]:
    """The time of each stage by the extension: its kernels, and the longer of starting its groups and of moving its bytes.

    A linear stage moves what it reads first and what it writes at the bandwidth of the memory, and what it reads again at that of the
    caches. Products are predicted as in any plan, but in turns, or by the rate of a warp's own tile.
    """
    found = []
    for stage in stages_of(launches):
        seconds = (_linear if _is_linear(stage) else _products)(stage, placement, dtype, device, rates)
        kernels = device.launch + rates.branch * (len(stage) - 1) if stage[0].at_once else device.launch * len(stage)
        found.append(seconds + kernels * 1e-6)
    return tuple(found)


def stages_of(launches: Sequence[Launch]) -> Iterator[tuple[Launch, ...]]:
    """The launches by stages; in the default mode each is a stage."""
    for _, own in groupby(enumerate(launches), key=lambda pair: -1 - pair[0] if pair[1].stage is None else pair[1].stage):
        yield tuple(launch for _, launch in own)


@dataclass(frozen=True)
class StageTraffic:
    """Bytes of a linear stage: what its launches read for the first time and write, by their part, and what they read again."""

    by_part: tuple[tuple[Part, int], ...]
    again: int

    @property
    def once(self) -> int:
        """Bytes that are read for the first time, or written."""
        return sum(moved for _, moved in self.by_part)


def traffic_of(stage: Sequence[Launch], placement: Placement, dtype: str) -> StageTraffic:
    """What the launches of a linear stage move with beta = 0; what shares a row of a table reads a block once."""
    extents = dict(zip(("bm", "bk", "bn"), placement.block, strict=True))
    seen: set[tuple[str, int, int]] = set()
    by_part: list[tuple[Part, int]] = []
    again = 0
    for launch in stage:
        for part, blocks in _rows_of(launch):
            size = extents[part.height] * extents[part.width] * ELEMENTS[dtype].bytes
            new = [block for block in blocks if block not in seen]
            seen.update(new)
            by_part.append((part, (len(new) + len(part.targets)) * size))
            again += (len(blocks) - len(new) + part.kept.count("1")) * size
    return StageTraffic(tuple(by_part), again)


def _rows_of(launch: Launch) -> Iterator[tuple[Part, list[tuple[str, int, int]]]]:
    """The part of each row of its table that a launch runs, and the blocks that it reads there."""
    kernel = launch.kernel
    assert isinstance(kernel, LinearKernel)
    for number, *stands in kernel.places[launch.first : launch.first + launch.grid.y * kernel.rows]:
        if number < 0:
            continue
        part = kernel.parts[number]
        stand = {space: (stands[2 * i], stands[2 * i + 1]) for i, space in enumerate(part.spaces)}
        yield part, [(port.space, stand[port.space][0] + port.down, stand[port.space][1] + port.right) for port in part.sources]


def _linear(stage: Sequence[Launch], placement: Placement, dtype: str, device: Device, rates: ModeRates) -> float:
    traffic, streaming = traffic_of(stage, placement, dtype), device.rates(dtype).streaming
    moving = traffic.again / (dict(rates.again)[placement.mode] * 1e9) if traffic.again else 0.0
    for part, moved in traffic.by_part:
        moving += moved / (at(streaming, len(part.sources) + len(part.targets)) * device.bandwidth * 1e9)
    starting = published(steps_of(stage, placement), rates.without_calculations) * 1e-6
    return max(starting, moving)


def _products(stage: Sequence[Launch], placement: Placement, dtype: str, device: Device, rates: ModeRates) -> float:
    kernel = stage[0].kernel
    assert isinstance(kernel, ProductKernel)
    rows = sum(launch.grid.y for launch in stage)
    if kernel.beside > 1:
        computed = rows * kernel.beside * kernel.tile.m * kernel.tile.n * _tiles(stage[0], placement) * placement.block[1]
        return 2 * computed / (dict(rates.warp_tile)[dtype] * 1e12)
    size, aligned = geometric_mean(placement.m, placement.k, placement.n), is_aligned(*placement.block[1:], dtype)
    one = product_seconds(ProductWork(rows, 0, rows), placement.block, dtype, device, size, aligned, aligned, placement.tile)
    return kernel.turns * (one - device.launch * 1e-6)


def _is_linear(stage: Sequence[Launch]) -> bool:
    return isinstance(stage[0].kernel, LinearKernel)


def _tiles(launch: Launch, placement: Placement) -> int:
    """Blocks of threads along x."""
    extents = dict(zip(("bm", "bk", "bn"), placement.block, strict=True))

    def steps(cover: Cover) -> int:
        return ceil(extents[cover.name] / cover.step)

    return max(prod(map(steps, tiling)) for tiling in launch.grid.tilings)


@lru_cache(maxsize=64)
def placed(mode: str, dtype: str, size: int, scheme: str = SCHEME, levels: int = 1) -> tuple[tuple[Launch, ...], Placement]:
    """The launches and the placement of a shipped scheme in a mode, for square matrices."""
    schedule = prepare(load_shipped(scheme).scheme, None, levels, "preserve", mode).schedule
    element = ELEMENTS[dtype]
    return schedule_to_launches(schedule, element, mode=mode), place_schedule(schedule, size, size, size, element.bytes, mode=mode)


class Calls(NamedTuple):
    """A plan on the operands of a stand: the whole call, and each stage by itself."""

    whole: Call
    stages: Sequence[Call]


class ModeStand:
    """Square matrices of one type on the current GPU: integers until `fill_normal`, and what they multiply to."""

    def __init__(self, dtype: str, size: int) -> None:
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        self._generator = cupy.random.default_rng(1)
        self.a, self.b = (self._generator.integers(-2, 3, (size, size)).astype(dtype) for _ in range(2))
        self.c, self._wanted = cupy.empty((size, size), dtype), cupy.matmul(self.a, self.b)
        self._executor = CudaExecutor()
        self._held: list[object] = []

    def calls(self, placement: Placement) -> Calls:
        """The calls of a placement on a, b and c. The stand keeps the arguments of the stages."""
        call = call_of(self.a, self.b, self.c, workspace=allocate_workspace(self._executor, placement, self.c.dtype))
        ready = self._executor.ready(placement, call)
        self._held.append(ready)
        return Calls(partial(execute, self._executor, placement, call), ready.__enter__())

    def is_exact(self, *calls: Call) -> bool:
        """Whether these calls, one after the other, multiply a and b, which are still integers, exactly; c is NaN before."""
        import cupy

        self.c[...] = cupy.nan
        cupy.cuda.Device().synchronize()
        for call in calls:
            call()
        cupy.cuda.Device().synchronize()
        return not (self.c != self._wanted).any()

    def fill_normal(self) -> None:
        """Replace the integers by normal data, on which plans are timed."""
        for x in (self.a, self.b):
            x[...] = self._generator.standard_normal(x.shape, dtype=x.dtype)


def graph_of(call: Call) -> Call:
    """The launches of a call as a graph, which replays them without time of the host."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        call()
        stream.synchronize()
        stream.begin_capture()
        call()
        launch: Callable[[], object] = stream.end_capture().launch
    return launch
