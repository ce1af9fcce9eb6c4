"""Output folders of complex types: the kernels of complex3 (x) a block scheme are identities, and exact on interleaved arrays."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifact.built_folders import needs_emulator
from artifact.test_built import InItsOwnType
from shell import Shell

import bilinear
from bilinear.artifact.check_folder import verify_built
from bilinear.artifact.images import integer_size
from bilinear.artifact.read import multiply, read_folder
from bilinear.artifact.write import Compiled
from bilinear.errors import BilinearError
from bilinear.ir.element import COMPLEX
from bilinear.places import MANIFEST, sealed

ARCHITECTURES = ("compute_90",)


@cache
def built(algorithm: str, dtypes: tuple[str, ...], levels: int) -> Compiled:
    return bilinear.compile(algorithm, levels=levels, dtypes=dtypes, architectures=ARCHITECTURES)


def compiled(folder: Path, algorithm: str, *dtypes: str, levels: int = 1) -> Path:
    built(algorithm, dtypes, levels).write(folder)
    return folder


@pytest.mark.slow
@needs_emulator
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("algorithm", "dtypes", "levels"),
    [
        ("winograd", ("complex64",), 1),
        ("classical", ("complex64", "complex128"), 1),
        ("complex4 (x) strassen", ("complex64",), 1),
        ("complex4", ("complex128",), 1),
        ("msmes", ("complex64",), 2),
    ],
)
def test_their_kernels_are_identities(algorithm: str, dtypes: tuple[str, ...], levels: int, tmp_path: Path) -> None:
    folder = compiled(tmp_path / "built", algorithm, *dtypes, levels=levels)
    check = verify_built(folder, seed=3)
    check.require()
    assert [row.dtype for row in check.rows if row.verdict == "passed"] == [name for name in dtypes for _ in range(2)]
    assert check.inputs == "preserve"
    found = read_folder(folder)
    assert found.is_complex and found.operands == ("A", "B", "C", "Ai", "Bi", "Ci")


@pytest.mark.slow
@needs_emulator
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_interleaved_arrays_are_multiplied_where_they_lie(dtype: str, tmp_path: Path) -> None:
    """Gaussian integers come out bit for bit, by rows and by columns, with strips; what lies beside the matrices stays."""
    folder = read_folder(compiled(tmp_path / "built", "winograd", dtype))
    m, k, n = 37, 23, 29
    size, generator = min(9, integer_size(folder, dtype, (m, k, n))), np.random.default_rng(7)
    assert size == 9
    whole = [generator.integers(-size, size + 1, (2, *s)) for s in ((m, k), (k, n), (m, n))]
    shapes = [(x.shape[1] + 1, x.shape[2] + 1) for x in whole]
    a, b, c = np.full(shapes[0], np.nan, dtype), np.full(shapes[1], np.nan, dtype, "F"), np.full(shapes[2], np.nan, dtype)
    for array, (real, imaginary) in zip((a, b, c), whole, strict=True):
        array[:-1, :-1] = real + 1j * imaginary
    cores = {"A": a[:-1, :-1], "B": b[:-1, :-1], "C": c[:-1, :-1]}
    operands = {f"{name}{end}": part for name, x in cores.items() for end, part in (("", x.real), ("i", x.imag))}
    (program,) = folder.programs
    multiply(InItsOwnType(program), folder, program, operands, 2, -3)
    x, y, z = (real + 1j * imaginary for real, imaginary in whole)
    assert (c[:-1, :-1] == 2 * (x @ y) - 3 * z).all() and np.isnan(c[-1]).all() and np.isnan(c[:, -1]).all()
    assert (a[:-1, :-1] == x).all() and (b[:-1, :-1] == y).all()


def edited(folder: Path, edit: Any) -> Path:
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest.pop("sha256")
    edit(manifest)
    (folder / MANIFEST).write_bytes(sealed(manifest))
    return folder


@needs_emulator
@pytest.mark.usefixtures("tiny")
@pytest.mark.slow
def test_a_part_that_is_taken_for_another_is_found(tmp_path: Path) -> None:
    def swap(manifest: dict[str, Any]) -> None:
        kernels = manifest["programs"]["complex64"]["kernels"]
        kernel = next(own for name, own in kernels.items() if "linear1" in name)
        for argument in kernel["arguments"]:
            argument["name"] = {"B": "Bi", "Bi": "B"}.get(argument["name"], argument["name"])

    folder = edited(compiled(tmp_path / "built", "winograd", "complex64"), swap)
    with pytest.raises(BilinearError, match=r"(?s)E623.*the real part of C is not alpha \* A \* B \+ beta \* C"):
        verify_built(folder, trust=True, seed=1).require()


@pytest.mark.slow
def test_a_manifest_of_real_and_of_complex_types_is_refused(tmp_path: Path) -> None:
    def mix(manifest: dict[str, Any]) -> None:
        manifest["programs"]["float32"] = manifest["programs"]["complex64"]

    with pytest.raises(BilinearError, match=r"E621.*of real and of complex types"):
        read_folder(edited(compiled(tmp_path / "built", "winograd", "complex64"), mix))


@pytest.mark.parametrize(
    ("algorithm", "options", "code"),
    [
        ("winograd", {"dtypes": ("complex64", "float64")}, "E503"),
        ("msmes", {"dtypes": ("complex64",), "inputs": "restore"}, "E785"),
        ("winograd", {"dtypes": ("complex64",), "mode": "S-M-T"}, "E557"),
        ("complex3 (x) winograd", {"dtypes": ("float64",)}, "E799"),
        ("walk_444_mod2", {"dtypes": ("complex64",)}, "E506"),
    ],
)
def test_what_no_folder_holds_is_refused_and_nothing_is_written(algorithm: str, options: dict[str, Any], code: str, tmp_path: Path) -> None:
    with pytest.raises(BilinearError, match=code):
        bilinear.compile(algorithm, architectures=ARCHITECTURES, output=tmp_path / "built", **options)
    assert not (tmp_path / "built").exists()


@pytest.mark.slow
def test_the_command_compiles_checks_and_reports(tmp_path: Path, shell: Shell) -> None:
    folder = tmp_path / "built"
    options = ("--dtype", "complex64", "--arch", "compute_90", "--shape", "33,29,31", "-o", str(folder))
    status, out, _ = shell("compile", "complex3 (x) strassen", "-v", *options)
    assert status == 0 and "complex3_x_strassen: proved" in out and "21 real products" in out and "certificate" not in out
    assert {path.name for path in folder.iterdir()} == {
        "algorithm.bl",
        "manifest.json",
        "ptx",
        "report.html",
        "report.json",
        "report.md",
        "src",
    }
    report = json.loads((folder / "report.json").read_text())
    assert report["rank"] == 21 and {k["architecture"] for k in report["kernels"]} == {"compute_90"}
    assert "## Kernels" in (folder / "report.md").read_text() and "<h2>Kernels</h2>" in (folder / "report.html").read_text()
    again = bilinear.compile("winograd", dtypes=("complex64",), architectures=ARCHITECTURES)
    assert repr(again) == "<Compiled complex3_x_winograd: complex64 for compute_90; write(folder) keeps it>"
    assert all(program.numbers in COMPLEX for program in again.programs)
