"""Decide whether A and B can be recovered from the final state: by rank, then by recomputing products, then by two inputs.

C holds results and temporaries are gone, so only the contents of A's and B's own blocks remain: forms and products of the original blocks.
An original block in their span is a linear combination of them: the rank decides, and the combination is the restoring stage. If products
are in the way, products of known forms are subtracted from the contents until nothing new is learnt. An operand that is still unknown is
lost if two inputs have the same final state; such inputs are searched for, and executed before they are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import lcm
from typing import TYPE_CHECKING

from bilinear.ir.ring import Ring
from bilinear.ir.schedule import AnySchedule, Block
from bilinear.verify.counterexample import CounterexampleSearch, as_updates, untraced_changes
from bilinear.verify.elimination import Row, reduced
from bilinear.verify.facts import LINEAR, LOST, RECOMPUTE, RESTORED, UNDECIDED, OperandFate
from bilinear.verify.rings import Number
from bilinear.verify.symbols import LETTERS, Symbols, Value, Word

if TYPE_CHECKING:
    from bilinear.verify.engine import PolyElement

MOST_WORDS = 4000
"""With more products of blocks than this, none is recomputed: only rank and two inputs decide."""


def operand_fates(schedule: AnySchedule, symbols: Symbols, state: Mapping[Block, Value]) -> tuple[OperandFate, OperandFate]:
    """The fates of A and B in a one-level schedule that ended in this state."""
    recovery = _Recovery(schedule, symbols, state)
    return recovery.fate("A"), recovery.fate("B")


class _Recovery:
    """The final contents of A and B, and what follows from them."""

    def __init__(self, schedule: AnySchedule, symbols: Symbols, state: Mapping[Block, Value]) -> None:
        self.schedule = schedule
        self.symbols = symbols
        self.blocks = {space.name: space.blocks for space in schedule.spaces[:2]}
        self.state = {block: state[block] for blocks in self.blocks.values() for block in blocks}
        self.contents = [Row(dict(value), {str(block): symbols.domain.one}) for block, value in self.state.items()]
        self.rounds: list[dict[str, dict[Word, Row[Word]]]] = []
        """The known forms of A and B after each round, as reduced rows by pivot; the first round uses linear combinations alone."""
        self.inside: dict[str, list[Number]] = {}
        """For each factor of a recomputed product, by name: all coefficients of the combination of contents that gives it."""

    def fate(self, side: str) -> OperandFate:
        """The fate of an operand."""
        own = self.blocks[side]
        if all(self.state[block] == self.symbols.original[block] for block in own):
            return OperandFate(side, RESTORED)
        if self.schedule.ring.has_zero_divisors:  # no elimination
            return OperandFate(side, UNDECIDED)
        for number, known in enumerate(self._known_by_round(side)):
            if len(known) == len(own):
                steps, divisor = self._restoring(side)
                return OperandFate(side, RECOMPUTE if number and any("*" in step for step in steps) else LINEAR, steps, divisor)
        return self._lost(side)

    def _lost(self, side: str) -> OperandFate:
        """The fate of an operand that is not known: lost at every input, or at some two inputs."""
        searches = (CounterexampleSearch(self.schedule, self.symbols, self.state, self._known_blocks(), size) for size in (1, 2))
        changes = untraced_changes(side, self.schedule, self.symbols, self.state)
        if changes:
            found = next(searches).from_zero(side, changes[0])
        else:
            found = next((two for search in searches if (two := search.find(side)) is not None), None)
        if found is None:
            return OperandFate(side, UNDECIDED)
        confused = tuple(as_updates(change, self.symbols) for change in changes)
        return OperandFate(side, LOST, (), "", len(changes), confused, found.told())

    def _known_by_round(self, side: str) -> Iterable[dict[Word, Row[Word]]]:
        if not self.rounds:
            self.rounds.append(self._forms(self.contents))
        yield self.rounds[0][side]
        if sum(map(len, self.state.values())) > MOST_WORDS:
            return
        number = 1
        while number < len(self.rounds) or self._learn():
            yield self.rounds[number][side]
            number += 1

    def _known_blocks(self) -> set[Block]:
        """The original blocks that are known after the last round."""
        words = {next(iter(value)): block for block, value in self.symbols.original.items()}
        forms = [row.entries for rows in self.rounds[-1].values() for row in rows.values()]
        return {words[word] for entries in forms if len(entries) == 1 for word in entries}

    def _learn(self) -> bool:
        """Run one more round: subtract the products of known forms. Returns whether anything new is known."""
        last = self.rounds[-1]
        new = self._forms([*self.contents, *self._derived(last)])
        if all(len(new[side]) == len(last[side]) for side in new):
            return False
        self.rounds.append(new)
        return True

    def _forms(self, rows: Sequence[Row[Word]]) -> dict[str, dict[Word, Row[Word]]]:
        """The forms over A, and those over B, in the span of the rows."""
        known = {}
        for side in self.blocks:
            pivots = reduced(rows, lambda word, side=side: (_is_plain(word, side), word))  # type: ignore[misc]
            known[side] = {word: row for word, row in pivots.items() if _is_plain(word, side)}
        return known

    def _derived(self, known: Mapping[str, Mapping[Word, Row[Word]]]) -> Iterable[Row[Word]]:
        """Products of known forms, and multiples of known values by alpha and beta, each with its name.

        Only products that can reduce the contents are formed. The pivot of a reduced form occurs in no other form, so the product of two
        pivots occurs in no other product of forms. If it is not a word of the contents, the product is useless.
        """
        one = self.symbols.domain.one
        for word in sorted({word for value in self.state.values() for word in value}):
            pivots = [(side, self._plain(side, word)) for side in LETTERS if word[LETTERS[side]]]
            if (len(pivots) == 1 and not any(word[:2])) or any(pivot not in known.get(side, {}) for side, pivot in pivots):
                continue
            rows = [self._whole(known[side][pivot]) for side, pivot in pivots]
            factors = [self.symbols.ring.from_dict(row.entries) for row in rows]
            value = self.symbols.alpha ** word[0] * self.symbols.beta ** word[1]
            for factor in factors:
                value = value * factor
            letters = "*".join(name if e == 1 else f"{name}^{e}" for name, e in zip(("alpha", "beta"), word[:2], strict=True) if e)
            name = "*".join(map(self._factor, factors))
            name = f"[{letters}] {name}" if letters else name
            self.inside[name] = [number for row in rows for number in self._numbers(row)]
            yield Row(dict(value), {name: one})

    def _plain(self, side: str, word: Word) -> Word:
        """The block of one operand in a word."""
        return tuple(e if place == LETTERS[side] else 0 for place, e in enumerate(word))

    def _factor(self, value: Value) -> str:
        text = self.symbols.text(value)
        return text if len(value) == 1 and text.isalnum() else f"({text})"

    def _restoring(self, side: str) -> tuple[tuple[str, ...], str]:
        """The steps that restore an operand, each block in the first round in which it is known; and the divisor in them."""
        rows: dict[Block, Row[Word]] = {}
        for known in self.rounds:
            for block in self.blocks[side]:
                (word,) = self.symbols.original[block]
                row = known[side].get(word)
                if block not in rows and row is not None and len(row.entries) == 1:
                    rows[block] = row
        numbers = [number for row in rows.values() for number in self._numbers(row)]
        steps = (self._step(block, row) for block, row in rows.items())
        return tuple(filter(None, steps)), needed_divisor(self.schedule.ring, numbers)

    def _whole(self, row: Row[Word]) -> Row[Word]:
        """A multiple without fractions, over Q."""
        entries = self.symbols.whole(row.entries)
        word = next(iter(entries))
        scale = entries[word] / row.entries[word]
        return Row(entries, {name: c * scale for name, c in row.made_of.items()})

    def _numbers(self, row: Row[Word]) -> Iterator[Number]:
        """The coefficients of the combination of contents that forms a row."""
        for name, number in row.made_of.items():
            yield number
            yield from self.inside.get(name, ())

    def _step(self, block: Block, row: Row[Word]) -> str:
        """`A12 = A12 - A22`, or `+=` if the block keeps its content; empty if nothing changes."""
        made_of = dict(row.made_of)
        operator = "="
        if made_of.get(str(block)) == self.symbols.domain.one:
            del made_of[str(block)]
            operator = "+="
        if not made_of:
            return "" if operator == "+=" else f"{block} = 0 {block}"
        terms = sorted(((*self.symbols.signed(c), name) for name, c in made_of.items()), key=lambda term: term[0] != "+")
        if operator == "+=" and all(sign == "-" for sign, _, _ in terms):
            operator, terms = "-=", [("+", size, name) for _, size, name in terms]
        text = ""
        for sign, size, name in terms:
            body = name if size == "1" else f"{size} {name}"
            text += f" {sign} {body}" if text else f"{'-' if sign == '-' else ''}{body}"
        return f"{block} {operator} {text}"


def _is_plain(word: Word, side: str) -> bool:
    """True if a word is one block of an operand, without alpha and beta."""
    return word[LETTERS[side]] > 0 and sum(word) == word[LETTERS[side]]


def needed_divisor(ring: Ring, coefficients: Iterable[Number]) -> str:
    """The divisor in some coefficients, elements of `domain_of(ring)`, that has no inverse in the ring; empty if there is none.

    The domain is a field that contains the ring: Q for Z; rational functions for Q[lambda], whose elements are Laurent polynomials, so
    powers of lambda are invertible. The other rings that are asked about are fields.
    """
    if ring.name == "Z":
        divisor = lcm(*(int(c.denominator) for c in coefficients))
        return str(divisor) if divisor > 1 else ""
    if not ring.is_approximate:
        return ""
    product: PolyElement | None = None
    for coefficient in coefficients:
        denominator = coefficient.denom
        product = denominator if product is None else product.lcm(denominator)
    return _without_monomial(product) if product is not None else ""


def _without_monomial(polynomial: PolyElement) -> str:
    """A polynomial in lambda without its power of lambda and constant factor; empty if nothing else is left."""
    lowest = min(power for (power,) in polynomial.monoms())
    rest = {(power - lowest,): c for (power,), c in polynomial.terms()}
    if len(rest) == 1:
        return ""
    return str(polynomial.ring.from_dict(rest).primitive()[1].as_expr()).replace("**", "^")
