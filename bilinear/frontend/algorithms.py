"""Algorithms by name: files, the shipped ones, and what is composed of them where it is asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.frontend.files import SUFFIX, Looks, read_source, shipped, split
from bilinear.frontend.messages import COMPOSITION_HINT
from bilinear.frontend.parse import parse_statements
from bilinear.frontend.references import References
from bilinear.frontend.reporter import Reporter, did_you_mean, listed, shown
from bilinear.frontend.resolve import Module, resolve
from bilinear.ir.schedule import AnySchedule
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

__all__ = ["Loaded", "load", "load_shipped", "parse_source", "shipped"]

EXPRESSION = "<expression>"
"""What the source of a composition is called that stands where an algorithm is asked for."""
MOST_LETTERS = 4096
"""Characters of what an algorithm is asked for by."""
_COMPOSED = re.compile(r"\([ \t]*(?:x|\+[ \t]*[mkn])[ \t]*\)|^\s*(?:rotate|transpose)\s*\(|^\s*<[0-9,\s]*>\s*$")
_LIKE_COMPOSED = re.compile(r"\w\s*[(*\u2297]|\w\s+\S+\s+\w")
"""What looks like a composition, though it has none of its operators."""


@dataclass(frozen=True)
class Loaded:
    """A scheme, the schedule that was asked for if any, and where they came from (for a schedule: its own file)."""

    scheme: Scheme
    schedule: AnySchedule | None
    source: Source
    path: Path


def parse_source(source: Source) -> Module:
    """The schemes and schedules of a source; its name, where it is a path, tells the folder in which other schemes are found.

    Raises `BilinearError` with every syntax error and every error of meaning, in the order of their places.
    """
    return _module(source, Path(source.name), Looks())[0]


def load(name_or_path: str | Path, looks: Looks | None = None) -> Loaded:
    """The scheme or schedule in a file, or of a name among the shipped algorithms; `FILE.bl:NAME` picks one of a file's.

    A file stands for its only schedule if it has one, else for its only scheme. A composition such as `laderman (x) strassen` is what it
    would be in a file in the working folder. `looks` is told what is looked at on the way. Raises `BilinearError`.
    """
    text, looks = str(name_or_path), looks or Looks()
    if len(text) <= MOST_LETTERS and _COMPOSED.search(text) and not _exists(text, looks):
        return compose(text, looks=looks)
    asked, picked = split(text)
    return _loaded(_find(asked, looks), picked, looks)


def load_shipped(name: str) -> Loaded:
    """The shipped algorithm of a name, whatever lies in the working folder: what plans mean. Raises `BilinearError` (E121)."""
    known = shipped()
    if name not in known:
        raise fail("E121", f"{shown(name, 200)} is no shipped algorithm", did_you_mean(name, known) or f"shipped are {listed(known, 20)}")
    return _loaded(known[name], "", Looks())


def _loaded(path: Path, picked: str, looks: Looks) -> Loaded:
    """The thing of that name, or the main thing, in a file."""
    source = looks.read(path)
    module, schemes = _module(source, path, looks)
    if not module.schemes and not module.schedules:
        raise fail("E125", f"{path} holds no scheme and no schedule", "write one: scheme NAME <m,k,n;r>, then its rows or equations")
    thing = _pick(module, picked, path)
    if isinstance(thing, Scheme):
        return Loaded(thing, None, source, path)
    return Loaded(schemes[thing.scheme], thing, source, path)


def schemes_in(path: Path) -> tuple[Scheme, ...]:
    """The schemes of a file, whose schedules are not looked at. Raises `BilinearError`."""
    reporter = Reporter()
    module = resolve(parse_statements(read_source(path), reporter), References(path, Looks()).find, reporter, with_schedules=False)
    reporter.finish()
    return module.schemes


def compose(expression: str, name: str = "", looks: Looks | None = None) -> Loaded:
    """The scheme that an expression of the language makes; without a name it is called after the expression. Raises `BilinearError`."""
    name = name or _called(expression)
    path = Path(f"{name}{SUFFIX}")
    source = Source(EXPRESSION, f"scheme {name} = {expression.strip()}")
    return Loaded(_module(source, path, looks or Looks())[0].schemes[0], None, source, path)


def _called(expression: str) -> str:
    words = re.sub(r"\(\s*\+\s*([mkn])\s*\)", r" plus_\1 ", expression)
    name = "_".join(re.findall(r"[A-Za-z0-9_]+", words))
    return "composed" if len(name) > 100 or not name else name if not name[0].isdigit() else f"classical_{name}"


def _exists(text: str, looks: Looks) -> bool:
    try:
        return looks.exists(Path(text))
    except (OSError, ValueError):
        return False


def _module(source: Source, path: Path, looks: Looks) -> tuple[Module, dict[str, Scheme]]:
    """A file's module, and by name every scheme that it holds or refers to."""
    reporter, references = Reporter(), References(path, looks)
    module = resolve(parse_statements(source, reporter), references.find, reporter)
    reporter.finish()
    others = {name: s for name, s in references.found.items() if s is not None}
    return module, others | {s.name: s for s in module.schemes}


def _find(asked: str, looks: Looks) -> Path:
    """The file that a name or path stands for. Raises `BilinearError` (E121) where there is none."""
    if len(asked) > MOST_LETTERS or "\0" in asked:
        raise fail("E121", f"{shown(asked)} is neither a file nor a shipped algorithm")
    path, known = Path(asked), shipped()
    try:
        if looks.is_file(path) or (looks.exists(path) and asked not in known):
            return path
        if "/" not in asked and looks.is_file(Path(f"{asked}{SUFFIX}")):
            return Path(f"{asked}{SUFFIX}")
    except OSError:
        pass
    name = asked.removesuffix(SUFFIX)
    if name in known:
        return known[name]
    hint = COMPOSITION_HINT if _LIKE_COMPOSED.search(name) else did_you_mean(name, known) or f"shipped are {listed(known, 20)}"
    raise fail("E121", f"{shown(asked, 200)} is neither a file nor a shipped algorithm", hint)


def _pick(module: Module, picked: str, path: Path) -> Scheme | AnySchedule:
    """The thing of that name, a scheme before a schedule, or the file's main thing. Raises `BilinearError` (E231, E232)."""
    things: tuple[Scheme | AnySchedule, ...] = (*module.schemes, *module.schedules)
    names = [thing.name for thing in things]
    if picked:
        found = next((thing for thing in things if thing.name == picked), None)
        if found is None:
            hint = did_you_mean(picked, names) or f"it holds {listed(names)}"
            raise fail("E231", f"{path} has no scheme and no schedule {shown(picked)}", hint)
        return found
    main: tuple[Scheme | AnySchedule, ...] = module.schedules or module.schemes
    if len(main) > 1:
        note = f"it holds {listed(names, 20)}"
        hint = f"pick one: {path}:{main[0].name}"
        raise BilinearError(Diagnostic("E232", f"{path} holds several algorithms", notes=(note,), hints=(hint,)))
    return main[0]
