"""Depth-first schedules that are found: proved, executed exactly in the memory that they claim, nested, written and read again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path as FilePath

import numpy as np
import pytest
from each_case import each
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import computes
from shell import Shell

import bilinear
from bilinear.analysis.block_maps import relabel
from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend.printer import print_schedule, print_scheme
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Space, Stage, Target
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import runnable
from bilinear.passes.nest_levels import nest_levels, why_not_nested
from bilinear.scheduling.depth_first.find import DepthFirst, OrderProgress, SumPlaces, find_depth_first, merged
from bilinear.scheduling.depth_first.orders import HeldFactors, Making, OrderSearch, OrderState, Path, Results, with_shared_sums
from bilinear.scheduling.scaling import explicit_depth_first, memories
from bilinear.source import Source
from bilinear.verify.schedule import prove_schedule

MODES = [(False, False), (True, False), (True, True), (False, True)]
BARS = {
    ("winograd", False, False): (2, 15),
    ("winograd", True, False): (3, 22),
    ("winograd", True, True): (3, 14),
    ("winograd", False, True): (2, 12),
    ("strassen", False, False): (2, 18),
    ("strassen", True, False): (3, 22),
    ("naive2x2", False, False): (1, 4),
    ("naive2x2", False, True): (0, 0),
    ("naive2x2", True, True): (0, 0),
    ("hopcroft_kerr", False, False): (2, 45),
    ("hopcroft_kerr", True, False): (3, 54),
    ("laderman", False, False): (2, 74),
}
"""The most temporaries and additions: a better search may lower them."""


def found(name: str, accumulate: bool = False, directly: bool = False) -> DepthFirst:
    return _found(name, accumulate, directly)


@lru_cache
def _found(name: str, accumulate: bool, directly: bool) -> DepthFirst:
    return find_depth_first(load(name).scheme, accumulate=accumulate, directly=directly)


def in_shared_memory(schedule: Schedule) -> Schedule:
    """The schedule with one space for each memory, whatever it holds: two values that are wanted at once would overwrite each other."""
    place = {space.blocks[0]: Block(f"memory{i}", 0, 0) for i, shared in enumerate(memories(schedule)) for space in shared}

    def moved(stage: Stage) -> Stage:
        if isinstance(stage, LinearStage):
            return replace(stage, maps=tuple(relabel(m, lambda b: place.get(b, b)) for m in stage.maps))
        return ProductStage(
            tuple(
                replace(
                    p,
                    left=place.get(p.left, p.left),
                    right=place.get(p.right, p.right),
                    targets=tuple(replace(t, block=place.get(t.block, t.block)) for t in p.targets),
                )
                for p in stage.products
            )
        )

    spaces = tuple(Space(block.space, "C", 1, 1) for block in sorted(set(place.values())))
    return replace(schedule, stages=tuple(map(moved, schedule.stages)), workspaces=spaces)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "accumulate", "directly"), BARS)
def test_found_schedules_are_right_and_as_small_as_they_say(name: str, accumulate: bool, directly: bool) -> None:
    one = found(name, accumulate, directly)
    assert prove_schedule(one.schedule, load(name).scheme).holds
    assert one.schedule.overwrites != accumulate and one.schedule.keeps == {"A", "B"}
    shared = in_shared_memory(one.schedule)
    assert computes(shared)
    assert len(shared.workspaces) == one.temporaries >= one.fewest
    assert (one.temporaries, one.additions) <= BARS[name, accumulate, directly]


def test_the_least_temporaries_are_known() -> None:
    for name, accumulate in itertools.product(("winograd", "strassen"), (False, True)):
        one = found(name, accumulate)
        assert one.temporaries == one.fewest, "a product of two sums needs two places, and a third one where C is full"


def products(schedule: Schedule) -> Iterator[ProductStage]:
    return (stage for stage in schedule.stages if isinstance(stage, ProductStage))


@each("accumulate", [False, True])
@each("name", ["winograd", "strassen", "hopcroft_kerr"])
def test_every_product_is_one_stage_and_overwrites_one_block(name: str, accumulate: bool) -> None:
    schedule = found(name, accumulate).schedule
    stages = list(products(schedule))
    assert len(stages) == load(name).scheme.rank and all(len(stage.products) == 1 for stage in stages)
    targets = [target for stage in stages for p in stage.products for target in p.targets]
    assert len(targets) == len(stages) and not any(target.kept == 1 for target in targets)
    assert not accumulate or all(target.block.space != "C" for target in targets)


@each(("outer", "inner"), [("winograd", "winograd"), ("strassen", "winograd"), ("hopcroft_kerr", "strassen")])
@each("accumulate", [False, True])
def test_levels_nest(outer: str, inner: str, accumulate: bool) -> None:
    levels = [found(outer, accumulate).schedule, found(inner).schedule]
    assert not why_not_nested(*levels)
    flat = runnable(nest_levels(levels))
    assert prove_schedule(flat).holds and computes(flat, trials=1)


@each(("name", "accumulate", "directly"), [bar for bar in BARS if bar[0] != "laderman"])
def test_schedules_are_written_and_read_again(name: str, accumulate: bool, directly: bool) -> None:
    scheme, one = load(name).scheme, found(name, accumulate, directly)
    written = explicit_depth_first(one.schedule)
    text = print_scheme(scheme) + print_schedule(written)
    (again,) = parse_source(Source("found.bl", text)).schedules
    assert again == replace(written, span=again.span)
    assert prove_schedule(again, scheme).holds and len(again.workspaces) == one.temporaries
    assert str(again.result) == ("C = alpha*A*B + beta*C" if accumulate else "C = alpha*A*B")


@pytest.mark.parametrize("directly", [False, True])
def test_what_adds_runs_from_its_file(directly: bool, tmp_path: FilePath) -> None:
    """The first step into each block of C scales it by beta; below itself it cannot stand, for there a product is overwritten."""
    text = print_scheme(load("winograd").scheme) + print_schedule(explicit_depth_first(found("winograd", True, directly).schedule))
    (tmp_path / "found.bl").write_text(text)
    x, y, z = (np.random.default_rng(5).integers(-4, 5, sides).astype(float) for sides in ((13, 10), (10, 9), (13, 9)))
    out = z.copy()
    bilinear.matmul(x, y, out, alpha=3, beta=-2, algorithm=str(tmp_path / "found.bl"), levels=1)
    np.testing.assert_array_equal(out, 3 * (x @ y) - 2 * z)
    with pytest.raises(BilinearError, match="E408"):
        bilinear.matmul(x, y, out, algorithm=str(tmp_path / "found.bl"), levels=2)


def scaled(scheme: Scheme) -> Scheme:
    """The scheme with factors times thirds and -2, and results divided by them."""
    factors = [Fraction((-2) ** (p % 3), 3 ** (p % 2)) for p in range(scheme.rank)]
    u, v, w = scheme.tables
    left = tuple(form((i, c * f) for i, c in row) for row, f in zip(u, factors, strict=True))
    back = tuple(form((p, c / (factors[p] * factors[-1 - p])) for p, c in row) for row in w)
    right = tuple(form((i, c * f) for i, c in row) for row, f in zip(v, reversed(factors), strict=True))
    maps = [LinearMap(old.inputs, rows) for old, rows in zip((scheme.u, scheme.v, scheme.w), (left, right, back), strict=True)]
    return replace(scheme, name="scaled", u=maps[0], v=maps[1], w=maps[2])


@each(("accumulate", "directly"), MODES)
@each("name", ["winograd", "strassen", "naive2x2"])
def test_any_rational_coefficients_will_do(name: str, accumulate: bool, directly: bool) -> None:
    one = find_depth_first(scaled(load(name).scheme), accumulate=accumulate, directly=directly)
    assert computes(in_shared_memory(one.schedule)) and prove_schedule(explicit_depth_first(one.schedule)).holds


def test_products_that_do_nothing_are_left_out() -> None:
    scheme = load("naive2x2").scheme
    zero, unused = ((), ((0, 1),)), (((0, 1), (1, 1)), ((1, 1),))
    u, v, w = scheme.tables
    more = Scheme(
        "more",
        2,
        2,
        2,
        LinearMap(4, (zero[0], unused[0], *u)),
        LinearMap(4, (zero[1], unused[1], *v)),
        LinearMap(10, tuple(form([(0, 5), *((p + 2, c) for p, c in row)]) for row in w)),
        tuple(f"M{i}" for i in range(10)),
    )
    one = find_depth_first(more)
    assert len(list(products(one.schedule))) == 8 and computes(one.schedule) and one.temporaries == 1


ROWS = st.lists(st.dictionaries(st.integers(0, 4), st.sampled_from([1, -1, 2]), min_size=1, max_size=4), min_size=1, max_size=4)


@given(ROWS)
def test_sums_that_begin_by_themselves_keep_as_few_values_alive_as_any(rows: list[dict[int, int]]) -> None:
    """Against every order and every moment at which a sum may begin."""
    results = Results(LinearMap(5, tuple(map(form, rows))), begun=False)
    wants = [frozenset(row) for row in rows]
    used = frozenset().union(*wants)

    def alive(done: frozenset[int], begun: frozenset[int]) -> int:
        return len(begun) + sum(any(p in wants[s] for s in range(len(rows)) if s not in begun) for p in done)

    def ours(done: frozenset[int], p: int) -> int:
        mask = sum(1 << q for q in done)
        before = results.live(*results.of(mask)).bit_count() + 1
        results.state(mask, p)
        return before

    def choices(done: frozenset[int], begun: frozenset[int]) -> Iterator[frozenset[int]]:
        possible = [s for s in range(len(rows)) if s not in begun and wants[s] & done]
        return (begun | set(some) for size in range(len(possible) + 1) for some in itertools.combinations(possible, size))

    @cache
    def fewest(done: frozenset[int], begun: frozenset[int]) -> int:
        if done == used:
            return 0
        now = alive(done, begun) + 1
        after = (fewest(done | {p}, more) for p in used - done for more in choices(done | {p}, begun))
        return max(now, min(after))

    @cache
    def fewest_of_ours(done: frozenset[int]) -> int:
        return min((max(ours(done, p), fewest_of_ours(done | {p})) for p in used - done), default=0)

    assert fewest_of_ours(frozenset()) == fewest(frozenset(), frozenset())


TABLES = st.lists(st.dictionaries(st.integers(0, 6), st.just(1), min_size=1, max_size=7), min_size=1, max_size=5)


@given(TABLES)
@example([{0: 1, 1: 1, 2: 1, 3: 1}, {0: 1, 1: 1, 4: 1, 5: 1}, {0: 1, 2: 1, 4: 1, 6: 1}])
def test_three_temporaries_are_enough_for_every_order(rows: list[dict[int, int]]) -> None:
    """Where every factor is a sum of its own, a product and its two factors stand beside C, whatever is multiplied first."""
    factors = HeldFactors([((p, 1), (p + 1, 1)) for p in range(7)])
    search = OrderSearch((factors, factors), Results(LinearMap(7, tuple(map(form, rows))), begun=False), len(rows), directly=False)
    paths = {OrderState(0, (), (), 0)}
    for product in search.results.useful:
        steps = (after for state in paths for after in search.steps(Path(0, 0, 0, state), 3) if after.move is not None)
        paths = {after.state for after in steps if after.move is not None and after.move.product == product}
        assert paths


def test_stages_are_merged_where_that_costs_no_memory() -> None:
    places = SumPlaces()
    a, b = Block("A", 0, 0), Block("B", 0, 0)

    def copied(*pairs: tuple[Block, Block]) -> LinearStage:
        return LinearStage(tuple(BlockMap((source,), (target,), LinearMap(1, (((0, 1),),))) for source, target in pairs))

    def multiplied(left: Block, right: Block, target: Block) -> ProductStage:
        return ProductStage((Product(left, right, (Target(target, kept=0),)),))

    def stages() -> list[Stage]:
        """A product beside C that is copied into C, then one of two sums."""
        product, left, right = places.new("C"), places.new("A"), places.new("B")
        first: list[Stage] = [multiplied(a, b, product), copied((product, places.new("C", True)))]
        return [*first, copied((a, left), (b, right)), multiplied(left, right, places.new("C", True))]

    two = stages()
    assert merged(two, places) == tuple(two), "three blocks would be alive at once, not two"
    x, y, z = (places.new("C") for _ in range(3))
    three: list[Stage] = [multiplied(a, b, x), multiplied(a, b, y), multiplied(a, b, z), copied((x, x), (y, y), (z, z))]
    assert len(merged([*three, multiplied(a, b, places.new("C", True)), *two], places)) == len(three) + len(two), "three are alive anyway"


@given(ROWS)
def test_shared_sums_are_the_same_map(rows: list[dict[int, int]]) -> None:
    plain = LinearMap(5, tuple(map(form, rows)))
    shared = with_shared_sums(plain)
    assert shared.matrix == plain.matrix and shared.additions <= plain.additions
    assert not shared.steps or shared.additions < plain.additions


def test_factors_are_made_from_what_is_held() -> None:
    factors = HeldFactors([((0, 1), (1, 1)), ((0, -2), (1, -2)), ((0, 1), (1, 1), (2, -3)), ((2, 5),), ((0, 2), (1, 2), (3, 1))])
    assert factors.line == [0, 0, 1, -1, 2] and factors.scale == [1, -2, 1, 5, 1]
    assert factors.making(1, 0) == Making(Fraction(1), ((2, -3),)) and factors.making(1, 0).additions == 1
    assert factors.making(2, 0) == Making(Fraction(2), ((3, 1),)) and factors.making(1, -1).additions == 2
    assert factors.best(2, [1])[0] == -1 and factors.best(2, [0, 1])[0] == 0


@pytest.mark.slow
def test_more_temporaries_save_additions() -> None:
    few, many = found("hopcroft_kerr"), find_depth_first(load("hopcroft_kerr").scheme, temporaries=5)
    assert many.temporaries <= 5 and many.additions < few.additions and computes(in_shared_memory(many.schedule))


@pytest.mark.slow
def test_the_result_depends_on_the_seed_alone_and_time_ends_the_search() -> None:
    scheme = load("hopcroft_kerr").scheme
    told: list[OrderProgress] = []
    assert find_depth_first(scheme, progress=told.append) == found("hopcroft_kerr")
    assert str(told[3]) == "3/15 products, 2 temporaries"
    hurried = find_depth_first(scheme, seconds=1e-9)
    assert computes(in_shared_memory(hurried.schedule)) and hurried.temporaries <= 3
    assert str(found("naive2x2")).startswith("1 temporary (at least 0 are needed), 4 additions, ")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (
            lambda s: find_depth_first(
                replace(s, ring=parse_source(Source("x.bl", "scheme x <1,1,1;1> over Z/2\n M1: 1|1|1")).schemes[0].ring)
            ),
            "E556",
        ),
        (lambda s: find_depth_first(s, temporaries=-1), "E558"),
        (lambda s: find_depth_first(s, effort=0), "E558"),
        (lambda s: find_depth_first(s, seconds=0), "E558"),
        (lambda s: find_depth_first(s, seconds=float("nan")), "E558"),
    ],
)
def test_what_cannot_be_searched_is_told(call: Callable[[Scheme], object], code: str) -> None:
    with pytest.raises(BilinearError, match=rf"error\[{code}\]"):
        call(load("strassen").scheme)


def test_on_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: FilePath) -> None:
    shell = Shell(monkeypatch, capsys)
    path = str(tmp_path / "found.bl")
    status, out, _ = shell("schedule", "winograd", "--depth-first", "-o", path)
    assert status == 0 and out.startswith("2 temporaries (no fewer are possible), 15 additions, 38 blocks moved\nwritten to ")
    status, out, _ = shell("verify", path)
    assert status == 0 and "winograd-depth-first: " in out
    status, out, _ = shell("schedule", "winograd", "--depth-first", "--accumulate", "--directly")
    assert status == 0 and out.startswith("# 3 temporaries") and "C = alpha*A*B + beta*C" in out
    for words in (("--depth-first", "--consume"), ("--depth-first", "--keep", "A"), ("--in-place", "--accumulate")):
        status, _, err = shell("schedule", "winograd", *words)
        assert status == 1 and "error[E557]" in err
    status, _, err = shell("schedule", "winograd", "--depth-first", "--in-place")
    assert status == 1 and "error[E507]: two kinds of schedule" in err
