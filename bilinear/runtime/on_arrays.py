"""`matmul` on arrays of NumPy, CuPy, or another library that speaks DLPack. PyTorch's tensors arrive as one of the first two."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np

from bilinear.frontend import Loaded, load_for_arrays
from bilinear.ir.matrix import Array, is_own_transpose
from bilinear.runtime.accept import accepted
from bilinear.runtime.environment import USE_LIBRARY, uses_library, value_of
from bilinear.runtime.gram_blocks import own_product
from bilinear.runtime.magnitudes import check_tolerance_option
from bilinear.runtime.multiply import multiply
from bilinear.runtime.named import algorithm_as_it_is
from bilinear.runtime.options import Options, check_options, check_plan_options
from bilinear.runtime.repeat import Key, repeated

Asked = tuple[Array, ...]
"""The first fields of `Options`, up to the accuracy, as the caller gave them."""


def matmul_arrays(
    a: Array, b: Array, out: Array, asked: Asked, stream: AbstractContextManager[object] | None, conjugated: str = ""
) -> Array:
    """alpha * a @ b + beta * out, as `matmul` says it, by what is asked for. A call that ran before on a GPU is found first.

    `conjugated` names the operands whose conjugates are multiplied: "", "A", "B" or "AB".
    """
    alpha, beta, algorithm, levels, inputs, workspace, tolerance, plan, accuracy = asked
    by_library = value_of(USE_LIBRARY) is not None and uses_library()
    if algorithm != "auto" and not by_library and not isinstance(algorithm, Loaded):
        algorithm = algorithm_as_it_is(str(algorithm), load_for_arrays)
    accuracy = accuracy.item() if isinstance(accuracy, np.generic) else accuracy
    asked = alpha, beta, algorithm, levels, inputs, workspace, tolerance, plan, accuracy
    key, repeat = (None, None) if by_library or conjugated else repeated(a, b, out, asked)
    if repeat is not None:
        if stream is None:
            result = repeat.run(a, b, out, alpha, beta)
        else:
            with stream:
                result = repeat.run(a, b, out, alpha, beta)
        if result is not None:
            return result
    return multiply_anew(a, b, out, asked, stream, key, conjugated)


def multiply_anew(
    a: Array, b: Array, out: Array, asked: Asked, stream: AbstractContextManager[object] | None, key: Key | None, conjugated: str = ""
) -> Array:
    """The same for a call that is not repeated; what runs is kept under its key."""
    _, _, algorithm, levels, inputs, workspace, tolerance, plan, _ = asked
    options = Options(*asked)._replace(conjugated=conjugated)
    check_options(options, out)
    if plan is not None:
        check_plan_options(plan, algorithm, levels, inputs)
    check_tolerance_option(tolerance, inputs if plan is None else plan.chosen.promise)
    with accepted({"a": a, "b": b}, {"out": out}, workspace, stream, own=True) as (kind, (left, right), (given,), _):
        if is_own_transpose(left, right) and options.is_unsaid:
            result = own_product(options, kind, left, given)
            if result is not None:
                return out if out is not None else kind.give_back(result)
        result = multiply(options, kind, key, left, right, given)
        return out if out is not None else kind.give_back(result)
