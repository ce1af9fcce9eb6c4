"""Decide whether A and B can be recovered from the final state: by rank, then by recomputing products, then by two inputs.

C holds results and temporaries are gone, so only the contents of A's and B's own blocks remain: forms and products of the original blocks.
An original block in their span is a linear combination of them: the rank decides. If products are in the way, products of known forms are
subtracted from the contents until nothing new is learnt. An operand that is known comes with steps that restore it, in an order in which
they can be executed. An operand that is still unknown is lost if two inputs have the same final state; such inputs are searched for, and
executed before they are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

from bilinear.ir.ring import Ring
from bilinear.ir.schedule import AnySchedule, Block
from bilinear.verify.counterexample import CounterexampleSearch, as_updates, untraced_changes
from bilinear.verify.elimination import CombinedRow, reduced
from bilinear.verify.facts import LINEAR, LOST, RECOMPUTE, RESTORED, UNDECIDED, OperandFate
from bilinear.verify.rings import Number
from bilinear.verify.symbolic_run import LETTERS, Symbols, Value, Word

if TYPE_CHECKING:
    from bilinear.verify.engine import PolyElement

Forms = Mapping[str, Mapping[Word, CombinedRow[Word]]]  # Known forms over A and over B: rows by pivot.
MOST_WORDS = 4000  # With more products of blocks none is recomputed: rank and two inputs decide.


class _RecoveryStep(NamedTuple):
    """A step that brings blocks back, as text, the blocks whose contents it reads, and its coefficients."""

    targets: frozenset[str]
    reads: frozenset[str]
    text: str
    numbers: tuple[Number, ...]


class Recovery:
    """The final contents of A and B after a one-level schedule, and what follows from them."""

    def __init__(self, schedule: AnySchedule, symbols: Symbols, state: Mapping[Block, Value]) -> None:
        self.schedule = schedule
        self.symbols = symbols
        self.blocks = {space.name: space.blocks for space in schedule.spaces[:2]}
        self.state = {block: state[block] for blocks in self.blocks.values() for block in blocks}
        self.contents = _Contents(symbols, self.blocks, self.state)
        self.rounds: list[Forms] = []
        """The known forms of A and B after each round, as reduced rows by pivot; the first round uses linear combinations alone."""

    def fates(self) -> tuple[OperandFate, OperandFate]:
        """The fates of A and of B; the steps that bring operands back run one after the other, from the final state."""
        verdicts = {side: self._verdict(side) for side in self.blocks}
        wanted = [side for side, verdict in verdicts.items() if verdict in (LINEAR, RECOMPUTE)]
        steps = _WayBack(self.symbols, self.blocks, self.state).steps(wanted) if wanted else []
        is_joint = any(len({name[0] for name in step.targets | step.reads}) > 1 for step in steps)
        own = {side: [step for step in steps if is_joint or min(step.targets)[0] == side] for side in wanted}
        a, b = (self._lost(side) if v == LOST else self._told(side, v, own.get(side, [])) for side, v in verdicts.items())
        return a, b

    def _told(self, side: str, verdict: str, steps: Sequence[_RecoveryStep]) -> OperandFate:
        divisor = needed_divisor(self.schedule.ring, [number for step in steps for number in step.numbers])
        if steps and not any("*" in step.text for step in steps):
            verdict = LINEAR  # what was recomputed tells nothing that multiples by alpha and beta do not
        return OperandFate(side, verdict, tuple(step.text for step in steps), divisor)

    def _verdict(self, side: str) -> str:
        """RESTORED, LINEAR, RECOMPUTE or UNDECIDED, or LOST if the rounds leave it open."""
        own = self.blocks[side]
        if all(self.state[block] == self.symbols.original[block] for block in own):
            return RESTORED
        if self.schedule.ring.has_zero_divisors:  # no elimination
            return UNDECIDED
        for number, known in enumerate(self._known_by_round(side)):
            if len(known) == len(own):
                return RECOMPUTE if number else LINEAR
        return LOST

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

    def _known_by_round(self, side: str) -> Iterable[Mapping[Word, CombinedRow[Word]]]:
        if not self.rounds:
            self.rounds.append(self.contents.forms(self.contents.rows()))
        yield self.rounds[0][side]
        if sum(map(len, self.state.values())) > MOST_WORDS:
            return
        number = 1
        while number < len(self.rounds) or self._learn():
            yield self.rounds[number][side]
            number += 1

    def _known_blocks(self) -> set[Block]:
        words = {next(iter(value)): block for block, value in self.symbols.original.items()}
        forms = [row.entries for rows in self.rounds[-1].values() for row in rows.values()]
        return {words[word] for entries in forms if len(entries) == 1 for word in entries}

    def _learn(self) -> bool:
        """Run one more round: subtract the products of known forms. Returns whether anything new is known."""
        last = self.rounds[-1]
        new = self.contents.forms([*self.contents.rows(), *self.contents.derived(last)])
        if all(len(new[side]) == len(last[side]) for side in new):
            return False
        self.rounds.append(new)
        return True


class _Contents:
    """What the blocks of A and B hold, and the forms over A or over B that follow from it."""

    def __init__(self, symbols: Symbols, blocks: Mapping[str, Sequence[Block]], state: Mapping[Block, Value]) -> None:
        self.symbols = symbols
        self.state = dict(state)
        self.names = {str(block): block for side in blocks.values() for block in side}
        self.sides = tuple(blocks)
        self.inside: dict[str, tuple[frozenset[str], tuple[Number, ...]]] = {}
        """For each product, by its text: the blocks whose contents its factors read, and the coefficients in them."""

    def rows(self) -> list[CombinedRow[Word]]:
        """The contents, each under the name of its block."""
        return [CombinedRow(dict(self.state[block]), {name: self.symbols.domain.one}) for name, block in self.names.items()]

    def forms(self, rows: Sequence[CombinedRow[Word]]) -> Forms:
        """The forms over A, and those over B, in the span of the rows."""
        known = {}
        for side in self.sides:
            pivots = reduced(rows, lambda word, side=side: (_is_plain(word, side), word))  # type: ignore[misc]
            known[side] = {word: row for word, row in pivots.items() if _is_plain(word, side)}
        return known

    def derived(self, known: Forms) -> Iterator[CombinedRow[Word]]:
        """Products of known forms, and multiples of known forms by alpha and beta, each under its text.

        Only products that can reduce the contents are formed. The pivot of a reduced form occurs in no other form, so the product of two
        pivots occurs in no other product of forms. If it is not a word of the contents, the product is useless.
        """
        for word in sorted({word for value in self.state.values() for word in value}):
            pivots = [(side, _plain(side, word)) for side in LETTERS if word[LETTERS[side]]]
            if (len(pivots) == 1 and not any(word[:2])) or any(pivot not in known.get(side, {}) for side, pivot in pivots):
                continue
            rows = [self._whole(known[side][pivot]) for side, pivot in pivots]
            value = self.symbols.alpha ** word[0] * self.symbols.beta ** word[1]
            for row in rows:
                value = value * self.symbols.ring.from_dict(row.entries)
            letters = "*".join(name if e == 1 else f"{name}^{e}" for name, e in zip(("alpha", "beta"), word[:2], strict=True) if e)
            name = "*".join(self._factor(row) for row in rows)
            name = f"[{letters}] {name}" if letters else name
            self.inside[name] = frozenset().union(*map(self.reads, rows)), tuple(number for row in rows for number in self.numbers(row))
            yield CombinedRow(dict(value), {name: self.symbols.domain.one})

    def reads(self, row: CombinedRow[Word]) -> frozenset[str]:
        """The blocks whose contents the combination reads that forms a row."""
        return frozenset().union(*(self.inside[name][0] if name in self.inside else {name} for name in row.made_of))

    def numbers(self, row: CombinedRow[Word]) -> Iterator[Number]:
        """The coefficients of this combination."""
        for name, number in row.made_of.items():
            yield number
            yield from self.inside.get(name, (frozenset(), ()))[1]

    def _whole(self, row: CombinedRow[Word]) -> CombinedRow[Word]:
        """A multiple whose combination has no fractions, over Q."""
        made_of = self.symbols.whole(row.made_of)
        name = next(iter(made_of))
        scale = made_of[name] / row.made_of[name]
        return CombinedRow({word: c * scale for word, c in row.entries.items()}, made_of)

    def _factor(self, row: CombinedRow[Word]) -> str:
        text = self.sum_text(row.made_of)
        return text if text in self.names else f"({text})"

    def sum_text(self, made_of: Mapping[str, Number]) -> str:
        """A combination in the language: `A12 - 2 A22`, terms to add first."""
        terms = sorted(((*self.symbols.signed(c), name) for name, c in made_of.items()), key=lambda term: term[0] != "+")
        text = ""
        for sign, size, name in terms:
            body = name if size == "1" else f"{size} {name}"
            text += f" {sign} {body}" if text else f"{'-' if sign == '-' else ''}{body}"
        return text


class _WayBack(_Contents):
    """Finds steps that restore operands, executed one after the other: every name stands for the content at that moment.

    A step adds to a block what turns its content into the original, so nothing that is known is lost. It reads contents, and products of
    sums of contents. If there is no such step, a product is subtracted from a content that then tells more, or, where blocks have changed
    places, several blocks are restored at once.
    """

    def steps(self, wanted: Sequence[str]) -> list[_RecoveryStep]:
        """The steps for these operands; empty if they were not found."""
        targets = {name for name in self.names if name[0] in wanted}
        found: list[_RecoveryStep] = []
        while not all(map(self._is_original, targets)):
            step = self._next()
            if step is None:
                return []
            found.append(step)
        needed, kept = targets, []
        for step in reversed(found):
            if step.targets & needed:
                needed = needed | step.reads
                kept.append(step)
        return kept[::-1]

    def _is_original(self, name: str) -> bool:
        return bool(self.state[self.names[name]] == self.symbols.original[self.names[name]])

    def _next(self) -> _RecoveryStep | None:
        rows = self.rows()
        linear = self.forms(rows)
        single = self._singles(linear)
        safe = [name for name, row in single.items() if self._adds(name, row)]
        if not safe and sum(map(len, self.state.values())) <= MOST_WORDS:
            more = self.forms([*rows, *self.derived(linear)])
            single = self._singles(more) | single
            safe = [name for name, row in single.items() if self._adds(name, row)]
            if not safe and (cleared := self._cleared(linear, more)) is not None:
                return self._taken(dict([cleared]))
        if safe:
            name = min(safe, key=lambda name: len(single[name].made_of))
            return self._taken({name: single[name]})
        return self._taken(single) if single else None

    def _singles(self, known: Forms) -> dict[str, CombinedRow[Word]]:
        """The blocks that do not hold their originals, which are known."""
        rows = {
            name: known[name[0]].get(next(iter(self.symbols.original[block])))
            for name, block in self.names.items()
            if not self._is_original(name)
        }
        return {name: row for name, row in rows.items() if row is not None and len(row.entries) == 1}

    def _adds(self, name: str, row: CombinedRow[Word]) -> bool:
        """True if a block's content is a term of this combination, and is read nowhere else in it."""
        return name in row.made_of and not any(name in self.inside[term][0] for term in row.made_of if term in self.inside)

    def _cleared(self, linear: Forms, more: Forms) -> tuple[str, CombinedRow[Word]] | None:
        """A block, and a form that it holds once products are subtracted, which no combination of contents gives."""
        for side, forms in more.items():
            for row in forms.values():
                rest = CombinedRow(dict(row.entries))
                for word, other in linear[side].items():
                    if word in rest.entries:
                        rest.minus(rest.entries[word], other)
                names = [name for name in row.made_of if name in self.names and not self._is_original(name) and self._adds(name, row)]
                if rest.entries and names:
                    scale = row.made_of[names[0]]
                    entries, made_of = {w: c / scale for w, c in row.entries.items()}, {name: c / scale for name, c in row.made_of.items()}
                    return names[0], CombinedRow(entries, made_of)
        return None

    def _taken(self, rows: Mapping[str, CombinedRow[Word]]) -> _RecoveryStep:
        """The step that gives blocks the values of these rows at once; it changes the contents."""
        text = " ; ".join(self._step_text(name, row) for name, row in rows.items())
        reads = frozenset().union(*map(self.reads, rows.values()))
        for name, row in rows.items():
            self.state[self.names[name]] = self.symbols.ring.from_dict(row.entries)
        return _RecoveryStep(frozenset(rows), reads, text, tuple(number for row in rows.values() for number in self.numbers(row)))

    def _step_text(self, name: str, row: CombinedRow[Word]) -> str:
        """`A12 = A22 - A12`, or `+=` if the block's content is added to."""
        made_of = dict(row.made_of)
        if made_of.get(name) != self.symbols.domain.one:
            return f"{name} = {self.sum_text(made_of) or f'0 {name}'}"
        del made_of[name]
        if all(self.symbols.signed(c)[0] == "-" for c in made_of.values()):
            return f"{name} -= {self.sum_text({term: -c for term, c in made_of.items()})}"
        return f"{name} += {self.sum_text(made_of)}"


def _plain(side: str, word: Word) -> Word:
    return tuple(e if place == LETTERS[side] else 0 for place, e in enumerate(word))


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
