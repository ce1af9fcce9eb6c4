"""A C library of a compiled schedule: tables of its launches, the images of its kernels, and a small runtime, by templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bilinear.analysis.accuracy import run_error_bound
from bilinear.analysis.integer_range import IntegerRange, integer_range
from bilinear.codegen.build import LaunchProgram
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.names import file_name
from bilinear.codegen.render import environment
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.element import COMPILED
from bilinear.ir.schedule import Schedule
from bilinear.lowering.place import ALIGNMENT, LEAST_SECTORS, PEELED_FROM, SECTOR, lifetimes
from bilinear.reporting.report import name_of

EMITTED = ("c",)  # The languages of libraries that are written beside the kernels.
REAL = {"float32": {"real": "float", "letter": "s", "field": "float32"}, "float64": {"real": "double", "letter": "d", "field": "float64"}}
"""The element types of C, the letters of their functions in BLAS, and the members of a cell."""
ERRORS = (
    ("UNKNOWN_OPTION", "an order or an operation that is not known"),
    ("EXTENT", "an extent below 0 or above 2^31 - 1, or a matrix of more than 2^44 elements"),
    ("LEADING_DIMENSION", "a leading dimension shorter than a line or above 2^31 - 1, or lines that take more than 2^44 elements"),
    ("POINTER", "a pointer that is NULL, or not aligned for its elements"),
    ("WORKSPACE_TOO_SMALL", "a workspace with fewer bytes than the call needs"),
    ("BETA", "beta is not 0, and C serves as scratch memory"),
    ("TOO_LARGE", "a launch with more blocks of threads than a device takes"),
    ("NO_IMAGE", "no image of the kernels runs on this device: compile for its architecture"),
    ("HOST_MEMORY", "no memory on the host"),
    ("NO_DRIVER", "libcuda.so.1 is not found, or too old: install NVIDIA's driver"),
)
"""The codes that the functions return, from 1 on, and their texts."""
PROMISES = {
    "preserve": "A and B are only read.",
    "restore": "A and B are written meanwhile, and restored to rounding.",
    "consume": "A and B are undefined afterwards.",
}
Images = Mapping[str, Sequence[tuple[CudaTarget, bytes]]]  # The images of kernels by name.


def require_emitted(emit: str, dtypes: Sequence[str]) -> None:
    """Refuse (E503) another language than C, and element types that C does not have."""
    if not emit:
        return
    if emit not in EMITTED:
        raise fail("E503", f"no library in {emit!r} can be written", f"choose one of {', '.join(EMITTED)}")
    if foreign := [dtype for dtype in dtypes if dtype not in REAL]:
        hint = "leave it out of --dtype, or launch its kernels as the manifest says (docs/manifest.md)"
        raise fail("E503", f"a C library multiplies {' and '.join(REAL)}, and not {', '.join(foreign)}", hint)


def file_names(loaded: Loaded, inputs: str) -> tuple[str, dict[str, str]]:
    """The name of an algorithm's library, with which its functions begin, and its files, each with its template."""
    name = file_name(name_of(loaded, inputs)).replace("-", "_")
    return name, {
        f"{name}.h": "library.h.j2",
        f"{name}.c": "library.c.j2",
        f"{name}_check.c": "library_check.c.j2",
        f"{name}.pc.in": "library.pc.j2",
        "CMakeLists.txt": "library_cmake.txt.j2",
    }


def c_library(
    loaded: Loaded, inputs: str, programs: Sequence[LaunchProgram], remainders: Sequence[LaunchProgram], images: Images
) -> dict[str, bytes]:
    """The files of the library, by their names: header, source, a program that checks it, and what CMake and pkg-config read.

    `programs` are those of a folder, with the same `inputs`, and `remainders` the plain products of what their grid leaves over.
    """
    schedule, (name, files) = programs[0].schedule, file_names(loaded, inputs)
    spaces = [space.name for space in schedule.spaces]
    cells = [f"{space}{end}" for space in spaces for end in ("", "_rs", "_cs")] + ["bm", "bk", "bn", "first", "alpha", "beta"]
    both = list(zip(programs, remainders, strict=True))
    launches = [launch for pair in both for own in pair for launch in own.launches]
    kernels = {launch.kernel.name: (launch.kernel, launch.grid.tilings) for launch in launches}
    numbers = {kernel: number for number, kernel in enumerate(kernels)}
    found = integer_range(schedule)
    integers = found or IntegerRange(1, 1, 1, 1)
    facts = {
        "name": name,
        "upper": name.upper(),
        "about": f"{schedule.name}, a schedule of {schedule.scheme} for {schedule.levels} level(s)",
        "schedule": schedule,
        "errors": ERRORS,
        "promise": PROMISES[inputs],
        "const": "const " if inputs == "preserve" else "",
        "keeps_operands": inputs != "consume",
        "overwrites": schedule.overwrites,
        "integers": integers,
        "is_exact": found is not None and integers.denominator & (integers.denominator - 1) == 0,
        "shapes": _shapes(schedule),
        "sector": SECTOR,
        "least_sectors": LEAST_SECTORS,
        "peeled_from": PEELED_FROM,
        "alignment": ALIGNMENT,
        "workspaces": _workspaces(schedule),
        "most_arguments": max(len(kernel.arguments) for kernel, _ in kernels.values()),
        "most_tilings": max(len(tilings) for _, tilings in kernels.values()),
        "kernels": [
            {
                "name": kernel.name,
                "number": numbers[kernel.name],
                "threads": kernel.threads,
                "shared_bytes": kernel.shared_bytes,
                "tilings": [[(cells.index(cover.name), cover.step) for cover in tiling] for tiling in tilings],
                "cells": [cells.index(argument.name) for argument in kernel.arguments],
                "images": _images(images[kernel.name]),
            }
            for kernel, tilings in kernels.values()
        ],
        "programs": [
            REAL[core.dtype]
            | {"core": core.launches, "strip": strip.launches, "numbers": numbers}
            | {"most": 2 ** COMPILED[core.dtype].significand, "roundoff": COMPILED[core.dtype].unit_roundoff}
            for core, strip in both
        ],
    }
    return {path: environment().get_template(template).render(facts).encode() for path, template in files.items()}


def _images(images: Sequence[tuple[CudaTarget, bytes]]) -> list[dict[str, object]]:
    """The images of a kernel, the most special first: machine code, later architectures. PTX is a text, and ends with a zero."""
    best = sorted(images, key=lambda image: (image[0].is_virtual, -image[0].capability, image[0].name))
    return [
        {"target": target, "is_of_one": target.name[-1] in "af", "content": content + b"\0" * target.is_virtual} for target, content in best
    ]


def _workspaces(schedule: Schedule) -> list[dict[str, object]]:
    """The workspaces, in which stage each is used first, and which of the others are in use at the same time."""
    alive, found = lifetimes(schedule), list[dict[str, object]]()
    for space in schedule.workspaces:
        own = alive[space.name]
        beside = [int(bool(own & alive[other.name])) for other in schedule.workspaces]
        found.append({"space": space, "first": (own & -own).bit_length(), "beside": beside})
    return found


def _shapes(schedule: Schedule) -> list[tuple[object, ...]]:
    """The shapes that the library's check multiplies, with the proved bounds of their errors, in units of the largest elements."""
    m, k, n = schedule.m, schedule.k, schedule.n
    wanted = (
        (4 * m, 4 * n, 4 * k),
        (9 * m + m - 1, 5 * n + n - 1, 13 * k + k - 1),
        (33 * m, 3 * n + 1, 2 * k),
        (max(1, m - 1), 5 * n, 7 * k),
        (5, 3, 0),
    )
    unit = COMPILED["float32"].unit_roundoff
    bounds = (run_error_bound(schedule, max(inner, schedule.k), unit) for _, _, inner in wanted)
    return [(*extents, float(bound.product), float(bound.addend)) for extents, bound in zip(wanted, bounds, strict=True)]
