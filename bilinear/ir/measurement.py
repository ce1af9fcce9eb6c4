"""Measurements: the frozen results of a benchmark, from which the table, the JSON and the pictures are drawn."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from bilinear.ir.element import COMPLEX

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Load:
    """The driver's readings while a plan runs: multiprocessor clock in MHz, watts, degrees Celsius; None if it reports none."""

    clock: float | None = None
    power: float | None = None
    temperature: float | None = None


@dataclass(frozen=True)
class Trust:
    """The checks of a plan in the run that times it. Every output is filled with NaN beforehand.

    `exact`: the product of integer matrices was exact bit for bit (required if `is_integral`, that is, no coefficient is a fraction).
    `restored`: afterwards A and B were as promised. `error` is measured on normal data; it and its `bound` are max|C - A*B| in units of
    max|A| * max|B|.
    """

    exact: bool
    restored: bool
    error: float
    bound: float
    is_integral: bool = True

    @property
    def holds(self) -> bool:
        """True if every check passed; an error of NaN fails."""
        return (self.exact or not self.is_integral) and self.restored and self.error <= self.bound


@dataclass(frozen=True)
class LaunchTime:
    """The time of one launch alone: `kind` is sums, products or strip; milliseconds, bytes it must move, floating-point operations."""

    kind: str
    what: str
    ms: float
    bytes: int = 0
    flops: int = 0

    @property
    def rate(self) -> str:
        """Bytes or operations a second, as text."""
        return f"{self.flops / self.ms * 1e-9:.1f} TFLOP/s" if self.flops else f"{self.bytes / self.ms * 1e-6:.0f} GB/s"


@dataclass(frozen=True)
class Interval:
    """A confidence interval and its actual confidence."""

    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Measurement:
    """A plan for m x k by k x n timed beside the library, interleaved; times are medians over the rounds, in milliseconds.

    `asked` is the request: `plan` for the planner's choice, `auto` for a plain call, or levels by name. `budget` is the workspace limit in
    units of C's size (None: no limit), `workspace` the bytes used. `library` is the fastest of `libraries`. `ratio` is its time over the
    plan's, with the confidence interval of the median of that ratio over the rounds. `timing` is `device` for calls so short that host time
    would hide them, else `event`: CUDA events around one call or several in a row. `device_ratio` is the ratio of times on the device, if
    it was measured. `joules` and `library_joules` are what a call took by the driver's counter, None if nothing was counted.
    """

    shape: Shape
    dtype: str
    asked: str
    inputs: str
    budget: float | None
    levels: tuple[str, ...]
    plan: str
    strategy: str
    tile: str
    workspace: int
    predicted_ms: float | None
    times: tuple[float, ...]
    ms: float
    library: str
    libraries: tuple[tuple[str, float], ...]
    library_ms: float
    ratio: float
    interval: Interval
    timing: str
    device_ratio: float | None
    trust: Trust
    load: Load = Load()
    launches: tuple[LaunchTime, ...] = ()
    joules: float | None = None
    library_joules: float | None = None

    @property
    def gflops_per_watt(self) -> float | None:
        """Billions of operations of the classical product, real ones, a joule: that is, GFLOP/s a watt."""
        return 2e-9 * math.prod(self.shape) * (4 if self.dtype in COMPLEX else 1) / self.joules if self.joules else None

    def to_json(self) -> dict[str, object]:
        """One row of a results file, flat except for the launches; `n` is the number of columns of C."""
        fields = asdict(self)
        for name in ("trust", "load"):
            fields |= fields.pop(name)
        low, high, confidence = fields.pop("interval").values()
        fields |= {"n": self.shape[2], "ratio_low": low, "ratio_high": high, "confidence": confidence, "rounds": len(self.times)}
        return fields | {"libraries": dict(self.libraries), "holds": self.trust.holds, "gflops_per_watt": self.gflops_per_watt}


@dataclass(frozen=True)
class ErrorPoint:
    """The error of an algorithm at a number of levels (0: the library) and its bound, both in units of max|A| * max|B|."""

    algorithm: str
    levels: int
    dtype: str
    size: int
    error: float
    bound: float


@dataclass(frozen=True)
class LeftOut:
    """A request that was not measured, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Benchmark:
    """A whole run: the machine, the command and all results."""

    name: str
    machine: dict[str, object]
    command: tuple[str, ...]
    rows: tuple[Measurement, ...] = ()
    errors: tuple[ErrorPoint, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def failing(self) -> tuple[Measurement, ...]:
        """The rows in which a check failed."""
        return tuple(row for row in self.rows if not row.trust.holds)

    def json(self) -> str:
        """The text of the results file."""
        facts = {
            "benchmark": self.name,
            "machine": self.machine,
            "command": list(self.command),
            "rows": [row.to_json() for row in self.rows],
            "errors": [asdict(point) for point in self.errors],
            "left_out": [asdict(left) for left in self.left_out],
        }
        return json.dumps(facts, indent=1) + "\n"


def is_slower(row: Measurement, least: float) -> bool:
    """True if the whole interval of the ratio lies below the smallest allowed ratio."""
    return row.interval.high < least
