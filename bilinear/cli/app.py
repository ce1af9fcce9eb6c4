"""The application: its commands and the exit codes of errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from signal import SIGINT, pthread_kill
from threading import Timer, main_thread
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bilinear.cli import discovering, listing, measuring, planning, proving, running
from bilinear.cli.answers import FAILED, INTERRUPTED, UNREAD, prepare_streams, tell, written_out
from bilinear.cli.spelling import as_spelled_now, plainly, with_options
from bilinear.errors import BilinearError, StageError
from bilinear.reading import command
from bilinear.version import __version__
from bilinear.visible import visible

SOON = 0.01  # Seconds.


class Commands(TyperGroup):
    """The commands, which also understand older names of options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of a command line in today's spelling, and report older spellings."""
        words, notes = as_spelled_now(args)
        if not ctx.resilient_parsing:
            tell(*notes)
        return super().parse_args(ctx, words)


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False, help="Fast matrix multiplication, proved.")
PROVE, MULTIPLY, FIND, EXCHANGE = "Write and prove", "Compile and multiply", "Find algorithms", "Exchange"
COMMANDS: tuple[tuple[str, Callable[..., None], str, str], ...] = (
    ("verify", proving.verify, PROVE, "verify msmes --levels 2 --html msmes.html"),
    ("show", running.show, PROVE, "show winograd"),
    ("new", listing.new, PROVE, "new mine 2,2,2 --rank 7"),
    ("list", listing.list_algorithms, PROVE, "list --format '2,3,*' --over Z"),
    ("add", listing.add, PROVE, "add mine.bl"),
    ("remove", listing.remove, PROVE, "remove mine"),
    ("explain", running.explain, PROVE, "explain E301"),
    ("compile", proving.compile, MULTIPLY, "compile msmes --arch hopper,compute_90 --dtype float64"),
    ("run", running.run, MULTIPLY, "run strassen --shape 1000,700,900 --levels auto"),
    ("check", running.check, MULTIPLY, "check a.npy b.npy c.npy --tolerance 1e-12"),
    ("plan", planning.plan, MULTIPLY, "plan --shape 8192 --device h200 --workspace 2GiB --explain"),
    ("tune", measuring.tune, MULTIPLY, "tune --shape 4096 --shape 8192x1024x8192"),
    ("warm", measuring.warm, MULTIPLY, "warm --device h100"),
    ("bench", measuring.bench, MULTIPLY, "bench --shape 4096 --shape 8192 --html bench.html"),
    ("run-with", running.run_with, MULTIPLY, "run-with --log calls.jsonl -- python train.py"),
    ("preload", running.preload, MULTIPLY, "preload --report calls.jsonl"),
    ("doctor", running.doctor, MULTIPLY, "doctor"),
    ("schedule", planning.schedule, FIND, "schedule laderman --in-place -o found.bl"),
    ("discover", discovering.discover, FIND, "discover 3,3,3 --rank 23 -o found.bl"),
    ("lift", discovering.lift, FIND, "lift walk_3x4x5_47_seed0.bl -o found.bl"),
    ("combine", discovering.combine, FIND, "combine 4,5,6 -o found.bl"),
    ("share", discovering.share, FIND, "share smirnov_333 -o found.bl"),
    ("import", listing.import_, EXCHANGE, "import table.json -o mine.bl"),
    ("export", listing.export, EXCHANGE, "export laderman --to npz"),
)
"""Every command with its place in the help, and a line to begin with."""
for _name, _command, _panel, _example in COMMANDS:
    app.command(_name, rich_help_panel=_panel, epilog=f"Example: bilinear {_example}")(_command)


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 user error, 130 after Ctrl-C, 141 if the output pipe is closed."""
    sys.unraisablehook = _not_lost
    if not prepare_streams():
        tell("error: standard output is closed: redirect it to /dev/null if nobody reads it")
        sys.exit(FAILED)
    try:
        code = _run()
        code = written_out() or code
    except KeyboardInterrupt:  # while an error is reported, or output is flushed
        code = INTERRUPTED
    sys.exit(code)


def _not_lost(found: sys.UnraisableHookArgs) -> None:
    """Raise a Ctrl-C again that came where Python cannot raise it, as in a callback from compiled code, instead of printing it.

    It is raised a moment later, because this function cannot raise it either.
    """
    if issubclass(found.exc_type, KeyboardInterrupt):
        Timer(SOON, pthread_kill, (main_thread().ident, SIGINT)).start()
    else:
        sys.__unraisablehook__(found)


def _run() -> int:
    try:
        return app(prog_name="bilinear", standalone_mode=False) or 0
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # typer exits with 1
            return UNREAD
        return stop.code if isinstance(stop.code, int) else FAILED * bool(stop.code)
    except BilinearError as error:
        tell(*(str(with_options(diagnostic)) for diagnostic in error.diagnostics))
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
        context: typer.Context | None = getattr(error, "ctx", None)
        if told := message():  # without arguments typer has already printed the help
            tell(*([] if context is None else [context.get_usage()]), f"error: {visible(plainly(told))}")
    return FAILED


def _version(asked: bool) -> None:
    if asked:
        print(f"bilinear {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]


@app.callback()
def _options(context: typer.Context, version: Version = False) -> None:
    """Options of every command."""
    context.with_resource(command())
