"""Updates of low rank: our tiles, with larger tiles of a thread, and with stores that leave the cache first, beside the libraries.

Every call is checked on integers. The bound is the longer of writing C at a copy's bandwidth and of multiply-adds at the pipes' speed.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import Call, cupy, need_gpu, queued, save
from thin_auto import copy_rate, libraries, matrix

from bilinear.backends.loaded_kernels import load_function
from bilinear.codegen.build import own_target
from bilinear.codegen.cuda.nvrtc import build_all
from bilinear.codegen.cuda.target import target_of
from bilinear.codegen.render import render
from bilinear.ir.element import ELEMENTS
from bilinear.ir.kernel import ThinKernel
from bilinear.ir.matrix import layout_of
from bilinear.ir.thin_tile import THIN_TILES, AnyThinTile, ThinTile
from bilinear.methods.thin.launches import kernel_for
from bilinear.methods.thin.plans import thin_peak
from bilinear.planner.device_files import load_device

N, RANKS, ROUNDS, IN_A_ROW = 8192, (4, 8, 16, 32, 64), 7, 10
LARGER = {
    "float32": (ThinTile(256, 128, 16, 16, 16, 1, 2, 1), ThinTile(256, 128, 8, 16, 16, 1, 2, 1), ThinTile(128, 128, 16, 16, 8, 1, 2, 2)),
    "float64": (ThinTile(128, 64, 8, 16, 16, 1, 2, 2), ThinTile(128, 64, 16, 16, 16, 1, 2, 2)),
}
PLAIN = "if (vector) *reinterpret_cast<Lanes*>(at) = value;"
STREAMED = """if (vector) {
                if (sizeof(Real) == 4) __stcs(reinterpret_cast<float4*>(at), *reinterpret_cast<const float4*>(&value));
                else __stcs(reinterpret_cast<double2*>(at), *reinterpret_cast<const double2*>(&value));
            }"""


def tiles_of(dtype: str) -> list[AnyThinTile]:
    """The tiles for wide results, on pipes and on matrix units."""
    found = (tile for tile in THIN_TILES[dtype].values() if min(tile.m, tile.n) >= 64 and tile.holds(max(RANKS), N, 1))
    return [*found, *LARGER[dtype]]


def text_of(kernel: ThinKernel, streams: bool) -> str:
    text = render(kernel)
    assert PLAIN in text or not streams
    return text.replace(PLAIN, STREAMED) if streams else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need_gpu()
    copy, rows, target = copy_rate(), list[dict[str, Any]](), target_of(cupy.cuda.Device().compute_capability)
    for dtype in THIN_TILES:
        rates = load_device("h200").thin_rates(dtype)
        assert rates is not None
        peak = max(thin_peak(tile, rates) for tile in tiles_of(dtype))
        for order in "CF":
            a, b = matrix((N, 16), dtype, order, 1), matrix((16, N), dtype, order, 2)
            c = cupy.empty((N, N), dtype, order=order)
            kernels = dict[tuple[AnyThinTile, bool], ThinKernel]()
            for tile in tiles_of(dtype):
                kernel = kernel_for(ELEMENTS[dtype], tile, layout_of(a), layout_of(b), layout_of(c), is_aligned=True)
                kernels |= {(tile, streams): kernel for streams in ((False, True) if isinstance(tile, ThinTile) else (False,))}
            images = build_all(
                [(text_of(kernel, streams), kernel.name, own_target(kernel, target)) for (_, streams), kernel in kernels.items()]
            )
            functions = {}
            for (key, kernel), image in zip(kernels.items(), images, strict=True):
                functions[key] = load_function(image.image, kernel.name, kernel.shared_bytes), kernel
                print(dtype, order, key[0].name, "streams" if key[1] else "", image.resources[0], flush=True)
            for k in RANKS:
                rows.append(measure(k, dtype, order, functions, copy, peak))
                best = sorted((us, name) for name, us in rows[-1]["us"].items())[:6]
                print(dtype, order, k, f"bound {rows[-1]['bound']:.1f} us", best, rows[-1]["wrong"], flush=True)
    save("rank_updates", rows, options.json)


def own_call(function: Any, kernel: ThinKernel, a: Any, b: Any, c: Any) -> Call:
    """The launch of one of our kernels, sums whole."""
    (m, k), n, tile = a.shape, b.shape[1], kernel.tile
    device = cupy.cuda.Device()
    slots = device.attributes["MultiProcessorCount"] * kernel.resident_in(device.attributes["MaxSharedMemoryPerBlockOptin"])
    blocks = min(slots, -(-m // tile.m) * -(-n // tile.n))
    own: list[Any] = []
    for x in (a, b, c):
        own += [np.uint64(x.data.ptr), *(np.int64(stride // x.itemsize) for stride in x.strides)]
    own += [*map(np.int64, (m, k, n, 1, -(-k // tile.k) * tile.k, 0)), c.dtype.type(1), c.dtype.type(0)]
    return partial(function, (blocks,), (tile.threads,), tuple(own), kernel.shared_bytes)


def measure(k: int, dtype: str, order: str, functions: dict[Any, Any], copy: float, peak: float) -> dict[str, Any]:
    a, b = matrix((N, k), dtype, order, 1), matrix((k, N), dtype, order, 2)
    c = cupy.empty((N, N), dtype, order=order)
    calls: dict[str, Call] = libraries(a, b, c)
    for (tile, streams), (function, kernel) in functions.items():
        calls[tile.name + (" streamed" if streams else "")] = own_call(function, kernel, a, b, c)
    wanted, wrong = cupy.matmul(a.astype("float64"), b.astype("float64")), []
    for name, call in calls.items():
        c[...] = cupy.nan
        call()
        if not bool((c == wanted).all()):
            wrong.append(name)
    us = {name: round(1e3 * median(values), 2) for name, values in queued(calls, ROUNDS, IN_A_ROW).items()}
    moved = (2 * N * k + N * N) * a.itemsize / 1e3
    bound = max(moved / copy, 2 * N * N * k / peak / 1e6)
    return {"k": k, "n": N, "dtype": dtype, "order": order, "us": us, "bound": round(bound, 2), "wrong": wrong, "copy": copy}


if __name__ == "__main__":
    main()
