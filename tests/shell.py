"""The command line in the process of a test."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from bilinear import cli


class Shell:
    """Runs the command line: status, output, errors. `first` are words that every call begins with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *first: str) -> None:
        self._monkeypatch, self._capsys, self._first = monkeypatch, capsys, first

    def __call__(self, *words: object) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["bilinear", *self._first, *map(str, words)])
        status = 0
        try:
            cli.main()
        except SystemExit as stop:
            status = int(stop.code or 0)
        return status, *self._capsys.readouterr()

    def json(self, *words: object) -> Any:
        """What a call prints for machines."""
        status, out, err = self(*words, "--json")
        assert status == 0, err
        return json.loads(out)
