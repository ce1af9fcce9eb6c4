"""Listings of `bilinear plan` on pages: what the command prints, or its end where the page begins with `...`."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from shell import Shell

DOCS = Path(__file__).parents[2] / "docs"
LISTINGS = (
    ("models.md", "bilinear plan --shape 16384 --device h200 --levels winograd,winograd --explain"),
    ("chains.md", "bilinear plan --chain 16x1000x16384x10000x8x1024 --dtype float64 --device h200"),
    ("how-to/gram.md", "bilinear plan --gram --shape 16384 --device h200"),
)


@pytest.mark.parametrize(("page", "command"), LISTINGS)
def test_a_page_lists_what_the_command_prints(page: str, command: str, shell: Shell) -> None:
    listing = (DOCS / page).read_text(encoding="utf-8").split(f"$ {command}\n", 1)[1].split("```", 1)[0]
    wanted = [line.rstrip() for line in listing.rstrip("\n").splitlines()]
    printed = [line.rstrip() for line in shell(*shlex.split(command)[1:])[1].rstrip("\n").splitlines()]
    begins = wanted[0] == "..."
    assert wanted[begins:] == (printed[-len(wanted) + 1 :] if begins else printed)
