"""Read AlphaTensor's archives (https://github.com/google-deepmind/alphatensor): under the name "m,k,n" three arrays U, V and W.

A row is a block, a column a product; the blocks of C are numbered column by column. Numbers are stored as integers or floats; halves and
eighths become rationals. An archive of three arrays U, V and W, as `np.savez(U=u, V=v, W=w)` writes it, is one scheme; there the blocks of
C are numbered row by row. Pickled parts are read without unpickling (`pickled_arrays`).
"""

from __future__ import annotations

import re
from pathlib import Path

from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.interchange.from_arrays import scheme_from_arrays
from bilinear.interchange.npy import Archive
from bilinear.interchange.reader_parts import Dims
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme

_KEY = re.compile(r"([1-9][0-9]{0,2}),([1-9][0-9]{0,2}),([1-9][0-9]{0,2})")


def npz_entries(path: str | Path) -> tuple[str, ...]:
    """The names of the schemes in an archive; empty for that of arrays U, V and W. Raises `BilinearError` (E251, E353)."""
    archive = Archive(Path(path))
    return ("",) if _letters(archive) else tuple(archive.members)


def read_npz(path: str | Path, entry: str = "", ring: Ring | None = None) -> Scheme:
    """The scheme of that name in an archive, or its only one.

    `ring` is the ring of the numbers, which the archive does not state; Q by default. Raises `BilinearError`: E251 if the file cannot be
    read, E353 if it is not an archive of arrays, E253 and E357 if the arrays are not a scheme, E354 if it holds several, or none of that
    name.
    """
    archive = Archive(Path(path))
    letters = _letters(archive)
    if letters and not entry:
        u, v, w = (archive.table(letter) for letter in letters)
        return scheme_from_arrays(u, v, w, ring=ring, name=Path(path).stem)
    name = _picked(path, tuple(archive.members), entry)
    u, v, w = archive.arrays(name)
    title = f"{Path(path).stem}_{name.replace(',', 'x')}"
    return scheme_from_arrays(u, v, w, dims=_dims(name), ring=ring, transposed=True, name=title)


def _letters(archive: Archive) -> list[str]:
    """The names of U, V and W if the archive has them."""
    names = {name.upper(): name for name in archive.members}
    return [names[letter] for letter in "UVW"] if names.keys() >= set("UVW") else []


def _picked(path: str | Path, names: tuple[str, ...], entry: str) -> str:
    if not entry and len(names) > 1:
        some = ", ".join(f"'{name}'" for name in names[:8])
        note = f"it holds {some}{f' and {len(names) - 8} more' if len(names) > 8 else ''}"
        raise BilinearError(
            Diagnostic("E354", f"{path} holds {len(names)} schemes", notes=(note,), hints=(f"name one: entry={names[0]!r}",))
        )
    if (entry or not names) and entry not in names:
        raise fail("E354", f"{path} holds no scheme {entry[:40]!r}", f"it holds {', '.join(names[:20]) or 'nothing'}")
    return entry or names[0]


def _dims(name: str) -> Dims | None:
    match = _KEY.fullmatch(name)
    return (int(match[1]), int(match[2]), int(match[3])) if match is not None else None
