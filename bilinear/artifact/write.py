"""The output folder: sources, images and a manifest that another program can run without us."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bilinear.analysis.identity import schedule_hash, scheme_hash
from bilinear.analysis.integer_range import integer_range
from bilinear.codegen.nvrtc import Built, compiler_version
from bilinear.codegen.program import Program
from bilinear.errors import fail
from bilinear.ir.kernel import Grid
from bilinear.ir.schedule import Schedule
from bilinear.ir.scheme import Scheme

MANIFEST = "manifest.json"
FORMAT = "bilinear-manifest/1"
ACCUMULATED, OVERWRITTEN = "alpha*A*B + beta*C", "alpha*A*B"
"""What the launches of a program make of C."""


def output_files(scheme: Scheme, inputs: str, programs: Sequence[Program], remainders: Sequence[Program], version: str) -> dict[str, bytes]:
    """Every file of the folder by its relative path: `manifest.json`, `src/*.cu`, `cubin/sm_NN/*.cubin`, `ptx/compute_NN/*.ptx`.

    `remainders` are the programs of the plain multiply that takes what is left where a matrix is no multiple of the grid.
    """
    files: dict[str, bytes] = {}
    described: dict[str, dict[str, Any]] = {p.dtype: {"kernels": _kernels(p, files), "launches": _launches(p)} for p in programs}
    for remainder in remainders:
        described[remainder.dtype]["kernels"] |= _kernels(remainder, files)
        described[remainder.dtype]["remainder"] = _launches(remainder)
    manifest = {
        "format": FORMAT,
        "versions": {"bilinear": version, "compiler": compiler_version()},
        **_identity(scheme, programs[0].schedule, inputs),
        "programs": described,
    }
    files[MANIFEST] = (json.dumps(manifest, indent=1) + "\n").encode()
    return files


def _identity(scheme: Scheme, schedule: Schedule, inputs: str) -> dict[str, Any]:
    integers = integer_range(schedule)
    return {
        "scheme": {"name": scheme.name, "format": scheme.format, "citation": scheme.citation, "sha256": scheme_hash(scheme)},
        "schedule": {
            "name": schedule.name,
            "levels": schedule.levels,
            "grid": {"m": schedule.m, "k": schedule.k, "n": schedule.n},
            "inputs": inputs,
            "result": OVERWRITTEN if schedule.overwrites else ACCUMULATED,
            "restores": list(schedule.restores),
            "workspaces": [asdict(space) for space in schedule.workspaces],
            "integers": None if integers is None else asdict(integers),
            "sha256": schedule_hash(schedule),
        },
    }


def _kernels(program: Program, files: dict[str, bytes]) -> dict[str, Any]:
    kernels = {}
    for kernel, source, images in zip(program.kernels, program.sources, program.built, strict=True):
        path = f"src/{kernel.name}.cu"
        files[path] = source.encode()
        kernels[kernel.name] = {
            "source": path,
            "sha256": _digest(files[path]),
            "threads": list(kernel.threads),
            "shared_bytes": kernel.shared_bytes,
            "arguments": [asdict(argument) for argument in kernel.arguments],
            "images": {built.architecture: _image(kernel.name, built, files) for built in images},
        }
    return kernels


def _launches(program: Program) -> list[dict[str, Any]]:
    return [{"kernel": launch.kernel.name, "first": launch.first, "grid": _grid(launch.grid)} for launch in program.launches]


def _grid(grid: Grid) -> dict[str, Any]:
    """x is the largest, over the tilings, of the product of ceil(extent / step)."""
    return {"x": [[[cover.name, cover.step] for cover in tiling] for tiling in grid.tilings], "y": grid.y}


def _image(name: str, built: Built, files: dict[str, bytes]) -> dict[str, Any]:
    path = f"{built.kind}/{built.architecture}/{name}.{built.kind}"
    files[path] = built.image
    return {"path": path, "sha256": _digest(built.image), "resources": [asdict(resources) for resources in built.resources]}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def require_folder(folder: Path) -> None:
    """Refuse (E611) a place that holds something else than an earlier output, or that no folder can have."""
    try:
        place = folder.resolve()
        is_free = not place.exists() or (place.is_dir() and ((place / MANIFEST).is_file() or not any(place.iterdir())))
    except (OSError, RuntimeError) as error:  # a name that is too long, a folder that cannot be read, links in a circle
        why = getattr(error, "strerror", None) or "its links go round in a circle"
        raise fail("E611", f"cannot write {folder}: {why}", "choose another folder with --output") from None
    if not is_free:
        raise fail("E611", f"{place} exists and is no earlier output", "choose another folder with --output")


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files, or nothing: into a new folder beside the place, which then takes the place of an earlier output.

    Raises `BilinearError` (E611) where the place holds something else or cannot be written.
    """
    require_folder(folder)
    folder = folder.resolve()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise fail("E611", f"cannot write beside {folder}: {error.strerror or error}", "choose another folder with --output") from None
    try:
        for name, content in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        fresh.chmod(0o755)
        _take_place(fresh, folder)
    except OSError as error:
        raise fail("E611", f"cannot write {folder}: {error.strerror or error}", "choose another folder with --output") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _take_place(fresh: Path, folder: Path) -> None:
    """Move a new folder to where an old one may be, which comes back if the move fails."""
    if not folder.exists():
        os.replace(fresh, folder)
        return
    old = fresh.with_name(fresh.name + "-old")
    os.replace(folder, old)
    try:
        os.replace(fresh, folder)
    except OSError:
        os.replace(old, folder)
        raise
    shutil.rmtree(old)
