"""Starts from linear dependencies: a few rows become a basis, over which the others are short; a greedy program shares their sums.

Dumas, Pernet and Sedoglavic (2024) re-use rows that depend on others in this way, too. Exchanges of one vector at a time, as in the simplex
method, find the rows and inputs that form the basis.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from math import lcm

from bilinear.algebra.share_greedy import most_common_pairs
from bilinear.algebra.share_search import Budget
from bilinear.algebra.share_values import DIGIT, LARGEST, Made, Pair, pack, unpack

EXCHANGES = 1500
"""Exchanges that are tried for one basis."""
LOOSEST = 12
"""The most terms that the first exchanges may add; the limit falls to none at the end."""


def program_over_basis(rows: Sequence[int], inputs: int, generator: random.Random, budget: Budget) -> tuple[Made, set[Pair]] | None:
    """The values of a program that computes these packed rows through a basis, and the pairs of coefficients that it uses.

    The generator chooses the exchanges and breaks ties. None if coefficients over the basis are too large to be packed.
    """
    chosen = _Basis(rows, inputs, budget)
    for left in reversed(range(EXCHANGES)):
        chosen.try_exchange(generator, LOOSEST * left // EXCHANGES)
        if budget.is_spent:
            break
    combinations = chosen.combinations()
    if any(abs(c) > LARGEST for row in combinations for _, c in unpack(row)):
        return None
    units = [1 << DIGIT * i for i in range(inputs)]
    made, used = most_common_pairs(chosen.vectors(), units, generator)
    over_basis, more = most_common_pairs(combinations, chosen.vectors(), generator)
    for value, origin in over_basis.items():
        made.setdefault(value, origin)
    return {value: origin for value, origin in made.items() if value not in set(units)}, used | more


class _Basis:
    """Rows and inputs as combinations of a basis of them; exchanges lower the number of terms."""

    def __init__(self, rows: Sequence[int], inputs: int, budget: Budget) -> None:
        self.wanted = len(rows)
        self.values = [*rows, *(1 << DIGIT * i for i in range(inputs))]
        self.over = [{i: Fraction(c) for i, c in unpack(value)} for value in self.values]
        self.terms = [len(row) for row in self.over]
        self.basis = list(range(self.wanted, self.wanted + inputs))
        self.budget = budget

    def vectors(self) -> list[int]:
        """The basis as packed forms over the inputs."""
        return [self.values[number] for number in self.basis]

    def combinations(self) -> list[int]:
        """Each row as a packed form over the basis, up to a factor."""
        found = []
        for row in self.over[: self.wanted]:
            multiple = lcm(*(c.denominator for c in row.values()))
            found.append(pack((i, int(c * multiple)) for i, c in row.items()))
        return found

    def try_exchange(self, generator: random.Random, slack: int) -> None:
        """Exchange a vector of the basis if that adds at most a random number of terms, up to `slack`."""
        new = generator.randrange(len(self.over))
        row = self.over[new]
        if len(row) < 2:
            return
        old = generator.choice(sorted(row))
        if self._more_terms(new, old) <= generator.randint(0, slack):
            self._exchange(new, old)

    def _more_terms(self, new: int, old: int) -> int:
        row = self.over[new]
        more = self.terms[new] - self.terms[self.basis[old]]
        for number, other in enumerate(self.over[: self.wanted]):
            if old in other:
                if number == new:
                    more -= len(row) - 1
                    continue
                factor = other[old] / row[old]
                for i, c in row.items():
                    if i != old:
                        more += i not in other
                        more -= i in other and other[i] == factor * c
                self.budget.spend(1)
        return more

    def _exchange(self, new: int, old: int) -> None:
        row = self.over[new]
        for number, other in enumerate(self.over):
            if old in other and number != new:
                factor = other[old] / row[old]
                for i, c in row.items():
                    total = other.get(i, Fraction(0)) - factor * c
                    if total:
                        other[i] = total
                    else:
                        other.pop(i, None)
                other[old] = factor
        self.over[new] = {old: Fraction(1)}
        self.basis[old] = new
