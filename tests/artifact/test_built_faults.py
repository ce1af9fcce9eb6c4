"""Broken or wrong output folders: each is refused, with a diagnostic that says what is missing or where it differs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from artifact.built_folders import FIRST, kernels, launches, needs_emulator, refresh, refusal, written

from bilinear.artifact import identities as built_identity
from bilinear.artifact import write as output
from bilinear.artifact.check_folder import verify_built
from bilinear.artifact.read import read_folder
from bilinear.errors import BilinearError
from bilinear.ir.element import IN_ARRAYS

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


@pytest.mark.parametrize(("edit", "code", "message"), BROKEN, ids=[message[-40:] for _, _, message in BROKEN])
def test_a_manifest_that_is_not_whole(edit: Edit, code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "built", "msmes", monkeypatch, dtypes=("float64",))
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BilinearError) as caught:
        verify_built(folder)
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert message in found.message


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"format": 1}', b"null"])
def test_a_manifest_that_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    assert refusal(tmp_path).code == "E621"


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    found = refusal(tmp_path / "nowhere")
    assert found.code == "E621" and "manifest.json cannot be read: No such file" in found.message
    assert refusal(tmp_path).code == "E621"


def test_a_source_that_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "built", "msmes", monkeypatch, dtypes=("float64",))
    source = folder / "src" / f"{FIRST}.cu"
    source.write_text(source.read_text() + "\n")
    found = refusal(folder)
    assert (found.code, found.message) == ("E622", f"src/{FIRST}.cu is not the file that was written")
    source.unlink()
    assert "cannot be read" in refusal(folder).message
    shutil.rmtree(folder / "src")
    assert refusal(folder).code == "E622"


@pytest.mark.parametrize("name", ["report.json", "certificate.json"])
def test_a_report_or_a_certificate_that_was_changed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views = {"report.json": b"proved", "certificate.json": b"proof"}
    monkeypatch.setattr(output, "output_files", partial(output.output_files, views=views))
    folder = written(tmp_path / "built", "msmes", monkeypatch, dtypes=("float64",))
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


@pytest.mark.sample(4)
@needs_emulator
@pytest.mark.parametrize(("name", "edit", "code", "what"), WRONG_SOURCES)
def test_a_wrong_source(
    name: str, edit: Callable[[str], str], code: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "built", "msmes", monkeypatch, dtypes=("float64",))
    refresh(folder, name, edit)
    if code == "skipped":
        row = verify_built(folder).rows[0]
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


@needs_emulator
@pytest.mark.parametrize(("edit", "code", "what"), WRONG_MANIFESTS)
def test_a_wrong_manifest(edit: Edit, code: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "built", "msmes", monkeypatch, dtypes=("float64",))
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    found = refusal(folder)
    assert found.code.startswith(code)
    assert found.message.startswith(what)


@needs_emulator
def test_a_wrong_program_leaves_the_other_one_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "built", "strassen", monkeypatch)
    refresh(folder, "strassen_expand_l1_product_f64", replaced(r"Real\(1\) \}", "Real(2) }"))
    check = verify_built(folder)
    verdicts = {dtype: {row.verdict for row in check.rows if row.dtype == dtype and row.trials} for dtype in IN_ARRAYS}
    assert verdicts == {"float64": {"wrong"}, "float32": {"passed"}}
    assert not check.passed and [found.code for found in check.failures] == ["E623"]
    assert "of 4 blocks" in check.failures[0].message or "the only block" in check.failures[0].message


@needs_emulator
def test_a_kernel_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built_identity, "MOST_SECONDS", 0.3)
    folder = written(tmp_path / "built", "msmes", monkeypatch, dtypes=("float64",))
    refresh(folder, FIRST, replaced(r"^    switch \(place\[0\]\) \{$", "    for (volatile int i = 0; i < 1;) {}\n    switch (place[0]) {"))
    found = refusal(folder)
    assert (found.code, found.message) == ("E624", f"a kernel fails: {FIRST}: not ended after 0.3 seconds")
