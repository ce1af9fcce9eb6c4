"""The compiler on one screen: parse, resolve, verify, schedule, lower, render, build, write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from bilinear import frontend
from bilinear.algebra.composition import complex_algorithm
from bilinear.artifact.c_library import require_emitted
from bilinear.artifact.write import Compiled, FolderOptions, programs_of, require_options
from bilinear.codegen.build import Progress, dtypes_of, no_progress
from bilinear.codegen.cuda.target import targets_of
from bilinear.frontend import Loaded
from bilinear.ir.element import COMPLEX
from bilinear.ir.placement import COLOURS, STAGE
from bilinear.lowering.prepare import natural_inputs, require_levels
from bilinear.places import require_folder
from bilinear.planner.problem import require_inputs
from bilinear.reporting.examine import DTYPES, examine, report_of
from bilinear.reporting.map_report import ComplexReport, complex_report
from bilinear.reporting.report import Report

ARCHITECTURES = ("sm_80", "sm_90", "compute_90")


def verify(algorithm: str | Path | Loaded, *, levels: int = 1, inputs: str | None = None) -> Report:
    """Prove an algorithm, which may be a name or a path, as `Algorithm.verify` says.

    Approximate schemes, schemes over Z/p, and schedules without a form that can be lowered are proved as written, and do not run.
    """
    loaded = algorithm if isinstance(algorithm, Loaded) else frontend.load(algorithm)  # parse, resolve
    inputs = inputs or natural_inputs(loaded.schedule)
    require_levels(levels)
    require_inputs(inputs)
    return examine(loaded, levels, inputs)  # verify


class CompileOptions(TypedDict, total=False):
    """The options of `compile` with a given algorithm."""

    levels: int
    dtypes: Sequence[str]
    architectures: Sequence[str]
    inputs: str | None
    output: str | Path | None
    progress: Progress
    floats: str
    mode: str
    contention: str
    emit: str


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
    contention: str = COLOURS,
    emit: str = "",
) -> Compiled:
    """Compile an algorithm to CUDA kernels; no GPU is needed.

    Parameters
    ----------
    algorithm : str or Path or Algorithm
        The name or path of an algorithm, or the algorithm.
    levels : int
        The number of recursion levels.
    dtypes : sequence of str
        "float64", "float32", "float16", "bfloat16"; or "complex128", "complex64".
    architectures : sequence of str
        `sm_NN` (a cubin each) or `compute_NN` (PTX for newer chips).
    inputs : {"preserve", "restore", "consume"}, optional
        What may happen to A and B; the default is what the algorithm is made for.
    output : str or Path, optional
        The self-contained folder to write: sources, images, manifest and report. Nothing is written if anything fails.
    progress : callable
        Called with the number of kernels that are built, and the number of all.
    floats : {"own", "doubles"}
        Whether products of floats run on their own units, or on the matrix units for doubles, which are faster on chips with many of them,
        such as an H200.
    mode : str
        How stages are launched (docs/modes.md).
    contention : {"colours", "atomics"}
        How products that add to one block of C run, as in `matmul`.
    emit : {"", "c"}
        "c": the folder also holds a C library (docs/how-to/c-library.md).

    Returns
    -------
    Compiled
        The kernels with their sources, and the report.

    Raises
    ------
    BilinearError
        If a proof fails, or if a kernel cannot be built.

    Examples
    --------
    >>> import bilinear
    >>> bilinear.compile("winograd", dtypes=["float64"], architectures=["sm_90"])
    <Compiled winograd: float64 for sm_90; write(folder) keeps it>
    """
    loaded = algorithm if isinstance(algorithm, Loaded) else frontend.load_for_arrays(algorithm)  # parse, resolve
    dtypes, targets = dtypes_of(dtypes), targets_of(architectures)
    inputs = inputs or ("preserve" if dtypes[0] in COMPLEX else natural_inputs(loaded.schedule))
    options = FolderOptions(levels, inputs, floats, mode, contention)
    require_options(loaded, options, dtypes)
    require_emitted(emit, dtypes)
    if output is not None:
        require_folder(Path(output))
    prepared, programs = programs_of(loaded, options, dtypes, targets, progress)  # verify, schedule, lower, render, build
    if prepared is None:
        own = complex_algorithm(loaded.scheme, loaded.complex_core)
        report: Report | ComplexReport = complex_report(own, levels, loaded.schedule, programs)
    else:
        report = report_of(loaded, prepared, inputs, programs)
    compiled = Compiled(loaded, prepared, options, programs, targets, report, emit)
    if output is not None:
        compiled.write(output)  # write
    return compiled
