"""Strassen's sums of A and B formed by a kernel before the products, or while the product kernel copies its slices to shared memory.

One level, seven products into blocks of their own, so that what follows is the same. Three loaders: `registers` reads both terms, holds
them while a slice is multiplied, and stores their sum; `landing` copies both asynchronously, and each thread adds what it copied when that
landed; `fragments` adds when operands are read from shared memory. Each changes the text of the product kernel, and is exact on integers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from common import Call, cupy, interleaved, median, need_gpu, parser_of, save

from bilinear.backends.loaded_kernels import load_function
from bilinear.codegen.cuda.nvrtc import build_all
from bilinear.codegen.cuda.target import target_of
from bilinear.codegen.render import render
from bilinear.frontend import load
from bilinear.ir.element import ELEMENTS
from bilinear.ir.kernel import Argument, Destination, Multiplication, ProductKernel
from bilinear.ir.tile import TILES, ProductTile

SIZES, ROUNDS = (2048, 4096, 8192, 16384), 5
COPIES = """struct Copies {
    static constexpr int MOST = LOADS_A + LOADS_B, OTHER = STAGES * (SLICE_A + SLICE_B);    // where the second terms of a slice begin
    Lanes one[MOST], two[MOST];
    Place places[MOST];
    Real signs[MOST];
    int count = 0;
    template <int COUNT> __device__ __forceinline__ void start(Index plus, Real sign, Place to, const Real* from, int inside, int)
    {
#ifdef HELD
        #pragma unroll
        for (int x = 0; x < COUNT; ++x) one[count].element[x] = two[count].element[x] = Real(0);
        if (inside) fetch<COUNT>(one[count], from);
        if (inside && sign != Real(0)) fetch<COUNT>(two[count], from + plus);
        signs[count] = sign;
        places[count++] = to;
#else
        copy<COUNT>(to, from, inside);
        if (sign != Real(0)) copy<COUNT>(behind(to, OTHER), from + plus, inside);
#endif
    }
    template <int COUNT> static __device__ __forceinline__ void fetch(Lanes& found, const Real* from)
    {
        if (COUNT == LANES) found = *reinterpret_cast<const Lanes*>(from);
        else found.element[0] = from[0];
    }
#ifdef __CUDA_ARCH__
    static __device__ __forceinline__ Real* at(Place place) { return static_cast<Real*>(__cvta_shared_to_generic(place)); }
    template <int COUNT> static __device__ __forceinline__ void copy(Place to, const Real* from, int inside)
    {
        const int bytes = int(sizeof(Real)) * inside;
        if (COUNT == LANES) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
        else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" :: "r"(to), "l"(from), "n"(sizeof(Real)), "r"(bytes) : "memory");
    }
    __device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
    __device__ __forceinline__ void landed() { asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory"); }
#else
    static Real* at(Place place) { return place; }
    template <int COUNT> static void copy(Place to, const Real* from, int inside)
    {
        for (int x = 0; x < COUNT; ++x) to[x] = x < inside ? from[x] : Real(0);
    }
    void commit() {}
    void landed() {}
#endif
    template <int COUNT> static __device__ __forceinline__ void add(Place place, Real sign)
    {
        Real* const to = at(place);
        if (COUNT == LANES) {
            Lanes sum = *reinterpret_cast<Lanes*>(to);
            const Lanes other = *reinterpret_cast<const Lanes*>(to + OTHER);
            #pragma unroll
            for (int x = 0; x < LANES; ++x) sum.element[x] += sign * other.element[x];
            *reinterpret_cast<Lanes*>(to) = sum;
        } else to[0] += sign * to[OTHER];
    }
    __device__ __forceinline__ void wait()
    {
#ifdef HELD
        #pragma unroll
        for (int i = 0; i < MOST; ++i) {
            if (i >= count) continue;
            Real* const to = at(places[i]);
            if (CHUNK_A > 1 || i >= LOADS_A) {
                #pragma unroll
                for (int x = 0; x < LANES; ++x) one[i].element[x] += signs[i] * two[i].element[x];
                *reinterpret_cast<Lanes*>(to) = one[i];
            } else to[0] = one[i].element[0] + signs[i] * two[i].element[0];
        }
        count = 0;
#else
        landed();
#endif
    }
};
"""
LAND = """
    auto land = [&](int at) {    // what this thread copied becomes the sum
        const int slice = at * (SLICE_A + SLICE_B);
        #pragma unroll
        for (int e = 0; e < LOADS_A; ++e)
            if (other.left != Real(0))
                copies.add<COPIED_A>(
                    behind(place_a[e % PLACES_A], slice + slot_a<ROWS_ARE>(e / PLACES_A * PLACES_A * HOP_A, 0)), other.left);
        #pragma unroll
        for (int e = 0; e < LOADS_B; ++e)
            if (other.right != Real(0))
                copies.add<COPIED_B>(
                    behind(place_b[e % PLACES_B], slice + slot_b<ROWS_ARE>(e / PLACES_B * PLACES_B * HOP_B, 0)), other.right);
    };
"""
SIMT_SUMS = """
        if (other.left != Real(0)) {
            #pragma unroll
            for (int q = 0; q < TALL; ++q) {
                const Lanes more = *reinterpret_cast<const Lanes*>(&from_a[Copies::OTHER + slot_a<ROWS_ARE>(q * LANES_M * LANES, step)]);
                #pragma unroll
                for (int x = 0; x < LANES; ++x) left[half][q].element[x] += other.left * more.element[x];
            }
        }
        if (other.right != Real(0)) {
            #pragma unroll
            for (int q = 0; q < WIDE; ++q) {
                const Lanes more = *reinterpret_cast<const Lanes*>(&from_b[Copies::OTHER + slot_b<ROWS_ARE>(step, q * LANES_N * LANES)]);
                #pragma unroll
                for (int x = 0; x < LANES; ++x) right[half][q].element[x] += other.right * more.element[x];
            }
        }
"""
MMA_SUMS = """
        if (other.right != Real(0)) {
            #pragma unroll
            for (int s = 0; s < WIDE; ++s) {
                #pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int at = Copies::OTHER + first_b[h] + slot_b<ROWS_ARE>(step * STEP_K + h, 0) + s * 8 * LANES;
                    const Lanes more = *reinterpret_cast<const Lanes*>(slice + at);
                    #pragma unroll
                    for (int x = 0; x < LANES; ++x) right[half][s][h].element[x] += other.right * more.element[x];
                }
            }
        }
        if (other.left != Real(0)) {
            #pragma unroll
            for (int r = 0; r < TALL; ++r) {
                const int at = Copies::OTHER + slot_a<ROWS_ARE>(r * 8, 0) + (step / REPEATS) * REPEATS * STEP_K;
                const Pair more = *reinterpret_cast<const Pair*>(from_a + at);
                #pragma unroll
                for (int x = 0; x < 2; ++x) left[half][r].element[x] += other.left * more.element[x];
            }
        }
"""
KINDS = "registers", "landing", "fragments"
Place = tuple[int, int, int]


def product_kernel(name: str, dtype: str, tile: ProductTile, operands: list[tuple[Place, Place]]) -> ProductKernel:
    """Seven products of blocks of A or S and of B or T into the seven blocks of M."""
    spaces = ("A", "S", "B", "T", "M")
    arguments = [Argument("pointer", x) for x in spaces] + [Argument("index", f"{x}_{way}") for x in spaces for way in ("rs", "cs")]
    arguments += [Argument("index", x) for x in ("bm", "bk", "bn", "first")] + [Argument("scalar", x) for x in ("alpha", "beta")]
    products = tuple(Multiplication(left, right, number, 1) for number, (left, right) in enumerate(operands))
    results = tuple(Destination(0, number, 0, 1, "0") for number in range(len(operands)))
    return ProductKernel(name, "products", ELEMENTS[dtype], tuple(arguments), tile, ("A", "S"), ("B", "T"), ("M",), products, results)


def changed(text: str, old: str, new: str) -> str:
    """The text with a part of it replaced, which must be there."""
    if old not in text:
        raise ValueError(f"the product kernel has no longer the line {old!r}")
    return text.replace(old, new)


def with_sums(text: str, kind: str, second: list[tuple[int, int, int, int, int, int]]) -> str:
    """The kernel's text with a loader that adds a second term: for each product the sign of the left one and how many rows and columns of
    blocks it is away, and the same of the right one. Even rows alone."""
    rows = ", ".join(f"{{ {', '.join(map(str, one))} }}" for one in second)
    table = "struct Other { Real left; int down, across; Real right; int lower, further; };\n"
    table += f"__device__ const Other OTHERS[7] = {{ {rows} }};\n"
    begin, end = text.index("struct Copies"), text.index("// How many elements after a multiple of 16 bytes")
    text = text[:begin] + f"#define {kind.upper()}\n" + changed(COPIES, "HELD", "REGISTERS") + table + text[end:]
    for side, mark in (
        ("a", "COPIED_A>(behind"),
        ("a", "LANES>(behind(to, TILE_K)"),
        ("b", "COPIED_B>(behind"),
        ("b", "LANES>(behind(to, TILE_N)"),
    ):
        sign = {"a": "left", "b": "right"}[side]
        text = changed(text, f"copies.start<{mark}", f"copies.start<{mark.replace('(behind', f'(plus_{side}, other.{sign}, behind', 1)}")
    places = "const Other other = OTHERS[blockIdx.y];\n    const Index plus_a = other.down * bm * a_rs + other.across * bk,"
    places += " plus_b = other.lower * bk * b_rs + other.further * bn;"
    text = changed(text, "    Copies copies;", f"    {places}\n    Copies copies;")
    text = text[: text.index("    else if (TAKES_UNEVEN")] + text[text.rindex("}") :]
    if kind == "landing":
        text = changed(
            text,
            "    #pragma unroll\n    for (int s = 0; s < STAGES - 1; ++s) fetch(s);",
            f"{LAND}    #pragma unroll\n    for (int s = 0; s < STAGES - 1; ++s) fetch(s);",
        )
        text = changed(
            text, "    copies.wait();\n    __syncthreads();\n    load(", "    copies.wait();\n    land(0);\n    __syncthreads();\n    load("
        )
        text = changed(
            text,
            "                copies.wait();\n",
            "                copies.wait();\n                land(stage + 1 == STAGES ? 0 : stage + 1);\n",
        )
    if kind == "fragments":
        sums = SIMT_SUMS if "LANES_M" in text else MMA_SUMS
        text = changed(text, "    };\n    auto multiply = ", f"{sums}    }};\n    auto multiply = ")
    return text


def terms_of(forms: Any) -> list[list[tuple[int, int, int]]]:
    """The blocks of each form by coefficient, row and column, a positive one first."""
    return [sorted(((int(c), *divmod(i, 2)) for i, c in form), reverse=True) for form in forms]


LEFT, RIGHT = (terms_of(table) for table in load("strassen").scheme.tables[:2])
SUMS = tuple([p for p, terms in enumerate(forms) if len(terms) == 2] for forms in (LEFT, RIGHT))
"""The products whose left, and those whose right operand is a sum."""


def place(terms: list[tuple[int, int, int]], sums: list[int], product: int) -> Place:
    """Where the plain kernel reads an operand: a block of the matrix, or the sum's own."""
    return (1, sums.index(product), 0) if product in sums else (0, *terms[0][1:])


def away(terms: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    """The sign of the second term, and how far it is from the first."""
    if len(terms) == 1:
        return 0, 0, 0
    (_, row, column), (sign, other_row, other_column) = terms
    return sign, other_row - row, other_column - column


def kernels(dtype: str) -> dict[str, tuple[ProductKernel, str, int]]:
    """Every variant by name: its kernel, its text, and the bytes of shared memory that it takes."""
    plain = [(place(LEFT[p], SUMS[0], p), place(RIGHT[p], SUMS[1], p)) for p in range(7)]
    direct = [((0, *LEFT[p][0][1:]), (0, *RIGHT[p][0][1:])) for p in range(7)]
    second = [(*away(LEFT[p]), *away(RIGHT[p])) for p in range(7)]
    found = {}
    for size in ("usual", "large"):
        tile = TILES[dtype][size]
        kernel = product_kernel(f"plain_{size}", dtype, tile, plain)
        found[f"plain {size}"] = (kernel, render(kernel), kernel.shared_bytes)
        for kind in KINDS:
            own = replace(tile, stages=2)
            if kind != "registers":  # twice the memory
                own = replace(tile, k=16, stages=3, blocks=min(tile.blocks, 3 if dtype == "float32" else 2))
            kernel = product_kernel(f"{kind}_{size}", dtype, own, direct)
            found[f"{kind} {size}"] = (kernel, with_sums(render(kernel), kind, second), kernel.shared_bytes * (1 + (kind != "registers")))
    return found


def sums_of(x: Any, forms: list[list[tuple[int, int, int]]], products: list[int], out: Any) -> Call:
    """All sums of a matrix in one kernel, which reads every block once."""
    half = x.shape[0] // 2
    blocks = [x[i * half : (i + 1) * half, j * half : (j + 1) * half] for i in (0, 1) for j in (0, 1)]
    lines = (f"s{n} = {' + '.join(f'({c}) * b{2 * i + j}' for c, i, j in forms[p])}" for n, p in enumerate(products))
    kernel = cupy.ElementwiseKernel(
        ", ".join(f"T b{i}" for i in range(4)), ", ".join(f"T s{n}" for n in range(len(products))), "; ".join(lines), "sums"
    )
    return partial(kernel, *blocks, *(out[n * half : (n + 1) * half] for n in range(len(products))))


def measure(n: int, dtype: str, built: dict[str, tuple[ProductKernel, Any]]) -> dict[str, Any]:
    """Milliseconds of the sums, and of the products by every variant."""
    half, generator = n // 2, cupy.random.default_rng(1)
    a, b = (generator.integers(-2, 3, (n, n)).astype(dtype) for _ in range(2))
    s, t = (cupy.empty((len(sums) * half, half), dtype) for sums in SUMS)
    m = cupy.empty((7 * half, half), dtype)
    form_a, form_b = sums_of(a, LEFT, SUMS[0], s), sums_of(b, RIGHT, SUMS[1], t)

    def sums() -> None:
        form_a()
        form_b()

    values = {"bm": half, "bk": half, "bn": half, "first": 0}
    for name, x in zip("ASBTM", (a, s, b, t, m), strict=True):
        values |= {name: x.data.ptr, f"{name}_rs": x.strides[0] // x.itemsize, f"{name}_cs": 1}
    calls: dict[str, Call] = {"sums": sums}
    for name, (kernel, function) in built.items():
        scalars = {"alpha": np.dtype(dtype).type(1), "beta": np.dtype(dtype).type(0)}
        arguments = tuple(scalars[x.name] if x.kind == "scalar" else np.int64(values[x.name]) for x in kernel.arguments)
        tiles = -(-half // kernel.tile.m) * -(-half // kernel.tile.n)
        calls[name] = partial(function, (tiles, 7), (kernel.tile.threads,), arguments, shared_mem=function.shared)
    sums()
    wanted, exact = cupy.empty_like(m), {}
    calls["plain usual"]()
    wanted[...] = m
    for p in range(7):
        left, right = (
            sum(c * x[i * half : (i + 1) * half, j * half : (j + 1) * half] for c, i, j in forms[p]) for x, forms in ((a, LEFT), (b, RIGHT))
        )
        exact[f"M{p + 1}"] = bool((wanted[p * half : (p + 1) * half] == left @ right).all())
    for name in built:
        m[...] = cupy.nan
        calls[name]()
        exact[name] = bool((m == wanted).all())
    for x in (a, b):
        x[...] = generator.standard_normal(x.shape, dtype=dtype)
    times = interleaved(calls, ROUNDS if n < 16384 else 2)
    ms = {name: round(median(found), 4) for name, found in times.items()}
    before = ms["sums"] + min(ms[name] for name in ms if name.startswith("plain"))
    ratios = {name: round(before / ms[name], 3) for name in ms if name.split()[0] in KINDS}
    return {"n": n, "dtype": dtype, "ms": ms, "times as fast": ratios, "wrong": [name for name, one in exact.items() if not one]}


class Launched:
    """A function with its shared memory."""

    def __init__(self, function: Any, shared: int) -> None:
        self.function, self.shared = function, shared

    def __call__(self, *rest: Any, **named: Any) -> None:
        self.function(*rest, **named)


def main() -> None:
    options = parser_of(__doc__).parse_args()
    need_gpu()
    target, rows = target_of(cupy.cuda.Device().compute_capability), list[dict[str, Any]]()
    for dtype in ("float64", "float32"):
        found = kernels(dtype)
        images = build_all([(text, kernel.name, target) for kernel, text, _ in found.values()])
        built = {}
        for (name, (kernel, _, shared)), image in zip(found.items(), images, strict=True):
            print(dtype, name, image.resources, flush=True)
            built[name] = (kernel, Launched(load_function(image.image, kernel.name, shared), shared))
        for n in SIZES:
            rows.append(measure(n, dtype, built))
            print(rows[-1], flush=True)
            save("loader_sums", rows, options.json) if options.json else None
            cupy.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
