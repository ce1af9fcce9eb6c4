"""The method: tiles of our own kernels for products with a short extent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.matrix import Layout
from bilinear.methods.thin.choice import Thin, thin_candidates
from bilinear.planner.device import Device
from bilinear.planner.plan import Candidate
from bilinear.planner.problem import Problem

if TYPE_CHECKING:  # launches are imported with the first call on a GPU
    from bilinear.ir.launch import AnyKernel
    from bilinear.methods.thin.launches import ThinMultiply
    from bilinear.methods.thin.rates import ThinBench

MOST_TIMED = 8  # Tiles that are timed in a search.


class ThinProducts:
    """The method: tiles of our own kernels for products with a short extent."""

    choice = Thin
    products: tuple[str, ...] = ()
    most_weighed: int | None = 1
    most_timed: int | None = MOST_TIMED

    def products_of(self, dtype: str) -> tuple[str, ...]:
        """None is asked for by a name."""
        return ()

    def named(self, problem: Problem, device: Device, levels: tuple[str, ...], products: str, budget: int) -> Candidate:
        """Refused (E543): tiles have no names below levels."""
        raise fail("E543", f"there are no products {products!r}", "leave products= out")

    def candidates(self, problem: Problem, device: Device, budget: int, most_ms: float) -> Iterator[Candidate]:
        """See `thin_candidates`."""
        return thin_candidates(problem, device)

    def kernels(self, choice: Thin, a: Layout, b: Layout, c: Layout, has_warpgroups: bool = True) -> Iterable[AnyKernel]:
        """See `kernels_of`."""
        from bilinear.methods.thin.launches import kernels_of

        return kernels_of(a, b, c, choice)

    def bind(self, choice: Thin, a: Layout, b: Layout, c: Layout) -> ThinMultiply | None:
        """See `thin_multiply_of`."""
        from bilinear.methods.thin.launches import thin_multiply_of

        return thin_multiply_of(a, b, c, choice)

    def measured(self, bench: ThinBench, device: Device, tell: Callable[[str], None]) -> Device:
        """The device with their rates."""
        from bilinear.methods.thin.rates import with_thin

        return with_thin(bench, device, tell)


THIN = ThinProducts()  # The method: tiles of our own kernels for products with a short extent.
