"""The planner's plans on a GPU beside the library: the best within a memory budget, predicted and measured.

For every size and element type: the best plan with unlimited memory, the best that allocates nothing and restores its inputs, and the best
that allocates nothing and never writes them; with `--pareto`, budgets of 0.25, 1 and 4 N^2 elements as well. `bilinear bench` measures the
same without `--pareto`, and draws it; both check every plan in the run that times it.
"""

from __future__ import annotations

import sys

from common import need_gpu, parser_of, tell

from bilinear.measure.bench import collect, described, effort, measure
from bilinear.measure.bench_tasks import PLANNED, BenchCase, BenchTask, build_ahead
from bilinear.reporting.bench_page import bench_table

PARETO = (*(BenchCase(inputs, share) for inputs in ("preserve", "restore") for share in (0.25, 1.0, 4.0)), BenchCase("restore"))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", default="2048,4096,8192,16384,32768")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--pareto", default="16384:float64", help="sizes and element types with more budgets, as N:dtype, comma-separated")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, help="begin with no further size after so long")
    options = parser.parse_args()
    more = options.pareto.split(",")
    problems = [(int(n), dtype) for dtype in options.dtypes.split(",") for n in options.sizes.split(",")]
    tasks = [BenchTask((n, n, n), dtype, PLANNED + (PARETO if f"{n}:{dtype}" in more else ())) for n, dtype in problems]
    need_gpu()
    device = described(tasks)
    build_ahead(tasks, device)
    found = measure(tasks, device, effort(False, options.repeats, options.seconds))
    print("\n" + bench_table(collect(found, "best", sys.argv, options.json, tell)))


if __name__ == "__main__":
    main()
