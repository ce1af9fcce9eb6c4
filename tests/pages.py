"""The listings of a page, run in its order: commands print what the page shows, Python examples run.

As a program (`python pages.py PAGE ...`, which needs the standard library alone) it does what each page says in an empty folder of its
own, with the `bilinear` and the Python of the environment in which it runs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from doctest import ELLIPSIS, OutputChecker
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LISTING = re.compile(r'^```(bl|console|python)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"# needs (?:a GPU|(\w+))\n")
"""The first line of an example that does not run everywhere: on a GPU, or with another package."""
Program = Sequence[str] | Callable[..., str]
UNSEEN = {"CUDA_VISIBLE_DEVICES": "", "COLUMNS": "120"}
"""Pages show what is printed where no GPU is to be seen."""


def listings(page: Path) -> list[tuple[str, str, str]]:
    """Language, file name and text of the listings that are run."""
    return LISTING.findall(page.read_text(encoding="utf-8"))


def printed(command: str, folder: Path, program: Program, environment: Mapping[str, str]) -> str:
    """What a command of a page prints; `program` is the command that runs `bilinear`, or prints what that prints with these words."""
    words = shlex.split(command)
    if words[0] == "bilinear" and callable(program):
        return program(*words[1:])
    words = [*{"bilinear": () if callable(program) else program, "python": [sys.executable]}.get(words[0], words[:1]), *words[1:]]
    done = subprocess.run(words, cwd=folder, env={**os.environ, **UNSEEN, **environment}, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def check_console(text: str, folder: Path, program: Program, environment: Mapping[str, str]) -> None:
    """Run the commands of a listing; raises `AssertionError` where one prints something else than is shown."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, shown = part.split("\n", 1)
        found = "".join(f"{line.rstrip()}\n" for line in printed(command, folder, program, environment).splitlines())
        if not OutputChecker().check_output(shown, found, ELLIPSIS):
            raise AssertionError(f"{command} prints\n{found}")


def run_page(page: Path, folder: Path, program: Program, environment: Mapping[str, str]) -> None:
    """Do in a folder, which is the current one, what a page says."""
    names: dict[str, object] = {}
    for language, file, text in listings(page):
        if language == "console":
            check_console(text, folder, program, environment)
        elif language == "bl" and file:
            (folder / file).write_text(text, encoding="utf-8")
        elif language == "python":
            code = compile(text, str(page), "exec")
            needed = NEEDS.match(text)
            if needed is None or (needed[1] and find_spec(needed[1]) is not None):
                exec(code, names)


def main(pages: Sequence[str]) -> None:
    """Do what pages say; the folder `examples` is the only thing of the checkout that lies beside."""
    os.environ |= UNSEEN
    for name in pages:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            os.environ["XDG_DATA_HOME"] = f"{place}/.data"
            shutil.copytree(ROOT / "examples", folder / "examples")
            os.chdir(folder)
            run_page(ROOT / name, folder, ["bilinear"], {})
            os.chdir("/")
        print(f"done by the commands of its page: {name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
