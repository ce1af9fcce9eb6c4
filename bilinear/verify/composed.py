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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, product
from math import lcm, prod

from bilinear.analysis.block_maps import uncollected
from bilinear.analysis.brent import products_of_coefficients, residual
from bilinear.analysis.schedule_run import ScheduleRun, Terms
from bilinear.errors import BilinearError, fail
from bilinear.ir.bilinear_map import BilinearAlgorithm, complex_product
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient, Symbolic, square
from bilinear.ir.packed import Packed, Packing, TooLongError, widened
from bilinear.ir.ring import Ring
from bilinear.ir.schedule import BETA, Block, Product, ProductStage, Schedule, Stage, Target
from bilinear.ir.scheme import Scheme
from bilinear.source import Span
from bilinear.verify.bilinear_map import prove_map
from bilinear.verify.facts import RESTORED, OperandFate, StageFact
from bilinear.verify.hazards import why_not_recursive
from bilinear.verify.schedule import ScheduleProof, is_sound, prove_schedule

MOST_WORK = 300_000  # The most products of two coefficients in expanding the named sums.
MOST_PACKED_WORK = 20_000_000  # The same where all maps are expanded as packed forms.
MOST_BITS = 1600  # The most bits of an expanded numerator or denominator.


def require_expandable(scheme: Scheme) -> None:
    """Refuse a scheme whose named sums take too much time or space to expand (E303)."""
    work, most = 0, _most_work(scheme)
    for size in _written_out(scheme):
        work += size.work
        if work > most:
            raise _too_large(scheme, f"its named sums grow to more than {most} terms when they are written out")
        if max(size.bits, size.denominator.bit_length()) > MOST_BITS:
            raise _too_large(scheme, f"its named sums grow to coefficients of more than {MOST_BITS} bits")


def _most_work(scheme: Scheme) -> int:
    return MOST_PACKED_WORK if scheme.bases is None and all(m.packs for m in (scheme.u, scheme.v, scheme.w)) else MOST_WORK


def _too_large(scheme: Scheme, told: str) -> BilinearError:
    most = _most_work(scheme)
    note = f"the tables of a scheme are proved as they are without names: at most {most} terms, of at most {MOST_BITS} bits"
    return fail("E303", f"{scheme.name} is too large to prove: {told}", "write its tables out, without named sums", notes=(note,))


@dataclass(frozen=True)
class _Size:
    """Bounds for one expanded form: its terms, its powers of the generator, its numbers, and the work of expanding it."""

    terms: int
    low: int
    high: int
    bits: int
    denominator: int
    work: int = 0


_BLOCK = _Size(1, 0, 0, 1, 1)


def _written_out(scheme: Scheme) -> Iterator[_Size]:
    """The sizes of all expanded forms; empty without named sums and changes of basis."""
    maps = (scheme.u, scheme.v, scheme.w)
    if scheme.bases is None:
        for linear in maps:
            if linear.steps:
                yield from _sizes(linear, [_BLOCK] * linear.inputs)
        return
    for linear, basis in ((scheme.u, scheme.bases.a), (scheme.v, scheme.bases.b), (scheme.bases.c, scheme.w)):
        inner = list(_sizes(basis, [_BLOCK] * basis.inputs))
        yield from inner
        yield from _sizes(linear, inner[len(basis.steps) :])


def _sizes(linear: LinearMap, values: list[_Size]) -> Iterator[_Size]:
    known, most = list(values), max((value.terms for value in values), default=0) * linear.inputs
    for step in linear.steps:
        known.append(_substituted(step, known, most))
        yield known[-1]
    for output in linear.outputs:
        yield _substituted(output, known, most)


def _substituted(form: Form, known: list[_Size], most: int) -> _Size:
    parts = [(_coefficient(c), known[index]) for index, c in form]
    denominator = lcm(*(c.denominator * part.denominator for c, part in parts))
    room = denominator.bit_length()
    bits = max((c.bits + p.bits + room - c.denominator.bit_length() - p.denominator.bit_length() + 2 for c, p in parts), default=0)
    return _Size(
        min(most, sum(p.terms for _, p in parts)),
        min((c.low + p.low for c, p in parts), default=0),
        max((c.high + p.high for c, p in parts), default=0),
        bits + len(parts).bit_length() - 1,
        denominator,
        sum(c.terms * p.terms * (p.high - p.low + 1) for c, p in parts),
    )


def _coefficient(value: Coefficient) -> _Size:
    if not isinstance(value, Symbolic):
        return _Size(1, 0, 0, value.numerator.bit_length(), value.denominator)
    free = [sum(e for name, e in monomial if square(name) is None) for monomial, _ in value.terms]
    roots = sum(abs(square(name) or 0).bit_length() for name in value.generators)
    bits = max(c.numerator.bit_length() for _, c in value.terms) + roots + len(value.terms).bit_length()
    return _Size(len(value.terms), min(free), max(free), bits, lcm(*(c.denominator for _, c in value.terms)))


Find = Callable[[Packed, Packed], tuple[int, Coefficient]]
"""From two forms, over the blocks of A and of B: the number of their product and its factor."""
NOTHING = Packed(0)


class UndecidedError(Exception):
    """A step that the run does not understand: it need not be wrong."""


class PackedRun(ScheduleRun[Packed]):
    """A schedule running on packed forms. The places are the blocks of A, of B and of C, beta times the blocks of C, and the products.

    A run raises `UndecidedError`, and `TooLongError` if the digits are too short.
    """

    zero = NOTHING

    def __init__(self, schedule: Schedule, packing: Packing, find: Find) -> None:
        self.schedule, self.packing, self.find = schedule, packing, find
        a, b, c = map(schedule.blocks_of, "ABC")
        self.original = {block: packing.unit(place) for place, block in enumerate((*a, *b, *c))}
        *_, self.kept, self.scaled, self.products = accumulate((len(a), len(b), len(c), len(c)))
        self.spans = {"A": (0, len(a)), "B": (len(a), len(a) + len(b))}
        self.state = {block: value for block, value in self.original.items() if schedule.result.beta or block.space not in schedule.results}

    def restored(self) -> tuple[str, ...]:
        """The operands that end as they began."""

        def is_kept(block: Block) -> bool:
            return self.packing.equal(self.state[block], self.original[block])

        return tuple(name for name in self.spans if all(map(is_kept, self.schedule.blocks_of(name))))

    def result(self, block: Block) -> Packed:
        """The products in a block of C, numbered from 0; the rest must be beta times its old value."""
        value = self.read(block, None)
        if self.schedule.result.beta:
            value = self.packing.sum([(value, 1), (self._times_beta(self.original[block]), -1)])
        return self._cut(value, self.products, None)

    def product(self, product: Product) -> Packed:
        """A product of the scheme, by its number and its factor."""
        left, right = self._operand(product.left, "A"), self._operand(product.right, "B")
        if not (left and right):
            return NOTHING
        number, factor = self.find(left, right)
        return self.sum(((0, factor),), [self.packing.unit(self.products + number)])

    def _operand(self, block: Block, side: str) -> Packed:
        return self._cut(self.read(block, None), *self.spans[side])

    def target(self, value: Packed, target: Target, terms: Terms[Packed], span: Span | None) -> Packed:
        """A product with its coefficient, beside what the target keeps."""
        value = self.sum(((0, target.coefficient),), [value])
        return self.plus(value, target.block, target.kept, span) if target.kept else value

    def plus(self, value: Packed, block: Block, kept: Coefficient, span: Span | None) -> Packed:
        """A value plus the part of its old value that the block keeps: all, or beta times it."""
        old = self.read(block, span)
        if kept == BETA:
            old = self._times_beta(old)
        elif kept != 1:
            raise UndecidedError
        return self.packing.sum([(old, 1), (value, 1)])

    def _times_beta(self, value: Packed) -> Packed:
        """A form over the old blocks of C, times beta."""
        return self.packing.moved(self._cut(value, self.kept, self.scaled), self.scaled)

    def _cut(self, value: Packed, first: int, end: int | None) -> Packed:
        """A form over the places from `first` to `end` (excluded), numbered from 0."""
        if not self.packing.lies_in(value, first, end):
            raise UndecidedError
        return self.packing.moved(value, -first)

    def read(self, block: Block, span: Span | None) -> Packed:
        """The value of a block, which must have one."""
        if block not in self.state:
            raise UndecidedError
        return self.state[block]

    def sum(self, form: Form, values: Sequence[Packed]) -> Packed:
        """A form over packed forms."""
        try:
            return self.packing.sum([(values[i], c) for i, c in form])
        except ValueError as error:  # a coefficient of another ring
            raise UndecidedError from error


Places = tuple[int, ...]


def combined_forms(packing: Packing, levels: Sequence[Sequence[Form]], places: Sequence[Places]) -> list[Packed]:
    """The Kronecker products of forms, one of each level, the last level's changing first."""
    found = [packing.unit(0)]
    for forms, own in zip(levels, places, strict=True):
        packed = [packing.tightened(packing.sum([(packing.unit(own[i]), c) for i, c in form])) for form in forms]
        found = [packing.product(outer, inner) for outer in found for inner in packed]
    return found


def places_of_levels(rows: Sequence[int], columns: Sequence[int]) -> list[Places]:
    """For each level (grids of `rows` x `columns`) the contribution of each block, row by row, to a finest block's number."""
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
    if scheme.bases is None:
        found = [row for linear in (scheme.u, scheme.v, scheme.w) for row in linear.packed(packing)]
    else:
        found = [packing.sum([(packing.unit(i), c) for i, c in row]) for table in scheme.tables for row in table]
    return len(found) == len(needed) and all(map(packing.equal, found, needed))


MOST_WRITTEN_OUT = 500_000
"""With more products of coefficients than this, the products of a schedule of one level are not written out in its proof."""


@uncollected
def prove_composed(schedule: Schedule, levels: Sequence[Schedule]) -> ScheduleProof:
    """Decide whether a flat schedule with marked first writes is right by its levels' schedules, outermost first; no facts."""
    found = by_levels(schedule, levels)
    return prove_schedule(schedule) if found is None else found


@uncollected
def prove_large(schedule: Schedule, scheme: Scheme, is_proved: bool = False) -> ScheduleProof | None:
    """The proof, by its terms, of a schedule of one level of a large scheme that does not write A and B.

    None for smaller schemes, and if the schedule is wrong, or right in another way. `analysis.brent` decides the Brent equations of the
    terms, so products of blocks are not written out, and the facts do not include the contents of blocks after each stage. If the scheme
    `is_proved`, the terms are compared with the scheme's instead.
    """

    def restored(root: str) -> tuple[str, ...]:
        if is_proved and scheme.bases is None:
            widened(lambda packing: _restored(schedule, _of_scheme(packing, scheme)), root, _is_integral(schedule))
        else:
            _terms(schedule, root)
        return "A", "B"

    found = _held(schedule, [schedule], restored) if is_large(schedule, scheme) else None
    if found is None:
        return None
    stages = tuple(_stage_fact(number, stage) for number, stage in enumerate(schedule.stages, 1))
    return replace(found, stages=stages, fates=(OperandFate("A", RESTORED), OperandFate("B", RESTORED)))


def is_large(schedule: Schedule, scheme: Scheme) -> bool:
    """True if `prove_large` takes a schedule of one level of this scheme."""
    return not schedule.writes_operands and products_of_coefficients(scheme) > MOST_WRITTEN_OUT


@uncollected
def prove_by_terms(schedule: Schedule) -> ScheduleProof | None:
    """The proof of a one-level schedule by its terms' Brent equations, without facts; None if only `prove_schedule` decides."""
    return _held(schedule, [schedule], lambda root: _terms(schedule, root).restored)


def by_levels(schedule: Schedule, levels: Sequence[Schedule]) -> ScheduleProof | None:
    """The proof of a flat schedule by its levels; None if it is not right, or right in another way."""

    def restored(root: str) -> tuple[str, ...]:
        terms = [_terms(level, root) for level in levels]
        return widened(lambda packing: _restored(schedule, _combined(packing, terms)), root, all(map(_is_integral, levels)))

    return _held(schedule, levels, restored)


def _is_integral(schedule: Schedule) -> bool:
    return all(isinstance(c, int) for c in schedule.coefficients)


def _stage_fact(number: int, stage: Stage) -> StageFact:
    if isinstance(stage, ProductStage):
        return StageFact(number, "product", (), tuple(map(str, stage.contended)), len(stage.products))
    return StageFact(number, "restore" if stage.restores else "linear", (), (), sum(len(m.targets) for m in stage.maps))


def _held(schedule: Schedule, levels: Sequence[Schedule], restored: Callable[[str], tuple[str, ...]]) -> ScheduleProof | None:
    """The proof that holds if `restored` decides that C is right; it returns the operands that are restored. None if it does not hold."""
    roots = {level.ring.generator for level in levels} - {""}
    if len(roots) > 1 or any(level.ring.modulus or level.ring.is_approximate for level in levels) or not is_sound(schedule):
        return None
    try:
        names = restored(next(iter(roots), ""))
    except (TooLongError, UndecidedError):
        return None
    if not set(schedule.restores) <= set(names):
        return None
    why_not = why_not_recursive(schedule, names)
    return ScheduleProof(schedule.name, schedule.scheme, schedule.levels, (), names, not why_not, (), why_not)


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
    names, ring = tuple(map(str, range(len(u)))), Ring(f"Q[{root}]" if root else "Q")
    if schedule.is_complex:
        if not prove_map(BilinearAlgorithm(schedule.name, complex_product(schedule.conjugated, terms.grid), *maps, ring)).holds:
            raise UndecidedError
        return terms
    if not residual(Scheme(schedule.name, m, k, n, *maps, names, ring), most=1).is_zero:
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
    left: _FactorSide
    right: _FactorSide
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


def _combined_side(packing: Packing, levels: Sequence[Sequence[Form]], places: Sequence[Places]) -> _FactorSide:
    scale = prod(lcm(*(packing.split(c)[2] for form in forms for _, c in form)) for forms in levels)
    return _FactorSide(packing, combined_forms(packing, levels, places), scale)


def _of_scheme(packing: Packing, scheme: Scheme) -> _Known:
    """The products of a proved scheme; those with proportional factors count as one."""
    rows = [list(linear.packed(packing)) for linear in (scheme.u, scheme.v)]
    if not all(map(all, rows)):  # a product of nothing has no monic factors
        raise UndecidedError
    u, v = ([packing.monic(row) for row in side] for side in rows)
    left, right = (_FactorSide(packing, [form for form, _ in side], lcm(*(form.denominator for form, _ in side))) for side in (u, v))
    found = _Known(packing, (scheme.m, scheme.k, scheme.n), left, right, [])
    units = [packing.unit(found.numbers[factors]) for factors in zip(left.known, right.known, strict=True)]
    values = [packing.sum([(unit, a * b)]) for unit, (_, a), (_, b) in zip(units, u, v, strict=True)]
    return replace(found, outputs=[packing.sum([(values[p], c) for p, c in row]) for row in scheme.tables[2]])


class _FactorSide:
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
