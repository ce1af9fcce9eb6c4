"""How long the walk takes to known ranks: seconds of the search for five seeds, and their median. Needs no GPU.

    python benchmarks/flip_graphs.py [--json RESULT.json] [--seeds N] [--time SECONDS] [--ring Z/2 [--lift]] [--walkers N] [M,K,N,RANK ...]

Over Z/2 what is found is also lifted to Z. Seconds are those of the walk, and of all its threads on the processor, which other programs
on the machine affect less; Python, numba and compiling the walk come before: they are in the seconds of the whole command, for <2,2,2;7>.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import median, save

from bilinear.discovery.flip_search import Found, discover
from bilinear.discovery.lift import lift
from bilinear.discovery.tasks import Task
from bilinear.errors import BilinearError

TARGETS = ("2,2,2,7", "2,2,3,11", "2,3,3,15", "3,3,3,23")
COLUMNS = ("scheme", "found", "median", "least", "most", "median_cpu", "median_steps", "lifted")
ROW = "{:<12} {:>6} {:>9} {:>9} {:>9} {:>10} {:>14} {:>7}"


def main() -> None:
    """Search, print the table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=TARGETS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--time", type=float, default=120.0, help="the longest search, in seconds")
    parser.add_argument("--ring", default="Z")
    parser.add_argument("--walkers", type=int, default=8)
    parser.add_argument("--lift", action="store_true")
    arguments = parser.parse_args()
    discover(Task((2, 2, 2), 7, ring=arguments.ring), 60)  # compiles
    print(ROW.format("scheme", "found", "median s", "least", "most", "median cpu", "median steps", "lifted"))
    rows: list[dict[str, Any]] = []
    for target in arguments.targets:
        m, k, n, rank = map(int, target.split(","))
        finds, cpu = [], []
        for seed in range(1, arguments.seeds + 1):
            begin = time.process_time()
            finds.append(discover(Task((m, k, n), rank, seed, arguments.walkers, arguments.ring, lifted=arguments.lift), arguments.time))
            cpu.append(time.process_time() - begin)
        rows.append({"ring": arguments.ring, "walkers": arguments.walkers, **_row(f"<{m},{k},{n};{rank}>", finds, cpu)})
        print(ROW.format(*(rows[-1][name] for name in COLUMNS)), flush=True)
    rows.append(_whole_command())
    print("the whole command for <2,2,2;7>: {with_compiling} s".format(**rows[-1]))
    if arguments.json is not None:
        save("discovery", rows, arguments.json)


def _row(scheme: str, finds: list[Found], cpu: list[float]) -> dict[str, Any]:
    """One target; a search that did not reach it counts with the time that it had."""
    seconds = [found.seconds for found in finds]
    return {
        "scheme": scheme,
        "seeds": len(finds),
        "found": sum(found.reached for found in finds),
        "median": round(median(seconds), 3),
        "least": round(min(seconds), 3),
        "most": round(max(seconds), 3),
        "median_cpu": round(median(cpu), 2),
        "cpu": [round(s, 2) for s in cpu],
        "lifted": sum(map(_is_lifted, finds)),
        "seconds": [round(s, 3) for s in seconds],
        "ranks": [found.rank for found in finds],
        "additions": [found.scheme.additions if found.scheme else None for found in finds],
        "median_steps": int(median([float(found.total) for found in finds])),
        "steps_per_second": round(sum(found.total for found in finds) / sum(seconds)),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def _is_lifted(found: Found) -> bool:
    """True if the scheme holds over Z, or is lifted there."""
    if found.scheme is None or found.scheme.ring.name != "Z/2":
        return found.scheme is not None
    try:
        return lift(found.scheme).scheme.ring.name == "Z"
    except BilinearError:
        return False


def _whole_command() -> dict[str, Any]:
    """Seconds from the shell and back."""
    command = [sys.executable, "-m", "bilinear.cli", "discover", "2,2,2", "--rank", "7"]
    with tempfile.TemporaryDirectory() as here:
        begin = time.perf_counter()
        subprocess.run(command, cwd=here, check=True, capture_output=True)
        return {"scheme": "command for <2,2,2;7>", "with_compiling": round(time.perf_counter() - begin, 1)}


if __name__ == "__main__":
    main()
