"""The examples and the notebook run as they are, in a process of their own, from a folder that is not the checkout (`--update-golden`)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from each_case import each

import bilinear

CHECKOUT = Path(__file__).parents[1]
EXAMPLES = sorted((CHECKOUT / "examples").glob("*.py"))
ALONE = "run_without_bilinear.py"
CHECKER = "check_certificate.py"  # A whole program, tested in tests/reporting/test_certificate.py.
MOST_LINES = 78


def _run(example: Path, folder: Path, *arguments: str, library: bool = True) -> str:
    """What an example prints; with `library` unset, importing bilinear fails."""
    (folder / "hidden" / "bilinear.py").parent.mkdir()
    (folder / "hidden" / "bilinear.py").write_text("raise ImportError('this example stands alone')\n")
    path = CHECKOUT if library else folder / "hidden"
    command = [sys.executable, "-W", "error", str(example), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def _example(name: str) -> Path:
    return CHECKOUT / "examples" / name


@each("example", [example for example in EXAMPLES if example.name != CHECKER])
def test_an_example_is_short(example: Path) -> None:
    assert len(example.read_text().splitlines()) <= MOST_LINES


@pytest.mark.slow
def test_quickstart_numpy(tmp_path: Path) -> None:
    printed = _run(_example("quickstart_numpy.py"), tmp_path)
    assert "integers exact: True" in printed
    assert printed.count("msmes") == 3


def test_quickstart_gpu(tmp_path: Path) -> None:
    """On a GPU it multiplies; elsewhere it says what to install."""
    printed = _run(_example("quickstart_gpu.py"), tmp_path)
    assert "pip install" in printed or "differs from cupy.matmul" in printed


@pytest.mark.slow
def test_own_scheme(tmp_path: Path) -> None:
    printed = _run(_example("own_scheme.py"), tmp_path)
    assert "mine: proved" in printed
    assert "integers exact: True" in printed
    assert "mine.bl:11:17: error[E301]" in printed
    assert "writing -M5 for +M5 in C21 (line 11, column 17) makes the scheme correct" in printed


def test_chain(tmp_path: Path) -> None:
    printed = _run(_example("chain.py"), tmp_path)
    assert "(A1 A2) (A3 A4) by multiplications; left to right, ((A1 A2) A3) A4: 3.40 times as many" in printed
    assert "integers exact: True" in printed
    assert "on an H200: (((A1 A2) A3) A4) A5 by seconds" in printed


def test_gcn(tmp_path: Path) -> None:
    printed = _run(_example("gcn.py"), tmp_path)
    assert "A1 (A2 A3) by multiplications" in printed and "as by SciPy, left to right: True" in printed


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "extents", "told"),
    [
        ("randomised_svd", ("90", "70"), "agrees with the classical SVD: True"),
        ("k_means", ("150", "4", "3"), "the same centres and owners as by the definition: True"),
        ("gaussian_process", ("60", "17"), "agrees with numpy.linalg.solve: True"),
        ("muon_step", ("40", "55"), "agrees with the polynomial of the classical SVD: True"),
        ("count_paths", ("13", "31"), "the same, digit for digit, by following every edge: True"),
    ],
)
def test_work_of_every_day_agrees_with_a_classical_result(name: str, extents: tuple[str, ...], told: str, tmp_path: Path) -> None:
    assert told in _run(_example(f"{name}.py"), tmp_path, *extents)


@pytest.mark.slow
def test_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One checksum for twelve ways of each type; and one row of logits in every batch, where PyTorch is."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "batches").mkdir()
    printed = _run(_example("same_bits.py"), tmp_path)
    assert printed.count(", 1 with the same bits\n") == 2 and len(printed.splitlines()) == 2 + 2 * 12
    printed = _run(_example("batch_invariant.py"), tmp_path / "batches")
    if find_spec("torch") is None:
        assert printed == "PyTorch is not installed: pip install torch\n"
    else:
        assert "the same bits: of 16384 logits differ from those at batch 64: 0 at batch 1, 0 at batch 7" in printed


def test_transformer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained by both multiplies, the losses agree to rounding; without PyTorch it says what to install."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    printed = _run(_example("transformer.py"), tmp_path, "--steps", "6", "--width", "16")
    if find_spec("torch") is None:
        assert printed == "PyTorch is not installed: pip install torch\n"
        return
    assert re.findall(r"(?m)^(library|strassen) +losses(?: \d\.\d{4}){6}; [\d.]+ s; most memory so far \d+ MiB$", printed) == [
        "library",
        "strassen",
    ]
    (difference,) = re.findall(r"the losses differ by (\S+) of themselves", printed)
    assert float(difference) < 1e-4


@pytest.mark.parametrize("manifest", [None, "", "{}", "[]"])
def test_run_without_bilinear_needs_an_output_folder(tmp_path: Path, manifest: str | None) -> None:
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    command = [sys.executable, str(_example(ALONE)), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(
        rf"{tmp_path} is no output folder \(.*\): write one with `bilinear compile msmes --output {tmp_path}`\n", done.stderr
    )


@pytest.mark.slow
def test_run_without_bilinear(tmp_path: Path) -> None:
    """It reads a folder without the package; without a GPU it stops after saying what the folder holds."""
    output = tmp_path / "msmes"
    bilinear.compile("msmes", dtypes=("float32",), architectures=("sm_90", "compute_90"), output=output)
    printed = _run(_example(ALONE), tmp_path, str(output), library=False)
    assert "msmes, 1 level(s), inputs=restore, float32" in printed
    assert "no GPU can be used" in printed or "differs from cupy.matmul" in printed


def test_the_manifest_names_files_that_exist_and_arguments_that_are_known(tmp_path: Path) -> None:
    """What a program without the package relies on (docs/manifest.md)."""
    output = tmp_path / "winograd"
    bilinear.compile("winograd", levels=2, dtypes=("float64",), architectures=("sm_90",), output=output)
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["format"] == "bilinear-manifest/1"
    spaces = {"A", "B", "C", *(space["name"] for space in manifest["schedule"]["workspaces"])}
    extents = {"bm", "bk", "bn"}
    known = {
        "pointer": spaces,
        "index": {f"{name}_{stride}" for name in spaces for stride in ("rs", "cs")} | extents | {"first"},
        "scalar": {"alpha", "beta"},
    }
    program = manifest["programs"]["float64"]
    for name, kernel in program["kernels"].items():
        assert 'extern "C" __global__' in (output / kernel["source"]).read_text() and name in (output / kernel["source"]).read_text()
        assert all((output / image["path"]).stat().st_size > 0 for image in kernel["images"].values())
        assert all(argument["name"] in known[argument["kind"]] for argument in kernel["arguments"])
    for launch in program["launches"] + program["remainder"]:
        assert launch["kernel"] in program["kernels"]
        assert all(extent in extents and step > 0 for tiling in launch["grid"]["x"] for extent, step in tiling)


NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter's packages; the kernel has its own filters
def test_every_cell_shows_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (pip install --group notebook)")
    for needed in ("ipykernel", "matplotlib"):
        pytest.importorskip(needed)
    import nbformat

    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    kept, notebook = (nbformat.read(NOTEBOOK, as_version=4) for _ in range(2))
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell in notebook.cells:
        cell.metadata.clear()  # the times of this run
    notebook.metadata = kept.metadata
    nbformat.validate(notebook)
    if request.config.getoption("--update-golden"):
        nbformat.write(notebook, NOTEBOOK)
        return
    assert _told(notebook) == _told(kept)
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    data = [output["data"] for output in shown if "data" in output]
    assert len(data) == 5
    assert ["<pre " in x.get("text/html", "") for x in data] == [True, False, False, False, False]
    assert ["<iframe " in x.get("text/html", "") for x in data] == [False, True, False, False, False]
    assert ["<table>" in x.get("text/html", "") for x in data] == [False, False, True, True, False]
    assert data[-1]["image/png"]
    printed = "".join(output["text"] for output in shown if output.get("name") == "stdout")
    assert "<Algorithm typed <2,2,2;7> over Q>" in printed
    assert "error[E356]: typed <2,2,2;7> over Q does not multiply" in printed
    assert "exact: True  restored: True" in printed and printed.endswith("exact: True\n")


def _told(notebook: Any) -> list[Any]:
    """What the cells print and show as text; pictures and pages may differ by the versions of their libraries."""
    shown = [cell.get("outputs", ()) for cell in notebook.cells]
    return ["".join(output.get("text") or output["data"]["text/plain"] for output in outputs) for outputs in shown]
