"""Children of a case: they begin in no time, because everything is imported, and end by a signal, a limit, or by themselves."""

from __future__ import annotations

import faulthandler
import io
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from soak.held_up import held_up, is_over

import bilinear
from bilinear import cli
from bilinear.codegen.cache import default_cache
from bilinear.discovery.flip_search import discover
from bilinear.discovery.walker import SearchTask
from bilinear.driver import verify as prove
from bilinear.errors import BilinearError

MOST_SECONDS = 30.0  # How long a child may take that was not killed.
FAILED = 99  # The exit code of a child whose work raised something.


@dataclass(frozen=True)
class Child:
    """A child and the file of all that it prints. It leads a group of its own."""

    pid: int
    printed: Path

    @property
    def text(self) -> str:
        return self.printed.read_text(encoding="utf-8", errors="replace")

    def send(self, number: int) -> None:
        """Send a signal, if it still lives."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, seconds: float = MOST_SECONDS) -> int | None:
        """Its exit code, negative after a signal; None where it had to be killed because it did not end."""
        begin = time.monotonic()
        while not is_over(time.monotonic() - begin, held_up(self.pid), seconds):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        self.send(signal.SIGUSR1)  # it prints where its threads are
        time.sleep(0.5)
        self.send(signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return None


def begin(work: Callable[[], None], printed: Path) -> Child:
    """Run something in a child, with Python's own signal handlers, in a session of its own."""
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the threads of a multiply are not in the child, and it does not need them
        pid = os.fork()
    if pid:
        return Child(pid, printed)
    try:
        try:
            os._exit(_run(work, printed))
        except BaseException:  # a signal that came while the work was ending
            os._exit(FAILED)
    except BaseException:  # and one more: a child must never go on as its parent
        os._exit(FAILED)


def _run(work: Callable[[], None], printed: Path) -> int:
    """The exit code of some work, of which everything goes to a file."""
    code = FAILED
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stream = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        sys.stdout = sys.stderr = open(stream, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # as long as the child lives
        faulthandler.register(signal.SIGUSR1, file=stream, all_threads=True)
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        _interrupt_no_more()
        sys.stdout.flush()
    return code


def _interrupt_no_more() -> None:
    """What has come is dropped, and what comes calls a handler that does nothing: Python complains of a signal that finds SIG_IGN."""
    with suppress(KeyboardInterrupt):
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    signal.signal(signal.SIGINT, lambda *_: None)


@cache
def import_everything() -> None:
    """Import all that commands import when they need it: what an import does under a limit, or interrupted, is Python's affair."""
    for found in walk_packages(bilinear.__path__, "bilinear.", onerror=lambda name: None):
        if not found.name.endswith("__main__"):
            with suppress(ImportError, BilinearError):  # of rooms whose libraries are not here
                import_module(found.name)
    for name in ("rich.progress", "numba"):
        with suppress(ImportError):
            import_module(name)
    prove("msmes").html()
    with suppress(BilinearError):  # without numba there is no walk; with it, nothing is told while numba compiles the first one
        discover(SearchTask((2, 2, 2), 7, 0, 1), 2)
    words = sys.argv
    sys.argv = ["bilinear", "list"]
    with suppress(SystemExit), redirect_stdout(io.StringIO()):  # what reads the words imports more, too
        cli.main()
    sys.argv = words


def command_line(words: Sequence[object], begun: Path | None = None) -> Callable[[], None]:
    """The command line with these words, as work of a child; touches a file when it begins."""
    import_everything()

    def work() -> None:
        default_cache.cache_clear()
        sys.argv = ["bilinear", *map(str, words)]
        if begun is not None:
            begun.touch()
        cli.main()

    return work


def limit_memory(more: int) -> None:
    """Let this process take so many more bytes of addresses than it has."""
    held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + more, resource.RLIM_INFINITY))


def lift_limit() -> None:
    """Take the limit back."""
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
