"""The published tables that lie beside the checkout, by format, and how each is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

import pytest

from bilinear.interchange.fmm_json import read_fmm_json
from bilinear.interchange.plinopt import files_of, read_sms
from bilinear.interchange.tables import read_fast_matmul
from bilinear.ir.scheme import Scheme

FOLDER = Path(os.environ.get("BILINEAR_SCHEMES", Path(__file__).parents[2] / "shared" / "schemes"))

OTHER_MAPS = ("1o", "2o", "3o", "4o", "2x2T", "4x4T")
"""How the names of plinopt's files begin where they hold another bilinear map."""

needs_folder = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no published schemes in {FOLDER.name}/ beside the checkout (BILINEAR_SCHEMES)"
)


def read_sms_set(stem: Path, suffix: str = "sms") -> Scheme:
    """The scheme of plinopt's files that begin so; changes of basis are read as if they were one."""
    files = files_of(stem.with_name(f"{stem.name}_L.{suffix}"))
    assert files is not None
    if files.bases is not None and stem.name.endswith("-CoB"):
        return read_sms(*files.bases)
    return read_sms(*files.scheme, bases=files.bases)


def fast_matmul_files() -> list[Path]:
    """Every table of the fast-matmul collection."""
    return sorted(path for path in (FOLDER / "fast-matmul" / "algorithms").glob("**/*") if path.is_file())


def sms_stems() -> list[Path]:
    """What the names of the three files L, R and P of plinopt begin with, for all that are there."""
    stems = (path.with_name(path.name.removesuffix("_L.sms")) for path in (FOLDER / "plinopt" / "data").glob("*_L.sms"))
    return sorted(stem for stem in stems if all(stem.with_name(f"{stem.name}_{m}.sms").is_file() for m in "RP"))


def multiplication_stems() -> list[Path]:
    """Those of them that multiply matrices."""
    return [s for s in sms_stems() if not s.name.startswith(OTHER_MAPS) and not s.name.endswith("-CoB")]


def json_files() -> list[Path]:
    """Every JSON file of FastMatrixMultiplication."""
    return sorted((FOLDER / "fast-matrix-multiplication").glob("*/*.json"))


@lru_cache(maxsize=1)
def published() -> dict[str, Callable[[], Scheme]]:
    """How to read every published scheme, by its place in the folder."""
    readers: dict[str, Callable[[], Scheme]] = {}
    for path in fast_matmul_files():
        readers[str(path.relative_to(FOLDER))] = partial(read_fast_matmul, path)
    for stem in multiplication_stems():
        readers[str(stem.relative_to(FOLDER))] = partial(read_sms_set, stem)
    for path in json_files():
        readers[str(path.relative_to(FOLDER))] = partial(read_fmm_json, path)
    return readers
