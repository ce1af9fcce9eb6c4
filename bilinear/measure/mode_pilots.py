"""Pilots of execution modes: kernels and plans that are timed to describe how a device runs modes, and the rates that follow.

The kernels are those of Kasiviswanathan (2013), section 4.2: items that add elements to themselves, in warps that share a path or have
paths of their own. One level of Winograd's scheme in each mode gives the other rates of the extended cost model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from bilinear.codegen.lower import schedule_to_launches
from bilinear.frontend import load_shipped
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.launch import Launch
from bilinear.ir.placement import AGAIN, GROUPS, ITEMS, KERNELS, Placement
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare
from bilinear.planner.device import Device, ModeRates
from bilinear.planner.mode_model import extended_seconds, stages_of, traffic_of

WARP = 32
EACH = 128
"""Elements of an item, as in the thesis."""
FLAT = 1.1
"""Items count as running at the same time while the kernel takes at most this many times as long as with the fewest."""
STEPS = (8, 64)
"""Empty blocks on each multiprocessor; the difference of their times is what blocks take to start."""
SCHEME = "winograd"
SMALL_SIZE, LARGE_SIZE = 96, 8192
"""Square multiplies that are all launches, and all traffic and arithmetic."""
FREE = 1e9
"""GB/s of reading again if it takes no measurable time."""


@dataclass(frozen=True)
class Pilot:
    """A run of the pilot kernel: blocks, threads of a block, elements of a thread, and whether every warp has a path of its own."""

    groups: int
    items: int
    each: int = EACH
    apart: bool = False


@dataclass(frozen=True)
class PilotPlan:
    """One level of `SCHEME` for square matrices."""

    mode: str
    dtype: str
    size: int

    @property
    def is_small(self) -> bool:
        """Whether it is all launches: then the whole is timed, as a graph, which has no time of the host in it."""
        return self.size == SMALL_SIZE


Times = Mapping[Pilot, float]
"""Microseconds on the device."""
StageTimes = Mapping[PilotPlan, Sequence[float]]
"""Microseconds of each stage on the device; of small plans those of the whole."""


def pilots(processors: int) -> tuple[Pilot, ...]:
    """The runs of the pilot kernel on a device of so many multiprocessors."""
    items = (WARP, 2 * WARP, *range(4 * WARP, 1025, 2 * WARP))
    rising = tuple(Pilot(1, count, apart=apart) for apart in (False, True) for count in items)
    longer = (Pilot(1, WARP, 16 * EACH), Pilot(1, WARP, 0), Pilot(1, 1024, 0))
    return (*rising, *longer, *(Pilot(processors * steps, 1024, 0) for steps in STEPS))


def pilot_plans() -> tuple[PilotPlan, ...]:
    """The plans whose stages are timed."""
    small = tuple(PilotPlan(mode, "float32", SMALL_SIZE) for mode in (GROUPS, KERNELS))
    large = tuple(PilotPlan(mode, "float32", LARGE_SIZE) for mode in AGAIN)
    return (*small, *large, *(PilotPlan(ITEMS, dtype, LARGE_SIZE) for dtype in IN_ARRAYS if dtype != "float32"))


@lru_cache(maxsize=64)
def placed(mode: str, dtype: str, size: int, scheme: str = SCHEME, levels: int = 1) -> tuple[tuple[Launch, ...], Placement]:
    """The launches and the placement of a shipped scheme in a mode, for square matrices."""
    schedule = prepare(load_shipped(scheme).scheme, None, levels, "preserve", mode).schedule
    element = ELEMENTS[dtype]
    return schedule_to_launches(schedule, element, mode=mode), place_schedule(schedule, size, size, size, element.bytes, mode=mode)


def rates_of(times: Times, stages: StageTimes, device: Device) -> ModeRates:
    """The rates of modes that follow from these times and the other rates of a device."""
    items, warps = (_at_once(times, apart) for apart in (False, True))
    single = (times[Pilot(1, WARP, 16 * EACH)] - times[Pilot(1, WARP)]) / (15 * EACH)
    few, many = (times[Pilot(device.processors * steps, 1024, 0)] for steps in STEPS)
    group = (many - few) / (STEPS[1] - STEPS[0])
    more = -(-1024 // items) - 1
    item = (times[Pilot(1, 1024, 0)] - times[Pilot(1, WARP, 0)]) / more if more else 0.0
    kernel = max(0.0, group), max(0.0, item), max(0.0, single)
    rates = ModeRates(device.processors, items, warps // WARP, *kernel, _branch(stages), tuple((mode, FREE) for mode in AGAIN), ())
    again = tuple((mode, _again(mode, stages, replace(device, modes=rates))) for mode in AGAIN)
    return replace(rates, again=again, warp_tile=tuple((dtype, _warp_rate(dtype, stages, device)) for dtype in IN_ARRAYS))


def _at_once(times: Times, apart: bool) -> int:
    """The most threads of a block that run at the same time: with more, the pilot takes longer."""
    rising = sorted((pilot.items, us) for pilot, us in times.items() if pilot == Pilot(1, pilot.items, apart=apart))
    slow = [items for items, us in rising if us > FLAT * rising[0][1]]
    return max(items for items, _ in rising if not slow or items < slow[0])


def _branch(stages: StageTimes) -> float:
    """Microseconds of one more concurrent kernel: the time of graphs of many beyond one kernel a stage with the same tasks."""
    (one,), (many,) = (stages[PilotPlan(mode, "float32", SMALL_SIZE)] for mode in (GROUPS, KERNELS))
    more = sum(len(stage) - 1 for stage in stages_of(placed(KERNELS, "float32", SMALL_SIZE)[0]))
    return max(0.0, (many - one) / more)


def _again(mode: str, stages: StageTimes, device: Device) -> float:
    """GB/s of reading blocks again in a mode, from the time of the expansion beyond its first reads and its writes."""
    launches, placement = placed(mode, "float32", LARGE_SIZE)
    expansion = next(iter(stages_of(launches)))
    first = extended_seconds(expansion, placement, "float32", device)[0]
    left = stages[PilotPlan(mode, "float32", LARGE_SIZE)][0] * 1e-6 - first
    return min(FREE, traffic_of(expansion, placement, "float32").again / left * 1e-9) if left > 0 else FREE


def _warp_rate(dtype: str, stages: StageTimes, device: Device) -> float:
    """TFLOP/s of products in the tile of one warp."""
    schedule = placed(ITEMS, dtype, LARGE_SIZE)[1].schedule
    us = stages[PilotPlan(ITEMS, dtype, LARGE_SIZE)][1] - device.launch
    return 2 * schedule.products * (LARGE_SIZE // 2) ** 3 / us * 1e-6
