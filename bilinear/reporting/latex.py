r"""Schemes and schedules as LaTeX tables, for papers: `$M_{1} = (A_{11} + A_{22}) (B_{11} + B_{22})$`; they need booktabs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bilinear.frontend.algorithms import AnyLoaded, LoadedDigits, of_blocks
from bilinear.frontend.printer import grouped_equations, scheme_equations
from bilinear.ir.digits import DigitScheme, digit_names
from bilinear.ir.schedule import AnySchedule, LinearStage, ProductStage, ScaledSchedule, Stage
from bilinear.ir.scheme import Scheme
from bilinear.reporting.facts import stage_moves
from bilinear.visible import visible

WIDEST = 90  # The longest equation, in letters of the language, whose column is not as wide as the text.
TALLEST = 40  # A table of more rows may go on on further pages (longtable).
GROUPS = ("Changes of basis", "Sums of blocks of $A$", "Sums of blocks of $B$", "Products", "Sums of products", "Blocks of $C$")
_TOKEN = re.compile(
    r"\s+|(?P<operator>[+-]?=)|sqrt\((?P<root>-?\d+)\)|(?P<power>alpha|beta|lambda)(?:\^(?P<exponent>-?\d+))?(?!\w)"
    r"|(?P<name>[A-Za-z_]\w*(?:\[\d+,\d+\]|\.\w+)?)|\[(?P<coefficient>[^\]]*)\]|(?P<number>\d+(?:/\d+)?)|(?P<sign>[-+*(),;])"
)
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


def latex(loaded: AnyLoaded) -> str:
    """The tables of an algorithm: of its scheme, and of its schedule; of a scheme of digits, also of the block schemes in it.

    Raises `BilinearError` (E241) if a name cannot be written, and E566 or E794 for one with other tables.
    """
    if isinstance(loaded, LoadedDigits):
        own = loaded.scheme
        blocks = [_scheme_table(part) for part in (own.above, own.inside) if part is not None]
        tables = [_digit_table(own), *dict.fromkeys(blocks)]
    else:
        blocked = of_blocks(loaded)
        tables = [_scheme_table(blocked.scheme), *([] if blocked.schedule is None else [_schedule_table(blocked.schedule)])]
    packages = "booktabs, longtable" if any("{longtable}" in table for table in tables) else "booktabs"
    more = "amsmath, amssymb, " if any(r"\mathbb" in table for table in tables) else "amsmath, "
    return f"% \\usepackage{{{more}{packages}}}\n" + "\n".join(tables)


def equation(text: str) -> str:
    r"""An equation of the language as mathematics: `A21 -= [1/2*sqrt(3)] A22` is `A_{21} \mathrel{-}= \tfrac{1}{2} \sqrt{3} A_{22}`."""
    return " ".join("".join(_pieces(text)).split())


def escaped(text: str) -> str:
    """Any text as LaTeX prints it; invisible characters are made visible."""
    return "".join(_SPECIAL.get(character, character) for character in visible(text, 10 * len(text) + 100))


def _pieces(text: str) -> Iterator[str]:
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(f"{text[place : place + 20]!r} is not of the language")
        yield _piece(found)
        place = found.end()


def _piece(found: re.Match[str]) -> str:
    if found["operator"]:
        return {"=": "=", "+=": r"\mathrel{+}=", "-=": r"\mathrel{-}="}[found["operator"]]
    if found["root"]:
        return rf"\sqrt{{{found['root']}}} "
    if found["power"]:
        return rf"\{found['power']}" + (f"^{{{found['exponent']}}} " if found["exponent"] else " ")
    if found["name"]:
        return _name(found["name"])
    if found["coefficient"] is not None:
        inner = re.sub(r"(?<=[^^(])([+-])", r" \1 ", found["coefficient"])  # a sign between two terms, not one of an exponent or a root
        return f"({equation(inner)})" if inner != found["coefficient"] else equation(inner)
    if found["number"]:
        above, _, below = found["number"].partition("/")
        return rf"\tfrac{{{above}}}{{{below}}} " if below else above
    sign = found["sign"] or " "
    return {"*": " ", ",": ", ", ";": r",\quad "}.get(sign, sign)


def _name(name: str) -> str:
    """A name with its number as an index: `M_{12}`, `A_{1,10}`, `A_{h}`; any other name as a word."""
    found = re.fullmatch(r"([A-Za-z])(?:(\d+)|\[(\d+,\d+)\]|\.(\w+))", name)
    if found is not None:
        return f"{found[1]}_{{{found[2] or found[3] or found[4]}}}"
    found = re.fullmatch(r"([A-Za-z]{2,})(\d+)", name)
    if found is not None:
        return rf"\mathit{{{found[1]}}}_{{{found[2]}}}"
    return name if len(name) == 1 and name.isalpha() else rf"\mathit{{{escaped(name)}}}"


def _ring(ring: str) -> str:
    plain = equation(re.sub(r"^[QZ]", "", ring).strip("[]")) if "[" in ring else ""
    if ring.startswith("Z/"):
        return rf"$\mathbb{{Z}}/{ring[2:]}$"
    return rf"$\mathbb{{{ring[0]}}}{f'[{plain}]' if plain else ''}$"


def _scheme_table(scheme: Scheme) -> str:
    groups = [(title, lines) for title, lines in zip(GROUPS, scheme_equations(scheme), strict=True) if lines]
    format = rf"$\langle {scheme.m},{scheme.k},{scheme.n};{scheme.rank} \rangle$"
    caption = f"The scheme {_code(scheme.name)}, {format} over {_ring(str(scheme.ring))}."
    return _equation_table(groups, f"{caption}{_source(scheme.citation)}", f"tab:{scheme.name}")


def _digit_table(scheme: DigitScheme) -> str:
    representation = scheme.representation
    caption = f"The scheme {_code(scheme.name)} of digits, {escaped(str(representation).removeprefix('digits '))}."
    label = f"tab:{scheme.name}"
    if representation.is_modular:
        moduli = ", ".join(map(str, representation.moduli))
        rows = [rf"$C = \sum_{{p}} e_{{p}} A_{{p}} B_{{p}} \bmod M$ for the moduli $p$: {moduli}; $M$ is their product"]
        rows.append(r"$e_{p} \equiv 1 \pmod{p}$, and $e_{p} \equiv 0$ modulo the others")
        return _table(rows, "p{\\linewidth}", caption + _source(scheme.citation), label)
    core, (left, right) = scheme.core, map(list, digit_names(representation))
    found = grouped_equations((core.u, core.v, core.w), scheme.products, (left, right, ["C"]))
    groups = [(title, lines) for title, lines in zip(GROUPS[1:], found, strict=True) if lines]
    return _equation_table(groups, caption + _source(scheme.citation), label)


def _schedule_table(schedule: AnySchedule) -> str:
    claims = [f"${equation(str(schedule.result))}$"] if isinstance(schedule, ScaledSchedule) else []
    claims += ["in place"] if schedule.in_place else []
    claims += [f"restores {' and '.join(f'${name}$' for name in schedule.restores)}"] if schedule.restores else []
    told = f": {', '.join(claims)}" if claims else ""
    caption = f"The schedule {_code(schedule.name)} of {_code(schedule.scheme)}{told}.{_source(schedule.citation)}"
    rows, widest = ["Stage & Kind & Steps, simultaneous within a stage", r"\midrule"], 0
    for number, stage in enumerate(schedule.stages, 1):
        texts = [move.text for move in stage_moves(stage)]
        heads = [f"{number} & {_kind(stage)}", *("&" for _ in texts[1:])]
        rows += [r"\addlinespace"] * (number > 1)
        rows += [f"{head} & ${equation(text)}$" for head, text in zip(heads, texts, strict=True)]
        widest = max(widest, *map(len, texts))
    last = "l" if widest <= WIDEST else r"p{0.75\linewidth}"
    return _table(rows, f"rl{last}", caption, f"tab:{schedule.name}")


def _kind(stage: Stage) -> str:
    if isinstance(stage, ProductStage):
        return "product"
    assert isinstance(stage, LinearStage)
    return "restore" if stage.restores else "linear"


def _equation_table(groups: Sequence[tuple[str, Sequence[str]]], caption: str, label: str) -> str:
    rows: list[str] = []
    for title, lines in groups:
        rows += [*([r"\midrule"] if rows else []), rf"\emph{{{title}}}", *(f"${equation(line)}$" for line in lines)]
    widest = max(len(line) for _, lines in groups for line in lines)
    return _table(rows, "l" if widest <= WIDEST else r"p{\linewidth}", caption, label)


def _table(rows: Sequence[str], columns: str, caption: str, label: str) -> str:
    r"""The rows as a table, or as a longtable; rules and spaces, which begin with a command that ends in no cell, stand as they are."""
    body = [row if row in (r"\midrule", r"\addlinespace") else rf"{row} \\" for row in rows]
    if len(rows) > TALLEST:
        lines = [rf"\begin{{longtable}}{{@{{}}{columns}@{{}}}}", rf"  \caption{{{caption}}} \label{{{label}}} \\", r"  \toprule"]
        return "\n".join([*lines, *(f"  {row}" for row in body), r"  \bottomrule", r"\end{longtable}"]) + "\n"
    lines = [r"\begin{table}", r"  \centering", rf"  \caption{{{caption}}}", rf"  \label{{{label}}}"]
    lines += [rf"  \begin{{tabular}}{{@{{}}{columns}@{{}}}}", r"    \toprule", *(f"    {row}" for row in body), r"    \bottomrule"]
    return "\n".join([*lines, r"  \end{tabular}", r"\end{table}"]) + "\n"


def _code(name: str) -> str:
    return rf"\texttt{{{escaped(name)}}}"


def _source(citation: str) -> str:
    return f" {escaped(citation)}" if citation else ""
