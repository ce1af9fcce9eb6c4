"""The kernels of TSM2X, for comparison only: its variants as parameters of one text, and its performance model.

C. Rivera, J. Chen, N. Xiong, J. Zhang, S. L. Song, D. Tao, TSM2X: High-performance tall-and-skinny matrix-matrix multiplication on GPUs,
J. Parallel Distrib. Comput. 151 (2021). Its matrices lie column by column. Ours differ from its listings where `beta` is 0: C is not read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from bilinear.codegen.render import environment
from bilinear.ir.element import Element

VARIANTS = {
    "V0": "inner products (algorithm 1)",
    "V1": "outer products (algorithm 2)",
    "V2": "tiles of B in shared memory (algorithm 3)",
    "V3": "A and B read ahead (algorithm 4)",
    "Opt1": "fewer threads, one row after the other (algorithm 6)",
    "Opt2": "fewer threads, rows interleaved (algorithm 7)",
}
TEMPLATE = Path(__file__).with_name("tsm2.cu.j2")


@dataclass(frozen=True)
class Tsm2Kernel:
    """C (m x n) = A (m x k) * B (k x n) + beta * C by blocks of `t1` threads.

    A thread computes `t2` columns of a row of C at a time, and reads `t3` elements of A at once. A tile of B has `t1` rows and `t2`
    columns; its neighbours in shared memory lie in one column if `by_columns`. `tcf` rows are left to each thread: the grid has m / tcf
    threads.
    """

    variant: str
    element: Element
    t1: int
    t2: int
    t3: int
    tcf: int = 1
    by_columns: bool = True

    @property
    def name(self) -> str:
        """The name of the function, in which `tcf` does not matter."""
        order = "c" if self.by_columns else "r"
        return f"tsm2_{self.variant.lower()}_{self.t1}_{self.t2}_{self.t3}_{order}_{self.element.suffix}"

    @property
    def shared(self) -> bool:
        """Whether tiles of B lie in shared memory."""
        return self.variant not in ("V0", "V1")

    @property
    def prefetched(self) -> bool:
        """Whether A and B are read ahead."""
        return self.shared and self.variant != "V2"

    @property
    def interleaved(self) -> bool:
        """Whether all rows of a thread take a tile of B before the next one is read."""
        return self.variant == "Opt2"

    @property
    def c_types(self) -> tuple[str, ...]:
        """The C types of its parameters: A, A_cs, B, B_cs, C, C_cs, m, k, n, beta."""
        matrix = (f"{self.element.cuda} *", "long long")
        return (*matrix * 3, *("long long",) * 3, self.element.cuda)

    def blocks(self, m: int) -> int:
        """Blocks of a launch for so many rows."""
        return ceil(m / (self.t1 * self.tcf))


def source(kernel: Tsm2Kernel) -> str:
    """The CUDA C of a kernel."""
    return environment().from_string(TEMPLATE.read_text()).render(kernel=kernel)


def variant_of(name: str, element: Element, n: int, t1: int, t3: int, tcf: int = 1, by_columns: bool = True) -> Tsm2Kernel:
    """A variant with t2 = n; the first two read one element at a time, and V0 computes one column of C after the other."""
    if name in ("V0", "V1"):
        return Tsm2Kernel(name, element, t1, 1 if name == "V0" else n, 1)
    return Tsm2Kernel(name, element, t1, n, t3, tcf, by_columns)


@dataclass(frozen=True)
class Chip:
    """A GPU as the paper's model sees it: peak GFLOP/s of an element type, GB/s, and for one multiprocessor what it holds and waits for.

    `latency` of memory and `arithmetic_latency` are in nanoseconds; a thread has `fixed` registers beside its sums and operands.
    """

    peak: float
    bandwidth: float
    processors: int = 132
    threads: int = 2048
    registers: int = 65536
    shared_bytes: int = 233472
    latency: float = 650.0
    arithmetic_latency: float = 2.5
    fixed: int = 24


@dataclass(frozen=True)
class Estimate:
    """What the model says of a kernel: threads on a multiprocessor, shares of bandwidth and of peak, seconds, and what bounds it."""

    occupancy: float
    memory: float
    compute: float
    seconds: float
    bound: str


def threshold(chip: Chip, size: int, flops: int = 1) -> float:
    """The t2 above which arithmetic takes longer than reading A, whose elements have `size` bytes (table 1 of the paper).

    The paper counts a multiply-add as one operation against a peak that counts it as two; `flops` = 2 counts both alike.
    """
    return chip.peak / chip.bandwidth * size / flops


def estimate(kernel: Tsm2Kernel, chip: Chip, m: int, k: int, n: int, rows_bound: bool = False) -> Estimate:
    """The paper's sections 3.1.8 and 3.1.9 (algorithm 5), with Little's law in elements of memory and multiply-adds.

    As published, a multiprocessor is taken to be full. With `rows_bound` it has no more threads than the rows give it (m / tcf over all),
    and what is written is counted, too: where either leaves a share of less than half, the kernel is bound by latency.
    """
    size = kernel.element.bytes
    registers = (3 * kernel.t2 + 2 * kernel.t3) * size / 4 + chip.fixed
    occupancy = min(chip.threads, chip.registers / registers, chip.shared_bytes / (kernel.t2 * size))
    if rows_bound:
        occupancy = min(occupancy, m / kernel.tcf / chip.processors)
    in_flight = chip.latency * chip.bandwidth / chip.processors / size
    memory = min(1.0, occupancy * kernel.t3 / in_flight)
    busy = chip.arithmetic_latency * chip.peak / 2 / chip.processors
    compute = min(1.0, occupancy * kernel.t3 * kernel.t2 / busy)
    elements = m * k * ceil(n / kernel.t2) + (m * n if rows_bound else 0)
    reading, multiplying = elements * size / (chip.bandwidth * memory), 2 * m * k * n / (chip.peak * compute)
    is_memory = n <= threshold(chip, size)
    bound = "memory" if is_memory else "compute"
    if rows_bound and (memory if is_memory else compute) < LATENCY_BOUND:
        bound = "latency"
    return Estimate(occupancy, memory, compute, (reading if is_memory else max(reading, multiplying)) * 1e-9, bound)


CARDS = {
    "K40c": {"processors": 15, "shared_bytes": 49152, "bandwidth": 288.0, "float32": 5046.0, "float64": 1430.0},
    "M40": {"processors": 24, "shared_bytes": 98304, "bandwidth": 288.0, "float32": 6844.0, "float64": 213.0},
    "P100": {"processors": 56, "shared_bytes": 65536, "bandwidth": 720.0, "float32": 10600.0, "float64": 4600.0},
    "V100": {"processors": 80, "shared_bytes": 98304, "bandwidth": 900.0, "float32": 15000.0, "float64": 7500.0},
}
"""Peaks of table 2; multiprocessors and their shared memory from data sheets."""
STEP, STOP, APART = 0.1, 1e-4, 1e-4
"""The step and the threshold of algorithm 5, and how far apart its gradient is taken."""


def card(name: str, dtype: str) -> Chip:
    """One of the paper's cards; it does not print its latencies, which the descent does not depend on."""
    own = CARDS[name]
    return Chip(own[dtype], own["bandwidth"], int(own["processors"]), shared_bytes=int(own["shared_bytes"]))


def descent(chip: Chip, size: int, n: int, k: int) -> tuple[int, int]:
    """t2 and t3 by algorithm 5: gradient descent from (1, 1) on the time that its model gives, relative to that at the start.

    Neither utilisation is at most 1 there, so latencies are factors and cancel. Of a problem that arithmetic bounds, t2 is at least the
    threshold and at most k, as printed.
    """
    is_memory = n <= threshold(chip, size)

    def seconds(t2: float, t3: float) -> float:
        registers = (3 * t2 + 2 * t3) * size / 4 + chip.fixed
        return 1 / (t2 * t3 * min(chip.threads, chip.registers / registers, chip.shared_bytes / (t2 * size)))

    least, most = (1.0, n) if is_memory else (threshold(chip, size), k)
    t2, t3 = least, 1.0
    first = time = seconds(t2, t3)
    while True:
        down = (seconds(t2 + APART, t3) - seconds(t2 - APART, t3)) / (2 * APART * first)
        right = (seconds(t2, t3 + APART) - seconds(t2, t3 - APART)) / (2 * APART * first)
        t2, t3 = min(most, max(least, t2 - STEP * down)), max(1.0, t3 - STEP * right)
        before, time = time, seconds(t2, t3)
        if before - time < STOP * first:
            return round(t2), round(t3)


def searched(element: Element, chip: Chip, n: int, k: int) -> tuple[int, int]:
    """t2 and t3 of the shortest time by the model with full utilisations at most, among those whose values fit a thread's registers."""
    found = (Tsm2Kernel("V3", element, 128, t2, t3) for t2 in range(1, n + 1) for t3 in range(1, 33))
    fits = (one for one in found if (3 * one.t2 + 2 * one.t3) * element.bytes // 4 < MOST_REGISTERS)
    best = min(fits, key=lambda one: estimate(one, chip, k, k, n).seconds)
    return best.t2, best.t3


LATENCY_BOUND = 0.5
"""A kernel that has less than this share of the bytes under way that full bandwidth needs is called bound by latency."""


def candidates(element: Element, variant: str, n: int, k: int, tcfs: tuple[int, ...] = (1,)) -> list[Tsm2Kernel]:
    """The parameters that are searched through in place of the paper's gradient descent."""
    first = Tsm2Kernel(variant, element, 128, n, 1)
    deep = [t3 for t3 in (2, 4, 8, 16, 32) if t3 < 2 * k]
    return [
        replace(first, t1=t1, t3=t3, tcf=tcf, by_columns=by_columns)
        for t1 in (64, 128, 256)
        for t3 in deep
        for tcf in tcfs
        for by_columns in (True, False)
        if (3 * n + 2 * t3) * element.bytes // 4 < MOST_REGISTERS
    ]


MOST_REGISTERS = 255  # Of a thread; more values would be spilled to memory.


def launch_arguments(a: Any, b: Any, c: Any, beta: Any) -> tuple[Any, ...]:
    """The arguments of a launch: matrices that lie column by column, each before the distance of its columns, extents, beta."""
    (m, k), n = a.shape, b.shape[1]
    apart = tuple(x.strides[1] // x.itemsize for x in (a, b, c))
    return (a, apart[0], b, apart[1], c, apart[2], m, k, n, beta)
