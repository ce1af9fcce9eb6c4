"""The command line: what it prints, what it writes, and with which status it leaves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from shell import Shell

import bilinear
from bilinear.codegen.cuda import nvrtc
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.schedule import ProductStage
from bilinear.lowering.prepare import prepare

ROOT = Path(__file__).parents[1]
needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory) -> Shell:
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    return Shell(monkeypatch, capsys)


WRONG = """scheme wrong <2,2,2;8>
  C11 = A11 * B11 + A12 * B21
  C12 = A11 * B12 + A12 * B22
  C21 = A21 * B11 + A22 * B21
  C22 = A21 * B12 - A22 * B22
"""


@needs_nvrtc
def test_compile_proves_builds_checks_and_writes_a_folder(shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / "built"
    status, text, err = shell("compile", "msmes", "-o", out, "--shape", "37,29,31", "--dtype", "float64", "--arch", "sm_90,compute_90")
    assert status == 0, err
    for part in ("msmes: proved", "all 64 Brent equations hold", "4 kernels for sm_90, compute_90", "integers exact", f"written to {out}"):
        assert part in text
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert {"manifest.json", "report.json", "report.md", "src/msmes_l1_product_f64.cu"} <= names
    assert {"cubin/sm_90/msmes_l1_product_f64.cubin", "ptx/compute_90/msmes_l1_product_f64.ptx"} <= names
    assert json.loads((out / "report.json").read_text())["scheme"]["equations"] == 64
    assert not [path for path in tmp_path.iterdir() if path != out]
    again, _, _ = shell("compile", "strassen", "-o", out, "--shape", "9", "--dtype", "float32", "--arch", "sm_90")
    assert again == 0
    assert not (out / "src" / "msmes_l1_product_f64.cu").exists()


def test_the_package_runs_as_a_module() -> None:
    for module in ("bilinear", "bilinear.cli"):
        done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and bilinear.__version__ in done.stdout, done.stderr


@needs_nvrtc
@pytest.mark.slow
def test_compile_as_json_holds_the_report_and_the_checks(shell: Shell) -> None:
    result = shell.json("compile", "winograd", "--shape", "20", "--arch", "sm_90", "--dtype", "float64")
    assert result["scheme"]["additions"] == [4, 4, 7]
    assert result["lowered"][0]["workspace"] == (4 + 4 + 7) / 4
    assert [check["passed"] for check in result["checks"]] == [True] * len(result["checks"])
    assert {kernel["architecture"] for kernel in result["kernels"]} == {"sm_90"}


@each(
    ("words", "code"),
    [
        (("nothing_of_this_name",), "E121"),
        (("strasen",), "E121"),
        (("msmes", "--dtype", "float8"), "E503"),
        (("msmes", "--shape", "3,4"), "E504"),
        (("msmes", "--shape", "0"), "E504"),
        (("msmes", "--inputs", "borrow"), "E513"),
        (("strassen", "--inputs", "restore"), "E525"),
        (("laderman", "--levels", "9"), "E501"),
        (("laderman", "--levels", "0"), "E514"),
        (("laderman", "--levels", "many"), "E514"),
    ],
)
def test_what_the_user_can_mend_is_told_by_code_and_writes_nothing(shell: Shell, tmp_path: Path, words: tuple[str, ...], code: str) -> None:
    status, out, err = shell("compile", *words, "-o", tmp_path / "out")
    assert (status, out) == (1, "")
    assert f"error[{code}]" in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


@needs_nvrtc
def test_an_architecture_that_the_compiler_does_not_know_is_refused(shell: Shell, tmp_path: Path) -> None:
    status, _, err = shell("compile", "msmes", "--arch", "sm_1", "-o", tmp_path / "out")
    assert status == 1
    assert "error[E603]" in err
    assert not list(tmp_path.iterdir())


def test_a_wrong_scheme_is_refused_with_its_place(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "wrong.bl"
    path.write_text(WRONG)
    for command in ("verify", "compile", "run"):
        status, out, err = shell(command, path)
        assert (status, out) == (1, "")
        assert f"{path}:5:" in err
        assert "A22*B22 in C22: found -1, needed 1" in err


EAT = """schedule eat of strassen
  stage { A21 += A22 ; B12 -= B22 ; B21 -= B11 ; A12 += A11 }
  stage { C21, -C22 += A21 * B11 ; C12, C22 += A11 * B12 ; C11, C21 += A22 * B21 ; C12, -C11 += A12 * B22 }
  stage { A11 += A22 ; B11 += B22 }
  stage { A21 -= A11 ; B12 += B11 ; A12 -= A11 ; B21 += B11 }
  stage { C11, C22 += A11 * B11 ; C22 += A21 * B12 ; C11 += A12 * B21 }
"""


def test_a_schedule_that_restores_nothing_consumes_its_inputs(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "eat.bl"
    path.write_text(EAT)
    assert shell.json("verify", path)["lowered"][0]["inputs"] == "consume"
    (check,) = shell.json("run", path, "--shape", "31,22,27", "--device", "cpu")
    assert check["exact"]
    assert "error[E525]" in shell("run", path, "--inputs", "restore")[2]
    assert "error[E408]" in shell("verify", path, "--levels", "2")[2]
    (without,) = shell.json("run", path, "--shape", "31,22,27", "--inputs", "preserve", "--device", "cpu")
    assert without["exact"]
    path.write_text(EAT.replace("C22 += A21 * B12 ; ", ""))
    status, _, err = shell("verify", path)
    assert status == 1
    assert "C22 is not alpha*A*B + beta*C" in err


def test_a_wrong_schedule_is_refused_also_where_another_one_would_run(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "wrong.bl"
    path.write_text(EAT.replace("C22 += A21 * B12 ; ", ""))
    assert "error[E406]" in shell("verify", path, "--inputs", "preserve")[2]


@needs_nvrtc
def test_a_link_to_a_folder_stays_a_link(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for _ in range(2):
        status, _, err = shell("compile", "strassen", "-o", tmp_path / "link", "--arch", "sm_90", "--dtype", "float32", "--shape", "9")
        assert status == 0, err
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "manifest.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link"]


@pytest.mark.slow
@needs_nvrtc
def test_nothing_is_written_where_the_check_fails(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bilinear.measure import check_multiply as check

    monkeypatch.setattr(check, "error_allowance", lambda *facts: 0.0)
    status, out, err = shell("compile", "strassen", "-o", tmp_path / "out", "--arch", "sm_90", "--dtype", "float64", "--shape", "99")
    assert status == 1
    assert "integers exact" in out
    assert "error[E701]" in err
    assert not list(tmp_path.iterdir())


@each(
    ("options", "code"),
    [
        ({"dtypes": "float64"}, "E503"),
        ({"dtypes": ["float8"]}, "E503"),
        ({"dtypes": []}, "E503"),
        ({"floats": "half"}, "E503"),
        ({"emit": "rust"}, "E503"),
        ({"emit": "c", "dtypes": ["float32", "float16"]}, "E503"),
        ({"floats": ["doubles"]}, "E503"),
        ({"mode": "S-T-T"}, "E503"),
        ({"mode": "S-M-T", "floats": "doubles"}, "E557"),
        ({"contention": "tickets"}, "E513"),
        ({"contention": "atomics"}, "E557"),
        ({"contention": "atomics", "dtypes": ["float64", "bfloat16"]}, "E557"),
        ({"levels": 0}, "E502"),
        ({"levels": True}, "E502"),
        ({"inputs": "borrow"}, "E513"),
        ({"architectures": "sm_90"}, "E603"),
        ({"architectures": []}, "E603"),
    ],
)
def test_options_that_mean_nothing_are_refused_from_python_too(options: dict[str, Any], code: str) -> None:
    with pytest.raises(BilinearError) as caught:
        bilinear.compile("strassen", **options)
    assert caught.value.diagnostics[0].code == code


@pytest.mark.slow
@needs_nvrtc
def test_what_is_named_twice_is_built_once(shell: Shell, tmp_path: Path) -> None:
    named = ("--dtype", "float32,float32", "--arch", "compute_90,compute_90")
    status, out, err = shell("compile", "classical", *named, "-o", tmp_path / "out", "--shape", "9")
    assert status == 0, err
    assert out.count("integers exact") == 1 and "(float32)" in out and "for compute_90;" in out
    compiled = bilinear.compile("classical", dtypes=iter(["float32"] * 2), architectures=["compute_90"] * 2)  # type: ignore[arg-type]
    compiled.write(tmp_path / "out")
    assert [program.dtype for program in compiled.programs] == ["float32"]


@pytest.mark.sample(1)
@needs_nvrtc
@pytest.mark.parametrize("floats", ["own", "doubles"])
def test_products_of_floats_run_on_the_units_that_are_asked_for(floats: str, shell: Shell, tmp_path: Path) -> None:
    """The products of the schedule, and those of what is left where the grid does not divide a matrix."""
    status, out, _ = shell("compile", "strassen", "-o", tmp_path / "out", "--arch", "sm_90", "--floats", floats, "--shape", "33")
    assert status == 0, out
    on_doubles = {path.stem for path in (tmp_path / "out" / "src").glob("*.cu") if "mma.sync" in path.read_text()}
    of_floats = {"remainder_product_f32", "strassen_expand_l1_product_f32"}
    assert on_doubles == {"remainder_product_f64", "strassen_expand_l1_product_f64"} | (of_floats if floats == "doubles" else set())


@needs_nvrtc
@pytest.mark.slow
def test_a_mode_is_an_option_of_compile(shell: Shell, tmp_path: Path) -> None:
    options = ("--arch", "sm_90", "--dtype", "float32", "--shape", "33", "--mode")
    status, out, _ = shell("compile", "strassen", "-o", tmp_path / "out", *options, "S-M-T")
    assert status == 0, out
    (program,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["programs"].values()
    assert program["kernels"]["strassen_expand_l1_product_f32"]["threads"] == [32, 7]
    assert "1 level in 4 launches" in out
    status, _, err = shell("compile", "msmes", "-o", tmp_path / "other", *options, "S-M-T")
    assert status == 1 and "error[E557]: --mode S-M-T has no meaning for msmes" in err
    assert not (tmp_path / "other").exists()


def test_a_command_line_that_is_not_understood_leaves_with_1(shell: Shell) -> None:
    for words in (("compile",), ("unknown",), ("verify", "msmes", "--nothing")):
        status, out, err = shell(*words)
        assert (status, out) == (1, "")
        assert "Usage" in err


@pytest.mark.slow
@needs_nvrtc
def test_compile_prints_what_the_page_shows_and_the_rest_with_verbose(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its numbers of products are those of the launches: in msmes no two products of one launch add to the same block of C."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "command-line.md").read_text()
    (shown,) = re.findall(r"^```\n(msmes: proved\n.*?)```", page, re.DOTALL | re.MULTILINE)
    assert shell("compile", "msmes")[1] == shown
    whole = shell("compile", "msmes", "-v")[1]
    assert shell("verify", "msmes")[1].splitlines()[2] in whole and "occupancy" in whole and "integers exact" in whole
    loaded = load("msmes")
    lowered = prepare(loaded.scheme, loaded.schedule, 1, "restore").schedule
    targets = [[{t.block for t in p.targets} for p in stage.products] for stage in lowered.stages if isinstance(stage, ProductStage)]
    assert all(len(set.union(*launch)) == sum(map(len, launch)) for launch in targets)
    assert f"launched at once  {', '.join(str(len(launch)) for launch in targets)} products" in whole


def test_verify_speaks_text_json_and_markdown(shell: Shell) -> None:
    status, text, _ = shell("verify", "msmes", "--levels", "2")
    assert status == 0
    assert "launched at once  1 to 4 of 49 products: no two of a launch add to one block of C" in text
    facts = shell.json("verify", "msmes", "--levels", "2")
    assert facts["schedules"][0]["restores"] == ["A", "B"]
    assert facts["lowered"][0]["sums_traffic"] == 17
    assert facts["lowered"][0]["workspace"] == 0
    status, markdown, _ = shell("verify", "hopcroft_kerr", "--markdown")
    assert status == 0
    assert markdown.startswith("# hopcroft_kerr: proved")
    assert "`<3,2,3;15>`" in markdown


def test_list_names_every_shipped_algorithm(shell: Shell) -> None:
    rows = {row["name"]: row for row in shell.json("list")}
    assert set(rows) >= {"naive2x2", "strassen", "winograd", "laderman", "hopcroft_kerr"}
    assert rows["winograd"]["shared"] == 15
    assert rows["laderman"]["format"] == "<3,3,3;23>"
    assert [(x["name"], x["strategy"]) for x in rows["strassen"]["schedules"]] == [
        *[("r_s_mm", "depth first"), ("s_mm", "depth first"), ("msmes", "in place")]
    ]
    assert "hopcroft_kerr" in shell("list")[1]


def test_run_checks_on_the_cpu(shell: Shell) -> None:
    (check,) = shell.json("run", "msmes", "--shape", "33,21,27", "--levels", "2", "--device", "cpu", "--dtype", "float32")
    assert check["exact"]
    assert check["restored"]
    assert check["inputs"] == "restore"
    assert check["workspace_bytes"] == 0
    assert 0 < check["error"] < check["allowance"]


def test_run_keeps_an_accuracy_or_refuses(shell: Shell) -> None:
    """A bound is that of the check; strassen's probable error is 1.4 times the classical multiply's, twice that at two levels."""
    shape = ("--shape", "64", "--device", "cpu", "--dtype", "float32")
    for accuracy, types in (("1", "float32,complex64"), ("twice", "float32")):
        found = shell.json("run", "strassen", *shape, "--dtype", types, "--accuracy", accuracy)
        assert all(check["passed"] and (accuracy == "twice" or check["allowance"] <= 1) for check in found)
    for levels, accuracy, what in (
        ("1", "1e-9", "E519]: strassen, 1 level in float32: its error bound"),
        ("1", "classical", "E519]: strassen, 1 level in float32: its probable error"),
        ("2", "twice", "E519]: strassen, 2 levels in float32: its probable error"),
        ("1", "rough", "E543"),
    ):
        status, out, err = shell("run", "strassen", *shape, "--levels", levels, "--accuracy", accuracy)
        assert status == 1 and not out and what in err
    status, _, err = shell("run", "strassen", "--modulus", "7", "--accuracy", "1")
    assert status == 1 and "E557" in err


def test_run_multiplies_modulo_a_number(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, modulus, inputs in (("msmes", 65521, "restore"), ("walk_444_mod2", 2, "preserve"), ("strassen", 2**61 - 1, "preserve")):
        (check,) = shell.json("run", name, "--shape", "33,21,27", "--modulus", modulus)
        assert check["exact"] and check["restored"] and check["passed"]
        assert (check["modulus"], check["inputs"], check["shape"]) == (modulus, inputs, [33, 21, 27])
    assert "classical ms" in shell("run", "strassen", "--shape", "20", "--modulus", "7")[1]
    for words, code in (
        *((("--modulus", str(p)), "E593") for p in (1, 0, -1)),
        *((("--modulus", "7", "--dtype", dtype), "E557") for dtype in ("float32", "float64")),
        (("--modulus", "3"), "E594"),
    ):
        status, _, err = shell("run", "walk_444_mod2", "--shape", "20", *words)
        assert status == 1 and code in err
    from bilinear.backends import modular_arrays

    real = modular_arrays.scale
    monkeypatch.setattr(modular_arrays, "scale", lambda x, factor, p: real(x, (factor + 1) % p, p))
    status, _, err = shell("run", "strassen", "--shape", "20", "--modulus", "65521")
    assert status == 1 and "error[E701]: the product modulo 65521 failed its check" in err


def test_run_modulo_a_number_runs_on_every_device(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a pretended GPU, whose arrays are NumPy's; what writes its operands, too."""
    made: list[str] = []

    def module_of(device: str) -> Any:
        made.append(device)
        return np

    monkeypatch.setattr("bilinear.measure.bench_library.module_of", module_of)
    monkeypatch.setattr("bilinear.measure.check_multiply._wait", lambda device: None)
    monkeypatch.setattr("bilinear.backends.doctor.why_no_gpu", lambda: None)
    found = shell.json("run", "strassen", "--shape", "20", "--modulus", "65521")
    assert [(c["device"], c["passed"]) for c in found] == [("cpu", True), ("gpu", True)] and made == ["cpu", "gpu"]
    (one,) = shell.json("run", "strassen", "--shape", "20", "--modulus", "65521", "--device", "gpu")
    assert one["device"] == "gpu"
    found = shell.json("run", "msmes", "--shape", "20", "--modulus", "65521")
    assert [(c["device"], c["inputs"], c["passed"]) for c in found] == [("cpu", "restore", True), ("gpu", "restore", True)]


def test_doctor_says_what_works_and_how_to_get_the_rest(shell: Shell) -> None:
    findings = {finding["what"]: finding for finding in shell.json("doctor")}
    assert findings["run on the CPU"]["usable"]
    for finding in findings.values():
        assert finding["usable"] or finding["remedy"]
    assert "run on a GPU" in shell("doctor")[1]


def test_verify_writes_a_page_and_a_certificate(shell: Shell, tmp_path: Path) -> None:
    page, certificate = tmp_path / "msmes.html", tmp_path / "msmes.json"
    status, out, _ = shell("verify", "msmes", "--html", page, "--certificate", certificate)
    assert status == 0 and "msmes: proved" in out
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    checker = Path(__file__).parents[1] / "examples" / "check_certificate.py"
    checked = subprocess.run([sys.executable, "-I", str(checker), str(certificate)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0 and "accepted" in checked.stdout
    assert sorted(tmp_path.iterdir()) == [page, certificate]


def test_a_refused_scheme_is_told_in_json_and_on_a_page(shell: Shell, tmp_path: Path) -> None:
    wrong, page = tmp_path / "wrong.bl", tmp_path / "wrong.html"
    wrong.write_text("scheme wrong <1,1,1;1>\n  C11 = 2 A11*B11\n")
    status, out, err = shell("verify", wrong, "--json", "--html", page)
    report = json.loads(out)
    assert status == 1 and report["verdict"] == "refused" and report["findings"][0]["code"] == "E301"
    assert "error[E301]" in err and "refused" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scheme x <1,1,1;1> over Z/2\n  C11 = 3 A11*B11\n", "Z/2"),
        ("scheme x <1,1,1;1> over Q[lambda]\n  C11 = [1+lambda^2] A11*B11\n", "O(lambda^2)"),
    ],
)
def test_what_is_only_proved_is_refused_by_compile(text: str, said: str, shell: Shell) -> None:
    Path("x.bl").write_text(text)
    status, out, _ = shell("verify", "x.bl")
    assert status == 0 and "x: proved" in out and said in out
    status, _, err = shell("compile", "x.bl")
    assert status == 1 and "error[E506]" in err


def test_a_foreign_schedule_is_decided_and_not_run(shell: Shell) -> None:
    Path("x.bl").write_text("""scheme x <1,1,1;1>
  C11 = A11*B11
schedule y of x: C = A*B, temporary T like C
  stage { C11 = A11 }
  stage { T = A11 * B11 }
  stage { A11 = 0 A11 ; C11 = T }
""")
    status, out, _ = shell("verify", "x.bl")
    assert status == 0 and "A afterwards      lost" in out and "never written" in out
    status, _, err = shell("compile", "x.bl", "--inputs", "consume")
    assert status == 1 and "error[E411]" in err


PRODUCT_IN_A = """scheme x <1,2,1;2>
  C11 = A11*B11 + A12*B21
schedule y of x: C = A*B
  stage { C11 = A11 * B11 }
  stage { A11 = A12 * B21 }
  stage { C11 += A11 }
"""


@pytest.mark.parametrize("command", ["compile", "run"])
def test_a_schedule_that_cannot_be_lowered_is_not_replaced_by_its_scheme(command: str, shell: Shell) -> None:
    """Products in A count as writes; and a schedule that leaves A and B alone keeps its place, too."""
    Path("x.bl").write_text(PRODUCT_IN_A)
    status, out, _ = shell("verify", "x.bl")
    assert status == 0 and "y: proved" in out and "x-expand" not in out and "A afterwards      lost" in out
    status, out, err = shell(command, "x.bl")
    assert (status, out) == (1, "") and "error[E411]: y is a schedule to prove, not to run" in err
    assert shell("schedule", "winograd", "--in-place", "--keep", "A,B", "--temporaries", "1", "-o", "kt.bl")[0] == 0
    status, out, _ = shell("verify", "kt.bl")
    assert status == 0 and "winograd-staged: proved" in out and "expand" not in out
    status, out, err = shell(command, "kt.bl")
    assert (status, out) == (1, "") and "error[E411]" in err


def test_a_place_that_compile_cannot_take_is_told_before_the_work(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("keep")
    monkeypatch.setattr("bilinear.driver.compile", lambda *_, **__: pytest.fail("compiled"))
    Path("circle").symlink_to("circle")
    for place in ("mine", "mine/notes.txt", "circle", "x" * 300):
        status, _, err = shell("compile", "strassen", "-o", place)
        assert status == 1 and "error[E611]" in err
    assert [path.name for path in Path("mine").iterdir()] == ["notes.txt"]


def test_a_shape_is_written_either_way(shell: Shell) -> None:
    wanted = shell("plan", "--shape", "4096,1024,512", "--device", "h200")
    assert wanted[0] == 0 and shell("plan", "--shape", "4096x1024x512", "--device", "h200") == wanted
    for wrong in ("4096x1024", "x", "4096xx4"):
        assert "error[E504]" in shell("plan", "--shape", wrong, "--device", "h200")[2]


def test_a_chain_is_planned(shell: Shell) -> None:
    status, out, _ = shell("plan", "--chain", "1000x20x3000x50", "--device", "h200")
    lines = out.splitlines()
    assert status == 0 and lines[0] == "1000x20 20x3000 3000x50, float64 (NVIDIA H200, predicted)"
    assert [line.split("  ")[0] for line in lines[4:7]] == ["chosen", "left to right", "fewest multiplications"]
    assert lines[4].split()[-1] == "1.00x" and "(A1 A2) A3" in lines[5]
    assert [line.split("  ")[0] for line in lines[10:]] == ["A2 A3", "A1 A2..A3"]
    found = shell.json("plan", "--chain", "1000,20,3000,50", "--device", "h200", "--workspace", "800000")
    assert (found["format"], found["by"], found["workspace"]) == ("bilinear-chain/1", "seconds", 800000)
    assert found["chosen"]["text"] == "A1 (A2 A3)" and found["chosen"]["peak"] <= 800000
    assert [step["left"] for step in found["chosen"]["steps"]] == [[1, 1], [0, 0]]
    assert sum(step["seconds"] for step in found["chosen"]["steps"]) == pytest.approx(found["chosen"]["seconds"])


def test_a_chain_without_times_says_so(shell: Shell) -> None:
    status, out, _ = shell("plan", "--chain", "10x20x30x4", "--dtype", "complex64", "--device", "h200")
    assert status == 0 and out.splitlines()[0].endswith("complex64 (multiplications counted: the planner has no times here)")
    assert "52.50x" not in out and " -  " in out


@each(
    ("words", "told"),
    [
        ("plan --chain 10x20", "E504]: '10x20' is not a chain"),
        ("plan --chain 10xax20", "E504]: '10xax20' is not a chain"),
        ("plan --chain 10x0x20", "E504]: '10x0x20' is not a chain"),
        ("plan --chain " + "x".join(["2"] * 60), "E550]: a chain of 59 matrices"),
        ("plan --chain 10x20x30 --shape 4", "E557]: --shape has no meaning with --chain"),
        ("plan --chain 10x20x30 --explain", "E557]: --explain has no meaning with --chain"),
        ("plan --chain 10x20x30x40 --workspace none", "E535]: the intermediates of the chain need 2400 bytes"),
        ("plan --chain 10x20x30 --dtype float65", "E543]: no plans for --dtype float65"),
        ("plan", "E504]: there is no shape"),
        ("tune --time 5m", "E557]: --time has no meaning without --shape"),
        ("schedule winograd --depth-first --consume", "E557]: --consume has no meaning with --depth-first"),
        ("schedule winograd --in-place --directly", "E557]: --directly has no meaning with --in-place"),
        ("schedule winograd --depth-first --few-launches", "E557]: --few-launches has no meaning with --depth-first"),
        ("verify", "E507]"),
        ("verify msmes --built x", "E507]"),
        ("verify msmes --json --markdown", "E507]"),
        ("verify msmes --trust", "E507]"),
        ("verify --built x --html y", "E507]"),
        ("verify --built x --levels 2", "E507]"),
        ("verify msmes --html no/x.html", "E612]"),
        ("run strassen --shape 8 --tolerance 1e-3", "E532]"),
    ],
)
def test_words_that_mean_nothing_are_refused(words: str, told: str, shell: Shell) -> None:
    status, out, err = shell(*words.split())
    assert (status, out) == (1, "") and f"error[{told}" in err


def test_what_cannot_be_written_is_said(shell: Shell, tmp_path: Path) -> None:
    for place in ("", ".", "no/such/x.html", "x" * 300):
        status, _, err = shell("verify", "msmes", "--html", place)
        assert status == 1 and "error[E612]" in err, place
    os.mkfifo(tmp_path / "pipe")
    reader = threading.Thread(target=(tmp_path / "pipe").read_text)
    reader.start()
    assert shell("verify", "msmes", "--html", tmp_path / "pipe")[0] == 0
    reader.join()
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.slow
def test_a_found_schedule_is_written_and_proved(shell: Shell) -> None:
    status, out, _ = shell("schedule", "strassen", "--in-place", "-o", "found.bl")
    assert status == 0 and "found.bl" in out
    status, out, _ = shell("verify", "found.bl")
    assert status == 0 and "A afterwards      restored" in out and "products a stage  3, 4 as written" in out
    assert shell("run", "found.bl", "--shape", "33", "--levels", "2")[0] == 0
    status, out, _ = shell("schedule", "winograd", "--in-place", "--consume", "--temporaries", "1")
    assert status == 0 and "schedule winograd" in out
    status, _, err = shell("schedule", "strassen")
    assert status == 1 and "error[E507]" in err


def test_a_plan_needs_no_gpu(shell: Shell) -> None:
    status, out, _ = shell("plan", "--shape", "8192", "--device", "h200", "--explain")
    assert status == 0 and "chosen" in out and "library" in out
    found = shell.json("plan", "--shape", "64,64,64", "--device", "h200", "--dtype", "float32", "--workspace", "none")
    assert "levels" not in found["candidates"][0]["choice"] and found["candidates"][0]["workspace"] == 0
    pinned = shell.json("plan", "--shape", "4096", "--device", "h200", "--levels", "winograd_depth_first,winograd")
    assert pinned["candidates"][0]["choice"]["levels"] == ["winograd_depth_first", "winograd"]
    for levels in ("", ",", "nothing", "winograd,msmes"):
        status, _, err = shell("plan", "--shape", "4096", "--device", "h200", "--inputs", "restore", "--levels", levels)
        assert status == 1 and "error[E" in err
    status, _, err = shell("plan", "--shape", "4096", "--device", "h200", "--levels", "winograd_depth_first", "--accumulate")
    assert status == 1 and "error[E543]" in err
    status, _, err = shell("plan", "--shape", "64", "--device", "nothing")
    assert status == 1 and "error[E54" in err
    for budget in ("²", "9" * 5000, "-1"):
        status, _, err = shell("plan", "--shape", "64", "--device", "h200", "--workspace", budget)
        assert status == 1 and "error[E534]" in err


@each(
    "words",
    [
        ("combine", "2,2,3"),
        ("share", "winograd"),
        ("schedule", "winograd", "--in-place", "--time", "0.1"),
        ("discover", "2,2,2", "--rank", 7),
        ("export", "winograd", "--to", "json"),
        ("new", "mine", "2,2,2"),
    ],
)
@each("place", ["no/such/folder/x.bl", "n" * 300])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(shell: Shell, words: tuple[object, ...], place: str) -> None:
    status, out, err = shell(*words, "-o", place)
    assert status == 1 and out == "" and err.startswith("error[E612]: cannot write ") and list(Path().iterdir()) == []
