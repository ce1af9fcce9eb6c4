"""A description of processors names a device wherever plans are made: the one kept here, as `cpu`, and one in a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from planner.test_cpu import FAST
from runtime.test_auto_cpu import EAGER, _forget, describe
from shell import Shell

import bilinear
from bilinear.errors import BilinearError
from bilinear.planner.cpu import Cpu
from bilinear.planner.device_files import cpu_json, load_description, load_device
from bilinear.runtime import devices_here

__all__ = ["_forget"]


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file of `bilinear tune --cpu -o`."""
    path = tmp_path / "cpu.json"
    path.write_text(cpu_json(EAGER))
    return str(path)


def test_a_file_plans_as_what_is_kept(file: str) -> None:
    describe()
    kept, own = (bilinear.plan(256, 256, 256, device=device) for device in ("cpu", file))
    assert own.chosen == kept.chosen and own.chosen.levels == ("w_mm",) and own == bilinear.plan(256, 256, 256, device=EAGER)


def test_plan_explains_on_processors(shell: Shell, file: str) -> None:
    describe()
    for device in ("cpu", file):
        status, out, err = shell("plan", "--device", device, "--shape", "256", "--explain")
        assert status == 0 and not err
        assert "w_mm, 1 level" in out and "error bound" in out and "bound by" not in out


def test_a_chain_is_ordered_by_times_of_processors(shell: Shell, file: str) -> None:
    describe()
    for device in ("cpu", file):
        status, out, _ = shell("plan", "--chain", "1000x20x3000x50", "--device", device)
        assert status == 0 and "predicted" in out and "A1 (A2 A3)" in out
        assert bilinear.plan_chain([(1000, 20), (20, 3000), (3000, 50)], device=device).by == "seconds"
    assert bilinear.plan_chain([(10, 20), (20, 30)], "float32", device=file).by == "multiplications"


def test_blocks_of_a_gram_product_are_chosen_from_a_file(file: str) -> None:
    assert bilinear.plan_gram(256, 256, device=file).device == EAGER.name


def test_what_needs_a_gpu_refuses_processors(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BilinearError, match=r"E542.*describes processors, not a GPU"):
        load_device(file)
    monkeypatch.setenv("BILINEAR_DEVICE", file)
    devices_here._described.cache_clear()
    with pytest.raises(BilinearError, match=r"(?s)E542.*BILINEAR_DEVICE names it"):
        bilinear.plan(256, 256, 256)
    devices_here._described.cache_clear()


def test_a_file_that_changed_is_read_again(file: str) -> None:
    first = load_description(file)
    Path(file).write_text(cpu_json(replace(FAST, name="another")))
    second = load_description(file)
    assert isinstance(first, Cpu) and isinstance(second, Cpu) and (first.name, second.name) == (EAGER.name, "another")
    Path(file).write_text("{}")
    with pytest.raises(BilinearError, match="E542"):
        load_description(file)
