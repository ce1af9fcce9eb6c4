"""Figures as files: every figure of every page, standing alone, in colours for light and dark, and written whole."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from each_case import each
from reporting.reports import alone, hostile, huge, of_scheme, proved, refused_scheme
from shell import Shell

from bilinear.methods.planning import make_plan
from bilinear.planner.device_files import load_device
from bilinear.planner.problem import Problem
from bilinear.reporting.pages import svg_files
from bilinear.reporting.plans import plan_html

SVG = "{http://www.w3.org/2000/svg}"


PAGES: dict[str, Callable[[], str]] = {
    "msmes": lambda: proved("msmes").html(),
    "laderman": lambda: proved("laderman").html(),
    "alone": lambda: alone("winograd").html(),
    "hostile": lambda: hostile().html(),
    "refused": lambda: refused_scheme().html(),
    "huge": lambda: of_scheme(huge(3)).html(),
    "plan": lambda: plan_html(make_plan(Problem(4096, 4096, 4096), load_device("h200"), explain=True)),
}


@cache
def page(name: str) -> str:
    return PAGES[name]()


@each("name", PAGES)
def test_every_figure_stands_alone(name: str) -> None:
    files = svg_files(page(name))
    labelled = set(re.findall(r'<(?:svg|table)[^>]* id="(?!stages)([\w-]+)"', page(name)))
    assert files.keys() == {f"{figure}.svg" for figure in labelled} and files == svg_files(page(name))
    for text in files.values():
        root = ET.fromstring(text)
        assert root.tag == f"{SVG}svg" and root.get("aria-label")
        style = root.findtext(f"{SVG}style") or ""
        assert "var(" not in text and "url(" not in text and "<script" not in text and ":hover" not in style
        assert style.count("{") == style.count("}") and "@media (prefers-color-scheme: dark)" in style
        x, y, width, height = map(float, (root.get("viewBox") or "").split())
        backdrop = next(root.iter(f"{SVG}rect"))
        assert [float(backdrop.get(key) or 0) for key in ("x", "y", "width", "height")] == [x, y, width, height]


def test_colours_are_those_of_the_page() -> None:
    text = svg_files(page("msmes"))["flow.svg"]
    light, dark = text.split("@media")
    assert (
        ".flow path { fill: none; stroke-width: 1.4; stroke: #1f5fa8; opacity: .75; }" in light and ".flow path { stroke: #7db3ec }" in dark
    )


def test_the_key_and_the_title_are_in_the_file() -> None:
    files = svg_files(page("msmes"))
    words = {name: " ".join("".join(t.itertext()) for t in ET.fromstring(text).iter(f"{SVG}text")) for name, text in files.items()}
    assert "added" in words["flow.svg"] and "subtracted" in words["flow.svg"]
    assert "as the caller gave it" in words["schedule-1-1.svg"] and "as it was, again" in words["schedule-1-1.svg"]
    assert words["errors-1.svg"].startswith("float64, 4096 x 4096 matrices") and "always holds" in words["errors-1.svg"]


def test_the_table_of_coefficients_is_drawn_in_full() -> None:
    root = ET.fromstring(svg_files(page("laderman"))["coefficients.svg"])
    shown = [rect.get("class") for rect in root.iter(f"{SVG}rect") if rect.get("rx") is None and rect.get("class") != "backdrop"]
    tables = proved("laderman").scheme.tables
    assert len(shown) == 23 * 27 and len([css for css in shown if css != "z"]) == sum(
        len(row) for table in (tables.u, tables.v, tables.w) for row in table
    )


def test_names_stay_text() -> None:
    for text in svg_files(page("hostile")).values():
        assert "<script" not in text and "<b>M" not in text


def test_commands_write_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(monkeypatch, capsys)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert shell("verify", "msmes", "--svg", tmp_path / "new" / "folder", "--html", tmp_path / "page.html")[0] == 0
    whole = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert " on 1970-01-02." in whole
    written = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "new" / "folder").iterdir()}
    assert written == svg_files(whole)
    assert shell("plan", "--shape", "4096", "--device", "h200", "--svg", tmp_path)[0] == 0 and (tmp_path / "plan.svg").is_file()


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(monkeypatch, capsys)
    (tmp_path / "file").write_text("")
    status, out, err = shell("verify", "msmes", "--svg", tmp_path / "file")
    assert (status, out) == (1, "") and "error[E612]" in err and "it is not a folder" in err
    status, out, err = shell("verify", "pairs", "--svg", tmp_path)
    assert (status, out) == (1, "") and "error[E507]" in err
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    status, out, err = shell("verify", "msmes", "--svg", tmp_path / "new")
    assert (status, out) == (1, "") and "error[E627]: SOURCE_DATE_EPOCH is 'yesterday', which is not a time" in err
    assert not (tmp_path / "new").exists()


def test_a_page_without_figures_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("bilinear.reporting.pages.svg_files", lambda page: {})
    status, _, err = Shell(monkeypatch, capsys)("verify", "strassen", "--svg", tmp_path / "new")
    assert status == 1 and "error[E628]: the page has no figure to write" in err and not (tmp_path / "new").exists()


def test_other_programs_draw_the_files(tmp_path: Path) -> None:
    tool = shutil.which("rsvg-convert")
    if tool is None:
        pytest.skip("no rsvg-convert")
    for name, text in svg_files(page("msmes")).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        done = subprocess.run([tool, str(tmp_path / name), "-o", str(tmp_path / "a.png")], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and (tmp_path / "a.png").stat().st_size > 4000, done.stderr
