"""Certificates to tamper with: their hashes computed anew, and their schedules run on matrices of integers."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from bilinear.frontend import load
from bilinear.lowering.prepare import natural_inputs, prepare
from bilinear.reporting.certificate import certificate

Certificate = dict[str, Any]
Matrix = list[list[int]]
ALGORITHMS = ("hopcroft_kerr", "laderman", "msmes", "naive2x2", "strassen", "winograd", "winograd_depth_first")
SIZE = 2
"""Blocks of 2 x 2 do not commute."""
PRIME = 2**61 - 1
"""The integers modulo a prime: a wrong schedule passes a trial with a probability below 10^-16 times its degree."""


def certificate_of(name: str, levels: int = 1) -> Certificate:
    """The certificate of a shipped algorithm."""
    loaded = load(name)
    prepared = prepare(loaded.scheme, loaded.schedule, levels, natural_inputs(loaded.schedule))
    return certificate(prepared.scheme, [prepared.authored, prepared.schedule])


def schedule_is_right(entry: dict[str, Any], generator: random.Random) -> bool:
    """The oracle: the schedule run on random matrices modulo a prime, beside the classical product, and its claims of A and B."""
    try:
        return _run_is_right(entry, generator)
    except (KeyError, IndexError):
        return False


def _run_is_right(entry: dict[str, Any], generator: random.Random) -> bool:
    m, k, n = (entry[x] for x in "mkn")
    adds = entry["claims"]["scaling"] == "implied"
    alpha, beta = generator.randrange(PRIME), generator.randrange(PRIME) * adds
    start = {
        f"{space}{i + 1}{j + 1}": _random(generator)
        for space, r, c in (("A", m, k), ("B", k, n), ("C", m, n))
        for i in range(r)
        for j in range(c)
    }
    now = {block: value for block, value in start.items() if adds or block[0] != "C"}
    begun, disjoint, fit = set[str](), True, True

    def kept(block: str) -> list[tuple[int, Matrix]]:
        """Of a block that is added to."""
        return [(beta if adds and block[0] == "C" and block not in begun else 1, now[block])]

    for stage in entry["stages"]:
        before = dict(now)
        if "maps" in stage:
            written: set[str] = set()
            for block_map in stage["maps"]:
                for block, row in zip(block_map["targets"], block_map["matrix"], strict=True):
                    value = _sum([(_number(c), before[block_map["sources"][i]]) for i, c in row])
                    now[block] = _sum([(1, value), *kept(block)]) if adds and block[0] == "C" else value
                    if block in written or (adds and "C" in {s[0] for s in block_map["sources"]}) or not _one_shape(block_map, entry):
                        return False
                    written.add(block)
            begun |= written
            continue
        operands = [block for p in stage["products"] for block in (p["left"], p["right"])]
        disjoint = disjoint and len(set(operands)) == len(operands)
        for p in stage["products"]:
            if adds and "C" in (p["left"][0], p["right"][0]):
                return False
            value = _times(before[p["left"]], before[p["right"]])
            if _shape(p["left"], entry) != "A" or _shape(p["right"], entry) != "B":
                return False
            fit = fit and (adds or [target[2:] for target in p["targets"]] == [["first"]])
            for block, c, *mark in p["targets"]:
                if _shape(block, entry) != "C" or (mark and adds and block[0] == "C"):
                    return False
                now[block] = _sum([*([] if mark else kept(block)), (alpha * _number(c), value)])
                begun.add(block)
    changed = {block[0] for block in start if block[0] in "AB" and now[block] != start[block]}
    claims = entry["claims"]
    if claims["recurses_in_place"] and (not fit or not disjoint or changed or entry["workspaces"]):
        return False
    return not changed & set(claims["restores"]) and all(
        now[f"C{i + 1}{j + 1}"]
        == _sum(
            [*((alpha, _times(start[f"A{i + 1}{p + 1}"], start[f"B{p + 1}{j + 1}"])) for p in range(k)), (beta, start[f"C{i + 1}{j + 1}"])]
        )
        for i in range(m)
        for j in range(n)
    )


def _shape(block: str, entry: dict[str, Any]) -> str:
    shapes = {"A": "A", "B": "B", "C": "C"} | {name: shape for name, shape, _, _ in entry["workspaces"]}
    return str(shapes[block.partition("[")[0] if "[" in block else block[:-2]])


def _one_shape(block_map: dict[str, Any], entry: dict[str, Any]) -> bool:
    return len({_shape(block, entry) for block in block_map["sources"] + block_map["targets"]}) == 1


def _number(text: str) -> int:
    value = Fraction(text)
    return value.numerator * pow(value.denominator, -1, PRIME)


def _random(generator: random.Random) -> Matrix:
    return [[generator.randrange(PRIME) for _ in range(SIZE)] for _ in range(SIZE)]


def _times(a: Matrix, b: Matrix) -> Matrix:
    return [[sum(a[i][p] * b[p][j] for p in range(SIZE)) % PRIME for j in range(SIZE)] for i in range(SIZE)]


def _sum(parts: list[tuple[int, Matrix]]) -> Matrix:
    return [[sum(c * x[i][j] for c, x in parts) % PRIME for j in range(SIZE)] for i in range(SIZE)]
