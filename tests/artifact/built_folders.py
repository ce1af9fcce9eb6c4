"""Output folders to test, and ways to spoil them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bilinear import frontend
from bilinear.artifact import write as output
from bilinear.artifact.check_folder import verify_built
from bilinear.codegen.build import Program, ProgramKernel, distinct_kernels
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.names import REMAINDER
from bilinear.codegen.render import render
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError, Diagnostic
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.placement import STAGE
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import USUAL
from bilinear.lowering.prepare import natural_inputs, plain, prepare
from bilinear.writing import write_folder

needs_emulator = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
FIRST = "msmes_l1_linear1_f64"


def program(schedule: Schedule, dtype: str, tile: str = USUAL, named: str = "", mode: str = STAGE) -> Program:
    """A program without images, which needs no CUDA compiler."""
    launches = schedule_to_launches(schedule, ELEMENTS[dtype], tile, named, mode)
    return Program(schedule, dtype, launches, tuple(ProgramKernel(kernel, render(kernel), ()) for kernel in distinct_kernels(launches)))


def written(
    folder: Path,
    algorithm: str | Path,
    monkeypatch: pytest.MonkeyPatch,
    inputs: str = "",
    dtypes: tuple[str, ...] = tuple(IN_ARRAYS),
    levels: int = 1,
    tile: str = USUAL,
    mode: str = STAGE,
) -> Path:
    """An output folder without images."""
    loaded = frontend.load(algorithm)
    inputs = inputs or natural_inputs(loaded.schedule)
    schedule = prepare(loaded.scheme, loaded.schedule, levels, inputs, mode).schedule
    monkeypatch.setattr(output, "compiler_version", lambda: "none")
    programs = [program(schedule, dtype, tile, mode=mode) for dtype in dtypes]
    rests = [program(plain().schedule, dtype, tile, REMAINDER) for dtype in dtypes]
    write_folder(folder, output.output_files(loaded.scheme, inputs, programs, rests, "0"))
    return folder


def refusal(folder: Path) -> Diagnostic:
    """The first diagnostic about a folder that is broken or wrong."""
    with pytest.raises(BilinearError) as caught:
        verify_built(folder, seed=1).require()
    return caught.value.diagnostics[0]


def kernels(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["programs"]["float64"]["kernels"]
    return found


def launches(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = manifest["programs"]["float64"]["launches"]
    return found


def refresh(folder: Path, name: str, edit: Callable[[str], str]) -> None:
    """Change a source, and its hash in the manifest too."""
    source = folder / "src" / f"{name}.cu"
    source.write_text(edit(source.read_text()))
    manifest = json.loads((folder / "manifest.json").read_text())
    kernels(manifest)[name]["sha256"] = manifest["files"][f"src/{name}.cu"] = hashlib.sha256(source.read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
