"""A plan: the candidates for a problem, and the one that runs. Frozen, and complete enough to be kept in a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from bilinear.ir.residue_tile import RESIDUE_TILES
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.ir.tile import FLOAT_TILES, LOADING_TILES, USUAL
from bilinear.planner.problem import Problem
from bilinear.planner.turned import is_turned
from bilinear.version import __version__

if TYPE_CHECKING:
    from bilinear.ir.matrix import Factor, Layout

SHOWN = 4
"""The number of candidates that the text of a plan shows."""
LIBRARIES = LIBRARY, CUBLAS, CUBLASLT = "library", "cublas", "cublaslt"
"""The names of the library's multiply: `library` picks cuBLAS or cublasLt by the rules in `backends/cublas.py`; the others fix it."""


THIN = "thin"
"""The name of our own kernel for thin products, which runs without a schedule."""
DIGITS = "digits"
"""The name of products of digits, which run without a schedule, too."""
ROUNDED = "rounded"
"""The name of products of numbers that are rounded to fewer bits first: also without a schedule."""


@dataclass(frozen=True)
class Panel:
    """A number of rows of C (columns if C is column-major) and what computes them; the other fields are those of a candidate."""

    extent: int
    levels: tuple[str, ...]
    inputs: str
    tile: str
    cut: tuple[int, int] = (1, 1)
    lent: str = ""

    @property
    def is_digits(self) -> bool:
        """True for products of digits, false for a schedule."""
        return self.tile in FLOAT_TILES or self.tile in RESIDUE_TILES


@dataclass(frozen=True)
class Candidate:
    """A way to run a problem.

    `levels` names the algorithm of each level, the outermost first. `strategy` is one of

    * with levels, `expand` (all sums, all products, all results), `recurse` (one product at a time, few temporaries), `inplace` (sums in A
      and B themselves), or several of them; with a `rest`, `borrow` (the part of C that is computed later holds the temporaries);
    * without levels, one of `LIBRARIES`, `thin` (the kernel for thin products, which splits sums in `parts_of_sums`), or `rounded` (the
      library's product of numbers rounded to the type that `tile` names);
    * with or without levels, `digits`: the innermost products are of digits. C, row-major, is computed in `cut` blocks of rows and of
      columns, one after the other in the same workspace. `lent` names what lies in C: the digits of A, those of B, and the products P.

    `ms` is the predicted or, for a timed plan, the measured time (None: not predicted); `workspace` exact bytes; `error` the proved bound
    of max|C - A*B| / (max|A| max|B|) (None: not requested); `probable` the probable error by norm in units of the classical multiply's;
    `why` the reason why it was chosen or rejected; `tile` the name of its products' tile.

    With a `rest`, these fields describe the first rows of C (columns if C is column-major). The parts of the rest compute the others, one
    after the other, and the part of C that is not yet computed holds the temporaries, or the digits.
    """

    levels: tuple[str, ...]
    inputs: str
    strategy: str
    ms: float | None = None
    workspace: int | None = None
    error: float | None = None
    probable: float | None = None
    why: str = ""
    tile: str = USUAL
    rest: tuple[Panel, ...] = ()
    parts_of_sums: int = 1
    cut: tuple[int, int] = (1, 1)
    lent: str = ""

    def __str__(self) -> str:
        ms = "no time is known" if self.ms is None else f"{self.ms:.3f} ms"
        return f"{self.name} ({self.strategy}): {ms}, {bytes_text(self.workspace or 0)} of workspace{f'; {self.why}' if self.why else ''}"

    @property
    def name(self) -> str:
        """A readable name of the candidate."""
        if self.is_digits:
            return Digits(self.levels, self.tile, self.cut, rest=self.rest).name
        if self.levels:
            return "; ".join(name_of(part.levels) for part in self.parts)
        if self.is_rounded:
            return self.tile
        return self.strategy if self.parts_of_sums == 1 else f"{self.strategy}, sums in {self.parts_of_sums} parts"

    @property
    def parts(self) -> tuple[Candidate | Panel, ...]:
        """What computes C, in order: this candidate, then the parts of its rest."""
        return self, *self.rest

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

    @property
    def is_thin(self) -> bool:
        """True for the kernel for thin products."""
        return self.strategy == THIN

    @property
    def is_digits(self) -> bool:
        """True for products of digits."""
        return self.strategy == DIGITS

    @property
    def is_rounded(self) -> bool:
        """True for products of numbers rounded to fewer bits."""
        return self.strategy == ROUNDED

    @property
    def holds_scales_alone(self) -> bool:
        """True if the workspace holds the scales of rows and columns, and nothing else: that is allowed where no workspace is."""
        return self.is_digits and self.parts[-1].tile in LOADING_TILES


LIBRARY_ITSELF = Candidate((), "preserve", LIBRARY, None, 0)
"""The library's multiply, of which no time is known."""


@dataclass(frozen=True)
class Thin:
    """How a thin product runs: the name of its tile, in how many parts sums are split, and whether C^T = B^T A^T is computed instead."""

    tile: str
    parts: int
    swaps: bool


@dataclass(frozen=True)
class Digits:
    """How a product of digits runs: the algorithm of each level, the outermost first, the name of its tile, and the blocks of C.

    `conjugated` names the complex operands whose conjugates are multiplied. With a `rest`, all this describes the first rows of C (columns
    if `by_columns`, where C is column-major). What `lent` names, digits of A and of B and products by A, B and P, lies in the rows that the
    parts of the rest compute afterwards, and so do scales.
    """

    levels: tuple[str, ...]
    tile: str
    cut: tuple[int, int] = (1, 1)
    conjugated: str = ""
    rest: tuple[Panel, ...] = ()
    by_columns: bool = False
    lent: str = ""

    @property
    def holds_scales_alone(self) -> bool:
        """True if the workspace holds the scales of rows and columns, and nothing else."""
        return (self.rest[-1] if self.rest else self).tile in LOADING_TILES

    @property
    def name(self) -> str:
        """A readable name."""
        if self.rest:
            names = dict.fromkeys(_digits_name(x.levels, x.tile) for x in (Panel(0, self.levels, "", self.tile), *self.rest))
            return f"{'; '.join(names)}, C in {1 + len(self.rest)} parts"
        blocks = "" if self.cut == (1, 1) else f", C in {self.cut[0]} x {self.cut[1]} blocks"
        return _digits_name(self.levels, self.tile) + blocks

    def suits(self, out: Layout, beta: Factor) -> bool:
        """Whether C can be computed in a matrix of this layout. Parts keep digits in C, so it is overwritten, and lies as was planned."""
        return not self.rest or bool(beta == 0 and not out.has_gaps and out.is_by_column == self.by_columns)


@dataclass(frozen=True)
class Rounded:
    """How a product of rounded numbers runs: the name of their type."""

    name: str


Direct = Thin | Digits | Rounded
"""What multiplies matrices as they lie, by our kernels, without a schedule."""


def own_name(direct: str | Direct) -> str:
    """What runs, in words."""
    names = {Digits: "product of digits", Rounded: "product of rounded numbers", Thin: "kernel for thin products"}
    return "the library's multiply" if isinstance(direct, str) else names[type(direct)]


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
        """The problem, and the best candidates, the chosen one first."""
        more = [f"... and {len(self.candidates) - SHOWN} more in candidates"] if len(self.candidates) > SHOWN else []
        return "\n".join([repr(self)[1:-1], *(f"  {c}" for c in self.candidates[:SHOWN]), *more])

    def _repr_html_(self) -> str:
        """The candidates as a table."""
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
    def is_library(self) -> bool:
        """True if the library's multiply runs."""
        return self.chosen.is_library

    @property
    def direct(self) -> str | Direct | None:
        """What multiplies without a schedule: one of `LIBRARIES`, the kernel for thin products, or digits. None if a schedule runs."""
        chosen = self.chosen
        if chosen.is_digits:
            return Digits(chosen.levels, chosen.tile, chosen.cut, rest=chosen.rest, by_columns=self.problem.by_columns, lent=chosen.lent)
        if chosen.is_rounded:
            return Rounded(chosen.tile)
        if chosen.is_thin:
            return Thin(chosen.tile, chosen.parts_of_sums, is_turned(self.problem, THIN_TILES[self.problem.dtype][chosen.tile]))
        return chosen.strategy if chosen.is_library else None


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


def _digits_name(levels: tuple[str, ...], tile: str) -> str:
    if tile not in FLOAT_TILES and tile not in RESIDUE_TILES:
        return name_of(levels)
    return f"{name_of(levels)} on {tile}" if levels else tile


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
