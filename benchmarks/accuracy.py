"""Measured errors beside their bounds, by scheme, levels, element type and inner dimension; and the drift of restored operands.

Every multiply is compared with a higher precision: float64 for float32 data, NumPy's long double (a sample of rows) for float64. Errors
are max|C - A*B| in units of u * rms(A) * rms(B), beside the probabilistic bound in the same units, and beside the bound that always
holds, which is in units of u * max|A| * max|B|. `ratio` is the probabilistic bound over the measured error. Drift is max|A' - A| of a
block over the largest block it meets, in units of u, after one call on blocks scaled by powers of ten, the worst of all blocks and trials.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from common import parser_of, save

import bilinear
from bilinear.analysis.accuracy import drift_bound, error_bound, growth_factor, probable_error, run_error_bound
from bilinear.frontend import load
from bilinear.ir.element import ELEMENTS
from bilinear.ir.schedule import Block
from bilinear.lowering.prepare import prepare

KINDS = ("normal", "uniform", "positive")
ROWS = 16  # Rows of C that are compared in long double, which is slow.


def draw(kind: str, shape: tuple[int, int], generator: np.random.Generator) -> Any:
    if kind == "normal":
        return generator.standard_normal(shape)
    return generator.uniform(-1 if kind == "uniform" else 0, 1, shape)


def reference(a: Any, b: Any) -> tuple[slice, Any]:
    """Which rows are compared, and what they should be."""
    if a.dtype == np.float32:
        return slice(None), a.astype(np.float64) @ b.astype(np.float64)
    some = slice(None, None, max(1, a.shape[0] // ROWS))
    return some, a[some].astype(np.longdouble) @ b.astype(np.longdouble)


def rms(x: Any) -> float:
    return float(np.sqrt((x.astype(np.float64) ** 2).mean()))


def accuracy_row(name: str, inputs: Any, levels: int, dtype: str, size: int, kind: str, confidence: float) -> dict[str, Any]:
    """One multiply, its error and its bounds; 0 levels is the library's multiply."""
    loaded, generator, u = load(name), np.random.default_rng(size), ELEMENTS[dtype].unit_roundoff
    a, b = (draw(kind, (size, size), generator).astype(dtype) for _ in range(2))
    some, wanted = reference(a, b)
    scale, most = rms(a) * rms(b), float(abs(a).max()) * float(abs(b).max())
    means = (0.75**0.5, 0.75**0.5) if kind == "positive" else (0.0, 0.0)
    probable = probable_error(loaded.scheme, levels, (size, size, size), confidence, means)
    certain = error_bound(loaded.scheme, levels, size, u).product
    if levels and inputs == "restore":
        certain = run_error_bound(prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule, size, u).product
    c = bilinear.matmul(a, b, algorithm=name, levels=levels, inputs=inputs if levels else "preserve")
    measured = float(abs(c[some] - wanted).max()) / u
    return {
        "algorithm": name,
        "inputs": inputs,
        "levels": levels,
        "dtype": dtype,
        "inner": size,
        "data": kind,
        "growth": float(growth_factor(loaded.scheme)) ** levels,
        "measured": measured / scale,
        "probabilistic": probable,
        "confidence": confidence,
        "ratio": probable * scale / measured,
        "measured_by_max": measured / most,
        "deterministic": certain,
        "holds": measured <= probable * scale and measured <= certain * most,
    }


def scaled_blocks(side: int, edge: int, trial: int, generator: np.random.Generator) -> Any:
    """Blocks scaled by powers of ten, signs by block, or both; every third matrix has normal entries, the others one sign a block."""
    scales = 10.0 ** generator.integers((0, -20, -2)[trial % 3], 1, (side, side)) * np.sign(generator.standard_normal((side, side)))
    fill = generator.standard_normal if trial % 4 == 0 else lambda shape: generator.uniform(0.5, 1, shape)
    return np.asarray(fill((side * edge, side * edge)) * np.kron(scales, np.ones((edge, edge))))


def drift_row(name: str, levels: int, dtype: str, trials: int) -> dict[str, Any]:
    """The worst drift of any block over all trials, beside the bound."""
    loaded, generator, u, edge = load(name), np.random.default_rng(levels), ELEMENTS[dtype].unit_roundoff, 16
    bound = drift_bound(prepare(loaded.scheme, loaded.schedule, levels, "restore").schedule)
    side, worst, holds = loaded.scheme.m**levels, 0.0, True
    drifts = {drift.block: drift for drift in bound.blocks}
    for trial in range(trials):
        pair = [scaled_blocks(side, edge, trial, generator).astype(dtype) for _ in "AB"]
        kept = [x.copy() for x in pair]
        bilinear.matmul(*pair, algorithm=name, levels=levels, inputs="restore")
        for space, before, after in zip("AB", kept, pair, strict=True):
            sizes = by_block(before, side, space)
            for block, moved in by_block(after.astype(np.longdouble) - before, side, space).items():
                weights = drifts[block].weights
                holds = holds and moved <= u * sum(weight * sizes[met] for met, weight in weights)
                if weights and moved:
                    worst = max(worst, moved / u / max(sizes[met] for met, _ in weights))
    facts = {"algorithm": name, "levels": levels, "dtype": dtype, "drift_bound": bound.worst(), "drift_measured": worst}
    return {**facts, "ratio": bound.worst() / worst, "growth_of_sums": bound.growth, "holds": holds}


def by_block(x: Any, side: int, space: str) -> dict[Block, float]:
    most = abs(x).reshape(side, x.shape[0] // side, side, -1).max((1, 3))
    return {Block(space, i, j): float(most[i, j]) for i in range(side) for j in range(side)}


def configurations(names: str, levels: str) -> Iterator[tuple[str, str, int]]:
    for name in names.split(","):
        for level in levels.split(","):
            in_place = load(name).schedule is not None
            if load(name).scheme.rank ** int(level) <= 2500:  # the proof of more products takes minutes
                yield name, "restore" if in_place else "preserve", int(level)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", default="128,512,1024", help="comma-separated N of square multiplies")
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--algorithms", default="strassen,winograd,laderman,hopcroft_kerr,msmes")
    parser.add_argument("--levels", default="0,1,2,3")
    parser.add_argument("--confidence", type=float, default=0.99)
    parser.add_argument("--trials", type=int, default=60, help="matrices of the drift measurement")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print(
        f"{'algorithm':>14} {'levels':>6} {'dtype':>8} {'N':>5} {'data':>9} {'measured':>10} {'probable':>10} {'ratio':>6} {'certain':>10}"
    )
    for dtype in options.dtypes.split(","):
        for size in map(int, options.sizes.split(",")):
            for name, inputs, levels in configurations(options.algorithms, options.levels):
                for kind in KINDS:
                    row = accuracy_row(name, inputs, levels, dtype, size, kind, options.confidence)
                    rows.append(row)
                    numbers = f"{row['measured']:10.1f} {row['probabilistic']:10.1f} {row['ratio']:6.1f} {row['deterministic']:10.3g}"
                    print(f"{name:>14} {levels:>6} {dtype:>8} {size:>5} {kind:>9} {numbers}{'' if row['holds'] else '  ABOVE'}", flush=True)
    for dtype in options.dtypes.split(","):
        for name, inputs, levels in configurations(options.algorithms, options.levels):
            if inputs == "restore" and levels:
                row = drift_row(name, levels, dtype, options.trials)
                rows.append(row)
                told = f"drift {row['drift_measured']:.2f} u, bound {row['drift_bound']:.1f} u, ratio {row['ratio']:.1f}"
                print(f"{name:>14} {levels:>6} {dtype:>8} {told}{'' if row['holds'] else '  ABOVE'}", flush=True)
    if options.json is not None:
        save("accuracy", rows, options.json)


if __name__ == "__main__":
    main()
