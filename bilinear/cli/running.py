"""run, check, show, doctor and explain; run-with and preload: a stand-in for cuBLAS before programs that nobody changes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli import common, completing
from bilinear.cli.answers import (
    Json,
    answer,
    columns_of,
    file_of,
    in_place_of_text,
    limit_option,
    output_option,
    print_fitted,
    problem_option,
    require_pages,
    say,
    write_pages,
)
from bilinear.errors import fail
from bilinear.ir.element import MULTIPLIED
from bilinear.places import require_files
from bilinear.reading import open_input
from bilinear.reporting.table import aligned
from bilinear.resources import diagnostics_page
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.frontend import Loaded
    from bilinear.ir.matrix import Array


_JOINED = re.compile(r"(?<=\S)\n(?![-*|] |\s)(?=\S)")


def explain(
    code: Annotated[
        str, typer.Argument(metavar="CODE", help="The code in brackets after `error`, such as E301.", autocompletion=completing.codes)
    ],
) -> None:
    """Explain the code of an error: its meaning, and what to do."""
    text = diagnostics_page().read_text(encoding="utf-8")
    sections = {section[:4]: section for section in re.split(r"(?m)^##+ ", text) if re.match(r"E\d{3} ", section)}
    found = sections.get(code.strip().upper().strip("[]"))
    if found is None:
        raise fail(
            "E590", f"{code[:40]!r} is the code of no error", f"codes go from {min(sections)} to {max(sections)}: bilinear explain E301"
        )
    title, _, body = found.rstrip().partition("\n")
    print_fitted(lambda: f"{title}\n{_flowing(body) if columns_of(sys.stdout) is not None else body}")


def _flowing(text: str) -> str:
    """The text with one line for each paragraph, so that it can be wrapped again; examples stay as they are."""
    parts = re.split(r"(?s)(```.*?```)", text)
    return "".join(part if part.startswith("```") else _JOINED.sub(" ", part) for part in parts)


def run(
    context: typer.Context,
    algorithm: common.AlgorithmName,
    shape: common.Shape = "1024",
    dtype: Annotated[
        str | None, problem_option(help="Element types, comma-separated (default: float64).", autocompletion=completing.dtypes)
    ] = None,
    levels: common.SomeLevels = "1",
    inputs: common.Inputs = None,
    device: Annotated[str, typer.Option(help="cpu, gpu, or all usable ones.", autocompletion=completing.usable)] = "all",
    tolerance: Annotated[float | None, typer.Option(help="How far restored inputs may drift, relative to a block.")] = None,
    modulus: Annotated[int | None, problem_option(help="Multiply integers modulo this number, from 2 to 2^62.")] = None,
    accuracy: Annotated[
        str,
        limit_option(
            help="Refuse to run with a larger error: a bound relative to max|A| * max|B|, classical, or twice.",
            autocompletion=completing.accuracies,
        ),
    ] = "",
    json_file: Json = None,
) -> None:
    """Run the multiply on real input, check it against the classical one, and time both once."""
    from bilinear.frontend import load_for_arrays
    from bilinear.lowering.prepare import natural_inputs

    common.check_inputs(inputs)
    size, dtypes = common.read_shape(shape), common.read_dtypes("float64" if dtype is None else dtype, MULTIPLIED)
    depth = None if levels == "auto" else common.read_levels(levels)
    loaded = load_for_arrays(algorithm)
    require_files(file_of(json_file))
    depth = depth or common.read_levels_for(levels, loaded.scheme, size)
    promised = inputs or natural_inputs(loaded.schedule)
    if tolerance is not None and promised != "restore":
        raise fail("E532", "a tolerance is for inputs that are restored, and here none are", "use a schedule that restores, such as msmes")
    if modulus is not None:
        for name, why in (("accuracy", "integers are exact"), ("tolerance", "integers are exact"), ("dtype", "integers are of int64")):
            if common.is_given(context, name):
                raise fail("E557", f"--{name} has no meaning with --modulus: {why}", "leave it out")
        _run_modulo(loaded, size, depth, promised, device, modulus, json_file)
        return
    if accuracy:
        from bilinear.measure.check_multiply import require_accurate

        for name in dtypes:
            require_accurate(loaded, size[1], name, depth, promised, common.read_accuracy(accuracy) or 0.0)
    with common.progress_bar() as progress:
        checks = common.run_checks(loaded, size, dtypes, depth, promised, common.devices(device), progress, "running", tolerance)
    answer(json_file, lambda: [c.to_json() for c in checks], lambda: common.check_table(checks))
    common.require(checks)


def _run_modulo(
    loaded: Loaded, size: tuple[int, int, int], levels: int, inputs: str, device: str, modulus: int, json_file: Path | None
) -> None:
    from bilinear.measure.bench_library import check_modulo
    from bilinear.runtime.integers import read_modulus

    read_modulus(modulus)
    checks = [check_modulo(loaded, size, modulus, levels, inputs, each) for each in common.devices(device)]
    answer(json_file, lambda: [check.to_json() for check in checks], lambda: common.modular_table(checks))
    for check in checks:
        common.require_exact(check)


def show(
    algorithm: common.AlgorithmName,
    as_latex: Annotated[bool, typer.Option("--latex", help="Print tables for a paper instead, in LaTeX.")] = False,
) -> None:
    """Print an algorithm in the language as it was read: its tables, or its equations and stages."""
    from bilinear.algorithm import load
    from bilinear.frontend.algorithms import Loaded, load_any
    from bilinear.frontend.printer import print_map

    found = load_any(algorithm)
    if as_latex:
        from bilinear.reporting.latex import latex

        print(latex(found), end="")
    elif isinstance(found, Loaded):
        print(load(algorithm))
    else:
        print(print_map(found.scheme), end="")


def doctor(json_file: Json = None) -> None:
    """Say what this machine can do, and what to install for the rest."""
    from bilinear.backends.doctor import examine

    require_files(file_of(json_file))
    findings = examine()

    def told() -> str:
        table = aligned([(f.what, "yes" if f.usable else "no", f.detail) for f in findings], ("can", "here", "detail"))
        remedies = [f"  {f.what}: {f.remedy}" for f in findings if f.remedy]
        return "\n".join([*table, *(["", "for the rest:", *remedies] if remedies else [])])

    answer(json_file, lambda: [finding.to_json() for finding in findings], told)


def check(
    a: Annotated[Path, typer.Argument(metavar="A", help="A .npy file: (..., m, k).")],
    b: Annotated[Path, typer.Argument(metavar="B", help="A .npy file: (..., k, n).")],
    c: Annotated[Path, typer.Argument(metavar="C", help="A .npy file: what should be alpha*A*B + beta*BEFORE.")],
    tolerance: Annotated[
        float | None, limit_option(help="The largest error that passes, in units of |A| |B|; without one, none fails.")
    ] = None,
    confidence: Annotated[float, limit_option(help="The probability with which the bound holds.")] = 1 - 1e-6,
    vectors: Annotated[int | None, limit_option(help="Random vectors; more make the bound tighter (default: 16).")] = None,
    seed: Annotated[int, limit_option(help="Which vectors.")] = 0,
    alpha: Annotated[float, problem_option(help="The factor of A*B.")] = 1,
    beta: Annotated[float, problem_option(help="The factor of BEFORE.")] = 0,
    before: Annotated[Path | None, problem_option(help="A .npy file: C before the multiply.")] = None,
    json_file: Json = None,
) -> None:
    """Bound the error of a product in .npy files by random projections; they are read in panels, each once."""
    from bilinear.runtime.check import check as check_arrays

    if before is not None and beta == 0:
        raise fail("E557", "--before has no meaning without --beta", "leave it out, or give --beta")
    require_files(file_of(json_file), unread=(str(path) for path in (a, b, c, before) if path is not None))
    x, y, z = map(_mapped, (a, b, c))
    factors = [int(value) if value.is_integer() else value for value in (alpha, beta)]
    old = None if before is None else _mapped(before)
    given = {"alpha": factors[0], "beta": factors[1], "before": old, "tolerance": tolerance, "confidence": confidence}
    with common.waiting("checking"):
        found = check_arrays(x, y, z, **given, vectors=vectors, seed=seed)  # type: ignore[arg-type]

    def data() -> str:
        return json.dumps(found.to_json(), indent=1)

    if found.passed is not False or in_place_of_text(json_file):
        answer(json_file, data, lambda: str(found))
    elif json_file is not None:
        write_file(json_file, data())
    if found.passed is False:
        found.require()


def _mapped(path: Path) -> Array:
    import numpy as np

    try:
        with open_input(path) as file:
            np.lib.format.read_magic(file)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a header is text of Python, in which NumPy meets errors of many kinds
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("E705", f"{str(path)[:200]!r} is not a .npy file that can be read: {reason}", "write one with numpy.save") from None


PRELOAD = "LD_PRELOAD"


def run_with(
    program: Annotated[list[str], typer.Argument(metavar="-- PROGRAM [ARGS]", help="The program and its arguments, after two dashes.")],
    accuracy: Annotated[
        str, limit_option(help="A bound relative to max|A| * max|B|, classical, or twice.", autocompletion=completing.accuracies)
    ] = "",
    workspace: Annotated[str, limit_option(help="The most bytes of workspace of a product: bytes, 2GiB, none.")] = "",
    reproducible: Annotated[str, limit_option(help="bitwise: the same bits on every GPU and in every run.")] = "",
    log: Annotated[Path | None, output_option(help="Add a line of JSON for each large product to this file.")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="With --log, time cuBLAS, too: once for each kind of product.")] = False,
) -> None:
    """Run a program whose large products by cuBLAS are bilinear's where that is predicted to gain."""
    from bilinear.runtime.standin import asked_for

    given = {"ACCURACY": accuracy, "WORKSPACE": workspace, "REPRODUCIBLE": reproducible}
    if measure and log is None:
        raise fail("E557", "--measure has no meaning without --log", "name the file that gets the times")
    given |= {"LOG": "" if log is None else str(log.absolute()), "TIME_CUBLAS": "1" if measure else ""}
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
    html: Annotated[Path | None, output_option("--html", help="With --report, also write a page with pictures and the table.")] = None,
    json_file: Json = None,
) -> None:
    """Build the stand-in for cuBLAS and print the line that loads it, or tell what its log says."""
    for name, value in (("--json", json_file), ("--html", html)):
        if report is None and value is not None:
            raise fail("E557", f"{name} has no meaning without --report", "name the file of `run-with --log`, or leave it out")
    if report is not None and output is not None:
        raise fail("E557", "--output has no meaning with --report", "leave it out")
    require_pages(html, None, output, file_of(json_file))
    if report is None:
        from bilinear.artifact.preload import standin_source

        line = f"{PRELOAD}={_preloaded()}"
        if output is not None:
            write_file(output, standin_source())
        say(line)
        return
    from bilinear.reporting import gains

    rows = gains.gains(report)
    answer(json_file, lambda: {"products": rows, "total": gains.total(rows)}, lambda: gains.gains_table(rows))
    write_pages(lambda date: gains.gains_html(rows, str(report), date), html, None)


def _preloaded() -> str:
    """The stand-in before what is loaded already."""
    from bilinear.artifact.preload import standin_library

    return ":".join(filter(None, (str(standin_library()), os.environ.get(PRELOAD, ""))))
