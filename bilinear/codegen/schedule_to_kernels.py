"""Schedule to kernels: one kernel a stage.

Before: a schedule of contention-free stages with marked first writes. After: kernels to be launched in this order, which compute what
the schedule means on row- or column-major, strided, odd-sized blocks.
"""

from __future__ import annotations

from dataclasses import replace

from bilinear.analysis.block_maps import components
from bilinear.ir.kernel import (
    ELEMENT_BYTES,
    Argument,
    Cover,
    Destination,
    Grid,
    Kernel,
    LinearKernel,
    Multiplication,
    Part,
    Port,
    ProductKernel,
    Tile,
)
from bilinear.ir.schedule import Block, BlockMap, LinearStage, ProductStage, Schedule

TILES = {
    "float": Tile(m=128, n=128, k=8, m_threads=16, n_threads=16, fragment=4),
    "double": Tile(m=128, n=128, k=8, m_threads=16, n_threads=16, fragment=2),
}
EXTENTS = {"A": ("bm", "bk"), "B": ("bk", "bn"), "C": ("bm", "bn")}
LINEAR_THREADS = (32, 8)
BYTES_IN_REGISTERS = 256
"""What a thread of a linear kernel may hold of its sources before it handles fewer than 16 bytes of each (a quarter of 255 registers)."""


def schedule_to_kernels(schedule: Schedule, element: str) -> tuple[Kernel, ...]:
    """The kernels of a schedule for `element` (`float` or `double`), in launch order, named after schedule, levels and stage."""
    stem = "".join(c if c.isalnum() else "_" for c in schedule.name)
    suffix = {"float": "f32", "double": "f64"}[element]
    kernels: list[Kernel] = []
    for number, stage in enumerate(schedule.stages, 1):
        kind = "linear" if isinstance(stage, LinearStage) else "product"
        name = f"{stem}_l{schedule.levels}_stage{number}_{kind}_{suffix}"
        if isinstance(stage, LinearStage):
            kernels.append(_linear_kernel(schedule, stage, name, element))
        else:
            kernels.append(_product_kernel(schedule, stage, name, element))
    return tuple(kernels)


def _linear_kernel(schedule: Schedule, stage: LinearStage, name: str, element: str) -> LinearKernel:
    shape_of = {space.name: space.shape for space in schedule.spaces}
    numbers: dict[Part, Part] = {}
    places: list[tuple[int, ...]] = []
    for block_map in stage.maps:
        for piece in components(block_map):
            part = _part(piece, shape_of[piece.targets[0].space])
            part = numbers.setdefault(part, replace(part, number=len(numbers)))
            places.append((part.number, *_coordinates(piece)))
    parts = tuple(numbers.values())
    used = [space.name for space in schedule.spaces if any(port.space == space.name for p in parts for port in p.sources + p.targets)]
    extents = [name for name in ("bm", "bk", "bn") if any(name in (p.height, p.width) for p in parts)]
    scalars = ["alpha", "beta"] if any(p.recomposes for p in parts) else []
    lanes = _lanes(element, max(len(p.sources) for p in parts))
    columns, rows = LINEAR_THREADS
    extents_of = sorted({(p.height, p.width) for p in parts})
    orders = [order for height, width in extents_of for order in ((height, width), (width, height))]
    grid = Grid(tuple((Cover(slow, rows), Cover(fast, columns * lanes)) for slow, fast in orders), len(places))
    longest = max(len(place) for place in places)
    return LinearKernel(
        name,
        f"stage of {schedule.name} at {schedule.levels} level(s): {len(places)} independent part(s), {len(parts)} distinct",
        element,
        _arguments(used, extents, scalars),
        grid,
        LINEAR_THREADS,
        lanes,
        parts,
        tuple(place + (0,) * (longest - len(place)) for place in places),
    )


def _lanes(element: str, sources: int) -> int:
    """16 bytes a thread and block where the registers hold that for every source, else fewer."""
    lanes = 16 // ELEMENT_BYTES[element]
    while lanes > 1 and lanes * ELEMENT_BYTES[element] * sources > BYTES_IN_REGISTERS:
        lanes //= 2
    return lanes


def _blocks(piece: BlockMap) -> tuple[Block, ...]:
    return tuple(dict.fromkeys(piece.sources + piece.targets))


def _coordinates(piece: BlockMap) -> tuple[int, ...]:
    return tuple(value for block in _blocks(piece) for value in (block.row, block.column))


def _part(piece: BlockMap, shape: str) -> Part:
    """The part that a piece is one place of, not yet numbered: equal parts differ only in where they run."""
    entry = {block: 1 + 2 * i for i, block in enumerate(_blocks(piece))}
    height, width = EXTENTS[shape]
    return Part(
        0,
        height,
        width,
        tuple(Port(block.space, entry[block]) for block in piece.sources),
        tuple(Port(block.space, entry[block]) for block in piece.targets),
        piece.map,
        any(block.space == "C" for block in piece.targets),
    )


def _arguments(spaces: list[str], extents: list[str], scalars: list[str]) -> tuple[Argument, ...]:
    arguments: list[Argument] = []
    for space in spaces:
        arguments += [Argument("pointer", space), Argument("index", f"{space}_rs"), Argument("index", f"{space}_cs")]
    arguments += [Argument("index", extent) for extent in extents]
    return (*arguments, *(Argument("scalar", scalar) for scalar in scalars))


def _product_kernel(schedule: Schedule, stage: ProductStage, name: str, element: str) -> ProductKernel:
    lefts = tuple(dict.fromkeys(p.left.space for p in stage.products))
    rights = tuple(dict.fromkeys(p.right.space for p in stage.products))
    results = tuple(dict.fromkeys(t.block.space for p in stage.products for t in p.targets))
    products: list[Multiplication] = []
    destinations: list[Destination] = []
    for product in stage.products:
        left = (lefts.index(product.left.space), product.left.row, product.left.column)
        right = (rights.index(product.right.space), product.right.row, product.right.column)
        products.append(Multiplication(left, right, len(destinations), len(product.targets)))
        for t in product.targets:
            destinations.append(Destination(results.index(t.block.space), t.block.row, t.block.column, t.coefficient, t.first))
    tile = TILES[element]
    grid = Grid(((Cover("bm", tile.m), Cover("bn", tile.n)),), len(products))
    spaces = list(dict.fromkeys((*lefts, *rights, *results)))
    return ProductKernel(
        name,
        f"stage of {schedule.name} at {schedule.levels} level(s): {len(products)} product(s), {len(destinations)} destination(s)",
        element,
        _arguments(spaces, ["bm", "bk", "bn"], ["alpha", "beta"]),
        grid,
        tile,
        lefts,
        rights,
        results,
        tuple(space == "C" for space in results),
        tuple(products),
        tuple(destinations),
    )
