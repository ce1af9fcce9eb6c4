"""sympy is whole, or is imported anew: an import that was broken off leaves nothing that a later one takes for whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import bilinear

BROKEN_OFF = """
import sys
from bilinear import BilinearError, load

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r} and self in sys.meta_path:
            sys.meta_path.remove(self)
            raise KeyboardInterrupt

strassen = load("strassen")
sys.meta_path.insert(0, Stop())
try:
    strassen.verify()
except KeyboardInterrupt:
    print("stopped", any(name.startswith(("mpmath.", "sympy.")) for name in sys.modules))
print(strassen.verify().to_json()["verdict"])
"""


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["mpmath.functions", "sympy.polys.matrices", "sympy.functions", "sympy.geometry"])
def test_an_import_that_is_broken_off_is_begun_anew(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", BROKEN_OFF.format(name=name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "stopped True"
    assert done.stdout.splitlines()[1] == "proved"


def test_nothing_else_imports_sympy() -> None:
    (folder,) = bilinear.__path__
    importing = re.compile(r"^\s*(from|import) (sympy|mpmath)\b", re.MULTILINE)
    assert [path.name for path in Path(folder).rglob("*.py") if importing.search(path.read_text())] == ["engine.py"]
