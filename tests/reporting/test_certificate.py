"""The certificate and the checker that stands alone: what is true is accepted, what was tampered with is refused."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from reporting.certificates import ALGORITHMS, Certificate, certificate_of, is_right
from reporting.ring_schemes import approximate, in_rings, over_z2, ratio, scaled, with_bases
from soak.statements import rehashed

from bilinear.analysis.identity import schedule_hash, scheme_hash
from bilinear.frontend import load, load_any
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, generator
from bilinear.ir.ring import Ring
from bilinear.ir.schedule import (
    Block,
    BlockMap,
    LinearStage,
    Product,
    ProductStage,
    Result,
    ScaledSchedule,
    ScaledTarget,
    Schedule,
    Space,
    Target,
)
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import prepare
from bilinear.passes.order_products import mark_first_writes
from bilinear.reporting.certificate import certificate, certificate_text, digest
from bilinear.reporting.examine import certificate_of as certificate_of_any
from bilinear.reporting.examine import examined

CHECKER = Path(__file__).parents[2] / "examples" / "check_certificate.py"


def check(found: list[Certificate] | list[str], folder: Path) -> list[str]:
    """The checker's last word on each certificate, from a process that sees the standard library alone."""
    paths = []
    for number, one in enumerate(found):
        path = folder / f"{number}.json"
        path.write_text(one if isinstance(one, str) else json.dumps(one))
        paths.append(str(path))
    command = [sys.executable, "-I", "-S", str(CHECKER), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr == ""
    words = [_word(done.stdout, path) for path in paths]
    assert done.returncode == int(any("refused" in word for word in words))
    return words


def _word(printed: str, path: str) -> str:
    """What is said of one file: `accepted`, or one line that refuses it."""
    lines = printed.splitlines()
    refused = [line for line in lines if line.startswith(f"{path}: refused: ")]
    if refused:
        assert len(refused) == 1
        return refused[0].removeprefix(f"{path}: ")
    start = lines.index(f"{path}:")
    return next(line for line in lines[start + 1 :] if not line.startswith(("  s", "  x*y", "  A*"))).strip().partition(":")[0]


@pytest.mark.parametrize("levels", [1, 2])
def test_every_shipped_algorithm_is_accepted(levels: int, tmp_path: Path) -> None:
    assert check([certificate_of(name, levels) for name in ALGORITHMS], tmp_path) == ["accepted"] * len(ALGORITHMS)


def test_the_checker_imports_nothing_of_ours() -> None:
    assert "bilinear" not in {
        line.split()[1].partition(".")[0] for line in CHECKER.read_text().splitlines() if line.startswith(("import ", "from "))
    }


def test_hashes_are_those_of_the_package() -> None:
    loaded = load("msmes")
    assert loaded.schedule is not None
    found: Certificate = certificate(loaded.scheme, [loaded.schedule])
    assert found["scheme"]["sha256"] == scheme_hash(loaded.scheme)
    assert found["schedules"][0]["sha256"] == schedule_hash(loaded.schedule)
    assert rehashed(copy.deepcopy(found)) == found


def test_the_text_holds_the_same_in_lines_for_readers() -> None:
    loaded = load("laderman")
    text = certificate_text(loaded.scheme)
    assert json.loads(text) == certificate(loaded.scheme)
    assert max(map(len, text.splitlines())) <= 200


def test_schedules_that_are_one_appear_once() -> None:
    loaded = load("msmes")
    assert loaded.schedule is not None
    found: Certificate = certificate(loaded.scheme, [loaded.schedule, loaded.schedule])
    assert len(found["schedules"]) == 1


KEYS = {
    "": ["format", "scheme", "schedules", "sha256"],
    "scheme": ["name", "citation", "m", "k", "n", "ring", "order", "products", "u", "v", "w", "bases", "sha256"],
    "schedules": ["name", "levels", "m", "k", "n", "workspaces", "stages", "claims", "sha256"],
    "claims": ["result", "scaling", "restores", "preserves", "recurses_in_place"],
}


def test_keys_are_stable() -> None:
    found = certificate_of("msmes")
    assert list(found) == KEYS[""] and found["format"] == "bilinear-certificate/1"
    assert list(found["scheme"]) == KEYS["scheme"]
    assert list(found["schedules"][0]) == KEYS["schedules"]
    assert list(found["schedules"][0]["claims"]) == KEYS["claims"]


# Rings


def test_every_ring_is_accepted(tmp_path: Path) -> None:
    found = [certificate(scheme, order=order) for scheme, order in in_rings()]
    assert check(found, tmp_path) == ["accepted"] * len(found)


def test_another_ring_is_refused_where_the_equations_fail_in_it(tmp_path: Path) -> None:
    cases = [
        (replace(over_z2(), ring=Ring("Z")), None),
        (replace(over_z2(), ring=Ring("Z/3")), None),
        (scaled(load("strassen").scheme, 2, 2, ratio(1, 2), "Z"), None),
        (scaled(load("strassen").scheme, 2, 2, ratio(1, 2), "Z/2"), None),
        (scaled(load("strassen").scheme, 0, generator("i"), -generator("i"), "Q"), None),
        (scaled(load("strassen").scheme, 0, generator("sqrt(2)"), generator("sqrt(2)"), "Q[sqrt(2)]"), None),
        (approximate(), 1),
        (approximate(), None),
        (approximate(), 3),
        (load("strassen").scheme, 1),
        (replace(load("strassen").scheme, ring=Ring("Z/1")), None),
        (replace(load("strassen").scheme, ring=Ring("R")), None),
    ]
    words = check([certificate(scheme, order=order) for scheme, order in cases], tmp_path)
    assert [word for word in words if not word.startswith("refused")] == []


def test_changes_of_basis_must_give_the_tables(tmp_path: Path) -> None:
    found: Certificate = certificate(with_bases())
    wrong = []
    for name in "abcuvw":
        one = copy.deepcopy(found)
        one["scheme"]["bases"][name][0][0][1] = "7"
        wrong.append(rehashed(one))
    assert check(wrong, tmp_path) == ["refused: the changes of basis give other tables"] * 6


# Tampering


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values that are neither lists nor objects."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path


def changed(found: Certificate, path: tuple[Any, ...], value: Any) -> Certificate:
    one = copy.deepcopy(found)
    place: Any = one
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return one


def at(found: Certificate, path: tuple[Any, ...]) -> Any:
    value: Any = found
    for key in path:
        value = value[key]
    return value


def other(value: Any, dice: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + dice.choice((-1, 1))
    if value is None:
        return 1
    return dice.choice([word for word in ("1", "-1", "2", "A11", "B22", "C12", "msmes", "") if word != value])


@pytest.mark.slow
def test_any_change_is_noticed_by_the_hash(tmp_path: Path) -> None:
    dice = random.Random(1)
    found = certificate_of("msmes")
    paths = list(leaves(found))
    tampered = [changed(found, path, other(at(found, path), dice)) for path in dice.sample(paths, 250)]
    words = check(tampered, tmp_path)
    assert [word for word in words if not word.startswith("refused")] == []


@pytest.mark.sample(3)
@each("name", ALGORITHMS)
def test_a_wrong_coefficient_of_a_scheme_is_refused_with_new_hashes(name: str, tmp_path: Path) -> None:
    """One changed coefficient adds a product of rank one to an output, so the scheme is wrong: no product of these has a zero factor."""
    dice = random.Random(2)
    found = certificate_of(name)
    paths = [path for path in leaves(found) if path[0] == "scheme" and path[1] in ("u", "v", "w") and path[-1] == 1]
    words = [str(c) for c in (-3, -1, 0, 1, 2, "1/2")]
    tampered = []
    for path in dice.sample(paths, min(60, len(paths))):
        value = dice.choice([word for word in words if word != at(found, path)])
        tampered.append(rehashed(changed(found, path, value)))
    assert {word.partition(" does")[0] for word in check(tampered, tmp_path)} == {f"refused: {found['scheme']['name']}"}


@pytest.mark.parametrize("name", ["rxtx", "pairs", "residues7", "complex3 (x) strassen", "winograd (x) gaussian7"])
def test_other_maps_are_accepted_and_a_wrong_coefficient_is_refused(name: str, tmp_path: Path) -> None:
    loaded = load_any(name)
    found: Certificate = json.loads(certificate_of_any(loaded, 1, "preserve"))
    tampered = []
    for table in "uvw":
        body = json.loads(json.dumps({key: value for key, value in found.items() if key != "sha256"}))
        entry = next(entry for row in body["maps"][0][table] for entry in row)
        entry[1] = str(int(entry[1]) + 1) if entry[1].lstrip("-").isdigit() else "0"
        tampered.append({**body, "sha256": digest(body)})
    right, *wrong = check([json.dumps(found), *map(json.dumps, tampered)], tmp_path)
    assert right == "accepted" and all(f" is not {found['maps'][0]['computes']}" in word for word in wrong)
    report, error = examined(loaded, 1, "preserve")
    assert error is None and report.proved and report.markdown().startswith(f"# {loaded.scheme.name}") and "</html>" in report.html()


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["msmes", "winograd", "strassen", "winograd_depth_first"])
def test_a_tampered_schedule_is_accepted_only_where_it_is_right(name: str, tmp_path: Path) -> None:
    """Blocks, coefficients and claims are changed and all hashes computed anew; the verdict is that of integer matrices."""
    dice = random.Random(3)
    found = certificate_of(name)
    tampered = [rehashed(tamper(found, dice)) for _ in range(250)]
    expected = [is_right(one, dice) for one in tampered]
    words = check(tampered, tmp_path)
    assert [word == "accepted" for word in words] == expected
    assert expected.count(False) > 150


def tamper(found: Certificate, dice: random.Random) -> Certificate:
    """One random change of a schedule: of a coefficient, of a block, of a mark, of the order of two stages, or of a claim."""
    one = copy.deepcopy(found)
    entry = dice.choice(one["schedules"])
    what = dice.choice(("number", "block", "mark", "order", "drop", "claim"))
    stages = entry["stages"]
    if what == "claim":
        entry["claims"]["restores"] = [name for name in ("A", "B") if dice.random() < 0.7]
        if not entry["claims"]["preserves"]:
            entry["claims"]["recurses_in_place"] = dice.random() < 0.5
        stages = [] if dice.random() < 0.3 else stages
    if what in ("order", "drop") and len(stages) > 1:
        i = dice.randrange(len(stages) - 1)
        stages[i : i + 2] = [stages[i + 1], stages[i]] if what == "order" else [stages[i + 1]]
    if what == "mark":
        target = dice.choice([target for stage in stages for step in stage.get("products", []) for target in step["targets"]])
        target[2:] = [] if target[2:] else ["first"]
    if what in ("number", "block"):
        change_a_step(dice.choice(stages), what, dice)
    return one


def change_a_step(stage: dict[str, Any], what: str, dice: random.Random) -> None:
    if "maps" in stage:
        block_map = dice.choice(stage["maps"])
        if what == "number":
            dice.choice([term for row in block_map["matrix"] for term in row])[1] = dice.choice(("-1", "1", "2", "1/2"))
            return
        place = dice.choice((block_map["sources"], block_map["targets"]))
        i = dice.randrange(len(place))
        place[i] = elsewhere(place[i], dice)
        return
    step = dice.choice(stage["products"])
    if what == "number":
        dice.choice(step["targets"])[1] = dice.choice(("-1", "1", "2", "1/2"))
        return
    side = dice.choice(("left", "right", "target"))
    if side == "target":
        target = dice.choice(step["targets"])
        target[0] = elsewhere(target[0], dice)
    else:
        step[side] = elsewhere(step[side], dice)


def elsewhere(block: str, dice: random.Random) -> str:
    space = dice.choice((block[:-2], block[:-2], block[:-2], "A", "B"))
    return f"{space}{dice.choice('12')}{dice.choice('12')}"


def right_but_for(found: Certificate, what: str) -> Certificate:
    """A certificate whose schedule still computes C, with one thing about it that is not so."""
    one = copy.deepcopy(found)
    entry = one["schedules"][0]
    stages = entry["stages"]
    if what == "restoring":
        del stages[-1]
        entry["claims"]["recurses_in_place"] = False
    if what == "recursion":
        again = stages[1]["products"][0]
        stages[1]["products"] += [{**again, "targets": [["C11", sign]]} for sign in ("1", "-1")]
    if what == "hazard":
        step = stages[0]["maps"][0]
        step["targets"], step["matrix"] = step["targets"] + step["targets"][:1], step["matrix"] + step["matrix"][:1]
    if what == "reading C":
        stages.insert(0, {"maps": [{"sources": ["C11"], "targets": ["P11"], "matrix": [[[0, "1"]]]}]})
    if what == "shape of sums":
        entry["workspaces"][0][1] = "B"
    if what == "shape of products":
        entry["workspaces"][-1][1] = "A"
    if what == "levels":
        entry["levels"] = 2
    one = rehashed(one)
    if what == "hash of the scheme":
        one["scheme"]["sha256"] = "0" * 64
    if what == "hash of the schedule":
        one["schedules"][0]["sha256"] = "0" * 64
    one.pop("sha256")
    return {**one, "sha256": digest(one)}


@each(
    ("what", "name", "message"),
    [
        ("nothing", "msmes", "accepted"),
        ("nothing", "strassen", "accepted"),
        ("restoring", "msmes", "refused: msmes does not restore what it claims to"),
        ("recursion", "msmes", "refused: msmes is not safe under recursion in place"),
        ("hazard", "msmes", "refused: two steps of a stage write A21"),
        ("reading C", "strassen", "refused: C11 is read where nothing may be read"),
        ("shape of sums", "strassen", "refused: a map mixes blocks of different shapes"),
        ("shape of products", "strassen", "refused: P11 cannot hold the product of X11 and Y11"),
        ("levels", "strassen", "refused: strassen-expand is not a schedule of strassen at 2 levels"),
        ("hash of the scheme", "strassen", "refused: strassen: the hash is that of other tables"),
        ("hash of the schedule", "strassen", "refused: strassen-expand: the hash is that of another schedule"),
    ],
)
def test_one_false_claim_about_a_schedule_that_computes_c(what: str, name: str, message: str, tmp_path: Path) -> None:
    assert check([right_but_for(certificate_of(name), what)], tmp_path) == [message]


def test_what_is_malformed_is_refused_in_one_line(tmp_path: Path) -> None:
    found = certificate_of("strassen")
    small = [
        "{",
        "[]",
        '"text"',
        "{}",
        '{"format": "bilinear-certificate/1"}',
        '{"format": "bilinear-certificate/2", "sha256": ""}',
        "[" * 50_000,
    ]
    cases: list[Certificate] = []
    for path, value in (
        (("scheme", "m"), 10**9),
        (("scheme", "m"), 2.0),
        (("scheme", "m"), True),
        (("scheme", "ring"), "Z/0"),
        (("scheme", "u", 0, 0, 1), "1/0"),
        (("scheme", "u", 0, 0, 1), "9" * 5000),
        (("scheme", "u", 0, 0, 1), "__import__('os')"),
        (("scheme", "u", 0, 0, 1), "1e9"),
        (("scheme", "u", 0, 0, 1), "lambda"),
        (("scheme", "u", 0, 0, 1), 1),
        (("scheme", "u", 0, 0, 0), -1),
        (("scheme", "u", 0, 0, 0), 99),
        (("scheme", "u", 0), None),
        (("scheme", "w"), []),
        (("schedules", 0, "levels"), 2),
        (("schedules", 0, "stages", 0), {}),
        (("schedules", 0, "workspaces", 0, 2), 10**9),
        (("schedules", 0, "workspaces", 0, 0), "A"),
        (("schedules", 0, "claims", "preserves"), []),
        (("schedules", 0, "claims", "scaling"), "none"),
        (("schedules", 0, "claims", "result"), ["1", "0"]),
        (("schedules",), 7),
    ):
        one = changed(found, path, value)
        body = {key: item for key, item in one.items() if key != "sha256"}
        cases.append(one if path == ("schedules",) else _with_hash(body))
    words = check([*small, *map(json.dumps, cases)], tmp_path)
    assert [word for word in words if not word.startswith("refused: ")] == []


def _with_hash(body: Certificate) -> Certificate:
    """Hashes computed anew where the form allows it, so that the content is what is refused."""
    try:
        return rehashed(body)
    except (KeyError, TypeError, AttributeError):
        return body


# Schedules that overwrite C


NEW, MORE = 0, 1


def overwriting(*products: tuple[int, int, int]) -> Certificate:
    """Of C = alpha*A*B for a row of two blocks and a column: (the pair, the coefficient, 1 where C11 keeps what it held)."""
    pair = LinearMap(2, (((0, 1),), ((1, 1),)))
    scheme = Scheme("row", 1, 2, 1, pair, pair, LinearMap(2, (((0, 1), (1, 1)),)), ("M1", "M2"))
    stages = (
        ProductStage((Product(Block("A", 0, p), Block("B", p, 0), (Target(Block("C", 0, 0), coefficient, kept),)),))
        for p, coefficient, kept in products
    )
    schedule = Schedule("row", "row", 1, 2, 1, tuple(stages), in_place=True, restores=("A", "B"))
    found: Certificate = certificate(scheme, [schedule])
    found["schedules"][0]["claims"] |= {"scaling": "overwriting", "result": ["alpha", "0"]}  # also where every product adds
    return rehashed(found)


def test_marks_say_which_products_overwrite(tmp_path: Path) -> None:
    """What C held is lost in the first product, the second adds; any other marks are refused."""
    right = overwriting((0, 1, NEW), (1, 1, MORE))
    assert right["schedules"][0]["claims"]["result"] == ["alpha", "0"] and not right["schedules"][0]["claims"]["recurses_in_place"]
    cases = [
        right,
        overwriting((1, 5, NEW), (0, 1, NEW), (1, 1, MORE)),
        overwriting((0, 1, NEW), (1, 1, NEW)),
        overwriting((0, 1, MORE), (1, 1, MORE)),
        overwriting((0, 1, MORE), (1, 1, NEW)),
    ]
    assert check(cases, tmp_path) == [
        "accepted",
        "accepted",
        "refused: row: C11 does not end as alpha*A*B",
        "refused: C11 is read where nothing may be read",
        "refused: C11 is read where nothing may be read",
    ]


def test_what_overwrites_c_is_no_other_schedule(tmp_path: Path) -> None:
    """Refused: other scaling, another result, recursion where products add, and two products of a stage that overwrite a block."""
    found = overwriting((0, 1, NEW), (1, 1, MORE))
    cases = []
    for claims in ({"scaling": "implied"}, {"result": ["alpha", "beta"]}, {"scaling": "implied", "result": ["alpha", "beta"]}):
        one = copy.deepcopy(found)
        one["schedules"][0]["claims"] |= claims
        cases.append(rehashed(one))
    cases.append(rehashed(changed(found, ("schedules", 0, "claims", "recurses_in_place"), True)))
    twice = copy.deepcopy(found)
    first, _ = stages = twice["schedules"][0]["stages"]
    stages.insert(0, {"products": first["products"] * 2})
    cases.append(rehashed(twice))
    assert check([found, *cases], tmp_path) == [
        "accepted",
        "refused: implied scaling has another result",
        "refused: overwriting scaling has another result",
        "refused: C11 is added to, and marked as overwritten",
        "refused: row is not safe under recursion in place",
        "refused: two steps of a stage write C11",
    ]


def test_recursion_in_place_is_claimed_where_every_product_overwrites(tmp_path: Path) -> None:
    """C = alpha*A*B for one product; a workspace makes recursion need memory of its own."""
    found = certificate_of("winograd_depth_first")
    assert [entry["claims"]["recurses_in_place"] for entry in found["schedules"]] == [False, False]
    one = LinearMap(1, (((0, 1),),))
    scheme = Scheme("plain", 1, 1, 1, one, one, one, ("M1",))
    a, b, c = Block("A", 0, 0), Block("B", 0, 0), Block("C", 0, 0)
    stage = ProductStage((Product(a, b, (Target(c, 1, kept=0),)),))
    plain = Schedule("p", "plain", 1, 1, 1, (stage,), in_place=True, restores=("A", "B"))
    safe: Certificate = certificate(scheme, [plain])
    assert safe["schedules"][0]["claims"]["recurses_in_place"]
    assert check([found, safe], tmp_path) == ["accepted", "accepted"]


def test_the_hash_tells_what_overwrites() -> None:
    loaded = load("winograd_depth_first")
    lowered = prepare(loaded.scheme, loaded.schedule, 1, "preserve").schedule

    def adding(stage: Any) -> Any:
        if not isinstance(stage, ProductStage):
            return stage
        return ProductStage(tuple(replace(p, targets=tuple(replace(t, kept=1) for t in p.targets)) for p in stage.products))

    stages = lowered.stages
    others = [replace(lowered, stages=(*stages[:i], adding(stage), *stages[i + 1 :])) for i, stage in enumerate(stages)]
    products = sum(isinstance(stage, ProductStage) for stage in stages)
    assert lowered.overwrites and products == 7
    assert len({schedule_hash(s) for s in (lowered, *others)}) == 1 + products


def test_first_writes_that_carry_beta_are_no_part_of_the_hash() -> None:
    schedule = load("msmes").schedule
    assert schedule is not None and mark_first_writes(schedule) != schedule
    assert schedule_hash(mark_first_writes(schedule)) == schedule_hash(schedule)


# Schedules with explicit scaling


def test_written_scaling_is_run_as_it_is_written(tmp_path: Path) -> None:
    """C = 2*A*B - C for 1 x 1 blocks by one product and one sum, and the same with another result claimed."""
    one = LinearMap(1, (((0, 1),),))
    scheme = Scheme("plain", 1, 1, 1, one, one, one, ("M1",))
    a, b, c, x = Block("A", 0, 0), Block("B", 0, 0), Block("C", 0, 0), Block("X", -1, -1)
    negate = LinearStage((BlockMap((c,), (x,), LinearMap(1, (((0, -1),),))),))
    multiply = ProductStage((Product(a, b, (ScaledTarget(c, 2, 0, ((x, 1),)),)),))

    def of(result: Result) -> ScaledSchedule:
        return ScaledSchedule("twice", "plain", 1, 1, 1, (negate, multiply), (Space("X", "C", 0, 0),), result=result)

    right, wrong = of(Result(2, -1)), [of(Result(2, 1)), of(Result(1, -1)), of(Result(generator("alpha"), -1)), of(Result(2, 0))]
    words = check([certificate(scheme, [schedule]) for schedule in (right, *wrong)], tmp_path)
    assert words[0] == "accepted" and [word for word in words[1:] if not word.startswith("refused")] == []
    assert len({schedule_hash(schedule) for schedule in (right, *wrong)}) == 5


@pytest.mark.parametrize("name", ["AB", "BC", "ABC", "AC", "X"])
def test_a_temporary_is_no_operand_whatever_its_name(name: str, tmp_path: Path) -> None:
    """C = A*B + t - t is accepted only where something was written to t."""
    one = LinearMap(1, (((0, 1),),))
    scheme = Scheme("plain", 1, 1, 1, one, one, one, ("M1",))
    a, b, c, t = Block("A", 0, 0), Block("B", 0, 0), Block("C", 0, 0), Block(name, -1, -1)
    write = ProductStage((Product(a, b, (ScaledTarget(t, 1, 0),)),))
    stages = (
        ProductStage((Product(a, b, (ScaledTarget(c, 1, 0, ((t, 1),)),)),)),
        LinearStage((BlockMap((c, t), (c,), LinearMap(2, (((0, 1), (1, -1)),))),)),
    )
    schedules = [
        ScaledSchedule("s", "plain", 1, 1, 1, steps, (Space(name, "C", 0, 0),), result=Result(1, 0)) for steps in ((write, *stages), stages)
    ]
    words = check([certificate(scheme, [schedule]) for schedule in schedules], tmp_path)
    assert words == ["accepted", f"refused: {name} is read where nothing may be read"]


def test_a_workspace_may_hold_products_whatever_its_name(tmp_path: Path) -> None:
    found = certificate_of("strassen")
    found["schedules"] = json.loads(json.dumps(found["schedules"]).replace('"P', '"AB'))
    assert "AB" in {space[0] for entry in found["schedules"] for space in entry["workspaces"]}
    assert check([rehashed(found)], tmp_path) == ["accepted"]


def test_a_workspace_may_not_take_the_name_of_an_operand(tmp_path: Path) -> None:
    cases = [changed(certificate_of("strassen"), ("schedules", 0, "workspaces", 0), [name, "A", 0, 0]) for name in "ABC"]
    assert check([rehashed(case) for case in cases], tmp_path) == [f"refused: {name} is not a new grid of blocks" for name in "ABC"]


def test_the_first_writer_carries_beta_in_its_form(tmp_path: Path) -> None:
    """C = alpha*A*B + beta*C, where the first of two products into C says what becomes of the old C, and the second adds to both."""
    m1 = LinearMap(2, (((0, 1),), ((1, 1),)))
    scheme = Scheme("row", 1, 2, 1, m1, m1, LinearMap(2, (((0, 1), (1, 1)),)), ("M1", "M2"))
    alpha, beta, c = generator("alpha"), generator("beta"), Block("C", 0, 0)

    def of(*factors: Coefficient) -> ScaledSchedule:
        stages = (
            ProductStage((Product(Block("A", 0, p), Block("B", p, 0), (ScaledTarget(c, alpha, kept),)),)) for p, kept in enumerate(factors)
        )
        return ScaledSchedule("row", "row", 1, 2, 1, tuple(stages), result=Result(alpha, beta))

    cases = [of(beta, 1), of(1, beta), of(1, 1), of(0, 1), of(beta, beta), of(beta, 0)]
    words = check([certificate(scheme, [schedule]) for schedule in cases], tmp_path)
    assert words == ["accepted", *["refused: row: C11 does not end as alpha*A*B + beta*C"] * 5]
