"""The application: its commands, and how errors leave it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bilinear.cli import benching, combining, discovering, exchanging, listing, planning, proving, running, sharing, starting, tuning
from bilinear.errors import BilinearError, StageError
from bilinear.version import __version__

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

USAGE = 2
"""What typer leaves with after a command line that it does not understand; to us that is one more thing that the user can mend."""


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
