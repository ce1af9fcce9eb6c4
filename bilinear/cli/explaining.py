"""explain: the meaning of an error's code, from the page of all diagnostics."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from bilinear.cli import completing
from bilinear.cli.answers import print_fitted
from bilinear.cli.terminal import columns_of
from bilinear.errors import fail
from bilinear.resources import diagnostics_page

_JOINED = re.compile(r"(?<=\S)\n(?!To do:|[-*|] |\s)(?=\S)")


def explain(
    code: Annotated[
        str, typer.Argument(metavar="CODE", help="The code in brackets after `error`, such as E301.", autocompletion=completing.codes)
    ],
) -> None:
    """Explain the code of an error: its meaning, an example, and what to do."""
    text = diagnostics_page().read_text(encoding="utf-8")
    sections = {section[:4]: section for section in re.split(r"(?m)^##+ ", text) if re.match(r"E\d{3} ", section)}
    found = sections.get(code.strip().upper().strip("[]"))
    if found is None:
        raise fail(
            "E590", f"{code[:40]!r} is the code of no error", f"codes go from {min(sections)} to {max(sections)}: bilinear explain E301"
        )
    title, _, body = found.rstrip().partition("\n")
    print_fitted(lambda: f"{title}\n{_flowing(body) if columns_of(sys.stdout) is not None else body}")


def _flowing(text: str) -> str:
    """The text with one line for each paragraph, so that it can be wrapped again; examples stay as they are."""
    parts = re.split(r"(?s)(```.*?```)", text)
    return "".join(part if part.startswith("```") else _JOINED.sub(" ", part) for part in parts)
