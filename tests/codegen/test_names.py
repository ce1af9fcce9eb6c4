"""Names of kernels and of their files: different schedules have different ones, whatever they are called."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from artifact.built_folders import VERSIONS, written

from bilinear.artifact.read import read_folder
from bilinear.artifact.write import FolderOptions, output_files
from bilinear.codegen.build import build_program
from bilinear.codegen.names import REMAINDER, file_name, stem
from bilinear.frontend import load
from bilinear.ir.element import COMPILED
from bilinear.lowering.prepare import plain, prepare

NAMES = ["plain", "remainder", "remainder_l1_product_f64", "x_l1_linear1", "Msmes", "a-b", "a" * 200, "_", "_9"]
"""The names that the language allows for a schedule."""
STRANGE = ["", "a.b", "a b", "9", "é", "a" * 300, "a" * 299 + "b", "../..", "a\nb", "\ud800", "x/y", "CON."]


@pytest.mark.parametrize("name", NAMES)
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
