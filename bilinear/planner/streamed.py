"""A streamed multiply: its blocks, tasks and steps of host matrices on GPUs, and the choice of the blocks by the least predicted time.

All is frozen and exact, and knows no arrays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import ceil

from bilinear.errors import BilinearError, fail
from bilinear.planner.choose import make_plan
from bilinear.planner.device import Device
from bilinear.planner.model import library_seconds
from bilinear.planner.plan import Methods
from bilinear.planner.problem import Problem

Extents = tuple[int, int, int]  # (m, k, n) of a product of m x k by k x n.
Block = tuple[int, int]  # Which block of a matrix: its row and its column among the blocks.
STREAMS = IN, COMPUTE, OUT = "in", "compute", "out"
"""What runs at once on a GPU: copies in, products, copies out. Each does one thing after the other."""


@dataclass(frozen=True)
class StreamTask:
    """One product of blocks: C(i, j) gets A(i, p) B(p, j). It is the `first` or the `last` of its block of C, or between."""

    i: int
    j: int
    p: int
    first: bool
    last: bool

    def block(self, operand: str) -> Block:
        """The block of A, B or C that it uses."""
        return {"A": (self.i, self.p), "B": (self.p, self.j), "C": (self.i, self.j)}[operand]


@dataclass(frozen=True)
class StreamStep:
    """A copy in (`stream` in) or out (out) of the block in a slot of `operand`, or the product of a task, in `slots` of A, B and C.

    It begins when the steps of the numbers `waits`, of other streams, have ended, and the step before it on its own stream.
    """

    stream: str
    task: StreamTask
    operand: str = ""
    slots: tuple[int, ...] = ()
    waits: tuple[int, ...] = ()


@dataclass(frozen=True)
class CopyTraffic:
    """Elements that are copied to a GPU and from it."""

    loaded: int
    stored: int


@dataclass(frozen=True)
class StreamPlan:
    """C = A B of `extents`, in blocks of `block` extents (the last ones are smaller), on a number of GPUs.

    `memory` is the budget of each GPU in bytes, `workspace` what is left of it for one product. With `inputs` consume a product may write
    its blocks of A and B, which are loaded for it alone. `reads` says whether beta is not 0, so that C is loaded, too. `seconds` is the
    predicted time (None: nothing is known of the GPU), by `compute` seconds of products and a bus of `bus` bytes a second each way.
    """

    extents: Extents
    block: Extents
    itemsize: int
    gpus: int
    memory: int
    inputs: str = "preserve"
    reads: bool = False
    bus: float = 0.0
    compute: float | None = None
    seconds: float | None = None

    @property
    def counts(self) -> Extents:
        """The number of blocks along m, k and n."""
        m, k, n = (ceil(whole / part) for whole, part in zip(self.extents, self.block, strict=True))
        return m, k, n

    @property
    def workspace(self) -> int:
        """Bytes of each GPU that the slots leave for one product."""
        return self.memory - self.slot_bytes

    @property
    def slot_bytes(self) -> int:
        """Bytes of all slots of a GPU."""
        return sum(self.slots(operand) * self.most_elements(operand) for operand in "ABC") * self.itemsize

    def most_elements(self, operand: str) -> int:
        """Elements of a slot."""
        height, width = (self.block[axis] for axis in _AXES[operand])
        return height * width

    def slots(self, operand: str) -> int:
        """Two, or one for a matrix of one block that is loaded once."""
        down, right = (self.counts[axis] for axis in _AXES[operand])
        used_once = self.inputs == "preserve" or operand == "C"
        return 1 if down * right == 1 and (used_once or self.counts == (1, 1, 1)) else 2

    def part(self, operand: str, block: Block) -> tuple[slice, slice]:
        """The rows and columns of a matrix that a block is."""
        rows, columns = (
            slice(at * self.block[axis], min((at + 1) * self.block[axis], self.extents[axis]))
            for at, axis in zip(block, _AXES[operand], strict=True)
        )
        return rows, columns

    def shape(self, operand: str, block: Block) -> tuple[int, int]:
        """Rows and columns of a block."""
        rows, columns = self.part(operand, block)
        return rows.stop - rows.start, columns.stop - columns.start

    def elements(self, operand: str, block: Block) -> int:
        """Elements of a block."""
        height, width = self.shape(operand, block)
        return height * width

    def tasks(self, gpu: int) -> Iterator[StreamTask]:
        """The tasks of a GPU, in a snake through i, j and p, so that neighbours share blocks.

        Blocks of C are divided where their areas, in this order, pass equal parts of the whole. The order of p is the block's own,
        whatever GPU computes it.
        """
        rows, inner, columns = self.counts
        whole, before, forward = self.extents[0] * self.extents[2], 0, True
        for i in range(rows):
            for j in range(columns) if i % 2 == 0 else reversed(range(columns)):
                area = self.elements("C", (i, j))
                if (2 * before + area) * self.gpus // (2 * whole) == gpu:
                    order = range(inner) if forward else range(inner - 1, -1, -1)
                    for number, p in enumerate(order):
                        yield StreamTask(i, j, p, number == 0, number == inner - 1)
                forward = not forward
                before += area

    def steps(self, gpu: int) -> tuple[StreamStep, ...]:
        """What a GPU does, in an order in which every step stands after those that it waits for."""
        return tuple(self.steps_of(self.tasks(gpu)))

    def steps_of(self, tasks: Iterable[StreamTask]) -> Iterator[StreamStep]:
        """The steps of tasks on one GPU; a task is only asked for when the steps before it have been taken."""
        return _Sequence(self).of(tasks)

    def traffic(self, gpu: int) -> CopyTraffic:
        """The elements that the steps of a GPU copy, counted from its tasks alone."""
        tasks = list(self.tasks(gpu))
        loaded = sum(self.elements("C", t.block("C")) for t in tasks if t.first and self.reads)
        for operand in "AB":
            loaded += sum(self.elements(operand, block) for block in self._loads(operand, tasks))
        return CopyTraffic(loaded, sum(self.elements("C", t.block("C")) for t in tasks if t.last))

    def _loads(self, operand: str, tasks: list[StreamTask]) -> Iterator[Block]:
        held: list[Block] = []
        for task in tasks:
            block = task.block(operand)
            if self.inputs == "consume" or block not in held:
                yield block
                held = [*held, block][-2:]
            else:
                held = [*(x for x in held if x != block), block]

    @cached_property
    def total(self) -> CopyTraffic:
        """The traffic of all GPUs together."""
        each = [self.traffic(gpu) for gpu in range(self.gpus)]
        return CopyTraffic(sum(t.loaded for t in each), sum(t.stored for t in each))

    def json(self) -> str:
        """The plan and its traffic as JSON."""
        return json.dumps(asdict(self) | {"traffic": [asdict(self.traffic(gpu)) for gpu in range(self.gpus)]}, indent=2)

    def __str__(self) -> str:
        shape, block, counts = (" x ".join(map(str, x)) for x in (self.extents, self.block, self.counts))
        time = "no time is known" if self.seconds is None else f"{self.seconds:.3g} s predicted"
        into, out = (x * self.itemsize / 1e9 for x in (self.total.loaded, self.total.stored))
        return (
            f"m x k x n = {shape} on {self.gpus} GPU(s), in blocks of {block} ({counts}), inputs {self.inputs}: {time}; "
            f"{into:.3g} GB in, {out:.3g} GB out; a GPU has {self.slot_bytes} bytes of slots, {self.workspace} of workspace"
        )


@dataclass
class _Sequence:
    """Puts steps in order, with as few waits as order them: one that follows from others is left out."""

    plan: StreamPlan

    def of(self, tasks: Iterable[StreamTask]) -> Iterator[StreamStep]:
        self.steps: list[StreamStep] = []
        self.known: list[dict[str, int]] = []  # of each step: the last step of each stream that has ended when it ends
        self.latest: dict[str, dict[str, int]] = {stream: {} for stream in STREAMS}
        self.held: dict[str, list[Block | None]] = {x: [None] * self.plan.slots(x) for x in "ABC"}
        self.users: dict[tuple[str, int], int] = {}  # the last step that needs what a slot holds
        self.turn = dict.fromkeys("ABC", 0)
        for task in tasks:
            begun = len(self.steps)
            self._task(task)
            yield from self.steps[begun:]

    def _task(self, task: StreamTask) -> None:
        loaded, slots = [], {}
        for operand in "AB":
            block = task.block(operand)
            if self.plan.inputs == "consume" or block not in self.held[operand]:
                slots[operand] = self._next(operand, block)
                loaded.append(self._load(task, operand, slots[operand]))
            else:
                slots[operand] = self.held[operand].index(block)
                self.turn[operand] = (slots[operand] + 1) % self.plan.slots(operand)
        if task.first:
            slots["C"] = self._next("C", task.block("C"))
            stored = self.users.get(("C", slots["C"]))
            if self.plan.reads:
                loaded.append(self._load(task, "C", slots["C"]))
            elif stored is not None:
                loaded.append(stored)
        else:
            slots["C"] = self.held["C"].index(task.block("C"))
        product = self._add(StreamStep(COMPUTE, task, "", (slots["A"], slots["B"], slots["C"])), loaded)
        self.users.update({("A", slots["A"]): product, ("B", slots["B"]): product})
        if task.last:
            self.users["C", slots["C"]] = self._add(StreamStep(OUT, task, "C", (slots["C"],)), [product])

    def _next(self, operand: str, block: Block) -> int:
        slot = self.turn[operand]
        self.held[operand][slot] = block
        self.turn[operand] = (slot + 1) % self.plan.slots(operand)
        return slot

    def _load(self, task: StreamTask, operand: str, slot: int) -> int:
        user = self.users.get((operand, slot))
        return self._add(StreamStep(IN, task, operand, (slot,)), [] if user is None else [user])

    def _add(self, step: StreamStep, needed: list[int]) -> int:
        known = dict(self.latest[step.stream])
        for number in sorted(needed, reverse=True):
            stream = self.steps[number].stream
            others = (self.known[x] for x in needed if x != number)
            if max(known.get(stream, -1), *(x.get(stream, -1) for x in others), -1) < number:
                step = StreamStep(step.stream, step.task, step.operand, step.slots, (*step.waits, number))
        for number in step.waits:
            for stream, last in self.known[number].items():
                known[stream] = max(known.get(stream, -1), last)
        known[step.stream] = len(self.steps)
        self.latest[step.stream] = known
        self.steps.append(step)
        self.known.append(known)
        return len(self.steps) - 1


_AXES = {"A": (0, 1), "B": (1, 2), "C": (0, 2)}


def even_blocks(extent: int, count: int, multiple: int = 64) -> int:
    """The extent of a block if about `count` equal ones shall cover a side: a multiple of `multiple` where that makes no more of them."""
    exact = ceil(extent / count)
    rounded = ceil(exact / multiple) * multiple
    return rounded if rounded < extent and ceil(extent / rounded) == ceil(extent / exact) else exact


BUS = 25e9  # Bytes a second from and to the host, each way: an estimate, for descriptions have none.
MOST_COUNT = 128  # The most blocks along a side that are weighed.
BALANCES = STATIC, QUEUE = "static", "queue"  # Each GPU or rank has its part of C, or takes over others'.
LEAST_BLOCKS = 4  # Blocks of C for each of several GPUs where possible: with one, none is taken over.
REFINED = 6  # How many of the best by the library's rate the planner predicts itself, more slowly.


def stream_plan(
    methods: Methods,
    problem: Problem,
    gpus: int,
    memory: int,
    device: Device | None = None,
    *,
    reserve: int = 0,
    whole: bool = False,
    consumes: bool = False,
    bus: float = BUS,
) -> StreamPlan:
    """The plan of a product of host matrices on GPUs, each with `memory` bytes.

    The time is the longest of copies in, copies out and products on one GPU, with the first load and the last store. Products take what
    the planner predicts for a block, in place if that is faster though blocks are loaded again; without a description of the device they
    count as nothing, and what is settled already by the library's rate, with workspace `reserve` times as large as its blocks, or with none
    if it `consumes` them. `whole` and an accuracy leave k uncut: neither promise holds for a sum of products. Raises `BilinearError` (E774)
    if no blocks fit.
    """
    extents, whole = (problem.m, problem.k, problem.n), whole or problem.accuracy is not None
    inputs = "consume" if consumes else "preserve"
    uncut = StreamPlan(extents, extents, problem.itemsize, gpus, memory, inputs, problem.accumulate, bus)
    fitting = list(_candidates(uncut, reserve, whole))
    if not fitting:
        hint = "give more memory=, or run on a GPU with more of it free"
        hint += "; without accuracy= and reproducible= k may be cut" if whole else ""
        raise fail("E774", f"no blocks of {' x '.join(map(str, extents))} fit {memory} bytes of a GPU", hint)
    fitting = [plan for plan in fitting if gpus == 1 or plan.counts[0] * plan.counts[2] >= LEAST_BLOCKS * gpus] or fitting
    if device is None:
        return replace(min(fitting, key=lambda plan: _seconds(plan, 0.0)), compute=None, seconds=None)
    by_library = sorted((_timed(plan, _library(plan, problem, device)) for plan in fitting), key=_by_time)
    if reserve or consumes:
        return by_library[0]
    refined = []
    for plan in by_library[:REFINED]:
        for inputs in ("preserve", "consume"):
            tried = replace(plan, inputs=inputs)
            if tried.workspace >= 0:
                refined.append(_timed(tried, _planned(methods, tried, problem, device)))
    return min(refined, key=_by_time)


def _candidates(uncut: StreamPlan, reserve: int, whole: bool) -> Iterator[StreamPlan]:
    """For every number of blocks along m and k, the fewest along n that fit, and the next three: more blocks hide more of a copy."""
    m, k, n = uncut.extents
    seen: set[Extents] = set()
    for inner in (1,) if whole else _counts(k):
        for rows in _counts(m):
            fitting = 0
            for columns in _counts(n):
                block = even_blocks(m, rows), even_blocks(k, inner), even_blocks(n, columns)
                plan = replace(uncut, block=block)
                kept = reserve * sum(map(plan.most_elements, "ABC")) * plan.itemsize
                if plan.workspace < kept or plan.counts[0] * plan.counts[2] < plan.gpus:
                    continue
                fitting += 1
                if block not in seen:
                    seen.add(block)
                    yield plan
                if fitting == 4:
                    break
        if seen and inner >= 2:  # to cut k further loads and accumulates more
            return


def _counts(extent: int) -> Iterator[int]:
    count = 1
    while count <= min(extent, MOST_COUNT):
        yield count
        count = count + 1 if count < 4 else count * 3 // 2


def _library(plan: StreamPlan, problem: Problem, device: Device) -> float:
    real = {"complex64": "float32", "complex128": "float64"}.get(problem.dtype)
    return library_seconds(plan.block, real or problem.dtype, device) * (4 if real else 1)


def _planned(methods: Methods, plan: StreamPlan, problem: Problem, device: Device) -> float:
    """Seconds of a block by the planner; by the library's rate where it plans nothing."""
    m, k, n = plan.block
    accumulates = plan.reads or plan.counts[1] > 1
    one = replace(problem, m=m, k=k, n=n, inputs=plan.inputs, workspace=plan.workspace, accumulate=accumulates)
    try:
        ms = None if problem.dtype.startswith("complex") else make_plan(methods, one, device).chosen.ms
    except BilinearError:
        if problem.accuracy is not None:
            raise
        ms = None
    return _library(plan, problem, device) if ms is None else ms * 1e-3


def _timed(plan: StreamPlan, block_seconds: float) -> StreamPlan:
    m, k, n = plan.extents
    bm, bk, bn = plan.block
    compute = block_seconds * (m / bm) * (k / bk) * (n / bn) / plan.gpus
    return replace(plan, compute=compute, seconds=_seconds(plan, compute))


def _seconds(plan: StreamPlan, compute: float) -> float:
    each = [plan.traffic(gpu) for gpu in range(plan.gpus)]
    loads, stores = max(t.loaded for t in each), max(t.stored for t in each)
    ends = sum(map(plan.most_elements, "ABCC" if plan.reads else "ABC"))
    return max(loads * plan.itemsize / plan.bus, stores * plan.itemsize / plan.bus, compute) + ends * plan.itemsize / plan.bus


def _by_time(plan: StreamPlan) -> tuple[float, Extents]:
    return plan.seconds or 0.0, plan.block
