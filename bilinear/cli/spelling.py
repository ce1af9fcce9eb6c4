"""How the command line spells the arguments of Python's functions, and how it reports wrong options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bilinear.errors import Diagnostic

OTHER_NAMES = {"architectures": "arch", "dtypes": "dtype", "ring": "over", "format": "from"}
ARGUMENTS = (
    "device|inputs|workspace|levels|tolerance|accuracy|shape|floats|mode|contention|modulus|dtype|dtypes|architectures|products|output|algorithm|"
    "ring|entry|format|before|beta|confidence|vectors|seed"
)
_ARGUMENT = re.compile(rf"(?<![\w'\"/.-])({ARGUMENTS})=(?:'([^']*)'|(-?[\w.]+)|(?=[\s,.;:)]|\Z))")
"""Not inside of quotes, or of a path: so are names of files that users chose."""
_MODULAR = re.compile(r"matmul\(\.\.\., modulus=([0-9]+)\)")
CALLS = {
    "bilinear.plan(..., explain=True)": "`bilinear plan --explain`",
    "bilinear.plan(...)": "`bilinear plan`",
    "explain=True": "--explain",
    "transposed=True": "--c columns",
    "transposed=False": "--c rows",
    ", 'unlimited', or an array of one dimension": " or 'unlimited'",
    "give algorithm= and levels= to matmul": "`bilinear run NAME --levels 2` runs levels of one algorithm",
}
OLDER = {
    "bench": {"--sizes": "--shape", "--dtypes": "--dtype"},
    "tune": {"--search": "--shape", "--dtypes": "--dtype"},
    "discover": {"--ring": "--over"},
    "list": {"--ring": "--over"},
    "import": {"--ring": "--over", "--format": "--from"},
}
"""By command, older names of options: they still work, and a note gives the new name."""
OF_SEVERAL = "--sizes", "--search"  # Older options of values separated by commas; new ones are repeated.
WITHOUT_ARGUMENTS = "list", "plan", "tune", "warm", "bench", "preload", "doctor"
"""Commands for which every word after `--json` is a file."""
PLAINER = {
    "Input should be a valid integer, unable to parse string as an integer": "it takes an integer",
    "Input should be a valid number, unable to parse string as a number": "it takes a number",
}


def with_options(diagnostic: Diagnostic) -> Diagnostic:
    """The diagnostic with `device='h200'` written `--device h200`."""
    notes, hints = (tuple(map(as_options, texts)) for texts in (diagnostic.notes, diagnostic.hints))
    return replace(diagnostic, message=as_options(diagnostic.message), notes=notes, hints=hints)


def as_options(text: str) -> str:
    """The text with Python's calls and arguments written as commands and options; an algorithm has none, and is only named."""
    for call, command in CALLS.items():
        text = text.replace(call, command)
    return _ARGUMENT.sub(_option, _MODULAR.sub(r"`bilinear run --modulus \g<1>`", text))


def _option(found: re.Match[str]) -> str:
    name, value = found[1], "''" if found[2] == "" else found[2] or found[3] or ""
    return (f"algorithm {value}" if name == "algorithm" else f"--{OTHER_NAMES.get(name, name)} {value}").rstrip()


def plainly(usage: str) -> str:
    """Typer's message about a wrong value, without the words of the library that read it."""
    for text, plain in PLAINER.items():
        usage = usage.replace(text, plain)
    return usage


def as_spelled_now(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line with today's names of options, and the new name of each older one.

    `--json` without a file becomes `--json -`. The word after it is a file if its name ends in .json, or if it can be nothing else.
    """
    command = next((word for word in words if not word.startswith("-")), "")
    found: list[str] = []
    notes: list[str] = []
    for number, word in enumerate(words):
        if word == "--":
            return [*found, *words[number:]], notes
        if number and words[number - 1] in OLDER.get(command, {}):
            continue  # the value of an older option
        name, is_given, value = word.partition("=")
        now = OLDER.get(command, {}).get(name)
        if now is not None:
            told = list(_renamed(name, now, value if is_given else "".join(words[number + 1 : number + 2])))
            found += told
            notes.append(f"note: {name} is called {now} now: {' '.join(told)}")
        else:
            found.append(word)
        if word == "--json" and not _is_file(command, "".join(words[number + 1 : number + 2])):
            found.append("-")
    return found, notes


def _renamed(name: str, now: str, value: str) -> Iterator[str]:
    for one in value.split(",") if name in OF_SEVERAL else [value]:
        yield from (now, one)


def _is_file(command: str, word: str) -> bool:
    if word == "-" or word.endswith(".json") or word.startswith("/dev/"):
        return True
    return command in WITHOUT_ARGUMENTS and bool(word) and not word.startswith("-")
