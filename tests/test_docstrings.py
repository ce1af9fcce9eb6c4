"""The docstrings of the public names: every parameter is described, and the examples run."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import pytest

import bilinear

CALLED = {name: getattr(bilinear, name) for name in bilinear.__all__ if inspect.isfunction(getattr(bilinear, name))}
CALLED["verify"] = bilinear.Algorithm.verify
HEADING = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+$|\Z)", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", CALLED)
def test_every_parameter_is_described(name: str) -> None:
    section = HEADING.search(inspect.getdoc(CALLED[name]) or "")
    assert section is not None
    described = [each for line in section[1].splitlines() if re.match(r"\w", line) for each in line.split(" : ")[0].split(", ")]
    assert described == [each for each in inspect.signature(CALLED[name]).parameters if each != "self"]


@pytest.mark.parametrize("name", CALLED)
def test_parameters_that_are_described_together_have_one_type(name: str) -> None:
    """Without a type, the site would show that of the first one for all."""
    section = HEADING.search(inspect.getdoc(CALLED[name]) or "")
    assert section is not None
    assert not [line for line in section[1].splitlines() if re.match(r"\w", line) and "," in line and " : " not in line]


@pytest.mark.parametrize("name", CALLED)
def test_examples_print_what_they_say(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BILINEAR_DEVICE", raising=False)
    monkeypatch.chdir(tmp_path)
    (found,) = doctest.DocTestFinder(recurse=False).find(CALLED[name], name, globs={})
    assert found.examples and doctest.DocTestRunner(verbose=False).run(found).failed == 0
