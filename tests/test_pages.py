"""The tutorial and the how-to pages: commands print what the pages show, and the Python examples run, in the order of each page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path

import pytest

from bilinear.emulator import skip_reason

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "docs" / name for name in ("index.md", "tutorial.md", "papers.md")] + sorted((ROOT / "docs" / "how-to").glob("*.md"))
LISTING = re.compile(r'^```(bl|console|python)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
ON_A_GPU = "# needs a GPU\n"


def listings(page: Path) -> list[tuple[str, str, str]]:
    """Language, file name and text of the listings that are run."""
    return LISTING.findall(page.read_text(encoding="utf-8"))


WITH_LISTINGS = [page for page in PAGES if listings(page)]


def printed(command: str, folder: Path) -> str:
    """What a command of a page prints where no GPU is to be seen."""
    words = shlex.split(command)
    if words[0] == "bilinear":
        words = [sys.executable, "-m", "bilinear.cli", *words[1:]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "120"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


def check_console(text: str, folder: Path) -> None:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, shown = part.split("\n", 1)
        found = "".join(f"{line.rstrip()}\n" for line in printed(command, folder).splitlines())
        assert OutputChecker().check_output(shown, found, ELLIPSIS), f"{command} prints\n{found}"


@pytest.mark.parametrize("page", WITH_LISTINGS, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = listings(page)
    if any("--built" in text for _, _, text in found) and (reason := skip_reason()) is not None:
        pytest.skip(reason)
    if any("import torch\n" in text for _, _, text in found if not text.startswith(ON_A_GPU)):
        pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test-torch installs it and runs these examples")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, object] = {}
    for language, file, text in found:
        if language == "console":
            check_console(text, tmp_path)
        elif language == "bl" and file:
            (tmp_path / file).write_text(text, encoding="utf-8")
        elif language == "python":
            code = compile(text, str(page), "exec")
            if not text.startswith(ON_A_GPU):
                exec(code, names)


def test_most_pages_have_examples() -> None:
    assert {"tutorial", "in-place", "memory", "accuracy", "own-scheme", "papers", "index"} <= {page.stem for page in WITH_LISTINGS}


@pytest.mark.parametrize("shown", ["mine: proved\n...\n  additions 17 ...\n", "mine: proved\n"])
def test_a_wrong_output_is_noticed(shown: str) -> None:
    assert not OutputChecker().check_output(shown, "mine: proved\n\n  additions 18 = 5 on A\n", ELLIPSIS)
