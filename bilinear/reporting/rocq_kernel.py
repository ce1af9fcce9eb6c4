"""The verdict of the proof assistant on a file of theorems: its own words in a run now, or a record of those that it accepted before."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from bilinear.analysis.identity import scheme_hash
from bilinear.errors import BilinearError, fail
from bilinear.frontend import Loaded
from bilinear.reporting.examine import rocq_of

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
    return f"{version}: {theorems} theorem{'s' if theorems > 1 else ''}, without axioms"


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


RECORD = Path(__file__).with_name("accepted.json")
"""Written after every one of the files was accepted (tests/reporting/test_rocq_record.py)."""


@dataclass(frozen=True)
class Accepted:
    """A file that a proof assistant accepted: of which algorithm, the hashes of its scheme and of its text, and who accepted what."""

    name: str
    scheme: str
    sha256: str
    by: str


@cache
def record() -> tuple[Accepted, ...]:
    """All files that were accepted, one for each shipped algorithm that has theorems, at one level."""
    return tuple(Accepted(**row) for row in json.loads(RECORD.read_text(encoding="utf-8")))


def entry(loaded: Loaded, text: str, by: str) -> Accepted:
    """The entry for a text that was accepted."""
    return Accepted((loaded.schedule or loaded.scheme).name, scheme_hash(loaded.scheme), _hash(text), by)


def as_json(entries: tuple[Accepted, ...]) -> str:
    """The record as it is stored."""
    return json.dumps([asdict(each) for each in entries], indent=1) + "\n"


def on_record(text: str) -> str:
    """Who accepted exactly this text, and what of it; empty if nobody is known to have."""
    mine = _hash(text)
    return next((f"{each.by} (on record)" for each in record() if each.sha256 == mine), "")


def accepted_on_record(loaded: Loaded, inputs: str) -> str:
    """The same for the theorems about a proved algorithm at one level. The text is generated again, so that any change is noticed."""
    if scheme_hash(loaded.scheme) not in {each.scheme for each in record()}:
        return ""
    try:
        return on_record(rocq_of(loaded, 1, inputs))
    except BilinearError:  # a schedule of a shipped scheme may have no theorems
        return ""


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()
