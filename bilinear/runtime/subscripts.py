"""The subscripts of `einsum`: their letters, what an ellipsis stands for, and the extents, by the rules of `numpy.einsum`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from string import ascii_letters
from typing import NamedTuple

from bilinear.errors import BilinearError, fail

Labels = tuple[str, ...]
"""A label for each dimension of an array: a letter, or a name such as `.1` for what an ellipsis stands for, counted from the right."""
Shape = tuple[int, ...]


class Contraction(NamedTuple):
    """The labels of every operand and of the result. Labels that the result lacks are summed over."""

    operands: tuple[Labels, ...]
    result: Labels


def read_subscripts(subscripts: object, shapes: Sequence[Shape]) -> Contraction:
    """The labels of operands of these shapes. Refuses (E730) subscripts without a meaning, and (E731) ones for other operands."""
    if not isinstance(subscripts, str):
        raise fail("E730", f"the subscripts are of type {type(subscripts).__name__}, not text", 'give them first, such as "ij,jk->ik"')
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise fail("E731", f"{subscripts!r} names {len(terms)} operand(s), and {len(shapes)} are given", "give a term for each operand")
    operands = tuple(_labels(subscripts, term, len(shape)) for term, shape in zip(terms, shapes, strict=True))
    spread = sorted({label for labels in operands for label in labels if label.startswith(".")}, key=_from_the_left)
    counts = Counter(label for labels in operands for label in labels if not label.startswith("."))
    if not arrow:
        return Contraction(operands, (*spread, *sorted(label for label, count in counts.items() if count == 1)))
    head, dots, tail = _split(subscripts, right)
    if spread and not dots:
        raise _meaningless(subscripts, "the result has no ellipsis for the dimensions that one stands for")
    twice = next((label for label, count in Counter(head + tail).items() if count > 1), None)
    unknown = next((label for label in head + tail if label not in counts), None)
    if twice is not None or unknown is not None:
        raise _meaningless(subscripts, f"the result has {twice} twice" if twice else f"no operand has {unknown}, which the result has")
    return Contraction(operands, (*head, *spread, *tail))


def extents_of(contraction: Contraction, shapes: Iterable[Shape]) -> dict[str, int]:
    """The extent of every label; refuses (E731) extents that differ.

    Between operands a 1 fits everything, as in `numpy.einsum`, but not between two dimensions of one operand.
    """
    extents: dict[str, int] = {}
    for labels, shape in zip(contraction.operands, shapes, strict=True):
        own: dict[str, int] = {}
        for label, extent in zip(labels, shape, strict=True):
            if own.setdefault(label, extent) != extent:
                raise _differ(label, own[label], extent)
        for label, extent in own.items():
            known = extents.get(label, 1)
            if extent not in (1, known) and known != 1:
                raise _differ(label, known, extent)
            extents[label] = extent if known == 1 else known
    return extents


def as_text(contraction: Contraction) -> str:
    """Subscripts with a letter for each label; refused (E730) if letters run out."""
    labels = dict.fromkeys(label for labels in contraction.operands for label in labels)
    if len(labels) > len(ascii_letters):
        message = f"{len(labels)} dimensions are more than the {len(ascii_letters)} letters among which a path is searched"
        raise fail("E730", message, "contract two operands at a time")
    letters: Mapping[str, str] = dict(zip(labels, ascii_letters, strict=False))
    terms = ["".join(letters[label] for label in labels) for labels in (*contraction.operands, contraction.result)]
    return f"{','.join(terms[:-1])}->{terms[-1]}"


def _labels(subscripts: str, term: str, dimensions: int) -> Labels:
    """The labels of an operand of so many dimensions."""
    head, dots, tail = _split(subscripts, term)
    spread = dimensions - len(head) - len(tail)
    if spread < 0 or (spread > 0 and not dots):
        count = f"at least {len(head) + len(tail)}" if dots else str(len(head) + len(tail))
        raise fail("E731", f"{term!r} is for {count} dimension(s), and the operand has {dimensions}", "give a letter for each dimension")
    return (*head, *(f".{number}" for number in range(spread, 0, -1)), *tail)


def _split(subscripts: str, term: str) -> tuple[Labels, bool, Labels]:
    """The letters before an ellipsis, whether there is one, and the letters after it."""
    head, dots, tail = term.partition("...")
    strange = next((sign for sign in head + tail if sign not in ascii_letters), None)
    if strange is not None:
        raise _meaningless(subscripts, f"{strange!r} stands where a letter or an ellipsis should")
    return tuple(head), bool(dots), tuple(tail)


def _from_the_left(label: str) -> int:
    return -int(label[1:])


def _meaningless(subscripts: str, why: str) -> BilinearError:
    return fail("E730", f"{subscripts!r} has no meaning: {why}", 'write letters, commas, "..." and one "->", such as "...ij,jk->...ik"')


def _differ(label: str, one: int, other: int) -> BilinearError:
    name = f"what an ellipsis stands for (dimension {label[1:]} from the right)" if label.startswith(".") else label
    return fail("E731", f"the extents {one} and {other} of {name} differ", "give operands whose extents agree")
