"""The kernel cache: built images, by the hash of everything that they were built from."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from bilinear.places import is_writable
from bilinear.reading import read_own

log = logging.getLogger("bilinear")

Entry = tuple[str, bytes]  # The compiler's log, and the image.
MOST_BYTES = 64 * 2**20  # The largest entry that is loaded; images have a few hundred thousand bytes.

_UNFINISHED = ".unfinished"
_FILE = re.compile(rf"[0-9a-f]{{64}}|.*{re.escape(_UNFINISHED)}")


class Cache:
    """Entries in a folder, or only in memory if the folder cannot be written.

    Entries are written to a temporary file and renamed, so that processes may work at once. Each has a checksum of its key and its
    content. An entry that is damaged, lies under another key, or is another user's file, is built again instead of loaded.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder if folder is not None and _is_writable(folder) else None
        if folder is not None and self.folder is None:
            log.info("kernel cache %s cannot be written; kernels are kept in memory", folder)
        self._memory: dict[str, Entry] = {}

    @staticmethod
    def key(*parts: str) -> str:
        """The name of an entry: SHA-256 over the parts and their lengths."""
        digest = hashlib.sha256()
        for part in parts:
            encoded = part.encode()
            digest.update(f"{len(encoded)}:".encode() + encoded)
        return digest.hexdigest()

    def get(self, key: str) -> Entry | None:
        """The entry; None if there is none, or if it is damaged."""
        if key not in self._memory and self.folder is not None:
            entry = _read(self.folder / key[:2] / key, key)
            if entry is not None:
                self._memory[key] = entry
        return self._memory.get(key)

    def put(self, key: str, text: str, image: bytes) -> None:
        """Keep an entry; a full or failing disk is not an error."""
        self._memory[key] = (text, image)
        if self.folder is None:
            return
        try:
            _write(self.folder / key[:2] / key, key, text, image)
        except OSError as error:
            log.info("kernel cache %s: %s", self.folder, error)

    def size(self) -> int:
        """Bytes on disk."""
        total = 0
        for path in self._files():
            with suppress(FileNotFoundError):  # another process may clear or replace it
                total += path.stat().st_size
        return total

    def clear(self) -> None:
        """Forget every entry; whatever else lies in the folder stays."""
        self._memory.clear()
        for path in self._files():
            with suppress(OSError):
                path.unlink()

    def _files(self) -> Iterator[Path]:
        """Entries, and half-written files that a killed process has left."""
        if self.folder is None:
            return
        for path in self.folder.glob("[0-9a-f][0-9a-f]/*"):
            if _FILE.fullmatch(path.name):
                yield path


@cache
def default_cache() -> Cache:
    """The cache of this process: `BILINEAR_CACHE_DIR` (empty: memory only), else where the platform puts caches."""
    named = os.environ.get("BILINEAR_CACHE_DIR")
    if named is not None:
        return Cache(Path(named).absolute() if named else None)
    from platformdirs import user_cache_path

    try:
        folder = user_cache_path("bilinear") / "kernels"
    except RuntimeError:
        folder = None
    if folder is None or not folder.is_absolute():  # without a home folder, platformdirs fails or leaves `~` in the path
        log.info("there is no home folder for the kernel cache; kernels are kept in memory")
        return Cache(None)
    return Cache(folder)


def _is_writable(folder: Path) -> bool:
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return is_writable(folder)


def _write(path: Path, key: str, text: str, image: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = text.encode()
    body = f"{len(encoded)}\n".encode() + encoded + image
    descriptor, temporary = tempfile.mkstemp(suffix=_UNFINISHED, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(_checksum(key, body) + body)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read(path: Path, key: str) -> Entry | None:
    try:
        content = read_own(path, MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.info("kernel cache entry %s cannot be read: %s", path.name, error.strerror)
        return None
    checksum, body = content[:32], content[32:]
    head, _, rest = body.partition(b"\n")
    if _checksum(key, body) != checksum or not re.fullmatch(rb"[0-9]{1,9}", head):
        log.info("kernel cache entry %s is damaged and is built again", path.name)
        return None
    length = int(head)
    return rest[:length].decode(errors="replace"), rest[length:]


def _checksum(key: str, body: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + body).digest()
