"""Read plinopt's algorithms: three files L (r x mk), R (r x kn) and P (mn x r), as matrices or as straight-line programs.

Blocks are row-major, C is not transposed. Pairs `-ALT` and `-CoB` are a scheme in other bases and its changes of basis. A placeholder for
an algebraic number is explained by a comment, or determined by trying.
"""

from __future__ import annotations

import re
from pathlib import Path

from bilinear.algebra.maps import table_of
from bilinear.analysis.brent import common_denominator, products_of_coefficients, residual
from bilinear.errors import fail
from bilinear.interchange.placeholder import PLACEHOLDER, Part, named_ring
from bilinear.interchange.reader_parts import Maps, assemble, require_one_rank, said_ring
from bilinear.interchange.slp import read_program
from bilinear.interchange.sms import read_matrix
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Bases, Scheme

TRIED = ("sqrt(3)", "i", "sqrt(2)", "sqrt(5)", "sqrt(-3)", "sqrt(6)", "sqrt(7)", "sqrt(-2)")
"""Numbers that are tried for a placeholder without a comment."""
MOST_TRIED_TERMS = 100_000
"""Numbers for a placeholder are tried in schemes with at most this many coefficient products; published ones have up to 33 thousand."""
SAY_IT = "say it: ring=Ring('Q[sqrt(3)]'), or --over 'Q[sqrt(3)]'"
LETTERS = ("L", "R", "P")

TAGS = ("A", "B", "C")
_NAME = re.compile(r"(?P<stem>.*)_(?P<letter>[LRP])(_(?P<tag>[ABC]))?\.(?P<suffix>sms|slp)")
_LETTER, _TAG = "\0", "\1"
"""Where the letter and its tag stand in the common start of names that end in L_A, R_B and P_C, or in L_A, R_A and P_A."""
_SIZES = re.compile(r"([0-9]{1,3})x([0-9]{1,3})x([0-9]{1,3})_|([0-9]{1,3})o([0-9]{1,3})o([0-9]{1,3})_")

Triples = tuple[str | Path, str | Path, str | Path]


def read_sms(left: str | Path, right: str | Path, post: str | Path, bases: Triples | None = None, ring: Ring | None = None) -> Scheme:
    """The scheme of three matrices or programs L, R and P; for a scheme in other bases, `bases` are the three changes of basis.

    `ring` gives the number that a placeholder stands for; with Q it is the integer 1013. Without it the comments in the files are used;
    without comments 1013 itself, sqrt(3), i and a few more are tried. Raises `BilinearError`: E251 if a file cannot be read, E252 if a part
    is not a matrix, E253 if the sizes do not fit, E256 if no number fits the placeholder.
    """
    parts, changes = _parts((left, right, post), bases)
    roots = [value for part in parts + changes for value in part.roots]
    said = ring or said_ring(parts[0].source) or named_ring(parts + changes)
    if said is None and roots:
        return _placed(_name(left), parts, changes, any(value.letter for value in roots))
    return assemble(_maps(_name(left), parts, changes, said or Ring()), None)


def read_sms_set(stem: str | Path, ring: Ring | None = None, suffix: str = "sms") -> Scheme:
    """The scheme in `STEM_L.sms`, `STEM_R.sms` and `STEM_P.sms`; for a stem ending in `-ALT` the `-CoB` files are its bases."""
    return read_sms(*_three(str(stem), suffix), bases=_changes(str(stem), suffix), ring=ring)


def read_maps(stem: str | Path, ring: Ring | None = None, suffix: str = "sms") -> Maps:
    """The three maps of any bilinear algorithm; a placeholder without a comment is the integer 1013.

    Raises `BilinearError` as `read_sms` does, except that the sizes need not be those of matrices.
    """
    parts, changes = _parts(_three(str(stem), suffix), _changes(str(stem), suffix))
    maps = _maps(_name(_three(str(stem), suffix)[0]), parts, changes, ring or named_ring(parts + changes) or Ring())
    require_one_rank(maps)
    return maps


def stem_of(path: Path) -> tuple[str, str] | None:
    """The common start of the names of the three files, and their suffix; None if a name is not of the form STEM_L.sms."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    stem, suffix, tag = str(path.with_name(match["stem"])), match["suffix"], match["tag"]
    if not tag:
        return stem, suffix
    each, same = f"{stem}_{_LETTER}_{_TAG}", f"{stem}_{_LETTER}_{tag}"
    own = TAGS[LETTERS.index(match["letter"])] == tag
    return (each if own and not all(Path(name).is_file() for name in _three(same, suffix)) else same), suffix


def partners(path: Path) -> list[Path]:
    """All files of the algorithm that this one belongs to; none if its name is not of the form STEM_L.sms."""
    found = stem_of(path)
    if found is None:
        return []
    stem, suffix = found
    stems = [stem] + ([_core(stem) + "-CoB"] if stem.endswith("-ALT") else [])
    return [Path(name) for s in stems for name in _three(s, suffix)]


def missing_partners(path: Path) -> list[str]:
    """The names of the missing files of its set."""
    return [partner.name for partner in partners(path) if not partner.is_file()]


def _core(stem: str) -> str:
    return stem.removesuffix("-ALT")


def _changes(stem: str, suffix: str) -> Triples | None:
    return _three(f"{_core(stem)}-CoB", suffix) if stem.endswith("-ALT") else None


def _three(stem: str, suffix: str) -> tuple[str, str, str]:
    if _LETTER not in stem:
        return f"{stem}_L.{suffix}", f"{stem}_R.{suffix}", f"{stem}_P.{suffix}"
    left, right, post = (stem.replace(_LETTER, letter).replace(_TAG, tag) for letter, tag in zip(LETTERS, TAGS, strict=True))
    return f"{left}.{suffix}", f"{right}.{suffix}", f"{post}.{suffix}"


def _name(left: str | Path) -> str:
    return re.sub(r"_L(_[ABC])?$", "", Path(left).stem)


def _parts(three: Triples, bases: Triples | None) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """The maps and their changes of basis, each as wide as what it reads."""
    left, right, post = map(_read, three)
    changes = tuple(map(_read, bases or ()))
    sizes = _sizes(three[0])
    if changes:
        a, b, c = changes
        changes = (a.widened(sizes[0]), b.widened(sizes[1]), c.widened(post.shape[0]))
        sizes = (a.shape[0], b.shape[0])
    parts = (left.widened(sizes[0]), right.widened(sizes[1]), post.widened(left.shape[0]))
    _require_shapes(parts, changes)
    return parts, changes


def _read(path: str | Path) -> Part:
    return read_program(Path(path)) if str(path).endswith(".slp") else read_matrix(Path(path))


def _sizes(path: str | Path) -> tuple[int, int]:
    """The numbers of left and right values given by a file's name: 2x2x2 matrices, 2o2o4 polynomials; 0 if it gives none."""
    match = _SIZES.match(Path(path).name)
    if match is None:
        return 0, 0
    if match[1]:
        m, k, n = int(match[1]), int(match[2]), int(match[3])
        return m * k, k * n
    return int(match[4]) + 1, int(match[5]) + 1


def _placed(name: str, parts: tuple[Part, ...], changes: tuple[Part, ...], certain: bool) -> Scheme:
    """The scheme with the first number for its placeholder that makes it multiply."""
    for candidate in [Ring()] * (not certain) + [Ring(f"Q[{root}]") for root in TRIED]:
        scheme = assemble(_maps(name, parts, changes, candidate), None)
        if products_of_coefficients(scheme) > MOST_TRIED_TERMS:
            raise fail("E256", f"{parts[0].source.name}: the scheme is too large to try what the placeholder stands for", SAY_IT)
        if common_denominator(scheme) and residual(scheme, most=1).is_zero:
            return scheme
    tried = ", ".join([*([str(PLACEHOLDER)] if not certain else []), *TRIED])
    message = f"{parts[0].source.name}: nothing tells what the placeholder stands for"
    raise fail("E256", message, SAY_IT, notes=(f"tried were {tried}; with none of them the scheme multiplies",))


def _maps(name: str, parts: tuple[Part, ...], changes: tuple[Part, ...], ring: Ring) -> Maps:
    u, v, w = (part.linear(ring) for part in parts)
    bases = Bases(*(table_of(part.linear(ring)) for part in changes)) if changes else None
    return Maps(parts[0].source, name, u, v, w, ring, bases)


def _require_shapes(parts: tuple[Part, ...], changes: tuple[Part, ...]) -> None:
    """Refuse maps whose sizes do not fit together (E253)."""
    (r, a), (s, b), (c, t) = (part.shape for part in parts)
    name = parts[0].source.name
    if not r == s == t:
        raise fail("E253", f"{name} is of no one rank: L has {r} rows, R has {s}, and P has {t} columns", "name L, R and P of one scheme")
    if changes:
        x, y, z = changes[0].shape[0], changes[1].shape[0], changes[2].shape[1]
        if (x, y, z) != (a, b, c):
            told = f"they make {x}, {y} and {z} values, the scheme works on {a}, {b} and {c}"
            raise fail("E253", f"{name}: the changes of basis do not fit: {told}", "name the -CoB files of this scheme")
