"""The first page: short, its commands print what it shows, its Python runs, and every link of every page leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOORS = re.findall(r"```\n\$ bilinear ([^\n]*)\n(.*?)```", README, re.DOTALL)
MOST_WORDS = 900


def prose(page: Path) -> str:
    """A page without its listings."""
    return re.sub(r"(?m)^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.*)$", prose(page))
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-") for title in headings}


def test_the_readme_is_short() -> None:
    """Beside the markup of its pictures."""
    assert len(re.sub(r"<picture>.*?</picture>", "", README, flags=re.DOTALL).split()) <= MOST_WORDS


def test_the_readme_has_three_doors() -> None:
    assert len(DOORS) == 3


@pytest.mark.parametrize(("arguments", "shown"), DOORS, ids=[arguments.split()[0] for arguments, _ in DOORS])
def test_a_command_prints_what_the_readme_shows(arguments: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    command = [sys.executable, "-m", "bilinear.cli", *arguments.split()]
    done = subprocess.run(command, cwd=tmp_path, env=None, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == ("errata" in arguments), done.stderr
    assert OutputChecker().check_output(shown, done.stdout + done.stderr, ELLIPSIS), done.stdout + done.stderr


def test_the_readmes_python_runs(tmp_path: Path) -> None:
    """With a check of the last result, which the first lines leave in `c`, by NumPy."""
    (listing,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    checked = listing + "print(np.abs(c - a @ b).max() < 1e-9)\n"
    done = subprocess.run([sys.executable, "-c", checked], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page)) + re.findall(r'(?:src|srcset)="([^"]+)"', prose(page))
    for target in (target for target in targets if "://" not in target):
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        assert found.exists(), target
        assert not anchor or found.suffix != ".md" or anchor in anchors(found), target
