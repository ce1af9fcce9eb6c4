"""The greedy start: the pair of terms that most rows share becomes a sum of its own, repeatedly (Paar 1997)."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from itertools import permutations
from math import gcd

from bilinear.algebra.share_values import Made, Pair, primitive, unpack

Key = tuple[int, int, int, int]
"""Two nodes and their coprime coefficients, the first positive."""


def most_common_pairs(rows: Sequence[int], nodes: Sequence[int], generator: random.Random) -> tuple[Made, set[Pair]]:
    """The values of a greedy program for these rows, packed over given values, and the pairs of coefficients that it uses.

    If p * v + q * w = m * x, any two of p, q and m are such a pair, in both orders and with both signs. The generator breaks ties. Nothing
    cancels: every term of a row is added once.
    """
    return _Greedy(rows, nodes, generator).run()


class _Greedy:
    def __init__(self, rows: Sequence[int], nodes: Sequence[int], generator: random.Random) -> None:
        self.rows = [dict(unpack(row)) for row in rows]
        self.nodes = list(nodes)
        self.random = generator
        self.made: Made = {}
        self.used: set[Pair] = set()
        self.having: dict[Key, set[int]] = {}
        self.queue: list[tuple[int, float, Key]] = []
        for number, row in enumerate(self.rows):
            terms = sorted(row)
            for place, j in enumerate(terms):
                for i in terms[:place]:
                    self.having.setdefault(_key(row, i, j), set()).add(number)
        for key in self.having:
            self._push(key)

    def run(self) -> tuple[Made, set[Pair]]:
        while self.queue:
            count, _, key = heapq.heappop(self.queue)
            if len(self.having[key]) == -count:
                self._share(key)
            else:
                self._push(key)
        for number, row in enumerate(self.rows):
            while len(row) > 1:
                i, j = sorted(row)[:2]
                self._replace(number, _key(row, i, j), self._new(_key(row, i, j)))
        return self.made, self.used

    def _push(self, key: Key) -> None:
        if len(self.having[key]) > 1:
            heapq.heappush(self.queue, (-len(self.having[key]), self.random.random(), key))

    def _new(self, key: Key) -> int:
        i, j, p, q = key
        total = p * self.nodes[i] + q * self.nodes[j]
        value = primitive(total)
        self.nodes.append(value)
        self.made.setdefault(value, (self.nodes[i], self.nodes[j]))
        multiple = total // value
        for a, b in permutations((p, q, multiple), 2):
            common = gcd(a, b)
            self.used |= {(abs(a) // common, abs(b) // common), (abs(a) // common, -abs(b) // common)}
        return len(self.nodes) - 1

    def _share(self, key: Key) -> None:
        new = self._new(key)
        fresh: dict[Key, None] = {}
        for number in sorted(self.having[key]):
            row = self.rows[number]
            self._forget(number, key[:2])
            self._replace(number, key, new)
            for k in row:
                if k != new:
                    fresh[_key(row, k, new)] = None
                    self.having.setdefault(_key(row, k, new), set()).add(number)
        for found in fresh:
            self._push(found)

    def _forget(self, number: int, gone: tuple[int, int]) -> None:
        row = self.rows[number]
        for node in gone:
            for k in row:
                if k != node:
                    self.having[_key(row, min(k, node), max(k, node))].discard(number)

    def _replace(self, number: int, key: Key, new: int) -> None:
        i, j, p, q = key
        row = self.rows[number]
        multiple = (p * self.nodes[i] + q * self.nodes[j]) // self.nodes[new]
        row[new] = row[i] // p * multiple
        del row[i], row[j]


def _key(row: dict[int, int], i: int, j: int) -> Key:
    common = gcd(row[i], row[j]) * (1 if row[i] > 0 else -1)
    return i, j, row[i] // common, row[j] // common
