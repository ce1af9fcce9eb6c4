"""All ranks of a plan in one process, a step at a time, with messages that are counted."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bilinear.distributed.distributions import Spread
from bilinear.distributed.rank import Post, Steps, Ticket, Wait, steps_of
from bilinear.distributed.rank_plan import RankPlan

Matrix = NDArray[np.generic]
Message = tuple[int, int, Matrix]  # The other rank, the tag, and the array.


@dataclass
class Round:
    """What is still to be sent and to be received of a post."""

    sends: list[Message]
    receives: list[Message]

    @property
    def is_done(self) -> bool:
        return not self.sends and not self.receives


class Network:
    """Rounds of messages as NCCL has them: each rank has one round under way at a time, and messages match by their order, not by tags.

    It counts the elements that each pair of ranks exchanges.
    """

    def __init__(self) -> None:
        self.queues: dict[int, deque[Round]] = defaultdict(deque)
        self.sent: Counter[tuple[int, int]] = Counter()

    def post(self, rank: int, post: Post) -> Round:
        for target, _, array in post.sends:
            assert array.flags.c_contiguous and target != rank
            self.sent[rank, target] += array.size
        assert all(array.flags.c_contiguous for _, _, array in post.receives)
        posted = Round([(target, tag, array.copy()) for target, tag, array in post.sends], list(post.receives))
        self.queues[rank].append(posted)
        return posted

    def advance(self) -> None:
        """Move what the rounds under way have in common, as long as there is something."""
        moving = True
        while moving:
            moving = False
            for rank, queue in list(self.queues.items()):
                while queue and queue[0].is_done:
                    queue.popleft()
                    moving = True
                if queue:
                    moving = self._move(rank, queue[0]) or moving

    def _move(self, rank: int, own: Round) -> bool:
        for at, (target, tag, array) in enumerate(own.sends):
            theirs = self.queues[target][0] if self.queues[target] else Round([], [])
            for there, (source, wanted, place) in enumerate(theirs.receives):
                if source == rank:
                    assert wanted == tag and place.shape == array.shape, "messages in another order"
                    place[...] = array
                    del own.sends[at], theirs.receives[there]
                    return True
        return False


class Rank:
    """One rank: its computation, and what it waits for."""

    def __init__(self, number: int, steps: Steps, network: Network) -> None:
        self.number, self.steps, self.network = number, steps, network
        self.posted: list[Round] = []
        self.answer: Ticket | None = None
        self.ticket: int | None = None
        self.result: Matrix | None = None

    def advance(self) -> bool:
        """Go on as far as messages allow; False if that is nowhere."""
        self.network.advance()
        if self.result is not None or (self.ticket is not None and not self.posted[self.ticket].is_done):
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
            self.posted.append(self.network.post(self.number, asked))
            self.answer = Ticket(len(self.posted) - 1)
        return True


def times(a: Any, b: Any, out: Any = None, *, beta: int = 0) -> Any:
    """The product of what a rank holds, by NumPy; C is not read if beta is 0."""
    found = np.matmul(a, b)
    if out is None:
        return found
    out[...] = found + out if beta else found
    return out


def pieces(matrix: Matrix, spread: Spread) -> list[Matrix]:
    """What each rank holds."""
    return [np.ascontiguousarray(matrix[np.ix_(indices(part.rows), indices(part.columns))]) for part in spread]


def indices(runs: Sequence[tuple[int, int]]) -> list[int]:
    return [at for start, stop in runs for at in range(start, stop)]


def spoiling(a: Any, b: Any, out: Any = None, *, beta: int = 0) -> Any:
    """The same, by what leaves its operands undefined."""
    found = times(a, b, out, beta=beta)
    a[...] = b[...] = -77
    return found


def run(plan: RankPlan, a: Matrix, b: Matrix, multiply: Any = None) -> tuple[list[Matrix], Network]:
    """The piece of C of every rank, and the network afterwards. No rank's pieces of A and B are written."""
    own = [*zip(pieces(a, plan.given[0]), pieces(b, plan.given[1]), strict=True)]
    multiply = multiply or (spoiling if plan.consumes else times)
    found = run_all([steps_of(plan, at, *each, multiply) for at, each in enumerate(own)])
    for whole, spread, held in zip((a, b), plan.given[:2], zip(*own, strict=True), strict=True):
        assert all(x.tobytes() == y.tobytes() for x, y in zip(held, pieces(whole, spread), strict=True))
    return found


def run_all(all_steps: Sequence[Steps]) -> tuple[list[Matrix], Network]:
    """The result of every rank, and the network afterwards."""
    network = Network()
    ranks = [Rank(at, steps, network) for at, steps in enumerate(all_steps)]
    while any(rank.advance() for rank in ranks):
        pass
    assert all(rank.result is not None for rank in ranks), "the ranks wait for each other"
    network.advance()
    assert not any(network.queues.values()), "messages that nobody receives"
    return [rank.result for rank in ranks if rank.result is not None], network
