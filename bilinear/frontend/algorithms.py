"""Find algorithms by name: in files, among the shipped ones, and as compositions of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from bilinear.algebra.composition import is_real
from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.frontend.files import DIGITS, SUFFIX, Looks, own, read_source, shipped, shipped_of_all_kinds, split
from bilinear.frontend.messages import COMPOSITION_HINT, Reporter, did_you_mean, listed, shown
from bilinear.frontend.parse import parse_statements
from bilinear.frontend.resolve import References, ResolvedFile, resolve
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.digits import DigitScheme
from bilinear.ir.gram import GramScheme
from bilinear.ir.schedule import AnySchedule
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

__all__ = ["Loaded", "LoadedDigits", "load", "load_any", "load_shipped", "parse_source", "shipped"]

Thing = Scheme | AnySchedule | DigitScheme | GramScheme | ComplexAlgorithm  # What a file holds.
OtherScheme = TypeVar("OtherScheme", DigitScheme, GramScheme, ComplexAlgorithm)
EXPRESSION = "<expression>"  # The source name of a composition that is given in place of an algorithm.
MOST_LETTERS = 4096  # The most characters of a name, path or composition that asks for an algorithm.
_COMPOSED = re.compile(r"\([ \t]*(?:x|\+[ \t]*[mkn])[ \t]*\)|^\s*(?:rotate|transpose)\s*\(|^\s*<[0-9,\s]*>\s*$")
_LIKE_COMPOSED = re.compile(r"\w\s*[(*\u2297]|\w\s+\S+\s+\w")  # Looks like a composition without operators.


@dataclass(frozen=True)
class Loaded:
    """A scheme, its schedule if one was asked for, and their source (for a schedule: its own file).

    With a `complex_core` it runs the real products of that algorithm for complex numbers, and multiplies complex matrices only. `below` are
    the algorithms of the levels below, where a caller named those one by one.
    """

    scheme: Scheme
    schedule: AnySchedule | None
    source: Source
    path: Path
    complex_core: BilinearAlgorithm | None = None
    below: tuple[Loaded, ...] = ()

    @property
    def name(self) -> str:
        """The name by which a user knows it: that of the schedule, if there is one, after that of an algorithm for complex numbers."""
        name = "+".join((x.scheme if x.schedule is None else x.schedule).name for x in self.by_level)
        return name if self.complex_core is None else f"{self.complex_core.name} (x) {name}"

    @property
    def by_level(self) -> tuple[Loaded, ...]:
        """The algorithms of the levels that were named, the outermost first."""
        return (self, *self.below)


@dataclass(frozen=True)
class LoadedMap(Generic[OtherScheme]):
    """An algorithm for another map than the product of two matrices, and its source."""

    scheme: OtherScheme
    source: Source
    path: Path


class LoadedDigits(LoadedMap[DigitScheme]):
    """A scheme that multiplies digits."""


class LoadedGram(LoadedMap[GramScheme]):
    """A scheme for A*A^T."""


class LoadedComplex(LoadedMap[ComplexAlgorithm]):
    """An algorithm for complex numbers."""


AnyLoaded = Loaded | LoadedDigits | LoadedGram | LoadedComplex


def parse_source(source: Source) -> ResolvedFile:
    """The schemes and schedules of a source. If its name is a path, other schemes are looked up in that folder.

    Raises `BilinearError` with every syntax error and every semantic error, in the order of their places.
    """
    return _module(source, Path(source.name), Looks())[0]


def load(name_or_path: str | Path, looks: Looks | None = None) -> Loaded:
    """Load a scheme or schedule from a file or by the name of a shipped algorithm; `FILE.bl:NAME` picks one from a file.

    A file stands for its only schedule if it has one, else for its only scheme. A composition such as `laderman (x) strassen` means the
    same as in a file in the working folder. `looks` records the files examined. Raises `BilinearError`, also for schemes of digits (E566)
    and for those for A*A^T (E794).
    """
    return of_blocks(load_any(name_or_path, looks))


def load_for_arrays(name_or_path: str | Path, looks: Looks | None = None) -> Loaded:
    """The same for arrays that may be complex: an algorithm for complex numbers is the scheme of its real products, and its `complex_core`.

    Without a scheme of blocks the products are plain. Raises `BilinearError`, also (E236) if the products are not of real numbers.
    """
    found = load_any(name_or_path, looks)
    if not isinstance(found, LoadedComplex):
        return of_blocks(found)
    core, inside = found.scheme.core, found.scheme.inside
    if not is_real(core.ring):
        raise fail("E236", f"{core.name} is over {core.ring}, and real and imaginary parts are real numbers", "take one over Z or Q")
    plain = load_shipped("classical")
    scheme, schedule = (plain.scheme, plain.schedule) if inside is None else (inside, None)
    return Loaded(scheme, schedule, found.source, found.path, core)


def load_any(name_or_path: str | Path, looks: Looks | None = None) -> AnyLoaded:
    """The same, also for a scheme that multiplies digits, for one for A*A^T, and for one of complex numbers. Raises `BilinearError`."""
    text, looks = str(name_or_path), looks or Looks()
    if len(text) <= MOST_LETTERS and _COMPOSED.search(text) and not _exists(text, looks):
        return _composed(text, "", looks)
    asked, picked = split(text)
    return _loaded(_find(asked, looks), picked, looks)


def names_of_levels(text: str) -> tuple[str, ...]:
    """The algorithm of each level, the outermost first, in `strassen:2` or `winograd+strassen`; none if the text is one algorithm."""
    names, colon, count = text.rpartition(":")
    if not colon or not count.isdecimal():
        names, count = text, "1"
    each = names.split("+")
    if (text == names and len(each) == 1) or not all(each) or _COMPOSED.search(text) or _exists(text, Looks()) or len(count) > 2:
        return ()
    return (*each,) * int(count)


def load_shipped(name: str) -> Loaded:
    """The shipped algorithm of a name, ignoring the working folder; this is how plans name algorithms. Raises `BilinearError` (E121)."""
    known = shipped()
    if name not in known:
        hint = did_you_mean(name, known) or f"shipped are {listed(known, 20)}"
        raise fail("E121", f"{shown(name, 200)} is not a shipped algorithm", hint)
    return of_blocks(_loaded(known[name], "", Looks()))


@cache  # a plan asks for its errors at each new K
def load_digits(name: str) -> DigitScheme:
    """The shipped scheme of digits of a name, ignoring the working folder. Raises `BilinearError` (E121)."""
    known = shipped(DIGITS)
    found = _loaded(known[name], "", Looks()) if name in known else None
    if not isinstance(found, LoadedDigits):
        raise fail("E121", f"{shown(name, 200)} is not a shipped scheme of digits", f"shipped are {listed(known, 20)}")
    return found.scheme


def is_file_name(name: str) -> bool:
    """True if a level's name means a file: `mine.bl`, or `mine.bl:NAME`."""
    return split(name)[0].endswith(SUFFIX)


def load_named(name: str, looks: Looks) -> Loaded:
    """The algorithm that a level names: a shipped one, one that the user has added, or a file `FILE.bl`. Raises `BilinearError` (E121)."""
    asked, picked = split(name)
    if is_file_name(name):
        return of_blocks(_loaded(_find(asked, looks), picked, looks))
    added = own()
    return of_blocks(_loaded(added[name], "", looks)) if name in added else load_shipped(name)


def of_blocks(found: AnyLoaded) -> Loaded:
    """What was found, if it multiplies blocks of matrices; else E566 or E794."""
    if isinstance(found, Loaded):
        return found
    if isinstance(found, LoadedGram):
        what = f"{found.scheme.name} computes A*A^T, and multiplies no two matrices"
        raise fail("E794", what, "bilinear.gram runs it", f"bilinear verify {found.scheme.name} proves it")
    if isinstance(found, LoadedComplex):
        what = f"{found.scheme.name} multiplies complex numbers, and is not an algorithm for blocks of matrices"
        hint = "matmul(algorithm=...), run and compile take it for complex types; an algorithm for blocks is, for example, winograd"
        raise fail("E566", what, hint, "bilinear verify proves it")
    name, representation = found.scheme.name, found.scheme.representation
    what = f"{name} multiplies digits of {representation.numbers}, and is not an algorithm for blocks of matrices"
    raise fail("E566", what, f"bilinear verify {name} proves it and gives its errors", "an algorithm for blocks is, for example, winograd")


def _loaded(path: Path, picked: str, looks: Looks) -> AnyLoaded:
    source = looks.read(path)
    module, schemes = _module(source, path, looks)
    if not (module.schemes or module.schedules or module.digits or module.grams or module.complexes):
        raise fail("E125", f"{path} holds no scheme and no schedule", "write one: scheme NAME <m,k,n;r>, then its rows or equations")
    thing = _pick(module, picked, path)
    if isinstance(thing, DigitScheme):
        return LoadedDigits(thing, source, path)
    if isinstance(thing, GramScheme):
        return LoadedGram(thing, source, path)
    if isinstance(thing, ComplexAlgorithm):
        return LoadedComplex(thing, source, path)
    if isinstance(thing, Scheme):
        return Loaded(thing, None, source, path)
    return Loaded(schemes[thing.scheme], thing, source, path)


def schemes_in(path: Path) -> tuple[Scheme, ...]:
    """The schemes of a file; its schedules are ignored. Raises `BilinearError`."""
    reporter = Reporter()
    module = resolve(parse_statements(read_source(path), reporter), References(path, Looks()).find, reporter, with_schedules=False)
    reporter.finish()
    return module.schemes


def compose(expression: str, name: str = "", looks: Looks | None = None) -> Loaded:
    """The scheme that an expression of the language builds, named after the expression unless a name is given. Raises `BilinearError`."""
    return of_blocks(_composed(expression, name, looks or Looks()))


def _composed(expression: str, name: str, looks: Looks) -> Loaded | LoadedDigits | LoadedComplex:
    name = name or _called(expression)
    path = Path(f"{name}{SUFFIX}")
    source = Source(EXPRESSION, f"scheme {name} = {expression.strip()}")
    module = _module(source, path, looks)[0]
    if module.complexes:
        return LoadedComplex(module.complexes[0], source, path)
    return LoadedDigits(module.digits[0], source, path) if module.digits else Loaded(module.schemes[0], None, source, path)


def _called(expression: str) -> str:
    words = re.sub(r"\(\s*\+\s*([mkn])\s*\)", r" plus_\1 ", expression)
    name = "_".join(re.findall(r"[A-Za-z0-9_]+", words))
    return "composed" if len(name) > 100 or not name else name if not name[0].isdigit() else f"classical_{name}"


def _exists(text: str, looks: Looks) -> bool:
    try:
        return looks.exists(Path(text))
    except (OSError, ValueError):
        return False


def _module(source: Source, path: Path, looks: Looks) -> tuple[ResolvedFile, dict[str, Scheme]]:
    reporter, references = Reporter(), References(path, looks)
    module = resolve(parse_statements(source, reporter), references.find, reporter)
    reporter.finish()
    others = {name: s for name, s in references.found.items() if isinstance(s, Scheme)}
    return module, others | {s.name: s for s in module.schemes}


def _find(asked: str, looks: Looks) -> Path:
    if not asked or len(asked) > MOST_LETTERS or "\0" in asked:
        raise fail("E121", f"{shown(asked)} is neither a file nor a shipped algorithm")
    path, known = Path(asked), own() | shipped_of_all_kinds()
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
    if (asked.endswith(SUFFIX) or "/" in asked) and not _LIKE_COMPOSED.search(name):
        plain = Path(name).name
        is_shipped = f"{plain} is shipped: its name alone, without a folder, means it" if plain in known else ""
        near = is_shipped or did_you_mean(name, known) or "`bilinear list` names the shipped algorithms, `bilinear new` starts a file"
        raise fail("E121", f"there is no file {shown(asked, 200)}", near)
    levels = names_of_levels(asked)
    if levels and known.keys() >= set(levels):
        one, many = f"{levels[0]} is shipped: give its levels apart, levels={len(levels)}", f"compose them: {' (x) '.join(levels)}"
        raise fail("E121", f"{shown(asked, 200)} names levels, and one algorithm is asked for", many if len(set(levels)) > 1 else one)
    hint = COMPOSITION_HINT if _LIKE_COMPOSED.search(name) else did_you_mean(name, known) or f"shipped are {listed(known, 20)}"
    raise fail("E121", f"{shown(asked, 200)} is neither a file nor a shipped algorithm", hint)


def _pick(module: ResolvedFile, picked: str, path: Path) -> Thing:
    """The scheme (else the schedule) of that name, or the file's main one. Raises `BilinearError` (E231, E232)."""
    things: tuple[Thing, ...] = (*module.schemes, *module.schedules, *module.digits, *module.grams, *module.complexes)
    names = [thing.name for thing in things]
    if picked:
        found = next((thing for thing in things if thing.name == picked), None)
        if found is None:
            hint = did_you_mean(picked, names) or f"it holds {listed(names)}"
            raise fail("E231", f"{path} has no scheme and no schedule {shown(picked)}", hint)
        return found
    main: tuple[Thing, ...] = module.schedules or (*module.schemes, *module.digits, *module.grams, *module.complexes)
    if len(main) > 1:
        note = f"it holds {listed(names, 20)}"
        hint = f"pick one: {path}:{main[0].name}"
        raise BilinearError(Diagnostic("E232", f"{path} holds several algorithms", notes=(note,), hints=(hint,)))
    return main[0]
