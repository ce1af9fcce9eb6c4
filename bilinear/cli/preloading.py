"""preload and run-with: a stand-in for cuBLAS before programs that nobody changes, and what it reports."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from bilinear.cli import completing
from bilinear.cli.answers import Json, answer, file_of, limit_option, output_option, say
from bilinear.errors import fail
from bilinear.places import require_files
from bilinear.reading import open_input
from bilinear.reporting.table import aligned
from bilinear.writing import write_file

PRELOAD = "LD_PRELOAD"
WHAT = "shape", "dtype", "plan", "bound", "why"


def run_with(
    program: Annotated[list[str], typer.Argument(metavar="-- PROGRAM [ARGS]", help="The program and its arguments, after two dashes.")],
    accuracy: Annotated[
        str, limit_option(help="A bound relative to max|A| * max|B|, classical, or twice.", autocompletion=completing.accuracies)
    ] = "",
    workspace: Annotated[str, limit_option(help="The most bytes of workspace of a product: bytes, 2GiB, none.")] = "",
    reproducible: Annotated[str, limit_option(help="bitwise: the same bits on every GPU and in every run.")] = "",
    log: Annotated[Path | None, output_option(help="Add a line of JSON for each large product to this file.")] = None,
) -> None:
    """Run a program whose large products by cuBLAS are bilinear's where that is predicted to gain."""
    from bilinear.runtime.standin import asked_for

    given = {"ACCURACY": accuracy, "WORKSPACE": workspace, "REPRODUCIBLE": reproducible}
    given["LOG"] = "" if log is None else str(log.absolute())
    variables = os.environ | {f"BILINEAR_{name}": value for name, value in given.items() if value}
    asked_for(variables)
    require_files(log)
    if shutil.which(program[0]) is None:
        raise fail("E616", f"there is no program {program[0][:60]!r}", "give its path, or the name of one in PATH")
    variables[PRELOAD] = _preloaded()
    sys.stdout.flush()
    os.execvpe(program[0], program, variables)


def preload(
    report: Annotated[Path | None, typer.Option(help="Tell what a log of `run-with --log` says.")] = None,
    output: Annotated[Path | None, output_option("--output", "-o", help="Write the stand-in's C source to this file, too.")] = None,
    json_file: Json = None,
) -> None:
    """Build the stand-in for cuBLAS and print the line that loads it, or tell what its log says."""
    if report is None and json_file is not None:
        raise fail("E557", "--json has no meaning without --report", "name the file of `run-with --log`, or leave it out")
    if report is not None and output is not None:
        raise fail("E557", "--output has no meaning with --report", "leave it out")
    require_files(output, file_of(json_file))
    if report is None:
        from bilinear.artifact.preload import standin_source

        line = f"{PRELOAD}={_preloaded()}"
        if output is not None:
            write_file(output, standin_source())
        say(line)
        return
    rows = list(_gains(report))
    answer(json_file, lambda: {"products": rows, "total": _total(rows)}, lambda: _table(rows))


def _preloaded() -> str:
    """The stand-in before what is loaded already."""
    from bilinear.artifact.preload import standin_library

    return ":".join(filter(None, (str(standin_library()), os.environ.get(PRELOAD, ""))))


Row = dict[str, object]


def _gains(log: Path) -> Iterator[Row]:
    """What the lines of a log say of each shape, type and plan, the largest gain first. Raises `BilinearError` (E615)."""
    found: dict[tuple[object, ...], Row] = {}
    with open_input(log) as file:
        for number, line in enumerate(file, 1):
            try:
                told = json.loads(line)
                key = *told.get("shape", ()), told.get("dtype"), told["plan"], told["why"]
                calls = max(1, told.get("batch", 1))
                gain = (told["library_ms"] - told["ms"]) * calls if "library_ms" in told else 0.0
                row = found.setdefault(key, {name: told.get(name) for name in WHAT} | {"calls": 0, "gained_ms": 0.0})
                row |= {"calls": _number(row, "calls") + calls, "gained_ms": _number(row, "gained_ms") + gain}
            except (ValueError, KeyError, TypeError, AttributeError):
                raise fail("E615", f"line {number} of {log} is not of a log of `bilinear run-with`", "name the file of --log") from None
    yield from sorted(found.values(), key=lambda row: -_number(row, "gained_ms"))


def _number(row: Mapping[str, object], name: str) -> float:
    value = row[name]
    return value if isinstance(value, int | float) else 0.0


def _total(rows: list[Row]) -> Row:
    """The products that bilinear multiplied, the predicted gain of all, and the largest bound of an error."""
    ours = [row for row in rows if row["plan"] != "library"]
    calls, gained = (sum(_number(row, name) for row in ours) for name in ("calls", "gained_ms"))
    return {"calls": calls, "gained_ms": gained, "bound": max((_number(row, "bound") for row in ours), default=None)}


def _table(rows: list[Row]) -> str:

    def cells(row: Mapping[str, object], shape: object, *names: object) -> tuple[object, ...]:
        bound = "-" if row["bound"] is None else f"{_number(row, 'bound'):.1e}"
        return shape, *names, row["calls"], f"{_number(row, 'gained_ms'):.1f}", bound

    lines = []
    for row in rows:
        shape = row["shape"]
        lines.append(
            (*cells(row, "x".join(map(str, shape)) if isinstance(shape, list) else "-", row["dtype"] or "-", row["plan"]), row["why"])
        )
    lines.append((*cells(_total(rows), "all of bilinear", "", ""), ""))
    return "\n".join(aligned(lines, ("shape", "dtype", "plan", "calls", "gained ms (predicted)", "error at most", "why")))
