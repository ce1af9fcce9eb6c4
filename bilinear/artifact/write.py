"""Write the output folder: sources, images and a manifest that other programs can use without this one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

from bilinear.analysis.identity import schedule_hash, scheme_hash
from bilinear.analysis.integer_range import integer_range
from bilinear.codegen.build import LaunchProgram
from bilinear.codegen.cuda.nvrtc import Built
from bilinear.frontend import Loaded
from bilinear.frontend.printer import loaded_text
from bilinear.ir.kernel import Grid
from bilinear.ir.placement import STAGE
from bilinear.ir.schedule import Schedule
from bilinear.ir.scheme import Scheme
from bilinear.places import FORMAT, MANIFEST, sealed

ALGORITHM = "algorithm.bl"
ACCUMULATED, OVERWRITTEN = "alpha*A*B + beta*C", "alpha*A*B"
"""The two possible results in C of a program's launches."""


@dataclass(frozen=True)
class FolderOptions:
    """What a folder is compiled with: with the algorithm and the element types this determines every source."""

    levels: int
    inputs: str
    floats: str = "own"
    mode: str = STAGE


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
        {"kernel": launch.kernel.name, "first": launch.first, "grid": _grid(launch.grid)}
        | ({} if launch.stage is None else {"stage": launch.stage})
        for launch in program.launches
    ]


def _grid(grid: Grid) -> dict[str, object]:
    """x is the largest, over the tilings, of the product of ceil(extent / step)."""
    return {"x": [[[cover.name, cover.step] for cover in tiling] for tiling in grid.tilings], "y": grid.y}


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
