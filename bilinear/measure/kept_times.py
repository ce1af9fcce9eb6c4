"""Times of a device that are kept while it is described, so that an interrupted `tune` goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar, cast

from bilinear.analysis.identity import schedule_hash
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import USUAL
from bilinear.measure.describe_digits import DigitCase, DigitTimes
from bilinear.measure.device_bench import DeviceTimes, Facts
from bilinear.measure.thin_stand import ThinPoint
from bilinear.methods.thin.choice import View
from bilinear.planner.device import Device
from bilinear.planner.library_points import Measured
from bilinear.planner.policy import Extents
from bilinear.reading import read_bounded
from bilinear.resources import implementation_sha256

T = TypeVar("T")


class KeptTimes:
    """A bench whose times are written to a file line by line, and read back from there instead of being measured again.

    Times of another implementation are forgotten. Lines that make no sense, such as one that was cut off, count as not there.
    """

    def __init__(self, bench: DeviceTimes, path: Path) -> None:
        self._bench, self._path, self._of = bench, path, implementation_sha256()
        self._known: dict[str, object] = {}
        for line in read_bounded(path, 2**28).decode(errors="replace").splitlines() if path.exists() else ():
            try:
                of, key, value = json.loads(line)
            except ValueError:
                continue
            if of == self._of:
                self._known[key] = value

    def facts(self) -> Facts:
        """What the driver reports."""
        return self._bench.facts()

    def build(self, products: Sequence[tuple[Schedule, str, str]]) -> None:
        """Build the kernels of schedules."""
        self._bench.build(products)

    def product(self, extents: Extents, dtype: str, tile: str = USUAL, number: int = 0) -> float:
        """The plain product kernel in a tile."""
        return float(self._once(("product", extents, dtype, tile, number), lambda: self._bench.product(extents, dtype, tile, number)))

    def burst(self, extents: Extents, dtype: str, tile: str) -> float:
        """The same where power does not limit it yet."""
        return float(self._once(("burst", extents, dtype, tile), lambda: self._bench.burst(extents, dtype, tile)))

    def library(self, extents: Extents, dtype: str, number: int = 0) -> float:
        """The library's own multiply."""
        return float(self._once(("library", extents, dtype, number), lambda: self._bench.library(extents, dtype, number)))

    def stages(self, schedule: Schedule, size: int, dtype: str, tile: str = USUAL) -> list[float]:
        """Each stage of a schedule."""
        key = "stages", schedule_hash(schedule), size, dtype, tile
        return list(self._once(key, lambda: self._bench.stages(schedule, size, dtype, tile)))

    def copy(self, count: int) -> float:
        """A copy of `count` bytes."""
        return float(self._once(("copy", count), lambda: self._bench.copy(count)))

    def call(self) -> float:
        """A whole call of `bilinear.matmul`."""
        return float(self._once(("call",), self._bench.call))

    def able_digits(self, names: Sequence[str], by_warps: bool) -> Sequence[str]:
        """Those products of digits that the device has the instructions for."""
        return self._bench.able_digits(names, by_warps)

    def build_digits(self, cases: Sequence[DigitCase]) -> None:
        """Build the kernels of these products."""
        self._bench.build_digits(cases)

    def digits(self, case: DigitCase, number: int) -> DigitTimes | None:
        """The times of a product of digits."""
        found = self._once(("digits", *case, number), lambda: self._bench.digits(case, number))
        return None if found is None else DigitTimes(*found)

    def rounded(self, name: str, size: int) -> float | None:
        """The library's product of rounded numbers."""
        found = self._once(("rounded", name, size), lambda: self._bench.rounded(name, size))
        return None if found is None else float(found)

    def thin_tiles(self, dtype: str, device: Device) -> list[ThinPoint]:
        """Tiles of the kernel for thin products."""
        found = self._once(
            ("thin tiles", dtype),
            lambda: [(own.tile, asdict(own.view), own.parts, own.us) for own in self._bench.thin_tiles(dtype, device)],
        )
        return [ThinPoint(tile, View(**view), parts, us) for tile, view, parts, us in found]

    def thin_library(self, dtype: str, seconds: float, tell: Callable[[float], None]) -> list[Measured]:
        """The library's calls on thin products."""
        found = self._once(("thin library", dtype, seconds), lambda: self._bench.thin_library(dtype, seconds, tell))
        return [Measured(_tuple(shape), order, (small, large), *times) for shape, order, (small, large), *times in found]

    def _once(self, key: tuple[object, ...], measure: Callable[[], T]) -> T:
        text = _key(key)
        if text not in self._known:
            self._known[text] = value = json.loads(json.dumps(measure()))
            with self._path.open("a") as file:
                file.write(json.dumps((self._of, text, value)) + "\n")
        return cast("T", self._known[text])  # tuples are lists here


def _key(key: tuple[object, ...]) -> str:
    return json.dumps(key)


def _tuple(shape: Sequence[int]) -> Extents:
    m, n, k = shape
    return m, n, k
