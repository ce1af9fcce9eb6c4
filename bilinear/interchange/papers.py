"""Formulas as papers print them, and as text copied out of a PDF has them, in the signs of a keyboard; and where one formula ends."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bilinear.source import Source, Span

Piece = str | int | tuple[int, int]  # Of a replacement: signs, a group's number, or offsets of what stays.

NAME = r"[A-Za-z]+[0-9_]*(?:\[[0-9]+,[0-9]+\])?"
HEAD = re.compile(rf"(?<![A-Za-z0-9_\].])({NAME})\s*(:?=|[-+]=)(?!=)", re.ASCII)
"""What a formula begins with; `+=` adds to what there is."""
MOST_BLANKS = 200  # How far back from a word the last sign of a value is looked for.
_COMMENT = re.compile(r"(?:#|//|%)[^\n]*")
_WORD = re.compile(r"(?<![\w\\.])[^\W\d_]{2,}(?![\w\[])")
_ENDS = re.compile(r";|,(?![0-9]+\])|\.(?=\s|\Z)")

_FONTS = r"math(?:bf|rm|it|cal|sf|tt|scr|frak|bb)|boldsymbol|bm|text(?:bf|it|rm)|operatorname"
_GREEK = (
    "alpha|beta|gamma|delta|(?:var)?epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|upsilon|phi|chi|psi|omega|"
    "Gamma|Delta|Theta|Lambda|Xi|Sigma|Upsilon|Phi|Psi|Omega"
)
_NOTHING = (
    r"left|right|[bB]igg?[lrm]?|displaystyle|textstyle|nonumber|notag|hline|hfill|bf|rm|it|quad|qquad"
    r"|[hv]space\*?\{[^{}\n]*\}"
)


def _rules(*rules: tuple[str, Sequence[Piece]]) -> tuple[tuple[re.Pattern[str], Sequence[Piece]], ...]:
    return tuple((re.compile(written, re.MULTILINE | re.ASCII), pieces) for written, pieces in rules)


_LATEX = _rules(
    (r"\\(?:text|mbox|tag|label|intertext|ref|eqref)\*?\{[^{}\n]*\}", (" ",)),
    (r"\\begin\{[a-z*]+\}(?:\{[^{}\n]*\})?|\\end\{[a-z*]+\}|\\\\(?:\[[^\]\n]*\])?", ("\n",)),
    (rf"\\(?:{_FONTS})(?:\{{([^{{}}\n]*)\}}|[ ]*([A-Za-z]))", (1, 2)),
    (r"\\(hat|bar|tilde|overline|widehat|widetilde)(?:\{([A-Za-z])\}|[ ]*([A-Za-z]))", (1, 2, 3)),
    (rf"\\({_GREEK})(?![A-Za-z])", (1,)),
    (r"\}?_\{[ ]*([0-9]+)(?:[ ]*,[ ]*|[ ]+)([0-9]+)[ ]*\}", ("[", 1, ",", 2, "]")),
    (r"\}?_\{?[ ]*([0-9]+)[ ]*\}?", ("_", 1)),
    (r"\\[td]?frac[ ]*\{([^{}\n]*)\}[ ]*\{([^{}\n]*)\}", ("((", 1, ")/(", 2, "))")),
    (r"\\[td]?frac[ ]*([0-9])[ ]*([0-9])", ("(", 1, "/", 2, ")")),
    (r"\\(?:cdot|times|ast)(?![A-Za-z])", ("*",)),
    (r"\\(?:leftarrow|gets|coloneqq)(?![A-Za-z])", ("=",)),
    (rf"\\(?:{_NOTHING})(?![A-Za-z])|\\[,;:! \[\]()]|[&$~]", ("  ",)),
    (r"\\?[{}]", ()),
)
"""What LaTeX writes for indices, fractions and products, and what it writes beside the formulas. A command that is not here stays."""

_COPIED = _rules(
    (r"(?<![\w\]])([A-Za-z])[ \t]*\n[ \t]*([0-9]+(?:,[ ]?[0-9]+)?)[ \t]*\n", (1, 2, " ")),
    (r"(?<![\w\]])([A-Za-z])[ \t]+(?=[0-9])", (1,)),
    (r"(?<![A-Za-z])([abcABC])_?([0-9]{1,4}),[ ]?([0-9]{1,4})(?![0-9,])", (1, "[", 2, ",", 3, "]")),
    (r"(?:^[ \t]*|(?<=[,.;])[ \t]*|(?<![ \t])[ \t]+)\([0-9]+(?:\.[0-9]+)*[a-z]?\)[ \t.,;]*$", ()),
    (r"\u00bd", ("(1/2)",)),
)
"""What is left of indices in text copied out of a PDF: `M 1`, `A1, 2`, an index on a line of its own; and the numbers of equations."""

_BELOW = re.compile(r"^([^\n=]*=[^\n]*)\n([ \t]*[0-9]+(?:,[0-9]+)?(?:[ \t]+[0-9]+(?:,[0-9]+)?)*)[ \t]*$", re.MULTILINE | re.ASCII)
_BARE = re.compile(r"(?<![\w])[A-Za-z](?![\w\[])", re.ASCII)
LOST = re.compile(r"=\s*[-+(]*([abAB])(?=[ \t\n]*[-+(])", re.ASCII)  # A block that has lost its index.


@dataclass(frozen=True)
class PlainText(Source):
    """The text of a file with formulas in plain signs; its spans are told as those of the file as it is written."""

    written: Source
    places: list[int] = field(compare=False, repr=False)

    def span(self, start: int, end: int) -> Span:
        """The characters of the file that those between two offsets of the plain text stand for."""
        first = self.places[start]
        return Span(self.written, first, max(first, self.places[end - 1] if end > start else first) + 1)


def plain(source: Source) -> PlainText:
    """The text with what LaTeX and PDF files have for indices, products and fractions as on a keyboard."""
    text, places = source.text, list(range(len(source.text) + 1))
    latex = re.search(r"\\|_\{|\$", text) is not None
    for pattern, replacement in [*(_LATEX if latex else ()), (_BELOW, None), *_COPIED]:
        pieces: list[str] = []
        moved: list[int] = []
        last = 0
        for match in pattern.finditer(text):
            for piece in [(last, match.start()), *(_indices_below(match) if replacement is None else replacement)]:
                if isinstance(piece, str):
                    pieces.append(piece)
                    moved += [places[match.start()]] * len(piece)
                    continue
                start, end = match.span(piece) if isinstance(piece, int) else piece
                if start >= 0:
                    pieces.append(text[start:end])
                    moved += places[start:end]
            last = match.end()
        if last:
            text, places = "".join([*pieces, text[last:]]), moved + places[last:]
    return PlainText(source.name, text, source, places)


def _indices_below(match: re.Match[str]) -> Sequence[Piece]:
    """A line whose indices stand on the next one, `m = (a + a )` above `1 11 22`, if there are as many as letters, or as a, b and c."""
    start, below = match.start(), match.start(2)
    indices = [(below + index.start(), below + index.end()) for index in re.finditer(r"[0-9,]+", match[2])]
    letters = [start + letter.end() for letter in _BARE.finditer(match[1])]
    blocks = [start + letter.end() for letter in _BARE.finditer(match[1]) if letter[0] in "abcABC"]
    ends = next((some for some in (letters, blocks) if len(some) == len(indices)), None)
    if ends is None:
        return ((match.start(), match.end()),)
    pieces: list[Piece] = []
    for before, end, index in zip([start, *ends], ends, indices, strict=False):
        pieces += [(before, end), index]
    return [*pieces, (ends[-1], match.end(1))]


def without_comments(text: str) -> str:
    """The text with comments (#, // or %) blanked."""
    return _COMMENT.sub(lambda part: " " * len(part[0]), text)


def formulas(text: str, is_block: Callable[[str], bool]) -> tuple[list[tuple[re.Match[str], int]], list[tuple[int, int]]]:
    """The formulas of a text, each its head and the offset behind it, and the stretches between them, which are not formulas.

    A formula ends before a sign that ends it or a line of words. Left out are those of a matrix, `A = ...`, and those that name no block
    and no other formula, if no other names them.
    """
    heads = list(HEAD.finditer(text))
    bounds = [*(head.start() for head in heads), len(text)]
    assigned = {head[1] for head in heads}
    found = [(head, _end(text, head.end(), bound, assigned)) for head, bound in zip(heads, bounds[1:], strict=True)]
    named = [set(re.findall(NAME, text[head.end() : end])) for head, end in found]
    uses = Counter(name for names in named for name in names)
    kept = [
        (head, end)
        for (head, end), names in zip(found, named, strict=True)
        if is_block(head[1])
        or uses[head[1]] > (head[1] in names)
        or (head[1] not in ("A", "B", "C") and any(is_block(name) or name in assigned for name in names))
    ]
    edges = [0, *(edge for head, end in kept for edge in (head.start(), end)), len(text)]
    return kept, [(start, end) for start, end in list(pairwise(edges))[::2] if text[start:end].strip()]


def _end(text: str, start: int, bound: int, assigned: set[str]) -> int:
    """The offset behind the formula whose value begins at `start`."""
    end, empty = start, True
    for line in re.compile(r"[^\n]*\n?").finditer(text, start, bound):
        words = (word.start() for word in _WORD.finditer(text, *line.span()) if word[0] not in assigned)
        outside = next((at for at in words if not _goes_on(text, start, at)), line.end())
        blank = not line[0].strip()
        goes_on = empty or blank or _goes_on(text, start, line.start())
        if not goes_on and (outside < line.end() or not re.search(r"[A-Za-z]", line[0])):
            break
        stop = _ENDS.search(text, line.start(), outside)
        end = stop.start() if stop is not None else outside
        if end < line.end():
            break
        empty = empty and blank
    return start + len(text[start:end].rstrip())


def _goes_on(text: str, start: int, at: int) -> bool:
    """True if a value lacks what comes next: it has nothing before `at`, or ends with an operator or an open parenthesis."""
    return text[max(start, at - MOST_BLANKS) : at].rstrip()[-1:] in "-+*/(="


def words_between(text: str, gaps: Iterable[tuple[int, int]], assigned: set[str]) -> tuple[list[int], int | None]:
    """The offsets of the lines of words between formulas, and that of the first line that is neither words nor without letters."""
    found: list[int] = []
    for start, end in gaps:
        for line in re.compile(r"[^\n;]+").finditer(text, start, end):
            words = [word for word in _WORD.finditer(text, line.start(), line.end()) if word[0] not in assigned]
            at = line.start() + len(line[0]) - len(line[0].lstrip())
            if words:
                found.append(at)
            elif re.search(r"[^\W\d_]|[+=^]", line[0]):
                return found, at
    return found, None
