"""The only list of the methods that compete with the library's multiply and with schedules: one line a method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never, TypeVar, cast

from bilinear.ir.matrix import Layout
from bilinear.methods.digits.method import DIGITS
from bilinear.methods.method import Binding
from bilinear.methods.rounded.method import ROUNDED
from bilinear.methods.thin.method import THIN
from bilinear.planner.plan import Choice

if TYPE_CHECKING:  # which is imported with the first call on a GPU
    from bilinear.methods.program import Program

Own = TypeVar("Own", bound=Choice)

METHODS: tuple[Binding[Never, Never], ...] = (
    THIN,
    DIGITS,
    ROUNDED,
)
_BY_NAME = {method.choice.method: method for method in METHODS}


def method_of(choice: Own) -> Binding[Own, Never]:
    """The method of a choice."""
    return cast("Binding[Own, Never]", _BY_NAME[choice.method])


def bind(choice: Choice, a: Layout, b: Layout, c: Layout) -> Program | None:
    """The product for matrices of these layouts on the current device; None if the method does not multiply them, or binds nothing."""
    return method_of(choice).bind(choice, a, b, c) if choice.is_bound else None
