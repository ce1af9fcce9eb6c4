"""A hook of MkDocs: the pages that are drawn from the program, and the files outside docs/ that pages link to."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
from collections.abc import Iterator
from contextlib import chdir, suppress
from functools import cache
from html import escape
from itertools import combinations_with_replacement, takewhile
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from typer.testing import CliRunner

import bilinear
from bilinear.algebra.composition import SchemeTree, best_compositions, lies_over
from bilinear.cli.app import app
from bilinear.codegen.cuda import nvrtc
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.interchange.exporting import export_files
from bilinear.interchange.folders import shipped_schemes
from bilinear.ir.ring import RATIONALS
from bilinear.ir.scheme import exponent_of
from bilinear.reporting.latex import latex
from bilinear.reporting.pages import svg_files
from bilinear.reporting.shipped import RINGS, KnownRank, LibraryRow, known_rank, library_rows
from bilinear.resources import algorithms_folder

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
ALWAYS = "CHANGELOG.md", "CONTRIBUTING.md"  # Files outside docs/ that have a page, linked to or not.
LISTED = ".bl", ".py", ".toml"
"""Files outside docs/ that have a page with a listing; others, such as results, are copied."""
ELSEWHERE = {"README.md": "index.md", "README.md#speed": "results.md"}
"""What the README says is on pages of the site."""
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
CODE = re.compile(r"\((E\d{3})\)")
NAMED = re.compile(r"\[(?:docs/)?[\w/-]+\.md\]\(([^)#]+\.md)(#[^)]*)?\)")
HEADING = re.compile(r"^### (E\d{3})", re.MULTILINE)
ROW = r'<tr class="doc-section-item">\s*<td>\s*<code>(\w+)</code>(?:(?!</tr>).)*<td>\s*'
DEFAULT = re.compile(rf"({ROW})<code>(?:(?!</code>).)*</code>(?=\s*</td>\s*</tr>)", re.DOTALL)
"""A row of a table of parameters up to its default, with the name of the parameter."""
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
EXAMPLES = {
    "verify": ["verify strassen"],
    "show": ["show msmes"],
    "new": ["new mine 2,2,3"],
    "list": ["list --format 2,2,2"],
    "add": ["add mine.bl"],
    "remove": ["remove mine"],
    "explain": ["explain E301"],
    "compile": ["compile winograd --dtype float64 --arch sm_90"],
    "run": ["run strassen --shape 300,200,100 --levels 2"],
    "check": ["check a.npy b.npy c.npy --tolerance 1e-12"],
    "plan": ["plan --shape 8192 --dtype float32 --device h200 --inputs restore --workspace none"],
    "doctor": ["doctor"],
    "schedule": ["schedule strassen --in-place -o in_place.bl", "show in_place.bl"],
    "discover": ["discover 2,2,2 --rank 7 --over Z/2 --seed 1 -o two.bl"],
    "lift": ["lift two.bl -o lifted.bl"],
    "combine": ["combine 4,4,6 -o best.bl"],
    "share": ["share laderman --seed 3 -o shared.bl"],
    "import": ["export winograd --to json -o table.json", "import table.json -o again.bl"],
    "export": ["export strassen --to sms"],
}
"""What the page of the commands runs, in this order in one folder. `tune` and `bench` need a GPU, and `warm` writes to the cache."""
SHOWN = {
    "tune": "It needs a GPU. [planning.md](planning.md#descriptions-of-devices) lists what it writes.",
    "warm": "It fills the cache of built kernels, in about half a minute ([settings.md](settings.md#caches)).",
    "run-with": "It runs a program of yours ([preload.md](how-to/preload.md)).",
    "preload": "It prints a place in the cache ([preload.md](how-to/preload.md)).",
    "bench": "It needs a GPU. [benchmarking.md](benchmarking.md) shows what it prints.",
}
LARGEST_SIDE = 8  # Every format up to this one has a page in the gallery.
NOT_CALLED = "__version__", "Algorithm", "BilinearError", "StageError"
MODULES = (
    (
        "With PyTorch",
        "After `import bilinear.torch` ([how to](how-to/pytorch.md)).",
        {f"bilinear.torch.{name}": f"bilinear.torch.{name}" for name in ("matmul", "linear", "Linear", "using")},
    ),
    ("With JAX", "After `import bilinear.jax` ([how to](how-to/einsum.md#in-jax)).", {"bilinear.jax.matmul": "bilinear.jax.matmul"}),
    (
        "Over ranks and workers",
        "After `import bilinear.distributed` or `import bilinear.dask` ([how to](distributed.md)).",
        {
            "bilinear.distributed.call.matmul": "bilinear.distributed.matmul",
            "bilinear.distributed.multiply.home": "bilinear.distributed.home",
            "bilinear.dask.matmul": "bilinear.dask.matmul",
        },
    ),
)
"""Parts of the page of the names: their titles, texts, and functions with the names by which they are called."""
RESULTS = "bilinear.reporting.report.Report", "bilinear.planner.plan.Plan", "bilinear.planner.chains.ChainPlan"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name the version and its day in the footer, and write out the patterns of the navigation: the pages that no other line names.

    Raises `PluginError`, which MkDocs prints as one line, if the example of `compile` cannot be run.
    """
    if (missing := nvrtc.available()) is not None:
        raise PluginError(f"the page of commands compiles an example, and {missing}: run scripts/setup, or {nvrtc.REMEDY}")
    config.copyright = f"bilinear {bilinear.__version__}{_day() and f', {_day()}'}, free software under the MIT license."
    named = {entry for section in config.nav or () for entry in _pages_of(section)}
    config.nav = [_written_out(section, named) for section in config.nav or ()]
    return config


@cache
def _day() -> str:
    """The day of the commit, `2026-01-31`: the same files give the same site. Empty outside a repository."""
    done = subprocess.run(["git", "log", "-1", "--format=%cs"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _pages_of(entry: Any) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from _pages_of(inner)


def _written_out(entry: Any, named: set[str]) -> Any:
    """A part of the navigation with the pages in place of each pattern; what has none is left out."""
    if isinstance(entry, list):
        return [found for each in entry if (found := _written_out(each, named)) != {}]
    if isinstance(entry, dict):
        return {title: found for title, inner in entry.items() if (found := _written_out(inner, named))}
    if "*" not in entry:
        return entry
    return [uri for path in sorted(DOCS.glob(entry)) if (uri := path.relative_to(DOCS).as_posix()) not in named]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is drawn from the program, and every file outside docs/ that a page links to."""
    drawn = {"commands.md": commands(), "api.md": api(), "gallery.md": gallery()}
    for uri, text in drawn.items():
        files.append(File.generated(config, uri, content=text))
    pages = format_pages()
    for uri, text in (pages | downloads()).items():
        files.append(File.generated(config, uri, content=text, inclusion=InclusionLevel.NOT_IN_NAV))
    for path in _files():
        report = bilinear.load(path.stem).verify().html(_day())
        figure = svg_files(report, keyed=False)["coefficients.svg"]
        for ending, text in (("html", report), ("svg", figure)):
            files.append(File.generated(config, f"reports/{path.stem}.{ending}", content=text))
    texts = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages() if file.src_uri not in drawn | pages}
    for path, uri in _outside(texts).items():
        if uri.endswith(".md"):
            files.append(File.generated(config, uri, content=_page_of(path), inclusion=InclusionLevel.NOT_IN_NAV))
        else:
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/ to the pages of those files, and give every error code an anchor and links to it."""
    uri = page.file.src_uri
    if uri == "diagnostics.md":
        markdown = HEADING.sub(lambda found: f'### <a id="{found[1].lower()}"></a>{found[1]}', markdown)
    markdown = rebased(markdown, f"docs/{uri}", uri) if page.file.abs_src_path else markdown
    target = relpath("diagnostics.md", PurePosixPath(uri).parent)
    parts = FENCED.split(markdown)
    parts[::2] = [CODE.sub(lambda found: f"([{found[1]}]({target}#{found[1].lower()}))", part) for part in parts[::2]]
    return NAMED.sub(lambda found: _titled(found, uri), "".join(parts))


def on_post_template(output_content: str, *, template_name: str, config: MkDocsConfig) -> str:
    """Leave out the page for missing pages: only a server would show it, and in a folder its style is not found."""
    return "" if template_name == "404.html" else output_content


def _titled(found: re.Match[str], uri: str) -> str:
    """A link that shows the name of a page's file: in the site it shows the title of the page."""
    path = DOCS / normpath(PurePosixPath(uri).parent / found[1])
    return f"[{_title(path)}]({found[1]}{found[2] or ''})" if path.is_file() else found[0]


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link the pages and the error codes that docstrings name, and show the defaults of the signatures."""
    if page.file.src_uri != "api.md":
        return html
    html = "".join(map(_with_defaults, re.split(r'(?=<h\d id="[\w.]+" class="doc doc-heading")', html)))
    html = re.sub(r"\bE\d{3}\b(?![^<]*>)", lambda found: f'<a href="diagnostics.html#{found[0].lower()}">{found[0]}</a>', html)
    return re.sub(r"\bdocs/([\w/-]+)\.md", lambda found: f'<a href="{found[1]}.html">{_title(DOCS / f"{found[1]}.md")}</a>', html)


def _with_defaults(part: str) -> str:
    """What the page says of one name, with the defaults of its signature: mkdocstrings takes the first of several choices for one."""
    try:
        parameters = inspect.signature(pydoc.locate(part.split('"')[1] if part.startswith("<h") else "")).parameters  # type: ignore[arg-type]
    except (pydoc.ErrorDuringImport, TypeError, ValueError):  # no function, or one of a package that is not installed
        return part

    def shown(found: re.Match[str]) -> str:
        known = parameters.get(found[2])
        has_text = known is not None and known.default is not known.empty and not callable(known.default)
        return f"{found[1]}<code>{escape(repr(known.default))}</code>" if known is not None and has_text else found[0]

    return DEFAULT.sub(shown, part)


def rebased(text: str, origin: str, uri: str) -> str:
    """The text of a file of the checkout as a page of the site: its links lead to the same files there."""

    def moved(found: re.Match[str]) -> str:
        path, anchor = normpath(f"{PurePosixPath(origin).parent}/{found[1]}"), found[2] or ""
        if (origin == f"docs/{uri}" and path.startswith("docs/")) or not (ROOT / path).exists():
            return found[0]
        return relpath(_place(path, anchor), PurePosixPath(uri).parent) + ("" if path + anchor in ELSEWHERE else anchor)

    return LINK.sub(moved, text)


def _place(path: str, anchor: str = "") -> str:
    """Where the site has a file of the checkout."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in ELSEWHERE:
        return ELSEWHERE.get(path + anchor, ELSEWHERE[path])
    if (ROOT / path).is_dir():
        return f"files/{path}/index.md"
    return f"files/{path}.md" if path.endswith(LISTED) else f"files/{path}"


def _outside(texts: dict[str, str]) -> dict[Path, str]:
    """The files and folders outside docs/ that texts link to, and the files of these folders, with their places in the site."""
    found: dict[Path, str] = {}
    waiting = [*ALWAYS, *(path for name, text in texts.items() for path in _linked(text, name))]
    while waiting:
        path = waiting.pop()
        if (ROOT / path) in found or path in ELSEWHERE or path.startswith(("docs", "..")) or not (ROOT / path).exists():
            continue
        found[ROOT / path] = _place(path)
        if (ROOT / path).is_dir():
            waiting += [each.relative_to(ROOT).as_posix() for each in _inside(ROOT / path)]
        elif path.endswith(".md"):
            waiting += _linked((ROOT / path).read_text(encoding="utf-8"), path)
    return found


def _linked(text: str, origin: str) -> list[str]:
    """The places in the checkout that the text of a file there links to."""
    return [normpath(f"{PurePosixPath(origin).parent}/{link[1]}") for link in LINK.finditer(text)]


def _inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith(("_", ".")))


def _page_of(path: Path) -> str:
    """A file as a page: prose as it is, a folder as the list of its files, everything else as a listing."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        listed = "\n".join(f"* [{each.name}]({each.name})" for each in _inside(path))
        return rebased(f"# {name}\n\n{listed}", f"{name}/index.md", _place(name))
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return rebased(text, name, _place(name))
    return f"# {name}\n\n````{path.suffix.removeprefix('.')}\n{text}\n````\n"


def _files() -> list[Path]:
    return sorted(algorithms_folder().glob("*.bl"))


def commands() -> str:
    """Every command with its help, and what an example of it prints."""
    lines = ["# Commands", "", "Each command with its `--help` and an example. Times, and what `doctor` finds, depend on the machine.", ""]
    with TemporaryDirectory() as data, TemporaryDirectory() as folder, chdir(folder):
        a, b = np.random.default_rng(0).random((2, 64, 64))
        for name, matrix in (("a", a), ("b", b), ("c", a @ b)):
            np.save(f"{name}.npy", matrix)
        for name in (command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands):
            lines += [f"## bilinear {name}", ""]
            for line in (f"{name} --help", *(() if name in SHOWN else EXAMPLES[name])):
                lines += _told(line, data)
            lines += [SHOWN[name], ""] if name in SHOWN else []
    return "\n".join(lines)


def _told(line: str, data: str) -> list[str]:
    """A command and what it prints, as a listing; it keeps data of the user in a folder that is shown as the usual one."""
    settings = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", "XDG_DATA_HOME": data}
    done = CliRunner().invoke(app, line.split(), prog_name="bilinear", env=settings)
    if done.exit_code:
        raise PluginError(f"bilinear {line}: {done.output}{done.exception}")
    output = done.stdout.replace(data, "~/.local/share").replace(str(Path.home()), "~")
    printed = [text.rstrip() for text in output.strip("\n").splitlines()]
    return ["```", f"$ bilinear {line}", *printed, "```", ""]


def api() -> str:
    """The public names, drawn by mkdocstrings. Functions of other modules have headings with their full names."""
    lines = ["# Python", "", "The public names of `bilinear`. `import bilinear` loads none of its libraries before they are needed.", ""]
    lines += [f"::: bilinear.{name}\n" for name in bilinear.__all__ if name not in NOT_CALLED]
    lines += ["::: bilinear.Algorithm", "    options: {members: [matmul, verify]}", ""]
    lines += ["`Algorithm.compile` is [`compile`](#bilinear.compile) of this algorithm.", ""]
    lines += ["::: bilinear.BilinearError", "", "::: bilinear.StageError", ""]
    for title, text, names in MODULES:
        lines += [f"# {title}", "", text, ""] + [line for name, shown in names.items() for line in _named(name, shown)]
    lines += ["# Results", "", "What `verify`, `plan` and `plan_chain` return.", ""]
    return "\n".join([*lines, *(f"::: {name}\n" for name in RESULTS)])


def _named(name: str, shown: str) -> list[str]:
    """A function or class under the name by which it is called, without its members."""
    return [f"::: {name}", f"    options: {{heading: {shown}, toc_label: {shown}, members: false}}", ""]


def gallery() -> str:
    """The formats, and the shipped schemes and schedules with their reports."""
    sides = range(2, LARGEST_SIDE + 1)
    lines = [
        "# Gallery",
        "",
        "## Formats",
        "",
        "The fewest products known for m x k by k x n blocks, in any order of m, k and n, with fractions as coefficients. A number leads",
        "to the page of its format: known ranks by ring, the shipped schemes with their reports, and what they compose to. In bold: the",
        "shipped schemes reach it, alone or composed. [algorithms.md](algorithms.md) compares the schemes.",
        "",
        f"| m, k; n = | {' | '.join(map(str, sides))} |",
        f"|---|{'--:|' * len(sides)}",
    ]
    best = _best()
    for m, k in combinations_with_replacement(sides, 2):
        cells = [_cell(_known(m, k, n), best[m, k, n]) if n >= k else "" for n in sides]
        lines.append(f"| {m},&nbsp;{k} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Reports of the shipped algorithms",
        "",
        "Each report is one page that `bilinear verify NAME --html FILE` writes: what was proved, the coefficients, the flow of data,",
        "the schedule, and the error by level. [reports.md](reports.md) says how to read it.",
        "",
        "| report | what it is |",
        "|---|---|",
    ]
    for path in _files():
        comment = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
        words = " ".join(line.removeprefix("#").strip() for line in comment)
        purpose = re.split(r"(?<![A-Z])\. ", words)[0].rstrip(".")  # not after an author's initial
        report = f"[{path.stem}<br>![coefficients](reports/{path.stem}.svg){{ .small loading=lazy }}](reports/{path.stem}.html)"
        lines.append(f"| {report} | {purpose} ([in the language](files/algorithms/{path.name}.md)). |")
    return "\n".join(lines)


def _known(m: int, k: int, n: int) -> KnownRank:
    known = known_rank(m, k, n)
    assert known is not None, "the catalogue holds larger formats"
    return known


def _cell(known: KnownRank, recipe: SchemeTree) -> str:
    link = f"[{known.rank}](formats/{known.m}x{known.k}x{known.n}.md)"
    return f"**{link}**" if recipe.rank == known.rank else link


@cache
def _best() -> dict[tuple[int, int, int], SchemeTree]:
    """The least ranks that the shipped schemes compose to."""
    usable = [(name, scheme) for name, scheme in shipped_schemes() if lies_over(scheme, RATIONALS)]
    return best_compositions((LARGEST_SIDE,) * 3, usable)


def format_pages() -> dict[str, str]:
    """A page for each format: known ranks, shipped schemes, and the best composition."""
    formats = combinations_with_replacement(range(2, LARGEST_SIDE + 1), 3)
    return {f"formats/{m}x{k}x{n}.md": "\n".join(_format_page(_known(m, k, n), _best()[m, k, n])) for m, k, n in formats}


def _format_page(known: KnownRank, recipe: SchemeTree) -> Iterator[str]:
    m, k, n = known.m, known.k, known.n
    yield from (f"# {m} x {k} x {n}", "")
    yield f"{m} x {k} by {k} x {n} blocks: the definition takes {m * k * n} products. A scheme for one order of the three sides gives"
    yield from ("all others ([algebra.md](../algebra.md)); [all formats](../gallery.md).", "")
    yield from ("| coefficients | fewest products known | exponent |", "|---|--:|--:|")
    for ring, rank in (*zip(RINGS, known.least, strict=True), ("Z/2", known.modulo_2)):
        yield f"| {ring} | {rank} | {exponent_of(m, k, n, rank):.4f} |"
    yield from ("", f"Over Q: {known.source}.", "", "## Shipped", "")
    rows = [row for row in library_rows() if row.has_sizes((m, k, n))]
    if rows:
        yield "| scheme | format | ring | additions | with shared sums | growth | |"
        yield "|---|---|---|--:|--:|--:|---|"
        yield from map(_shipped, rows)
    else:
        yield "No scheme of this format is shipped."
    yield from ("", "## Composed", "")
    yield f"`bilinear combine {m},{k},{n}` makes one of {recipe.rank} products and {sum(recipe.additions)} additions of shipped schemes:"
    yield f"`{recipe.expression}`."


def _shipped(row: LibraryRow) -> str:
    growth = "" if row.growth is None else f"{row.growth:.4g}"
    links = [f"[{uri.rpartition('.')[2]}](../{uri})" for uri in downloads() if uri.split("/")[1].rpartition(".")[0] == row.name]
    told = f"[report](../reports/{row.name}.html), {', '.join(links)}"
    return f"| {row.name} | `{row.format}` | {row.least_ring} | {row.naive} | {row.shared} | {growth} | {told} |"


@cache
def downloads() -> dict[str, str]:
    """The shipped schemes as files of the site: in the language, as JSON where its coefficients are fractions, as a table for LaTeX."""
    found = {}
    for row in library_rows():
        loaded = load(row.name)
        found[f"schemes/{row.name}.bl"] = (algorithms_folder() / f"{row.name}.bl").read_text(encoding="utf-8")
        with suppress(BilinearError):
            (found[f"schemes/{row.name}.json"],) = (data.decode() for data in export_files(loaded.scheme, "json").values())
        found[f"schemes/{row.name}.tex"] = latex(loaded)
    return found
