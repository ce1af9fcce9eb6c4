"""`matmul` for JAX: a call of the host inside of compiled functions, with `vmap` and gradients. JAX is imported by the first call.

JAX's arrays go to the host's memory and the result comes back from there, on a GPU across its bus (docs/how-to/einsum.md).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Literal

import numpy as np

from bilinear.errors import fail, install
from bilinear.ir.matrix import Array
from bilinear.runtime import matmul as host
from bilinear.runtime.arrays import NUMPY
from bilinear.runtime.multiply import looked_at
from bilinear.runtime.options import Named, Options, ProductOptions, check_options

__all__ = ["matmul"]

Product = Callable[[Array, Array], Array]


def matmul(
    a: Array,
    b: Array,
    *,
    algorithm: Named = "auto",
    levels: int | Literal["auto"] = "auto",
    accuracy: float | Literal["classical", "twice"] | None = None,
    reproducible: Literal["bitwise"] | None = None,
) -> Array:
    """a @ b with the shapes, types and batches of `jax.numpy.matmul`, by `bilinear.matmul` on the host.

    It works inside `jax.jit` and `jax.vmap`, whose batch is one call, and `jax.grad` differentiates it any number of times in reverse:
    gradients are products by the same algorithm. JAX refuses forward mode (`jax.jvp`, `jax.jacfwd`). A named algorithm is read when the
    function is traced, and stays in what `jax.jit` keeps. The cost is told in docs/how-to/einsum.md.

    Parameters
    ----------
    a, b : arrays of shapes (..., m, k) and (..., k, n)
        Or vectors, as in `jax.numpy.matmul`.
    algorithm, levels : str or Algorithm, and int or "auto"
        As in `bilinear.matmul`.
    accuracy : float or "classical" or "twice", optional
        As in `bilinear.matmul`.
    reproducible : "bitwise", optional
        As in `bilinear.matmul`, gradients included.

    Returns
    -------
    array of shape (..., m, n)

    Raises
    ------
    TypeError
        As `jax.numpy.matmul` does.
    BilinearError
        While the function is traced: what `bilinear.matmul` raises for arrays of these shapes and types, E736 for types that NumPy does not
        multiply, such as bfloat16, and E735 if JAX is not installed. What depends on values arrives from the host as JAX's error.

    Examples
    --------
    >>> import jax
    >>> import bilinear.jax
    >>> a = jax.numpy.arange(4.0).reshape(2, 2)
    >>> jax.jit(bilinear.jax.matmul)(a, a)
    Array([[ 2.,  3.],
           [ 6., 11.]], dtype=float32)
    """
    jax = _jax()
    jnp = jax.numpy
    asked = Options(algorithm=algorithm, levels=levels, accuracy=accuracy, reproducible=reproducible).as_named()
    check_options(asked, None)
    result = jax.eval_shape(jnp.matmul, a, b)
    if result.dtype.kind not in "biufc":
        raise fail("E736", f"NumPy does not multiply {result.dtype} in its own type", "convert the operands, as by a.astype('float32')")
    x, y = jnp.asarray(a, result.dtype), jnp.asarray(b, result.dtype)
    x, y = x[None] if x.ndim == 1 else x, y[:, None] if y.ndim == 1 else y
    count = max(x.ndim, y.ndim)  # `vmap` puts its batch before the first dimension of both
    x, y = (jnp.expand_dims(z, tuple(range(count - z.ndim))) for z in (x, y))
    return _product(asked)(x, y).reshape(result.shape)


def _product(asked: Options) -> Product:
    """The product of two batches of matrices, of one type and of equally many dimensions, with its derivatives."""
    jax = _jax()
    options: ProductOptions = {"algorithm": asked.algorithm or "auto", "levels": asked.levels, "accuracy": asked.accuracy}
    options["reproducible"] = asked.reproducible  # type: ignore[typeddict-item]

    def on_the_host(x: Array, y: Array) -> Array:
        return host.matmul(np.asarray(x), np.asarray(y), **options)

    def by_callback(x: Array, y: Array) -> Array:
        shape = (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
        alike = (np.empty(z.shape, z.dtype) for z in (x, y))
        looked_at(NUMPY, *alike, **options)  # refuse now what the host would
        return jax.pure_callback(on_the_host, jax.ShapeDtypeStruct(shape, x.dtype), x, y, vmap_method="expand_dims")

    def forward(x: Array, y: Array) -> tuple[Array, tuple[Array, Array]]:
        return product(x, y), (x, y)

    def backward(kept: tuple[Array, Array], change: Array) -> tuple[Array, Array]:
        x, y = kept
        return _as(x, product(change, y.mT)), _as(y, product(x.mT, change))

    product: Product = jax.custom_vjp(by_callback)
    product.defvjp(forward, backward)  # type: ignore[attr-defined]
    return product


def __dir__() -> list[str]:
    return __all__


def _jax() -> ModuleType:
    try:
        return import_module("jax")
    except ImportError as error:
        raise fail("E735", f"JAX cannot be imported: {error}", install("jax")) from None


def _as(operand: Array, change: Array) -> Array:
    """The gradient of an operand that was used for several matrices of the batch: the sum over them."""
    repeated = tuple(axis for axis, extent in enumerate(operand.shape[:-2]) if extent == 1)
    return change.sum(axis=repeated, keepdims=True)
