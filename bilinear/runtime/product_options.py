"""The options that functions hand on to `matmul`, with their types."""

from __future__ import annotations

from typing import Literal, TypedDict

from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array


class ProductOptions(TypedDict, total=False):
    """The options of `matmul` that make sense for several products; `matmul` documents them."""

    algorithm: str | Loaded
    levels: int | Literal["auto"]
    inputs: Literal["preserve", "restore", "consume"]
    workspace: Array
    tolerance: float | None
    accuracy: float | Literal["classical", "twice"] | None
