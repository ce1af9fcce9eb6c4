"""All ranks of a plan in one process, a step at a time, with messages that are counted."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bilinear.distributed.plan import Plan
from bilinear.distributed.rank import Post, Steps, Ticket, Wait, steps_of
from bilinear.distributed.spread import Spread

Matrix = NDArray[np.generic]
Key = tuple[int, int, int]


class Network:
    """Messages under way, by source, target and tag, and the elements that each pair of ranks exchanges."""

    def __init__(self) -> None:
        self.under_way: dict[Key, deque[Matrix]] = defaultdict(deque)
        self.sent: Counter[tuple[int, int]] = Counter()


class Rank:
    """One rank: its computation, and what it waits for."""

    def __init__(self, number: int, steps: Steps, network: Network) -> None:
        self.number, self.steps, self.network = number, steps, network
        self.awaited: list[list[tuple[Key, Matrix]]] = []
        self.answer: Ticket | None = None
        self.ticket: int | None = None
        self.result: Matrix | None = None

    def advance(self) -> bool:
        """Go on as far as messages allow; False if that is nowhere."""
        if self.result is not None or (self.ticket is not None and not self._arrived(self.ticket)):
            return False
        self.ticket = None
        try:
            asked = next(self.steps) if self.answer is None else self.steps.send(self.answer)
        except StopIteration as done:
            self.result = done.value
            return True
        if isinstance(asked, Wait):
            self.ticket = self.answer = asked.ticket
        else:
            self.answer = self._post(asked)
        return True

    def _post(self, post: Post) -> Ticket:
        for target, tag, array in post.sends:
            assert array.flags.c_contiguous and target != self.number
            self.network.under_way[self.number, target, tag].append(array.copy())
            self.network.sent[self.number, target] += array.size
        self.awaited.append([((source, self.number, tag), array) for source, tag, array in post.receives])
        return Ticket(len(self.awaited) - 1)

    def _arrived(self, ticket: int) -> bool:
        waiting = self.awaited[ticket]
        while waiting:
            key, array = waiting[0]
            if not self.network.under_way[key]:
                return False
            array[...] = self.network.under_way[key].popleft()
            waiting.pop(0)
        return True


def pieces(matrix: Matrix, spread: Spread) -> list[Matrix]:
    """What each rank holds."""
    return [np.ascontiguousarray(matrix[np.ix_(indices(part.rows), indices(part.columns))]) for part in spread]


def indices(runs: Sequence[tuple[int, int]]) -> list[int]:
    return [at for start, stop in runs for at in range(start, stop)]


def run(plan: Plan, a: Matrix, b: Matrix) -> tuple[list[Matrix], Network]:
    """The piece of C of every rank, and the network afterwards."""
    given = zip(pieces(a, plan.given[0]), pieces(b, plan.given[1]), strict=True)
    return run_all([steps_of(plan, at, *own, np.matmul) for at, own in enumerate(given)])


def run_all(all_steps: Sequence[Steps]) -> tuple[list[Matrix], Network]:
    """The result of every rank, and the network afterwards."""
    network = Network()
    ranks = [Rank(at, steps, network) for at, steps in enumerate(all_steps)]
    while any(rank.advance() for rank in ranks):
        pass
    assert all(rank.result is not None for rank in ranks), "the ranks wait for each other"
    assert not any(network.under_way.values()), "messages that nobody receives"
    return [rank.result for rank in ranks if rank.result is not None], network
