"""The command line: compile, verify, run, list, show, doctor."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bilinear import __version__
from bilinear.errors import BilinearError, Diagnostic, StageError, fail

if TYPE_CHECKING:
    from bilinear.runtime.check import Check

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Fast matrix multiplication, proved.")

USAGE = 2
"""What typer leaves with after a command line that it does not understand; to us that is one more thing that the user can mend."""

Algorithm = Annotated[str, typer.Argument(help="A .bl file, or the name of a shipped algorithm (see `bilinear list`).")]
Levels = Annotated[int, typer.Option(min=1, help="Levels of recursion.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Inputs = Annotated[str | None, typer.Option(help="preserve, restore or consume the inputs (default: what the algorithm is made for).")]
Shape = Annotated[str, typer.Option(help="Size of the check: m,k,n, or one number for all three.")]
Dtypes = Annotated[str, typer.Option(help="Element types, comma-separated.")]


def main() -> None:
    """Run the command line: 0 where all went well, 1 for what the user can mend, 130 after Ctrl-C."""
    try:
        app()
    except SystemExit as stop:
        sys.exit(1 if stop.code == USAGE else stop.code)
    except BilinearError as error:
        for diagnostic in error.diagnostics:
            print(diagnostic, file=sys.stderr)
        sys.exit(1)
    except StageError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        print(f"error: {error.strerror or error}", file=sys.stderr)
        sys.exit(1)
    except MemoryError as error:
        print(f"error: out of memory: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _version(asked: bool) -> None:
    if asked:
        print(f"bilinear {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]


@app.callback()
def _options(version: Version = False) -> None:
    """Options of every command."""


@app.command()
def compile(
    algorithm: Algorithm,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for sources, images, manifest and report (default: build/NAME).")
    ] = None,
    levels: Levels = 1,
    dtype: Dtypes = "float64,float32",
    arch: Annotated[str, typer.Option(help="Architectures: sm_NN (cubin) or compute_NN (PTX).")] = "sm_80,sm_90,compute_90",
    inputs: Inputs = None,
    shape: Shape = "515,387,259",
    as_json: Json = False,
) -> None:
    """Prove an algorithm, compile it to CUDA kernels, and check the multiply on real input."""
    from bilinear import driver
    from bilinear.runtime.check import check

    dtypes, size = _dtypes(dtype), _shape(shape)
    _check_inputs(inputs)
    with _progress() as progress:
        compiled = driver.compile(algorithm, levels=levels, dtypes=dtypes, architectures=_words(arch), inputs=inputs, progress=progress)
        checks = []
        for device in _devices():
            for number, one in enumerate(dtypes):
                progress(f"checking on the {device}", number, len(dtypes))
                checks.append(check(compiled.loaded, size, one, levels, compiled.inputs, device))
    if as_json:
        print(json.dumps({**compiled.report.to_json(), "checks": [c.to_json() for c in checks]}, indent=1))
    else:
        print(compiled.report)
        print("\n" + _check_table(checks))
    _require(checks)
    folder = output or Path("build") / compiled.report.algorithm
    compiled.write(folder)
    written = f"written to {folder}: sources, cubins, PTX, manifest.json, report.html, report.json, report.md, certificate.json"
    print(f"\n{written}", file=sys.stderr if as_json else sys.stdout)


@app.command()
def verify(
    algorithm: Annotated[str, typer.Argument(help="A .bl file, or the name of a shipped algorithm (see `bilinear list`).")] = "",
    levels: Levels = 1,
    inputs: Inputs = None,
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML page, too.")] = None,
    certificate: Annotated[Path | None, typer.Option("--certificate", help="Write a certificate that can be checked without us.")] = None,
    accuracy: Annotated[float | None, typer.Option(help="Say how many levels keep this error, relative to max|A| * max|B|.")] = None,
    built: Annotated[Path | None, typer.Option("--built", help="Test the kernels of an output folder instead of an algorithm.")] = None,
) -> None:
    """Prove a scheme and its schedule, and print the report; or test the kernels of an output folder."""
    if (built is None) == (not algorithm):
        raise fail("E507", "name one thing to verify", "bilinear verify ALGORITHM, or bilinear verify --built FOLDER")
    if as_json and markdown:
        raise fail("E507", "--json and --markdown exclude each other", "choose one of them; --html writes a file beside either")
    if built is not None:
        if markdown or html or certificate or inputs or accuracy or levels != 1:
            raise fail("E507", "the test of a folder has no such option", "with --built there is --json only: the folder says the rest")
        _verify_built(built, as_json)
        return
    from bilinear.frontend import load
    from bilinear.planner.prepare import natural_inputs
    from bilinear.reporting.examine import certificate_of, examine, refusal

    _check_inputs(inputs)
    loaded = load(algorithm)
    inputs = inputs or natural_inputs(loaded.schedule)
    error: BilinearError | None = None
    try:
        report = examine(loaded, levels, inputs, accuracy)
    except BilinearError as refused:
        error, report = refused, refusal(loaded, refused)
    if html is not None:
        _write(html, report.html())
    if as_json or markdown or error is None:
        print(report.json() if as_json else report.markdown() if markdown else report, end="" if as_json or markdown else "\n")
    if error is not None:
        raise error
    if certificate is not None:
        _write(certificate, certificate_of(loaded, levels, inputs))


def _verify_built(folder: Path, as_json: bool) -> None:
    from bilinear.runtime.verify_built import verify_built

    with _progress() as progress:
        check = verify_built(folder, progress=progress)
    print(check.json() if as_json else check, end="" if as_json else "\n")
    check.require()


def _write(path: Path, text: str) -> None:
    """Write a file whole, or not at all (E612); what is there and no file, such as a pipe, is written to."""
    try:
        if not path.name or path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as fresh:
            fresh.write(text)
        try:
            Path(fresh.name).chmod(0o644)
            Path(fresh.name).replace(path)
        except OSError:
            Path(fresh.name).unlink()
            raise
    except OSError as error:
        raise fail("E612", f"cannot write {path}: {error.strerror or error}", "choose another place") from None


@app.command()
def run(
    algorithm: Algorithm,
    shape: Shape = "1024",
    dtype: Dtypes = "float64",
    levels: Levels = 1,
    inputs: Inputs = None,
    device: Annotated[str, typer.Option(help="cpu, gpu, or all that are usable.")] = "all",
    tolerance: Annotated[float | None, typer.Option(help="Restored inputs: how far they may drift, relative to a block.")] = None,
    as_json: Json = False,
) -> None:
    """Run the multiply on real input, check it against the classical one, and time both once."""
    from bilinear.frontend import load
    from bilinear.planner.prepare import natural_inputs
    from bilinear.runtime.check import check

    _check_inputs(inputs)
    size, dtypes = _shape(shape), _dtypes(dtype)
    loaded = load(algorithm)
    if tolerance is not None and (inputs or natural_inputs(loaded.schedule)) != "restore":
        raise fail("E532", "a tolerance is for inputs that are restored, and here none are", "use a schedule that restores, such as msmes")
    with _progress() as progress:
        checks: list[Check] = []
        for one in _devices(device):
            for number, each in enumerate(dtypes):
                progress(f"running on the {one}", number, len(dtypes))
                checks.append(check(loaded, size, each, levels, inputs or natural_inputs(loaded.schedule), one, tolerance=tolerance))
    print(json.dumps([c.to_json() for c in checks], indent=1) if as_json else _check_table(checks))
    _require(checks)


@app.command("list")
def list_algorithms(as_json: Json = False) -> None:
    """List the shipped algorithms."""
    from bilinear.reporting.library import library_rows
    from bilinear.reporting.table import aligned

    rows = library_rows()
    if as_json:
        print(json.dumps([row.to_json() for row in rows], indent=1))
        return
    header = ("name", "kind", "format", "additions", "exponent", "source")
    print("\n".join(aligned([(r.name, r.kind, r.format, r.additions, f"{r.exponent:.3f}", r.citation) for r in rows], header)))


@app.command()
def show(algorithm: Algorithm) -> None:
    """Print an algorithm in the language: its tables, or its equations and stages, as they were understood."""
    from bilinear.frontend import load
    from bilinear.ir.printer import print_schedule, print_scheme

    loaded = load(algorithm)
    print(print_scheme(loaded.scheme), end="")
    if loaded.schedule is not None:
        print("\n" + print_schedule(loaded.schedule), end="")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what this machine can do, and what to install for the rest."""
    from bilinear.reporting.table import aligned
    from bilinear.runtime.doctor import examine

    findings = examine()
    if as_json:
        print(json.dumps([finding.to_json() for finding in findings], indent=1))
        return
    print("\n".join(aligned([(f.what, "yes" if f.usable else "no", f.detail) for f in findings], ("can", "here", "detail"))))
    remedies = [f"  {f.what}: {f.remedy}" for f in findings if f.remedy]
    if remedies:
        print("\nfor the rest:\n" + "\n".join(remedies))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _dtypes(text: str) -> tuple[str, ...]:
    dtypes = _words(text)
    for dtype in dtypes:
        if dtype not in ("float64", "float32"):
            raise fail("E503", f"no kernels for {dtype!r}", "choose float64, float32, or both")
    if not dtypes:
        raise fail("E503", "no element type is named", "choose float64, float32, or both")
    return dtypes


def _shape(text: str) -> tuple[int, int, int]:
    try:
        sizes = [int(word) for word in _words(text)]
    except ValueError:
        sizes = []
    if len(sizes) == 1:
        sizes *= 3
    if len(sizes) != 3 or min(sizes) < 1:
        raise fail("E504", f"{text!r} is no shape", "give m,k,n, or one number for all three, each at least 1")
    return sizes[0], sizes[1], sizes[2]


def _check_inputs(inputs: str | None) -> None:
    if inputs not in (None, "preserve", "restore", "consume"):
        raise fail("E513", f"inputs={inputs!r} is unknown", "choose one of preserve, restore, consume")


def _devices(asked: str = "all") -> list[Any]:
    from bilinear.runtime.doctor import why_no_gpu

    reason = why_no_gpu()
    if asked not in ("cpu", "gpu", "all"):
        raise fail("E505", f"device {asked!r} is unknown", "choose cpu, gpu or all")
    if asked == "gpu" and reason is not None:
        raise fail("E512", f"no GPU is usable: {reason}", "run `bilinear doctor`")
    return ["cpu"] if reason is not None or asked == "cpu" else ["gpu"] if asked == "gpu" else ["cpu", "gpu"]


def _check_table(checks: list[Check]) -> str:
    from bilinear.reporting.table import aligned

    rows = [
        (
            c.device,
            "x".join(map(str, c.shape)),
            c.dtype,
            c.levels,
            c.inputs,
            "-" if c.exact is None else "yes" if c.exact else "NO",
            f"{c.error:.2e}",
            f"{c.allowance:.2e}",
            f"{c.drift:.1e}" if c.inputs == "restore" else "-",
            c.workspace_bytes,
            f"{c.seconds * 1e3:.3f}",
            f"{c.library_seconds * 1e3:.3f}",
        )
        for c in checks
    ]
    trust = ("integers exact", "error", "allowed", "drift")
    header = ("device", "shape", "dtype", "levels", "inputs", *trust, "workspace B", "ms", "library ms")
    return "\n".join(aligned(rows, header))


def _require(checks: list[Check]) -> None:
    wrong = [c for c in checks if not c.passed]
    if wrong:
        raise BilinearError(
            Diagnostic("E701", f"{c.dtype} on the {c.device} failed its check", notes=(f"error {c.error:.3e}, allowed {c.allowance:.3e}",))
            for c in wrong
        )


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda what, done, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("proving", total=None)
        yield lambda what, done, of: bar.update(task, description=what, completed=done, total=of)


if __name__ == "__main__":
    main()
