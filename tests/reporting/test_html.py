"""The page: well-formed, complete without a network, harmless whatever the names are, and of a bounded size."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from html.parser import HTMLParser
from itertools import combinations

import pytest
from each_case import each
from reporting.reports import ALGORITHMS, alone, hostile, huge, of_scheme, proved, refused_schedule, refused_scheme

from bilinear.frontend import load
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient, generator
from bilinear.ir.ring import Ring
from bilinear.reporting.coefficients import coefficients, flow, flow_note, shade
from bilinear.reporting.pages import accuracy_charts
from bilinear.reporting.play import Timeline, timeline
from bilinear.reporting.report import Report

VOID = {"meta", "link", "br", "hr", "img", "input"}
EMPTY = {"path", "rect", "circle", "line", "input"}  # Elements without content, which end in themselves.


class Page(HTMLParser):
    """A page as its elements; an element that is not closed, or not open, is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in EMPTY
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def count(self, tag: str, css: str = "") -> int:
        return sum(1 for name, attributes in self.elements if name == tag and css in ("", *(attributes.get("class") or "").split()))


REPORTS: dict[str, Callable[[], Report]] = {
    **{name: partial(proved, name) for name in ALGORITHMS},
    "alone": partial(alone, "laderman"),
    "refused scheme": refused_scheme,
    "refused schedule": refused_schedule,
    "hostile": hostile,
    "49 products": lambda: of_scheme(huge(2)),
    "343 products": lambda: of_scheme(huge(3)),
}


@each("which", REPORTS)
def test_every_page_is_well_formed_and_loads_nothing(which: str) -> None:
    report = REPORTS[which]()
    text = report.html()
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>\n") and text.count("<html") == 1 and text == report.html()
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(svg)
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "base", "form"), tag
        assert not {"src", "href", "srcset", "style", "onerror", "onload", "onclick"} & attributes.keys(), attributes
    allowed = re.findall(r"script-src 'sha256-([^']*)'", text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert [b64encode(sha256(script.encode()).digest()).decode() for script in scripts] == allowed and text.count("<script") == len(scripts)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "@import" not in style and "url(" not in style and "http" not in style
    assert len(text) < 600_000


def test_images_have_words_for_those_who_do_not_see_them() -> None:
    page = Page(proved("msmes").html())
    drawings = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert all(attributes.get("aria-label") or attributes.get("aria-hidden") == "true" for attributes in drawings)
    assert "C12, C22 += A11 · B12 M3 = A11 · (B12 − B22)" in page.text and "A11 −= A22 A11 ✓" in page.text


def test_names_are_text() -> None:
    text = hostile().html()
    page = Page(text)
    assert "<script" not in text and "<img" not in text and "<iframe" not in text and text.count("</style>") == 1
    assert "</title></style><script>alert(1)</script>" in page.text
    assert "<b>M1</b>|'\"&" in page.text
    assert page.count("b", "") == 7  # the key of the shades alone


def test_verdicts_are_told() -> None:
    assert "✓ proved" in Page(proved("msmes").html()).text
    refused = Page(refused_scheme().html())
    assert "✗ refused" in refused.text and "Equations that fail" in refused.text and "C22 ✗" in refused.text
    mended = Page(refused_schedule().html()).text
    assert "E407" in mended and "A12 += 2 A22" in mended and "The schedule msmes is refused." in mended


def test_the_grid_holds_every_coefficient() -> None:
    report = alone("laderman")
    page = Page(report.html())
    entries = sum(len(row) for table in (report.scheme.tables.u, report.scheme.tables.v, report.scheme.tables.w) for row in table)
    shaded = sum(page.count("td", name) for name in ("p1", "p2", "p3", "n1", "n2", "n3"))
    assert shaded == entries and page.count("td", "z") == 23 * 27 - entries


@each(
    ("text", "expected"),
    [
        ("1", "p2"),
        ("-1", "n2"),
        ("1/2", "p1"),
        ("-3/4", "n1"),
        ("2", "p3"),
        ("-8", "n3"),
        ("3/2", "p3"),
        ("sqrt(3)", "p3"),
        ("-i", "n4"),
        ("1/2-1/2*sqrt(3)", "n1"),
        ("-1/2*sqrt(2)", "n1"),
        ("lambda^-1", "p4"),
        ("-lambda", "n4"),
        ("sqrt(-3)", "p4"),
        ("1/8+1/8*i", "p4"),
        ("1-lambda", "p4"),
    ],
)
def test_a_coefficient_is_shaded_by_sign_and_size(text: str, expected: str) -> None:
    assert shade(text) == expected


@pytest.mark.parametrize(("name", "told"), [("bini", "with λ"), ("alphaevolve_444", "with i"), ("accurate_sqrt3", "")])
def test_the_key_names_what_is_not_real(name: str, told: str) -> None:
    page = alone(name).html()
    assert all((f"</b> {words}<" in page) == (words == told) for words in ("with λ", "with i"))


def test_flow_has_an_edge_for_every_coefficient() -> None:
    tables = alone("laderman").scheme.tables
    (chart,) = flow(tables, tables.products)
    edges = [edge for product in chart.products for edge in product.edges]
    signs = Counter("n" if c.startswith("-") else "p" for table in (tables.u, tables.v, tables.w) for row in table for _, c in row)
    assert Counter(edge.sign for edge in edges) == signs
    assert all(0 < node.y < chart.height and 0 < node.x < chart.width for node in (*chart.blocks, *(p.node for p in chart.products)))
    assert {node.name for node in chart.blocks} == {*tables.a, *tables.b, *tables.c}


@pytest.mark.parametrize(("name", "columns"), [("winograd", 5), ("perminov_333", 0)])
def test_shared_sums_are_nodes_between_unless_they_are_too_deep(name: str, columns: int) -> None:
    """As many edges as the author wrote terms; sums without room for their columns are multiplied out."""
    s = alone(name).scheme
    (chart,) = flow(s.tables, s.tables.products, s.shared, s.subexpressions)
    sums = [product for product in chart.products if product.node.kind == "sum"]
    terms = sum(len(row) for own in s.shared for row in (*own.steps, *own.outputs))
    if not columns:
        assert s.shared and not sums and chart == flow(s.tables, s.tables.products)[0]
        return
    assert [product.node.name for product in sums] == [name for own in s.shared for name in own.names]
    assert len({product.node.x for product in sums}) == columns and sum(len(product.edges) for product in chart.products) == terms
    assert [product.equation for product in sums] == list(s.subexpressions)


def test_edges_tell_coefficients_beyond_one() -> None:
    strassen = load("strassen").scheme
    values: dict[int, Coefficient] = {0: generator("sqrt(3)"), 3: 2}
    u = LinearMap(4, (form(values), *strassen.u.outputs[1:]))
    tables = of_scheme(replace(strassen, u=u, ring=Ring("Q[sqrt(3)]"))).scheme.tables
    (chart,) = flow(tables, tables.products)
    assert sorted(edge.label for edge in chart.products[0].edges if edge.label) == ["2", "√3"]


def test_labels_of_edges_keep_apart() -> None:
    """Half way along, ten of bini's would stand upon each other."""
    tables = alone("bini").scheme.tables
    (chart,) = flow(tables, tables.products)
    edges = [edge for product in chart.products for edge in product.edges if edge.label]
    assert all(abs(a.x - b.x) > 7 or abs(a.y - b.y) > 11 for a, b in combinations(edges, 2))
    assert all(edge.start[0] < edge.x < edge.end[0] for edge in edges)


def test_large_schemes_degrade_and_say_so() -> None:
    medium, large = of_scheme(huge(2)).scheme.tables, of_scheme(huge(3)).scheme.tables
    assert coefficients(medium, medium.products).grids and flow(medium, medium.products)
    shown = coefficients(large, large.products)
    assert not shown.grids and shown.pictures and "too many to be read" in shown.note
    assert not flow(large, large.products) and "not drawn" in flow_note(large)


def boxes(time: Timeline) -> Counter[str]:
    return Counter(box.kind for band in time.bands for box in band.boxes)


def test_a_timeline_has_a_box_for_every_change() -> None:
    (schedule,) = proved("msmes").schedules
    time = timeline(schedule)
    assert boxes(time) == {"sum": 4 + 2 + 4, "product": 4 + 2, "restored": 2 + 4}
    assert [column.title for band in time.bands for column in band.columns] == [str(i) for i in range(1, 8)]
    lanes = [lane for band in time.bands for lane in band.lanes]
    assert [lane.name for lane in lanes] == ["M2", "M3", "M4", "M5", "M1", "M6", "M7"]
    assert ["".join(mark.sign or "o" for mark in lane.marks) for lane in lanes] == ["oo+−", "oo++", "oo++", "oo+−", "oo++", "oo+", "oo+"]
    texts = [box.text for band in time.bands for box in band.boxes]
    assert "A21+A22" in texts and "M1+M4−M5+M7" in texts and "✓ A12" in texts


def test_wires_are_coloured_by_the_state_of_their_block() -> None:
    (schedule,) = proved("msmes").schedules
    (band,) = timeline(schedule).bands
    (row,) = [row for row in band.rows if row.name == "A12"]
    stretches = sorted((wire.x1, wire.kind) for wire in band.wires if wire.y == row.y)
    kinds = [kind for _, kind in stretches]
    assert [kind for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind] == ["original", "sum", "restored"]
    assert all(0 <= wire.x1 <= wire.x2 <= band.width for wire in band.wires)


def test_a_schedule_of_many_blocks_has_a_wire_for_each_matrix() -> None:
    (schedule,) = proved("laderman").schedules
    time = timeline(schedule)
    assert [row.name for row in time.bands[0].rows] == ["A", "B", "C", "X", "Y", "P"] and "too many" in time.note
    assert [box.text for box in time.bands[0].boxes] == ["14 sums", "14 sums", "23 products", "9 products"]
    assert [lane.name for lane in time.bands[0].lanes] == ["23×"]


def test_long_schedules_are_cut_into_bands() -> None:
    (schedule,) = proved("msmes").schedules
    time = timeline(replace(schedule, stages=schedule.stages * 4))
    assert len(time.bands) > 3 and sum(len(band.columns) for band in time.bands) == 28
    assert max(band.width for band in time.bands) == time.width < 1100


def test_charts_show_both_bounds_of_both_types() -> None:
    charts = accuracy_charts(proved("msmes").accuracy)
    assert [chart.title.partition(",")[0] for chart in charts] == ["float64", "float32"]
    for chart in charts:
        assert [(series.name, len(series.points)) for series in chart.series] == [("always", 4), ("likely", 4)]
        for series in chart.series:
            heights = [point.y for point in series.points]
            assert heights == sorted(heights, reverse=True)
            assert all(chart.top <= p.y <= chart.bottom and chart.left <= p.x <= chart.right for p in series.points)
    assert accuracy_charts(()) == () == accuracy_charts(proved("msmes").accuracy[:1])


@pytest.mark.parametrize("name", ["msmes", "accurate_sqrt3", "dps_444"])
def test_marks_of_errors_fit_beside_the_axis(name: str) -> None:
    charts = accuracy_charts(proved(name).accuracy)
    assert charts
    for chart in charts:
        texts = [tick.text for tick in chart.down]
        assert len(set(texts)) == len(texts) and all(7.5 * len(text) < chart.left - 8 for text in texts), texts
