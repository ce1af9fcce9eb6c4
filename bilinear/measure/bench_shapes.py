"""The shapes to measure: sizes and files of sizes, and the grid of 200 shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count, islice
from math import exp, log, sqrt
from pathlib import Path

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import IN_ARRAYS
from bilinear.ir.measurement import Shape
from bilinear.reading import read_input
from bilinear.source import Source, Span

LARGEST_SIDE = 20_000
MOST_FLOPS = 9e12
"""The most operations of a shape in the grid: 0.2 s at 50 TFLOP/s, so that a run takes minutes."""
FAMILIES = (13, 27, 13, 27, 13, 27, 20, 20, 20, 20)
"""The number of shapes in the grid: powers of two (cubes, others), primes, odd, tall (m, k), wide (k, m)."""
FRESH = 20
"""Where the points of the second grid begin, in thousands."""
ROOT = 1.2207440846057596
"""The real root of x^4 = x + 1. Multiples of its powers, modulo 1, fill the cube evenly.

M. Roberts, The unreasonable effectiveness of quasirandom sequences (2018).
"""
WORD = re.compile(r"\S+")
SIZES = re.compile(r"([1-9][0-9]{0,9})(?:[x,]([1-9][0-9]{0,9})[x,]([1-9][0-9]{0,9}))?")
DTYPES = tuple(IN_ARRAYS)


def read_sizes(text: str) -> tuple[Shape, ...]:
    """Sizes separated by commas or spaces, each N or MxKxN (E681)."""
    found = tuple(_shape(word) for word in re.split(r"[,\s]+", text.strip()) if word)
    if not found:
        raise _no_shape(text)
    return found


def read_shapes_file(path: Path) -> tuple[Shape, ...]:
    """The shapes of a file, N or MxKxN or M,K,N a line, with comments after # (E681, with its place)."""
    try:
        source = Source(str(path), read_input(path).decode())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise fail("E681", f"cannot read {path}: {why}", "name a file with a shape a line") from None
    found = []
    for number, start in enumerate(source.line_starts, 1):
        for match in WORD.finditer(source.line(number).split("#")[0]):
            span = Span(source, start + match.start(), start + match.end())
            found.append(_shape(match.group(), span))
    if not found:
        raise fail("E681", f"{path} holds no shape", "write N or MxKxN, one a line")
    return tuple(found)


def _shape(word: str, span: Span | None = None) -> Shape:
    match = SIZES.fullmatch(word)
    if match is None:
        raise _no_shape(word, span)
    m, k, n = (int(side) if side else int(match[1]) for side in match.groups())
    return m, k, n


def _no_shape(word: str, span: Span | None = None) -> BilinearError:
    return fail("E681", f"{word!r} is not a shape", "write N for square matrices, or MxKxN", span=span)


def grid(fresh: bool = False) -> tuple[tuple[Shape, str], ...]:
    """200 shapes with sides from 1 to 20000 and their element types, always the same.

    Powers of two, primes, odd, tall, wide, 40 of each.

    The `fresh` grid has other shapes except for 13 cubes. A third of the first three families are cubes. Tall is m x k by k x n with a
    large m or a large k and two small sides; wide has one small side. Shapes that take too long are skipped.
    """
    primes, begin = _primes(LARGEST_SIDE), FRESH if fresh else 0
    families: list[Iterator[Shape]] = []
    for number, rounded in enumerate((_power, lambda u: min(primes, key=lambda p: abs(p - _side(u))), lambda u: _side(u) - 1 | 1)):
        families += [_spread(begin + 3 * number, rounded), _spread(begin + 3 * number + 1, rounded, rounded, rounded)]
    families += [_spread(begin + 9, _large, _small, _small), _spread(begin + 10, _small, _large, _small)]
    families += [_spread(begin + 11, _large, _small, _large), _spread(begin + 12, _small, _large, _large)]
    known: set[Shape] = set()
    shapes = [shape for number, family in enumerate(families) for shape in islice(_new(family, known), FAMILIES[number])]
    return tuple((shape, DTYPES[i % 2]) for i, shape in enumerate(shapes))


def _new(family: Iterator[Shape], known: set[Shape]) -> Iterator[Shape]:
    """The shapes that did not occur before."""
    for shape in family:
        if shape not in known:
            known.add(shape)
            yield shape


def _spread(start: int, *sides: Callable[[float], int]) -> Iterator[Shape]:
    """Shapes whose sides come from points that fill the cube evenly; cubes if there is one kind of side."""
    for i in count(1 + 1000 * start):
        m, k, n = (side(0.5 + i / ROOT ** (axis + 1) - int(0.5 + i / ROOT ** (axis + 1))) for axis, side in enumerate(_three(sides)))
        shape = (m, k, n) if len(sides) > 1 else (m, m, m)
        if 2.0 * shape[0] * shape[1] * shape[2] <= MOST_FLOPS:
            yield shape


def _three(sides: tuple[Callable[[float], int], ...]) -> tuple[Callable[[float], int], ...]:
    return sides if len(sides) > 1 else sides * 3


def _side(u: float) -> int:
    """A side from 1 to the largest, large ones more often: uniform in the square of the logarithm."""
    return round(exp(sqrt(u) * log(LARGEST_SIDE)))


def _power(u: float) -> int:
    return 1 << int(15 * sqrt(u))


def _small(u: float) -> int:
    return round(exp(u * log(64)))


def _large(u: float) -> int:
    return round(1000 * exp(u * log(LARGEST_SIDE / 1000)))


def _primes(most: int) -> list[int]:
    sieve = bytearray([1]) * (most + 1)
    sieve[:2] = b"\0\0"
    for p in range(2, int(sqrt(most)) + 1):
        if sieve[p]:
            sieve[p * p :: p] = bytes(len(range(p * p, most + 1, p)))
    return [p for p in range(most + 1) if sieve[p]]
