"""The error for a failed proof."""

from __future__ import annotations

from collections.abc import Sequence

from bilinear.errors import BilinearError, Diagnostic
from bilinear.verify.schedule import ScheduleProof
from bilinear.verify.scheme import SchemeProof


class RefusedError(BilinearError):
    """A failed proof as an error; it carries the proof, so that a report need not prove again."""

    def __init__(self, diagnostics: Sequence[Diagnostic], proof: SchemeProof | ScheduleProof) -> None:
        super().__init__(diagnostics)
        self.proof = proof
        self.args = (self.diagnostics, proof)
