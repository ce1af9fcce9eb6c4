"""The notebook of examples/: kept without outputs, and executed from its first cell to its last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


def test_no_output_is_kept() -> None:
    kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert [cell for cell in kept["cells"] if cell.get("outputs") or cell.get("execution_count")] == []
    assert set(kept["metadata"]) == {"kernelspec", "language_info"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter's packages; the kernel has its own filters
def test_every_cell_runs_and_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (pip install --group notebook)")
    for needed in ("ipykernel", "matplotlib"):
        pytest.importorskip(needed)
    import nbformat

    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    data = [output["data"] for output in shown if "data" in output]
    assert _lines(data) == [
        "<Algorithm strassen <2,2,2;7> over Q, scheduled by msmes>",
        "<Report on msmes: proved; strassen <2,2,2;7> over Q>",
        "<Plan of 8192 x 8192 by 8192 x 8192, float64, NVIDIA H200: residues14, C in 2 parts>",
        "<ChainPlan of 4 matrices, float64, NVIDIA H200: ((A1 A2) A3) A4 by seconds>",
        "<Figure size 600x350 with 1 Axes>",
    ]
    assert ["<pre " in x.get("text/html", "") for x in data] == [True, False, False, False, False]
    assert ["<iframe " in x.get("text/html", "") for x in data] == [False, True, False, False, False]
    assert ["<table>" in x.get("text/html", "") for x in data] == [False, False, True, True, False]
    assert data[-1]["image/png"]
    printed = "".join(output["text"] for output in shown if output.get("name") == "stdout")
    assert "<Algorithm typed <2,2,2;7> over Q>" in printed
    assert "error[E356]: typed <2,2,2;7> over Q does not multiply" in printed
    assert "exact: True  restored: True" in printed and printed.endswith("exact: True\n")


def _lines(data: list[dict[str, Any]]) -> list[str]:
    return [shown["text/plain"] for shown in data]
