"""`bilinear show` of a scheme of digits: the text of its declaration and products, which is read as the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import Shell

from bilinear.frontend.algorithms import LoadedDigits, load_any


@pytest.mark.parametrize("name", ["pairs", "residues15", "winograd (x) pairs"])
def test_what_is_shown_is_read_as_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = Shell(monkeypatch, capsys)("show", name)
    assert (code, err) == (0, "")
    path = tmp_path / "shown.bl"
    path.write_text(out, encoding="utf-8")
    wanted = load_any(name)
    assert isinstance(wanted, LoadedDigits)
    again = load_any(f"{path}:{wanted.scheme.name}")
    assert isinstance(again, LoadedDigits)
    assert (again.scheme.core, again.scheme.rank, again.scheme.sizes) == (wanted.scheme.core, wanted.scheme.rank, wanted.scheme.sizes)
