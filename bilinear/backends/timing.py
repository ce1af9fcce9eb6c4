"""Comparable times of calls on a GPU: interleaved in shuffled rounds, with or without host time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from math import ceil, comb, prod
from statistics import median
from typing import TypeVar

import numpy as np

from bilinear.ir.matrix import Array
from bilinear.ir.measurement import Interval

Call = Callable[[], object]
Key = TypeVar("Key")

SHORT_MS = 0.05  # If the library takes less, calls are timed on the device only.
QUEUED_MS = 1.0  # If the library takes less, calls are also timed on the device.
IN_A_ROW = 20  # Calls that are queued on the device.
LEAST_MS, MOST_IN_A_ROW = 2.0, 100
AHEAD_MS = 20.0  # Shorter calls are timed after an untimed call of the same kind.
LONG_MS = 500.0  # Longer calls settle by themselves.
MOST_SETTLING = 2000
FIRST_HOLD, LONGEST_HOLD = 1.0, 64.0  # Milliseconds for which the device is held while calls are queued.
CYCLES_PER_MS = 2_500_000  # Of a clock faster than any device's: a device is held as long as asked, at least.
BRIEF_MS = 0.5  # Calls that are queued to be timed.
SETTLE_MS = 120.0  # For so long a call runs before it is timed under the power that long work has.
MOST_MEMORY = 0.85  # The part of the free memory that a product may take.
LEAST_ROUNDS, SETTLED_ROUNDS, IN_A_BURST = 3, 9, 4
HOLD = """extern "C" __global__ void hold(long long cycles) { for (long long start = clock64(); clock64() - start < cycles; ); }"""


def milliseconds(call: Call, in_a_row: int = 1, ahead: int = 0) -> float:
    """The time of one of `in_a_row` calls on the idle current CuPy stream; `ahead` calls come first, without waiting, untimed."""
    import cupy

    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    for _ in range(ahead):
        call()
    start.record()
    for _ in range(in_a_row):
        call()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end)) / in_a_row


def each_milliseconds(steps: Sequence[Call]) -> list[float]:
    """Times of steps that run one after the other, each between two events."""
    import cupy

    events = [cupy.cuda.Event() for _ in range(len(steps) + 1)]
    events[0].record()
    for step, event in zip(steps, events[1:], strict=True):
        step()
        event.record()
    events[-1].synchronize()
    return [float(cupy.cuda.get_elapsed_time(start, end)) for start, end in pairwise(events)]


def in_a_queue(call: Call) -> float:
    """The milliseconds of a call in a burst so short that no power limit slows it down: the median of a few in a queue."""
    call()
    return median(queued({0: call}, SETTLED_ROUNDS, IN_A_BURST)[0])


def settled(call: Call) -> float:
    """The milliseconds of a call under the power that long work has: the median of a few calls behind others of its kind.

    A chip at its power limit lowers its clock after tens of milliseconds. So calls of `BRIEF_MS` and more are timed after `SETTLE_MS` of
    the same; shorter ones, which a run of any length keeps below that limit, are queued while the device is held.
    """
    call()
    about = milliseconds(call)
    if about < BRIEF_MS:
        return median(queued({0: call}, SETTLED_ROUNDS, IN_A_ROW)[0])
    ahead, rounds = _count(SETTLE_MS, about, MOST_SETTLING), _rounds(about)
    return median(milliseconds(call, 1, int(about < AHEAD_MS) if number else ahead) for number in range(rounds))


def settled_steps(steps: Sequence[Call]) -> list[float]:
    """The same of each of the steps of a call, which run one after the other."""

    def whole() -> None:
        for step in steps:
            step()

    whole()
    about = milliseconds(whole)
    for _ in range(_count(SETTLE_MS, about, MOST_SETTLING)):
        whole()
    times = []
    for _ in range(SETTLED_ROUNDS if about < BRIEF_MS else _rounds(about)):
        if about < BRIEF_MS:
            hold_device(FIRST_HOLD)
        times.append(each_milliseconds(steps))
    return [median(ms) for ms in zip(*times, strict=True)]


def _rounds(about: float) -> int:
    return max(LEAST_ROUNDS, min(SETTLED_ROUNDS, int(SETTLE_MS / about)))


def interleaved(
    calls: Mapping[Key, Call], repeats: int, warmups: int = 1, once: Mapping[Key, float] | None = None, settle_ms: float = 0.0
) -> dict[Key, list[float]]:
    """Milliseconds of each call on the current CuPy stream, in rounds, each in its own order.

    A call that draws much power lowers the clock for the next few calls; in a fixed order, the predecessor would change times by a tenth. A
    call shorter than `LEAST_MS` is repeated in a row to make up for it, and the time of one is returned: the loop hides host time, as in
    normal use. A call shorter than `AHEAD_MS` starts behind an untimed one of its kind, for the same reason: otherwise the host, cold after
    other calls, would add up to a tenth of a millisecond. `once` gives the approximate duration of each, if known.

    If power limits the clock, a tenth still depends on the preceding tens of milliseconds. With `settle_ms`, the same call first runs for
    that long and is then timed for that long, in whole calls (`MOST_SETTLING` at most). A call longer than `LONG_MS` is timed without this.
    """
    for call in calls.values():
        for _ in range(warmups):
            call()
    about = {name: milliseconds(call) for name, call in calls.items()} if once is None else once
    least, most, long = (settle_ms, MOST_SETTLING, LONG_MS) if settle_ms else (LEAST_MS, MOST_IN_A_ROW, AHEAD_MS)
    in_a_row = {name: _count(least, about[name], most) for name in calls}
    ahead = {name: _count(settle_ms, about[name], most) if about[name] < long else 0 for name in calls}
    times: dict[Key, list[float]] = {name: [] for name in calls}
    for order in orders(calls, repeats):
        for name in order:
            times[name].append(milliseconds(calls[name], in_a_row[name], ahead[name]))
    return times


def _count(ms: float, each: float, most: int) -> int:
    return max(1, min(most, ceil(ms / max(each, 1e-3))))


def queued(calls: Mapping[Key, Call], repeats: int, in_a_row: int, hold: float = FIRST_HOLD) -> dict[Key, list[float]]:
    """Milliseconds on the device for one of `in_a_row` calls, in shuffled rounds, without host time.

    The calls are queued behind a kernel that holds the device until all are there, for `hold` milliseconds or longer. Calls that wait for
    the device themselves cannot be queued; their time includes the host's.
    """
    holds = dict.fromkeys(calls, hold)
    times: dict[Key, list[float]] = {name: [] for name in calls}
    for order in orders(calls, repeats):
        for name in order:
            ms, holds[name] = _queued(calls[name], in_a_row, holds[name])
            times[name].append(ms / in_a_row)
    return times


def orders(names: Iterable[Key], repeats: int) -> Iterator[list[Key]]:
    """The names in a new order for every round; the orders are the same in every run."""
    order, shuffled = list(names), random.Random(1)
    for _ in range(repeats):
        shuffled.shuffle(order)
        yield order


def _queued(call: Call, in_a_row: int, hold: float) -> tuple[float, float]:
    """The milliseconds of all calls, and how long the device had to be held."""
    import cupy

    while True:
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        hold_device(hold)
        start.record()
        for _ in range(in_a_row):
            call()
        end.record()
        in_time = not start.done
        end.synchronize()
        if in_time or hold >= LONGEST_HOLD:
            return float(cupy.cuda.get_elapsed_time(start, end)), hold
        hold *= 2


def hold_device(ms: float) -> None:
    """Keep the device busy for at least so long; what is launched meanwhile waits."""
    _holder()((1,), (1,), (np.int64(ms * CYCLES_PER_MS),))


@cache
def _holder() -> Callable[..., None]:
    import cupy

    hold: Callable[..., None] = cupy.RawKernel(HOLD, "hold")
    return hold


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The confidence interval of a median between two order statistics, for any distribution: the narrowest with this confidence.

    It lies k values from each end where 2 * sum of C(n, i) for i < k is at most (1 - confidence) * 2^n. With fewer than six values it is
    the whole range, whose confidence is returned.
    """
    ordered, n = sorted(values), len(values)
    tail, k = 1, 1  # how many of the 2^n outcomes leave fewer than k values below the median
    while 2 * (tail + comb(n, k)) <= (1 - confidence) * 2**n:
        tail, k = tail + comb(n, k), k + 1
    return Interval(ordered[k - 1], ordered[n - k], max(0.0, 1 - 2 * tail / 2**n))


def normal_operands(extents: tuple[int, int, int], dtype: np.dtype[np.generic], workspace: int) -> tuple[Array, ...] | None:
    """A and B of normal numbers, C, and a workspace of so many elements; None if the GPU lacks the memory."""
    import cupy

    m, k, n = extents
    shapes = (m, k), (k, n), (m, n), (max(1, workspace),)
    cupy.get_default_memory_pool().free_all_blocks()
    if sum(map(prod, shapes)) * dtype.itemsize > MOST_MEMORY * cupy.cuda.Device().mem_info[0]:
        return None
    generator = cupy.random.default_rng(1)
    a, b = (generator.standard_normal(shape, dtype=dtype) for shape in shapes[:2])
    return a, b, *(cupy.empty(shape, dtype) for shape in shapes[2:])
