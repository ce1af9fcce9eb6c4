"""Code that commands share: common options and how they are read, progress, files, and the table of checks on real input."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from signal import SIG_DFL, SIGTERM, signal
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bilinear.cli import completing
from bilinear.cli.answers import limit_option, output_option, problem_option
from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.ir.element import ELEMENTS, IN_ARRAYS, Element
from bilinear.ir.placement import LEVELS_ALLOWED, MOST_EXTENT
from bilinear.reporting.table import aligned
from bilinear.visible import visible

if TYPE_CHECKING:
    from bilinear.frontend import Loaded
    from bilinear.ir.measurement import LeftOut
    from bilinear.ir.scheme import Scheme
    from bilinear.measure.bench_library import ModularCheck, ModularTime
    from bilinear.measure.check_multiply import Check, Device


AlgorithmName = Annotated[
    str,
    typer.Argument(
        help="A .bl file, a shipped algorithm (see `bilinear list`), or a composition: 'laderman (x) strassen'.",
        autocompletion=completing.algorithms,
    ),
]
Levels = Annotated[str, typer.Option(help="Levels of recursion, from 1.", autocompletion=completing.levels)]
SomeLevels = Annotated[
    str,
    typer.Option(help="Levels of recursion, from 1, or auto: as many as keep blocks at least 1024 wide.", autocompletion=completing.levels),
]
Inputs = Annotated[
    str | None, limit_option(help="preserve, restore or consume the inputs (default: by the algorithm).", autocompletion=completing.inputs)
]
Shape = Annotated[str, problem_option(help="Size of the check: m,k,n or MxKxN, or one number for all three.")]
Shapes = Annotated[list[str] | None, problem_option(help="N, MxKxN or m,k,n; given again for further shapes.")]
Dtypes = Annotated[str, problem_option(help="Element types, comma-separated.", autocompletion=completing.dtypes)]
AnyDtypes = Annotated[
    str | None, problem_option(help="Element types, comma-separated (default: float64,float32).", autocompletion=completing.dtypes)
]
"""The same where another option may leave no choice: None if no type is named."""
A_MOMENT = 1.0  # Seconds before a line shows the progress.
Output = Annotated[Path | None, output_option("--output", "-o", help="Write the result to a .bl file.")]


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands in the command line, be it with its default value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def refuse(others: Mapping[str, object], where: str, hint: str = "leave it out") -> None:
    """Refuse (E557) options that are given where they have no meaning, such as "with --modulus"."""
    lost = next((name for name, value in others.items() if value), None)
    if lost is not None:
        raise fail("E557", f"{lost} has no meaning {where}", hint)


def words(text: str) -> tuple[str, ...]:
    """Words separated by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def read_dtypes(text: str, known: Mapping[str, Element] = IN_ARRAYS) -> tuple[str, ...]:
    """Some of the known element types, comma-separated, each once (E503); by default known are the types that arrays hold."""
    dtypes, hint = tuple(dict.fromkeys(words(text))), f"choose one or more of {', '.join(known)}"
    for dtype in dtypes:
        if dtype not in known:
            raise fail("E503", f"no {'kernels for' if dtype not in ELEMENTS else 'arrays of'} {dtype!r}", hint)
    if not dtypes:
        raise fail("E503", "no element type is named", hint)
    return dtypes


def read_shape(text: str) -> tuple[int, int, int]:
    """m, k and n (E504)."""
    sizes = _extents(text)
    sizes *= 3 if len(sizes) == 1 else 1
    if len(sizes) != 3:
        hint = f"give m,k,n or MxKxN, or one number for all three, each from 1 to {MOST_EXTENT}"
        raise fail("E504", f"{text[:60]!r} is not a shape", hint)
    return sizes[0], sizes[1], sizes[2]


def _extents(text: str) -> list[int]:
    """Numbers separated by commas or x; none if one of them is no possible extent."""
    try:
        sizes = [int(word) for word in words(text.replace("x", ","))]
    except ValueError:
        return []
    return sizes if all(1 <= size <= MOST_EXTENT for size in sizes) else []


def read_chain(text: str) -> list[tuple[int, int]]:
    """The shapes of matrices that share extents, written once each (E504)."""
    extents = _extents(text)
    if len(extents) < 3:
        hint = f"give the extents of two matrices or more, each from 1 to {MOST_EXTENT}: 1000x20x3000 are 1000x20 and 20x3000"
        raise fail("E504", f"{text[:60]!r} is not a chain", hint)
    return list(pairwise(extents))


def read_levels(text: str) -> int:
    """A number of levels (E514)."""
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        hint = f"give a number from 1 (`bilinear run` and `compile` also take auto, because they know a shape): {LEVELS_ALLOWED}"
        raise fail("E514", f"--levels {text[:40]} is not a number of levels", hint)
    return int(text)


def read_levels_for(text: str, scheme: Scheme, shape: tuple[int, int, int]) -> int:
    """A number of levels (E514), or for `auto` at least one, and more while blocks of this problem stay wide enough."""
    from bilinear.lowering.place import choose_levels

    return max(1, choose_levels(scheme, *shape)) if text == "auto" else read_levels(text)


def joined(shapes: Sequence[str]) -> str:
    """Shapes that were given one by one, as one list: a comma within a shape becomes x."""
    return " ".join(re.sub(r"\s*,\s*", "x", shape.strip()) for shape in shapes)


def read_workspace(text: str) -> int | str:
    """A number of bytes, or the word itself, which its user interprets."""
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else text


def read_accuracy(text: str) -> float | str | None:
    """An error bound, or the name of a class of accuracy, which planning checks; None if there is none."""
    try:
        return float(text) if text else None
    except ValueError:
        return text


def read_sides(text: str | None) -> tuple[str, ...]:
    """The operands that are prepared, `left` and `right` (E682)."""
    sides = tuple(dict.fromkeys(words(text or "")))
    if not set(sides) <= {"left", "right"} or (text is not None and not sides):
        raise fail("E682", f"{(text or '')[:40]!r} names no operands", "give left, right, or left,right")
    return sides


def read_seconds(text: str) -> float:
    """A time in seconds: `90`, `90s`, `1.5m`, `2h` (E664)."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|m|h|)", text.strip(), re.ASCII)
    if match is None or float(match[1]) == 0:
        raise fail("E664", f"{text[:40]!r} is not a time", "give seconds, or a number followed by s, m or h: 90s, 5m, 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def nothing_measured(left_out: Sequence[LeftOut]) -> BilinearError:
    """The error (E686) if every request was left out."""
    notes = tuple(f"{left.what}: {left.why}" for left in left_out[:5])
    return fail("E686", "nothing was measured", "the notes say why; smaller shapes, or more time, may help", notes=notes)


ENDED = 128 + SIGTERM  # The exit code of a program that SIGTERM has ended.


@contextmanager
def raises_on_sigterm(end: BaseException) -> Iterator[None]:
    """While the context lasts, the first SIGTERM, which ends the jobs of a cluster, raises this when Python runs again.

    So results are shown and child processes end. A second one ends everything at once. One that waits for a dead GPU needs SIGKILL.
    """

    def once(*_: object) -> None:
        signal(SIGTERM, SIG_DFL)
        raise end

    before = signal(SIGTERM, once)
    try:
        yield
    finally:
        signal(SIGTERM, before)


def device_files(named: str = "") -> tuple[str, ...]:
    """The device description file named here or in BILINEAR_DEVICE, if any."""
    file = named or os.environ.get("BILINEAR_DEVICE", "")
    return (file,) if file and file != "cpu" else ()


def check_inputs(inputs: str | None) -> None:
    """Refuse an unknown promise (E513)."""
    from bilinear.planner.problem import require_inputs

    if inputs is not None:
        require_inputs(inputs)


def devices(asked: str = "all") -> list[Literal["cpu", "gpu"]]:
    """The usable devices among those requested (E505, E512)."""
    from bilinear.backends.doctor import why_no_gpu

    reason = why_no_gpu()
    if asked not in ("cpu", "gpu", "all"):
        raise fail("E505", f"device {asked!r} is unknown", "choose cpu, gpu or all")
    if asked == "gpu" and reason is not None:
        raise fail("E512", f"no GPU is usable: {reason}", "run `bilinear doctor`")
    return ["cpu"] if reason is not None or asked == "cpu" else ["gpu"] if asked == "gpu" else ["cpu", "gpu"]


def seed_of_a_search(value: int) -> int:
    """The callback of an option for a seed, which must be below 2^32; typer shows a bound as a word too long for narrow terminals."""
    if value >= 2**32:
        raise typer.BadParameter(f"it is at most {2**32 - 1}")
    return value


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda what, done, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, of: bar.update(task, description=visible(what), completed=done, total=of)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """On a terminal, a line with the current work and its time, if it takes more than a moment."""
    if not sys.stderr.isatty():
        yield
        return
    over = Event()

    def show() -> None:
        if not over.wait(A_MOMENT):
            with progress_bar() as progress:
                progress(what, 0, None)
                over.wait()

    shown = Thread(target=show, daemon=True)
    shown.start()
    try:
        yield
    finally:
        over.set()
        shown.join()


def run_checks(
    loaded: Loaded,
    shape: tuple[int, int, int],
    dtypes: Sequence[str],
    levels: int,
    inputs: str,
    on: Sequence[Device],
    progress: Callable[[str, int, int], None],
    what: str = "checking",
    tolerance: float | None = None,
) -> list[Check]:
    """One check for each device and element type."""
    from bilinear.measure.check_multiply import check

    checks = []
    for device in on:
        for number, dtype in enumerate(dtypes):
            progress(f"{what} on the {device}", number, len(dtypes))
            checks.append(check(loaded, shape, dtype, levels, inputs, device, tolerance=tolerance))
    return checks


def check_table(checks: list[Check]) -> str:
    """The checks as an aligned table."""

    rows = []
    for c in checks:
        what = c.device, "x".join(map(str, c.shape)), c.dtype, c.levels, c.inputs
        exact, drift = "-" if c.exact is None else "yes" if c.exact else "NO", f"{c.drift:.1e}" if c.inputs == "restore" else "-"
        times = f"{c.seconds * 1e3:.3f}", f"{c.library_seconds * 1e3:.3f}"
        rows.append((*what, exact, f"{c.error:.2e}", f"{c.allowance:.2e}", drift, c.workspace_bytes, *times))
    trust = ("integers exact", "error", "allowed", "drift")
    header = ("device", "shape", "dtype", "levels", "inputs", *trust, "workspace B", "ms", "library ms")
    return "\n".join(aligned(rows, header))


def modular_table(checks: Sequence[ModularCheck]) -> str:
    """Checks modulo p as an aligned table."""

    rows = []
    for check in checks:
        what = check.device, "x".join(map(str, check.shape)), check.modulus, check.levels, check.inputs
        trust = "yes" if check.exact else "NO", "yes" if check.restored else "NO"
        rows.append((*what, *trust, f"{check.seconds * 1e3:.3f}", f"{check.classical_seconds * 1e3:.3f}"))
    header = ("device", "shape", "modulus", "levels", "inputs", "exact", "inputs as promised", "ms", "classical ms")
    return "\n".join(aligned(rows, header))


def modular_times(rows: Sequence[ModularTime], left_out: Sequence[LeftOut]) -> str:
    """Times of products modulo p as an aligned table, and below it what was left out."""

    header = ("shape", "modulus", "algorithm", "ms", "TOP/s", "float64 products", "ms", "ratio", "exact")
    cells = []
    for row in rows:
        figures = f"{row.ms:.3f}", f"{row.rate:.1f}", row.pieces, f"{row.pieces_ms:.3f}", f"{row.ratio:.2f}"
        cells.append(("x".join(map(str, row.shape)), row.modulus, row.asked, *figures, "yes" if row.exact else "NO"))
    return "\n".join([*(aligned(cells, header) if cells else ()), *(f"left out: {one.what}: {one.why}" for one in left_out)])


def require_exact(check: ModularCheck) -> None:
    """Raise `BilinearError` (E701) for a check modulo p that failed."""
    if not check.passed:
        what = "the inputs are not as promised" if check.exact else "the result is wrong"
        raise BilinearError(Diagnostic("E701", f"the product modulo {check.modulus} failed its check", notes=(what,)))


def require(checks: list[Check]) -> None:
    """Raise `BilinearError` (E701) for every check that failed."""
    wrong = []
    for c in (c for c in checks if not c.passed):
        integers = ("integers do not come out exactly",) if c.exact is False else ()
        error, drift = f"error {c.error:.3e}, allowed {c.allowance:.3e}", f"inputs drift by {c.drift:.3e} of their largest element"
        wrong.append(Diagnostic("E701", f"{c.dtype} on the {c.device} failed its check", notes=(error, *integers, drift)))
    if wrong:
        raise BilinearError(wrong)
