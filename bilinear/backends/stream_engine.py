"""Run the steps of a streamed multiply on devices, through an interface that is small enough to be pretended in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bilinear.backends.held_signals import HeldSignals
from bilinear.ir.matrix import Array, Factor
from bilinear.planner.streamed import IN, OUT, StreamPlan, StreamStep

Event = object
"""What a device gives for the moment when all work that a stream has so far is done."""


class StreamDevice(Protocol):
    """One GPU with its streams. Every method but `allocate` and `finish` only puts work on a stream, and may return before it is done."""

    def allocate(self, elements: int) -> Array:
        """A slot on the device."""

    def copy_in(self, host: Array, slot: Array) -> None:
        """Copy a matrix of the host to the first elements of a slot, row after row."""

    def copy_out(self, slot: Array, host: Array) -> None:
        """Copy the first elements of a slot to a matrix of the host."""

    def multiply(self, a: Array, b: Array, c: Array, shape: tuple[int, int, int], factors: tuple[Factor, Factor], inputs: str) -> None:
        """C = alpha * A * B + beta * C in slots, with `shape` (m, k, n)."""

    def record(self, stream: str) -> Event:
        """An event after the work of a stream."""

    def wait(self, stream: str, event: Event) -> None:
        """Further work of a stream begins after the event."""

    def finish(self) -> None:
        """Wait for all streams; raise what failed on one."""

    def stop(self) -> None:
        """Begin nothing more, and wait for what has begun."""


def run_streamed(
    plan: StreamPlan, devices: Sequence[StreamDevice], matrices: tuple[Array, Array, Array], factors: tuple[Factor, Factor]
) -> None:
    """C = alpha * A * B + beta * C with host matrices A, B and C.

    If a device fails or a signal's handler raises, the exception leaves when nothing writes C any more. Each element of C is then what
    it was, or its result, and the exception has a note that says so.
    """
    try:
        for gpu, device in enumerate(devices):
            issue(plan, plan.steps(gpu), device, matrices, factors)
        for device in devices:
            device.finish()
    except BaseException as error:
        with HeldSignals():
            for device in devices:
                try:
                    device.stop()
                except Exception as failed:  # the others must end, too
                    error.add_note(f"a GPU did not end in order: {failed}")
        error.add_note("each element of out holds its result, or what it held before; nothing writes it any more")
        raise


def issue(
    plan: StreamPlan,
    steps: Sequence[StreamStep],
    device: StreamDevice,
    matrices: tuple[Array, Array, Array],
    factors: tuple[Factor, Factor],
) -> None:
    """Put the steps of one GPU on its streams."""
    host = dict(zip("ABC", matrices, strict=True))
    slots = {x: [device.allocate(plan.most_elements(x)) for _ in range(plan.slots(x))] for x in "ABC"}
    awaited = {number for step in steps for number in step.waits}
    events: dict[int, Event] = {}
    for number, step in enumerate(steps):
        for before in step.waits:
            device.wait(step.stream, events[before])
        if step.stream in (IN, OUT):
            piece = host[step.operand][plan.part(step.operand, step.task.block(step.operand))]
            slot = slots[step.operand][step.slots[0]]
            if step.stream == IN:
                device.copy_in(piece, slot)
            else:
                device.copy_out(slot, piece)
        else:
            _multiply(plan, step, device, slots, factors)
        if number in awaited:
            events[number] = device.record(step.stream)


def _multiply(
    plan: StreamPlan, step: StreamStep, device: StreamDevice, slots: dict[str, list[Array]], factors: tuple[Factor, Factor]
) -> None:
    task, (alpha, beta) = step.task, factors
    a, b, c = (slots[operand][slot] for operand, slot in zip("ABC", step.slots, strict=True))
    (m, k), n = plan.shape("A", task.block("A")), plan.shape("B", task.block("B"))[1]
    device.multiply(a, b, c, (m, k, n), (alpha, beta if task.first else 1), plan.inputs)
