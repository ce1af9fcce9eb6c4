"""What is searched for, a format, a rank, a ring, and where walkers begin; and a walker's memory: a scheme over {-1, 0, 1} as pairs of bit
masks, one over Z/2 as single masks, its start, and its way back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from math import prod
from shlex import quote
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bilinear.algebra.change_basis import normalise_signs
from bilinear.algebra.composition import numbered
from bilinear.algebra.maps import transposed
from bilinear.errors import fail
from bilinear.ir.linear import Form, LinearMap, transposed_rows
from bilinear.ir.number import Coefficient, Symbolic, residue
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme

Factors = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]
"""U, V and the transpose of W: a row for each product."""


def coefficients_of(scheme: Scheme) -> list[list[list[Coefficient]]]:
    """U, V and the transpose of W as dense rows, one for each product; sums and changes of basis are expanded."""
    u, v, w = scheme.tables
    sizes = (scheme.m * scheme.k, scheme.k * scheme.n, scheme.m * scheme.n)
    return [
        [[dict(row).get(i, 0) for i in range(size)] for row in table]
        for table, size in zip((u, v, transposed_rows(w, scheme.rank)), sizes, strict=True)
    ]


def residues_of(scheme: Scheme, code: str) -> Factors:
    """The factors modulo 2. Raises `BilinearError` with this code if a coefficient has no residue there."""
    tables = coefficients_of(scheme)
    modulus = scheme.ring.modulus
    for value in (value for table in tables for row in table for value in row):
        if isinstance(value, Symbolic) or modulus % 2 or value.denominator % 2 == 0:
            message = f"{scheme.name} is over {scheme.ring}, and its coefficients have no residues modulo 2"
            raise fail(code, message, "give a scheme over Z/2, over Z, or over Q with odd denominators", notes=(f"one is {value}",))
    u, v, w = (np.array([[residue(value, 2) for value in row] for row in table], np.uint64) for table in tables)
    return u, v, w


def scheme_of(like: Scheme, tables: Sequence[Sequence[Sequence[Coefficient]]], ring: Ring) -> Scheme:
    """A scheme of the format and the name of another, of these factors: U, V and the transpose of W."""
    maps = [LinearMap(len(table[0]), tuple(tuple((i, x) for i, x in enumerate(row) if x) for row in table)) for table in tables]
    u, v, of_c = maps
    products = numbered(len(tables[0]))
    return replace(like, u=u, v=v, w=transposed(of_c), products=products, ring=ring, places=None, bases=None)


@dataclass(frozen=True)
class LowerBound:
    """A number of products below which no walk finds a scheme, and the `source` that proves it."""

    rank: int
    source: str


def fewest_products(m: int, k: int, n: int) -> LowerBound:
    """The best known bound from below on the rank of <m,k,n> over Z/2; it is the same for all orders of m, k and n.

    Walks look for schemes over Z/2, or over Z with coefficients -1, 0 and 1, which are schemes over Z/2 when their signs are dropped. So no
    walk finds fewer products than this. The bound says nothing about approximate schemes, over Q[lambda].

    Sources: J. E. Hopcroft, L. R. Kerr, *On minimizing the number of multiplications necessary for matrix multiplication*, SIAM J. Appl.
    Math. 20 (1971), for <2,2,n> and <2,3,3>; M. Bläser, *Lower bounds for the multiplicative complexity of matrix multiplication*, Comput.
    Complexity 8 (1999), and *On the complexity of the multiplication of matrices of small formats*, J. Complexity 19 (2003), for <3,3,3>.

    Examples
    --------
    >>> fewest_products(2, 2, 2)
    LowerBound(rank=7, source='Hopcroft and Kerr, 1971')
    >>> fewest_products(3, 1, 2).rank
    6
    """
    small, middle, large = sorted((m, k, n))
    found = [LowerBound(middle * large, "a matrix has as many blocks")]
    if small >= 2:
        found += [LowerBound(_substituted(*order), "Bläser, 1999") for order in permutations((m, k, n)) if order[2] >= order[0]]
    if (small, middle) == (2, 2):
        found.append(LowerBound(-(-7 * large // 2), "Hopcroft and Kerr, 1971"))
    if (small, middle, large) == (2, 3, 3):
        found.append(LowerBound(15, "Hopcroft and Kerr, 1971"))
    if (small, middle, large) == (3, 3, 3):
        found.append(LowerBound(19, "Bläser, 2003"))
    return max(reversed(found), key=lambda bound: bound.rank)


def _substituted(m: int, k: int, n: int) -> int:
    """Bläser's bound for n >= m >= 2, over every field."""
    return m * k + k * n + m - k + n - 3


MOST = 2**32  # Seeds and numbers of walkers must be smaller.
MOST_RANK = 1000  # The most products of a start: a walker over Z/2 keeps a place for every pair.
RINGS = ("Z", "Z/2")

Format = tuple[int, int, int]


@dataclass(frozen=True)
class SearchTask:
    """The search task: a scheme of the format <m,k,n> with at most `rank` products, the number of walkers, and the seed.

    Over Z all coefficients are -1, 0 or 1; over Z/2 a walk is faster and never held up by signs. Walkers begin at the scheme `start`, which
    was `named` so, or at the classical one. With `lifted` a scheme over Z/2 counts only if it can be lifted to Z or Q.
    """

    format: Format
    rank: int
    seed: int = 0
    walkers: int = 8
    ring: str = "Z"
    start: Scheme | None = None
    named: str = ""
    lifted: bool = False

    @property
    def begin(self) -> int:
        """The rank of the scheme where walkers begin."""
        return self.start.rank if self.start is not None else prod(self.format)

    @property
    def options(self) -> str:
        """The options of the command that walks so, without the rank."""
        ring = f" --over {self.ring}" if self.ring != "Z" else ""
        start = f" --from {quote(self.named)}" if self.named else ""
        walkers = f" --walkers {self.walkers}" if self.walkers != SearchTask.walkers else ""
        lifted = " --lift" if self.lifted else ""
        return f"{ring}{lifted}{start} --seed {self.seed}{walkers}"

    @cached_property
    def masks(self) -> NDArray[np.uint64]:
        """The factors of the scheme where walkers begin, as `walker.masks_of` gives them."""
        if self.start is None:
            return classical_masks(*self.format)
        return masks_of(
            [table.tolist() for table in residues_of(self.start, "E741")] if self.ring == "Z/2" else coefficients_of(self.start)
        )

    def require(self) -> None:
        """Refuse what cannot be searched: E740 the ring, E661 the format, E741 the start, E660 the rank."""
        m, k, n = self.format
        if self.ring not in RINGS:
            raise fail("E740", f"no walk goes over {self.ring[:40]!r}", "choose Z, with coefficients -1, 0 and 1, or Z/2")
        if self.lifted and self.ring != "Z/2":
            raise fail("E740", f"a scheme over {self.ring} needs no lift", "give --over Z/2 with --lift")
        largest = max(m * k, k * n, m * n)
        if largest > WIDTH:
            raise fail(
                "E661", f"<{m},{k},{n}> has {largest} blocks in a matrix, and the walk has masks of {WIDTH} bits", "split the format"
            )
        if self.start is not None:
            self._require_start(self.start)
        self._require_rank()

    def _require_rank(self) -> None:
        m, k, n = self.format
        least = fewest_products(m, k, n)
        whose = "the classical scheme" if self.start is None else self.start.name
        if least.rank <= self.rank < self.begin:
            return
        reason = f"{whose} has rank {self.begin}"
        if self.rank < least.rank:
            reason = f"no scheme has fewer than {least.rank} products ({least.source})"
        hint = f"give one from {least.rank} to {self.begin - 1}"
        if least.rank == self.begin - 1:
            hint = f"give {least.rank}"
        elif least.rank >= self.begin:
            hint = f"give a larger format: nothing has fewer products than {whose}"
        raise fail("E660", f"there is no point in searching for rank {self.rank} in <{m},{k},{n}>: {reason}", hint)

    def _require_start(self, start: Scheme) -> None:
        if (start.m, start.k, start.n) != self.format:
            m, k, n = self.format
            raise fail(
                "E741", f"the walk cannot begin at {start.name}: it is {start.format}, and <{m},{k},{n}> is looked for", "name another"
            )
        if start.rank > MOST_RANK:
            raise fail("E741", f"the walk cannot begin at {start.name}: its rank {start.rank} is above {MOST_RANK}", "name another")
        prove_scheme(start).require()
        if self.ring == "Z":
            for value in (value for table in coefficients_of(start) for row in table for value in row):
                if start.ring.modulus or value not in (-1, 0, 1):
                    message = f"the walk over Z cannot begin at {start.name}: its coefficients must be -1, 0 and 1 and hold over Z"
                    note = f"it is over {start.ring}" if start.ring.modulus else f"one is {value}"
                    raise fail("E741", message, "name another, or give --over Z/2 where all denominators are odd", notes=(note,))
        _ = self.masks


WIDTH = 64  # The most blocks of A, of B, or of C: a mask has a bit for each.
ROOM = 3  # How far above the best rank plus transitions may lead a walk.
LEAST_PATIENCE, MOST_PATIENCE = 5_000, 50_000  # Steps without a reduction before a plus transition.
RETURN = 10_000_000  # Steps without a new best after which a walk restarts at the best.

RANK, BEST, BEST_AT, STEPS, PATIENCE = range(5)
"""The places of `Walker.tally`: the rank now, the best rank, the step that reached it, all steps, and steps until a plus transition."""


class Walker(NamedTuple):
    """The state of a walk; its arrays are written in place.

    `factors[mode, sign, p]` is the mask of the +1 (sign 0) or the -1 (sign 1) coefficients of product p: mode 0 over the blocks of A, 1
    over those of B, 2 over those of C, numbered row-major. `pairs[mode, :counts[mode]]` are the pairs of products whose factors of that
    mode are equal up to sign. `best` holds the factors at the first step of the best rank, `random` the state of the generator.
    """

    factors: NDArray[np.uint64]
    best: NDArray[np.uint64]
    pairs: NDArray[np.int32]
    counts: NDArray[np.int64]
    random: NDArray[np.uint64]
    tally: NDArray[np.int64]


def ternary_walker(masks: NDArray[np.uint64], seed: int, number: int) -> Walker:
    """A walker at a scheme, given by its masks; seeds and numbers below 2^32 give different random streams."""
    rank = masks.shape[2]
    most = rank + ROOM + 1
    factors = np.zeros((3, 2, most), np.uint64)
    factors[:, :, :rank] = masks
    pairs = np.zeros((3, most * (most - 1) // 2, 2), np.int32)
    random = np.array([seed << 32 | number], np.uint64)
    return Walker(factors, factors.copy(), pairs, np.zeros(3, np.int64), random, tally_at(rank, LEAST_PATIENCE))


def tally_at(rank: int, patience: int) -> NDArray[np.int64]:
    """The tally of a walker that begins at a scheme of this rank; only walks over Z/2 use the last three places."""
    return np.array([rank, rank, 0, 0, patience, 0, rank, 0], np.int64)


def classical_masks(m: int, k: int, n: int) -> NDArray[np.uint64]:
    """The factors of the classical scheme, as `masks_of` gives those of any."""
    products = [(1 << (i * k + p), 1 << (p * n + j), 1 << (i * n + j)) for i in range(m) for p in range(k) for j in range(n)]
    masks = np.zeros((3, 2, len(products)), np.uint64)
    masks[:, 0] = np.array(products, np.uint64).T
    return masks


def masks_of(tables: Iterable[Iterable[Sequence[Coefficient]]]) -> NDArray[np.uint64]:
    """Masks of shape (3, 2, rank) of factors with coefficients -1, 0 and 1: masks[mode, 0] of the 1s, masks[mode, 1] of the -1s."""
    return np.array([[[_mask(row, sign) for row in rows] for sign in (1, -1)] for rows in map(list, tables)], np.uint64)


def _mask(row: Sequence[Coefficient], value: int) -> int:
    return sum(1 << i for i, x in enumerate(row) if x == value)


def to_scheme(m: int, k: int, n: int, factors: NDArray[np.integer], rank: int, name: str, citation: str) -> Scheme:
    """The scheme of the first `rank` products, with the first coefficient of each factor over A and B made positive.

    Factors without masks of signs, of shape (3, products) in place of (3, 2, products), make a scheme over Z/2.
    """
    masks = factors[:, None] if factors.ndim == 2 else factors
    rows = [tuple(_form(*map(int, masks[mode, :, p])) for p in range(rank)) for mode in range(3)]
    u, v, of_c = (LinearMap(size, forms) for size, forms in zip((m * k, k * n, m * n), rows, strict=True))
    ring = Ring("Z/2") if factors.ndim == 2 else RATIONALS
    return normalise_signs(Scheme(name, m, k, n, u, v, transposed(of_c), numbered(rank), ring, citation=citation))


def _form(plus: int, minus: int = 0) -> Form:
    return tuple((i, 1 if plus >> i & 1 else -1) for i in range(WIDTH) if (plus | minus) >> i & 1)


BUCKETS = 256  # Hash chains of a mode.
PATIENCE_FACTOR, LEAST_PAIRS = 20, 10
"""A plus transition follows after this factor times p^2 steps without a reduction; p is the number of pairs, at least the second."""
RESTART = 20_000_000  # Steps without a lower rank after which a walk restarts.
ISOLATED = 10_000  # So many steps a visit of a scheme without flips counts for: most ways lead back there.
FROM_START = 4  # One restart in so many is at the start, the others at the best scheme.
PAIRS, LOW, LOW_AT = range(5, 8)
"""Places of `BinaryWalker.tally` beside those of `walker`: the pairs, the lowest rank since the last restart, the step that reached it."""
FIELD = 12  # Bits of the number of a product in a packed pair.


class BinaryWalker(NamedTuple):
    """The state of a walk over Z/2; its arrays are written in place.

    `factors[mode, p]` is the mask of the odd coefficients of product p: mode 0 over the blocks of A, 1 over those of B, 2 over those of C.
    Products whose factors have the same hash form a chain, doubly linked: `heads[mode, bucket]` is the first, `chain[mode, 0, p]` the next
    and `chain[mode, 1, p]` the one before, or -1. `pairs` lists the pairs of products with equal factors, packed as mode, p and q;
    `places[mode, p, q]` is where in the list a pair stands. `start` holds the factors of the start; `best`, `random` and `tally` are as in
    `walker.Walker`; `basis`, `sums` and `members` are room for an elimination.
    """

    factors: NDArray[np.uint64]
    best: NDArray[np.uint64]
    start: NDArray[np.uint64]
    heads: NDArray[np.int16]
    chain: NDArray[np.int16]
    pairs: NDArray[np.int32]
    places: NDArray[np.int32]
    random: NDArray[np.uint64]
    tally: NDArray[np.int64]
    basis: NDArray[np.uint64]
    sums: NDArray[np.uint64]
    members: NDArray[np.int64]


def binary_walker(masks: NDArray[np.uint64], seed: int, number: int) -> BinaryWalker:
    """A walker at a scheme, whose factors are given as `walker.masks_of` does; a coefficient -1 is odd as well."""
    rank = masks.shape[2]
    most = rank + ROOM + 1
    factors = np.zeros((3, most), np.uint64)
    factors[:, :rank] = masks[:, 0] | masks[:, 1]
    return BinaryWalker(
        factors,
        factors.copy(),
        factors.copy(),
        np.full((3, BUCKETS), -1, np.int16),
        np.full((3, 2, most), -1, np.int16),
        np.zeros(3 * most * (most - 1) // 2, np.int32),
        np.zeros((3, most, most), np.int32),
        np.array([seed << 32 | number], np.uint64),
        tally_at(rank, 0),
        np.zeros(WIDTH, np.uint64),
        np.zeros(WIDTH, np.uint64),
        np.zeros(WIDTH, np.int64),
    )
