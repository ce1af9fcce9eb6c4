"""The command line in this process, under limits: what it says, and what it must never say."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from soak.case import PASSED, REFUSED, Case, Finding

from bilinear import cli

MOST_SECONDS = 30.0  # Processor time of one answer.
MOST_MEMORY = 2**31  # Bytes of address space on top of what the process holds.
TOLD = re.compile(r"^(?:(?P<file>[^\n]+?):(?P<line>\d+):(?P<column>\d+): )?error\[(?P<code>E\d{3})\]: (?P<message>.*)$", re.MULTILINE)
HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that steer a terminal, turn the direction of writing or break a line, but newlines and tabs."""


class _Overran(BaseException):
    """The limit of processor time; no `except Exception` of the package stands in its way."""


@dataclass(frozen=True)
class Answer:
    """What a command line left with, and what it printed."""

    words: tuple[str, ...]
    status: int
    out: str
    err: str

    @property
    def verdict(self) -> str:
        """PASSED or REFUSED."""
        return REFUSED if self.status else PASSED

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the diagnostics."""
        return tuple(match["code"] for match in TOLD.finditer(self.err))

    def finding(self, what: str) -> Finding:
        """Something that must never happen, with the command that did it."""
        return Finding(f"{what}: bilinear {' '.join(self.words)}\n{self.out[-500:]}{self.err[-1500:]}")


def drawn(case: Case) -> random.Random:
    """Random choices that depend on the case alone."""
    return random.Random(int(case.generator().integers(2**62)))


def call(*words: object, seconds: float = MOST_SECONDS, bounded: bool = True) -> Answer:
    """Run the command line with these words.

    Raises Finding where an exception leaves it, where it takes too long, where its status is neither 0 nor 1, where it refuses without a
    code, or where what it prints steers a terminal. `bounded` limits its memory, too; what loads large libraries needs more.
    """
    texts, out, err, status = tuple(map(str, words)), io.StringIO(), io.StringIO(), 0
    argv, sys.argv = sys.argv, ["bilinear", *texts]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), within(seconds, bounded):
            cli.main()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Finding as found:
        raise Finding(f"{found}: bilinear {' '.join(texts)}") from None
    except Exception:
        raise Finding(f"a traceback: bilinear {' '.join(texts)}\n{traceback.format_exc()[-2000:]}") from None
    finally:
        sys.argv = argv
    answer = Answer(texts, status, out.getvalue(), err.getvalue())
    require_manners(answer)
    return answer


def require_manners(answer: Answer) -> None:
    """What holds of every answer: its status, a code where it refuses, and nothing that steers a terminal."""
    if answer.status not in (0, 1):
        raise answer.finding(f"status {answer.status}")
    if "Traceback (most recent call last)" in answer.out + answer.err:
        raise answer.finding("a traceback is printed")
    if answer.status and not answer.codes:
        raise answer.finding("refused without a code")
    if not answer.status and answer.codes:
        raise answer.finding("an error with status 0")
    hidden = HIDDEN.search(answer.out + answer.err)
    if hidden is not None:
        raise answer.finding(f"a control character {hidden[0]!r} is printed")


@contextlib.contextmanager
def within(seconds: float = MOST_SECONDS, bounded: bool = True) -> Iterator[None]:
    """A limit of processor time, and of address space where it is `bounded`. Raises Finding where the time is exceeded."""

    def over(_: int, __: FrameType | None) -> None:
        raise _Overran

    before = signal.signal(signal.SIGPROF, over)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        if bounded:
            resource.setrlimit(resource.RLIMIT_AS, (_most(hard), hard))
        signal.setitimer(signal.ITIMER_PROF, seconds)
        yield
    except _Overran:
        raise Finding(f"no answer after {seconds} seconds of processor time") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _most(hard: int) -> int:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return held + MOST_MEMORY if hard == resource.RLIM_INFINITY else min(hard, held + MOST_MEMORY)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Another working folder for a while."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
