"""What the site shows of a function: its docstring names every parameter, with a type, and its examples run."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable

HEADING = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+$|\Z)", re.MULTILINE | re.DOTALL)


def check_parameters(function: Callable[..., object]) -> None:
    """Every parameter is described, in order. Those described together have a type and one default: the site shows the first one's."""
    section = HEADING.search(inspect.getdoc(function) or "")
    lines = [line for line in (section[1] if section else "").splitlines() if re.match(r"\w", line)]
    described = [name for line in lines for name in line.split(" : ")[0].split(", ")]
    assert described == [name for name in inspect.signature(function).parameters if name != "self"]
    assert not [line for line in lines if "," in line and " : " not in line]
    defaults = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
    for line in lines:
        names = line.split(" : ")[0].split(", ")
        assert all(defaults[name] == defaults[names[0]] for name in names), f"the site would show {defaults[names[0]]} for all of {names}"


def check_examples(function: Callable[..., object]) -> None:
    """There are examples, and they print what they say. They may write files into the current folder."""
    (found,) = doctest.DocTestFinder(recurse=False).find(function, function.__name__, globs={})
    assert found.examples and doctest.DocTestRunner(verbose=False).run(found).failed == 0
