"""What every benchmark shares: the machine's description, interleaved timing on the GPU, and the baseline."""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

Call = Callable[[], object]


def commit() -> str:
    """The commit of the checkout, marked where the tree has changes; what `BENCHMARK_COMMIT` says where only a copy is measured."""
    if "BENCHMARK_COMMIT" in os.environ:
        return os.environ["BENCHMARK_COMMIT"]
    done = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def machine() -> dict[str, Any]:
    """Versions, and the GPU's name and clocks where there is one."""
    import numpy

    facts: dict[str, Any] = {"python": platform.python_version(), "numpy": numpy.__version__, "commit": commit()}
    try:
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(0)
        facts |= {"gpu": properties["name"].decode(), "cupy": cupy.__version__, "cuda": cupy.cuda.runtime.runtimeGetVersion()}
    except Exception as error:  # no CuPy or no device: the benchmark runs on the CPU
        facts |= {"gpu": None, "why": str(error)}
    return facts


def gpu_state() -> dict[str, str]:
    """Clock of the multiprocessors, power and temperature as the driver gives them."""
    names = ("clocks.sm", "power.draw", "temperature.gpu")
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return dict(zip(names, (field.strip() for field in done.stdout.split(",")), strict=False))


def interleaved(calls: dict[str, Call], repeats: int, warmups: int = 1) -> dict[str, list[float]]:
    """Milliseconds of each call on the current CuPy stream, in rounds, each in an order of its own.

    A call that draws much power leaves the next one a lower clock, for as long as some calls take: in a fixed order who comes after whom
    decides a tenth of the time.
    """
    import cupy

    for call in calls.values():
        for _ in range(warmups):
            call()
    cupy.cuda.get_current_stream().synchronize()
    times: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffled = list(calls), random.Random(1)
    for _ in range(repeats):
        shuffled.shuffle(order)
        for name in order:
            call = calls[name]
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            call()
            end.record()
            end.synchronize()
            times[name].append(cupy.cuda.get_elapsed_time(start, end))
    return times


def median(values: list[float]) -> float:
    return statistics.median(values)


def classical(a: Any, b: Any, c: Any) -> dict[str, Call]:
    """The library multiplies of the same arrays: CuPy, and PyTorch where it is installed."""
    import cupy

    calls: dict[str, Call] = {"cupy": lambda: cupy.matmul(a, b, out=c)}
    try:
        import torch
    except ImportError:
        return calls
    torch.backends.cuda.matmul.allow_tf32 = False
    x, y, z = torch.from_dlpack(a), torch.from_dlpack(b), torch.from_dlpack(c)
    # Both libraries are on the default stream here, so that CuPy's events see what PyTorch launches.
    return {**calls, "torch": lambda: torch.mm(x, y, out=z)}


def save(name: str, rows: list[dict[str, Any]], path: Path | None) -> None:
    """Write the results as JSON beside the machine they were measured on, or to standard output."""
    text = (
        json.dumps(
            {
                "benchmark": name,
                "machine": machine(),
                "command": [PurePath(word).name if word.startswith("/") else word for word in sys.argv],
                "rows": rows,
            },
            indent=1,
        )
        + "\n"
    )
    if path is None:
        print(text)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
