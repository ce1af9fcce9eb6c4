"""Element types, each described once, and precisions: in which types a product's operands are stored, multiplied, added up and returned."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Element:
    """A floating-point type of stored numbers.

    `name` is NumPy's name of it, `bytes` its size, `significand` its significant bits with the hidden one. 2^`least` is its smallest
    positive number, and 2^`most` the first power of two that it cannot hold. `cuda` is the type in kernel text, `suffix` what kernels for
    it are called after, `code` its letter in NumPy and in `struct`, and `library` the `cudaDataType_t` by which CUDA's libraries know it.
    """

    name: str
    bytes: int
    significand: int
    least: int
    most: int
    cuda: str
    suffix: str
    code: str
    library: int

    @property
    def unit_roundoff(self) -> float:
        """u: a rounded result is off by a factor of at most 1 + u."""
        return 2.0**-self.significand

    @property
    def smallest_normal(self) -> float:
        """Numbers below have fewer significant bits."""
        return 2.0 ** (self.least + self.significand - 1)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return (2 - 2.0 ** (1 - self.significand)) * 2.0 ** (self.most - 1)

    @property
    def lanes(self) -> int:
        """Elements of 16 bytes, the most that a thread copies at once."""
        return 16 // self.bytes

    @property
    def bits(self) -> str:
        """The unsigned integer type as wide as an element, in kernel text."""
        return {2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}[self.bytes]

    def __str__(self) -> str:
        return self.name


FLOAT16 = Element("float16", 2, 11, -24, 16, "__half", "f16", "e", 2)
FLOAT32 = Element("float32", 4, 24, -149, 128, "float", "f32", "f", 0)
FLOAT64 = Element("float64", 8, 53, -1074, 1024, "double", "f64", "d", 1)

KNOWN = {element.name: element for element in (FLOAT16, FLOAT32, FLOAT64)}
"""The types whose rounding is known, by name."""
ELEMENTS = {element.name: element for element in (FLOAT64, FLOAT32)}
"""The types that kernels are generated for, by name, in the order in which results name them."""


@dataclass(frozen=True)
class Precision:
    """The types of a product: operands are `stored` as one, converted to another to be `multiplied`; sums are `accumulated` in a third.

    A finished sum is rounded to the fourth, in which it is scaled, added to what is there, and `returned`.
    """

    stored: Element
    multiplied: Element
    accumulated: Element
    returned: Element
