"""The documentation: links resolve in the files and in the site, which is built strictly and loads nothing from a network."""

from __future__ import annotations

import html
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from itertools import combinations_with_replacement
from pathlib import Path

import pytest
from each_case import each

import bilinear
from bilinear.cli.app import app
from bilinear.codegen.cuda import nvrtc
from bilinear.reporting.shipped import known_rank, library_rows

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")] + sorted((ROOT / "docs").rglob("*.md"))
FENCED = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:src|srcset|href)=\"([^\"]+)\"")
ABROAD = "http://", "https://", "mailto:"
ASSET = re.compile(r"<(?:script|img|source|iframe)\b[^>]*>|<link\b[^>]*rel=\"(?:stylesheet|preload|icon|preconnect)\"[^>]*>")
STYLE = re.compile(r"(?:url\([\"']?|@import [\"']?)(?:https?:)?//")
NO_MKDOCS = find_spec("mkdocs") is None or find_spec("mkdocstrings") is None


def anchors(page: Path) -> set[str]:
    """The anchors of a page as a repository's view makes them: of its headings, in order."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")
        found.add(next(name for n in range(100) if (name := f"{slug}-{n}" if n else slug) not in found))
    return found


def dead(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    lost = []
    for link in (a or b for a, b in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        known = not anchor or target.suffix != ".md" or (target.is_file() and anchor in anchors(target))
        if not link.startswith(ABROAD) and not (target.exists() and known):
            lost.append(link)
    return lost


@each("page", PAGES)
def test_the_links_of_a_page_resolve(page: Path) -> None:
    assert dead(page) == []


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A b: `c`\n## A b\n[1](#a-b-c) [2](#a-b) [3](page.md) [4](#none) [5](other.md) [6](page.md#a-b-1) [7](https://a.b)\n")
    assert dead(page) == ["#none", "other.md", "page.md#a-b-1"]


def test_the_pages_are_no_longer_than_a_book() -> None:
    """A word holds a letter or a digit: bars of tables and operators are none."""
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md")]
    assert 0 < sum(bool(re.search(r"[^\W_]", word)) for page in pages for word in page.split()) <= 66_000


def test_what_describes_the_project_agrees() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation, changes = (ROOT / "CITATION.cff").read_text(), (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {bilinear.__version__}\n" in citation and f"\n## {bilinear.__version__}" in changes
    assert re.findall(r"^  - name: (.*)$", citation, re.MULTILINE) == [author["name"] for author in project["authors"]]


@pytest.mark.skipif(NO_MKDOCS, reason="MkDocs is not installed (pip install --group docs)")
def test_without_a_compiler_the_site_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.exceptions import PluginError

    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.setattr(nvrtc, "available", lambda: "NVRTC is not installed")
    with pytest.raises(PluginError, match=r"^the page of commands compiles an example, and NVRTC is not installed: run scripts/setup.*$"):
        importlib.import_module("site_pages").on_config(MkDocsConfig())


@pytest.mark.slow
@pytest.mark.skipif(NO_MKDOCS, reason="MkDocs is not installed (pip install --group docs)")
def test_the_site_is_built_strictly_and_stands_alone(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert loaded_from_elsewhere(site) == []
    assert shown_in(site) == []
    assert missing_formats(site) == []
    assert misread(site) == []
    assert wrong_defaults((site / "api.html").read_text(encoding="utf-8")) == []
    if browser := shutil.which("chromium"):
        assert found_by_search(browser, site, tmp_path, "winograd") > 10 and not found_by_search(browser, site, tmp_path, "qwxzv")


def wrong_defaults(page: str) -> list[str]:
    """The parameters for which a table shows another default than the signature has."""
    wrong = []
    for name, text in re.findall(r'<h2 id="bilinear\.(\w+)" class="doc doc-heading"(.*?)(?=<h2 |\Z)', page, re.DOTALL):
        parameters = inspect.signature(getattr(bilinear, name)).parameters
        for row in re.findall(r'<tr class="doc-section-item">(.*?)</tr>', text, re.DOTALL):
            cells = [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<td>(.*?)</td>", row, re.DOTALL)]
            known = parameters.get(cells[0])
            if known is not None and len(cells) == 4 and known.default is not known.empty and not callable(known.default):
                wrong += [f"{name}({cells[0]})"] * (html.unescape(cells[3]) != repr(known.default))
    return wrong


def found_by_search(browser: str, site: Path, folder: Path, word: str) -> int:
    """The number of pages that the search of the site, opened from its folder, finds."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / word}",
        "--virtual-time-budget=20000",
        "--dump-dom",
    ]
    page = f"file://{site / 'index.html'}?q={word}"
    shown = subprocess.run([browser, *options, page], capture_output=True, text=True, check=False, timeout=120).stdout
    counted = re.search(r'md-search-result__meta">(\d+) matching', shown)
    return int(counted[1]) if counted else 0


def loaded_from_elsewhere(site: Path) -> list[str]:
    """Scripts, styles, pictures and fonts that pages load from a network."""
    found = [
        f"{page.relative_to(site)}: {asset[0]}"
        for page in site.rglob("*.html")
        for asset in ASSET.finditer(page.read_text(encoding="utf-8"))
        if re.search(r"[\"'](?:https?:)?//", asset[0])
    ]
    styles = [path for path in site.rglob("*.css") if STYLE.search(path.read_text(encoding="utf-8"))]
    return found + [str(path.relative_to(site)) for path in styles]


def shown_in(site: Path) -> list[str]:
    """What a page of the reference should have an anchor for, and has none."""
    codes = re.findall(r"^### (E\d{3})", (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8"), re.MULTILINE)
    names = [f"bilinear.{name}" for name in bilinear.__all__ if name != "__version__"]
    commands = [f"bilinear-{command.name or command.callback.__name__}" for command in app.registered_commands if command.callback]
    wanted = {"diagnostics.html": [code.lower() for code in codes], "api.html": names, "commands.html": commands}
    texts = {name: (site / name).read_text(encoding="utf-8") for name in wanted}
    return [f"{name}#{anchor}" for name, found in wanted.items() for anchor in found if f'id="{anchor}"' not in texts[name]]


def missing_formats(site: Path) -> list[str]:
    """Formats up to 8 without a page that names the fewest known products, and shipped schemes that their page does not offer."""
    found = []
    for sides in combinations_with_replacement(range(2, 9), 3):
        known, page = known_rank(*sides), site / "formats" / f"{'x'.join(map(str, sides))}.html"
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        offered = [f'href="../schemes/{row.name}.bl"' for row in library_rows() if row.has_sizes(sides)]
        if known is None or f">{known.rank}</td>" not in text or not all(link in text for link in offered):
            found.append(page.name)
    return found


def misread(site: Path) -> list[str]:
    """Products that came out as emphasis, and lists that came out as text."""
    pages = ((page, page.read_text(encoding="utf-8")) for page in site.rglob("*.html"))
    return [
        f"{page.relative_to(site)}: {found[0]}" for page, text in pages for found in re.finditer(r"\w<em>.{,40}|<p>[^<]*\n- .{,40}", text)
    ]
