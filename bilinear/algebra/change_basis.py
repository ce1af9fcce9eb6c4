"""Other representatives of a scheme: normal signs, changes of basis by its symmetries, and bases in which its maps have few terms.

Last, whether two schemes are the same up to the symmetries of the tensor: order and scale of products, changes of basis, rotation,
transposition.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import count, product
from math import comb, gcd

import numpy as np
from numpy.typing import NDArray

from bilinear.algebra.composition import INTEGERS, permutations, shortened
from bilinear.algebra.maps import after, bases_of, least_residue, maps_of, reduced, table_of
from bilinear.algebra.share_search import magnitude
from bilinear.errors import BilinearError, fail
from bilinear.ir.linear import Form, LinearMap, form, transposed_rows
from bilinear.ir.number import Coefficient, Symbolic, exact, is_negative, rational, residue, square
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.scheme import Bases, Scheme


def normalise_signs(scheme: Scheme) -> Scheme:
    """The scheme in which the first coefficient of every left and right factor has no minus; W takes the signs.

    Since (-a)*b = -(a*b), all four sign choices of a product give the same result. Named sums stay unchanged.
    """
    u, v, _ = scheme.tables
    left, right = ([-1 if row and is_negative(row[0][1]) else 1 for row in table] for table in (u, v))
    signs = [a * b for a, b in zip(left, right, strict=True)]
    w = scheme.w.mapped(lambda row: tuple((i, signs[i] * c if i < scheme.rank else c) for i, c in row))
    return replace(scheme, u=_signed(scheme.u, left), v=_signed(scheme.v, right), w=w, places=None)


def _signed(linear: LinearMap, signs: list[int]) -> LinearMap:
    outputs = tuple(tuple((i, sign * c) for i, c in row) for row, sign in zip(linear.outputs, signs, strict=True))
    return replace(linear, outputs=outputs)


Matrix = Sequence[Sequence[Coefficient]]  # A square matrix of exact numbers, row by row.


def change_basis(scheme: Scheme, p: Matrix, q: Matrix, r: Matrix) -> Scheme:
    """The scheme that computes C = P^-1 * S(P*A*Q^-1, Q*B*R^-1) * R, where S is the given one (de Groote 1978).

    P is m x m, Q is k x k, R is n x n, invertible over the ring of the scheme. If the scheme already acts in other bases, the change is
    merged into them. Otherwise each of U, V and W is kept as a program after the change, or written out as a table, whichever has fewer
    additions. Raises `BilinearError` (E643) if a matrix has the wrong size, foreign coefficients, or no inverse over the ring.
    """
    ring = scheme.ring
    sizes = (("P", p, scheme.m), ("Q", q, scheme.k), ("R", r, scheme.n))
    (p, p_), (q, q_), (r, r_) = (_with_inverse(name, matrix, size, ring) for name, matrix, size in sizes)
    a, b, c = _sandwich(p, q_), _sandwich(q, r_), _sandwich(p_, r)
    if scheme.bases is not None:
        own = bases_of(scheme)
        return reduced(replace(scheme, bases=Bases(after(a, own.a), after(b, own.b), after(own.c, c)), places=None))
    u, v, w = _cheaper(after(a, scheme.u)), _cheaper(after(b, scheme.v)), _cheaper(after(scheme.w, c))
    return reduced(replace(scheme, u=u, v=v, w=w, places=None))


def inverse(matrix: Matrix, ring: Ring) -> list[list[Coefficient]]:
    """The exact inverse of a square matrix over the field of fractions of a ring; `ZeroDivisionError` if it is singular."""
    size, space = len(matrix), VectorSpan(ring)
    for i, row in enumerate(matrix):
        space.extend(tuple(in_ring(x, ring) for x in (*row, *(int(i == j) for j in range(size)))))
    if not space.pivots.keys() >= set(range(size)):
        raise ZeroDivisionError("the matrix is singular")
    return [list(space.pivots[i][size:]) for i in range(size)]


def _with_inverse(name: str, matrix: Matrix, size: int, ring: Ring) -> tuple[Matrix, Matrix]:
    if len(matrix) != size or any(len(row) != size for row in matrix):
        raise _refused(name, f"is not {size} x {size}")
    foreign = next((x for row in matrix for x in row if not ring.holds(x)), None)
    if foreign is not None:
        raise _refused(name, f"has the coefficient {foreign}, which is not in {ring}")
    try:
        found = inverse(matrix, ring)
    except ZeroDivisionError:
        raise _refused(name, f"has no inverse over {ring}") from None
    if not all(ring.holds(x) for row in found for x in row):
        raise _refused(name, f"has no inverse over {ring}")
    return matrix, found


def _refused(name: str, what: str) -> BilinearError:
    return fail(
        "E643", f"the matrix {name} {what}", "P is m x m, Q is k x k, R is n x n; each needs an inverse over the ring of the scheme"
    )


def _sandwich(left: Matrix, right: Matrix) -> LinearMap:
    rows, columns = range(len(left)), range(len(right))
    size = len(columns)
    outputs = [form((a * size + b, left[i][a] * right[b][j]) for a in rows for b in columns) for i in rows for j in columns]
    return LinearMap(len(rows) * size, tuple(outputs))


def _cheaper(linear: LinearMap) -> LinearMap:
    table = table_of(linear)
    return linear if linear.additions <= table.additions else table


MOST_KERNELS = 4000  # The most sets of rows whose kernels are all tried.
MOST_BLOCKS = 9  # With more sets, columns of -1, 0 and 1 are tried, for up to this many blocks of a matrix.
RESTARTS = 200  # The number of orders tried for columns with equally many terms.
TINY = 1e-9  # Treated as zero when candidates are ordered; the candidates themselves are exact.

Vector = tuple[Coefficient, ...]


@dataclass(frozen=True)
class _Column:
    """A column x of X, and the terms of U x: (row, coefficient)."""

    x: Vector
    image: Form

    @property
    def scalings(self) -> int:
        return sum(c not in (1, -1) for _, c in self.image)


def change_to_sparse_bases(scheme: Scheme, *, seed: int = 0) -> Scheme:
    """The scheme with changes of basis before U and V and after W, in which these have the fewest terms.

    Among bases with equally few terms, it prefers few scalings in U, V, W and few terms in the changes. With up to `MOST_KERNELS` sets of
    rows the number of terms is minimal; beyond, it is minimal for bases with entries -1, 0 and 1. The maps are tables; `share_sums` finds
    their common sums. A scheme over Z becomes one over Q if its bases are not over Z. Raises `BilinearError`: E651 over Q[lambda], E652 if
    a matrix has too many blocks.
    """
    if scheme.ring.is_approximate or scheme.ring.has_zero_divisors:
        raise fail("E651", f"{scheme.name} is over {scheme.ring}, where few numbers have an inverse", "take an exact scheme")
    u, v, w = scheme.tables
    m, k, n = scheme.m, scheme.k, scheme.n
    left, a = _sparse(scheme, u, m * k, seed)
    right, b = _sparse(scheme, v, k * n, seed)
    back, c = _sparse(scheme, transposed_rows(w, scheme.rank), m * n, seed)
    bases = Bases(LinearMap(m * k, a), LinearMap(k * n, b), LinearMap(m * n, transposed_rows(c, m * n)))
    maps = LinearMap(m * k, left), LinearMap(k * n, right), LinearMap(scheme.rank, transposed_rows(back, m * n))
    name = shortened(f"{scheme.name}_in_other_bases")
    changed = replace(scheme, name=name, u=maps[0], v=maps[1], w=maps[2], bases=bases, places=None)
    within = all(scheme.ring.holds(c) for linear in maps_of(changed) for row in linear.outputs for _, c in row)
    return reduced(changed if within else replace(changed, ring=RATIONALS))


def _sparse(scheme: Scheme, rows: Sequence[Form], size: int, seed: int) -> tuple[tuple[Form, ...], tuple[Form, ...]]:
    ring = scheme.ring
    columns = _candidates(rows, _vectors(scheme, rows, size), size, ring)
    generator = random.Random(seed)
    found = []
    for _ in range(RESTARTS):
        shuffled = sorted(generator.sample(columns, len(columns)), key=lambda column: (len(column.image), column.scalings))
        space = VectorSpan(ring)
        chosen = [column for column in shuffled if len(space.pivots) < size and space.extend(column.x)]
        change = inverse([[column.x[i] for column in chosen] for i in range(size)], ring)
        entries = [c for row in change for c in row if c] + [c for column in chosen for c in column.x if c]
        images = [c for column in chosen for _, c in column.image]
        scalings = sum(column.scalings for column in chosen), sum(c not in (1, -1) for c in entries)
        found.append(((not all(map(ring.holds, entries + images)), len(images), *scalings, len(entries)), chosen, change))
    _, chosen, change = min(found, key=lambda one: one[0])
    return transposed_rows([column.image for column in chosen], len(rows)), tuple(form(enumerate(row)) for row in change)


@dataclass
class VectorSpan:
    """The span of some vectors, with a basis in which each vector alone has a 1 at its own index."""

    ring: Ring
    pivots: dict[int, Vector] = field(default_factory=dict)

    def extend(self, x: Vector) -> bool:
        """Add a vector; returns whether it was outside the space."""
        for place, row in self.pivots.items():
            x = self._without(x, place, row)
        modulus = self.ring.modulus
        units = (i for i, c in enumerate(x) if (isinstance(c, int) and gcd(c, modulus) == 1 if modulus else c))
        place = next(units, -1)
        if place < 0:
            return False
        factor = reciprocal(x[place], self.ring)
        monic = tuple(in_ring(factor * c, self.ring) for c in x)
        self.pivots = {i: self._without(row, place, monic) for i, row in self.pivots.items()} | {place: monic}
        return True

    def _without(self, x: Vector, place: int, row: Vector) -> Vector:
        return tuple(in_ring(c - x[place] * d, self.ring) for c, d in zip(x, row, strict=True)) if x[place] else x


def _candidates(rows: Sequence[Form], vectors: Iterator[Vector], size: int, ring: Ring) -> list[_Column]:
    """The candidate columns, each once up to a factor: the sparsest, up to the number of terms that a basis needs."""
    space, found, most = VectorSpan(ring), dict[Form, _Column](), math.inf
    for x in vectors:
        column = _scaled(x, rows, ring)
        if len(column.image) > most:
            break
        found.setdefault(column.image, column)
        if space.extend(x) and len(space.pivots) == size:
            most = len(column.image)
    return list(found.values())


def _vectors(scheme: Scheme, rows: Sequence[Form], size: int) -> Iterator[Vector]:
    """Candidates for columns, those with the fewest nonzero rows first."""
    seen: dict[Vector, None] = {}
    for row in rows:
        if row:
            factor, terms = reciprocal(row[0][1], scheme.ring), dict(row)
            seen[tuple(in_ring(terms.get(i, 0) * factor, scheme.ring) for i in range(size))] = None
    distinct = list(seen)
    if comb(len(distinct), size - 1) <= MOST_KERNELS:
        return iter(sorted(_kernels(distinct, size, VectorSpan(scheme.ring)), key=lambda x: len(_image(rows, x, scheme.ring))))
    if size <= MOST_BLOCKS and scheme.ring in (RATIONALS, INTEGERS):
        return _ternary(rows, size)
    message = f"{scheme.name} {scheme.format} is too large for the search for other bases"
    limit = f"at most {MOST_KERNELS} sets of rows are weighed, or over Q matrices of at most {MOST_BLOCKS} blocks"
    raise fail("E652", message, "search for a smaller scheme, and compose it", notes=(limit,))


def _kernels(rows: Sequence[Vector], size: int, space: VectorSpan) -> Iterator[Vector]:
    missing = size - 1 - len(space.pivots)
    if not missing:
        (free,) = set(range(size)) - space.pivots.keys()
        yield tuple(1 if i == free else in_ring(-space.pivots[i][free], space.ring) for i in range(size))
        return
    for number in range(len(rows) - missing + 1):
        larger = VectorSpan(space.ring, space.pivots)
        if larger.extend(rows[number]):
            yield from _kernels(rows[number + 1 :], size, larger)


def reciprocal(value: Coefficient, ring: Ring) -> Coefficient:
    """1/value in the ring or its field of fractions; `ZeroDivisionError` if there is none. Values with lambda are not supported.

    In Q[g] with g*g = s it is (a - b*g) / (a*a - s*b*b) for value = a + b*g.
    """
    if ring.modulus:
        return least_residue(Fraction(1, residue(value, ring.modulus)), ring.modulus)
    if not isinstance(value, Symbolic):
        return exact(1 / Fraction(value))
    root = square(ring.generator)
    if root is None:
        raise ZeroDivisionError(f"1/({value}) is not a polynomial in {ring.generator}")
    parts = dict(value.terms)
    a, b = parts.get((), Fraction(0)), parts[((ring.generator, 1),)]
    return (-value + 2 * a) / (a * a - root * b * b)


def _image(rows: Sequence[Form], x: Vector, ring: Ring) -> list[tuple[int, Coefficient]]:
    return [(i, value) for i, row in enumerate(rows) if (value := in_ring(sum((c * x[j] for j, c in row if x[j]), start=0), ring))]


def _ternary(rows: Sequence[Form], size: int) -> Iterator[Vector]:
    """All columns with entries -1, 0 and 1, up to sign."""
    vectors = [x for x in product((0, 1, -1), repeat=size) if next((c for c in x if c), 0) == 1]
    matrix = np.zeros((len(rows), size))
    for number, row in enumerate(rows):
        for i, c in row:
            matrix[number, i] = rational(c)
    nonzero = np.count_nonzero(np.abs(matrix @ np.array(vectors).T) > TINY, axis=0)
    return (vectors[i] for i in np.argsort(nonzero, kind="stable"))


def _scaled(x: Vector, rows: Sequence[Form], ring: Ring) -> _Column:
    """The column scaled so that most coefficients of its image are 1 or -1, and the first one is positive."""
    image = _image(rows, x, ring)
    sizes = Counter(magnitude(c) for _, c in image)
    factor = reciprocal(sizes.most_common(1)[0][0], ring)
    factor = -factor if is_negative(image[0][1]) else factor
    return _Column(tuple(in_ring(c * factor, ring) for c in x), form((i, in_ring(c * factor, ring)) for i, c in image))


def in_ring(value: Coefficient, ring: Ring) -> Coefficient:
    """A number as it is written in a ring: the least residue, or an integer if it is one."""
    return least_residue(value, ring.modulus) if ring.modulus else exact(value)


Residues = NDArray[np.int64]
STEPS = 2000  # The most partial correspondences of products that are tried for one pair of schemes.
MOST_PRODUCTS = 256  # Schemes with more products are not compared: all pairs of products are.


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
    prime = None if ring is None or one.rank > MOST_PRODUCTS else _field(ring)
    if ring is None or prime is None or ring.modulus >= 2**31:
        return None
    p, root = prime
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
            for place, (others, total) in enumerate(equations):
                if times := others.get(pivot, 0) * unknown[pivot]:
                    powers = {each: others.get(each, 0) - times * unknown.get(each, 0) for each in {**others, **unknown}}
                    base = reciprocal(value, self.ring) if times > 0 else value
                    equations[place] = (
                        {each: power for each, power in powers.items() if power},
                        in_ring(math.prod([base] * abs(times), start=total), self.ring),
                    )
        return True


def _numbered(rows: Residues) -> Residues:
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
