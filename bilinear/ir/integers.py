"""The integer types that kernels of residues read and write."""

from __future__ import annotations

from dataclasses import dataclass


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
