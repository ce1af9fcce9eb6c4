"""Multiply with the output folder of `bilinear compile`, with CuPy alone: python run_without_bilinear.py build/msmes"""

import json
import sys
from math import prod
from pathlib import Path
from typing import Any

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/msmes")
manifest = json.loads((folder / "manifest.json").read_text())
schedule, programs = manifest["schedule"], manifest["programs"]
print(f"{folder}: {schedule['name']}, {schedule['levels']} level(s), inputs={schedule['inputs']}")
for dtype, program in programs.items():
    print(f"  {dtype}: {len(program['launches'])} launches, built for {', '.join(program['launches'][0]['images'])}")
try:
    import cupy as cp

    device = int(cp.cuda.Device().compute_capability)  # 90 for 9.0
except Exception as error:
    print(f"Stopping here, for no GPU can be used: {error}")
    sys.exit()


def pick(images: dict[str, Any]) -> str:
    """A cubin runs on devices of its major version from its minor version on; PTX on its own and all later devices."""
    known = {name: int(name.split("_")[1]) for name in images if name[-1].isdigit()}  # sm_90a and the like are for experts
    cubins = [n for n, version in known.items() if n.startswith("sm") and version // 10 == device // 10 and version <= device]
    best = max(cubins or [n for n, version in known.items() if n.startswith("compute") and version <= device], key=known.get, default="")
    return str(images[best]["path"]) if best else sys.exit(f"nothing is built for this device: compile with --arch sm_{device}")


def run(launches: Any, spaces: dict[str, Any], block: Any, alpha: float, beta: float) -> None:
    """Launch kernels in order. Every argument is looked up by name: pointers, strides in elements, extents of a block, scalars."""
    values = {**dict(zip(("bm", "bk", "bn"), block)), "alpha": alpha, "beta": beta}
    for name, x in spaces.items():
        values |= {name: x.data.ptr, f"{name}_rs": x.strides[0] // x.itemsize, f"{name}_cs": x.strides[1] // x.itemsize}
    types = {"pointer": cp.uint64, "index": cp.int64, "scalar": spaces["C"].dtype.type}
    for launch in launches:
        blocks = max(prod(-(-values[extent] // step) for extent, step in tiling) for tiling in launch["grid"]["x"])
        function = cp.RawModule(path=str(folder / pick(launch["images"]))).get_function(launch["kernel"])
        arguments = tuple(types[argument["kind"]](values[argument["name"]]) for argument in launch["arguments"])
        function((blocks, launch["grid"]["y"], 1), (*launch["threads"], 1), arguments)


def multiply(a: Any, b: Any, c: Any, alpha: float = 1, beta: float = 0) -> None:
    """c = alpha * a @ b + beta * c: the schedule takes the largest multiple of its grid, plain products the strips that are left."""
    program, size, grid = programs[c.dtype.name], (*a.shape, b.shape[1]), schedule["grid"].values()
    bm, bk, bn = block = [extent // g for extent, g in zip(size, grid)] if all(e >= g for e, g in zip(size, grid)) else [0, 0, 0]
    m, k, n = (extent * g for extent, g in zip(block, grid))
    if m:
        extents, spaces = {"A": (bm, bk), "B": (bk, bn), "C": (bm, bn)}, {"A": a[:m, :k], "B": b[:k, :n], "C": c[:m, :n]}
        for w in schedule["workspaces"]:
            spaces[w["name"]] = cp.empty((w["rows"] * extents[w["shape"]][0], w["columns"] * extents[w["shape"]][1]), c.dtype)
        run(program["launches"], spaces, block, alpha, beta)
    for x, y, z, scale in ((a[:m, k:], b[k:, :n], c[:m, :n], 1), (a[:m], b[:, n:], c[:m, n:], beta), (a[m:], b, c[m:], beta)):
        if x.size and z.size:
            run(program["remainder"], {"A": x, "B": y, "C": z}, (*x.shape, z.shape[1]), alpha, scale)


for dtype in programs:
    a, b, c = (cp.random.standard_normal(shape, dtype=dtype) for shape in ((1027, 775), (775, 519), (1027, 519)))
    expected = 2 * cp.matmul(a, b) + 3 * c  # before the call, which may write a and b
    multiply(a, b, c, alpha=2, beta=3)
    print(f"  {dtype}: differs from cupy.matmul by {float(abs(c - expected).max() / abs(expected).max()):.1e} of the largest element")
