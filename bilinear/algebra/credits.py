"""Names and citations of schemes that are made from others."""

from __future__ import annotations

from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.digits import DigitScheme
from bilinear.ir.scheme import Scheme

AnyScheme = Scheme | DigitScheme | ComplexAlgorithm

MOST_LETTERS = 100


def joined_name(first: AnyScheme, word: str, second: AnyScheme) -> str:
    """Both names with a word between them."""
    return shortened(f"{first.name}_{word}_{second.name}")


def shortened(name: str) -> str:
    """A name shortened to a readable length."""
    return name if len(name) <= MOST_LETTERS else "composed"


def joined_citations(first: AnyScheme, second: AnyScheme) -> str:
    """Both citations; one is left out if the other contains it."""
    one, other = first.citation, second.citation
    if other in one or one in other:
        return max(one, other, key=len)
    return f"{one} {other}" if one.endswith(".") else f"{one}; {other}"


def numbered(rank: int) -> tuple[str, ...]:
    """M1, M2, ..."""
    return tuple(f"M{i + 1}" for i in range(rank))
