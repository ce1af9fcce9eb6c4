"""What is drawn from committed results is what they say: tables and pictures of the README and of pages on results and models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


SCRIPTS = "tables.py", "picture.py", "thesis.py", "tsm2_tables.py", "modes.py", "ranks.py", "house.py", "error_speed.py", "recording.py"


@pytest.mark.sample(1)
@pytest.mark.parametrize("script", SCRIPTS)
def test_figures_are_those_of_the_results(script: str) -> None:
    done = subprocess.run([sys.executable, ROOT / "benchmarks" / script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
