"""The search: its results are proved and reproducible, it ends when it should, and goes on from a file of its state alone."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from discovery.flips import multiplication
from each_case import each

from bilinear.discovery import flip_search
from bilinear.discovery.flip_search import AnyWalker, Found, LowestRank, WalkState, read_state, write_state
from bilinear.discovery.walker import BEST, SearchTask, binary_walker, classical_masks, fewest_products, ternary_walker
from bilinear.errors import BilinearError
from bilinear.frontend import parse_source
from bilinear.frontend.algorithms import load_shipped
from bilinear.frontend.files import shipped
from bilinear.frontend.printer import print_scheme
from bilinear.ir.scheme import Scheme
from bilinear.source import Source
from bilinear.verify.scheme import prove_scheme


def discover(task: SearchTask, seconds: float = 60, **options: Any) -> Found:
    return flip_search.discover(task, seconds, **options)


def scheme_of(found: Found) -> Scheme:
    assert found.scheme is not None
    return found.scheme


def what(found: Found) -> tuple[Any, ...]:
    """All of a result except the time, and the work of the walkers that lost."""
    return found.scheme, found.rank, found.walker, found.steps


def multiplies(scheme: Scheme) -> bool:
    """The sum of the products, in Python's integers, beside the definition of the multiply."""
    u, v, w = scheme.tables
    total: dict[tuple[int, int, int], Any] = {}
    for c, row in enumerate(w):
        for p, z in row:
            for a, x in u[p]:
                for b, y in v[p]:
                    total[a, b, c] = total.get((a, b, c), 0) + x * y * z
    return {place: value for place, value in total.items() if value} == multiplication(scheme.m, scheme.k, scheme.n)


@pytest.mark.parametrize(("blocks", "rank"), [((2, 2, 2), 7), ((2, 2, 3), 11), ((3, 2, 2), 11), ((2, 3, 3), 15)])
def test_a_find_multiplies(blocks: tuple[int, int, int], rank: int) -> None:
    found = discover(SearchTask(blocks, rank, seed=1))
    scheme = scheme_of(found)
    assert found.reached and found.rank == scheme.rank == rank
    assert multiplies(scheme)
    assert all(c in (-1, 1) for table in scheme.tables for row in table for _, c in row)
    assert all(row[0][1] == 1 for row in (*scheme.u.outputs, *scheme.v.outputs))
    assert parse_source(Source("x.bl", print_scheme(scheme))).schemes == (scheme,)


def test_what_does_not_multiply_is_refused() -> None:
    walker = ternary_walker(classical_masks(2, 2, 2), 0, 0)
    with pytest.raises(BilinearError, match="E301"):
        flip_search._proved(SearchTask((2, 2, 2), 7), LowestRank(7, 0, 0, walker.best))


def test_the_source_is_the_command_that_finds_it_again() -> None:
    found = discover(SearchTask((2, 2, 2), 7, seed=5, walkers=2))
    command = "bilinear discover 2,2,2 --rank 7 --seed 5 --walkers 2"
    assert scheme_of(found).citation == f"Found by `{command}`, a walk in the flip graph: walker {found.walker}, {found.steps} steps."


@pytest.mark.slow
def test_the_same_seed_finds_the_same_whatever_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flip_search, "ROUND", 2**14)  # several rounds, and several winners in the last
    task = SearchTask((2, 3, 3), 15, seed=3)
    finds = []
    for threads in (1, 3):
        monkeypatch.setattr(flip_search, "_cores", lambda threads=threads: threads)
        finds.append(what(discover(task)))
    assert len(set(finds)) == 1
    assert finds[0][3] > 2**14
    assert what(discover(SearchTask((2, 3, 3), 15, seed=4))) not in finds


@pytest.mark.parametrize("seconds", [60, 0.2])
def test_the_lowest_number_wins_its_round(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Walker 0 is slow here, so that others reach the rank before it does, and before the time is over; its turn is waited for."""
    plain = discover(SearchTask((2, 2, 2), 7))
    walk = flip_search._WalkerSearch._walk

    def slow(self: Any, number: int) -> None:
        time.sleep(0.6 if number == 0 else 0)
        walk(self, number)

    monkeypatch.setattr(flip_search, "_cores", lambda: 8)
    monkeypatch.setattr(flip_search._WalkerSearch, "_walk", slow)
    assert what(discover(SearchTask((2, 2, 2), 7), seconds)) == what(plain)
    assert plain.walker == 0


def test_a_lower_rank_than_was_asked_for_is_no_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walker of a higher number may have been halted on its way there, or not."""
    task = SearchTask((2, 2, 2), 7, walkers=3)
    walkers: list[AnyWalker] = [ternary_walker(classical_masks(2, 2, 2), 0, number) for number in range(3)]

    def walk(walker: Any, steps: int, target: int, number: int, halt: Any) -> None:
        walker.tally[BEST] = (8, 7, 6)[number]

    monkeypatch.setattr(flip_search, "_proved", lambda task, best: None)
    found = flip_search._WalkerSearch(task, walkers, walk, lambda *_: None).run(60)
    assert (found.walker, found.rank) == (1, 7)


@pytest.mark.slow
def test_what_is_reached_in_time_is_what_its_own_rank_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flip_search, "ROUND", 2**13)
    begin = time.process_time()
    found = discover(SearchTask((3, 3, 3), 19, seed=2), 0.5)
    assert time.process_time() - begin < 20
    assert not found.reached and not found.interrupted and 19 < found.rank < 27
    again = discover(SearchTask((3, 3, 3), found.rank, seed=2))
    assert what(again) == what(found) and multiplies(scheme_of(again))


def test_time_that_is_over_cuts_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flip_search, "ROUND", 2**40)
    begin = time.process_time()
    found = discover(SearchTask((3, 3, 3), 19), 0.3)
    assert time.process_time() - begin < 20
    assert found.scheme is None and found.rank == 27 and found.total > 0  # an incomplete round brings nothing


def test_an_interrupt_ends_with_what_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flip_search, "ROUND", 2**13)
    told: list[str] = []

    def progress(text: str, done: int, of: int) -> None:
        told.append(text)
        if "rank 2" in text and "rank 27" not in text:
            raise KeyboardInterrupt

    found = discover(SearchTask((3, 3, 3), 19), progress=progress)
    assert found.interrupted and not found.reached
    assert multiplies(scheme_of(found)) and found.rank < 27 and found.seconds < 30
    assert told[0] == "compiling the walk" and told[-1] == f"<3,3,3>: rank {found.rank}, looking for 19"


def test_a_lower_rank_is_written_before_the_next_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the state is kept otherwise: a process that is killed then has lost no rank."""
    monkeypatch.setattr(flip_search, "ROUND", 2**10)
    monkeypatch.setattr(flip_search, "KEPT_EVERY", 1e9)
    monkeypatch.setattr(flip_search, "LEAST_SHARE", 0)
    path, kept, told = tmp_path / "walk.json", [27], [27]

    def progress(text: str, done: int, of: int) -> None:
        found = re.search(r"rank ([0-9]+)", text)
        if found is not None and int(found[1]) != told[-1]:
            told.append(int(found[1]))
            kept.append(json.loads(path.read_text())["best"]["rank"])

    assert discover(SearchTask((3, 3, 3), 24, seed=1), state=path, progress=progress).reached
    assert kept == told and len(told) > 2


@each(
    ("task", "code", "message"),
    [
        (SearchTask((2, 2, 2), 8), "E660", "there is no point in searching for rank 8 in <2,2,2>: the classical scheme has rank 8"),
        (
            SearchTask((2, 2, 2), 6),
            "E660",
            "there is no point in searching for rank 6 in <2,2,2>: no scheme has fewer than 7 products (Hopcroft and Kerr, 1971)",
        ),
        (
            SearchTask((2, 2, 2), 0),
            "E660",
            "there is no point in searching for rank 0 in <2,2,2>: no scheme has fewer than 7 products (Hopcroft and Kerr, 1971)",
        ),
        (
            SearchTask((1, 2, 3), 5),
            "E660",
            "there is no point in searching for rank 5 in <1,2,3>: no scheme has fewer than 6 products (a matrix has as many blocks)",
        ),
        (SearchTask((1, 1, 1), 1), "E660", "there is no point in searching for rank 1 in <1,1,1>: the classical scheme has rank 1"),
        (SearchTask((9, 2, 9), 100), "E661", "<9,2,9> has 81 blocks in a matrix, and the walk has masks of 64 bits"),
    ],
)
def test_what_cannot_be_looked_for_is_refused(task: SearchTask, code: str, message: str) -> None:
    with pytest.raises(BilinearError) as refused:
        discover(task)
    (diagnostic,) = refused.value.diagnostics
    assert (diagnostic.code, diagnostic.message) == (code, message) and diagnostic.hints


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        (SearchTask((2, 2, 2), 6), "give 7"),
        (SearchTask((2, 2, 2), 100_000), "give 7"),
        (SearchTask((3, 3, 3), 100_000), "give one from 19 to 26"),
        (SearchTask((1, 2, 3), 5), "give a larger format: nothing has fewer products than the classical scheme"),
        (SearchTask((2, 2, 2), 6, start=load_shipped("strassen").scheme), "give a larger format: nothing has fewer products than strassen"),
    ],
)
def test_the_ranks_that_can_be_looked_for_are_told(task: SearchTask, hint: str) -> None:
    with pytest.raises(BilinearError) as refused:
        discover(task)
    assert refused.value.diagnostics[0].hints == (hint,)


@pytest.mark.slow
def test_no_shipped_scheme_is_below_a_bound() -> None:
    """The schemes that hold over Z/2 and the bounds contradict each other nowhere, and they meet at three formats."""
    met = set()
    for name in shipped():
        scheme = load_shipped(name).scheme
        if scheme.ring.name in ("Z", "Q", "Z/2") and prove_scheme(scheme).holds:
            bound = fewest_products(scheme.m, scheme.k, scheme.n)
            assert scheme.rank >= bound.rank, name
            met |= {tuple(sorted((scheme.m, scheme.k, scheme.n)))} if scheme.rank == bound.rank else set()
    assert {(2, 2, 2), (2, 2, 3), (2, 3, 3)} <= met
    for format in permutations((2, 3, 4)):
        assert fewest_products(*format) == fewest_products(2, 3, 4)


def test_the_widest_masks_have_their_64_blocks() -> None:
    found = discover(SearchTask((8, 8, 2), 100, walkers=1), 0.2)
    assert not found.reached and (found.scheme is None or multiplies(found.scheme))
    last = ternary_walker(classical_masks(8, 1, 8), 0, 0)
    assert last.factors[2, 0, 63] == np.uint64(1) << np.uint64(63)


def test_without_numba_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(BilinearError) as refused:
        flip_search.compiled_walk("Z")
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "E662" and diagnostic.hints == ("pip install '.[discover]' in the folder of the checkout",)


def test_numba_is_not_imported_before_a_walk() -> None:
    program = (
        "import sys, bilinear, bilinear.cli.app, bilinear.cli.discovering, bilinear.discovery.flip_search; print('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"


DISCOVER = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
from bilinear.cli.app import main
from bilinear.discovery import flip_search
called = flip_search._called
flip_search._called = lambda ring: Path("started").touch() or called(ring)
main()
"""


def test_ctrl_c_ends_a_compilation(tmp_path: Path) -> None:
    command = (sys.executable, "-c", DISCOVER, "discover", "2,2,2", "--rank", "7", "-o", "found.bl")
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as discover:
        while not (tmp_path / "started").exists():
            assert discover.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        discover.send_signal(signal.SIGINT)
        _, told = discover.communicate(timeout=300)
    assert (discover.returncode, told) == (130, b"")
    assert not (tmp_path / "found.bl").exists()


@pytest.mark.parametrize("module", ["kernels", "binary_kernels"])
def test_machine_code_is_read_from_no_file(module: str) -> None:
    """What numba keeps is a pickle."""
    functions = [found for found in vars(flip_search.kernels(module)).values() if hasattr(found, "stats")]
    assert len(functions) > 5 and {function.stats.cache_path for function in functions} == {None}


TASK = SearchTask((2, 2, 2), 7, seed=4, walkers=2, ring="Z/2")


def walkers_of(task: SearchTask) -> list[Any]:
    begin = binary_walker if task.ring == "Z/2" else ternary_walker
    return [begin(task.masks, task.seed, number) for number in range(task.walkers)]


def kept(path: Path, task: SearchTask = TASK) -> None:
    walkers = walkers_of(task)
    write_state(path, task, WalkState.of(walkers, LowestRank(8, 0, 0, walkers[0].best.copy())))


@pytest.mark.parametrize("ring", ["Z", "Z/2"])
def test_what_is_written_is_read(tmp_path: Path, ring: str) -> None:
    path, task = tmp_path / "walk.json", SearchTask((2, 1, 2), 3, seed=2**32 - 1, walkers=2, ring=ring)
    walkers = walkers_of(task)
    walkers[1].random[0], walkers[1].tally[3], walkers[1].tally[4] = 2**64 - 1, 77, -1
    write_state(path, task, WalkState.of(walkers, LowestRank(4, 1, 5, walkers[0].best.copy())))
    read = walkers_of(task)
    best = read_state(path, task, read)
    assert best[:3] == (4, 1, 5) and (best.factors == walkers[0].best).all()
    for walker, other in zip(walkers, read, strict=True):
        assert all((getattr(walker, name) == getattr(other, name)).all() for name in ("factors", "best", "random", "tally"))


def changed(change: Callable[[Any], object]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content)

    return edit


BAD: list[tuple[Callable[[str], str], str]] = [
    (lambda text: text[:100], "it is damaged or cut off at character 100"),
    (lambda text: text[:-3], "it is damaged or cut off at character "),
    (lambda text: "", "it is damaged or cut off at character 0"),
    (lambda text: "{\udcff" + text, "it is damaged at byte 1"),
    (lambda text: "[" * 100_000, "a field is missing or wrong"),
    (lambda text: "[1, 2]", "it does not say that it is one"),
    (changed(lambda c: c.update(version="bilinear walk 0")), "it does not say that it is one"),
    (changed(lambda c: c.pop("search")), "it does not say of which search"),
    (changed(lambda c: c["search"].update(seed=5)), "its seed is 5, not 4"),
    (changed(lambda c: c["search"].update(ring="Z")), "its ring is Z, not Z/2"),
    (changed(lambda c: c["search"].update(start="0")), "its start is 0, not"),
    (changed(lambda c: c.pop("best")), "a field is missing or wrong"),
    (changed(lambda c: c["best"].update(rank="8")), "its best scheme is wrong"),
    (changed(lambda c: c["best"].update(walker=2)), "its best scheme is wrong"),
    (changed(lambda c: c["walkers"].pop()), "it does not hold 2 walkers"),
    (changed(lambda c: c["walkers"][0].pop("random")), "a field is missing or wrong"),
    (changed(lambda c: c["walkers"][0].update(random=-1)), "the random numbers of a walker are wrong"),
    (changed(lambda c: c["walkers"][0].update(random=2**64)), "the random numbers of a walker are wrong"),
    (changed(lambda c: c["walkers"][0]["tally"].pop()), "the tally of a walker is wrong"),
    (changed(lambda c: c["walkers"][1]["tally"].__setitem__(0, 500)), "the tally of a walker is wrong"),
    (changed(lambda c: c["walkers"][1]["tally"].__setitem__(3, 0.5)), "the tally of a walker is wrong"),
    (changed(lambda c: c["walkers"][1]["factors"][0].pop()), "the factors of a walker are wrong"),
    (changed(lambda c: c["walkers"][1]["factors"].pop()), "a field is missing or wrong"),
    (changed(lambda c: c["walkers"][1]["factors"][0].__setitem__(0, True)), "the factors of a walker are wrong"),
    (changed(lambda c: c["walkers"][1]["factors"][0].__setitem__(0, 16)), "a factor has more blocks than the format"),
    (changed(lambda c: c["walkers"][1]["factors"][0].__setitem__(0, 3)), "the products of a walker do not multiply matrices"),
    (changed(lambda c: c["walkers"][0]["best"][2].__setitem__(0, 3)), "the products of a walker do not multiply matrices"),
]


@each(("edit", "reason"), BAD)
def test_what_is_no_state_of_the_search_is_refused(tmp_path: Path, edit: Callable[[str], str], reason: str) -> None:
    path = tmp_path / "walk.json"
    kept(path)
    path.write_text(edit(path.read_text()), errors="surrogateescape")
    with pytest.raises(BilinearError) as refused:
        read_state(path, TASK, walkers_of(TASK))
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "E742" and reason in diagnostic.message and diagnostic.hints


def test_a_folder_is_no_state(tmp_path: Path) -> None:
    with pytest.raises(BilinearError, match=r"E742.*Is a directory"):
        read_state(tmp_path, TASK, walkers_of(TASK))


def test_both_masks_of_signs_may_not_meet(tmp_path: Path) -> None:
    path, task = tmp_path / "walk.json", SearchTask((2, 2, 2), 7, walkers=1)
    kept(path, task)
    content = json.loads(path.read_text())
    content["walkers"][0]["factors"][1][0] = content["walkers"][0]["factors"][0][0]
    path.write_text(json.dumps(content))
    with pytest.raises(BilinearError, match="E742"):
        read_state(path, task, walkers_of(task))
