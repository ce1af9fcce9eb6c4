"""Tests of output folders: correct ones pass, broken or wrong ones are reported, and on a GPU the images run."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from artifact.built_folders import kernels, needs_emulator, refusal, written

import bilinear
from bilinear.artifact import identities as built_identity
from bilinear.artifact import images as built_images
from bilinear.artifact.check_folder import verify_built
from bilinear.artifact.findings import BuiltCheck, BuiltRow
from bilinear.artifact.identities import IdentityCase, chance
from bilinear.artifact.images import integer_size, trials_for
from bilinear.artifact.read import BuiltLaunch, BuiltProgram, multiply, read_folder
from bilinear.codegen.build import no_progress
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.emulator import compile_on_cpu
from bilinear.errors import Diagnostic
from bilinear.ir.element import COMPILED, ELEMENTS
from bilinear.ir.placement import MODES

SHIPPED = (
    *("classical", "naive2x2", "strassen", "winograd", "hopcroft_kerr", "laderman"),
    *("msmes", "winograd_depth_first", "winograd_in_place", "hopcroft_kerr_in_place", "laderman_in_place"),
)
"""The schedules, and schemes of every kind of sums; the kernels of the others are no different, and take long."""
FRACTIONS = """scheme halves <2,2,2;7>
  M1: 1/2 0 0 1/2 | 1 0 0 1 | 2 0 0 2
  M2: 0 0 3 3 | 1/3 0 0 0 | 0 0 1 -1
  M3: 1 0 0 0 | 0 1 0 -1 | 0 1 0 1
  M4: 0 0 0 1 | -1 0 1 0 | 1 0 1 0
  M5: 1 1 0 0 | 0 0 0 1 | -1 1 0 0
  M6: -1 0 1 0 | 1 1 0 0 | 0 0 0 1
  M7: 0 1 0 -1 | 0 0 1 1 | 1 0 0 0
"""


# ------------------------------------------------------------------------------------------------------------------ what is right passes


@pytest.mark.slow
@needs_emulator
@pytest.mark.usefixtures("tiny")
def test_kernels_of_floats_on_the_units_for_doubles_are_identities(tmp_path: Path) -> None:
    folder = written(tmp_path / "built", "msmes", dtypes=("float32",), floats="doubles")
    verify_built(folder, seed=1).require()
    assert all(
        "f64.f64.f64.f64" in (folder / "src" / f"{name}.cu").read_text() for name in ("msmes_l1_product_f32", "remainder_product_f32")
    )


@pytest.mark.slow
@needs_emulator
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("mode", MODES[1:])
def test_the_kernels_of_every_mode_are_identities(mode: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "built", "strassen", dtypes=("float32",), levels=2, mode=mode)
    verify_built(folder, seed=1).require()
    (program,) = json.loads((folder / "manifest.json").read_text())["programs"].values()
    assert [launch["stage"] for launch in program["launches"]] == sorted(launch["stage"] for launch in program["launches"])


@pytest.mark.sample(0, slow=4)
@needs_emulator
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", SHIPPED)
def test_the_kernels_of_every_shipped_algorithm_are_identities(name: str, tmp_path: Path) -> None:
    check = verify_built(written(tmp_path / "built", name), seed=1)
    assert check.failures == ()
    assert [(row.dtype, row.verdict) for row in check.rows if row.where.startswith("CPU")] == [
        ("float64", "passed"), ("float64", "passed"), ("float32", "passed"), ("float32", "passed")
    ]  # fmt: skip
    assert check.passed


@pytest.mark.sample(1)
@needs_emulator
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(("inputs", "levels"), [("preserve", 1), ("consume", 1), ("restore", 2)])
def test_every_promise_and_two_levels(inputs: str, levels: int, tmp_path: Path) -> None:
    check = verify_built(written(tmp_path / "built", "msmes", inputs, ("float64",), levels), seed=2)
    check.require()
    assert (check.inputs, check.levels) == (inputs, levels)


@pytest.mark.slow
@needs_emulator
@pytest.mark.usefixtures("tiny")
def test_fractions_are_numbers_of_the_field_and_not_exact_on_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "halves.bl").write_text(FRACTIONS)
    folder = written(tmp_path / "built", tmp_path / "halves.bl", dtypes=("float32",))
    assert "Real(1) / Real(3)" in "".join(path.read_text() for path in (folder / "src").iterdir())
    verify_built(folder, seed=3).require()
    found = read_folder(folder)
    assert found.integers is not None and found.integers.denominator == 6
    assert integer_size(found, "float32", (8, 8, 8)) == 0


@needs_emulator
@pytest.mark.usefixtures("tiny")
def test_the_result_as_text_and_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built_images, "why_no_device", lambda: "there is none")
    seen: list[tuple[str, int, int]] = []
    folder = written(tmp_path / "built", "msmes", dtypes=("float64",))
    check = verify_built(folder, progress=lambda *told: seen.append(told))
    check.require()
    told = json.loads(json.dumps(check.to_json()))
    assert told["format"] == "bilinear-built/1" and told["passed"] and told["failures"] == []
    assert [row["verdict"] for row in told["rows"]] == ["passed"] * 2 + ["skipped"]
    assert [row["shape"] for row in told["rows"]] == [
        *("x".join(map(str, case.shape)) for case in built_identity.cases(read_folder(folder))),
        "-",
    ]
    assert int(told["seed"], 16) >= 0
    lines = str(check).splitlines()
    assert lines[1].split() == ["type", "where", "shape", "what", "trials", "a", "wrong", "one", "passes", "verdict"]
    assert lines[3].split()[0] == "float64" and "2^-178" in lines[3]
    assert lines[-1].endswith("skipped: there is none")
    assert seen[0] == ("float64 sources", 0, 2) and seen[-1] == ("float64 sources", 2, 2)
    monkeypatch.setattr(built_identity, "cases", lambda folder: ())
    assert verify_built(folder).seed != check.seed


def test_where_nothing_can_be_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built_identity, "skip_reason", lambda: "no C++20 compiler")
    monkeypatch.setattr(built_images, "why_no_device", lambda: "CuPy is not installed")
    folder = written(tmp_path / "built", "strassen")
    check = verify_built(folder)
    assert not check.passed and {row.verdict for row in check.rows} == {"skipped"}
    found = refusal(folder)
    assert found.code == "E625"
    assert found.notes == ("no C++20 compiler", "CuPy is not installed")


def test_the_bounds_are_those_of_schwartz_and_zippel() -> None:
    for trials in (1, 2, 3):
        exact = (3 / (2**61 - 2)) ** trials
        exponent = int(chance(trials).removeprefix("2^"))
        assert exact <= 2.0**exponent < 4 * exact
    assert chance(2) == "2^-118" and built_identity.TRIALS >= 2
    for size in (1, 4, 100, 10**6):
        trials = trials_for(size)
        assert (2 / (2 * size + 1)) ** trials < 2.0**-100 <= (2 / (2 * size + 1)) ** (trials - 1)


# ------------------------------------------------------------------------------------------------------ integers that are exact on a GPU


class InItsOwnType(built_identity.Emulated):
    """Emulated kernels on floating-point numbers."""

    def __init__(self, program: BuiltProgram) -> None:
        real = COMPILED[program.dtype].cuda
        types = {"pointer": f"{real} *", "index": "long long", "scalar": real}
        modules = {k.name: compile_on_cpu(k.source, {k.name: [types[a.kind] for a in k.arguments]}) for k in program.kernels}
        super().__init__(COMPILED[program.dtype].name, modules, "ascending", np.random.default_rng(1), True)

    def workspace(self, space: Any, rows: int, columns: int) -> Any:
        return np.full((rows, columns), np.nan, self.dtype)

    def launch(self, kernel: Any, blocks: tuple[int, int, int], arguments: Any) -> None:
        values = [value for _, value in arguments]
        self.modules[kernel.name].launch(kernel.name, blocks, (*kernel.threads, 1), values, shared_bytes=kernel.shared_bytes)


@pytest.mark.sample(1)
@needs_emulator
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "levels"), [("msmes", 1), ("winograd", 2), ("laderman", 1)])
def test_integers_in_the_range_are_exact(name: str, levels: int, dtype: str, tmp_path: Path) -> None:
    """The largest integers of either sign, through the emitted code in the element type itself, with an odd inner extent."""
    folder = read_folder(written(tmp_path / "built", name, dtypes=(dtype,), levels=levels))
    shape = tuple(extent * 3 + extent - 1 for extent in folder.grid)
    m, k, n = shape
    size = integer_size(folder, dtype, (m, k, n))
    assert folder.integers is not None and size >= 30
    depth, rest = k // folder.grid[1], k % folder.grid[1]
    most = 2 ** ELEMENTS[dtype].significand
    assert folder.integers.largest(size, depth, rest, 3, 3) <= most < folder.integers.largest(size + 1, depth, rest, 3, 3)
    machine = InItsOwnType(folder.programs[0])
    generator = np.random.default_rng(4)
    for alpha, beta in ((3, 3), (-3, 3), (3, 0)):
        whole = [size * generator.choice((-1, 1), extents) for extents in ((m, k), (k, n), (m, n))]
        whole[0][0], whole[1][:, 0] = size, size
        a, b, c = (x.astype(dtype) for x in whole)
        multiply(machine, folder, folder.programs[0], {"A": a, "B": b, "C": c}, alpha, beta)
        assert c.astype(object).tolist() == (alpha * (whole[0].astype(object) @ whole[1].astype(object)) + beta * whole[2]).tolist()


@pytest.mark.parametrize(
    ("name", "levels", "wanted"),
    [("strassen", 1, (2, 2, 12, 1)), ("strassen", 2, (4, 4, 144, 1)), ("winograd", 1, (4, 4, 18, 1)), ("naive2x2", 1, (1, 1, 2, 1))],
)
def test_the_numbers_that_a_schedule_forms(name: str, levels: int, wanted: tuple[int, ...], tmp_path: Path) -> None:
    """The last but one is the growth factor of the literature: 12 for Strassen, 18 for Winograd (Higham 2002, section 23.2.2)."""
    found = read_folder(written(tmp_path / "built", name, dtypes=("float64",), levels=levels)).integers
    assert found is not None
    assert (found.left, found.right, found.result, found.denominator) == wanted


class HostArray(np.ndarray[Any, Any]):
    """An array that comes back from the device by being copied."""

    def get(self) -> Any:
        return np.array(self)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy and the emulator in place of CuPy and a device of compute capability 9.0, and one small shape in place of three."""
    device = SimpleNamespace(compute_capability="90", id=0)
    stream = SimpleNamespace(synchronize=lambda: None)
    cuda = SimpleNamespace(Device=lambda: device, get_current_stream=lambda: stream)
    array = lambda x, dtype, order: np.array(x, dtype, order=order).view(HostArray)  # noqa: E731
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, array=array))
    monkeypatch.setattr(built_images, "why_no_device", lambda: None)
    monkeypatch.setattr(built_images, "shapes", lambda folder: (tuple(3 * extent + extent - 1 for extent in folder.grid),))


def images_of(program: BuiltProgram, *architectures: str) -> BuiltProgram:
    def renewed(launch: BuiltLaunch) -> BuiltLaunch:
        return replace(launch, kernel=replace(launch.kernel, images=tuple((CudaTarget(name), name, b"") for name in architectures)))

    return replace(program, launches=tuple(map(renewed, program.launches)), remainder=tuple(map(renewed, program.remainder)))


@pytest.mark.sample(1)
@needs_emulator
@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("name", ["msmes", "strassen"])
def test_the_images_are_tested_with_as_many_trials_as_the_range_asks_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = read_folder(written(tmp_path / "built", name, dtypes=("float32",)))
    program = images_of(folder.programs[0], "sm_80", "sm_90")
    monkeypatch.setattr(built_images, "OnDevice", lambda dtype, target: InItsOwnType(program))
    other, row = built_images.check_images(folder, program, 1, no_progress)
    assert isinstance(other, BuiltRow) and isinstance(row, BuiltRow)
    assert (other.where, other.verdict, other.reason) == ("GPU, sm_80", "skipped", "this device is sm_90")
    size = integer_size(folder, "float32", (7, 7, 7))
    assert (row.where, row.shape, row.detail) == ("GPU, sm_90", "7x7x7", f"integers of -{size} ... {size}")
    assert (row.verdict, row.trials) == ("passed", trials_for(size)) and int(row.chance.removeprefix("2^")) <= -100

    program = images_of(folder.programs[0], "sm_90")
    wrong = replace(program, launches=program.launches[:-1])
    row, found = built_images.check_images(folder, wrong, 1, no_progress)
    assert isinstance(row, BuiltRow) and row.verdict == "wrong" and isinstance(found, Diagnostic)
    assert found.code == "E623" and found.message.startswith({"msmes": "A is not what it was", "strassen": "C is not"}[name])

    monkeypatch.setattr(built_images, "OnDevice", lambda dtype, target: None)
    row, found = built_images.check_images(folder, program, 1, no_progress)
    assert isinstance(found, Diagnostic) and found.code == "E624" and found.message.startswith("the sm_90 images fail: AttributeError")

    (row,) = built_images.check_images(replace(folder, integers=None), program, 1, no_progress)
    assert isinstance(row, BuiltRow) and row.reason.startswith("no integers are exact here")


def gpu_folder(folder: Path, name: str, levels: int) -> Path:
    import cupy

    capability = cupy.cuda.Device().compute_capability
    bilinear.compile(name, levels=levels, output=folder, architectures=(f"sm_{capability}", f"compute_{capability}"))
    return folder


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "levels"), [("msmes", 1), ("msmes", 2), ("winograd", 2), ("strassen", 1), ("laderman", 1)])
def test_the_images_compute_exactly_on_a_gpu(name: str, levels: int, tmp_path: Path) -> None:
    check: BuiltCheck = verify_built(gpu_folder(tmp_path / "built", name, levels))
    check.require()
    rows = [row for row in check.rows if row.where.startswith("GPU")]
    assert len(rows) == 12 and {row.verdict for row in rows} == {"passed"}
    assert all(int(row.chance.removeprefix("2^")) <= -100 for row in rows)
    print(check)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["msmes", "winograd"])
def test_what_older_devices_run_computes_exactly_on_this_one(name: str, tmp_path: Path) -> None:
    """PTX of sm_80, whose matrix instructions are others, for the driver to finish."""
    bilinear.compile(name, levels=1, output=tmp_path / "built", architectures=("compute_80",))
    check: BuiltCheck = verify_built(tmp_path / "built")
    check.require()
    rows = [row for row in check.rows if row.where == "GPU, compute_80"]
    assert {row.dtype for row in rows} == {"float32", "float64"} and {row.verdict for row in rows} == {"passed"}


@pytest.mark.gpu
def test_a_wrong_image_of_a_right_source_is_found_on_a_gpu(tmp_path: Path) -> None:
    folder = gpu_folder(tmp_path / "built", "msmes", 1)
    manifest = json.loads((folder / "manifest.json").read_text())
    name = "msmes_l1_product_f64"
    kernel = kernels(manifest)[name]
    wrong = (folder / kernel["source"]).read_text().replace("Real(-1) }", "Real(1) }", 1)
    for architecture, image in kernel["images"].items():
        content = nvrtc.build(wrong, name, CudaTarget(architecture)).image
        (folder / image["path"]).write_bytes(content)
        image["sha256"] = manifest["files"][image["path"]] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    check = verify_built(folder, trust=True)
    assert [found.code for found in check.failures] == ["E623"]
    assert check.failures[0].message.startswith("C is not alpha * A * B + beta * C: C")
    assert {row.verdict for row in check.rows if row.dtype == "float32" and row.trials} == {"passed"}


def test_the_words_of_a_case() -> None:
    assert str(IdentityCase((1, 2, 3), "SFC", True)) == "gaps/columns/rows, beta = 0"
    assert str(IdentityCase((1, 2, 3), "CCC", False)) == "rows/rows/rows, beta random"
