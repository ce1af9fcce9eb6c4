"""`matmul` for JAX, inside of compiled functions, with `vmap` and derivatives of every kind. JAX is imported by the first call.

XLA calls back with its own buffers: the host's, or a GPU's with the stream that it computes on. Nothing is copied (docs/how-to/einsum.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Literal

import numpy as np

from bilinear.errors import fail, install
from bilinear.ir.matrix import Array
from bilinear.runtime import matmul as host
from bilinear.runtime.arrays import NUMPY, cupy_module, cupy_stream
from bilinear.runtime.multiply import looked_at
from bilinear.runtime.options import Named, Options, ProductOptions, check_options

__all__ = ["matmul"]


def matmul(
    a: Array,
    b: Array,
    *,
    algorithm: Named = "auto",
    levels: int | Literal["auto"] = "auto",
    accuracy: float | Literal["classical", "twice"] | None = None,
    reproducible: Literal["bitwise"] | None = None,
) -> Array:
    """a @ b with the shapes, types and batches of `jax.numpy.matmul`, by `bilinear.matmul` where the arrays lie: CPU, or CUDA with CuPy.

    It works inside `jax.jit` and `jax.vmap`, whose batch is one call. JAX differentiates it forwards and in reverse, any number of times:
    derivatives are products by the same algorithm. A named algorithm is read when the function is traced, and stays in what `jax.jit`
    keeps. The cost is told in docs/how-to/einsum.md.

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
        While the function is traced: what `bilinear.matmul` raises for NumPy's arrays of these shapes and types, E736 for types that NumPy
        does not multiply, such as bfloat16, E737 for arrays on several devices, E735 if JAX is not installed or too old, and E512 on a GPU
        without CuPy. What depends on values, or on the GPU, arrives as JAX's error, which holds the diagnostic.

    Examples
    --------
    >>> import jax
    >>> import bilinear.jax
    >>> a = jax.numpy.arange(4.0).reshape(2, 2)
    >>> jax.jit(bilinear.jax.matmul)(a, a)
    Array([[ 2.,  3.],
           [ 6., 11.]], dtype=float32)
    """
    jax, product = _product()
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
    return product(x, y, asked=asked).reshape(result.shape)


@cache
def _product() -> tuple[ModuleType, Callable[..., Array]]:
    """JAX, and a primitive of it: the product of two batches of matrices, of one type and of equally many dimensions.

    JAX derives all derivatives from its being bilinear.
    """
    try:
        jax = import_module("jax")
        call_back = import_module("jax.experimental.buffer_callback").buffer_callback
        core, ad, batching, mlir = (import_module(f"jax.{name}") for name in _PARTS)
    except ImportError as error:
        raise fail("E735", f"JAX cannot be used: {error}", install("jax")) from None
    product = core.Primitive("bilinear_matmul")
    call = jax.jit(product.bind, static_argnames="asked")

    def run(x: Array, y: Array, *, asked: Options) -> Array:
        with jax.disable_jit(False):
            return call(x, y, asked=asked)

    def described(x: Array, y: Array, *, asked: Options) -> Array:
        alike = (np.empty(z.shape, z.dtype) for z in (x, y))
        looked_at(NUMPY, *alike, **_options(asked))  # refuse now what the host would
        shape = (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
        return x.update(shape=shape, weak_type=False)

    def lowered(multiply: Callable[..., None], context: SimpleNamespace, x: Array, y: Array, *, asked: Options) -> Array:
        if getattr(context.module_context.axis_context, "num_devices", 1) > 1:
            raise fail("E737", "these arrays lie on several devices", "multiply their parts in jax.shard_map, or use one device")
        if multiply is _on_gpu:
            cupy_module()
        back = call_back(partial(multiply, _options(asked)), context.avals_out[0])
        return mlir.lower_fun(back, multiple_results=False)(context, x, y)

    def batched(operands: tuple[Array, Array], axes: tuple[int | None, int | None], *, asked: Options) -> tuple[Array, int]:
        pairs = zip(operands, axes, strict=True)
        x, y = (z[None] if axis is None else jax.numpy.moveaxis(z, axis, 0) for z, axis in pairs)
        return product.bind(x, y, asked=asked), 0

    product.def_impl(run)
    product.def_abstract_eval(described)
    batching.primitive_batchers[product] = batched
    for platform, multiply in (("cpu", _on_the_host), ("cuda", _on_gpu)):
        mlir.register_lowering(product, partial(lowered, multiply), platform=platform)
    ad.defbilinear(
        product,
        lambda change, x, y, asked: _as(x.aval, product.bind(change, y.mT, asked=asked)),
        lambda change, x, y, asked: _as(y.aval, product.bind(x.mT, change, asked=asked)),
    )
    return jax, product.bind


_PARTS = "extend.core", "interpreters.ad", "interpreters.batching", "interpreters.mlir"


def _options(asked: Options) -> ProductOptions:
    options: ProductOptions = {"algorithm": asked.algorithm or "auto", "levels": asked.levels, "accuracy": asked.accuracy}
    options["reproducible"] = asked.reproducible  # type: ignore[typeddict-item]
    return options


def _on_the_host(options: ProductOptions, context: SimpleNamespace, out: Array, x: Array, y: Array) -> None:
    host.matmul(np.asarray(x), np.asarray(y), np.asarray(out), **options)


def _on_gpu(options: ProductOptions, context: SimpleNamespace, out: Array, x: Array, y: Array) -> None:
    cupy = cupy_module()
    a, b, c = (cupy.asarray(z) for z in (x, y, out))
    with c.device, cupy_stream(context.stream):
        host.matmul(a, b, c, **options)


def _as(operand: Array, change: Array) -> Array:
    """The gradient of an operand that was used for several matrices of the batch: the sum over them."""
    repeated = tuple(axis for axis, extent in enumerate(operand.shape[:-2]) if extent == 1)
    return change.sum(axis=repeated, keepdims=True)


def __dir__() -> list[str]:
    return __all__
