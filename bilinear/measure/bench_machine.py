"""The machine of a benchmark: its versions, and its clock and power while something runs."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from bilinear.ir.measurement import Load
from bilinear.measure.timing import Call
from bilinear.version import __version__

LOAD = ("clocks.sm", "power.draw", "temperature.gpu")
LIMITS = ("driver_version", "clocks.max.sm", "power.limit")
PATIENCE = 10.0
"""Seconds after which the driver's tool is given up."""


def commit() -> str:
    """The commit of this checkout, marked if the tree has changes; BENCHMARK_COMMIT gives it if only a copy runs."""
    if "BENCHMARK_COMMIT" in os.environ:
        return os.environ["BENCHMARK_COMMIT"]
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return "unknown"
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    with suppress(OSError):
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    return "unknown"


def machine() -> dict[str, object]:
    """Versions, and the GPU's name, versions, clock and limits if there is one."""
    import numpy

    facts: dict[str, object] = {"python": platform.python_version(), "numpy": numpy.__version__}
    facts |= {"bilinear": __version__, "commit": commit()}
    try:
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        facts |= {"gpu": properties["name"].decode(), "cupy": cupy.__version__, "cuda": cupy.cuda.runtime.runtimeGetVersion()}
    except Exception as error:  # no CuPy or no device: the benchmark runs on the CPU
        return facts | {"gpu": None, "why": str(error)}
    with suppress(Exception):
        from cupy_backends.cuda.libs import cublas

        facts["cublas"] = cublas.getVersion(cupy.cuda.Device().cublas_handle)
    with suppress(Exception):
        import torch

        facts["torch"] = torch.__version__
    return facts | gpu_state(LIMITS) | gpu_state()


def gpu_state(names: tuple[str, ...] = LOAD) -> dict[str, str]:
    """The clock of the multiprocessors, power and temperature (or `names`) as the driver reports them; empty if it does not."""
    try:
        done = subprocess.run(_query(names), capture_output=True, text=True, check=False, timeout=PATIENCE)
    except (OSError, subprocess.SubprocessError):
        return {}
    return _fields(names, done.stdout)


def load_during(call: Call) -> Load:
    """The driver's readings while a call is repeated."""
    import cupy

    try:
        asking = subprocess.Popen(_query(LOAD), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return Load()
    with asking:
        began = time.perf_counter()
        while asking.poll() is None:
            call()
            cupy.cuda.get_current_stream().synchronize()
            if time.perf_counter() - began > PATIENCE:
                asking.kill()
                return Load()
        told = _fields(LOAD, asking.stdout.read() if asking.stdout else "")
    return Load(*(_number(told.get(name, "")) for name in LOAD))


class Watch:
    """Reads the load during a call, but at most once every few seconds; in between it returns the last reading."""

    def __init__(self, every: float) -> None:
        self._every, self._at, self._last = every, float("-inf"), Load()

    def __call__(self, call: Call) -> Load:
        """The load while this call is made."""
        if time.perf_counter() - self._at >= self._every:
            self._last, self._at = load_during(call), time.perf_counter()
        return self._last


def _query(names: tuple[str, ...]) -> list[str]:
    return ["nvidia-smi", *_which(), f"--query-gpu={','.join(names)}", "--format=csv,noheader"]


def _which() -> list[str]:
    """The current device by its PCI bus address, because the tool numbers devices differently from CUDA."""
    with suppress(Exception):
        import cupy

        return [f"--id={cupy.cuda.Device().pci_bus_id}"]
    return []


def _fields(names: tuple[str, ...], line: str) -> dict[str, str]:
    values = [field.strip() for field in line.strip().split(",")]
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else {}


def _number(text: str) -> float | None:
    """`1980 MHz` as a number; None if the tool reports none."""
    with suppress(ValueError, IndexError):
        return float(text.split(maxsplit=1)[0])
    return None
