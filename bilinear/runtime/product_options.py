"""The options that other functions pass on to `matmul`, with their types."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal, TypedDict

from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array, Factor


class MatmulOptions(TypedDict, total=False):
    """The options of `matmul` with a given algorithm."""

    alpha: Factor
    beta: Factor
    levels: int | Literal["auto"]
    inputs: Literal["preserve", "restore", "consume"]
    workspace: Array
    tolerance: float | None
    modulus: int | None
    stream: AbstractContextManager[object] | None


class ProductOptions(TypedDict, total=False):
    """The options of `matmul` for each of several products."""

    algorithm: str | Loaded
    levels: int | Literal["auto"]
    inputs: Literal["preserve", "restore", "consume"]
    workspace: Array
    tolerance: float | None
    accuracy: float | Literal["classical", "twice"] | None
