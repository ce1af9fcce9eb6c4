"""Run the proof assistant on a file of theorems, and believe nothing but its own words."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from bilinear.errors import BilinearError, fail

CLOSED = "Closed under the global context"
"""The output of `Print Assumptions` for a theorem without axioms."""
PATIENCE = 600
"""The most seconds that a check takes."""
TOLD = 400
"""The most characters of the proof assistant's output that an error repeats."""


def require_file_name(place: Path) -> None:
    """Refuse a file that `coqc` does not take whatever it holds (E788): its name has to be an identifier and end with `.v`."""
    if place.suffix == ".v" and not place.stem.startswith("'") and place.stem.replace("'", "").isidentifier():
        return
    fitting = re.sub(r"\W", "_", place.name.removesuffix(".v"), flags=re.ASCII)
    fitting = fitting if fitting.isidentifier() else f"scheme_{fitting}"
    message = f"coqc does not take a file of the name {place.name!r}: letters, digits and _ before .v, no digit first"
    raise fail("E788", message, f"name it {place.with_name(f'{fitting}.v')}")


def accepted_by(text: str) -> str:
    """Which proof assistant accepted every theorem of a file without axioms, in words.

    Raises `BilinearError` if there is none (E596), and if it does not accept the file, or finds axioms (E597).
    """
    compiler, version = _compiler()
    theorems = text.count("\nPrint Assumptions ")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.v"
        path.write_text(text, encoding="utf-8")
        done = _run([compiler, "-q", path.name], folder)
    if done.returncode:
        raise _refused(version, done.stderr or done.stdout)
    said = [line for line in done.stdout.splitlines() if line.strip()]
    if not theorems or said != [CLOSED] * theorems:
        raise _refused(version, done.stdout)
    return f"{version}: {theorems} theorem{'s' if theorems > 1 else ''}, {CLOSED[0].lower()}{CLOSED[1:]}"


def _compiler() -> tuple[str, str]:
    """The path of `coqc`, and the name and version that it gives."""
    path = shutil.which("coqc")
    if path is None:
        hint = "install it (Debian: `apt-get install coq`), or leave --check out and run `coqc` on the file elsewhere"
        raise fail("E596", "coqc is not installed, so that no proof assistant can check the file", hint)
    said = _run([path, "--version"], None)
    match = re.search(r"The (Coq|Rocq) .*version (\S+)", said.stdout)
    if said.returncode or match is None:
        raise fail("E596", f"{path} does not report its version of Coq or Rocq", "repair the installation", notes=_notes(said.stderr))
    return path, f"{match[1]} {match[2]}"


def _run(command: list[str], folder: str | None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        hint = "take fewer --levels, or write the file and run coqc on it alone"
        raise fail("E597", f"coqc did not end within {PATIENCE} s", hint) from None
    except OSError as error:
        raise fail("E596", f"coqc does not run: {error.strerror or error}", "repair the installation") from None


def _refused(version: str, said: str) -> BilinearError:
    hint = "report it with the .bl file: the proof assistant should accept what the package proves"
    return fail("E597", f"{version} does not accept the theorems", hint, notes=_notes(said))


def _notes(said: str) -> tuple[str, ...]:
    words = " ".join(said.split())
    return (words[-TOLD:],) if words else ()
