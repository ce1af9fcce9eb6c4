"""`matmul` with `auto` beside the library on 200 shapes, powers of two, primes, odd, tall and wide, 1 to 20000 a side.

The time of a short call is that on the device, of others that between events, host time included; a shape fails where the confidence
interval of its ratio lies below 0.98. Every result is checked in the same run. The rows are saved every few seconds, for a run can be cut.
`--part 2/4` measures the second quarter of the shapes, every fourth one; `--fresh` others, so that rules are not judged by the shapes they
were made on; `--large SEED` 100 shapes whose sides are log-uniform in 512 to 16384, `--any SEED` 150 in 1 to 20000.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from math import prod

from common import need_gpu, parser_of, tell

from bilinear.cli.common import read_accuracy
from bilinear.ir.measurement import Shape
from bilinear.measure import bench_tasks
from bilinear.measure.bench import GRID, collect, described, effort, measure
from bilinear.measure.bench_tasks import AUTO, BenchTask, build_ahead, choose
from bilinear.reporting.bench_page import grid_summary

LARGE, ANY = (100, 512, 16384), (150, 1, 20000)


def drawn(seed: int, count: int, least: int, most: int) -> list[Shape]:
    """Shapes (m, k, n) with sides that are log-uniform between two extents."""
    draw = random.Random(seed)
    m, k, n = ([round(least * (most / least) ** draw.random()) for _ in range(count)] for _ in "mkn")
    return list(zip(m, k, n, strict=True))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--part", default="1/1", help="which part of the shapes, as 2/4")
    parser.add_argument("--fresh", action="store_true", help="other shapes")
    parser.add_argument("--large", type=int, metavar="SEED", help="large shapes only, in all types")
    parser.add_argument("--any", type=int, metavar="SEED", help="shapes of all kinds, in all types")
    parser.add_argument("--rounds", type=int, help="the most rounds of a shape")
    parser.add_argument("--seconds", type=float, help="begin with no further shape after so long")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--accuracy", help="classical, twice, or a bound")
    parser.add_argument("--library", action="store_true", help="only where `auto` is the library's multiply, small problems first")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    dtypes = options.dtypes.split(",")
    shapes = bench_tasks.grid(options.fresh)
    for seed, how in ((options.large, LARGE), (options.any, ANY)):
        if seed is not None:
            shapes = tuple((shape, dtype) for shape in drawn(seed, *how) for dtype in dtypes)
    case = replace(AUTO, accuracy=read_accuracy(options.accuracy or ""))
    tasks = tuple(BenchTask(shape, dtype, (case,)) for shape, dtype in shapes if dtype in dtypes)[part - 1 :: parts]
    need_gpu()
    device = described(tasks)
    if options.library:
        tasks = tuple(sorted((t for t in tasks if choose(t, t.cases[0], device).is_library), key=lambda task: prod(task.shape)))
    print(f"{len(tasks)} shapes, at most {GRID.rounds} rounds each", flush=True)
    build_ahead(tasks, device)
    result = collect(measure(tasks, device, effort(True, options.rounds, options.seconds)), "grid", sys.argv, options.json, tell)
    print(grid_summary(result.rows))


if __name__ == "__main__":
    main()
