"""The proof of an algorithm for any bilinear map: its tensor is checked exactly, coefficient by coefficient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import gcd, lcm

from bilinear.errors import fail
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.number import Coefficient, Symbolic, exact, rank_modulo, residue
from bilinear.verify.facts import Equation, told

MOST_TERMS = 1_000_000  # The most products of three coefficients that a proof adds up; these maps are small.
MOST_ELEMENTS = 4096  # The most elements of an algebra that are tried one by one.
Computed = dict[tuple[int, int], Coefficient]  # An output: each pair of values' coefficient, without zeros.


@dataclass(frozen=True)
class MapProof:
    """The decision about an algorithm: the map, the ring, and the differences.

    `remainder` lists the differences that the target's order allows: found - needed is the exact error. `modulus` is the largest g such
    that it holds modulo g: 0 if it holds exactly, 1 if it holds modulo nothing.
    """

    name: str
    title: str
    ring: str
    differences: tuple[Equation, ...]
    modulus: int
    remainder: tuple[Equation, ...] = ()

    @property
    def order(self) -> int | None:
        """The order of the error in lambda; None without an error."""
        return min((_lowest_power(d.found - d.needed) for d in self.remainder), default=None)

    @property
    def holds(self) -> bool:
        """True if nothing differs."""
        return not self.differences

    @property
    def summary(self) -> str:
        """How many coefficients differ, in words."""
        count = len(self.differences)
        return "1 coefficient differs" if count == 1 else f"{count} coefficients differ"

    def require(self) -> None:
        """Raise `BilinearError` (E350) with the first differences, if there are any."""
        if self.holds:
            return
        notes = [str(d) for d in self.differences[:5]]
        more = [f"and {len(self.differences) - 5} more"] if len(self.differences) > 5 else []
        message = f"{self.name} does not compute {self.title} over {self.ring}: {self.summary}"
        held = [f"it holds modulo {self.modulus}"] if self.modulus > 1 else []
        raise fail("E350", message, notes=(*notes, *more, *held))


def prove_map(algorithm: BilinearAlgorithm) -> MapProof:
    """Decide whether an algorithm computes its target over its ring.

    Raises `BilinearError`: E253 if the sizes of its maps differ from the target's, E302 if a coefficient is not in the ring, E303 if it is
    too large to prove.
    """
    u, v, w = algorithm.u, algorithm.v, algorithm.w
    ranks = {len(u.outputs), len(v.outputs), w.inputs}
    if (u.inputs, v.inputs, len(w.outputs)) != algorithm.target.sizes or len(ranks) != 1:
        sizes = f"{u.inputs}, {v.inputs} and {len(w.outputs)} values, ranks {sorted(ranks)}"
        raise fail("E253", f"{algorithm.name} has not the sizes of {algorithm.target.title}: {sizes}")
    for value in (c for table in algorithm.tables for row in table for _, c in row):
        if not algorithm.ring.holds(value):
            raise fail("E302", f"{algorithm.name}: the coefficient {told(value)} is not an element of {algorithm.ring}")
    target, common = algorithm.target, 0
    differences: list[Equation] = []
    allowed: list[Equation] = []
    for number, row in enumerate(computed_outputs(algorithm)):
        computed, wanted = _folded(row) if number in target.symmetric else row, target.terms(number)
        for i, j in sorted({*computed, *wanted}):
            found, needed = computed.get((i, j), 0), wanted.get((i, j), 0)
            difference = found - needed
            common = gcd(common, *_numerators(difference))
            if residue(difference, algorithm.ring.modulus) if algorithm.ring.modulus else difference:
                kept = allowed if target.order and _lowest_power(difference) >= target.order else differences
                kept.append(Equation(target.left[i], target.right[j], target.outputs[number], found, needed))
    return MapProof(algorithm.name, target.title, str(algorithm.ring), tuple(differences), common, tuple(allowed))


def is_division_algebra(algorithm: BilinearAlgorithm) -> bool:
    """True if an algorithm over Z/p computes a multiplication without zero divisors, as in a field or a semifield (Knuth 1965).

    Every element other than 0 is tried, so there may be at most `MOST_ELEMENTS`; False for more elements or another ring.
    """
    p, size = algorithm.ring.modulus, len(algorithm.target.outputs)
    if not p or algorithm.target.sizes != (size, size, size) or p**size > MOST_ELEMENTS:
        return False
    tensor = [{pair: residue(c, p) for pair, c in row.items()} for row in computed_outputs(algorithm)]
    for element in product(range(p), repeat=size):
        if next((c for c in element if c), 0) != 1:  # one element of each line is enough
            continue
        matrix = [[sum(row.get((i, j), 0) * element[i] for i in range(size)) % p for j in range(size)] for row in tensor]
        if rank_modulo(matrix, p) < size:
            return False
    return True


def computed_outputs(algorithm: BilinearAlgorithm) -> Iterator[Computed]:
    """The outputs of an algorithm as sums over pairs of values, regardless of its target. E303 if it is too large."""
    u, v, w = algorithm.tables
    work = sum(len(u[p]) * len(v[p]) for row in w for p, _ in row)
    if work > MOST_TERMS:
        raise fail("E303", f"{algorithm.name} is too large to prove: it adds up {work} products of coefficients", f"at most {MOST_TERMS}")
    common = lcm(*(c.denominator for table in (u, v, w) for row in table for _, c in row if isinstance(c, Fraction)))
    u, v, w = (tuple(tuple((i, exact(c * common)) for i, c in row) for row in table) for table in (u, v, w))  # integers multiply faster
    for row in w:
        total: Computed = {}
        for p, z in row:
            for i, x in u[p]:
                factor = z * x
                for j, y in v[p]:
                    total[i, j] = total.get((i, j), 0) + factor * y
        yield {pair: exact(c * Fraction(1, common**3)) for pair, c in total.items() if c != 0}


def _folded(row: Computed) -> Computed:
    """A row with (i, j) and (j, i) merged into one pair, written with i <= j."""
    total: Computed = {}
    for (i, j), c in row.items():
        pair = (min(i, j), max(i, j))
        total[pair] = total.get(pair, 0) + c
    return {pair: c for pair, c in total.items() if c != 0}


def _lowest_power(value: Coefficient) -> int:
    """The lowest power of lambda in a polynomial."""
    if not isinstance(value, Symbolic):
        return 0
    return min(dict(monomial).get("lambda", 0) for monomial, _ in value.terms)


def _numerators(value: Coefficient) -> tuple[int, ...]:
    numbers: tuple[int | Fraction, ...] = tuple(c for _, c in value.terms) if isinstance(value, Symbolic) else (value,)
    return tuple(c.numerator for c in numbers)
