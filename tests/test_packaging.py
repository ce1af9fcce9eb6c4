"""What a user installs: a light import, the files that travel with the package, and numbers that agree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

import bilinear
from bilinear import resources

CHECKOUT = Path(__file__).parent.parent
PACKAGE = Path(bilinear.__file__).parent
ENGINES = ("sympy", "lark", "jinja2", "cupy", "typer", "rich", "cuda", "torch", "platformdirs", "numpy")


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("statement", ["import bilinear", "import bilinear; bilinear.BilinearError, bilinear.__version__"])
def test_the_import_is_light(statement: str) -> None:
    program = f"import sys; {statement}; print(*sorted({{name.partition('.')[0] for name in sys.modules}} & set({ENGINES})))"
    assert run(program).split() == []


@pytest.mark.slow
@pytest.mark.parametrize("first", [name for name in bilinear.__all__ if find_spec(f"bilinear.{name}")] + ["load", "matmul"])
def test_public_names_stay_what_they_are_whichever_is_used_first(first: str) -> None:
    """Importing a module of the package sets an attribute of that name on the package, which must not hide a public function."""
    names = [first, *bilinear.__all__]
    found = run(f"import bilinear; bilinear.load('strassen').verify(); [print(type(getattr(bilinear, n)).__name__) for n in {names}]")
    assert "module" not in found.split()


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        bilinear.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("found", "reason"), [("None", "not installed"), ("types.SimpleNamespace(__version__='2.0', library=0)", "PyTorch 2.0 lacks")]
)
def test_without_pytorch_its_room_says_what_to_install(found: str, reason: str) -> None:
    program = f"""
import sys, types
sys.modules["torch"] = {found}
from bilinear import BilinearError
try:
    import bilinear.torch
except BilinearError as error:
    print(error)
"""
    printed = run(program)
    assert printed.startswith("error[E571]: ") and reason in printed and "pip install 'torch>=2.6'" in printed


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


def imported(module: str) -> set[str]:
    """The modules of the package that one imports, lazily or not."""
    path = PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    path = path if path.is_file() else PACKAGE.joinpath(*module.split("."), "__init__.py")
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bilinear."):
            own = node.module.removeprefix("bilinear.")
            inner = {f"{own}.{alias.name}" for alias in node.names if (PACKAGE / own.replace(".", "/") / f"{alias.name}.py").is_file()}
            found |= inner or {own}
    return found


def test_a_plan_is_kept_by_all_that_makes_its_kernels() -> None:
    """What lowers, renders and builds is hashed, and all that it computes kernels by; proofs, messages and texts make none."""
    beside = ("verify.", "explain.", "errors", "resources", "reading", "places", "source", "visible", "frontend.files")
    makers = tuple(name.removesuffix(".py").replace("/", ".") for name in resources.KERNEL_MAKERS)
    assert all((PACKAGE / name).exists() for name in resources.KERNEL_MAKERS)
    rooms = [path for room in ("passes", "lowering", "codegen") for path in sorted((PACKAGE / room).rglob("*.py"))]
    rooms += PACKAGE.glob("methods/*/lower.py")
    waiting = [".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__") for path in rooms]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module not in seen and not f"{module}.".startswith(beside):
            seen.add(module)
            waiting += imported(module)
    assert {module for module in seen if not f"{module}.".startswith(tuple(f"{name}." for name in makers))} == set()
    assert all(any(f"{module}.".startswith(f"{name}.") for module in seen) for name in makers), "none is hashed for nothing"


def test_the_version_is_told_once() -> None:
    described = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    assert described["project"]["version"] == bilinear.__version__


def test_the_package_is_typed() -> None:
    assert (Path(bilinear.__file__).parent / "py.typed").is_file()


@pytest.mark.slow  # the types of the same script are checked with those of all tests
def test_a_users_script_knows_the_types_of_its_arrays(tmp_path: Path) -> None:
    """`mypy --strict`, apart from this checkout and its settings; one wrong type is found."""
    script = (CHECKOUT / "tests" / "typed_script.py").read_text(encoding="utf-8")
    for text, told in ((script, "Success"), (script.replace("Tensor)\n", "int)\n", 1), 'Expression is of type "Tensor", not "int"')):
        (tmp_path / "script.py").write_text(text, encoding="utf-8")
        found = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "script.py"], check=False, cwd=tmp_path, capture_output=True, text=True
        )
        assert told in found.stdout, found.stdout + found.stderr


def test_any_has_one_other_name() -> None:
    """An array of somebody else is an `Array`; a second name for `Any` would hide where types are missing."""
    names = {}
    for file in PACKAGE.rglob("*.py"):
        for line in re.findall(r"(?m)^\w+(?:: \w+)? = Any$", file.read_text(encoding="utf-8")):
            names[file.relative_to(PACKAGE).as_posix()] = line
    assert names == {"ir/matrix.py": "Array: TypeAlias = Any"}


def test_types_are_missing_in_few_places() -> None:
    """Where an element of an array, a handle of CuPy or cublasLt, or options that are handed on have no type: nowhere else."""
    written = {
        file.relative_to(PACKAGE).as_posix(): len(re.findall(r"\bAny\b", file.read_text(encoding="utf-8")))
        for file in PACKAGE.rglob("*.py")
    }
    assert sum(written.values()) <= 36, {file: count for file, count in written.items() if count}


def test_files_are_read_in_one_sitting() -> None:
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > 600} == {}


def test_no_class_name_stands_for_two_things() -> None:
    texts = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    names = Counter(name for text in texts for name in re.findall(r"(?m)^ *class _*(\w+)[(:]", text))
    assert len(names) > 500
    assert [name for name, count in names.items() if count > 1] == []
