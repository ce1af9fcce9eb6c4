"""Certificates: a scheme and its schedules as exact data, for an independent program, and as theorems for the proof assistant Rocq.

Its verdict on theorems is its own words in a run now, or a record of those that it accepted before.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from hashlib import sha256
from pathlib import Path

from bilinear.analysis.digit_bounds import largest_scaled
from bilinear.analysis.identity import schedule_hash, scheme_hash, target_entry
from bilinear.codegen.render import environment
from bilinear.errors import BilinearError, fail
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.digits import Representation
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Monomial, Symbolic, rational, residue, square
from bilinear.ir.schedule import AnySchedule, Block, LinearStage, ScaledSchedule, Schedule, Stage
from bilinear.ir.scheme import Bases, Scheme
from bilinear.verify.hazards import why_not_recursive
from bilinear.visible import visible

FORMAT, MAP_FORMAT = "bilinear-certificate/1", "bilinear-map-certificate/1"
LINE = 140  # The most characters in a line of JSON.


def certificate(scheme: Scheme, schedules: Iterable[AnySchedule] = (), order: int | None = None) -> dict[str, object]:
    """The certificate of a proved scheme, and of proved schedules of it; docs/certificate.md says what each entry means.

    `order` is the order of the error in lambda of an approximate scheme. Coefficients are exact text; blocks are given by name. Schedules
    that compute the same in the same stages appear once.
    """
    distinct = {schedule_hash(schedule): schedule for schedule in schedules}
    body: dict[str, object] = {
        "format": FORMAT,
        "scheme": _scheme(scheme, order),
        "schedules": [_schedule(schedule, own) for own, schedule in distinct.items()],
    }
    return {**body, "sha256": digest(body)}


def map_certificate_text(name: str, maps: Iterable[BilinearAlgorithm], schemes: Iterable[Scheme] = ()) -> str:
    """The certificate of proved algorithms for other bilinear maps, and of the block schemes that they are composed with, as JSON text."""
    body: dict[str, object] = {
        "format": MAP_FORMAT,
        "name": name,
        "maps": [_map(algorithm) for algorithm in maps],
        "schemes": [_scheme(scheme, None) for scheme in schemes],
    }
    return _lines({**body, "sha256": digest(body)}, 0) + "\n"


def _map(algorithm: BilinearAlgorithm) -> dict[str, object]:
    target, (u, v, w) = algorithm.target, algorithm.tables
    return {
        "computes": target.title,
        "ring": str(algorithm.ring),
        "left": list(target.left),
        "right": list(target.right),
        "outputs": list(target.outputs),
        "rows": [[[i, j, str(c)] for i, j, c in row] for row in target.rows],
        "symmetric": sorted(target.symmetric),
        "order": target.order or None,
        "u": _matrix(u),
        "v": _matrix(v),
        "w": _matrix(w),
    }


def certificate_text(scheme: Scheme, schedules: Iterable[AnySchedule] = (), order: int | None = None) -> str:
    """The certificate as JSON text, in lines for readers."""
    found = certificate(scheme, schedules, order)
    return _lines(found, 0) + "\n"


def digest(body: object) -> str:
    """SHA-256 of the JSON text with sorted keys, no spaces, and only ASCII characters."""
    return sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _scheme(scheme: Scheme, order: int | None) -> dict[str, object]:
    u, v, w = scheme.tables
    return {
        "name": scheme.name,
        "citation": scheme.citation,
        "m": scheme.m,
        "k": scheme.k,
        "n": scheme.n,
        "ring": str(scheme.ring),
        "order": order,
        "products": list(scheme.products),
        "u": _matrix(u),
        "v": _matrix(v),
        "w": _matrix(w),
        "bases": None if scheme.bases is None else _bases(scheme, scheme.bases),
        "sha256": scheme_hash(scheme),
    }


def _bases(scheme: Scheme, bases: Bases) -> dict[str, object]:
    maps = {"a": bases.a, "b": bases.b, "c": bases.c, "u": scheme.u, "v": scheme.v, "w": scheme.w}
    return {name: _matrix(linear.matrix) for name, linear in maps.items()}


def _schedule(schedule: AnySchedule, digest: str) -> dict[str, object]:
    written = {t.space for s in schedule.stages if isinstance(s, LinearStage) for m in s.maps for t in m.targets}
    written |= {t.block.space for s in schedule.stages if not isinstance(s, LinearStage) for p in s.products for t in p.targets}
    return {
        "name": schedule.name,
        "levels": schedule.levels,
        "m": schedule.m,
        "k": schedule.k,
        "n": schedule.n,
        "workspaces": [[s.name, s.shape, s.rows, s.columns] for s in schedule.workspaces],
        "stages": [_stage(stage) for stage in schedule.stages],
        "claims": {
            **_scaling(schedule),
            "restores": list(schedule.restores),
            "preserves": [name for name in ("A", "B") if name not in written],
            "recurses_in_place": schedule.in_place
            and {"A", "B"} <= set(schedule.restores)
            and not why_not_recursive(schedule, schedule.restores),
        },
        "sha256": digest,
    }


def _scaling(schedule: AnySchedule) -> dict[str, object]:
    if isinstance(schedule, ScaledSchedule):
        return {"result": [str(schedule.result.alpha), str(schedule.result.beta)], "scaling": "written"}
    if schedule.overwrites:
        return {"result": ["alpha", "0"], "scaling": "overwriting"}
    return {"result": ["alpha", "beta"], "scaling": "implied"}


def _stage(stage: Stage) -> dict[str, object]:
    if isinstance(stage, LinearStage):
        return {
            "maps": [
                {"sources": [str(b) for b in m.sources], "targets": [str(b) for b in m.targets], "matrix": _matrix(m.map.matrix)}
                for m in stage.maps
            ]
        }
    return {
        "products": [{"left": str(p.left), "right": str(p.right), "targets": list(map(target_entry, p.targets))} for p in stage.products]
    }


def _matrix(rows: Sequence[Form]) -> list[list[list[object]]]:
    """Sparse rows: [column from 0, coefficient] for every nonzero entry."""
    return [[[index, str(coefficient)] for index, coefficient in row] for row in rows]


def _lines(value: object, depth: int) -> str:
    """Readable JSON: what fits on a line stays on one."""
    line = json.dumps(value)
    if len(line) + depth <= LINE or not isinstance(value, dict | list):
        return line
    inner, outer = " " * (depth + 1), " " * depth
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_lines(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner + part for part in parts) + f"\n{outer}}}"
    return "[\n" + ",\n".join(inner + _lines(item, depth + 1) for item in value) + f"\n{outer}]"


Entry = tuple[str, str]  # A coefficient and a block, as Rocq reads them.
Step = tuple[str, str, dict[str, object]]
"""The target of a step, the factor of its old value, and its source: a `form`, or a `coefficient` and the operands `left` and `right`."""
OTHERWISE = "`--certificate FILE` writes what examples/check_certificate.py checks"


def rocq_text(scheme: Scheme, schedules: Iterable[AnySchedule] = ()) -> str:
    """The text of the file: definitions, a checker with the proof that it is right, the tables, and a theorem for each.

    Schedules have marked first writes; schedules with the same stages appear once. Raises `BilinearError` (E595) if there is no theorem:
    for approximate schemes, and for schedules with explicit scaling.
    """
    if scheme.ring.is_approximate:
        raise fail("E595", f"{scheme.name} is approximate, and the theorem for Rocq says that C is exactly A*B", OTHERWISE)
    distinct = list({schedule_hash(schedule): schedule for schedule in schedules}.values())
    writer = _RocqWriter(scheme, distinct)
    template = environment().get_template("certificate.v.j2")
    return template.render(
        title=_comment(scheme.name),
        ring=writer.ring,
        scheme=writer.scheme(scheme),
        schedules=[writer.schedule(schedule) for schedule in distinct],
    )


def same_bits_text(representation: Representation, inners: Iterable[int]) -> str:
    """The text about products of residues that have the same bits everywhere, for sums of so many terms: residues determine the sum."""
    limits = [(inner, int(largest_scaled(representation, inner))) for inner in inners]
    title = _comment(representation.name)
    return environment().get_template("same_bits.v.j2").render(title=title, moduli=representation.moduli, limits=limits)


class _RocqWriter:
    """The views that the template prints, with coefficients of the smallest ring that holds all, as Rocq reads them."""

    def __init__(self, scheme: Scheme, schedules: Iterable[AnySchedule]) -> None:
        tables = (c for table in scheme.tables for row in table for _, c in row)
        own = [*tables, *(c for schedule in schedules for c in schedule.coefficients)]
        self.declared = scheme.ring
        self.symbolic = any(isinstance(c, Symbolic) for c in own)
        self.whole = not self.symbolic and all(rational(c).denominator == 1 for c in own)
        self.ring = {"coefficients": self._coefficients(), "scope": "Z_scope" if scheme.ring.modulus or self.whole else "Q_scope"}

    def _coefficients(self) -> str:
        if self.declared.modulus:
            return f"(residues {self.declared.modulus})"
        if self.symbolic:
            return f"(with_root ({square(self.declared.generator)}))"
        return "integers" if self.whole else "rationals"

    def number(self, value: Coefficient) -> str:
        """A coefficient: an integer, a fraction `1#2`, or the pair (a, b) for a + b*sqrt(d)."""
        if self.declared.modulus:
            return str(residue(value, self.declared.modulus))
        if not self.symbolic:
            return _fraction(rational(value))
        parts: dict[Monomial, Fraction] = dict(value.terms) if isinstance(value, Symbolic) else {(): rational(value)}
        root: Monomial = ((self.declared.generator, 1),)
        return f"({_fraction(parts.get((), Fraction(0)))}, {_fraction(parts.get(root, Fraction(0)))})"

    def scheme(self, scheme: Scheme) -> dict[str, object]:
        u, v, w = scheme.tables
        outputs: list[list[Entry]] = [[] for _ in scheme.products]
        for entry, form in enumerate(w):
            for product, c in form:
                outputs[product].append((self.number(c), f"C {entry // scheme.n} {entry % scheme.n}"))
        rows = [
            (
                _comment(name),
                [(self.number(c), f"A {i // scheme.k} {i % scheme.k}") for i, c in left],
                [(self.number(c), f"B {i // scheme.n} {i % scheme.n}") for i, c in right],
                out,
            )
            for name, left, right, out in zip(scheme.products, u, v, outputs, strict=True)
        ]
        title = f"The scheme {scheme.name} {scheme.format} over {scheme.ring}. {scheme.citation}"
        return {"title": _comment(title).strip(), "grid": f"{scheme.m} {scheme.k} {scheme.n}", "products": rows}

    def schedule(self, schedule: AnySchedule) -> dict[str, object]:
        if isinstance(schedule, ScaledSchedule):
            message = f"{schedule.name} has explicit scaling, and the theorem for Rocq implies alpha and beta"
            raise fail("E595", message, OTHERWISE, span=schedule.span)
        spaces = {space.name: number for number, space in enumerate(schedule.workspaces)}
        restored = [f"grid {x} {rows} {columns}" for x, rows, columns in _operands(schedule) if x in schedule.keeps]
        title = f"The schedule {schedule.name}; workspaces: {', '.join(f'T {i} is {name}' for name, i in spaces.items()) or 'none'}"
        return {
            "title": _comment(title),
            "grid": f"{schedule.m} {schedule.k} {schedule.n}",
            "adds": str(not schedule.overwrites).lower(),
            "restored": " ++ ".join(restored) or "[]",
            "stages": [self._stage(stage, spaces) for stage in schedule.stages],
        }

    def _stage(self, stage: Stage, spaces: dict[str, int]) -> list[Step]:
        steps: list[Step] = []
        if isinstance(stage, LinearStage):
            for block_map in stage.maps:
                for target, kept, form in zip(block_map.targets, block_map.kept, block_map.map.matrix, strict=True):
                    terms = [(self.number(c), _block(block_map.sources[i], spaces)) for i, c in form]
                    steps.append((_block(target, spaces), _kept(kept), {"form": terms}))
            return steps
        for product in stage.products:
            operands: dict[str, object] = {"left": _block(product.left, spaces), "right": _block(product.right, spaces)}
            for written in product.targets:
                source = {"coefficient": self.number(written.coefficient), **operands}
                steps.append((_block(written.block, spaces), _kept(written.kept), source))
        return steps


def _operands(schedule: Schedule) -> tuple[tuple[str, int, int], tuple[str, int, int]]:
    return ("A", schedule.m, schedule.k), ("B", schedule.k, schedule.n)


def _kept(kept: Coefficient) -> str:
    return "Beta" if isinstance(kept, Symbolic) else "Keep" if kept else "Drop"


def _block(block: Block, spaces: dict[str, int]) -> str:
    place = f"{max(block.row, 0)} {max(block.column, 0)}"
    return f"{block.space} {place}" if block.space in ("A", "B", "C") else f"T {spaces[block.space]} {place}"


def _fraction(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}#{value.denominator}"


def _comment(text: str) -> str:
    """Text that stays in one comment of Rocq, which reads texts between quotes and comments in comments."""
    return visible(text).replace('"', "'").replace("(*", "( *").replace("*)", "* )")


CLOSED = "Closed under the global context"  # The output of `Print Assumptions` for a theorem without axioms.
PATIENCE = 600  # The most seconds that a check takes.
TOLD = 400  # The most characters of the proof assistant's output that an error repeats.


def require_file_name(place: Path) -> None:
    """Refuse a file that `coqc` does not take whatever it holds (E788): its name has to be an identifier and end with `.v`."""
    if place.suffix == ".v" and not place.stem.startswith("'") and place.stem.replace("'", "").isidentifier():
        return
    fitting = re.sub(r"\W", "_", place.name.removesuffix(".v"), flags=re.ASCII)
    fitting = fitting if fitting.isidentifier() else f"scheme_{fitting}"
    message = f"coqc does not take a file of the name {place.name!r}: letters, digits and _ before .v, no digit first"
    raise fail("E788", message, f"name it {place.with_name(f'{fitting}.v')}")


def accepted_by(text: str) -> str:
    """Which proof assistant accepted every theorem without axioms. Raises `BilinearError`: E596 for none, E597 if refused."""
    compiler = shutil.which("coqc")
    if compiler is None:
        hint = "install it (Debian: `apt-get install coq`), or leave --check out and run `coqc` on the file elsewhere"
        raise fail("E596", "coqc is not installed, so that no proof assistant can check the file", hint)
    answer = _run([compiler, "--version"], None)
    match = re.search(r"The (Coq|Rocq) .*version (\S+)", answer.stdout)
    if answer.returncode or match is None:
        raise fail("E596", f"{compiler} does not report its version of Coq or Rocq", "repair the installation", notes=_notes(answer.stderr))
    version = f"{match[1]} {match[2]}"
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


RECORD = Path(__file__).with_name("accepted.json")  # Written once all files are accepted (test_rocq_record).


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


def on_record(text: str) -> str:
    """Who accepted exactly this text, and what of it; empty if nobody is known to have."""
    mine = sha256(text.encode()).hexdigest()
    return next((f"{each.by} (on record)" for each in record() if each.sha256 == mine), "")
