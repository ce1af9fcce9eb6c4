"""The scripts under benchmarks/: each answers `--help` without CuPy, and ends with the cause where it needs a GPU and none is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from each_case import each

FOLDER = Path(__file__).parents[1] / "benchmarks"
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.py"))}
WITH_OPTIONS = [name for name, text in TEXTS.items() if ("ArgumentParser(" in text and name != "common") or "parser_of(__doc__)" in text]
ON_GPU = [name for name in WITH_OPTIONS if " need_gpu()" in TEXTS[name] and name not in ("gram", "many_gpus")]
"""Without options: `gram` and `many_gpus` have more to say first."""
WORDS = {"modes": ["--measure"], "largest": ["--measure"], "library_points": ["-o", "never.xz"], "preload_random": ["1"]}
PROGRAM = """
import contextlib, importlib, io, json, sys
sys.modules |= dict.fromkeys(("cupy", "torch", "mpi4py"))
found = {}
for name, words in json.load(sys.stdin):
    sys.argv, out = [name, *words], io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            importlib.import_module(name).main()
            ended = "no end"
        except SystemExit as end:
            ended = end.code
        except BaseException as error:
            ended = repr(error)
    found[name] = ended, out.getvalue()
print(json.dumps(found))
"""


def ends(calls: list[tuple[str, list[str]]]) -> dict[str, tuple[object, str]]:
    """How each script ends with these words where CuPy, PyTorch and mpi4py are missing, and what it prints."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=FOLDER, input=json.dumps(calls), capture_output=True, text=True, check=True)
    found: dict[str, tuple[object, str]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def helps() -> dict[str, tuple[object, str]]:
    return ends([(name, ["--help"]) for name in WITH_OPTIONS])


@pytest.fixture(scope="module")
def without_gpu() -> dict[str, tuple[object, str]]:
    return ends([(name, WORDS.get(name, [])) for name in ON_GPU])


@each("name", WITH_OPTIONS)
def test_help_needs_no_cupy(helps: dict[str, tuple[object, str]], name: str) -> None:
    code, text = helps[name]
    assert code in (0, None) and text.startswith("usage: ")


@each("name", ON_GPU)
def test_without_a_gpu_the_cause_is_shown(without_gpu: dict[str, tuple[object, str]], name: str) -> None:
    end, _ = without_gpu[name]
    assert str(end).startswith("error[E680]: no GPU can be timed here: CuPy is not installed")


@pytest.mark.slow
def test_random_problems_have_the_same_bits_in_any_layout_of_the_host(tmp_path: Path) -> None:
    words = ["same_bits.py", "--host", "--count", "150", "--processes", "2", "--json", str(tmp_path / "found.json")]
    subprocess.run([sys.executable, *words], cwd=FOLDER, capture_output=True, check=True)
    (row,) = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert row["problems"] >= 150 and row["differences"] == 0


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["--sizes", "abc", "--counts"], "'abc' is not a list of positive integers"),
        (["--sizes", "0", "--counts"], "'0' is not a list of positive integers"),
        (["--sizes", "-5"], "'-5' is not a list of positive integers"),
        (["--threads", "1,", "--counts"], "'1,' is not a list of positive integers"),
        (["--sizes", "513", "--counts"], "--counts needs multiples of 8"),
    ],
)
def test_sizes_that_many_core_cannot_count(words: list[str], cause: str) -> None:
    done = subprocess.run([sys.executable, "many_core.py", *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and cause in done.stderr and "Traceback" not in done.stderr
