"""Other bases: the products they give, and their numbers of terms against a search through all bases of small entries."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bilinear.algebra import change_basis
from bilinear.algebra.change_basis import change_to_sparse_bases
from bilinear.algebra.share_sums import share_sums
from bilinear.cli.app import app
from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend.algorithms import compose
from bilinear.frontend.printer import print_scheme
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import generator, rational
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source
from bilinear.verify.scheme import prove_scheme


def terms(scheme: Scheme) -> list[int]:
    return [sum(map(len, linear.matrix)) for linear in (scheme.u, scheme.v, scheme.w)]


def fewest_terms(rows: tuple[Form, ...], size: int) -> int:
    """The least number of nonzeros of U X over all invertible X with entries -1, 0 and 1."""
    matrix = np.array([[int(rational(dict(row).get(i, 0))) for i in range(size)] for row in rows])
    columns = [np.array(x) for x in product((0, 1, -1), repeat=size) if next((c for c in x if c), 0) == 1]
    weights = [int(np.count_nonzero(matrix @ x)) for x in columns]
    best = 10**9
    for chosen in combinations(range(len(columns)), size):
        weight = sum(weights[i] for i in chosen)
        if weight < best and abs(np.linalg.det(np.array([columns[i] for i in chosen]))) > 0.5:
            best = weight
    return best


def multiply(scheme: Scheme, seed: int) -> bool:
    """Whether the maps, run one after another on integers, give the product by its definition."""
    chance = random.Random(seed)
    a = [chance.randint(-99, 99) for _ in range(scheme.m * scheme.k)]
    b = [chance.randint(-99, 99) for _ in range(scheme.k * scheme.n)]
    assert scheme.bases is not None
    left, right = apply(scheme.u, apply(scheme.bases.a, a)), apply(scheme.v, apply(scheme.bases.b, b))
    found = apply(scheme.bases.c, apply(scheme.w, [x * y for x, y in zip(left, right, strict=True)]))
    wanted = np.array(a).reshape(scheme.m, scheme.k) @ np.array(b).reshape(scheme.k, scheme.n)
    return bool(found == wanted.ravel().tolist())


def apply(linear: LinearMap, values: list[int]) -> list[int]:
    known = list(values)
    for step in linear.steps:
        known.append(sum(c * known[i] for i, c in step))  # type: ignore[misc]
    return [sum(c * known[i] for i, c in output) for output in linear.outputs]  # type: ignore[misc]


@pytest.mark.parametrize("name", ["strassen", "winograd"])
def test_twelve_additions_a_level(name: str) -> None:
    """Karstadt and Schwartz's number, for the first scheme and Winograd's alike; no basis of small entries has fewer terms."""
    scheme = load(name).scheme
    shared = share_sums(change_to_sparse_bases(scheme)).scheme
    assert [shared.u.additions, shared.v.additions, shared.w.additions] == [3, 3, 6]
    assert shared.u.scalings == shared.v.scalings == shared.w.scalings == 0
    assert shared.tables == scheme.tables and prove_scheme(shared).holds and multiply(shared, 1)
    first = [next(row[i] for row in map(dict, shared.u.matrix) if i in row) for i in range(4)]
    assert first == [1, 1, 1, 1], "of each column the first entry is positive"
    back = tuple(tuple((row, c) for row, form in enumerate(scheme.tables[2]) for i, c in form if i == p) for p in range(7))
    assert terms(shared) == [fewest_terms(rows, 4) for rows in (*scheme.tables[:2], back)] == [10, 10, 10]


@pytest.mark.parametrize("name", ["hopcroft_kerr", "strassen (+n) <2,2,1>", "<1,2,3>"])
def test_other_formats(name: str) -> None:
    scheme = compose(name).scheme if " " in name or "<" in name else load(name).scheme
    changed = change_to_sparse_bases(scheme)
    assert prove_scheme(changed).holds and multiply(changed, 2) and changed.tables == scheme.tables
    assert all(now <= before for now, before in zip(terms(changed), terms(scheme), strict=True))


@pytest.mark.parametrize("ring", ["Z", "Z/2", "Z/3", "Q[sqrt(3)]"])
def test_other_rings(ring: str) -> None:
    scheme = replace(load("strassen").scheme, ring=Ring(ring))
    if ring == "Q[sqrt(3)]":  # the same map of A in other units
        root = generator("sqrt(3)")
        u = tuple(tuple((i, c * root) for i, c in row) for row in scheme.u.outputs)
        w = tuple(tuple((i, c * root * Fraction(1, 3)) for i, c in row) for row in scheme.w.outputs)
        scheme = replace(scheme, u=LinearMap(4, u), w=LinearMap(7, w))
    changed = change_to_sparse_bases(scheme)
    assert changed.ring == scheme.ring and prove_scheme(changed).holds and terms(changed) == [10, 10, 10]
    assert changed.u.scalings == changed.v.scalings == changed.w.scalings == 0


def test_over_the_integers_where_the_bases_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A basis of twice the vectors needs halves to come back: then the scheme is one over Q."""

    def doubled(*arguments: Any) -> Any:
        images, change = found(*arguments)
        return [[(i, 2 * c) for i, c in row] for row in images], [[(i, c * Fraction(1, 2)) for i, c in row] for row in change]

    found = change_basis._sparse
    scheme = replace(load("strassen").scheme, ring=Ring("Z"))
    assert change_to_sparse_bases(scheme).ring == Ring("Z")
    monkeypatch.setattr(change_basis, "_sparse", doubled)
    changed = change_to_sparse_bases(scheme)
    assert changed.ring == Ring("Q") and prove_scheme(changed).holds


def test_a_scheme_that_is_in_other_bases_already() -> None:
    scheme = change_to_sparse_bases(load("strassen").scheme)
    again = change_to_sparse_bases(scheme)
    assert terms(again) == [10, 10, 10] and again.tables == scheme.tables


def test_what_is_refused() -> None:
    with pytest.raises(BilinearError, match=r"E651.*Q\[lambda\]"):
        change_to_sparse_bases(load("bini").scheme)
    with pytest.raises(BilinearError, match=r"E652.*too large for the search for other bases"):
        change_to_sparse_bases(compose("strassen (x) strassen").scheme)


def test_the_command(tmp_path: Path) -> None:
    output = tmp_path / "other.bl"
    text = CliRunner().invoke(app, ["share", "winograd", "--other-basis", "-o", str(output)]).output.splitlines()
    assert text[0] == "winograd_in_other_bases <2,2,2;7>: proved"
    assert "  all                24         0                 15         0              12         0" in text
    assert "changes of basis, once before and after all levels: 2 + 2 + 2 additions on A, B and C" in text
    (written,) = parse_source(Source(str(output), output.read_text())).schemes
    assert written.additions == 12 and prove_scheme(written).holds
    assert written.tables == load("winograd").scheme.tables and print_scheme(written) == output.read_text()
