"""The only list of the methods that compete with the library's multiply and with schedules: one line a method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never, TypeVar, cast

from bilinear.ir.matrix import Layout
from bilinear.methods.digits.method import DIGITS
from bilinear.methods.method import Bindable, Binding
from bilinear.methods.rounded.method import ROUNDED
from bilinear.methods.thin.method import THIN

if TYPE_CHECKING:  # which is imported with the first call on a GPU
    from bilinear.methods.program import Program

Own = TypeVar("Own", bound=Bindable)

METHODS: tuple[Binding[Never, Never], ...] = (
    THIN,
    DIGITS,
    ROUNDED,
)
_BY_NAME = {method.choice.method: method for method in METHODS}


def method_of(choice: Own) -> Binding[Own, Never]:
    """The method of a choice."""
    return cast("Binding[Own, Never]", _BY_NAME[choice.method])


def bind(choice: Bindable, a: Layout, b: Layout, c: Layout) -> Program | None:
    """The product for matrices of these layouts on the current device; None if the method does not multiply them."""
    return method_of(choice).bind(choice, a, b, c)
