"""`auto` on arrays in the host's memory: the library without a description, and with one, kept here or in a file, the plan that gains."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from planner.test_cpu import FAST, RATES
from runtime.test_auto import Counting
from shell import Shell

import bilinear
from bilinear.backends import doctor
from bilinear.backends.machine import cpu_name, library_name
from bilinear.errors import BilinearError
from bilinear.planner.cpu import Cpu
from bilinear.planner.device_files import cpu_json, load_description, load_device
from bilinear.planner.kept_plans import keep_cpu
from bilinear.runtime import auto, devices_here, run

EAGER = replace(FAST, touching=1e6, stage=0.0, elements=(("float64", replace(RATES, library=((1.0, 1e-3),), slack=((128.0, 1.0),))),))
"""A library so slow that every level gains, from blocks of 128 on; nothing is known of float32."""
N = 256


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    devices_here._described_cpu.cache_clear()
    yield
    devices_here._described_cpu.cache_clear()


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The schedules that run."""
    plans: list[tuple[str, int]] = []
    monkeypatch.setattr(run, "make_executor", lambda kind: Counting(plans))
    monkeypatch.delenv("BILINEAR_USE_LIBRARY", raising=False)
    return plans


def describe(cpu: Cpu = EAGER) -> None:
    """Keep a description for the processors here."""
    keep_cpu(replace(cpu, name=cpu_name(), library=library_name()))
    devices_here._described_cpu.cache_clear()


def operands(m: int = N, k: int = N, n: int = N, dtype: str = "float64") -> tuple[Any, Any]:
    generator = np.random.default_rng(m + n)
    return generator.integers(-4, 5, (m, k)).astype(dtype), generator.integers(-4, 5, (k, n)).astype(dtype)


def test_without_a_description_the_library_runs(ran: list[tuple[str, int]]) -> None:
    a, b = operands()
    assert np.array_equal(bilinear.matmul(a, b), a @ b) and not ran


@each("shape", [(256, 256, 256), (300, 257, 513)])
@each("orders", ["CC", "FC", "CF", "FF"])
def test_with_one_the_chosen_schedule_runs(ran: list[tuple[str, int]], shape: tuple[int, int, int], orders: str) -> None:
    describe()
    a, b = (np.asarray(x, order=order) for x, order in zip(operands(*shape), orders, strict=True))  # type: ignore[call-overload]
    out = np.full((shape[0], shape[2]), np.nan)
    assert np.array_equal(bilinear.matmul(a, b), a @ b)
    assert bilinear.matmul(a, b, out) is out and np.array_equal(out, a @ b)
    chosen = bilinear.plan(*shape, device="cpu").chosen
    assert chosen.levels == ("w_mm",) and set(ran) - {("plain", 1)} == {("winograd", 1)}


def test_an_accuracy_chooses_among_schedules(ran: list[tuple[str, int]]) -> None:
    describe()
    a, b = operands()
    assert np.array_equal(bilinear.matmul(a, b, accuracy="classical"), a @ b) and not ran
    with pytest.raises(BilinearError, match="E519"):
        bilinear.matmul(a, b, accuracy=1e-40)
    assert np.array_equal(bilinear.matmul(a, b, accuracy=1.0), a @ b) and ("winograd", 1) in ran


def test_a_part_of_a_larger_matrix_runs_where_it_lies(ran: list[tuple[str, int]]) -> None:
    describe()
    a, b = operands(300, 300, 300)
    a, b, out = a[10:270, :260], b[:260, 40:300], np.zeros((300, 300))[20:280, 5:265]
    bilinear.matmul(a, b, out)
    assert np.array_equal(out, a @ b) and ran


def test_what_a_schedule_would_not_gain_on_is_the_librarys(ran: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    describe()
    a, b = operands(2 * N, 2 * N, 2 * N)
    half, small, c = np.stack([a, a]), a[:255], np.ones_like(a)
    want = a @ b
    assert np.array_equal(bilinear.matmul(half, b), half @ b)
    assert np.array_equal(bilinear.matmul(small, b), small @ b)
    assert np.array_equal(bilinear.matmul(a.astype("f4"), b.astype("f4")), want)
    assert np.array_equal(bilinear.matmul(a.astype("i8"), b.astype("i8")), want)
    assert np.array_equal(bilinear.matmul(a, b.astype("f4")), want)
    assert np.array_equal(bilinear.matmul(a.astype(">f8"), b), want)
    assert np.array_equal(bilinear.matmul(a, b, alpha=2), 2 * want)
    assert np.array_equal(bilinear.matmul(a, b, c, beta=3), want + 3)
    assert np.array_equal(bilinear.matmul(a[::2, ::2], b[::2, ::2]), a[::2, ::2] @ b[::2, ::2])
    assert np.array_equal(bilinear.matmul(np.broadcast_to(a[:1], a.shape), b), np.broadcast_to(a[:1], a.shape) @ b)
    assert np.array_equal(bilinear.matmul(a, b, levels=0), want)
    assert np.array_equal(bilinear.matmul(a, b, workspace="none"), want)
    masked = np.ma.masked_array(a, a > 3)
    assert np.array_equal(np.asarray(bilinear.matmul(masked, b)), np.asarray(np.matmul(masked, b)))
    monkeypatch.setenv("BILINEAR_USE_LIBRARY", "1")
    assert np.array_equal(bilinear.matmul(a, b), want)
    assert not ran
    monkeypatch.delenv("BILINEAR_USE_LIBRARY")
    d = a.copy()
    assert np.array_equal(bilinear.matmul(d, b, d), want) and not ran, "out is an operand"


def test_a_kept_workspace_is_used_and_its_size_limits_the_plan(ran: list[tuple[str, int]]) -> None:
    describe(replace(EAGER, touching=1e-6))
    (a, b), kept = operands(), np.zeros(2 * 128 * 128 * 8 + 4096, np.uint8)
    assert np.array_equal(bilinear.matmul(a, b), a @ b) and not ran, "fresh memory is too slow"
    assert np.array_equal(bilinear.matmul(a, b, workspace=kept), a @ b) and ran and kept.any()
    ran.clear()
    assert np.array_equal(bilinear.matmul(a, b, workspace=kept[:1000]), a @ b) and not ran


def test_the_library_runs_where_there_is_no_memory(
    ran: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    describe()

    def none(self: Any, elements: int, dtype: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Counting, "allocate", none)
    a, b = operands()
    with caplog.at_level(logging.INFO, "bilinear"):
        assert np.array_equal(bilinear.matmul(a, b), a @ b) and not ran
    assert "w_mm cannot run" in caplog.text


def test_a_choice_is_told_once(ran: list[tuple[str, int]], caplog: pytest.LogCaptureFixture) -> None:
    describe()
    auto._logged.cache_clear()
    a, b = operands()
    with caplog.at_level(logging.INFO, "bilinear"):
        for _ in range(2):
            bilinear.matmul(a, b)
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("auto, ")]
    assert len(told) == 1 and "256 x 256 x 256 of float64" in told[0] and "times as fast as the library" in told[0]


def test_plan_says_what_auto_runs(ran: list[tuple[str, int]]) -> None:
    with pytest.raises(BilinearError, match=r"E554.*no description of the processors here"):
        bilinear.plan(N, N, N, device="cpu")
    describe()
    found = bilinear.plan(N, N, N, device="cpu", explain=True)
    assert found.chosen.levels == ("w_mm",) and found.device == cpu_name() and found.chosen.error is not None
    a, b = operands()
    assert np.array_equal(bilinear.matmul(a, b, plan=found), a @ b) and ran == [("winograd", 1)]
    with pytest.raises(BilinearError, match=r"E543.*levels and products pin a plan for a GPU"):
        bilinear.plan(N, N, N, device="cpu", levels=("winograd",))


@pytest.mark.parametrize("dtype", ["int8", "foo"])
def test_only_types_that_are_planned_for_processors_are_offered(dtype: str) -> None:
    with pytest.raises(BilinearError) as caught:
        bilinear.plan(N, N, N, dtype, device="cpu")
    offered = "\n  hint: choose one of float64, float32: these are planned for processors"
    assert str(caught.value) == f"error[E543]: no plans for dtype='{dtype}'{offered}"


def test_doctor_says_whether_the_processors_are_described() -> None:
    (before,) = (ability for ability in doctor.examine() if ability.what == "plan for the processors")
    assert not before.usable and before.remedy == "bilinear tune --cpu --keep"
    describe()
    (after,) = (ability for ability in doctor.examine() if ability.what == "plan for the processors")
    assert after.usable and cpu_name() in after.detail and not after.remedy


def test_a_description_of_other_processors_is_not_used(ran: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    describe()
    cpu_name.cache_clear()
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1" if "OPENBLAS_NUM_THREADS=1" not in cpu_name() else "2")
    cpu_name.cache_clear()
    try:
        a, b = operands()
        assert np.array_equal(bilinear.matmul(a, b), a @ b) and not ran
    finally:
        monkeypatch.undo()
        cpu_name.cache_clear()


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
