"""Programs under mpirun."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BESIDE = Path(sys.executable).parent
MPIRUN = which("mpirun", path=f"{BESIDE}{os.pathsep}{os.environ.get('PATH', '')}")
PATIENCE = 600  # Seconds: a busy machine is slow, a program that hangs never ends.

needs_mpi = pytest.mark.skipif(MPIRUN is None or find_spec("mpi4py") is None, reason="no MPI here: scripts/test-distributed has one")
needs_torch = pytest.mark.skipif(
    MPIRUN is None or find_spec("mpi4py") is None or find_spec("torch") is None,
    reason="not both MPI and PyTorch here: scripts/test-torch has them",
)


def told_by(rank: int, output: str) -> str:
    """What one rank printed."""
    start = f"[{rank}] "
    return "\n".join(line.removeprefix(start) for line in output.splitlines() if line.startswith(start))


def mpirun(ranks: int, *words: str, patience: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments on so many ranks. Lines begin with the number of the rank that wrote them; the launcher's come last.

    Each rank writes to files of its own, because the launcher mixes lines that are written at once.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with TemporaryDirectory() as folder:
        patterns = ("-outfile-pattern", f"{folder}/out-%r", "-errfile-pattern", f"{folder}/err-%r")
        command = [str(MPIRUN), *patterns, "-n", str(ranks), sys.executable, *words]
        done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=patience, check=False)
        out, err = (_told(Path(folder), name, ranks) for name in ("out", "err"))
    return subprocess.CompletedProcess(command, done.returncode, out + done.stdout, err + done.stderr)


def _told(folder: Path, name: str, ranks: int) -> str:
    """What the ranks wrote, each line with the number of its rank."""
    files = [(rank, folder / f"{name}-{rank}") for rank in range(ranks)]
    lines = [(rank, line) for rank, file in files if file.exists() for line in file.read_text(encoding="utf-8").splitlines()]
    return "".join(f"[{rank}] {line}\n" for rank, line in lines)
