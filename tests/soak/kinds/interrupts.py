"""Ctrl-C once or twice, or SIGTERM, at any moment of a multiply or of a command."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from soak.case import PASSED, Case, Finding
from soak.children import FAILED, Child, begin, command_line
from soak.commands import check_said, draw_command
from soak.whole_files import check_nothing_left

import bilinear

MOST_SECONDS = 90.0
LONGEST = 1.5  # Seconds after which the first signal comes at the latest.
REST = 0.05  # Seconds in which a worker that writes after the end would be seen.
MULTIPLIES = (
    *(("strassen", 1, "preserve"), ("winograd", 2, "preserve"), ("winograd_depth_first", 1, "preserve"), ("laderman", 1, "preserve")),
    *(("msmes", 1, "restore"), ("msmes", 2, "restore"), ("winograd_in_place", 1, "restore"), ("hopcroft_kerr_in_place", 1, "restore")),
)


def run(case: Case) -> str:
    """Signals to a multiply, or to a command."""
    generator = case.generator()
    return _multiply(generator, case.folder) if generator.random() < 0.6 else _command(generator, case.folder)


def _signals(generator: np.random.Generator, child: Child, begun: Callable[[], bool], longest: float) -> int:
    """Send one or two signals at drawn moments after it has begun; says which."""
    number = signal.SIGINT if generator.random() < 0.8 else signal.SIGTERM
    moment, gap, twice = longest * generator.random() ** 2, 0.02 * generator.random() ** 2, generator.random() < 0.7
    end = time.monotonic() + 20
    while not begun() and time.monotonic() < end:
        time.sleep(0.001)
    time.sleep(moment)
    child.send(number)
    if twice:
        time.sleep(gap)
        child.send(number)
    return number


def _command(generator: np.random.Generator, folder: Path) -> str:
    command = draw_command(generator, folder)
    begun = folder / "begun"
    child = begin(command_line(command.words, begun), folder / "printed")
    number = _signals(generator, child, begun.exists, LONGEST)
    code = child.wait()
    try:
        if code == FAILED and " in main\n" not in child.text:  # it came before the command line was there, or behind its end
            return PASSED
        if code == 0 and "Exception ignored" in child.text:  # an extension in C has swallowed it, and the command has ended
            return PASSED
        check_said(child, code, (0, 130) if number == signal.SIGINT else (0, -signal.SIGTERM, 128 + signal.SIGTERM))
        is_whole = command.check_files()
        if code == 0 and not is_whole:
            raise Finding("exit code 0, and a file is missing")
        if number == signal.SIGINT:
            check_nothing_left(folder, ("printed", "begun", *(path.name for path, _ in command.writes)))
    except Finding as found:
        raise Finding(f"{found}\nbilinear {' '.join(map(str, command.words))}, {signal.Signals(number).name}") from None
    return PASSED


def _multiply(generator: np.random.Generator, folder: Path) -> str:
    name, levels, inputs = MULTIPLIES[int(generator.integers(len(MULTIPLIES)))]
    m, k, n = (int(e) for e in generator.integers(200, 2000, 3))
    a, b = (generator.integers(-4, 5, shape).astype(float) for shape in ((m, k), (k, n)))
    out = np.full((m, n), np.nan)
    options: dict[str, Any] = {"algorithm": name, "levels": levels, "inputs": inputs}
    started = folder / "started"
    child = begin(lambda: _until_interrupted(a, b, out, options, started), folder / "printed")
    number = _signals(generator, child, started.exists, 0.3)
    code = child.wait()
    told = f"{m}x{k}x{n}, {options}, {signal.Signals(number).name}"
    if number == signal.SIGTERM:
        if code != -signal.SIGTERM:
            raise Finding(f"exit code {code} after SIGTERM: {told}\n{child.text}")
        return PASSED
    if code != 0:
        raise Finding(f"{'no end' if code is None else child.text.strip()}\n{told}")
    return PASSED


def _until_interrupted(a: Any, b: Any, out: Any, options: dict[str, Any], started: Path) -> None:
    """In a child: multiply over and over; after the interrupt the operands are what they were, and nothing writes any more."""
    kept = a.copy(), b.copy()
    bilinear.matmul(a[:8, :8].copy(), b[:8, :8].copy(), **options)
    try:
        try:
            started.touch()
            for _ in range(10_000):
                bilinear.matmul(a, b, out, **options)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:  # the second one came before it was ignored
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    now = out.tobytes()
    wrong = [name for name, x, y in (("a", a, kept[0]), ("b", b, kept[1])) if not np.array_equal(x, y)]
    time.sleep(REST)
    if out.tobytes() != now:
        raise SystemExit(_say("workers write out after the interrupt has left"))
    if wrong:
        raise SystemExit(_say(f"{' and '.join(wrong)} are not what they were"))


def _say(text: str) -> int:
    print(text)
    return 3
