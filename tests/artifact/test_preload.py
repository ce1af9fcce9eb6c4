"""The stand-in for cuBLAS before programs that know nothing of it, with a cuBLAS in the host's memory: exact integers, and what is told."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from shell import Shell

from bilinear.artifact import preload
from bilinear.backends import shared_library
from bilinear.codegen.cache import Cache
from bilinear.errors import BilinearError
from bilinear.methods.planning import same_bits_plan
from bilinear.planner.device_files import load_device
from bilinear.planner.problem import Problem
from bilinear.runtime import devices_here, standin
from bilinear.runtime.auto import plan

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None or sys.platform != "linux", reason="no gcc")
STRICT = ("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror")
STRASSEN = {"BILINEAR_LEAST": "100", "BILINEAR_ALGORITHM": "strassen"}
NEW = {"plain", "batched", "syrk", "77"}  # of these kinds of product no other function was called before
PASSING = {"bias", "pedantic", "TF32", "pointers", "second", "half"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two versions of the library, a program that is linked with one and a library with the other."""
    made = tmp_path_factory.mktemp("cublas")
    for name, what, shared in (("libcublas.so.13", "program", ()), ("libcublas.so.12", "user.so", ("-shared", "-fPIC"))):
        library = (f"-Wl,-soname,{name}", str(HERE / "fake_cublas.c"), "-o", str(made / name))
        user = (str(HERE / "preloaded.c"), str(made / name), f"-Wl,-rpath,{made}", "-pthread", "-o", str(made / what))
        subprocess.run([*STRICT, "-shared", "-fPIC", *library], check=True)
        subprocess.run([*STRICT, *shared, *user], check=True)
    return made


def run(*program: object, by: tuple[str, ...] = (), variables: dict[str, str]) -> str:
    """What a program prints, by `bilinear run-with` with these options, or alone."""
    words = [*by, *map(str, program)]
    done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def with_it(*options: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "bilinear", "run-with", *options, "--")


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", ["alone", "strassen", "measured", "skipped"])
def test_calls_of_all_functions_are_exact(way: str, folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = ("--log", str(log), "--measure") if way == "measured" else ()
    by, variables = (
        () if way == "alone" else with_it(*options),
        STRASSEN | ({"BILINEAR_SKIP": "*64:* float32:*"} if way == "skipped" else {}),
    )
    libraries = folder / "libcublas.so.13", folder / "libcublas.so.12"
    found = json.loads(run(sys.executable, HERE / "standin_calls.py", *libraries, by=by, variables=variables))
    assert len(found) == 130
    for *what, multiplied, exact in found:
        is_ours = way != "alone" and not PASSING & set(what) and what[3:6] != ["2", "2", "2"] and (way != "skipped" or what[0] == "Z")
        is_new = what == ["S", "again"] or (bool(NEW & set(what)) and float(what[7]) == 0)
        first = (6 if "batched" in what else 2) * (way == "measured" and is_new)
        assert exact and (multiplied == first) == is_ours, (what, multiplied)  # cuBLAS multiplies twice for its time
    if way == "measured":
        told = [json.loads(line) for line in log.read_text().splitlines()]
        ours = [line for line in told if line["plan"] != "library"]
        assert len(ours) == 122 and all(line["measured_ms"] > 0 for line in ours)
        assert 30 < sum("library_measured_ms" in line for line in ours) < 60
        assert [line["why"] for line in told if line["dtype"] == "float16"] == ["no gain is known for float16"]
        assert {line.get("triangle") for line in ours} == {None, "lower", "upper"}


@pytest.mark.slow
def test_a_program_without_python_gets_one(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run(folder / "program", variables=STRASSEN) == "10 0\n"
    assert run(folder / "program", by=with_it("--log", str(log)), variables=STRASSEN).endswith(" 0\n")
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert told[0].items() >= {"shape": [24, 24, 24], "dtype": "float64", "operations": "NT", "plan": "strassen"}.items()
    assert 2 <= len(told) <= 10 and 0 < told[0]["bound"] < 1e-12  # what comes while Python begins is cuBLAS's
    wrong = {"LD_PRELOAD": str(preload.standin_library()), "BILINEAR_LOG": str(log), "BILINEAR_ALGORITHM": "nosuch", "BILINEAR_LEAST": "1"}
    assert run(folder / "program", variables=wrong) == "10 0\n"
    assert "did not begin" in log.read_text()


def test_each_of_two_copies_gets_its_own_handles(folder: Path, tmp_path: Path) -> None:
    program = (
        "import ctypes, sys; one = ctypes.CDLL(sys.argv[1]); one.cublasCreate_v2(ctypes.byref(ctypes.c_void_p())); one.cublasDgemm_v2;"
        "ctypes.CDLL(sys.argv[2]).main()"
    )
    words = (sys.executable, "-c", program, folder / "libcublas.so.13", folder / "user.so")
    assert run(*words, by=with_it("--log", str(tmp_path / "log")), variables=STRASSEN) == run(*words, variables=STRASSEN) == "10 0\n"
    assert "two copies of cuBLAS are in use" in (tmp_path / "log").read_text()


def test_the_text_compiles_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "standin.c").write_text(preload.standin_source())
    subprocess.run([*STRICT, *shared_library.FLAGS, str(tmp_path / "standin.c"), "-o", str(tmp_path / "standin.so")], check=True)


def test_a_library_that_was_changed_is_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shared_library, "default_cache", lambda: Cache(tmp_path))  # not the one whose library other processes have loaded
    place = preload.standin_library()
    whole = place.read_bytes()
    place.write_bytes(whole[:-1] + b"x")
    assert preload.standin_library() == place and place.read_bytes() == whole
    monkeypatch.setenv("CC", "false")
    with pytest.raises(BilinearError, match=r"E614.*false cannot build"):
        preload.standin_library()


def product(adds: float) -> tuple[standin.OfferedProduct, Any]:
    """C = A * B + beta * C of 8 x 8 matrices."""
    memory = np.ones((3, 8, 8))
    a, b, c = (x.ctypes.data for x in memory)
    extents = dict(zip(standin.KEY, (1, 0, 0, 8, 8, 8, 8, 8, 8, 0, 0, 0, 1, 0, adds != 0, 0, 0), strict=True))
    return standin.OfferedProduct(**extents, a=a, b=b, c=c, alpha=(1, 0), beta=(adds, 0)), memory


@pytest.mark.parametrize(
    ("adds", "error", "answer"),
    [
        (0, None, standin.MULTIPLIED),
        (0, RuntimeError("a launch failed"), standin.PASSES),
        (2, MemoryError("full"), standin.PASSES),
        (2, RuntimeError("a launch failed"), standin.FAILED),
    ],
)
def test_what_may_be_half_written_is_not_left_to_cublas(
    adds: float, error: Exception | None, answer: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(standin, "_module", lambda: np)  # another test's process may hold a driver
    one = standin.StandIn({"BILINEAR_ALGORITHM": "strassen", "BILINEAR_LOG": str(tmp_path / "log")})
    given, memory = product(adds)
    if error is not None:

        def fails(*_: object) -> None:
            raise error

        monkeypatch.setattr(standin, "matmul_arrays", fails)
    assert one.answer(given) == answer
    assert (memory[2] == (8 if error is None else 1)).all()
    told = json.loads((tmp_path / "log").read_text())
    assert told["why"] == ("BILINEAR_ALGORITHM names it" if error is None else str(error))


def test_the_same_bits_keep_the_accuracy_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that is described; nothing is launched."""
    h100 = load_device("h100")
    monkeypatch.setattr(standin, "kind_of", lambda *_: SimpleNamespace(on_gpu=True))
    monkeypatch.setattr(devices_here, "current_device", lambda: h100)
    given, _memory = product(0)
    told = []
    for accuracy in ({}, {"BILINEAR_ACCURACY": "twice"}, {"BILINEAR_ACCURACY": "1e-6"}):
        one = standin.StandIn({"BILINEAR_REPRODUCIBLE": "bitwise"} | accuracy)
        told.append(one._decided(given, one._asked, *standin._operands(np, given, 0)))
    wanted = [same_bits_plan(Problem(8, 8, 8, accuracy=accuracy), h100).chosen for accuracy in (None, "twice", 1e-6)]
    assert [one.told["plan"] for one in told] == [one.name for one in wanted]
    assert len({one.name for one in wanted}) > 1


@pytest.mark.parametrize(
    ("n", "asked", "why"),
    [
        (8192, {}, ""),
        (1024, {}, "as fast"),
        (8192, {"BILINEAR_WORKSPACE": "1000000"}, "workspace|as fast"),
        (8192, {"BILINEAR_ACCURACY": "1e-30"}, "E519|no plan|accura"),
    ],
)
def test_one_triangle_is_planned_block_by_block(n: int, asked: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that is described, at addresses that nobody reads."""
    monkeypatch.setattr(standin, "kind_of", lambda *_: SimpleNamespace(on_gpu=True))
    monkeypatch.setattr(devices_here, "current_device", lambda: load_device("h100"))
    monkeypatch.setattr(devices_here, "gpu_here", lambda: None)
    for name in ("BILINEAR_TIME_CUBLAS", "BILINEAR_LOG"):  # as `run-with --log --measure` sets them: no option of bilinear's own
        monkeypatch.setenv(name, "1")
    extents = dict(zip(standin.KEY, (1, 0, 1, n, n, n, n, n, n, 0, 0, 0, 1, 0, 0, 1, 1), strict=True))
    given = standin.OfferedProduct(**extents, a=1 << 40, b=1 << 40, c=1 << 42, alpha=(1, 0), beta=(0, 0))
    one = standin.StandIn(asked)
    found = one._decided(given, one._asked, *standin._operands(np, given, 0))
    assert (found.told["plan"] == "library") == bool(why) and re.search(why, str(found.told["why"])), found.told
    if not why:
        whole, quarter = (plan(e, n, e, device="h100").chosen for e in (n, n // 2))
        ms, library, bound = (float(str(found.told[name])) for name in ("ms", "library_ms", "bound"))
        assert found.gram is not None and ms < 0.75 * (whole.ms or 0) and ms < library
        assert found.aside > 8 * max(step.rows[1] - step.rows[0] for step in found.gram.steps if step.is_diagonal) ** 2
        assert bound >= quarter.choice.bound(n, "float64")


TAKEN = {"shape": [8, 9, 10], "dtype": "float64", "plan": "winograd, 1 level", "bound": 2e-12, "ms": 2.0, "library_ms": 3.5, "why": "x"}
LOG = [
    TAKEN | {"batch": 2},
    TAKEN | {"batch": 1},
    TAKEN | {"dtype": "float32", "triangle": "upper", "measured_ms": 1.5},
    TAKEN | {"dtype": "float16", "batch": 2, "measured_ms": 3.0, "library_measured_ms": 5.0},
    {"shape": [7, 7, 7], "dtype": "float32", "plan": "library", "why": "small"},
    {"plan": "library", "why": "none"},
]


def test_a_report_adds_up_what_a_log_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log").write_text("".join(json.dumps(line) + "\n" for line in LOG))
    shell = Shell(monkeypatch, capsys)
    status, out, _ = shell("preload", "--report", "log")
    assert status == 0 and out.splitlines()[2:] == [
        "8x9x10                   float64  winograd, 1 level      3   6.0       10.5        4.5  predicted                 2.0e-12  x",
        "8x9x10 (upper triangle)  float32  winograd, 1 level      1   1.5        3.5        2.0  cuBLAS's predicted        2.0e-12  x",
        "8x9x10                   float16  winograd, 1 level      2   3.0        5.0        2.0  measured                  2.0e-12  x",
        "7x7x7                    float32  library                1     -          -          -  -                               -  small",
        "-                        -        library                1     -          -          -  -                               -  none",
        "all of bilinear                                          6  10.5       19.0        8.5  2.0 measured              2.0e-12",
    ]
    status, out, _ = shell("preload", "--report", "log", "--json")
    total = {"calls": 6, "gained_ms": 8.5, "measured_ms": 2.0, "ms": 10.5, "cublas_ms": 19.0, "bound": 2e-12}
    assert status == 0 and json.loads(out)["total"] == total
    assert shell("preload", "--report", "log", "--html", "page.html")[0] == 0
    page = Path("page.html").read_text()
    assert "<h1>8.5 ms gained</h1>" in page and page.count('<rect class="ours"') == 3 and "8x9x10 (upper triangle)" in page
    for words in (("--report", "log", "-o", "text.c"), ("--json", "rows.json"), ("--html", "no.html")):
        status, out, err = shell("preload", *words)
        assert (status, out) == (1, "") and err.startswith("error[E557]") and not Path(words[-1]).exists()
    Path("log").write_text('{"plan": "library", "why": ""}\n{"plan": 3}\n')
    status, out, err = shell("preload", "--report", "log")
    assert (status, out) == (1, "") and err.startswith("error[E615]: line 2 of log is not ")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--measure", "--", "true"), "E557"),
        (("--accuracy", "good", "--", "true"), "E543"),
        (("--workspace", "much", "--", "true"), "E534"),
        (("--", "no"), "E616"),
        (("--reproducible", "some", "--", "true"), "E820"),
    ],
)
def test_run_with_refuses_before_the_program_runs(
    words: tuple[str, ...], code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = Shell(monkeypatch, capsys)("run-with", *words)
    assert (status, out) == (1, "") and f"error[{code}]" in err
