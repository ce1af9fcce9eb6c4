"""In-place msmes on a GPU: exact, restored, reproducible, nothing allocated, and its time beside cuBLAS.

For every size, dtype and number of levels, in one process: integer-valued input must come out bit for bit as the classical multiply
(whose sums are exact in this range), A and B must come back bit for bit on integers, two runs on normal data must give the same bits,
and neither CuPy's pool nor the device may hold more after a call than before it. Times are interleaved medians.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from common import classical, cupy, gpu_state, interleaved, median, need_gpu, save

import bilinear

ODD = (4099, 5003, 3001)


def integers(generator: Any, shape: tuple[int, int], dtype: str) -> Any:
    return generator.integers(-4, 5, shape).astype(dtype)


def trust(shape: tuple[int, int, int], dtype: str, levels: int, algorithm: str, inputs: str) -> dict[str, Any]:
    """The checks of one configuration."""
    m, k, n = shape
    generator = cupy.random.default_rng(7)
    a, b, c = (integers(generator, s, dtype) for s in ((m, k), (k, n), (m, n)))
    wanted = 2 * cupy.matmul(a, b) + 3 * c
    kept = a.copy(), b.copy()
    options: dict[str, Any] = {"algorithm": algorithm, "levels": levels, "inputs": inputs}
    bilinear.matmul(a, b, c, alpha=2, beta=3, **options)
    facts: dict[str, Any] = {"exact": bool((c == wanted).all())}
    facts["restored"] = bool((a == kept[0]).all() and (b == kept[1]).all())
    del wanted, kept

    a[...] = generator.standard_normal((m, k), dtype=dtype)
    b[...] = generator.standard_normal((k, n), dtype=dtype)
    first = a.copy(), b.copy()
    c[...] = cupy.nan
    bilinear.matmul(a, b, c, **options)
    facts["drift"] = float(max(abs(a - first[0]).max() / abs(first[0]).max(), abs(b - first[1]).max() / abs(first[1]).max()))
    reference = cupy.matmul(first[0].astype("float64"), first[1].astype("float64"))
    facts["error"] = float(abs(c - reference).max() / (abs(first[0]).max() * abs(first[1]).max()))
    del reference
    again = cupy.full_like(c, cupy.nan)
    a[...], b[...] = first
    del first
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = (pool.used_bytes(), pool.total_bytes(), cupy.cuda.runtime.memGetInfo()[0])
    bilinear.matmul(a, b, again, **options)
    cupy.cuda.Device().synchronize()
    after = (pool.used_bytes(), pool.total_bytes(), cupy.cuda.runtime.memGetInfo()[0])
    facts["allocated"] = max(after[0] - before[0], after[1] - before[1], before[2] - after[2])
    facts["same_bits"] = bool((c.view("uint8") == again.view("uint8")).all())
    return facts


def speed(shape: tuple[int, int, int], dtype: str, levels: list[int], algorithm: str, inputs: Any, repeats: int) -> dict[str, float]:
    """Median milliseconds of the library and of every number of levels, interleaved."""
    m, k, n = shape
    generator = cupy.random.default_rng(8)
    a, b = generator.standard_normal((m, k), dtype=dtype), generator.standard_normal((k, n), dtype=dtype)
    c = cupy.empty((m, n), dtype)
    calls = classical(a, b, c)
    for level in levels:
        calls[f"levels {level}"] = partial(bilinear.matmul, a, b, c, algorithm=algorithm, levels=level, inputs=inputs)
    return {name: median(times) for name, times in interleaved(calls, repeats).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="4096,8192,16384,odd")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--levels", default="1,2,3")
    parser.add_argument("--algorithm", default="msmes")
    parser.add_argument("--inputs", default="restore")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need_gpu()
    levels = [int(level) for level in options.levels.split(",")]
    rows: list[dict[str, Any]] = []
    speeds, trusts = f"{'ms':>9} {'cuBLAS':>9} {'ratio':>6}", "exact restored same-bits allocated    drift    error"
    print(f"{'shape':>18} {'dtype':>8} {'levels':>6} {speeds}  {trusts}")
    for dtype in options.dtypes.split(","):
        for size in options.sizes.split(","):
            shape = ODD if size == "odd" else (int(size),) * 3
            checks = {level: trust(shape, dtype, level, options.algorithm, options.inputs) for level in levels}
            times = speed(shape, dtype, levels, options.algorithm, options.inputs, options.repeats)
            library = min(time for name, time in times.items() if not name.startswith("levels"))
            for level in levels:
                f, ms = checks[level], times[f"levels {level}"]
                rows.append({"shape": shape, "dtype": dtype, "levels": level, "ms": ms, "library_ms": library, **f, **gpu_state()})
                print(
                    f"{'x'.join(map(str, shape)):>18} {dtype:>8} {level:>6} {ms:9.3f} {library:9.3f} {library / ms:6.3f}  "
                    f"{f['exact']!s:>5} {f['restored']!s:>8} {f['same_bits']!s:>9} {f['allocated']:>9} {f['drift']:8.1e} {f['error']:8.1e}",
                    flush=True,
                )
    save("inplace", rows, options.json)


if __name__ == "__main__":
    main()
