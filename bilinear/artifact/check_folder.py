"""Test an output folder: nothing in it is foreign, its sources compute the right polynomials, its images multiply integers exactly."""

from __future__ import annotations

import difflib
import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from bilinear.artifact.c_library import c_library, file_names, require_emitted
from bilinear.artifact.findings import BuiltCheck, BuiltRow
from bilinear.artifact.identities import check_sources
from bilinear.artifact.images import check_images
from bilinear.artifact.read import AGAIN, BuiltFolder, BuiltProgram, read_folder
from bilinear.artifact.write import ALGORITHM, output_files, programs_of, remainders_of, require_options
from bilinear.codegen.build import Progress, dtypes_of, no_progress
from bilinear.codegen.cuda.nvrtc import build_all, compiler_version
from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.frontend import load_for_arrays
from bilinear.places import MANIFEST
from bilinear.version import __version__
from bilinear.visible import visible

TRUST = "if you know who wrote the folder and would run any program of theirs, --trust tests it as it is"
MOST_LINES, MOST_LETTERS = 12, 140  # How much of a difference is shown.
LAUNCHED = ("options", "scheme", "schedule", "programs")  # What of a manifest says what is launched.


def require_generated(folder: BuiltFolder) -> list[BuiltRow]:
    """Refuse (E626) a folder whose sources, launches or C library differ in a byte from those that its algorithm and options generate.

    Returns a row that says so of the library, if there is one, with the images of the folder in it.

    The text of the algorithm is only parsed. Raises `BilinearError`, also if it is wrong or does not fit the options.
    """
    loaded = load_for_arrays(folder.path / folder.algorithm)
    dtypes = dtypes_of([program.dtype for program in folder.programs])
    require_options(loaded, folder.options, dtypes)
    _, programs = programs_of(loaded, folder.options, dtypes, ())
    remainders = remainders_of(programs, (), folder.options.floats)
    files = output_files(loaded, folder.options, programs, remainders, {})
    for kernel in (kernel for program in folder.programs for kernel in program.kernels):
        _require_same(folder, kernel.path, kernel.source, files.get(kernel.path, b"").decode())
    _require_same(folder, MANIFEST, _launched(folder.described), _launched(json.loads(files[MANIFEST])))
    library = [path for path in file_names(loaded, folder.options.inputs)[1] if path in folder.files]
    if library:
        require_emitted("c", dtypes)
        built = {kernel.name: kernel.images for program in folder.programs for kernel in program.kernels}
        images = {name: [(target, image) for target, _, image in own] for name, own in built.items()}
        for path, content in c_library(loaded, folder.options.inputs, programs, remainders, images).items():
            _require_same(folder, path, folder.files.get(path, b"").decode(errors="replace"), content.decode())
    return [BuiltRow("C", "C library", "-", "generated again", 0, "", "equal")] if library else []


def compare_images(program: BuiltProgram, compiler: str, progress: Progress) -> Iterator[BuiltRow | Diagnostic]:
    """Build every image of a program again; a row says that all are equal, or why they are not checked, and E626 names one that differs."""
    images = [(kernel, *image) for kernel in program.kernels for image in kernel.images]
    if not images:
        return
    where = ", ".join(dict.fromkeys(str(target) for _, target, *_ in images))
    try:
        if compiler != compiler_version():
            raise fail("E602", f"not checked: built by {visible(compiler, MOST_LETTERS)}, and here is {compiler_version()}")
        requests = [(kernel.source, kernel.name, target) for kernel, target, *_ in images]
        rebuilt = build_all(requests, done=lambda done: progress(f"{program.dtype} images again", done, len(requests)))
    except BilinearError as error:
        reason = error.diagnostics[0].message
        reason = reason if reason.startswith("not checked") else f"not checked: {reason}"
        yield BuiltRow(program.dtype, f"images, {where}", "-", "a rebuild", 0, "", "skipped", reason)
        return
    for (_, _, path, image), built in zip(images, rebuilt, strict=True):
        if image != built.image:
            yield BuiltRow(program.dtype, f"images, {where}", "-", "a rebuild", 0, "", "wrong")
            yield fail("E626", f"{path} is not the image that {compiler} builds from its source", AGAIN, TRUST).diagnostics[0]
            return
    yield BuiltRow(program.dtype, f"images, {where}", "-", "a rebuild", 0, "", "equal")


def _launched(manifest: Mapping[str, object]) -> str:
    """What a manifest says about launches, without the images, as text."""
    return json.dumps({name: _without_images(manifest[name]) for name in LAUNCHED}, indent=1)


def _without_images(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {name: _without_images(inner) for name, inner in value.items() if name != "images"}


def _require_same(folder: BuiltFolder, path: str, found: str, wanted: str) -> None:
    if found == wanted:
        return
    lines = list(difflib.unified_diff(wanted.split("\n"), found.split("\n"), "generated", f"{folder.path}/{path}", "", "", 0, ""))
    shown = tuple(visible(line, MOST_LETTERS) for line in lines[:MOST_LINES])
    more = (f"and {len(lines) - MOST_LINES} more lines",) if lines[MOST_LINES:] else ()
    told = f"{path} is not what {ALGORITHM} and the options in {MANIFEST} generate (bilinear {__version__}); nothing of the folder ran"
    raise fail("E626", told, AGAIN, TRUST, notes=shown + more)


def verify_built(folder: str | Path, *, trust: bool = False, seed: int | None = None, progress: Progress = no_progress) -> BuiltCheck:
    """Test every program of an output folder of `bilinear compile`.

    Its sources and launches must be, byte for byte, what its algorithm and options generate here (E626), and only images that a rebuild
    gives as well are loaded. With `trust` nothing is compared: the folder's code is compiled and run with the user's rights, whatever it
    does (docs/proofs.md). What cannot be tested on this machine, for lack of a C++ compiler or a GPU, is a row that says so. Every call
    draws new inputs unless `seed` is given. Raises `BilinearError` if the folder is incomplete or changed (E621, E622, E626); errors found
    by the tests are in the result, whose `require` raises them.
    """
    built = read_folder(folder)
    rows = [] if trust else require_generated(built)
    seed = secrets.randbits(128) if seed is None else seed
    failures: list[Diagnostic] = []
    for program in built.programs:
        for found in _tests(built, program, trust, seed, progress):
            if isinstance(found, BuiltRow):
                rows.append(found)
            else:
                failures.append(found)
    return BuiltCheck(str(folder), built.name, built.levels, built.inputs, f"{seed:#x}", tuple(rows), tuple(failures))


def _tests(folder: BuiltFolder, program: BuiltProgram, trust: bool, seed: int, progress: Progress) -> Iterator[BuiltRow | Diagnostic]:
    """The sources, then the images; images of a wrong source, or that a rebuild has not given, are not run on a device."""
    for found in check_sources(folder, program, seed, progress):
        yield found
        if isinstance(found, Diagnostic):
            yield BuiltRow(program.dtype, "GPU", "-", "-", 0, "", "skipped", "the sources are wrong")
            return
    for found in () if trust else compare_images(program, folder.compiler, progress):
        yield found
        if isinstance(found, Diagnostic) or found.verdict == "skipped":
            return
    yield from check_images(folder, program, seed, progress)
