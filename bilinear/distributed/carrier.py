"""What moves arrays between ranks, and a rank's steps run on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from bilinear.distributed.rank import Message, Post, Steps, Ticket
from bilinear.ir.matrix import Array

Round = TypeVar("Round")
"""A round under way, in a carrier's own words."""


class Carrier(Protocol[Round]):
    """What moves arrays between ranks, round by round."""

    @property
    def name(self) -> str:
        """In words."""

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> Round:
        """Begin a round of messages."""

    def wait(self, round_: Round) -> None:
        """Let what follows wait for a round."""

    def drain(self) -> None:
        """Wait for all rounds; raise if a rank is lost (E764)."""


def run_steps(steps: Steps, carrier: Carrier[Round]) -> Array:
    """The result of a rank's steps."""
    rounds: list[Round] = []
    try:
        asked = next(steps)
        while True:
            if isinstance(asked, Post):
                rounds.append(carrier.post(asked.sends, asked.receives))
                asked = steps.send(Ticket(len(rounds) - 1))
            else:
                carrier.wait(rounds[asked.ticket])
                asked = steps.send(asked.ticket)
    except StopIteration as done:
        return done.value
