"""Texts in the language to be mutated, and texts drawn from its grammar."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

from soak.mangle import CONTROLS, piece

from bilinear.frontend.algorithms import shipped

ROOT = Path(__file__).parents[2]
MOST_CHARACTERS = 6_000
"""Of the texts that are mutated: what large schemes answer takes long, and is no other answer."""


@cache
def known_texts() -> tuple[str, ...]:
    """The shipped files, the published misprints and the examples of the manual."""
    files = [*shipped().values(), *sorted((ROOT / "examples" / "errata").glob("*.bl"))]
    texts = [path.read_text(encoding="utf-8") for path in files]
    texts += re.findall(r"```bl\n(.*?)```", (ROOT / "docs" / "language.md").read_text(encoding="utf-8"), re.DOTALL)
    return tuple(text for text in texts if len(text) < MOST_CHARACTERS)


def grown_text(draw: random.Random) -> str:
    """A file from the grammar: schemes that mean something and schemes that do not."""
    return "\n".join(
        draw.choice((_classical, _classical, _table, _equations, _composed, _schedule))(draw) for _ in range(draw.randint(1, 2))
    )


def _name(draw: random.Random) -> str:
    return draw.choice(("s", "t", "strassen", "x-y", "M1", "A11", "classical", "alpha", "rotate", "scheme", piece(draw)))


def _number(draw: random.Random) -> str:
    return draw.choice(("0", "0", "1", "-1", "1", "2", "1/2", "-3/4", "lambda", "sqrt(3)", "1-lambda^-1", "i", piece(draw)))


def _ring(draw: random.Random) -> str:
    return draw.choice(
        ("", "", "", " over Q", " over Z", " over Z/2", " over Z/7", " over Q[lambda]", " over Q[sqrt(3)]", " over Q[i]", " over Z/9")
    )


def _head(draw: random.Random, m: int, k: int, n: int, r: int) -> str:
    source = f'\n  source "{draw.choice(("a", piece(draw), draw.choice(CONTROLS), "x" * 90))}"' if draw.random() < 0.2 else ""
    return f"scheme {_name(draw)} <{m},{k},{n};{r}>{_ring(draw)}{source}\n"


def _sizes(draw: random.Random) -> tuple[int, int, int]:
    return draw.randint(1, 3), draw.randint(1, 2), draw.randint(1, 3)


def _classical(draw: random.Random) -> str:
    """The classical scheme, its products scaled and in another order: right, unless a number is not of the ring."""
    m, k, n = _sizes(draw)
    rows = []
    for i in range(m):
        for j in range(n):
            for p in range(k):
                x, y, z = draw.choice((("1", "1", "1"), ("-1", "1", "-1"), ("2", "1/2", "1"), ("-1", "-1", "1"), ("1/3", "3", "1")))
                parts = (("A", i * k + p, m * k, x), ("B", p * n + j, k * n, y), ("C", i * n + j, m * n, z))
                rows.append(" | ".join(" ".join(c if q == at else "0" for q in range(size)) for _, at, size, c in parts))
    draw.shuffle(rows)
    return _head(draw, m, k, n, m * k * n) + "".join(f"  M{number}: {row}\n" for number, row in enumerate(rows, 1))


def _table(draw: random.Random) -> str:
    m, k, n = _sizes(draw)
    rank = draw.randint(1, 4)
    rows = (" | ".join(" ".join(_number(draw) for _ in range(size)) for size in (m * k, k * n, m * n)) for _ in range(rank))
    return _head(draw, m, k, n, rank) + "".join(f"  M{number}: {row}\n" for number, row in enumerate(rows, 1))


def _equations(draw: random.Random) -> str:
    m, k, n = _sizes(draw)
    lines = []
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            terms = [f"A{i}{p} * B{p}{j}" for p in range(1, k + 1)]
            if draw.random() < 0.1:
                terms.append(f"{draw.choice(('', '2 ', '[lambda] ', '1/2*'))}(A11 {draw.choice('+-')} A{i}1) * B1{j}")
            lines.append(f"C{i}{j} = " + " + ".join(terms))
    if draw.random() < 0.2:
        lines.insert(0, draw.choice(("S = A11 + A11", "S = S", "T = B11 * A11", "M1 = A11 * B11", f"S = {piece(draw)} A11")))
    return _head(draw, m, k, n, m * k * n) + draw.choice(("\n", " ; ")).join(lines) + "\n"


def _composed(draw: random.Random) -> str:
    def operand(depth: int) -> str:
        small = draw.choice(("strassen", "winograd", "<1,2,1>", "<2,1,1>", "classical", "split_k", '"x.bl"', '"x.bl:s"', "nothing", "bini"))
        if depth > 2 or draw.random() < 0.5:
            return small
        return draw.choice((f"rotate({operand(depth + 1)})", f"transpose({operand(depth + 1)})", f"({operand(depth + 1)} (+n) {small})"))

    operator = draw.choice(("(x)", "(+m)", "(+k)", "(+n)"))
    return f"scheme {_name(draw)}{_ring(draw)} = {operand(0)} {operator} {operand(0)}\n"


def _schedule(draw: random.Random) -> str:
    """A schedule of strassen, rarely a right one."""
    claims = draw.choice(("", ": in-place", ": in-place, restores A B", ": C = A*B", ": C = alpha*A*B + beta*C, temporaries X Y"))
    blocks = ("A11", "A12", "A21", "A22", "B11", "B12", "B21", "B22", "C11", "C12", "C21", "C22", "X", "Y", "A[1,1]")

    def step() -> str:
        sign = draw.choice(("=", "+=", "-="))
        right = draw.choice(("{} * {}", "{} + {}", "[alpha] {} * {}", "{} - 1/2 {}", "[beta] {} + {}")).format(
            draw.choice(blocks), draw.choice(blocks)
        )
        return f"{draw.choice(blocks)} {sign} {right}"

    stages = (
        "  " + draw.choice(("stage", "stage", "restore stage")) + " { " + " ; ".join(step() for _ in range(draw.randint(1, 3))) + " }\n"
        for _ in range(draw.randint(1, 4))
    )
    return f"schedule {_name(draw)} of {draw.choice(('strassen', 'winograd', 's', 'classical'))}{claims}\n" + "".join(stages)
