"""The error of a proof that does not hold."""

from __future__ import annotations

from collections.abc import Sequence

from bilinear.errors import BilinearError, Diagnostic
from bilinear.verify.schedule import ScheduleProof
from bilinear.verify.scheme import SchemeProof


class RefusedError(BilinearError):
    """What is wrong, and the proof that found it, so that a report need not prove it again."""

    def __init__(self, diagnostics: Sequence[Diagnostic], proof: SchemeProof | ScheduleProof) -> None:
        super().__init__(diagnostics)
        self.proof = proof
        self.args = (self.diagnostics, proof)
