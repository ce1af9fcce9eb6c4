"""Prune: leave out candidates whose tiles cannot be fast, before they are built and timed.

The three levels are those of the parameter tuning of A. Khan, M. Al-Mouhamed and A. Fatayer ("Optimizing the Matrix Multiply Using Strassen
and Winograd Algorithms with Limited Recursions on Many Core", section 3.2 and algorithm 1). Their kernels run only on multiples of a tile.
Ours mask the rest, so a tile is left out only if it wastes much more than another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod

from bilinear.ir.element import ELEMENTS
from bilinear.ir.tile import TILES
from bilinear.lowering.place import core_of
from bilinear.planner.plan import Candidate
from bilinear.planner.problem import Problem
from bilinear.planner.ways import algorithm_named

ARRAY, KERNEL, ACTIVE = LEVELS = "array block", "kernel block", "active block"
"""The levels: threads without elements of the result; a tile that is larger than the result; a block of threads that does not fit."""
MOST_IDLE = 0.25
"""The part of a tile grid's threads that may have no elements, beyond those of the tile that wastes least."""


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
