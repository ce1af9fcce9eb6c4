"""What a product of digits runs, its proved bound and its probable error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from bilinear.ir.element import COMPLEX
from bilinear.ir.matrix import Factor, Layout
from bilinear.ir.placement import MOST_LEVELS
from bilinear.ir.tile import FLOAT_TILES, LOADING_TILES, RESIDUE_TILES
from bilinear.methods.digits.geometry import geometry_of, products_of, scheme_of
from bilinear.planner.device import Policy
from bilinear.planner.library import probable_classical_of
from bilinear.planner.plan import Candidate, Choice, Panel, name_of
from bilinear.planner.problem import Problem
from bilinear.planner.scheduled import Scheduled
from bilinear.planner.ways import kept_by_names

if TYPE_CHECKING:  # readers are imported lazily: most plans need none
    from bilinear.ir.complex_scheme import Products
    from bilinear.ir.digits import DigitScheme

LENT = ("", "A", "B", "P", "AB", "AP", "BP", "ABP")
"""To what a part of C that is computed later may lend memory."""


@dataclass(frozen=True)
class Digits(Choice):
    """How a product of digits runs: the algorithm of each level, the outermost first, the name of its tile, and the blocks of C.

    C, row-major, is computed in `cut` blocks of rows and of columns, one after the other, in the same workspace. `conjugated` names the
    complex operands whose conjugates are multiplied. With a `rest`, all this describes the first rows of C (columns if `by_columns`, where
    C is column-major). What `lent` names, digits of A and of B and products by A, B and P, lies in the rows that the parts of the rest
    compute afterwards, and so do scales. Products of `same_bits` depend on the numbers alone.
    """

    levels: tuple[str, ...]
    tile: str
    cut: tuple[int, int] = (1, 1)
    conjugated: str = ""
    rest: tuple[Panel, ...] = ()
    by_columns: bool = False
    lent: str = ""
    same_bits: bool = False
    method: ClassVar[str] = "digits"
    strategy = "digits"
    title: ClassVar[str] = "product of digits"
    needs: ClassVar[str] = (
        "multiplies two matrices or vectors of the type it cuts on a GPU from sm_80 on (on load: sm_90), and needs an out of that type"
    )

    @property
    def needs_little(self) -> bool:
        """True if the workspace holds the scales of rows and columns, and nothing else."""
        return (self.rest[-1].choice if self.rest else self).tile in LOADING_TILES

    @property
    def why_nothing_kept(self) -> str:
        """Why no digits of one operand can be kept; empty if they can."""
        if self.cut != (1, 1) or self.rest:
            return "the plan computes C in blocks, and makes their digits one after the other"
        return "the plan cuts operands on their way to the unit, and holds no digits" if self.needs_little else ""

    @property
    def name(self) -> str:
        """A readable name."""
        if self.rest:
            names = dict.fromkeys(map(_uncut_name, (self, *(part.choice for part in self.rest))))
            return f"{'; '.join(names)}, C in {1 + len(self.rest)} parts"
        blocks = "" if self.cut == (1, 1) else f", C in {self.cut[0]} x {self.cut[1]} blocks"
        return _uncut_name(self) + blocks

    def suits(self, out: Layout, beta: Factor) -> bool:
        """Whether C can be computed in a matrix of this layout. Parts keep digits in C, so it is overwritten, and lies as was planned."""
        return not self.rest or bool(beta == 0 and not out.has_gaps and out.is_by_column == self.by_columns)

    def conjugated_as(self, operands: str) -> Digits:
        """The same with the conjugates of these operands, which are formed where numbers are cut."""
        return replace(self, conjugated=operands)

    def least_gain(self, policy: Policy) -> float:
        """The part of the library's time that it must save to be chosen: of a chain of parts each has errors of its own."""
        return policy.least_gain if self.rest else policy.least_gain_digits

    def bound(self, inner: int, dtype: str) -> float:
        """The bound that always holds: the largest of the parts."""
        if self.same_bits:
            from bilinear.analysis.digit_bounds import same_bits_bound

            return same_bits_bound(_residues(self.tile).representation, _terms(inner, dtype in COMPLEX))
        own = digits_error(self.levels, inner, self.tile, dtype in COMPLEX)
        return max((own, *(part.choice.bound(inner, dtype) for part in self.rest)))

    def probable(self, inner: int, dtype: str) -> float:
        """The probable error by norm in units of the classical multiply's: the largest of the parts."""
        if self.same_bits:
            from bilinear.analysis.digit_bounds import probable_same_bits

            found = probable_same_bits(_residues(self.tile).representation, _terms(inner, dtype in COMPLEX))
            return found / probable_classical_of(inner, dtype)
        own = probable_digits_of(self.levels, inner, self.tile, dtype in COMPLEX) / probable_classical_of(inner, dtype)
        return max((own, *(part.choice.probable(inner, dtype) for part in self.rest)))

    def check(self, problem: Problem) -> None:
        """Raise a `ValueError` if the fields make no sense."""
        if self.tile not in products_of(problem.dtype):
            raise ValueError(f"there is no tile {self.tile!r}")
        if len(self.cut) != 2 or not all(type(x) is int and 0 < x < 2**80 for x in self.cut):
            raise ValueError("its blocks make no sense")
        if len(self.levels) > MOST_LEVELS or (self.tile in LOADING_TILES and (self.levels or self.cut != (1, 1))):
            raise ValueError(f"{self.tile} have no such levels above them, and no blocks")
        if self.lent not in LENT or (self.lent and not self.rest):
            raise ValueError("what C lends memory to makes no sense")
        if self.same_bits and (self.rest or problem.dtype in COMPLEX or self.tile not in RESIDUE_TILES):
            raise ValueError("its bits would not depend on the numbers alone")
        if self.by_columns is not problem.by_columns or self.conjugated != "":
            raise ValueError("its operands are not those of the problem")
        if problem.dtype in COMPLEX and (self.rest or self.tile in LOADING_TILES):
            raise ValueError("complex matrices are not multiplied so")
        for part in self.rest:
            is_last = part is self.rest[-1]
            if isinstance(part.choice, Digits):
                if part.choice.rest or (part.choice.lent and is_last) or part.choice.lent not in LENT:
                    raise ValueError("its parts make no sense")
                replace(part.choice, lent="").check(problem)
            elif not (is_last and isinstance(part.choice, Scheduled) and not part.choice.rest and part.choice.inputs == "preserve"):
                raise ValueError("its parts make no sense")


def digits_of(candidate: Candidate) -> Digits:
    """What a candidate by digits runs."""
    if not isinstance(candidate.choice, Digits):
        raise TypeError("the candidate is by another method")
    return candidate.choice


def _uncut_name(choice: Choice) -> str:
    """The name of a part, whose blocks are not told."""
    if not isinstance(choice, Digits):
        return choice.name
    own = f"{choice.tile} with the same bits everywhere" if choice.same_bits else choice.tile
    return f"{name_of(choice.levels)} on {own}" if choice.levels else own


@kept_by_names(256)
def digits_error(levels: tuple[str, ...], inner: int, tile: str, is_complex: bool) -> float:
    """The bound that always holds for products of digits of this name below these levels, without parts."""
    from bilinear.analysis.block_maps import headroom
    from bilinear.analysis.digit_bounds import Summation, block_bound, digit_bound, residue_block_bound
    from bilinear.frontend.algorithms import load_digits

    if tile in RESIDUE_TILES:  # sums of blocks of residues are exact: levels do not appear in the bound
        return residue_block_bound(_residues(tile), _terms(inner, is_complex))
    own, block = FLOAT_TILES[tile], _block(levels, is_complex)
    head = 0 if block is None else max(headroom(block.u), headroom(block.v))
    scheme, terms = load_digits(own.scheme), inner
    if block is not None:  # without strips: a block has so many terms, some of them beyond the operands
        terms = block.k * min(inner, geometry_of(levels, (1, inner, 1), tile).block[1])
    return block_bound(block, 1, terms, lambda k: digit_bound(scheme, k, Summation(own.chunk), head).of_largest)


@kept_by_names(256)
def probable_digits_of(levels: tuple[str, ...], inner: int, tile: str, is_complex: bool) -> float:
    """The probable error by norm of such products."""
    from bilinear.algebra.composition import tensor_digits
    from bilinear.analysis.accuracy import PROBABLE
    from bilinear.analysis.digit_bounds import Summation, probable_digits, probable_residues
    from bilinear.frontend.algorithms import load_digits

    if tile in RESIDUE_TILES:
        return probable_residues(_residues(tile), _terms(inner, is_complex))
    own, block = FLOAT_TILES[tile], scheme_of(levels) if levels else None
    scheme = load_digits(own.scheme)
    found = probable_digits(scheme if block is None else tensor_digits(block, scheme), inner, Summation(own.chunk))
    return found * PROBABLE if is_complex else found


def _terms(inner: int, is_complex: bool) -> int:
    """The number of real products in a sum; residues of complex numbers are exact, so only this number matters."""
    return 2 * inner if is_complex else inner


def _residues(name: str) -> DigitScheme:
    """The digit scheme of residues of this name."""
    from bilinear.ir.digits import representation_of, residues

    return residues(representation_of(RESIDUE_TILES[name]))


def _block(levels: tuple[str, ...], is_complex: bool) -> Products | None:
    """What stands above the digits: the block scheme of some levels, three products of parts by it, or nothing."""
    from bilinear.algebra.complex_products import complex_scheme

    if is_complex:
        return complex_scheme(scheme_of(levels))
    return scheme_of(levels) if levels else None
