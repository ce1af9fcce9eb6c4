"""The index of shipped algorithms: one row for each scheme, with the schedules shipped for it; and the known ranks."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache
from itertools import permutations, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from bilinear.ir.ring import Ring
from bilinear.ir.scheme import exponent_of
from bilinear.planner.profiles import algorithms_sha256
from bilinear.resources import algorithms_folder
from bilinear.verify.rings import factors

TABLE = Path(__file__).with_name("known_ranks.toml")
LARGEST = 16  # The largest side of a format in the table.
RINGS = "Q", "Z", "-1, 0, 1"  # What coefficients of the table's schemes are taken from, the largest first.
_NEEDS = {"q": "Q", "z": "Z", "": "-1, 0, 1"}
_CELL = re.compile(r"([0-9]+)([qz]?)(\*?)")


class _Table(TypedDict):
    collected: str
    improved: str
    hopcroft_kerr: str
    sources: dict[str, str]
    over: dict[str, dict[str, int]]
    ranks: dict[str, str]


@dataclass(frozen=True)
class KnownRank:
    """The fewest products known for <m,k,n>, m <= k <= n, over each of `RINGS` and Z/2; `source` published those over Q."""

    m: int
    k: int
    n: int
    least: tuple[int, int, int]
    modulo_2: int
    source: str

    @property
    def rank(self) -> int:
        """The fewest products over Q."""
        return self.least[0]

    @property
    def ring(self) -> str:
        """The least of `RINGS` over which the rank is reached."""
        return RINGS[self.least.count(self.rank) - 1]

    @property
    def exponent(self) -> float:
        """3 log(rank) / log(mkn)."""
        return exponent_of(self.m, self.k, self.n, self.rank)

    def over(self, ring: Ring) -> int:
        """The fewest products over a ring: what holds over Z holds in Z/p too, what holds over Q in the fields above it."""
        return self.modulo_2 if ring.modulus == 2 else self.least[ring.modulus != 0 or ring.name == "Z"]


def known_rank(m: int, k: int, n: int) -> KnownRank | None:
    """What is known of a format in any order of its sides; None if a side is above 16."""
    m, k, n = sorted((m, k, n))
    if n > LARGEST:
        return None
    if m == 1:
        return KnownRank(m, k, n, (k * n,) * 3, k * n, "the blocks of the largest matrix, each of which needs a product")
    table = _table()
    cell = table["ranks"][f"{m}-{k}"].split()[n - k]
    ranks = {_NEEDS[needs]: int(rank) for rank, needs, _ in _CELL.findall(cell)}
    least = [ranks["-1, 0, 1"]] * len(RINGS)
    for place in (1, 0):  # what holds in a ring holds in the larger ones
        least[place] = ranks.get(RINGS[place], least[place + 1])
    name = f"{m}x{k}x{n}"
    source = next((text for text, formats in table["sources"].items() if name in formats.split()), "")
    if not source and m == 2 and 2 * least[0] in (3 * k * n + n, 3 * k * n + n + 1):
        source = table["hopcroft_kerr"]
    source = source or table["improved" if "*" in cell else "collected"]
    return KnownRank(m, k, n, (least[0], least[1], least[2]), min(table["over"]["Z/2"].get(name, least[1]), least[1]), source)


def compared(m: int, k: int, n: int, rank: int, ring: Ring) -> list[str]:
    """How the rank of a scheme compares with the fewest products that are known, as a line; none where nothing can be compared."""
    known = known_rank(m, k, n)
    if known is None or ring.is_approximate:
        return []
    least = known.over(ring)
    return [f"best known {least}, here {rank} ({known.source})" if rank >= least else f"{rank} are fewer than the best known {least}"]


@cache
def _table() -> _Table:
    table: _Table = tomllib.loads(TABLE.read_text(encoding="utf-8"))  # type: ignore[assignment]
    return table


if TYPE_CHECKING:  # listing from the index reads no algorithm
    from bilinear.frontend import Loaded
    from bilinear.ir.scheme import Scheme

INDEX = Path(__file__).with_name("library.json")  # Stored facts, so that listing reads and counts nothing.

EXPAND, DEPTH_FIRST, IN_PLACE = "expand", "depth first", "in place"
"""How a scheme may run: with workspace, fastest on large problems; or by a schedule with little memory, or none."""


@dataclass(frozen=True)
class ShippedSchedule:
    """A schedule shipped for a scheme, under the name that loads it."""

    name: str
    strategy: str


@dataclass(frozen=True)
class LibraryRow:
    """One shipped scheme <m,k,n;rank>.

    `shared` counts block additions as the file writes them, without changes of basis; `naive` counts them for its tables without shared
    sums; `scalings` are multiplications by numbers other than 1 and -1, as written. `denominator` is the common one of all coefficients,
    and `growth` the growth factor of one level (None if a coefficient is not real). A scheme that can only be proved does not `expand`.
    `why` is the first comment of its file.
    """

    name: str
    m: int
    k: int
    n: int
    rank: int
    exponent: float
    ring: str
    denominator: int
    naive: int
    shared: int
    scalings: int
    growth: float | None
    other_bases: bool
    expands: bool
    schedules: tuple[ShippedSchedule, ...]
    why: str
    citation: str

    @property
    def format(self) -> str:
        """The format as written: `<2,2,2;7>`."""
        return f"<{self.m},{self.k},{self.n};{self.rank}>"

    @property
    def least_ring(self) -> str:
        """The smallest ring with all its coefficients: `Z`, `Z[1/6]`, `Q[sqrt(3)]`; for a scheme over Z/p its own ring."""
        ring = Ring(self.ring)
        if ring.generator or ring.modulus:
            return self.ring
        return "Z" if self.denominator == 1 else f"Z[1/{math.prod(factors(self.denominator))}]"

    @property
    def known_rank(self) -> int | None:
        """The fewest products that are published for the format, over Z/2 if the scheme is, else over Q; None if none can be compared."""
        known, ring = known_rank(self.m, self.k, self.n), Ring(self.ring)
        return None if known is None or ring.is_approximate else known.over(ring)

    @property
    def strategies(self) -> tuple[str, ...]:
        """How it runs, the least memory last."""
        return tuple(dict.fromkeys([*([EXPAND] if self.expands else []), *(schedule.strategy for schedule in self.schedules)]))

    @property
    def runs(self) -> str:
        """How it runs, with the names of the schedules: `expand, msmes (in place)`."""
        own = [f"{schedule.name} ({schedule.strategy})" for schedule in self.schedules]
        modulus = Ring(self.ring).modulus
        return ", ".join([*self.expansion, *own]) or (f"modulus={modulus}" if modulus else "proved only")

    @property
    def expansion(self) -> tuple[str, ...]:
        """`expand` if it does, and for which types; else nothing."""
        return (f"{EXPAND} (complex types)" if Ring(self.ring).is_complex else EXPAND,) if self.expands else ()

    def has_sizes(self, sizes: tuple[int | None, ...]) -> bool:
        """True if its blocks have these sizes in any order, since schemes can be permuted; None stands for any size."""
        return any(
            all(size in (None, own) for size, own in zip(sizes, turned, strict=True)) for turned in permutations((self.m, self.k, self.n))
        )

    def lies_in(self, ring: Ring) -> bool:
        """True if it holds in a ring by its coefficients: one over Z/p in that ring alone."""
        own, generator = Ring(self.ring), Ring(self.ring).generator
        if own.modulus:
            return own == ring
        return generator in ("", ring.generator) and ring.holds(Fraction(1, self.denominator))

    def has_inverse(self, number: int) -> bool:
        """True if all its coefficients are fractions whose denominators divide a power of a number."""
        ring = Ring(self.ring)
        return not (ring.generator or ring.modulus) and set(factors(self.denominator)) <= set(factors(number))

    def to_json(self) -> dict[str, object]:
        """The row as a JSON object."""
        return {
            **asdict(self),
            "format": self.format,
            "least_ring": self.least_ring,
            "known_rank": self.known_rank,
            "strategies": self.strategies,
        }


def library_rows() -> tuple[LibraryRow, ...]:
    """Every shipped scheme, small formats first: from the index, or from the files if the index does not match them or is damaged."""
    try:
        index = json.loads(INDEX.read_text(encoding="utf-8"))
        if index["algorithms_sha256"] == algorithms_sha256():
            return tuple(
                LibraryRow(**row | {"schedules": tuple(ShippedSchedule(**entry) for entry in row["schedules"])}) for row in index["schemes"]
            )
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return found_rows()


def found_rows() -> tuple[LibraryRow, ...]:
    """The rows made from the files: each is read, and nothing is proved."""
    from bilinear.frontend import load

    found = {path.stem: load(path) for path in sorted(algorithms_folder().glob("*.bl"))}
    schedules = {name: loaded for name, loaded in found.items() if loaded.schedule is not None}
    rows = []
    for loaded in {loaded.scheme.name: loaded for loaded in sorted(found.values(), key=lambda x: x.schedule is None)}.values():
        own = [
            ShippedSchedule(name, IN_PLACE if x.schedule is not None and x.schedule.runs_in_place else DEPTH_FIRST)
            for name, x in schedules.items()
            if x.scheme == loaded.scheme
        ]
        rows.append(_row(loaded, tuple(sorted(own, key=lambda x: (x.strategy == IN_PLACE, x.name)))))
    return tuple(sorted(rows, key=lambda row: (row.m * row.k * row.n, row.format, row.name)))


def same_as(scheme: Scheme) -> str:
    """The shipped schemes that a proved one equals up to the symmetries of the tensor, in words; empty for an approximate one."""
    from bilinear.algebra.change_basis import equivalent
    from bilinear.frontend import load

    if scheme.ring.is_approximate:
        return ""
    rows = [row for row in library_rows() if row.has_sizes((scheme.m, scheme.k, scheme.n)) and row.rank == scheme.rank]
    others = {row.name: load(row.name).scheme for row in rows}
    is_shipped = scheme.name in others and others[scheme.name].tables == scheme.tables
    if is_shipped:
        del others[scheme.name]
    found = {name: equivalent(scheme, other) for name, other in others.items()}
    same, open_ones = ([name for name, verdict in found.items() if verdict is wanted] for wanted in (True, None))
    told = ", ".join(same) or (
        "no other shipped scheme" if is_shipped else f"no shipped scheme of this format and rank{': it is new here' * (not open_ones)}"
    )
    return told + (f"; undecided for {', '.join(open_ones)}: the search reached its limit, or the rings differ" if open_ones else "")


def index_text(rows: Iterable[LibraryRow]) -> str:
    """The index as it is shipped."""
    lines = ",\n".join(json.dumps(asdict(row)) for row in rows)
    return f'{{"algorithms_sha256": "{algorithms_sha256()}", "schemes": [\n{lines}\n]}}\n'


def _row(loaded: Loaded, schedules: tuple[ShippedSchedule, ...]) -> LibraryRow:
    from bilinear.analysis.accuracy import growth_factor, is_real
    from bilinear.analysis.brent import common_denominator
    from bilinear.lowering.prepare import is_runnable

    scheme = loaded.scheme
    lines = takewhile(lambda line: line.startswith("# "), loaded.source.text.splitlines())
    return LibraryRow(
        scheme.name,
        scheme.m,
        scheme.k,
        scheme.n,
        scheme.rank,
        round(exponent_of(scheme.m, scheme.k, scheme.n, scheme.rank), 6),
        str(scheme.ring),
        common_denominator(scheme) or 0,
        sum(max(0, len(form) - 1) for table in scheme.tables for form in table),
        scheme.additions,
        scheme.u.scalings + scheme.v.scalings + scheme.w.scalings,
        round(float(growth_factor(scheme)), 6) if is_real(scheme) else None,
        scheme.bases is not None,
        is_runnable(scheme, None, "preserve"),
        schedules,
        " ".join(line.removeprefix("# ") for line in lines),
        scheme.citation,
    )
