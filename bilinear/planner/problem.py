"""A problem: everything that a plan depends on, apart from the device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from sys import float_info

from bilinear.errors import fail
from bilinear.ir.element import COMPLEX, ELEMENTS
from bilinear.ir.placement import CONTENTION, INPUTS, MOST_EXTENT

CLASSES = {"classical": 1.0, "twice": 2.0}  # The most of a probable error by norm, in the classical one's.
USUAL_LIMIT = 8.0  # The most that it may be where no accuracy is asked for, and no algorithm is named.

BITWISE = "bitwise"
"""The value of `reproducible=`: each element of C is a function of its row of A, its column of B, K, the type and the accuracy."""

SHORT = 64  # A product is thin if one of its extents is at most this.


@dataclass(frozen=True)
class Problem:
    """The multiply C (m x n) = A (m x k) * B (k x n) to be planned; matrices are row-major unless named in `column_major` (sorted).

    `inputs` says what may happen to A and B. `workspace` is the limit in bytes (None: the device's memory). `accuracy` limits max|C - A*B|
    / (max|A| max|B|) for any data, or names one of `CLASSES` (None: no limit; integers are exact as far as the type goes). With
    `accumulate` the product is added to beta times C. C `has_gaps` if it is not contiguous. `lies_evenly` is False for stacks of matrices,
    and if rows are apart by other than multiples of 16 bytes. Raises `BilinearError` (E543) for invalid values.
    """

    m: int
    k: int
    n: int
    dtype: str = "float64"
    inputs: str = "preserve"
    workspace: int | None = None
    accuracy: float | str | None = None
    column_major: tuple[str, ...] = ()
    accumulate: bool = False
    has_gaps: bool = False
    lies_evenly: bool = True

    @property
    def lends(self) -> bool:
        """True if a part of C that is not computed yet can hold temporaries."""
        return not (self.accumulate or self.has_gaps)

    @property
    def by_columns(self) -> bool:
        """True if C is column-major."""
        return "C" in self.column_major

    @property
    def lines(self) -> tuple[int, int]:
        """How many lines of C lie in memory one after the other, and the elements of one: rows, or columns if C is column-major."""
        return (self.n, self.m) if self.by_columns else (self.m, self.n)

    def of_lines(self, count: int) -> Problem:
        """The problem of a part of C with so many lines."""
        return replace(self, n=count) if self.by_columns else replace(self, m=count)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return 2 * COMPLEX[self.dtype].bytes if self.dtype in COMPLEX else ELEMENTS[self.dtype].bytes

    @property
    def operand_bytes(self) -> int:
        """Bytes of A, B and C."""
        return (self.m * self.k + self.k * self.n + self.m * self.n) * self.itemsize

    def budget_in(self, memory: float) -> int:
        """Bytes of workspace that are allowed, and left of so many bytes of memory beside A, B and C."""
        free = max(0, int(memory) - self.operand_bytes)
        return free if self.workspace is None else min(self.workspace, free)

    def __post_init__(self) -> None:
        extents = (self.m, self.k, self.n)
        if not all(isinstance(e, int) and not isinstance(e, bool) and 0 < e <= MOST_EXTENT for e in extents):
            what = f"the shape {extents} is not three integers from 1 to {MOST_EXTENT}"
            raise fail("E543", what, "give M, K and N of A (M x K) and B (K x N)")
        known = ELEMENTS | COMPLEX
        if self.dtype not in known:
            raise fail("E543", f"no plans for dtype={self.dtype!r}", f"choose one of {', '.join(known)}")
        require_inputs(self.inputs)
        if self.workspace is not None and not (isinstance(self.workspace, int) and self.workspace >= 0):
            raise fail("E543", f"workspace={self.workspace!r} is not a number of bytes", "give an integer of at least 0")
        require_accuracy(self.accuracy)


def require_accuracy(accuracy: float | str | None) -> None:
    """Refuse (E543) an accuracy that is neither a class nor a bound."""
    if accuracy is None or (isinstance(accuracy, str) and accuracy in CLASSES):
        return
    if isinstance(accuracy, int | float) and not isinstance(accuracy, bool) and 0 < accuracy <= float_info.max:
        return
    hint = f"give the largest error, such as 1e-9, or {' or '.join(CLASSES)}"
    raise fail("E543", f"accuracy={accuracy!r:.60} is neither a positive number nor a class of accuracy", hint)


def require_reproducible(reproducible: str | None) -> None:
    """Refuse (E820) an unknown promise about bits."""
    if reproducible is not None and reproducible != BITWISE:
        raise fail("E820", f"reproducible={reproducible!r:.60} is unknown", f"give {BITWISE!r}, or leave it out")


def require_inputs(inputs: str) -> None:
    """Refuse (E513) an unknown promise."""
    if inputs not in INPUTS:
        raise fail("E513", f"inputs={inputs!r} is unknown", f"choose one of {', '.join(INPUTS)}")


def require_contention(contention: str) -> None:
    """Refuse (E513) an unknown way to run products that add to one block."""
    if contention not in CONTENTION:
        raise fail("E513", f"contention={contention!r} is unknown", f"choose one of {', '.join(CONTENTION)}")
