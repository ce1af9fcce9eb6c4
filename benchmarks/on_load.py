"""Float32 products whose loader cuts A and B (`pairs_on_load`) beside cublasSgemm and the other libraries: exactness, speed, errors.

Every way is first checked on integers of 5 bits into NaN: square matrices, and odd extents in every order of A, B and C, with alpha and
beta. Times are medians of shuffled rounds, all launches timed, with workspace="none"; the product alone is timed, too. Errors are those of
some rows and columns beside float64, by norm and the largest of an element relative to |A||B|, on normal data and on data of nine decades.
At the end stand rates for the description of a device, whose `digits` take them under "pairs_on_load".
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from common import Call, classical, cupy, need_gpu, queued, save
from digits import errors, normal

import bilinear
from bilinear.ir.matrix import layout_of
from bilinear.ir.tile import LOADING_TILES
from bilinear.methods.digits.binding import digit_multiply_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.geometry import geometry_of
from bilinear.methods.digits.pairs import LoadingMultiply
from bilinear.planner.device_files import load_device

NAME = "pairs_on_load"
ROUNDS, IN_A_ROW = 7, 2
START, WRITING = 0.6, 3.7
"""Microseconds that a tile takes beyond its product, and to write C: those of `pairs` on an H200."""
UNEVEN, LOADING = 6.0, 0.4
"""More microseconds for rows of C that are no multiples of 16 bytes, and the share of time for those of each operand: from 100 shapes."""
ODD = (301, 1093, 517)
Row = dict[str, Any]


def integers(shape: tuple[int, int], seed: int, order: str = "C") -> Any:
    """Integers of 5 bits: sums of up to 2^15 products are exact in float32, and in a digit."""
    draw = cupy.random.default_rng(seed).integers(-15, 16, shape).astype("float32")
    return cupy.array(draw, order=order)


def odd_extents() -> dict[str, bool]:
    """Whether products of odd extents are exact: every order of A, B and C, rows that begin at multiples of 16 bytes and elsewhere."""
    found = {}
    m, k, n = ODD
    for orders, aligned in product(product("CF", repeat=3), (False, True)):
        extents = [-(-x // 4) * 4 for x in (m, k, n)] if aligned else [m, k, n]
        wide = [(extents[0], extents[1]), (extents[1], extents[2]), (extents[0], extents[2])]
        views = [integers(shape, seed, order) for seed, (shape, order) in enumerate(zip(wide, orders, strict=True))]
        a, b, c = views[0][:m, :k], views[1][:k, :n], views[2][:m, :n]
        wanted = 3 * (a.astype("float64") @ b.astype("float64")) - 2 * c
        kept = a.copy(), b.copy()
        plan = bilinear.plan(m, k, n, "float32", device="h200", products=NAME, workspace=0)
        bilinear.matmul(a, b, c, plan=plan, alpha=3, beta=-2, workspace="none")
        untouched = bool((a == kept[0]).all()) and bool((b == kept[1]).all())
        found[f"{''.join(orders)}{' aligned' if aligned else ''}"] = bool((c == wanted).all()) and untouched
    a, b, c = integers((m, k), 1), integers((k, n), 2), cupy.empty((m, n), "float32")
    a[5, 7] = cupy.inf
    bilinear.matmul(a, b, c, plan=plan, workspace="none")
    found["an Inf"] = bool((cupy.nan_to_num(c, posinf=3e38, neginf=-3e38) == cupy.nan_to_num(a @ b, posinf=3e38, neginf=-3e38)).all())
    return found


def product_alone(multiply: Any, a: Any, b: Any, c: Any) -> tuple[Call, Call]:
    """The launches of the search for scales, and that of the product alone, after the whole ran once."""
    words = cupy.empty(multiply.workspace, "float32")
    bound = multiply.bound(is_aligned=all(x.data.ptr % 16 == 0 for x in (a, b, c)))

    def run(first: int, last: int) -> None:
        bases = [x.data.ptr for x in (a, b, c, words)]
        with bound.ready(bases, 1.0, 0.0, cupy.cuda.get_current_stream().ptr) as steps:
            for step in steps[first:last]:
                step()

    run(0, 5)
    return partial(run, 0, 3), partial(run, 3, 4)


def in_bands(a: Any, b: Any, c: Any, bands: list[int]) -> dict[str, Call]:
    """The product alone, with blocks of threads in other bands of tiles of rows."""
    usual, found = LOADING_TILES[NAME], {}
    for band in bands:
        LOADING_TILES[NAME] = replace(usual, band=band)
        multiply = LoadingMultiply(layout_of(a), layout_of(b), layout_of(c), Digits((), NAME))
        found[f"product, bands of {band}"] = product_alone(multiply, a, b, c)[1]
    LOADING_TILES[NAME] = usual
    return found


def measure(n: int, decades: int, bands: list[int]) -> Row:
    """One size: checked, timed beside the libraries, and its errors."""
    a, b, c = integers((n, n), 1), integers((n, n), 2), cupy.empty((n, n), "float32")
    wanted = cupy.matmul(a, b)  # exact: sums stay below 2^24
    own: dict[str, Call] = {}
    for name in (NAME, "pairs"):
        plan = bilinear.plan(n, n, n, "float32", device="h200", products=name)
        own[name] = partial(bilinear.matmul, a, b, c, plan=plan, workspace="none" if name == NAME else None)
    exact = {}
    for name, call in own.items():
        c[...] = cupy.nan
        call()
        exact[name] = bool((c == wanted).all())
    a[...], b[...] = normal(n, decades, 1), normal(n, decades, 2)
    multiply = digit_multiply_of(layout_of(a), layout_of(b), layout_of(c), Digits((), NAME))
    if multiply is None:
        raise SystemExit("this GPU lacks the instructions: an H100 or an H200 has them")
    search, alone = product_alone(multiply, a, b, c)
    library = classical(a, b, c)
    timed = {**library, **own, "search": search, "product alone": alone, **in_bands(a, b, c, bands)}
    ms = {name: round(median(values), 4) for name, values in queued(timed, ROUNDS, IN_A_ROW).items()}
    found = {}
    for name, call in {**library, **own}.items():
        c[...] = cupy.nan
        call()
        found[name] = errors(a, b, c)
    best = min(ms[name] for name in library)
    beside = {name: {"fastest": round(best / ms[name], 3), "cublas": round(ms["cublas"] / ms[name], 3)} for name in own if "cublas" in ms}
    words = multiply.workspace * 4
    return {"n": n, "decades": decades, "ms": ms, "ratio": beside, "errors": found, "exact": exact, "workspace": words}


def rates(rows: list[Row]) -> Row:
    """What a description says of these products, from the times of the products alone."""
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    bandwidth = load_device("h200").bandwidth * 1e9
    table, shares = [], []
    for row in (row for row in rows if not row["decades"]):
        n, g = row["n"], geometry_of((), (row["n"],) * 3, NAME)
        waves = -(-g.tiles // processors)
        seconds = row["ms"]["product alone"] * 1e-3 / waves - (START + WRITING) * 1e-6
        tile = LOADING_TILES[NAME]
        table.append([float(n), round(2 * tile.m * tile.n * tile.k * g.slices * processors / seconds / 1e12, 1)])
        shares.append(2 * n * n * 4 / (row["ms"]["search"] * 1e-3) / bandwidth)
    none = [[1.0, 1.0]]  # nothing is expanded, and nothing is put together
    own = {
        "product": table,
        "start": START,
        "direct": WRITING,
        "uneven": 6.0,
        "loading": 0.4,
        "tail": 0.0,
        "search": round(median(shares), 2),
    }
    return {NAME: {**own, "expansion": none, "recomposition": none, "launch": 2.0}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="2048,4096,8192,16384", help="comma-separated")
    parser.add_argument("--decades", default="0,9", help="comma-separated: of the data in every row")
    parser.add_argument("--bands", default="", help="comma-separated: also time the product alone in bands of so many tiles of rows")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    need_gpu()
    odd = odd_extents()
    wrong = [name for name, is_exact in odd.items() if not is_exact]
    print(f"odd extents {'x'.join(map(str, ODD))}: {len(odd) - len(wrong)} of {len(odd)} exact", *wrong, flush=True)
    rows = []
    for n, decades in product(map(int, asked.sizes.split(",")), map(int, asked.decades.split(","))):
        row = measure(n, decades, [] if decades else [int(band) for band in filter(None, asked.bands.split(","))])
        rows.append(row)
        for name, ms in row["ms"].items():
            norm, element = row["errors"].get(name, (float("nan"),) * 2)
            told = "" if row["exact"].get(name, True) else "WRONG"
            ratio = " ".join(f"x{x:.2f} of {what}" for what, x in row["ratio"].get(name, {}).items())
            rate = f"{2e-9 * n**3 / ms:.0f} TFLOP/s" if name != "search" else ""
            print(f"{n:6} {decades} {name:14} {ms:9.3f} ms {rate:12} {norm:.2e} {element:.2e} {ratio} {told}", flush=True)
        cupy.get_default_memory_pool().free_all_blocks()
    print(json.dumps(rates(rows), indent=1))
    save("on_load", [{"odd": odd}, *rows], asked.json)


if __name__ == "__main__":
    main()
