"""The soak finds what it shall find, tells it to be seen again, and stops at nothing; some cases of each kind, with a defect."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codegen import emulated
from runtime import pretended_gpu
from soak import command, homes
from soak.case import PASSED, REFUSED, Case, Finding
from soak.children import begin
from soak.crew import TESTS
from soak.desk import look
from soak.exact import error_of
from soak.held_up import MOST_TIMES, held_up, is_over
from soak.homes import CALLS, HOME, Pretended, skip_reason
from soak.kinds import calls, certificates
from soak.processes import MARK, marked
from soak.runner import KINDS, find_kinds, main
from soak.scene import play
from soak.worker import FINDING, attempt

import bilinear
from bilinear import cli
from bilinear.backends import array_sums
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
def test_what_is_added_ends_well(tmp_path: Path) -> None:
    """Many cases of the other kinds are what `scripts/test --slow` asks of the soak itself."""
    assert {run("own", seed, tmp_path) for seed in range(2)} <= {PASSED, REFUSED}


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_shipped_schemes_multiply_by_this_arithmetic() -> None:
    orders = {name: error_of(load(name).scheme) for name in shipped()}
    assert orders.pop("bini") == 1
    assert {name for name, order in orders.items() if order is not None} == set()


FAKES = {
    "good": "import sys\ndef run(case):\n    print('noise', flush=True)\n    return 'odd' if sys.stdin.read() else 'passed'\n",
    "some": (
        "from soak.case import Finding\ndef run(case):\n    drawn = int(case.generator().integers(1000))\n"
        "    (case.folder / 'drawn').write_text(str(drawn))\n"
        "    if drawn % 3 == 0:\n        raise Finding(f'drew {drawn}')\n    return 'refused'\n"
    ),
    "raises": "def run(case):\n    return 1 / 0\n",
    "odd": "def run(case):\n    return 'fine'\n",
    "crash": "import os\ndef run(case):\n    os.abort()\n",
    "leaves": "import os\ndef run(case):\n    os._exit(7)\n",
    "hang": "import subprocess\nMOST_SECONDS = 1\ndef run(case):\n    subprocess.run(['sleep', '1000'])\n",
    "threads": (
        "import threading, time\ndef run(case):\n    threading.Thread(target=time.sleep, args=(1000,)).start()\n    return 'passed'\n"
    ),
    "away": "def skip_reason():\n    return 'no compiler'\ndef run(case):\n    return 1 / 0\n",
}

Soak = Callable[..., tuple[int, str, dict[str, Any]]]


@pytest.fixture
def soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Soak:
    """Runs the command on the fakes: its status, what it prints, and its JSON."""
    package = f"fakes_{tmp_path.name}".replace("-", "_")
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, text in FAKES.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "scratch").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))

    def run(*words: str) -> tuple[int, str, dict[str, Any]]:
        status = main([*words, "--json", str(tmp_path / "told.json")], package)
        return status, capsys.readouterr().out, json.loads((tmp_path / "told.json").read_bytes())

    return run


def test_a_gpu_that_is_not_there_is_no_run_without_a_case(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "find_spec", lambda name: None)
    monkeypatch.setenv(homes.HOME, "numpy")
    with pytest.raises(SystemExit) as stopped:
        main(["--gpu", "1"])
    assert stopped.value.code == 2 and "--gpu: CuPy is not installed" in capsys.readouterr().err


@pytest.mark.slow
def test_what_passes_leaves_nothing(soak: Soak, tmp_path: Path) -> None:
    status, table, told = soak("1", "--kinds", "good,threads")
    assert status == 0 and not told["findings"]
    assert [kind["kind"] for kind in told["kinds"]] == ["good", "threads"]
    assert all(kind["outcomes"]["passed"] == kind["cases"] > 0 for kind in told["kinds"])
    assert table.splitlines()[0].split() == ["kind", "cases", "passed", "refused", "findings", "seconds", "slowest", "case"]
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.slow
def test_every_finding_is_told_with_its_command_and_keeps_its_files(soak: Soak) -> None:
    status, table, told = soak("1", "--kinds", "some", "--seed", "100")
    assert status == 1
    for finding in told["findings"]:
        drawn = (Path(finding["folder"]) / "drawn").read_text(encoding="utf-8")
        assert finding["text"] == f"drew {drawn}" and int(drawn) % 3 == 0
        assert finding["command"] == f"scripts/soak --case some:{finding['seed']}" and finding["seed"] >= 100
    assert told["findings"][0]["command"] in table


@pytest.mark.slow
def test_a_case_is_the_same_whenever_it_runs(soak: Soak) -> None:
    first, _, told = soak(*(word for seed in range(9) for word in ("--case", f"some:{seed}")))
    again, _, retold = soak(*(word for seed in reversed(range(9)) for word in ("--case", f"some:{seed}")))
    assert first == again == 1
    seen = [sorted((finding["seed"], finding["text"]) for finding in document["findings"]) for document in (told, retold)]
    assert seen[0] == seen[1] and 0 < len(seen[0]) < 9
    wanted = {seed for seed in range(9) if Case("some", seed, Path()).generator().integers(1000) % 3 == 0}
    assert {seed for seed, _ in seen[0]} == wanted


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("raises", "ZeroDivisionError"),
        ("odd", "run() gave 'fine'"),
        ("crash", "the process died: SIGABRT"),
        ("leaves", "the process died: exit code 7"),
        ("hang", "no end after 1 s"),
    ],
)
def test_what_must_not_happen_is_found_and_the_next_case_runs(kind: str, says: str, soak: Soak) -> None:
    status, _, told = soak("--case", f"{kind}:3", "--case", "good:1")
    assert status == 1
    (finding,) = told["findings"]
    assert (finding["kind"], finding["seed"]) == (kind, 3) and says in finding["text"]
    assert told["kinds"][1]["outcomes"] == {PASSED: 1, REFUSED: 0, FINDING: 0}


@pytest.mark.slow
def test_a_hang_says_where_and_leaves_no_process(soak: Soak) -> None:
    _, _, told = soak("--case", "hang:0")
    assert "hang.py" in told["findings"][0]["text"] and "in run" in told["findings"][0]["text"]
    sleeping = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x001000" in _read(path)]
    assert not sleeping


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
def test_kinds_share_the_time_and_what_cannot_run_is_told(soak: Soak) -> None:
    status, table, told = soak("1", "--kinds", "away,good")
    away, good = told["kinds"]
    assert status == 0 and away["cases"] == 0 and good["cases"] > 0
    assert "skipped: no compiler" in table


@pytest.mark.parametrize("words", [[], ["1", "--case", "good:1"], ["0"], ["1", "--kinds", "none"], ["1", "--processes", "0"]])
def test_what_means_nothing_is_refused(words: list[str], soak: Soak) -> None:
    with pytest.raises(SystemExit) as caught:
        soak(*words)
    assert caught.value.code == 2


@pytest.mark.slow
def test_an_interrupt_prints_the_table_of_what_was_done(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}", MARK: tmp_path.name, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "soak.runner", "100", "--kinds", "calls"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started with it ignored
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True)
    signal.signal(signal.SIGINT, before)
    until = time.monotonic() + 300
    while len([*tmp_path.rglob("printed-*")]) < 2 and time.monotonic() < until:  # a file of each worker
        time.sleep(0.1)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    table, _ = process.communicate(timeout=300)
    assert process.returncode in (130, 1) and "calls" in table
    assert not marked(tmp_path.name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["calls", "interrupts", "memory", "cache"])
def test_a_few_cases_of_each_kind(kind: str, tmp_path: Path) -> None:
    assert kind in find_kinds(KINDS)
    for seed in SOAKED[kind]:
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert attempt(KINDS, kind, seed, folder)[0] in (PASSED, REFUSED)


SOAKED = {"calls": (0, 1, 2, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15), "interrupts": (0, 1, 4), "memory": (0, 1, 3, 11), "cache": (4, 5)}


def findings(seeds: range, folder: Path) -> list[str]:
    found = []
    for seed in seeds:
        try:
            calls.run(Case("calls", seed, folder))
        except Finding as finding:
            found.append(str(finding))
    return found


@pytest.mark.slow
def test_a_wrong_multiply_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = array_sums.ElementArithmetic.multiply

    def wrong(own: Any, left: Any, right: Any, out: Any) -> None:
        real(own, left, right, out)
        if out.dtype.kind == "f" and out.size > 40:
            out[-1, -1] += 1

    monkeypatch.setattr(array_sums.ElementArithmetic, "multiply", wrong)
    assert any("wrong" in text or "off by" in text for text in findings(range(60), tmp_path))


@pytest.mark.slow
def test_a_write_to_an_operand_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = array_sums.ElementArithmetic.multiply

    def writing(own: Any, left: Any, right: Any, out: Any) -> None:
        real(own, left, right, out)
        if left.flags.writeable and left.size:
            left[0, 0] = left[0, 0] + 1

    monkeypatch.setattr(array_sums.ElementArithmetic, "multiply", writing)
    assert any("was written" in text or "restor" in text for text in findings(range(60), tmp_path))


@pytest.mark.slow
def test_a_lost_nan_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = array_sums.ElementArithmetic.multiply

    def cleaning(own: Any, left: Any, right: Any, out: Any) -> None:
        real(own, np.nan_to_num(left) if left.dtype.kind == "f" else left, right, out)

    monkeypatch.setattr(array_sums.ElementArithmetic, "multiply", cleaning)
    assert any("are wrong" in text and "hostile" in text for text in findings(range(400), tmp_path))


def test_a_child_that_has_ended_is_not_interrupted(tmp_path: Path) -> None:
    """Where a signal on its way found SIG_IGN, Python would print a traceback, which looks like one of the product's."""

    class Last(io.StringIO):
        def flush(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            (tmp_path / "handled").write_text(str(callable(signal.getsignal(signal.SIGINT))))

    def work() -> None:
        sys.stdout = Last()

    child = begin(work, tmp_path / "printed")
    assert (child.wait(), child.text, (tmp_path / "handled").read_text()) == (0, "", "True")


def test_what_others_took_is_not_counted() -> None:
    assert not is_over(59, 0, 60)
    assert is_over(61, 0, 60)
    assert not is_over(61, 2, 60)
    assert is_over(61 * MOST_TIMES, 61 * MOST_TIMES, 60)


def test_a_process_that_is_gone_was_not_held_up() -> None:
    assert held_up(os.getpid()) >= 0
    assert held_up(2**22 + 1) == 0
