"""Everything with a count has a bound, which is looked at before memory is taken."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from artifact.built_folders import written
from each_case import each
from shell import Shell

import bilinear
from bilinear.artifact.read import read_folder
from bilinear.errors import BilinearError
from bilinear.ir.placement import LEVELS_ALLOWED, MOST_EXTENT, MOST_LEVELS, MOST_PRODUCTS
from bilinear.lowering.prepare import Level, prepare_levels

ONES = np.ones((4, 4))
TAKES = {
    "verify": lambda levels: bilinear.load("classical").verify(levels=levels),
    "compile": lambda levels: bilinear.load("classical").compile(levels=levels),
    "matmul": lambda levels: bilinear.matmul(ONES, ONES, algorithm="classical", levels=levels),
}


THRICE = """\
scheme one <1,1,1;1>
  C11 = A11 * B11
schedule thrice of one
  stage { C11 += A11 * B11 }
  stage { C11 += A11 * B11 }
  stage { C11 -= A11 * B11 }
"""


@each("take", TAKES)
@each("levels", [MOST_LEVELS + 1, 65, 10**9, 10**30])
def test_more_levels_than_any_schedule_has_are_refused(take: str, levels: int) -> None:
    call: Callable[[int], Any] = TAKES[take]
    start = time.process_time()
    with pytest.raises(BilinearError) as caught:
        call(levels)
    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == ("E502", f"levels={levels} is not a number of levels")
    assert found.hints == (f"give an integer from 1: {LEVELS_ALLOWED}",) and time.process_time() - start < 10


def test_every_refusal_of_levels_says_the_same_limit(shell: Shell) -> None:
    """And the limit is true: 16,807 products are placed, 117,649 are not."""
    ones, told = np.ones((64, 64)), [shell("verify", "strassen", "--levels", levels)[2] for levels in ("6", "21", "x", "-1")]
    for levels in (6, 21, -1, "x"):
        with pytest.raises(BilinearError) as caught:
            bilinear.matmul(ones, ones, algorithm="strassen", levels=cast("int", levels))
        told.append(str(caught.value))
    assert all(LEVELS_ALLOWED in " ".join(text.split()) for text in told) and "20 levels, and at most 17,000 products" in LEVELS_ALLOWED
    assert [re.findall(r"E\d+", text)[0] for text in told] == ["E501", "E502", "E514", "E514"] * 2
    assert 7**5 <= MOST_PRODUCTS < 7**6


def test_as_many_levels_as_a_schedule_has_are_written_and_read(tmp_path: Path) -> None:
    folder = written(tmp_path / "out", "classical", dtypes=("float64",), levels=MOST_LEVELS)
    assert read_folder(folder).levels == MOST_LEVELS
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["schedule"]["levels"] += 1
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BilinearError, match=f"E621.*levels is not an integer from 1 to {MOST_LEVELS}"):
        read_folder(folder)


def test_lists_of_levels_have_the_same_bound() -> None:
    one = bilinear.load("classical")
    with pytest.raises(BilinearError, match=r"E502.*levels=21"):
        prepare_levels((Level(one.scheme, one.schedule),) * (MOST_LEVELS + 1), "preserve")
    with pytest.raises(BilinearError, match=r"E543.*21 levels are more than a plan has"):
        bilinear.plan(64, 64, 64, device="h200", levels=("strassen",) * (MOST_LEVELS + 1))


def test_products_of_a_schedule_are_counted_where_it_has_more_than_its_scheme(tmp_path: Path) -> None:
    file = tmp_path / "thrice.bl"
    file.write_text(THRICE)
    a = np.arange(16.0).reshape(4, 4)
    assert np.array_equal(bilinear.load(file).matmul(a, a, levels=3), a @ a)
    for levels in (9, MOST_LEVELS):
        with pytest.raises(BilinearError, match=rf"E501.*{levels} levels of thrice are {3**levels:,} products"):
            bilinear.load(file).verify(levels=levels)


@each("shape", [MOST_EXTENT + 1, 99999999999, "9" * 5000, f"1,{2**31},1"])
@each("command", [("run", "strassen"), ("compile", "strassen"), ("plan", "--device", "h200"), ("combine",)])
def test_shapes_have_a_largest_extent(command: tuple[str, ...], shape: int | str, shell: Shell) -> None:
    where = (str(shape),) if command == ("combine",) else ("--shape", str(shape))
    status, _, error = shell(*command, *where)
    assert status == 1 and "error[E504]" in error and f"each from 1 to {MOST_EXTENT}" in error


@pytest.mark.parametrize("command", ["run", "compile"])
def test_a_check_that_has_no_room_is_refused(command: str, shell: Shell) -> None:
    status, _, error = shell(command, "strassen", "--shape", str(MOST_EXTENT))
    assert (
        status == 1 and f"error[E508]: a check of {MOST_EXTENT} x {MOST_EXTENT} by {MOST_EXTENT} x {MOST_EXTENT} takes more than" in error
    )
    assert not Path("build").exists()
