"""A choice: what a plan is asked for, what may run, and what does. Frozen, and complete enough to be kept in a file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import inf

from bilinear.errors import fail
from bilinear.ir.element import ELEMENTS
from bilinear.ir.placement import INPUTS, MOST_EXTENT
from bilinear.ir.tile import USUAL
from bilinear.version import __version__

LIBRARIES = LIBRARY, CUBLAS, CUBLASLT = "library", "cublas", "cublaslt"
"""What the library's multiply is: on a GPU what rules of the extents choose (`backends/cublas.py`), or one of both by name."""


@dataclass(frozen=True)
class Problem:
    """What a plan is asked for: C (m x n) = A (m x k) * B (k x n), row-major but for those in `column_major` (sorted names).

    `inputs` is what the caller lets happen to A and B, `workspace` the most bytes (None: what the device has), `accuracy` the most that
    max|C - A*B| / (max|A| max|B|) may be for any data (None: anything). With `accumulate` the product is added to beta times C. C
    `has_gaps` where its elements do not lie one behind the other. A problem `lies_evenly` unless there are several of each matrix, or rows
    of one are apart by other than multiples of 16 bytes. Raises `BilinearError` (E543) for what means nothing.
    """

    m: int
    k: int
    n: int
    dtype: str = "float64"
    inputs: str = "preserve"
    workspace: int | None = None
    accuracy: float | None = None
    column_major: tuple[str, ...] = ()
    accumulate: bool = False
    has_gaps: bool = False
    lies_evenly: bool = True

    @property
    def lends(self) -> bool:
        """Whether a part of C that is not computed yet can hold temporaries."""
        return not (self.accumulate or self.has_gaps)

    def __post_init__(self) -> None:
        extents = (self.m, self.k, self.n)
        if not all(isinstance(e, int) and not isinstance(e, bool) and 0 < e <= MOST_EXTENT for e in extents):
            raise fail(
                "E543", f"the shape {extents} is not three integers from 1 to {MOST_EXTENT}", "give M, K and N of A (M x K) and B (K x N)"
            )
        if self.dtype not in ELEMENTS:
            raise fail("E543", f"no plans for dtype={self.dtype!r}", f"choose one of {', '.join(ELEMENTS)}")
        if self.inputs not in INPUTS:
            raise fail("E513", f"inputs={self.inputs!r} is unknown", f"choose one of {', '.join(INPUTS)}")
        if self.workspace is not None and not (isinstance(self.workspace, int) and self.workspace >= 0):
            raise fail("E543", f"workspace={self.workspace!r} is no number of bytes", "give an integer of at least 0")
        if self.accuracy is not None and not (isinstance(self.accuracy, int | float) and 0 < self.accuracy < inf):
            raise fail("E543", f"accuracy={self.accuracy!r} is no positive number", "give the largest error, such as 1e-9")


@dataclass(frozen=True)
class Part:
    """So many rows of C (columns, where it lies by columns), and what computes them: the fields are those of a candidate."""

    extent: int
    levels: tuple[str, ...]
    inputs: str
    tile: str


@dataclass(frozen=True)
class Candidate:
    """A way to run a problem.

    `levels` names the algorithm of each level, the outermost first (none: the library's multiply), `strategy` says how each runs: `expand`
    (all sums, all products, all results), `recurse` (one product at a time, few temporaries) or `inplace` (sums in A and B themselves).
    With a `rest` it is `borrow` (temporaries in what is computed later). For the library's multiply it is one of `LIBRARIES`.

    `ms` is the predicted time, or that of a plan that was timed (None: not worth predicting), `workspace` exact bytes, `error` the bound
    that always holds of max|C - A*B| / (max|A| max|B|) (None where nobody asked), `why` the reason why it was chosen or lost, `tile` the
    name of the tile of its products.

    With a `rest` all that is said of the first rows of C (columns, where it lies by columns), as many as the rest leaves; its parts
    compute the others, one after the other, and until then what is not computed yet holds the temporaries.
    """

    levels: tuple[str, ...]
    inputs: str
    strategy: str
    ms: float | None = None
    workspace: int | None = None
    error: float | None = None
    why: str = ""
    tile: str = USUAL
    rest: tuple[Part, ...] = ()

    @property
    def name(self) -> str:
        """The candidate for readers."""
        return self.strategy if self.is_library else "; ".join(name_of(part.levels) for part in self.parts)

    @property
    def parts(self) -> tuple[Candidate | Part, ...]:
        """What computes C, one after the other: this, then the parts of the rest."""
        return self, *self.rest

    @property
    def all_levels(self) -> tuple[str, ...]:
        """The algorithm of each level of each part."""
        return tuple(name for part in self.parts for name in part.levels)

    @property
    def promise(self) -> str:
        """What becomes of the inputs, all parts together."""
        return next((part.inputs for part in self.parts if part.inputs != "preserve"), "preserve")

    @property
    def is_library(self) -> bool:
        """Whether it is the library's multiply."""
        return not self.levels


@dataclass(frozen=True)
class Choice:
    """A plan, and how it was found: the chosen candidate first, then those that could run by time, then the refused ones.

    It names what will run completely: the algorithm of every level by name and by the hashes of scheme and schedule, the promise, the
    version, and the hash of what lowers them.
    """

    problem: Problem
    device: str
    candidates: tuple[Candidate, ...]
    sha256: tuple[tuple[str, str], ...] = ()
    implementation_sha256: str = ""
    version: str = __version__

    @property
    def chosen(self) -> Candidate:
        """What runs."""
        return self.candidates[0]

    @property
    def is_library(self) -> bool:
        """Whether the library's multiply runs."""
        return self.chosen.is_library


def name_of(levels: tuple[str, ...]) -> str:
    """Levels for readers."""
    runs = [(name, len(list(same))) for name, same in groupby(levels)]
    if len(runs) == 1:
        (name, count) = runs[0]
        return f"{name}, {count} level{'s' * (count > 1)}"
    return ", then ".join(name if count == 1 else f"{count} x {name}" for name, count in runs) or LIBRARY


def pareto_front(choice: Choice) -> tuple[Candidate, ...]:
    """Of all candidates with a time, those that nothing beats in both time and workspace, by rising workspace."""
    timed = sorted((c for c in choice.candidates if c.ms is not None), key=lambda c: (c.workspace or 0, c.ms))
    front: list[Candidate] = []
    for c in timed:
        if not front or (c.ms or 0.0) < (front[-1].ms or 0.0):
            front.append(c)
    return tuple(front)
