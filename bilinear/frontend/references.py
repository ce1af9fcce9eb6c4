"""The schemes of other files that a file refers to, in its folder or shipped; each file is read once."""

from __future__ import annotations

from pathlib import Path

from bilinear.algebra.combined import AnyScheme
from bilinear.errors import BilinearError
from bilinear.frontend.files import SUFFIX, Looks, own, shipped, shipped_complex, shipped_digits, split
from bilinear.frontend.parse import parse_statements
from bilinear.frontend.reporter import Reporter, did_you_mean, listed, shown
from bilinear.frontend.resolve import resolve
from bilinear.frontend.syntax import Word

MOST_FILES = 50
"""The longest chain of files that refer to each other."""


class References:
    """The schemes that a file names; `found` holds those looked up so far, None for one that does not exist.

    `looks` records the files; `outer` holds the references of the file that refers to this one.
    """

    def __init__(self, path: Path, looks: Looks, outer: References | None = None) -> None:
        self.path = path
        self._looks = looks
        self.found: dict[str, AnyScheme | None] = {}
        self._open: tuple[Path, ...] = (*(outer._open if outer else ()), path.resolve())
        self._read: dict[Path, tuple[AnyScheme, ...]] = outer._read if outer else {}

    def find(self, word: Word, reporter: Reporter) -> AnyScheme | None:
        """The scheme that a word names; None if there is none, which is reported once (E221, E222, E645)."""
        if word.text not in self.found:
            place = self._quoted(word, reporter) if word.text.startswith('"') else self._named(word, reporter)
            self.found[word.text] = self._scheme(word, place, reporter) if place is not None else None
        return self.found[word.text]

    def _named(self, word: Word, reporter: Reporter) -> Path | None:
        """The file named like the scheme: in the folder of this file, else the user's own or the shipped one."""
        known = own() | shipped() | shipped_digits() | shipped_complex()
        places = [self.path.parent / f"{word.text}{SUFFIX}", *([known[word.text]] if word.text in known else [])]
        found = [place for place in places if len(word.text) < 200 and self._looks.is_file(place)]
        other = next((place for place in found if place.resolve() != self._open[-1]), None)
        if other is None and found:
            message = f"{shown(word.text)} names this file, which holds no such scheme"
            reporter.report("E222", message, word.span, "refers to itself", hint="write the scheme into this file")
        elif other is None:
            hint = did_you_mean(word.text, known) or f"known are the files beside this one, NAME{SUFFIX}, and what `bilinear list` shows"
            reporter.report("E221", f"there is no scheme {shown(word.text)}", word.span, "not known", hint=hint)
        return other

    def _quoted(self, word: Word, reporter: Reporter) -> Path | None:
        """The file of a quoted path, relative to the folder of this file."""
        asked, _ = split(word.text[1:-1])
        place = self.path.parent / asked
        try:
            is_there = self._looks.is_file(place)
        except (OSError, ValueError):
            is_there = False
        if is_there and place.suffix == SUFFIX:
            return place
        if is_there:
            hint = f"`bilinear import` writes a published table to a {SUFFIX} file"
            reporter.report("E221", f"{shown(asked, 200)} is not a {SUFFIX} file", word.span, "not read here", hint=hint)
            return None
        hint = f'write the path of a {SUFFIX} file, from here: "parts/mine{SUFFIX}", or "parts/mine{SUFFIX}:NAME" for one of its schemes'
        reporter.report("E221", f"there is no file {shown(asked, 200)}", word.span, "not found", hint=hint)
        return None

    def _scheme(self, word: Word, path: Path, reporter: Reporter) -> AnyScheme | None:
        """The scheme of that name in another file, else its only scheme."""
        if path.resolve() in self._open or len(self._open) >= MOST_FILES:
            why = "refers back to this file" if path.resolve() in self._open else f"is referred to through {MOST_FILES} files"
            reporter.report("E645", f"{path.name} {why}", word.span, "a circle", hint="write the schemes of a circle into one file")
            return None
        try:
            schemes = self._schemes(path)
        except BilinearError as error:
            reporter.found += error.diagnostics
            return None
        asked = split(word.text[1:-1])[1] if word.text.startswith('"') else word.text
        named = [s for s in schemes if s.name == asked]
        if not named and (len(schemes) != 1 or (asked and word.text.startswith('"'))):
            held = f"it holds {listed(s.name for s in schemes)}" if schemes else "it holds no scheme, and a schedule is made of a scheme"
            message = f"{path.name} has no scheme {shown(asked)}" if asked else f"{path.name} has not one scheme"
            reporter.report("E222", message, word.span, "not a scheme", note=held)
            return None
        return named[0] if named else schemes[0]

    def _schemes(self, path: Path) -> tuple[AnyScheme, ...]:
        """The schemes of another file; its schedules are ignored."""
        place = path.resolve()
        if place not in self._read:
            reporter = Reporter()
            statements = parse_statements(self._looks.read(path), reporter)
            module = resolve(statements, References(path, self._looks, self).find, reporter, with_schedules=False)
            reporter.finish()
            self._read[place] = (*module.schemes, *module.digits, *module.complexes)
        return self._read[place]
