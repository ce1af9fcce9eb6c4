"""Choose: weigh the library's multiply and the shipped algorithms against each other by the performance model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from bilinear.analysis.accuracy import UNIT_ROUNDOFF, classical_bound, error_bound, run_error_bound
from bilinear.analysis.identity import schedule_hash, scheme_hash
from bilinear.errors import fail
from bilinear.frontend import Loaded, load
from bilinear.ir.schedule import Schedule
from bilinear.passes.fold_bases import fold_bases
from bilinear.passes.scheme_to_schedule import scheme_to_schedule
from bilinear.planner.device import Device
from bilinear.planner.model import ITEMSIZE, ProductWork, Profile, geometric_mean, library_seconds, predict, product_seconds, profile_of
from bilinear.planner.plan import make_plan
from bilinear.planner.prepare import INPUTS, lower_levels
from bilinear.version import __version__

LIBRARY = "library"
SCHEMES = (("winograd", 3), ("strassen", 3), ("hopcroft_kerr", 2), ("laderman", 2))
"""Schemes that are weighed with a workspace, each to so many levels."""
IN_PLACE = (("msmes", 3),)
"""Schedules that are weighed where the inputs may be written."""
LEAST_GAIN = 0.03
"""The library's multiply runs unless a plan is predicted to be faster by more than this part: the model is no better."""
LEAST_BLOCK = 512
"""Plans with a block that is smaller in some extent are not weighed."""
MEMORY_SHARE = 0.9
"""What part of the device's memory operands and workspace may fill where no budget is given."""
MOST_EXTENT = 2**31 - 1


@dataclass(frozen=True)
class Problem:
    """What a plan is asked for: C (m x n) = A (m x k) * B (k x n), row-major but for those in `column_major` (sorted names).

    `inputs` is what the caller lets happen to A and B, `workspace` the most bytes (None: what the device has), `accuracy` the most that
    max|C - A*B| / (max|A| max|B|) may be for any data (None: anything). Raises `BilinearError` (E543) for what means nothing.
    """

    m: int
    k: int
    n: int
    dtype: str = "float64"
    inputs: str = "preserve"
    workspace: int | None = None
    accuracy: float | None = None
    column_major: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        extents = (self.m, self.k, self.n)
        if not all(isinstance(e, int) and not isinstance(e, bool) and 0 < e <= MOST_EXTENT for e in extents):
            raise fail(
                "E543", f"the shape {extents} is not three integers from 1 to {MOST_EXTENT}", "give M, K and N of A (M x K) and B (K x N)"
            )
        if self.dtype not in ITEMSIZE:
            raise fail("E543", f"no plans for dtype={self.dtype!r}", f"choose one of {', '.join(ITEMSIZE)}")
        if self.inputs not in INPUTS:
            raise fail("E513", f"inputs={self.inputs!r} is unknown", f"choose one of {', '.join(INPUTS)}")
        if self.workspace is not None and not (isinstance(self.workspace, int) and self.workspace >= 0):
            raise fail("E543", f"workspace={self.workspace!r} is no number of bytes", "give an integer of at least 0")
        if self.accuracy is not None and not self.accuracy > 0:
            raise fail("E543", f"accuracy={self.accuracy!r} is no positive number", "give the largest error, such as 1e-9")


@dataclass(frozen=True)
class Candidate:
    """A way to run a problem.

    `ms` is the predicted time (None: not worth predicting), `workspace` exact bytes, `error` the bound that always holds of
    max|C - A*B| / (max|A| max|B|) (None where nobody asked), `why` the reason why it was chosen or lost.
    """

    algorithm: str
    levels: int
    inputs: str
    strategy: str
    ms: float | None = None
    workspace: int | None = None
    error: float | None = None
    why: str = ""

    @property
    def name(self) -> str:
        """The candidate for readers."""
        return self.algorithm if self.levels == 0 else f"{self.algorithm}, {self.levels} level{'s' * (self.levels > 1)}"


@dataclass(frozen=True)
class Choice:
    """A plan, and how it was found: the chosen candidate first, then those that could run by predicted time, then the refused ones.

    It names what will run completely: the algorithm by name and by the hashes of what it holds, levels, promise, and version.
    """

    problem: Problem
    device: str
    candidates: tuple[Candidate, ...]
    scheme_sha256: str = ""
    schedule_sha256: str = ""
    version: str = __version__

    @property
    def chosen(self) -> Candidate:
        """What runs."""
        return self.candidates[0]

    @property
    def is_library(self) -> bool:
        """Whether the library's multiply runs."""
        return self.chosen.algorithm == LIBRARY


@lru_cache(maxsize=1024)
def make_choice(problem: Problem, device: Device, explain: bool = False) -> Choice:
    """The plan for a problem on a device, from the device's description alone: no GPU is asked, and the same is chosen every time.

    With `explain`, error bounds are computed for every candidate; else only where an accuracy is asked for.
    """
    weighed = _Weighing(problem, device, explain)
    library = weighed.library()
    able: list[Candidate] = [library]
    refused: list[Candidate] = []
    for candidate in (weighed.weigh(*way, library.ms or 0.0) for way in ways(problem)):
        (refused if candidate.why else able).append(candidate)
    able.sort(key=lambda c: (c.ms, c.name))
    best = able[0]
    chosen = best if _gain(best, library) > LEAST_GAIN else library
    others = [replace(c, why=_why_lost(c, chosen, library)) for c in able if c is not chosen]
    first = replace(chosen, why=_why_chosen(chosen, library, best))
    return Choice(problem, device.name, (first, *others, *refused), *hashes(chosen.algorithm))


def pareto_front(choice: Choice) -> tuple[Candidate, ...]:
    """Of all candidates with a predicted time, those that nothing beats in both time and workspace, by rising workspace."""
    timed = sorted((c for c in choice.candidates if c.ms is not None), key=lambda c: (c.workspace or 0, c.ms))
    front: list[Candidate] = []
    for c in timed:
        if not front or (c.ms or 0.0) < (front[-1].ms or 0.0):
            front.append(c)
    return tuple(front)


def ways(problem: Problem) -> list[tuple[str, int, str]]:
    """(algorithm, levels, promise) of all that is weighed besides the library."""
    found = [(name, levels, "preserve") for name, most in SCHEMES for levels in range(1, most + 1)]
    if problem.inputs != "preserve":
        found += [(name, levels, problem.inputs) for name, most in IN_PLACE for levels in range(1, most + 1)]
    return found


@lru_cache(maxsize=64)
def algorithm_named(name: str) -> Loaded:
    """A shipped algorithm, read once a process."""
    return load(name)


@lru_cache(maxsize=64)
def hashes(name: str) -> tuple[str, str]:
    """The hashes of an algorithm's scheme and of its schedule, empty where there is none."""
    if name == LIBRARY:
        return "", ""
    loaded = algorithm_named(name)
    return scheme_hash(loaded.scheme), "" if loaded.schedule is None else schedule_hash(loaded.schedule)


@lru_cache(maxsize=64)
def lowered(name: str, levels: int, inputs: str) -> tuple[Schedule, Profile]:
    """The schedule as it would run, and its counts. It is proved when it runs, not here."""
    loaded = algorithm_named(name)
    plain = loaded.schedule is None or inputs == "preserve"
    authored = scheme_to_schedule(fold_bases(loaded.scheme)) if plain or loaded.schedule is None else loaded.schedule
    schedule = lower_levels(authored, levels, inputs)
    return schedule, profile_of(schedule)


@lru_cache(maxsize=256)
def _in_place_error(name: str, levels: int, inputs: str, inner: int, roundoff: float) -> float:
    return run_error_bound(lowered(name, levels, inputs)[0], inner, roundoff).product


@dataclass(frozen=True)
class _Weighing:
    """Candidates of one problem on one device."""

    problem: Problem
    device: Device
    explain: bool

    def library(self) -> Candidate:
        p, u = self.problem, UNIT_ROUNDOFF[self.problem.dtype]
        ms = library_seconds((p.m, p.k, p.n), p.dtype, self.device) * 1e3
        return Candidate(LIBRARY, 0, "preserve", LIBRARY, ms, 0, classical_bound(p.k, u) * u)

    def weigh(self, name: str, levels: int, inputs: str, library_ms: float) -> Candidate:
        """A candidate with its figures; `why` says why it cannot run, or that it is not worth a closer look."""
        p, scheme = self.problem, algorithm_named(name).scheme
        found = Candidate(name, levels, inputs, "expand" if inputs == "preserve" else "inplace")
        block = p.m // scheme.m**levels, p.k // scheme.k**levels, p.n // scheme.n**levels
        if min(block) < LEAST_BLOCK:
            return replace(found, why=f"blocks of {'x'.join(map(str, block))} are too small")
        least = product_seconds(ProductWork(scheme.rank**levels, 0, 0), block, p.dtype, self.device, geometric_mean(p.m, p.k, p.n)) * 1e3
        if least >= library_ms:
            return replace(found, why=f"its products alone take {least:.3g} ms, the library {library_ms:.3g}")
        schedule, profile = lowered(name, levels, inputs)
        itemsize = ITEMSIZE[p.dtype]
        plan = make_plan(schedule, p.m, p.k, p.n, itemsize, frozenset(p.column_major))
        ms = predict(profile, plan, p.dtype, self.device) * 1e3
        found = replace(found, ms=ms, workspace=plan.workspace_elements * itemsize, error=self.error(name, levels, inputs))
        return replace(found, why=self.why_not(found))

    def error(self, name: str, levels: int, inputs: str) -> float | None:
        inner, u = self.problem.k, UNIT_ROUNDOFF[self.problem.dtype]
        if self.problem.accuracy is None and not self.explain:
            return None
        if inputs != "preserve":
            return _in_place_error(name, levels, inputs, inner, u) * u
        return error_bound(algorithm_named(name).scheme, levels, inner, u).product * u

    def why_not(self, found: Candidate) -> str:
        """Why a candidate may not run, empty where it may."""
        p = self.problem
        if found.workspace is not None and found.workspace > self.budget:
            return f"needs {found.workspace} bytes of workspace, {self.budget} are allowed"
        if p.accuracy is not None and found.error is not None and found.error > p.accuracy:
            return f"its error bound {found.error:.2g} is above {p.accuracy:.2g}"
        return ""

    @property
    def budget(self) -> int:
        p = self.problem
        operands = (p.m * p.k + p.k * p.n + p.m * p.n) * ITEMSIZE[p.dtype]
        free = max(0, int(self.device.memory * MEMORY_SHARE) - operands)
        return free if p.workspace is None else min(p.workspace, free)


def _gain(candidate: Candidate, library: Candidate) -> float:
    return 1 - (candidate.ms or 0.0) / (library.ms or 1.0)


def _why_lost(candidate: Candidate, chosen: Candidate, library: Candidate) -> str:
    off = (candidate.ms or 0.0) / (chosen.ms or 1.0) - 1
    if off < 0:
        return f"gains {_gain(candidate, library):.1%}, and less than {LEAST_GAIN:.0%} is within the model's error"
    return f"{off:.1%} slower"


def _why_chosen(chosen: Candidate, library: Candidate, best: Candidate) -> str:
    if chosen is not library:
        return f"chosen: {(library.ms or 0.0) / (chosen.ms or 1.0):.2f} times as fast as the library"
    return "chosen: nothing is faster" if best is library else f"chosen: nothing gains more than {LEAST_GAIN:.0%}"
