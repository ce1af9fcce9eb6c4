"""A method whose choices multiply matrices as they lie on a GPU, without a schedule: they can be bound to layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from bilinear.ir.matrix import Layout
from bilinear.planner.device import Device
from bilinear.planner.plan import Choice, Method

if TYPE_CHECKING:  # launches are imported with the first call on a GPU
    from bilinear.ir.launch import AnyKernel
    from bilinear.methods.program import Program


Chosen_contra = TypeVar("Chosen_contra", bound=Choice, contravariant=True)
Bench_contra = TypeVar("Bench_contra", contravariant=True)


class Binding(Method, Protocol[Chosen_contra, Bench_contra]):
    """A method that can be bound, and measured by a bench: its `choice` is a type of choices that say what they need."""

    def kernels(self, choice: Chosen_contra, a: Layout, b: Layout, c: Layout, has_warpgroups: bool = True) -> Iterable[AnyKernel]:
        """The kernels for matrices of these layouts at multiples of 16 bytes, on a chip that has warpgroups, or not."""

    def bind(self, choice: Chosen_contra, a: Layout, b: Layout, c: Layout) -> Program | None:
        """The product for matrices of these layouts on the current device; None if it does not multiply them."""

    def measured(self, bench: Bench_contra, device: Device, tell: Callable[[str], None]) -> Device:
        """The device with rates of all that this method multiplies there, by the times of a bench; `tell` hears what is timed."""
