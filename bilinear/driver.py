"""The compiler on one screen: parse, resolve, verify, schedule, lower, render, build, write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilinear import frontend
from bilinear.algebra.fold_bases import on_blocks
from bilinear.artifact.write import output_files
from bilinear.codegen.build import Program, Progress, build_program, no_progress
from bilinear.codegen.cuda.target import CudaTarget, targets_of
from bilinear.codegen.names import REMAINDER
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.frontend.printer import print_scheme
from bilinear.interchange.importing import Imported, import_arrays, import_scheme
from bilinear.ir.element import ELEMENTS
from bilinear.ir.placement import INPUTS
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import MMA_FLOAT64, USUAL, tile_on
from bilinear.lowering.coefficients import require_elements
from bilinear.lowering.prepare import Prepared, natural_inputs, plain, prepare, require_levels
from bilinear.places import require_folder
from bilinear.reporting.examine import DTYPES, certificate_for, examine, report_of
from bilinear.reporting.report import Report
from bilinear.runtime.matmul import matmul
from bilinear.source import Source
from bilinear.version import __version__
from bilinear.writing import write_folder

ARCHITECTURES = ("sm_80", "sm_90", "compute_90")
FLOATS = {"own": USUAL, "doubles": tile_on("float32", MMA_FLOAT64.unit)}
"""The units that products of floats run on, and the usual tile there."""


@dataclass(frozen=True)
class Compiled:
    """All that compiling an algorithm gives: the proofs, and the kernels of its schedule, one program a dtype."""

    loaded: Loaded
    prepared: Prepared
    inputs: str
    programs: tuple[Program, ...]
    targets: tuple[CudaTarget, ...]
    report: Report
    floats: str = "own"

    def write(self, folder: str | Path) -> None:
        """Write a folder that stands alone: sources, images, manifest and report; all of it, or nothing where that fails (E611).

        It may replace an earlier output, in which nothing was added or changed since, and no other folder.
        """
        require_folder(Path(folder))
        remainders = _programs(plain().schedule, [own.dtype for own in self.programs], self.targets, self.floats, named=REMAINDER)
        views = {"report.json": self.report.json(), "report.md": self.report.markdown(), "report.html": self.report.html()}
        views["certificate.json"] = certificate_for(self.prepared)
        encoded = {name: text.encode() for name, text in views.items()}
        write_folder(Path(folder), output_files(self.loaded.scheme, self.inputs, self.programs, remainders, __version__, encoded))


@dataclass(frozen=True)
class Algorithm(Loaded):
    """A scheme, with its in-place schedule if it has one: what `bilinear.load` gives, and what can be done with it."""

    def verify(self, *, levels: int = 1, inputs: str | None = None) -> Report:
        """Prove the scheme, and the schedule at `levels` levels; raises `BilinearError` where a proof fails."""
        return verify(self, levels=levels, inputs=inputs)

    def compile(self, **options: Any) -> Compiled:
        """Compile to CUDA kernels; the options are those of `bilinear.compile`."""
        return compile(self, **options)

    def matmul(self, a: Any, b: Any, out: Any = None, **options: Any) -> Any:
        """Multiply with this algorithm; the options are those of `bilinear.matmul`, `tolerance` for restored operands among them."""
        return matmul(a, b, out, algorithm=self, **options)


def load(name_or_path: str | Path) -> Algorithm:
    """The algorithm of a `.bl` file, or of a name among the shipped ones. Raises `BilinearError`."""
    loaded = frontend.load(name_or_path)
    return Algorithm(loaded.scheme, loaded.schedule, loaded.source, loaded.path)


def from_arrays(u: Any, v: Any, w: Any, *, ring: str | None = None, transposed: bool | None = None, name: str = "arrays") -> Algorithm:
    """The algorithm of three tables of numbers, proved: U over the blocks of A, V over those of B, W over those of C.

    They are NumPy arrays or nested lists of integers, floats, fractions or complex numbers, a product a row or a column. The ring, and
    whether C is `transposed` (its blocks numbered column by column), are found out where they are not said. Raises `BilinearError`.
    """
    return _in_the_language(import_arrays(u, v, w, ring=ring, transposed=transposed, name=name))


def import_table(
    path: str | Path, *, format: str = "", ring: str | None = None, transposed: bool | None = None, entry: str = ""
) -> Algorithm:
    """The algorithm in a published table, proved; what is not said is found out, as `bilinear import` does. Raises `BilinearError`."""
    return _in_the_language(import_scheme(path, format=format, ring=ring, transposed=transposed, entry=entry))


def _in_the_language(imported: Imported) -> Algorithm:
    """An algorithm that was read from elsewhere, with the text that the language has for it."""
    scheme = on_blocks(imported.scheme)  # the language writes changes of basis from blocks to as many values
    file = f"{scheme.name}.bl"
    return Algorithm(scheme, None, Source(file, print_scheme(scheme)), Path(file))


def verify(algorithm: str | Path | Loaded, *, levels: int = 1, inputs: str | None = None) -> Report:
    """Prove a scheme, and its schedule at `levels` levels; raises `BilinearError` where a proof fails.

    Approximate schemes, schemes over Z/p, and schedules without a form that can be lowered are proved as written, and do not run.
    """
    loaded = algorithm if isinstance(algorithm, Loaded) else frontend.load(algorithm)  # parse, resolve
    inputs = inputs or natural_inputs(loaded.schedule)
    _check(levels, inputs)
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
) -> Compiled:
    """Compile an algorithm to CUDA kernels; no GPU is needed.

    `architectures` are `sm_NN` (a cubin each) or `compute_NN` (PTX for newer chips); `inputs` is `preserve`, `restore` or `consume` (by
    default what the algorithm is made for). Products of `floats` run on their `own` units, or on the matrix units for `doubles`, which
    are faster where they are as many, as on an H200. With `output`, a folder is written that stands alone: sources, images, manifest and
    report; nothing is written where anything fails. Raises `BilinearError`.
    """
    loaded = algorithm if isinstance(algorithm, Loaded) else frontend.load(algorithm)  # parse, resolve
    inputs = inputs or natural_inputs(loaded.schedule)
    dtypes, architectures = _once(dtypes), _once(architectures)
    _check(levels, inputs, dtypes, floats)
    targets = targets_of(architectures)
    if output is not None:
        require_folder(Path(output))
    prepared = prepare(loaded.scheme, loaded.schedule, levels, inputs)  # verify, schedule, verify what came out
    for dtype in dtypes:
        require_elements(loaded.scheme, prepared.schedule.coefficients, dtype, "f")
    programs = _programs(prepared.schedule, dtypes, targets, floats, progress=progress)  # lower, render, build
    compiled = Compiled(loaded, prepared, inputs, programs, targets, report_of(loaded, prepared, inputs, programs), floats)
    if output is not None:
        compiled.write(output)
    return compiled


def _once(names: Sequence[str]) -> Sequence[str]:
    """Each name once, for each makes files of its own; a single text, which stands for no list, as it is."""
    return names if isinstance(names, str) else tuple(dict.fromkeys(names))


def _programs(
    schedule: Schedule,
    dtypes: Sequence[str],
    targets: Sequence[CudaTarget],
    floats: str,
    named: str = "",
    progress: Progress = no_progress,
) -> tuple[Program, ...]:
    """A schedule as a program for each element type."""
    tiles = {dtype: FLOATS[floats] if dtype == "float32" else USUAL for dtype in dtypes}
    return tuple(build_program(schedule, ELEMENTS[dtype], targets, tile, named, progress) for dtype, tile in tiles.items())


def _check(levels: int, inputs: str, dtypes: Sequence[str] = DTYPES, floats: str = "own") -> None:
    """Refuse options that mean nothing (E502, E503, E513)."""
    require_levels(levels)
    if inputs not in INPUTS:
        raise fail("E513", f"inputs={inputs!r} is unknown", f"choose one of {', '.join(INPUTS)}")
    if isinstance(dtypes, str) or not dtypes or any(dtype not in ELEMENTS for dtype in dtypes):
        raise fail("E503", f"no kernels for dtypes={dtypes!r}", f"give a list of some of {', '.join(ELEMENTS)}")
    if floats not in tuple(FLOATS):
        raise fail("E503", f"no kernels for floats={floats!r}", f"choose one of {', '.join(FLOATS)}")
