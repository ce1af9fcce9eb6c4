"""Errors as they leave a process: whole, by pickle, as pools of processes hand them on."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from bilinear.driver import verify
from bilinear.errors import BilinearError, Diagnostic, StageError
from bilinear.explain.why_wrong import RefusedError
from bilinear.frontend import load

PASSED_ON: tuple[Callable[[BaseException], BaseException], ...] = (lambda error: pickle.loads(pickle.dumps(error)), copy.deepcopy)


@pytest.mark.parametrize("passed_on", PASSED_ON)
def test_a_users_error_arrives_with_its_diagnostics(passed_on: Callable[[BaseException], BaseException]) -> None:
    error = BilinearError([Diagnostic("E121", "no such file", hints=("give its path",)), Diagnostic("E502", "no levels")])
    error.add_note("told")
    arrived = passed_on(error)
    assert isinstance(arrived, BilinearError)
    assert arrived.diagnostics == error.diagnostics
    assert str(arrived) == str(error) == "error[E121]: no such file\n  hint: give its path\nerror[E502]: no levels"
    assert arrived.__notes__ == ["told"]


@pytest.mark.parametrize("passed_on", PASSED_ON)
def test_a_failed_stage_arrives_with_its_blocks(passed_on: Callable[[BaseException], BaseException]) -> None:
    error = StageError("a product stage failed", ("A11",), ("C11", "C12"))
    arrived = passed_on(error)
    assert isinstance(arrived, StageError)
    assert (arrived.changed, arrived.undefined) == (("A11",), ("C11", "C12"))
    assert str(arrived) == str(error) == "a product stage failed (changed: A11; undefined: C11, C12)"


@pytest.mark.parametrize("passed_on", PASSED_ON)
def test_a_refused_proof_arrives_with_its_places(
    passed_on: Callable[[BaseException], BaseException], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("wrong") / "wrong.bl"
    file.write_text("scheme wrong <1,1,1;1>\n  M1: 1 | 1 | 2\n")
    with pytest.raises(BilinearError) as caught:
        verify(load(file)).json()
    arrived = passed_on(caught.value)
    assert isinstance(caught.value, RefusedError) and isinstance(arrived, RefusedError)
    assert str(arrived) == str(caught.value) and "E301" in str(arrived)
    assert arrived.proof == caught.value.proof
