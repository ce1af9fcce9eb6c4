"""What kernels mean, in NumPy: the arithmetic that their references share.

A kernel's `reference` does to memory what its text does on a GPU: it reads and writes the same places, in the same layouts. Sums may be
added up in another order, and products of digits are exact where a unit truncates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_uint8

import numpy as np

from bilinear.ir.element import Element, IntegerElement, ModularElement
from bilinear.ir.linear import Evaluation
from bilinear.ir.matrix import Array, Dtype
from bilinear.ir.number import HELD, Coefficient, Symbolic, nearest, rational, residue, to_float

MOST_EXPONENT, DIGIT_TOP = 126, 141
"""The largest exponent of a line's scale for float16 digits; and this minus the exponent's bits of its largest magnitude is one."""


SPECIAL = 1 << 20  # The exponent of a line that holds an Inf or a NaN.
MODERATE = 400  # Scales of at most 2^400 leave every sum of integers far from overflow and underflow.


class KernelValues:
    """The arguments of a launch by name (addresses, whole numbers, alpha and beta), and its blocks of threads along x and y."""

    def __init__(self, numbers: Mapping[str, float], blocks: tuple[int, int]) -> None:
        self.numbers, self.blocks = numbers, blocks

    def __call__(self, *names: str) -> tuple[int, ...]:
        """Whole numbers, by name."""
        return tuple(int(self.numbers[name]) for name in names)

    def view(self, name: str, dtype: str, shape: Sequence[int], steps: Sequence[int | str], begin: int = 0) -> Array:
        """The elements of a type from `begin` elements behind an address on; `steps` are the distances between them, or their names."""
        size = np.dtype(dtype).itemsize
        apart = [self(step)[0] if isinstance(step, str) else step for step in steps]
        moves = [(extent - 1) * step for extent, step in zip(shape, apart, strict=True)]
        if min(shape) < 1:
            return np.empty(shape, dtype)
        low, high = sum(min(0, move) for move in moves), sum(max(0, move) for move in moves)
        memory = memoryview((c_uint8 * ((high - low + 1) * size)).from_address(self(name)[0] + (begin + low) * size))
        return np.ndarray(tuple(shape), dtype, memory, -low * size, tuple(step * size for step in apart))

    def is_set(self, name: str = "flag") -> bool:
        """Whether the int at this address is not 0."""
        return bool(self.view(name, "i", (1,), (1,))[0])

    def set(self, name: str, when: bool) -> None:
        """Set the int at this address to 1, if so; else leave it."""
        if when:
            self.view(name, "i", (1,), (1,))[0] = 1


def loaded(x: Array, element: Element) -> Array:
    """Stored elements in the type in which kernels compute; numbers modulo p as Python's integers."""
    if isinstance(element, ModularElement):
        return x.astype(object)
    if element.wider is None:
        return x.copy()
    return x.astype(np.float32) if element.code else (x.astype(np.uint32) << 16).view(np.float32)


def store(to: Array, value: Array, element: Element) -> None:
    """Write numbers of the type in which kernels compute, rounded to the stored one, or reduced."""
    if isinstance(element, ModularElement):
        to[...] = value % element.modulus
    else:
        to[...] = value if element.code else bfloat16(value)


def bfloat16(value: Array) -> Array:
    """The bits of float32 numbers rounded to bfloat16: to nearest, ties to even; NaN is 0x7fff."""
    whole = np.ascontiguousarray(value, np.float32).view(np.uint32).astype(np.uint64)
    return np.where((whole & 0x7FFFFFFF) > 0x7F800000, 0x7FFF, whole + 0x7FFF + (whole >> 16 & 1) >> 16).astype(np.uint16)


def with_one_nan(value: Array, element: Element) -> Array:
    """Numbers as they are stored, with the NaN that NumPy and PyTorch call so for every NaN; of bfloat16 the bits."""
    found = np.empty(value.shape, stored_type(element))
    store(found, value, element)
    found.view(f"u{element.bytes}")[np.isnan(value)] = element.nan
    return found


def stored_type(element: Element) -> str:
    """NumPy's letter for what is stored; bfloat16 are its bits."""
    return element.code or "H"


def constant(value: Coefficient, element: Element | IntegerElement) -> Array:
    """A coefficient as kernels have it: rounded once to the type in which they compute."""
    if isinstance(element, ModularElement):
        return residue(value, element.modulus)
    if isinstance(element, IntegerElement):
        return int(rational(value))
    real = np.dtype(element.arithmetic.code).type
    if isinstance(value, Symbolic):
        return real(to_float(value))
    top, bottom = rational(value).as_integer_ratio()
    return real(nearest(value, element.arithmetic.name)) if max(abs(top), bottom) > HELD else real(top) / real(bottom)


def number(value: float, element: Element) -> Array:
    """A factor in the type in which kernels compute."""
    return int(value) if isinstance(element, ModularElement) else np.dtype(element.arithmetic.code).type(value)


def evaluate(
    evaluation: Evaluation, element: Element | IntegerElement | None, read: Callable[[int], Array], write: Callable[[int, Array], None]
) -> None:
    """Run the operations of a linear map in their order; without an `element` on whole numbers."""
    held: dict[int, Array] = {}
    for act in evaluation.instructions:
        if act.kind == "read":
            held[act.value] = read(act.value)
        elif act.kind == "write":
            write(act.output, held[act.value])
        else:
            terms = [held[i] * (int(rational(c)) if element is None else constant(c, element)) for i, c in act.terms]
            form = sum(terms[1:], terms[0]) if terms else 0 * next(iter(held.values()), np.int8(0))
            held[act.value] = form if act.begins else held[act.value] + form


def scaled_sum(to: Array, product: Array, alpha: Array, beta: Array) -> None:
    """C = alpha * product + beta * C, where C is not read if beta is 0."""
    to[...] = times(product, alpha) if beta == 0 else times(to, beta) + times(product, alpha)


def times(x: Array, factor: Array) -> Array:
    """Numbers times a factor; a real one multiplies each part of complex numbers, so that an Inf beside a 0 stays one."""
    if not np.iscomplexobj(x):
        return x * factor
    found, is_real = np.empty_like(x), factor.imag == 0
    found.real = x.real * factor.real if is_real else x.real * factor.real - x.imag * factor.imag
    found.imag = x.imag * factor.real if is_real else x.real * factor.imag + x.imag * factor.real
    return found


def joined(real: Array, imaginary: Array) -> Array:
    """Complex numbers of these parts, which may be infinite."""
    return np.stack([real, imaginary], -1).view(f"c{2 * real.itemsize}")[..., 0]


def factors(values: KernelValues, dtype: str) -> tuple[Array, Array]:
    """alpha and beta in a type; complex ones have their imaginary parts as arguments."""
    kind = np.dtype(dtype).type
    if np.dtype(dtype).kind == "c":
        alpha, beta = (complex(values.numbers[name], values.numbers[f"{name}_im"]) for name in ("alpha", "beta"))
        return kind(alpha), kind(beta)
    return kind(values.numbers["alpha"]), kind(values.numbers["beta"])


def blocks_of(x: Array, places: Sequence[tuple[int, int]], block: tuple[int, int], padded: tuple[int, int]) -> list[Array]:
    """The blocks at these places, in `padded` arrays; what lies outside of X, or of the block, is 0."""
    found = []
    for down, right in places:
        part = x[down * block[0] :, right * block[1] :][: block[0], : block[1]]
        whole = np.zeros(padded, x.dtype)
        whole[: part.shape[0], : part.shape[1]] = part
        found.append(whole)
    return found


def swizzled(x: Array) -> Array:
    """Lines of 8 parts, (..., lines, 8, elements), as they are stored and back: part f of line s is at place f ^ s % 8."""
    lines = np.arange(x.shape[-3])[:, None]
    return x[..., lines, lines % 8 ^ np.arange(8), :]


def digit_panels(x: Array, along: bool) -> Array:
    """Digits (2, lines, terms) as products read them: panels of 128 lines, slices of 64 terms, tiles of 64 x 64 with swizzled lines."""
    _, lines, terms = x.shape
    tiles = x.reshape(2, lines // 128, 2, 64, terms // 64, 64).transpose(1, 4, 0, 2, 3, 5)
    tiles = tiles if along else tiles.swapaxes(-1, -2)
    return swizzled(tiles.reshape(*tiles.shape[:4], 64, 8, 8)).reshape(tiles.shape)


def digits_in(panels: Array, along: bool) -> Array:
    """The digits (2, lines, terms) that lie in such panels, as float64."""
    count, slices = panels.shape[:2]
    tiles = swizzled(panels.reshape(*panels.shape[:4], 64, 8, 8)).reshape(panels.shape)
    tiles = tiles if along else tiles.swapaxes(-1, -2)
    return tiles.transpose(2, 0, 3, 4, 1, 5).reshape(2, 128 * count, 64 * slices).astype(float)


def cut(x: Array) -> Array:
    """The two float16 digits of scaled float32 numbers."""
    high = x.astype(np.float16)
    return np.stack([high, (x - high).astype(np.float16)])


def digit_product(left: Array, right: Array) -> Array:
    """The product of digits (2, lines, terms) as kernels know it, without the one of two low digits, in float32."""
    return (left[0] @ (right[0] + right[1]).T + left[1] @ right[0].T).astype(np.float32)


def digit_exponents(largest: Array, headroom: int) -> Array:
    """The exponents of the scales of lines, from the bits of their largest magnitudes."""
    return np.minimum(DIGIT_TOP - headroom - (largest >> 23).astype(np.int64), MOST_EXPONENT)


def residue_panels(x: Array) -> Array:
    """Residues (lines, terms) as products read them: panels of 128 lines and slices of 128 terms, whose lines are swizzled."""
    lines, terms = x.shape
    return swizzled(x.reshape(lines // 128, 128, terms // 128, 8, 16).swapaxes(1, 2)).reshape(lines // 128, terms // 128, 128, 128)


def residues_in(panels: Array) -> Array:
    """The residues (lines, terms) that lie in such panels, as float64."""
    count, slices = panels.shape[:2]
    parts = swizzled(panels.reshape(count, slices, 128, 8, 16)).swapaxes(1, 2)
    return parts.reshape(128 * count, 128 * slices).astype(float)


def least_residues(x: Array, p: int) -> Array:
    """The residues of least size, in int8. Floats are integers below 2^53."""
    whole = x.astype(np.int64) if x.dtype.kind == "f" else x  # whose remainders take a tenth of the time
    return ((whole + p // 2) % p - p // 2).astype(np.int8)


def put_together(shares: Array, weights: Sequence[int], product: int) -> Array:
    """The numbers of least size modulo M of these residues, one modulus after another, exactly."""
    total = sum(share.astype(object) * weight for share, weight in zip(shares, weights, strict=True))
    return (total + product // 2) % product - product // 2


def exponents_of(largest: Array, limit: float) -> Array:
    """The exponents of the scales of lines with these largest magnitudes: the largest e with 2^e * largest <= limit; 0 for zeros."""
    (part, place), (most, top) = np.frexp(largest), np.frexp(limit)
    found = np.where(largest > 0, top - place - (part > most), 0)
    return np.where(np.isfinite(largest), found, SPECIAL)


def _two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded sum and its error, exactly (D. E. Knuth, The Art of Computer Programming 2, 4.2.2)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _to_odd(x: Array, y: Array) -> Array:
    """The sum, rounded to odd if it is inexact: then rounding once more to fewer bits is right (S. Boldo, G. Melquiond, ARITH 17, 2005)."""
    total, lost = _two_sum(x, y)
    bits = total.view(np.int64)
    towards = (bits ^ lost.view(np.int64)) >> 63 | 1  # what is lost: away from zero if both have one sign
    towards *= lost != 0
    towards *= ~bits & 1
    bits += towards
    return total


def rounded(pieces: Sequence[Array], left: Array, right: Array, dtype: Dtype) -> Array:
    """The sum of integers in float64, divided by 2^left[i] and 2^right[j], rounded once to a floating-point type of at most 53 bits.

    Every piece is at most about half of the unit of the next one, so only the last one that changes the sum and those below are lost.
    """
    total, low = _sum(pieces[-1], pieces[-2::-1])
    total = total + low if dtype == np.float64 else _to_odd(total, low)
    if max(np.abs(left).max(initial=0), np.abs(right).max(initial=0)) <= MODERATE:  # no product below overflows or underflows
        return (total * np.ldexp(1.0, -left)[:, None] * np.ldexp(1.0, -right)).astype(dtype)
    exponent = -left[:, None] - right
    found = np.ldexp(total, exponent).astype(dtype)
    tiny = (np.frexp(total)[1] + exponent <= np.finfo(np.float64).minexp) & (total != 0)
    if dtype == np.float64 and tiny.any():
        unit = np.ldexp(1.0, np.minimum(-1074 - exponent[tiny], 256))  # of subnormal numbers; beyond all sums at the most
        start = np.copysign(2.0**52 * unit, total[tiny])
        most, rest = _sum(start, [x[tiny] for x in pieces[::-1]])
        found[tiny] = np.copysign(np.ldexp(most + rest - start, exponent[tiny]), start)
    return found


def _sum(total: Array, pieces: Sequence[Array]) -> tuple[Array, Array]:
    """The rounded sum of these, the highest piece first, and what it lost, rounded to odd."""
    low = None
    for piece in pieces:
        total, lost = _two_sum(total, piece)
        low = lost if low is None else _to_odd(low, lost)
    return total, low


def special_product(a: Array, b: Array) -> Array:
    """A product in the extended reals of which every row, or every column, holds an Inf or a NaN."""

    def any_of(x: Array, y: Array) -> Array:
        return x.astype(np.float32) @ y.astype(np.float32) > 0

    endless = np.isinf(a), np.isinf(b)
    is_nan = np.isnan(a).any(1)[:, None] | np.isnan(b).any(0) | any_of(endless[0], b == 0) | any_of(a == 0, endless[1])
    up = any_of(a == np.inf, b > 0) | any_of(a == -np.inf, b < 0) | any_of(a > 0, b == np.inf) | any_of(a < 0, b == -np.inf)
    down = any_of(a == np.inf, b < 0) | any_of(a == -np.inf, b > 0) | any_of(a > 0, b == -np.inf) | any_of(a < 0, b == np.inf)
    return np.where(is_nan | (up & down), np.nan, np.where(up, np.inf, -np.inf))


def with_factors(value: Array, old: Array, alpha: Array, beta: Array) -> Array:
    """alpha * value + beta * old, each operation rounded, `old` not read if beta is 0, and NumPy's NaN for every NaN."""
    with np.errstate(all="ignore"):
        found = times(value, alpha) if beta == 0 else times(value, alpha) + times(old, beta)
    for part in (found.real, found.imag) if np.iscomplexobj(found) else (found,):
        part[np.isnan(part)] = np.nan
    return found
