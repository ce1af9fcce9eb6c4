"""The compiled moves over Z/2."""

from __future__ import annotations

import numpy as np
from numba import config, njit

from bilinear.discovery.binary import BEST, BEST_AT, BACK, PAIRS, PATIENCE, PLUS, RANK, ROOM, STEPS

STEP, FIRST, SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
S27, S30, S31, S32, S56 = (np.uint64(shift) for shift in (27, 30, 31, 32, 56))
NONE = np.uint64(0)

def compiled(function):
    return njit(nogil=True, error_model="numpy", cache=bool(config.CACHE_DIR))(function)

@compiled
def below(random, most):
    random[0] += STEP
    x = random[0]
    x = (x ^ (x >> S30)) * FIRST
    x = (x ^ (x >> S27)) * SECOND
    x ^= x >> S31
    return np.int64(((x >> S32) * np.uint64(most)) >> S32)

@compiled
def bucket(value):
    return np.int64((value * STEP) >> S56)

@compiled
def enter(w, mode, p, value):
    """p gets value: chain + pairs; returns whether it shares two factors with another."""
    f, chain, heads, pairs, places, tally = w.factors, w.chain, w.heads, w.pairs, w.places, w.tally
    f[mode, p] = value
    slot = bucket(value)
    first = heads[mode, slot]
    q = np.int64(first)
    twice = False
    m1 = mode + 1 if mode < 2 else 0
    m2 = mode - 1 if mode > 0 else 2
    count = tally[PAIRS]
    while q >= 0:
        if f[mode, q] == value:
            pairs[count] = mode << 24 | p << 12 | q
            places[mode, p, q] = count
            places[mode, q, p] = count
            count += 1
            twice |= f[m1, p] == f[m1, q] or f[m2, p] == f[m2, q]
        q = np.int64(chain[mode, 0, q])
    tally[PAIRS] = count
    chain[mode, 0, p] = first
    chain[mode, 1, p] = -1
    if first >= 0:
        chain[mode, 1, first] = p
    heads[mode, slot] = p
    return twice

@compiled
def leave(w, mode, p):
    f, chain, heads, pairs, places, tally = w.factors, w.chain, w.heads, w.pairs, w.places, w.tally
    value = f[mode, p]
    slot = bucket(value)
    after, before = np.int64(chain[mode, 0, p]), np.int64(chain[mode, 1, p])
    if before >= 0:
        chain[mode, 0, before] = after
    else:
        heads[mode, slot] = after
    if after >= 0:
        chain[mode, 1, after] = before
    q = np.int64(heads[mode, slot])
    count = tally[PAIRS]
    while q >= 0:
        if f[mode, q] == value:
            count -= 1
            at = places[mode, p, q]
            last = pairs[count]
            pairs[at] = last
            lm, lp, lq = last >> 24, (last >> 12) & 4095, last & 4095
            places[lm, lp, lq] = at
            places[lm, lq, lp] = at
        q = np.int64(chain[mode, 0, q])
    tally[PAIRS] = count

@compiled
def link_all(w):
    w.tally[PAIRS] = 0
    w.heads[:] = -1
    for mode in range(3):
        for p in range(w.tally[RANK]):
            enter(w, mode, p, w.factors[mode, p])

@compiled
def flip(w):
    f = w.factors
    choice = below(w.random, 2 * w.tally[PAIRS])
    code = w.pairs[choice >> 1]
    mode, p, q = code >> 24, (code >> 12) & 4095, code & 4095
    if choice & 1:
        p, q = q, p
    b = mode + 1 if mode < 2 else 0
    c = mode - 1 if mode > 0 else 2
    nb, nc = f[b, p] ^ f[b, q], f[c, p] ^ f[c, q]
    leave(w, b, p)
    t1 = enter(w, b, p, nb)
    leave(w, c, q)
    t2 = enter(w, c, q, nc)
    return t1 | t2

@compiled
def drop(w, p):
    last = w.tally[RANK] - 1
    for mode in range(3):
        w.factors[mode, p] = w.factors[mode, last]
    w.tally[RANK] = last

@compiled
def reduce_once(w):
    f = w.factors
    for p in range(w.tally[RANK]):
        if f[0, p] == NONE or f[1, p] == NONE or f[2, p] == NONE:
            drop(w, p)
            return True
        for q in range(p):
            for mode in range(3):
                if f[(mode + 1) % 3, p] == f[(mode + 1) % 3, q] and f[(mode + 2) % 3, p] == f[(mode + 2) % 3, q]:
                    f[mode, q] ^= f[mode, p]
                    drop(w, p)
                    return True
    return False

@compiled
def plus(w):
    f, rank = w.factors, w.tally[RANK]
    if rank < 2 or rank == f.shape[1]:
        return False
    for _ in range(1000):
        p, q = below(w.random, rank), below(w.random, rank - 1)
        q += q >= p
        choice = below(w.random, 6)
        a, turned = choice % 3, 1 + choice // 3
        b, c = (a + turned) % 3, (a + 3 - turned) % 3
        if f[a, p] == f[a, q] or f[b, p] == f[b, q] or f[c, p] == f[c, q]:
            continue
        f[a, rank], f[b, rank], f[c, rank] = f[a, p], f[b, q], f[c, p] ^ f[c, q]
        f[b, p] ^= f[b, q]
        f[a, q] ^= f[a, p]
        w.tally[RANK] = rank + 1
        return True
    return False

@compiled
def keep(w):
    for mode in range(3):
        for p in range(w.tally[RANK]):
            w.best[mode, p] = w.factors[mode, p]

@compiled
def go_back(w):
    for mode in range(3):
        for p in range(w.tally[BEST]):
            w.factors[mode, p] = w.best[mode, p]
    w.tally[RANK] = w.tally[BEST]
    link_all(w)

@compiled
def settle(w):
    tally = w.tally
    while reduce_once(w):
        tally[PATIENCE] = w.rules[PLUS]
        if tally[RANK] < tally[BEST]:
            tally[BEST], tally[BEST_AT] = tally[RANK], tally[STEPS]
            keep(w)
    link_all(w)

@compiled
def walk(w, steps, target, number, halt):
    tally, rules = w.tally, w.rules
    link_all(w)
    for step in range(steps):
        if tally[BEST] <= target or (step & 1023 == 0 and halt[0] < number):
            return
        tally[STEPS] += 1
        tally[PATIENCE] -= 1
        if rules[BACK] and (tally[STEPS] - tally[BEST_AT]) % rules[BACK] == 0:
            go_back(w)
        if tally[PAIRS] == 0 or tally[PATIENCE] < 0:
            changed = (tally[PAIRS] == 0 or tally[RANK] < tally[BEST] + rules[ROOM]) and plus(w)
            tally[PATIENCE] = rules[PLUS]
        else:
            changed = flip(w)
        if changed:
            settle(w)
