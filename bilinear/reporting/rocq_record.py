"""Which files of theorems a proof assistant has accepted: a record in the package, by the hashes of their texts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from bilinear.analysis.identity import scheme_hash
from bilinear.errors import BilinearError
from bilinear.frontend import Loaded
from bilinear.reporting.examine import rocq_of

RECORD = Path(__file__).with_name("accepted.json")
"""Written after every one of the files was accepted (tests/reporting/test_rocq_record.py)."""


@dataclass(frozen=True)
class Accepted:
    """A file that a proof assistant accepted: of which algorithm, the hashes of its scheme and of its text, and who accepted what."""

    name: str
    scheme: str
    sha256: str
    by: str


@cache
def record() -> tuple[Accepted, ...]:
    """All files that were accepted, one for each shipped algorithm that has theorems, at one level."""
    return tuple(Accepted(**row) for row in json.loads(RECORD.read_text(encoding="utf-8")))


def entry(loaded: Loaded, text: str, by: str) -> Accepted:
    """The entry for a text that was accepted."""
    return Accepted((loaded.schedule or loaded.scheme).name, scheme_hash(loaded.scheme), _hash(text), by)


def as_json(entries: tuple[Accepted, ...]) -> str:
    """The record as it is stored."""
    return json.dumps([asdict(each) for each in entries], indent=1) + "\n"


def on_record(text: str) -> str:
    """Who accepted exactly this text, and what of it; empty if nobody is known to have."""
    mine = _hash(text)
    return next((f"{each.by} (on record)" for each in record() if each.sha256 == mine), "")


def accepted_on_record(loaded: Loaded, inputs: str) -> str:
    """The same for the theorems about a proved algorithm at one level. The text is generated again, so that any change is noticed."""
    if scheme_hash(loaded.scheme) not in {each.scheme for each in record()}:
        return ""
    try:
        return on_record(rocq_of(loaded, 1, inputs))
    except BilinearError:  # a schedule of a shipped scheme may have no theorems
        return ""


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()
