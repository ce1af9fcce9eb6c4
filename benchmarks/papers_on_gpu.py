"""The figures of two papers on this GPU, on one page: `--json FILE` measures what FILE lacks, and with `--html PAGE` draws what it holds.

About 130 s on an H100 or H200, so that two runs of 100 s each do it. A row that is kept tells the commit that it is of.

Figures 1 to 5 of Khan, Al-Mouhamed, Fatayer: S-MM, R-S-MM, W-MM, and Winograd's scheme in the memory of R-S-MM, beside cuBLAS, and beside a
multiply that keeps a tile of 32 x 32 of each operand in shared memory, as the SDK's example does. Figures 4, 5 and 12 of Rivera et al.,
TSM2X, with the paper's parameters for a V100. Everything is checked on integers in the same run, and timed on normal data.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from math import ceil, floor, log2, log10
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from common import Call, cupy, exact_calls, interleaved, median, need_gpu, parser_of, queued, save
from thin_auto import copy_rate, libraries, matrix
from tsm2 import Tsm2Kernel, source, variant_of
from tsm2_ablation import T1, T3, launcher, thin_plan

import bilinear
from bilinear.codegen.cuda.nvrtc import build_all
from bilinear.codegen.cuda.target import target_of
from bilinear.ir.element import ELEMENTS
from bilinear.measure.bench_library import library_calls, machine
from bilinear.planner.library_points import CUBLAS, CUBLASLT
from bilinear.reporting.bench_page import bench_series
from bilinear.reporting.pages import Chart, ChartPoint, Tick, across, environment, path_through, round_step, upwards
from bilinear.runtime.ahead import fill_cache
from bilinear.version import __version__

NAMES = {"s_mm": "S-MM", "r_s_mm": "R-S-MM", "w_mm": "W-MM", "winograd_depth_first": "Winograd, two temporaries"}
COLOURS = {"cuBLAS": 0} | {name: number for number, name in enumerate(NAMES.values(), 1)} | {"TSM2R": 1, "here": 2, "Opt1": 1, "Opt2": 3}
SIZES, LARGEST_PLAIN, FEW = (1024, 2048, 4096, 8192, 16384, 32768), 8192, 16384
"""The plain multiply is timed up to the second; from the third on a call is timed once."""
PLAIN = r"""extern "C" __global__ void plain(const REAL* a, const REAL* b, REAL* c, int n)
{
    __shared__ REAL left[32][32], right[32][32];
    const int x = threadIdx.x, y = threadIdx.y;
    const long long row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
    REAL sum = 0;
    for (int begin = 0; begin < n; begin += 32) {
        left[y][x] = a[row * n + begin + x];
        right[y][x] = b[(begin + y) * (long long)n + column];
        __syncthreads();
        for (int i = 0; i < 32; ++i) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}"""
TALL, COLUMNS = 15360, 16
SHORT, LONG, TCFS = (2, 4, 8, 16, 32, 64, 128, 256, 512), (3840, 5120, 7680, 15360), (1, 2, 4, 8, 16, 32, 64, 128)
Row = dict[str, Any]
Lines = Mapping[str, Mapping[int, float]]


def squares(n: int, dtype: str) -> Row:
    """Milliseconds of cuBLAS, of the variants at one and two levels, and of the plain multiply."""
    generator = cupy.random.default_rng(1)
    a, b = (generator.integers(-2, 3, (n, n)).astype(dtype) for _ in range(2))
    c = cupy.empty((n, n), dtype)
    calls: dict[str, Call] = {CUBLAS: library_calls(a, b, c)[CUBLAS]}
    fill_cache(bilinear.plan(n, n, n, dtype, levels=(name,) * levels) for name in NAMES for levels in (1, 2))
    for name in NAMES:
        for levels in (1, 2):
            calls[f"{name} {levels}"] = partial(bilinear.matmul, a, b, c, algorithm=name, levels=levels)
    if n <= LARGEST_PLAIN:
        kernel = cupy.RawKernel(PLAIN.replace("REAL", ELEMENTS[dtype].cuda), "plain")
        calls["plain"] = partial(kernel, (n // 32, n // 32), (32, 32), (a, b, c, np.int32(n)))
    exact = exact_calls(calls, a, b, c)
    once = dict.fromkeys(calls, 2e3) if n >= FEW else None
    times = interleaved(calls, 1 if n >= FEW else 5, warmups=0 if n >= FEW else 1, once=once)
    return {"part": "squares", "n": n, "dtype": dtype, "ms": {x: round(median(ms), 4) for x, ms in times.items()}, "exact": exact}


def thin(shape: tuple[int, int, int], dtype: str, figure: int, kernels: Mapping[str, Tsm2Kernel], copy: Callable[[], float]) -> Row:
    """Microseconds and shares of a copy's bandwidth of cuBLAS, these kernels and our own; matrices lie column by column."""
    m, k, n = shape
    a, b, c = matrix((m, k), dtype, "F", 1), matrix((k, n), dtype, "F", 2), cupy.empty((m, n), dtype, order="F")
    needed = {one.name: source(one) for one in kernels.values()}
    target = target_of(cupy.cuda.Device().compute_capability)
    launch = launcher(dict(zip(needed, build_all([(text, name, target) for name, text in needed.items()]), strict=True)))
    calls = {name: call for name, call in libraries(a, b, c).items() if name in (CUBLAS, CUBLASLT)}
    calls["thin"] = partial(bilinear.matmul, a, b, c, plan=thin_plan(shape, dtype))
    calls |= {name: launch(one, a, b, c) for name, one in kernels.items()}
    exact = exact_calls(calls, a, b, c)
    us = {name: round(1e3 * median(values), 2) for name, values in queued(calls, 5, 5).items()}
    moved = (m * k + k * n + m * n) * a.itemsize / 1e3  # kB
    share = {name: round(moved / time / copy(), 4) for name, time in us.items()}
    return {"part": "thin", "figure": figure, "shape": shape, "dtype": dtype, "us": us, "share": share, "exact": exact}


def problems() -> Iterator[tuple[tuple[Any, ...], Callable[[], Row]]]:
    """Every measurement with the row's figure (0 for squares), extent and type: the thin ones first, then the squares by size."""
    copy, double = cache(copy_rate), ELEMENTS["float64"]
    for figure, extents in ((4, SHORT), (12, LONG)):
        for k in extents:
            kernel = variant_of("V3", double, COLUMNS, T1, min(T3["float64"], k))
            yield (figure, k, "float64"), partial(thin, (TALL, k, COLUMNS), "float64", figure, {"TSM2R": kernel}, copy)
    for dtype in T3:
        kernels = {
            f"{name} {tcf}": variant_of(name, ELEMENTS[dtype], COLUMNS, T1, COLUMNS, tcf) for name in ("Opt1", "Opt2") for tcf in TCFS
        }
        yield (5, COLUMNS, dtype), partial(thin, (10**7, COLUMNS, COLUMNS), dtype, 5, kernels, copy)
    for n in SIZES:
        for dtype in T3:
            yield (0, n, dtype), partial(squares, n, dtype)


def kept(path: Path | None) -> dict[tuple[Any, ...], Row]:
    """The rows of a file, by what `problems` names them; they must be of this GPU."""
    if path is None or not path.exists():
        return {}
    result = json.loads(path.read_text())
    gpu, old = machine()["gpu"], result["machine"]
    if old["gpu"] != gpu:
        sys.exit(f"{path} was measured on {old['gpu']}, and this is {gpu}: name another file")
    rows = [{"commit": old["commit"]} | row for row in result["rows"]]
    return {(row.get("figure", 0), row["n"] if "n" in row else row["shape"][1], row["dtype"]): row for row in rows}


def library(times: Mapping[str, float]) -> float:
    """cuBLAS's time, for thin matrices that of the faster of its two interfaces."""
    return min(times[name] for name in (CUBLAS, CUBLASLT) if name in times)


def chart(title: str, unit: str, lines: Lines, level: float | None = None, by_decades: bool = False) -> Chart:
    """Lines over powers of two, upwards by value or by decades."""
    values = [log10(y) if by_decades else y for line in lines.values() for y in line.values()]
    step = 1.0 if by_decades else round_step(max(*values, level or 0) - min(*values, level or 0) or 1.0, 6)
    low, high = floor(min(*values, level or min(values)) / step), ceil(max(*values, level or max(values)) / step)
    x, y = across([log2(at) for line in lines.values() for at in line]), upwards(low * step, max(high, low + 1) * step)
    down = [Tick(y(i * step), f"{10.0**i if by_decades else i * step:g}") for i in range(low, max(high, low + 1) + 1)]
    series = []
    for name, line in lines.items():
        at = tuple(ChartPoint(x(log2(n)), y(log10(v) if by_decades else v), f"{n:g}: {v:.3g}") for n, v in sorted(line.items()))
        series.append(bench_series(name, COLOURS[name], at, path_through(at)))
    ticks = tuple(Tick(x(log2(n)), f"{n:g}") for n in sorted({n for line in lines.values() for n in line}))
    return Chart(title, unit, ticks, tuple(down), tuple(series), None if level is None else y(level))


def figures(rows: list[Row]) -> Iterator[tuple[str, list[Chart]]]:
    """The figures with their charts, one for each element type."""
    own = {dtype: {row["n"]: row["ms"] for row in rows if row["part"] == "squares" and row["dtype"] == dtype} for dtype in T3}
    own = {dtype: times for dtype, times in own.items() if times}

    def lines(times: Mapping[int, Row], value: Any, with_library: bool = True, most: int = 2**20) -> Lines:
        names = {"cuBLAS": ""} if with_library else {}
        names |= {title: name for name, title in NAMES.items()}
        return {title: {n: value(n, ms, name) for n, ms in times.items() if n <= most} for title, name in names.items()}

    def one(ms: Row, name: str, levels: int = 1) -> float:
        return float(ms[f"{name} {levels}"]) if name else library(ms)

    def each(title: str, value: Any, **how: Any) -> tuple[str, list[Chart]]:
        drawn = {key: how.pop(key) for key in ("level", "by_decades") if key in how}
        return title, [chart(dtype, "N", lines(times, value, **how), **drawn) for dtype, times in own.items()]

    yield each("Figure 1: speedup over cuBLAS, one level", lambda n, ms, x: library(ms) / one(ms, x), with_library=False, level=1.0)
    yield each("Figure 2: milliseconds, one level", lambda n, ms, x: one(ms, x), by_decades=True)
    yield each("Figure 3: TFLOP/s of the classical count, one level", lambda n, ms, x: 2e-9 * n**3 / one(ms, x))
    yield each("Figure 4: speedup over the plain multiply, one level", lambda n, ms, x: ms["plain"] / one(ms, x), most=LARGEST_PLAIN)
    more = lambda n, ms, x: 100 * (one(ms, x, 2) / one(ms, x) - 1)  # noqa: E731
    yield each("Figure 5: percent more time by a second level", more, with_library=False, level=0.0)
    for figure, title in ((4, "k short"), (12, "k long")):
        found = {row["shape"][1]: row for row in rows if row["part"] == "thin" and row["figure"] == figure}
        titles = {"TSM2R": "TSM2R", "thin": "here"}
        share = {own: {k: row["share"][name] for k, row in found.items()} for name, own in titles.items()}
        share["cuBLAS"] = {k: max(row["share"].get(name, 0.0) for name in (CUBLAS, CUBLASLT)) for k, row in found.items()}
        faster = {own: {k: library(row["us"]) / row["us"][name] for k, row in found.items()} for name, own in titles.items()}
        charts = [chart("share of a copy's bandwidth", "k", share), chart("speedup over cuBLAS", "k", faster, 1.0)] if found else []
        yield f"TSM2X, figure {figure}: {TALL} x k x {COLUMNS}, float64, {title}", charts
    charts = []
    for row in (row for row in rows if row["part"] == "thin" and row["figure"] == 5):
        shares = {name: {tcf: row["share"][f"{name} {tcf}"] for tcf in TCFS} for name in ("Opt1", "Opt2")}
        shares["here"] = dict.fromkeys(TCFS, row["share"]["thin"])
        charts.append(chart(f"{row['dtype']}: share of a copy's bandwidth", "rows of a thread (tcf)", shares))
    yield f"TSM2X, figure 5: 10000000 x {COLUMNS} x {COLUMNS}", charts


PAGE = """{% from "parts.html.j2" import figure, bench_styles, head, footer %}
{{ head("Two papers on " ~ gpu, "", bench_styles()) }}
<body>
<header class="brief"><p class="kicker">Two papers</p><h1>{{ gpu }}</h1><p class="lead">{{ lead }}</p></header>
{% for title, charts in figures %}
<section><h2>{{ title }}</h2><div class="charts">
{% set number = loop.index %}
{% for chart in charts %}
{{ figure(chart, title, "figure-%d-%d" | format(number, loop.index)) }}
{% endfor %}
</div></section>
{% endfor %}
{% call footer(version, "") %} commit {{ commit }}{% endcall %}
</body>
</html>
"""


def page(result: dict[str, Any]) -> str:
    """The page of what was measured."""
    wrong = [name for row in result["rows"] for name, is_exact in row["exact"].items() if not is_exact]
    lead = f"wrong: {', '.join(wrong)}" if wrong else "Every multiply is exact on integers."
    shown = [(title, charts) for title, charts in figures(result["rows"]) if charts]
    commits = {row.get("commit", result["machine"]["commit"]) for row in result["rows"]}
    template = environment(html=True).from_string(PAGE)
    return template.render(gpu=result["machine"]["gpu"], commit=", ".join(sorted(commits)), lead=lead, figures=shown, version=__version__)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--html", type=Path, help="draw the page of the results in --json, without measuring")
    parser.add_argument("--seconds", type=float, default=70.0, help="begin with no further problem after so long")
    options = parser.parse_args()
    if options.html:
        options.html.write_text(page(json.loads(options.json.read_text())))
        return
    need_gpu()
    begun, rows = monotonic(), kept(options.json)
    for name, problem in problems():
        if name in rows:
            continue
        if monotonic() - begun > options.seconds:
            print("stopped: another run goes on from here", flush=True)
            break
        rows[name] = problem()
        print(round(monotonic() - begun, 1), rows[name], flush=True)
        cupy.get_default_memory_pool().free_all_blocks()
        save("papers_on_gpu", [*rows.values()], options.json)


if __name__ == "__main__":
    main()
