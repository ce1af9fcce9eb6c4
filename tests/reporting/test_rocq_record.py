"""The record of accepted theorems: the texts are those that are written today, and the proof assistant accepts them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import pytest
from reporting.rocq_files import needs_coqc
from shell import Shell

from bilinear.analysis.identity import scheme_hash
from bilinear.frontend import load
from bilinear.lowering.prepare import natural_inputs
from bilinear.reporting import certificate
from bilinear.reporting.certificate import RECORD, Accepted, accepted_by, on_record, record
from bilinear.reporting.examine import rocq_of
from bilinear.resources import algorithms_folder

NAMES = sorted(path.stem for path in algorithms_folder().glob("*.bl") if path.stem != "bini")
"""All that are exact; bini is approximate."""
SAMPLE = ("msmes", "accurate_sqrt3", "karstadt_schwartz")


def text_of(name: str) -> str:
    loaded = load(name)
    return rocq_of(loaded, 1, natural_inputs(loaded.schedule))


def entry(name: str, text: str, by: str) -> Accepted:
    loaded = load(name)
    return Accepted((loaded.schedule or loaded.scheme).name, scheme_hash(loaded.scheme), sha256(text.encode()).hexdigest(), by)


def as_json(entries: Iterable[Accepted]) -> str:
    """The record as it is stored."""
    return json.dumps([asdict(each) for each in entries], indent=1) + "\n"


@pytest.mark.slow
def test_every_shipped_algorithm_is_on_record_as_it_is_written_today(update_golden: bool) -> None:
    """`--update-golden` runs the proof assistant on the texts that are not on record; it takes a second or two for each."""
    texts = {name: text_of(name) for name in NAMES}
    if update_golden:
        known = {each.sha256: each.by for each in record()}
        told = {name: known.get(sha256(text.encode()).hexdigest()) or accepted_by(text) for name, text in texts.items()}
        RECORD.write_text(as_json(entry(name, texts[name], told[name]) for name in NAMES))
        record.cache_clear()
    assert [each.sha256 for each in record()] == [sha256(texts[name].encode()).hexdigest() for name in NAMES]
    assert RECORD.read_text() == as_json(record())
    for each, text in zip(record(), texts.values(), strict=True):
        found = re.fullmatch(r"(Coq|Rocq) [0-9.]+\S*: (\d+) theorems?, without axioms", each.by)
        assert found is not None and int(found[2]) == text.count("\nPrint Assumptions ")


@needs_coqc
@pytest.mark.parametrize("name", SAMPLE)
def test_what_is_on_record_is_accepted(name: str) -> None:
    text = text_of(name)
    assert accepted_by(text).split(": ")[1] == on_record(text).split(": ")[1].removesuffix(" (on record)")


def test_another_text_is_not_on_record() -> None:
    text = text_of("strassen")
    assert on_record(text) and not on_record(text.replace("(1, A 1 1)", "(-1, A 1 1)", 1)) and not on_record(text + "\n")


def test_the_report_says_who_accepted_what_is_on_record(shell: Shell, tmp_path: Path) -> None:
    place = tmp_path / "s.v"
    told = next(each.by for each in record() if each.name == "strassen") + " (on record)"
    assert shell.json("verify", "strassen")["accepted_by"] == told
    assert shell.json("verify", "strassen", "--rocq", place)["accepted_by"] == told
    assert sha256(place.read_bytes()).hexdigest() in {each.sha256 for each in record()}
    assert told in shell("verify", "strassen")[1]
    assert shell.json("verify", "strassen", "--levels", "2")["accepted_by"] == ""
    assert shell.json("verify", "bini")["accepted_by"] == ""


def test_of_other_algorithms_nothing_is_claimed(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shell("show", "strassen")[1]
    (tmp_path / "mine.bl").write_text(text.replace("scheme strassen", "scheme mine"))
    assert shell.json("verify", "mine.bl")["accepted_by"] == ""  # the same scheme, but its text has another name
    rows = json.loads(RECORD.read_text())
    changed = tmp_path / "accepted.json"
    changed.write_text(json.dumps([{**row, "sha256": "0" * 64} for row in rows]))
    monkeypatch.setattr(certificate, "RECORD", changed)
    record.cache_clear()
    try:
        assert shell.json("verify", "strassen")["accepted_by"] == ""
    finally:
        record.cache_clear()
