"""Proofs of digit schemes beside exact arithmetic on digits, and that every wrong product, modulus and block scheme is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from digit_unit import digits

from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend.files import shipped_digits
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.digits import DigitScheme, Representation, largest_moduli, least_residue, residues
from bilinear.ir.element import FLOAT64
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.tile import LONGEST_SUM
from bilinear.source import Source
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


@pytest.mark.parametrize("name", [name for name in sorted(shipped_digits()) if name.startswith("residues")])
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


@pytest.mark.parametrize(
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
