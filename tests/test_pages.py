"""The tutorial, the how-to pages and more: commands print what the pages show, and the Python examples run, in the order of each page."""

from __future__ import annotations

from doctest import ELLIPSIS, OutputChecker
from pathlib import Path

import pytest
from pages import NEEDS, ROOT, UNSEEN, listings, run_page
from shell import Shell

from bilinear.emulator import skip_reason

NAMES = "index", "tutorial", "papers", "using-python", "certificate", "depth-first", "additions", "algebra", "chains", "formats"
PAGES = [ROOT / "docs" / f"{name}.md" for name in NAMES] + sorted((ROOT / "docs" / "how-to").glob("*.md"))
WITH_LISTINGS = [page for page in PAGES if listings(page)]
SLOW = dict.fromkeys(("tutorial", "algebra", "using-python", "complex"), pytest.mark.slow)  # seconds each


@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem, marks=SLOW.get(page.stem, ())) for page in WITH_LISTINGS])
def test_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: Shell
) -> None:
    """In this process; `scripts/test-wheel --tasks` runs commands as a user does."""
    if any("--built" in text for _, _, text in listings(page)) and (reason := skip_reason()) is not None:
        pytest.skip(reason)
    if any("import torch\n" in text for _, _, text in listings(page) if not NEEDS.match(text)):
        pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test-torch installs it and runs these examples")
    for name, value in UNSEEN.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    def program(*words: str) -> str:
        capsys.readouterr()  # what an example printed
        return "".join(shell(*words)[1:])

    run_page(page, tmp_path, program, {"PYTHONPATH": str(ROOT)})


def test_many_pages_have_examples() -> None:
    """Those that `scripts/test-wheel --tasks` works through are among them."""
    tasks = (ROOT / "scripts" / "test-wheel").read_text().partition("tasks='")[2].partition("'")[0].split()
    assert len(tasks) >= 6 and {ROOT / "docs" / f"{name}.md" for name in tasks} <= set(WITH_LISTINGS)


@pytest.mark.parametrize("shown", ["mine: proved\n...\n  additions 17 ...\n", "mine: proved\n"])
def test_a_wrong_output_is_noticed(shown: str) -> None:
    assert not OutputChecker().check_output(shown, "mine: proved\n\n  additions 18 = 5 on A\n", ELLIPSIS)
