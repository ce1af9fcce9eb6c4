"""Where templates, shipped algorithms and device descriptions lie: in the installed package, else in the checkout."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


def templates_folder() -> Path:
    """The folder of the kernel and report templates."""
    return _folder("templates")


def algorithms_folder() -> Path:
    """The folder of the shipped `.bl` files."""
    return _folder("algorithms")


def diagnostics_page() -> Path:
    """The page that explains every code of an error."""
    return _folder("docs") / "diagnostics.md"


def shipped_runtime() -> Path | None:
    """The module that issues repeated calls, built from `replay.c`, of a wheel that holds it."""
    place = Path(__file__).resolve().parent / "_replay.abi3.so"
    return place if place.is_file() else None


def own_folder() -> Path | None:
    """The folder of the algorithms that the user has added, which may not exist; None if there is no home folder."""
    from platformdirs import user_data_path

    try:
        folder = user_data_path("bilinear") / "algorithms"
    except RuntimeError:
        return None
    return folder if folder.is_absolute() else None


def devices_folder() -> Path:
    """The folder of the shipped device descriptions; it is part of the package."""
    return Path(__file__).resolve().parent / "devices"


KERNEL_MAKERS = (
    *("ir", "passes", "lowering", "codegen", "methods/digits/lower.py"),
    *("analysis/block_maps.py", "analysis/evaluation_order.py", "algebra/maps.py", "algebra/complex_products.py"),
)
"""Folders and modules of the package that decide the text of kernels, and how it is compiled."""


@cache
def implementation_sha256() -> str:
    """SHA-256 of all that turns a proved algorithm into kernels: another one may give other bits for the same plan.

    These are the languages, the passes, the lowering, the code generation, what those compute maps by (`KERNEL_MAKERS`), and the templates
    of kernels. The algorithms are not: a plan has their hashes. The proofs, the planner and the runtime are not: they change no kernel.
    """
    package = Path(__file__).resolve().parent
    own = [path for name in KERNEL_MAKERS for path in (sorted((package / name).rglob("*.py")) or [package / name])]
    templates = sorted(templates_folder().glob("*.cu.j2"))
    found = hashlib.sha256()
    for path in (*own, *templates):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def _folder(name: str) -> Path:
    package = Path(__file__).resolve().parent
    packaged = package / f"_{name}"
    return packaged if packaged.is_dir() else package.parent / name
