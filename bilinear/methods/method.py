"""What multiplies matrices as they lie on a GPU, without a schedule: a choice of a method that can be bound to their layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from bilinear.ir.matrix import Factor, Layout
from bilinear.planner.device import Device
from bilinear.planner.plan import Choice, Method

if TYPE_CHECKING:  # launches are imported with the first call on a GPU
    from bilinear.ir.launch import AnyKernel
    from bilinear.methods.program import Program


class Bindable(Choice):
    """A choice of a method that multiplies matrices as they lie, by launches of its own.

    `title` says in words what runs, `needs` what arrays it takes, `less` what to do if it needs more workspace than is allowed.
    """

    needs: ClassVar[str]
    less: ClassVar[str] = "plan with this workspace, or use algorithm='auto'"

    @property
    def lies_by_columns(self) -> bool:
        """Whether a C that is computed aside lies by columns."""
        return False

    def suits(self, out: Layout, beta: Factor) -> bool:
        """Whether C can be computed in a matrix of this layout."""
        return True

    def conjugated_as(self, operands: str) -> Bindable | None:
        """The same with the conjugates of these operands ("A", "B", "AB"); None if they must be formed before."""
        return None if operands else self


Chosen_contra = TypeVar("Chosen_contra", bound=Bindable, contravariant=True)
Bench_contra = TypeVar("Bench_contra", contravariant=True)


class Binding(Method, Protocol[Chosen_contra, Bench_contra]):
    """A method that can be bound, and measured by a bench: its `choice` is a type of `Bindable`."""

    def kernels(self, choice: Chosen_contra, a: Layout, b: Layout, c: Layout, has_warpgroups: bool = True) -> Iterable[AnyKernel]:
        """The kernels for matrices of these layouts at multiples of 16 bytes, on a chip that has warpgroups, or not."""

    def bind(self, choice: Chosen_contra, a: Layout, b: Layout, c: Layout) -> Program | None:
        """The product for matrices of these layouts on the current device; None if it does not multiply them."""

    def measured(self, bench: Bench_contra, device: Device, tell: Callable[[str], None]) -> Device:
        """The device with rates of all that this method multiplies there, by the times of a bench; `tell` hears what is timed."""
