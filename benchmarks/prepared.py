"""Products with a prepared operand of digits or residues beside plain calls of the same plan and the libraries: checked, then timed.

Every way is first checked: on integers of 5 bits into NaN it is exact, with alpha and beta; on normal data its bits are those of the plain
call; so they are in a CUDA graph, on odd extents in either order of A and B, and with a batch of the other operand. An Inf in either
operand gives what the plain call gives, and a changed operand is refused.

Times are medians of shuffled rounds. `plain`, `prepared` and the libraries are timed on the device, calls queued; `called` are times
between events with the host's, where `prepared, checked` also looks at every call whether the operand has changed. `prepare` is the time to
cut the operand and to read the flag, with a wait; it has paid after `pays_after` calls, or never (null).

`--levels winograd` puts block levels above; several are joined by +.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from common import Call, classical, cupy, interleaved, need_gpu, queued, save

import bilinear
from bilinear.errors import BilinearError
from bilinear.ir.residue_tile import RESIDUE_TILES
from bilinear.planner.plan import Plan

ROUNDS, IN_A_ROW = 7, 2
ODD = (301, 1093, 517)
SIDES = "left", "right"
Row = dict[str, Any]
Prepared = Any


def dtype_of(products: str) -> str:
    """The type that these products stand for."""
    return RESIDUE_TILES[products].of.name if products in RESIDUE_TILES else "float32"


def integers(shape: tuple[int, ...], seed: int, dtype: str, order: str = "C") -> Any:
    """Integers of 5 bits: sums of up to 2^15 products are exact in float32, and in a digit."""
    return cupy.array(cupy.random.default_rng(seed).integers(-15, 16, shape).astype(dtype), order=order)


def normal(shape: tuple[int, ...], seed: int, dtype: str) -> Any:
    return cupy.random.default_rng(seed).standard_normal(shape, dtype=dtype)


def kept(side: str, a: Any, b: Any, plan: Plan, check: bool = False) -> Prepared:
    """The operand of this side, prepared."""
    if side == "left":
        return bilinear.prepare(a, columns=plan.problem.n, plan=plan, check=check)
    return bilinear.prepare(b, rows=plan.problem.m, plan=plan, check=check)


def call_of(own: Prepared, a: Any, b: Any, c: Any, **options: Any) -> Callable[[], Any]:
    """The call with what is kept."""
    left, right = (own, b) if own.side == "A" else (a, own)
    return partial(bilinear.matmul, left, right, c, **options)


def same(x: Any, y: Any) -> bool:
    """Whether two arrays are equal bit by bit."""
    return bool((x.view(cupy.uint8) == y.view(cupy.uint8)).all())


def on_integers(side: str, a: Any, b: Any, plan: Plan) -> bool:
    """Whether products of these integers are exact, into NaN, and with alpha and beta."""
    wanted = a.astype("float64") @ b.astype("float64")
    own, c = kept(side, a, b, plan), cupy.full(wanted.shape, cupy.nan, a.dtype)
    call_of(own, a, b, c)()
    exact = bool((c == wanted).all())
    c[...] = 7
    call_of(own, a, b, c, alpha=3, beta=-2)()
    return exact and bool((c == 3 * wanted - 14).all())


def bits(side: str, a: Any, b: Any, plan: Plan) -> bool:
    """Whether a call with what is kept gives the bits of the plain call, twice."""
    own, shape = kept(side, a, b, plan), (a.shape[0], b.shape[1])
    c, plain = (cupy.full(shape, cupy.nan, a.dtype) for _ in range(2))
    bilinear.matmul(a, b, plain, plan=plan)
    found = []
    for _ in range(2):
        c[...] = cupy.nan
        call_of(own, a, b, c)()
        found.append(same(c, plain))
    return all(found)


def in_a_graph(side: str, a: Any, b: Any, plan: Plan) -> bool:
    """Whether a captured call gives the bits of the plain call, for two values of the other operand."""
    own, shape = kept(side, a, b, plan), (a.shape[0], b.shape[1])
    c, plain = (cupy.full(shape, cupy.nan, a.dtype) for _ in range(2))
    space = cupy.empty(plan.chosen.workspace or 0, cupy.uint8)
    call = call_of(own, a, b, c, workspace=space)
    call()
    stream, found = cupy.cuda.Stream(non_blocking=True), []
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        call()
        graph = stream.end_capture()
    other = b if side == "left" else a
    for _ in range(2):
        c[...] = cupy.nan
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        bilinear.matmul(a, b, plain, plan=plan)
        found.append(same(c, plain))
        other *= 3
    return all(found)


def in_a_batch(side: str, a: Any, b: Any, plan: Plan) -> bool:
    """Whether the products of a batch of three of the other operand have the bits of plain calls."""
    own = kept(side, a, b, plan)
    batch = cupy.stack([x * (b if side == "left" else a) for x in (1, 3, -5)])
    c = cupy.full((3, a.shape[0], b.shape[1]), cupy.nan, a.dtype)
    call_of(own, batch, batch, c)()
    pairs = [(a, x) if side == "left" else (x, b) for x in batch]
    return all(same(c[i], bilinear.matmul(*pair, plan=plan)) for i, pair in enumerate(pairs))


def with_an_inf(side: str, a: Any, b: Any, plan: Plan) -> bool:
    """Whether an Inf in the prepared operand, and one in the other, give what the plain call gives."""
    found = []
    for number in range(2):
        pair = [a.copy(), b.copy()]
        pair[number][5, 7] = cupy.inf
        left, right = pair
        own = kept(side, left, right, plan)
        c = call_of(own, left, right, None)()
        found += [same(c, bilinear.matmul(left, right, plan=plan)), (own.bytes == 0) is (number == SIDES.index(side))]
    return all(found)


def is_refused(side: str, a: Any, b: Any, plan: Plan) -> bool:
    """Whether a changed operand is refused."""
    own, mine = kept(side, a, b, plan, check=True), a if side == "left" else b
    call_of(own, a, b, None)()
    mine[3, 2] += 1
    try:
        call_of(own, a, b, None)()
    except BilinearError as error:
        return error.diagnostics[0].code == "E537"
    return False


def odd(products: str, levels: tuple[str, ...], side: str) -> dict[str, bool]:
    """What is right on odd extents."""
    dtype, (m, k, n) = dtype_of(products), ODD
    plan = bilinear.plan(m, k, n, dtype, device="h200", levels=levels, products=products)
    found = {}
    for orders in product("CF", repeat=2):
        a, b = (integers(shape, seed, dtype, order) for seed, (shape, order) in enumerate(zip(((m, k), (k, n)), orders, strict=True)))
        found[f"integers, {''.join(orders)}"] = on_integers(side, a, b, plan)
        a, b = (cupy.array(normal(x.shape, 5, dtype), order=order) for x, order in zip((a, b), orders, strict=True))
        found[f"bits, {''.join(orders)}"] = bits(side, a, b, plan)
    for name, check in (("a graph", in_a_graph), ("a batch", in_a_batch), ("an Inf", with_an_inf), ("a change", is_refused)):
        found[name] = check(side, normal((m, k), 6, dtype), normal((k, n), 7, dtype), plan)
    return found


def measure(n: int, products: str, levels: tuple[str, ...], side: str) -> Row:
    """One size: checked, and timed beside the plain call and the libraries."""
    dtype = dtype_of(products)
    plan = bilinear.plan(n, n, n, dtype, device="h200", levels=levels, products=products)
    a, b, c = integers((n, n), 1, dtype), integers((n, n), 2, dtype), cupy.empty((n, n), dtype)
    right = {"integers": on_integers(side, a, b, plan)}
    a[...], b[...] = normal((n, n), 3, dtype), normal((n, n), 4, dtype)
    right["bits"] = bits(side, a, b, plan)
    own, checked = (kept(side, a, b, plan, check=check) for check in (False, True))
    cutting = []
    for _ in range(ROUNDS):
        cupy.cuda.Device().synchronize()
        began = perf_counter()
        kept(side, a, b, plan)
        cutting.append(1e3 * (perf_counter() - began))
    mine: dict[str, Call] = {"plain": partial(bilinear.matmul, a, b, c, plan=plan), "prepared": call_of(own, a, b, c)}
    libraries = classical(a, b, c)
    ms = {name: round(median(times), 4) for name, times in queued({**libraries, **mine}, ROUNDS, IN_A_ROW).items()}
    all_calls: dict[str, Call] = {**mine, "prepared, checked": call_of(checked, a, b, c)}
    called = {name: round(median(times), 4) for name, times in interleaved(all_calls, ROUNDS, 1).items()}
    best, saved = min(ms[name] for name in libraries), ms["plain"] - ms["prepared"]
    return {
        "n": n,
        "products": products,
        "levels": list(levels),
        "side": side,
        "dtype": dtype,
        "right": right,
        "bytes": own.bytes,
        "ms": ms,
        "called": called,
        "prepare": round(median(cutting), 4),
        "saves": round(saved / ms["plain"], 4),
        "pays_after": round(median(cutting) / saved, 1) if saved > 0 else None,
        "ratio": {name: round(best / ms[name], 3) for name in mine},
    }


def tell(row: Row) -> None:
    """Print a line for a row."""
    ms, called, name = row["ms"], row["called"], " ".join([row["products"], *row["levels"]])
    wrong = [f"WRONG: {what}" for what, is_right in row["right"].items() if not is_right]
    print(
        f"{row['n']:6} {name:18} {row['side']:5} plain {ms['plain']:9.3f} ms  prepared {ms['prepared']:9.3f} ms ({row['saves']:.1%} less;"
        f" x{row['ratio']['plain']:.2f}, x{row['ratio']['prepared']:.2f} of the library)  called {called['plain']:.3f}, "
        f"{called['prepared']:.3f}, checked {called['prepared, checked']:.3f} ms  prepare {row['prepare']:.3f} ms, "
        f"paid after {row['pays_after']} calls  keeps {row['bytes'] / 2**20:.1f} MiB",
        *wrong,
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="2048,4096,8192", help="comma-separated; none of them: an empty text")
    parser.add_argument("--products", default="pairs,residues14", help="comma-separated")
    parser.add_argument("--levels", default="none,winograd", help="comma-separated; several above each other are joined by +")
    parser.add_argument("--sides", default="left,right", help="comma-separated")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    need_gpu()
    levels = [() if text == "none" else tuple(text.split("+")) for text in asked.levels.split(",")]
    ways = list(product(asked.products.split(","), levels, asked.sides.split(",")))
    rows: list[Row] = []
    for way in ways:
        found = odd(*way)
        wrong = [name for name, is_right in found.items() if not is_right]
        print(f"{'x'.join(map(str, ODD))} {way}: {len(found) - len(wrong)} of {len(found)} right", *wrong, flush=True)
        rows.append({"products": way[0], "levels": list(way[1]), "side": way[2], "odd": found})
    for n, way in product((int(text) for text in asked.sizes.split(",") if text), ways):
        rows.append(measure(n, *way))
        tell(rows[-1])
        cupy.get_default_memory_pool().free_all_blocks()
    save("prepared", rows, asked.json)


if __name__ == "__main__":
    main()
