"""How long the compiler takes: the proof, the import, and building all kernels of msmes, cold and from the cache."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import median, save

PROOF = """
import time
start = time.perf_counter()
import bilinear
bilinear.load("msmes").verify(levels={levels})
print(time.perf_counter() - start)
"""
IMPORT = """
import numpy, time
start = time.perf_counter()
import bilinear
print(time.perf_counter() - start)
"""
BUILD = """
import os, time
os.environ["BILINEAR_CACHE_DIR"] = {folder!r}
import bilinear
from bilinear.codegen.build import build_program
from bilinear.lowering.prepare import prepare
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.element import ELEMENTS
nvrtc.compiler_version()
loaded = bilinear.load("msmes")
schedule = prepare(loaded.scheme, loaded.schedule, {levels}, "restore").schedule
start = time.perf_counter()
for dtype in ("float64", "float32"):
    build_program(schedule, ELEMENTS[dtype], [CudaTarget("sm_90")])
print(time.perf_counter() - start)
"""


def seconds(program: str, repeats: int) -> float:
    """The median over fresh processes of the number that a program prints."""

    def once() -> float:
        return float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)

    return median([once() for _ in range(repeats)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = [{"what": "import bilinear beyond NumPy", "seconds": seconds(IMPORT, options.repeats)}]
    for levels in (1, 2, 3):
        proof = PROOF.format(levels=levels)
        rows.append({"what": f"proof of msmes, {levels} level(s), imports included", "seconds": seconds(proof, options.repeats)})
    for levels in (1, 2, 3):
        with tempfile.TemporaryDirectory() as folder:
            program = BUILD.format(folder=folder, levels=levels)
            cold = seconds(program, 1)
            what = f"build msmes, {levels} level(s), both dtypes, sm_90"
            rows.append({"what": f"{what}, cold", "seconds": cold})
            rows.append({"what": f"{what}, cached", "seconds": seconds(program, options.repeats)})
    for row in rows:
        print(f"{row['seconds']:9.4f} s  {row['what']}")
    save("compile_time", rows, options.json)


if __name__ == "__main__":
    main()
