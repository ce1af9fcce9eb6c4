"""Names of what is generated: of kernels, which are symbols and files, and of output folders."""

from __future__ import annotations

import hashlib
import re

REMAINDER = "remainder"
"""What the kernels of the plain multiply for the strips begin with. Those of schedules begin with a stem, which ends otherwise."""
MOST_LETTERS = 220
"""A name that is longer is cut, for a file's name has at most 255 bytes."""
_PLAIN = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{MOST_LETTERS - 1}}}")
_KEPT = 100


def file_name(name: str) -> str:
    """A name as it is where it has letters, digits, `_` and `-` alone; else what can be kept of it, and a hash, by which it differs."""
    if _PLAIN.fullmatch(name):
        return name
    kept = re.sub("[^A-Za-z0-9_]", "_", name[:_KEPT]).lstrip("0123456789")
    return f"{kept}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def stem(schedule: str, levels: int) -> str:
    """What the kernels of a schedule begin with: an output folder has those of one schedule, and of the remainder.

    Names may have hyphens, as `winograd-expand` does, which C has not.
    """
    return f"{file_name(schedule).replace('-', '_')}_l{levels}"
