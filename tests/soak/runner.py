"""Hostile cases of every kind, by turns, for some seconds: `scripts/soak`. What it finds it tells with the command that shows it again."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from pkgutil import iter_modules
from types import FrameType, ModuleType

from soak import homes
from soak.case import PASSED, REFUSED
from soak.crew import Outcome, Worker, wait
from soak.worker import FINDING

from bilinear.reporting.table import aligned

KINDS = "soak.kinds"
MOST_SECONDS = 60.0
"""How long a case may take, where its kind does not say otherwise in a `MOST_SECONDS` of its own."""
MOST_LIKE_IT = 10  # Findings of one kind that begin with the same line and are told by their names alone.
HEADER = ("kind", "cases", "passed", "refused", "findings", "seconds", "slowest case", "")

Progress = Callable[["Soak"], None]


@dataclass
class Tally:
    """What was done of a kind. `skipped` says why it cannot run here, if so."""

    kind: str
    limit: float = MOST_SECONDS
    skipped: str | None = None
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys((PASSED, REFUSED, FINDING), 0))
    seconds: float = 0.0
    slowest: Outcome | None = None

    @property
    def cases(self) -> int:
        """How many have ended."""
        return sum(self.outcomes.values())

    def add(self, outcome: Outcome) -> None:
        """Count a case that has ended."""
        self.outcomes[outcome.result] += 1
        self.seconds += outcome.seconds
        if self.slowest is None or outcome.seconds > self.slowest.seconds:
            self.slowest = outcome

    def row(self) -> tuple[object, ...]:
        """Its line of the table."""
        slowest = "-" if self.slowest is None else f"{self.slowest.name} {self.slowest.seconds:.2f} s"
        why = "" if self.skipped is None else f"skipped: {self.skipped}"
        return (self.kind, self.cases, *self.outcomes.values(), f"{self.seconds:.1f}", slowest, why)


@dataclass
class Soak:
    """A run: what is to be done, what was done, and what was found."""

    seconds: float
    seed: int
    tallies: list[Tally]
    findings: list[Outcome] = field(default_factory=list)
    begin: float = field(default_factory=time.monotonic)
    is_stopped: bool = False

    @property
    def is_over(self) -> bool:
        """Whether no case shall begin any more."""
        return time.monotonic() - self.begin >= self.seconds

    def json(self) -> str:
        """Everything, for machines."""
        kinds = [{**asdict(tally), "cases": tally.cases} for tally in self.tallies]
        found = [{**asdict(one), "command": command(one)} for one in self.findings]
        document = {"seconds": time.monotonic() - self.begin, "seed": self.seed, "stopped": self.is_stopped}
        return json.dumps({**document, "kinds": kinds, "findings": found}, indent=1) + "\n"

    def __str__(self) -> str:
        return "\n".join([*aligned([tally.row() for tally in self.tallies], HEADER), *_told(self.findings)])


def command(outcome: Outcome) -> str:
    """What shows a finding again."""
    where = os.environ.get(homes.HOME, "numpy")
    return f"scripts/soak {'' if where == 'numpy' else f'--{where} '}--case {outcome.name}"


def _told(findings: Sequence[Outcome]) -> Iterator[str]:
    """Every finding; of those that begin alike the first with its text, and some of the others by name."""
    alike: dict[tuple[str, str], list[Outcome]] = {}
    for one in findings:
        alike.setdefault((one.kind, _headline(one.text)), []).append(one)
    for first, *others in alike.values():
        yield f"\n{command(first)}    (its files: {first.folder})"
        yield from (f"  {line}" for line in first.text.splitlines())
        if others:
            names = ", ".join(other.name for other in others[:MOST_LIKE_IT])
            yield f"  and {len(others)} more like it: {names}{', ...' if len(others) > MOST_LIKE_IT else ''}"


def _headline(text: str) -> str:
    """The first line of a finding; of a traceback, what was raised."""
    lines = text.strip().splitlines() or [""]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def find_kinds(package: str = KINDS) -> list[str]:
    """The names of the kinds: the modules of the package; on a GPU those of calls."""
    names = sorted(found.name for found in iter_modules(import_module(package).__path__))
    return [name for name in names if name in homes.CALLS or os.environ.get(homes.HOME, "numpy") == "numpy"]


def tally_of(package: str, kind: str) -> Tally:
    """A kind of which nothing was done yet: how long its cases may take, and whether they can run here."""
    module: ModuleType = import_module(f"{package}.{kind}")
    why = homes.skip_reason() if hasattr(module, "act") else module.skip_reason() if hasattr(module, "skip_reason") else None
    limit = homes.MOST_SECONDS if hasattr(module, "act") else MOST_SECONDS
    return Tally(kind, float(getattr(module, "MOST_SECONDS", limit)), why)


def soak(run: Soak, place: Path, package: str, processes: int, cases: Sequence[tuple[str, int]], progress: Progress) -> None:
    """Run cases until the time is over, or those that are named, one after another, in one process.

    A kind that has had the least time is next, and its cases are numbered from the seed on: what is run depends on the clock, what a case
    does does not. An interrupt ends the run, and what was done until then is counted.
    """
    workers: list[Worker] = []
    try:
        if cases:
            workers.append(Worker(package, place))
            _work(run, workers, iter(cases), place, package, progress)
        else:
            for _ in range(processes):  # an interrupt meanwhile stops those that have begun
                workers.append(Worker(package, place))
            _work(run, workers, _turns(run, workers), place, package, progress)
    except KeyboardInterrupt:
        run.is_stopped = True
    finally:
        for worker in workers:
            worker.stop()


def _turns(run: Soak, workers: Sequence[Worker]) -> Iterator[tuple[str, int]]:
    """The next case, until the time is over."""
    runnable = [tally for tally in run.tallies if tally.skipped is None]
    numbers = {tally.kind: count(run.seed) for tally in runnable}
    while runnable and not run.is_over:
        jobs = [worker.job for worker in workers if worker.job is not None]
        spent = {tally.kind: tally.seconds + sum(job.seconds + 1e-3 for job in jobs if job.kind == tally.kind) for tally in runnable}
        kind = min(spent, key=lambda name: spent[name])
        yield kind, next(numbers[kind])


def _work(run: Soak, workers: list[Worker], cases: Iterator[tuple[str, int]], place: Path, package: str, progress: Progress) -> None:
    tallies = {tally.kind: tally for tally in run.tallies}
    for number in count():
        for worker in workers:
            case = next(cases, None) if worker.job is None else None
            if case is not None:
                worker.give(*case, place / f"{case[0]}-{case[1]}-{number}", tallies[case[0]].limit)
        if not any(worker.job for worker in workers):
            return
        wait(workers, 0.1)
        for position, worker in enumerate(workers):
            outcome = None if worker.job is None else worker.take()
            if outcome is None:
                continue
            tallies[outcome.kind].add(outcome)
            run.findings += [outcome] * (outcome.result == FINDING)
            if not worker.lives or outcome.result == FINDING:  # what a finding leaves behind must not make another
                worker.stop()
                workers[position] = Worker(package, place)
        progress(run)


def _show(run: Soak) -> None:
    """A bar on the terminal, drawn again on its line."""
    passed = min(time.monotonic() - run.begin, run.seconds)
    filled = round(30 * passed / run.seconds)
    cases = sum(tally.cases for tally in run.tallies)
    text = f"[{'#' * filled}{' ' * (30 - filled)}] {passed:.0f}/{run.seconds:g} s  {cases} cases  {len(run.findings)} findings"
    print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


def _read_case(text: str) -> tuple[str, int]:
    kind, _, seed = text.partition(":")
    return kind, int(seed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("scripts/soak", description="Run hostile cases for some seconds, and tell what must never happen.")
    parser.add_argument("seconds", type=float, nargs="?", help="how long; cases that have begun then still end")
    parser.add_argument("--gpu", action="store_const", dest="home", const="gpu", help="the kinds of calls, on a GPU, in and out of graphs")
    parser.add_argument("--pretended", action="store_const", dest="home", const="pretended", help="the same on the tests' pretended GPU")
    parser.add_argument("--kinds", help="the kinds, with commas between them (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first case of each kind (default: 0)")
    parser.add_argument("--case", type=_read_case, action="append", default=[], metavar="KIND:SEED", help="run this case; may be repeated")
    parser.add_argument("--processes", type=int, default=2, help="how many cases run at once (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table and the findings as JSON, too")
    return parser


def main(words: Sequence[str] | None = None, package: str = KINDS) -> int:
    """The command: 0 where nothing was found, 1 where something was, 130 after Ctrl-C."""
    parser = _parser()
    asked = parser.parse_args(words)
    if (asked.seconds is None) == (not asked.case) or (asked.seconds is not None and asked.seconds <= 0) or asked.processes < 1:
        parser.error("give seconds, or cases with --case")
    if asked.home:
        os.environ[homes.HOME] = asked.home
        why = homes.skip_reason()
        if why:
            parser.error(f"--{asked.home}: {why}")
    known = find_kinds(package)
    wanted = [kind for kind, _ in asked.case] or (asked.kinds.split(",") if asked.kinds else known)
    for kind in wanted:
        if kind not in known:
            parser.error(f"there is no kind {kind!r}; there are {', '.join(known)}")
    run = Soak(asked.seconds or 0.0, asked.seed, [tally_of(package, kind) for kind in dict.fromkeys(wanted)])
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    is_shown = sys.stderr.isatty() and not asked.case
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        soak(run, place, package, asked.processes, asked.case, _show if is_shown else lambda _: None)
    finally:
        signal.signal(signal.SIGTERM, previous)
        _tidy(place, run.findings)
    print("\r\033[K" * is_shown, end="", file=sys.stderr)
    print(run)
    if asked.json is not None:
        asked.json.write_text(run.json(), encoding="utf-8")
    return 1 if run.findings else 130 if run.is_stopped else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tidy(place: Path, findings: Sequence[Outcome]) -> None:
    """Remove everything but the files of findings."""
    kept = {Path(finding.folder) for finding in findings}
    for path in place.iterdir():
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    with suppress(OSError):
        place.rmdir()


if __name__ == "__main__":
    sys.exit(main())
