"""Gather the schemes from which others can be made: shipped ones, and those in files and folders of any readable format."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bilinear.errors import BilinearError, fail
from bilinear.frontend.algorithms import schemes_in
from bilinear.frontend.files import SUFFIX, own, shipped
from bilinear.interchange.formats import entries_of, files_below, format_of
from bilinear.interchange.importing import Imported, import_file
from bilinear.interchange.plinopt import partners
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme

log = logging.getLogger("bilinear")
NO_SCHEME = "E125"
"""A file with only schedules."""

Entry = tuple[str, Scheme]
"""A scheme and its name in an expression of the language: a shipped name, or its file in quotes."""
Progress = Callable[[str, int, int], None]


def shipped_schemes() -> list[Entry]:
    """The schemes among the shipped algorithms, and among those that the user has added. One of the latter that is damaged or wrong is left
    out, and logged.
    """
    found, added = [], own()
    for name, path in (shipped() | added).items():
        try:
            schemes = _proved(schemes_in(path)) if name in added else schemes_in(path)
        except BilinearError as error:
            if name not in added:
                raise
            log.warning("%s is left out (%s): add it again, or `bilinear remove %s`", path, error.diagnostics[0].message, name)
            continue
        found += [(name, scheme) for scheme in schemes if scheme.name == name or len(schemes) == 1]
    return found


def schemes_of(
    places: Iterable[Path],
    progress: Progress = lambda what, done, of: None,
    tell: Callable[[Path, BilinearError], None] = lambda path, error: None,
) -> list[Entry]:
    """The schemes of files and folders, by path; published tables are proved as they are read.

    A file without a scheme is an error if it was named itself (the readers' errors). In a folder it is skipped, as is a `.bl` file with a
    wrong scheme; a skipped `.bl` file is reported, because it was meant to hold one.
    """
    found: list[Entry] = []
    for place in places:
        if not os.path.isdir(place):  # which a name that is too long is not
            found += _of_file(place)
            continue
        paths = files_below(place)
        for number, path in enumerate(paths):
            progress(path.name, number, len(paths))
            try:
                entries = _of_file(path, explain=False)
                if path.suffix == SUFFIX:
                    _proved(scheme for _, scheme in entries)
                found += entries
            except BilinearError as error:
                if path.suffix == SUFFIX and error.diagnostics[0].code != NO_SCHEME:
                    tell(path, error)
    return found


def _proved(schemes: Iterable[Scheme]) -> list[Scheme]:
    """The schemes, each of which multiplies (E301)."""
    found = list(schemes)
    for scheme in found:
        prove_scheme(scheme).require()
    return found


def _of_file(path: Path, explain: bool = True) -> list[Entry]:
    if path.suffix == SUFFIX:
        schemes = schemes_in(path)
        if not schemes:
            raise fail(NO_SCHEME, f"{path} holds no scheme", "a schedule is made of a scheme: name the file of that")
        return [(f'"{path}"' if len(schemes) == 1 else f'"{path}:{scheme.name}"', scheme) for scheme in schemes]
    return list(_published(path, explain))


def _published(path: Path, explain: bool) -> Iterator[Entry]:
    """The schemes of a published file; the first of a set of three files stands for all."""
    if (partners(path) or [path])[0] != path:
        return
    form, _ = format_of(path)
    for entry in entries_of(path, form):
        result = import_file(path, format=form.name, entry=entry, explain=explain)
        if isinstance(result, Imported):
            yield f'"{path}{f"[{entry}]" if entry else ""}"', result.scheme
