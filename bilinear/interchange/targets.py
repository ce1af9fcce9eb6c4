"""Identify the bilinear map of an algorithm that is not a matrix product: known maps of its sizes are tried, each by proof."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isqrt

from bilinear.interchange.reader_parts import Maps
from bilinear.ir.bilinear_map import (
    BilinearAlgorithm,
    BilinearMap,
    polynomial_product,
    product_modulo,
    product_with_transpose,
)
from bilinear.ir.number import residue
from bilinear.ir.ring import Ring
from bilinear.verify.bilinear_map import MapProof, computed_outputs, is_division_algebra, prove_map

PRIMES = (2, 3, 5, 7)
"""The characteristics tried if a file names none."""
MOST_SIZE = 64
"""The most values on a side for which maps are tried."""

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
    named = _modulus(maps.name)
    rings = [Ring(f"Z/{named}")] if named else [maps.ring, *(Ring(f"Z/{p}") for p in PRIMES if not maps.ring.generator)]
    for ring in rings:
        for algorithm in (_algorithm(maps, target, ring) for target in _known(maps, ring)):
            if _fits(algorithm) and prove_map(algorithm).holds:
                found = _as_a_field(algorithm)
                return Identified(found, prove_map(found))
    return _semifield(maps, rings) or _part(maps)


def _as_a_field(algorithm: BilinearAlgorithm) -> BilinearAlgorithm:
    """The algorithm of a product modulo an irreducible polynomial, titled with its field."""
    target, p = algorithm.target, algorithm.ring.modulus
    if not is_division_algebra(algorithm):
        return algorithm
    return replace(algorithm, target=replace(target, title=f"the field of order {p ** len(target.outputs)}: {target.title}"))


def _modulus(name: str) -> int:
    """The prime of the order given by a name; 0 if it gives none."""
    match = _ORDER.search(name)
    order = int(match[1] or match[2]) if match is not None else 0
    return next((p for p in PRIMES if order and order in (p**e for e in range(1, 20))), 0)


def _algorithm(maps: Maps, target: BilinearMap, ring: Ring) -> BilinearAlgorithm:
    return BilinearAlgorithm(maps.name, target, maps.u, maps.v, maps.w, ring)


def _fits(algorithm: BilinearAlgorithm) -> bool:
    """True if all coefficients are in the ring."""
    return all(algorithm.ring.holds(c) for table in algorithm.tables for row in table for _, c in row)


def _known(maps: Maps, ring: Ring) -> Iterator[BilinearMap]:
    """The known maps of these sizes."""
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
    """An unknown map of these sizes, with names for its values."""
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
