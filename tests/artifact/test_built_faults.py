"""Broken or wrong output folders: each is refused, with a diagnostic that says what is missing or where it differs."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from artifact.built_folders import FIRST, VERSIONS, kernels, launches, needs_emulator, refresh, refusal, written
from each_case import each

from bilinear.artifact import check_folder
from bilinear.artifact import identities as built_identity
from bilinear.artifact.check_folder import verify_built
from bilinear.artifact.findings import BuiltRow
from bilinear.artifact.read import read_folder
from bilinear.artifact.write import FolderOptions, output_files, programs_of, remainders_of
from bilinear.codegen import build as builds
from bilinear.codegen.cuda.nvrtc import Built
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.element import IN_ARRAYS
from bilinear.places import sealed
from bilinear.writing import write_folder

Edit = Callable[[dict[str, Any]], Any]


BROKEN: list[tuple[Edit, str, str]] = [
    (lambda m: m.update(format="bilinear-manifest/9"), "E621", "format is 'bilinear-manifest/9', and this version reads 'bilinear-"),
    (lambda m: m.pop("schedule"), "E621", "manifest.json: schedule is missing"),
    (lambda m: m["schedule"].pop("integers"), "E621", "schedule.integers is missing"),
    (lambda m: m["schedule"]["grid"].update(k=True), "E621", "schedule.grid.k is not an integer from 1 to 17000"),
    (lambda m: m["schedule"]["grid"].update(m=17000), "E621", "schedule.grid has more blocks than any schedule that is compiled"),
    (lambda m: m["schedule"].update(inputs="borrow"), "E621", "schedule.inputs is 'borrow', which is not known here"),
    (lambda m: m["schedule"].update(workspaces=[{"name": "A", "shape": "A", "rows": 1, "columns": 1}]), "E621", "names a space twice"),
    (lambda m: m.update(programs=[]), "E621", "programs is not an object"),
    (lambda m: m.update(programs={}), "E621", "programs is empty"),
    (lambda m: m["programs"].update(float8=m["programs"].pop("float64")), "E621", "is of an element type that is none of"),
    (lambda m: kernels(m).pop(FIRST), "E621", "programs.float64.launches[0].kernel is 'msmes_l1_linear1_f64', which is not known here"),
    (lambda m: kernels(m)[FIRST].update(threads=[64, 64]), "E621", "is not two extents of at most 1024 threads"),
    (lambda m: kernels(m)[FIRST].update(shared_bytes=10**9), "E621", "shared_bytes is not an integer from 0 to 232448"),
    (lambda m: kernels(m)[FIRST]["arguments"][0].update(name="D"), "E621", "arguments[0].name is 'D', which is not known here"),
    (lambda m: kernels(m)[FIRST].update(source="../../etc/passwd"), "E621", "which is not inside the folder"),
    (lambda m: kernels(m)[FIRST].update(source="src/other.cu"), "E622", "src/other.cu is named in manifest.json and cannot be read"),
    (lambda m: kernels(m)[FIRST].update(sha256="0" * 64), "E622", "src/msmes_l1_linear1_f64.cu is not the file that was written"),
    (lambda m: kernels(m).update({"a b": kernels(m)[FIRST]}), "E621", "has a name that is not a name in C"),
    (lambda m: launches(m)[2]["grid"]["x"][0].append(["bq", 1]), "E621", "launches[2].grid.x[0][2][0] is 'bq'"),
    (lambda m: launches(m)[2].update(first=-1), "E621", "launches[2].first is not an integer from 0"),
    (lambda m: launches(m).clear(), "E621", "programs.float64.launches is empty"),
    (lambda m: m.pop("files"), "E621", "files is missing"),
    (lambda m: m["files"].update({"../report.md": ""}), "E621", "which is not inside the folder"),
    (lambda m: m["files"].update({"report.md": 1}), "E621", "files.report.md is not a string"),
    (lambda m: m["files"].update({"report.md": "0" * 64}), "E622", "report.md is named in manifest.json and cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "code", "message"), BROKEN)
def test_a_manifest_that_is_not_whole(edit: Edit, code: str, message: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "built", "msmes", dtypes=("float64",))
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BilinearError) as caught:
        verify_built(folder, trust=True)
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert message in found.message


@each("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"format": 1}', b"null"])
def test_a_manifest_that_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    assert refusal(tmp_path).code == "E621"


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    found = refusal(tmp_path / "nowhere")
    assert found.code == "E621" and "manifest.json cannot be read: No such file" in found.message
    assert refusal(tmp_path).code == "E621"


def test_a_source_that_was_changed(tmp_path: Path) -> None:
    folder = written(tmp_path / "built", "msmes", dtypes=("float64",))
    source = folder / "src" / f"{FIRST}.cu"
    source.write_text(source.read_text() + "\n")
    found = refusal(folder)
    assert (found.code, found.message) == ("E622", f"src/{FIRST}.cu is not the file that was written")
    source.unlink()
    assert "cannot be read" in refusal(folder).message
    shutil.rmtree(folder / "src")
    assert refusal(folder).code == "E622"


def constructor(mark: Path) -> Callable[[str], str]:
    """Text that runs where the host loads the library that it is compiled to."""
    return lambda text: (
        f'{text}#ifndef __CUDA_ARCH__\n#include <cstdio>\nstatic int mark = std::fclose(std::fopen("{mark}", "w"));\n#endif\n'
    )


FOREIGN: list[tuple[Edit, str]] = [
    (lambda m: launches(m).reverse(), '"kernel": "msmes_l1_linear'),
    (lambda m: kernels(m)[FIRST].update(threads=[16, 8]), "+      16,"),
    (lambda m: kernels(m)[FIRST]["arguments"][0].update(kind="index", name="bm"), '"name": "bm"'),
    (lambda m: m["schedule"].update(inputs="consume"), '+  "inputs": "consume"'),
    (lambda m: m["options"].update(levels=2), ""),
    (lambda m: kernels(m)[FIRST].update(source="algorithm.bl", sha256=m["files"]["algorithm.bl"]), '"source": "algorithm.bl"'),
]


@pytest.mark.parametrize(("edit", "shown"), FOREIGN, ids=range(len(FOREIGN)))
def test_launches_that_nobody_generated_do_not_run(edit: Edit, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built_identity, "compile_on_cpu", None)
    folder = written(tmp_path / "built", "msmes", dtypes=("float64",))
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(manifest)
    manifest.pop("sha256")
    (folder / "manifest.json").write_bytes(sealed(manifest))
    found = refusal(folder, trust=False)
    assert found.code == "E626" and found.notes[0] == "--- generated"
    assert any(shown in note for note in found.notes), found


@needs_emulator
@pytest.mark.parametrize("name", [FIRST, "remainder_product_f64"])
def test_text_that_nobody_generated_runs_with_trust_alone(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built_identity, "cases", lambda folder: ())
    folder, mark = written(tmp_path / "built", "msmes", dtypes=("float64",)), tmp_path / "mark"
    refresh(folder, name, constructor(mark))
    found = refusal(folder, trust=False)
    assert found.code == "E626" and not mark.exists()
    assert found.message.startswith(f"src/{name}.cu is not what algorithm.bl and the options in manifest.json generate")
    assert any(note.startswith("+static int mark") for note in found.notes)
    verify_built(folder, trust=True)
    assert mark.exists()


def test_an_image_that_a_rebuild_does_not_give_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that differs, nor one of another compiler."""
    loaded, options, target = load("classical"), FolderOptions(1, "restore"), CudaTarget("sm_90")

    def built(requests: Any, done: Any = None) -> tuple[Built, ...]:
        return tuple(Built(target, f"image of {name}".encode(), (), "", False) for _, name, target in requests)

    for module in (builds, check_folder):
        monkeypatch.setattr(module, "build_all", built)
    monkeypatch.setattr(check_folder, "compiler_version", lambda: "none")
    monkeypatch.setattr(check_folder, "check_sources", lambda *given: iter(()))
    monkeypatch.setattr(check_folder, "check_images", lambda *given: iter([BuiltRow("float64", "GPU", "-", "-", 1, "", "passed")]))
    _, programs = programs_of(loaded, options, ("float64",), (target,))
    folder = tmp_path / "built"
    write_folder(folder, output_files(loaded, options, programs, remainders_of(programs, (target,), "own"), VERSIONS))
    assert [row.verdict for row in verify_built(folder).rows] == ["equal", "passed"]

    monkeypatch.setattr(check_folder, "compiler_version", lambda: "another")
    (row,) = verify_built(folder).rows
    assert (row.verdict, row.reason) == ("skipped", "not checked: built by none, and here is another")

    monkeypatch.setattr(check_folder, "compiler_version", lambda: "none")
    image = next(folder.rglob("*.cubin"))
    image.write_bytes(b"another")
    manifest = json.loads((folder / "manifest.json").read_text())
    place, digest = f"cubin/sm_90/{image.name}", hashlib.sha256(b"another").hexdigest()
    kernels(manifest)[image.stem]["images"]["sm_90"]["sha256"] = manifest["files"][place] = digest
    (folder / "manifest.json").write_text(json.dumps(manifest))
    check = verify_built(folder)
    assert [row.verdict for row in check.rows] == ["wrong"] and not check.passed
    assert check.failures[0].message == f"{place} is not the image that none builds from its source"
    assert [row.verdict for row in verify_built(folder, trust=True).rows] == ["passed"]


@pytest.mark.parametrize("name", ["report.json", "certificate.json"])
def test_a_report_or_a_certificate_that_was_changed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views = {"report.json": b"proved", "certificate.json": b"proof"}
    folder = written(tmp_path / "built", "msmes", dtypes=("float64",), views=views)
    read_folder(folder)
    (folder / name).write_bytes(b"another")
    assert (refusal(folder).code, refusal(folder).message) == ("E622", f"{name} is not the file that was written")
    (folder / name).unlink()
    assert refusal(folder).message == f"{name} is named in manifest.json and cannot be read: No such file or directory"


# ---------------------------------------------------------------------------------------------------------- what is wrong is found out


def replaced(pattern: str, text: str) -> Callable[[str], str]:
    def edit(source: str) -> str:
        changed, count = re.subn(pattern, text, source, count=1, flags=re.MULTILINE)
        assert count == 1, pattern
        return changed

    return edit


PRODUCT, LINEAR, PLAIN = "msmes_l1_product_f64", FIRST, "remainder_product_f64"
WRONG_SOURCES: list[tuple[str, Callable[[str], str], str, str]] = [
    (LINEAR, replaced(r"v2\.lane\[0\] = v0\.lane\[0\] \+ v1", "v2.lane[0] = v0.lane[0] - v1"), "E623", ""),
    (LINEAR, replaced(r"j \+ step < fast", "j + step + 1 < fast"), "E623", ""),
    (PRODUCT, replaced(r"(\{ 0, )(\d), (\d)(, \d, Real\(-?1\) \},)", r"\g<1>1 - \2, \3\4"), "E623", "C"),
    (PRODUCT, replaced(r"Real\(-1\) \}", "Real(1) }"), "E623", "C"),
    (PRODUCT, replaced(r", 1, Real\(", ", 0, Real("), "E623", "C"),
    (PRODUCT, replaced(r"^ +__syncthreads\(\);$", ""), "E623", "C"),
    (PRODUCT, replaced(r"begins \? beta : Real\(0\)", "begins ? beta * beta * beta * beta : Real(0)"), "E623", "C"),
    (PRODUCT, replaced(r"keep != Real\(0\)", "keep == Real(0)"), "E623", "C"),
    (PRODUCT, replaced(r"\(e < inside_a, deep", "(true, deep"), "E62", ""),
    (PRODUCT, replaced(r"TILE_K = 32", "TILE_K = 128"), "E624", "src/msmes_l1_product_f64.cu cannot be compiled over a prime field"),
    (PLAIN, replaced(r"alpha \* to\.coefficient", "to.coefficient"), "E623", "C"),
    (PLAIN, replaced(r"return;$", "return; undeclared();"), "E624", "src/remainder_product_f64.cu cannot be compiled over a prime field"),
    (PLAIN, replaced(r"alpha \* to\.coefficient", "Real(2.5) * alpha"), "skipped", ""),
]


@pytest.mark.sample(1)
@needs_emulator
@pytest.mark.parametrize(("name", "edit", "code", "what"), WRONG_SOURCES)
def test_a_wrong_source(name: str, edit: Callable[[str], str], code: str, what: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "built", "msmes", dtypes=("float64",))
    refresh(folder, name, edit)
    if code == "skipped":
        row = verify_built(folder, trust=True).rows[0]
        assert (row.verdict, row.reason) == ("skipped", "a constant that is not a rational number has no image in the field")
        return
    found = refusal(folder)
    assert found.code.startswith(code)
    assert found.message.startswith(what)
    if found.code == "E623":
        assert re.search(r"([ABC]\d\d differs, first in row \d+, column \d+ of the block|in the strips)", found.message)
        assert "float64, " in found.notes[-1]


def drop(number: int) -> Edit:
    return lambda m: launches(m).pop(number)


def step(m: dict[str, Any]) -> None:
    for cover in launches(m)[1]["grid"]["x"][0]:
        cover[1] *= 2


WRONG_MANIFESTS: list[tuple[Edit, str, str]] = [
    *((drop(number), "E623", "") for number in range(5)),
    (lambda m: launches(m).reverse(), "E623", ""),
    (lambda m: launches(m)[1].update(first=1), "E62", ""),
    (lambda m: launches(m)[1].update(first=1000), "E624", "a kernel fails: msmes_l1_product_f64"),
    (lambda m: launches(m)[1]["grid"].update(y=1), "E623", "C"),
    (step, "E623", "C"),
    (lambda m: kernels(m)[PRODUCT].update(shared_bytes=1024), "E624", "a kernel fails"),
    (lambda m: kernels(m)[LINEAR].update(threads=[16, 8]), "E623", ""),
    (lambda m: kernels(m)[LINEAR].update(threads=[64, 16]), "E624", "a kernel fails: msmes_l1_linear1_f64 takes at most 256 threads"),
    (lambda m: m["schedule"].update(inputs="preserve"), "E624", "a kernel fails: msmes_l1_linear1_f64"),
    (lambda m: m["schedule"]["grid"].update(m=1), "E62", ""),
    (lambda m: m["programs"]["float64"].update(remainder=launches(m)[:1]), "E62", ""),
    (lambda m: kernels(m)[PRODUCT]["arguments"].pop(), "E624", "src/msmes_l1_product_f64.cu cannot be compiled"),
    (lambda m: kernels(m)[PRODUCT]["arguments"].reverse(), "E624", "src/msmes_l1_product_f64.cu cannot be compiled"),
]


@pytest.mark.sample(1)
@needs_emulator
@pytest.mark.parametrize(("edit", "code", "what"), WRONG_MANIFESTS)
def test_a_wrong_manifest(edit: Edit, code: str, what: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "built", "msmes", dtypes=("float64",))
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    found = refusal(folder)
    assert found.code.startswith(code)
    assert found.message.startswith(what)


@pytest.mark.slow
@needs_emulator
@pytest.mark.usefixtures("tiny")
def test_a_wrong_program_leaves_the_other_one_right(tmp_path: Path) -> None:
    folder = written(tmp_path / "built", "strassen")
    refresh(folder, "strassen_expand_l1_product_f64", replaced(r"Real\(1\) \}", "Real(2) }"))
    check = verify_built(folder, trust=True)
    verdicts = {dtype: {row.verdict for row in check.rows if row.dtype == dtype and row.trials} for dtype in IN_ARRAYS}
    assert verdicts == {"float64": {"wrong"}, "float32": {"passed"}}
    assert not check.passed and [found.code for found in check.failures] == ["E623"]
    assert "of 4 blocks" in check.failures[0].message or "the only block" in check.failures[0].message


@needs_emulator
def test_a_kernel_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built_identity, "MOST_SECONDS", 0.3)
    folder = written(tmp_path / "built", "msmes", dtypes=("float64",))
    refresh(folder, FIRST, replaced(r"^    switch \(place\[0\]\) \{$", "    for (volatile int i = 0; i < 1;) {}\n    switch (place[0]) {"))
    found = refusal(folder)
    assert (found.code, found.message) == ("E624", f"a kernel fails: {FIRST}: not ended after 0.3 seconds")
