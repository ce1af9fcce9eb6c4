"""Policy: thresholds that were fitted to a device, beside its rates. They are fields of its description."""

from __future__ import annotations

from dataclasses import dataclass

Extents = tuple[int, int, int]
"""(m, k, n) of a multiply, in elements."""


NEVER = 2**31
"""A least extent that no matrix on one GPU reaches."""


@dataclass(frozen=True)
class Policy:
    """What the planner weighs on a device, and what it takes to be chosen. The defaults are for a device that nobody has fitted.

    The library's multiply runs unless a plan is predicted to save more than the part `least_gain` of its time, because the model is no
    more exact. Other limits hold for some plans: `least_gain_plain` for the product kernel without a scheme, which does what the library
    does and is seldom much faster; `least_gain_thin` for the kernel for thin products, whose times are known less well, and which must also
    save `least_saved_thin` microseconds, because the library's shortest times are not known; `least_gain_digits` for products of digits;
    `least_gain_complex` for three real products, because the cost of reading and writing every second element is not measured.

    The planner does not weigh plans with a block of fewer than `least_block` rows or columns. For plain plans whose operands are one
    matrix each, with rows that begin at multiples of 16 bytes, `least_plain_block` has other limits by element type. Plans that are timed
    before they are chosen may have blocks down to `least_timed_block`, plain ones of any size if sums have `least_timed_inner` terms.
    Products of digits that are computed in parts to save workspace have parts of at least `least_digit_block` rows and columns.

    `auto` leaves products to the library if an extent is below `least_complex` for complex numbers, `least_integers` for integers, and
    `least_halves` for numbers of 16 bits. The kernel for thin products runs if C has at least `least_thin` rows and columns: a library
    multiplies by a vector at the speed of memory.

    More than `many_products` products take seconds to prove and to compile: they are weighed where a multiply takes `long_ms`
    milliseconds. Operands and workspace may fill the part `memory_share` of the device's memory where no budget is given.
    """

    least_gain: float = 0.04
    least_gain_plain: float = 0.08
    least_gain_thin: float = 0.15
    least_saved_thin: float = 5.0
    least_thin: int = 2
    least_gain_digits: float = 0.05
    least_gain_complex: float = 0.25
    least_block: int = 512
    least_plain_block: tuple[tuple[str, Extents], ...] = (("float32", (17, 64, 17)),)
    least_timed_block: int = 128
    least_timed_inner: int = 16
    least_digit_block: int = 1024
    least_complex: int = 1024
    least_integers: int = 2048
    least_halves: int = NEVER
    many_products: int = 1_000
    long_ms: float = 100.0
    memory_share: float = 0.9

    def least_extents(self, dtype: str, is_plain: bool) -> Extents:
        """The least extents of a block; `is_plain` for plain ways on even rows."""
        usual = (self.least_block,) * 3
        return dict(self.least_plain_block).get(dtype, usual) if is_plain else usual


@dataclass(frozen=True)
class LibraryRules:
    """For which problems cublasLt is asked before cuBLAS, because its multiply is usually faster. The defaults were fitted to an H200.

    A sum has k terms. C is contiguous along its extent m, and n is the other one. Matrices are even where all rows begin at multiples of
    16 bytes.

    - float32: k <= `short_sum`, unless the matrices are even and C has more than `most_even` elements. On an H200 cublasLt takes 6
      microseconds for cuBLAS's 25 at 18153 x 46 x 2.
    - float32, uneven: k <= `medium_sum` where C has at least `many_results` elements.
    - float64, uneven: k <= `medium_sum` where m and n are at least `many`: 483 microseconds for 607 at 17844 x 21 x 7000.
    - float64: m <= `few` and n > `long`.
    - float64: n from `some_least` to `some_most`, m >= `wide` and k >= `deep`. Of 51 such shapes cublasLt was 2 % ahead or more at 23, up
      to 36 %, and behind at 5, up to 14 %.
    - float64: m = n = 1 and k from `dot_least` to `dot_most`: 5.6 microseconds for 33 at 16,384 terms. `cupy.matmul`, which takes 8.4,
      runs where cublasLt refuses, and for such dot products of float32, where it takes 8 for cuBLAS's 12.
    """

    short_sum: int = 256
    medium_sum: int = 512
    many: int = 128
    many_results: int = 500_000
    most_even: int = 2_000_000
    few: int = 4
    long: int = 10_000
    some_least: int = 8
    some_most: int = 32
    wide: int = 7_000
    deep: int = 2_000
    dot_least: int = 1_024
    dot_most: int = 2**15 - 1


USUAL_POLICY, USUAL_RULES = Policy(), LibraryRules()
"""For a device without a description, and for one that is described anew."""
