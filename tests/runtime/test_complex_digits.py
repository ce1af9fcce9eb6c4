"""Complex matrices by digits and by residues through `matmul`, on a pretended GPU that runs the emitted kernels."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from codegen.emulated import c_type
from digit_unit import slow_units
from runtime.operands import laid
from runtime.pretended_gpu import Array, Gpu, compiled, require_exact

import bilinear
from bilinear.algebra.complex_products import complex_scheme, two_products
from bilinear.codegen.render import render
from bilinear.emulator import compile_on_cpu, skip_reason
from bilinear.errors import BilinearError
from bilinear.ir.bilinear_map import complex_product
from bilinear.ir.digits import least_residue, residues, residues_of, root_of_minus_one
from bilinear.ir.element import FLOAT64
from bilinear.ir.matrix import layout_of
from bilinear.ir.tile import DIGIT_TILES, RESIDUE_TILES
from bilinear.methods.digits.binding import digit_multiply_of
from bilinear.methods.digits.choice import Digits, complex_scheme_of, require_residues, scheme_of
from bilinear.methods.digits.launches import proved_scheme
from bilinear.methods.digits.lower import OperandOrder, lower_digits, lower_residues
from bilinear.methods.planning import plan_from_json
from bilinear.planner.device import Device
from bilinear.planner.device_files import load_device
from bilinear.planner.kept_plans import plan_json
from bilinear.planner.plan import Plan
from bilinear.planner.profiles import portfolio
from bilinear.runtime import devices_here
from bilinear.runtime.arrays import kind_of
from bilinear.runtime.multiply import multiply
from bilinear.runtime.options import Options
from bilinear.verify.bilinear_map import prove_map
from bilinear.verify.digits import prove_digits

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
H200 = load_device("h200")
DESCRIBED = "h200"
PLAIN: tuple[str, ...] = ()
WINOGRAD = ("winograd",)
DTYPES = {"pairs": "complex64", "residues7": "complex64", "residues13": "complex128", "residues14": "complex128"}
DTYPES |= {"gaussian7": "complex64", "gaussian8": "complex64", "gaussian15": "complex128", "gaussian17": "complex128"}


def plan_of(shape: tuple[int, int, int], levels: tuple[str, ...], products: str, **options: Any) -> Plan:
    return bilinear.plan(*shape, DTYPES[products], device=H200, levels=levels, products=products, **options)


def gaussian(generator: Any, most: int, *shape: int) -> Any:
    return generator.integers(-most, most + 1, shape) + 1j * generator.integers(-most, most + 1, shape)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("products", "levels", "by_columns"),
    [
        ("pairs", PLAIN, ()),
        ("pairs", WINOGRAD, ("A",)),
        ("pairs", WINOGRAD, ("B", "C")),
        ("pairs", ("winograd", "winograd"), ("A", "B", "C")),
        ("pairs", ("laderman",), ("B",)),
        ("residues13", PLAIN, ("A",)),
        ("residues13", WINOGRAD, ("B", "C")),
        ("residues7", WINOGRAD, ()),
        ("gaussian7", PLAIN, ("B",)),
        ("gaussian7", WINOGRAD, ("A", "C")),
        ("gaussian15", PLAIN, ("A",)),
        ("gaussian15", WINOGRAD, ("A", "B", "C")),
        ("gaussian15", ("strassen",), ()),
        ("gaussian17", WINOGRAD, ("B",)),
    ],
    ids=str,
)
def test_gaussian_integers_are_exact_in_every_order(gpu: Gpu, products: str, levels: tuple[str, ...], by_columns: tuple[str, ...]) -> None:
    most = 2**19 if DTYPES[products] == "complex128" else 30
    for shape, padded, apart in (((37, 70, 29), 0, 1), ((21, 41, 33), 3, 2)):
        require_exact(plan_of(shape, levels, products), by_columns, most=most, padded=padded, apart=apart)
    assert gpu.library == 0


@pytest.mark.sample(1, slow=10)
@pytest.mark.parametrize("conjugated", ["", "A", "B", "AB"])
@pytest.mark.parametrize(
    ("products", "by_columns"), [("pairs", False), ("pairs", True), ("residues7", True), ("gaussian8", False), ("gaussian7", True)]
)
def test_conjugates_are_read_as_they_lie(gpu: Gpu, products: str, by_columns: bool, conjugated: str) -> None:
    generator, dtype = np.random.default_rng(3), DTYPES[products]
    a, b = (laid(gaussian(generator, 20, *shape), dtype, by_columns) for shape in ((21, 30), (30, 17)))
    wanted = (a.conj() if "A" in conjugated else a).astype(complex) @ (b.conj() if "B" in conjugated else b)
    out = Array(laid(np.zeros((21, 17)), dtype, by_columns))
    left, right = Array(a), Array(b)
    asked = Options(1, 0, "auto", "auto", "preserve", None, None, plan_of((21, 30, 17), WINOGRAD, products), conjugated=conjugated)
    multiply(asked, kind_of(left, right, out), None, left, right, out)
    np.testing.assert_array_equal(out.host, wanted)
    a[3, 4] = np.inf
    multiply(asked, kind_of(left, right, out), None, left, right, out)
    rows = np.arange(21) != 3
    np.testing.assert_array_equal(out.host[rows], wanted[rows])
    assert not np.isfinite(out.host[3]).any()


def parts_error(found: Any, a: Any, b: Any) -> float:
    """The largest error of a part, in units of the largest parts of A and of B, from rational arithmetic."""
    worst = Fraction(0)
    x, y = ([[(Fraction(float(v.real)), Fraction(float(v.imag))) for v in line] for line in each] for each in (a, b.T))
    for i, row in enumerate(x):
        for j, column in enumerate(y):
            re = sum((p * r - q * s for (p, q), (r, s) in zip(row, column, strict=True)), Fraction(0))
            im = sum((p * s + q * r for (p, q), (r, s) in zip(row, column, strict=True)), Fraction(0))
            worst = max(worst, abs(Fraction(float(found[i, j].real)) - re), abs(Fraction(float(found[i, j].imag)) - im))
    largest = [max(float(np.abs(part).max()) for part in (each.real, each.imag)) for each in (a, b)]
    return float(worst / Fraction(largest[0]) / Fraction(largest[1]))


@pytest.mark.sample(2, slow=14)
@pytest.mark.parametrize("kind", ["normal", "decades", "nearly real", "tiny"])
@pytest.mark.parametrize(
    ("products", "levels"),
    [
        ("pairs", PLAIN),
        ("pairs", WINOGRAD),
        ("residues13", WINOGRAD),
        ("residues7", PLAIN),
        ("gaussian7", WINOGRAD),
        ("gaussian15", PLAIN),
        ("gaussian17", WINOGRAD),
    ],
)
def test_no_part_is_further_off_than_the_bound(gpu: Gpu, products: str, levels: tuple[str, ...], kind: str) -> None:
    generator, dtype, (m, k, n) = np.random.default_rng(11), DTYPES[products], (6, 45, 5)
    a, b = (generator.standard_normal(shape) + 1j * generator.standard_normal(shape) for shape in ((m, k), (k, n)))
    if kind == "decades":
        a, b = (x * 10 ** generator.uniform(-4, 4, x.shape) for x in (a, b))
    elif kind == "nearly real":
        a.imag *= 1e-5
    elif kind == "tiny":
        a, b = a * 1e-20, b * 1e25
    a, b = (x.astype(dtype) for x in (a, b))
    plan = plan_of((m, k, n), levels, products)
    found = bilinear.matmul(Array(a), Array(b), plan=plan).host
    assert found.dtype == dtype and (plan.chosen.error or 0.0) > 0
    assert parts_error(found, a, b) <= (plan.chosen.error or 0.0)
    wanted = a.astype("clongdouble") @ b
    times = {"pairs": 12, "residues7": 40, "residues13": 400, "gaussian7": 80, "gaussian15": 10, "gaussian17": 3}[products]
    u = 2.0 ** (-24 if dtype == "complex64" else -53)
    if kind != "decades":
        assert np.abs(found - wanted).max() <= times * u * np.sqrt(2 * k) * np.abs(a).max() * np.abs(b).max()


@pytest.mark.sample(2)
@pytest.mark.parametrize(("products", "levels"), [("pairs", PLAIN), ("residues13", WINOGRAD), ("gaussian15", PLAIN)])
@pytest.mark.parametrize("value", [np.inf, complex(0, np.nan), complex(1, -np.inf)])
def test_inf_and_nan_are_those_of_the_definition(gpu: Gpu, products: str, levels: tuple[str, ...], value: complex) -> None:
    generator, dtype = np.random.default_rng(5), DTYPES[products]
    a, b, old = (gaussian(generator, 9, *shape).astype(dtype) for shape in ((40, 50), (50, 30), (40, 30)))
    b[4, 7], b[4, 8], b[4, 9] = 0, 2, 3j
    for operand, place in (("A", (3, 4)), ("B", (49, 29))):
        x, y, out = a.copy(), b.copy(), Array(old.copy())
        (x if operand == "A" else y)[place] = value
        with np.errstate(invalid="ignore"):
            re = x.real @ y.real - x.imag @ y.imag
            im = x.real @ y.imag + x.imag @ y.real
            bilinear.matmul(Array(x), Array(y), out, plan=plan_of((40, 50, 30), levels, products), alpha=2, beta=3)
            np.testing.assert_array_equal(out.host.real, 2 * re + 3 * old.real)
            np.testing.assert_array_equal(out.host.imag, 2 * im + 3 * old.imag)
    names = [name for name, _ in gpu.launches]
    assert names.count(f"complex_product_f{32 if dtype == 'complex64' else 64}") == 2


@pytest.mark.slow
def test_sums_of_parts_may_exceed_the_type(gpu: Gpu) -> None:
    """A1 + A2 overflows in float32, where the definition does not; digits of the scaled parts do not."""
    a, b = np.full((8, 12), 2e38 + 2e38j, np.complex64), np.full((12, 4), 2.0**-40, np.complex64)
    out = Array(np.zeros((8, 4), np.complex64))
    for products in ("pairs", "residues7", "gaussian7"):
        bilinear.matmul(Array(a), Array(b), out, plan=plan_of((8, 12, 4), WINOGRAD, products))
        np.testing.assert_allclose(out.host, a.astype(complex) @ b, rtol=1e-5)


def test_the_maps_are_the_tensor_product() -> None:
    """The combined maps multiply Gaussian integers of blocks exactly: checked on the tensor of complex matrices itself."""
    for levels in (PLAIN, WINOGRAD, ("laderman",)):
        block = scheme_of(levels)
        for conjugated in ("", "A", "B", "AB"):
            scheme, rows = complex_scheme(block, conjugated), complex_product(conjugated).rows
            u, v, w = (linear.matrix for linear in (scheme.u, scheme.v, scheme.w))
            m, k, n = block.m, block.k, block.n
            for target, out in enumerate(w):
                part, (i, j) = target // (m * n), divmod(target % (m * n), n)
                found: dict[tuple[int, int], Any] = {}
                for p, c in out:
                    for x, d in u[p]:
                        for y, e in v[p]:
                            found[x, y] = found.get((x, y), 0) + c * d * e
                wanted = {(m * k * s + i * k + t, k * n * q + t * n + j): c for s, q, c in rows[part] for t in range(k)}
                assert {pair: c for pair, c in found.items() if c} == wanted


def test_two_products_are_proved_modulo_each_p() -> None:
    for p, root in zip(GAUSSIAN.moduli, GAUSSIAN.roots, strict=True):
        assert (root * root + 1) % p == 0
        for conjugated in ("", "A", "B", "AB"):
            prove_map(two_products(p, root, conjugated)).require()
        assert not prove_map(two_products(p, root + 1)).holds
    assert root_of_minus_one(239) is root_of_minus_one(254) is root_of_minus_one(21) is None
    assert prove_digits(residues(GAUSSIAN)).holds


@pytest.mark.parametrize("most", [1, 2**20, None], ids=str)
def test_what_two_products_put_together_is_exact(most: int | None) -> None:
    """Both parts of the largest numbers that the moduli hold, of small ones, and of those between, from residues of least size."""
    order, generator, whole = OperandOrder(True, True), np.random.default_rng(1), GAUSSIAN.product
    scheme = proved_scheme(PLAIN, "", GAUSSIAN)
    *_, kernel = lower_residues(scheme, "plain", RESIDUE_TILES["gaussian17"], order, order, True)
    largest = min(most or whole, whole * (2**30 - 1) // 2**31)
    parts = [[largest, -largest, 0], [int(generator.integers(-(2**62), 2**62)) * largest // 2**62 for _ in range(61)]]
    real, imaginary = parts[0] + parts[1], parts[1] + parts[0]
    planes = []
    for sign in (1, -1):
        for p, root, inverse in zip(GAUSSIAN.moduli, GAUSSIAN.roots, GAUSSIAN.inverses, strict=True):
            half = inverse * pow(2, -1, p)
            planes.append([least_residue((x + sign * root * y) * half, p) for x, y in zip(real, imaginary, strict=True)])
    c, exponents = np.zeros((1, 128)), np.zeros(64, np.uint32)
    values: dict[str, Any] = {"P": np.array(planes, np.int8).view(np.uint8), "block_m": 1, "block_n": 64, "pitch": 64}
    values |= {"C": c, "C_rs": 64, "C_cs": 1, "m": 1, "n": 64, "alpha": 1.0, "beta": 0.0, "alpha_im": 0.0, "beta_im": 0.0}
    values |= {"LA": exponents[:1], "LB": exponents, "flag": np.zeros(1, np.int32)}
    module, _ = compiled(kernel)
    module.launch(kernel.name, (1, 1), kernel.threads, [values[argument.name] for argument in kernel.arguments])
    np.testing.assert_array_equal(c[0, ::2], [float(x) for x in real])
    np.testing.assert_array_equal(c[0, 1::2], [float(x) for x in imaginary])


def test_what_complex_digits_do_not_multiply_is_refused(gpu: Gpu) -> None:
    for dtype, products in (("complex128", "pairs"), ("complex64", "residues14"), ("complex64", "triples")):
        with pytest.raises(BilinearError, match="E787"):
            bilinear.plan(64, 64, 64, dtype, device=H200, products=products)
    for levels, products, code in ((("winograd",) * 3, "pairs", "E501"), (("winograd",) * 2, "residues13", "E592")):
        with pytest.raises(BilinearError, match=code):
            plan_of((64, 64, 64), levels, products)
    for limits in ({"workspace": 10}, {"accuracy": 1e-9}):
        with pytest.raises(BilinearError, match="E543"):
            plan_of((64, 64, 64), PLAIN, "pairs", **limits)
    with pytest.raises(BilinearError, match=r"E543.*complex64"):
        bilinear.plan(64, 64, 64, "float32", device=H200, products="gaussian7")
    real = Array(np.ones((64, 64), np.float32))
    for products in ("pairs", "gaussian7"):
        with pytest.raises(BilinearError, match="E544"):
            bilinear.matmul(real, real, plan=plan_of((64, 64, 64), PLAIN, products))


def test_plans_are_kept_in_files_and_weighed() -> None:
    for products in ("residues14", "gaussian15"):
        plan = plan_of((64, 64, 64), WINOGRAD, products)
        assert plan_from_json(plan_json(plan), "plan") == plan
    assert plan.chosen.strategy == "digits" and plan.chosen.ms and plan.chosen.why.startswith("asked for: ")
    for dtype, accuracy, tile in (
        ("complex128", "twice", "gaussian15"),
        ("complex64", None, "gaussian7"),
        ("complex64", "twice", "gaussian7"),
    ):
        chosen = bilinear.plan(8192, 8192, 8192, dtype, device=H200, accuracy=accuracy).chosen
        assert chosen.tile == tile and plan_of((8192, 8192, 8192), chosen.levels, tile).chosen.workspace == chosen.workspace
    for levels in portfolio().digits[:2]:  # what is weighed needs no check
        for each in RESIDUE_TILES.values():
            require_residues(scheme_of(levels) if each.gaussian else complex_scheme_of(levels), each)


def for_small(device: Device) -> Device:
    """The device, on which complex products of any size are weighed."""
    return replace(device, policy=replace(device.policy, least_complex=1))


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_auto_takes_digits_and_repeats_them(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(devices_here, "_described", lambda named, index: for_small(slow_units(H200)))
    generator = np.random.default_rng(5)
    a, b = (gaussian(generator, 99, *shape).astype(dtype) for shape in ((40, 90), (90, 30)))
    for _ in range(2):  # decided, then found again
        np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(b), alpha=1j).host, 1j * (a @ b))
    names = [name for name, _ in gpu.launches if name.startswith("residue_product")]
    assert gpu.library == 0 and len(names) == 2


@pytest.mark.slow
@pytest.mark.parametrize("conjugated", ["", "A", "B", "AB"])
@pytest.mark.parametrize("digits", [True, False])
def test_auto_reads_conjugates(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, conjugated: str, digits: bool) -> None:
    """By digits and, where there are no rates for them, by a schedule."""
    device = slow_units(H200)
    rates = tuple((name, replace(own, product=H200.rates(name).product)) for name, own in device.elements)
    if not digits:
        device = replace(device, digits=(), elements=rates, thin=())  # its points of thin products know a faster library
    monkeypatch.setattr(devices_here, "_described", lambda named, index: for_small(device))
    generator = np.random.default_rng(6)
    a, b = (gaussian(generator, 9, *shape) for shape in ((1030, 20), (20, 1040)))
    wanted = (a.conj() if "A" in conjugated else a) @ (b.conj() if "B" in conjugated else b)
    left, right, out = Array(a), Array(b), Array(np.zeros((1030, 1040), complex))
    asked = Options(1, 0, "auto", "auto", "preserve", None, None, None, conjugated=conjugated)
    multiply(asked, kind_of(left, right, out), None, left, right, out)
    np.testing.assert_array_equal(out.host, wanted)
    assert gpu.library == 0 and any("residue" in name for name, _ in gpu.launches) == digits


GAUSSIAN = residues_of(FLOAT64, 17, gaussian=True)
MUTANTS = {
    "the other part": ("both.lane[e].part[PART[source]]", "both.lane[e].part[1 - PART[source]]"),
    "one scale": ("magnitude(x.im)", "magnitude(x.re)"),
    "a sign of the factors": ("x * factor - y * factor_im", "x * factor + y * factor_im"),
}


MUTANTS_OF_TWO = {
    "one part twice": ("whole(x[e].part[1], exponent)", "whole(x[e].part[0], exponent)"),
    "limbs of the first part": ("[e % PARTS * WORDS]", "[0]"),
    "one product twice": ("at + MODULI * plane", "at"),
    "the difference as the sum": ("plus - x.lane[e].minus", "plus + x.lane[e].minus"),
    "weights without roots": ("difference * TURNED[i][j]", "difference * WEIGHT[i][j]"),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("products", "name"), [*(("pairs", name) for name in MUTANTS), *(("gaussian7", name) for name in MUTANTS_OF_TWO)])
def test_mutants_fail(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, products: str, name: str) -> None:
    from runtime import pretended_gpu

    old, new = (MUTANTS | MUTANTS_OF_TWO)[name]
    changed = []

    def compiled(kernel: Any) -> Any:
        text, types = render(kernel), [c_type(argument, kernel.element) for argument in kernel.arguments]
        changed.append(old in text)
        return compile_on_cpu(text.replace(old, new), {kernel.name: types}), types

    monkeypatch.setattr(pretended_gpu, "compiled", compiled)
    gpu.runs = "text"
    generator = np.random.default_rng(1)
    a, b = (gaussian(generator, 9, 40, 40).astype(np.complex64) for _ in "AB")
    a.imag *= 64
    out = Array(np.zeros((40, 40), np.complex64))
    own = digit_multiply_of(layout_of(Array(a)), layout_of(Array(b)), layout_of(out), Digits(PLAIN, products))
    assert own is not None
    own(Array(a).data.ptr, Array(b).data.ptr, out.data.ptr, 2 + 1j, 0)
    assert any(changed)
    assert not (out.host == (2 + 1j) * (a.astype(complex) @ b)).all()


def test_both_parts_are_written_together() -> None:
    """Of every block one part is held, and the other, which is formed later, writes both."""
    order = OperandOrder(True, True)
    for levels in (PLAIN, WINOGRAD, ("winograd", "winograd")):
        kernel = lower_digits(complex_scheme(scheme_of(levels)), "x", DIGIT_TILES["pairs"], order, order, True).recompose
        assert kernel is not None
        assert all(kernel.held[t] != kernel.held[t + kernel.blocks] for t in range(kernel.blocks))
