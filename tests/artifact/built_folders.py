"""Output folders to test, and ways to spoil them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from bilinear import frontend
from bilinear.artifact.check_folder import verify_built
from bilinear.artifact.write import FolderOptions, output_files, programs_of, remainders_of
from bilinear.codegen.build import LaunchProgram
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError, Diagnostic
from bilinear.ir.element import IN_ARRAYS
from bilinear.ir.placement import STAGE
from bilinear.lowering.prepare import natural_inputs
from bilinear.writing import write_folder

needs_emulator = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
VERSIONS = {"bilinear": "0", "compiler": "none"}
FIRST = "msmes_l1_linear1_f64"


def written(
    folder: Path,
    algorithm: str | Path,
    inputs: str = "",
    dtypes: tuple[str, ...] = tuple(IN_ARRAYS),
    levels: int = 1,
    floats: str = "own",
    mode: str = STAGE,
    views: Mapping[str, bytes] = MappingProxyType({}),
) -> Path:
    """An output folder without images, which needs no CUDA compiler."""
    loaded, options, programs, remainders = made(algorithm, inputs, dtypes, levels, floats, mode)
    write_folder(folder, output_files(loaded, options, programs, remainders, VERSIONS, views))
    return folder


Made = tuple[frontend.Loaded, FolderOptions, tuple[LaunchProgram, ...], tuple[LaunchProgram, ...]]


@cache
def made(
    algorithm: str | Path, inputs: str, dtypes: tuple[str, ...] = tuple(IN_ARRAYS), levels: int = 1, floats: str = "own", mode: str = STAGE
) -> Made:
    """An algorithm, and its programs without images."""
    loaded = frontend.load(algorithm)
    options = FolderOptions(levels, inputs or natural_inputs(loaded.schedule), floats, mode)
    _, programs = programs_of(loaded, options, dtypes, ())
    return loaded, options, programs, remainders_of(programs, (), floats)


def refusal(folder: Path, *, trust: bool = True) -> Diagnostic:
    """The first diagnostic about a folder that is broken or wrong."""
    with pytest.raises(BilinearError) as caught:
        verify_built(folder, trust=trust, seed=1).require()
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
