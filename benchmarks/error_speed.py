"""Error against speed at one size: every way to multiply, its ratio to the library, bound, probable and measured error; and the picture.

On a GPU every way is checked on integers and timed in shuffled rounds beside the libraries. Its error by norm is that of some rows and
columns of normal data beside sums in double-double; the data are drawn again for each way, because one that restores A and B rounds them.

`--draw FILE` draws the results of a file for the documentation, on a light and a dark page: one point a way; to the right is faster,
further down is more accurate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from common import Call, classical, interleaved, median, need_gpu, parser_of, save
from drawn import IMAGES
from picture import FONT, THEMES, Theme

import bilinear
from bilinear.errors import BilinearError
from bilinear.planner.plan import Plan

Row = dict[str, Any]
Box = tuple[float, float, float, float]
SAMPLED = 64
OWN: tuple[tuple[str, ...], ...] = (("winograd",), ("winograd",) * 2, ("winograd",) * 3, ("msmes",) * 2)
BELOW: tuple[tuple[str, ...], ...] = ((), ("winograd",), ("winograd",) * 2)
PRODUCTS = {
    "float32": ("tf32", "bfloat16", "pairs", "pairs_on_load", "residues7", "residues8", "residues9"),
    "float64": ("residues13", "residues14", "residues15", "residues16"),
}
DEEP = ("pairs", *(name for name in (*PRODUCTS["float32"], *PRODUCTS["float64"]) if name.startswith("residues")))
"""Products that have levels above or inside."""
LEGEND = (("library", "libraries", 0), ("own", "fast schemes in the type itself", 90), ("digits", "digits and residues", 334))
CHARACTER = 6.6
"""The width of a character, about."""
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, PANEL, GAP = 860, 420, 62, 84, 366, 338, 76


def plans(n: int, dtype: str) -> Iterator[tuple[str, Plan]]:
    """The ways by name; those that are refused at this size are left out."""
    own: list[dict[str, Any]] = [{"levels": x, "inputs": "restore" if "msmes" in x else "preserve"} for x in OWN]
    own += [{"products": products, "levels": levels} for products in PRODUCTS[dtype] for levels in BELOW if products in DEEP or not levels]
    own += [{"products": "pairs", "levels": ("dps_444",)}] if dtype == "float32" else []
    for asked in own:
        levels, products = asked["levels"], asked.get("products", "")
        name = " on ".join(filter(None, (f"{levels[0]} {len(levels)}" if levels else "", products)))
        try:
            yield name, bilinear.plan(n, n, n, dtype, device="h200", explain=True, **asked)
        except BilinearError as error:
            print(f"left out: {name}: {error}", flush=True)
    yield "no workspace", bilinear.plan(n, n, n, dtype, device="h200", explain=True, accuracy="classical", workspace=0)


def measure(n: int, dtype: str, repeats: int) -> list[Row]:
    """All ways in one type."""
    import cupy
    from residues import drawn, errors, exact_sums

    c, draw = cupy.empty((n, n), dtype), cupy.random.default_rng(5)
    a, b = (draw.integers(-15, 16, (n, n)).astype(dtype) for _ in "AB")
    wanted, known = cupy.matmul(a, b), dict(plans(n, dtype))
    own: dict[str, Call] = {name: partial(bilinear.matmul, a, b, c, plan=plan) for name, plan in known.items()}
    exact = {}
    for name, call in own.items():
        c[...] = cupy.nan
        call()
        exact[name] = bool((c == wanted).all())
    del wanted
    a[...], b[...] = drawn(n, dtype, 0, 1), drawn(n, dtype, 0, 2)
    sampled, size = cupy.linspace(0, n - 1, SAMPLED).astype(int), float(abs(a).max()) * float(abs(b).max())
    sums = exact_sums(a[sampled].astype("float64"), b[:, sampled].astype("float64"))
    calls: dict[str, Call] = {**classical(a, b, c), **own}
    ms, found = {name: median(values) for name, values in interleaved(calls, repeats).items()}, {}
    for name, call in calls.items():
        a[...], b[...], c[...] = drawn(n, dtype, 0, 1), drawn(n, dtype, 0, 2), cupy.nan
        call()
        found[name] = errors(c, sampled, sums, size)
    library = min(ms[name] for name in calls if name not in own)
    rows = []
    for name in calls:
        chosen = known[name].chosen if name in known else None
        judged = {} if chosen is None else {"bound": chosen.error, "probable": chosen.probable, "exact": exact[name]}
        error, largest = found[name]
        rows.append(
            {"n": n, "dtype": dtype, "way": name, "ms": ms[name], "ratio": library / ms[name], "error": error, "largest": largest} | judged
        )
    return rows


def picture(results: dict[str, Any], theme: Theme) -> str:
    """The points of both types as SVG: the ratio to the library across, the error by norm down, both by powers."""
    rows = results["rows"]
    title = f"Error against speed at N = {rows[0]['n']}, {results['machine']['gpu']}"
    note = (
        f"error by norm, normal data; library: the fastest of cuBLAS, cublasLt, CuPy and PyTorch in the run; {results['machine']['commit']}"
    )
    colours = theme.quiet, theme.nothing, theme.memory
    told = (f"{row['dtype']} {row['way']}: {row['ratio']:.2f} times as fast, error {row['error']:.1e}." for row in rows)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{title}</title>",
        f"<desc>{' '.join(told)}</desc>",
        "<style>",
        f"text {{ {FONT}; font-size: 12px; fill: {theme.text}; stroke: {theme.page}; stroke-width: 3px; paint-order: stroke }}",
        f".title {{ font-size: 17px; font-weight: 600 }} .quiet {{ fill: {theme.quiet} }} .grid {{ stroke: {theme.line} }}",
        ".end { text-anchor: end } .middle { text-anchor: middle }",
        *(f".{kind} {{ fill: {colour} }}" for kind, colour in zip(("library", "own", "digits"), colours, strict=True)),
        "</style>",
        f'<text class="title" x="{LEFT}" y="26">{title}</text>',
        *(
            f'<circle class="{kind}" cx="{LEFT + x + 5}" cy="48" r="5"/><text x="{LEFT + x + 16}" y="52">{name}</text>'
            for kind, name, x in LEGEND
        ),
        *(line for i, dtype in enumerate(("float64", "float32")) for line in _panel(rows, dtype, LEFT + i * (PANEL + GAP))),
        f'<text class="quiet" x="{LEFT}" y="{HEIGHT - 8}">{note}</text>',
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def _panel(rows: list[Row], dtype: str, left: float) -> Iterator[str]:
    """One type: axes, points, and their names where there is room."""
    own = [row for row in rows if row["dtype"] == dtype]
    yield f'<text x="{left}" y="{TOP - 12}">{dtype}</text>'
    if not own:
        return
    fastest = max(2.0, *(row["ratio"] for row in own)) * 1.15
    low, high = (pick(row["error"] for row in own) for pick in (min, max))
    bottom, top = math.log10(low) - 0.15, math.log10(high) + 0.15

    def across(ratio: float) -> float:
        return round(left + PANEL * math.log(max(ratio, 0.75) / 0.75) / math.log(fastest / 0.75), 1)

    def down(error: float) -> float:
        return round(TOP + (BOTTOM - TOP) * (top - math.log10(error)) / (top - bottom), 1)

    for ratio in (1, 1.5, 2, 3, 4, 5):
        if ratio < fastest:
            yield f'<line class="grid" x1="{across(ratio)}" x2="{across(ratio)}" y1="{TOP}" y2="{BOTTOM}"/>'
            yield f'<text class="quiet middle" x="{across(ratio)}" y="{BOTTOM + 18}">{ratio:g}x</text>'
    for power in range(math.ceil(bottom - 1), math.floor(top) + 1):
        for digit in (1, 2, 5):
            if bottom <= math.log10(digit) + power <= top:
                y = down(digit * 10.0**power)
                yield f'<line class="grid" x1="{left}" x2="{left + PANEL}" y1="{y}" y2="{y}"/>'
                yield f'<text class="quiet end" x="{left - 6}" y="{y + 4}">{digit}e{power}</text>'
    points = [(across(row["ratio"]), down(row["error"]), row) for row in sorted(own, key=lambda x: -x["ratio"])]
    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y, _ in points]
    for x, y, row in points:
        yield f'<circle class="{_kind(row["way"])}" cx="{x}" cy="{y}" r="4"><title>{_told(row)}</title></circle>'
    for x, y, row in points:  # the fastest first: others are named where there is room
        length = CHARACTER * len(row["way"])
        for side, at, low in (("", x - 4, y - 7), ("end", x + 4, y - 7), ("", x - 4, y + 17), ("end", x + 4, y + 17)):
            first = at - length if side else at
            box = first, low - 10, first + length, low + 1
            if left <= first and box[2] <= left + PANEL + GAP / 2 and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                yield f'<text class="{side}" x="{at:g}" y="{low:g}">{row["way"]}</text>'
                break


def _told(row: Row) -> str:
    return f"{row['way']}: {row['ratio']:.2f}x, {row['error']:.1e}"


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _kind(way: str) -> str:
    narrow = ("pairs", "residues", "tf32", "bfloat16", "no workspace")
    return "digits" if any(word in way for word in narrow) else "own" if " " in way else "library"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--size", type=int, default=16384)
    parser.add_argument("--dtypes", default="float64,float32", help="comma-separated")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--draw", type=Path, help="draw these results as docs/images/error-speed-*.svg, and measure nothing")
    options = parser.parse_args()
    if options.draw is not None:
        results = json.loads(options.draw.read_text())
        for name, theme in THEMES.items():
            (IMAGES / f"error-speed-{name}.svg").write_text(picture(results, theme))
        return
    need_gpu()
    rows = [row for dtype in options.dtypes.split(",") for row in measure(options.size, dtype, options.repeats)]
    for row in rows:
        judged = f"bound {row['bound']:.1e}  {row['probable']:.2f} x classical  {row['exact']}" if "bound" in row else ""
        print(f"{row['dtype']:>8} {row['way']:24} {row['ms']:9.2f} ms {row['ratio']:5.2f}x  error {row['error']:.1e}  {judged}")
    save("error-speed", rows, options.json)
    if not all(row.get("exact", True) for row in rows):
        raise SystemExit("a result is wrong")


if __name__ == "__main__":
    main()
