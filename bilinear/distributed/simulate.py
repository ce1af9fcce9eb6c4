"""A discrete simulation of a plan: every message and every task of every rank, on ports and processors that do one thing at a time."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import prod

from bilinear.distributed.model import Machine, sums
from bilinear.distributed.plan import Plan, results_of
from bilinear.distributed.spread import Rect

SUM = -1
"""In place of a task's number: a message for the sums of C."""
AT_ONCE = 64
"""Messages of a rank that are under way together: the one whose receiver is free first goes first."""
Message = tuple[int, float, int]
"""Target, bytes, and the number of the target's task that needs it."""


def simulate(plan: Plan, machine: Machine) -> float:
    """Seconds of one round of a plan whose matrices are at home: until the last rank has its part of C.

    A rank sends its messages about in the order in which `rank.py` posts them, one at a time. A message occupies the sender's port and the
    receiver's for its latency and its bytes. Tasks run in their order, each when its operands have arrived; results are sent behind what is
    still to be sent. Sums take the bytes that they read and write, evenly.
    """
    return _Simulation(plan, machine).run()


class _Simulation:
    def __init__(self, plan: Plan, machine: Machine) -> None:
        self.plan, self.machine = plan, machine
        levels = len(plan.breadth)
        extents = [extent / prod(getattr(level, name) for level in plan.depth) for extent, name in zip(plan.extents, "mkn", strict=True)]
        moved = sums(plan.breadth[0], levels, (extents[0], extents[1], extents[2])) if levels else (0.0, 0.0)
        self.before, self.after = (x * machine.itemsize / machine.memory / plan.ranks for x in moved)
        self.events: list[tuple[float, int, int]] = []  # when, the rank, and its task that is done, or SUM when its port is free
        self.queues: list[deque[Message]] = [deque() for _ in plan.tasks]
        self.sending = [False] * plan.ranks
        self.free = [0.0] * plan.ranks  # when a rank can receive again
        self.missing = [[0] * len(tasks) for tasks in plan.tasks]
        self.arrived = [[self.before] * len(tasks) for tasks in plan.tasks]
        self.turn = [0] * plan.ranks
        self.busy = [False] * plan.ranks
        self.last = self.before

    def run(self) -> float:
        """The seconds."""
        for rank in range(self.plan.ranks):
            self._queue_operands(rank)
        for rank in range(self.plan.ranks):
            self._send(rank, self.before)
            self._compute(rank, self.before)
        while self.events:
            now, rank, done = heappop(self.events)
            if done == SUM:
                self.sending[rank] = False
            else:
                self._hand_out(rank, done)
                self.busy[rank] = False
                self._compute(rank, now)
            self._send(rank, now)
        return self.last + self.after

    def _queue_operands(self, rank: int) -> None:
        for target, at in _sending_order(self.plan, rank):
            for side in (0, 1):
                part = self.plan.form[side][rank].meet(self.plan.tasks[target][at].operands[side])
                if self._queue(rank, target, part, at):
                    self.missing[target][at] += 1

    def _queue(self, rank: int, target: int, part: Rect, task: int) -> bool:
        if part.size:
            self.queues[rank].append((target, float(part.size * self.machine.itemsize), task))
        return bool(part.size)

    def _send(self, rank: int, now: float) -> None:
        if self.sending[rank] or not self.queues[rank]:
            return
        target, size, task = self._choose(self.queues[rank], now)
        latency, each = self.machine.link(rank, target)
        end = max(now, self.free[target]) + latency + size * each
        self.free[target], self.sending[rank] = end, True
        heappush(self.events, (end, rank, SUM))
        if task == SUM:
            self.last = max(self.last, end)
            return
        self.missing[target][task] -= 1
        self.arrived[target][task] = max(self.arrived[target][task], end)
        self._compute(target, now)

    def _choose(self, queue: deque[Message], now: float) -> Message:
        """Take the first message whose receiver is free, or is the first to be."""
        best = 0
        for at in range(min(len(queue), AT_ONCE)):
            if self.free[queue[at][0]] < self.free[queue[best][0]]:
                best = at
            if self.free[queue[best][0]] <= now:
                break
        chosen = queue[best]
        del queue[best]
        return chosen

    def _compute(self, rank: int, now: float) -> None:
        """Begin the rank's next task if its operands are on the way for certain: it starts when the last of them is there."""
        at = self.turn[rank]
        if self.busy[rank] or at == len(self.plan.tasks[rank]) or self.missing[rank][at]:
            return
        m, k, n = self.plan.tasks[rank][at].extents
        end = max(now, self.arrived[rank][at]) + 2 * m * k * n / self.machine.products
        self.turn[rank], self.busy[rank] = at + 1, True
        self.last = max(self.last, end)
        heappush(self.events, (end, rank, at))

    def _hand_out(self, rank: int, done: int) -> None:
        task = self.plan.tasks[rank][done]
        if any(group[-1] == task for group in results_of(self.plan.tasks[rank])):
            for step in range(1, self.plan.ranks):
                target = (rank + step) % self.plan.ranks
                self._queue(rank, target, self.plan.form[2][target].meet(task.result), SUM)


def _sending_order(plan: Plan, rank: int) -> tuple[tuple[int, int], ...]:
    """In which order a rank sends operands: (target, number of its task) each, all first tasks first, each rank from another target on."""
    most = max(map(len, plan.tasks))
    targets = [(rank + step) % plan.ranks for step in range(1, plan.ranks)]
    return tuple((target, at) for at in range(most) for target in targets if at < len(plan.tasks[target]))
