"""What a certificate says, decided by our own arithmetic: Brent's equations, and its stages run in lock step."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from soak.exact import WRONG, Entry, error_order
from soak.lockstep import ADDS, PRIME, SETS, Grid, IllFormed, Step, generator_image, quotient, simulate

Json = Any
TERM = re.compile(r"([+-]?)((?:\^-|[^+-])+)")


class Untrue(Exception):
    """The certificate says what is not so."""


def rehashed(told: Json) -> dict[str, Any]:
    """A certificate with every hash computed from what it says now."""
    scheme = told["scheme"]
    scheme["sha256"] = _digest([[scheme[x] for x in "mkn"], [scheme[x] for x in "uvw"]])
    for entry in told["schedules"]:
        scaling = entry["claims"]["scaling"]
        tail = {"implied": [], "overwriting": ["overwriting"]}.get(scaling, [entry["claims"]["result"]])
        entry["sha256"] = _digest([[entry[x] for x in "mkn"], entry["workspaces"], [_parts(stage) for stage in entry["stages"]], *tail])
    body = {key: value for key, value in told.items() if key != "sha256"}
    return {**body, "sha256": _digest(body, sort_keys=True)}


def _parts(stage: Json) -> list[Any]:
    if "maps" in stage:
        return ["linear", [[m["sources"], m["targets"], m["matrix"]] for m in stage["maps"]]]
    return ["product", [[p["left"], p["right"], p["targets"]] for p in stage["products"]]]


def _digest(value: Json, sort_keys: bool = False) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=sort_keys, separators=(",", ":")).encode()).hexdigest()


def is_so(told: Json, draw: random.Random) -> None:
    """Raise Untrue where a claim of a certificate does not hold; any other exception where it has no meaning."""
    _require(told == rehashed(json.loads(json.dumps(told))), "hashes")
    scheme = told["scheme"]
    sizes = scheme["m"], scheme["k"], scheme["n"]
    order = error_order(scheme["ring"], sizes, *(_table(scheme[x]) for x in "uvw"))
    _require(order != WRONG and order == scheme["order"], "Brent's equations")
    for entry in told["schedules"]:
        _schedule(entry, scheme, draw)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Untrue(what)


def _table(rows: Json) -> list[list[Entry]]:
    return [[(column, power, value) for column, text in row for power, value in number(text)] for row in rows]


def number(text: str) -> list[tuple[int, Fraction]]:
    """A number as it is written, as powers of its one generator and their factors."""
    return [(sum(exponent for _, exponent in powers), value) for powers, value in terms(text)]


def terms(text: str) -> list[tuple[list[tuple[str, int]], Fraction]]:
    """The terms of a number: powers of generators, and a rational factor."""
    found = []
    for sign, body in TERM.findall(text):
        value, powers = Fraction(-1 if sign == "-" else 1), []
        for factor in body.split("*"):
            if factor[0].isdigit():
                value *= Fraction(factor)
            else:
                name, _, exponent = factor.partition("^")
                powers.append((name, int(exponent or 1)))
        found.append((powers, value))
    return found


def _schedule(entry: Json, scheme: Json, draw: random.Random) -> None:
    """C ends as it is said, A and B come back where that is said, and what is said never to be written is not."""
    if scheme["order"] is not None or scheme["ring"] not in ("Z", "Q", "Q[sqrt(3)]"):
        return
    claims, levels = entry["claims"], entry["levels"]
    _require(isinstance(levels, int) and 1 <= levels <= 20, "levels")
    _require([entry[x] for x in "mkn"] == [scheme[x] ** levels for x in "mkn"], "sizes")
    _require_shapes(entry)
    scaling, alpha, beta = claims["scaling"], draw.randrange(1, PRIME), draw.randrange(1, PRIME)

    def image(text: str) -> int:
        total = 0
        for powers, value in terms(text):
            size = quotient(value.numerator, value.denominator)
            for name, exponent in powers:
                size = size * pow(generator_image(name, alpha, beta), exponent, PRIME) % PRIME
            total += size
        return total % PRIME

    first, last = map(image, claims["result"])
    begins = {"implied": last, "overwriting": None, "written": 1 if last else None}[scaling]
    grid = Grid(entry["m"], entry["k"], entry["n"], first, last, begins)
    try:
        end = simulate(grid, [_steps(stage, scaling, first, image) for stage in entry["stages"]], draw)
    except IllFormed as error:
        raise Untrue(str(error)) from None
    _require(end.right, "C")
    _require(set(claims["restores"]) <= end.kept, "restores")
    written = {block[0] for stage in entry["stages"] for block in _targets(stage) if _is_grid(block)}
    _require(claims["preserves"] == [x for x in "AB" if x not in written], "preserves")
    if claims["recurses_in_place"]:
        _require(not entry["workspaces"] and end.kept == {"A", "B"}, "recursion")
        for products in (stage["products"] for stage in entry["stages"] if "products" in stage):
            operands = [block for p in products for block in (p["left"], p["right"])]
            _require(len(set(operands)) == len(operands), "operands of a stage that recursion writes")
            _require(scaling == "implied" or all([t[2:] for t in p["targets"]] == [["first"]] for p in products), "targets of recursion")


def _require_shapes(entry: Json) -> None:
    """A product is of a block shaped as A's and one shaped as B's; blocks of one map have one shape."""
    shapes = {"A": "A", "B": "B", "C": "C"} | {name: shape for name, shape, _, _ in entry["workspaces"]}

    def shape(block: str) -> str:
        return str(shapes[block.partition("[")[0] if "[" in block else block[:-2]])

    for stage in entry["stages"]:
        for step in stage.get("maps", ()):
            _require(len({shape(block) for block in step["sources"] + step["targets"]}) == 1, "shapes of a map")
        for step in stage.get("products", ()):
            found = shape(step["left"]), shape(step["right"]), *(shape(target[0]) for target in step["targets"])
            _require(found[:2] == ("A", "B") and {*found[2:]} == {"C"}, "shapes of a product")


def _targets(stage: Json) -> list[str]:
    if "maps" in stage:
        return [block for step in stage["maps"] for block in step["targets"]]
    return [target[0] for step in stage["products"] for target in step["targets"]]


def _is_grid(block: str) -> bool:
    return re.fullmatch(r"[ABC](\d\d|\[\d+,\d+\])", block) is not None


def _name(block: str) -> str:
    """The name of a block as the simulator has it: A11 is A[1,1]."""
    return f"{block[0]}[{block[1]},{block[2]}]" if re.fullmatch(r"[ABC]\d\d", block) else block


def _steps(stage: Json, scaling: str, alpha: int, image: Any) -> list[Step]:
    steps = []

    def adds(block: str) -> bool:
        return scaling == "implied" and block[0] == "C" and _is_grid(block)

    def read(blocks: Sequence[str]) -> list[str]:
        _require(not any(adds(block) for block in blocks), "C is read")
        return [_name(block) for block in blocks]

    if "maps" in stage:
        for step in stage["maps"]:
            sources = read(step["sources"])
            for block, row in zip(step["targets"], step["matrix"], strict=True):
                form = tuple((sources[index], image(text)) for index, text in row)
                steps.append(Step(_name(block), ADDS if adds(block) else SETS, form))
        return steps
    for step in stage["products"]:
        left, right = read((step["left"], step["right"]))
        for block, text, *more in step["targets"]:
            coefficient, keeps = image(text), ADDS
            plus: tuple[tuple[str, int], ...] = ()
            if scaling != "written":
                coefficient = coefficient * alpha % PRIME
                keeps = SETS if more == ["first"] else ADDS
                _require(not (adds(block) and more), "a first write of C")
            elif more != [[[block, "1"]]]:
                keeps, plus = SETS, tuple((_name(other), image(c)) for other, c in (more[0] if more else []))
            steps.append(Step(_name(block), keeps, plus, (left, right, coefficient)))
    return steps
