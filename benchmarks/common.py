"""What every benchmark shares: interleaved timing and the baseline, which are the product's own, and the results file."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePath
from statistics import median
from time import perf_counter
from typing import Any

from bilinear.backends.machine import ARCHITECTURE
from bilinear.backends.timing import Call, interleaved, orders, queued
from bilinear.errors import BilinearError
from bilinear.ir.measurement import LeftOut, Measurement
from bilinear.measure.bench import require_gpu
from bilinear.measure.bench_library import library_calls, machine
from bilinear.planner.plan import Candidate
from bilinear.reporting.bench_page import bench_row

__all__ = ["Call", "interleaved", "median", "orders", "queued"]  # Of other modules, for scripts.


def running(candidate: Candidate, **fields: Any) -> Candidate:
    """The candidate with these fields of its choice replaced."""
    choice: Any = candidate.choice
    return replace(candidate, choice=replace(choice, **fields))


Clock = Callable[[], float]
LIBRARIES = ("cupy", "cublas", "torch", "cublaslt")


class Later:
    """A module that is imported at its first use, so that a script answers `--help` without it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


cupy: Any = Later("cupy")


def parser_of(doc: str | None) -> ArgumentParser:
    """A parser for the options of a script, which this text describes; `--json FILE` is one."""
    parser = ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the results go")
    return parser


def save(name: str, rows: list[dict[str, Any]], path: Path | None) -> None:
    """Write the results as JSON beside the machine they were measured on, or to standard output."""
    command = [PurePath(word).name if word.startswith("/") else word for word in sys.argv]
    text = json.dumps({"benchmark": name, "machine": machine(), "command": command, "rows": rows}, indent=1) + "\n"
    if path is None:
        print(text)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def by_clock(calls: Mapping[str, Call], repeats: int, clock: Clock = perf_counter) -> dict[str, list[float]]:
    """Seconds of each call by a clock, one after the other in every round, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats + 1):
        for name, call in calls.items():
            start = clock()
            call()
            times[name].append(clock() - start)
    return {name: seconds[1:] for name, seconds in times.items()}


def build_for(architecture: str) -> None:
    """Build our own kernels for this architecture, such as compute_80, as long as the process lives; for the GPU's own if it is empty."""
    if architecture:
        os.environ[ARCHITECTURE] = architecture


def classical(a: Any, b: Any, c: Any) -> dict[str, Call]:
    """The library multiplies that the device runs; a line says which fail, and why."""
    found = {}
    for name, call in library_calls(a, b, c).items():
        try:
            call()
        except Exception as error:  # of any library
            print(f"no baseline: {name}: {type(error).__name__}: {error}", flush=True)
        else:
            found[name] = call
    return found


def exact_calls(calls: Mapping[str, Call], a: Any, b: Any, c: Any) -> dict[str, bool]:
    """Which calls compute C of integers A and B exactly, into NaN; afterwards A and B are normal data."""
    wanted, exact = cupy.matmul(a.astype("float64", copy=False), b.astype("float64", copy=False)), {}
    for name, call in calls.items():
        c[...] = cupy.nan
        call()
        exact[name] = bool((c == wanted).all())
    generator = cupy.random.default_rng(3)
    for x in (a, b):
        x[...] = generator.standard_normal(x.shape, dtype=x.dtype)
    return exact


def need(*packages: str) -> None:
    """End with exit code 1 and one line if a package is missing."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}")


def need_gpu() -> None:
    """End with exit code 1 and the cause if no GPU can be used."""
    try:
        require_gpu()
    except BilinearError as error:
        sys.exit(str(error))


def tell(one: Measurement | LeftOut) -> None:
    """Print a line for what was found."""
    print("  ".join(bench_row(one)) if isinstance(one, Measurement) else f"left out: {one.what}: {one.why}", flush=True)
