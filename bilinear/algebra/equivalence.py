"""Are two schemes the same up to the symmetries of the tensor: order and scale of products, changes of basis, rotation, transposition?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from bilinear.algebra.change_basis import VectorSpan, in_ring, reciprocal
from bilinear.algebra.composition import permutations
from bilinear.ir.linear import Form, transposed_rows
from bilinear.ir.number import Coefficient, Symbolic, square
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme

Residues = NDArray[np.int64]
STEPS = 2000
"""The most partial correspondences of products that are tried for one pair of schemes."""
MOST_PRODUCTS = 256
"""Schemes with more products are not compared: all pairs of products are."""


class _LimitError(Exception):
    """The search took all its steps, or met scales that it cannot determine."""


def equivalent(one: Scheme, other: Scheme, steps: int = STEPS) -> bool | None:
    """True if a symmetry of the tensor turns one scheme into the other, False if none does, None if `steps` partial matches do not tell.

    Two schemes are equal up to a change of basis if and only if products correspond such that the left factors are mapped on each other
    linearly up to scales, the right factors and the rows of W likewise, and the three scales of a product multiply to 1. Both compute the
    same tensor, so such maps preserve it, and those are the changes of basis alone (de Groote, Theoret. Comput. Sci. 7 (1978), 1-24).
    Ranks and traces of products of factors, which no symmetry changes, tell products apart, modulo a large prime; within a class the
    search tries them one after another, and checks what it finds exactly.
    """
    sides, ring = sorted((one.m, one.k, one.n)), _common_ring(one.ring, other.ring)
    if sides != sorted((other.m, other.k, other.n)) or one.rank != other.rank:
        return False
    field = None if ring is None or one.rank > MOST_PRODUCTS else _field(ring)
    if ring is None or field is None or ring.modulus >= 2**31:
        return None
    p, root = field
    mine, left = _Configuration.of(one, p, root), count(steps, -1)
    turned = (each for each in permutations(other) if (each.m, each.k, each.n) == (one.m, one.k, one.n))
    try:
        return any(_Search(ring, mine, _Configuration.of(each, p, root), left).succeeds() for each in turned)
    except _LimitError:
        return None


def _common_ring(one: Ring, other: Ring) -> Ring | None:
    if one.modulus != other.modulus or one.has_zero_divisors or one.is_approximate or other.is_approximate:
        return None
    names = {ring.generator for ring in (one, other)} - {""}
    return None if len(names) > 1 else one if one.generator or one.modulus else Ring("Q") if not names else other


def _field(ring: Ring) -> tuple[int, int] | None:
    """A prime below 2^31, for products in 64 bits, and a root of the ring's generator modulo it: p = x^2 - d has the root x of d."""
    if ring.modulus:
        return ring.modulus, 0
    if not ring.generator:
        return 2**31 - 1, 0
    radicand = square(ring.generator) or 0
    tried = ((x * x - radicand, x) for x in range(2**16, 0, -1))
    return next(((p, x) for p, x in tried if 2 < p < 2**31 and _is_prime(p)), None)


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


@dataclass(frozen=True)
class _Configuration:
    """The products of a scheme: their factors, exact, and what no change of basis or scale changes, of each and of each two (modulo p)."""

    factors: tuple[tuple[Form, ...], ...]
    single: Residues
    pairs: Residues

    @classmethod
    def of(cls, scheme: Scheme, p: int, root: int) -> _Configuration:
        u, v, w = scheme.tables
        factors = u, v, transposed_rows(w, scheme.rank)
        shapes = (scheme.m, scheme.k), (scheme.k, scheme.n), (scheme.m, scheme.n)
        a, b, c = (_array(table, shape, p, root) for table, shape in zip(factors, shapes, strict=True))
        c = c.transpose(0, 2, 1)
        single = np.stack([*(_ranks(x, p) for x in (a, b, c)), _traces(_times(a, b, p), c, p)], axis=-1)
        return cls(factors, single, _pair_invariants(a, b, c, p))


def _array(rows: Sequence[Form], shape: tuple[int, int], p: int, root: int) -> Residues:
    found = np.zeros((len(rows), math.prod(shape)), dtype=np.int64)
    for number, row in enumerate(rows):
        for index, value in row:
            found[number, index] = _residue(value, p, root)
    return found.reshape(len(rows), *shape)


def _residue(value: Coefficient, p: int, root: int) -> int:
    if not isinstance(value, Symbolic):
        return value.numerator * pow(value.denominator, -1, p) % p
    return sum(_residue(c, p, root) * math.prod(pow(root, e, p) for _, e in monomial) for monomial, c in value.terms) % p


def _pair_invariants(a: Residues, b: Residues, c: Residues, p: int) -> NDArray[np.int64]:
    """For each two products (i, j) six numbers that no change of basis or scale changes: rank x rank x 6.

    They are the ranks of U_i V_j, V_i W_j and W_i U_j, and tr(U_i V_j W_j) tr(U_j V_i W_i) with its two rotations.
    """
    found = []
    for x, y, z in ((a, b, c), (b, c, a), (c, a, b)):
        products = _times(x[:, None], y[None, :], p)
        traces = _traces(products, z[None, :], p)
        found += [_ranks(products, p), traces * traces.T % p]
    return np.stack(found, axis=-1)


def _traces(x: Residues, y: Residues, p: int) -> Residues:
    total = np.zeros(np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), dtype=np.int64)
    for i in range(x.shape[-2]):
        for j in range(x.shape[-1]):
            total = (total + x[..., i, j] * y[..., j, i]) % p
    return total


def _times(x: Residues, y: Residues, p: int) -> Residues:
    total = np.zeros((*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1]), dtype=np.int64)
    for inner in range(x.shape[-1]):
        total = (total + x[..., :, inner, None] * y[..., None, inner, :]) % p
    return total


def _ranks(matrices: Residues, p: int) -> NDArray[np.int64]:
    """The ranks of many matrices modulo p, by elimination without division: the rows below a pivot are multiplied by it."""
    left = matrices.reshape(-1, *matrices.shape[-2:]).copy()
    every, done = np.arange(len(left)), np.zeros(len(left), dtype=np.int64)
    rows = np.arange(left.shape[1])
    for column in range(left.shape[2]):
        candidates = (left[:, :, column] != 0) & (rows >= done[:, None])
        has, pivot = candidates.any(axis=1), candidates.argmax(axis=1)
        top = np.minimum(done, left.shape[1] - 1)
        swapped = left[every, pivot].copy()
        left[every[has], pivot[has]] = left[every[has], top[has]]
        left[every[has], top[has]] = swapped[has]
        below = has[:, None] & (rows > done[:, None])
        reduced = (left * swapped[:, column, None, None] - left[:, :, column, None] * swapped[:, None, :] % p) % p
        left = np.where(below[:, :, None], reduced, left)
        done = done + has
    return done.reshape(matrices.shape[:-2])


class _Search:
    def __init__(self, ring: Ring, mine: _Configuration, theirs: _Configuration, left: Iterator[int]) -> None:
        self.ring, self.sides, self.left = ring, (mine, theirs), left
        self.rank = len(mine.single)
        pairs = np.concatenate([side.pairs.reshape(self.rank**2, -1) for side in self.sides])
        numbers = _numbered(pairs).reshape(2, self.rank, self.rank)
        self.pairs = _numbered(np.stack([numbers, numbers.transpose(0, 2, 1)], axis=-1).reshape(-1, 2)).reshape(numbers.shape)

    def succeeds(self) -> bool:
        """True if there is a correspondence; raises `_LimitError`."""
        return self._extends(_numbered(np.concatenate([side.single for side in self.sides])).reshape(2, self.rank))

    def _extends(self, classes: Residues) -> bool:
        """True if a correspondence respects these classes, two rows of numbers: equal ones may correspond."""
        if next(self.left) <= 0:
            raise _LimitError
        refined = self._refined(classes)
        if refined is None:
            return False
        numbers, counts = np.unique(refined[0], return_counts=True)
        if len(numbers) == self.rank:
            return self._holds(np.argsort(refined[0]), np.argsort(refined[1]))
        chosen = numbers[counts > 1][counts[counts > 1].argmin()]
        first = int((refined[0] == chosen).argmax())
        for partner in np.flatnonzero(refined[1] == chosen):
            tried = refined.copy()
            tried[0, first] = tried[1, partner] = self.rank * 2
            if self._extends(tried):
                return True
        return False

    def _refined(self, classes: Residues) -> Residues | None:
        """The classes split by how each product stands to those of each class, until nothing changes; None if two sizes differ."""
        while True:
            if (np.sort(classes[0]) != np.sort(classes[1])).any():
                return None
            stands = np.sort(self.pairs * (3 * self.rank) + classes[:, None, :], axis=-1)
            told = np.concatenate([classes[:, :, None], stands], axis=-1)
            finer = _numbered(told.reshape(2 * self.rank, -1)).reshape(2, self.rank)
            if finer.max() == np.unique(classes).size - 1:
                return finer if (np.sort(finer[0]) == np.sort(finer[1])).all() else None
            classes = finer

    def _holds(self, mine: Residues, theirs: Residues) -> bool:
        equations: list[tuple[dict[tuple[int, int], int], Coefficient]] = [({}, 1) for _ in mine]
        for number in range(3):
            tables = [
                self._echelon([side.factors[number][i] for i in order]) for side, order in zip(self.sides, (mine, theirs), strict=True)
            ]
            scaled = self._scales(*tables)
            if scaled is None:
                return False
            for place, (part, scale) in enumerate(scaled):
                unknown, value = equations[place]
                equations[place] = (unknown | {(number, part): 1}, in_ring(value * scale, self.ring))
        return self._solvable(equations)

    def _echelon(self, rows: list[Form]) -> dict[int, tuple[Coefficient, ...]]:
        """The relations of some vectors: the reduced echelon form of the matrix whose columns they are, by pivot."""
        span, columns = VectorSpan(self.ring), len(rows)
        for row in transposed_rows(rows, 1 + max(terms[-1][0] for terms in rows if terms)):
            entries: list[Coefficient] = [0] * columns
            for index, value in row:
                entries[index] = in_ring(value, self.ring)
            span.extend(tuple(entries))
        return span.pivots

    def _scales(
        self, mine: dict[int, tuple[Coefficient, ...]], theirs: dict[int, tuple[Coefficient, ...]]
    ) -> list[tuple[int, Coefficient]] | None:
        """The scales with which some vectors are mapped linearly on others: the part of each vector, and its scale within the part.

        In u_j = sum of c_jb u_b over a basis and its image, scale_j c'_jb = c_jb scale_b; so each part of vectors that relations link has
        one scale to choose. None if no scales do.
        """
        if mine.keys() != theirs.keys():
            return None
        links: list[list[tuple[int, Coefficient]]] = [[] for _ in range(self.rank)]
        for pivot, row in mine.items():
            for place, (c, d) in enumerate(zip(row, theirs[pivot], strict=True)):
                if bool(c) != bool(d):
                    return None
                if c and place != pivot:
                    links[pivot].append((place, in_ring(c * reciprocal(d, self.ring), self.ring)))
                    links[place].append((pivot, in_ring(d * reciprocal(c, self.ring), self.ring)))
        found: dict[int, tuple[int, Coefficient]] = {}
        for start in range(self.rank):
            if start in found:
                continue
            found[start], waiting = (start, 1), [start]
            while waiting:
                place = waiting.pop()
                for other, factor in links[place]:
                    scale = in_ring(found[place][1] * factor, self.ring)
                    if other not in found:
                        found[other] = (start, scale)
                        waiting.append(other)
                    elif found[other][1] != scale:
                        return None
        return [found[place] for place in range(self.rank)]

    def _solvable(self, equations: list[tuple[dict[tuple[int, int], int], Coefficient]]) -> bool:
        """True if scales of the parts make all these products of powers 1; raises `_LimitError` where a root would have to be drawn."""
        while equations:
            unknown, value = equations.pop()
            if not unknown:
                if value != 1:
                    return False
                continue
            pivot = next((each for each, power in unknown.items() if abs(power) == 1), None)
            if pivot is None:
                raise _LimitError
            for place, (others, product) in enumerate(equations):
                if times := others.get(pivot, 0) * unknown[pivot]:
                    powers = {each: others.get(each, 0) - times * unknown.get(each, 0) for each in {**others, **unknown}}
                    base = reciprocal(value, self.ring) if times > 0 else value
                    equations[place] = (
                        {each: power for each, power in powers.items() if power},
                        in_ring(math.prod([base] * abs(times), start=product), self.ring),
                    )
        return True


def _numbered(rows: Residues) -> Residues:
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
