"""The calls that benchmarks/sanitize.py --quick makes under a sanitizer: exact in the emulator, and through every kernel template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runtime.pretended_gpu import described, undescribed

from bilinear.codegen import render
from bilinear.emulator import skip_reason
from bilinear.resources import templates_folder

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
MAPPED = "A*A^T of 16 bits"  # It reads a map of the driver, of which there is none here; tests/codegen runs its text.
OTHERS = {"copies_converting.cu.j2", "gram_halves.cu.j2"}
"""Only programs of `compile` multiply types that are stored and not computed in; and what is `MAPPED`."""


@pytest.mark.slow  # each kernel is exact in tests of its own
def test_every_template_runs_and_every_result_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import sanitize_cases

    environment = render.environment()
    assert environment.loader is not None
    read, get_source = set(), environment.loader.get_source

    def recorded(environment: Any, name: str) -> Any:
        read.add(name)
        return get_source(environment, name)

    monkeypatch.setattr(environment.loader, "get_source", recorded)
    monkeypatch.setattr(environment, "cache", None)
    with undescribed(monkeypatch) as gpu:
        gpu.runs = "both"  # so that every text is seen to compute its reference
        described(monkeypatch, "h200")
        each = list(sanitize_cases.cases())
        assert sum(case.name == MAPPED for case in each) == 1
        for case in (case for case in each if case.name != MAPPED):
            with sanitize_cases.built_for(case.architecture):
                assert case.is_exact(), case.name
    assert {file.name for file in templates_folder().glob("*.cu.j2")} - read == OTHERS
