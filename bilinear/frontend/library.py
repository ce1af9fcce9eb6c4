"""Algorithms by name: files, names beside the referring file, and the shipped ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.frontend.lower import Module, lower
from bilinear.frontend.parse import parse_statements
from bilinear.frontend.reporter import Reporter, did_you_mean, listed, shown
from bilinear.frontend.syntax import Word
from bilinear.ir.schedule import Schedule
from bilinear.ir.scheme import Scheme
from bilinear.resources import algorithms_folder
from bilinear.source import Source

SUFFIX = ".bl"
MOST_BYTES = 4 * 2**20
"""Size of a file that is read."""


@dataclass(frozen=True)
class Loaded:
    """A scheme, the schedule that was asked for if any, and where they came from (for a schedule: its own file)."""

    scheme: Scheme
    schedule: Schedule | None
    source: Source
    path: Path


def parse_source(source: Source) -> Module:
    """The schemes and schedules of a source; its name, where it is a path, tells the folder in which other schemes are found.

    Raises `BilinearError` with every syntax error and every error of meaning, in the order of their places.
    """
    return _module(source, Path(source.name))[0]


def load(name_or_path: str | Path) -> Loaded:
    """The scheme or schedule in a file, or of a name among the shipped algorithms; `FILE.bl:NAME` picks one of a file's.

    A file stands for its only schedule if it has one, else for its only scheme. Raises `BilinearError`.
    """
    asked, picked = _split(str(name_or_path))
    path = _find(asked)
    source = read_source(path)
    module, schemes = _module(source, path)
    if not module.schemes and not module.schedules:
        raise fail("E125", f"{path} holds no scheme and no schedule", "write one: scheme NAME <m,k,n;r>, then its rows or equations")
    thing = _pick(module, picked, path)
    if isinstance(thing, Scheme):
        return Loaded(thing, None, source, path)
    return Loaded(schemes[thing.scheme], thing, source, path)


def read_source(path: Path) -> Source:
    """The text of a file. Raises `BilinearError` (E121 to E124) where it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise fail("E121", f"there is no file {shown(str(path), 200)}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("E122", f"{shown(str(path), 200)} cannot be read: {reason}") from None
    if len(data) > MOST_BYTES:
        raise fail("E124", f"{path} is larger than {MOST_BYTES // 2**20} MiB", "is this a .bl file?")
    try:
        return Source(str(path), data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise fail("E123", f"{path} is not UTF-8: byte {error.start} does not decode", "save the file as UTF-8") from None


def shipped() -> dict[str, Path]:
    """The shipped algorithms by name."""
    return {path.stem: path for path in sorted(algorithms_folder().glob(f"*{SUFFIX}"))}


def _module(source: Source, path: Path) -> tuple[Module, dict[str, Scheme]]:
    """A file's module, and by name every scheme that it holds or refers to."""
    reporter = Reporter()
    others: dict[str, Scheme | None] = {}

    def find(word: Word, to: Reporter) -> Scheme | None:
        if word.text not in others:
            others[word.text] = _refer(word, path, to)
        return others[word.text]

    module = lower(parse_statements(source, reporter), find, reporter)
    reporter.finish()
    return module, {name: s for name, s in others.items() if s is not None} | {s.name: s for s in module.schemes}


def _refer(word: Word, path: Path, reporter: Reporter) -> Scheme | None:
    """The scheme that a schedule in the file `path` names; None where there is none, which is reported (E221, E222)."""
    known = shipped()
    places = [path.parent / f"{word.text}{SUFFIX}", *([known[word.text]] if word.text in known else [])]
    found = [place for place in places if len(word.text) < 200 and place.is_file()]
    other = next((place for place in found if not _same(place, path)), None)
    if other is None and found:
        message = f"{shown(word.text)} names this file, which holds no such scheme"
        reporter.report("E222", message, word.span, "refers to itself", hint="write the scheme into this file")
        return None
    if other is None:
        hint = did_you_mean(word.text, known) or f"known are {listed(known, 20)}, and the files beside this one"
        reporter.report("E221", f"there is no scheme {shown(word.text)}", word.span, "not known", hint=hint)
        return None
    return _scheme_of(word, other, reporter)


def _scheme_of(word: Word, path: Path, reporter: Reporter) -> Scheme | None:
    """The scheme of that name, else the only one, in another file, whose schedules are not looked at, so that no cycle can arise."""
    inner = Reporter()
    try:
        schemes = lower(parse_statements(read_source(path), inner), None, inner).schemes
        inner.finish()
    except BilinearError as error:
        reporter.found += error.diagnostics
        return None
    named = [s for s in schemes if s.name == word.text]
    if not named and len(schemes) != 1:
        held = f"it holds {listed(s.name for s in schemes)}" if schemes else "it holds no scheme, and a schedule is made of a scheme"
        message = f"{path.name} has no scheme {shown(word.text)}"
        reporter.report("E222", message, word.span, "not a scheme", note=held)
        return None
    return named[0] if named else schemes[0]


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _split(asked: str) -> tuple[str, str]:
    """A path and the name picked of its things, if any: `FILE.bl:NAME`."""
    head, mark, name = asked.rpartition(f"{SUFFIX}:")
    return (head + SUFFIX, name) if mark else (asked, "")


def _find(asked: str) -> Path:
    """The file that a name or path stands for. Raises `BilinearError` (E121) where there is none."""
    if len(asked) > 4096 or "\0" in asked:
        raise fail("E121", f"{shown(asked)} is neither a file nor a shipped algorithm")
    path, known = Path(asked), shipped()
    try:
        if path.is_file() or (path.exists() and asked not in known):
            return path
        if "/" not in asked and Path(f"{asked}{SUFFIX}").is_file():
            return Path(f"{asked}{SUFFIX}")
    except OSError:
        pass
    name = asked.removesuffix(SUFFIX)
    if name in known:
        return known[name]
    hint = did_you_mean(name, known) or f"shipped are {listed(known, 20)}"
    raise fail("E121", f"{shown(asked, 200)} is neither a file nor a shipped algorithm", hint)


def _pick(module: Module, picked: str, path: Path) -> Scheme | Schedule:
    """The thing of that name, a scheme before a schedule, or the file's main thing. Raises `BilinearError` (E231, E232)."""
    things: tuple[Scheme | Schedule, ...] = (*module.schemes, *module.schedules)
    names = [thing.name for thing in things]
    if picked:
        found = next((thing for thing in things if thing.name == picked), None)
        if found is None:
            hint = did_you_mean(picked, names) or f"it holds {listed(names)}"
            raise fail("E231", f"{path} has no scheme and no schedule {shown(picked)}", hint)
        return found
    main: tuple[Scheme | Schedule, ...] = module.schedules or module.schemes
    if len(main) > 1:
        note = f"it holds {listed(names, 20)}"
        hint = f"pick one: {path}:{main[0].name}"
        raise BilinearError(Diagnostic("E232", f"{path} holds several algorithms", notes=(note,), hints=(hint,)))
    return main[0]
