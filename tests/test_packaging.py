"""What a user installs: a light import, the files that travel with the package, and numbers that agree."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bilinear
from bilinear import resources

CHECKOUT = Path(__file__).parent.parent
ENGINES = ("sympy", "lark", "jinja2", "cupy", "typer", "rich", "cuda", "torch", "platformdirs", "numpy")


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("statement", ["import bilinear", "import bilinear; bilinear.BilinearError, bilinear.__version__"])
def test_the_import_is_light(statement: str) -> None:
    program = f"import sys; {statement}; print(*sorted({{name.partition('.')[0] for name in sys.modules}} & set({ENGINES})))"
    assert run(program).split() == []


@pytest.mark.parametrize("first", bilinear.__all__)
def test_public_names_stay_what_they_are_whichever_is_used_first(first: str) -> None:
    """Importing a module of the package sets an attribute of that name on the package, which must not hide a public function."""
    names = [first, *bilinear.__all__]
    found = run(f"import bilinear; bilinear.load('strassen').verify(); [print(type(getattr(bilinear, n)).__name__) for n in {names}]")
    assert "module" not in found.split()


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        bilinear.nothing  # noqa: B018


def test_the_shipped_files_are_found() -> None:
    assert list(resources.templates_folder().glob("*.cu.j2"))
    assert resources.algorithms_folder().joinpath("msmes.bl").is_file()


def test_packaged_folders_come_before_those_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "bilinear"
    package.mkdir()
    monkeypatch.setattr(resources, "__file__", str(package / "resources.py"))
    assert resources.templates_folder() == tmp_path / "templates"
    assert resources.algorithms_folder() == tmp_path / "algorithms"
    (package / "_templates").mkdir()
    assert resources.templates_folder() == package / "_templates"
    assert resources.algorithms_folder() == tmp_path / "algorithms"


def test_the_version_is_told_once() -> None:
    described = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    assert described["project"]["version"] == bilinear.__version__


def test_the_package_is_typed() -> None:
    assert (Path(bilinear.__file__).parent / "py.typed").is_file()
