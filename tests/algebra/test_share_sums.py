"""Shared sums: what they compute and cost by a run that counts, and the least numbers against a search through all programs."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import pytest
from each_case import each
from published import FOLDER, needs_folder
from shell import Shell

from bilinear.algebra.share_search import DIGIT, SearchBudget, most_common_pairs, pack, pack_rows, primitive, unpack
from bilinear.algebra.share_sums import Shared, ShareProgress, program_over_basis, share_sums, tidied
from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend.printer import print_scheme
from bilinear.interchange.importing import import_scheme
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, generator, rational
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source
from bilinear.verify.scheme import prove_scheme

Matrix = Sequence[Sequence[Coefficient]]


class Counter:
    """Runs a program on numbers, one operation at a time, and counts what it does."""

    def __init__(self) -> None:
        self.additions = 0
        self.scalings = 0

    def run(self, linear: LinearMap, inputs: Sequence[int | Fraction]) -> list[Fraction]:
        values = [Fraction(x) for x in inputs]
        for step in linear.steps:
            values.append(self.add_up(step, values))
        return [self.add_up(output, values) for output in linear.outputs]

    def add_up(self, row: Form, values: Sequence[Fraction]) -> Fraction:
        total: Fraction | None = None
        for index, c in row:
            assert isinstance(c, int | Fraction)
            if abs(c) != 1:
                self.scalings += 1
            term = c * values[index]
            if total is not None:
                self.additions += 1
            total = term if total is None else total + term
        return total or Fraction(0)


def multiplied(rows: Matrix, inputs: Sequence[int]) -> list[Fraction]:
    """A matrix times a vector, by the definition."""
    return [sum((rational(c) * x for c, x in zip(row, inputs, strict=True)), Fraction(0)) for row in rows]


def scheme_of(rows: Matrix, ring: Ring | None = None) -> Scheme:
    """A scheme (which multiplies nothing) whose U is this matrix; V and W are zero."""
    u = LinearMap(len(rows[0]), tuple(form(enumerate(row)) for row in rows))
    zero = LinearMap(1, ((),) * len(rows))
    names = tuple(f"M{i}" for i in range(len(rows)))
    return Scheme("of_a_matrix", 1, len(rows[0]), 1, u, zero, LinearMap(len(rows), ((),)), names, ring or Ring())


def check_map(rows: Matrix, found: LinearMap) -> None:
    """It computes the matrix, and costs what it says."""
    inputs = [random.Random(i).randint(-(10**9), 10**9) for i in range(len(rows[0]))]
    counter = Counter()
    assert counter.run(found, inputs) == multiplied(rows, inputs)
    assert (counter.additions, counter.scalings) == (found.additions, found.scalings)


def can_be_done(rows: Matrix, length: int) -> bool:
    """Whether this many sums and differences of two values make all rows, up to sign, by trying all programs.

    A form is a number in base 1000. A row that can be made is made at once, which takes nothing away.
    """
    wanted = frozenset(abs(sum(int(rational(c)) * 1000**i for i, c in enumerate(row))) for row in rows)
    inputs = tuple(1000**i for i in range(len(rows[0])))

    def goes_on(known: tuple[int, ...], left: int) -> bool:
        missing = wanted.difference(known, {0})
        if len(missing) > left or not missing:
            return not missing
        sums = {abs(v + sign * w) for number, v in enumerate(known) for w in known[:number] for sign in (1, -1)}
        candidates = list(sums & missing)[:1] or sums.difference(known)
        return any(goes_on((*known, x), left - 1) for x in candidates)

    return goes_on(inputs, length)


def random_rows(generator: random.Random, rows: int, columns: int, among: Sequence[Coefficient]) -> list[list[Coefficient]]:
    return [[generator.choice(among) for _ in range(columns)] for _ in range(rows)]


@each("among", [(0, 1, -1), (0, 0, 1, -1, 2), (0, 1, Fraction(1, 2), -3, Fraction(-5, 4))])
@each("seed", range(6))
def test_what_is_found_computes_the_matrix_and_costs_what_it_says(among: Sequence[Coefficient], seed: int) -> None:
    chance = random.Random(seed)
    rows = random_rows(chance, chance.randint(1, 9), chance.randint(1, 5), among)
    scheme = scheme_of(rows)
    shared = share_sums(scheme, work=20_000)
    check_map(rows, shared.scheme.u)
    assert shared.scheme.u.additions <= scheme.u.additions


@each("seed", range(12))
def test_what_is_called_least_is_the_least(seed: int) -> None:
    chance = random.Random(100 + seed)
    rows = random_rows(chance, chance.randint(2, 5), chance.randint(2, 4), (0, 1, 1, -1))
    shared = share_sums(scheme_of(rows), work=100_000)
    check_map(rows, shared.scheme.u)
    found = shared.scheme.u.additions
    assert can_be_done(rows, found) and not (found and can_be_done(rows, found - 1))
    assert shared.least[0] or found > 3


BETTER_THAN_GREEDY: tuple[tuple[Matrix, int, bool], ...] = (
    (((1, 1, 0, 0), (1, 1, 1, 0), (1, 1, 1, 1), (0, 1, 1, 1)), 4, True),
    (((1, 1, 1, 1), (1, 1, 0, 1), (1, 0, -1, 1), (0, 1, 1, 0), (1, -1, -1, 1), (1, 1, 1, -1)), 7, True),
    (((-1, 1, 1, 0), (-1, 1, 1, 1), (-1, -1, 1, 0), (1, 1, 1, 1), (0, 0, -1, -1), (1, 1, -1, 0), (0, -1, 1, 0)), 7, True),
    (((-1, 0, 1, 0), (1, 0, 0, 1), (-1, 1, 1, -1), (1, -1, 1, -1), (1, -1, 1, 1)), 7, True),
    (((1, -1, 1, 1), (1, 1, 1, -1), (0, 0, 0, -1), (0, 1, -1, 1), (1, 1, -1, -1), (-1, -1, 1, 1), (1, 1, -1, 1)), 8, False),
)
"""Rows, the least number of additions, and whether the search is to know that it is the least; sums alone need more of them."""


@pytest.mark.parametrize(("rows", "least", "known"), BETTER_THAN_GREEDY)
def test_cancellations_that_help(rows: Matrix, least: int, known: bool) -> None:
    """Such as a+b, a+b+c, a+b+c+d, and b+c+d: five additions where nothing cancels, but the last is the third less a."""
    guess = min(
        len(most_common_pairs(packed(rows), [1 << DIGIT * i for i in range(len(rows[0]))], random.Random(seed))[0]) for seed in range(20)
    )
    assert can_be_done(rows, least) and not can_be_done(rows, least - 1) and guess > least
    shared = share_sums(scheme_of(rows), work=400_000)
    assert shared.scheme.u.additions == least and shared.least[0] == known


def test_what_was_not_tried_is_not_called_least() -> None:
    """The greedy program has one sum too many here; and over Z/2 sums are differences, which may save some."""
    rows = [[0, 1, 1], [1, 1, 0], [-1, -1, 1], [-1, 1, 1], [1, 0, 0]]
    idle, done = share_sums(scheme_of(rows), work=1), share_sums(scheme_of(rows))
    assert not idle.least[0]
    assert (done.scheme.u.additions, done.least[0]) == (4, True)
    assert not share_sums(scheme_of(rows, Ring("Z/2")), work=20_000).least[0]


def packed(rows: Matrix) -> list[int]:
    return list(pack_rows([form(enumerate(row)) for row in rows], len(rows[0]), fractions=True).values)


def test_multiples_are_shared_and_counted_apart() -> None:
    rows: list[list[Coefficient]] = [[2, 2, 0], [2, 2, 1], [0, 0, Fraction(1, 8)], [6, 6, 1]]
    shared = share_sums(scheme_of(rows), work=50_000).scheme.u
    check_map(rows, shared)
    assert (shared.additions, shared.scalings) == (3, 3)  # a+b, twice it, thrice that; c/8


def test_numbers_that_are_no_rationals() -> None:
    root, order = generator("sqrt(3)"), generator("lambda", -1)
    for ring, c in (("Q[sqrt(3)]", root), ("Q[lambda]", order)):
        rows: list[list[Coefficient]] = [[c, c, 0], [c, c, 1], [c, c, -1], [0, c, 1]]
        scheme = scheme_of(rows, Ring(ring))
        shared = share_sums(scheme).scheme.u
        assert shared.matrix == scheme.u.matrix
        assert shared.additions == 4 < scheme.u.additions and shared.scalings < scheme.u.scalings


def test_over_the_integers_no_fraction_comes_in() -> None:
    """Over Q, half of a sum may be what the next row needs."""
    rows = [[1, 0, 1], [2, 2, -1], [-1, -1, 2], [3, 2, -1]]
    for name in ("Q", "Z", "Z/2"):
        scheme = scheme_of(rows, Ring(name))
        shared = share_sums(scheme, work=3000).scheme
        check_map(rows, shared.u)
        halves = [c for row in shared.u.steps + shared.u.outputs for _, c in row if c not in (0, 1, -1, 2, -2, 3, -3)]
        assert bool(halves) == (name == "Q"), "over Q this is what the test is about"


def test_programs_are_tidied() -> None:
    """A step that is read once joins its reader, unless they share a term; a factor that costs scalings goes; multiples are shared."""
    single = LinearMap(2, (((0, 1), (2, 1)),), (((0, 1), (1, 1)),))  # S = a + b; C = a + S
    assert tidied(single) == single
    joined = LinearMap(3, (((2, 1), (3, -1)),), (((0, 1), (1, 1)),))  # S = a + b; C = c - S
    assert tidied(joined) == LinearMap(3, (((0, -1), (1, -1), (2, 1)),))
    scaled = LinearMap(3, (((3, Fraction(1, 2)),), ((2, 1), (3, Fraction(1, 2)))), (((0, 2), (1, 2)),))
    assert tidied(scaled) == LinearMap(3, (((3, 1),), ((2, 1), (3, 1))), (((0, 1), (1, 1)),))
    once = LinearMap(2, (((0, 3), (1, 1)),))
    assert tidied(once) == once
    twice = LinearMap(3, (((0, 3), (1, 1)), ((0, -3), (2, 1))))
    assert tidied(twice) == LinearMap(3, (((1, 1), (3, 1)), ((2, 1), (3, -1))), (((0, 3),),))


@pytest.mark.parametrize(
    ("name", "table", "found"),
    [("strassen", 18, 18), ("winograd", 24, 15), ("laderman", 98, 62), ("hopcroft_kerr", 55, None), ("naive2x2", 4, 4)],
)
def test_shipped_schemes(name: str, table: int, found: int | None) -> None:
    scheme = load(name).scheme
    dense = replace(scheme, u=plain(scheme.u), v=plain(scheme.v), w=plain(scheme.w))
    assert dense.additions == table
    shared = share_sums(dense, work=300_000)
    assert shared.scheme.tables == scheme.tables and prove_scheme(shared.scheme).holds
    for linear, rows in zip((shared.scheme.u, shared.scheme.v, shared.scheme.w), scheme.tables, strict=True):
        check_map([[dict(row).get(i, 0) for i in range(linear.inputs)] for row in rows], linear)
    assert shared.scheme.additions == (found or shared.scheme.additions) <= scheme.additions
    assert not shared.was_cut


def plain(linear: LinearMap) -> LinearMap:
    return LinearMap(linear.inputs, linear.matrix)


@needs_folder
@pytest.mark.parametrize(("file", "table", "most"), [("3x3x3_23_58_L.sms", 120, 58), ("4x4x4_49_156_L.sms", 474, 160)])
def test_published_tables_without_their_programs(file: str, table: int, most: int) -> None:
    scheme = import_scheme(FOLDER / "plinopt" / "data" / file).scheme
    assert scheme.additions == table
    shared = share_sums(scheme).scheme
    assert shared.additions <= most and shared.tables == scheme.tables and prove_scheme(shared).holds
    counter, chance = Counter(), random.Random(1)
    size = shared.m  # of square matrices
    a, b = ([chance.randint(-99, 99) for _ in range(size * size)] for _ in range(2))
    products = [x * y for x, y in zip(counter.run(shared.u, a), counter.run(shared.v, b), strict=True)]
    rows = range(0, size * size, size)
    classical = [sum(a[i + k] * b[k * size + j] for k in range(size)) for i in rows for j in range(size)]
    assert counter.run(shared.w, products) == classical
    assert (counter.additions, counter.scalings) == (shared.additions, 0)


def test_a_program_that_is_better_is_kept() -> None:
    """A search that may do nothing loses neither an author's program nor his scalings."""
    rows, least, _ = BETTER_THAN_GREEDY[4]
    author = share_sums(scheme_of(rows), work=400_000).scheme
    assert share_sums(replace(author, u=plain(author.u)), work=1).scheme.u.additions > least
    assert share_sums(author, work=1).scheme.u == author.u
    assert share_sums(author, work=20_000).scheme.u.additions == least, "the walk starts from it, too"
    assert not share_sums(load("laderman").scheme, work=1).least[0], "a search that did nothing knows nothing"


def test_the_same_seed_and_work_give_the_same_in_any_process() -> None:
    """Not the order of a set, which another hash seed changes."""
    program = (
        "from bilinear.algebra.share_sums import share_sums; from bilinear.frontend import load; "
        "from bilinear.frontend.printer import print_scheme; "
        "s = share_sums(load('hopcroft_kerr').scheme, seed=3, work=60_000); print(print_scheme(s.scheme), s.work)"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    ]
    here = share_sums(load("hopcroft_kerr").scheme, seed=3, work=60_000)
    assert found[0] == found[1] == f"{print_scheme(here.scheme)} {here.work}\n"


def test_the_time_limit_cuts_and_says_so() -> None:
    scheme = load("laderman").scheme
    shared = share_sums(scheme, seconds=1e-9)
    assert shared.was_cut and shared.least == (False, False, False)
    assert shared.scheme.tables == scheme.tables and shared.scheme.additions < 98
    assert not share_sums(scheme, seconds=600.0).was_cut


@pytest.mark.slow
def test_tries_keep_the_best_program_of_each_map() -> None:
    scheme = without_programs(load("dps_444").scheme)
    alone = [share_sums(scheme, seed=seed, work=30_000) for seed in (3, 4, 5)]
    found = share_sums(scheme, seed=3, work=30_000, tries=3)
    best = [min(costs) for costs in zip(*(map_costs(one.scheme) for one in alone), strict=True)]
    assert map_costs(found.scheme) == best
    assert all(sum(map_costs(one.scheme), ()) != sum(best, ()) for one in alone)  # no try has all of them
    assert found.work == sum(one.work for one in alone)
    assert found.scheme.tables == scheme.tables
    prove_scheme(found.scheme).require()


def test_tries_end_where_nothing_is_left_to_find() -> None:
    scheme = without_programs(load("winograd").scheme)
    assert share_sums(scheme, tries=50) == share_sums(scheme)


def without_programs(scheme: Scheme) -> Scheme:
    u, v, w = (LinearMap(linear.inputs, linear.matrix) for linear in (scheme.u, scheme.v, scheme.w))
    return replace(scheme, u=u, v=v, w=w, places=None)


def map_costs(scheme: Scheme) -> list[tuple[int, int]]:
    return [(linear.additions, linear.scalings) for linear in (scheme.u, scheme.v, scheme.w)]


def test_progress_is_told() -> None:
    told: list[ShareProgress] = []
    shared = share_sums(load("hopcroft_kerr").scheme, work=50_000, progress=told.append)
    assert [state.operand for state in told] == sorted(state.operand for state in told)
    assert {state.operand for state in told} == {"A", "B", "C"}
    assert all(0 <= one.done <= other.done for one, other in pairwise(told))
    assert told[-1].done <= shared.work and str(told[0]).startswith("sums of A: ")


@pytest.mark.parametrize("options", [{"work": 0}, {"tries": 0}, {"seconds": 0.0}, {"seconds": float("nan")}])
def test_options_without_sense(options: dict[str, float]) -> None:
    with pytest.raises(BilinearError, match="E650"):
        share_sums(load("strassen").scheme, **options)  # type: ignore[arg-type]


def test_packed_forms() -> None:
    for terms in product((-5, 0, 3), repeat=3):
        packed = pack(enumerate(terms))
        assert dict(unpack(packed)) == {i: c for i, c in enumerate(terms) if c}
        if packed:
            assert dict(unpack(primitive(6 * packed))) == dict(unpack(primitive(packed)))
    assert primitive(-pack([(0, 4), (2, 6)])) == pack([(0, 2), (2, 3)])


def test_the_greedy_guess_makes_every_row() -> None:
    rows = [pack(enumerate(row)) for row in ((1, 1, 0, 1), (2, 2, 1, 0), (1, 1, 1, 1), (0, 0, 3, 1))]
    made, _ = most_common_pairs(rows, [1 << DIGIT * i for i in range(4)], random.Random(0))
    known = {1 << DIGIT * i for i in range(4)}
    for value, parents in made.items():
        assert known.issuperset(parents)
        known.add(value)
    assert known.issuperset(map(primitive, rows))


@pytest.mark.parametrize("seed", range(4))
def test_a_program_over_a_basis_makes_every_row(seed: int) -> None:
    chance = random.Random(seed)
    rows = packed(random_rows(chance, 12, 4, (0, 1, -1, 2)))
    found = program_over_basis(rows, 4, chance, SearchBudget(10**6))
    assert found is not None
    made, pairs = found
    known = {1 << DIGIT * i for i in range(4)}
    for value, (v, w) in made.items():
        assert known.issuperset((v, w)) and any(primitive(p * v + q * w) == value for p, q in pairs)
        known.add(value)
    assert known.issuperset(map(primitive, filter(None, rows)))


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "found.bl"
    status, text, _ = Shell(monkeypatch, capsys)("share", "laderman", "-o", output)
    assert status == 0 and text.splitlines() == [
        "laderman <3,3,3;23>: proved",
        "",
        "  on   table: additions  scalings  before: additions  scalings  now: additions  scalings",
        "  ---  ----------------  --------  -----------------  --------  --------------  --------",
        "  A                  28         0                 28         0              16         0",
        "  B                  28         0                 28         0              16         0",
        "  C                  42         0                 42         0              30         0",
        "  all                98         0                 98         0              62         0",
        "",
        "sums and differences alone cannot do with fewer on A, B, C",
        f"written to {output}; `bilinear verify {output}` proves it again",
    ]
    (written,) = parse_source(Source(str(output), output.read_text())).schemes
    assert written.additions == 62 and written.tables == load("laderman").scheme.tables


def test_the_command_for_machines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status, text, _ = Shell(monkeypatch, capsys)("share", "bini", "--work", 2000, "--seed", 1, "--json")
    facts = json.loads(text)
    assert facts["work"] == share_sums(load("bini").scheme, work=2000, seed=1).work
    assert status == 0 and facts["verdict"] == "proved" and facts["seed"] == 1 and not facts["cut"]
    assert facts["A"]["table"] == {"additions": 6, "scalings": 4} and facts["A"]["after"]["additions"] <= 6
    assert "bases" not in facts


def test_the_command_says_that_it_was_cut(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def cut(scheme: Scheme, **_: object) -> Shared:
        return Shared(scheme, (False, False, True), 77, True)

    monkeypatch.setattr("bilinear.algebra.share_sums.share_sums", cut)
    status, text, _ = Shell(monkeypatch, capsys)("share", "strassen", "--time", "2s")
    assert status == 0 and text.splitlines()[-2:] == [
        "sums and differences alone cannot do with fewer on C",
        "cut by --time 2s: another machine may find another program; --work 77 ends a search everywhere alike",
    ]


def test_what_the_command_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.bl"
    file.write_text(print_scheme(load("strassen").scheme))
    before = file.read_text()
    status, _, error = Shell(monkeypatch, capsys)("share", file, "-o", file)
    assert status == 1 and error.startswith("error[E612]") and file.read_text() == before
    wrong = tmp_path / "wrong.bl"
    wrong.write_text(before.replace("M1:   1   0   0   1", "M1:   1   0   0   0"))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # a composition is not a file, also where one of its name is there
        assert Shell(monkeypatch, capsys)("share", "strassen (x) <1,1,1>", "--work", 1, "-o", "strassen_x_1_1_1.bl")[0] == 0
    with monkeypatch.context() as limits:
        limits.setattr("bilinear.frontend.printer.MOST_EQUATION_TEXT", 100)
        status, _, error = Shell(monkeypatch, capsys)("share", "winograd", "-o", "long.bl")
        assert status == 1 and error.startswith("error[E641]: winograd <2,2,2;7> is too large") and not Path("long.bl").exists()
    status, out, error = Shell(monkeypatch, capsys)("share", file, "--time", "soon")
    assert status == 1 and error.startswith("error[E664]: 'soon' is not a time") and not out
    status, out, error = Shell(monkeypatch, capsys)("share", wrong, "-o", tmp_path / "no.bl")
    assert status == 1 and "E301" in error and not out and not (tmp_path / "no.bl").exists()
