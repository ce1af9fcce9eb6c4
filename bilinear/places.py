"""Which places a command may write: none of its inputs, and no folder except an unchanged earlier output."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bilinear.errors import BilinearError, fail
from bilinear.reading import read_bounded, was_read

MANIFEST = "manifest.json"
FORMAT = "bilinear-manifest/1"
MOST_BYTES = 64 * 2**20  # The largest size of a file in an output folder.
MOST_TOLD = 5  # The most foreign files that a message names.
ELSEWHERE = "choose another folder by output="


def require_files(*places: Path | None, unread: Iterable[str | Path] = ()) -> None:
    """Refuse (E612) places where no file can or may be written, before the work whose result they are for.

    Refused are folders, places in folders that cannot be written, write-protected files, places named by two outputs, and inputs of the
    command: those it has read and those it will read (`unread`: files, and folders that are read as a whole).
    """
    inputs, known = [Path(path) for path in unread], set[Path]()
    for place in places:
        if place is None:
            continue
        reason = _why_no_file(place, inputs)
        if not reason and not goes_straight(place):
            target = _resolved(place)
            reason = "another output of this command goes there" if target in known else ""
            known.add(target)
        if reason:
            raise fail("E612", f"cannot write {place}: {reason}", "choose another place")


def holds_another(place: Path, content: bytes) -> bool:
    """True if something with other content is there already; a file is not replaced unless the user named its place."""
    try:
        return read_bounded(place, max(len(content), 1)) != content
    except FileNotFoundError:
        return False
    except OSError:
        return True


def goes_straight(place: Path) -> bool:
    """True if a place is written directly: a pipe, a device, or the file behind standard output or error."""
    return place.exists() and (standard_stream(place) is not None or not (place.is_file() or place.is_dir()))


def standard_stream(place: Path) -> int | None:
    """The file descriptor of standard output or error, if it is open to this place."""
    for stream in (sys.__stdout__, sys.__stderr__):
        try:
            if stream is not None and os.path.samestat(os.fstat(stream.fileno()), place.stat()):
                return stream.fileno()
        except (OSError, ValueError):  # closed
            continue
    return None


def _why_no_file(place: Path, inputs: Iterable[Path]) -> str:
    """Why no file may be written there; empty if one may."""
    try:
        if place.exists():
            if was_read(place.stat()) or any(_is_read(place, path) for path in inputs):
                return "it is the file that is read"
            if place.is_dir():
                return "it is a folder"
            if not os.access(place, os.W_OK, effective_ids=True):
                return "it is write-protected"
            if goes_straight(place):
                return ""
        folder = _resolved(place).parent
        return "" if is_writable(folder) else f"there is no folder {folder} that can be written to"
    except (OSError, ValueError, RuntimeError) as error:
        return _reason(error)


def _is_read(place: Path, path: Path) -> bool:
    """Whether a place is a file that will be read, or lies in a folder that will be."""
    if not os.path.exists(path):  # or nobody can tell: then it is not read
        return False
    return place.samefile(path) or (path.is_dir() and place.is_file() and path.resolve() in place.resolve().parents)


def require_folder(folder: Path) -> Path:
    """The path of an output folder with all links resolved, if it may be written.

    Raises `BilinearError` (E611) unless the place is free or holds exactly an earlier output: an empty folder, or one whose manifest names
    every file in it with its current hash.
    """
    try:
        place = _resolved(folder)
        if not place.exists():
            parent = next(parent for parent in place.parents if parent.exists())
        else:
            files_of(place)
            parent = place.parent
            if place == Path.cwd() or place in Path.cwd().parents:  # the folder is replaced, and a process inside it would not notice
                raise fail("E611", f"cannot write {folder}: this command runs inside of it", ELSEWHERE)
    except (OSError, ValueError, RuntimeError) as error:
        raise fail("E611", f"cannot write {folder}: {_reason(error)}", ELSEWHERE) from None
    if not is_writable(parent):
        raise fail("E611", f"cannot write {folder}: nothing can be written in {parent}", ELSEWHERE)
    return place


def files_of(place: Path, called: Path | None = None) -> list[str]:
    """The files of an earlier output, by path. Raises `BilinearError` (E611), naming the folder `called`, for anything else."""
    called = called or place
    if not place.is_dir():
        raise fail("E611", f"{called} exists and is not a folder", ELSEWHERE)
    if not any(place.iterdir()):
        return []
    named = _named(place, called)
    found: list[str] = []
    strange: list[str] = []
    for path, reason in _walk(place, "", named):
        if not reason:
            found.append(path)
            continue
        strange.append(f"{path} {reason}")
        if len(strange) == MOST_TOLD:
            break
    if strange:
        raise _refused(f"{called} is not wholly an earlier output: {strange[0]}", *strange[1:])
    return found


def sealed(facts: Mapping[str, object]) -> bytes:
    """A manifest or a record as text with a hash of itself, which reveals later changes."""
    digest = hashlib.sha256(json.dumps(facts, indent=1).encode()).hexdigest()
    return (json.dumps({**facts, "sha256": digest}, indent=1) + "\n").encode()


def unsealed(content: bytes) -> dict[str, object] | None:
    """What was sealed; None for a text that `sealed` has not written, whatever it is."""
    try:
        facts = json.loads(content)
        if not isinstance(facts, dict) or facts.pop("sha256", None) is None:
            return None
        return facts if sealed(facts) == content else None
    except (ValueError, RecursionError):
        return None


def _named(place: Path, called: Path) -> dict[str, str]:
    """The hashes of the files that a manifest names, by path (E611)."""
    try:
        content = read_bounded(place / MANIFEST, MOST_BYTES)
        manifest = json.loads(content)
    except (OSError, ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise fail("E611", f"{called} exists and is not an earlier output", ELSEWHERE)
    files = manifest.pop("files", None)
    if files is None:
        raise _refused(f"{called} is the output of an earlier version, whose {MANIFEST} does not name all its files")
    manifest.pop("sha256", None)
    if not isinstance(files, dict) or sealed({**manifest, "files": files}) != content:
        raise _refused(f"{called} is not wholly an earlier output: {MANIFEST} was changed")
    return {**files, MANIFEST: hashlib.sha256(content).hexdigest()}


def _walk(folder: Path, inside: str, named: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Everything in a folder by its path, and why it is not ours (empty if it is)."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = inside + entry.name
            if entry.is_dir(follow_symlinks=False) and any(name.startswith(f"{path}/") for name in named):
                yield from _walk(folder / entry.name, f"{path}/", named)
            else:
                yield path, _why_not_ours(entry, named.get(path))


def _why_not_ours(entry: os.DirEntry[str], wanted: str | None) -> str:
    if wanted is None:
        return f"is not named in {MANIFEST}"
    if not entry.is_file(follow_symlinks=False):
        return "is not a regular file"
    if was_read(entry.stat(follow_symlinks=False)):
        return "is read by this command"
    try:
        digest = hashlib.sha256(read_bounded(entry.path, MOST_BYTES)).hexdigest()
    except OSError as error:
        return f"cannot be read: {_reason(error)}"
    return "" if digest == wanted else "was changed since it was written"


def _refused(message: str, *notes: str) -> BilinearError:
    return fail("E611", message, f"{ELSEWHERE}, or remove this one", notes=notes)


def _resolved(path: Path) -> Path:
    """The path with all links resolved; a `RuntimeError` if they form a cycle."""
    place = path.resolve()
    if place.is_symlink():
        raise RuntimeError
    return place


def is_writable(folder: Path) -> bool:
    """Whether files can be made in a folder: one is, and is gone at once. Permissions do not tell this of /proc, or of full quotas."""
    from tempfile import TemporaryFile

    try:
        with TemporaryFile(dir=folder):
            return True
    except (OSError, ValueError):
        return False


def require_kept(folder: Path, hint: str) -> None:
    """Refuse (E612) a folder of what is kept for the user, before the work, if it can neither be written nor made."""
    there = next(place for place in (folder, *folder.parents) if os.path.exists(place))
    if not is_writable(there):
        raise fail("E612", f"nothing can be written in {there}", hint)


def _reason(error: Exception) -> str:
    if isinstance(error, RuntimeError):
        return "its links go round in a circle"
    return getattr(error, "strerror", None) or "no file can have this name"
