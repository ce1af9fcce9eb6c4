"""Explain why a scheme or schedule is wrong, and find the smallest edits of its text, or the other reading, that make it right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from bilinear.errors import BilinearError, Diagnostic
from bilinear.explain.repair.edits import Edit, Patch, Writing, place
from bilinear.explain.repair.schedule import ScheduleSearch, StepEdit, search_schedule_repairs
from bilinear.explain.repair.scheme import Solution, search_repairs, solve_tables
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.schedule import AnySchedule
from bilinear.ir.scheme import Scheme, block_name
from bilinear.source import Span
from bilinear.verify.facts import Equation, told
from bilinear.verify.schedule import ScheduleProof
from bilinear.verify.scheme import SchemeProof, multiplies

MOST_WORK = 500_000  # With more terms in all products together, no confusion is tried.
MOST_EQUATIONS = 100_000  # With more Brent equations of right-hand side 1 (m * k * n), no confusion is tried.
MOST_READINGS = 3


@dataclass(frozen=True)
class Confusion:
    """A confusion as a fact, the action that repairs it, and the intended scheme; `brief` stands under a caret at `span`."""

    text: str
    action: str
    meant: Scheme
    brief: str = ""
    span: Span | None = None


def find_confusions(scheme: Scheme) -> tuple[Confusion, ...]:
    """The confusions with the fewest changes that make a wrong scheme right."""
    u, v, w = scheme.tables
    work = sum(len(left) * len(right) for left, right in zip(u, v, strict=True)) * max((len(row) for row in w), default=0)
    if scheme.bases is not None or work > MOST_WORK or scheme.m * scheme.k * scheme.n > MOST_EQUATIONS:
        return ()
    permuted = _permuted_outputs(scheme)
    if permuted is not None:
        return (permuted,)
    for count in range(1, MOST_READINGS + 2):
        found = tuple(c for c in _readings(scheme, count) if multiplies(c.meant))
        if found:
            return found
    return ()


def _permuted_outputs(scheme: Scheme) -> Confusion | None:
    """Outputs that compute each other's blocks: two exchanged outputs, a transposed C, or another permutation."""
    wanted = {_needed(scheme, output): output for output in range(scheme.m * scheme.n)}
    goes = [wanted.get(frozenset(_computed(scheme, row).items())) for row in scheme.tables[2]]
    moved = [(source, target) for source, target in enumerate(goes) if source != target]
    if not moved or None in goes or len(set(goes)) < len(goes):
        return None
    rows: dict[int, Form] = {target: scheme.tables[2][source] for source, target in enumerate(goes) if target is not None}
    meant = replace(scheme, w=LinearMap(scheme.rank, tuple(rows[i] for i in range(len(rows)))))
    if not multiplies(meant):
        return None
    names = [(_output(scheme, a), _output(scheme, b)) for a, b in moved if b is not None]
    text, action = _told(names, all(target == _transposed(i, scheme.m, scheme.n) for i, target in enumerate(goes)))
    places = scheme.places
    span = places.outputs[moved[0][0]] if places is not None and not places.rows else None
    return Confusion(text, action, meant, f"this is {names[0][1]}", span)


def _told(names: list[tuple[str, str]], transposed: bool) -> tuple[str, str]:
    if len(names) == 2:
        first, second = names[0]
        return f"{first} and {second} are exchanged" + ("; C comes out transposed" * transposed), f"exchanging {first} and {second}"
    if transposed:
        return "C comes out transposed", "numbering the blocks of C row by row"
    moves = ", ".join(f"what is written as {a} is {b}" for a, b in names)
    return f"the outputs are permuted: {moves}", "renaming them"


def _needed(scheme: Scheme, output: int) -> frozenset[tuple[tuple[int, int], object]]:
    i, j = divmod(output, scheme.n)
    return frozenset(((i * scheme.k + p, p * scheme.n + j), 1) for p in range(scheme.k))


def _computed(scheme: Scheme, row: Form) -> dict[tuple[int, int], object]:
    u, v, _ = scheme.tables
    width = scheme.k * scheme.n
    terms = form((a * width + b, z * x * y) for p, z in row for a, x in u[p] for b, y in v[p])
    return {divmod(pair, width): value for pair, value in terms}


def _readings(scheme: Scheme, count: int) -> list[Confusion]:
    """The scheme read in another way, by `count` changes: A and B exchanged, or some tables numbered column by column."""
    found = []
    for exchange, *columns in product((False, True), repeat=4):
        if exchange + sum(columns) != count or (exchange and scheme.m != scheme.n):
            continue
        names = [name for name, by_column in zip("ABC", columns, strict=True) if by_column]
        facts, actions = (["A and B are exchanged"], ["exchanging A and B"]) if exchange else ([], [])
        if names:
            facts.append(f"the blocks of {_listed(names)} are numbered column by column")
            actions.append(f"numbering the blocks of {_listed(names)} row by row")
        found.append(Confusion(" and ".join(facts), " and ".join(actions), reread(scheme, exchange, columns)))
    return found


def reread(scheme: Scheme, exchange: bool, columns: Sequence[bool]) -> Scheme:
    """The scheme with A and B exchanged, or with those of its blocks of A, B and C read row by row that were column by column."""
    u, v, w = scheme.tables
    if exchange:
        u, v = v, u
    m, k, n = scheme.m, scheme.k, scheme.n
    left = tuple(_renumbered(row, m, k) for row in u) if columns[0] else u
    right = tuple(_renumbered(row, k, n) for row in v) if columns[1] else v
    outputs = tuple(w[_transposed(i, m, n)] for i in range(m * n)) if columns[2] else w
    return replace(scheme, u=LinearMap(m * k, left), v=LinearMap(k * n, right), w=LinearMap(scheme.rank, outputs))


def _renumbered(row: Form, rows: int, columns: int) -> Form:
    """Convert a form over blocks numbered column by column to blocks numbered row by row."""
    return form((index % rows * columns + index // rows, value) for index, value in row)


def _transposed(index: int, rows: int, columns: int) -> int:
    """The column-by-column number of the block with this row-by-row number."""
    return index % columns * rows + index // columns


def _output(scheme: Scheme, index: int) -> str:
    return block_name("C", *divmod(index, scheme.n))


MOST_SHOWN = 3  # The most repairs, equations of a group, and rows of a solved table that are shown.
MOST_NAMED = 12  # The most rows of a solved table that are named.


@dataclass(frozen=True)
class EquationGroup:
    """Failing equations that point at one place: an output, or a factor of a product."""

    points_at: str
    equations: tuple[Equation, ...]

    def __str__(self) -> str:
        count = len(self.equations)
        some = "; ".join(str(e) for e in self.equations[:MOST_SHOWN])
        more = f"; and {count - MOST_SHOWN} more" if count > MOST_SHOWN else ""
        return f"{count} failing equation{' points' if count == 1 else 's point'} at {self.points_at}: {some}{more}"


@dataclass(frozen=True)
class Repair:
    """Edits that together are proved to make the scheme or schedule correct, with their description and patches."""

    edits: tuple[Edit | StepEdit, ...]

    def __str__(self) -> str:
        return _listed([f"{e.text} ({place(e.span)})" if e.span is not None else e.text for e in self.edits])

    @property
    def patches(self) -> tuple[Patch, ...]:
        """The patches in order of the text; empty without a text."""
        return tuple(patch for edit in self.edits for patch in edit.patches)


@dataclass(frozen=True)
class Explanation:
    """Facts about an error, and its repairs: `count` of equally few edits, three kept; the rings it `holds_over` as written."""

    subject: str
    groups: tuple[EquationGroup, ...] = ()
    facts: tuple[str, ...] = ()
    confusions: tuple[Confusion, ...] = ()
    repairs: tuple[Repair, ...] = ()
    count: int = 0
    holds_over: tuple[str, ...] = ()

    @property
    def span(self) -> Span | None:
        """The smallest offending span known."""
        first = self.repairs[0].edits[0] if self.repairs else self.confusions[0] if self.confusions else None
        return first.span if first is not None else None

    @property
    def label(self) -> str:
        """The text under the caret."""
        if self.repairs:
            return self.repairs[0].edits[0].brief
        return self.confusions[0].brief if self.confusions else ""

    @property
    def others(self) -> tuple[tuple[Span, str], ...]:
        """The places of the other edits of the first repair; if it is a single edit, the places of equally good repairs."""
        if not self.repairs:
            return ()
        first, word = self.repairs[0].edits, "and"
        edits = first[1:]
        if not edits:
            edits, word = tuple(repair.edits[0] for repair in self.repairs[1:]), "or"
        return tuple((edit.span, f"{word} {edit.brief}") for edit in edits if edit.span is not None)

    @property
    def notes(self) -> tuple[str, ...]:
        """The facts, one a note."""
        ring = (f"as it is written it holds over {', '.join(self.holds_over)}",) if self.holds_over else ()
        return (*map(str, self.groups), *self.facts, *(confusion.text for confusion in self.confusions), *self.counted, *ring)

    @property
    def hints(self) -> tuple[str, ...]:
        """The actions, each of which makes the subject correct."""
        told = [f"{confusion.action} makes the {self.subject} correct" for confusion in self.confusions]
        for number, repair in enumerate(self.repairs):
            verb = "makes" if len(repair.edits) == 1 else "together make"
            told.append(f"{'or ' if number else ''}{repair} {verb} the {self.subject} correct")
        if self.holds_over:
            told.append(f"if {self.holds_over[0]} is the ring that is meant, say so in the header: over {self.holds_over[0]}")
        return tuple(told)

    @property
    def counted(self) -> tuple[str, ...]:
        """How many repairs there are, if there is more than one."""
        if self.count < 2:
            return ()
        size = len(self.repairs[0].edits)
        shown = f", of which {len(self.repairs)} are shown" if self.count > len(self.repairs) else ""
        return (f"there are {self.count} repairs of {_edits(size)}{shown}",)

    def attached(self, diagnostic: Diagnostic) -> Diagnostic:
        """The diagnostic with its notes and hints replaced by the explanation's, pointing at what needs repair."""
        hints = self.hints or diagnostic.hints
        if self.span is None:
            return replace(diagnostic, notes=self.notes, hints=hints)
        return replace(diagnostic, span=self.span, label=self.label, others=self.others, notes=self.notes, hints=hints)


def explained(proof: SchemeProof | ScheduleProof, scheme: Scheme, schedule: AnySchedule | None = None) -> RefusedError:
    """The error for a failed proof, with its explanation; `schedule` is the proved schedule, if there was one.

    A wrong scheme gives one diagnostic (E301). A wrong schedule keeps its own, after one that points at a repair, if any (E410).
    """
    try:
        proof.require()
    except BilinearError as error:
        found = error.diagnostics
    else:
        raise ValueError("a proof that holds has nothing to explain")
    if isinstance(proof, SchemeProof):
        return RefusedError((explain_scheme(scheme, proof).attached(found[0]), *found[1:]), proof)
    assert schedule is not None, "the proof of a schedule is explained with the schedule"
    explanation = explain_schedule(schedule, scheme, proof)
    if explanation.repairs:
        size = len(explanation.repairs[0].edits)
        message = f"{proof.schedule} is wrong, and {_edits(size)} make{'s' if size == 1 else ''} it right"
        return RefusedError((explanation.attached(Diagnostic("E410", message)), *found), proof)
    return RefusedError((replace(found[0], notes=(*found[0].notes, *explanation.notes)), *found[1:]), proof)


def explain_scheme(scheme: Scheme, proof: SchemeProof) -> Explanation:
    """Why a scheme is wrong: where the failing equations point, what each single table must be, and the smallest proved repairs."""
    solutions = solve_tables(scheme)
    groups = _groups(scheme, proof, solutions)
    facts = tuple(_solved_facts(scheme, solutions))
    told = Explanation("scheme", groups, facts, find_confusions(scheme), holds_over=proof.valid_over)
    if told.confusions:
        return told
    search = search_repairs(scheme, solutions)
    if not search.repairs:
        never = f"no repairs are searched over {scheme.ring}"
        return replace(told, facts=(*facts, never if scheme.ring.has_zero_divisors else _searched(search.complete, search.close)))
    return replace(told, repairs=tuple(Repair(edits) for edits in search.repairs[:MOST_SHOWN]), count=search.count)


def explain_schedule(schedule: AnySchedule, scheme: Scheme, proof: ScheduleProof) -> Explanation:
    """Why a schedule is wrong: the smallest proved repairs of its steps. The proof itself reports what fails."""
    if proof.holds:
        return Explanation("schedule")
    search = search_schedule_repairs(schedule, scheme)
    if not search.repairs:
        return Explanation("schedule", facts=(_searched_steps(search),))
    return Explanation("schedule", repairs=tuple(Repair(edits) for edits in search.repairs[:MOST_SHOWN]), count=len(search.repairs))


def _edits(size: int) -> str:
    return "one edit" if size == 1 else f"{size} edits"


def _searched(complete: int, close: int) -> str:
    if not close:
        return "no repair was searched: there are too many edits to try"
    most = f"no repair of up to {complete} edits was found" if complete > 1 else "no single edit repairs it" if complete else ""
    if close == complete:
        return most
    kinds = f"of up to {close} signs, operands and dropped terms" if close > 1 else "of a sign, an operand or a dropped term"
    return f"{most}, nor one {kinds}" if most else f"no repair {kinds} was found"


def _searched_steps(search: ScheduleSearch) -> str:
    most = _searched(search.complete, search.complete) if search.complete else ""
    if not search.looked:
        return most or "no repair was searched"
    first = f"the first {search.looked} combinations of edits that were tried"
    return f"{most}, nor one among {first}" if most else f"no repair was found among {first}"


def _groups(scheme: Scheme, proof: SchemeProof, solutions: dict[str, Solution]) -> tuple[EquationGroup, ...]:
    """The failing equations, grouped by the one factor of a product that repairs them all, else by their output."""
    for table, side in (("u", "left"), ("v", "right")):
        solution = solutions.get(table)
        if solution is not None and solution.mends and len(solution.rows) == 1:
            return (EquationGroup(f"the {side} factor of {scheme.products[solution.rows[0][0]]}", proof.failures),)
    outputs: dict[str, list[Equation]] = {}
    for equation in proof.failures:
        outputs.setdefault(equation.output, []).append(equation)
    groups = [EquationGroup(output, tuple(equations)) for output, equations in outputs.items()]
    return tuple(groups[: 2 * MOST_SHOWN])


def _solved_facts(scheme: Scheme, solutions: dict[str, Solution]) -> list[str]:
    """The table that each one must be if the other two are right."""
    mending = [s for s in solutions.values() if s.mends and len(s.rows) <= MOST_NAMED]
    facts = [f"with {_rows(scheme, s) if len(s.rows) <= MOST_SHOWN else _others(scheme, s)} the scheme is correct" for s in mending]
    if solutions and not any(s.mends for s in solutions.values()):
        facts.append("at least two of the three tables are wrong: none of them can be mended alone")
    wrong = solutions["w"].impossible if "w" in solutions else ()
    if wrong and len(wrong) < scheme.m * scheme.n:
        names = [_output(scheme, output) for output in wrong]
        facts.append(f"no sum of these products gives {_listed(names)}")
    return facts


def _rows(scheme: Scheme, solution: Solution) -> str:
    value, told = Writing(scheme).value, []
    for row, terms in solution.rows:
        total = _sum((value(solution.table, index), c) for index, c in terms)
        if solution.table == "w":
            told.append(f"{_output(scheme, row)} = {total}")
        else:
            told.append(f"{total} as the {'left' if solution.table == 'u' else 'right'} factor of {scheme.products[row]}")
    return _listed(told)


def _others(scheme: Scheme, solution: Solution) -> str:
    if solution.table == "w":
        return f"other sums for {_listed([_output(scheme, row) for row, _ in solution.rows])}"
    side = "left" if solution.table == "u" else "right"
    return f"other {side} factors of {_listed([scheme.products[row] for row, _ in solution.rows])}"


def _sum(terms: Iterable[tuple[str, Coefficient]]) -> str:
    text = ""
    for name, coefficient in terms:
        minus = not isinstance(coefficient, Symbolic) and coefficient < 0
        size = -coefficient if minus else coefficient
        body = name if size == 1 else f"{told(size)} {name}"
        text += (f" {'-' if minus else '+'} " if text else "-" * minus) + body
    return text or "0"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])


class RefusedError(BilinearError):
    """A failed proof as an error; it carries the proof, so that a report need not prove again."""

    def __init__(self, diagnostics: Sequence[Diagnostic], proof: SchemeProof | ScheduleProof) -> None:
        super().__init__(diagnostics)
        self.proof = proof
        self.args = (self.diagnostics, proof)
