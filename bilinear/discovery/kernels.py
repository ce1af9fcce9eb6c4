"""The compiled moves and the walk in the flip graph.

A move rewrites a few products and keeps their sum; a move that would need a coefficient outside {-1, 0, 1} is not made. Flips and
reductions: Kauers, Moosbauer, Flip graphs for matrix multiplication (2022). Plus transitions: Arai, Ichikawa, Hukushima, Adaptive flip
graph algorithm for matrix multiplication (2024). Over {-1, 0, 1}: Perminov, Fast matrix multiplication via ternary meta flip graphs (2025).

Only `discovery.compiled_walk` imports this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bilinear.discovery.walker import BEST, BEST_AT, LEAST_PATIENCE, MOST_PATIENCE, PATIENCE, RANK, RETURN, ROOM, STEPS, Walker

F = TypeVar("F", bound=Callable[..., object])
Factors = NDArray[np.uint64]

TRIES = 1000  # Pairs of products that a plus transition tries at most; most pairs need a coefficient 2.
POLL = 1024  # Steps between two checks whether to halt.

NONE = np.uint64(0)
STEP, FIRST, SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
S27, S30, S31, S32 = (np.uint64(shift) for shift in (27, 30, 31, 32))


def compiled(function: F) -> F:
    """Compile a function when it is first called; it runs without the GIL."""
    machine_code: F = njit(nogil=True, error_model="numpy")(function)
    return machine_code


@compiled
def below(random: NDArray[np.uint64], most: int) -> int:
    """A random number in 0..most-1, for `most` below 2^31; SplitMix64 (Steele, Lea, Flood 2014)."""
    random[0] += STEP
    x = random[0]
    x = (x ^ (x >> S30)) * FIRST
    x = (x ^ (x >> S27)) * SECOND
    x ^= x >> S31
    return np.int64(((x >> S32) * np.uint64(most)) >> S32)  # type: ignore[return-value]


@compiled
def relation(factors: Factors, mode: int, p: int, q: int) -> int:
    """1 if the factors of two products are equal, -1 if one is minus the other, else 0."""
    plus, minus = factors[mode, 0, p], factors[mode, 1, p]
    if plus == factors[mode, 0, q] and minus == factors[mode, 1, q]:
        return 1
    return -1 if plus == factors[mode, 1, q] and minus == factors[mode, 0, q] else 0


@compiled
def is_same(plus: int, minus: int, other_plus: int, other_minus: int) -> bool:
    """True if two factors are equal up to sign."""
    return (plus == other_plus and minus == other_minus) or (plus == other_minus and minus == other_plus)


@compiled
def fits(factors: Factors, mode: int, p: int, q: int, sign: int) -> bool:
    """True if factor p + sign * factor q has all coefficients in {-1, 0, 1}."""
    same = (1 - sign) >> 1
    return bool((factors[mode, 0, p] & factors[mode, same, q]) | (factors[mode, 1, p] & factors[mode, 1 - same, q]) == NONE)


@compiled
def put_sum(factors: Factors, mode: int, target: int, p: int, q: int, sign: int) -> None:
    """Set factor target = factor p + sign * factor q, which must fit."""
    same = (1 - sign) >> 1
    plus, minus = factors[mode, same, q], factors[mode, 1 - same, q]
    old_plus, old_minus = factors[mode, 0, p], factors[mode, 1, p]
    factors[mode, 0, target] = (old_plus & ~minus) | (plus & ~old_minus)
    factors[mode, 1, target] = (old_minus & ~plus) | (minus & ~old_plus)


@compiled
def is_zero(factors: Factors, mode: int, p: int) -> bool:
    """True if a factor is zero, so that its product is not needed."""
    return bool(factors[mode, 0, p] | factors[mode, 1, p] == NONE)


@compiled
def link(walker: Walker, mode: int, p: int) -> bool:
    """Rebuild the pairs of product p in a mode; returns whether a pair shares a second factor, so that the two products can be merged."""
    factors, pairs, count = walker.factors, walker.pairs, walker.counts[mode]
    i = 0
    while i < count:
        if pairs[mode, i, 0] == p or pairs[mode, i, 1] == p:
            count -= 1
            pairs[mode, i, 0], pairs[mode, i, 1] = pairs[mode, count, 0], pairs[mode, count, 1]
        else:
            i += 1
    shared, plus, minus = False, factors[mode, 0, p], factors[mode, 1, p]
    for q in range(walker.tally[RANK]):
        if q != p and is_same(plus, minus, factors[mode, 0, q], factors[mode, 1, q]):
            pairs[mode, count, 0], pairs[mode, count, 1] = p, q
            count += 1
            shared |= relation(factors, (mode + 1) % 3, p, q) != 0 or relation(factors, (mode + 2) % 3, p, q) != 0
    walker.counts[mode] = count
    return shared


@compiled
def link_all(walker: Walker) -> None:
    """Rebuild the pairs of all products."""
    walker.counts[:] = 0
    for mode in range(3):
        count = 0
        for p in range(walker.tally[RANK]):
            for q in range(p):
                if relation(walker.factors, mode, p, q) != 0:
                    walker.pairs[mode, count, 0], walker.pairs[mode, count, 1] = p, q
                    count += 1
        walker.counts[mode] = count


@compiled
def flip(walker: Walker) -> bool:
    """Try a random flip of a scheme that cannot be reduced; returns whether a reduction may now exist.

    For a pair with a_p = s a_q, and t = 1 or -1: a_p b_p c_p + a_q b_q c_q = a_p (b_p + t s b_q) c_p + a_q b_q (c_q - t c_p). Both orders
    of the products and both t give all flips of the pair; exchanging b and c gives none that is new. A factor becomes zero only if the two
    products could have been merged before.
    """
    factors, counts, random = walker.factors, walker.counts, walker.random
    choice = below(random, 4 * (counts[0] + counts[1] + counts[2]))
    t, turned, at, mode = 1 - 2 * (choice & 1), (choice >> 1) & 1, choice >> 2, 0
    while at >= counts[mode]:
        at -= counts[mode]
        mode += 1
    p, q = int(walker.pairs[mode, at, turned]), int(walker.pairs[mode, at, 1 - turned])
    b, c = (mode + 1) % 3, (mode + 2) % 3
    ts = t * relation(factors, mode, p, q)
    if not (fits(factors, b, p, q, ts) and fits(factors, c, q, p, -t)):
        return False
    put_sum(factors, b, p, p, q, ts)
    put_sum(factors, c, q, q, p, -t)
    opened = link(walker, b, p)
    return link(walker, c, q) or opened


@compiled
def drop(walker: Walker, p: int) -> None:
    """Remove a product; the last one takes its place."""
    last = walker.tally[RANK] - 1
    for mode in range(3):
        for sign in range(2):
            walker.factors[mode, sign, p] = walker.factors[mode, sign, last]
    walker.tally[RANK] = last


@compiled
def reduce_once(walker: Walker) -> bool:
    """Drop a product with a zero factor, or merge two that share two factors; returns whether there was one. Pairs are not rebuilt."""
    factors = walker.factors
    for p in range(walker.tally[RANK]):
        if is_zero(factors, 0, p) or is_zero(factors, 1, p) or is_zero(factors, 2, p):
            drop(walker, p)
            return True
        for q in range(p):
            for mode in range(3):
                sign = relation(factors, (mode + 1) % 3, p, q) * relation(factors, (mode + 2) % 3, p, q)
                if sign != 0 and fits(factors, mode, q, p, sign):
                    put_sum(factors, mode, q, q, p, sign)
                    drop(walker, p)
                    return True
    return False


@compiled
def plus(walker: Walker) -> bool:
    """Try to turn a random pair into three products: a part of the second is split off and flipped with the first.

    Pairs are not rebuilt.

    For s, t = 1 or -1, and a, b, c the three modes in any order:
    a_p b_p c_p + a_q b_q c_q = a_p (b_p + s b_q) c_p + (a_q - t a_p) b_q c_q + a_p b_q (t c_q - s c_p).
    """
    factors, random, rank = walker.factors, walker.random, walker.tally[RANK]
    if rank < 2 or rank == factors.shape[2]:
        return False
    for _ in range(TRIES):
        p, q = below(random, rank), below(random, rank - 1)
        q += q >= p
        choice = below(random, 24)
        a, turned, s, t = choice % 3, 1 + (choice // 3) % 2, 1 - 2 * ((choice // 6) % 2), 1 - 2 * (choice // 12)
        b, c = (a + turned) % 3, (a + 3 - turned) % 3
        if relation(factors, a, p, q) != 0 or relation(factors, b, p, q) != 0 or relation(factors, c, p, q) != 0:
            continue
        if not (fits(factors, b, p, q, s) and fits(factors, a, q, p, -t) and fits(factors, c, q, p, -s * t)):
            continue
        put_sum(factors, c, rank, q, p, -s * t)
        for sign in range(2):
            factors[a, sign, rank] = factors[a, ((1 - t) >> 1) ^ sign, p]  # as (t a_p) b_q (c_q - s t c_p)
            factors[b, sign, rank] = factors[b, sign, q]
        put_sum(factors, b, p, p, q, s)
        put_sum(factors, a, q, q, p, -t)
        walker.tally[RANK] = rank + 1
        return True
    return False


@compiled
def walk(walker: Walker, steps: int, target: int, number: int, halt: NDArray[np.int64]) -> None:
    """Walk on for `steps` steps, or until the best rank is at most `target`, or until halt[0] < number.

    A step is an attempted flip or a plus transition. Plus transitions happen if no reduction came for some time and the rank is less than
    `ROOM` above the best, or if there is no flip. All reductions are made at once.
    """
    tally, counts = walker.tally, walker.counts
    settle(walker)
    for step in range(steps):
        if tally[BEST] <= target or (step % POLL == 0 and halt[0] < number):
            return
        tally[STEPS] += 1
        tally[PATIENCE] -= 1
        if (tally[STEPS] - tally[BEST_AT]) % RETURN == 0:
            go_back(walker)
        stuck = counts[0] + counts[1] + counts[2] == 0
        if stuck or tally[PATIENCE] < 0:
            changed = (stuck or tally[RANK] < tally[BEST] + ROOM) and plus(walker)
            tally[PATIENCE] = LEAST_PATIENCE + below(walker.random, MOST_PATIENCE - LEAST_PATIENCE)
        else:
            changed = flip(walker)
        if changed:
            settle(walker)


@compiled
def settle(walker: Walker) -> None:
    """Make all available reductions, and keep the scheme if it is the best so far."""
    tally = walker.tally
    while reduce_once(walker):
        tally[PATIENCE] = LEAST_PATIENCE + below(walker.random, MOST_PATIENCE - LEAST_PATIENCE)
        if tally[RANK] < tally[BEST]:
            tally[BEST], tally[BEST_AT] = tally[RANK], tally[STEPS]
            copy(walker.factors, walker.best, tally[RANK])
    link_all(walker)


@compiled
def go_back(walker: Walker) -> None:
    """Restart at the best scheme."""
    walker.tally[RANK] = walker.tally[BEST]
    copy(walker.best, walker.factors, walker.tally[RANK])
    link_all(walker)


@compiled
def copy(of: Factors, to: Factors, rank: int) -> None:
    """Copy the factors of so many products, by loops: they compile ten times faster than slices."""
    for mode in range(3):
        for sign in range(2):
            for p in range(rank):
                to[mode, sign, p] = of[mode, sign, p]
