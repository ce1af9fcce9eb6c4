"""How long runs of linear stages are cut: what searches found for the shipped algorithms, by the hash of the run.

A search weighs every part of a run as one pass, which takes a second for the longest. The table holds its results, which are choices alone:
every cut is right, and the passes are proved like any others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

LONG = 10
"""The fewest stages of a run that is kept; shorter ones are searched in less than a tenth of a second."""
TABLE = Path(__file__).with_name("cuts.json")


def digest_of(*facts: object) -> str:
    """The hash of facts that print what they are."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]


def kept_ends(digest: str) -> tuple[int, ...]:
    """Where the passes of a run end, counted from its begin; empty if that is not known."""
    return tuple(_table().get(digest, ()))


@cache
def _table() -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def table_text(found: Mapping[str, Sequence[int]]) -> str:
    """The text of the table."""
    return "{\n" + ",\n".join(f'"{digest}": {list(ends)}' for digest, ends in sorted(found.items())) + "\n}\n"
