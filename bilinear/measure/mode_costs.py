"""What execution modes cost: equation 4.1 of Kasiviswanathan (2013), an extension with traffic, what was measured (docs/modes.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from itertools import groupby
from math import ceil, prod
from pathlib import Path

from bilinear.codegen.lower import schedule_to_launches
from bilinear.errors import fail
from bilinear.frontend import load_shipped
from bilinear.ir.element import ELEMENTS
from bilinear.ir.kernel import Cover, LinearKernel, Part, ProductKernel
from bilinear.ir.launch import Launch
from bilinear.ir.placement import MODES, Placement
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare
from bilinear.planner.device import Device, Extents, at
from bilinear.planner.model import ProductWork, geometric_mean, is_aligned, product_seconds
from bilinear.reporting.table import aligned
from bilinear.visible import visible_lines

MEASURED = Path(__file__).with_name("mode_times.json")
"""Microseconds on an H200, launched and as a graph, by type, size, scheme, levels and mode: written by benchmarks/modes.py."""


@dataclass(frozen=True)
class ModeRates:
    """What a device does with the execution modes of docs/modes.md. Times are in microseconds.

    The first six are those of equation 4.1 of Kasiviswanathan (2013): `groups` blocks of threads at a time (G_prac), `items` threads of a
    block, or `warps` with paths of their own, at a time (I_prac), and the time to start blocks (`group`, L_g), to start threads (`item`,
    L_i), and of a single calculation (`single`, B). `branch` is what one more kernel among those at once takes, `again` the rate in GB/s,
    by mode, at which blocks are read that were read before, and `warp_tile` the rate in TFLOP/s, by element type, of a warp's own products.
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


H200 = ModeRates(
    *(132, 1024, 32, 0.2425, 0.0, 0.1523, 0.6475),
    (("S-M-T", 1e09), ("S-T-M", 5510.5), ("M-M-M", 5587.6)),
    (("float64", 17.32), ("float32", 32.17)),
)
"""The rates of an H200, found by the thesis's pilot programs and by one level of Winograd's scheme in each mode (docs/modes.md)."""


@dataclass(frozen=True)
class Steps:
    """A kernel in the words of equation 4.1: G groups of I items (warps, unless `alike`), each C calculations on S elements."""

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


def traffic_of(stage: Sequence[Launch], placement: Placement, dtype: str) -> tuple[list[tuple[Part, int]], int]:
    """Bytes that a linear stage moves with beta = 0: what is read first or written, by part, and what other rows of a table read again."""
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
    return by_part, again


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
    (by_part, again), streaming = traffic_of(stage, placement, dtype), device.rates(dtype).streaming
    moving = again / (dict(rates.again)[placement.mode] * 1e9) if again else 0.0
    for part, moved in by_part:
        moving += moved / (at(streaming, len(part.sources) + len(part.targets)) * device.bandwidth * 1e9)
    starting = published(steps_of(stage, placement), replace(rates, single=0.0)) * 1e-6  # calculations cost nothing there
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
    extents = dict(zip(("bm", "bk", "bn"), placement.block, strict=True))

    def steps(cover: Cover) -> int:
        return ceil(extents[cover.name] / cover.step)

    return max(prod(map(steps, tiling)) for tiling in launch.grid.tilings)


@lru_cache(maxsize=64)
def placed(mode: str, dtype: str, shape: Extents, scheme: str, levels: int) -> tuple[tuple[Launch, ...], Placement]:
    """The launches and the placement of a shipped scheme in a mode."""
    schedule = prepare(load_shipped(scheme).scheme, None, levels, "preserve", mode).schedule
    element = ELEMENTS[dtype]
    return schedule_to_launches(schedule, element, mode=mode), place_schedule(schedule, *shape, element.bytes, mode=mode)


@dataclass(frozen=True)
class ModeCost:
    """A mode: its kernels and launches, and in microseconds its expansion by equation 4.1, all of it by the extension, and as measured.

    What was measured is launched call by call, or replayed as a graph; None if it was not.
    """

    mode: str
    kernels: int
    launches: int
    published: float
    extended: float
    launched: float | None
    graph: float | None


def mode_costs(shape: Extents, dtype: str, device: Device, scheme: str, levels: int) -> tuple[ModeCost, ...]:
    """What each mode costs on an H200, the only GPU whose rates were measured; others are refused (E541)."""
    known = json.loads(MEASURED.read_text(encoding="utf-8"))
    if device.name != known["device"]:
        raise fail("E541", f"the rates of the modes on {device.name} are not known", "give --device h200")
    times = {tuple(key): figures for *key, figures in known["rows"]}
    found = []
    for mode in MODES:
        launches, placement = placed(mode, dtype, shape, scheme, levels)
        first = next(i for i, stage in enumerate(stages_of(launches)) if not _is_linear(stage))
        published = sum(seconds or 0.0 for seconds in published_seconds(launches, placement, H200)[:first])
        extended = sum(extended_seconds(launches, placement, dtype, device, H200))
        measured = times.get((dtype, shape[0], scheme, levels, mode), (None, None)) if len(set(shape)) == 1 else (None, None)
        kernels = len({launch.kernel.name for launch in launches})
        found.append(ModeCost(mode, kernels, len(launches), 1e6 * published, 1e6 * extended, *measured))
    return tuple(found)


HEADER = ("mode", "kernels", "launches", "expansion, eq. 4.1", "extension", "measured", "as a graph")


def modes_table(found: Sequence[ModeCost], title: str) -> str:
    """What execution modes cost, in microseconds."""
    rows = [tuple("-" if x is None else f"{x:.1f}" if isinstance(x, float) else x for x in astuple(one)) for one in found]
    return visible_lines([title, "", *aligned(rows, HEADER)])
