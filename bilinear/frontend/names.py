"""The names of one scheme: sub-expressions over A and B, products, and sums of products, in order of definition."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.frontend.atoms import Grid, grid, is_block, number_of, read_block
from bilinear.frontend.headers import FormatAndRing
from bilinear.frontend.reporter import Reporter, did_you_mean, listed, shown
from bilinear.frontend.syntax import Plain, Word
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient
from bilinear.ir.scheme import WrittenSum, WrittenTerm, block_name
from bilinear.source import Span

KINDS = {"A": "a form over A", "B": "a form over B", "M": "a form over products"}


@dataclass(frozen=True)
class Value:
    """A value that forms of a kind are over: an input or a step of u (A), v (B) or w (M)."""

    kind: str
    index: int


@dataclass
class Factors:
    """A product while its scheme is being read."""

    name: str
    left: Form
    right: Form
    span: Span


@dataclass
class Names:
    """The definitions so far. A name without a value was defined by a statement with an error, so its uses are not reported."""

    header: FormatAndRing
    reporter: Reporter
    later: dict[str, Span] = field(default_factory=dict)
    values: dict[str, Value | None] = field(default_factory=dict)
    places: dict[str, Span] = field(default_factory=dict)
    steps: dict[str, list[Form]] = field(default_factory=lambda: {"A": [], "B": [], "M": []})
    step_names: dict[str, list[str]] = field(default_factory=lambda: {"A": [], "B": [], "M": []})
    products: list[Factors] = field(default_factory=list)
    outputs: dict[int, tuple[Form | None, Span]] = field(default_factory=dict)
    columns: dict[int, list[tuple[int, Coefficient]]] = field(default_factory=dict)
    """For each block of C, its column of a table: (product, coefficient)."""
    written: list[WrittenTerm] = field(default_factory=list)
    sums: list[WrittenSum] = field(default_factory=list)
    rows: list[Span] = field(default_factory=list)
    """The cells of each row of a table."""

    def __post_init__(self) -> None:
        h = self.header
        self.blocks: Grid = grid(h.m, h.k, h.n)
        self.inputs = {"A": h.m * h.k, "B": h.k * h.n, "M": h.rank}

    def define(self, word: Word, value: Value | None) -> None:
        """Define a name, or mark it as defined with an error."""
        self.values[word.text] = value
        self.places[word.text] = word.span

    def is_new(self, word: Word) -> bool:
        """True if a name is free; a second definition is reported (E208)."""
        first = self.places.get(word.text)
        if first is None:
            return True
        self.twice(word, first)
        return False

    def twice(self, word: Word, first: Span) -> None:
        """Report a second definition (E208)."""
        note = f"the first definition is at {first}"
        self.reporter.report(
            "E208", f"{shown(word.text)} is defined twice", word.span, "defined again", note=note, hint="rename one of them"
        )

    def add_step(self, kind: str, word: Word, step: Form) -> None:
        """Define a sub-expression of a kind."""
        self.define(word, Value(kind, self.inputs[kind] + len(self.steps[kind])))
        self.steps[kind].append(step)
        self.step_names[kind].append(word.text)

    def add_product(self, name: str, left: Form, right: Form, span: Span) -> Value:
        """Add the next product; one without a name yet gets an empty one."""
        self.products.append(Factors(name, left, right, span))
        return Value("M", len(self.products) - 1)

    def look_up(self, plain: Plain) -> Value | None:
        """The value of a name in a sum; None if it has none, which is reported unless its definition already was."""
        word = plain.name
        if is_block(word.text):
            return self._block(word)
        if word.text not in self.values:
            self._unknown(word)
            return None
        return self.values[word.text]

    def _block(self, word: Word) -> Value | None:
        block = read_block(word, self.blocks, self.reporter)
        if block is None:
            return None
        if block.space == "C":
            hint = "name the sum in an equation of its own, and use that name in both places"
            self.reporter.report("E214", f"{word.text} is read, but blocks of C are results", word.span, "a result", hint=hint)
            return None
        return Value(block.space, number_of(block, self.blocks))

    def _meant(self, name: str) -> str:
        """What an unknown name may stand for: a name like it, the same number behind another letter, or else what there is."""
        known = [other for other, value in self.values.items() if value is not None]
        alike = [other for other in known[:400] if name[1:].isdecimal() and other[1:] == name[1:]]
        near = did_you_mean(name, [*known, *self._block_names()])
        if alike or near:
            return f"did you mean {' or '.join(alike[:3])}?" if alike else near
        products = [product.name for product in self.products if product.name]
        if name[1:].isdecimal() and len(products) > 1:
            return f"the products are {products[0]} to {products[-1]}"
        return f"known here are {listed(known)}" if known else ""

    def _block_names(self) -> list[str]:
        return [block_name(s, i, j) for s in "AB" for i in range(self.blocks[s][0]) for j in range(self.blocks[s][1])]

    def _unknown(self, word: Word) -> None:
        place = self.later.get(word.text)
        if place is not None:
            note = f"it is defined at {place}"
            message = f"{shown(word.text)} is used before it is defined"
            self.reporter.report("E209", message, word.span, "not yet known", note=note, hint="put its definition before this")
        else:
            hint = "" if self.reporter.full else self._meant(word.text)
            if "." in word.text:
                hint = "digits stand in schemes over digits: scheme pairs <1,1,1;3> over pair"
            self.reporter.report("E209", f"{shown(word.text)} is not defined", word.span, "not known", hint=hint)
        self.values[word.text] = None
