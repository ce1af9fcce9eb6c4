"""Time plans: ways and tiles for problems, timed on the current GPU in the order of their predicted times; the fastest is checked.

Before they are built and timed, candidates whose tiles cannot be fast are left out. The three levels of this are those of the parameter
tuning of A. Khan, M. Al-Mouhamed and A. Fatayer ("Optimizing the Matrix Multiply Using Strassen and Winograd Algorithms with Limited
Recursions on Many Core", section 3.2 and algorithm 1). Their kernels run only on multiples of a tile. Ours mask the rest, so a tile is left
out only if it wastes much more than another one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf, prod
from statistics import median
from time import perf_counter

from bilinear.backends.cublas import asks_for_tf32
from bilinear.backends.timing import IN_A_ROW, QUEUED_MS, SHORT_MS, interleaved, milliseconds, queued
from bilinear.codegen.build import Progress, no_progress
from bilinear.errors import BilinearError, StageError, fail
from bilinear.ir.element import ELEMENTS
from bilinear.ir.measurement import LeftOut, Shape
from bilinear.ir.tile import TILES
from bilinear.lowering.place import core_of
from bilinear.measure.bench_check import fill_normal, operands, trust_of
from bilinear.methods.planning import contenders
from bilinear.planner.choose import in_order, ms_of, timed_plan
from bilinear.planner.device import Device
from bilinear.planner.library import LIBRARY_ITSELF, Library
from bilinear.planner.plan import LIBRARIES, LIBRARY, Candidate, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.ways import algorithm_named
from bilinear.runtime.ahead import fill_cache
from bilinear.runtime.auto import problem_of
from bilinear.runtime.devices_here import uses_library
from bilinear.runtime.matmul import matmul
from bilinear.runtime.operands import layouts_of

ARRAY, KERNEL, ACTIVE = LEVELS = "array block", "kernel block", "active block"
"""The levels: threads without elements of the result; a tile that is larger than the result; a block of threads that does not fit."""
MOST_IDLE = 0.25  # The part of a grid's threads without elements, beyond the tile that wastes least.


@dataclass(frozen=True)
class Multiprocessor:
    """What blocks of threads share on one: warps, registers (given out in units, by block), bytes of shared memory.

    A block has `shared_beside` bytes more than it asks for, and can have at most `shared_of_block`.
    """

    warps: int = 64
    registers: int = 2**16
    unit: int = 256
    shared: int = 228 * 1024
    shared_of_block: int = 227 * 1024
    shared_beside: int = 1024
    threads_of_warp: int = 32

    def active_blocks(self, threads: int, registers: int, shared: int) -> int:
        """How many blocks fit, of so many threads with so many registers each and of so many bytes."""
        if shared > self.shared_of_block:
            return 0
        warps = ceil(threads / self.threads_of_warp)
        of_block = ceil(registers * threads / self.unit) * self.unit
        return min(self.warps // warps, self.registers // of_block, self.shared // max(1, shared + self.shared_beside))


def multiprocessor_of(properties: Mapping[str, int]) -> Multiprocessor:
    """By the driver's properties of a device."""
    return Multiprocessor(
        properties["maxThreadsPerMultiProcessor"] // properties["warpSize"],
        properties["regsPerMultiprocessor"],
        shared=properties["sharedMemPerMultiprocessor"],
        shared_of_block=properties["sharedMemPerBlockOptin"],
        shared_beside=properties["reservedSharedMemPerBlock"],
        threads_of_warp=properties["warpSize"],
    )


def idle(rows: int, columns: int, block: tuple[int, int]) -> float:
    """The part of the threads of a grid of tiles that has no elements of a block; 0 where the tile divides it."""
    whole = ceil(block[0] / rows) * rows * ceil(block[1] / columns) * columns
    return 1 - prod(block) / whole


def level_of(rows: int, columns: int, block: tuple[int, int], active: int, most_idle: float = 0.0, may_exceed: bool = False) -> str:
    """The level that prunes a tile for a block of the result; empty if none does. `active` blocks of threads of the tile fit.

    Without the last two arguments the levels are as published: a tile must divide the block, and may not be larger.
    """
    if idle(rows, columns, block) > most_idle:
        return ARRAY
    if not (may_exceed or (block[0] // rows) * (block[1] // columns)):
        return KERNEL
    return "" if active else ACTIVE


def prune(candidates: Sequence[Candidate], problem: Problem, own: Multiprocessor) -> tuple[list[Candidate], dict[str, int]]:
    """The candidates worth building, in their order, and how many each level left out.

    Only tiles of one way compete: the one that wastes least is kept if it fits. Plans of parts and products without a schedule are kept.
    """
    ways: dict[tuple[tuple[str, ...], str], list[Candidate]] = {}
    for candidate in candidates:
        if candidate.choice.lowered_parts:
            ways.setdefault((candidate.levels, candidate.promise), []).append(candidate)
    left_out: dict[int, str] = {}
    for (levels, _), same in ways.items():
        schemes = [algorithm_named(name).scheme for name in levels]
        grid = prod(s.m for s in schemes), prod(s.k for s in schemes), prod(s.n for s in schemes)
        core = core_of(grid, (problem.m, problem.k, problem.n), ELEMENTS[problem.dtype].bytes)
        block = tuple(max(1, extent // parts) for extent, parts in zip(core, grid, strict=True))  # the finest
        wasted = [_idle(candidate, block, problem.dtype) for candidate in same]
        for candidate in same:
            level = "" if candidate.rest else _level(candidate, block, problem.dtype, own, min(wasted))
            if level:
                left_out[id(candidate)] = level
    kept = [candidate for candidate in candidates if id(candidate) not in left_out]
    return kept, {level: sum(found == level for found in left_out.values()) for level in LEVELS}


def _level(candidate: Candidate, block: tuple[int, ...], dtype: str, own: Multiprocessor, least_idle: float) -> str:
    tile, element = TILES[dtype][candidate.tile], ELEMENTS[dtype]
    shared = tile.stages * tile.slice_elements(element.arithmetic.lanes) * element.arithmetic.bytes
    registers = own.registers // (tile.threads * tile.blocks) // 8 * 8  # the launch bounds keep the compiler below this
    active = own.active_blocks(tile.threads, min(registers, 255), shared)
    wastes_least = _idle(candidate, block, dtype) == least_idle
    return level_of(tile.m, tile.n, (block[0], block[2]), active, least_idle + MOST_IDLE, may_exceed=wastes_least)


def _idle(candidate: Candidate, block: tuple[int, ...], dtype: str) -> float:
    tile = TILES[dtype].get(candidate.tile)
    return 0.0 if tile is None else idle(tile.m, tile.n, (block[0], block[2]))


NEAR = 1.35  # A candidate predicted to take so many times the best of model and library is not timed.
MOST, AT_ONCE = 48, 8  # The most contenders timed for a problem, and how many side by side.
FINALISTS = 4
FEW, ROUNDS = 3, 9  # Rounds for all contenders, and for the fastest of them.
SETTLE_MS = 20.0
WRONG = "E685"  # This error ends the search: a plan that multiplies wrongly must be reported.
log = logging.getLogger("bilinear")


def search(
    shapes: Sequence[tuple[Shape, str]],
    inputs: str,
    budget: int | None,
    device: Device,
    seconds: float,
    progress: Progress = no_progress,
) -> Iterator[Plan | LeftOut]:
    """The fastest plan for each shape and element type, or why there is none; each problem gets its share of the remaining time.

    Every candidate's `ms` is measured. Raises `BilinearError` (E685) for a plan that multiplies wrongly or fails while running.
    """
    ends = perf_counter() + seconds
    for number, (shape, dtype) in enumerate(shapes):
        told, left = f"{'x'.join(map(str, shape))} {dtype}", ends - perf_counter()
        progress(told, number, len(shapes))
        if left <= 0:
            yield LeftOut(told, "the time was over")
            continue
        try:
            yield _fastest_here(partial(GpuStand, shape, dtype, inputs, budget, device), device, left / (len(shapes) - number))
        except MemoryError as error:
            yield LeftOut(told, f"out of memory: {error}")
        except BilinearError as error:
            if error.diagnostics[0].code == WRONG:
                raise
            yield LeftOut(told, error.diagnostics[0].message)
        except StageError as error:
            raise fail(WRONG, f"{told}: a plan failed while it ran: {error}") from error
        except Exception as error:  # CuPy and the driver raise many kinds, and the other problems are still worth searching
            _require_device(told, error)
            log.debug("%s is left out", told, exc_info=True)
            yield LeftOut(told, f"{type(error).__name__}: {error}")
    progress("done", len(shapes), len(shapes))


def _fastest_here(stand_of: Callable[[], GpuStand], device: Device, seconds: float) -> Plan:
    """The fastest plan on a stand, which is released afterwards: the next one's operands may need its memory."""
    stand = stand_of()
    return fastest(stand.problem, device, stand, perf_counter() + seconds)


def _require_device(told: str, error: Exception) -> None:
    """Raise E685 if the GPU no longer runs anything: a kernel failed there, which shows at the next synchronization."""
    import cupy

    try:
        cupy.cuda.runtime.deviceSynchronize()
    except Exception as dead:  # of CuPy or the driver
        raise fail(WRONG, f"{told}: a kernel failed on the GPU: {dead}", "set CUDA_LAUNCH_BLOCKING=1 to learn which") from error


def require_use(dtypes: Sequence[str]) -> None:
    """Refuse (E687) to search if the result would not be used."""
    if "float32" in dtypes and asks_for_tf32():
        raise fail("E687", "CUPY_TF32 makes the library multiply float32 with only 10 bits", "unset it, or search for float64")
    if uses_library():
        raise fail("E687", "BILINEAR_USE_LIBRARY makes everything the library's multiply: there is nothing to compare", "unset it")
    if os.environ.get("BILINEAR_DEVICE"):
        raise fail("E687", "BILINEAR_DEVICE is set, so the plans that are found would not be used", "unset it")


def fastest(problem: Problem, device: Device, stand: GpuStand, ends: float) -> Plan:
    """The fastest way to run a problem among those timed before the deadline; the library's multiply is always timed."""
    found, libraries = contenders(problem, device), [Candidate(Library(name), None, 0) for name in LIBRARIES]
    library, *timed = _timed(libraries, stand.times(libraries, FEW))
    limit = NEAR * min(*map(ms_of, (library, *timed, *found[:1])))
    near, left_out = prune([candidate for candidate in found if ms_of(candidate) <= limit], problem, stand.multiprocessor)
    near = near[:MOST]
    log.debug("pruned before they were built: %s", ", ".join(f"{count} ({level})" for level, count in left_out.items()))
    for first in range(0, len(near), AT_ONCE):
        if first and perf_counter() > ends:
            break
        some = near[first : first + AT_ONCE]
        stand.build(some)
        timed += _timed(some, stand.times(some, FEW))
    final = [replace(library, error=stand.bound(library))]
    for candidate in sorted((candidate for candidate in timed if ms_of(candidate) < inf), key=ms_of)[:FINALISTS]:
        try:
            final.append(replace(candidate, error=stand.bound(candidate)))
        except MemoryError:  # a check needs more than a multiply
            log.info("%s is left out: there is no memory to check it", candidate.name)
    library, *best = _timed(final, stand.times(final, ROUNDS))
    return timed_plan(problem, device, in_order([library, *(candidate for candidate in best if ms_of(candidate) < inf)]))


def _timed(candidates: Sequence[Candidate], times: Sequence[float]) -> list[Candidate]:
    return [replace(candidate, ms=ms) for candidate, ms in zip(candidates, times, strict=True)]


class GpuStand:
    """Operands on the current GPU with random normal data, and `matmul` calls on them as a user makes them."""

    def __init__(self, shape: Shape, dtype: str, inputs: str, budget: int | None, device: Device) -> None:
        import cupy

        self._operands = operands(shape, dtype)
        self.multiprocessor = multiprocessor_of(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id))
        self._fill()
        self._device = device
        self.problem = problem_of(layouts_of(*self._operands), inputs, budget)
        library = self._call(self._choice(LIBRARY_ITSELF))
        library()
        self._is_short = milliseconds(library) < QUEUED_MS and median(queued({"library": library}, FEW, IN_A_ROW)["library"]) < SHORT_MS

    def build(self, candidates: Sequence[Candidate]) -> None:
        """Build the kernels of some candidates, several at once."""
        fill_cache(map(self._choice, candidates))

    def times(self, candidates: Sequence[Candidate], rounds: int) -> list[float]:
        """Milliseconds of each candidate: medians over shuffled rounds; infinite if memory runs out or the candidate is refused.

        Each call runs in a loop after warm-ups, and short calls are timed on the device.
        """
        able: dict[int, Callable[[], object]] = {}
        for number, candidate in enumerate(candidates):
            call = self._call(self._choice(candidate))
            try:
                call()
            except MemoryError as error:
                log.info("%s finds no memory: %s", candidate.name, error)
                continue
            except BilinearError as error:  # for example a kernel that cannot be built; the others are worth timing
                log.warning("%s cannot run, and is left out: %s", candidate.name, error)
                continue
            able[number] = call
        found = queued(able, rounds, IN_A_ROW) if self._is_short else interleaved(able, rounds, 0, settle_ms=SETTLE_MS)
        return [median(found[number]) if number in found else inf for number in range(len(candidates))]

    def bound(self, candidate: Candidate) -> float:
        """The error bound of a candidate, after checking on integers and on normal data, each into NaN, that it multiplies correctly here.

        Raises `BilinearError` (E685) if it does not, and `MemoryError` if there is no memory for the check.
        """
        plan, found = self._choice(candidate), None
        with suppress(MemoryError):
            found = trust_of(self._call(plan), plan, *self._operands)
        if found is None:  # the check broke off with integers in the operands; its memory is free now
            self._fill()
            raise MemoryError(f"there is none to check {candidate.name}")
        if not found.holds:
            shape = f"{self.problem.m}x{self.problem.k}x{self.problem.n}, {self.problem.dtype}"
            raise fail(WRONG, f"{candidate.name} at {shape}, failed its check")
        return found.bound

    def _fill(self) -> None:
        import cupy

        fill_normal(*self._operands[:2], cupy.random.default_rng(8))

    def _call(self, plan: Plan) -> Callable[[], object]:
        return partial(matmul, *self._operands, plan=plan)

    def _choice(self, candidate: Candidate) -> Plan:
        beside = () if candidate.strategy == LIBRARY else (LIBRARY_ITSELF,)
        return timed_plan(self.problem, self._device, (candidate, *beside))
