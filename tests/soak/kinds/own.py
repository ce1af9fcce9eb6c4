"""Own algorithms: added and removed, by processes that are killed, with damaged records; what is there multiplies, or is told."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
from soak.case import PASSED, Case, Finding
from soak.children import begin, command_line
from soak.command import call, drawn, inside
from soak.commands import check_said
from soak.mangle import mangled_bytes

import bilinear
from bilinear.errors import BilinearError
from bilinear.frontend.algorithms import shipped
from bilinear.planner.ways import forget_names

MOST_SECONDS = 240
NAMES = ("mine", "other", "pairs", "rxtx", "residues14", "strassen", "auto")
RESERVED = {"pairs", "rxtx", "residues14", "strassen", "auto"}
FROM = ("strassen", "winograd", "split_k", "msmes", "winograd_223")


def run(case: Case) -> str:
    """Some additions and removals, and what every reader says afterwards."""
    draw, before = drawn(case), os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(case.folder / "data")
    try:
        with inside(case.folder):
            for _ in range(draw.randint(1, 4)):
                _step(case.folder, draw)
            _look(case.folder / "data" / "bilinear" / "algorithms", draw)
    finally:
        os.environ.pop("XDG_DATA_HOME")
        os.environ |= {} if before is None else {"XDG_DATA_HOME": before}
        forget_names()
    return PASSED


def _step(folder: Path, draw: random.Random) -> None:
    """Add, remove, begin one of them and kill it, or damage what is kept."""
    name, source = draw.choice(NAMES if draw.random() < 0.3 else NAMES[:2]), draw.choice(FROM)
    text = shipped()[source].read_text(encoding="utf-8").replace(source, name)
    file = folder / "given.bl"
    file.write_text(text, encoding="utf-8")
    words = ("add", file) if draw.random() < 0.7 else ("remove", name)
    kept = sorted((folder / "data" / "bilinear" / "algorithms").glob("*.*"))
    way = draw.random()
    if way < 0.25 and kept:
        path = draw.choice(kept)
        path.write_bytes(b"[" * 200_000 if draw.random() < 0.1 else mangled_bytes(path.read_bytes(), draw))
    elif way < 0.5:
        child = begin(command_line(words), folder / "printed")
        time.sleep(draw.random() * 0.5)
        child.send(draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
        check_said(child, child.wait(), (0, 1, 130, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT))
    else:
        answer = call(*words, seconds=60)
        if words[0] == "add" and name in RESERVED and "E576" not in answer.codes:
            raise answer.finding(f"{name} is taken, and was added")
        if words[0] == "add" and not answer.status and not (folder / "data" / "bilinear" / "algorithms" / f"{name}.bl").is_file():
            raise answer.finding("added, and not there")


def _look(kept: Path, draw: random.Random) -> None:
    """Every reader answers; an algorithm that is there multiplies, or is refused."""
    forget_names()
    for words in (("list", "--own"), ("plan", "--shape", "4096", "--device", "h200")):
        answer = call(*words, seconds=60)
        if words[0] == "plan" and answer.status:
            raise answer.finding("own algorithms stop a plan")
    generator = np.random.default_rng(draw.randrange(2**32))
    a, b = (generator.integers(-4, 5, shape).astype(float) for shape in ((9, 14), (14, 11)))
    for path in sorted(kept.glob("*.bl")):
        try:
            found = bilinear.matmul(a, b, algorithm=path.stem, levels=1)
        except BilinearError:
            continue
        if not np.array_equal(found, a @ b):
            raise Finding(f"{path} multiplies wrong")
