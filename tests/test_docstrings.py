"""The docstrings of the public names: every parameter is described, and the examples run."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from described import check_examples, check_parameters
from each_case import each

import bilinear
import bilinear.dask
import bilinear.distributed
import bilinear.jax

CALLED = {name: getattr(bilinear, name) for name in bilinear.__all__ if inspect.isfunction(getattr(bilinear, name))}
CALLED |= {"verify": bilinear.Algorithm.verify, "home": bilinear.distributed.home}
ELSEWHERE = {f"{module.__name__}.matmul": module.matmul for module in (bilinear.dask, bilinear.distributed, bilinear.jax)}
"""Their examples need other packages, and run with the tests that have these."""


@each("name", [*CALLED, *ELSEWHERE])
def test_every_parameter_is_described(name: str) -> None:
    check_parameters((CALLED | ELSEWHERE)[name])


@pytest.mark.parametrize("name", CALLED)
def test_examples_print_what_they_say(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BILINEAR_DEVICE", raising=False)
    monkeypatch.chdir(tmp_path)
    check_examples(CALLED[name])
