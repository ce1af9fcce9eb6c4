"""Schedule to launches: one launch a stage. Stages share kernels where they can.

Before: a schedule of contention-free stages with marked first writes. After: launches in order, which compute what the schedule means
on row- or column-major, strided, odd-sized blocks.
"""

from __future__ import annotations

from dataclasses import replace

from bilinear.analysis.block_maps import components
from bilinear.analysis.evaluation_order import evaluate, own_inputs, read_ahead
from bilinear.codegen.names import stem
from bilinear.ir.element import Element
from bilinear.ir.kernel import (
    Argument,
    Cover,
    Destination,
    Grid,
    Kernel,
    Launch,
    LinearKernel,
    Multiplication,
    Part,
    Port,
    ProductKernel,
)
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, Schedule
from bilinear.ir.thread import CUDA_THREAD
from bilinear.ir.tile import TILES, USUAL, ProductTile

EXTENTS = {"A": ("bm", "bk"), "B": ("bk", "bn"), "C": ("bm", "bn")}
LINEAR_THREADS = (32, 8)
Place = tuple[int, ...]


def schedule_to_launches(schedule: Schedule, element: Element, tile: str = USUAL, named: str = "") -> tuple[Launch, ...]:
    """The launches of a schedule for an element type, in order, one a stage; `tile` names the tile of its products.

    All products share one kernel, and so do linear stages of equal parts. A kernel has a table of what differs, and a launch runs a range
    of it. The names of kernels begin with `named`, by default with a stem made of the schedule's name and levels.
    """
    linear: dict[tuple[Part, ...], list[Place]] = {}
    products: list[Product] = []
    ranges: list[tuple[tuple[Part, ...] | None, int, int]] = []
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            parts, places = _parts(schedule, stage)
            table = linear.setdefault(parts, [])
            ranges.append((parts, len(table), len(places)))
            table += places
        else:
            ranges.append((None, len(products), len(stage.products)))
            products += stage.products
    begin = named or stem(schedule.name, schedule.levels)
    kernels: dict[tuple[Part, ...] | None, Kernel] = {
        parts: _linear_kernel(schedule, parts, table, f"{begin}_linear{number}_{element.suffix}", element)
        for number, (parts, table) in enumerate(linear.items(), 1)
    }
    if products:
        kernels[None] = _product_kernel(schedule, products, f"{begin}_product_{element.suffix}", element, TILES[element.name][tile])
    return tuple(Launch(kernels[key], first, Grid(_tilings(kernels[key]), count)) for key, first, count in ranges)


def _tilings(kernel: Kernel) -> tuple[tuple[Cover, ...], ...]:
    """The tilings of one row of the table along x, of which the one with most tiles counts: a linear kernel may go by rows or columns."""
    if isinstance(kernel, ProductKernel):
        return ((Cover("bm", kernel.tile.m), Cover("bn", kernel.tile.n)),)
    columns, rows = kernel.threads
    extents = sorted({(part.height, part.width) for part in kernel.parts})
    orders = [order for height, width in extents for order in ((height, width), (width, height))]
    return tuple((Cover(slow, rows), Cover(fast, columns * kernel.lanes)) for slow, fast in orders)


def _parts(schedule: Schedule, stage: LinearStage) -> tuple[tuple[Part, ...], list[Place]]:
    """The distinct parts of a stage, and every place where one of them runs."""
    shape_of = {space.name: space.shape for space in schedule.spaces}
    parts: dict[Part, Part] = {}
    places: list[Place] = []
    for block_map in stage.maps:
        for piece in components(block_map):
            stands = _stands(piece)
            part = _part(piece, stands, shape_of[piece.targets[0].space])
            part = parts.setdefault(part, replace(part, number=len(parts)))
            places.append((part.number, *(value for place in stands.values() for value in place)))
    return tuple(parts.values()), places


def _linear_kernel(schedule: Schedule, parts: tuple[Part, ...], places: list[Place], name: str, element: Element) -> LinearKernel:
    used = [space.name for space in schedule.spaces if any(space.name in part.spaces for part in parts)]
    extents = [name for name in ("bm", "bk", "bn") if any(name in (p.height, p.width) for p in parts)]
    scalars = ["beta"] if any("beta" in part.kept for part in parts) else []
    longest = max(len(place) for place in places)
    lanes = _lanes(element.arithmetic, max(part.evaluation.live for part in parts))
    most = CUDA_THREAD.bytes_read_ahead // (lanes * element.arithmetic.bytes)
    return LinearKernel(
        name,
        f"{len(parts)} map(s) of {schedule.name} at {schedule.levels} level(s), at {len(places)} place(s)",
        element,
        _arguments(used, extents, scalars),
        LINEAR_THREADS,
        lanes,
        tuple(replace(part, evaluation=read_ahead(part.evaluation, most)) for part in parts),
        tuple(place + (0,) * (longest - len(place)) for place in places),
    )


def _lanes(element: Element, live: int) -> int:
    """The number of neighbouring elements of each block that a thread handles if `live` values of a type are live at once."""
    value = CUDA_THREAD.bytes_of_a_block * (2 if live <= CUDA_THREAD.few_live else 1)
    while value > element.bytes and live * value > CUDA_THREAD.most_bytes:
        value //= 2
    return value // element.bytes


def _stands(piece: BlockMap) -> dict[str, tuple[int, int]]:
    """The least grid row and column of a piece's blocks, by space."""
    blocks: dict[str, list[Block]] = {}
    for block in piece.sources + piece.targets:
        blocks.setdefault(block.space, []).append(block)
    return {space: (min(b.row for b in own), min(b.column for b in own)) for space, own in blocks.items()}


def _part(piece: BlockMap, stands: dict[str, tuple[int, int]], shape: str) -> Part:
    """The part that runs at the place of this piece, not yet numbered. Pieces with equal parts differ only in their places."""

    def port(block: Block) -> Port:
        row, column = stands[block.space]
        return Port(block.space, block.row - row, block.column - column)

    height, width = EXTENTS[shape]
    return Part(
        0,
        height,
        width,
        tuple(stands),
        tuple(map(port, piece.sources)),
        tuple(map(port, piece.targets)),
        piece.map.additions,
        evaluate(piece.map, own_inputs(piece)),
        tuple(map(str, piece.kept)),
    )


def _arguments(spaces: list[str], extents: list[str], scalars: list[str]) -> tuple[Argument, ...]:
    arguments: list[Argument] = []
    for space in spaces:
        arguments += [Argument("pointer", space), Argument("index", f"{space}_rs"), Argument("index", f"{space}_cs")]
    arguments += [Argument("index", name) for name in (*extents, "first")]
    return (*arguments, *(Argument("scalar", scalar) for scalar in scalars))


def _product_kernel(schedule: Schedule, stage: list[Product], name: str, element: Element, tile: ProductTile) -> ProductKernel:
    lefts = tuple(dict.fromkeys(p.left.space for p in stage))
    rights = tuple(dict.fromkeys(p.right.space for p in stage))
    results = tuple(dict.fromkeys(t.block.space for p in stage for t in p.targets))
    products: list[Multiplication] = []
    destinations: list[Destination] = []
    for product in stage:
        left = (lefts.index(product.left.space), product.left.row, product.left.column)
        right = (rights.index(product.right.space), product.right.row, product.right.column)
        products.append(Multiplication(left, right, len(destinations), len(product.targets)))
        for t in product.targets:
            destinations.append(Destination(results.index(t.block.space), t.block.row, t.block.column, t.coefficient, str(t.kept)))
    spaces = list(dict.fromkeys((*lefts, *rights, *results)))
    return ProductKernel(
        name,
        f"{len(products)} product(s) of {schedule.name} at {schedule.levels} level(s), {len(destinations)} destination(s)",
        element,
        _arguments(spaces, ["bm", "bk", "bn"], ["alpha", "beta"]),
        tile,
        lefts,
        rights,
        results,
        tuple(products),
        tuple(destinations),
    )
