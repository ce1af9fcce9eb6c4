"""The portfolio: which ways are weighed beside the library's multiply. `portfolio.toml` names them, and says why each is there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast

from bilinear.planner.problem import Problem
from bilinear.planner.profiles import PortfolioFacts, outline, own_records, shipped_portfolio
from bilinear.planner.ways import Way

FILE = Path(__file__).with_name("portfolio.toml")
PARTS: tuple[Literal["first", "last", "last_in_place"], ...] = ("first", "last", "last_in_place")
"""What a C in parts names."""
Levels = tuple[str, ...]
"""The algorithm of each level, the outermost first."""


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
    text = FILE.read_bytes()
    facts = shipped_portfolio(hashlib.sha256(text).hexdigest()) or parsed(text)
    borrow = facts["borrow"]
    kinds = facts["expand"], facts["recurse"], facts["in_place"], facts["digits"], facts["pairs"]
    named = *kinds, *(borrow[part] for part in PARTS), facts["cpu"]
    return Portfolio(facts["most_products"], frozenset(facts["plain"]), *(tuple(map(levels_of, texts)) for texts in named))


def table_entry() -> dict[str, object]:
    """What the table of profiles holds of the file."""
    text = FILE.read_bytes()
    return {"sha256": hashlib.sha256(text).hexdigest(), "facts": parsed(text)}


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
