"""Element types, each described once."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Element:
    """A floating-point type of stored numbers.

    `name` is its NumPy name, `bytes` its size, and `significand` its number of significant bits, the hidden one included. 2^`least` is the
    smallest positive number, and 2^`most` the first power of two that overflows. `cuda` is the type in kernel text, `suffix` the ending of
    kernel names, `code` its letter in NumPy and in `struct`, and `library` its `cudaDataType_t`.

    If a type is only stored, kernels compute in a `wider` one that holds all of its numbers: they convert after reading and round before
    writing. `code` is empty for a type that NumPy lacks. `definition` is the template that defines `cuda` if C++ lacks the type.
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
    wider: Element | None = None
    definition: str = ""

    @property
    def arithmetic(self) -> Element:
        """The type in which kernels compute: coefficients, alpha, beta, sums and products are of this type."""
        return self.wider or self

    @property
    def unit_roundoff(self) -> float:
        """u: rounding changes a number by a factor of at most 1 + u."""
        return 2.0**-self.significand

    @property
    def roundoffs(self) -> tuple[float, float]:
        """The unit roundoffs of an operation whose result is stored, and of one inside of a leaf product, whose sums are not stored."""
        computed = self.arithmetic.unit_roundoff
        return (computed if self.wider is None else computed + self.unit_roundoff + computed * self.unit_roundoff), computed

    @property
    def smallest_normal(self) -> float:
        """The smallest number with all significant bits; smaller ones have fewer."""
        return 2.0 ** (self.least + self.significand - 1)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return (2 - 2.0 ** (1 - self.significand)) * 2.0 ** (self.most - 1)

    @property
    def lanes(self) -> int:
        """Elements in 16 bytes, the most that a thread copies at once."""
        return 16 // self.bytes

    @property
    def nan(self) -> int:
        """The bits of a NaN without a sign of which only the first bit of the significand is set."""
        return ((1 << (8 * self.bytes - self.significand + 1)) - 1) << (self.significand - 2)

    @property
    def bits(self) -> str:
        """The CUDA name of the unsigned integer type of the same width."""
        return {2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}[self.bytes]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ModularElement(Element):
    """Integers modulo `modulus`, as numbers from 0 to p - 1 in 64 bits. Sums and products are exact; nothing is rounded."""

    modulus: int = field(kw_only=True)


def modular(p: int) -> ModularElement:
    """The integers modulo p, from 2 to 2^62."""
    own = f"int64 modulo {p}", 8, 63, 0, 63, "Residue", f"mod{p}", "q", 0
    return ModularElement(*own, definition="modular.cu.j2", modulus=p)


FLOAT32 = Element("float32", 4, 24, -149, 128, "float", "f32", "f", 0)
FLOAT64 = Element("float64", 8, 53, -1074, 1024, "double", "f64", "d", 1)
FLOAT16 = Element("float16", 2, 11, -24, 16, "Float16", "f16", "e", 2, FLOAT32, "float16.cu.j2")
BFLOAT16 = Element("bfloat16", 2, 8, -133, 128, "Bfloat16", "bf16", "", 14, FLOAT32, "bfloat16.cu.j2")

KNOWN = {element.name: element for element in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)}
"""The types whose rounding is known, by name."""
ELEMENTS = {element.name: element for element in (FLOAT64, FLOAT32, FLOAT16, BFLOAT16)}
"""The types that kernels are generated for, by name, in the order used in results."""
IN_ARRAYS = {name: element for name, element in ELEMENTS.items() if element.wider is None}
"""Types that kernels compute in as they are stored, and that arrays of NumPy and CuPy hold: schedules run on them everywhere."""
HALVES = {name: element for name, element in ELEMENTS.items() if element.wider is FLOAT32}
"""The 16-bit types that a call multiplies on a GPU: kernels form sums of blocks, the library multiplies (docs/how-to/half.md)."""

COMPLEX = {"complex128": FLOAT64, "complex64": FLOAT32}  # The complex types of a call, with their parts'.
MULTIPLIED = IN_ARRAYS | COMPLEX  # What a call multiplies by schedules on all arrays, with its real type.
COMPILED = ChainMap(COMPLEX, ELEMENTS)  # What programs are compiled for, with their kernels' real types.


@dataclass(frozen=True)
class IntegerElement:
    """An integer type of stored numbers, by its NumPy name. `cuda` is the type in kernel text, `suffix` the ending of kernel names.

    Kernels read unsigned 64-bit numbers as two's complement: modulo 2^64 both are the same.
    """

    name: str
    bytes: int
    cuda: str
    suffix: str
    code: str
    wider: None = None

    @property
    def arithmetic(self) -> IntegerElement:
        """The type of alpha and beta."""
        return INTEGERS["int64"]

    @property
    def lanes(self) -> int:
        """Elements in 16 bytes, the most that a thread copies at once."""
        return 16 // self.bytes

    @property
    def largest(self) -> int:
        """The largest magnitude of a number, as kernels read it."""
        bits = 8 * self.bytes
        return (1 << bits) - 1 if self.name.startswith("u") and self.bytes < 8 else 1 << (bits - 1)

    def __str__(self) -> str:
        return self.name


INTEGERS = {
    name: IntegerElement(name, size, cuda, suffix, code)
    for name, size, cuda, suffix, code in (
        ("int8", 1, "signed char", "i8", "b"),
        ("int16", 2, "short", "i16", "h"),
        ("int32", 4, "int", "i32", "i"),
        ("int64", 8, "long long", "i64", "q"),
        ("uint8", 1, "unsigned char", "u8", "B"),
        ("uint16", 2, "unsigned short", "u16", "H"),
        ("uint32", 4, "unsigned", "u32", "I"),
        ("uint64", 8, "unsigned long long", "u64", "Q"),
    )
}
"""The integer types, by name."""
