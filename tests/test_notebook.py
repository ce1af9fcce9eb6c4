"""The notebook of examples/: executed from its first cell to its last, it shows what is kept in it (`--update-golden` keeps it anew)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
