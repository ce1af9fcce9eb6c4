"""Everything that several GPUs of one host run, part by part: a part that fails or takes too long does not stop the next one.

python benchmarks/machines.py --out FOLDER --parts facts,ranks,dtensors,faults,host,bars

Each part has its own limit of seconds; its whole output goes to FOLDER/machines.log, its last lines and a table of all parts are printed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TextIO

from common import need_gpu

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TESTS = ROOT / "tests" / "network"
LAST = 30
"""Lines of a part that are printed."""
FACTS = """
import os, cupy, torch
from cupy.cuda import nccl, runtime
count = runtime.getDeviceCount()
gpus = [runtime.getDeviceProperties(i) for i in range(count)]
print(*(gpu['name'].decode() + ' ' + bytes(gpu['uuid'])[:16].hex() for gpu in gpus))
print('cupy', cupy.__version__, 'nccl', nccl.get_version() if nccl.available else None, 'torch', torch.__version__)
peers = [runtime.deviceCanAccessPeer(i, j) for i in range(count) for j in range(count) if i != j]
print('peers', peers, 'cores', os.cpu_count())
"""


ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}
"""Without the last one Open MPI binds all threads of a rank to one core."""
FAULTS = {
    "raised": "error[E764]: rank 1 failed: MemoryError",
    "aborted": "error[E764]: rank 1 failed: BilinearError: error[E768]",
    "ended after one": "error[E764]: rank 1 has ended",
    "died": "Killed",
    "stopped": "error[E764]: rank 1 has given no sign of life",
}
"""What rank 1 does in a product, and what the other one, or the launcher, says."""


@dataclass(frozen=True)
class Part:
    """A command, the most seconds that it may take, and whether it is to fail."""

    name: str
    limit: float
    command: tuple[str, ...]
    fails: bool = False
    folder: Path = TESTS
    wanted: str = ""


def ranks(count: int, *words: str) -> tuple[str, ...]:
    return "mpirun", "-n", str(count), sys.executable, *words


def parts(out: Path) -> Iterator[Part]:
    """All parts, in their order."""
    python = sys.executable
    yield Part("facts", 60, (python, "-c", FACTS))
    yield Part("links", 30, ("nvidia-smi", "topo", "-m"))
    yield Part("ranks", 120, ranks(2, "exact.py", "cuda"), wanted="rank 1: ")
    yield Part("one rank", 90, ranks(1, "exact.py", "cuda"), wanted="rank 0: ")
    yield Part("dtensors", 120, ranks(2, "dtensors.py", "exact", "cuda"), wanted="rank 1: ")
    for way, error in FAULTS.items():
        yield Part(f"faults {way}", 30, ranks(2, "faulty.py", way, "cuda"), fails=True, wanted=error)
    yield Part("faults missing", 30, ranks(3, "faulty.py", "missing", "cuda"), fails=True, wanted="invalid device ordinal")
    tests = "-p", "no:cacheprovider", "--require-gpu", "tests/runtime/test_several_gpus.py"
    yield Part("host", 150, (python, "-m", "pytest", "-q", *tests), folder=ROOT, wanted="passed")
    yield Part("shared GPU", 60, ranks(3, "exact.py", "cuda"), wanted="rank 2: ")
    yield Part(
        "bench", 60, ranks(2, "-m", "bilinear.distributed.bench", "--gpu", "--shape", "4096", "--accuracy", "twice"), wanted="by NCCL"
    )
    small = "--sizes", "4096", "--rounds", "1"
    yield Part("small", 120, ranks(2, "many_gpus.py", *small, "--json", str(out / "many-gpus-small.json")), folder=HERE)
    usual = "--sizes", "16384,32768", "--rounds", "2"
    yield Part("bars", 240, ranks(2, "many_gpus.py", *usual, "--json", str(out / "many-gpus.json")), folder=HERE)
    large = "--sizes", "65536", "--rounds", "1"
    yield Part("large", 240, ranks(2, "many_gpus.py", *large, "--json", str(out / "many-gpus-65536.json")), folder=HERE)
    streamed = {
        "streamed": ("--n", "16384", "--memory", "3GiB"),
        "streamed pinned": ("--n", "16384", "--memory", "3GiB", "--pinned"),
        "streamed on gpu": ("--n", "32768", "--dtype", "float64", "--gpus", "2", "--on-gpu"),
    }
    for name, words in streamed.items():
        yield Part(name, 90, (python, "out_of_core.py", *words, "--json", str(out / f"{name.replace(' ', '-')}.json")), folder=HERE)
    whole = "--n", "98304", "--memory", "60GiB", "--json", str(out / "out-of-core.json")
    yield Part("out of core", 300, (python, "out_of_core.py", *whole), folder=HERE)


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--parts", default="", help="the first words of the names of parts, comma-separated; by default all")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin with no further part after so long")
    asked, begun, table = parser.parse_args(), perf_counter(), []
    need_gpu()
    asked.out.mkdir(parents=True, exist_ok=True)
    wanted = tuple(asked.parts.split(","))
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ.update(PYTHONPATH=f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", PYTHONUNBUFFERED="1")
    with (asked.out / "machines.log").open("a", encoding="utf-8") as log:
        for part in parts(asked.out.resolve()):
            if not part.name.startswith(wanted):
                continue
            if perf_counter() - begun > asked.seconds:
                table.append((part.name, "not begun", 0.0))
                continue
            table.append(run(part, min(part.limit, asked.seconds - (perf_counter() - begun)), log))
    print("\n=== all parts")
    for name, found, seconds in table:
        print(f"{name:20}{found:12}{seconds:8.1f} s")
    return int(any(found not in ("good", "not begun") for _, found, _ in table))


def run(part: Part, limit: float, log: TextIO) -> tuple[str, str, float]:
    """The name of a part, how it ended, and its seconds."""
    print(f"\n=== {part.name} (at most {limit:.0f} s)", flush=True)
    begin = perf_counter()
    try:
        process = subprocess.Popen(
            part.command,
            cwd=part.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        print(error, flush=True)
        return part.name, "missing", 0.0
    try:
        output, _ = process.communicate(timeout=limit)
        found = "good" if (process.returncode != 0) == part.fails and part.wanted in output else "FAILED"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        found = "TOO LONG"
    seconds = perf_counter() - begin
    print(f"=== {part.name}: {found} after {seconds:.1f} s, exit code {process.returncode}\n{output}", file=log, flush=True)
    lines = output.splitlines()
    shown = (
        [line for line in lines if line.startswith(("bilinear.errors", "error["))][:2] if found == "good" and part.fails else lines[-LAST:]
    )
    print("\n".join(line[:220] for line in shown), flush=True)
    print(f"--- {found}, {seconds:.1f} s, exit code {process.returncode}", flush=True)
    return part.name, found, seconds


if __name__ == "__main__":
    sys.exit(main())
