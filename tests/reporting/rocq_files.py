"""Files of theorems for tests: many algorithms behind one prelude, and what the checker says of tables that may be wrong."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from bilinear.resources import templates_folder

MARK = "(* ---- The algorithm. ---- *)"
CLOSED = "Closed under the global context"
THEOREM = re.compile(r"Theorem \w+ : (multiplies|runs) (.*)\.\nProof\. .*\n")
INSTALLED = pytest.mark.skipif(shutil.which("coqc") is None, reason="coqc is not installed")
Test = TypeVar("Test", bound=Callable[..., object])


def needs_coqc(test: Test) -> Test:
    """Marks a test that runs coqc: it is slow, and skipped where there is none."""
    marked: Test = INSTALLED(pytest.mark.slow(test))
    return marked


def tail(text: str) -> str:
    """What a file says of its algorithm."""
    return text.split(MARK)[1]


def batch(tails: Mapping[str, str]) -> str:
    """One file for many algorithms, each in a module of its name."""
    modules = (f"\nModule {name}.\n{text}\nEnd {name}.\n" for name, text in tails.items())
    return (templates_folder() / "prelude.v").read_text(encoding="utf-8") + "".join(modules)


def coqc(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the proof assistant on a text."""
    (folder / "tested.v").write_text(text, encoding="utf-8")
    return subprocess.run(["coqc", "-q", "tested.v"], cwd=folder, capture_output=True, text=True, timeout=3000, check=False)


def verdicts(texts: Iterable[str], folder: Path) -> list[bool]:
    """What the checker answers for the last theorem of each text: for its schedule, else for its scheme."""
    asked = {f"M{i}": _asking(tail(text)) for i, text in enumerate(texts)}
    answers = "; ".join(f"{name}.answer" for name in asked)
    done = coqc(f"{batch(asked)}\nEval vm_compute in [{answers}].\n", folder)
    assert done.returncode == 0, done.stderr
    return [word == "true" for word in re.findall(r"true|false", done.stdout)]


def _asking(text: str) -> str:
    """The definitions of a text, and the checker's answer in the place of its theorems."""
    kind, words = THEOREM.findall(text)[-1]
    checker = {"multiplies": "check", "runs": "check_run"}[kind]
    return f"{re.sub('Print Assumptions .*', '', THEOREM.sub('', text))}\nDefinition answer := {checker} {words}."
