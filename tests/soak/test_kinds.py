"""The kinds of the soak: a few cases of each, and a planted defect that each must find."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codegen import emulated
from runtime import pretended_gpu
from soak import command
from soak.case import PASSED, REFUSED, Case, Finding
from soak.desk import look
from soak.exact import error_of
from soak.homes import CALLS, HOME, Pretended, skip_reason
from soak.kinds import certificates
from soak.scene import play

import bilinear
from bilinear import cli
from bilinear.codegen.render import render
from bilinear.errors import BilinearError, Diagnostic
from bilinear.frontend import load
from bilinear.frontend.algorithms import shipped
from bilinear.ir.launch import Kernel
from bilinear.methods.digits.integers import moduli_for_integers
from bilinear.runtime import integers, multi_dot
from bilinear.runtime.check import Checked
from bilinear.verify import schedule as proofs
from bilinear.verify.scheme import SchemeProof

SEEDS: dict[str, Iterable[int]] = {
    "bits": range(20),
    "certificates": range(12),
    "chains": range(60),
    "checked": range(20),
    "digits": range(8),
    "folders": range(6),
    "formats": range(20),
    "gram": range(60),
    "kernels": range(3),
    "language": range(12),
    "maps": range(6),
    "modulus": range(40),
    "own": range(2),
    "parts": range(20),
    "places": range(6),
    "plans": range(20),
    "prepared": range(40),
    "products": range(60),
    "schedules": range(12),
    "sums": range(60),
}


def run(kind: str, seed: int, folder: Path) -> str:
    """What a case ends as; the test is skipped where its kind cannot run."""
    module: Any = import_module(f"soak.kinds.{kind}")
    why = module.skip_reason() if hasattr(module, "skip_reason") else None
    if why:
        pytest.skip(why)
    place = folder / f"{kind}-{seed}"
    place.mkdir()
    case = Case(kind, seed, place)
    return play(case, module.act) if kind in CALLS else str(module.run(case))


def found(kind: str, seeds: Iterable[int], folder: Path) -> str:
    """The first finding of some cases."""
    for seed in seeds:
        try:
            run(kind, seed, folder)
        except Finding as finding:
            return str(finding)
    pytest.fail(f"{kind} finds nothing")


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEEDS)
def test_cases_end_well(kind: str, tmp_path: Path) -> None:
    assert {run(kind, seed, tmp_path) for seed in SEEDS[kind]} <= {PASSED, REFUSED}


@pytest.mark.parametrize("kind", ["certificates", "formats", "language"])
def test_a_seed_says_all_that_a_case_does(kind: str, tmp_path: Path) -> None:
    """Whatever ran before it."""
    folders = tmp_path / "first", tmp_path / "second"
    for number, folder in enumerate(folders):
        folder.mkdir()
        for seed in range(number, 5):
            run(kind, seed, folder)
    first, second = (look(folder / f"{kind}-4") for folder in folders)
    assert first and first == second


def test_intermediates_of_too_narrow_a_type_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, narrow = multi_dot._run, np.dtype("int8")
    wrong = lambda plan, matrices, dtype, *rest: right(plan, matrices, narrow if dtype.kind == "i" else dtype, *rest)  # noqa: E731
    monkeypatch.setattr(multi_dot, "_run", wrong)
    assert re.search("the result is|are wrong", found("chains", range(200), tmp_path))


def _wrong(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, which then changes an element of its result."""

    def called(*given: Any, **options: Any) -> Any:
        result = call(*given, **options)
        if isinstance(result, Checked):
            return replace(result, bound=0.0)
        first = result[0] if isinstance(result, tuple) else result
        if isinstance(first, np.ndarray) and first.size:
            first.flat[0] += 1
        return result

    return called


def _writing(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, which has written an operand where it is refused."""

    def called(*given: Any, **options: Any) -> Any:
        try:
            return call(*given, **options)
        except BilinearError:
            arrays = [array for x in given for array in (x if isinstance(x, list | tuple) else [x]) if isinstance(array, np.ndarray)]
            for array in arrays:
                if array.size and array.flags.writeable:
                    array.flat[0] += 1
            raise

    return called


PLANTED: list[tuple[Callable[..., Any], str, str]] = [
    *((_wrong, "are wrong|is off by", kind) for kind in CALLS),
    *((_writing, "refused call has changed", kind) for kind in CALLS if kind != "checked"),  # of which none is refused
]


@pytest.mark.parametrize(("planted", "words", "kind"), PLANTED)
def test_wrong_products_and_refusals_that_have_written_are_found(
    planted: Callable[..., Any], words: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matmul", "matmul_bits", "matmul_parts", "gram", "einsum", "tensordot", "multi_dot", "check"):
        monkeypatch.setattr(bilinear, name, planted(getattr(bilinear, name)))
    assert re.search(words, found(kind, range(200), tmp_path))


@pytest.mark.slow
def test_a_graph_that_computes_something_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(home: Pretended, call: Callable[[], Any]) -> Any:
        result = right(home, call)
        result.host.flat[:1] += 1
        return result

    right = Pretended.captured
    monkeypatch.setattr(Pretended, "captured", spoiled)
    monkeypatch.setenv(HOME, "pretended")
    why = skip_reason()
    if why:
        pytest.skip(why)
    assert "captured in a graph" in found("products", range(60), tmp_path)


def test_a_plan_that_its_file_changes_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = bilinear.load_plan
    monkeypatch.setattr(bilinear, "load_plan", lambda path: replace(load(path), device="another"))
    assert "the plan is another" in found("plans", range(20), tmp_path)


def test_a_reader_that_writes_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "main", lambda: Path("published/list.json").write_text("{}"))
    assert "a reader has written" in found("folders", range(20), tmp_path)


@pytest.mark.slow
def test_an_addition_that_adds_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "main", lambda: None)
    assert "was added" in (text := found("own", range(40), tmp_path)) or "not there" in text


def test_a_gate_that_lets_all_pass_is_found_in_files_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SchemeProof, "holds", property(lambda proof: True))
    assert "does not multiply" in found("formats", range(200), tmp_path)


def test_gates_that_let_all_pass_are_found_in_the_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of them: what a scheme is lowered to is proved as well."""
    monkeypatch.setattr(SchemeProof, "holds", property(lambda proof: True))
    monkeypatch.setattr(proofs, "_wrong_results", lambda run: [])
    assert "is proved and does not multiply" in found("language", range(200), tmp_path)


def test_a_proof_that_does_not_look_at_c_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "_wrong_results", lambda run: [])
    assert "a wrong schedule is proved" in found("schedules", range(60), tmp_path)


def test_a_proof_that_does_not_look_at_a_and_b_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prove = proofs.prove_schedule
    monkeypatch.setattr(proofs, "prove_schedule", lambda *asked: replace(prove(*asked), restored=("A", "B")))
    monkeypatch.setattr(proofs, "_broken_promises", lambda run, fates: [])
    text = found("schedules", range(200), tmp_path)
    assert "come back" in text


def test_a_proof_that_refuses_what_is_right_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prove, no = proofs.prove_schedule, (Diagnostic("E406", "no"),)
    monkeypatch.setattr(proofs, "prove_schedule", lambda *asked: replace(prove(*asked), failures=no))
    assert "a right schedule is refused" in found("schedules", range(60), tmp_path)


@pytest.mark.parametrize(("names", "words"), [(("check_scheme",), "an untrue"), (("require",), "an untrue")])
def test_a_checker_that_believes_is_found(names: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checker = certificates._checker()
    believes: dict[str, Callable[..., Any]] = {
        "require": lambda holds, message: None,
        "check_scheme": lambda entry: checker.Ring(entry["ring"]),
    }
    for name in names:
        monkeypatch.setattr(checker, name, believes[name])
    assert words in found("certificates", range(200), tmp_path)


def test_a_guard_that_is_off_by_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(kernel: Kernel) -> str:
        text = render(kernel)
        return text.replace("< columns)", "<= columns)")

    monkeypatch.setattr(emulated, "render", wrong)
    emulated.emulated_launches.cache_clear()
    try:
        assert found("kernels", range(12), tmp_path)
    finally:
        emulated.emulated_launches.cache_clear()


def test_a_product_that_does_not_wait_for_its_operands_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretended_gpu, "RUNS", "text")
    monkeypatch.setattr(pretended_gpu, "render", lambda kernel: render(kernel).replace("barrier_wait(&full[s], parity);", ""))
    assert "has yet to bring the operand" in found("digits", range(8), tmp_path)


@pytest.mark.slow
def test_a_modulus_too_few_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = moduli_for_integers
    monkeypatch.setattr(integers, "moduli_for_integers", lambda *sizes: right(*sizes)[:-1] or right(*sizes))
    assert "are wrong" in found("maps", range(60), tmp_path)


def test_a_writer_that_ignores_refusals_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = cli.main

    def writes() -> None:
        try:
            main()
        finally:
            place = Path(sys.argv[-1])
            if place.is_file():
                place.write_text("a report")

    monkeypatch.setattr(cli, "main", writes)
    assert "lost: " in found("places", range(60), tmp_path)


def test_what_is_left_behind_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = cli.main

    def litters() -> None:
        Path("tmp12345").write_text("half a report")
        main()

    monkeypatch.setattr(cli, "main", litters)
    assert "left behind" in found("places", range(60), tmp_path)


def _refuse(text: str, status: object = 1) -> None:
    print(text, file=sys.stderr)
    sys.exit(status)  # type: ignore[arg-type]


def _spin() -> None:
    while True:
        pass


MANNERS: list[tuple[Callable[[], object], str]] = [
    (lambda: 1 // 0, "a traceback"),
    (lambda: _refuse("error: out of memory"), "refused without a code"),
    (lambda: _refuse("error[E100]: no", 3), "status 3"),
    (lambda: _refuse("error[E100]: no", 0), "an error with status 0"),
    (lambda: print("\x1b[31m"), "a control character"),
    (lambda: print("a\u202eb"), "a control character"),
    (_spin, "no answer"),
]


@pytest.mark.parametrize(("main", "words"), MANNERS)
def test_manners_that_no_answer_may_have(main: Callable[[], object], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "main", main)
    with pytest.raises(Finding, match=words):
        command.call("verify", "x.bl", seconds=0.2)


def test_a_refusal_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "main", lambda: _refuse("x.bl:1:2: error[E101]: no"))
    answer = command.call("verify", "x.bl")
    assert (answer.verdict, answer.codes) == (REFUSED, ("E101",))


def test_the_shipped_schemes_multiply_by_this_arithmetic() -> None:
    orders = {name: error_of(load(name).scheme) for name in shipped()}
    assert orders.pop("bini") == 1
    assert {name for name, order in orders.items() if order is not None} == set()
