"""Product stages of an in-place schedule: products split into few groups whose left forms, and whose right forms, are independent.

A group must be independent in two linear matroids at once. Ejection chains search for a partition into the fewest groups: a product that
fits nowhere displaces the products in its way. Ranks are taken modulo a prime. Forms that are independent there are independent over the
rationals, so every partition found is valid; at worst the search misses the lower bound.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bilinear.ir.number import rank_modulo

PRIME = 2**31 - 1
"""The prime of the search: products of two residues fit into 64 bits."""
Row = tuple[int, ...]


@dataclass(frozen=True)
class OperandSide:
    """The forms of one operand: for each product its residues over the operand's blocks.

    A group of forms fits if all but `spare` of them, which stand in temporaries, are independent. The blocks of a `kept` operand never
    change: a form with several terms needs a temporary, and products may share operands. The stages of a `backwards` side come in reverse
    order.
    """

    forms: tuple[Row, ...]
    blocks: int
    spare: int = 0
    kept: bool = False
    backwards: bool = False

    def needs(self, group: Sequence[int]) -> int:
        """The temporaries that the forms of these products need in order to stand at once."""
        rows = [self.forms[p] for p in group]
        return len({monic(row) for row in rows if is_sum(row)}) if self.kept else len(rows) - rank_modulo(rows, PRIME)

    def fits(self, group: Sequence[int]) -> bool:
        """True if the forms of these products can stand at once."""
        return self.needs(group) <= self.spare

    @property
    def fewest_stages(self) -> int:
        """A lower bound on the number of groups, from the number of blocks and from forms that are equal up to a factor."""
        lines = Counter(map(monic, self.forms))
        if self.kept:
            return max(1, -(-sum(map(is_sum, lines)) // max(1, self.spare)))
        return max(-(-len(self.forms) // (self.blocks + self.spare)), -(-max(lines.values()) // (1 + self.spare)))

    def fewest_with(self, lent: int) -> int:
        """The bound if all stages but the last have `lent` more temporaries."""
        more = replace(self, spare=self.spare + lent)
        groups = more.fewest_stages
        while not more._have_room(groups, lent):
            groups += 1
        return groups

    def _have_room(self, groups: int, lent: int) -> bool:
        """True if, by counting, this many groups can suffice when the last one has `lent` fewer temporaries."""
        lines = Counter(map(monic, self.forms))
        if self.kept:
            return sum(map(is_sum, lines)) <= self.spare * groups - lent
        return len(self.forms) <= (self.blocks + self.spare) * groups - lent and max(lines.values()) <= (1 + self.spare) * groups - lent


def is_sum(row: Row) -> bool:
    """True if a form has more than one term."""
    return sum(map(bool, row)) > 1


def monic(row: Row) -> Row:
    """The multiple of a form whose first coefficient is 1."""
    first = next((x for x in row if x), 1)
    inverse = pow(first, -1, PRIME)
    return tuple(x * inverse % PRIME for x in row)


class Independence:
    """Decides which sets of products are independent on every side, and remembers the answers."""

    def __init__(self, sides: Sequence[OperandSide]) -> None:
        self.sides = sides
        self.known: dict[frozenset[int], tuple[int, ...]] = {}

    def needs(self, group: frozenset[int]) -> tuple[int, ...]:
        """For each side, the temporaries that the forms of these products need in order to stand at once."""
        if group not in self.known:
            self.known[group] = tuple(side.needs(sorted(group)) for side in self.sides)
        return self.known[group]

    def holds(self, group: frozenset[int]) -> bool:
        """True if a stage can hold the forms of these products."""
        return all(number <= side.spare for number, side in zip(self.needs(group), self.sides, strict=True))

    def in_the_way(self, product: int, group: frozenset[int]) -> Iterator[frozenset[int]]:
        """The products to remove from a group so that a product fits: none, one or two."""
        if self.holds(group | {product}):
            yield frozenset()
            return
        singles = [q for q in sorted(group) if self.holds(group - {q} | {product})]
        yield from (frozenset({q}) for q in singles)
        if singles:
            return
        ordered = sorted(group)
        for i, q in enumerate(ordered):
            for other in ordered[:i]:
                if self.holds(group - {q, other} | {product}):
                    yield frozenset({q, other})


Partition = tuple[frozenset[int], ...]


def find_partition(independence: Independence, products: int, stages: int, generator: random.Random, tries: int) -> Partition | None:
    """The products in this many groups; None if `tries` ejections find no such partition."""
    groups = [frozenset[int]()] * stages
    waiting = list(range(products))
    generator.shuffle(waiting)
    last_moved = [0] * products
    for time in range(1, tries + products):
        if not waiting:
            return tuple(groups)
        product = waiting.pop()
        choices = [(out, g) for g, group in enumerate(groups) for out in independence.in_the_way(product, group)]
        if not choices:
            return None
        free = [choice for choice in choices if not choice[0]]
        if free:
            out, place = generator.choice(free)
        else:
            out, place = min(choices, key=lambda c: (sum(1 + 2 * (last_moved[q] > time - products // 3) for q in c[0]), generator.random()))
        groups[place] = groups[place] - out | {product}
        last_moved[product] = time
        waiting[:0] = sorted(out)
    return None
