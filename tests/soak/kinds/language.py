"""Mutants of the language: what is proved is right, what is not is told at its place."""

from __future__ import annotations

import random
import re

from soak.case import Case
from soak.command import TOLD, Answer, call, drawn
from soak.exact import is_right, multiplies_digits
from soak.lockstep import IllFormed, Unknown, run_schedule
from soak.mangle import mangled_bytes, mangled_text
from soak.texts import grown_text, known_texts

from bilinear.errors import BilinearError
from bilinear.frontend import parse_source
from bilinear.frontend.algorithms import LoadedComplex, LoadedDigits, LoadedGram, load_any
from bilinear.frontend.printer import print_scheme
from bilinear.passes.order_products import mark_first_writes
from bilinear.source import Source

PICK = re.compile(r"hint: pick one: (\S+x\.bl:[\w-]+)")
MOST_PRODUCTS = 400  # Of a scheme that is multiplied out.


def run(case: Case) -> str:
    """Verify a text, and look at what is proved by other means."""
    draw, path = drawn(case), case.folder / "x.bl"
    path.write_bytes(_drawn_bytes(draw))
    views = draw.choice(((), (), (), ("--json",), ("--markdown",), ("--html", case.folder / "page.html")))
    answer = call("verify", path, *views)
    several = PICK.search(answer.err)
    if several is not None:
        answer = call("verify", several[1], *views)
    _require_places(answer, path.read_bytes())
    if not answer.status:
        _require_right(answer, draw)
    return answer.verdict


def _drawn_bytes(draw: random.Random) -> bytes:
    way = draw.random()
    if way < 0.35:
        text = mangled_text(draw.choice(known_texts()), draw)
    elif way < 0.7:
        text = grown_text(draw)
    elif way < 0.85:
        text = mangled_text(grown_text(draw), draw)
    else:
        return mangled_bytes(draw.choice((draw.choice(known_texts()), grown_text(draw))).encode("utf-8", "surrogatepass"), draw)
    return text.encode("utf-8", "surrogatepass")


def _require_places(answer: Answer, data: bytes) -> None:
    """Every diagnostic that names a place names one in the file, and its caret stands below the text that it quotes."""
    lines = [line.rstrip("\r") for line in data.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")]
    told = answer.err.split("\n")
    for number, line in enumerate(told):
        match = TOLD.match(line)
        if match is None:
            continue
        if match["file"] is None:
            if match["code"][:2] in ("E1", "E2") and "x.bl" not in line:
                raise answer.finding(f"{match['code']} names neither a place nor the file")
            continue
        if not match["file"].endswith("x.bl"):
            continue
        row, column = int(match["line"]), int(match["column"])
        if not (1 <= row <= len(lines) and 1 <= column <= len(lines[row - 1]) + 1):
            raise answer.finding(f"{row}:{column} is outside of the file")
        _require_caret(answer, told[number + 1 : number + 3], str(row))


def _require_caret(answer: Answer, shown: list[str], row: str) -> None:
    head = f"  {row} | "
    if len(shown) < 2 or not shown[0].startswith(head) or "^" not in shown[1]:
        raise answer.finding("a place is named, and not shown")
    below = shown[1][len(head) :]
    start = below.index("^")
    if below[:start].strip() or start > len(shown[0]) - len(head):
        raise answer.finding("a caret stands beside its line")


def _require_right(answer: Answer, draw: random.Random) -> None:
    """The tables multiply, the schedule runs in lock step, and what `show` would print is read as the same."""
    loaded = load_any(answer.words[1])
    if isinstance(loaded, LoadedDigits):
        if not multiplies_digits(loaded.scheme, draw):
            raise answer.finding(f"{loaded.scheme.name} is proved, and digits multiplied by it are wrong")
        return
    if isinstance(loaded, LoadedGram | LoadedComplex):
        return
    scheme = loaded.scheme
    if scheme.rank > MOST_PRODUCTS:
        return
    if not is_right(scheme):
        raise answer.finding(f"{scheme.format} over {scheme.ring} is proved and does not multiply")
    if loaded.schedule is not None:
        try:
            end = run_schedule(mark_first_writes(loaded.schedule), draw)
        except IllFormed as error:
            raise answer.finding(f"a schedule is proved that means nothing: {error}") from None
        except Unknown:
            return
        if not end.right or not end.kept >= set(loaded.schedule.restores):
            raise answer.finding(f"a schedule is proved, and C is {'right' if end.right else 'wrong'}; {sorted(end.kept)} come back")
    try:
        text = print_scheme(scheme)
    except BilinearError:
        return
    again = parse_source(Source("again.bl", text)).schemes[0]
    if again.tables != scheme.tables or again.ring != scheme.ring:
        raise answer.finding("what is printed is read as another scheme")
