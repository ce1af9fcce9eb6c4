"""Worker processes: each is given one case at a time, and is replaced where it dies or takes too long."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from soak.held_up import held_up, is_over
from soak.processes import MARK, kill_marked
from soak.worker import FINDING

TESTS = Path(__file__).resolve().parents[1]
MOST_TEXT = 4000  # Characters of what a worker that died has printed.
MOST_REMEMBERED = 50  # Cases that a worker ran before a finding, which may be what brought it about.


@dataclass(frozen=True)
class Outcome:
    """What became of a case. `after` are the cases that the same process ran before, the last one last."""

    kind: str
    seed: int
    result: str
    seconds: float
    text: str = ""
    folder: str = ""
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How `--case` is told of it."""
        return f"{self.kind}:{self.seed}"


@dataclass(frozen=True)
class Job:
    """A case that runs, since when and until when; `held` is how long its process had waited for processors before."""

    kind: str
    seed: int
    folder: Path
    begin: float
    limit: float
    held: float

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begin


class Worker:
    """A process that runs the cases of a package of kinds; what they write lies in `place`."""

    def __init__(self, package: str, place: Path) -> None:
        self.job: Job | None = None
        self._before: deque[str] = deque(maxlen=MOST_REMEMBERED)
        self._mark, self._begun = uuid4().hex, b""
        self._errors = (place / f"printed-{self._mark}").open("ab+")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "soak.worker", package],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=place,
            env=_environment(place, self._mark),
            start_new_session=True,
        )

    def fileno(self) -> int:
        """The pipe on which it answers, for `select`."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def lives(self) -> bool:
        """Whether it can be given a case."""
        return self._process.poll() is None

    def give(self, kind: str, seed: int, folder: Path, limit: float) -> None:
        """Begin a case."""
        assert self._process.stdin is not None
        self.job = Job(kind, seed, folder, time.monotonic(), limit, held_up(self._process.pid))
        self._errors.truncate(0)
        with suppress(BrokenPipeError):  # a worker that is gone is found by `take`
            self._process.stdin.write((json.dumps({"kind": kind, "seed": seed, "folder": str(folder)}) + "\n").encode())
            self._process.stdin.flush()

    def take(self) -> Outcome | None:
        """What became of the case, if that is known: an answer, a death, or too long a time."""
        assert self.job is not None
        line = self._line()
        if line is not None:
            answer = json.loads(line)
            return self._ended(answer["result"], answer["text"], answer["seconds"])
        if not self.lives:
            how = self._process.returncode
            said = f"the process died: {signal.Signals(-how).name if how < 0 else f'exit code {how}'}"
            return self._ended(FINDING, f"{said}\n{self._printed()}", self.job.seconds)
        if is_over(self.job.seconds, held_up(self._process.pid) - self.job.held, self.job.limit):
            self._process.send_signal(signal.SIGUSR1)  # which prints where its threads are
            time.sleep(0.5)
            return self._ended(FINDING, f"no end after {self.job.limit:g} s\n{self._printed()}", self.job.seconds)
        return None

    def stop(self) -> None:
        """End it, and every process that its cases have left."""
        kill_marked(self._mark)
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]

    def _line(self) -> bytes | None:
        """A whole line of its answers, without waiting for one."""
        while b"\n" not in self._begun and select.select([self], [], [], 0)[0]:
            part = os.read(self.fileno(), 1 << 16)
            if not part:
                return None
            self._begun += part
        line, end, rest = self._begun.partition(b"\n")
        self._begun = rest if end else self._begun
        return line if end else None

    def _printed(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-MOST_TEXT:]

    def _ended(self, result: str, text: str, seconds: float) -> Outcome:
        assert self.job is not None
        is_finding = result == FINDING
        folder, after = (str(self.job.folder), tuple(self._before)) if is_finding else ("", ())
        outcome = Outcome(self.job.kind, self.job.seed, result, seconds, text, folder, after)
        self._before.append(outcome.name)
        self.job = None
        return outcome


def _environment(place: Path, mark: str) -> dict[str, str]:
    """That of this process, but nothing that the user keeps is read or written."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"PYTHONPATH": path, "XDG_DATA_HOME": f"{place}/home", "BILINEAR_CACHE_DIR": f"{place}/cache", MARK: mark}
    kept = {name: value for name, value in os.environ.items() if name not in ("BILINEAR_DEVICE", "BILINEAR_USE_LIBRARY")}
    return {**kept, "OPENBLAS_NUM_THREADS": "1", **own}


def wait(workers: list[Worker], seconds: float) -> None:
    """Return when a worker has something to tell, and after so many seconds at the latest."""
    select.select([worker for worker in workers if worker.job is not None], [], [], seconds)
