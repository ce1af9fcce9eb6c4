"""Names of generated kernels, which are symbols and files, and of output folders."""

from __future__ import annotations

import hashlib
import re

REMAINDER = "remainder"  # Prefixes kernels of strips; a schedule's stem ends with the levels.
MOST_LETTERS = 220  # Longer names are cut, because a file's name has at most 255 bytes.
_PLAIN = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{MOST_LETTERS - 1}}}")
_KEPT = 100


def file_name(name: str) -> str:
    """The name itself if it has only letters, digits, `_` and `-`; else its start with other characters replaced, and a hash of it."""
    if _PLAIN.fullmatch(name):
        return name
    kept = re.sub("[^A-Za-z0-9_]", "_", name[:_KEPT]).lstrip("0123456789")
    return f"{kept}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def stem(schedule: str, levels: int) -> str:
    """The prefix of the kernels of a schedule, or of the remainder; hyphens, as in `winograd-expand`, which C lacks, are replaced."""
    return f"{file_name(schedule).replace('-', '_')}_l{levels}"
