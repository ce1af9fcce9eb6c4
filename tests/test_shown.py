"""Objects as a prompt, `print` and a notebook show them: one line, the whole text, HTML; and the public names."""

from __future__ import annotations

import inspect
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from importlib import import_module

import pytest
from each_case import each

import bilinear
from bilinear.frontend import parse_source
from bilinear.source import Source

CHAIN = bilinear.plan_chain([(4096, 4096), (4096, 4096), (4096, 16)], device="h200")
PLAN = bilinear.plan(8192, 8192, 8192, "float64", device="h200")


class Cells(HTMLParser):
    """The rows of a table, and the attributes of frames."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.frames: list[dict[str, str | None]] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag in ("td", "th")
        if tag == "tr":
            self.rows.append([])
        if tag == "iframe":
            self.frames.append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1].append(data)


@each(
    ("shown", "line"),
    [
        (bilinear.load("strassen"), "<Algorithm strassen <2,2,2;7> over Q>"),
        (bilinear.load("msmes"), "<Algorithm strassen <2,2,2;7> over Q, scheduled by msmes>"),
        (bilinear.load("msmes").verify(), "<Report on msmes: proved; strassen <2,2,2;7> over Q>"),
        (CHAIN, "<ChainPlan of 3 matrices, float64, NVIDIA H200: A1 (A2 A3) by seconds>"),
        (bilinear.plan_chain([(2, 3), (3, 4)], "int8"), "<ChainPlan of 2 matrices, int8: A1 A2 by multiplications>"),
        (PLAN, "<Plan of 8192 x 8192 by 8192 x 8192, float64, NVIDIA H200: residues14>"),
    ],
)
def test_a_prompt_shows_one_line(shown: object, line: str) -> None:
    assert repr(shown) == line


@pytest.mark.parametrize("name", ["strassen", "winograd", "msmes", "laderman_in_place"])
def test_an_algorithm_prints_what_can_be_read_again(name: str) -> None:
    algorithm = bilinear.load(name)
    module = parse_source(Source("printed.bl", f"{algorithm}\n"))
    assert module.schemes == (algorithm.scheme,)
    assert module.schedules == (() if algorithm.schedule is None else (algorithm.schedule,))


def test_a_plan_prints_its_best_candidates() -> None:
    first, *candidates, last = str(PLAN).splitlines()
    assert first == repr(PLAN)[1:-1] and last == f"... and {len(PLAN.candidates) - 4} more in candidates"
    assert candidates == [f"  {candidate}" for candidate in PLAN.candidates[:4]]
    assert str(PLAN.chosen).startswith(f"residues14 (digits): {PLAN.chosen.ms:.3f} ms, 2.63 GiB of workspace; chosen: ")


def test_a_notebook_shows_a_plan_as_a_table() -> None:
    header, *rows = Cells(PLAN._repr_html_()).rows
    assert header == ["plan", "inputs", "strategy", "ms", "workspace", "why"]
    assert [row[0] for row in rows] == [candidate.name for candidate in PLAN.candidates]


def test_a_notebook_shows_a_chain_as_a_table() -> None:
    header, *rows = Cells(CHAIN._repr_html_()).rows
    orders = CHAIN.chosen, CHAIN.left_to_right, CHAIN.fewest_multiplications
    assert header == ["order", "ms", "multiplications", "memory"]  # the first column has no name
    assert [row[:2] for row in rows] == [
        [name, order.text] for name, order in zip(("chosen", "left to right", "fewest multiplications"), orders, strict=True)
    ]
    assert [row[3] for row in rows] == [str(order.multiplications) for order in orders]


@pytest.mark.parametrize("name", ["strassen", "msmes"])
def test_a_notebook_shows_an_algorithm_in_the_language(name: str) -> None:
    algorithm = bilinear.load(name)
    title, text = algorithm._repr_html_().removesuffix("</pre>").split("<pre ")
    assert unescape(title) == f"<b>{repr(algorithm)[1:-1]}</b>" and unescape(text.partition(">")[2]) == str(algorithm)
    assert "<" not in text, "names are foreign text"


def test_a_notebook_shows_a_report_as_its_page_in_a_frame() -> None:
    report = bilinear.load("msmes").verify()
    (frame,) = Cells(report._repr_html_()).frames
    assert frame["srcdoc"] == report.html()


@each("name", sorted(set(bilinear.__all__).difference({"__version__"})))
def test_a_public_signature_says_what_it_takes_and_gives(name: str) -> None:
    value = getattr(bilinear, name)
    own = [member for key, member in vars(value).items() if not key.startswith("_")] if isinstance(value, type) else [value]
    signatures = [inspect.signature(function) for function in own if inspect.isfunction(function)]
    parameters = [parameter for signature in signatures for parameter in signature.parameters.values() if parameter.name != "self"]
    hints = [parameter.annotation for parameter in parameters] + [signature.return_annotation for signature in signatures]
    assert not [hint for hint in hints if hint is inspect.Parameter.empty or "Any" in str(hint)]


def test_the_public_names_are_listed_and_nothing_else() -> None:
    """In a process of its own, after imports that leave modules on the package."""
    program = "import bilinear; bilinear.load('strassen').verify(); print(*dir(bilinear))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(bilinear.__all__)


@pytest.mark.parametrize("name", ["bilinear.dask", "bilinear.distributed", "bilinear.jax"])
def test_a_module_for_another_library_lists_its_public_names(name: str) -> None:
    module = import_module(name)
    assert "matmul" in module.__all__ and dir(module) == sorted(module.__all__)
