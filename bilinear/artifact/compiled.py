"""A compiled algorithm: its proofs, its kernels and its report, and the folder that they are written to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bilinear.artifact.write import output_files
from bilinear.codegen.build import Program, build_programs
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.names import REMAINDER
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.element import COMPLEX
from bilinear.ir.placement import STAGE
from bilinear.lowering.prepare import Prepared, plain, plain_complex
from bilinear.places import require_folder
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


@dataclass(frozen=True)
class Compiled:
    """All that compiling an algorithm gives: the proofs, and the kernels of its schedule, one program a dtype.

    For complex types nothing is `prepared`: the schedule has a report of its own kind, and no certificate.
    """

    loaded: Loaded
    prepared: Prepared | None
    inputs: str
    programs: tuple[Program, ...]
    targets: tuple[CudaTarget, ...]
    report: Report | ComplexReport
    floats: str = "own"

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
        rest = plain().schedule if self.prepared is not None else plain_complex()
        remainders = build_programs(rest, [own.dtype for own in self.programs], self.targets, self.floats, named=REMAINDER)
        views = {"report.json": self.report.json(), "report.md": self.report.markdown(), "report.html": self.report.html()}
        if self.prepared is not None:
            views["certificate.json"] = certificate_for(self.prepared)
        encoded = {name: text.encode() for name, text in views.items()}
        write_folder(Path(folder), output_files(self.loaded.scheme, self.inputs, self.programs, remainders, __version__, encoded))
