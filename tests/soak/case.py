"""One hostile case: what it is drawn from, where it may write, and what it may say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np

PASSED, REFUSED = "passed", "refused"
"""What a case ends as: the answer was right, or a diagnostic said why there is none."""


class Finding(Exception):
    """Something that must never happen: a wrong answer, a lost file, a traceback, a hang."""


@dataclass(frozen=True)
class Case:
    """A kind of case and its seed, which together decide everything that the case does; `folder` is empty and its own."""

    kind: str
    seed: int
    folder: Path

    def generator(self) -> np.random.Generator:
        """Random numbers that depend on the kind and the seed alone."""
        return np.random.default_rng((crc32(self.kind.encode()), self.seed))
