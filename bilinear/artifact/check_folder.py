"""Test an output folder: its sources as polynomial identities on the CPU, its images with exact integers on a GPU."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

from bilinear.artifact.findings import BuiltCheck, BuiltRow
from bilinear.artifact.identities import check_sources
from bilinear.artifact.images import check_images
from bilinear.artifact.read import BuiltFolder, BuiltProgram, read_folder
from bilinear.codegen.build import Progress, no_progress
from bilinear.errors import Diagnostic


def verify_built(folder: str | Path, *, seed: int | None = None, progress: Progress = no_progress) -> BuiltCheck:
    """Test every program of an output folder of `bilinear compile`.

    The folder's code is compiled and run, so it must come from a trusted source. What cannot be tested on this machine, for lack of a C++
    compiler or a GPU, is a row that says so. Every call draws new inputs unless `seed` is given. Raises `BilinearError` if the folder is
    incomplete or changed (E621, E622); errors found by the tests are in the result, whose `require` raises them.
    """
    built = read_folder(folder)
    seed = secrets.randbits(128) if seed is None else seed
    rows: list[BuiltRow] = []
    failures: list[Diagnostic] = []
    for program in built.programs:
        for found in _tests(built, program, seed, progress):
            if isinstance(found, BuiltRow):
                rows.append(found)
            else:
                failures.append(found)
    return BuiltCheck(str(folder), built.name, built.levels, built.inputs, f"{seed:#x}", tuple(rows), tuple(failures))


def _tests(folder: BuiltFolder, program: BuiltProgram, seed: int, progress: Progress) -> Iterator[BuiltRow | Diagnostic]:
    """The sources, then the images; images of a wrong source are not run on a device."""
    for found in check_sources(folder, program, seed, progress):
        yield found
        if isinstance(found, Diagnostic):
            yield BuiltRow(program.dtype, "GPU", "-", "-", 0, "", "skipped", "the sources are wrong")
            return
    yield from check_images(folder, program, seed, progress)
