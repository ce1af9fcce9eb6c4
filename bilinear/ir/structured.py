"""Products of matrices with structure as bilinear maps: triangular, symmetric and skew-symmetric ones, and X*X^T."""

from __future__ import annotations

from bilinear.ir.bilinear_map import BilinearMap
from bilinear.ir.scheme import block_name

KINDS = {
    "g": "general",
    "u": "upper triangular",
    "l": "lower triangular",
    "s": "symmetric",
    "k": "skew-symmetric",
    "w": "skew-symmetric with a diagonal",
}
TRANSPOSED = "t"
"""For the second operand: the transposed first one."""

Place = tuple[int, int]
Entries = dict[Place, tuple[int, int]]
"""The number and the sign of the value at each place that is not zero."""


def structured_product(left: str, right: str, m: int, k: int, n: int, outputs: frozenset[int] | None = None) -> BilinearMap:
    """The product of an m x k and a k x n matrix of these kinds.

    Values are numbered row by row (in a lower triangular matrix column by column), without entries that others determine. With `t` the map
    is X*X^T and gives its upper triangle; two upper triangular matrices give an upper triangular one. `outputs` are the numbers of the
    outputs, if not all are wanted. Matrices of all kinds but g and t are square.
    """
    a, a_names = _operand(left, "A", m, k)
    if right == TRANSPOSED:
        b, b_names = {(j, i): value for (i, j), value in a.items()}, tuple(f"{name}^T" for name in a_names)
    else:
        b, b_names = _operand(right, "B", k, n)
    places = [(i, j) for i in range(m) for j in range(n) if _wanted(left + right, i, j)]
    rows = tuple(tuple(_terms(a, b, place, k)) for place in places)
    left_out = [number for number in range(len(places)) if outputs is not None and number not in outputs]
    rows = tuple(() if number in left_out else row for number, row in enumerate(rows))
    names = tuple(block_name("C", i, j) for i, j in places)
    product = f"A*A^T, A {KINDS[left]}" if right == TRANSPOSED else f"A*B, A {KINDS[left]}, B {KINDS[right]}"
    without = f", without {', '.join(names[number] for number in left_out)}" if left_out else ""
    triangle = ", upper triangle" if right == TRANSPOSED else ""
    return BilinearMap(f"{product}, {m} x {k} x {n}{triangle}{without}", a_names, b_names, names, rows)


def _terms(a: Entries, b: Entries, place: Place, k: int) -> list[tuple[int, int, int]]:
    i, j = place
    total: dict[tuple[int, int], int] = {}
    for p in range(k):
        if (i, p) in a and (p, j) in b:
            (x, sign), (y, other) = a[i, p], b[p, j]
            total[x, y] = total.get((x, y), 0) + sign * other
    return [(x, y, c) for (x, y), c in total.items() if c]


def _operand(kind: str, letter: str, rows: int, columns: int) -> tuple[Entries, tuple[str, ...]]:
    """The entries of a matrix of some kind, and the names of its values."""
    places = [(i, j) for i in range(rows) for j in range(columns) if _own(kind, i, j)]
    places.sort(key=lambda place: place[::-1] if kind == "l" else place)
    entries: Entries = {place: (number, 1) for number, place in enumerate(places)}
    if kind in "skw":
        sign = 1 if kind == "s" else -1
        entries |= {(j, i): (number, sign) for number, (i, j) in enumerate(places) if i != j}
    return entries, tuple(block_name(letter, i, j) for i, j in places)


def _own(kind: str, i: int, j: int) -> bool:
    """Whether the entry at a place is a value of its own: not 0, and not determined by another entry."""
    return kind == "g" or (i >= j if kind == "l" else i < j or (i == j and kind != "k"))


def _wanted(kinds: str, i: int, j: int) -> bool:
    """Whether an output is wanted."""
    return i <= j or not (kinds == "uu" or kinds.endswith(TRANSPOSED))
