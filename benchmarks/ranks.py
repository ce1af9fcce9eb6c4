"""Draws docs/images/ranks-*.svg and the table of docs/distributed.md: a model of efficiency on 1 to 10^5 ranks. `--check` only compares.

`--simulate` prints the discrete simulation beside the model, for 7, 49 and 343 ranks (a minute).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import log10

from drawn import ROOT, filled, keep
from picture import FONT, Theme, themed
from simulated_ranks import simulate

from bilinear.distributed import home
from bilinear.distributed.chain import Machine, estimate, machines
from bilinear.distributed.rank_plan import decompose
from bilinear.frontend import load
from bilinear.ir.scheme import Scheme

SCHEME = load("winograd").scheme
SIDES = 65_536, 1_048_576
RANKS = tuple(sorted({round(10 ** (step / 8)) for step in range(41)}))
SHOWN = 1, 8, 64, 512, 4096, 32_768, 100_000
WIDTH, TOP, BOTTOM = 872, 136, 336
LEFT, PANEL, GAP, DEEPER = 60, 350, 72, 276
"""Where the first panel begins, its width, the space between two side by side, and how much lower the second is in a narrow picture."""
KEY = ("plain", "2d: a tile of C a rank, each by the library"), ("fast dashed", "winograd: its products over the ranks, level by level")
HIGHEST = 2.0
PAGE = ROOT / "docs" / "distributed.md"


def holds(machine: Machine, n: int, ranks: int, scheme: Scheme | None = None, levels: int = 0) -> bool:
    """Whether A, B and C, the factors of all products, and the products fit into the memory of the ranks."""
    elements = 3.0 * n * n
    if scheme is not None:
        m, k, b = n / scheme.m**levels, n / scheme.k**levels, n / scheme.n**levels
        elements += scheme.rank**levels * (m * k + k * b + m * b)
    return elements * machine.itemsize / ranks <= machine.holds


def best_levels(machine: Machine, n: int, ranks: int, scheme: Scheme, most: int = 6) -> int | None:
    """The number of levels with the least time among those that memory allows, all breadth first; None if it allows none."""
    allowed = [levels for levels in range(1, most + 1) if holds(machine, n, ranks, scheme, levels)]
    return min(allowed, key=lambda levels: estimate(machine, (n, n, n), ranks, scheme, levels).seconds, default=None)


def efficiency(machine: Machine, n: int, ranks: int, fast: bool) -> tuple[float, int] | None:
    """One rank's time of the library's multiply, if it had the memory, over `ranks` times theirs, and the levels; None without memory."""
    levels = best_levels(machine, n, ranks, SCHEME) if fast else 0
    if levels is None or not holds(machine, n, ranks):
        return None
    alone, shared = estimate(machine, (n, n, n), 1), estimate(machine, (n, n, n), ranks, SCHEME if fast else None, levels)
    return alone.seconds / ranks / shared.seconds, levels


def table(machine: Machine) -> Iterator[str]:
    """Efficiencies as Markdown."""
    yield "| N | decomposition |" + "".join(f" {ranks} |" for ranks in SHOWN)
    yield "|---|---|" + "---|" * len(SHOWN)
    for n in SIDES:
        for name, fast in (("`2d`", False), ("`winograd`, levels", True)):
            found = [efficiency(machine, n, ranks, fast) for ranks in SHOWN]
            cells = ["-" if each is None else f"{each[0]:.2f}" + (f", {each[1]}" if fast else "") for each in found]
            yield f"| {n} | {name} | " + " | ".join(cells) + " |"


def picture(machine: Machine, theme: Theme, is_narrow: bool) -> str:
    """The same as SVG: a panel for each N, a line for each decomposition; one panel below the other if it is narrow."""
    title = "Efficiency by the number of ranks, predicted"
    width, height = (LEFT + PANEL + 30, BOTTOM + DEEPER + 62) if is_narrow else (WIDTH, BOTTOM + 62)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{title}: {machine.text}</title>",
        f"<style>text {{ {FONT}; font-size: 13px; fill: {theme.text} }} .title {{ font-size: 16px; font-weight: 600 }}",
        f".end {{ text-anchor: end }} .middle {{ text-anchor: middle }} .quiet {{ fill: {theme.quiet} }}",
        ".line { fill: none; stroke-width: 2.5 } .dashed { stroke-dasharray: 7 4 }",
        *(f".{kind} {{ stroke: {colour} }}" for kind, colour in (("plain", theme.memory), ("fast", theme.nothing))),
        "</style>",
        f'<rect width="{width}" height="{height}" fill="{theme.page}"/>',
        f'<text class="title" x="14" y="28">{title}</text><text class="quiet" x="14" y="48">{machine.text}</text>',
    ]
    for at, (kind, words) in enumerate(KEY):
        y = 70 + 20 * at
        body.append(f'<path class="line {kind}" d="M14 {y - 4}h26"/><text x="48" y="{y}">{words}</text>')
    for at, n in enumerate(SIDES):
        body += _panel(machine, n, *((LEFT, at * DEEPER) if is_narrow else (LEFT + at * (PANEL + GAP), 0)), theme)
    return "\n".join([*body, "</svg>", ""])


def _panel(machine: Machine, n: int, left: float, lower: float, theme: Theme) -> Iterator[str]:
    def place(ranks: float, value: float) -> tuple[float, float]:
        return left + PANEL * log10(ranks) / 5, lower + BOTTOM - (BOTTOM - TOP) * value / HIGHEST

    yield f'<text x="{left}" y="{lower + TOP - 14}">N = {n}</text>'
    middle = lower + (TOP + BOTTOM) / 2
    yield f'<text class="quiet middle" transform="translate({left - 38} {middle:g}) rotate(-90)">efficiency</text>'
    yield f'<text class="quiet middle" x="{left + PANEL / 2:g}" y="{lower + BOTTOM + 42}">ranks</text>'
    for value in (0, 0.5, 1, 1.5, 2):
        _, y = place(1, value)
        yield f'<path d="M{left} {y:.1f}h{PANEL}" stroke="{theme.line}"/><text class="end" x="{left - 8}" y="{y + 4:.1f}">{value:g}</text>'
    for power in range(6):
        x, _ = place(10**power, 0)
        yield f'<text class="middle" x="{x:.1f}" y="{lower + BOTTOM + 20}">{10**power}</text>'
    for kind, fast in (("plain", False), ("fast dashed", True)):
        found = [(ranks, efficiency(machine, n, ranks, fast)) for ranks in RANKS]
        places = [place(ranks, each[0]) for ranks, each in found if each is not None]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline class="line {kind}" points="{line}"/>'


def simulated(machine: Machine) -> Iterator[str]:
    """The simulation beside the model."""
    for ranks, levels, n in ((7, 1, 57_344), (7, 2, 57_344), (49, 2, 100_352), (343, 3, 351_232)):
        plan = decompose((n, n, n), ranks, home((n, n, n), ranks, "winograd", levels=levels), SCHEME, levels)
        found, model = simulate(plan, machine), estimate(machine, (n, n, n), ranks, SCHEME, levels).seconds
        yield f"{ranks} ranks, {levels} levels, N = {n}: {found:.4f} s simulated, {model:.4f} s by the model, ratio {found / model:.3f}"


def main() -> None:
    machine = machines()["h200"]
    if "--simulate" in sys.argv:
        print(*simulated(machine), sep="\n")
        return
    drawn = {PAGE: filled(PAGE.read_text(encoding="utf-8"), ranks="\n".join(table(machine)))}
    keep(drawn | themed("ranks", lambda theme, is_narrow: picture(machine, theme, is_narrow)))


if __name__ == "__main__":
    main()
