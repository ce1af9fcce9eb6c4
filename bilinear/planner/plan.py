"""A plan: the candidates for a problem, and the one that runs, frozen; and what the planner asks of a choice and of a method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Protocol

from bilinear.ir.placement import COLOURS
from bilinear.ir.tile import USUAL
from bilinear.planner.device import Device, Policy
from bilinear.planner.library_points import CUBLAS, CUBLASLT
from bilinear.planner.problem import Problem
from bilinear.version import __version__

if TYPE_CHECKING:  # imported late
    from bilinear.analysis.traffic import Streaming
    from bilinear.ir.matrix import Factor, Layout

SHOWN = 4  # The number of candidates that the text of a plan shows.
LIBRARY = "library"
LIBRARIES = LIBRARY, CUBLAS, CUBLASLT
"""The names of the library's multiply: `library` picks cuBLAS or cublasLt by the rules in `backends/cublas.py`; the others fix it."""


class Choice(ABC):
    """What a method runs for a problem: frozen, hashable, and equal to what runs the same. Subclasses are dataclasses.

    `method` is the name by which files of plans know it, `strategy` says in a word or two how it runs. With a `rest`, `levels`, `inputs`
    and `tile` are those of the first rows of C (columns if C is column-major). The parts of the rest compute the others, one after the
    other, and the part of C that is not yet computed holds temporaries.
    """

    method: ClassVar[str]
    strategy: str
    levels: tuple[str, ...] = ()  # The algorithm of each level, the outermost first.
    inputs: str = "preserve"  # What happens to A and B.
    tile: str = USUAL  # The name of what multiplies below the levels.
    rest: tuple[Panel, ...] = ()  # The parts of C that are computed later.
    contention: str = COLOURS  # How its products share blocks of C: one of `CONTENTION`.
    counts_calls: ClassVar[bool] = False  # Whether its predicted time holds what a call costs.
    title: ClassVar[str] = "a schedule"  # What runs, in words.
    may_be_far: ClassVar[bool] = False  # Whether its error can be too large for a call without an accuracy.
    has_kernels: ClassVar[bool] = True  # Whether it launches kernels built here, which takes time.
    needs: ClassVar[str] = ""
    """What arrays it takes, in words, if its method binds it to matrices as they lie; empty for the library and for schedules."""
    less: ClassVar[str] = "plan with this workspace, or use algorithm='auto'"
    """What to do if it needs more workspace than is allowed."""
    by_columns: bool = False  # Whether a C that is computed aside lies by columns.

    @property
    @abstractmethod
    def name(self) -> str:
        """A readable name."""

    @abstractmethod
    def bound(self, inner: int, dtype: str) -> float:
        """The bound of max|C - A*B| / (max|A| max|B|) that always holds, for sums of `inner` terms; infinite if none is known.

        Of complex matrices: of the real and the imaginary part, in units of the largest parts of A and B.
        """

    @abstractmethod
    def probable(self, inner: int, dtype: str) -> float:
        """The probable error by norm in units of the classical multiply's."""

    @abstractmethod
    def check(self, problem: Problem) -> None:
        """Raise a `ValueError` if its fields, each of which may be anything that JSON writes, make no sense for a problem."""

    @property
    def lowered_parts(self) -> tuple[Choice, ...]:
        """What runs by a schedule, for its own rows and then for those of the rest; empty if nothing is lowered."""
        return ()

    @property
    def summed_in(self) -> int:
        """In how many parts sums are computed; their results are written, and read again."""
        return 1

    @property
    def needs_little(self) -> bool:
        """True if its workspace does not hold numbers of A, B or C: that is allowed where no workspace is."""
        return False

    @property
    def why_nothing_kept(self) -> str:
        """Why nothing that it computes from one operand alone can be kept for later products; empty if something can."""
        return f"{self.title} computes nothing from one operand alone"

    @property
    def is_bound(self) -> bool:
        """Whether its method binds it to matrices as they lie."""
        return bool(self.needs)

    def suits(self, out: Layout, beta: Factor) -> bool:
        """Whether C can be computed in a matrix of this layout."""
        return True

    def conjugated_as(self, operands: str) -> Choice | None:
        """The same with the conjugates of these operands ("A", "B", "AB"); None if they must be formed before."""
        return None if operands else self

    def least_gain(self, policy: Policy) -> float:
        """The part of the library's time that it must save to be chosen."""
        return policy.least_gain_plain

    def least_gain_complex(self, policy: Policy) -> float:
        """The same for complex matrices."""
        return self.least_gain(policy)

    def least_saved(self, policy: Policy) -> float:
        """The microseconds that it must save."""
        return 0.0

    def why_not(self, problem: Problem, policy: Policy) -> str:
        """Why it may not run for a problem; empty if it may."""
        return ""

    def rate(self, problem: Problem, device: Device) -> float | None:
        """The operations a second of what multiplies on a full device; None if it is not known, or if a product is several ones."""
        return None

    def streaming(self, problem: Problem, device: Device, ms: float | None) -> Streaming | None:
        """What bounds a kernel that streams its operands and takes so many milliseconds; None for others."""
        return None


@dataclass(frozen=True)
class Panel:
    """A number of rows of C (columns if C is column-major), and what computes them."""

    extent: int
    choice: Choice


@dataclass(frozen=True)
class Candidate:
    """A way to run a problem, and what is known of it.

    `ms` is the predicted or, for a timed plan, the measured time (None: not predicted); `workspace` exact bytes; `error` the proved bound
    of max|C - A*B| / (max|A| max|B|) (None: not requested); `probable` the probable error by norm in units of the classical multiply's;
    `why` the reason why it was chosen or rejected. What is not `able` may not run for the problem.
    """

    choice: Choice
    ms: float | None = None
    workspace: int | None = None
    error: float | None = None
    probable: float | None = None
    why: str = ""
    able: bool = True

    def __str__(self) -> str:
        ms = "no time is known" if self.ms is None else f"{self.ms:.3f} ms"
        return f"{self.name} ({self.strategy}): {ms}, {bytes_text(self.workspace or 0)} of workspace{f'; {self.why}' if self.why else ''}"

    @property
    def name(self) -> str:
        """A readable name of the candidate."""
        return self.choice.name

    @property
    def strategy(self) -> str:
        """How it runs, in a word or two."""
        return self.choice.strategy

    @property
    def levels(self) -> tuple[str, ...]:
        """The algorithm of each level of the first part, the outermost first."""
        return self.choice.levels

    @property
    def tile(self) -> str:
        """The name of what multiplies below these levels."""
        return self.choice.tile

    @property
    def rest(self) -> tuple[Panel, ...]:
        """The parts of C that are computed later."""
        return self.choice.rest

    @property
    def parts(self) -> tuple[Choice, ...]:
        """What computes C, in order: what is chosen, for its own rows, then the parts of its rest."""
        return self.choice, *(part.choice for part in self.rest)

    @property
    def all_levels(self) -> tuple[str, ...]:
        """The algorithm of each level of each part."""
        return tuple(name for part in self.parts for name in part.levels)

    @property
    def promise(self) -> str:
        """What happens to the inputs, over all parts."""
        return next((part.inputs for part in self.parts if part.inputs != "preserve"), "preserve")

    @property
    def is_library(self) -> bool:
        """True for the library's multiply."""
        return self.strategy in LIBRARIES


@dataclass(frozen=True)
class Plan:
    """A plan and how it was found: the chosen candidate, then the others that could run by time, then the refused ones.

    It pins what will run: the algorithm of every level by name and by the hashes of scheme and schedule, the promise, the version, and the
    hash of the code that lowers them.
    """

    problem: Problem
    device: str
    candidates: tuple[Candidate, ...]
    sha256: tuple[tuple[str, str], ...] = ()
    implementation_sha256: str = ""
    version: str = __version__

    def __repr__(self) -> str:
        p = self.problem
        return f"<Plan of {p.m} x {p.k} by {p.k} x {p.n}, {p.dtype}, {self.device}: {self.chosen.name}>"

    def __str__(self) -> str:
        more = [f"... and {len(self.candidates) - SHOWN} more in candidates"] if len(self.candidates) > SHOWN else []
        return "\n".join([repr(self)[1:-1], *(f"  {c}" for c in self.candidates[:SHOWN]), *more])

    def _repr_html_(self) -> str:
        rows = [
            (c.name, c.promise, c.strategy, "-" if c.ms is None else f"{c.ms:.3f}", bytes_text(c.workspace or 0), c.why)
            for c in self.candidates
        ]
        return table_html(repr(self)[1:-1], ("plan", "inputs", "strategy", "ms", "workspace", "why"), rows)

    @property
    def chosen(self) -> Candidate:
        """The candidate that runs."""
        return self.candidates[0]

    @property
    def is_timed(self) -> bool:
        """True if its times were measured, on the GPU for which it was kept."""
        return self.chosen.why.startswith("timed: ")

    @property
    def is_library(self) -> bool:
        """True if the library's multiply runs."""
        return self.chosen.is_library


def table_html(title: str, header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table as a notebook shows it."""
    from html import escape  # imported late: a plan is seldom shown so

    top, *body = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in (header, *rows))
    lines = "".join(f"<tr>{row}</tr>" for row in body)
    return f"<table><caption>{escape(title)}</caption><thead><tr>{top.replace('td>', 'th>')}</tr></thead><tbody>{lines}</tbody></table>"


def name_of(levels: tuple[str, ...]) -> str:
    """A readable name for levels."""
    runs = [(name, len(list(same))) for name, same in groupby(levels)]
    if len(runs) == 1:
        (name, count) = runs[0]
        return f"{name}, {count} level{'s' * (count > 1)}"
    return ", then ".join(name if count == 1 else f"{count} x {name}" for name, count in runs) or LIBRARY


def pareto_front(plan: Plan) -> tuple[Candidate, ...]:
    """The candidates with a time that no other beats in both time and workspace, by rising workspace."""
    timed = sorted((c for c in plan.candidates if c.ms is not None), key=lambda c: (c.workspace or 0, c.ms))
    front: list[Candidate] = []
    for c in timed:
        if not front or (c.ms or 0.0) < (front[-1].ms or 0.0):
            front.append(c)
    return tuple(front)


def bytes_text(count: int) -> str:
    """Bytes in the largest binary unit not above them; exact bytes are in the JSON."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B" if count else "0"


class Method(Protocol):
    """A way to multiply that competes with the library's multiply and with schedules.

    Of its candidates, by time, at most `most_weighed` are told unless all are explained, and at most `most_timed` are timed (None: all).
    """

    @property
    def choice(self) -> type[Choice]:
        """The type of what it runs, a dataclass."""

    products: tuple[str, ...]  # The names by which a caller asks for it below levels.
    most_weighed: int | None
    most_timed: int | None

    def products_of(self, dtype: str) -> tuple[str, ...]:
        """The names of its products of a type."""

    def candidates(self, problem: Problem, device: Device, budget: int, most_ms: float) -> Iterable[Candidate]:
        """Its candidates, within a budget of bytes where that can be. What cannot take less than `most_ms` may be left out."""

    def named(self, problem: Problem, device: Device, levels: tuple[str, ...], products: str, budget: int) -> Candidate:
        """The candidate that a caller names; its time is None if the device has no rates for it.

        Raises `BilinearError` if its numbers are of another type, or if these levels cannot stand above it.
        """


Methods = tuple[Method, ...]  # Those that compete, in the order in which they are told.
