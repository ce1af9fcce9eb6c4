"""Commands that write, at every place of a user's folder: nothing is lost but what was named, and nothing that is read."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

from soak.case import Case
from soak.command import Answer, call, drawn, inside
from soak.desk import COMPILE, Desk, Snapshot, added, lay_out, look, lost

from bilinear.codegen.cuda import nvrtc

MOST_SECONDS = 300
SINGLE = (
    "new.bl",
    "new",
    "no/such/x.bl",
    "notes.txt",
    "nowhere",
    "empty",
    "foreign",
    "foreign/notes.txt",
    "ours",
    "ours/manifest.json",
    "device.json",
)
FOLDERS = (
    "fresh",
    "empty",
    "ours",
    "foreign",
    "alike",
    "way",
    "a.bl",
    "notes.txt",
    ".",
    "..",
    "nowhere",
    "link.bl",
    "foreign/new",
    "ours/src",
    "no/such/folder",
)
READ = ("a.bl", "hard.bl", "link.bl", "strassen.bl", "made.bl", "s.bl", "t.json", "t.npz", "t")


@dataclass(frozen=True)
class Writing:
    """A command, what it reads, and the files or the folder that it is asked to write.

    A `careful` one writes over no file; one that is `eager` writes its report of a refusal, too.
    """

    words: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    folder: bool = False
    careful: bool = False
    eager: bool = False


def skip_reason() -> str | None:
    """Why no folder is compiled here; nothing where one is."""
    return nvrtc.available()


def run(case: Case) -> str:
    """One command in a folder full of the user's files."""
    draw, here = drawn(case), case.folder / "here"
    here.mkdir()
    (case.folder / "beside.txt").write_text("mine")
    desk = lay_out(here, draw)
    writing = draw.choice(
        (_verify, _verify, _plan, _schedule, _import, _import, _export, _export, _share, _new, _combine, _compile, _compile)
    )(desk, draw)
    targets = _real(writing, here)
    before = look(case.folder)
    with inside(here):
        answer = call(*writing.words, bounded=writing.words[0] != "compile", seconds=120)
    _require_kept(answer, writing, desk, before, look(case.folder), targets)
    return answer.verdict


def _real(writing: Writing, here: Path) -> set[str]:
    """The places that are named, and where links lead from them, as names below the folder of the case."""
    found = set()
    for name in writing.writes:
        named = here / name
        for path in (Path(os.path.normpath(named)), named.parent.resolve() / named.name, named.resolve()):
            if path.is_relative_to(here.parent):
                found.add(str(path.relative_to(here.parent)))
    return found


def _require_kept(answer: Answer, writing: Writing, desk: Desk, before: Snapshot, after: Snapshot, targets: set[str]) -> None:
    """Nothing is lost but the file that was named, or the files of an earlier output that are as they were written."""
    reads = {f"here/{name}" for name in writing.reads}
    wrote = not answer.status or writing.eager
    free: set[str] = set()
    if wrote and writing.folder:
        free = {f"here/{name}" for name in desk.ours if any(f"here/{name}".startswith(f"{target}/") for target in targets)}
    elif wrote and not writing.careful:
        free = targets - reads
    gone = lost(before, after, {name for name in free if before.get(name) != b"folder"} | _emptied(before, after, free))
    if gone:
        raise answer.finding(f"lost: {gone}, reading {sorted(reads)}, writing {sorted(targets)}")
    new = added(before, after, targets if wrote else ())
    if new:
        raise answer.finding(f"left behind with status {answer.status}: {new}")


def _emptied(before: Snapshot, after: Snapshot, free: set[str]) -> set[str]:
    """Folders that held nothing but what may go."""
    folders = {name for name, content in before.items() if content == b"folder" and name not in after}
    return {name for name in folders if all(n in free or n in folders for n in before if n.startswith(f"{name}/"))}


def _place(draw: random.Random, *likely: str) -> str:
    """Where a file is to go: often where it must not."""
    name = draw.choice((*likely, *likely, *READ, *SINGLE))
    way = draw.random()
    if way < 0.1:
        return f"./{name}"
    return f"foreign/../{name}" if way < 0.15 else name


def _algorithm(draw: random.Random) -> tuple[str, tuple[str, ...]]:
    """An algorithm, and the files that it is read from."""
    return draw.choice(
        (
            ("a.bl", ("a.bl",)),
            ("link.bl", ("a.bl",)),
            ("strassen", ("strassen.bl",)),
            ("made.bl", ("made.bl", "a.bl")),
            ("made", ("made.bl", "a.bl")),
            ("s.bl", ("s.bl", "strassen.bl")),
            ('"a.bl" (x) "strassen.bl"', ("a.bl", "strassen.bl")),
        )
    )


def _verify(desk: Desk, draw: random.Random) -> Writing:
    name, reads = _algorithm(draw)
    option = draw.choice(("--html", "--certificate"))
    place = _place(draw, *reads)
    return Writing(("verify", name, option, place), reads, (place,), eager=option == "--html")


def _plan(desk: Desk, draw: random.Random) -> Writing:
    place = _place(draw, "device.json", "a.bl", "made.bl")
    levels, reads = draw.choice((((), ()), (("--levels", "a"), ("a.bl",)), (("--levels", "made,a"), ("made.bl", "a.bl"))))
    return Writing(("plan", "--shape", "512", "--device", "device.json", *levels, "--html", place), ("device.json", *reads), (place,))


def _schedule(desk: Desk, draw: random.Random) -> Writing:
    name, reads = draw.choice((("a.bl", ("a.bl",)), ("s.bl", ("s.bl", "strassen.bl"))))
    place = _place(draw, *reads)
    return Writing(("schedule", name, "--depth-first", "--time", "1", "-o", place), reads, (place,))


def _import(desk: Desk, draw: random.Random) -> Writing:
    three = tuple(sorted(path.name for path in desk.folder.glob("*.sms")))
    file, reads = draw.choice((("t.json", ("t.json",)), ("t.npz", ("t.npz",)), ("t", ("t",)), (draw.choice(three), three)))
    place = _place(draw, *reads)
    return Writing(("import", file, "-o", place), reads, (place,))


def _export(desk: Desk, draw: random.Random) -> Writing:
    name, reads = draw.choice((("a.bl", ("a.bl",)), ("made.bl", ("made.bl", "a.bl"))))
    form = draw.choice(("json", "npz", "fast-matmul", "sms"))
    place = _place(draw, *reads)
    written: tuple[str, ...] = (place,)
    if form == "sms":
        stem = place.removesuffix(".sms")
        written = tuple(f"{stem}_{letter}.sms" for letter in "LRP")
    return Writing(("export", name, "--to", form, "-o", place), reads, written)


def _share(desk: Desk, draw: random.Random) -> Writing:
    name, reads = draw.choice((("a.bl", ("a.bl",)), ("made.bl", ("made.bl", "a.bl"))))
    place = _place(draw, *reads)
    return Writing(("share", name, "--work", "20", "-o", place), reads, (place,))


def _new(desk: Desk, draw: random.Random) -> Writing:
    place = _place(draw, "a.bl")
    return Writing(("new", "mine", "2", "-o", place), (), (place,), careful=place.split("/")[-1] != "nowhere")


def _combine(desk: Desk, draw: random.Random) -> Writing:
    library, reads = draw.choice((("a.bl", ("a.bl",)), ("made.bl", ("made.bl", "a.bl")), ("t.json", ("t.json",)), ("foreign", ())))
    place = _place(draw, *reads)
    return Writing(("combine", "2,2,2", library, "-o", place), reads, (place,))


def _compile(desk: Desk, draw: random.Random) -> Writing:
    place = draw.choice((*FOLDERS, "ours", "ours", "way"))
    name, reads = draw.choice((("classical", ()), ("classical", ()), ("a.bl", ("a.bl",))))
    return Writing((COMPILE[0], name, *COMPILE[2:], "-o", place), reads, (place,), folder=True)
