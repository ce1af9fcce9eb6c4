"""How long proofs take, cold: every shipped algorithm at its deepest level below a bound, mixes, compositions, plans and first calls.

Each row runs in a fresh process that keeps nothing. Seconds are from the end of `import bilinear`, so they include what is imported lazily;
`cpu` are those of the processor alone, which other programs disturb less. Modules are loaded from bytecode, as in an installed package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import median, save

import bilinear
from bilinear.frontend.files import shipped
from bilinear.ir.placement import MOST_LEVELS
from bilinear.lowering.prepare import is_runnable, natural_inputs

CHILD = """
import json, sys, time
import bilinear
kind, *words = json.loads(sys.argv[1])
start, before = time.perf_counter(), time.process_time()
if kind == "levels":
    from bilinear.lowering.prepare import Level, natural_inputs, prepare, prepare_levels
    loaded = [bilinear.load(name) for name in words]
    promises = {natural_inputs(x.schedule) for x in loaded} - {"preserve"}
    inputs = promises.pop() if promises else "preserve"
    if len(set(words)) == 1:
        products = prepare(loaded[0].scheme, loaded[0].schedule, len(words), inputs).schedule.products
    else:
        products = prepare_levels(tuple(Level(x.scheme, x.schedule) for x in loaded), inputs).products
elif kind == "composition":
    from bilinear.lowering.prepare import prepare
    loaded = bilinear.load(words[0])
    products = prepare(loaded.scheme, None, 1, "preserve").schedule.products
elif kind == "plan":
    bilinear.plan(4096, 4096, 4096, "float32", device="h200", levels=tuple(words))
    products = None
elif kind == "call":
    import numpy
    a = numpy.ones((256, 256))
    bilinear.matmul(a, a, algorithm=words[0], levels=len(words))
    products = None
print(json.dumps([time.perf_counter() - start, time.process_time() - before, products]))
"""
MIXES = (
    ("winograd", "winograd", "dps_444"),
    ("dps_444", "winograd", "winograd"),
    ("dps_444", "laderman"),
    ("smirnov_336", "dps_444"),
    ("laderman", "winograd", "hopcroft_kerr"),
    ("winograd", "laderman", "strassen"),
    ("moosbauer_poole_555", "laderman"),
    ("accurate_sqrt3", "smirnov_336", "winograd"),
    ("msmes", "winograd_in_place", "laderman_in_place"),
    ("winograd", "msmes"),
)
COMPOSITIONS = (
    "winograd (x) winograd (x) winograd (x) winograd",
    "strassen (x) strassen (x) strassen",
    "dps_444 (x) dps_444",
    "smirnov_336 (x) smirnov_336",
    "perminov_444 (x) dps_444",
    "accurate_sqrt3 (x) dps_444",
    "laderman (x) moosbauer_poole_555",
)


def cases(most: int) -> Iterator[tuple[str, ...]]:
    """What is measured: a kind and its words."""
    for name in shipped():
        loaded = bilinear.load(name)
        if not is_runnable(loaded.scheme, loaded.schedule, natural_inputs(loaded.schedule)):
            continue
        rank, levels = loaded.scheme.rank, 1
        while levels < MOST_LEVELS and rank ** (levels + 1) <= most:
            levels += 1
        yield "levels", *[name] * levels
    yield "levels", *["winograd"] * 3
    for mix in MIXES:
        yield "levels", *mix
    for composition in COMPOSITIONS:
        yield "composition", composition
    yield "plan", "winograd", "winograd", "winograd", "winograd"
    yield "plan", "dps_444", "dps_444"
    yield "call", "winograd", "winograd", "winograd"
    yield "call", "dps_444", "dps_444"


def measured(case: tuple[str, ...], repeats: int, bytecode: str) -> dict[str, Any]:
    """One row: medians over fresh processes, or what refused. `bytecode` is a folder that keeps the compiled modules."""
    found = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"BILINEAR_CACHE_DIR": folder, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode}
            command = [sys.executable, "-c", CHILD, json.dumps(case)]
            run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if run.returncode:
            return {"kind": case[0], "what": case[1:], "refused": run.stderr.strip().splitlines()[-1]}
        found.append(json.loads(run.stdout))
    seconds, cpu = (median([row[i] for row in found]) for i in (0, 1))
    return {"kind": case[0], "what": case[1:], "products": found[0][2], "seconds": seconds, "cpu": cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--most", type=int, default=2500, help="the most products")
    parser.add_argument("--only", default="", help="rows that contain this text")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as bytecode:
        for warm_up in (("levels", "winograd"), ("plan", "winograd"), ("call", "winograd")):
            measured(warm_up, 1, bytecode)
        for case in cases(options.most):
            if options.only not in " ".join(case):
                continue
            row = measured(case, options.repeats, bytecode)
            rows.append(row)
            times = row["refused"] if "refused" in row else f"{row['seconds']:7.2f} s  {row['cpu']:6.2f} s cpu"
            print(f"{times}  {row.get('products') or '':>6}  {row['kind']:11} {', '.join(row['what'])}", flush=True)
    if options.json:
        save("proof_times", rows, options.json)


if __name__ == "__main__":
    main()
