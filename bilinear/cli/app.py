"""The application: its commands and the exit codes of errors."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bilinear.cli import benching, combining, discovering, exchanging, listing, planning, proving, running, sharing, starting, tuning
from bilinear.cli.streams import FAILED, INTERRUPTED, UNREAD, prepare_streams, tell, written_out
from bilinear.errors import BilinearError, StageError
from bilinear.reading import command
from bilinear.version import __version__
from bilinear.visible import visible

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Fast matrix multiplication, proved.")
app.command()(proving.compile)
app.command()(proving.verify)
app.command()(running.run)
app.command("list")(listing.list_algorithms)
app.command()(starting.new)
app.command()(running.show)
app.command()(combining.combine)
app.command()(planning.schedule)
app.command()(planning.plan)
app.command()(tuning.tune)
app.command()(benching.bench)
app.command("import")(exchanging.import_)
app.command()(exchanging.export)
app.command()(discovering.discover)
app.command()(sharing.share)
app.command()(running.doctor)


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 user error, 130 after Ctrl-C, 141 if the output pipe is closed."""
    if not prepare_streams():
        tell("error: standard output is closed: send it to /dev/null where nobody is to read it")
        sys.exit(FAILED)
    try:
        code = _run()
        code = written_out() or code
    except KeyboardInterrupt:  # while an error is told, or what was printed is written out
        code = INTERRUPTED
    sys.exit(code)


def _run() -> int:
    """Run a command; returns its exit code."""
    try:
        return app(standalone_mode=False) or 0
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # typer exits with 1
            return UNREAD
        return stop.code if isinstance(stop.code, int) else FAILED * bool(stop.code)
    except BilinearError as error:
        tell(*map(str, error.diagnostics))
    except StageError as error:
        tell(f"error: {visible(str(error))}")
    except BrokenPipeError:
        return UNREAD
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        tell(f"error: {visible(f'{place}{error.strerror or error}')}")
    except MemoryError as error:
        tell(f"error: out of memory: {visible(str(error))}")
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        message = getattr(error, "format_message", None)  # of typer's own errors about the command line
        if message is None:
            raise
        _tell_usage(message(), getattr(error, "ctx", None))
    return FAILED


def _tell_usage(message: str, context: typer.Context | None) -> None:
    """Print typer's usage error and the command's usage; without arguments typer has already printed the help."""
    if message:
        tell(*([] if context is None else [context.get_usage()]), f"error: {visible(message)}")


def _version(asked: bool) -> None:
    if asked:
        print(f"bilinear {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]


@app.callback()
def _options(context: typer.Context, version: Version = False) -> None:
    """Options of every command."""
    context.with_resource(command())
