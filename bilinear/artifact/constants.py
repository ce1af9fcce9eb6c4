"""Constants that a source contains twice: as a number of the type in which elements are computed, and as the rational that it rounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from bilinear.artifact.read import AGAIN, BuiltProgram
from bilinear.emulator.field import PRIME
from bilinear.errors import fail
from bilinear.ir.element import COMPILED
from bilinear.ir.number import nearest

_NEAREST = re.compile(r'\bNEAREST\((-?0x1\.[0-9a-f]{13}p[+-][0-9]{1,4}), "(-?[0-9]{1,4000}(?:/[1-9][0-9]{0,3999})?)"\)')
_DEFINED = re.compile(r"#define NEAREST\(number, exact\) Real\((?:number|exact)\)")


def check_constants(program: BuiltProgram) -> None:
    """Refuse a source (E623) in which such a constant is not the nearest number, because the run over a field reads only the rational."""
    computed = COMPILED[program.dtype].arithmetic.name
    for kernel in program.kernels:
        for number, exact in _constants(kernel.source):
            if float.fromhex(number) != nearest(Fraction(exact), computed):
                raise fail("E623", f"{kernel.path} has the constant {number}, which is not the one nearest to {exact[:40]}", AGAIN)
        if kernel.source.count("NEAREST") != sum(len(found.findall(kernel.source)) for found in (_NEAREST, _DEFINED)):
            raise fail("E623", f"{kernel.path} has a constant that cannot be read", AGAIN)


def divides_by_zero(source: str) -> bool:
    """True if a denominator is a multiple of the prime, so that the constant has no image in the field."""
    return any(Fraction(exact).denominator % PRIME == 0 for _, exact in _constants(source))


def _constants(source: str) -> Iterator[tuple[str, str]]:
    return ((number, exact) for number, exact in _NEAREST.findall(source))
