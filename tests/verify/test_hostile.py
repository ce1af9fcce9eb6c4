"""Schemes and schedules that grow out of bounds when they are proved: an answer, soon, and in little memory."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hostile import MOST_SECONDS, answers

from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend.algorithms import shipped
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import Block, Product, ProductStage, Schedule, Target
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import prepare
from bilinear.source import Source
from bilinear.verify import symbolic_run
from bilinear.verify.composed import require_expandable
from bilinear.verify.hazards import find_hazards
from bilinear.verify.schedule import prove_schedule
from bilinear.verify.scheme import prove_scheme

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space are Linux's")

ONE = "scheme c <1,1,1;1>{ring}\n  M: 1 | 1 | 1\n"


def chain(coefficient: str, length: int, ring: str = "") -> str:
    """Each sum is a multiple of the one before."""
    sums = "".join(f"  S{i + 1} = {coefficient} S{i}\n" for i in range(length))
    return f"scheme x <1,1,1;1>{ring}\n  S0 = A11\n{sums}  M1 = S{length} * B11\n  C11 = M1\n"


def dense(size: int, rank: int, ring: str = "") -> str:
    """A table of ones."""
    part = "1 " * (size * size)
    return f"scheme x <{size},{size},{size};{rank}>{ring}\n" + "".join(f"  M{i}: {part}| {part}| {part}\n" for i in range(rank))


def wide(size: int, length: int) -> str:
    """Sums over every block, one on top of the other."""
    blocks = [f"A[{i + 1},{j + 1}]" for i in range(size) for j in range(size)]
    sums = "".join(f"  S{i + 1} = S{i} + {blocks[i % len(blocks)]}\n" for i in range(length))
    outputs = "".join(f"  C[{i + 1},1] = M1\n" for i in range(size))
    return f"scheme x <{size},{size},1;1>\n  S0 = {' + '.join(blocks)}\n{sums}  M1 = S{length} * B11\n{outputs}"


def scaled(steps: str, claims: str = "C = A*B", ring: str = "") -> str:
    """A schedule of a scheme of one product."""
    return ONE.format(ring=ring) + f"schedule s of c: {claims}\n{steps}"


POWERS = "+".join(f"lambda^{i}" for i in range(40))
SHUFFLE = "  stage {{ {} }}\n".format(" ; ".join(f"A{i}{j} += A{j}{i} + A{i}{(j + i) % 8 + 1}" for i in range(1, 9) for j in range(1, 9)))
UNIT = "  M: 1 " + "0 " * 4095 + "| 1 " + "0 " * 4095 + "| 1 " + "0 " * 4095 + "\n"
TALL = "scheme c <8,8,1;64>\n" + "".join(
    f"  M{i}{p}: {'0 ' * (8 * i + p)}1 {'0 ' * (63 - 8 * i - p)}| {'0 ' * p}1 {'0 ' * (7 - p)}| {'0 ' * i}1 {'0 ' * (7 - i)}\n"
    for i in range(8)
    for p in range(8)
)

GROWING = {
    "doubling sums": ("E303", chain("2", 3000)),
    "sums times long numbers": ("E303", chain("9" * 100, 800)),
    "polynomials in sums": ("E303", chain("[1+lambda]", 3000, " over Q[lambda]")),
    "dense polynomials in sums": ("E303", chain(f"[{POWERS}]", 230, " over Q[lambda]")),
    "roots in sums": ("E303", chain("[1+sqrt(999983)]", 3000, " over Q[sqrt(999983)]")),
    "wide sums": ("E301", wide(64, 500)),
    "wider sums": ("E303", wide(64, 6000)),
    "dense table": ("E301", dense(8, 76)),
    "dense table with a root": ("E303", dense(8, 76, " over Q[sqrt(3)]").replace("1 ", "[sqrt(3)] ", 1)),
    "thousands of temporaries": (
        "E412",
        scaled(
            "".join(f"  stage {{ X{i} = A11 }}\n" for i in range(2000)), "C = A*B, temporaries " + " ".join(f"X{i}" for i in range(2000))
        ),
    ),
    "thousands of stages": ("E412", "schedule s of strassen: in-place\n" + "stage {A11+=A12}\n" * 5500),
    "stages that double": ("E412", "schedule s of strassen: in-place\n" + "stage {A11+=A12;A12+=A11}\n" * 3500),
    "stages of long numbers": ("E412", "schedule s of strassen: in-place\n" + f"stage {{ A11 += {'9' * 100} A12 ; A12 += A11 }}\n" * 500),
    "stages of polynomials": ("E412", scaled("  stage { A11 = [1+lambda+lambda^-1] A11 }\n" * 2000, ring=" over Q[lambda]")),
    "stages of alpha and beta": ("E412", scaled("  stage { A11 = [1+alpha+beta] A11 }\n" * 2000, "C = alpha*A*B")),
    "stages that mix": ("E412", f"{TALL}schedule s of c: C = A*B\n" + SHUFFLE * 60),
    "one stage of products": ("E403", "schedule s of strassen: in-place\n stage {" + ";".join(["C11+=A11*B11"] * 4000) + "}\n"),
    "one stage of writes": ("E401", "schedule s of strassen: in-place\n stage {" + ";".join(["A11+=A12"] * 5000) + "}\n"),
    "polynomials in a wrong table": ("E301", dense(3, 27, " over Q[lambda]").replace("1 ", "1+lambda^-60 ")),
    "wrong table": ("E301", dense(3, 23)),
    "large wrong table": ("E301", f"scheme x <64,64,64;1>\n{UNIT}"),
}


@pytest.mark.slow
def test_what_grows_is_refused_soon_in_little_memory(tmp_path: Path) -> None:
    for name, told in answers({name: text for name, (_, text) in GROWING.items()}, tmp_path).items():
        assert told["status"] == 1 and f"error[{GROWING[name][0]}]" in told["err"], (name, told["status"])
        assert len(told["err"]) < 50_000 and told["seconds"] < MOST_SECONDS, name


@pytest.mark.parametrize("name", ["strassen", "winograd", "karstadt_schwartz", "laderman", "hopcroft_kerr", "classical", "smirnov_333"])
def test_the_expansion_of_a_scheme_may_take_what_the_size_of_the_scheme_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheme that is proved can run, however large it is; a schedule of it that grows is refused as ever."""
    monkeypatch.setattr(symbolic_run, "MOST_WORK", 0)
    scheme = replace(load(name).scheme, name=f"fresh_{name}")
    assert prepare(scheme, None, 1, "preserve").schedule.products > 0, "nothing was refused"


def test_a_growing_schedule_is_refused_beside_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbolic_run, "MOST_WORK", 0)
    schedule = parse_source(Source("x.bl", "schedule s of strassen\n" + "stage {A11+=A12;A12+=A11}\n" * 60)).schedules[0]
    with pytest.raises(BilinearError, match="E412"):
        prove_schedule(schedule, load("strassen").scheme)


def test_the_diagnostics_of_one_proof_are_counted() -> None:
    text = "schedule s of strassen\n stage {" + ";".join(["A11+=A12"] * 200) + "}\n"
    module = parse_source(Source("x.bl", text))
    with pytest.raises(BilinearError) as raised:
        prove_schedule(module.schedules[0]).require()
    assert len(raised.value.diagnostics) == 50
    assert raised.value.diagnostics[-1].notes[-1].startswith("the first 50 of ")


def test_long_numbers_are_shortened() -> None:
    long = chain("9" * 100, 4).replace("S0 = A11", "S0 = 2 A11")
    proof = prove_scheme(parse_source(Source("x.bl", long)).schemes[0])
    assert "(401 characters), needed 1" in str(proof.failures[0])
    assert len(str(proof.failures[0])) < 160


@pytest.mark.slow
def test_no_shipped_scheme_comes_near_the_bounds() -> None:
    for path in shipped().values():
        for scheme in parse_source(Source(str(path), path.read_text(encoding="utf-8"))).schemes:
            require_expandable(scheme)


def test_numbers_that_cancel_are_within_their_bound() -> None:
    """The bound is never below what is written out: here the sum has one term more than its parts, and the outcome has none."""
    steps = (((0, 1), (1, 1)), ((0, 1), (1, 1)), ((2, 1), (3, -1)))
    linear = LinearMap(2, (((4, 1), (0, 1)),), steps, ("S1", "S2", "S3"))
    require_expandable(Scheme("x", 1, 2, 1, linear, linear, LinearMap(1, (((0, 1),),)), ("M1",)))
    assert linear.matrix == (((0, 1),),)


def test_overwritten_operands_are_those_of_a_plain_search() -> None:
    """The hazards of a stage against all pairs of its steps."""
    a, b, c = ([Block(s, 0, i) for i in range(3)] for s in "ABC")
    blocks = [*a, *b, *c]
    for number in range(300):
        pick = [blocks[number * 7 % 9], blocks[number // 9 * 5 % 9], blocks[number // 3 % 9]]
        products = tuple(Product(a[(number + i) % 3], b[(number // 2 + i) % 3], (Target(pick[i]),)) for i in range(3))
        schedule = Schedule("s", "x", 1, 3, 3, (ProductStage(products),))
        found = [d.notes[0] for d in find_hazards(1, ProductStage(products), schedule) if d.code == "E409"]
        pairs = [(p, q) for p in products for q in products if p.targets[0].block in (q.left, q.right)]
        assert len(found) == len(pairs)
