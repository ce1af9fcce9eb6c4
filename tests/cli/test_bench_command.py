"""`bilinear bench` on a pretended GPU: its table, its files, its pictures, and what it refuses."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from measure.bench_gpu import Gpu, pretend
from shell import Shell

import bilinear
from bilinear.ir.measurement import Benchmark, ErrorPoint, Interval, LaunchTime, LeftOut, Load, Measurement, Trust
from bilinear.ir.tile import USUAL
from bilinear.measure import bench, bench_library, bench_tasks
from bilinear.reporting.bench_page import bench_html, bench_table, error_charts, grid_summary, launch_bars, ratio_charts

TRUST = Trust(True, True, 1e-13, 1e-9)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "ERROR_SIZE", 64)
    monkeypatch.setattr(bench, "MOST_ERROR_LEVELS", 1)
    return Shell(monkeypatch, capsys, "bench")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return pretend(monkeypatch)


def row(size: int, ratio: float = 1.25, asked: str = "plan", dtype: str = "float64", inputs: str = "preserve") -> Measurement:
    plan, shape, ms = ("winograd, 2 levels", (size, size, size), size**3 * 1e-8)
    launches = (
        LaunchTime("strip", f"{size} x 1 x {size}", ms / 10, flops=2 * size * size),
        LaunchTime("sums", "A 16 to 40", ms / 5, bytes=size * size * 64),
        LaunchTime("products", "49 of 64 x 64 x 64", ms * 0.7, flops=size**3),
    )
    return Measurement(
        shape,
        dtype,
        asked,
        inputs,
        None if inputs == "preserve" else 0.0,
        ("winograd", "winograd"),
        plan,
        "expand",
        USUAL,
        size * size * 8,
        ms * 1.1,
        (ms,) * 7,
        ms,
        "cupy",
        (("cupy", ms * ratio),),
        ms * ratio,
        ratio,
        Interval(ratio - 0.02, ratio + 0.01, 0.984),
        "event",
        None,
        TRUST,
        Load(1755.0, 612.3, 64.0),
        launches,
    )


def whole() -> Benchmark:
    """Two element types, several sizes and cases, errors, and something left out."""
    rows = [
        row(size, 0.8 + 0.1 * i + 0.05 * j, asked, dtype, inputs)
        for dtype in ("float64", "float32")
        for i, size in enumerate((2048, 4096, 8192, 16384))
        for j, (asked, inputs) in enumerate((("plan", "preserve"), ("plan", "restore"), ("msmes:2", "restore")))
    ]
    errors = [
        ErrorPoint(name, level, dtype, 2048, 10.0 ** (level - 15) * (level > 0), 10.0 ** (2 * level - 12))
        for dtype in ("float64", "float32")
        for name in ("winograd", "msmes")
        for level in range(4)
    ]
    left_out = (LeftOut("32768 float64", "MemoryError: <b>no room</b>"),)
    return Benchmark("bench", {"gpu": "A <GPU>", "commit": "abc"}, ("bilinear", "bench"), tuple(rows), tuple(errors), left_out)


def test_the_table_the_results_and_the_page_are_one_run(gpu: Gpu, shell: Shell, tmp_path: Path) -> None:
    words = ("--shape", "64", "--dtype", "float64", "--algorithms", "plan,msmes:1", "--rounds", 2)
    status, out, err = shell(*words, "--json", "a.json", "--html", tmp_path / "a.html")
    assert status == 0 and not err
    lines = out.splitlines()
    assert lines[0].startswith("a pretended GPU, at most 1980 MHz, at most 700 W, driver 580.1, CuPy pretended")
    header, rule, *rows = lines[2:8]
    assert header.split()[:7] == ["ratio", "interval", "shape", "dtype", "plan", "ms", "library"] and set(rule) == {"-", " "}
    cells = [re.split(r"\s{2,}", line.strip()) for line in rows]
    assert [(*r[:2], *r[4:8], *r[9:11], *r[12:15]) for r in cells] == [
        ("2.000", "2.000..2.000", "winograd, 1 level", "3.000", "6.000", "cupy", "preserve", "-", "2", "yes", "yes"),
        ("0.857", "0.857..0.857", "msmes, 1 level", "7.000", "6.000", "cupy", "restore", "0", "2", "yes", "yes"),
        ("1.000", "1.000..1.000", "library", "6.000", "6.000", "cupy", "preserve", "0", "2", "yes", "yes"),
        ("0.857", "0.857..0.857", "msmes, 1 level", "7.000", "6.000", "cupy", "restore", "-", "2", "yes", "yes"),
    ]
    assert all(r[-2:] == ["1755", "612"] for r in cells) and "written to a.json, " in out
    kept = json.loads((tmp_path / "a.json").read_text())
    assert len(kept["rows"]) == 4 and len(kept["errors"]) == 4 and kept["command"][:3] == ["bilinear", "bench", "--shape"]
    assert str(tmp_path) not in json.dumps(kept), "no path of this machine"
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "every plan passed its checks" in page and len(re.findall(r"<rect class=\"(?:sums|products|strip)\"", page)) == 3 + 7


def test_the_results_are_those_that_the_tables_read(gpu: Gpu, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import tables

    assert shell("--shape", "64", "--rounds", 1, "--json", "a.json")[0] == 0
    text = tables.best(json.loads((tmp_path / "a.json").read_text()))
    assert "| float64 | 64 | 6.00 ms | 2.00 (winograd, 1 level) | 0.86 (msmes, 1 level) | 1.00 (library) | yes |" in text
    assert "| float32 | 64 |" in text


def test_the_grid_is_summed_up_in_a_line(gpu: Gpu, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = (((64, 64, 64), "float64"), ((64, 3, 20), "float32"))
    monkeypatch.setattr(bench_tasks, "grid", lambda: shapes)
    monkeypatch.setattr(bench, "GRID", replace(bench.GRID, rounds=6, least_rounds=6))
    status, out, _ = shell("--grid", "--json", "grid.json")
    assert status == 0 and "2 shapes: median ratio 1.500, worst 64x3x20 float32 1.000" in out and "; 0 below 0.98; 0 wrong" in out
    gpu.launch_ms = 2.2
    _, out, _ = shell("--grid", "--dtype", "float64")
    assert "1 shapes: " in out and "1 below 0.98: 64 float64 0.909 (0.909..0.909, winograd, 1 level)" in out


def test_only_an_interval_below_the_least_ratio_fails() -> None:
    near = replace(row(4096, 0.975), interval=Interval(0.96, 0.985, 0.95))
    below = replace(row(8192, 0.975), interval=Interval(0.97, 0.979, 0.95))
    wrong = replace(row(2048), trust=Trust(True, True, 1.0, 0.1))
    text = grid_summary([near, below, wrong])
    assert "1 below 0.98: 8192" in text and "4096 float64" in text.split(";")[0] and text.endswith("1 wrong")
    assert grid_summary([]) == "no shape was measured"


def test_a_failed_check_is_an_error_after_the_table(gpu: Gpu, shell: Shell) -> None:
    def damage(a: object, b: object, c: object) -> None:
        c[0, 0] += 1  # type: ignore[index]

    gpu.damage = damage
    status, out, err = shell("--shape", "64", "--dtype", "float64", "--algorithms", "winograd:1", "--rounds", 1)
    assert status == 1 and re.search(r"winograd, 1 level .* NO ", out)
    assert "error[E685]: winograd, 1 level at 64x64x64, float64, failed its check" in err and "integers exact: False" in err


@each(
    ("words", "code"),
    [
        (("--shape", "4x5"), "E681"),
        (("--shapes-file", "missing.txt"), "E681"),
        (("--algorithms", "msmes:0"), "E682"),
        (("--keep", "middle"), "E682"),
        (("--keep", ""), "E682"),
        (("--grid", "--shape", "512"), "E684"),
        (("--grid", "--shapes-file", "x"), "E684"),
        (("--dtype", "int8"), "E503"),
        (("--shape", "64", "--json", "no/such/place.json"), "E612"),
        (("--shape", "64", "--html", "."), "E612"),
        (("--rounds", "0"), "--rounds"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(gpu: Gpu, shell: Shell, words: tuple[str, ...], code: str) -> None:
    status, out, err = shell(*words)
    assert status == 1 and code in err and not out and not gpu.now


def test_nothing_measured_is_an_error(gpu: Gpu, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*rest: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(bench, "operands", no_room)
    status, out, err = shell("--shape", "64", "--dtype", "float64")
    assert status == 1 and "left out:\n  64x64x64 float64: MemoryError: no room" in out
    assert "error[E686]: nothing was measured\n  note: 64x64x64 float64: MemoryError: no room" in err


def test_without_a_gpu_it_is_said(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "why_no_gpu", lambda: "CuPy is not installed")
    status, out, err = shell()
    assert (status, out) == (1, "")
    assert err == "error[E680]: no GPU can be timed here: CuPy is not installed\n  hint: run `bilinear doctor`\n"


def test_pictures_are_no_png(gpu: Gpu, shell: Shell) -> None:
    status, out, err = shell("--shape", "64", "--png", "a.png")
    assert status == 1 and not out and "error[E683]" in err and "--svg" in err and not gpu.now


def test_the_page_is_well_formed_and_loads_nothing() -> None:
    result = whole()
    page = bench_html(result)
    assert "default-src 'none'" in page and not re.search(r"<script|<link|<img|\ssrc=|url\(|https?:", page)
    assert "A &lt;GPU&gt;" in page and "<b>no room" not in page and "32768 float64: MemoryError: &lt;b&gt;" in page
    drawings = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.S)]
    labelled = [svg for svg in drawings if svg.get("role") == "img"]
    assert len(labelled) == 2 + 2 + 2 and all(svg.get("aria-label") for svg in labelled)
    assert all(svg.get("aria-label") or svg.get("aria-hidden") for svg in drawings)
    failing = replace(result, rows=(replace(result.rows[0], trust=Trust(False, True, 1.0, 0.1)), *result.rows[1:]))
    assert "1 failed a check" in bench_html(failing) and "every plan passed" not in bench_html(failing)
    assert "0 plans beside" in bench_html(Benchmark("bench", {}, ())), "a run that was cut at once"


def test_ratios_and_errors_stand_where_their_values_say() -> None:
    result = whole()
    charts = ratio_charts(result.rows)
    assert [chart.title for chart in charts] == ["float64", "float32"]
    names = ["memory unlimited", "nothing allocated, inputs restored", "msmes:2"]
    for chart in charts:
        assert [series.name for series in chart.series] == names and [tick.text for tick in chart.across] == [
            "2048",
            "4096",
            "8192",
            "16384",
        ]
        for series in chart.series:
            x, y = [p.x for p in series.points], [p.y for p in series.points]
            assert x == [tick.at for tick in chart.across] and y == sorted(y, reverse=True) and series.path.count("L") == 3
        at = {tick.text: tick.at for tick in chart.down}
        assert chart.level == at["1.00"] and chart.series[0].points[2].y == at["1.00"] and chart.series[0].points[3].y == at["1.10"]
    for chart in error_charts(result.errors):
        at = {tick.text: tick.at for tick in chart.down}
        measured, bound, *_ = chart.series
        assert [len(s.points) for s in (measured, bound)] == [3, 4], "no error at all is not a point of a logarithm"
        assert measured.points[0].y == at["10⁻¹⁴"] and bound.points[-1].y == at["10⁻⁶"] and bound.is_bound


def test_launches_fill_a_bar_in_their_order() -> None:
    bars = launch_bars(whole().rows)
    assert [bar.title.split(":")[0] for bar in bars] == [f"winograd, 2 levels, 16384, {dtype}" for dtype in ("float64", "float32")]
    for bar in bars:
        assert [segment[:3] for segment in bar.segments] == [(0.0, 92.0, "strip"), (92.0, 184.0, "sums"), (276.0, 644.0, "products")]
        assert [line[1:5:3] for line in bar.table[1:]] == [("strip", "10.0%"), ("sums", "20.0%"), ("products", "70.0%")]


def test_a_page_of_many_shapes_draws_points(gpu: Gpu) -> None:
    rows = [replace(row(10 * i + 1), shape=(i, 20, 7), asked="auto", launches=()) for i in range(1, 60)]
    (chart,) = ratio_charts(rows)
    (series,) = chart.series
    assert len(series.points) == 59 and not series.path and len(chart.across) < 10
    assert "59 plans" in bench_html(Benchmark("grid", {"gpu": "x"}, (), tuple(rows)))


def test_many_series_can_be_told_apart() -> None:
    """Each on the page and in its key: no two have both the colour and the mark in common."""
    rows = [replace(row(size), asked=f"winograd:{levels}") for levels in range(1, 14) for size in (64, 128)]
    (chart,) = ratio_charts(rows)
    assert len({(series.style, series.mark) for series in chart.series}) == len(chart.series) == 13
    page = bench_html(Benchmark("bench", {"gpu": "x"}, (), tuple(rows)))
    drawn = re.findall(r'<(circle|rect) class="s(\d)"([^>]*)><title>(winograd:\d+)', page)
    styles = {(shape, colour, "rotate" in rest): name for shape, colour, rest, name in drawn}
    assert len(styles) == len(set(styles.values())) == 13


def test_the_table_tells_devices_without_a_tool() -> None:
    bare = replace(row(64), load=Load(), predicted_ms=None, timing="device", budget=0.25)
    text = bench_table(Benchmark("bench", {"gpu": "X"}, (), (bare,)))
    assert text.startswith("X\n\n") and re.search(r"^1\.250 .* float64 .* - +preserve +0.25 +1\.000 +7\*.* -\s+-$", text.splitlines()[4])


@pytest.mark.slow
def test_the_page_is_drawn_by_a_browser(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no browser")
    (tmp_path / "page.html").write_text(bench_html(whole()), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--window-size=1200,900"]
    shot = tmp_path / "shot.png"
    subprocess.run([browser, *options, f"--screenshot={shot}", str(tmp_path / "page.html")], capture_output=True, check=False, timeout=300)
    assert shot.exists() and shot.stat().st_size > 20_000


SCRIPTS = {"best": ("--sizes", "64", "--repeats", "1", "--pareto", "64:float32"), "grid": ("--part", "2/2")}


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_keep_what_they_find(
    script: str, gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    monkeypatch.setattr(bench_tasks, "grid", lambda fresh: (((64, 64, 64), "float64"), ((64, 3, 20), "float32")))
    monkeypatch.setattr(bench, "GRID", replace(bench.GRID, rounds=3, least_rounds=3))
    monkeypatch.setattr(sys, "argv", [f"/somewhere/{script}.py", *SCRIPTS[script], "--json", str(tmp_path / "found.json")])
    importlib.import_module(script).main()
    kept, out = json.loads((tmp_path / "found.json").read_text()), capsys.readouterr().out
    assert (kept["benchmark"], kept["command"][0]) == (script, f"{script}.py") and all(row["holds"] for row in kept["rows"])
    if script == "best":
        budgets = [row["budget"] for row in kept["rows"] if row["dtype"] == "float32"]
        assert budgets == [None, 0.0, 0.0, 0.25, 1.0, 4.0, 0.25, 1.0, 4.0, None] and len(kept["rows"]) == 13
        assert out.count("winograd, 1 level") > 4
    else:
        assert [row["shape"] for row in kept["rows"]] == [[64, 3, 20]] and "1 shapes: median ratio 1.000" in out


@pytest.fixture
def modular(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Products modulo p move the clock by 2 ms."""
    plain = bilinear.matmul

    def timed(*arrays: Any, **options: Any) -> Any:
        gpu.now += 2.0
        return plain(*arrays, **options)

    monkeypatch.setattr(bench_library, "matmul", timed)
    return gpu


def test_products_modulo_p_are_checked_and_timed(modular: Gpu, shell: Shell) -> None:
    status, printed, _ = shell("--modulus", "65521", "--shape", "40x50x30", "--algorithms", "auto,winograd:2,strassen+winograd")
    assert status == 0
    rows = [line.split() for line in printed.splitlines() if line.startswith("40x50x30")]
    assert [row[2] for row in rows] == ["auto", "winograd:2", "strassen+winograd"]
    assert [row[3] for row in rows] == ["2.000"] * 3 and {row[-1] for row in rows} == {"yes"}
    pieces, ms = int(rows[0][5]), float(rows[0][6])
    assert ms == pieces * modular.library_ms and float(rows[0][7]) == ms / 2
    status, printed, _ = shell("--modulus", "2", "--shape", "16", "--algorithms", "walk_444_mod2:1", "--json", "-")
    found = json.loads(printed)
    assert status == 0 and found["rows"][0]["exact"] and found["rows"][0]["modulus"] == 2


def test_a_wrong_product_modulo_p_fails(modular: Gpu, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    right = bilinear.matmul

    def wrong(a: Any, b: Any, c: Any = None, **options: Any) -> Any:
        if c is None:  # the check of what is timed
            return right(a, b, **options)
        modular.now += 2.0
        right(a, b, c, **options)
        c[3, 4] = (c[3, 4] + 1) % options["modulus"]
        return c

    monkeypatch.setattr(bench_library, "matmul", wrong)
    status, _, told = shell("--modulus", "101", "--shape", "16", "--algorithms", "auto")
    assert status == 1 and "E685" in told and "modulo 101" in told


def test_what_has_no_meaning_modulo_p_is_refused(modular: Gpu, shell: Shell) -> None:
    for options, code in (
        (("--modulus", "7", "--dtype", "float32"), "E557"),
        (("--modulus", "7", "--dtype", "float64,float32"), "E557"),
        (("--modulus", "7", "--grid"), "E557"),
        (("--modulus", "7", "--html", "x.html"), "E557"),
        (("--modulus", "1"), "E593"),
        (("--modulus", "7", "--algorithms", "winograd:0"), "E682"),
        (("--modulus", "3", "--shape", "8", "--algorithms", "walk_444_mod2:1"), "E686"),
    ):
        status, _, told = shell(*options)
        assert status == 1 and code in told
