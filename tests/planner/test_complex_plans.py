"""Plans of complex matrices: what they need is exact, what they promise is kept, and they run."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import bilinear
from bilinear.analysis.accuracy import run_error_bound
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.element import COMPLEX
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import Level, prepare_complex
from bilinear.methods.planning import complex_plan, make_plan, plan_from_json
from bilinear.planner.choose import hashes_of
from bilinear.planner.device_files import load_device
from bilinear.planner.kept_plans import plan_json
from bilinear.planner.pinned import PRODUCTS
from bilinear.planner.plan import LIBRARY, Candidate, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.scheduled import Scheduled
from bilinear.planner.ways import OF_PARTS, Way, lowered

DESCRIBED = load_device("h200")
H200 = replace(DESCRIBED, digits=())  # Most tests are about schedules beside the library's multiply.
LARGE = Problem(8192, 8192, 8192, "complex128")


def levels_of(candidate: Candidate) -> tuple[Level, ...]:
    loaded = [load(name) for name in candidate.levels]
    return tuple(Level(x.scheme, x.schedule) for x in loaded)


def library_of(plan: Plan) -> Candidate:
    return next(c for c in plan.candidates if c.strategy == LIBRARY)


def test_the_library_is_taken_to_do_four_products_and_ways_do_three() -> None:
    plan, real = complex_plan(LARGE, H200), make_plan(replace(LARGE, dtype="float64"), H200)
    library, chosen = library_of(plan), plan.chosen
    assert library.ms == pytest.approx(PRODUCTS * (library_of(real).ms or 0))
    assert chosen.levels and (library.ms or 0) > (1 + H200.policy.least_gain_complex) * (chosen.ms or 0)
    assert 2.5 < (chosen.ms or 0) / min(c.ms or 1e9 for c in real.candidates if c.levels == chosen.levels) < 3.5
    small = complex_plan(Problem(256, 256, 256, "complex64"), H200)
    assert small.is_library and len(small.candidates) == 1


def test_schedules_are_weighed_only_where_products_of_digits_may_lose() -> None:
    weighed = set()
    for shape in ((4096, 4096, 4096), (1024, 4096, 2048)):
        for dtype, accuracy in product(COMPLEX, (None, "classical")):
            plans = [complex_plan(Problem(*shape, dtype, accuracy=accuracy), DESCRIBED, explain) for explain in (False, True)]
            assert len({(plan.chosen.name, plan.chosen.ms) for plan in plans}) == 1
            weighed.add(tuple(any(isinstance(c.choice, Scheduled) for c in plan.candidates) for plan in plans))
    assert weighed == {(False, True), (True, True)}


def test_short_products_are_the_librarys_unless_digits_halve_its_time() -> None:
    for shape, dtype, name in (
        ((700, 7000, 5000), "complex64", "gaussian7"),
        ((700, 7000, 5000), "complex128", "library"),
        ((512, 512, 512), "complex64", "library"),
        ((1024, 4096, 2048), "complex128", "gaussian15"),
    ):
        plan = complex_plan(Problem(*shape, dtype), DESCRIBED)
        assert plan.chosen.name == name, shape
        assert min(shape) >= 1024 or name == "library" or 2 * (plan.chosen.ms or 0) < (library_of(plan).ms or 0)


@pytest.mark.slow
def test_workspace_and_errors_are_those_of_the_schedule_that_runs() -> None:
    plan = complex_plan(replace(LARGE, dtype="complex64"), H200, explain=True)
    for candidate in plan.candidates:
        if candidate.levels:
            schedule = lowered(Way(candidate.levels, OF_PARTS))[0]
            assert candidate.workspace == place_schedule(schedule, 8192, 8192, 8192, 4).workspace_elements * 4
            assert candidate.error == pytest.approx(2.0**-24 * run_error_bound(schedule, 8192, 2.0**-24).product)
            assert (candidate.probable or 0) >= 2**0.5 * 0.99
    assert library_of(plan).probable == 1


def test_plans_lower_what_is_proved() -> None:
    for names in (("winograd",), ("split_k",), ("winograd", "dps_444")):
        levels = levels_of(Candidate(Scheduled(names)))
        assert lowered(Way(names, OF_PARTS))[0] == prepare_complex(levels)


@pytest.mark.slow
def test_limits_are_kept() -> None:
    assert complex_plan(replace(LARGE, workspace=0), H200).is_library
    tight = complex_plan(replace(LARGE, workspace=2**30), H200)
    assert all((c.workspace or 0) <= 2**30 for c in tight.candidates if not c.why.startswith("needs"))
    assert complex_plan(replace(LARGE, accuracy="classical"), H200).is_library
    precise = complex_plan(replace(LARGE, accuracy=1e-7), H200)
    assert (precise.chosen.error or 1) <= 1e-7
    with pytest.raises(BilinearError, match="E519"):
        complex_plan(replace(LARGE, accuracy=1e-16), H200)


@pytest.mark.sample(0)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_digits_that_are_faster_hide_no_ways(dtype: str) -> None:
    """Products of digits of the real type end no search; schedules that are slower than they are stay."""
    found = complex_plan(Problem(8192, 8192, 8192, dtype), DESCRIBED, explain=True)
    assert found.chosen.strategy == "digits" and any("winograd" in c.levels and c.strategy != "digits" for c in found.candidates)
    assert all(c.error and c.probable for c in found.candidates if not c.why.startswith("blocks"))


def test_plans_come_back_from_files_and_run() -> None:
    plan = bilinear.plan(300, 200, 250, "complex128", device="h200")
    wanted = next(c for c in complex_plan(LARGE, H200).candidates if c.levels == ("classical",))
    plan = replace(plan, candidates=(wanted, *plan.candidates), sha256=hashes_of(wanted))
    assert plan_from_json(plan_json(plan), "plan.json").problem == plan.problem
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-9, 10, s) + 1j * generator.integers(-9, 10, s) for s in ((300, 200), (200, 250)))
    np.testing.assert_array_equal(bilinear.matmul(a, b, plan=plan), a @ b)
    with pytest.raises(BilinearError, match="E544"):
        bilinear.matmul(a.astype("complex64"), b.astype("complex64"), plan=plan)


@pytest.mark.parametrize("options", [{"device": "cpu"}, {"device": "cpu", "levels": ["winograd"]}, {"device": "cpu", "products": "pairs"}])
def test_what_is_not_planned_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(BilinearError, match="E786"):
        bilinear.plan(512, 512, 512, "complex64", **options)  # type: ignore[arg-type]
