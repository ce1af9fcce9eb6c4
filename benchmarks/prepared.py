"""Products of digits with a prepared operand beside the plain calls and the libraries: the same bits, and what preparing saves.

Every way is checked on integers and, bit by bit against the plain call, on normal data; then all are timed in shuffled rounds. Preparing
itself is timed, too: after how many calls it has paid is its time over what a call saves.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import cupy
from common import Call, classical, median, need_gpu, queued, save

import bilinear

LEVELS: tuple[tuple[str, ...], ...] = ((), ("winograd",))
ROUNDS, IN_A_ROW = 7, 2
Row = dict[str, Any]


def measure(n: int, products: str) -> Row:
    """One size and representation, every level and side."""
    dtype = "float32" if products in ("pairs", "residues7", "residues8", "residues9") else "float64"
    draw = cupy.random.default_rng(7)
    integers = [draw.integers(-15, 16, (n, n)).astype(dtype) for _ in "AB"]
    a, b = (draw.standard_normal((n, n), dtype=dtype) for _ in "AB")
    c, exact = cupy.empty((n, n), dtype), cupy.matmul(*integers)
    calls: dict[str, Call] = classical(a, b, c)
    right, kept_bytes = {}, {}
    for levels in LEVELS:
        plan = bilinear.plan(n, n, n, dtype, device="h200", levels=levels, products=products)
        plain = plan.chosen.name
        calls[plain] = partial(bilinear.matmul, a, b, c, plan=plan)
        calls[plain]()
        wanted = c.copy()
        for side in ("left", "right"):
            name, is_left = f"{plain}, {side} prepared", side == "left"
            rows, columns = (None, n) if is_left else (n, None)
            prepare = partial(bilinear.prepare, plan=plan, check=False, rows=rows, columns=columns)
            own = prepare(integers[0 if is_left else 1])
            c[...] = cupy.nan
            bilinear.matmul(own if is_left else integers[0], integers[1] if is_left else own, c)
            is_exact = bool((c == exact).all())
            kept = prepare(a if is_left else b)
            calls[name] = partial(bilinear.matmul, kept if is_left else a, b if is_left else kept, c)
            c[...] = cupy.nan
            calls[name]()
            right[name], kept_bytes[name] = is_exact and bool((c == wanted).all()), kept.bytes
            calls[f"{name}: preparing"] = partial(prepare, a if is_left else b)
    ms = {name: round(median(values), 4) for name, values in queued(calls, ROUNDS, IN_A_ROW).items()}
    library = min(ms[name] for name in classical(a, b, c))
    ratio = {name: round(library / ms[name], 3) for name in ms if "preparing" not in name}
    return {"n": n, "products": products, "ms": ms, "ratio": ratio, "right": right, "bytes": kept_bytes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="4096,8192", help="comma-separated")
    parser.add_argument("--products", default="pairs,residues14", help="comma-separated")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need_gpu()
    rows = []
    for n in map(int, options.sizes.split(",")):
        for products in options.products.split(","):
            row = measure(n, products)
            rows.append(row)
            for name, ms in row["ms"].items():
                wrong = "" if row["right"].get(name, True) else "WRONG"
                print(f"{n:6} {name:50} {ms:9.3f} ms {row['ratio'].get(name, float('nan')):6.2f}x {wrong}", flush=True)
            cupy.get_default_memory_pool().free_all_blocks()
    save("prepared", rows, options.json)
    if not all(all(row["right"].values()) for row in rows):
        raise SystemExit("a result is wrong")


if __name__ == "__main__":
    main()
