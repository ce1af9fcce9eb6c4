"""Proofs of digit schemes and of schedules for complex matrices beside exact arithmetic: every wrong one is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from digit_unit import digits
from each_case import each
from oracle import State, execute

from bilinear.algebra.complex_products import four_products, three_products
from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend.files import DIGITS, shipped
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.digits import DigitScheme, Representation, largest_moduli, least_residue, residues
from bilinear.ir.element import FLOAT64
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.schedule import IMAGINARY, Block, LinearStage, ProductStage, Schedule
from bilinear.ir.tile import LONGEST_SUM
from bilinear.lowering.prepare import Level, authored_schedule, plain_complex, prepare_complex
from bilinear.passes.order_products import mark_first_writes
from bilinear.passes.scheme_to_schedule import complex_to_products, complex_to_schedule
from bilinear.source import Source
from bilinear.verify.bilinear_map import prove_map
from bilinear.verify.composed import by_levels
from bilinear.verify.digits import prove_digits

PAIR = "digits pair of float32: float16 x 2, lambda = 2^-11, unscaled\n"


def value(c: Coefficient, step: Fraction) -> Fraction:
    """A coefficient at a value of lambda."""
    if not isinstance(c, Symbolic):
        return Fraction(c)
    return sum((size * step ** dict(monomial).get("lambda", 0) for monomial, size in c.terms), Fraction(0))


def computed(scheme: DigitScheme, x: list[int], y: list[int], step: Fraction) -> Fraction:
    """What a scheme computes of the digits of two numbers, from its tables alone."""
    u, v, (w,) = scheme.core.tables
    return sum(
        (value(c, step) * sum(value(a, step) * x[i] for i, a in u[p]) * sum(value(b, step) * y[j] for j, b in v[p]) for p, c in w),
        Fraction(0),
    )


@pytest.mark.parametrize(("name", "order", "remainder"), [("pairs", 2, ["A.l*B.l"]), ("triples", 3, ["A.m*B.l", "A.l*B.m", "A.l*B.l"])])
def test_the_remainder_is_exactly_what_is_missing(name: str, order: int, remainder: list[str]) -> None:
    scheme = digits(name)
    proof, count = prove_digits(scheme), scheme.representation.count
    assert proof.holds and proof.order == order
    found = proof.maps[0].remainder
    assert [f"{d.left}*{d.right}" for d in found] == remainder and all(d.found == 0 for d in found)
    random = Random(name)
    places = {name: i for i, name in enumerate(scheme.core.target.left)}
    for _ in range(20):
        step = Fraction(1, random.randrange(2, 5000))
        x, y = ([random.randrange(-99, 100) for _ in range(count)] for _ in "xy")
        whole = [sum(d * step**i for i, d in enumerate(digit)) for digit in (x, y)]
        missing = sum((value(d.needed, step) * x[places[d.left]] * y[places["A" + d.right[1:]]] for d in found), Fraction(0))
        assert computed(scheme, x, y, step) == whole[0] * whole[1] - missing


def mutants(scheme: DigitScheme) -> list[DigitScheme]:
    """The scheme with one coefficient changed in sign, doubled or left out, or with two products exchanged."""
    core, found = scheme.core, []
    for table in ("u", "v", "w"):
        linear: LinearMap = getattr(core, table)
        for number, row in enumerate(linear.matrix):
            for place, (i, c) in enumerate(row):
                for other in ([], [(i, -c)], [(i, c + c)], [((i + 1) % linear.inputs, c)] if table != "w" else []):
                    changed: Form = tuple(sorted([*row[:place], *row[place + 1 :], *other]))
                    outputs = (*linear.matrix[:number], changed, *linear.matrix[number + 1 :])
                    maps = {"u": core.u, "v": core.v, "w": core.w, table: LinearMap(linear.inputs, outputs)}
                    mutant = BilinearAlgorithm(core.name, core.target, maps["u"], maps["v"], maps["w"], core.ring)
                    found.append(replace(scheme, core=mutant))
    return found


@pytest.mark.parametrize("name", ["pairs", "triples", "residues8"])
def test_every_changed_coefficient_is_refused(name: str) -> None:
    scheme = digits(name)
    changed = mutants(scheme)
    assert len(changed) > 20
    for mutant in changed:
        proof = prove_digits(mutant)
        assert not proof.holds and proof.failures
        with pytest.raises(BilinearError, match="E304"):
            proof.require()


def test_a_scheme_that_does_not_multiply_is_told_where_and_why() -> None:
    text = PAIR + "scheme s <1,1,1;3> over pair\n  M1 = A.h * B.h ; M2 = A.h * B.l ; M3 = A.l * B.h\n  C = M1 + lambda * (M2 - M3)"
    with pytest.raises(BilinearError) as raised:
        prove_digits(parse_source(Source("x.bl", text)).digits[0]).require()
    assert str(raised.value) == (
        "x.bl:2:1: error[E304]: s does not multiply numbers of float32: x*y up to O(lambda^2): the coefficient of A.l*B.h in C: "
        "found -lambda, needed lambda\n"
        "  2 | scheme s <1,1,1;3> over pair\n"
        "    | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  hint: compare the products with the sum over all digits: lambda^i * lambda^j * A.i * B.j"
    )


def test_four_products_of_pairs_are_exact_and_three_by_karatsuba_too() -> None:
    head = PAIR + "scheme s <1,1,1;{}> over pair\n"
    four = "M1 = A.h * B.h ; M2 = A.h * B.l ; M3 = A.l * B.h ; M4 = A.l * B.l\nC = M1 + lambda * (M2 + M3) + lambda^2 * M4"
    karatsuba = "M1 = A.h * B.h ; M2 = (A.h + A.l) * (B.h + B.l) ; M3 = A.l * B.l\nC = M1 + lambda * (M2 - M1 - M3) + lambda^2 * M3"
    for rank, body in ((4, four), (3, karatsuba)):
        proof = prove_digits(parse_source(Source("x.bl", head.format(rank) + body)).digits[0])
        assert proof.holds and proof.order is None and proof.maps[0].remainder == ()


@each("name", [name for name in sorted(shipped(DIGITS)) if name.startswith("residues")])
def test_residues_are_proved_modulo_every_modulus(name: str) -> None:
    scheme = digits(name)
    r = scheme.representation
    proof = prove_digits(scheme)
    assert proof.holds and len(proof.maps) == r.count == int(name.removeprefix("residues"))
    assert r.moduli == largest_moduli(r.count) and r.moduli[:5] == (256, 255, 253, 251, 247)
    random = Random(name)
    for _ in range(50):
        x = random.randrange(-(r.product // 2), (r.product + 1) // 2)
        parts = [least_residue(x, p) for p in r.moduli]
        assert all(-128 <= part <= 127 for part in parts)
        assert (sum(e * part for e, part in zip(r.weights, parts, strict=True)) - x) % r.product == 0
        y = random.randrange(-(2**20), 2**20)
        product = computed(scheme, parts, [least_residue(y, p) for p in r.moduli], Fraction(1))
        assert (product - x * y) % r.product == 0


def test_moduli_that_share_a_factor_are_refused_also_without_a_file() -> None:
    r = Representation("r", FLOAT64, None, 3, moduli=(255, 254, 253))
    assert prove_digits(residues(r)).holds
    with pytest.raises(ValueError, match="not invertible"):
        residues(replace(r, moduli=(256, 254, 253)))
    shared = replace(residues(r), representation=replace(r, moduli=(255, 253, 253)))
    assert "253 and 253 share a factor" in prove_digits(shared).failures


@each(
    ("block", "wrong"),
    [("strassen", 0), ("winograd", 0), ("laderman", 0), ("accurate_halves", 1), ("accurate_sqrt3", 8), ("bini", 8)],
)
def test_block_schemes_inside_hold_modulo_every_modulus_or_are_refused(block: str, wrong: int) -> None:
    proof = prove_digits(digits(f"residues8 (x) {block}"))
    assert [f for f in proof.failures if "does not hold modulo" in f] == [
        f"{block} does not hold modulo {p}" for p in largest_moduli(8)[:wrong]
    ]
    assert proof.holds == (not wrong)


def test_block_schemes_above_are_proved_too() -> None:
    strassen = load("strassen").scheme
    wrong = replace(strassen, name="wrong", w=LinearMap(7, (strassen.w.outputs[1], strassen.w.outputs[0], *strassen.w.outputs[2:])))
    proof = prove_digits(replace(digits("strassen (x) pairs"), above=wrong))
    assert not proof.holds and proof.failures[0].startswith("wrong does not multiply: A11*B11 in C11")
    proof = prove_digits(digits("winograd (x) residues15 (x) strassen"))
    assert proof.holds and proof.equations == 64 + 64 + 15**3 and proof.scheme.format == "<4,4,4;735>"


def exact_in_int32(representation: Representation, terms: int) -> bool:
    """True if int32 sums of so many products of residues are exact modulo every p.

    Residues of least size are at most p/2 in size, so a sum is at most terms * floor(p/2)^2. For p = 256 it may be 2^31 at 131072 terms,
    which wraps around to -2^31: the same number modulo 256, because 256 divides 2^32.
    """
    return all((p // 2) ** 2 * terms <= 2**31 - 1 or 2**32 % p == 0 for p in representation.moduli)


def test_sums_of_residues_fit_int32() -> None:
    r = digits("residues17").representation
    assert exact_in_int32(r, LONGEST_SUM) and not exact_in_int32(r, 133_145)
    assert 127**2 * 133_144 <= 2**31 - 1 < 127**2 * 133_145
    assert LONGEST_SUM * 128**2 == 2**31 and 2**32 % 256 == 0  # modulo 256 a sum that wraps around is still right
    even = replace(r, moduli=(254,), count=1)
    assert exact_in_int32(even, 133_144) and not exact_in_int32(even, 133_145)


CONJUGATED = ["", "A", "B", "AB"]


def by(*names: str, conjugated: str = "") -> Schedule:
    loaded = [load(name) for name in names]
    return prepare_complex(tuple(Level(x.scheme, x.schedule) for x in loaded), conjugated)


@pytest.mark.parametrize("conjugated", CONJUGATED)
def test_the_maps_multiply_complex_numbers(conjugated: str) -> None:
    generator = random.Random(1)
    for algorithm in (three_products(conjugated), four_products(conjugated)):
        assert prove_map(algorithm).holds
        for other in CONJUGATED:
            assert prove_map(replace(algorithm, target=three_products(other).target)).holds is (other == conjugated)
        x, y = (complex(generator.randint(-9, 9), generator.randint(-9, 9)) for _ in "AB")
        u, v, w = ([[(i, int(str(c))) for i, c in row] for row in table] for table in algorithm.tables)
        left, right = ([sum(c * (z.real, z.imag)[i] for i, c in row) for row in table] for z, table in ((x, u), (y, v)))
        re, im = (sum(c * left[p] * right[p] for p, c in row) for row in w)
        assert complex(re, im) == (x.conjugate() if "A" in conjugated else x) * (y.conjugate() if "B" in conjugated else y)


def product(schedule: Schedule, state: State, alpha: int, beta: int) -> State:
    """alpha * A * B + beta * C of complex matrices by the definition, as parts."""
    a, b = (-1 if letter in schedule.conjugated else 1 for letter in "AB")
    found: State = {}
    for block in schedule.space("C").blocks:
        own = Block(IMAGINARY["C"], block.row, block.column)
        re, im = beta * state[block], beta * state[own]
        for p in range(schedule.k):
            x, xi = (state[Block(space, block.row, p)] for space in ("A", IMAGINARY["A"]))
            y, yi = (state[Block(space, p, block.column)] for space in ("B", IMAGINARY["B"]))
            re, im = re + alpha * (x @ y - a * b * (xi @ yi)), im + alpha * (b * (x @ yi) + a * (xi @ y))
        found |= {block: re, own: im}
    return found


@each("conjugated", CONJUGATED)
@each("names", [("winograd",), ("classical",), ("split_k",), ("winograd_depth_first",), ("strassen", "winograd_223")])
def test_schedules_multiply_matrices_that_do_not_commute(names: tuple[str, ...], conjugated: str) -> None:
    schedule, generator = by(*names, conjugated=conjugated), random.Random(len(names))
    _agrees(schedule, generator)
    assert schedule.is_complex and schedule.conjugated == conjugated and not schedule.writes_operands


@pytest.mark.parametrize("conjugated", CONJUGATED)
def test_strips_are_four_products(conjugated: str) -> None:
    schedule = plain_complex(conjugated)
    assert schedule.products == 4 and not schedule.workspaces
    _agrees(schedule, random.Random(2))


def _agrees(schedule: Schedule, generator: random.Random) -> None:
    blocks = [block for space in schedule.operands for block in space.blocks]
    state = {b: np.array([[generator.randint(-9, 9) for _ in range(2)] for _ in range(2)], dtype=object) for b in blocks}
    after = execute(schedule, state, 3, -2, generator)
    for block, value in product(schedule, state, 3, -2).items():
        assert (after[block] == value).all()
    for block in (*schedule.blocks_of("A"), *schedule.blocks_of("B")):
        assert after[block] is state[block]


def test_products_are_three_times_as_many() -> None:
    assert by("winograd").products == 21 and by("laderman", "winograd").products == 3 * 23 * 7


def turned(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule with one coefficient turned, one at a time."""
    for at, stage in enumerate(schedule.stages):
        for changed in _turned_maps(stage) if isinstance(stage, LinearStage) else _turned_products(stage):
            yield replace(schedule, stages=(*schedule.stages[:at], changed, *schedule.stages[at + 1 :]))


def _turned_maps(stage: LinearStage) -> Iterator[LinearStage]:
    for i, one in enumerate(stage.maps):
        for j, row in enumerate(one.map.outputs):
            for p, (index, c) in enumerate(row):
                rows = (*one.map.outputs[:j], (*row[:p], (index, -c), *row[p + 1 :]), *one.map.outputs[j + 1 :])
                maps = (*stage.maps[:i], replace(one, map=replace(one.map, outputs=rows)), *stage.maps[i + 1 :])
                yield replace(stage, maps=maps)


def _turned_products(stage: ProductStage) -> Iterator[ProductStage]:
    for i, one in enumerate(stage.products):
        targets = (replace(one.targets[0], coefficient=-one.targets[0].coefficient), *one.targets[1:])
        yield ProductStage((*stage.products[:i], replace(one, targets=targets), *stage.products[i + 1 :]))


@pytest.mark.parametrize("make", [complex_to_schedule, complex_to_products])
def test_no_turned_sign_is_proved(make: object) -> None:
    assert callable(make)
    level = mark_first_writes(make(three_products(), ""))
    inner = mark_first_writes(authored_schedule(load("strassen").scheme, None, "preserve"))
    flat, wrong = by("strassen"), 0
    for other in turned(flat):
        assert by_levels(other, [level, inner]) is None
        wrong += 1
    assert wrong > 60 and by_levels(flat, [level, inner]) is not None
    assert all(by_levels(other, [other]) is None for other in turned(level))


def test_conjugates_and_real_products_are_not_mistaken_for_one_another() -> None:
    inner = mark_first_writes(authored_schedule(load("strassen").scheme, None, "preserve"))
    levels = {c: mark_first_writes(complex_to_schedule(three_products(c), c)) for c in CONJUGATED}
    for conjugated in CONJUGATED:
        flat = by("strassen", conjugated=conjugated)
        assert [c for c in CONJUGATED if by_levels(flat, [levels[c], inner]) is not None] == [conjugated]
        assert by_levels(flat, [inner]) is None and by_levels(inner, [levels[conjugated], inner]) is None
    lied = replace(levels["A"], conjugated="")
    assert by_levels(lied, [lied]) is None


def test_what_can_only_be_proved_does_not_run() -> None:
    with pytest.raises(BilinearError, match="E506"):
        by("bini")
