"""The result of testing an output folder: one frozen object, of which text and JSON are views."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.reporting.table import aligned
from bilinear.visible import visible_lines

Verdict = Literal["passed", "wrong", "skipped", "equal"]
COLUMNS = ("type", "where", "shape", "what", "trials", "a wrong one passes", "verdict")


@dataclass(frozen=True)
class BuiltRow:
    """One test: the kernels of one element type, in one place, at one shape; or `equal`, of images that are what a rebuild gives.

    `chance` bounds the probability that a wrong kernel passes all trials, as a power of two: `2^-118`; the functions that make the rows
    state its assumptions. `detail` gives the memory layout of the operands and beta, or the integers used.
    """

    dtype: str
    where: str
    shape: str
    detail: str
    trials: int
    chance: str
    verdict: Verdict
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class BuiltCheck:
    """The tests of one folder; `seed` repeats them."""

    folder: str
    name: str
    levels: int
    inputs: str
    seed: str
    rows: tuple[BuiltRow, ...]
    failures: tuple[Diagnostic, ...] = ()

    @property
    def passed(self) -> bool:
        """True if something was tested and nothing was wrong."""
        return not self.failures and any(row.verdict == "passed" for row in self.rows)

    def require(self) -> None:
        """Raise `BilinearError`: E623 or E624 for errors found, E625 if nothing could be tested."""
        if self.failures:
            raise BilinearError(self.failures)
        if not self.passed:
            reasons = tuple(dict.fromkeys(row.reason for row in self.rows))
            hint = "a C++ compiler (g++ 10 or newer, or `pip install ziglang`) tests the sources, a GPU the images"
            raise fail("E625", f"nothing in {self.folder} could be tested", hint, notes=reasons)

    def to_json(self) -> dict[str, object]:
        """The tests as a JSON object."""
        found = {**asdict(self), "failures": [diagnostic.to_json() for diagnostic in self.failures]}
        return {"format": "bilinear-built/1", "passed": self.passed, **found}

    def __str__(self) -> str:
        head = f"{self.folder}: {self.name}, {self.levels} level(s), inputs={self.inputs}; seed {self.seed}"
        rows = [
            (*(x.dtype, x.where, x.shape, x.detail, str(x.trials or "-"), x.chance or "-"), x.verdict + f": {x.reason}" * bool(x.reason))
            for x in self.rows
        ]
        return visible_lines([head, *(f"  {line}" for line in aligned(rows, COLUMNS, indent=2))])
