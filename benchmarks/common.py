"""What every benchmark shares: interleaved timing and the baseline, which are the product's own, and the results file."""

from __future__ import annotations

import json
import sys
from pathlib import Path, PurePath
from typing import Any

from bilinear.errors import BilinearError
from bilinear.ir.measurement import LeftOut, Measurement
from bilinear.reporting.bench_table import bench_row
from bilinear.runtime.bench import require_gpu
from bilinear.runtime.bench_library import library_calls
from bilinear.runtime.bench_machine import gpu_state, machine
from bilinear.runtime.bench_timing import Call, interleaved, median

__all__ = ["Call", "classical", "gpu_state", "interleaved", "machine", "median", "need_gpu", "save", "tell"]


def save(name: str, rows: list[dict[str, Any]], path: Path | None) -> None:
    """Write the results as JSON beside the machine they were measured on, or to standard output."""
    command = [PurePath(word).name if word.startswith("/") else word for word in sys.argv]
    text = json.dumps({"benchmark": name, "machine": machine(), "command": command, "rows": rows}, indent=1) + "\n"
    if path is None:
        print(text)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


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


def need_gpu() -> None:
    """End with a word where there is nothing to measure."""
    try:
        require_gpu()
    except BilinearError as error:
        sys.exit(str(error))


def tell(one: Measurement | LeftOut) -> None:
    """Print a line for what was found."""
    print("  ".join(bench_row(one)) if isinstance(one, Measurement) else f"left out: {one.what}: {one.why}", flush=True)
