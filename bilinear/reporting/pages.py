"""The report as pages: Markdown and a self-contained HTML page. Templates print views and decide nothing."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

from bilinear.codegen.render import Filter, templates
from bilinear.reporting.charts import error_charts, flow, flow_note
from bilinear.reporting.coefficients import coefficients, readable, shortened
from bilinear.reporting.facts import ProductLine, ReportFacts
from bilinear.reporting.play import play, timeline
from bilinear.reporting.rows import (
    Rows,
    acceptance_rows,
    accuracy_notes,
    accuracy_table,
    fate_lines,
    kernel_table,
    lowered_rows,
    schedule_rows,
    scheme_rows,
    stage_title,
    summary,
)
from bilinear.resources import templates_folder
from bilinear.version import __version__
from bilinear.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_EQUATIONS = 60
"""The most failing equations on a page."""
MOST_LINES = 64
"""The most products written out as equations."""


def markdown(report: ReportFacts) -> str:
    """The report as Markdown."""
    return environment(html=False).get_template("report.md.j2").render(**_views(report))


def html(report: ReportFacts, date: str = "") -> str:
    """The report as one self-contained HTML page with styles, drawings and the script that plays schedules, without external files.

    The footer contains the `date` if one is given.
    """
    from markupsafe import Markup

    s = report.scheme
    plays = [play(schedule) for schedule in report.schedules]
    equations = [_equation(line) for line in s.products]
    shown = coefficients(s.tables, equations)
    needed = {"play.js": any(played.boards for played in plays), "zoom.js": bool(shown.pictures)}
    script = "".join(_script(name) for name, used in needed.items() if used)
    drawings = {
        "coefficients": shown,
        "equations": equations if len(equations) <= MOST_LINES else [],
        "flows": flow(s.tables, equations),
        "flow_note": flow_note(s.tables),
        "timelines": [timeline(schedule) for schedule in report.schedules],
        "wrong_outputs": frozenset(equation.output for equation in s.failing),
        "charts": error_charts(report.accuracy),
        "plays": plays,
        "script": Markup(script),  # our own text, and the policy lets only this one run
        "script_hash": b64encode(sha256(script.encode()).digest()).decode() if script else "",
        "date": date,
    }
    return environment(html=True).get_template("report.html.j2").render(**_views(report), **drawings)


@cache
def _script(name: str) -> str:
    """The script that plays a schedule or zooms into a picture."""
    return (templates_folder() / name).read_text(encoding="utf-8")


def _views(report: ReportFacts) -> dict[str, object]:
    """The values that both kinds of page print."""
    failing, rows = report.scheme.failing, scheme_rows(report.scheme)
    return {
        "report": report,
        "summary": summary(report),
        "scheme_rows": rows,
        "schedules": [(t, _without(schedule_rows(t), rows), fate_lines(t)) for t in report.schedules],
        "lowered": [rows for rows in (*map(lowered_rows, report.lowered), acceptance_rows(report)) if rows],
        "accuracy": accuracy_table(report),
        "accuracy_notes": accuracy_notes(report),
        "kernels": kernel_table(report.kernels),
        "failing": failing[:MOST_EQUATIONS],
        "failing_more": len(failing) - min(len(failing), MOST_EQUATIONS),
        "stage_title": stage_title,
        "version": __version__,
    }


def _without(rows: Rows, told: Rows) -> Rows:
    """The rows that were not shown already: a schedule may have its scheme's source."""
    return tuple(row for row in rows if row not in told)


def _equation(line: ProductLine) -> str:
    """A product as one equation: `M1 = (A11 + A22) (B11 + B22) -> C11 + C22`."""
    targets = "".join(f"{' − ' if c.startswith('-') else ' + '}{_factor(c)}{block}" for block, c in line.targets)
    left, right = (f"({text})" if " " in text or text.startswith("-") else text for text in (line.left, line.right))
    goes = targets.removeprefix(" + ").replace(" − ", "−", 1) if targets.startswith(" − ") else targets.removeprefix(" + ")
    return readable(f"{line.name} = {left} · {right}") + (f"  →  {goes}" if goes else "")


def _factor(coefficient: str) -> str:
    size = coefficient.removeprefix("-")
    return "" if size == "1" else f"{readable(size)} " if size.replace("/", "").isdigit() else f"({readable(size)}) "


@cache
def environment(html: bool) -> Environment:
    """The environment of pages.

    Values are made visible, and escaped in HTML, because names and citations are foreign text.
    """
    filters: dict[str, Filter] = {"readable": readable, "shortened": shortened, "cell": _cell, "code": _code}
    return templates(filters, autoescape=html, finalize=_finalized)


def _finalized(value: object) -> object:
    """A value as printed; text made by templates keeps its line breaks."""
    return visible(value) if type(value) is str else value


def _cell(value: object) -> str:
    """Text escaped for a Markdown table."""
    text = visible(str(value))
    text = re.sub(r"[\\`*~|\[\]]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)  # an underscore inside a word needs no escape
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _code(value: object) -> str:
    """Text between backticks, whatever backticks it contains."""
    text = visible(str(value))
    fence = "`" * (max((len(run) for run in "".join(c if c == "`" else " " for c in text).split()), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")
