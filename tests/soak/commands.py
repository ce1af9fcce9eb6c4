"""Commands that write files, drawn; and what they may say when something stops them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from soak.case import Finding
from soak.children import Child
from soak.whole_files import check_output, check_text


@dataclass(frozen=True)
class Command:
    """The words of a command, what it writes, and for each the check that it is whole (whether it is there)."""

    words: tuple[object, ...]
    writes: tuple[tuple[Path, Callable[[Path], bool]], ...]

    def check_files(self) -> bool:
        """Every file is whole or absent; whether all are there."""
        return all(check(path) for path, check in self.writes)


def _page(path: Path) -> bool:
    return check_text(path, "</html>")


def _document(path: Path) -> bool:
    return check_text(path, "}")


def draw_command(generator: np.random.Generator, folder: Path, *, builds: bool = True) -> Command:
    """A command that writes into this folder."""
    page, text, output = folder / "page.html", folder / "text.bl", folder / "built"
    name = ("strassen", "winograd", "msmes", "laderman", "perminov_333")[int(generator.integers(5))]
    levels, certificate = int(generator.integers(1, 3)), folder / "certificate.json"
    reads = (text, lambda path: check_text(path, ""))
    commands = [
        Command(("verify", name, "--levels", levels, "--html", page), ((page, _page),)),
        Command(("verify", name, "--certificate", certificate), ((certificate, _document),)),
        Command(("verify", "naive2x2", "--levels", 3, "--json"), ()),
        Command(("schedule", ("strassen", "winograd")[levels - 1], "--in-place", "--output", text), (reads,)),
        Command(("schedule", name, "--depth-first", "--time", "1", "--output", text), (reads,)),
        Command(("plan", "--shape", 1000 * levels, "--device", "h200", "--explain", "--html", page), ((page, _page),)),
        Command(("combine", "4,4,5", "--output", text), (reads,)),
        Command(("export", name, "--to", "json", "--output", certificate), ((certificate, lambda path: check_text(path, "")),)),
    ]
    if builds:
        words = ("compile", "classical", "--arch", "sm_90", "--dtype", "float32", "--shape", "20", "--output", output)
        commands += 2 * [Command(words, ((output, check_output),))]
        commands += [Command(("discover", "2,2,2", "--rank", 7, "--time", "2s", "--output", text), (reads,))]
    return commands[int(generator.integers(len(commands)))]


def check_said(child: Child, code: int | None, codes: tuple[int, ...]) -> None:
    """It ended, in one of the ways that are allowed, and without a traceback."""
    if code is None:
        raise Finding(f"no end\n{child.text[-3000:]}")
    if "Traceback" in child.text:
        raise Finding(f"a traceback\n{child.text[-3000:]}")
    if code not in codes:
        raise Finding(f"exit code {code}\n{child.text[-3000:]}")
