"""Every generated kernel: the emitted CUDA C runs on the CPU, and is compared with the classical product in integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from codegen import emulated
from codegen.emulated import EmulatedExecutor, address, c_type, c_types
from each_case import each

from bilinear.backends.executor import execute
from bilinear.codegen.build import own_target
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.render import render
from bilinear.emulator import ORDERS, CompileError, LaunchError, Order, compile_on_cpu, guarded, skip_reason, without_barrier
from bilinear.frontend import load
from bilinear.ir.element import ELEMENTS, FLOAT16, HALVES, IN_ARRAYS, Element
from bilinear.ir.kernel import GramHalvesKernel, MirrorKernel, ProductKernel, ScanKernel
from bilinear.ir.matrix import Call, call_of, matrix_of
from bilinear.ir.placement import ATOMICS, COLOURS, Placement
from bilinear.ir.tile import SMALL, TILES, USUAL, MmaTile, ProductTile, SimtTile, beside
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import Level, plain, prepare, prepare_complex

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))

ALGORITHMS = [
    ("msmes", "restore", 1),
    ("msmes", "restore", 2),
    ("msmes", "restore", 3),
    ("msmes", "consume", 1),
    ("naive2x2", "preserve", 1),
    ("strassen", "preserve", 1),
    ("strassen", "preserve", 2),
    ("winograd", "preserve", 1),
    ("winograd", "preserve", 2),
    ("winograd", "preserve", 3),
    ("laderman", "preserve", 1),
    ("hopcroft_kerr", "preserve", 1),
]
ALL_TILES = [(dtype, tile) for dtype in IN_ARRAYS for tile in TILES[dtype]]
UNITS = sorted({(dtype, tile.instruction.unit) for dtype in IN_ARRAYS for tile in TILES[dtype].values()})
IN_DOUBLES = [name for name, tile in TILES["float32"].items() if isinstance(tile, MmaTile)]
CASES = [(*algorithm, dtype) for algorithm in ALGORITHMS for dtype in IN_ARRAYS if algorithm[2] < 3 or dtype == "float64"]


def layout(array: Any, order: str) -> Any:
    """A copy in row order (C), column order (F), or with gaps of NaN between rows and columns (S), at the end of its memory page."""
    if order == "C":
        return guarded(array)
    if order == "F":
        return guarded(np.ascontiguousarray(array.T)).T
    wide = np.full((array.shape[0] * 2, array.shape[1] * 3), np.nan, array.dtype)
    wide[::2, ::3] = array
    return guarded(wide)[::2, ::3]


def multiply(name: str, inputs: str, levels: int, shape: tuple[int, int, int], dtype: str, **how: Any) -> None:
    """One multiply by the engine with alpha = 2 and beta = -1, or with beta = 0 onto NaN. Everything must be exact."""
    m, k, n = shape
    generator = np.random.default_rng(m * 10007 + k * 101 + n)
    whole = [generator.integers(-4, 5, s) for s in ((m, k), (k, n), (m, n))]
    beta = how.get("beta", -1)
    orders = how.get("orders", "CCC")
    a, b, c = (layout(x.astype(dtype), order) for x, order in zip(whole, orders, strict=True))
    if beta == 0:
        c[...] = np.nan
    loaded = load(name)
    schedule = prepare(loaded.scheme, loaded.schedule, levels, inputs, contention=how.get("contention", COLOURS)).schedule
    columns = frozenset(s for s, order in zip("ABC", orders, strict=True) if order == "F")
    plan = place_schedule(schedule, m, k, n, a.itemsize, columns, tile=how.get("tile", USUAL))
    execute(EmulatedExecutor(how.get("order", "ascending"), seed=m), plan, call_of(a, b, c, 2, beta))
    np.testing.assert_array_equal(c, 2 * (whole[0] @ whole[1]) + (beta * whole[2] if beta else 0))
    if inputs != "consume":
        np.testing.assert_array_equal(a, whole[0])
        np.testing.assert_array_equal(b, whole[1])


@pytest.mark.sample(4, slow=10)
@pytest.mark.parametrize(("name", "inputs", "levels", "dtype"), CASES)
def test_odd_rectangles(name: str, inputs: str, levels: int, dtype: str) -> None:
    multiply(name, inputs, levels, (29, 19, 23), dtype)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", IN_ARRAYS)
@pytest.mark.parametrize(("name", "inputs", "levels"), [case for case in ALGORITHMS if case[2] == 1 or case == ("winograd", "preserve", 2)])
def test_whole_lanes(name: str, inputs: str, levels: int, dtype: str) -> None:
    """Blocks whose rows are multiples of 16 bytes use the wide accesses."""
    multiply(name, inputs, levels, (24, 48, 72), dtype, beta=0)


@pytest.mark.sample(2)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", IN_ARRAYS)
@pytest.mark.parametrize(("name", "inputs"), [("msmes", "restore"), ("winograd", "preserve")])
def test_several_tiles_in_every_order_of_threads(name: str, inputs: str, dtype: str, order: Order) -> None:
    multiply(name, inputs, 1, (271, 45, 263), dtype, order=order)


@pytest.mark.sample(2, slow=8)
@pytest.mark.parametrize("shape", [(276, 90, 528), (271, 45, 263)])
@pytest.mark.parametrize(("dtype", "tile"), ALL_TILES)
def test_every_tile(dtype: str, tile: str, shape: tuple[int, int, int]) -> None:
    """Several tiles of each kind, aligned and not, with strips in the small tile."""
    multiply("strassen", "preserve", 1, shape, dtype, tile=tile)


@pytest.mark.sample(1, slow=8)
@pytest.mark.parametrize(("dtype", "tile"), ALL_TILES)
@pytest.mark.parametrize(("name", "inputs", "levels"), [("msmes", "restore", 1), ("winograd_in_place", "consume", 2)])
def test_products_of_a_stage_at_once(name: str, inputs: str, levels: int, dtype: str, tile: str) -> None:
    multiply(name, inputs, levels, (276, 90, 268), dtype, tile=tile, beta=0, contention=ATOMICS)
    multiply(name, inputs, levels, (61, 19, 23), dtype, tile=tile, contention=ATOMICS, orders="CFS")


def test_every_sum_in_a_contended_block_is_atomic(monkeypatch: pytest.MonkeyPatch) -> None:
    """All products of MSMES share their blocks of C: without atomic additions nothing is added to beta * C."""
    monkeypatch.setattr(emulated, "render", lambda kernel: render(kernel).replace("atomicAdd(", "(void)sizeof("))
    monkeypatch.setattr(emulated, "emulated_launches", emulated.emulated_launches.__wrapped__)
    loaded, (a, b, c) = load("msmes"), np.random.default_rng(1).integers(-4, 5, (3, 24, 24)).astype(float)
    schedule = prepare(loaded.scheme, loaded.schedule, 1, "restore", contention=ATOMICS).schedule
    result = c.copy()
    execute(EmulatedExecutor(), place_schedule(schedule, 24, 24, 24, 8), call_of(a, b, result, 2, -1))
    np.testing.assert_array_equal(result, -c)


class Recording(EmulatedExecutor):
    """An executor that records the tiles that run."""

    def __init__(self) -> None:
        super().__init__("ascending")
        self.tiles: list[str] = []

    def steps(self, plan: Placement, *rest: Any) -> Any:
        self.tiles.append(plan.tile)
        return super().steps(plan, *rest)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("dtype", "tile"), ALL_TILES)
def test_strips_run_on_the_unit_of_their_core(dtype: str, tile: str) -> None:
    executor, (a, b, c) = Recording(), (np.ones((3, 3), dtype) for _ in "ABC")
    loaded = load("strassen")
    execute(
        executor,
        place_schedule(prepare(loaded.scheme, None, 1, "preserve").schedule, 3, 3, 3, a.itemsize, tile=tile),
        call_of(a, b, c, 1, 0),
    )
    small, usual = beside(dtype, tile, SMALL), beside(dtype, tile, USUAL)
    assert sorted(executor.tiles) == sorted([small, small, usual, tile]) and (c == 3).all(), (
        "a row, a column, the rest of the sum, the core"
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize(("dtype", "unit"), UNITS)
def test_tiles_of_all_sizes_give_the_same_bits(dtype: str, unit: str) -> None:
    """Long sums round, but every tile adds their terms in the same order."""
    generator = np.random.default_rng(11)
    a, b = generator.standard_normal((40, 300)).astype(dtype), generator.standard_normal((300, 36)).astype(dtype)
    results = []
    for tile in (name for name, tile in TILES[dtype].items() if tile.instruction.unit == unit):
        c = np.full((40, 36), np.nan, dtype)
        execute(EmulatedExecutor("ascending"), place_schedule(plain().schedule, 40, 300, 36, a.itemsize, tile=tile), call_of(a, b, c, 1, 0))
        results.append(c)
    assert len(results) == 3 and all(np.array_equal(results[0], other) for other in results[1:])
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    off, most = abs(results[0] - exact).max(), 300 * np.finfo(dtype).eps * (abs(a) @ abs(b)).max()
    assert 0 < off < most, "terms that round, each of them once"


@pytest.mark.parametrize("order", ORDERS)
def test_floats_on_the_matrix_units_in_every_order_of_threads(order: Order) -> None:
    multiply("msmes", "restore", 1, (271, 45, 263), "float32", order=order, orders="FCF", tile="doubles-usual")


@pytest.mark.parametrize("tile", IN_DOUBLES)
def test_sums_of_floats_on_the_matrix_units_are_rounded_once(tile: str) -> None:
    generator = np.random.default_rng(11)
    a, b = generator.standard_normal((40, 300)).astype("float32"), generator.standard_normal((300, 36)).astype("float32")
    c = np.full((40, 36), np.nan, "float32")
    execute(EmulatedExecutor("ascending"), place_schedule(plain().schedule, 40, 300, 36, a.itemsize, tile=tile), call_of(a, b, c, 1, 0))
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    assert (abs(c - exact) <= np.spacing(abs(c)) * 0.5001).all()


@pytest.mark.sample(2, slow=12)
@pytest.mark.parametrize("at", ["start", "end"])
@pytest.mark.parametrize("late", range(4))
@pytest.mark.parametrize("tile", IN_DOUBLES)
def test_rows_that_begin_anywhere(tile: str, late: int, at: Literal["start", "end"]) -> None:
    """The first row begins so many elements after a multiple of 16 bytes, other rows elsewhere. NaN surrounds the views."""
    (m, k, n), generator = (70, 77, 133), np.random.default_rng(late)
    whole = [generator.integers(-4, 5, shape) for shape in ((m, k), (k, n))]
    for longer in range(1, 5):
        views = []
        for values in whole:
            rows, columns = values.shape
            wide = np.full((rows, late + columns + longer), np.nan, "float32")
            wide[:, late : late + columns] = values
            views.append(guarded(wide.ravel()[: wide.size - longer], at))
            views[-1] = np.lib.stride_tricks.as_strided(views[-1][late:], values.shape, wide.strides)
        c = np.full((m, n), np.nan, "float32")
        execute(
            EmulatedExecutor("ascending"), place_schedule(plain().schedule, m, k, n, 4, tile=tile), call_of(views[0], views[1], c, 1, 0)
        )
        np.testing.assert_array_equal(c, whole[0] @ whole[1])


@each("orders", ["CFC", "FCF", "FFF", "CCF", "SCC", "CSF", "SSS"])
@each(("name", "inputs"), [("msmes", "restore"), ("strassen", "preserve")])
def test_every_layout(name: str, inputs: str, orders: str) -> None:
    multiply(name, inputs, 1, (22, 18, 26), "float64", orders=orders, beta=0)
    multiply(name, inputs, 1, (17, 9, 13), "float32", orders=orders)


@each("shape", [(1, 1, 1), (1, 9, 1), (2, 1, 2), (3, 2, 70), (64, 2, 2), (5, 0, 4)])
@each(("name", "inputs"), [("msmes", "restore"), ("strassen", "preserve")])
def test_small_and_empty_extents(name: str, inputs: str, shape: tuple[int, int, int]) -> None:
    multiply(name, inputs, 1, shape, "float64")
    multiply(name, inputs, 1, shape, "float64", beta=0)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("dtype", "tile"), ALL_TILES)
def test_deleting_any_barrier_is_caught(dtype: str, tile: str) -> None:
    """Without any one of its barriers, a product of several slices must go wrong in some order of threads."""
    kernel = product_kernel(dtype, tile)
    source = render(kernel)
    assert all(is_right(kernel, source, order) for order in ORDERS)
    mutants = list(without_barrier(source))
    assert mutants
    for line, mutant in mutants:
        assert not all(is_right(kernel, mutant, order) for order in ORDERS), f"the barrier in line {line} is not needed"


def is_right(kernel: ProductKernel, source: str, order: Order, by_columns: bool = False) -> bool:
    """Whether a text multiplies 32 x 120 by 120 x 32."""
    generator, dtype = np.random.default_rng(3), kernel.element.name
    a, b = (generator.integers(-4, 5, shape).astype(dtype, "F" if by_columns else "C") for shape in ((32, 120), (120, 32)))
    c = np.full((32, 32), np.nan, dtype)
    values: dict[str, Any] = {"bm": 32, "bk": 120, "bn": 32, "alpha": 1.0, "beta": 0.0, "first": 0}
    for name, array in {"A": a, "B": b, "C": c}.items():
        rows, columns = (stride // array.itemsize for stride in array.strides)
        values |= {name: address(array), f"{name}_rs": rows, f"{name}_cs": columns}
    module = compile_on_cpu(source, {kernel.name: c_types(kernel)})
    try:
        arguments, threads = [values[p.name] for p in kernel.arguments], (*kernel.threads, 1)
        module.launch(kernel.name, (1, 1, 1), threads, arguments, order=order, seed=5, shared_bytes=kernel.shared_bytes)
    except LaunchError:
        return False
    return bool(np.array_equal(c, a @ b))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_text_for_rows_that_lie_as_is_known(dtype: str) -> None:
    kernel = product_kernel(dtype, USUAL)
    even, anyhow = (replace(kernel, rows_are=rows_are) for rows_are in ("EVEN", "ANY"))
    assert is_right(even, render(even), "ascending")
    assert not is_right(even, render(even), "ascending", by_columns=True)
    assert is_right(anyhow, render(anyhow), "ascending")
    assert is_right(anyhow, render(anyhow), "ascending", by_columns=True)
    assert max(render(x).count("multiply_tile<") for x in (even, anyhow)) == 1


@each("element", IN_ARRAYS.values())
@each("value", [0.0, np.inf, -np.inf, np.nan])
def test_the_scan_finds_what_is_not_finite(element: Element, value: float) -> None:
    kernel = ScanKernel(f"scan_{element.cuda}", element)
    module = compile_on_cpu(render(kernel), {kernel.name: [f"{element.cuda} *", *["long long"] * 4, "int *"]})
    dtype = np.dtype(element.name)
    for place in ((0, 0), (36, 300), (17, 5)):
        for transposed in (False, True):
            matrix = guarded(np.full((37, 301), np.finfo(dtype).max, dtype))
            matrix[place] = value
            x = matrix.T if transposed else matrix
            found = np.zeros((), np.int32)
            strides = [stride // x.itemsize for stride in x.strides]
            module.launch(kernel.name, (4, 1, 1), (256, 1, 1), [address(x), *strides, *x.shape, address(found)])
            assert bool(found) == (not np.isfinite(value))


MIRROR_MISTAKES = (
    ("blockIdx.x; at < pairs", "0; at < pairs / 2"),
    ("to < beside : to > beside", "to > beside : to < beside"),
    ("sqrt(8.0 * pair + 1)", "sqrt(8.0 * pair)"),
    ("tile[threadIdx.x][y];", "tile[y][threadIdx.x];"),
    ("/ pairs * apart", "* apart"),
    ("__syncthreads();", ""),
    ("if (flag && *flag == 0) return;", ""),
)


def mirrors(source: str, kernel: MirrorKernel, dtype: str, order: str) -> bool:
    """Whether matrices are mirrored whose sides are not whole tiles, by few blocks of threads: all, and none if a flag is not set."""
    module = compile_on_cpu(source, {kernel.name: c_types(kernel)})  # type: ignore[arg-type]  # it has the arguments of one
    right = True
    for n, count in ((1, 1), (31, 2), (70, 3), (197, 1)):
        values = np.random.default_rng(n).integers(-100, 100, (count, n, n)).astype(dtype)
        wanted = np.tril(values) + np.tril(values, -1).swapaxes(1, 2)
        for flag in (None, np.zeros((), np.int32), np.ones((), np.int32)):
            c = guarded(values.copy() if order == "C" else values.swapaxes(1, 2).copy())
            c = c if order == "C" else c.swapaxes(1, 2)
            apart, *steps = (stride // c.itemsize for stride in c.strides)
            arguments = [address(c), *steps, n, apart, count, 0 if flag is None else address(flag)]
            try:
                module.launch(kernel.name, (2, 1, 1), (*kernel.threads, 1), arguments, order="random", seed=3)
            except LaunchError:
                return False
            right &= np.array_equal(c, values if flag is not None and not flag else wanted)
    return right


@each("dtype", ["int8", "int16", "float32", "float64", "complex128"])
@each("order", ["C", "F"])
def test_a_triangle_is_mirrored(dtype: str, order: str) -> None:
    kernel = MirrorKernel(np.dtype(dtype).itemsize)
    assert mirrors(render(kernel), kernel, dtype, order)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "instead"), MIRROR_MISTAKES, ids=lambda text: text[:30])
def test_mistakes_in_mirroring_show(text: str, instead: str) -> None:
    kernel = MirrorKernel(4)
    source = render(kernel)
    assert text in source and not all(mirrors(source.replace(text, instead), kernel, "float32", order) for order in "CF")


GRAM_MISTAKES = (
    ("i > 0 || t > 0", "true"),
    ("group_wait<0>();", ""),
    ("(row + 1) % 2 + rank", "row % 2 + rank"),
    ("rank * 2 };", "rank };"),
    ("is_diagonal ? j + 1 - i : 0", "0"),
    ("(i > j ? i : j) * C_rs + (i > j ? j : i)", "i * C_rs + j"),
    ("barrier_init(&empty[s], 4);", "barrier_init(&empty[s], 2);"),
    ("panels.x * SIDE + rank * 64", "panels.x * SIDE"),
)


def grams(source: str, kernel: GramHalvesKernel, shapes: Sequence[tuple[int, int, int]]) -> bool:
    """Whether A*A^T of 16 bits is exact, with beta added to C, whose upper triangle is NaN, by few clusters of blocks of threads."""

    def bits(x: np.ndarray) -> np.ndarray:
        held = x.astype("f2").view("u2") if kernel.element.code else (x.astype("f4").view("u4") >> 16).astype("u2")
        return guarded(np.ascontiguousarray(held))

    module = compile_on_cpu(source, {kernel.name: [c_type(argument, kernel.element) for argument in kernel.arguments]})
    right = True
    for n, k, clusters in shapes:
        generator = np.random.default_rng(n)
        x, c = generator.integers(-1, 2, (n, k)), np.tril(generator.integers(-3, 4, (n, n)))
        for alpha, beta in ((1, 0), (2, -2)):
            a, out = bits(x), bits(np.where(np.tri(n), c, np.nan))
            words = [address(a), k, n, 2 * k, *[0] * 12]
            arguments: list[Any] = [np.array(words, np.uint64), address(out), n, n, k, alpha, beta]
            try:
                module.launch(
                    kernel.name, (2 * clusters, 1, 1), (384, 1, 1), arguments, order="random", seed=3, shared_bytes=kernel.shared_bytes
                )
            except LaunchError:
                return False
            right &= np.array_equal(out, bits(alpha * x @ x.T + beta * (c + np.tril(c, -1).T)))
    return right


@each("element", HALVES.values())
def test_a_triangle_of_16_bits_is_multiplied_and_mirrored(element: Element) -> None:
    kernel = GramHalvesKernel(element)
    assert own_target(kernel, CudaTarget("sm_90")) == CudaTarget("sm_90a")
    assert grams(render(kernel), kernel, [(8, 8, 1), (136, 72, 1), (392, 136, 2), (2312, 8, 3)])


@pytest.mark.slow
@pytest.mark.parametrize(("text", "instead"), GRAM_MISTAKES, ids=lambda text: text[:30])
def test_mistakes_in_a_triangle_of_16_bits_show(text: str, instead: str) -> None:
    kernel = GramHalvesKernel(FLOAT16)
    source = render(kernel)
    assert text in source and not grams(source.replace(text, instead), kernel, [(392, 136, 2)])


def product_kernel(dtype: str, tile: str = USUAL) -> ProductKernel:
    (launch,) = schedule_to_launches(plain().schedule, ELEMENTS[dtype], tile)
    assert isinstance(launch.kernel, ProductKernel)
    return launch.kernel


WRONG_TILES: list[tuple[str, ProductTile]] = [
    ("float32", MmaTile("narrow warps", USUAL, 32, 32, 32, 2, 2, 2, blocks=1)),
    ("float64", MmaTile("low warps", USUAL, 32, 32, 32, 8, 1, 2, blocks=1)),
    ("float64", MmaTile("uneven warps", USUAL, 40, 64, 32, 2, 2, 2, blocks=1)),
    ("float64", MmaTile("one stage", USUAL, 64, 64, 32, 2, 2, 1, blocks=1)),
    ("float32", MmaTile("shallow", USUAL, 64, 64, 16, 2, 2, 2, blocks=1)),
    ("float32", SimtTile("one stage", USUAL, 64, 128, 16, 2, 2, 1, blocks=1)),
    ("float32", SimtTile("uneven threads", USUAL, 24, 128, 16, 2, 2, 3, blocks=1)),
]


@each(("dtype", "tile"), WRONG_TILES)
def test_tiles_that_would_be_wrong_are_not_compiled(dtype: str, tile: ProductTile) -> None:
    kernel = replace(product_kernel(dtype), tile=tile)
    with pytest.raises(CompileError, match=r"static assertion|static_assert"):
        compile_on_cpu(render(kernel), {kernel.name: c_types(kernel)})


@each(("dtype", "tile"), ALL_TILES)
def test_shared_memory_is_what_the_text_asserts(dtype: str, tile: str) -> None:
    """The text computes its shared memory from its own constants, and compiles only if the launch has the same number."""
    kernel = product_kernel(dtype, tile)
    source, asserted = render(kernel), f"(SLICE_A + SLICE_B) == {kernel.shared_elements},"
    assert source.count(asserted) == 1
    compile_on_cpu(source, {kernel.name: c_types(kernel)})
    for other in (kernel.shared_elements - 1, kernel.shared_elements + 1):
        with pytest.raises(CompileError, match="slices are not what the launch takes shared memory for"):
            compile_on_cpu(source.replace(asserted, f"(SLICE_A + SLICE_B) == {other},"), {kernel.name: c_types(kernel)})


COMPLEX_CASES = [
    ("winograd", "complex64", "CFS", "", 3),
    ("winograd", "complex128", "FSF", "A", 0),
    ("split_k", "complex64", "SCC", "AB", -1),
    ("strassen", "complex128", "CCC", "B", 1),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "dtype", "orders", "conjugated", "beta"), COMPLEX_CASES)
def test_complex_products_are_exact(name: str, dtype: str, orders: str, conjugated: str, beta: int) -> None:
    m, k, n = 17, 23, 19
    generator = np.random.default_rng(5)
    whole = [generator.integers(-4, 5, s) + 1j * generator.integers(-4, 5, s) for s in ((m, k), (k, n), (m, n))]
    a, b, c = (layout(x.astype(dtype), order) for x, order in zip(whole, orders, strict=True))
    if beta == 0:
        c[...] = np.nan
    x, y = (z.conj() if letter in conjugated else z for letter, z in zip("AB", whole, strict=False))
    wanted = 2 * (x @ y) + (beta * whole[2] if beta else 0)
    loaded = load(name)
    schedule = prepare_complex((Level(loaded.scheme, loaded.schedule),), conjugated)
    columns = frozenset(letter for letter, order in zip("ABC", orders, strict=True) if order == "F")
    placement = place_schedule(schedule, m, k, n, c.real.itemsize, columns)
    assert placement.strips and placement.core[0]
    (u, ui), (v, vi), (w, wi) = (matrix_of(array).parts for array in (a, b, c))
    number: Any = c.real.dtype.type
    execute(EmulatedExecutor(), placement, Call(u, v, w, number(2), number(beta), imaginary=(ui, vi, wi)))
    np.testing.assert_array_equal(c, wanted)
    np.testing.assert_array_equal(a, whole[0])
    np.testing.assert_array_equal(b, whole[1])
