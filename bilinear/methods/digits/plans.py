"""Products of digits: how long they take, and their candidates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import ceil, prod

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import COMPLEX, FLOAT32
from bilinear.ir.tile import BYTE_TILES, DIGIT_TILES, FLOAT_TILES, LOADING_TILES, RESIDUE_TILES, RESIDUES
from bilinear.methods.digits.choice import (
    MOST_TARGETS,
    DigitGeometry,
    Digits,
    block_of,
    complex_scheme_of,
    digits_of,
    digits_timed,
    geometry_of,
    levels_above,
    products_of,
    require_residues,
    residues_for,
    scheme_of,
    triangle_tiles,
)
from bilinear.planner.device import Device, DigitRates, at
from bilinear.planner.plan import Candidate
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import portfolio
from bilinear.planner.ways import kept_by_names

CUTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)  # Numbers of blocks of rows, and of columns, to save workspace.
USUAL_RESIDUES, LONGEST = {"float32": "residues7", "float64": "residues14"}, 2**28
"""The fewest that keep it, for sums of at most so many terms, so that a plan without an accuracy needs no bounds."""
LEAST_SHARE = 0.6  # Levels inside of residues save no more than to this share of their time.
LAUNCHES = 4  # Launches beside the first: two searches for magnitudes, the product, the flag's classical one.


def pair_candidates(problem: Problem, device: Device, budget: int) -> Iterator[Candidate]:
    """Products by pairs of digits for which the device has rates, for a problem of float32.

    Stored ones by the levels of the portfolio, within a budget of bytes where that can be; then those that are cut on load.
    """
    rated = [tile for tile in FLOAT_TILES if device.digit_rates(tile) is not None] if problem.dtype == FLOAT32.name else []
    for tile in rated:
        for levels in levels_above(tile) if tile in DIGIT_TILES else ():
            yield fitted(problem, device, levels, tile, budget)
    for tile in rated:
        if tile in LOADING_TILES:
            yield loaded_candidate(problem, device, (), tile)


def residue_candidates(problem: Problem, device: Device, budget: int, most_ms: float) -> Iterator[Candidate]:
    """The residues with the fewest moduli that keep the problem's accuracy, below each of the portfolio's levels, which all of them hold.

    There are none where even the fewest moduli of the type, alone, would take longer than `most_ms`, and on devices without rates.
    """
    fewest = next((tile.name for tile in RESIDUE_TILES.values() if tile.of.name == problem.dtype), None)
    least = None if fewest is None else digit_ms(problem, device, geometry_for(problem, (), fewest), fewest)
    if least is None or least * LEAST_SHARE > most_ms or (problem.accuracy is None and problem.k > LONGEST):
        return
    try:
        name = USUAL_RESIDUES[problem.dtype] if problem.accuracy is None else residues_for(problem)
    except BilinearError:  # the accuracy is beyond the type
        return
    for levels in portfolio().digits:
        yield fitted(problem, device, levels, name, budget)


@kept_by_names(256)
def same_bits_choice(problem: Problem, device: Device | None, products: str) -> Digits:
    """What multiplies a problem by these `products` so that the bits of C depend on the numbers alone, as fast as the model knows."""
    if device is not None:
        return digits_of(same_bits_candidates(problem, device, products)[0])
    return Digits((), products, by_columns=problem.by_columns, same_bits=True)


def same_bits_candidates(problem: Problem, device: Device, products: str) -> list[Candidate]:
    """These `products` so that their bits depend on the numbers alone, by the portfolio's levels and in blocks, the fastest first.

    Those that exceed the budget come last. On a GPU without rates there is one, without levels.
    """
    budget = problem.budget_in(device.memory * device.memory_share)
    levels = [()] if products in BYTE_TILES or device.digit_rates(digits_timed(products)) is None else portfolio().digits
    found = (fitted(problem, device, own, products, budget) for own in levels)
    alike = [replace(one, choice=replace(digits_of(one), same_bits=True)) for one in found]
    return sorted(alike, key=lambda one: ((one.workspace or 0) > budget, one.ms or 0.0))


def complex_candidates(problem: Problem, device: Device) -> Iterator[Candidate]:
    """The candidates on a device that has rates for them: pairs if an accuracy is requested, and the fewest residues that keep it."""
    part, names = COMPLEX[problem.dtype], list[str]()
    if part is FLOAT32 and problem.accuracy is not None:
        names += DIGIT_TILES
    with suppress(BilinearError):  # no residues keep the accuracy
        names.append(residues_for(problem))
    for name in names:
        for levels in portfolio().digits if device.digit_rates(digits_timed(name)) is not None else ():
            blocks = geometry_for(problem, levels, name).grid
            if name in DIGIT_TILES or 2 * blocks[0] * blocks[2] <= MOST_TARGETS:
                yield candidate_in_blocks(problem, device, levels, name, (1, 1))


def named_candidate(problem: Problem, device: Device, levels: tuple[str, ...], products: str, budget: int) -> Candidate:
    """The product by the digits of this name below these levels, as `Method.named`.

    Raises `BilinearError`: E543 for digits of another type, E567 if K is too large for residues, E781 and E782 for what cuts on load, E787
    for digits that do not stand for a complex type, and the errors of `scheme_of`, `complex_scheme_of` and `require_residues`.
    """
    if problem.dtype in COMPLEX:
        return complex_candidate(problem, device, levels, products)
    if products in LOADING_TILES:
        return loaded_candidate(problem, device, levels, products)
    if products in DIGIT_TILES:
        if problem.dtype != FLOAT32.name:
            raise fail("E543", f"{products} represent {FLOAT32}, not {problem.dtype}", "plan for float32, or take `residues`")
        return fitted(problem, device, levels, products, budget)
    from bilinear.analysis.digit_bounds import room_of
    from bilinear.ir.digits import representation_of

    name = residues_for(problem) if products == RESIDUES else products
    tile = RESIDUE_TILES[name]
    representation = representation_of(tile)
    if representation.numbers != problem.dtype:
        what = f"{name} represent {representation.numbers}, not {problem.dtype}"
        raise fail("E543", what, "take `residues`, which are of the problem's type")
    room_of(representation, problem.k)
    require_residues(scheme_of(levels), tile)
    return fitted(problem, device, levels, name, budget)


def loaded_candidate(problem: Problem, device: Device, levels: tuple[str, ...], tile: str) -> Candidate:
    """The product in this tile, as C^T = B^T A^T if C is column-major; its time is None if the device has no rates for it.

    Raises `BilinearError`: E782 for numbers of another type, E781 for levels above it, whose sums it cannot form.
    """
    if problem.dtype != FLOAT32.name:
        raise fail("E782", f"{tile} are cut from {FLOAT32}, not from {problem.dtype}", "plan for float32, or take `residues`")
    if levels:
        what = f"below {', '.join(levels)} nothing would form the sums of blocks: {tile} are cut from A and B themselves"
        raise fail("E781", what, "take `pairs` below levels, or name no level")
    g, rates, ms = geometry_for(problem, (), tile), device.digit_rates(tile), None
    if rates is not None:
        m, k, n = g.extents
        search = search_seconds(rates, device, (m, n), k, problem.itemsize)
        uneven = sum(not is_even(problem, name) for name in "AB")
        product = product_seconds_of_digits(g, device, rates, (m * k * n) ** (1 / 3), is_even(problem, "C"), uneven)
        ms = (search + product) * 1e3 + (LAUNCHES * rates.launch + device.call + (rates.unaligned if uneven else 0.0)) * 1e-3
    return Candidate(Digits((), tile, by_columns=problem.by_columns), ms, g.places[-1])


def complex_candidate(problem: Problem, device: Device, levels: tuple[str, ...], products: str) -> Candidate:
    """The product by these digits below these levels; its time is None if the device has no rates for such digits.

    Raises `BilinearError`: E787 for products that do not stand for this type, E501 for too many blocks, E567, E591 and E592 as residues of
    real matrices do.
    """
    name = residues_for(problem) if products == RESIDUES else products
    known = products_of(problem.dtype)
    if name not in known:
        what = f"products {products!r} do not multiply {problem.dtype}"
        raise fail("E787", what, f"choose from {', '.join((*known, RESIDUES))}")
    if name in RESIDUE_TILES:
        from bilinear.analysis.digit_bounds import room_of
        from bilinear.ir.digits import representation_of

        tile = RESIDUE_TILES[name]
        room_of(representation_of(tile), 2 * problem.k)
        require_residues(scheme_of(levels) if tile.gaussian else complex_scheme_of(levels), tile)
    else:
        complex_scheme_of(levels)
    return candidate_in_blocks(problem, device, levels, name, (1, 1))


def fitted(problem: Problem, device: Device, levels: tuple[str, ...], products: str, budget: int) -> Candidate:
    """The product of digits, as C^T = B^T A^T if C is column-major.

    If all of C at once exceeds the budget, C is computed in blocks: the fastest ones that fit, or the fewest on a device without rates. If
    no blocks fit, it is of all of C.
    """
    whole = candidate_in_blocks(problem, device, levels, products, (1, 1))
    if (whole.workspace or 0) <= budget:
        return whole
    m, n = problem.lines
    least = device.policy.least_digit_block
    cuts = [(i, j) for i in CUTS for j in CUTS if m >= i * least and n >= j * least]
    if not cuts or geometry_for(problem, levels, products, cuts[-1]).places[-1] > budget:  # the smallest blocks need least
        return whole
    fits = (cut for cut in cuts if geometry_for(problem, levels, products, cut).places[-1] <= budget)
    found = ((candidate_in_blocks(problem, device, levels, products, cut), cut) for cut in fits)
    return min(found, key=lambda one: (one[0].ms or 0.0, prod(one[1])), default=(whole, (1, 1)))[0]


def candidate_in_blocks(
    problem: Problem, device: Device, levels: tuple[str, ...], products: str, cut: tuple[int, int], whole: Problem | None = None
) -> Candidate:
    """The product of digits, perhaps part of a `whole`, with C in so many blocks, as C^T = B^T A^T if it is column-major."""
    g = geometry_for(problem, levels, products, cut)
    ms = digit_ms(problem, device, g, products, cut, whole)
    return Candidate(Digits(levels, products, cut, by_columns=problem.by_columns), ms, g.places[-1])


def geometry_for(problem: Problem, levels: tuple[str, ...], products: str, cut: tuple[int, int] = (1, 1)) -> DigitGeometry:
    """The geometry of a problem's product by these levels, or of a block of it, as C^T = B^T A^T if C is column-major."""
    whole = problem.lines
    m, n = (block_of(extent, parts) for extent, parts in zip(whole, cut, strict=True))
    found = geometry_of(levels, (m, problem.k, n), products, problem.dtype in COMPLEX)
    return replace(found, blocks=(ceil(whole[0] / m), ceil(whole[1] / n)))


def digit_ms(
    problem: Problem, device: Device, g: DigitGeometry, products: str, cut: tuple[int, int] = (1, 1), whole: Problem | None = None
) -> float | None:
    """The milliseconds of a product of digits with this geometry of its blocks.

    None if the device has no rates for it. If the problem is a part of a `whole` one, the size of the whole sets the rate of the products.
    The time is that of the search for the scales, expansion, products, recomposition, and launches. Passes over memory take the time of
    their traffic; scales are found once, digits of a block of rows of A are kept for the blocks of C that have them in common, and those of
    B are made again for every block of rows. A multiprocessor computes one tile of a product after another.
    """
    rates = device.digit_rates(digits_timed(products))
    if rates is None:
        return None
    (m, k, n), bandwidth, itemsize = g.extents, device.bandwidth * 1e9, problem.itemsize
    (down, across), (left, right) = cut, g.digit_bytes
    blocks = down * across
    operands, digits = (down * m * k + blocks * k * n) * itemsize, down * left + blocks * right
    passes = (operands + digits) / at(rates.expansion, g.rank)
    if not g.is_direct:
        results = m * n * itemsize * (2 if problem.accumulate else 1)
        passes += blocks * (g.product_bytes + results) / at(rates.recomposition, g.rank)
    p = whole or problem
    size = (p.m * p.k * p.n) ** (1 / 3)
    search = search_seconds(rates, device, (down * m, across * n), k, itemsize)
    seconds = search + passes / bandwidth + blocks * product_seconds_of_digits(g, device, rates, size, is_even(problem, "C"))
    launches = 3 + down + blocks * (2 if g.is_direct else 3)
    slowed = 0.0 if is_even(problem, "A") and is_even(problem, "B") else rates.unaligned
    return seconds * 1e3 + (launches * rates.launch + device.call + slowed) * 1e-3


def search_seconds(rates: DigitRates, device: Device, lines: Iterable[int], terms: int, itemsize: int) -> float:
    """The seconds in which the scales of operands with so many lines are found: each is read, and no line in less than its terms take."""
    shortest = terms * rates.line * 1e-9
    return sum(max(shortest, count * terms * itemsize / (rates.search * device.bandwidth * 1e9)) for count in lines)


def triangle_candidate(problem: Problem, device: Device, tile: str) -> Candidate | None:
    """A*A^T of float32, m = n: A is cut once, and the tiles of one triangle are computed and written to both; None without rates."""
    rates = device.digit_rates(tile)
    if rates is None or problem.dtype != FLOAT32.name:
        return None
    g, bandwidth = geometry_for(problem, (), tile), device.bandwidth * 1e9
    operand, tiles = problem.m * problem.k * problem.itemsize, triangle_tiles(g.panels[0], g.tile.cluster)
    passes = (operand + g.digit_bytes[0]) / at(rates.expansion, g.rank)
    product = product_seconds_of_digits(g, device, rates, (problem.m**2 * problem.k) ** (1 / 3), is_even(problem, "C"), tiles=tiles)
    search = search_seconds(rates, device, (problem.m,), problem.k, problem.itemsize)
    ms = (search + passes / bandwidth + product) * 1e3 + (5 * rates.launch + device.call) * 1e-3
    return Candidate(Digits((), tile, by_columns=problem.by_columns), ms, g.places[-1])


def product_seconds_of_digits(
    g: DigitGeometry,
    device: Device,
    rates: DigitRates,
    size: float,
    is_even: bool = True,
    loaded_uneven: int = 0,
    tiles: int = 0,
) -> float:
    """The seconds of the products alone, for a multiply of this size: every multiprocessor computes one tile at a time, in waves.

    `is_even` says whether rows of C are multiples of 16 bytes, `loaded_uneven` how many operands that the product itself cuts have other
    rows. `tiles` is their number if not all are computed.
    """
    tile = 2 * g.tile.m * g.tile.n * g.tile.k * g.slices * device.processors / (at(rates.product, size) * 1e12)
    tile *= 1 + rates.loading * loaded_uneven
    write = (rates.direct + (0.0 if is_even else rates.uneven)) * 1e-6 if g.is_direct else 0.0
    return ceil((tiles or g.tiles) / device.processors) * (tile + rates.start * 1e-6 + write) + rates.tail * tile


def is_even(problem: Problem, name: str) -> bool:
    """Whether the rows of A, B or C, as they lie in memory, are multiples of 16 bytes."""
    m, k, n = problem.m, problem.k, problem.n
    by_row, by_column = {"A": (k, m), "B": (n, k), "C": (n, m)}[name]
    return (by_column if name in problem.column_major else by_row) * problem.itemsize % 16 == 0
