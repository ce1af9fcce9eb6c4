"""How the command line spells what the library calls by the names of Python's arguments, and what typer says about a wrong option."""

from __future__ import annotations

import re
from dataclasses import replace

from bilinear.errors import Diagnostic

OTHER_NAMES = {"architectures": "arch", "dtypes": "dtype"}
ARGUMENTS = "device|inputs|workspace|levels|tolerance|accuracy|shape|floats|mode|dtype|dtypes|architectures|products|output|algorithm"
_ARGUMENT = re.compile(rf"\b({ARGUMENTS})=(?:'([^']*)'|([\w.]+))")
PLAINER = {
    "Input should be a valid integer, unable to parse string as an integer": "it takes an integer",
    "Input should be a valid number, unable to parse string as a number": "it takes a number",
}


def with_options(diagnostic: Diagnostic) -> Diagnostic:
    """The diagnostic with `device='h200'` written `--device h200`."""
    return replace(diagnostic, message=as_options(diagnostic.message), hints=tuple(map(as_options, diagnostic.hints)))


def as_options(text: str) -> str:
    """The text with Python's arguments written as options; an algorithm has none, and is only named."""
    return _ARGUMENT.sub(_option, text.replace("explain=True", "--explain"))


def _option(found: re.Match[str]) -> str:
    name, value = found[1], found[2] if found[3] is None else found[3]
    return f"algorithm {value}" if name == "algorithm" else f"--{OTHER_NAMES.get(name, name)} {value}"


def plainly(usage: str) -> str:
    """Typer's message about a wrong value, without the words of the library that read it."""
    for text, plain in PLAINER.items():
        usage = usage.replace(text, plain)
    return usage
