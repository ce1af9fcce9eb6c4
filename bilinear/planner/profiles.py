"""Profiles: what planning needs to know of the schedules it weighs, shipped as a table, so that a first plan reads no algorithm.

And the portfolio: which ways are weighed beside the library's multiply. `portfolio.toml` names them, and says why each is there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from functools import cache, cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, cast

from bilinear.ir.placement import COLOURS, Placement
from bilinear.ir.schedule import Schedule, Space
from bilinear.lowering.place import lifetimes, place_schedule
from bilinear.places import unsealed
from bilinear.planner.model import LinearWork, ProductWork, Profile, StageMaps
from bilinear.planner.problem import Problem
from bilinear.planner.ways import Way, algorithm_named, hashes, kept_by_names, lowered, strategies
from bilinear.reading import read_bounded
from bilinear.resources import algorithms_folder, implementation_sha256, own_folder

if TYPE_CHECKING:
    from bilinear.ir.scheme import Scheme

TABLE = Path(__file__).with_name("profiles.json")


class PortfolioFacts(TypedDict):
    """The portfolio's file."""

    most_products: int
    plain: list[str]
    expand: list[str]
    recurse: list[str]
    in_place: list[str]
    digits: list[str]
    pairs: list[str]
    cpu: list[str]
    borrow: dict[str, list[str]]


Growth = tuple[float, float]
"""By how much block schemes amplify the variance of the error by norm of their products, and how many roundings of sums they add to it."""
WorkEntry = dict[str, int] | list[tuple[str, int, int, int]]
"""The JSON form of a stage's work: a list of parts for a linear stage, a record for a product stage."""


class OutlineEntry(TypedDict):
    """The JSON form of an outline."""

    strategies: Sequence[str]
    sha256: Sequence[tuple[str, str]]
    grid: tuple[int, int, int]
    scans: bool
    works: list[WorkEntry]
    workspaces: list[tuple[str, str, int, int, int]]
    growth: Growth


class OwnRecord(TypedDict):
    """What is kept, sealed, beside an algorithm that the user has added: hashes of its file and of this version, and its ways' outlines."""

    algorithm_sha256: str
    implementation_sha256: str
    outlines: dict[str, OutlineEntry]


@dataclass(frozen=True)
class Outline:
    """The schedule of some levels as planning sees it: its counts, its workspaces, and the stages in which each is alive.

    `strategies` says how each level runs; `sha256` holds the hashes of each level's scheme and schedule; `growth` is that of its errors.
    """

    strategies: tuple[str, ...]
    sha256: tuple[tuple[str, str], ...]
    profile: Profile
    workspaces: tuple[Space, ...]
    alive: tuple[int, ...]
    growth: Growth

    @cached_property
    def products(self) -> int:
        """The number of block products."""
        return sum(work.products for work in self.profile.works if isinstance(work, ProductWork))

    def placed(self, p: Problem, itemsize: int) -> Placement:
        """The schedule, without its stages, as it lies on a problem whose products have elements of so many bytes."""
        frame = Schedule("", "", self.profile.m, self.profile.k, self.profile.n, (), self.workspaces)
        alive = {space.name: bits for space, bits in zip(self.workspaces, self.alive, strict=True)}
        return place_schedule(frame, p.m, p.k, p.n, itemsize, frozenset(p.column_major), alive)


@kept_by_names(256)
def outline(way: Way) -> Outline:
    """The outline of a way: from the table, or else from its schedule."""
    key = way_key(way)
    entry = _outlines().get(key) or next((own["outlines"][key] for own in own_records().values() if key in own["outlines"]), None)
    return outline_of(way) if entry is None else _outline(entry)


def outline_of(way: Way) -> Outline:
    """The outline of a way's schedule as it would run; nothing is proved."""
    schedule, profile = lowered(way)
    alive = lifetimes(schedule)
    bits = tuple(alive[space.name] for space in schedule.workspaces)
    growth = growth_of([algorithm_named(name).scheme for name in way.levels])
    return Outline(strategies(way), hashes(way.levels), profile, schedule.workspaces, bits, growth)


def growth_of(schemes: Sequence[Scheme]) -> Growth:
    """The growth of errors by these schemes, the outermost level first; infinite for approximate ones, which no plan runs."""
    from bilinear.analysis.digit_bounds import norm_growth, roundings

    if any(scheme.ring.is_approximate for scheme in schemes):
        return inf, 0.0
    amplified, rounded = 1.0, 0.0
    for scheme in reversed(schemes):
        every = norm_growth(scheme) ** 2
        amplified, rounded = every * amplified, every * (rounded + roundings(scheme))
    return amplified, rounded


@kept_by_names(None)
def own_records() -> dict[str, OwnRecord]:
    """What is kept of the user's algorithms, read once a process; what is damaged, old or changed is left out and logged."""
    folder, found = own_folder(), dict[str, OwnRecord]()
    for path in sorted(path for path in folder.glob("*.bl") if not path.is_dir()) if folder is not None else ():
        try:
            record = unsealed(read_bounded(path.with_suffix(".json")))
            wanted = {"algorithm_sha256": hashlib.sha256(read_bounded(path)).hexdigest(), "implementation_sha256": implementation_sha256()}
        except OSError:
            record = None
        if record is not None and record == {**record, **wanted}:
            found[path.stem] = cast("OwnRecord", record)
        else:
            from logging import getLogger  # to import it takes a tenth of a first plan

            getLogger("bilinear").warning("%s is not planned with: add it again with `bilinear add`", path)
    return found


@cache
def algorithms_sha256() -> str:
    """SHA-256 of the shipped `.bl` files; a table made from other files is not used."""
    found = hashlib.sha256()
    for path in sorted(path for path in algorithms_folder().iterdir() if path.suffix == ".bl"):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


@cache
def _table() -> dict[str, object]:
    """The shipped table; empty where it is damaged."""
    try:
        table = json.loads(TABLE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


@cache
def _outlines() -> dict[str, OutlineEntry]:
    """The outlines of the shipped table by way; none if it was made from other algorithms."""
    found = _table().get("outlines") if _table().get("algorithms_sha256") == algorithms_sha256() else {}
    return found if isinstance(found, dict) else {}


def way_key(way: Way) -> str:
    """The name of a way in a table of outlines, which hold colours only."""
    return " ".join((*way.levels, way.inputs, *([way.contention] if way.contention != COLOURS else [])))


def entry_of(x: Outline) -> OutlineEntry:
    """The JSON form of an outline."""
    p = x.profile
    return {
        "strategies": x.strategies,
        "sha256": x.sha256,
        "grid": (p.m, p.k, p.n),
        "scans": p.scans,
        "works": [asdict(work) if isinstance(work, ProductWork) else [astuple(part) for part in work.parts] for work in p.works],
        "growth": x.growth,
        "workspaces": [(s.name, s.shape, s.rows, s.columns, alive) for s, alive in zip(x.workspaces, x.alive, strict=True)],
    }


def _outline(entry: OutlineEntry) -> Outline:
    m, k, n = entry["grid"]
    works = tuple(ProductWork(**w) if isinstance(w, dict) else LinearWork(tuple(StageMaps(*part) for part in w)) for w in entry["works"])
    spaces = entry["workspaces"]
    return Outline(
        tuple(entry["strategies"]),
        tuple((scheme, schedule) for scheme, schedule in entry["sha256"]),
        Profile(m, k, n, works, entry["scans"]),
        tuple(Space(name, shape, rows, columns) for name, shape, rows, columns, _ in spaces),
        tuple(alive for *_, alive in spaces),
        (entry["growth"][0], entry["growth"][1]),
    )


FILE = Path(__file__).with_name("portfolio.toml")
PARTS: tuple[Literal["first", "last", "last_in_place"], ...] = ("first", "last", "last_in_place")
"""What a C in parts names."""
Levels = tuple[str, ...]  # The algorithm of each level, the outermost first.


@dataclass(frozen=True)
class Portfolio:
    """The ways by what they need: `expand` a workspace, `recurse` a C that is overwritten, `in_place` operands that may be written.
    `digits` are the levels above products of digits, `pairs` more of them above pairs of float16 digits.

    `first`, `last` and `last_in_place` are those of a C in parts (see `borrow`). Ways of more than `most_products` products are left out.
    `cpu` are the ways for arrays in the host's memory. `plain` are the algorithms that do the arithmetic of the library's multiply.
    """

    most_products: int
    plain: frozenset[str]
    expand: tuple[Levels, ...]
    recurse: tuple[Levels, ...]
    in_place: tuple[Levels, ...]
    digits: tuple[Levels, ...]
    pairs: tuple[Levels, ...]
    first: tuple[Levels, ...]
    last: tuple[Levels, ...]
    last_in_place: tuple[Levels, ...]
    cpu: tuple[Levels, ...]

    def is_plain(self, levels: Levels) -> bool:
        """Whether levels do the arithmetic of the library's multiply."""
        return self.plain.issuperset(levels)


@cache
def portfolio() -> Portfolio:
    """The portfolio of the shipped file, read from the table of profiles if that holds the file's content."""
    text, held = FILE.read_bytes(), _table().get("portfolio")
    is_held = isinstance(held, dict) and held.get("sha256") == hashlib.sha256(text).hexdigest()
    facts: PortfolioFacts = held["facts"] if is_held else parsed(text)  # type: ignore[index]  # of a dictionary
    borrow = facts["borrow"]
    kinds = facts["expand"], facts["recurse"], facts["in_place"], facts["digits"], facts["pairs"]
    named = *kinds, *(borrow[part] for part in PARTS), facts["cpu"]
    return Portfolio(facts["most_products"], frozenset(facts["plain"]), *(tuple(map(levels_of, texts)) for texts in named))


def parsed(text: bytes) -> PortfolioFacts:
    """The facts of a portfolio file."""
    import tomllib  # to import it takes as long as a quarter of a first plan

    return cast("PortfolioFacts", tomllib.loads(text.decode()))


def levels_of(text: str) -> Levels:
    """The levels that a text names: `winograd_depth_first winograd*2` has three."""
    named = (word.partition("*") for word in text.split())
    return tuple(name for name, _, count in named for _ in range(int(count or 1)))


def ways(problem: Problem) -> tuple[Way, ...]:
    """All that is weighed besides the library."""
    own = portfolio()
    found = [*_ways(own.expand)]
    if not problem.accumulate:
        found += _ways(own.recurse)
    if problem.inputs != "preserve":
        found += _ways(own.in_place, problem.inputs)
    found += own_ways(problem)
    return tuple(way for way in found if outline(way).products <= own.most_products)


def cpu_ways(problem: Problem) -> tuple[Way, ...]:
    """All that is weighed besides the library for arrays in the host's memory; none if the product is added to C."""
    return () if problem.accumulate else tuple(_ways(portfolio().cpu))


def own_ways(problem: Problem) -> list[Way]:
    """The ways by the user's algorithms that suit a problem."""
    entries = [(key.split(), entry) for record in own_records().values() for key, entry in record["outlines"].items()]
    ways = [(Way(tuple(levels), inputs), entry["strategies"]) for (*levels, inputs), entry in entries]
    suits = [(way, strategies) for way, strategies in ways if way.inputs in ("preserve", problem.inputs)]
    return [way for way, strategies in suits if not (problem.accumulate and "recurse" in strategies)]


def _ways(levels: Sequence[Levels], inputs: str = "preserve") -> list[Way]:
    return [Way(own, inputs) for own in levels]
