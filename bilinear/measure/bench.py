"""Bench: plans and the library timed side by side on the current GPU. Each plan is checked in the same run; rows appear as found.

Beside times of whole calls: launches, calls with a prepared operand, and errors by level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from statistics import median
from time import perf_counter

from bilinear.backends.doctor import why_no_gpu
from bilinear.backends.executor import allocate_workspace, parts_of, pieces_of
from bilinear.backends.timing import (
    IN_A_ROW,
    QUEUED_MS,
    SHORT_MS,
    Call,
    each_milliseconds,
    interleaved,
    median_interval,
    milliseconds,
    queued,
)
from bilinear.codegen.build import Progress, no_progress
from bilinear.errors import BilinearError, fail
from bilinear.ir.element import COMPLEX
from bilinear.ir.matrix import Array, real_type
from bilinear.ir.measurement import Benchmark, ErrorPoint, LaunchTime, LeftOut, Load, Measurement, Trust
from bilinear.ir.placement import Placement, Strip
from bilinear.ir.schedule import LinearStage, ProductStage, Stage
from bilinear.measure.bench_check import check, fill_normal, operands, trust_of, wrong_libraries
from bilinear.measure.bench_library import Watch, energy_counter, joules, library_calls, machine
from bilinear.measure.bench_tasks import BenchCase, BenchTask, bound_of, choose, pinned
from bilinear.measure.describe_device import tune
from bilinear.planner.device import Device
from bilinear.planner.plan import Plan
from bilinear.runtime import devices_here
from bilinear.runtime.arrays import kind_of, make_executor
from bilinear.runtime.complex_parts import Turns
from bilinear.runtime.devices_here import uses_library
from bilinear.runtime.matmul import matmul
from bilinear.runtime.operands import layouts_of
from bilinear.runtime.prepared import prepare
from bilinear.runtime.recipe import chosen_recipe, placement_for
from bilinear.runtime.trials import settle
from bilinear.writing import write_file

REPEATS = 3


def launch_times(plan: Plan, a: Array, b: Array, c: Array) -> tuple[LaunchTime, ...]:
    """Medians of a few runs after a warm-up; empty for the library, whose launches are its own."""
    recipe = chosen_recipe(plan)
    if recipe is None:
        return ()
    placement, executor = placement_for(recipe, layouts_of(a, b, c)), make_executor(kind_of(a, b, c))
    buffer = allocate_workspace(executor, placement, real_type(c.dtype))
    whole = Turns.of(1.0, 0.0).call_of(a, b, c, 0.0, buffer)
    found: list[LaunchTime] = []
    for own, call in pieces_of(placement, whole):
        with executor.ready(own, call) as steps:
            runs = [each_milliseconds(steps) for _ in range(1 + REPEATS)]
        times = [median(values) for values in zip(*runs[1:], strict=True)]
        found += [_told(own, part, ms, real_type(a.dtype).itemsize) for part, ms in zip(parts_of(own), times, strict=True)]
    return tuple(found)


def _told(placement: Placement, part: Strip | Stage, ms: float, itemsize: int) -> LaunchTime:
    bm, bk, bn = placement.block
    if isinstance(part, Strip):
        m, k, n = (stop - start for start, stop in (part.rows, part.inner, part.columns))
        return LaunchTime("strip", f"{m} x {k} x {n}", ms, flops=2 * m * k * n)
    if isinstance(part, ProductStage):
        count = len(part.products)
        return LaunchTime("products", f"{count} of {bm} x {bk} x {bn}", ms, flops=2 * count * bm * bk * bn)
    return LaunchTime("sums", _sums(part), ms, bytes=_moved(placement, part) * itemsize)


def _sums(stage: LinearStage) -> str:
    """`A 4 to 3, B 4 to 3`: for each space the number of blocks read and of blocks written."""
    found: dict[str, list[int]] = {}
    for one in stage.maps:
        sources, targets = found.setdefault(one.sources[0].space, [0, 0])
        found[one.sources[0].space] = [sources + len(one.sources), targets + len(one.targets)]
    return ", ".join(f"{space} {sources} to {targets}" for space, (sources, targets) in found.items())


def _moved(placement: Placement, stage: LinearStage) -> int:
    """Elements that a linear stage reads and writes: every source once, every target once."""
    bm, bk, bn = placement.block
    size = {"A": bm * bk, "B": bk * bn, "C": bm * bn}
    shape = {space.name: space.shape for space in placement.schedule.spaces}
    return sum(size[shape[block.space]] for one in stage.maps for block in (*one.sources, *one.targets))


SIDES = LEFT, RIGHT = "left", "right"


class KeptCall:
    """C = A * B by a plan that keeps results of one operand, which is not looked at again. E539 if there is nothing to keep."""

    def __init__(self, plan: Plan, side: str, a: Array, b: Array, c: Array) -> None:
        self._plan, self._side, self._arrays = plan, side, (a, b, c)
        self.renew()

    def __call__(self) -> None:
        """Multiply."""
        self._call()

    def renew(self) -> None:
        """Prepare the operand, which has changed."""
        (a, b, c), plan = self._arrays, self._plan
        left = prepare(a, columns=plan.problem.n, plan=plan, check=False) if self._side == LEFT else a
        right = b if self._side == LEFT else prepare(b, rows=plan.problem.m, plan=plan, check=False)
        self._call = partial(matmul, left, right, c)

    def anew(self) -> None:
        """Prepare the operand, and multiply."""
        self.renew()
        self()


ERROR_SIZE = 2048
ERROR_WAYS = ("winograd", "msmes")
MOST_ERROR_LEVELS = 3


def with_errors(result: Benchmark, device: Device, progress: Progress = no_progress) -> Benchmark:
    """The benchmark with errors by level for the element types measured; errors that cannot be measured are left out."""
    try:
        return replace(result, errors=tuple(errors_by_level(dict.fromkeys(row.dtype for row in result.rows), device, progress)))
    except Exception as error:  # as in `measure`
        return replace(result, left_out=(*result.left_out, LeftOut("errors by level", f"{type(error).__name__}: {error}")))


def errors_by_level(dtypes: Iterable[str], device: Device, progress: Progress = no_progress) -> Iterator[ErrorPoint]:
    """The error of a few algorithms at 0 to 3 levels, each checked as in `measure`."""
    size = ERROR_SIZE
    for dtype in dtypes:
        progress(f"errors by level, {dtype}", 0, 1)
        a, b, c = operands((size, size, size), dtype)
        for name in ERROR_WAYS[:1] if dtype in COMPLEX else ERROR_WAYS:  # complex operands are only read
            for levels in range(MOST_ERROR_LEVELS + 1):
                case = pinned(f"{name}:{levels}") if levels else BenchCase()
                plan = choose(BenchTask((size,) * 3, dtype), case, device) if levels else None
                call = partial(matmul, a, b, c, plan=plan) if plan else partial(matmul, a, b, c, levels=0)
                bound = bound_of(plan, size, dtype)
                trust = check(call, a, b, c, case.inputs, bound, True)
                yield ErrorPoint(name, levels, dtype, size, trust.error, bound)


What = str | tuple[object, ...]  # A timed call: of the library, by name, or of a plan.
SAVE_EVERY = 5.0  # Results are saved after this many seconds, because a run can be cut short.


@dataclass(frozen=True)
class Effort:
    """The effort of a run: most and fewest rounds, milliseconds for all rounds of a problem, seconds of the run (None: no limit).

    `watch`: seconds for which a clock and power reading is reused. `launches`: time every launch. `settle_ms`: see `interleaved`.
    `energy`: seconds for which a call is repeated to count its joules.
    """

    rounds: int = 7
    least_rounds: int = 3
    problem_ms: float = 20_000.0
    seconds: float | None = None
    watch: float = 0.0
    launches: bool = True
    settle_ms: float = 20.0
    energy: float = 1.0


GRID = Effort(25, 7, 700.0, watch=15.0, launches=False, settle_ms=0.0, energy=0.0)
"""For the grid of 200 shapes: a few minutes in total, with enough rounds of each for an interval."""


def effort(is_grid: bool, rounds: int | None = None, seconds: float | None = None) -> Effort:
    """The effort for the grid or for plans; `rounds` (at most) and `seconds` override the defaults."""
    found = replace(GRID if is_grid else Effort(), seconds=seconds)
    return found if rounds is None else replace(found, rounds=rounds, least_rounds=min(rounds, found.least_rounds))


def require_gpu() -> None:
    """Refuse (E680) to run without a GPU."""
    reason = why_no_gpu()
    if reason is not None:
        raise fail("E680", f"no GPU can be timed here: {reason}", "run `bilinear doctor`")


def described(tasks: Sequence[BenchTask], progress: Progress = no_progress) -> Device:
    """The description of the current GPU, measured if unknown; E687 if `matmul` would not use it, as by BILINEAR_USE_LIBRARY."""
    if uses_library():
        raise fail("E687", "BILINEAR_USE_LIBRARY makes everything the library's multiply: there is nothing to compare", "unset it")
    known = devices_here.current_device()
    if known is None and any(case.by_auto for task in tasks for case in task.cases):
        hint = "bilinear tune --keep"
        raise fail("E687", "without a description of this GPU `auto` is the library's multiply: there is nothing to compare", hint)
    return known or tune(progress)


def measure(
    tasks: Sequence[BenchTask], device: Device, effort: Effort, progress: Progress = no_progress
) -> Iterator[Measurement | LeftOut]:
    """The rows of all tasks as they are found, and what could not be measured; calls `progress` with (what, done, of)."""
    began, watch = perf_counter(), Watch(effort.watch)
    for number, task in enumerate(tasks):
        progress(str(task), number, len(tasks))
        if effort.seconds is not None and perf_counter() - began > effort.seconds:
            yield LeftOut(str(task), "the time was over")
            continue
        try:
            yield from _TaskBench(task, device, effort, watch).rows()
        except BilinearError as error:
            yield LeftOut(str(task), error.diagnostics[0].message)
        except Exception as error:  # CuPy and the driver raise many kinds, and the other problems are still worth measuring
            yield LeftOut(str(task), f"{type(error).__name__}: {error}")
    progress("done", len(tasks), len(tasks))


def collect(
    found: Iterable[Measurement | LeftOut],
    name: str,
    command: Sequence[str],
    file: Path | None = None,
    tell: Callable[[Measurement | LeftOut], None] = lambda one: None,
) -> Benchmark:
    """Collect all findings into a benchmark of this machine; calls `tell` with each.

    It is written to the file every few seconds and at the end, even if the run is interrupted. If there is no file yet it is also written
    at the start, so that a wrong place is reported at once. An earlier result stays until there is a new finding.
    """
    words = tuple(PurePath(word).name if word.startswith("/") else word for word in command)
    result = Benchmark(name, machine(), words)
    if file is not None and not file.exists():
        save(result, file)
    saved = perf_counter()
    try:
        for one in found:
            tell(one)
            if isinstance(one, Measurement):
                result = replace(result, rows=(*result.rows, one))
            else:
                result = replace(result, left_out=(*result.left_out, one))
            if perf_counter() - saved > SAVE_EVERY:
                save(result, file)
                saved = perf_counter()
    finally:
        if result.rows or result.left_out:
            save(result, file)
    return result


def save(result: Benchmark, file: Path | None) -> None:
    """Write the results file, if one is wanted (E612)."""
    if file is not None:
        write_file(file, result.json())


@dataclass(frozen=True)
class _TaskBench:
    """One task on the GPU."""

    task: BenchTask
    device: Device
    effort: Effort
    watch: Watch

    def rows(self) -> Iterator[Measurement | LeftOut]:
        task = self.task
        arrays = operands(task.shape, task.dtype)
        plans: dict[BenchCase, Plan] = {}
        for case in task.cases:
            try:
                if case.by_auto:
                    fill_normal(*arrays[:2], _generator(8))
                    settle(_plain_call(case, *arrays), self.device)
                plans[case] = choose(task, case, self.device)
            except BilinearError as error:
                yield LeftOut(f"{case.asked} at {task}", error.diagnostics[0].message)
        libraries = library_calls(*arrays)
        for name, why in wrong_libraries(libraries, *arrays).items():
            del libraries[name]
            yield LeftOut(f"{name} at {task}", f"no baseline: {why}")
        if not libraries:
            return
        distinct = {_what(case, plan): (case, plan) for case, plan in plans.items()}
        runs: dict[What, Call] = {}
        trusts: dict[What, Trust] = {}
        for what, (case, plan) in distinct.items():
            try:
                call = self.call(case, plan, *arrays)
                trusts[what] = trust_of(call.anew if isinstance(call, KeptCall) else call, plan, *arrays)
            except MemoryError as error:
                yield LeftOut(f"{plan.chosen.name} at {task}", f"out of memory: {error}")
            except BilinearError as error:
                if not case.kept:
                    raise
                yield LeftOut(f"{case.asked} at {task}", error.diagnostics[0].message)
            else:
                runs[what] = call
        fill_normal(*arrays[:2], _generator(8))
        for call in runs.values():
            if isinstance(call, KeptCall):
                call.renew()
        times = self.times(libraries, runs)
        loads: dict[What, Load] = {what: self.watch(call) for what, call in runs.items()}
        counted = self.energy(dict[What, Call](libraries.items()) | runs, times)
        launches = dict.fromkeys(runs, tuple[LaunchTime, ...]())
        for what in runs if self.effort.launches else ():
            with suppress(MemoryError):  # the times are already known
                launches[what] = () if distinct[what][0].kept else launch_times(distinct[what][1], *arrays)
        for case, plan in plans.items():
            what = _what(case, plan)
            if what in runs:
                row = _row(task, case, plan, times, what, trusts[what], loads[what], launches[what])
                yield replace(row, joules=counted.get(what), library_joules=counted.get(times.library))

    def call(self, case: BenchCase, plan: Plan, a: Array, b: Array, c: Array) -> Call:
        if case.kept:
            return KeptCall(plan, case.kept, a, b, c)
        return _plain_call(case, a, b, c) if case.by_auto else partial(matmul, a, b, c, plan=plan)

    def times(self, libraries: Mapping[str, Call], runs: Mapping[What, Call]) -> _CallTimes:
        calls = dict[What, Call](libraries.items()) | dict(runs)
        once = {what: milliseconds(call) for what, call in calls.items()}  # every call has run once already, in its check
        rounds = max(self.effort.least_rounds, min(self.effort.rounds, int(self.effort.problem_ms / sum(once.values()))))
        on_device = queued(calls, rounds, IN_A_ROW) if max(once.values()) < QUEUED_MS else {}
        if on_device and min(median(on_device[name]) for name in libraries) < SHORT_MS:
            return _CallTimes(tuple(libraries), "device", on_device, on_device)
        return _CallTimes(tuple(libraries), "event", interleaved(calls, rounds, 0, once, self.effort.settle_ms), on_device)

    def energy(self, calls: Mapping[What, Call], times: _CallTimes) -> dict[What, float | None]:
        """The joules of each plan and of the fastest library, where the driver counts them and they are asked for."""
        counter = energy_counter() if self.effort.energy else None
        if counter is None:
            return {}
        wanted = {what: call for what, call in calls.items() if what == times.library or what not in times.libraries}
        return {what: joules(call, median(times.of[what]), counter, self.effort.energy) for what, call in wanted.items()}


def _plain_call(case: BenchCase, a: Array, b: Array, c: Array) -> Call:
    return partial(matmul, a, b, c) if case.accuracy is None else partial(matmul, a, b, c, accuracy=case.accuracy)


@dataclass(frozen=True)
class _CallTimes:
    """The kind of timing, the milliseconds of every call by round, and those on the device (empty for long calls)."""

    libraries: tuple[str, ...]
    timing: str
    of: dict[What, list[float]]
    on_device: dict[What, list[float]]

    @property
    def library(self) -> str:
        return min(self.libraries, key=lambda name: median(self.of[name]))

    def device_ratio(self, what: What) -> float | None:
        """The ratio to the library call that is fastest on the device."""
        if not self.on_device:
            return None
        return min(median(self.on_device[name]) for name in self.libraries) / median(self.on_device[what])


def _row(
    task: BenchTask, case: BenchCase, plan: Plan, times: _CallTimes, what: What, trust: Trust, load: Load, launches: tuple[LaunchTime, ...]
) -> Measurement:
    chosen, own, theirs = plan.chosen, times.of[what], times.of[times.library]
    return Measurement(
        shape=task.shape,
        dtype=task.dtype,
        asked=case.asked,
        inputs=case.inputs,
        budget=case.budget,
        levels=chosen.all_levels,
        plan=f"{chosen.name}, {case.kept} operand kept" if case.kept else chosen.name,
        strategy=chosen.strategy,
        tile=chosen.tile,
        workspace=chosen.workspace or 0,
        predicted_ms=chosen.ms,
        times=tuple(own),
        ms=median(own),
        library=times.library,
        libraries=tuple((name, median(times.of[name])) for name in times.libraries),
        library_ms=median(theirs),
        ratio=median(theirs) / median(own),
        interval=median_interval([x / y for x, y in zip(theirs, own, strict=True)]),
        timing=times.timing,
        device_ratio=times.device_ratio(what),
        trust=trust,
        load=load,
        launches=launches,
    )


def _what(case: BenchCase, plan: Plan) -> What:
    """The work of a case: equal for cases that run the same thing."""
    own = plan.chosen
    return own.choice, case.by_auto, case.kept


def _generator(seed: int) -> Array:
    import cupy

    return cupy.random.default_rng(seed)
