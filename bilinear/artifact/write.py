"""A compiled algorithm, and the folder that it is written to: sources, images, and a manifest for other programs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from bilinear.analysis.identity import schedule_hash, scheme_hash
from bilinear.analysis.integer_range import integer_range
from bilinear.artifact.c_library import c_library
from bilinear.codegen.build import LaunchProgram, Progress, build_programs, no_progress, require_floats
from bilinear.codegen.cuda.nvrtc import Built, compiler_version
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.modes import require_mode
from bilinear.codegen.names import REMAINDER
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.frontend.printer import loaded_text
from bilinear.ir.element import COMPILED, COMPLEX, IN_ARRAYS
from bilinear.ir.placement import COLOURS, STAGE
from bilinear.ir.schedule import Schedule
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import (
    Level,
    PreparedAlgorithm,
    plain,
    plain_complex,
    prepare,
    prepare_complex,
    require_elements,
    require_levels,
)
from bilinear.places import FORMAT, MANIFEST, require_folder, sealed
from bilinear.planner.problem import require_contention, require_inputs
from bilinear.reporting.examine import certificate_for
from bilinear.reporting.map_report import ComplexReport
from bilinear.reporting.report import Report
from bilinear.version import __version__
from bilinear.writing import write_folder

ALGORITHM = "algorithm.bl"
ACCUMULATED, OVERWRITTEN = "alpha*A*B + beta*C", "alpha*A*B"  # What a program's launches may leave in C.


@dataclass(frozen=True)
class FolderOptions:
    """What a folder is compiled with: with the algorithm and the element types this determines every source."""

    levels: int
    inputs: str
    floats: str = "own"
    mode: str = STAGE
    contention: str = COLOURS


def output_files(
    loaded: Loaded,
    options: FolderOptions,
    programs: Sequence[LaunchProgram],
    remainders: Sequence[LaunchProgram],
    versions: Mapping[str, str],
    views: Mapping[str, bytes] = MappingProxyType({}),
) -> dict[str, bytes]:
    """Every file of the folder by its relative path.

    These are `manifest.json`, `algorithm.bl`, `src/*.cu`, `cubin/sm_NN/*.cubin`, `ptx/compute_NN/*.ptx`, and the `views`.
    `remainders` are the programs of the plain multiply for matrices that are not multiples of the grid. The manifest names all files with
    their hashes, so that a folder can be recognized as ours before it is replaced.
    """
    text, picked = loaded_text(loaded)
    files = {ALGORITHM: text.encode(), **views}
    kernels = {program.numbers: _kernels(program, files) for program in programs}
    described = {program.numbers: {"kernels": kernels[program.numbers], "launches": _launches(program)} for program in programs}
    for remainder in remainders:
        own, more = kernels[remainder.numbers], _kernels(remainder, files)
        assert own.keys().isdisjoint(more), "two kernels of one name"
        own |= more
        described[remainder.numbers]["remainder"] = _launches(remainder)
    manifest: dict[str, object] = {
        "format": FORMAT,
        "versions": dict(versions),
        "algorithm": f"{ALGORITHM}:{picked}" if picked else ALGORITHM,
        "options": asdict(options),
        **_identity(loaded.scheme, programs[0].schedule, options.inputs),
        "programs": described,
    }
    manifest["files"] = {path: _digest(content) for path, content in sorted(files.items())}
    files[MANIFEST] = sealed(manifest)
    return files


def _identity(scheme: Scheme, schedule: Schedule, inputs: str) -> dict[str, object]:
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


def _kernels(program: LaunchProgram, files: dict[str, bytes]) -> dict[str, object]:
    kernels: dict[str, object] = {}
    for own in program.kernels:
        kernel, path = own.kernel, f"src/{own.kernel.name}.cu"
        kernels[kernel.name] = {
            "source": path,
            "sha256": _put(files, path, own.source.encode()),
            "threads": list(kernel.threads),
            "shared_bytes": kernel.shared_bytes,
            "arguments": [asdict(argument) for argument in kernel.arguments],
            "images": {built.target.name: _image(kernel.name, built, files) for built in own.images},
        }
    return kernels


def _launches(program: LaunchProgram) -> list[dict[str, object]]:
    return [
        {
            "kernel": launch.kernel.name,
            "first": launch.first,  # x is the largest, over the tilings, of the product of ceil(extent / step)
            "grid": {"x": [[[cover.name, cover.step] for cover in tiling] for tiling in launch.grid.tilings], "y": launch.grid.y},
        }
        | ({} if launch.stage is None else {"stage": launch.stage})
        for launch in program.launches
    ]


def _image(name: str, built: Built, files: dict[str, bytes]) -> dict[str, object]:
    path = built.target.path(name)
    return {"path": path, "sha256": _put(files, path, built.image), "resources": [asdict(resources) for resources in built.resources]}


def _put(files: dict[str, bytes], path: str, content: bytes) -> str:
    """Add a file and return its SHA-256; no path is written twice, even on file systems that ignore case."""
    assert path.lower() not in {known.lower() for known in files}, f"two files at {path}"
    files[path] = content
    return _digest(content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def require_options(loaded: Loaded, options: FolderOptions, dtypes: Sequence[str]) -> None:
    """Refuse options that have no meaning, or none for this algorithm and these types.

    Those are an algorithm for complex numbers on a real type (E799), and on a complex type promises (E785) and modes (E557) of real ones.
    """
    require_levels(options.levels)
    require_inputs(options.inputs)
    require_floats(options.floats)
    require_mode(options.mode, options.floats)
    if dtypes[0] not in COMPLEX and loaded.complex_core is not None:
        what = f"{loaded.complex_core.name} multiplies complex numbers, and {dtypes[0]} is a real type"
        raise fail("E799", what, f"take complex64 or complex128, or the algorithm of the real products, {loaded.scheme.name}")
    if dtypes[0] in COMPLEX and options.inputs != "preserve":
        what = f"inputs={options.inputs!r} lets a schedule write A and B, and complex operands are only read"
        raise fail("E785", what, "use inputs='preserve'")
    if dtypes[0] in COMPLEX and options.mode != STAGE:
        raise fail("E557", f"mode={options.mode!r} has no meaning for {dtypes[0]}: its stages run in one way", "leave it out")
    require_contention(options.contention)
    other = next((dtype for dtype in dtypes if dtype not in IN_ARRAYS), "")
    if other and options.contention != COLOURS:
        raise fail("E557", f"contention={options.contention!r} has no meaning for {other}", f"compile {' or '.join(IN_ARRAYS)}")


def programs_of(
    loaded: Loaded, options: FolderOptions, dtypes: Sequence[str], targets: Sequence[CudaTarget], progress: Progress = no_progress
) -> tuple[PreparedAlgorithm | None, tuple[LaunchProgram, ...]]:
    """The proofs of an algorithm (none for complex types), and its programs with their images for the targets, if there are any."""
    prepared = None
    if dtypes[0] in COMPLEX:
        schedule = prepare_complex((Level(loaded.scheme, loaded.schedule),) * options.levels, core=loaded.complex_core)
    else:  # verify, schedule, verify the result
        prepared = prepare(loaded.scheme, loaded.schedule, options.levels, options.inputs, options.mode, contention=options.contention)
        schedule = prepared.schedule
    for dtype in dtypes:
        require_elements(loaded.scheme, schedule.coefficients, COMPILED[dtype].name, "f")
    return prepared, build_programs(schedule, dtypes, targets, options.floats, progress=progress, mode=options.mode)  # lower, render, build


def remainders_of(programs: Sequence[LaunchProgram], targets: Sequence[CudaTarget], floats: str) -> tuple[LaunchProgram, ...]:
    """The programs of the plain multiply for the strips that the grid of these programs leaves over."""
    rest = plain_complex() if programs[0].schedule.is_complex else plain().schedule
    return build_programs(rest, [own.dtype for own in programs], targets, floats, named=REMAINDER)


@dataclass(frozen=True)
class Compiled:
    """All that compiling an algorithm gives: the proofs, and the kernels of its schedule, one program a dtype.

    For complex types nothing is `prepared`: the schedule has a report of its own kind, and no certificate.
    """

    loaded: Loaded
    prepared: PreparedAlgorithm | None
    options: FolderOptions
    programs: tuple[LaunchProgram, ...]
    targets: tuple[CudaTarget, ...]
    report: Report | ComplexReport
    emit: str = ""

    def __repr__(self) -> str:
        dtypes, targets = ", ".join(own.numbers for own in self.programs), ", ".join(map(str, self.targets))
        return f"<Compiled {self.report.algorithm}: {dtypes} for {targets}; write(folder) keeps it>"

    def _repr_html_(self) -> str:
        """The page of the report."""
        return self.report.html() if isinstance(self.report, ComplexReport) else self.report._repr_html_()

    def write(self, folder: str | Path) -> None:
        """Write a self-contained folder: sources, images, manifest, report, and the library that `emit` asks for.

        If that fails (E611), nothing is written.

        It may replace an earlier output that nobody has changed, and no other folder.
        """
        require_folder(Path(folder))
        remainders = remainders_of(self.programs, self.targets, self.options.floats)
        views = {"report.json": self.report.json(), "report.md": self.report.markdown(), "report.html": self.report.html()}
        if self.prepared is not None:
            views["certificate.json"] = certificate_for(self.prepared)
        encoded = {name: text.encode() for name, text in views.items()}
        if self.emit:
            built = {own.kernel.name: own.images for program in (*self.programs, *remainders) for own in program.kernels}
            images = {name: [(image.target, image.image) for image in own] for name, own in built.items()}
            encoded |= c_library(self.loaded, self.options.inputs, self.programs, remainders, images)
        versions = {"bilinear": __version__, "compiler": compiler_version()}
        write_folder(Path(folder), output_files(self.loaded, self.options, self.programs, remainders, versions, encoded))
