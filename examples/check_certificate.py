"""Check certificates with the standard library alone: python check_certificate.py FILE...   (written by `bilinear verify --certificate`)

Nothing is believed: the Brent equations are multiplied out, every schedule is run on symbols that do not commute, every hash is
computed anew. Numbers are exact. A polynomial is a dictionary from (word of blocks, powers of generators) to a rational coefficient.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterable
from fractions import Fraction
from functools import cache, reduce
from itertools import product
from pathlib import Path
from typing import Any

Powers = tuple[tuple[str, int], ...]
Polynomial = dict[tuple[tuple[str, ...], Powers], Any]
FACTOR = r"(?:[0-9]{1,999}(?:/[0-9]{1,999})?|(?:sqrt\(-?[0-9]{1,18}\)|[a-z]{1,9})(?:\^-?[0-9]{1,3})?)"
TERM = rf"{FACTOR}(?:\*{FACTOR})*"
LARGEST = 10**6  # a grid with more products of blocks is refused, not looked at
MOST_BLOCKS = 10**5  # of one grid of a schedule
MOST_LEVELS = 20  # no schedule has more


class RefusedError(Exception):
    """The certificate says something that is not so."""


def require(holds: Any, message: str) -> None:
    if not holds:
        raise RefusedError(message)


@cache
def times(a: Powers, b: Powers) -> tuple[Powers, Any]:
    """The product of two monomials: its powers, and the factor that the squares of roots leave (sqrt(d)^2 = d, i^2 = -1)."""
    powers: dict[str, int] = {}
    factor = Fraction(1)
    for name, exponent in a + b:
        powers[name] = powers.get(name, 0) + exponent
    for name, exponent in powers.items():
        if name == "i" or name.startswith("sqrt"):
            twos, powers[name] = divmod(exponent, 2)
            factor *= Fraction(-1 if name == "i" else int(name[5:-1])) ** twos
    return tuple(sorted((name, e) for name, e in powers.items() if e)), factor.numerator if factor.denominator == 1 else factor


class Ring:
    """Z, Q, Z/p, Q[sqrt(d)], Q[i] or Q[lambda], by name, and polynomials over it."""

    def __init__(self, name: str) -> None:
        match = re.fullmatch(r"Z|Q|Z/([1-9][0-9]{0,17})|Q\[(sqrt\(-?[0-9]{1,18}\)|i|lambda)\]", name)
        require(match is not None and match[1] != "1", f"{name!r} is not a ring that this program knows")
        self.name, self.modulus, self.generator = name, int(name[2:]) if name[1:2] == "/" else 0, name[2:-1]
        self.numbers: dict[tuple[str, tuple[str, ...]], Polynomial] = {}

    def reduced(self, c: Any) -> Any:
        """A rational number in the ring: its residue in Z/p, an int where it is one."""
        if self.modulus:
            return c.numerator * pow(c.denominator, -1, self.modulus) % self.modulus  # ValueError where there is no inverse
        require(c.denominator == 1 or self.name != "Z", f"{c} is not in Z")
        return c.numerator if c.denominator == 1 else c

    def number(self, text: str, *scalars: str) -> Polynomial:
        """A coefficient, from its text, as a polynomial without blocks; `scalars` may stand in it beside the ring's own generator."""
        if (text, scalars) not in self.numbers:
            require(re.fullmatch(rf"-?{TERM}(?:[+-]{TERM})*", text), f"{text!r} is not a number")
            terms = (self.term(sign, body, scalars) for sign, body in re.findall(rf"([+-]?)({TERM})", text))
            self.numbers[text, scalars] = self.total(terms)
        return self.numbers[text, scalars]

    def term(self, sign: str, text: str, scalars: tuple[str, ...]) -> Polynomial:
        powers: Powers = ()
        value: Any = Fraction(-1 if sign == "-" else 1)
        for factor in re.findall(FACTOR, text):
            if factor[0].isdigit():
                value *= Fraction(factor)
                continue
            name, _, exponent = factor.partition("^")
            require(name in (self.generator or "none", *scalars), f"{text} is not in {self.name}")
            powers, squares = times(powers, ((name, int(exponent or 1)),))
            value *= squares
        return {((), powers): value}

    def total(self, parts: Iterable[Polynomial]) -> Polynomial:
        """The sum of polynomials, without the terms that cancel."""
        result: Polynomial = {}
        for part in parts:
            for key, c in part.items():
                result[key] = result.get(key, 0) + c
        return {key: value for key, c in result.items() if (value := self.reduced(c))}

    def multiply(self, a: Polynomial, b: Polynomial) -> Polynomial:
        result: Polynomial = {}
        for ((v, x), c), ((w, y), d) in product(a.items(), b.items()):
            powers, factor = times(x, y)
            key = v + w, powers
            result[key] = result.get(key, 0) + c * d * factor
        return {key: value for key, c in result.items() if (value := self.reduced(c))}

    def combine(self, rows: list[Any], values: list[Polynomial]) -> list[Polynomial]:
        """A matrix times a column of values; its rows are sparse: [[index, coefficient], ...]."""
        return [self.total(self.multiply(self.number(text), values[i]) for i, text in sparse(row, len(values))) for row in rows]

    def error_order(self, found: Polynomial, wanted: Polynomial) -> int | None:
        """None where two polynomials agree; 0 where they differ, but in Q[lambda] the least power of lambda in their difference."""
        difference = self.total([found, {key: -c for key, c in wanted.items()}])
        return max(0, min(dict(powers).get("lambda", 0) for _, powers in difference)) if difference else None


def sparse(row: list[Any], width: int) -> list[Any]:
    indices = [index for index, _ in row]
    require(indices == sorted(set(indices)) and all(type(i) is int and 0 <= i < width for i in indices), "a row is not sparse and in order")
    return row


def variables(names: Iterable[str]) -> list[Polynomial]:
    return [{((name,), ()): 1} for name in names]


def digest(value: Any, **options: Any) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":"), **options).encode()).hexdigest()


def grid(space: str, rows: int, columns: int) -> list[str]:
    """The names of a space's blocks, row by row: A11, or A[1,10] beyond nine; a temporary is one block without a grid."""
    if rows == columns == 0:
        return [space]
    places = product(range(1, rows + 1), range(1, columns + 1))
    return [f"{space}{i}{j}" if i < 10 and j < 10 else f"{space}[{i},{j}]" for i, j in places]


def sizes(entry: dict[str, Any]) -> tuple[int, int, int]:
    m, k, n = entry["m"], entry["k"], entry["n"]
    require(all(type(size) is int and size > 0 for size in (m, k, n)) and m * k * n <= LARGEST, f"{m} x {k} x {n} is not a grid")
    return m, k, n


def matrix_product(entry: dict[str, Any]) -> list[Polynomial]:
    """The blocks of A*B by the definition."""
    m, k, n = sizes(entry)
    a, b = grid("A", m, k), grid("B", k, n)
    return [{((a[i * k + p], b[p * n + j]), ()): 1 for p in range(k)} for i in range(m) for j in range(n)]


def check_scheme(entry: dict[str, Any]) -> Ring:
    """Brent's equations: the tables, as a bilinear form over symbols, are the product of two matrices."""
    ring, (m, k, n), rank = Ring(entry["ring"]), sizes(entry), len(entry["products"])
    u, v, w = tables = [entry[name] for name in "uvw"]
    require([len(table) for table in tables] == [rank, rank, m * n], "a table has another size than the format")
    left, right = ring.combine(u, variables(grid("A", m, k))), ring.combine(v, variables(grid("B", k, n)))
    found = ring.combine(w, [ring.multiply(a, b) for a, b in zip(left, right, strict=True)])
    orders = [ring.error_order(a, b) for a, b in zip(found, matrix_product(entry), strict=True)]
    require(0 not in orders, f"{entry['name']} does not multiply matrices: a Brent equation fails")
    order = min((order for order in orders if order is not None), default=None)
    require(entry["order"] == order, f"{entry['name']}: the error is not of the order {entry['order']} in lambda")
    if entry["bases"] is not None:
        inner, outer = [entry["bases"]["a"], entry["bases"]["b"], entry["bases"]["w"]], [entry["bases"][name] for name in "uvc"]
        for whole, first, then, width in zip(tables, inner, outer, (m * k, k * n, rank), strict=True):
            x = variables(map(str, range(width)))
            require(ring.combine(then, ring.combine(first, x)) == ring.combine(whole, x), "the changes of basis give other tables")
    require(entry["sha256"] == digest([[m, k, n], tables]), f"{entry['name']}: the hash is that of other tables")
    error = f" + O(lambda^{order})" if order else ""
    print(f"  scheme {entry['name']} <{m},{k},{n};{rank}> over {ring.name}: {m * k * k * n * m * n} Brent equations hold, C = A*B{error}")
    return ring


def check_map(entry: dict[str, Any]) -> None:
    """Another bilinear map: the tables, as a bilinear form over symbols, are the sums in its rows, up to its order in lambda."""
    ring, widths = Ring(entry["ring"]), [len(entry[name]) for name in ("left", "right")]
    left, right = (ring.combine(entry[name], variables(map(str, range(width)))) for name, width in zip("uv", widths, strict=True))
    found = ring.combine(entry["w"], [ring.multiply(a, b) for a, b in zip(left, right, strict=True)])
    for number, (computed, row) in enumerate(zip(found, entry["rows"], strict=True)):
        value = computed
        wanted = ring.total(ring.multiply(ring.number(text), {((str(i), str(j)), ()): 1}) for i, j, text in row)
        if number in entry["symmetric"]:  # x*y^T and y*x^T are one term
            value, wanted = (ring.total({(tuple(sorted(w)), x): c} for (w, x), c in side.items()) for side in (value, wanted))
        order = ring.error_order(value, wanted)
        require(order is None or 0 < (entry["order"] or 0) <= order, f"{entry['outputs'][number]} is not {entry['computes']}")
    coefficients = widths[0] * widths[1] * len(entry["rows"])
    error = f", up to O(lambda^{entry['order']})" * bool(entry["order"])
    print(f"  {entry['computes']} over {ring.name}: {coefficients} coefficients hold{error}")


class Run:
    """A schedule on symbols; all steps of a stage read the values from before it.

    With written scaling the steps say everything. Else products go into blocks times alpha; they overwrite what is marked `first`, and are
    added to all else. With implied scaling maps too are added to blocks of C, and the first time the block is scaled by beta before.
    """

    def __init__(self, entry: dict[str, Any], ring: Ring) -> None:
        m, k, n = sizes(entry)
        self.ring, self.space, self.shape = ring, {}, {}  # type: Ring, dict[str, str], dict[str, str]
        for name, shape, rows, columns in [["A", "A", m, k], ["B", "B", k, n], ["C", "C", m, n], *entry["workspaces"]]:
            require(name not in self.space.values() and 0 <= rows * columns <= MOST_BLOCKS, f"{name} is not a new grid of blocks")
            for block in grid(name, rows, columns):
                require(block not in self.space, f"{block} is the name of two blocks")
                self.space[block], self.shape[block] = name, shape
        scaling, result = entry["claims"]["scaling"], entry["claims"]["result"]
        known = {"implied": ["alpha", "beta"], "overwriting": ["alpha", "0"], "written": result}
        require(known.get(scaling) == result, f"{scaling} scaling has another result")
        self.adds, self.implied, self.alpha, self.beta = scaling == "implied", scaling != "written", *map(self.number, result)
        self.original = {block: value for block, space in self.space.items() if space in ("A", "B", "C") for value in variables([block])}
        self.state = {block: value for block, value in self.original.items() if self.space[block] != "C" or self.beta}
        self.written: set[str] = set()  # by anything
        self.begun: set[str] = set()  # blocks of C that are added to
        self.taken: set[str] = set()  # by products of one stage
        self.disjoint = self.fit = True  # operands; products for being run by the schedule itself

    def number(self, text: str) -> Polynomial:
        return self.ring.number(text, "alpha", "beta")

    def read(self, block: str) -> Polynomial:
        require(block in self.state and not (self.adds and self.space[block] == "C"), f"{block} is read where nothing may be read")
        return self.state[block]

    def form(self, terms: Iterable[tuple[str, str]]) -> Polynomial:
        """A sum of blocks with coefficients."""
        return self.ring.total(self.ring.multiply(self.number(text), self.read(block)) for block, text in terms)

    def result(self, product: Polynomial, old: Polynomial) -> Polynomial:
        """alpha * product + beta * old."""
        return self.ring.total([self.ring.multiply(self.alpha, product), self.ring.multiply(self.beta, old)])

    def linear(self, maps: list[Any]) -> None:
        new: dict[str, Polynomial] = {}
        for step in maps:
            shapes = {self.shape[block] for block in step["sources"] + step["targets"]}
            require(len(shapes) == 1 or not self.implied, "a map mixes blocks of different shapes")
            for block, row in zip(step["targets"], step["matrix"], strict=True):
                require(block not in new, f"two steps of a stage write {block}")
                new[block] = self.form((step["sources"][index], text) for index, text in sparse(row, len(step["sources"])))
                if self.adds and self.space[block] == "C":
                    new[block] = self.ring.total([new[block], self.kept(block, [])])
        self.state |= new
        self.begun |= set(new)
        self.written |= set(new)

    def products(self, products: list[Any]) -> None:
        operands = [block for step in products for block in (step["left"], step["right"])]
        self.disjoint &= len(set(operands)) == len(operands)
        self.taken = set()
        found = [(step, self.ring.multiply(self.read(step["left"]), self.read(step["right"]))) for step in products]
        forms = [{} if self.implied else self.form(*target[2:] or [[]]) for step in products for target in step["targets"]]
        sums = [(step, value, target) for step, value in found for target in step["targets"]]
        for (step, value, (block, coefficient, *more)), form in zip(sums, forms, strict=True):
            shapes = [self.shape[step["left"]], self.shape[step["right"]], self.shape[block]]
            fits = shapes == ["A", "B", "C"] and self.space[block] not in ("A", "B") and more in ([], ["first"])
            require(fits or not self.implied, f"{block} cannot hold the product of {step['left']} and {step['right']}")
            factors = [self.number(coefficient), value] + [self.alpha] * self.implied
            kept = self.kept(block, more) if self.implied or block in self.taken else form
            self.state[block] = self.ring.total([kept, reduce(self.ring.multiply, factors)])
            self.fit &= self.adds or (len(step["targets"]) == 1 and more == ["first"])
            for blocks in (self.written, self.begun, self.taken):
                blocks.add(block)

    def kept(self, block: str, more: list[Any]) -> Polynomial:
        """What stays in a block into which something goes."""
        if self.adds and self.space[block] == "C":
            require(not more, f"{block} is added to, and marked as overwritten")
            return self.state[block] if block in self.begun else self.ring.multiply(self.beta, self.state[block])
        adds = more == ([] if self.implied else [[[block, "1"]]])
        require(adds or block not in self.taken, f"two steps of a stage write {block}")
        return self.read(block) if adds else {}


def check_schedule(entry: dict[str, Any], scheme: dict[str, Any], ring: Ring) -> None:
    """Run the stages and compare: C (up to the order of the scheme's error), and what is claimed of A and B."""
    name, claims, levels, run, stages = entry["name"], entry["claims"], entry["levels"], Run(entry, ring), []
    require(isinstance(levels, int) and 1 <= levels <= MOST_LEVELS, f"{name} has no number of levels from 1 to {MOST_LEVELS}")
    becomes = f"{claims['result'][0]}*A*B" + f" + {claims['result'][1]}*C" * bool(run.beta)
    require(
        [entry[x] for x in "mkn"] == [scheme[x] ** levels for x in "mkn"],
        f"{name} is not a schedule of {scheme['name']} at {levels} levels",
    )
    for stage in entry["stages"]:
        require(sorted(stage) in (["maps"], ["products"]), f"{name}: a stage is neither linear nor of products")
        if "maps" in stage:
            run.linear(stage["maps"])
            stages.append(["linear", [[step["sources"], step["targets"], step["matrix"]] for step in stage["maps"]]])
        else:
            run.products(stage["products"])
            stages.append(["product", [[step["left"], step["right"], step["targets"]] for step in stage["products"]]])
    for block, wanted in zip(grid("C", entry["m"], entry["n"]), matrix_product(entry), strict=True):
        order = ring.error_order(run.state.get(block, {}), run.result(wanted, run.original[block]))
        require(order is None or 0 < (scheme["order"] or 0) <= order, f"{name}: {block} does not end as {becomes}")
    changed = {run.space[block] for block in run.original if run.state.get(block) != run.original[block]}
    touched = {run.space[block] for block in run.written}
    require(set(claims["restores"]) <= {"A", "B"} - changed, f"{name} does not restore what it claims to")
    require(claims["preserves"] == [x for x in "AB" if x not in touched], f"{name} writes other operands than it claims")
    safe = run.implied and run.fit and run.disjoint and not entry["workspaces"] and not {"A", "B"} & changed
    require(claims["recurses_in_place"] in (False, safe), f"{name} is not safe under recursion in place")
    result = [] if run.adds else ["overwriting"] if run.implied else [claims["result"]]
    require(
        entry["sha256"] == digest([[entry[x] for x in "mkn"], entry["workspaces"], stages, *result]),
        f"{name}: the hash is that of another schedule",
    )
    facts = [
        f"{' and '.join(claims[key])} {word}" for key, word in (("preserves", "never written"), ("restores", "restored")) if claims[key]
    ]
    facts += [f"workspaces {', '.join(space[0] for space in entry['workspaces'])}" if entry["workspaces"] else "nothing beyond A, B, C"]
    facts += ["recurses in place"] * claims["recurses_in_place"] + ["shapes of blocks not looked at"] * (not run.implied)
    print(f"  schedule {name}, {levels} level(s): C = {becomes}; {'; '.join(facts)}")


def check(path: str) -> None:
    body = json.loads(Path(path).read_text(encoding="utf-8"))
    formats = "bilinear-certificate/1", "bilinear-map-certificate/1"
    require(isinstance(body, dict) and body.get("format") in formats, "this is not a certificate of the format 1")
    stated = body.pop("sha256")
    require(stated == digest(body, sort_keys=True), "the hash of the certificate is another: something was changed")
    print(f"{path}:")
    if body["format"] == formats[1]:
        for entry in body["maps"]:
            check_map(entry)
        for entry in body["schemes"]:
            check_scheme(entry)
    else:
        ring = check_scheme(body["scheme"])
        for entry in body["schedules"]:
            check_schedule(entry, body["scheme"], ring)
    print("  accepted: every claim and every hash was checked")


def main(paths: list[str]) -> int:
    refused = 0
    for path in paths:
        try:
            check(path)
        except (RefusedError, OSError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError, AttributeError) as error:
            known = isinstance(error, RefusedError | OSError)
            print(f"{path}: refused: {error if known else f'it is malformed: {type(error).__name__}: {error}'}")
            refused = 1
    return refused


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
