"""The proof of a schedule of several levels: its products are those of its levels, combined.

Theorem. Let the terms (u_p, v_p, w_p) of one level satisfy the Brent equations of <m,k,n>, and those of another (u'_q, v'_q, w'_q) the
Brent equations of <m',k',n'>, over a commutative ring. Then the terms (u_p (x) u'_q, v_p (x) v'_q, w_p (x) w'_q) satisfy those of
<mm',kk',nn'>, where block (i m' + i', j k' + j') of A is block (i', j') of block (i, j), and so on: both sides of the equations are
Kronecker products. The blocks may be matrices, which do not commute, because coefficients commute with them.

So a flat schedule is proved without expanding its products. The proof checks that no stage has a hazard, and that the terms of every level
satisfy the Brent equations. It then runs the flat schedule, as it was lowered, exactly on the finest blocks: every product must have, up to
factors, the forms of a combination of products, one of each level; every block of C must end with exactly the coefficients of the combined
w, times alpha, and beta times its old value; and the operands that the schedule promises to restore must end as they began. The proof
trusts none of the passes that lowered the schedule. A schedule that it does not prove may still be right, by other products:
`prove_schedule` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import lcm, prod

from bilinear.analysis.brent import products_of_coefficients, residual
from bilinear.analysis.collector import uncollected
from bilinear.ir.bilinear_map import BilinearAlgorithm, complex_product
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient
from bilinear.ir.packed import Packed, Packing, TooLongError, widened
from bilinear.ir.ring import Ring
from bilinear.ir.schedule import ProductStage, Schedule, Stage
from bilinear.ir.scheme import Scheme
from bilinear.verify.bilinear_map import prove_map
from bilinear.verify.facts import RESTORED, OperandFate, StageFact
from bilinear.verify.hazards import contended
from bilinear.verify.packed_run import PackedRun, UndecidedError
from bilinear.verify.recursion import why_not_recursive
from bilinear.verify.schedule import ScheduleProof, is_sound, prove_schedule

Places = tuple[int, ...]


def combined_forms(packing: Packing, levels: Sequence[Sequence[Form]], places: Sequence[Places]) -> list[Packed]:
    """The Kronecker products of forms, one of each level, the last level's changing first."""
    found = [packing.unit(0)]
    for forms, own in zip(levels, places, strict=True):
        packed = [packing.tightened(packing.sum([(packing.unit(own[i]), c) for i, c in form])) for form in forms]
        found = [packing.product(outer, inner) for outer in found for inner in packed]
    return found


def places_of_levels(rows: Sequence[int], columns: Sequence[int]) -> list[Places]:
    """For each level: the contribution of each of its blocks, row by row, to the number of a finest block.

    `rows` and `columns` are those of each level's grid.
    """
    width, found = prod(columns), []
    for level, (height, breadth) in enumerate(zip(rows, columns, strict=True), 1):
        down, across = prod(rows[level:]) * width, prod(columns[level:])
        found.append(tuple(i * down + j * across for i in range(height) for j in range(breadth)))
    return found


def is_product_of(scheme: Scheme, multiplies: Callable[[Scheme], bool]) -> bool:
    """True if a scheme is exactly the tensor product of the two that it names as its factors, and each of them `multiplies`.

    Then it multiplies too (see `verify.composed`). False says nothing: other schemes are decided by their own equations.
    """
    if len(scheme.factors) != 2:
        return False
    rings = {x.ring for x in (scheme, *scheme.factors)}
    roots = {ring.generator for ring in rings} - {""}
    if len(roots) > 1 or any(ring.modulus or ring.is_approximate for ring in rings):
        return False
    try:
        agree = widened(lambda packing: _are_combined(packing, scheme), next(iter(roots), ""))
    except (TooLongError, ValueError):
        return False
    return agree and all(is_product_of(factor, multiplies) or multiplies(factor) for factor in scheme.factors)


def _are_combined(packing: Packing, scheme: Scheme) -> bool:
    """True if U, V and W are the Kronecker products of the tables of the scheme's factors."""
    outer, inner = scheme.factors
    m, k, n, ranks = (outer.m, inner.m), (outer.k, inner.k), (outer.n, inner.n), (outer.rank, inner.rank)
    if (scheme.m, scheme.k, scheme.n, scheme.rank) != tuple(map(prod, (m, k, n, ranks))):
        return False
    u, v, w = zip(outer.tables, inner.tables, strict=True)
    blocks = [i + j for i in places_of_levels(m, n)[0] for j in places_of_levels(m, n)[1]]
    outputs = dict(zip(blocks, combined_forms(packing, w, places_of_levels((1, 1), ranks)), strict=True))
    needed = [
        *combined_forms(packing, u, places_of_levels(m, k)),
        *combined_forms(packing, v, places_of_levels(k, n)),
        *(outputs[block] for block in range(len(outputs))),
    ]
    found = [row for table in _packed_tables(packing, scheme) for row in table]
    return len(found) == len(needed) and all(map(packing.equal, found, needed))


def _packed_tables(packing: Packing, scheme: Scheme) -> Iterator[Iterable[Packed]]:
    if scheme.bases is None:
        return (linear.packed(packing) for linear in (scheme.u, scheme.v, scheme.w))
    return ((packing.sum([(packing.unit(i), c) for i, c in row]) for row in table) for table in scheme.tables)


MOST_WRITTEN_OUT = 500_000
"""With more products of coefficients than this, the products of a schedule of one level are not written out in its proof."""


@uncollected
def prove_composed(schedule: Schedule, levels: Sequence[Schedule]) -> ScheduleProof:
    """Decide whether a flat schedule with marked first writes is right, by the schedules of its levels, the outermost first.

    The proof has no facts about stages.
    """
    found = by_levels(schedule, levels)
    return prove_schedule(schedule) if found is None else found


@uncollected
def prove_large(schedule: Schedule, scheme: Scheme, is_proved: bool = False) -> ScheduleProof | None:
    """The proof, by its terms, of a schedule of one level of a large scheme that does not write A and B.

    None for smaller schemes, and if the schedule is wrong, or right in another way. `analysis.brent` decides the Brent equations of the
    terms, so products of blocks are not written out, and the facts do not include the contents of blocks after each stage. If the scheme
    `is_proved`, the terms are compared with the scheme's instead.
    """
    ring = schedule.ring
    if not is_large(schedule, scheme) or ring.modulus or ring.is_approximate or not is_sound(schedule):
        return None
    try:
        if is_proved and scheme.bases is None:
            widened(lambda packing: _restored(schedule, _of_scheme(packing, scheme)), ring.generator, _is_integral(schedule))
        else:
            _terms(schedule, ring.generator)
    except (TooLongError, UndecidedError):
        return None
    stages = tuple(_stage_fact(number, stage) for number, stage in enumerate(schedule.stages, 1))
    return replace(_held(schedule, ("A", "B")), stages=stages, fates=(OperandFate("A", RESTORED), OperandFate("B", RESTORED)))


def is_large(schedule: Schedule, scheme: Scheme) -> bool:
    """True if `prove_large` takes a schedule of one level of this scheme."""
    return not schedule.writes_operands and products_of_coefficients(scheme) > MOST_WRITTEN_OUT


@uncollected
def prove_by_terms(schedule: Schedule) -> ScheduleProof | None:
    """The proof of a schedule of one level by the Brent equations of its terms, without facts.

    None if it is not right, or right in a way that only `prove_schedule` decides.
    """
    if schedule.ring.modulus or schedule.ring.is_approximate or not is_sound(schedule):
        return None
    try:
        restored = _terms(schedule, schedule.ring.generator).restored
    except (TooLongError, UndecidedError):
        return None
    return _held(schedule, restored) if set(schedule.restores) <= set(restored) else None


def _is_integral(schedule: Schedule) -> bool:
    return all(isinstance(c, int) for c in schedule.coefficients)


def _stage_fact(number: int, stage: Stage) -> StageFact:
    if isinstance(stage, ProductStage):
        return StageFact(number, "product", (), tuple(map(str, contended(stage))), len(stage.products))
    return StageFact(number, "restore" if stage.restores else "linear", (), (), sum(len(m.targets) for m in stage.maps))


def by_levels(schedule: Schedule, levels: Sequence[Schedule]) -> ScheduleProof | None:
    """The proof of a flat schedule by its levels; None if it is not right, or right in another way."""
    roots = {level.ring.generator for level in levels} - {""}
    if len(roots) > 1 or any(level.ring.modulus or level.ring.is_approximate for level in levels) or not is_sound(schedule):
        return None
    root = next(iter(roots), "")
    try:
        terms = [_terms(level, root) for level in levels]
        restored = widened(lambda packing: _restored(schedule, _combined(packing, terms)), root, all(map(_is_integral, levels)))
    except (TooLongError, UndecidedError):
        return None
    if not set(schedule.restores) <= set(restored):
        return None
    return _held(schedule, restored)


def _held(schedule: Schedule, restored: tuple[str, ...]) -> ScheduleProof:
    why_not = why_not_recursive(schedule, restored)
    return ScheduleProof(schedule.name, schedule.scheme, schedule.levels, (), restored, not why_not, (), why_not)


@dataclass(frozen=True)
class _Terms:
    """The terms of a schedule of one level, no two with proportional factors, and the operands that it restores.

    The factors are forms whose first coefficient is 1; the outputs are the blocks of C as forms over the products.
    """

    grid: tuple[int, int, int]
    factors: tuple[tuple[Form, Form], ...]
    outputs: tuple[Form, ...]
    restored: tuple[str, ...]
    is_complex: bool = False


@lru_cache(maxsize=64)
def _terms(schedule: Schedule, root: str) -> _Terms:
    """The terms of a schedule, which satisfy the Brent equations; raises `UndecidedError` if they do not."""
    terms = widened(lambda packing: _collected(schedule, packing), root)
    m, k, n = terms.grid
    parts = 1 + schedule.is_complex
    u, v, w = (tuple(left for left, _ in terms.factors), tuple(right for _, right in terms.factors), terms.outputs)
    maps = LinearMap(m * k * parts, u), LinearMap(k * n * parts, v), LinearMap(len(u), w)
    names = tuple(map(str, range(len(u))))
    if schedule.is_complex:
        if terms.grid != (1, 1, 1) or not prove_map(BilinearAlgorithm(schedule.name, complex_product(schedule.conjugated), *maps)).holds:
            raise UndecidedError
        return terms
    if not residual(Scheme(schedule.name, m, k, n, *maps, names, Ring(f"Q[{root}]" if root else "Q")), most=1).is_zero:
        raise UndecidedError
    return terms


def _collected(schedule: Schedule, packing: Packing) -> _Terms:
    numbers: dict[tuple[Form, Form], int] = {}

    def find(left: Packed, right: Packed) -> tuple[int, Coefficient]:
        (u, a), (v, b) = packing.monic(left), packing.monic(right)
        return numbers.setdefault((packing.form(u), packing.form(v)), len(numbers)), a * b

    run = PackedRun(schedule, packing, find)
    run.run(schedule)
    outputs = tuple(packing.form(run.result(block)) for block in schedule.blocks_of("C"))
    return _Terms((schedule.m, schedule.k, schedule.n), tuple(numbers), outputs, run.restored(), schedule.is_complex)


Key = tuple[int, int]


@dataclass(frozen=True)
class _Known:
    """The products that a schedule may multiply, which are right together: the numbers of their factors, and what C is made of."""

    packing: Packing
    grid: tuple[int, int, int]
    left: _Side
    right: _Side
    outputs: Sequence[Packed]
    is_complex: bool = False

    @cached_property
    def numbers(self) -> dict[tuple[Key, Key], int]:
        """The numbers of the products by their factors."""
        found: dict[tuple[Key, Key], int] = {}
        for i, factors in enumerate(zip(self.left.known, self.right.known, strict=True)):
            found.setdefault(factors, i)
        return found

    def find(self, left: Packed, right: Packed) -> tuple[int, Coefficient]:
        """The number of the product of two forms, and its factor; raises `UndecidedError` if it is none of these."""
        (u, a), (v, b) = self.packing.monic(left), self.packing.monic(right)
        number = self.numbers.get((self.left.key(u), self.right.key(v)))
        if number is None:
            raise UndecidedError
        return number, a * b


def _combined(packing: Packing, levels: Sequence[_Terms]) -> _Known:
    """The combinations of the terms of all levels."""
    m, k, n = ([level.grid[i] for level in levels] for i in range(3))
    is_complex = levels[0].is_complex
    left = _combined_side(packing, [[u for u, _ in level.factors] for level in levels], _places(m, k, is_complex))
    right = _combined_side(packing, [[v for _, v in level.factors] for level in levels], _places(k, n, is_complex))
    ranks = [len(level.factors) for level in levels]
    sums = combined_forms(packing, [level.outputs for level in levels], places_of_levels([1] * len(ranks), ranks))
    blocks = [sum(places) for places in product(*_places(m, n, is_complex))]
    outputs = [sums[i] for i in sorted(range(len(blocks)), key=blocks.__getitem__)]
    return _Known(packing, (prod(m), prod(k), prod(n)), left, right, outputs, is_complex)


def _places(rows: Sequence[int], columns: Sequence[int], is_complex: bool) -> list[Places]:
    """The parts of block numbers. With complex matrices, the outermost level also has blocks of the imaginary part, which come last."""
    first, *rest = places_of_levels(rows, columns)
    behind = tuple(place + prod(rows) * prod(columns) for place in first if is_complex)
    return [first + behind, *rest]


def _combined_side(packing: Packing, levels: Sequence[Sequence[Form]], places: Sequence[Places]) -> _Side:
    scale = prod(lcm(*(packing.split(c)[2] for form in forms for _, c in form)) for forms in levels)
    return _Side(packing, combined_forms(packing, levels, places), scale)


def _of_scheme(packing: Packing, scheme: Scheme) -> _Known:
    """The products of a proved scheme; those with proportional factors count as one."""
    rows = [list(linear.packed(packing)) for linear in (scheme.u, scheme.v)]
    if not all(map(all, rows)):  # a product of nothing has no monic factors
        raise UndecidedError
    u, v = ([packing.monic(row) for row in side] for side in rows)
    left, right = (_Side(packing, [form for form, _ in side], lcm(*(form.denominator for form, _ in side))) for side in (u, v))
    found = _Known(packing, (scheme.m, scheme.k, scheme.n), left, right, [])
    units = [packing.unit(found.numbers[factors]) for factors in zip(left.known, right.known, strict=True)]
    values = [packing.sum([(unit, a * b)]) for unit, (_, a), (_, b) in zip(units, u, v, strict=True)]
    return replace(found, outputs=[packing.sum([(values[p], c) for p, c in row]) for row in scheme.tables[2]])


class _Side:
    """The left factors of the products, or the right ones, as integers that are equal only for equal forms."""

    def __init__(self, packing: Packing, forms: Sequence[Packed], scale: int) -> None:
        self.packing, self.scale = packing, scale
        self.most = max(form.most for form in forms) * scale
        self.known = [self.key(form) for form in forms]

    def key(self, form: Packed) -> Key:
        """A form times the scale, without a denominator; raises `UndecidedError` if it is not integral, as every known factor is."""
        if max(self.most * form.denominator, form.most * self.scale) > self.packing.limit:
            form = self.packing.tightened(form)
        self.packing.bounded(self.most * form.denominator)  # so that times the denominator two keys differ if two forms do
        found = self.packing.whole(form, self.scale)
        if found is None:
            raise UndecidedError
        return found


def _restored(schedule: Schedule, known: _Known) -> tuple[str, ...]:
    """The operands that a flat schedule restores; raises `UndecidedError` if it does not compute C by the known products."""
    if (schedule.m, schedule.k, schedule.n) != known.grid or schedule.is_complex != known.is_complex:
        raise UndecidedError
    run = PackedRun(schedule, known.packing, known.find)
    run.run(schedule)
    for place, block in enumerate(schedule.blocks_of("C")):
        if not known.packing.equal(run.result(block), known.outputs[place]):
            raise UndecidedError
    return run.restored()
