"""Generated sources: pinned as golden files, deterministic, and accepted by the CUDA compiler; and the names of kernels and files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from artifact.built_folders import VERSIONS, written
from each_case import each

from bilinear.artifact.read import read_folder
from bilinear.artifact.write import FolderOptions, output_files
from bilinear.codegen.build import build_program, distinct_kernels
from bilinear.codegen.cache import Cache
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.target import CudaTarget, targets_of
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.names import REMAINDER, file_name, stem
from bilinear.codegen.render import render
from bilinear.driver import ARCHITECTURES
from bilinear.frontend import load
from bilinear.ir.element import COMPILED, ELEMENTS, FLOAT32, FLOAT64
from bilinear.ir.kernel import DigestKernel, LinearKernel, MagnitudeKernel, ProductKernel, ScanKernel
from bilinear.ir.tile import TILES
from bilinear.lowering.prepare import plain, prepare

GOLDEN = Path(__file__).parent.parent / "golden"
PINNED = [("msmes", "restore", 1, FLOAT64), ("winograd", "preserve", 1, FLOAT32), ("hopcroft_kerr", "preserve", 1, FLOAT64)]
BUILT = [
    ("msmes", "restore", 1),
    ("msmes", "restore", 2),
    ("msmes", "restore", 3),
    ("strassen", "preserve", 1),
    ("strassen", "preserve", 2),
    ("winograd", "preserve", 2),
    ("laderman", "preserve", 1),
    ("hopcroft_kerr", "preserve", 1),
    ("naive2x2", "preserve", 1),
]
needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


def sources() -> dict[str, str]:
    texts = {}
    for name, inputs, levels, element in PINNED:
        loaded = load(name)
        for kernel in distinct_kernels(schedule_to_launches(prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule, element)):
            texts[kernel.name] = render(kernel)
    for scan in (ScanKernel("scan_double", FLOAT64), MagnitudeKernel("magnitudes_double", FLOAT64), DigestKernel("digest_double", FLOAT64)):
        texts[scan.name] = render(scan)
    return texts


def test_sources_are_the_golden_ones(update_golden: bool) -> None:
    texts = sources()
    if update_golden:
        GOLDEN.mkdir(exist_ok=True)
        for path in GOLDEN.glob("*.cu"):
            path.unlink()
        for name, text in texts.items():
            (GOLDEN / f"{name}.cu").write_text(text)
    assert {path.stem: path.read_text() for path in GOLDEN.glob("*.cu")} == texts


def test_sources_are_deterministic_and_stand_alone() -> None:
    first = sources()
    assert first == sources()
    for text in first.values():
        assert "#include" not in text
        assert text.count('extern "C"') == 1
        assert "atomic" not in text


@pytest.mark.slow
@needs_nvrtc
@pytest.mark.parametrize(("name", "inputs", "levels"), BUILT)
def test_every_kernel_is_built(name: str, inputs: str, levels: int) -> None:
    """Those of one level of msmes for every architecture: what is asked of one is in the templates, not in the schedule."""
    loaded = load(name)
    schedule = prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule
    architectures = ARCHITECTURES if (name, levels) == ("msmes", 1) else ("sm_90",)
    for dtype in ELEMENTS:
        program = build_program(schedule, ELEMENTS[dtype], targets_of(architectures))
        for own in program.kernels:
            assert [built.target.kind for built in own.images] == ["cubin" if a.startswith("sm") else "ptx" for a in architectures]
            for built in own.images:
                assert built.image.startswith(b"\x7fELF" if built.target.kind == "cubin" else b"//")
                for used in built.resources:
                    assert used.spill_stores + used.spill_loads <= 512, f"{used.name} spills"  # a destination's addresses, after the loop


@pytest.mark.sample(1, slow=7)
@needs_nvrtc
@pytest.mark.parametrize(("dtype", "tile"), [(dtype, tile) for dtype in TILES for tile in TILES[dtype]])
def test_every_tile_stays_in_registers(dtype: str, tile: str) -> None:
    loaded = load("strassen")
    schedule = prepare(loaded.scheme, loaded.schedule, 1, "preserve").schedule
    for kernel in build_program(schedule, ELEMENTS[dtype], [CudaTarget("sm_90")], tile).kernels:
        assert all(own.spill_stores + own.spill_loads <= 512 for built in kernel.images for own in built.resources)


@pytest.mark.slow
@needs_nvrtc
def test_three_levels_in_one_pass_stay_in_registers(tmp_path: Path) -> None:
    launches = schedule_to_launches(prepare(load("winograd").scheme, None, 3, "preserve").schedule, FLOAT64)
    linear = [kernel for kernel in distinct_kernels(launches) if isinstance(kernel, LinearKernel)]
    assert len(linear) == 2
    for kernel in linear:
        (own,) = nvrtc.build(render(kernel), kernel.name, CudaTarget("sm_90"), cache=Cache(tmp_path)).resources
        assert own.spill_stores <= 64  # it writes two thousand bytes


@pytest.mark.slow
@needs_nvrtc
def test_resources_are_reported_for_cubins(tmp_path: Path) -> None:
    (kernel,) = distinct_kernels(schedule_to_launches(plain().schedule, FLOAT32))
    assert isinstance(kernel, ProductKernel)
    built = nvrtc.build(render(kernel), kernel.name, CudaTarget("sm_90"), cache=Cache(tmp_path))
    (own,) = built.resources
    assert own.name == kernel.name
    assert 64 < own.registers <= 255
    assert own.shared_bytes == 0
    assert kernel.shared_bytes == kernel.tile.stages * kernel.tile.k * (kernel.tile.m + 4 + kernel.tile.n) * 4
    assert not built.cached
    assert nvrtc.build(render(kernel), kernel.name, CudaTarget("sm_90"), cache=Cache(tmp_path)).cached


NAMES = ["plain", "remainder", "remainder_l1_product_f64", "x_l1_linear1", "Msmes", "a-b", "a" * 200, "_", "_9"]
"""The names that the language allows for a schedule."""
STRANGE = ["", "a.b", "a b", "9", "é", "a" * 300, "a" * 299 + "b", "../..", "a\nb", "\ud800", "x/y", "CON."]


@each("name", NAMES)
def test_kernels_of_a_schedule_and_of_the_remainder_are_apart(name: str, tmp_path: Path) -> None:
    file = tmp_path / "x.bl"
    file.write_text(re.sub("^schedule msmes", f"schedule {name}", (load("msmes").path).read_text(), flags=re.MULTILINE))
    folder = read_folder(written(tmp_path / "out", file))
    for own in folder.programs:
        core, rest = ({launch.kernel.name for launch in part} for part in (own.launches, own.remainder))
        assert len(core) == 4 and {kernel.lower() for kernel in core}.isdisjoint(kernel.lower() for kernel in rest)
    sources = [path.name for path in (tmp_path / "out" / "src").iterdir()]
    assert len({source.lower() for source in sources}) == 10 and max(map(len, sources)) <= 255


def test_names_that_are_none_of_files_become_different_ones() -> None:
    found = {file_name(name) for name in (*NAMES, *STRANGE)}
    assert len({name.lower() for name in found}) == len(NAMES) + len(STRANGE)
    assert all(re.fullmatch("[A-Za-z_][A-Za-z0-9_-]*", name) and len(name) <= 220 for name in found)
    assert all(file_name(name) == name for name in NAMES)


def test_no_stem_begins_as_the_remainder_does() -> None:
    for name in (*NAMES, *STRANGE):
        assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", stem(name, 1))
        assert not f"{stem(name, 1)}_product_f64".lower().startswith(f"{REMAINDER}_product")
    assert stem("winograd-expand", 2) == "winograd_expand_l2"


def test_no_path_is_written_twice() -> None:
    loaded, element = load("msmes"), COMPILED["float64"]
    schedule = prepare(loaded.scheme, loaded.schedule, 1, "restore").schedule
    for named in (stem(schedule.name, 1), stem(schedule.name.upper(), 1)):
        rest = build_program(plain().schedule, element, (), named=named)
        with pytest.raises(AssertionError):
            output_files(loaded, FolderOptions(1, "restore"), [build_program(schedule, element, ())], [rest], VERSIONS)
