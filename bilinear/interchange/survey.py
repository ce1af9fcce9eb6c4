"""Survey the published files of a folder in one table: each is proved, or reported with what it lacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bilinear.errors import BilinearError
from bilinear.frontend import load_shipped
from bilinear.interchange.fflas import read_fflas
from bilinear.interchange.formats import FORMATS, entries_of, files_below, format_of
from bilinear.interchange.importing import import_file
from bilinear.interchange.plinopt import missing_partners, stem_of
from bilinear.interchange.reader_parts import read_text
from bilinear.interchange.targets import Identified
from bilinear.verify.schedule import prove_schedule

PROVED, LACKS, REFUSED, PASSED_OVER = "proved", "lacks", "refused", "passed over"
_NO_SCHEME = ("E351", "E653")
"""The errors of files that hold something else: of no known format, or of one that holds more than schemes."""
_NO_TABLES = ("license", "readme", "copying", "authors", "changelog")


@dataclass(frozen=True)
class Row:
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


@dataclass
class _Survey:
    folder: Path
    known: dict[str, Row] = field(default_factory=dict)
    """The row of each set of three files, by the start of their names."""


def survey(folder: Path, progress: Callable[[str, int, int], None] = lambda what, done, of: None) -> Iterator[Row]:
    """Read and prove every file below a folder, in the order of their names; licenses and descriptions are left out."""
    paths = [path for path in files_below(folder) if not path.name.lower().startswith(_NO_TABLES)]
    session = _Survey(folder)
    for number, path in enumerate(paths):
        progress(path.name, number, len(paths))
        yield from _rows(session, path)


def _rows(session: _Survey, path: Path) -> Iterator[Row]:
    name = str(path.relative_to(session.folder))
    try:
        form, _ = format_of(path)
        if form.name in ("sms", "slp"):
            yield replace(_of_a_set(session, path, form.name), file=name)
        elif form.name == "fflas":
            yield from _schedules(path, name)
        else:
            for entry in entries_of(path, form):
                yield _timed(partial(_imported, path, f"{name}[{entry}]" if entry else name, form.name, entry))
    except BilinearError as error:
        yield _not_read(name, "", error)


def _not_read(name: str, form: str, error: BilinearError) -> Row:
    """The row of a file with an error: it is refused, if it could be a scheme."""
    passed_over = error.diagnostics[0].code in _NO_SCHEME
    return Row(name, "" if passed_over else form, PASSED_OVER if passed_over else REFUSED, _told(error))


def _of_a_set(session: _Survey, path: Path, form: str) -> Row:
    """The row of a set of three files, proved once."""
    found = stem_of(path)
    missing = missing_partners(path)
    if found is None or missing:
        lacking = "the other two of three files" if found is None else f"the file{'s' if missing[1:] else ''} {', '.join(missing)}"
        return Row(path.name, form, LACKS, lacking)
    stem = found[0]
    if stem.endswith("-CoB"):
        scheme = path.with_name(path.name.replace("-CoB_", "-ALT_"))
        if not scheme.is_file():
            return Row(path.name, form, LACKS, "the -ALT files whose bases it changes")
        whole = _of_a_set(session, scheme, form)
        return replace(whole, what=f"{whole.what}, as its changes of basis", seconds=0.0)
    key = f"{stem}.{form}"
    if key not in session.known:
        session.known[key] = _timed(partial(_imported, path, path.name, form))
        return session.known[key]
    return replace(session.known[key], seconds=0.0)


def _imported(path: Path, name: str, form: str, entry: str = "") -> Row:
    try:
        result = import_file(path, format=form, entry=entry, explain=False)
    except BilinearError as error:
        return _not_read(name, form, error)
    if isinstance(result, Identified):
        return Row(name, form, LACKS if result.missing else PROVED, result.missing or f"{result.title}, over {result.ring}")
    scheme = result.scheme
    order = f" up to O(lambda^{result.proof.order})" if result.proof.order else ""
    bases = ", in other bases" if scheme.bases is not None else ""
    return Row(name, form, PROVED, f"{scheme.format} over {scheme.ring}{order}{bases}", result.found)


def _schedules(path: Path, name: str) -> Iterator[Row]:
    """One row for each schedule: its decision, or the step that its source leaves out."""
    scheme = load_shipped("winograd").scheme
    for foreign in read_fflas(read_text(path)):
        title, begin = f"{name}[{foreign.schedule.name}]", time.perf_counter()
        try:
            if foreign.gaps:
                first = foreign.gaps[0].message.removeprefix(f"{foreign.schedule.name}: ")
                more = f", and {len(foreign.gaps) - 1} more" if foreign.gaps[1:] else ""
                yield Row(title, "fflas", LACKS, f"steps: {first}{more}", seconds=time.perf_counter() - begin)
                continue
            prove_schedule(foreign.schedule, scheme).require()
        except BilinearError as error:
            yield Row(title, "fflas", REFUSED, _told(error), seconds=time.perf_counter() - begin)
            continue
        yield Row(title, "fflas", PROVED, f"a schedule of winograd, {foreign.schedule.result}", seconds=time.perf_counter() - begin)


def _timed(make: Callable[[], Row]) -> Row:
    begin = time.perf_counter()
    return replace(make(), seconds=time.perf_counter() - begin)


def _told(error: BilinearError) -> str:
    first = error.diagnostics[0]
    return f"{first.code}: {first.message}"


Sums = tuple[int, int, int, int, float]
"""Of some rows: how many, proved, lacking, refused, and the seconds."""


def by_format(rows: list[Row]) -> list[tuple[str, *Sums]]:
    """The sums of the table by format, and of all. Files that are passed over do not count."""
    kept = [row for row in rows if row.verdict != PASSED_OVER]
    names = [name for name in [*FORMATS, ""] if any(row.format == name for row in kept)]
    return [(name or "unknown", *_sums([row for row in kept if row.format == name])) for name in names] + [("all", *_sums(kept))]


def by_folder(rows: list[Row]) -> list[tuple[str, str, *Sums]]:
    """The same by the first folder of each file's path and its format, and of all."""
    folders = sorted({_folder_of(row) for row in rows})
    inside = {folder: by_format([row for row in rows if _folder_of(row) == folder])[:-1] for folder in folders}
    return [(folder, *line) for folder in folders for line in inside[folder]] + [("all", "", *by_format(rows)[-1][1:])]


def _folder_of(row: Row) -> str:
    parts = Path(row.file).parts
    return parts[0] if len(parts) > 1 else "."


def _sums(rows: list[Row]) -> Sums:
    proved, lacks, refused = (sum(row.verdict == verdict for row in rows) for verdict in (PROVED, LACKS, REFUSED))
    return len(rows), proved, lacks, refused, round(sum(row.seconds for row in rows), 2)
