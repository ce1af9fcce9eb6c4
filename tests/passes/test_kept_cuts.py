"""The shipped table of cuts, beside the searches that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import pytest

import bilinear
from bilinear.frontend.files import shipped
from bilinear.ir.schedule import Schedule
from bilinear.lowering.prepare import authored_schedule, is_runnable, lower_levels, natural_inputs
from bilinear.passes import fuse_linear_stages
from bilinear.passes.fuse_linear_stages import LinearRun

MOST_PRODUCTS = 2500


def lowered(names: Sequence[str], inputs: str) -> Schedule:
    levels = map(bilinear.load, names)
    return lower_levels([authored_schedule(level.scheme, level.schedule, inputs) for level in levels], inputs)


def searches(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> dict[str, list[int]]:
    """The ends of the passes of every long run that is searched, by the run's digest, without the table."""
    found: dict[str, list[int]] = {}
    search = LinearRun.searched

    def noted(self: LinearRun) -> list[tuple[int, int]]:
        cuts = search(self)
        if self.end - self.begin >= fuse_linear_stages.LONG:
            found[self.digest()] = [end - self.begin for _, end in cuts]
        return cuts

    with monkeypatch.context() as patched:
        patched.setattr(LinearRun, "searched", noted)
        patched.setattr(fuse_linear_stages, "kept_ends", lambda _: ())
        run()
    return found


def all_ways() -> Iterator[tuple[tuple[str, ...], str]]:
    """Every shipped algorithm at all levels of at most 2,500 products, and four levels that mix schedules in place for 2x2 blocks."""
    for name in shipped():
        loaded = bilinear.load(name)
        for inputs in sorted({"preserve", natural_inputs(loaded.schedule)}):  # in one order, of which tests take an eighth
            levels = 1
            while 1 < loaded.scheme.rank**levels <= MOST_PRODUCTS and is_runnable(loaded.scheme, loaded.schedule, inputs):
                yield (name,) * levels, inputs
                levels += 1
    yield from ((names, "restore") for names in product(("msmes", "winograd_in_place"), repeat=4))


@pytest.mark.slow
def test_the_table_holds_what_searches_find(monkeypatch: pytest.MonkeyPatch, update_golden: bool) -> None:
    """An eighth of them; `--update-golden` writes it anew after a change of the algorithms or the passes."""
    ways = list(all_ways())
    found = searches(monkeypatch, lambda: [lowered(names, inputs) for names, inputs in (ways if update_golden else ways[::8])])
    lines = [f'"{digest}": {list(ends)}' for digest, ends in sorted(found.items())]
    if update_golden:
        fuse_linear_stages.TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        return
    assert len(lines) > 1 and set(lines) <= {line.rstrip(",") for line in fuse_linear_stages.TABLE.read_text(encoding="utf-8").splitlines()}


@pytest.mark.slow
def test_a_kept_run_is_cut_as_a_search_cuts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [lowered(["msmes"] * 4, "restore")]
    found = searches(monkeypatch, lambda: made.append(lowered(["msmes"] * 4, "restore")))
    assert len(found) == 1
    assert all(fuse_linear_stages.kept_ends(digest) == tuple(ends) for digest, ends in found.items())
    assert made[0] == made[1]


@pytest.mark.slow
def test_a_kept_run_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearRun, "searched", lambda _: pytest.fail("searched"))
    assert lowered(["msmes"] * 4, "restore").levels == 4
