"""One spelling for one thing: older names are understood and told, `--json` prints or writes, shapes are given again and again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from shell import Shell
from typer.main import get_command

from bilinear.cli.app import app
from bilinear.cli.common import joined
from bilinear.cli.spelling import OLDER, WITHOUT_ARGUMENTS, as_options, as_spelled_now
from bilinear.frontend import load
from bilinear.measure.bench_tasks import read_sizes


@each(
    ("given", "now"),
    [
        ("bench --sizes 64,8x9x10 --dtypes float32", "bench --shape 64 --shape 8x9x10 --dtype float32"),
        ("tune --search=64", "tune --shape 64"),
        ("import --ring Z/2 table --format=json", "import --over Z/2 table --from json"),
        ("list --ring", "list --over "),
        ("verify --ring Z", "verify --ring Z"),
        ("list -- --ring Z", "list -- --ring Z"),
        ("verify --json strassen", "verify --json - strassen"),
        ("verify strassen --json", "verify strassen --json -"),
        ("verify --json a.json strassen", "verify --json a.json strassen"),
        ("plan --json x --shape 4", "plan --json x --shape 4"),
        ("plan --json --shape 4", "plan --json - --shape 4"),
        ("plan --json - --shape 4", "plan --json - --shape 4"),
        ("", ""),
    ],
)
def test_a_command_line_is_written_as_it_is_spelled_now(given: str, now: str) -> None:
    assert as_spelled_now(given.split())[0] == now.split(" ") if now else as_spelled_now([]) == ([], [])


@each(
    ("python", "options"),
    [
        ("accuracy=-1.0 is wrong", "--accuracy -1.0 is wrong"),
        ("accuracy=nan is wrong", "--accuracy nan is wrong"),
        ("accuracy=1e-09 is wrong", "--accuracy 1e-09 is wrong"),
        ("no kernels for mode=''", "no kernels for --mode ''"),
        ("no kernels for mode='x'", "no kernels for --mode x"),
        ("leave accuracy= out", "leave --accuracy out"),
        ("use inputs='preserve', or levels=2.", "use --inputs preserve, or --levels 2."),
        ("there is no file 'mode='", "there is no file 'mode='"),
        ("give ring='Z/2', or with transposed=False", "give --over Z/2, or with --c rows"),
        ("name one: entry='4,4,4'; name it by format=, one of exp", "name one: --entry 4,4,4; name it by --from, one of exp"),
    ],
)
def test_arguments_of_python_are_shown_as_options(python: str, options: str) -> None:
    assert as_options(python) == options


def test_an_older_name_is_told(shell: Shell) -> None:
    status, out, err = shell("list", "--ring", "Z/2", "--max-rank", 7)
    assert status == 0 and err == "note: --ring is called --over now: --over Z/2\n"
    assert (0, out, "") == shell("list", "--over", "Z/2", "--max-rank", 7)


def test_no_older_name_is_an_option(shell: Shell) -> None:
    for command, names in OLDER.items():
        text = shell(command, "--help")[1]
        for older, now in names.items():
            assert f"{now} " in text and (f"{older} " not in text or older == "--format")


def test_commands_without_arguments_are_those() -> None:
    """A word behind `--json` can only be a file where nothing else stands alone."""
    group: Any = get_command(app)
    takes_none = {name for name, command in group.commands.items() if all(one.param_type_name == "option" for one in command.params)}
    assert takes_none == set(WITHOUT_ARGUMENTS)


COMMANDS = [
    ("verify", "strassen"),
    ("verify", "pairs"),
    ("list", "--max-rank", "7"),
    ("list", "--own"),
    ("plan", "--shape", "512", "--device", "h200"),
    ("plan", "--shape", "512", "--device", "h200", "--explain"),
    ("plan", "--chain", "100x20x300x50", "--device", "h200"),
    ("plan", "--gram", "--shape", "3000", "--device", "h200"),
    ("verify", "rxtx"),
    ("combine", "2,2,2"),
    ("share", "strassen"),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_json_goes_to_a_file_beside_the_text_or_in_its_place(words: tuple[str, ...], shell: Shell) -> None:
    status, text, err = shell(*words)
    assert status == 0, err
    assert shell(*words, "--json", "found.json") == (0, text, "")
    found = Path("found.json").read_text()
    assert shell(*words, "--json")[1] == found and json.loads(found) == json.loads(shell(*words, "--json", "-")[1])


MORE = ("run", "strassen"), ("doctor",), ("compile", "strassen"), ("import", "x.exp")


@pytest.mark.parametrize("words", [*COMMANDS, *MORE], ids=" ".join)
def test_a_file_that_cannot_be_written_is_told_before_the_work(
    words: tuple[str, ...], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for work in (
        "bilinear.reporting.examine.examine",
        "bilinear.reporting.map_report.digit_report",
        "bilinear.runtime.auto.plan",
        "bilinear.runtime.multi_dot.plan_chain",
        "bilinear.runtime.gram_plans.plan_gram",
        "bilinear.reporting.map_report.gram_report",
        "bilinear.algebra.composition.best_compositions",
        "bilinear.algebra.share_sums.share_sums",
        "bilinear.cli.common.run_checks",
        "bilinear.driver.compile",
        "bilinear.backends.doctor.examine",
        "bilinear.interchange.importing.import_file",
    ):
        monkeypatch.setattr(work, _never)
    status, out, err = shell(*words, "--json", "no/such/place.json")
    assert (status, out) == (1, "") and err.startswith("error[E612]: cannot write no/such/place.json")


def _never(*_: object, **__: object) -> None:
    raise AssertionError("the work has begun")


def test_a_refused_scheme_is_written_too(shell: Shell) -> None:
    Path("wrong.bl").write_text("scheme wrong <1,1,1;1>\n  M1 = A11 * B11\n  C11 = -M1\n")
    status, out, err = shell("verify", "wrong.bl", "--json", "found.json")
    assert (status, out) == (1, "") and "error[E301]" in err and json.loads(Path("found.json").read_text())["verdict"] == "refused"


@pytest.mark.parametrize("given", [["64", "8x9x10"], ["64", "8,9,10"], ["64", " 8 , 9 , 10 "]])
def test_shapes_are_given_one_by_one(given: list[str]) -> None:
    assert read_sizes(joined(given)) == ((64, 64, 64), (8, 9, 10))


def test_levels_may_be_chosen_where_a_shape_is_known(shell: Shell) -> None:
    plan = ("plan", "--shape", "8192", "--device", "h200")
    assert shell(*plan, "--levels", "auto") == shell(*plan)
    assert "also take auto" in shell("verify", "strassen", "--levels", "auto")[2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("plan --shape 64 --device h200 --dtype float64,float32", "no plans for --dtype float64,float32"),
        ("run strassen --inputs restore", "use algorithm msmes, the shipped schedule of strassen that restores A and B"),
        ("run winograd_223 --inputs restore", "`bilinear schedule --in-place` looks for one"),
        ("verify nowhere/msmes.bl", "hint: msmes is shipped: its name alone, without a folder, means it"),
        ("verify strassen:2", "hint: strassen is shipped: give its levels apart, --levels 2"),
        ("verify winograd+strassen", "hint: compose them: winograd (x) strassen"),
        ("plan --shape 64 --device h200 --workspace x", "hint: give bytes, a size such as '2GiB', 'none' or 'unlimited'"),
        ("check a.npy b.npy c.npy --before d.npy", "--before has no meaning without --beta hint: leave it out, or give --beta"),
        ("import u.npz --over Q", "with --over Z/2 it holds"),
        ("import u.npz", "give --over Z/2 if that is meant"),
    ],
)
def test_a_hint_says_what_to_do_here(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, told: str) -> None:
    monkeypatch.chdir(tmp_path)
    scheme = load("strassen").scheme
    u, v, w = (
        np.array([[dict(row).get(i, 0) for i in range(form.inputs)] for row in form.matrix]) for form in (scheme.u, scheme.v, scheme.w)
    )
    if words.endswith("Q"):
        u, v, w = np.abs(u), np.abs(v), np.abs(w)
    else:
        w[0, 0] *= -1
    np.savez("u.npz", u=u.T, v=v.T, w=w)
    status, _, err = shell(*words.split())
    assert status == 1 and told in " ".join(err.split())


def test_a_format_is_written_as_elsewhere(shell: Shell) -> None:
    found = {text: shell("list", "--format", text)[1] for text in ("3,3,3", "3x3x3", "3", "4,2,4", "4x2x4")}
    assert found["3,3,3"] == found["3x3x3"] == found["3"] and "laderman" in found["3"] and found["4,2,4"] == found["4x2x4"]
