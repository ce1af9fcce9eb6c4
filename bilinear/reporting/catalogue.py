"""The least known ranks of formats up to 16, as published."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

from bilinear.ir.ring import Ring
from bilinear.ir.scheme import exponent_of

TABLE = Path(__file__).with_name("known_ranks.toml")
LARGEST = 16
"""The largest side of a format in the table."""
RINGS = "Q", "Z", "-1, 0, 1"
"""What coefficients of the table's schemes are taken from, the largest first."""
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
    """The fewest products that are known for <m,k,n>, m <= k <= n, by the coefficients: `least` over each of `RINGS`.

    `modulo_2` is the fewest over Z/2, and `source` who published the fewest over Q.
    """

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
