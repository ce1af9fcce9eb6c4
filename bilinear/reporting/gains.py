"""What a program gained under the stand-in for cuBLAS, by its log: a row for each kind of product, their sum, a table and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from bilinear.errors import fail
from bilinear.reading import open_input
from bilinear.reporting.pages import environment
from bilinear.reporting.table import aligned
from bilinear.version import __version__

Row = dict[str, object]
WHAT = "shape", "dtype", "triangle", "plan", "bound", "why"
TIMES = "ms", "cublas_ms"  # of all calls: bilinear's, and what cuBLAS takes or took for them
HEADER = "shape", "dtype", "plan", "calls", "ms", "cuBLAS ms", "gained ms", "times", "error at most", "why"
MEASURED, PARTLY, PREDICTED = "measured", "cuBLAS's predicted", "predicted"


def gains(log: Path) -> list[Row]:
    """What the lines of a log say of each shape, type and plan, the largest gain first. Raises `BilinearError` (E615)."""
    found: dict[tuple[object, ...], Row] = {}
    with open_input(log) as file:
        for number, line in enumerate(file, 1):
            try:
                _add(found, json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise fail("E615", f"line {number} of {log} is not of a log of `bilinear run-with`", "name the file of --log") from None
    return sorted(found.values(), key=lambda row: -number_in(row, "gained_ms"))


def _add(found: dict[tuple[object, ...], Row], told: Mapping[str, object]) -> None:
    """A call. Times that were measured are those of its whole batch, and go before predictions, which are those of one product."""
    shape, batch = told.get("shape") or (), max(1, int(number_in(told, "batch", 1)))
    key = *shape, told.get("dtype"), told.get("triangle"), told["plan"], told["why"]  # type: ignore[misc]
    row = found.setdefault(key, {name: told.get(name) for name in WHAT} | {"calls": 0} | dict.fromkeys(("gained_ms", *TIMES), 0.0))
    ours, theirs = "measured_ms" in told, "library_measured_ms" in told
    ms = number_in(told, "measured_ms") if ours else number_in(told, "ms") * batch
    cublas = number_in(told, "library_measured_ms") if theirs else number_in(told, "library_ms") * batch
    is_compared = "library_ms" in told or (ours and theirs)
    times = MEASURED if ours and theirs else PARTLY if ours and is_compared else PREDICTED if is_compared else None
    row["calls"] = number_in(row, "calls") + batch
    if times is not None:
        row["times"] = times if row.get("times", times) == times else PARTLY
        row |= {name: number_in(row, name) + more for name, more in zip(("gained_ms", *TIMES), (cublas - ms, ms, cublas), strict=True)}


def number_in(row: Mapping[str, object], name: str, otherwise: float = 0.0) -> float:
    """A number of a row, or another one where it has none."""
    value = row.get(name, otherwise)
    return value if isinstance(value, int | float) else otherwise


def total(rows: list[Row]) -> Row:
    """The products that bilinear multiplied, their gain, how much of it was measured, and the largest bound of an error."""
    ours = [row for row in rows if row["plan"] != "library"]
    calls, gained, ms, cublas = (sum(number_in(row, name) for row in ours) for name in ("calls", "gained_ms", *TIMES))
    measured = sum(number_in(row, "gained_ms") for row in ours if row.get("times") == MEASURED)
    bound = max((number_in(row, "bound") for row in ours), default=None)
    return {"calls": calls, "gained_ms": gained, "measured_ms": measured, "ms": ms, "cublas_ms": cublas, "bound": bound}


def _cells(row: Mapping[str, object]) -> tuple[str, ...]:
    shape, bound = row["shape"], "-" if row["bound"] is None else f"{number_in(row, 'bound'):.1e}"
    extents = "x".join(map(str, shape)) if isinstance(shape, list) else "-"
    times = [f"{number_in(row, name):.1f}" if row.get("times") else "-" for name in (*TIMES, "gained_ms")]
    where = f" ({row['triangle']} triangle)" if row["triangle"] else ""
    what = extents + where, str(row["dtype"] or "-"), str(row["plan"]), f"{row['calls']:g}"
    return *what, *times, str(row.get("times") or "-"), bound, str(row["why"]).removeprefix("chosen: ")


def gains_table(rows: list[Row]) -> str:
    """The rows and their sum, aligned."""
    return "\n".join(aligned([*map(_cells, rows), _sum_cells(rows)], HEADER))


def _sum_cells(rows: list[Row]) -> tuple[str, ...]:
    found = total(rows)
    bound = "-" if found["bound"] is None else f"{number_in(found, 'bound'):.1e}"
    times = (f"{number_in(found, name):.1f}" for name in (*TIMES, "gained_ms"))
    return "all of bilinear", "", "", f"{found['calls']:g}", *times, f"{number_in(found, 'measured_ms'):.1f} measured", bound, ""


def gains_html(rows: list[Row], log: str, date: str = "") -> str:
    """The same as one self-contained HTML page, with a bar for each kind of product that gained. The footer tells the `date`."""
    found, bars = total(rows), list(_bars(rows))
    return (
        environment(html=True)
        .get_template("gains.html.j2")
        .render(
            log=log,
            total=found,
            cells=_sum_cells(rows),
            left=sum(number_in(row, "calls") for row in rows if row["plan"] == "library"),
            bars=bars,
            table=[HEADER, *map(_cells, rows)],
            version=__version__,
            date=date,
        )
    )


WIDTH, MOST = 520, 20  # of a bar in the page's pixels; how many are drawn


def _bars(rows: list[Row]) -> Iterator[tuple[str, float, float, str]]:
    """What cuBLAS and bilinear need for the kinds that gain most: a name, two widths, and words."""
    timed = [row for row in rows if row["plan"] != "library" and row.get("times")][:MOST]
    longest = max((number_in(row, name) for row in timed for name in TIMES), default=0.0)
    for row in timed:
        cells, (ms, cublas) = _cells(row), (number_in(row, name) for name in TIMES)
        words = f"{cublas:.1f} to {ms:.1f} ms ({row['times']})"
        yield f"{cells[0]} {cells[1]}", WIDTH * cublas / longest, WIDTH * ms / longest, words
