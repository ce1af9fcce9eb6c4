"""A discrete simulation of a plan: every message and every task of every rank, on ports and processors that do one thing at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import prod

from bilinear.distributed.chain import Machine, sums
from bilinear.distributed.rank_plan import RankPlan, ends_result

Message = tuple[int, int, float]  # Source, target, bytes.
COMPUTED = -1  # In an event, in place of a message: a task is done.


def simulate(plan: RankPlan, machine: Machine) -> float:
    """Seconds of one round of depth-first levels, from matrices that are at home until the last rank has its part of C.

    A rank goes through the rounds of messages that `rank.py` posts, one after another: operands of the first two tasks, and after each task
    its result, then the operands of the next task but one. A message moves when both of its ranks have come to its round. It occupies the
    sender's port out and the receiver's port in for its latency and its bytes. Tasks run in their order, each when its operands are there.
    Sums take the bytes that they read and write, evenly.
    """
    return _Simulation(plan, machine).run()


@dataclass
class _Rank:
    """A rank on its way. `missing` are the messages of the round under way that have not ended; None if none is under way."""

    round: int = -1
    missing: int | None = None
    sends: bool = False
    receives: bool = False
    tasks: int = 0
    computes: bool = False


class _Simulation:
    def __init__(self, plan: RankPlan, machine: Machine) -> None:
        self.plan, self.machine = plan, machine
        levels = len(plan.breadth)
        extents = [extent / prod(getattr(level, name) for level in plan.depth) for extent, name in zip(plan.extents, "mkn", strict=True)]
        moved = sums(plan.breadth[0], levels, (extents[0], extents[1], extents[2])) if levels else (0.0, 0.0)
        self.before, self.after = (x * machine.itemsize / machine.memory / plan.ranks for x in moved)
        self.most = max(map(len, plan.tasks))
        self.ranks = [_Rank() for _ in range(plan.ranks)]
        self.counts: list[list[int]] = []  # of each round and rank, its messages
        self.out: list[list[deque[Message]]] = []  # of each round and source, those that have not begun
        self.into: list[list[deque[Message]]] = []  # the same by targets; some have begun
        self.begun: set[tuple[int, int, int]] = set()
        self.events: list[tuple[float, int, int, int]] = []  # when, the source or the rank that computes, the target or COMPUTED, a number
        for messages in self._rounds():
            self._add(messages)

    def run(self) -> float:
        """The seconds."""
        last = self.before
        for rank in range(self.plan.ranks):
            self._go_on(rank, self.before)
        while self.events:
            last, rank, target, _ = heappop(self.events)
            if target == COMPUTED:
                self.ranks[rank].computes = False
                self.ranks[rank].tasks += 1
                self._go_on(rank, last)
            else:
                self._arrive(rank, target, last)
        return last + self.after

    def _rounds(self) -> Iterator[list[Message]]:
        yield self._operands(0)
        for at in range(self.most):
            yield self._operands(at + 1)
            yield self._results(at)

    def _operands(self, at: int) -> list[Message]:
        """Number 0 is round 0, the others are round 2 at - 1."""
        found = []
        for source, target in self._pairs():
            if at < len(self.plan.tasks[target]):
                parts = zip(self.plan.form[:2], self.plan.tasks[target][at].operands, strict=True)
                found.append((source, target, float(sum(form[source].meet(wanted).size for form, wanted in parts))))
        return found

    def _results(self, at: int) -> list[Message]:
        """Round 2 at + 2."""
        found = []
        for source, target in self._pairs():
            if ends_result(self.plan.tasks[source], at):
                found.append((source, target, float(self.plan.form[2][target].meet(self.plan.tasks[source][at].result).size)))
        return found

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Each rank begins with the one after it, so that none is sent to by all."""
        for step in range(1, self.plan.ranks):
            for source in range(self.plan.ranks):
                yield source, (source + step) % self.plan.ranks

    def _add(self, messages: list[Message]) -> None:
        counts, out, into = [0] * self.plan.ranks, [deque[Message]() for _ in self.ranks], [deque[Message]() for _ in self.ranks]
        for source, target, elements in messages:
            if elements:
                message = source, target, elements * self.machine.itemsize
                counts[source] += 1
                counts[target] += 1
                out[source].append(message)
                into[target].append(message)
        self.counts.append(counts)
        self.out.append(out)
        self.into.append(into)

    def _go_on(self, rank: int, now: float) -> None:
        """Begin what the rank can begin: its next round, if the one before has ended, messages of it, and its next task."""
        own = self.ranks[rank]
        while own.missing is None or own.missing == 0:
            own.missing = None
            following = own.round + 1
            needed = following // 2 if following > 1 and following % 2 == 0 else 0  # a result needs its task
            if following == len(self.counts) or own.tasks < min(needed, len(self.plan.tasks[rank])):
                break
            own.round, own.missing = following, self.counts[following][rank]
        self._compute(rank, now)
        if own.missing:
            self._send(rank, now)
            self._receive(rank, now)

    def _compute(self, rank: int, now: float) -> None:
        own = self.ranks[rank]
        done = own.round if own.missing is None else own.round - 1
        if own.computes or own.tasks == len(self.plan.tasks[rank]) or max(0, 2 * own.tasks - 1) > done:
            return
        own.computes = True
        m, k, n = self.plan.tasks[rank][own.tasks].extents
        heappush(self.events, (now + self.machine.multiply(m, k, n), rank, COMPUTED, own.round))

    def _send(self, rank: int, now: float) -> None:
        """Begin the first of the rank's messages of which the target is ready."""
        own, queue = self.ranks[rank], self.out[self.ranks[rank].round][rank]
        for at, (source, target, size) in enumerate(queue if not own.sends else ()):
            if self._is_ready(target, own.round):
                del queue[at]
                self._begin(source, target, size, now)
                return

    def _receive(self, rank: int, now: float) -> None:
        """Let the first source that is ready send to the rank."""
        own, queue = self.ranks[rank], self.into[self.ranks[rank].round][rank]
        for at, message in enumerate(queue if not own.receives else ()):
            source, target, size = message
            if (source, target, own.round) in self.begun:
                continue
            other = self.ranks[source]
            if other.round == own.round and other.missing and not other.sends:
                del queue[at]
                self.out[own.round][source].remove(message)
                self._begin(source, target, size, now)
                return

    def _is_ready(self, rank: int, number: int) -> bool:
        own = self.ranks[rank]
        return own.round == number and bool(own.missing) and not own.receives

    def _begin(self, source: int, target: int, size: float, now: float) -> None:
        latency, each = self.machine.link(source, target)
        self.ranks[source].sends = self.ranks[target].receives = True
        self.begun.add((source, target, self.ranks[source].round))
        heappush(self.events, (now + latency + size * each, source, target, self.ranks[source].round))

    def _arrive(self, source: int, target: int, now: float) -> None:
        self.ranks[source].sends = self.ranks[target].receives = False
        for rank in (source, target):
            missing = self.ranks[rank].missing
            assert missing
            self.ranks[rank].missing = missing - 1
        for rank in (source, target):
            self._go_on(rank, now)
