"""The compiler on one screen: parse, resolve, verify, schedule, lower, render, build, write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bilinear import frontend
from bilinear.artifact.compiled import Compiled
from bilinear.codegen.build import Progress, build_programs, dtypes_of, no_progress, require_floats
from bilinear.codegen.cuda.target import targets_of
from bilinear.codegen.modes import require_mode
from bilinear.frontend import Loaded
from bilinear.ir.placement import STAGE
from bilinear.lowering.coefficients import require_elements
from bilinear.lowering.prepare import natural_inputs, prepare, require_levels
from bilinear.places import require_folder
from bilinear.planner.problem import require_inputs
from bilinear.reporting.examine import DTYPES, examine, report_of
from bilinear.reporting.report import Report

ARCHITECTURES = ("sm_80", "sm_90", "compute_90")


def verify(algorithm: str | Path | Loaded, *, levels: int = 1, inputs: str | None = None) -> Report:
    """Prove a scheme, and its schedule at `levels` levels; raises `BilinearError` where a proof fails.

    Approximate schemes, schemes over Z/p, and schedules without a form that can be lowered are proved as written, and do not run.
    """
    loaded = algorithm if isinstance(algorithm, Loaded) else frontend.load(algorithm)  # parse, resolve
    inputs = inputs or natural_inputs(loaded.schedule)
    require_levels(levels)
    require_inputs(inputs)
    return examine(loaded, levels, inputs)  # verify


def compile(
    algorithm: str | Path | Loaded,
    *,
    levels: int = 1,
    dtypes: Sequence[str] = DTYPES,
    architectures: Sequence[str] = ARCHITECTURES,
    inputs: str | None = None,
    output: str | Path | None = None,
    progress: Progress = no_progress,
    floats: str = "own",
    mode: str = STAGE,
) -> Compiled:
    """Compile an algorithm to CUDA kernels; no GPU is needed.

    `architectures` are `sm_NN` (a cubin each) or `compute_NN` (PTX for newer chips); `inputs` is `preserve`, `restore` or `consume` (by
    default what the algorithm is made for). Products of `floats` run on their `own` units, or on the matrix units for `doubles`, which
    are faster where they are as many, as on an H200. `mode` says how stages are launched (docs/modes.md). With `output`, a folder is
    written that stands alone: sources, images, manifest and report; nothing is written where anything fails. Raises `BilinearError`.
    """
    loaded = algorithm if isinstance(algorithm, Loaded) else frontend.load(algorithm)  # parse, resolve
    inputs = inputs or natural_inputs(loaded.schedule)
    require_levels(levels)
    require_inputs(inputs)
    require_floats(floats)
    require_mode(mode, floats)
    dtypes, targets = dtypes_of(dtypes), targets_of(architectures)
    if output is not None:
        require_folder(Path(output))
    prepared = prepare(loaded.scheme, loaded.schedule, levels, inputs, mode)  # verify, schedule, verify what came out
    for dtype in dtypes:
        require_elements(loaded.scheme, prepared.schedule.coefficients, dtype, "f")
    programs = build_programs(prepared.schedule, dtypes, targets, floats, progress=progress, mode=mode)  # lower, render, build
    compiled = Compiled(loaded, prepared, inputs, programs, targets, report_of(loaded, prepared, inputs, programs), floats)
    if output is not None:
        compiled.write(output)  # write
    return compiled
