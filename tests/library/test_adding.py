"""docs/adding-a-scheme.md: the table in it, the misprint in it, and what the page says comes out."""

from __future__ import annotations

import re
from pathlib import Path

from shell import Shell

from bilinear.frontend import load

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-scheme.md").read_text(encoding="utf-8")


def table() -> str:
    (found,) = re.findall(r"```\n(# [^\n]*\nscheme mine .*?)```", PAGE, re.DOTALL)
    return str(found)


def answers(command: str) -> list[str]:
    """What the page shows below a command, as the pieces between dots."""
    found = re.findall(rf"\$ {re.escape(command)}\n(.*?)(?:\n\$ |\n```)", PAGE, re.DOTALL)
    assert found, command
    return [piece.strip() for text in found for piece in re.split(r"^ *\.\.\.$", text, flags=re.MULTILINE) if piece.strip()]


def mended() -> str:
    """The table with the sign that the page tells to put back."""
    return table().replace("|   1   0   0   1 |  -1", "|  -1   0   0   1 |  -1")


def test_the_page_shows_what_comes_out(shell: Shell) -> None:
    begun = "new mine 3,2,2 --rank 11"
    assert shell(*begun.split())[1].strip() in answers(f"bilinear {begun}")
    Path("mine.bl").write_text(table(), encoding="utf-8")
    wrong, *right = answers("bilinear verify mine.bl")
    assert shell("verify", "mine.bl")[::2] == (1, f"{wrong}\n")
    assert mended() != table()
    Path("mine.bl").write_text(mended(), encoding="utf-8")
    status, told, _ = shell("verify", "mine.bl")
    assert status == 0 and right and all(piece in told for piece in right)


def test_searches_find_what_the_page_shows(shell: Shell) -> None:
    Path("mine.bl").write_text(mended(), encoding="utf-8")
    in_place, share = "schedule mine.bl --in-place -o mine_in_place.bl", "share mine.bl -o mine_shared.bl"
    assert shell(*in_place.split())[1].strip() in answers(f"bilinear {in_place}")
    assert answers("tail -11 mine_in_place.bl")[0] in Path("mine_in_place.bl").read_text(encoding="utf-8")
    assert shell(*share.split())[0] == 0
    every = next(line.split() for line in answers(f"bilinear {share}")[0].splitlines() if line.startswith("  all"))
    assert every[1::2] == ["22", "22", str(load("mine_shared.bl").scheme.additions)]
