"""What helps a new user: groups and examples in the help, `explain`, listings on pages, one spelling of options, and hints that fit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from each_case import each
from shell import Shell

from bilinear.cli.app import COMMANDS
from bilinear.cli.spelling import as_options
from bilinear.codegen.cuda.target import targets_of
from bilinear.errors import BilinearError
from bilinear.resources import diagnostics_page
from bilinear.runtime.budgets import budget_and_buffer

CODES = re.findall(r"(?m)^### (E\d+) (.*)$", diagnostics_page().read_text(encoding="utf-8"))


def test_the_help_groups_the_commands(shell: Shell) -> None:
    _, text, _ = shell("--help")
    for name, _, panel, _ in COMMANDS:
        assert panel in text and re.search(rf"│ {name} ", text)


@each(("name", "command"), [(name, command) for name, command, _, _ in COMMANDS])
def test_the_paragraphs_of_a_help_are_one_line_each(name: str, command: Callable[..., object]) -> None:
    """Typer keeps the line breaks of a paragraph, and wraps it in other places as well; a listing begins with a backspace."""
    paragraphs = (command.__doc__ or "").strip().split("\n\n")
    assert command.__doc__ and not [text for text in paragraphs if "\n" in text and not text.lstrip(" ").startswith("\b")], name


@each(("name", "example"), [(name, example) for name, _, _, example in COMMANDS])
def test_the_help_of_a_command_has_an_example_of_it(name: str, example: str, shell: Shell) -> None:
    _, text, _ = shell(name, "--help")
    assert f"Example: bilinear {example}" in " ".join(text.split()) and example.split(maxsplit=1)[0] == name
    options = {word for word in example.split() if word.startswith("--")}
    assert all(re.search(rf"{option} ", text.partition("Example")[0]) for option in options)


@pytest.mark.sample(20)
@pytest.mark.parametrize(("code", "title"), CODES)
def test_every_code_is_explained(code: str, title: str, shell: Shell) -> None:
    status, text, _ = shell("explain", code.lower())
    assert status == 0 and text.startswith(f"{code} {title}\n") and len(text.split()) > len(title.split()) + 4
    assert sum(other in text.splitlines()[0].split() for other, _ in CODES) == 1 and "\n#" not in text


def test_a_code_that_does_not_exist(shell: Shell) -> None:
    status, out, err = shell("explain", "E999")
    assert (status, out) == (1, "")
    last = max(code for code, _ in CODES)
    assert err == f"error[E590]: 'E999' is the code of no error\n  hint: codes go from E101 to {last}: bilinear explain E301\n"


@each(
    ("text", "found"),
    [
        ("give device='h200', or a file", "give --device h200, or a file"),
        ("use levels=1", "use --levels 1"),
        ("architectures='sm_1' names none", "--arch sm_1 names none"),
        ("or algorithm='classical'", "or algorithm classical"),
        ("27 more: explain=True", "27 more: --explain"),
        ("use inputs='preserve', without tolerance=", "use --inputs preserve, without --tolerance"),
        ("or leave accuracy= out", "or leave --accuracy out"),
        ("give algorithm= and levels= to matmul", "`bilinear run NAME --levels 2` runs levels of one algorithm"),
        ("there is no file 'levels=2.bl'", "there is no file 'levels=2.bl'"),
        ("lambda = 2^-11, C11=M1", "lambda = 2^-11, C11=M1"),
    ],
)
def test_arguments_are_spelled_as_options(text: str, found: str) -> None:
    assert as_options(text) == found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "walk_444_mod2", "--shape", "64"), "over Q its Brent equations fail; `bilinear run --modulus 2` runs it"),
        (("verify", "levels=2.bl"), "error[E121]: there is no file 'levels=2.bl'"),
        (("verify", "my/device=x.bl"), "error[E121]: there is no file 'my/device=x.bl'"),
    ],
)
def test_what_is_python_is_spelled_for_the_shell_and_names_of_files_are_not(words: tuple[str, ...], said: str, shell: Shell) -> None:
    assert said in shell(*words)[2]


def test_hints_of_commands_are_not_pythons(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bilinear.runtime.devices_here.current_device", lambda: None)
    assert "hint: give --device h200, or a file of `bilinear tune`" in shell("plan", "--shape", "64")[2]
    assert shell("plan", "--shape", "64", "--device", "h200")[1].rstrip().endswith("more: --explain")


@each(
    ("words", "said"),
    [
        (("run", "strassen", "--levels", "x"), "error[E514]: --levels x is not a number of levels"),
        (("plan", "--shape", "64", "--device", "h200", "--levels", "2"), "error[E514]: --levels 2 names no algorithms"),
        (("list", "--max-rank", "x"), "error: Invalid value for '--max-rank': it takes an integer"),
        (("verify", "nosuchfile.bl"), "error[E121]: there is no file 'nosuchfile.bl'"),
        (
            ("new", "x", "2,2,2", "--rank", "6"),
            "error[E671]: no scheme <2,2,2> of 6 products is worth writing\n  hint: between 7 and 8 are",
        ),
        (
            ("new", "x", "3,3,3", "--rank", "100000"),
            "error[E671]: no scheme <3,3,3> of 100000 products is worth writing\n  hint: between 9",
        ),
    ],
)
def test_what_is_wrong_is_said_plainly(words: tuple[str, ...], said: str, shell: Shell) -> None:
    status, out, err = shell(*words)
    assert (status, out) == (1, "") and said in err and "Input should be" not in err


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("M1 := A11 * B11", "hint: write = alone: M1 = ..."),
        ("M1 = A11 * B11\n  C11 = P1", "hint: did you mean M1?"),
        ("product = A11 * B11\n  C11 = prodct", "hint: did you mean product?"),
        ("M1 = A11 * B11\n  C11 = P7", "hint: known here are M1"),
    ],
)
def test_a_slip_of_the_pen_gets_a_hint(body: str, hint: str, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "mine.bl").write_text(f"scheme mine <1,1,1;1>\n  {body}\n")
    status, _, err = shell("verify", tmp_path / "mine.bl")
    assert status == 1 and hint in err


def test_levels_of_a_run_may_be_chosen(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least one level runs, and more while blocks are wide enough."""
    monkeypatch.setattr("bilinear.lowering.place.SMALLEST_BLOCK", 16)
    for size, levels in (("15", 1), ("32", 1), ("64", 2)):
        (check,) = shell.json("run", "strassen", "--shape", size, "--levels", "auto", "--device", "cpu")
        assert check["levels"] == levels and check["passed"]


@each(("text", "count"), [("1G", 2**30), ("1GiB", 2**30), ("2GB", 2 * 10**9), ("1.5 MiB", 3 * 2**19), ("64K", 65536), ("none", 0)])
def test_sizes_have_units(text: str, count: int) -> None:
    assert budget_and_buffer(text) == (count, None)


def test_a_size_without_a_unit_that_is_known() -> None:
    with pytest.raises(BilinearError, match=r"E534.*'1 parsec'"):
        budget_and_buffer("1 parsec")


def test_a_size_limits_a_plan(shell: Shell) -> None:
    within = shell.json("plan", "--shape", "8192", "--device", "h200", "--workspace", "1G")
    assert within == shell.json("plan", "--shape", "8192", "--device", "h200", "--workspace", str(2**30))


def test_architectures_have_names() -> None:
    assert [str(target) for target in targets_of(["hopper", "sm_90", "ampere", "compute_90"])] == ["sm_90", "sm_80", "compute_90"]


def test_the_native_architecture_needs_a_gpu(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bilinear.backends.doctor.why_no_gpu", lambda: "CuPy is not installed")
    status, _, err = shell("compile", "msmes", "--arch", "native")
    assert status == 1 and "error[E512]: there is no native architecture: CuPy is not installed" in err


def test_the_core_of_the_language_is_on_one_screen_and_proves(shell: Shell) -> None:
    page = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
    core = page.split("```bl\n")[1].split("```")[0]
    Path("mine.bl").write_text(core, encoding="utf-8")
    status, text, err = shell("verify", "mine.bl")
    assert (status, "lean" in text, err) == (0, True, "")
    _, shown, _ = shell("new", "--help")
    assert core.count("\n") < 24 and [line for line in core.splitlines() if line.strip() not in shown] == []


DOCS = Path(__file__).parents[2] / "docs"
LISTINGS = (
    ("models.md", "bilinear plan --shape 16384 --device h200 --levels winograd,winograd --explain"),
    ("chains.md", "bilinear plan --chain 16x1000x16384x10000x8x1024 --dtype float64 --device h200"),
    ("how-to/gram.md", "bilinear plan --gram --shape 16384 --device h200"),
)


@pytest.mark.parametrize(("page", "command"), LISTINGS)
def test_a_page_lists_what_the_command_prints(page: str, command: str, shell: Shell) -> None:
    listing = (DOCS / page).read_text(encoding="utf-8").split(f"$ {command}\n", 1)[1].split("```", 1)[0]
    wanted = [line.rstrip() for line in listing.rstrip("\n").splitlines()]
    printed = [line.rstrip() for line in shell(*shlex.split(command)[1:])[1].rstrip("\n").splitlines()]
    begins = wanted[0] == "..."
    assert wanted[begins:] == (printed[-len(wanted) + 1 :] if begins else printed)
