"""Oracles of the flip graph: tensors and moves in Python's integers, by their definitions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import numpy as np

from bilinear.discovery.walker import RANK, Walker, classical_masks, ternary_walker

BLOCKS = 12  # Blocks of a matrix, at most, in these tests.

Vector = tuple[int, ...]
Product = tuple[Vector, Vector, Vector]


def products(walker: Walker, factors: Any = None, rank: int | None = None) -> list[Product]:
    """The products of a walker, their factors as coefficients."""
    f = walker.factors if factors is None else factors
    last = int(walker.tally[RANK]) if rank is None else rank
    return [(_vector(f, 0, p), _vector(f, 1, p), _vector(f, 2, p)) for p in range(last)]


def _vector(factors: Any, mode: int, p: int) -> Vector:
    plus, minus = (int(mask) for mask in factors[mode, :, p])
    assert plus & minus == 0 and plus | minus < 1 << BLOCKS
    return tuple((plus >> i & 1) - (minus >> i & 1) for i in range(BLOCKS))


def tensor(terms: list[Product]) -> dict[tuple[int, int, int], int]:
    """The sum of the products, coefficient by coefficient."""
    total: dict[tuple[int, int, int], int] = {}
    for a, b, c in terms:
        for i, x in _terms(a):
            for j, y in _terms(b):
                for k, z in _terms(c):
                    total[i, j, k] = total.get((i, j, k), 0) + x * y * z
    return {place: value for place, value in total.items() if value}


def _terms(vector: Vector) -> list[tuple[int, int]]:
    return [(i, x) for i, x in enumerate(vector) if x]


def multiplication(m: int, k: int, n: int) -> dict[tuple[int, int, int], int]:
    """The tensor of the multiply by its definition: A[i,p] * B[p,j] in C[i,j]."""
    return {(i * k + p, p * n + j, i * n + j): 1 for i in range(m) for p in range(k) for j in range(n)}


def plus_minus(x: Vector, sign: int, y: Vector) -> Vector:
    return tuple(a + sign * b for a, b in zip(x, y, strict=True))


def is_ternary(x: Vector) -> bool:
    return all(-1 <= a <= 1 for a in x)


def relation(x: Vector, y: Vector) -> int:
    return 1 if x == y else -1 if x == plus_minus(tuple(0 for _ in y), -1, y) else 0


def pairs(terms: list[Product], mode: int) -> set[frozenset[int]]:
    """The pairs of products whose factors of a mode are equal up to sign."""
    return {frozenset((p, q)) for p in range(len(terms)) for q in range(p) if relation(terms[p][mode], terms[q][mode])}


def all_flips(terms: list[Product]) -> Iterator[tuple[Product, ...]]:
    """Every scheme that one flip makes: a and b any two modes, of which b is written in the first product and c in the second."""
    for p, q in permutations(range(len(terms)), 2):
        for a, b, c in permutations(range(3)):
            s = relation(terms[p][a], terms[q][a])
            for t in (1, -1):
                first, second = list(terms[p]), list(terms[q])
                first[b] = plus_minus(first[b], s * t, terms[q][b])
                second[c] = plus_minus(second[c], -t, terms[p][c])
                if s and is_ternary(first[b]) and is_ternary(second[c]):
                    yield _replaced(terms, {p: first, q: second})


def all_pluses(terms: list[Product]) -> Iterator[tuple[Product, ...]]:
    """Every scheme that one plus transition of products without a common factor makes."""
    for (p, q), (a, b, c) in product(permutations(range(len(terms)), 2), permutations(range(3))):
        for s, t in product((1, -1), repeat=2):
            x, y = terms[p], terms[q]
            first, second, third = list(x), list(y), list(y)
            first[b] = plus_minus(x[b], s, y[b])
            second[a] = plus_minus(y[a], -t, x[a])
            third[a] = plus_minus(tuple(0 for _ in x[a]), t, x[a])
            third[c] = plus_minus(y[c], -s * t, x[c])
            if not any(map(relation, x, y)) and is_ternary(first[b]) and is_ternary(second[a]) and is_ternary(third[c]):
                yield _replaced(terms, {p: first, q: second, len(terms): third})


def _replaced(terms: list[Product], new: dict[int, list[Vector]]) -> tuple[Product, ...]:
    changed: dict[int, Any] = dict(enumerate(terms))
    changed.update({p: tuple(factors) for p, factors in new.items()})
    return tuple(changed[p] for p in range(len(changed)))


def walker_of(terms: list[Product], blocks: tuple[int, int, int]) -> Walker:
    """A walker of a format with these products, which need not multiply matrices; the classical ones are more than they are."""
    walker = ternary_walker(classical_masks(*blocks), 0, 0)
    for p, factors in enumerate(terms):
        for mode, vector in enumerate(factors):
            for sign, value in enumerate((1, -1)):
                walker.factors[mode, sign, p] = np.uint64(sum(1 << i for i, x in enumerate(vector) if x == value))
    walker.tally[RANK] = len(terms)
    return walker
