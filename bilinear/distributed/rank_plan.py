"""The language of a distributed multiply: who holds what, who multiplies what. Frozen and exact; it knows no arrays and no network."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate, pairwise, product
from math import floor, prod, sqrt

from bilinear.distributed.distributions import Distribution, Rect, Run, Runs, Spread, joined, length, meet, near_even, run
from bilinear.errors import fail
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.placement import LEVELS_ALLOWED, MOST_LEVELS, MOST_PRODUCTS
from bilinear.ir.scheme import Scheme, exponent_of
from bilinear.planner.streamed import QUEUE


def workspace(plan: RankPlan) -> int:
    """The most elements over all ranks."""
    return max(rank_workspace(plan, rank) for rank in range(plan.ranks))


def rank_workspace(plan: RankPlan, rank: int) -> int:
    """The most elements a rank holds while A or B comes home, C is computed, or it leaves; by a queue, if it multiplies anything."""
    if plan.by_queue:
        turned = (replace(plan, by_queue=False, tasks=plan.tasks[at:] + plan.tasks[:at]) for at in range(plan.ranks))
        return max(rank_workspace(each, rank) for each in turned)
    a, b, c = (0 if plan.home[i] == plan.given[i] else plan.home[i][rank].size for i in range(3))
    computing = a + b + c + _depth(plan, rank) + _breadth(plan, rank)
    return max(3 * a, a + 3 * b, computing, 3 * c)  # what travels is packed here and arrives there, beside its place


def _depth(plan: RankPlan, rank: int) -> int:
    """A factor of A, one of B, a product, and what is multiplied by a coefficient, for each depth-first level."""
    a, b, c = (plan.home[i][rank].size for i in range(3))
    total = 0
    for scheme in plan.depth:
        a, b, c = a // (scheme.m * scheme.k), b // (scheme.k * scheme.n), c // (scheme.m * scheme.n)
        total += 2 * a + 2 * b + 2 * c
    return total


def _breadth(plan: RankPlan, rank: int) -> int:
    """All products, and all factors with what tasks hold, or else the sums of products.

    Without levels the factors are A and B themselves, and the product is C.
    """
    a, b, c = (plan.form[i][rank].size for i in range(3))
    if not plan.breadth:
        return (0 if plan.home[2] == plan.given[2] and not plan.depth else c) + _held_tasks(plan, rank)
    factors = adding = 0
    above = 1
    for at, scheme in enumerate(plan.breadth):
        below = plan.breadth[at + 1 :]
        left, right = a * prod(each.m * each.k for each in below), b * prod(each.k * each.n for each in below)
        out = c * prod(each.m * each.n for each in below)
        factors += left * _arrays(scheme.u, above) + right * _arrays(scheme.v, above)
        adding += out * (len(scheme.w.steps) + _has_factors(scheme.w)) + (out * scheme.m * scheme.n * above if at else 0)
        above *= scheme.rank
    return plan.products * c + max(factors + _held_tasks(plan, rank), adding)


def _arrays(linear: LinearMap, count: int) -> int:
    """How many arrays so many evaluations of a map leave, one after another, with named sums that only the last one still holds."""
    single = [form[0][0] for form in linear.outputs if len(form) == 1 and form[0][1] == 1]
    named = len({index for index in single if index >= linear.inputs})
    return count * (named + len(linear.outputs) - len(single)) + len(linear.steps) - named + _has_factors(linear)


def _has_factors(linear: LinearMap) -> bool:
    """Whether a term is multiplied, for which there is an array more."""
    return any(c not in (1, -1) for form in (*linear.steps, *linear.outputs) for _, c in form)


def _held_tasks(plan: RankPlan, rank: int) -> int:
    """Count the elements of two rounds of operands (one is multiplied while the next arrives), and of results that other ranks get."""
    tasks, most = plan.tasks[rank], max(map(len, plan.tasks))
    rounds = [_operands(plan, rank, at) for at in range(most)]
    operands = max(map(sum, pairwise([*rounds, 0])))
    held = plan.form[2][rank]
    results = [group[0].result.size for group in results_of(tasks) if held.meet(group[0].result) != group[0].result]
    returned = 2 * held.size if plan.products > 1 or results else 0  # strips that come back beside their place
    partial = max((group[0].result.size for group in results_of(tasks) if len(group) > 1), default=0)
    under_way = max(map(sum, pairwise([*results, 0])), default=0)  # one is sent while the next is computed; both may be packed
    return operands + 2 * under_way + returned + partial


def _operands(plan: RankPlan, rank: int, at: int) -> int:
    """Count what one round needs beyond a rank's pieces: operands to assemble, parts received elsewhere, parts to pack."""
    total, packed = 0, set[tuple[int, int, Rect]]()
    for target, tasks in enumerate(plan.tasks):
        for side in (0, 1) if at < len(tasks) else ():
            wanted, form, product = tasks[at].operands[side], plan.form[side], tasks[at].product
            mine = form[rank].meet(wanted)
            if target != rank:
                packed.add((side, product, mine))
            elif mine != wanted or plan.consumes:
                total += wanted.size + sum(part.size for x in form if (part := x.meet(wanted)) != mine and not _is_dense(part, wanted))
            elif not _is_one(wanted.inside(form[rank])):
                total += wanted.size
    return total + sum(part.size for side, _, part in packed if not _is_dense(part, plan.form[side][rank]))


def _is_dense(part: Rect, held: Rect) -> bool:
    """Whether a part of what is held has no gaps."""
    local = part.inside(held)
    return _is_one(local) and (part.columns == held.columns or part.shape[0] <= 1)


def _is_one(local: Rect) -> bool:
    return len(local.rows) <= 1 and len(local.columns) <= 1


TileOfC = tuple[Run, Run]  # Rows and columns of a tile.


@lru_cache(maxsize=64)
def tiles(rows: int, columns: int, ranks: int) -> tuple[TileOfC, ...]:
    """A matrix in as many tiles of equal area, so that the operands of a product in these tiles are read least.

    The tiles stand in columns, as in O. Beaumont, V. Boudet, F. Rastello, Y. Robert, *Matrix multiplication on heterogeneous platforms*
    (IEEE Trans. Parallel Distrib. Syst. 12, 2001): with c columns, the ranks are dealt out to them as evenly as possible, and a column is
    as wide as its share of the ranks. A rank reads its rows of A and its columns of B, so c is that of the least sum over all ranks.
    """
    layouts = []
    for count in range(1, ranks + 1):
        shares = near_even(ranks, count)
        widths = pairwise([start * columns // ranks for start, _ in shares] + [columns])
        heights = (near_even(rows, stop - start) for start, stop in shares)
        layouts.append(tuple((height, width) for each, width in zip(heights, widths, strict=True) for height in each))
    return min(layouts, key=lambda found: sum(row[1] - row[0] + column[1] - column[0] for row, column in found))


def is_block(form: Form, linear: LinearMap) -> bool:
    """Whether an output of a map is one of its inputs."""
    return len(form) == 1 and form[0][1] == 1 and form[0][0] < linear.inputs


def _sums(levels: Sequence[Scheme], product: int) -> int:
    """How many factors of a product of these levels are not blocks as they are, at all levels."""
    count = 0
    for scheme in reversed(levels):
        product, own = divmod(product, scheme.rank)
        count += sum(not is_block(linear.outputs[own], linear) for linear in (scheme.u, scheme.v))
    return count


def shared_products(order: Sequence[int], block: Extents, ranks: int) -> tuple[tuple[RankTask, ...], ...]:
    """Products of blocks in this order, shared evenly: whole ones, then those left over, cut so that every rank has the same part.

    If the ranks divide into equal groups, one for each product left over, a group cuts its product in tiles. Else the products lie end to
    end, row by row, and every rank takes an equal piece of that line.
    """
    whole, rest = divmod(len(order), ranks)
    m, k, n = block
    found = [[RankTask(order[at * ranks + rank], (0, m), run(0, k), (0, n)) for at in range(whole)] for rank in range(ranks)]
    left = order[ranks * whole :]
    if rest and ranks % rest == 0:
        group = ranks // rest
        for rank in range(ranks):
            rows, columns = tiles(m, n, group)[rank % group]
            found[rank].append(RankTask(left[rank // group], rows, run(0, k), columns))
    elif rest:
        for rank, at in product(range(ranks), range(rest)):
            edges = (Fraction(rest, ranks) * rank - at, Fraction(rest, ranks) * (rank + 1) - at)
            low, high = (floor(min(max(edge, Fraction(0)), Fraction(1)) * m) for edge in edges)
            found[rank].append(RankTask(left[at], (low, high), run(0, k), (0, n)))
    return tuple(tuple(task for task in tasks if task.result.size) for tasks in found)


ROWS, INNER, COLUMNS = range(3)  # The axes along which a product is cut: a tile's rows, k, its columns.
Cuboid = tuple[Run, Run, Run]  # The whole product of a rank, along each axis.
Held = tuple[Runs, Runs, Runs]  # Along each axis, the panels of which a rank has both operands.
FIRST = 15  # A rank that has nothing begins with a fifteenth of k: four panels, each doubling, are all.


def panel_tasks(
    shares: Sequence[TileOfC], k: int, held: Sequence[Held], panels: int | None = None, whole: bool = False
) -> tuple[tuple[RankTask, ...], ...]:
    """The tasks of each rank, which computes a tile.

    If each rank has the operands of some panels along one axis, all begin with those. Otherwise k is cut, or columns if k is to be
    `whole`. Ranks begin then at places of k that differ along the rows and the columns of their tiles, as in Cannon's algorithm, so that
    none is asked by all at once. The first panel is narrow, for its messages are waited for. Each further one is twice as long as the one
    before, up to the `longest`. `panels` asks for that many equal ones.
    """
    boxes: list[Cuboid] = [(rows, (0, k), columns) for rows, columns in shares]
    own = None
    for axis in (COLUMNS, ROWS) if whole else (COLUMNS, ROWS, INNER):
        own = own or _own(axis, boxes, held)
    axis, begins, first = own or _from_nothing(boxes, whole)
    found = []
    for at, (box, begin) in enumerate(zip(boxes, begins, strict=True)):
        extent = box[axis][1] - box[axis][0]
        if panels is not None:
            widths = [stop - start for start, stop in near_even(extent, max(1, min(panels, extent)))]
        else:
            widths = doubling(extent, first[at], longest(extent, _side(shares)))
        found.append(tuple(_tasks(box, axis, begin, widths)))
    return tuple(found)


def longest(extent: int, side: int) -> int:
    """The longest panel of a tile of this side: a fast scheme gains less on narrow panels, and nothing on longer ones."""
    return max(side, -(-extent // 4))


def doubling(extent: int, width: int, most: int) -> list[int]:
    """Widths of panels that are an extent together: each twice that of the one before, up to `most`; the last one takes what is little."""
    found = []
    while extent > 0:
        size = extent if extent < 1.5 * width else width
        found.append(size)
        extent, width = extent - size, max(width, min(2 * width, most))
    return found


def _own(axis: int, boxes: Sequence[Cuboid], held: Sequence[Held]) -> tuple[int, list[int], list[int]] | None:
    """The axis, where each rank begins on it, and its first width, if every rank has a panel that is not too narrow; along k all alike."""
    runs = [max(each[axis], key=lambda part: part[1] - part[0], default=(0, 0)) for each in held]
    widths = [stop - start for start, stop in runs]
    if any(width * FIRST < box[axis][1] - box[axis][0] for width, box in zip(widths, boxes, strict=True)):
        return None
    return axis, [start for start, _ in runs], [min(widths)] * len(widths) if axis == INNER else [max(1, width) for width in widths]


def _from_nothing(boxes: Sequence[Cuboid], whole: bool) -> tuple[int, list[int], list[int]]:
    """The same where not every rank has something: a quarter of its columns first, or a fifteenth of k."""
    if whole:
        return COLUMNS, [box[COLUMNS][0] for box in boxes], [max(1, (box[COLUMNS][1] - box[COLUMNS][0]) // 4) for box in boxes]
    k = boxes[0][INNER][1]
    down, across = (sorted({box[axis] for box in boxes}) for axis in (ROWS, COLUMNS))
    turns = [Fraction(down.index(box[ROWS]), len(down)) + Fraction(across.index(box[COLUMNS]), len(across)) for box in boxes]
    return INNER, [floor(k * (turn % 1)) for turn in turns], [-(-k // FIRST)] * len(boxes)


def _tasks(box: Cuboid, axis: int, begin: int, widths: Sequence[int]) -> Iterator[RankTask]:
    """Panel after panel from a place on and round to it. What lies in two runs of rows or columns is two tasks."""
    rows, inner, columns = box
    if any(start == stop for start, stop in box):
        return
    for low, high in pairwise((0, *accumulate(widths))):
        runs = _round(box[axis], begin, low, high)
        if axis == INNER:
            yield RankTask(0, rows, runs, columns)
        for each in runs if axis != INNER else ():
            yield RankTask(0, each if axis == ROWS else rows, run(*inner), each if axis == COLUMNS else columns)


def _round(whole: Run, begin: int, low: int, high: int) -> Runs:
    """The indices of a run from `low` to before `high`, counted from a place of it on and round."""
    start, extent = whole[0], length(run(*whole))
    low, high = (begin - start + low) % extent, (begin - start + high - 1) % extent + 1
    return run(start + low, start + high) if low < high else joined(((start, start + high), (start + low, whole[1])))


def _side(shares: Sequence[TileOfC]) -> int:
    rows, columns = (max(tile[axis][1] - tile[axis][0] for tile in shares) for axis in (0, 1))
    return min(rows, columns)


BLOCKS = 8  # Blocks of C of each rank that are shared by a balance.
PANELS = 4  # Panels of the classical multiply if memory is short; each new attempt splits all in four.
MOST_UNEVEN = 1.1  # A rank computes the part of C it holds, unless one exceeds its share by this factor.


def decompose(
    extents: Extents,
    ranks: int,
    given: Sequence[Distribution],
    scheme: Scheme | None = None,
    levels: int | None = None,
    memory: int | None = None,
    itemsize: int = 1,
    whole: bool = False,
    consumes: bool = False,
    balance: str | None = None,
) -> RankPlan:
    """The plan of C = A B over `ranks`; A, B and C are distributed as `given`.

    With a scheme, `levels` of it run breadth first (None: the fewest with a product for each rank). Without, C is computed in a tile a
    rank, the classical way, in panels of k, or of columns if k is to be `whole`. `memory` is the most that a rank may hold beside its
    pieces, in bytes if an element has `itemsize`: as few depth-first levels as keep it stand above the breadth-first ones, as in CAPS (G.
    Ballard, J. Demmel, O. Holtz, B. Lipshitz, O. Schwartz, *Communication-optimal parallel algorithm for Strassen's matrix
    multiplication*, SPAA 2012). A `balance` shares each tile's
    `BLOCKS`. Raises `BilinearError` (E760 to E762).
    """
    require_extents(extents)
    m, k, n = extents
    shapes = (m, k), (k, n), (m, n)
    lie = tuple(distribution.spread(*shape, ranks) for distribution, shape in zip(given, shapes, strict=True))
    spreads = lie[0], lie[1], lie[2]
    breadth = () if scheme is None else (scheme,) * (levels or fewest_levels(scheme, ranks))
    if prod(level.rank for level in breadth) > MOST_PRODUCTS:
        what = f"{len(breadth)} levels of {breadth[0].name} are {breadth[0].rank ** len(breadth)} products"
        raise fail("E760", what, f"take fewer levels: {LEVELS_ALLOWED}")
    least = None
    for effort in range(MOST_LEVELS + 1):
        panels = min(PANELS * 4 ** (effort - 1), max(extents)) if effort else None
        if balance is not None:
            plan = replace(_panels(extents, ranks, spreads, BLOCKS, True), by_queue=balance == QUEUE)
        elif scheme is None:
            plan = _panels(extents, ranks, spreads, panels, whole)
        else:
            plan = _by_scheme(extents, ranks, spreads, (scheme,) * effort, breadth)
        plan = replace(plan, consumes=consumes)
        needed = workspace(plan) * itemsize
        if memory is None or needed <= memory:
            return plan
        least = needed if least is None else min(least, needed)
        if _is_finest(plan, panels):
            break
    raise fail("E762", f"no decomposition needs at most {memory} bytes a rank", f"allow {least}, or take more ranks")


def _is_finest(plan: RankPlan, panels: int | None) -> bool:
    """Whether blocks or panels cannot be cut further: they have one row or column."""
    if not plan.levels:
        return panels is not None and panels >= max(plan.extents)
    last = plan.levels[-1]
    blocks = plan.form[0][0].columns, plan.form[1][0].columns
    return any(length(runs) < 2 * max(last.k, last.n) for runs in blocks)


def _panels(extents: Extents, ranks: int, given: tuple[Spread, Spread, Spread], panels: int | None, whole: bool) -> RankPlan:
    """A tile of C a rank: of some ways to lay the tiles, the one by which the busiest rank sends or receives least."""
    m, k, n = extents
    across = tuple((row, column) for column, row in tiles(n, m, ranks))
    ways = [tiles(m, n, ranks), across, *_as_given(given[2], m * n)]
    plans = [RankPlan(extents, (), (), given, given, given, panel_tasks(way, k, _held(way, given, k), 1, whole)) for way in ways]
    best = min(range(len(ways)), key=lambda at: busiest(traffic(plans[at]), ranks))
    return replace(plans[best], tasks=panel_tasks(ways[best], k, _held(ways[best], given, k), panels, whole))


def _held(shares: Sequence[TileOfC], given: tuple[Spread, Spread, Spread], k: int) -> list[Held]:
    """For each rank the rows, k and columns of A and of B that its tile needs and the rank holds."""
    found = []
    for (rows, columns), left, right in zip(shares, *given[:2], strict=True):
        own = meet(run(*rows), left.rows), meet(left.columns, right.rows), meet(run(*columns), right.columns)
        has = own[0] == run(*rows), own[1] == run(0, k), own[2] == run(*columns)
        found.append((own[0] if has[1] and has[2] else (), own[1] if has[0] and has[2] else (), own[2] if has[0] and has[1] else ()))
    return found


def _as_given(spread: Spread, size: int) -> list[tuple[TileOfC, ...]]:
    """C in the tiles that the ranks hold, if each rank's part is one tile and none is much larger than its share."""
    if not all(len(part.rows) == len(part.columns) == 1 and part.size * len(spread) <= MOST_UNEVEN * size for part in spread):
        return []
    return [tuple((part.rows[0], part.columns[0]) for part in spread)]


def _by_scheme(
    extents: Extents, ranks: int, given: tuple[Spread, Spread, Spread], depth: tuple[Scheme, ...], breadth: tuple[Scheme, ...]
) -> RankPlan:
    """Every rank holds the same rows of every block, so that all sums are computed where the data lies."""
    levels = depth + breadth
    grid = prod(level.m for level in levels), prod(level.k for level in levels), prod(level.n for level in levels)
    m, k, n = (-(-extent // parts) for extent, parts in zip(extents, grid, strict=True))
    home = _strips(m, k, grid[0], grid[1], ranks), _strips(k, n, grid[1], grid[2], ranks), _strips(m, n, grid[0], grid[2], ranks)
    form = _strips(m, k, 1, 1, ranks), _strips(k, n, 1, 1, ranks), _strips(m, n, 1, 1, ranks)
    order = sorted(range(prod(level.rank for level in breadth)), key=partial(_sums, breadth))  # those that wait for no sum first
    tasks = shared_products(order, (m, k, n), ranks)
    return RankPlan(extents, depth, breadth, given, home, form, tasks)


def _strips(rows: int, columns: int, down: int, across: int, ranks: int) -> Spread:
    """A matrix of `down` x `across` blocks of which every rank holds a strip of rows of each."""
    parts = near_even(rows, ranks)
    held = (joined((at * rows + start, at * rows + stop) for at in range(down)) for start, stop in parts)
    return tuple(Rect(runs, run(0, across * columns)) for runs in held)


def fewest_levels(scheme: Scheme, ranks: int) -> int:
    """The fewest levels, at least one, with as many products as ranks."""
    levels = 1
    while scheme.rank > 1 and scheme.rank**levels < ranks:
        levels += 1
    return levels


def require_extents(extents: Extents) -> None:
    """Refuse (E760) what is not a shape of a product."""
    if len(extents) != 3 or not all(isinstance(e, int) and not isinstance(e, bool) and e > 0 for e in extents):
        raise fail("E760", f"the shape {extents!r} is not three positive integers", "give (m, k, n) of A (m x k) and B (k x n)")


Extents = tuple[int, int, int]  # (m, k, n) of a product of m x k by k x n.


@dataclass(frozen=True)
class RankTask:
    """A part of one product of the breadth-first levels: rows of its left factor by columns of its right one, over a range of k."""

    product: int
    rows: Run
    inner: Runs
    columns: Run

    @property
    def operands(self) -> tuple[Rect, Rect]:
        """What is read of the left and of the right factor."""
        return Rect(run(*self.rows), self.inner), Rect(self.inner, run(*self.columns))

    @property
    def result(self) -> Rect:
        """What is computed of the product."""
        return Rect(run(*self.rows), run(*self.columns))

    @property
    def extents(self) -> Extents:
        """(m, k, n) of what is multiplied."""
        (m, k), (_, n) = (x.shape for x in self.operands)
        return m, k, n


@dataclass(frozen=True)
class RankPlan:
    """C = A B of `extents` over ranks.

    The levels `depth` run one product after another, those of `breadth` all of theirs at once; both are listed outermost first. Without
    levels, the tasks are parts of A B itself. `given` says how A and B come and how C is to leave, `home` how they lie while sums are
    computed (of matrices padded with zeros to whole blocks), `form` how a factor or a product of the breadth-first levels lies: each for A,
    B and C. `tasks` are those of each rank, in their order; consecutive ones of one result are added up. If a task `consumes` its operands,
    they are arrays that nothing else reads: what has arrived, or a copy of what the rank holds. `by_queue` a task is
    only where its rank would begin, and `dealt_out` says who multiplies it.
    """

    extents: Extents
    depth: tuple[Scheme, ...]
    breadth: tuple[Scheme, ...]
    given: tuple[Spread, Spread, Spread]
    home: tuple[Spread, Spread, Spread]
    form: tuple[Spread, Spread, Spread]
    tasks: tuple[tuple[RankTask, ...], ...]
    consumes: bool = False
    by_queue: bool = False

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return len(self.tasks)

    @property
    def levels(self) -> tuple[Scheme, ...]:
        """All levels, the outermost first."""
        return self.depth + self.breadth

    @property
    def rounds(self) -> int:
        """How often the tasks run: the products of the depth-first levels."""
        return prod(scheme.rank for scheme in self.depth)

    @property
    def products(self) -> int:
        """The products of the breadth-first levels."""
        return prod(scheme.rank for scheme in self.breadth)

    @property
    def begins_with_blocks(self) -> bool:
        """Whether the operands of each rank's first task are blocks of A and of B, not sums."""
        first = [tasks[0].product for tasks in self.tasks if tasks]
        return bool(self.breadth) and not any(_sums(self.breadth, product) for product in first)

    @property
    def name(self) -> str:
        """The decomposition in words: `2d`, `winograd^2`, `winograd^1 depth first, winograd^1`."""
        if not self.levels:
            return "2d"
        depth = f"{self.depth[0].name}^{len(self.depth)} depth first, " if self.depth else ""
        return f"{depth}{self.breadth[0].name}^{len(self.breadth)}"


def dealt_out(left: Sequence[deque[RankTask]], paces: Sequence[float], most: int) -> tuple[tuple[RankTask, ...], ...]:
    """The next tasks of each rank, `most` together, taken out of those that are `left`. A pace is seconds an element of C.

    One by one goes to the rank that would have it done first: the first that is left of its own, or else the last of whoever has most left.
    """
    found, ends = [list[RankTask]() for _ in left], [0.0] * len(left)
    for _ in range(min(most, sum(map(len, left)))):
        size = max(each[0].result.size for each in left if each)
        rank = min(range(len(left)), key=lambda at: ends[at] + paces[at] * size)
        task = left[rank].popleft() if left[rank] else max(left, key=len).pop()
        ends[rank] += paces[rank] * task.result.size
        found[rank].append(task)
    return tuple(map(tuple, found))


def begins_result(tasks: tuple[RankTask, ...], at: int) -> bool:
    """Whether a task is the first that is added up to its result."""
    return at == 0 or _result(tasks[at - 1]) != _result(tasks[at])


def ends_result(tasks: tuple[RankTask, ...], at: int) -> bool:
    """Whether there is a task number `at`, and it is the last that is added up to its result."""
    return at < len(tasks) and (at + 1 == len(tasks) or begins_result(tasks, at + 1))


def _result(task: RankTask) -> tuple[int, Rect]:
    return task.product, task.result


def results_of(tasks: tuple[RankTask, ...]) -> tuple[tuple[RankTask, ...], ...]:
    """The tasks of a rank, those that are added up to one result together."""
    groups: list[list[RankTask]] = []
    for task in tasks:
        if groups and _result(groups[-1][0]) == _result(task):
            groups[-1].append(task)
        else:
            groups.append([task])
    return tuple(map(tuple, groups))


Pairs = Counter[tuple[int, int]]  # Elements by source and target.


def traffic(plan: RankPlan) -> Pairs:
    """What every rank sends to every other one; what a rank holds already is not sent."""
    found: Pairs = Counter()

    def count(times: int, holders: Iterable[tuple[int, Rect]], readers: Iterable[tuple[int, Rect]]) -> None:
        for (source, held), (target, wanted) in product(holders, readers):
            if source != target and (size := held.meet(wanted).size):
                found[source, target] += times * size

    for source, target in ((plan.given[0], plan.home[0]), (plan.given[1], plan.home[1]), (plan.home[2], plan.given[2])):
        count(1, enumerate(source), enumerate(target))
    for rank, tasks in enumerate(plan.tasks):
        for task in tasks:
            for side, wanted in enumerate(task.operands):
                count(plan.rounds, enumerate(plan.form[side]), [(rank, wanted)])
        for group in results_of(tasks):
            count(plan.rounds, [(rank, group[0].result)], enumerate(plan.form[2]))
    return found


def busiest(pairs: Pairs, ranks: int) -> int:
    """The most that one rank receives or sends."""
    both = (sum(size for pair, size in pairs.items() if pair[end] == rank) for rank in range(ranks) for end in (0, 1))
    return max(both)


def classical_bound(extents: Extents, ranks: int) -> float:
    """What one rank at least sends or receives in any classical multiply, whatever its memory.

    Each element of A, B and C lies on one rank at the beginning or the end, and ranks have equal shares of the arithmetic or of the data.
    H. Al Daas, G. Ballard, L. Grigori, S. Kumar, K. Rouse, *Tight memory-independent parallel matrix multiplication communication lower
    bounds*, SPAA 2022.
    """
    small, middle, large = sorted(extents)
    if ranks * middle <= large:
        read = (large * middle + large * small) / ranks + middle * small
    elif ranks * small**2 <= large * middle:
        read = 2 * sqrt(large * middle * small**2 / ranks) + large * middle / ranks
    else:
        read = 3 * (large * middle * small / ranks) ** (2 / 3)
    return read - (large * middle + large * small + middle * small) / ranks


def recursive_order(plan: RankPlan, ranks: int) -> float:
    """The order of what one rank at least sends or receives by the plan's levels, whatever its memory: n^2 / P^(2 / omega).

    G. Ballard, J. Demmel, O. Holtz, B. Lipshitz, O. Schwartz, *Strong scaling of matrix multiplication algorithms and memory-independent
    communication lower bounds*, SPAA 2012. The constant is not known. n is the cube root of m k n, omega that of all levels together.
    """
    m, k, n = (prod(getattr(level, extent) for level in plan.levels) for extent in "mkn")
    omega = exponent_of(m, k, n, prod(level.rank for level in plan.levels))
    return float(prod(plan.extents) ** (2 / 3) / ranks ** (2 / omega))
