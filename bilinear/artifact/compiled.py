"""A compiled algorithm: its proofs, its kernels and its report, and the folder that they are written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bilinear.artifact.write import FolderOptions, output_files
from bilinear.codegen.build import LaunchProgram, Progress, build_programs, no_progress, require_floats
from bilinear.codegen.cuda.nvrtc import compiler_version
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.modes import require_mode
from bilinear.codegen.names import REMAINDER
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.element import COMPILED, COMPLEX
from bilinear.ir.placement import STAGE
from bilinear.ir.schedule import Schedule
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
from bilinear.places import require_folder
from bilinear.planner.problem import require_inputs
from bilinear.reporting.examine import certificate_for
from bilinear.reporting.map_report import ComplexReport
from bilinear.reporting.report import Report
from bilinear.version import __version__
from bilinear.writing import write_folder


def require_kind(loaded: Loaded, dtype: str, inputs: str, mode: str) -> None:
    """Refuse (E799) an algorithm for complex numbers on a real type; on a complex type promises (E785) and modes (E557) of real ones."""
    if dtype not in COMPLEX:
        if loaded.complex_core is not None:
            what = f"{loaded.complex_core.name} multiplies complex numbers, and {dtype} is a real type"
            raise fail("E799", what, f"take complex64 or complex128, or the algorithm of the real products, {loaded.scheme.name}")
        return
    if inputs != "preserve":
        raise fail("E785", f"inputs={inputs!r} lets a schedule write A and B, and complex operands are only read", "use inputs='preserve'")
    if mode != STAGE:
        raise fail("E557", f"mode={mode!r} has no meaning for {dtype}: its stages run in one way", "leave it out")


def require_options(loaded: Loaded, options: FolderOptions, dtypes: Sequence[str]) -> None:
    """Refuse options that have no meaning, or none for this algorithm and these types."""
    require_levels(options.levels)
    require_inputs(options.inputs)
    require_floats(options.floats)
    require_mode(options.mode, options.floats)
    require_kind(loaded, dtypes[0], options.inputs, options.mode)


def programs_of(
    loaded: Loaded, options: FolderOptions, dtypes: Sequence[str], targets: Sequence[CudaTarget], progress: Progress = no_progress
) -> tuple[PreparedAlgorithm | None, tuple[LaunchProgram, ...]]:
    """The proofs of an algorithm (none for complex types), and its programs with their images for the targets, if there are any."""
    prepared, schedule = _prepared(loaded, options, dtypes[0] in COMPLEX)  # verify, schedule, verify the result
    for dtype in dtypes:
        require_elements(loaded.scheme, schedule.coefficients, COMPILED[dtype].name, "f")
    return prepared, build_programs(schedule, dtypes, targets, options.floats, progress=progress, mode=options.mode)  # lower, render, build


def remainders_of(programs: Sequence[LaunchProgram], targets: Sequence[CudaTarget], floats: str) -> tuple[LaunchProgram, ...]:
    """The programs of the plain multiply for the strips that the grid of these programs leaves over."""
    rest = plain_complex() if programs[0].schedule.is_complex else plain().schedule
    return build_programs(rest, [own.dtype for own in programs], targets, floats, named=REMAINDER)


def _prepared(loaded: Loaded, options: FolderOptions, is_complex: bool) -> tuple[PreparedAlgorithm | None, Schedule]:
    """The proved schedule that is compiled, and for real matrices its proofs."""
    if is_complex:
        return None, prepare_complex((Level(loaded.scheme, loaded.schedule),) * options.levels, core=loaded.complex_core)
    prepared = prepare(loaded.scheme, loaded.schedule, options.levels, options.inputs, options.mode)
    return prepared, prepared.schedule


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

    def __repr__(self) -> str:
        dtypes, targets = ", ".join(own.numbers for own in self.programs), ", ".join(map(str, self.targets))
        return f"<Compiled {self.report.algorithm}: {dtypes} for {targets}; write(folder) keeps it>"

    def _repr_html_(self) -> str:
        """The page of the report."""
        return self.report.html() if isinstance(self.report, ComplexReport) else self.report._repr_html_()

    def write(self, folder: str | Path) -> None:
        """Write a self-contained folder: sources, images, manifest and report. If that fails (E611), nothing is written.

        It may replace an earlier output that nobody has changed, and no other folder.
        """
        require_folder(Path(folder))
        remainders = remainders_of(self.programs, self.targets, self.options.floats)
        views = {"report.json": self.report.json(), "report.md": self.report.markdown(), "report.html": self.report.html()}
        if self.prepared is not None:
            views["certificate.json"] = certificate_for(self.prepared)
        encoded = {name: text.encode() for name, text in views.items()}
        versions = {"bilinear": __version__, "compiler": compiler_version()}
        write_folder(Path(folder), output_files(self.loaded, self.options, self.programs, remainders, versions, encoded))
