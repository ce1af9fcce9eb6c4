"""Known confusions: a wrong scheme that becomes right when its tables are read in another way, or its outputs reordered.

Every confusion is proved: the intended scheme is built, and its Brent equations are decided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.scheme import Scheme, block_name
from bilinear.source import Span
from bilinear.verify.scheme import multiplies

MOST_WORK = 500_000
"""With more terms in all products together, no confusion is tried."""
MOST_EQUATIONS = 100_000
"""With more ones on the right-hand sides of the Brent equations (m * k * n), no confusion is tried."""
MOST_READINGS = 3


@dataclass(frozen=True)
class Confusion:
    """A confusion, as a fact; the action that repairs it ("exchanging ..."); and the intended scheme.

    `brief` stands under a caret at `span`, the first wrong output.
    """

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
    """The fact and the action for permuted outputs."""
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
    """The output of a row of W: the coefficient of each product of a block of A and a block of B."""
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
            blocks = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
            facts.append(f"the blocks of {blocks} are numbered column by column")
            actions.append(f"numbering the blocks of {blocks} row by row")
        found.append(Confusion(" and ".join(facts), " and ".join(actions), _reread(scheme, exchange, columns)))
    return found


def _reread(scheme: Scheme, exchange: bool, columns: list[bool]) -> Scheme:
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
