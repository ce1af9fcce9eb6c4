"""Programs under mpirun."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BESIDE = Path(sys.executable).parent
MPIRUN = which("mpirun", path=f"{BESIDE}{os.pathsep}{os.environ.get('PATH', '')}")
PATIENCE = 600
"""Seconds: a busy machine is slow, a program that hangs never ends."""

needs_mpi = pytest.mark.skipif(MPIRUN is None or find_spec("mpi4py") is None, reason="no MPI here: scripts/test-distributed has one")


def mpirun(ranks: int, *words: str, patience: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments on so many ranks; what each prints begins with its number."""
    command = [str(MPIRUN), "-prepend-rank", "-n", str(ranks), sys.executable, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=patience, check=False)
