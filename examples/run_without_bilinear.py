"""Multiply with the output folder of `bilinear compile`, with CuPy alone: python run_without_bilinear.py build/msmes"""

import json
import sys
from math import prod
from pathlib import Path
from typing import Any

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/msmes")
try:
    schedule, programs = (json.loads((folder / "manifest.json").read_text())[part] for part in ("schedule", "programs"))
except (OSError, ValueError, LookupError, TypeError) as error:
    sys.exit(f"{folder} is no output folder ({error}): write one with `bilinear compile msmes --output {folder}`")
print(f"{folder}: {schedule['name']}, {schedule['levels']} level(s), inputs={schedule['inputs']}, {' and '.join(programs)}")
try:
    import cupy as cp

    device = int(cp.cuda.Device().compute_capability)  # 90 for 9.0
except Exception as error:
    print(f"Stopping here, for no GPU can be used: {error}")
    sys.exit()


def pick(images: dict[str, Any]) -> str:
    """A cubin runs on devices of its major version from its minor version on; PTX on its own and all later devices."""
    names = [f"sm_{i}" for i in range(device, device // 10 * 10 - 1, -1)] + [f"compute_{i}" for i in range(device, 0, -1)]
    return next((str(images[name]["path"]) for name in names if name in images), "") or sys.exit(f"nothing is built for sm_{device}")


def run(part: str, spaces: dict[str, Any], values: dict[str, Any]) -> None:
    """Launch kernels in order. Arguments are looked up by name: pointers, strides in elements, extents of a block, alpha, beta."""
    program = programs[spaces["C"].dtype.name]
    if spaces["C"].dtype.kind == "c":  # A, B, C are the real parts then, and Ai, Bi, Ci the imaginary ones
        spaces = {name: x.real for name, x in spaces.items()} | {f"{name}i": spaces[name].imag for name in "ABC"}
    for name, x in spaces.items():
        values |= {name: x.data.ptr, f"{name}_rs": x.strides[0] // x.itemsize, f"{name}_cs": x.strides[1] // x.itemsize}
    types = {"pointer": cp.uint64, "index": cp.int64, "scalar": spaces["C"].dtype.type}
    for launch in program[part]:
        kernel, values["first"] = program["kernels"][launch["kernel"]], launch["first"]
        blocks = max(prod(-(-values[extent] // step) for extent, step in tiling) for tiling in launch["grid"]["x"])
        function = cp.RawModule(path=str(folder / pick(kernel["images"]))).get_function(launch["kernel"])
        function.max_dynamic_shared_size_bytes = kernel["shared_bytes"]
        arguments = tuple(types[argument["kind"]](values[argument["name"]]) for argument in kernel["arguments"])
        function((blocks, launch["grid"]["y"], 1), (*kernel["threads"], 1), arguments, shared_mem=kernel["shared_bytes"])


def run_strip(x: Any, y: Any, z: Any, alpha: float, beta: float) -> None:
    """z = alpha * x @ y + beta * z by the plain multiply, where there is anything to do."""
    if x.size and z.size:
        run("remainder", {"A": x, "B": y, "C": z}, {"bm": x.shape[0], "bk": x.shape[1], "bn": y.shape[1], "alpha": alpha, "beta": beta})


def multiply(a: Any, b: Any, c: Any, alpha: float, beta: float) -> None:
    """c = alpha * a @ b + beta * c: the schedule takes the largest multiple of its grid, plain products the strips that are left."""
    grid = schedule["grid"]
    bm, bk, bn = a.shape[0] // grid["m"], a.shape[1] // grid["k"], b.shape[1] // grid["n"]
    m, k, n = (bm * grid["m"], bk * grid["k"], bn * grid["n"]) if bm * bk * bn else (0, 0, 0)
    overwrites = schedule["result"] == "alpha*A*B"  # beta is 0 then, and what is left of the sum is added after the core
    rest, *strips = (a[:m, k:], b[k:, :n], c[:m, :n]), (a[:m], b[:, n:], c[:m, n:]), (a[m:], b, c[m:])
    for x, y, z in strips if overwrites else (rest, *strips):  # first, while a and b are whole
        run_strip(x, y, z, alpha, beta)
    if m:
        spaces, shapes = {"A": a[:m, :k], "B": b[:k, :n], "C": c[:m, :n]}, {"A": (bm, bk), "B": (bk, bn), "C": (bm, bn)}
        for w in schedule["workspaces"]:
            spaces[w["name"]] = cp.empty((w["rows"] * shapes[w["shape"]][0], w["columns"] * shapes[w["shape"]][1]), c.real.dtype)
        run("launches", spaces, {"bm": bm, "bk": bk, "bn": bn, "alpha": alpha, "beta": beta if k == a.shape[1] or overwrites else 1})
    if overwrites:
        run_strip(*rest, alpha, 1)


for dtype in programs:
    parts = ([cp.random.standard_normal((m, n)) for _ in "ri"] for m, n in ((1027, 775), (775, 519), (1027, 519)))
    a, b, c = ((real + (1j * other if dtype.startswith("complex") else 0)).astype(dtype) for real, other in parts)
    beta = 0 if schedule["result"] == "alpha*A*B" else 3
    expected = 2 * cp.matmul(a, b) + beta * c  # before the call, which may write a and b
    multiply(a, b, c, alpha=2, beta=beta)
    print(f"  {dtype}: differs from cupy.matmul by {float(abs(c - expected).max() / abs(expected).max()):.1e} of the largest element")
