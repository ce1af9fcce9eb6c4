"""Hensel lifting: a scheme over Z/2 becomes one over Z/4, Z/8, ..., and from there over Z or Q.

If a scheme holds modulo 2^s, adding 2^s times unknown bits to its coefficients changes the Brent equations modulo 2^(s+1) by 2^s times a
linear form of the bits, the same in every step: the Jacobian of the equations, modulo 2. So each step solves one linear system modulo 2,
and that of the first step has a solution exactly if the scheme is the residue of one over Z/4. Kauers, Moosbauer, Flip graphs for matrix
multiplication (2022), section 5; rational reconstruction by Wang (1981).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bilinear.algebra.change_basis import normalise_signs
from bilinear.algebra.composition import shortened
from bilinear.discovery.walker import residues_of, scheme_of
from bilinear.errors import BilinearError, fail
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme, block_name
from bilinear.verify.scheme import prove_scheme

Bits = NDArray[np.uint64]
WORD = 64


def packed(bits: NDArray[np.bool_]) -> Bits:
    """The last axis of an array of bits as 64-bit words, filled up with zeros."""
    free = -bits.shape[-1] % WORD
    padded = np.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, free)])
    return np.packbits(padded, axis=-1, bitorder="little").view(np.uint64)


def unpacked(words: Bits, count: int) -> NDArray[np.bool_]:
    """The inverse of `packed`: the first `count` bits."""
    return np.unpackbits(words.view(np.uint8), axis=-1, count=count, bitorder="little").astype(bool)


class EquationsMod2:
    """J x = e modulo 2 for a fixed J, given by its columns: one row of packed bits for each unknown, a bit for each equation.

    Unknowns that come first are used first: an unknown whose column depends on earlier ones stays 0 in every solution.
    """

    def __init__(self, columns: Bits, equations: int) -> None:
        """Eliminate; takes about unknowns * rank * (equations + unknowns) / 128 operations on words."""
        unknowns = len(columns)
        self.equations, self.unknowns, self._width = equations, unknowns, columns.shape[1]
        rows = np.hstack([columns, packed(np.eye(unknowns, dtype=bool))])
        pivots = []
        for i in range(unknowns):
            words = np.flatnonzero(rows[i, : self._width])
            if not len(words):
                continue
            word = int(words[0])
            lowest = rows[i, word] & (~rows[i, word] + np.uint64(1))
            others = np.flatnonzero(rows[:, word] & lowest)
            rows[others[others != i]] ^= rows[i]
            pivots.append((word * WORD + int(lowest).bit_length() - 1, i))
        self._places = np.array([place for place, _ in pivots], np.int64)
        self._basis = rows[[i for _, i in pivots]]

    @property
    def rank(self) -> int:
        """The number of independent equations."""
        return len(self._places)

    def solve(self, right: NDArray[np.bool_]) -> NDArray[np.bool_] | tuple[int, ...]:
        """The solution in which unknowns that are not needed are 0; if there is none, equations whose sum is 0 = 1."""
        total = np.bitwise_xor.reduce(self._basis[right[self._places]], axis=0, initial=np.uint64(0))
        wrong = np.flatnonzero(unpacked(total[: self._width].copy(), self.equations) != right)
        if len(wrong):
            first = int(wrong[0])
            bits = self._basis[:, first // WORD] >> np.uint64(first % WORD) & np.uint64(1)
            return (first, *map(int, self._places[bits.astype(bool)]))
        return unpacked(total[self._width :].copy(), self.unknowns)


Number = TypeVar("Number", bound=np.generic)

MOST_BITS = 2**31  # The most bits of the eliminated system, 256 MiB: an equation for each unknown.
MOST_POWER = 48  # The largest power of 2 modulo which is lifted; sums stay exact in words of 64 bits.
INTEGER_POWER = 12  # Up to this power, coefficients are tried as integers after every step.
MOST_SIZE = 2**16  # Of numerator and denominator; a chance fraction would have to agree in 15 more bits.
SHOWN = 6  # Equations that a message lists.

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Lifted:
    """A scheme lifted from Z/2, proved over its ring, from residues modulo 2^`power`; the size and rank of the system."""

    scheme: Scheme
    power: int
    equations: int
    unknowns: int
    rank: int
    tries: int


def lift(
    scheme: Scheme, *, over: str = "Q", seed: int = 0, tries: int = 10, progress: Callable[[str, int, int], None] = lambda *_: None
) -> Lifted:
    """Lift a scheme over Z/2 to Z or, if no integers are found and `over` is Q, to rationals with odd denominators.

    `over` may also be Z/4, Z/8, ..., up to Z/2^`MOST_POWER`: what is then found holds there, and perhaps nowhere else. A step has many
    solutions. The first try changes even coefficients only where odd ones are not enough, so it mostly finds -1, 0 and 1; further tries
    prefer unknowns in random order. Raises `BilinearError`: E740 if nothing is lifted to the ring, E301 if the scheme does not hold over
    Z/2, E743 if its coefficients have no residues there, E744 if a linear system has no solution (it names the power, and equations that
    contradict each other), E745 if no coefficients are found, E746 if the system is too large.
    """
    power_of(over)
    begin = _Begin(scheme)
    refused: list[BilinearError] = []
    for number in range(tries):
        progress(f"lifting {scheme.format}, choice {number + 1}", number, tries)
        attempt = _Attempt(begin, over, np.random.default_rng([seed, number]) if number else None)
        try:
            lifted, power = attempt.run()
        except BilinearError as error:
            if attempt.is_final:
                raise
            refused.append(error)
            continue
        citation = f"{scheme.citation or scheme.name} Lifted from Z/2 by `bilinear lift`, with --seed {seed}."
        lifted = normalise_signs(replace(lifted, name=shortened(f"{scheme.name}_lifted"), citation=citation))
        prove_scheme(lifted).require()
        system = attempt.system
        return Lifted(lifted, power, system.equations, system.unknowns, system.rank, number + 1)
    raise refused[0]


class _Begin:
    def __init__(self, scheme: Scheme) -> None:
        self.scheme = replace(scheme, ring=Ring("Z/2"))
        u, v, w = self.factors = residues_of(scheme, "E743")
        self.sizes = u.shape[1], v.shape[1], w.shape[1]
        equations, unknowns = u.shape[1] * v.shape[1] * w.shape[1], sum(self.sizes) * scheme.rank
        if unknowns * (equations + unknowns) > MOST_BITS:
            size = f"{equations} equations for {unknowns} unknowns"
            raise fail("E746", f"{scheme.name} is too large to be lifted: {size}", "lift its parts, and compose them")
        prove_scheme(self.scheme).require()
        m, k, n = scheme.m, scheme.k, scheme.n
        self.needed = np.zeros(self.sizes, np.uint64)
        for i, p, j in np.ndindex(m, k, n):
            self.needed[i * k + p, p * n + j, i * n + j] = 1

    @property
    def equations(self) -> int:
        return self.needed.size

    def jacobian(self) -> Words:
        """The change of the equations with each coefficient, as packed bits: U, V and W of the first product, then of the next."""
        parts = []
        for factors in zip(*(factor.astype(bool) for factor in self.factors), strict=True):
            for mode, size in enumerate(self.sizes):
                axes = [np.eye(size, dtype=bool) if other == mode else factors[other][None] for other in range(3)]
                parts.append(packed((axes[0][:, :, None, None] & axes[1][:, None, :, None] & axes[2][:, None, None, :]).reshape(size, -1)))
        return np.concatenate(parts)

    def split(self, values: NDArray[Number]) -> list[NDArray[Number]]:
        """Coefficients in the order of the unknowns as U, V and the transpose of W."""
        return np.split(values.reshape(self.scheme.rank, -1), np.cumsum(self.sizes)[:-1], axis=1)

    def wrong(self, values: Words) -> Words:
        """What the equations lack, modulo 2^64."""
        u, v, w = self.split(values)
        lacking: Words = self.needed - np.tensordot(u, v[:, :, None] * w[:, None, :], (0, 0))
        return lacking.reshape(-1)


class _Attempt:
    """One choice among the solutions: unknowns in an order of preference."""

    def __init__(self, begin: _Begin, over: str, random: np.random.Generator | None) -> None:
        self.begin, self.over, self.target = begin, over, power_of(over)
        self.is_final = False  # no other choice of coefficients would have helped
        self.values = np.concatenate(begin.factors, axis=1).reshape(-1)
        mixed = np.arange(len(self.values)) if random is None else random.permutation(len(self.values))
        self.order = mixed[np.argsort(self.values[mixed] == 0, kind="stable")]
        self.system = EquationsMod2(begin.jacobian()[self.order], begin.equations)

    def run(self) -> tuple[Scheme, int]:
        """Lift step by step until the coefficients are read; returns the scheme and the power of 2."""
        for power in range(1, (self.target or MOST_POWER) + 1):
            if power > 1:
                shift = np.uint64(power - 1)
                bits = self.system.solve((self.begin.wrong(self.values) >> shift & np.uint64(1)).astype(bool))
                if isinstance(bits, tuple):
                    self.is_final = power == 2
                    raise self._unsolvable(power, bits)
                self.values[self.order] += bits.astype(np.uint64) << shift
            if power == self.target:
                return self._scheme(self._least_residues(power).view(np.int64).tolist(), self.over), power
            if not self.target and power <= INTEGER_POWER:  # over Z sums of the least residues are far below 2^63, so that they are exact
                signed = self._least_residues(power)
                if not self.begin.wrong(signed).any():
                    return self._scheme(signed.view(np.int64).tolist(), "Z"), power
        found = self._rationals()
        if found is not None:
            return found, MOST_POWER
        what = "integers" if self.over == "Z" else "fractions"
        message = f"{self.begin.scheme.name} lifts to Z/2^{MOST_POWER}, but its coefficients there are not {what} that are small enough"
        notes = (f"numerators and denominators of at most {MOST_SIZE} were looked for",)
        raise fail("E745", message, "give more --tries, or another --seed" + (", or --over Q" if self.over == "Z" else ""), notes=notes)

    def _unsolvable(self, power: int, equations: tuple[int, ...]) -> BilinearError:
        scheme = self.begin.scheme
        listed = ", ".join(_equation(scheme, e) for e in equations[:SHOWN])
        more = f" and {len(equations) - SHOWN} more" if len(equations) > SHOWN else ""
        one = len(equations) == 1
        contradiction = f"{'this equation reads' if one else f'these {len(equations)} add up to'} 0 = 1: {listed}{more}"
        message = f"{scheme.name} does not lift from Z/{2 ** (power - 1)} to Z/{2**power}: the linear system has no solution"
        if power == 2:
            notes = (contradiction, "so it is the residue of no scheme over Z/4, over Z, or over Q with odd denominators")
            return fail("E744", message, "look for another scheme over Z/2: its --seed decides", notes=notes)
        return fail("E744", message, "other digits may do: give more --tries, or another --seed", notes=(contradiction,))

    def _least_residues(self, power: int) -> Words:
        """The residues modulo 2^power of least size, as signed numbers modulo 2^64."""
        half = np.uint64(1) << np.uint64(power - 1)
        return np.where(self.values > half, self.values - 2 * half, self.values)

    def _rationals(self) -> Scheme | None:
        found = [reconstructed(int(value), 2**MOST_POWER, MOST_SIZE) for value in self.values]
        whole = all(value is not None and value.denominator == 1 for value in found)
        if None in found or (self.over == "Z" and not whole):
            return None
        scheme = self._scheme(found, "Z" if whole else "Q")
        return scheme if prove_scheme(scheme).holds else None

    def _scheme(self, values: list[int] | list[Fraction | None], ring: str) -> Scheme:
        rows = [table.tolist() for table in self.begin.split(np.array(values, object))]
        return scheme_of(self.begin.scheme, rows, Ring(ring))


def power_of(over: str) -> int:
    """k for Z/2^k; 0 for Z and Q. Raises `BilinearError` (E740) for other rings."""
    modulus = int(match[1]) if (match := re.fullmatch(r"Z/([1-9][0-9]{0,17})", over)) else 0
    if over in ("Z", "Q") or (4 <= modulus <= 2**MOST_POWER and modulus & (modulus - 1) == 0):
        return max(0, modulus.bit_length() - 1)
    raise fail("E740", f"nothing is lifted to {over[:40]!r}", f"choose Q, Z, or one of Z/4, Z/8, ..., Z/{2**MOST_POWER}")


def _equation(scheme: Scheme, number: int) -> str:
    pair, c = divmod(number, scheme.m * scheme.n)
    a, b = divmod(pair, scheme.k * scheme.n)
    blocks = (("A", a, scheme.k), ("B", b, scheme.n), ("C", c, scheme.n))
    left, right, output = (block_name(name, *divmod(block, columns)) for name, block, columns in blocks)
    return f"{left}*{right} in {output}"


def reconstructed(residue: int, modulus: int, most: int) -> Fraction | None:
    """The fraction n/d = residue modulo `modulus` with |n|, d <= most, d prime to it; None if there is none (2 * most^2 < modulus)."""
    before, now, factor_before, factor = modulus, residue % modulus, 0, 1
    while now > most:
        quotient = before // now
        before, now = now, before - quotient * now
        factor_before, factor = factor, factor_before - quotient * factor
    found = Fraction(now, factor) if factor else None
    return found if found is not None and abs(factor) <= most and gcd(found.denominator, modulus) == 1 else None
