"""Error against speed at one size: every way to multiply, its ratio to the library, bound, probable and measured error; and the picture.

On a GPU every way is checked on integers and timed in shuffled rounds beside the libraries. Its error by norm is that of some rows and
columns of normal data beside sums in double-double; the data are drawn again for each way, because one that restores A and B rounds them.

`--draw` draws the results kept for the documentation: one point a way; to the right is faster, further down is more accurate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from common import Call, classical, interleaved, median, need_gpu, parser_of, save
from drawn import RESULTS, keep
from picture import FONT, Theme, themed

import bilinear
from bilinear.errors import BilinearError
from bilinear.planner.plan import Plan
from bilinear.reporting.pages import power_of_ten

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
LEGEND = (("library", "libraries", 0), ("own", "schemes in the type itself", 82), ("digits", "digits, residues", 270))
CHARACTER, SPACE = 7.3, 4  # The width of a character, about, and the space before and after a name.
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, PANEL, GAP = 860, 440, 62, 84, 366, 338, 84


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


def picture(results: dict[str, Any], theme: Theme, is_narrow: bool) -> str:
    """The points of both types as SVG: the ratio to the library across, the error by norm down, both by powers."""
    rows = results["rows"]
    title = f"Error against speed at N = {rows[0]['n']}, {results['machine']['gpu']}"
    notes = "normal data; the fastest of cuBLAS, cublasLt, CuPy and PyTorch", f"in the run; {results['machine']['commit']}"
    colours = theme.quiet, theme.nothing, theme.memory
    told = (f"{row['dtype']} {row['way']}: {row['ratio']:.2f} times as fast, error {row['error']:.1e}." for row in rows)
    deeper = HEIGHT - TOP + 44
    width, height = (LEFT + PANEL + 30, HEIGHT + deeper + 18) if is_narrow else (WIDTH, HEIGHT)
    corners = [(LEFT, i * deeper) if is_narrow else (LEFT + i * (PANEL + GAP), 0) for i in range(2)]
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{title}</title>",
        f"<desc>{' '.join(told)}</desc>",
        "<style>",
        f"text {{ {FONT}; font-size: 12px; fill: {theme.text}; stroke: {theme.page}; stroke-width: 3px; paint-order: stroke }}",
        f".title {{ font-size: 15px; font-weight: 600 }} .quiet {{ fill: {theme.quiet} }} .grid {{ stroke: {theme.line} }}",
        ".end { text-anchor: end } .middle { text-anchor: middle }",
        *(f".{kind} {{ fill: {colour} }}" for kind, colour in zip(("library", "own", "digits"), colours, strict=True)),
        "</style>",
        f'<text class="title" x="14" y="24">{title}</text>',
        *(f'<circle class="{kind}" cx="{x + 19}" cy="44" r="5"/><text x="{x + 30}" y="48">{name}</text>' for kind, name, x in LEGEND),
        *(line for dtype, (x, y) in zip(("float64", "float32"), corners, strict=True) for line in _panel(rows, dtype, x, y)),
    ]
    lines = notes if is_narrow else (" ".join(notes),)
    body += [f'<text class="quiet" x="14" y="{height - 8 - 16 * i}">{text}</text>' for i, text in enumerate(reversed(lines))]
    return "\n".join([*body, "</svg>", ""])


def _panel(rows: list[Row], dtype: str, left: float, lower: float) -> Iterator[str]:
    """One type: axes with titles, points, and their names where there is room."""
    own, upper, bottom = [row for row in rows if row["dtype"] == dtype], lower + TOP, lower + BOTTOM
    yield f'<text x="{left}" y="{upper - 12}">{dtype}</text>'
    yield f'<text class="quiet middle" transform="translate({left - 42} {(upper + bottom) / 2:g}) rotate(-90)">error by norm</text>'
    yield f'<text class="quiet middle" x="{left + PANEL / 2:g}" y="{bottom + 36}">times as fast as the fastest library</text>'
    fastest = max(2.0, *(row["ratio"] for row in own)) * 1.15
    decades = [math.log10(row["error"]) for row in own]
    low, high = min(decades) - 0.35, max(decades) + 0.35

    def across(ratio: float) -> float:
        return round(left + PANEL * math.log(max(ratio, 0.75) / 0.75) / math.log(fastest / 0.75), 1)

    def down(decade: float) -> float:
        return round(upper + (bottom - upper) * (high - decade) / (high - low), 1)

    for ratio in (1, 1.5, 2, 3, 4, 5):
        if ratio < fastest:
            yield f'<line class="grid" x1="{across(ratio)}" x2="{across(ratio)}" y1="{upper}" y2="{bottom}"/>'
            yield f'<text class="quiet middle" x="{across(ratio)}" y="{bottom + 17}">{ratio:g}</text>'
    for decade in range(math.ceil(low), math.floor(high) + 1):
        y = down(decade)
        yield f'<line class="grid" x1="{left}" x2="{left + PANEL}" y1="{y}" y2="{y}"/>'
        yield f'<text class="quiet end" x="{left - 6}" y="{y + 4}">{power_of_ten(decade)}</text>'
    points = [(across(row["ratio"]), down(math.log10(row["error"])), row) for row in sorted(own, key=lambda x: -x["ratio"])]
    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y, _ in points]
    for x, y, row in points:
        yield f'<circle class="{_kind(row["way"])}" cx="{x}" cy="{y}" r="4"><title>{_told(row)}</title></circle>'
    for x, y, row in points:  # the fastest first: others are named where there is room
        length = CHARACTER * len(row["way"])
        corners = [(x + side, y + level) for level in (-8, 17) for side in (-4, 4 - length, -length / 2)]
        for first, level in ((x + 8, y + 4), *corners, (x - 8 - length, y + 4)):
            box = first - SPACE, level - 10, first + length + SPACE, level + 2
            inside = left <= first and box[2] <= left + PANEL + 26 and upper <= box[1] and box[3] <= bottom
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                yield f'<text x="{first:g}" y="{level:g}">{row["way"]}</text>'
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
    parser.add_argument("--draw", action="store_true", help="draw docs/images/error-speed-*.svg from the results kept, and measure nothing")
    parser.add_argument("--check", action="store_true", help="compare these pictures with the results, and measure nothing")
    options = parser.parse_args()
    if options.draw or options.check:
        kept = json.loads((RESULTS / "error-speed-h200.json").read_text())
        keep(themed("error-speed", lambda theme, is_narrow: picture(kept, theme, is_narrow)))
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
