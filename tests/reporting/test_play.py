"""Playing a schedule: what a page shows of every stage is what exact execution leaves in the blocks, and a browser steps through it."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from each_case import each
from numpy.typing import NDArray
from reporting.reports import proved, refused_schedule

from bilinear.frontend import load
from bilinear.lowering.prepare import natural_inputs, prepare
from bilinear.reporting import play as playing
from bilinear.reporting.facts import ScheduleFacts
from bilinear.reporting.play import Play, PlayCell, play
from bilinear.reporting.report import make_report

Matrix = NDArray[np.int64]
SIZE = 3


def facts(name: str) -> ScheduleFacts:
    loaded = load(name)
    inputs = natural_inputs(loaded.schedule)
    (schedule,) = make_report(loaded, prepare(loaded.scheme, loaded.schedule, 1, inputs), inputs).schedules
    return schedule


def value(text: str, known: dict[str, Matrix]) -> Matrix:
    """A sum or a product of sums as the page writes it, at integer matrices: `M1 − 2·M4`, `(A11 + A12) · B11`."""
    factors = [part.strip("()") for part in text.split(" · ")]
    found: Matrix = np.eye(SIZE, dtype=np.int64)
    for factor in factors:
        total: Matrix = np.zeros((SIZE, SIZE), np.int64)
        for sign, size, name in re.findall(r"([−-]?)\s*(\d+[ ·])?([A-Za-z_]\w*(?:\[\d+,\d+\])?)", factor.replace("+", " ")):
            total = total + (-1 if sign else 1) * int(size[:-1] or 1) * known[name]
        found = found @ total
    return found


def executed(name: str, shown: Play) -> None:
    """Run the steps of the page on matrices, in a stage all at once, and compare every block with what the page says of it."""
    rng = np.random.default_rng(1)
    cells = [cell for board in shown.boards for row in board.rows for cell in row]
    original: dict[str, Matrix] = {c.block: rng.integers(-9, 9, (SIZE, SIZE)) for c in cells if c.kind == "original"}
    state = {**original, **{block: 0 * matrix for block, matrix in original.items() if block.startswith("C")}}
    products: dict[str, Matrix] = {}
    told: dict[str, PlayCell] = {}
    for stage in shown.stages:
        after: dict[str, Matrix] = {}
        for step in stage.steps:
            targets, operator, right = re.fullmatch(r"(.*?) ([+−]?=) (.*)", step.text).groups()  # type: ignore[union-attr]
            result = value(right, state)
            if step.product:
                products[step.product] = value(step.meaning.partition(" = ")[2], {**original, **products})
                assert (products[step.product] == result).all(), (name, step)
            for target in targets.split(", "):
                block, sign = target.removeprefix("−"), -1 if target.startswith("−") != (operator == "−=") else 1
                before = after.get(block, state[block]) if operator != "=" else 0
                after[block] = before + sign * result
        state |= after
        changes = [*(change for step in stage.steps for change in step.changes), *stage.changes]
        assert {change.block for change in changes} == after.keys()
        told |= {change.block: change for change in changes}
        for block, change in told.items():
            assert (value(change.value, {**original, **products}) == state[block]).all(), (name, stage.number, change)
            if change.kind == "restored":
                assert change.value == block and (state[block] == original[block]).all()


@each("name", ["msmes", "winograd_in_place", "hopcroft_kerr_in_place", "laderman_in_place", "strassen", "s_mm", "r_s_mm", "w_mm"])
def test_what_is_shown_is_what_exact_execution_leaves(name: str) -> None:
    schedule = facts(name)
    shown = play(schedule)
    assert not shown.note and len(shown.stages) == len(schedule.stages)
    executed(name, shown)


def test_a_schedule_that_scales_for_itself_keeps_the_names_of_its_author() -> None:
    shown = play(facts("r_s_mm"))
    boards = [[cell.block for row in board.rows for cell in row] for board in shown.boards]
    assert boards[3] == ["X", "Y"]
    first, second = shown.stages[:2]
    assert [step.text for step in first.steps] == ["X = A11 + A22", "Y = B11 + B22"]
    assert [(step.text, step.meaning) for step in second.steps] == [("C21 = α X · Y", "M1 = (A11 + A22) · (B11 + B22)")]
    (made,) = second.changes
    assert (made.block, made.value) == ("C21", "M1"), "alpha, beta and the old C are left out"


def test_an_oracle_that_notices() -> None:
    shown = play(facts("msmes"))
    first = shown.stages[0].steps[0]
    wrong = replace(first, changes=(replace(first.changes[0], value="A21 − A22"),))
    stage = replace(shown.stages[0], steps=(wrong, *shown.stages[0].steps[1:]))
    with pytest.raises(AssertionError):
        executed("msmes", replace(shown, stages=(stage, *shown.stages[1:])))


def test_steps_mark_what_they_read_and_write() -> None:
    shown = play(facts("msmes"))
    names = [cell.block for board in shown.boards for row in board.rows for cell in row]
    assert [board.name for board in shown.boards] == ["A", "B", "C"] and [len(row) for row in shown.boards[0].rows] == [2, 2]
    (first, *_), (product, *_) = shown.stages[0].steps, shown.stages[1].steps
    assert (first.text, [names[i] for i in first.reads], [names[i] for i in first.writes]) == ("A21 += A22", ["A22"], ["A21"])
    assert (product.text, product.product, product.meaning) == ("C21, −C22 += A21 · B11", "M2", "M2 = (A21 + A22) · B11")
    assert [names[i] for i in product.reads] == ["A21", "B11"] and [names[i] for i in product.writes] == ["C21", "C22"]
    assert [step.text for step in shown.stages[5].steps] == ["A11 −= A22", "B11 −= B22"], "what a restoring stage undoes"


def test_long_sums_are_written_out() -> None:
    assert "terms)" not in "".join(change.value for stage in play(facts("smirnov_336")).stages for change in stage.changes)


def test_temporaries_have_a_board_of_their_own() -> None:
    shown = play(facts("w_mm"))
    assert shown.boards[3].name == "temporaries" and {cell.kind for row in shown.boards[3].rows for cell in row} == {"undefined"}


def test_a_schedule_that_is_too_long_is_listed_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "MOST_TEXT", 100)
    shown = play(facts("msmes"))
    assert not shown.boards and "too many to be played" in shown.note
    assert [step.text for step in shown.stages[0].steps] == ["A21 += A22", "A12 += A11", "B12 −= B22", "B21 −= B11"]
    page = proved("msmes").html()
    assert "too many to be played" in page and "<script" not in page and "script-src" not in page
    monkeypatch.setattr(playing, "MOST_LISTED", 100)
    monkeypatch.setattr(playing, "FIRST", 3)
    first = play(facts("msmes")).stages[0]
    assert first.title == "linear: the first 3 of 4 steps" and len(first.steps) == 3


def test_a_refused_schedule_is_played_as_it_runs() -> None:
    (schedule,) = refused_schedule().schedules
    shown = play(schedule)
    last = {change.block: change for step in shown.stages[-1].steps for change in step.changes}
    assert last["A12"].kind == "sum" and last["A12"].value == "A12 − 2·A22"


KEYS = random.Random(3).choices(["ArrowRight", "ArrowLeft", "Home", "End"], [6, 3, 1, 1], k=30)


@pytest.mark.slow
def test_a_browser_steps_by_keys_and_buttons(tmp_path: Path) -> None:
    """After any keys, every cell holds what the last change up to that stage left there."""
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no browser")
    shown = play(proved("msmes").schedules[0])
    place, expected = 0, []
    for key in KEYS:
        place = {"Home": 0, "End": 7}.get(key, max(0, min(7, place + (1 if key == "ArrowRight" else -1))))
        expected.append(f"{place}:{'|'.join(contents(shown, place))}")
    page = re.sub("<meta http-equiv[^>]*>", "", proved("msmes").html())  # the policy lets no script of a test run
    probe = f"""<script>
      const play = document.querySelector(".play"), seen = [];
      for (const key of {KEYS}) {{
        play.dispatchEvent(new KeyboardEvent("keydown", {{ key }}));
        seen.push(play.querySelector("input").value + ":" + [...play.querySelectorAll(".value")].map((v) => v.textContent).join("|"));
      }}
      play.querySelector("button[name=first]").click();
      seen.push(play.querySelector(".told").textContent);
      play.querySelector("button[name=next]").click();
      seen.push(play.querySelector(".place").textContent, play.querySelector(".told").textContent.split("\\n")[0]);
      seen.push([...play.querySelectorAll(".mark")].map((m) => m.textContent).join("|"));
      play.querySelector("button[name=play]").click();
      seen.push(play.querySelector("button[name=play]").textContent, play.querySelector("input").value);
      document.title = seen.join("\\n");
    </script></body>"""
    (tmp_path / "page.html").write_text(page.replace("</body>", probe), encoding="utf-8")
    title = re.search("<title>(.*?)</title>", run(browser, tmp_path), re.DOTALL)
    assert title is not None
    lines = title[1].split("\n")
    assert lines[: len(KEYS)] == expected
    marks = "read|changed|changed|read|read|changed|changed|read||||"
    first = "Before the first stage: A, B and C are as the caller gave them."
    assert lines[len(KEYS) :] == [first, "Stage 1 of 7: linear", "A21 += A22", marks, "❚❚ pause", "2"]


@pytest.mark.parametrize("name", ["msmes", "accurate_sqrt3"])
def test_a_reader_types_numbers_and_sees_them_at_every_stage(name: str, tmp_path: Path) -> None:
    """At the last stage C holds the classical product, and after every one each sum of blocks of A and B its exact value."""
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no browser")
    report = proved(name)
    shown = play(report.schedules[0])
    page = re.sub("<meta http-equiv[^>]*>", "", report.html())
    probe = f"""<script>
      const play = document.querySelector(".play"), seen = [], slider = play.querySelector("input");
      const type = (name, text) => {{
        const field = play.querySelector(`input[name=${{name}}]`);
        field.value = text;
        field.dispatchEvent(new Event("input"));
      }};
      type("A", "2 3; 5 7");
      type("B", "11 13; 17");
      seen.push(play.querySelector(".product").textContent);
      type("B", "11 13; 17 -19");
      seen.push(play.querySelector(".product").textContent);
      for (let stage = 0; stage <= {len(shown.stages)}; stage++) {{
        slider.value = stage;
        slider.dispatchEvent(new Event("input"));
        seen.push([...play.querySelectorAll(".number")].map((v) => v.textContent).join("|"));
      }}
      document.title = seen.join("\\n");
    </script></body>"""
    (tmp_path / "page.html").write_text(page.replace("</body>", probe), encoding="utf-8")
    title = re.search("<title>(.*?)</title>", run(browser, tmp_path), re.DOTALL)
    assert title is not None
    wrong, right, *stages = title[1].split("\n")
    assert wrong == "B takes 2 x 2 numbers." and right == "A B is 73 −31; 174 −68"
    blocks = {"A11": 2, "A12": 3, "A21": 5, "A22": 7, "B11": 11, "B12": 13, "B21": 17, "B22": -19}
    for place, line in enumerate(stages):
        numbers = line.replace("−", "-").split("|")
        for value, number in zip(contents(shown, place), numbers, strict=True):
            if re.fullmatch(r"[AB0-9 +−]+", value):  # Python reads the sums without coefficients
                assert float(number) == eval(value.replace("−", "-"), {}, dict(blocks))
    assert [float(number.replace("−", "-")) for number in stages[-1].split("|")[8:12]] == pytest.approx([73, -31, 174, -68])


def test_the_policy_of_the_page_lets_its_own_script_run_and_no_other(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no browser")
    page = proved("msmes").html().replace("</body>", "<script>document.title = 'taken'</script></body>")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    shown = run(browser, tmp_path)
    assert re.search(r'<div class="play" [^>]*>', shown) and not re.search(r'<div class="play" [^>]*hidden', shown)
    assert "Stage 0 of 7" in shown and "<title>taken" not in shown


def run(browser: str, folder: Path) -> str:
    """What a page is after its scripts have run."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}", "--dump-dom"]
    return subprocess.run([browser, *options, str(folder / "page.html")], capture_output=True, text=True, check=False, timeout=300).stdout


def contents(shown: Play, place: int) -> list[str]:
    """What every cell holds after so many stages."""
    cells = {cell.number: cell.value for board in shown.boards for row in board.rows for cell in row}
    for stage in shown.stages[:place]:
        cells |= {change.number: change.value for step in stage.steps for change in step.changes}
        cells |= {change.number: change.value for change in stage.changes}
    return list(cells.values())
