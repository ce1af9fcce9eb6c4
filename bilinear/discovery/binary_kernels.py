"""The compiled moves and the walk in the flip graph over Z/2, where every flip and every plus transition can be made.

The moves are those of `kernels`, with + for every sign, and the sources are the same. Only `discovery.compiled_walk` imports this module.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bilinear.discovery.kernels import NONE, POLL, STEP, TRIES, Factors, below, compiled
from bilinear.discovery.walker import (
    BEST,
    BEST_AT,
    FIELD,
    FROM_START,
    ISOLATED,
    LEAST_PAIRS,
    LOW,
    LOW_AT,
    PAIRS,
    PATIENCE,
    PATIENCE_FACTOR,
    RANK,
    RESTART,
    ROOM,
    STEPS,
    BinaryWalker,
)

SHIFT = np.uint64(56)  # Leaves the 8 bits of a bucket.
LOWEST = (1 << FIELD) - 1
ONE = np.uint64(1)


@compiled
def bucket(factor: int) -> int:
    """The hash chain of a factor: the top bits of its product with an odd constant."""
    return np.int64((factor * STEP) >> SHIFT)  # type: ignore[return-value]


@compiled
def enter(walker: BinaryWalker, mode: int, p: int, factor: int) -> bool:
    """Give product p, which is in no chain, a factor, and list its pairs; returns whether there are any."""
    factors, heads, chain, places = walker.factors, walker.heads, walker.chain, walker.places
    factors[mode, p] = factor
    into = bucket(factor)
    first, begin = np.int64(heads[mode, into]), walker.tally[PAIRS]
    q, count = first, begin
    while q >= 0:
        if factors[mode, q] == factor:
            walker.pairs[count] = (mode << FIELD | p) << FIELD | q
            places[mode, p, q] = places[mode, q, p] = count
            count += 1
        q = np.int64(chain[mode, 0, q])
    walker.tally[PAIRS] = count
    chain[mode, 0, p], chain[mode, 1, p] = first, -1
    if first >= 0:
        chain[mode, 1, first] = p
    heads[mode, into] = p
    return bool(count > begin)


@compiled
def is_dependent(walker: BinaryWalker, mode: int, p: int, other: int) -> bool:
    """True if the products that share p's factor of a mode have linearly dependent factors of another mode."""
    factors, chain, basis, size = walker.factors, walker.chain, walker.basis, 0
    factor = factors[mode, p]
    q = np.int64(walker.heads[mode, bucket(factor)])
    while q >= 0:
        if factors[mode, q] == factor:
            rest = factors[other, q]
            for i in range(size):
                rest = min(rest, rest ^ basis[i])
            if rest == NONE:
                return True
            basis[size] = rest
            size += 1
        q = np.int64(chain[mode, 0, q])
    return False


@compiled
def leave(walker: BinaryWalker, mode: int, p: int) -> None:
    """Take product p out of its chain and its pairs out of the list; the last pair takes the place of each."""
    factors, heads, chain, places = walker.factors, walker.heads, walker.chain, walker.places
    factor = factors[mode, p]
    after, before = np.int64(chain[mode, 0, p]), np.int64(chain[mode, 1, p])
    if before >= 0:
        chain[mode, 0, before] = after
    else:
        heads[mode, bucket(factor)] = after
    if after >= 0:
        chain[mode, 1, after] = before
    q, count = np.int64(heads[mode, bucket(factor)]), walker.tally[PAIRS]
    while q >= 0:
        if factors[mode, q] == factor:
            count -= 1
            place, last = places[mode, p, q], walker.pairs[count]
            walker.pairs[place] = last
            of, r, s = last >> 2 * FIELD, (last >> FIELD) & LOWEST, last & LOWEST
            places[of, r, s] = places[of, s, r] = place
        q = np.int64(chain[mode, 0, q])
    walker.tally[PAIRS] = count


@compiled
def link_all(walker: BinaryWalker) -> None:
    """Rebuild chains and pairs. Their order then depends on the factors alone, so a walk goes on as if it had not been interrupted."""
    walker.tally[PAIRS] = 0
    for mode in range(3):
        for i in range(walker.heads.shape[1]):
            walker.heads[mode, i] = -1
        for p in range(walker.tally[RANK]):
            enter(walker, mode, p, walker.factors[mode, p])


@compiled
def flip(walker: BinaryWalker) -> bool:
    """Make a random flip of a scheme that cannot be reduced; returns whether a reduction now exists.

    For a pair with a_p = a_q: a b_p c_p + a b_q c_q = a (b_p + b_q) c_p + a b_q (c_q + c_p). The pair in both orders gives all its flips.
    Only factors of products that share one with p or q can become dependent.
    """
    factors = walker.factors
    choice = below(walker.random, 2 * walker.tally[PAIRS])
    pair = walker.pairs[choice >> 1]
    mode, p, q = pair >> 2 * FIELD, (pair >> FIELD) & LOWEST, pair & LOWEST
    if choice & 1:
        p, q = q, p
    b, c = mode + 1 if mode < 2 else 0, mode - 1 if mode > 0 else 2
    of_b, of_c = factors[b, p] ^ factors[b, q], factors[c, p] ^ factors[c, q]
    leave(walker, b, p)
    opened = enter(walker, b, p, of_b) and (is_dependent(walker, b, p, mode) or is_dependent(walker, b, p, c))
    leave(walker, c, q)
    opened |= enter(walker, c, q, of_c) and (is_dependent(walker, c, q, mode) or is_dependent(walker, c, q, b))
    return opened or is_dependent(walker, c, p, b) or is_dependent(walker, b, q, c)


@compiled
def drop(walker: BinaryWalker, p: int) -> None:
    """Remove a product; the last one takes its place."""
    last = walker.tally[RANK] - 1
    for mode in range(3):
        walker.factors[mode, p] = walker.factors[mode, last]
    walker.tally[RANK] = last


@compiled
def reduce_once(walker: BinaryWalker) -> bool:
    """Remove a product if the factors of some that share one are linearly dependent; returns whether there were any.

    From b_r = b_1 + ... + b_s follows a b_r c_r = a b_1 c_r + ... + a b_s c_r, so that c_r is added to c_1 ... c_s and r is dropped.
    A zero factor is the sum of none; two products with two equal factors are the case s = 1. Pairs are not rebuilt.
    """
    for mode in range(3):
        for p in range(walker.tally[RANK]):
            for turned in range(1, 3):
                if merge(walker, mode, p, (mode + turned) % 3, (mode + 3 - turned) % 3):
                    return True
    return False


@compiled
def merge(walker: BinaryWalker, mode: int, p: int, b: int, c: int) -> bool:
    """Remove a product if the factors b are dependent of p and of later products that share p's factor of the mode."""
    factors, basis, sums, members, size = walker.factors, walker.basis, walker.sums, walker.members, 0
    for q in range(p, walker.tally[RANK]):
        if factors[mode, q] != factors[mode, p]:
            continue
        rest, total = factors[b, q], NONE
        for i in range(size):
            if rest ^ basis[i] < rest:
                rest, total = rest ^ basis[i], total ^ sums[i]
        if rest == NONE:
            for i in range(size):
                if total >> np.uint64(i) & ONE:
                    factors[c, members[i]] ^= factors[c, q]
            drop(walker, q)
            return True
        basis[size], sums[size], members[size] = rest, total ^ ONE << np.uint64(size), q
        size += 1
    return False


@compiled
def plus(walker: BinaryWalker) -> bool:
    """Turn a random pair without a common factor into three products; returns False if there is no room or no such pair is met.

    Pairs are not rebuilt. For a, b, c the three modes in any order:
    a_p b_p c_p + a_q b_q c_q = a_p (b_p + b_q) c_p + (a_q + a_p) b_q c_q + a_p b_q (c_q + c_p).
    """
    factors, random, rank = walker.factors, walker.random, walker.tally[RANK]
    if rank < 2 or rank == factors.shape[1]:
        return False
    for _ in range(TRIES):
        p, q, choice = below(random, rank), below(random, rank - 1), below(random, 6)
        q += q >= p
        a, turned = choice % 3, 1 + choice // 3
        b, c = (a + turned) % 3, (a + 3 - turned) % 3
        if factors[a, p] == factors[a, q] or factors[b, p] == factors[b, q] or factors[c, p] == factors[c, q]:
            continue
        factors[a, rank], factors[b, rank], factors[c, rank] = factors[a, p], factors[b, q], factors[c, p] ^ factors[c, q]
        factors[b, p] ^= factors[b, q]
        factors[a, q] ^= factors[a, p]
        walker.tally[RANK] = rank + 1
        return True
    return False


@compiled
def patience(walker: BinaryWalker) -> int:
    """Steps without a reduction before a plus transition: the more pairs, the more schemes are within reach of flips."""
    pairs = max(walker.tally[PAIRS], LEAST_PAIRS)
    return PATIENCE_FACTOR * pairs * pairs  # type: ignore[no-any-return]


@compiled
def walk(walker: BinaryWalker, steps: int, target: int, number: int, halt: NDArray[np.int64]) -> None:
    """Walk on for `steps` steps, or until the best rank is at most `target`, or until halt[0] < number.

    A step is a flip or a plus transition. Plus transitions happen if no reduction came for some time (`patience`) and the rank is less than
    `ROOM` above the lowest since the last restart. Without any flip there are two: from one alone the way mostly leads straight back. All
    reductions are made at once. A call depends only on factors, best factors, start, random numbers and tally.
    """
    tally = walker.tally
    settle(walker)
    for step in range(steps):
        if tally[BEST] <= target or (step % POLL == 0 and halt[0] < number):
            return
        tally[STEPS] += 1
        tally[PATIENCE] -= 1
        if tally[STEPS] - tally[LOW_AT] > RESTART:
            restart(walker)
        stuck = tally[PAIRS] == 0
        if stuck or tally[PATIENCE] < 0:
            changed = (stuck or tally[RANK] < tally[LOW] + ROOM) and plus(walker)
            if stuck:
                changed |= plus(walker)
                tally[LOW_AT] -= ISOLATED
            tally[PATIENCE] = patience(walker)
        else:
            changed = flip(walker)
        if changed:
            settle(walker)


@compiled
def settle(walker: BinaryWalker) -> None:
    """Make all available reductions, and keep the scheme if it is the best so far."""
    tally = walker.tally
    reduced = False
    while reduce_once(walker):
        reduced = True
    link_all(walker)
    if reduced:
        tally[PATIENCE] = patience(walker)
    if tally[RANK] < tally[LOW]:
        tally[LOW], tally[LOW_AT] = tally[RANK], tally[STEPS]
    if tally[RANK] < tally[BEST]:
        tally[BEST], tally[BEST_AT] = tally[RANK], tally[STEPS]
        copy(walker.factors, walker.best)


@compiled
def restart(walker: BinaryWalker) -> None:
    """Go back to the best scheme or, now and then, to the start."""
    tally = walker.tally
    if below(walker.random, FROM_START) == 0:
        copy(walker.start, walker.factors)
        tally[RANK] = walker.start.shape[1] - ROOM - 1
    else:
        copy(walker.best, walker.factors)
        tally[RANK] = tally[BEST]
    tally[LOW], tally[LOW_AT] = tally[RANK], tally[STEPS]
    settle(walker)


@compiled
def copy(of: Factors, to: Factors) -> None:
    """Copy factors, by loops: they compile faster than slices."""
    for mode in range(3):
        for p in range(of.shape[1]):
            to[mode, p] = of[mode, p]
