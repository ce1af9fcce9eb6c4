"""Before the first message all ranks agree on what they are about to do: rank 0 compares what each says, and tells all of them the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING

from bilinear.distributed.watch import Watch
from bilinear.errors import BilinearError, Diagnostic, fail

if TYPE_CHECKING:
    from mpi4py import MPI

TOLD, VERDICT = 100, 101
"""Tags; those of arrays are smaller."""
PAUSE = 1e-4
MARGIN = 5.0
"""Seconds by which rank 0's verdict may be late: it waits as long as everybody else, and then says who is missing."""


@dataclass(frozen=True)
class Told:
    """What one rank says: the facts by name, or why it cannot take part."""

    facts: Mapping[str, str]
    refused: Diagnostic | None = None


def agree(comm: MPI.Intracomm, watch: Watch, told: Told, timeout: float) -> None:
    """Return if all ranks say the same; else raise the same `BilinearError` on all of them: E763, E765, E767, or why all were refused."""
    verdict = _judge(comm, watch, told, timeout) if comm.rank == 0 else _ask(comm, watch, told, timeout)
    if verdict is not None:
        raise BilinearError(verdict)


def _ask(comm: MPI.Intracomm, watch: Watch, told: Told, timeout: float) -> Diagnostic | None:
    request = comm.isend(told, 0, TOLD)
    end = monotonic() + timeout + MARGIN
    while not comm.iprobe(0, VERDICT):
        watch.require_sound()
        if monotonic() > end:
            raise _missing(watch, [0], timeout)
        sleep(PAUSE)
    request.wait()
    found: Diagnostic | None = comm.recv(source=0, tag=VERDICT)
    return found


def _judge(comm: MPI.Intracomm, watch: Watch, own: Told, timeout: float) -> Diagnostic | None:
    heard, end = {0: own}, monotonic() + timeout
    while len(heard) < comm.size:
        watch.require_sound()
        missing = [rank for rank in range(comm.size) if rank not in heard]
        for rank in missing:
            if comm.iprobe(rank, TOLD):
                heard[rank] = comm.recv(source=rank, tag=TOLD)
        if monotonic() > end:
            raise _missing(watch, missing, timeout)
        sleep(PAUSE)
    verdict = disagreement([heard[rank] for rank in range(comm.size)])
    requests = [comm.isend(verdict, rank, VERDICT) for rank in range(1, comm.size)]
    for request in requests:
        request.wait()
    return verdict


def _missing(watch: Watch, ranks: list[int], timeout: float) -> BilinearError:
    """Give up on ranks that have not called: if they do so later, they are told."""
    error = fail("E765", f"{_ranks(ranks)} did not call within {timeout:g} s", "every rank must call; timeout= waits longer")
    watch.report(error.diagnostics[0])
    return error


def disagreement(told: list[Told]) -> Diagnostic | None:
    """Why the ranks cannot go on together; None if they can."""
    refused = {rank: each.refused for rank, each in enumerate(told) if each.refused is not None}
    if len(refused) == len(told) and len(set(map(str, refused.values()))) == 1:
        return refused[0]
    if refused:
        rank, why = min(refused.items())
        others = sorted(set(refused) - {rank})
        notes = [*why.notes, *(f"{_ranks([each])} cannot take part either" for each in others)]
        return Diagnostic("E767", f"rank {rank} cannot take part: {why.message} ({why.code})", None, "", tuple(notes), why.hints)
    for name in told[0].facts:
        values: dict[str, list[int]] = {}
        for rank, each in enumerate(told):
            values.setdefault(each.facts.get(name, "none"), []).append(rank)
        if len(values) > 1:
            said = tuple(f"{_ranks(ranks)}: {value}" for value, ranks in values.items())
            return Diagnostic("E763", f"the ranks differ in {name}", None, "", said, ("give all ranks the same",))
    return None


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
