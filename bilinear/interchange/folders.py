"""The files of folders: gathered as schemes from which others are made, and surveyed in one table."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bilinear.errors import BilinearError, fail
from bilinear.frontend import load_shipped
from bilinear.frontend.algorithms import schemes_in
from bilinear.frontend.files import SUFFIX, own, shipped
from bilinear.interchange.fflas import read_fflas
from bilinear.interchange.importing import FORMATS, Imported, entries_of, format_of, import_file
from bilinear.interchange.plinopt import files_of
from bilinear.interchange.reader_parts import read_text
from bilinear.interchange.targets import Identified
from bilinear.ir.scheme import Scheme
from bilinear.verify.schedule import prove_schedule
from bilinear.verify.scheme import prove_scheme

log = logging.getLogger("bilinear")
NO_SCHEME = "E125"  # A file with only schedules.
Entry = tuple[str, Scheme]  # A scheme and its name in the language: a shipped one, or its quoted file.
Progress = Callable[[str, int, int], None]


MOST_ENTRIES = 10_000  # Files and folders below a folder that is read.


def files_below(folder: Path) -> list[Path]:
    """All files below a folder by path, following no linked folder. Raises `BilinearError` (E251) if unreadable or too many."""
    found: list[Path] = []
    waiting, entries = [folder], 0
    while waiting:
        inner = waiting.pop()
        try:
            with os.scandir(inner) as listed:
                for entry in listed:
                    entries += 1
                    if entries > MOST_ENTRIES:
                        raise fail("E251", f"{folder} holds more than {MOST_ENTRIES} files and folders", "name a smaller folder, or files")
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif os.path.isfile(entry.path):
                        found.append(Path(entry.path))
        except OSError as error:
            raise fail("E251", f"{inner} cannot be read: {error.strerror or error}") from None
    return sorted(found)


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
    files = files_of(path)
    if files is not None and files.scheme[0] != path:
        return
    form, _ = format_of(path)
    for entry in entries_of(path, form):
        result = import_file(path, format=form.name, entry=entry, explain=explain)
        if isinstance(result, Imported):
            yield f'"{path}{f"[{entry}]" if entry else ""}"', result.scheme


PROVED, LACKS, REFUSED, PASSED_OVER = "proved", "lacks", "refused", "passed over"
_NO_SCHEME = ("E351", "E653")  # Of files that hold something else: of no known format, or more than schemes.
_NO_TABLES = ("license", "readme", "copying", "authors", "changelog")


@dataclass(frozen=True)
class FolderRow:
    """The result for a file, or for one scheme or schedule in it.

    `verdict` is `proved`, `lacks` (`what` names the missing datum), `refused` (`what` is the error), or `passed over`, if the file holds no
    scheme. For a proved one `what` is the
    format or the map and its ring, and `found` what was determined by trying.
    """

    file: str
    format: str
    verdict: str
    what: str
    found: tuple[str, ...] = ()
    seconds: float = 0.0


def survey(folder: Path, progress: Callable[[str, int, int], None] = lambda what, done, of: None) -> Iterator[FolderRow]:
    """Read and prove every file below a folder, in the order of their names; licenses and descriptions are left out."""
    paths = [path for path in files_below(folder) if not path.name.lower().startswith(_NO_TABLES)]
    known: dict[str, FolderRow] = {}  # the row of each set of three files, by the first of them
    for number, path in enumerate(paths):
        progress(path.name, number, len(paths))
        yield from _rows(path, str(path.relative_to(folder)), known)


def _rows(path: Path, name: str, known: dict[str, FolderRow]) -> Iterator[FolderRow]:
    try:
        form, _ = format_of(path)
        if form.in_sets:
            yield replace(_of_a_set(known, path, form.name), file=name)
        elif form.name == "fflas":
            yield from _schedules(path, name)
        else:
            for entry in entries_of(path, form):
                yield _timed(partial(_imported, path, f"{name}[{entry}]" if entry else name, form.name, entry))
    except BilinearError as error:
        yield _not_read(name, "", error)
    except Exception as error:
        yield FolderRow(name, "", REFUSED, f"a fault of the reader, please report it: {type(error).__name__}: {error}")


def _not_read(name: str, form: str, error: BilinearError) -> FolderRow:
    passed_over = error.diagnostics[0].code in _NO_SCHEME
    return FolderRow(name, "" if passed_over else form, PASSED_OVER if passed_over else REFUSED, _told(error))


def _of_a_set(known: dict[str, FolderRow], path: Path, form: str) -> FolderRow:
    files = files_of(path)
    if files is None or files.missing:
        lacking = (
            "the other two of three files" if files is None else f"the file{'s' if files.missing[1:] else ''} {', '.join(files.missing)}"
        )
        return FolderRow(path.name, form, LACKS, lacking)
    first = str(files.scheme[0])
    row = replace(known[first], seconds=0.0) if first in known else _timed(partial(_imported, path, path.name, form))
    known.setdefault(first, row)
    changes = ", as its changes of basis" if path in (files.bases or ()) and row.verdict == PROVED else ""
    return replace(row, what=f"{row.what}{changes}")


def _imported(path: Path, name: str, form: str, entry: str = "") -> FolderRow:
    try:
        result = import_file(path, format=form, entry=entry, explain=False)
    except BilinearError as error:
        return _not_read(name, form, error)
    if isinstance(result, Identified):
        return FolderRow(name, form, LACKS if result.missing else PROVED, result.missing or f"{result.title}, over {result.ring}")
    scheme = result.scheme
    order = f" up to O(lambda^{result.proof.order})" if result.proof.order else ""
    bases = ", in other bases" if scheme.bases is not None else ""
    return FolderRow(name, form, PROVED, f"{scheme.format} over {scheme.ring}{order}{bases}", result.found)


def _schedules(path: Path, name: str) -> Iterator[FolderRow]:
    scheme = load_shipped("winograd").scheme
    for foreign in read_fflas(read_text(path)):
        title, begin = f"{name}[{foreign.schedule.name}]", time.perf_counter()
        try:
            if foreign.gaps:
                first = foreign.gaps[0].message.removeprefix(f"{foreign.schedule.name}: ")
                more = f", and {len(foreign.gaps) - 1} more" if foreign.gaps[1:] else ""
                yield FolderRow(title, "fflas", LACKS, f"steps: {first}{more}", seconds=time.perf_counter() - begin)
                continue
            prove_schedule(foreign.schedule, scheme).require()
        except BilinearError as error:
            yield FolderRow(title, "fflas", REFUSED, _told(error), seconds=time.perf_counter() - begin)
            continue
        yield FolderRow(title, "fflas", PROVED, f"a schedule of winograd, {foreign.schedule.result}", seconds=time.perf_counter() - begin)


def _timed(make: Callable[[], FolderRow]) -> FolderRow:
    begin = time.perf_counter()
    return replace(make(), seconds=time.perf_counter() - begin)


def _told(error: BilinearError) -> str:
    first = error.diagnostics[0]
    return f"{first.code}: {first.message}"


Sums = tuple[int, int, int, int, float]  # Of some rows: how many, proved, lacking, refused, and the seconds.


def by_format(rows: list[FolderRow]) -> list[tuple[str, *Sums]]:
    """The sums of the table by format, and of all. Files that are passed over do not count."""
    kept = [row for row in rows if row.verdict != PASSED_OVER]
    names = [name for name in [*FORMATS, ""] if any(row.format == name for row in kept)]
    return [(name or "unknown", *_sums([row for row in kept if row.format == name])) for name in names] + [("all", *_sums(kept))]


def by_folder(rows: list[FolderRow]) -> list[tuple[str, str, *Sums]]:
    """The same by the first folder of each file's path and its format, and of all."""
    folders = sorted({_folder_of(row) for row in rows})
    inside = {folder: by_format([row for row in rows if _folder_of(row) == folder])[:-1] for folder in folders}
    return [(folder, *line) for folder in folders for line in inside[folder]] + [("all", "", *by_format(rows)[-1][1:])]


def _folder_of(row: FolderRow) -> str:
    parts = Path(row.file).parts
    return parts[0] if len(parts) > 1 else "."


def _sums(rows: list[FolderRow]) -> Sums:
    proved, lacks, refused = (sum(row.verdict == verdict for row in rows) for verdict in (PROVED, LACKS, REFUSED))
    return len(rows), proved, lacks, refused, round(sum(row.seconds for row in rows), 2)
