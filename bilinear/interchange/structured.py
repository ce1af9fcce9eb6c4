"""Read the collection flip-cpd: bilinear maps with structure, whose files say by their names what they compute.

`us-333-rank14-...` multiplies an upper triangular by a symmetric 3 x 3 matrix; a letter c after the sizes says that some outputs, written
as 0, are left to recursive calls. Arrays (`.npy`) hold U, V and W one after another, each a row for each product, and each number as a
numerator and a denominator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from bilinear.errors import fail
from bilinear.interchange.npy import MOST_MEMBER, Array, read_array
from bilinear.interchange.reader_parts import MOST_PRODUCTS, Maps, read_data, require_one_rank
from bilinear.interchange.targets import Identified
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.structured import KINDS, TRANSPOSED, structured_product
from bilinear.source import Source
from bilinear.verify.bilinear_map import prove_map

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
    def general(self) -> bool:
        """True for the product of two general matrices."""
        return self.left == self.right == "g"

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


def prove_structured(maps: Maps, structure: Structure) -> Identified:
    """Prove that three maps compute the product that the name tells. Raises `BilinearError` (E253, E350) if they do not."""
    require_one_rank(maps)
    wanted = frozenset(number for number, row in enumerate(maps.w.matrix) if row) if structure.partial else None
    target = structured_product(structure.left, structure.right, structure.m, structure.k, structure.n, wanted)
    algorithm = BilinearAlgorithm(maps.name, target, maps.u, maps.v, maps.w, maps.ring)
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
    pairs = _pairs(path)
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


def _pairs(path: Path) -> Array:
    """The numerators and denominators in a file."""
    numbers = read_array(read_data(path, MOST_MEMBER), str(path)).reshape(-1)
    if numbers.dtype.kind not in "iu" or len(numbers) % 2 or not np.all(numbers[1::2] != 0):
        raise fail("E353", f"{path} is not an array of numerators and denominators", "a number is two integers, the second not 0")
    return numbers.reshape(-1, 2)
