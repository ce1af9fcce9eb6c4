"""What the search for depth-first schedules finds, and how long it takes: the table of docs/depth-first.md. Needs no GPU.

.venv/bin/python benchmarks/depth_first_search.py [NAME ...]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from published import published

from bilinear.frontend import load
from bilinear.ir.scheme import Scheme
from bilinear.scheduling.depth_first.find import find_depth_first
from bilinear.verify.schedule import prove_schedule

SHIPPED = ("naive2x2", "strassen", "winograd", "hopcroft_kerr", "laderman")
PUBLISHED = {
    "plinopt 3x3x3": "plinopt/data/3x3x3_23_58",
    "grey 3x4x3": "fast-matmul/algorithms/grey343-29-234",
    "smirnov336_40_960": "fast-matmul/algorithms/smirnov336-40-960",
    "ZT 4x4x4": "fast-matrix-multiplication/ZT/4x4x4_m49_ZT.json",
    "plinopt 4x4x4": "plinopt/data/4x4x4_49_156",
    "addition_reduced 5x5x5": "fast-matrix-multiplication/addition_reduced_ZT/5x5x5_m93_cr383_fv160_cn843_ZT_reduced.json",
}
VARIANTS = ((False, False, "C = A*B"), (True, False, "C += A*B"), (False, True, "C = A*B, directly"), (True, True, "C += A*B, directly"))


def rows(name: str, scheme: Scheme) -> None:
    """One line of the table for each variant; every schedule is proved."""
    for accumulate, directly, title in VARIANTS:
        start = time.perf_counter()
        found = find_depth_first(scheme, accumulate=accumulate, directly=directly)
        seconds = time.perf_counter() - start
        prove_schedule(found.schedule, scheme).require()
        cells = (name, scheme.format, title, f"{found.temporaries} ({found.fewest})", found.additions, found.traffic, f"{seconds:.1f}")
        print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    wanted = sys.argv[1:] or [*SHIPPED, *PUBLISHED]
    for name in wanted:
        rows(name, published()[PUBLISHED[name]]() if name in PUBLISHED else load(name).scheme)
