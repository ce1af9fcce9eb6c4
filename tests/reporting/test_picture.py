"""The picture of a large scheme: every coefficient once, in an order that puts like rows and columns together, and zoomed in a browser."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from each_case import each
from reporting.reports import huge, of_scheme
from reporting.test_play import run

from bilinear.ir.linear import transposed_rows
from bilinear.reporting.coefficients import Picture, coefficients, order_by_likeness
from bilinear.reporting.facts import Entries, ExpandedTables, readable


def drawn(picture: Picture) -> Counter[tuple[str, str, str]]:
    """The (product, block, value) of every mark, read from the paths as a drawing program reads them."""
    found: Counter[tuple[str, str, str]] = Counter()
    for marks in picture.marks:
        x = y = 0.0
        for dx, dy, length in re.findall(r"[Mm](-?[\d.]+) (-?\d+)h(\d+)", marks.path):
            x, y = x + float(dx), y + float(dy)
            column = int(x // 10)
            (block,) = [p.columns[column - p.left] for p in picture.parts if p.left <= column < p.left + len(p.columns)]
            found[picture.rows[int(y // 10)], block, marks.value] += 1
            x += float(length)
    return found


def written(tables: ExpandedTables) -> Counter[tuple[str, str, str]]:
    w = transposed_rows(tables.w, len(tables.products))
    return Counter(
        (product, names[column], readable(value))
        for table, names in ((tables.u, tables.a), (tables.v, tables.b), (w, tables.c))
        for product, row in zip(tables.products, table, strict=True)
        for column, value in row
    )


@pytest.mark.slow
def test_a_picture_has_every_coefficient_once() -> None:
    tables = of_scheme(huge(3)).scheme.tables
    (picture,) = coefficients(tables, tables.products).pictures
    assert drawn(picture) == written(tables)
    assert sorted(picture.rows) == sorted(tables.products)


def test_the_page_holds_the_whole_picture() -> None:
    """Text from outside is cut short; a path is not."""
    report = of_scheme(huge(3))
    (picture,) = coefficients(report.scheme.tables, report.scheme.tables.products).pictures
    page = report.html()
    assert all(f'd="{marks.path}"' in page for marks in picture.marks)
    assert max(len(marks.path) for marks in picture.marks) > 10_000


@each("seed", range(20))
def test_rows_and_columns_are_sorted_by_what_they_share(seed: int) -> None:
    rng = random.Random(seed)
    rows, widths = rng.randint(1, 9), [rng.randint(1, 6) for _ in range(3)]
    dense = [[[rng.randint(0, 1) for _ in range(width)] for _ in range(rows)] for width in widths]
    tables: list[list[Entries]] = [[tuple((j, "1") for j, c in enumerate(row) if c) for row in table] for table in dense]
    order, columns = order_by_likeness(tables, widths)
    assert sorted(order) == list(range(rows)) and [sorted(own) for own in columns] == [list(range(width)) for width in widths]
    words = [[table[row][j] for table, own in zip(dense, columns, strict=True) for j in own] for row in order]
    assert words == sorted(words, reverse=True)
    for table, own in zip(dense, columns, strict=True):
        down = [[table[row][j] for row in order] for j in own]
        assert down == sorted(down, reverse=True)


@pytest.mark.slow
def test_a_browser_zooms_by_keys_and_tells_the_product(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no browser")
    report = of_scheme(huge(3))
    tables = report.scheme.tables
    probe = """<script>
      const svg = document.querySelector(".picture"), seen = [];
      const look = () => seen.push(svg.getAttribute("viewBox").split(" ")[2]);
      const press = (key) => svg.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      look();
      for (const key of ["+", "+", "-", "0"]) { press(key); look(); }
      for (let i = 0; i < 12; i += 1) press("+");
      seen.push([...svg.querySelectorAll(".labels text:not(.up)")].map((label) => label.textContent).join(" "));
      seen.push(document.querySelector(".zoom .place").textContent.replace("\\n", " @ "));
      document.title = seen.join("\\n");
    </script></body>"""
    page = re.sub("<meta http-equiv[^>]*>", "", report.html())  # the policy lets no script of a test run
    (tmp_path / "page.html").write_text(page.replace("</body>", probe), encoding="utf-8")
    title = re.search("<title>(.*?)</title>", run(browser, tmp_path), re.DOTALL)
    assert title is not None
    *widths, labels, told = title[1].split("\n")
    whole, once, twice, back, again = map(float, widths)
    assert whole == again and [round(whole / width, 3) for width in (once, twice, back)] == [1.5, 2.25, 1.5]
    (picture,) = coefficients(tables, tables.products).pictures
    assert labels in " ".join(picture.rows) and 5 < len(labels.split()) < 100
    line = next(line for line in report.scheme.products if f" {line.name} = (" in told)
    names = set(re.findall(r"[AB](?:\d\d|\[\d+,\d+\])", told.partition("=")[2]))
    assert names == set(re.findall(r"[AB](?:\d\d|\[\d+,\d+\])", f"{line.left} {line.right}"))
