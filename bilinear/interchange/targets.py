"""Identify the bilinear map of an algorithm that is not a matrix product: by its name, or by trying known maps of its sizes, each by proof.

The collection flip-cpd tells by the names of its files what they compute: `us-333-rank14-...` multiplies an upper triangular by a symmetric
3 x 3 matrix; a letter c after the sizes says that some outputs, written as 0, are left to recursive calls. Arrays (`.npy`) hold U, V and W
one after another, each a row for each product, and each number as a numerator and a denominator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt
from pathlib import Path

import numpy as np

from bilinear.errors import fail
from bilinear.interchange.npz import MOST_MEMBER, read_array
from bilinear.interchange.reader_parts import MOST_PRODUCTS, Maps, dims_of, read_data, require_one_rank
from bilinear.ir.bilinear_map import BilinearAlgorithm, BilinearMap, polynomial_product, product_modulo, product_with_transpose
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import residue
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import block_name
from bilinear.source import Source
from bilinear.verify.bilinear_map import MapProof, computed_outputs, is_division_algebra, prove_map

KINDS = {
    "g": "general",
    "u": "upper triangular",
    "l": "lower triangular",
    "s": "symmetric",
    "k": "skew-symmetric",
    "w": "skew-symmetric with a diagonal",
}
TRANSPOSED = "t"  # For the second operand: the transposed first one.

Place = tuple[int, int]
Entries = dict[Place, tuple[int, int]]  # The number and the sign of the value at each place that is not zero.


def structured_product(left: str, right: str, m: int, k: int, n: int, outputs: frozenset[int] | None = None) -> BilinearMap:
    """The product of an m x k and a k x n matrix of these kinds.

    Values are numbered row by row (in a lower triangular matrix column by column), without entries that others determine. With `t` the map
    is X*X^T and gives its upper triangle; two upper triangular matrices give an upper triangular one. `outputs` are the numbers of the
    outputs, if not all are wanted. Matrices of all kinds but g and t are square.
    """
    a, a_names = _operand(left, "A", m, k)
    if right == TRANSPOSED:
        b, b_names = {(j, i): value for (i, j), value in a.items()}, tuple(f"{name}^T" for name in a_names)
    else:
        b, b_names = _operand(right, "B", k, n)
    places = [(i, j) for i in range(m) for j in range(n) if i <= j or not (left + right == "uu" or right == TRANSPOSED)]
    rows = tuple(tuple(_terms(a, b, place, k)) for place in places)
    left_out = [number for number in range(len(places)) if outputs is not None and number not in outputs]
    rows = tuple(() if number in left_out else row for number, row in enumerate(rows))
    names = tuple(block_name("C", i, j) for i, j in places)
    product = f"A*A^T, A {KINDS[left]}" if right == TRANSPOSED else f"A*B, A {KINDS[left]}, B {KINDS[right]}"
    without = f", without {', '.join(names[number] for number in left_out)}" if left_out else ""
    triangle = ", upper triangle" if right == TRANSPOSED else ""
    return BilinearMap(f"{product}, {m} x {k} x {n}{triangle}{without}", a_names, b_names, names, rows)


def _terms(a: Entries, b: Entries, place: Place, k: int) -> list[tuple[int, int, int]]:
    i, j = place
    total: dict[tuple[int, int], int] = {}
    for p in range(k):
        if (i, p) in a and (p, j) in b:
            (x, sign), (y, other) = a[i, p], b[p, j]
            total[x, y] = total.get((x, y), 0) + sign * other
    return [(x, y, c) for (x, y), c in total.items() if c]


def _operand(kind: str, letter: str, rows: int, columns: int) -> tuple[Entries, tuple[str, ...]]:
    places = [(i, j) for i in range(rows) for j in range(columns) if _is_entry(kind, i, j)]
    places.sort(key=lambda place: place[::-1] if kind == "l" else place)
    entries: Entries = {place: (number, 1) for number, place in enumerate(places)}
    if kind in "skw":
        sign = 1 if kind == "s" else -1
        entries |= {(j, i): (number, sign) for number, (i, j) in enumerate(places) if i != j}
    return entries, tuple(block_name(letter, i, j) for i, j in places)


def _is_entry(kind: str, i: int, j: int) -> bool:
    """Whether the entry at a place is a value of its own: not 0, and not determined by another entry."""
    return kind == "g" or (i >= j if kind == "l" else i < j or (i == j and kind != "k"))


PRIMES = (2, 3, 5, 7)  # The characteristics tried if a file names none.
MOST_SIZE = 64  # The most values on a side for which maps are tried.

_ORDER = re.compile(r"_[FS]([0-9]{1,6})(?![0-9])|-mod([0-9]{1,6})(?![0-9])")


@dataclass(frozen=True)
class Identified:
    """The map that an algorithm computes, and its proof; without a proof, `missing` says what prevents it."""

    algorithm: BilinearAlgorithm
    proof: MapProof | None = None
    missing: str = ""

    @property
    def ring(self) -> str:
        """The ring over which it was proved."""
        return str(self.algorithm.ring)

    @property
    def title(self) -> str:
        """What it computes."""
        return self.algorithm.target.title


def identify(maps: Maps) -> Identified | None:
    """What three maps compute, over their ring or over Z/p; None if no known map of these sizes is right.

    Where the name tells the order of a field or a modulus (`F81`, `S243`, `-mod2`) that is the p, else small primes are tried after the
    ring of the maps. A multiplication in none of the known ways, but without zero divisors, is a semifield's.
    """
    if max(maps.sizes) > MOST_SIZE or maps.bases is not None:
        return None
    match = _ORDER.search(maps.name)
    order = int(match[1] or match[2]) if match is not None else 0
    named = next((p for p in PRIMES if order and order in (p**e for e in range(1, 20))), 0)
    rings = [Ring(f"Z/{named}")] if named else [maps.ring, *(Ring(f"Z/{p}") for p in PRIMES if not maps.ring.generator)]
    for ring in rings:
        for target in _known(maps, ring):
            algorithm = _algorithm(maps, target, ring)
            if _fits(algorithm) and prove_map(algorithm).holds:
                if is_division_algebra(algorithm):  # a product modulo an irreducible polynomial is told with its field
                    title = f"the field of order {ring.modulus ** len(target.outputs)}: {target.title}"
                    algorithm = replace(algorithm, target=replace(target, title=title))
                return Identified(algorithm, prove_map(algorithm))
    return _semifield(maps, rings) or _part(maps)


def _algorithm(maps: Maps, target: BilinearMap, ring: Ring) -> BilinearAlgorithm:
    return BilinearAlgorithm(maps.name, target, maps.u, maps.v, maps.w, ring)


def _fits(algorithm: BilinearAlgorithm) -> bool:
    return all(algorithm.ring.holds(c) for table in algorithm.tables for row in table for _, c in row)


def _known(maps: Maps, ring: Ring) -> Iterator[BilinearMap]:
    a, b, c = maps.sizes
    if c <= a + b - 1:
        yield polynomial_product(a - 1, b - 1, c - 1)
    if a == b == c and ring.modulus:
        yield product_modulo(_reduction(maps, ring), ring.modulus)
    if a == b:
        m = (isqrt(8 * c + 1) - 1) // 2
        if m * (m + 1) // 2 == c and a % m == 0:
            yield from (product_with_transpose(m, a // m, upper, first) for upper in (True, False) for first in (0, a - 1))


def _reduction(maps: Maps, ring: Ring) -> list[int]:
    """The reduction polynomial of a product in Z/p[x]: the algorithm's value of x * x^(d-1) gives x^d."""
    d = maps.sizes[0]
    algorithm = _algorithm(maps, _own(maps), ring)
    if not _fits(algorithm) or d == 1:
        return [0] * d
    return [-residue(row.get((1, d - 1), 0), ring.modulus) % ring.modulus for row in computed_outputs(algorithm)]


def _own(maps: Maps) -> BilinearMap:
    a, b, c = (tuple(f"{letter}{i}" for i in range(size)) for letter, size in zip("abc", maps.sizes, strict=True))
    return BilinearMap("", a, b, c, ((),) * len(c))


def _semifield(maps: Maps, rings: list[Ring]) -> Identified | None:
    """A multiplication over Z/p without zero divisors. It defines itself: its tensor is what the three maps compute."""
    for ring in rings:
        algorithm = _algorithm(maps, _own(maps), ring)
        if ring.modulus and not ring.has_zero_divisors and _fits(algorithm) and is_division_algebra(algorithm):
            p, d = ring.modulus, maps.sizes[0]
            outputs = computed_outputs(algorithm)
            computed = tuple(tuple((i, j, r) for (i, j), c in sorted(row.items()) if (r := residue(c, p))) for row in outputs)
            target = replace(algorithm.target, title=f"a semifield of order {p**d}: no zero divisors", rows=computed)
            itself = _algorithm(maps, target, ring)
            return Identified(itself, prove_map(itself))
    return None


def _part(maps: Maps) -> Identified | None:
    """An incomplete algorithm: everything but a few terms of one output is right."""
    for target in _known(maps, maps.ring):
        algorithm = _algorithm(maps, target, maps.ring)
        differences = prove_map(algorithm).differences
        if len({d.output for d in differences}) == 1:
            told = " + ".join(
                f"{d.left}*{d.right}" if d.found == d.needed - 1 else f"({d.needed - d.found})*{d.left}*{d.right}" for d in differences
            )
            missing = f"a further product, which adds {told} to {differences[0].output}: then it computes {target.title}"
            return Identified(algorithm, missing=missing)
    return None


_NAME = re.compile(rf"([{''.join(KINDS)}])([{''.join(KINDS)}{TRANSPOSED}])-([1-9])([1-9])([1-9])(c?)(?![0-9a-z])")


@dataclass(frozen=True)
class Structure:
    """What a name says: the kinds of both matrices, m, k and n, and whether outputs may be left out."""

    left: str
    right: str
    m: int
    k: int
    n: int
    partial: bool

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of left values, right values and outputs."""
        return structured_product(self.left, self.right, self.m, self.k, self.n).sizes


def structure_of(path: Path) -> Structure | None:
    """The structure that a file's name tells; None if it tells none."""
    match = _NAME.match(path.name)
    if match is None:
        return None
    left, right, m, k, n = match[1], match[2], int(match[3]), int(match[4]), int(match[5])
    square = (left == "g" or m == k) and (right in f"g{TRANSPOSED}" or k == n) and (right != TRANSPOSED or m == n)
    return Structure(left, right, m, k, n, bool(match[6])) if square else None


def other_structure(path: Path, maps: Maps, ring: Ring | None) -> Identified | None:
    """What the name of a file of flip-cpd tells; of another name, a known map of these sizes; None for a product of general matrices.

    Raises `BilinearError` (E253, E350) if the maps do not compute what the name tells.
    """
    maps = maps if ring is None else replace(maps, ring=ring)
    structure = structure_of(path)
    if structure is None:
        return None if dims_of(*maps.sizes) is not None else identify(maps)
    if structure.left == structure.right == "g":
        return None
    require_one_rank(maps)
    wanted = frozenset(number for number, row in enumerate(maps.w.matrix) if row) if structure.partial else None
    target = structured_product(structure.left, structure.right, structure.m, structure.k, structure.n, wanted)
    algorithm = _algorithm(maps, target, maps.ring)
    proof = prove_map(algorithm)
    proof.require()
    return Identified(algorithm, proof)


def read_flat(path: Path) -> Maps:
    """The three maps in a `.npy` file.

    Raises `BilinearError`: E251 if the file cannot be read, E253 if the number of numbers differs from its name, E353 if it is not an
    array, E653 if its name gives no structure.
    """
    structure = structure_of(path)
    if structure is None:
        raise fail("E653", f"{path} tells no scheme", "the name says what it computes: gg-333-rank23; or save U, V and W with np.savez")
    numbers = read_array(read_data(path, MOST_MEMBER), str(path)).reshape(-1)
    if numbers.dtype.kind not in "iu" or len(numbers) % 2 or not np.all(numbers[1::2] != 0):
        raise fail("E353", f"{path} is not an array of numerators and denominators", "a number is two integers, the second not 0")
    pairs = numbers.reshape(-1, 2)
    sizes = structure.sizes
    rank, rest = divmod(len(pairs), sum(sizes))
    if rest or not 1 <= rank <= MOST_PRODUCTS:
        raise fail("E253", f"{path} holds {len(pairs)} numbers, no multiple of {sum(sizes)}: {sizes} values and outputs")
    tables, at = [], 0
    for size in sizes:
        rows = pairs[at : at + rank * size].reshape(rank, size, 2)
        tables.append([form((int(i), Fraction(int(row[i][0]), int(row[i][1]))) for i in np.nonzero(row[:, 0])[0]) for row in rows])
        at += rank * size
    u, v, w = tables
    outputs = tuple(form((p, dict(row)[place]) for p, row in enumerate(w) if place in dict(row)) for place in range(sizes[2]))
    return Maps(Source(str(path), ""), path.stem, LinearMap(sizes[0], tuple(u)), LinearMap(sizes[1], tuple(v)), LinearMap(rank, outputs))
