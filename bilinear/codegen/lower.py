"""Schedule to launches: one launch a stage, or as many as its mode needs. Stages share kernels where they can.

Before: a schedule with marked first writes. After: launches in order, which compute what the schedule means on row- or column-major,
strided, odd-sized blocks; by atomic additions where several products of a stage are added to one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bilinear.analysis.evaluation_order import evaluate, own_inputs, read_ahead
from bilinear.codegen.modes import linear_groups, product_groups, require_tasks
from bilinear.codegen.names import stem
from bilinear.ir.element import Element
from bilinear.ir.kernel import Argument, Cover, Destination, Grid, LinearKernel, Multiplication, Part, Port, ProductKernel
from bilinear.ir.launch import Kernel, Launch
from bilinear.ir.placement import KERNELS, STAGE
from bilinear.ir.schedule import Block, BlockMap, Product, ProductStage, Schedule, Stage
from bilinear.ir.tile import CUDA_THREAD, TILES, USUAL, WARP_TILES, ProductTile

EXTENTS = {"A": ("bm", "bk"), "B": ("bk", "bn"), "C": ("bm", "bn")}
LINEAR_THREADS = (32, 8)
Place = tuple[int, ...]


@dataclass(frozen=True)
class ProductRow:
    """A product, None to pad the rows of a place; and the blocks to which others of its stage are added, too."""

    product: Product | None
    contended: tuple[Block, ...]


Row = Place | ProductRow  # A row of a kernel's table: a place of a part, or a product.


def schedule_to_launches(schedule: Schedule, element: Element, tile: str = USUAL, named: str = "", mode: str = STAGE) -> tuple[Launch, ...]:
    """The launches of a schedule for an element type, in order; `tile` names the tile of its products.

    In the default mode they are one a stage; in others, `codegen/modes.py` says what they are. All products share one kernel, and so do
    linear stages of equal parts. A kernel has a table of what differs, and a launch runs a range of it. The names of kernels begin with
    `named`, by default with a stem made of the schedule's name and levels. Raises `BilinearError` (E557) if the schedule has no such mode.
    """
    require_tasks(schedule, mode)
    tables: dict[Key, list[Row]] = {}
    ranges: list[tuple[Key, int, int, int]] = []
    for number, stage in enumerate(schedule.stages):
        for key, rows in _rows(schedule, number, stage, mode):
            table = tables.setdefault(key, [])
            ranges.append((key, len(table), len(rows), number))
            table += rows
    begin = named or stem(schedule.name, schedule.levels)
    kernels: dict[Key, Kernel] = {}
    for number, (key, table) in enumerate(((key, table) for key, table in tables.items() if key.parts), 1):
        places = [row for row in table if isinstance(row, tuple)]
        kernels[key] = _linear_kernel(schedule, key, places, f"{begin}_linear{number}_{element.suffix}", element)
    for number, (key, table) in enumerate(((key, table) for key, table in tables.items() if not key.parts), 1):
        own = TILES[element.name][tile] if key.beside == 1 else WARP_TILES[element.name]
        name = f"{begin}_product{number if number > 1 else ''}_{element.suffix}"
        products = [row for row in table if not isinstance(row, tuple)]
        kernels[key] = _product_kernel(schedule, key, products, name, element, own)

    def launch(key: Key, first: int, rows: int, stage: int) -> Launch:
        kernel = kernels[key]
        grid = Grid(_tilings(kernel), rows // kernel.rows)
        return Launch(kernel, first, grid) if mode == STAGE else Launch(kernel, first, grid, stage, mode == KERNELS)

    return tuple(launch(*found) for found in ranges)


class Key(NamedTuple):
    """What launches that share a kernel have in common: parts (none for products), and how a block of threads runs several rows."""

    parts: tuple[Part, ...] = ()
    turns: int = 1
    beside: int = 1


def _rows(schedule: Schedule, number: int, stage: Stage, mode: str) -> Iterator[tuple[Key, Sequence[Row]]]:
    """For each launch of a stage, the kernel's key and the rows of the kernel's table."""
    if isinstance(stage, ProductStage):
        following = schedule.stages[number + 1] if number + 1 < len(schedule.stages) else None
        for products in product_groups(stage, following, mode):
            yield Key((), products.turns, products.beside), [ProductRow(product, stage.contended) for product in products.rows]
        return
    shape_of = {space.name: space.shape for space in schedule.spaces}
    for pieces in linear_groups(stage, mode, lambda piece: _part(piece, _stands(piece), shape_of[piece.targets[0].space])):
        parts, places = _parts(shape_of, pieces.rows)
        yield Key(parts, 1, pieces.beside), places


def _tilings(kernel: Kernel) -> tuple[tuple[Cover, ...], ...]:
    """The tilings of one row of the table along x: a linear kernel may go by rows or columns, and the grid has room for either."""
    if isinstance(kernel, ProductKernel):
        return ((Cover("bm", kernel.tile.m), Cover("bn", kernel.tile.n)),)
    extents = sorted({(part.height, part.width) for part in kernel.parts})
    orders = [order for height, width in extents for order in ((height, width), (width, height))]
    return tuple((Cover(slow, kernel.height), Cover(fast, kernel.threads[0] * kernel.lanes)) for slow, fast in orders)


def _parts(shape_of: dict[str, str], pieces: Sequence[BlockMap | None]) -> tuple[tuple[Part, ...], list[Place]]:
    """The distinct parts of some maps, and for each map its part and the place where it runs; for None, a place where nothing runs."""
    parts: dict[Part, Part] = {}
    places: list[Place] = []
    for piece in pieces:
        if piece is None:
            places.append((-1,))
            continue
        stands = _stands(piece)
        part = _part(piece, stands, shape_of[piece.targets[0].space])
        part = parts.setdefault(part, replace(part, number=len(parts)))
        places.append((part.number, *(value for place in stands.values() for value in place)))
    return tuple(parts.values()), places


def _linear_kernel(schedule: Schedule, key: Key, places: list[Place], name: str, element: Element) -> LinearKernel:
    parts = key.parts
    used = [space.name for space in schedule.spaces if any(space.name in part.spaces for part in parts)]
    extents = [name for name in ("bm", "bk", "bn") if any(name in (p.height, p.width) for p in parts)]
    scalars = ["beta"] if any("beta" in part.kept for part in parts) else []
    longest = max(len(place) for place in places)
    live = max(part.evaluation.live for part in parts)
    value = CUDA_THREAD.bytes_of_a_block * (2 if live <= CUDA_THREAD.few_live else 1)
    while value > element.arithmetic.bytes and live * value > CUDA_THREAD.most_bytes:
        value //= 2
    lanes = value // element.arithmetic.bytes
    most = CUDA_THREAD.bytes_read_ahead // (lanes * element.arithmetic.bytes)
    return LinearKernel(
        name,
        f"{len(parts)} map(s) of {schedule.name} at {schedule.levels} level(s), at {sum(place[0] >= 0 for place in places)} place(s)",
        element,
        _arguments(used, extents, scalars),
        LINEAR_THREADS if key.beside == 1 else (LINEAR_THREADS[0], key.beside),
        lanes,
        tuple(replace(part, evaluation=read_ahead(part.evaluation, most)) for part in parts),
        tuple(place + (0,) * (longest - len(place)) for place in places),
        key.beside,
    )


def _stands(piece: BlockMap) -> dict[str, tuple[int, int]]:
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


def _product_kernel(schedule: Schedule, key: Key, rows: list[ProductRow], name: str, element: Element, tile: ProductTile) -> ProductKernel:
    stage = [row.product for row in rows if row.product is not None]
    lefts = tuple(dict.fromkeys(p.left.space for p in stage))
    rights = tuple(dict.fromkeys(p.right.space for p in stage))
    results = tuple(dict.fromkeys(t.block.space for p in stage for t in p.targets))
    products: list[Multiplication] = []
    destinations: list[Destination] = []
    for row in rows:
        product = row.product
        if product is None:  # the threads multiply the first blocks, and write nothing
            products.append(Multiplication((0, 0, 0), (0, 0, 0), 0, 0))
            continue
        left = (lefts.index(product.left.space), product.left.row, product.left.column)
        right = (rights.index(product.right.space), product.right.row, product.right.column)
        products.append(Multiplication(left, right, len(destinations), len(product.targets)))
        for t in product.targets:
            place, is_contended = (results.index(t.block.space), t.block.row, t.block.column), t.block in row.contended
            destinations.append(Destination(*place, t.coefficient, str(t.kept), is_contended))
    spaces = list(dict.fromkeys((*lefts, *rights, *results)))
    return ProductKernel(
        name,
        f"{len(stage)} product(s) of {schedule.name} at {schedule.levels} level(s), {len(destinations)} destination(s)",
        element,
        _arguments(spaces, ["bm", "bk", "bn"], ["alpha", "beta"]),
        tile,
        lefts,
        rights,
        results,
        tuple(products),
        tuple(destinations),
        key.turns,
        key.beside,
    )
