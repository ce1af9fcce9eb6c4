"""`bilinear.jax.matmul` inside of compiled, differentiated and mapped functions, beside JAX's own multiply of integers, which is exact."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from backends.test_same_bits import numbers
from described import check_examples
from each_case import each

import bilinear.jax
from bilinear.errors import BilinearError
from bilinear.runtime import matmul as host

SHAPES = [
    ((5, 4), (4, 3)),
    ((4,), (4,)),
    ((4,), (4, 3)),
    ((5, 4), (4,)),
    ((2, 5, 4), (4, 3)),
    ((5, 4), (2, 4, 3)),
    ((3, 1, 5, 4), (2, 4, 3)),
]


@pytest.fixture
def jax() -> Any:
    return pytest.importorskip("jax", reason="JAX is not installed; scripts/test-torch installs it and runs these tests")


def operands(jax: Any, shapes: Any, dtype: str = "float32") -> list[Any]:
    generator = np.random.default_rng(1)
    return [jax.numpy.asarray(generator.integers(-3, 4, shape).astype(dtype)) for shape in shapes]


def multiply(**options: Any) -> Callable[[Any, Any], Any]:
    return lambda a, b: bilinear.jax.matmul(a, b, **options)


@each("dtype", ["float32", "int32", "complex64", "float16", "bool"])
@each("shapes", SHAPES)
def test_the_product_is_jaxs_compiled_or_not(jax: Any, shapes: Any, dtype: str) -> None:
    a, b = operands(jax, shapes, dtype)
    expected = jax.numpy.matmul(a, b)
    for found in (bilinear.jax.matmul(a, b), jax.jit(bilinear.jax.matmul)(a, b)):
        assert isinstance(found, jax.Array) and found.shape == expected.shape and found.dtype == expected.dtype
        assert np.array_equal(found, expected)


@each("dtype", ["float32", "float16"])
@each("kind", ["decades", "subnormal", "special"])
def test_bits_are_the_hosts_though_jax_flushes_subnormal_numbers(jax: Any, dtype: str, kind: str) -> None:
    random, product = np.random.default_rng(2), multiply(reproducible="bitwise")
    a, b = (numbers(random, kind, shape, dtype).astype(dtype) for shape in ((6, 40), (40, 5)))
    wanted = host.matmul(a, b, reproducible="bitwise")
    mapped = jax.jit(jax.vmap(product, in_axes=(0, None)))
    for found in (product(a, b), jax.jit(product)(a, b), mapped(a[:, None], b)[:, 0]):
        assert found.dtype == dtype and np.asarray(found).tobytes() == wanted.tobytes()
    if kind == "decades":
        change = jax.jit(jax.grad(lambda x: product(x, b).sum()))(a)
        assert np.asarray(change).tobytes() == host.matmul(np.ones((6, 5), dtype), b.T, reproducible="bitwise").tobytes()
    with pytest.raises(BilinearError, match="E820"):
        multiply(algorithm="winograd", reproducible="bitwise")(a, b)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of the host's multiplies."""
    seen: list[dict[str, Any]] = []

    def spied(a: Any, b: Any, out: Any, **options: Any) -> Any:
        seen.append(options)
        return host.matmul(a, b, out, **options)

    monkeypatch.setattr(bilinear.jax, "host", SimpleNamespace(matmul=spied))
    return seen


@pytest.mark.parametrize(
    ("axes", "shapes"),
    [
        ((0, 0), ((6, 4, 4), (6, 4, 4))),
        ((None, 0), ((5, 4), (6, 4, 3))),
        ((1, None), ((5, 6, 4), (4, 3))),
        ((0, None), ((6, 4), (4, 3))),
        ((0, 2), ((6, 4), (4, 3, 6))),
        ((None, 0), ((4,), (6, 2, 4, 3))),
        ((0, 0), ((6, 5, 4), (6, 2, 4, 3))),
    ],
)
def test_a_mapped_product_is_one_call(jax: Any, calls: Any, axes: Any, shapes: Any) -> None:
    a, b = operands(jax, shapes)
    found = jax.jit(jax.vmap(bilinear.jax.matmul, axes))(a, b)
    assert np.array_equal(found, jax.vmap(jax.numpy.matmul, axes)(a, b)) and len(calls) == 1


@each("dtype", ["float32", "complex64"])
@each("shapes", SHAPES)
def test_gradients_are_jaxs(jax: Any, shapes: Any, dtype: str) -> None:
    """Of a polynomial of integers, whose derivatives are integers."""
    a, b = operands(jax, shapes, dtype)

    def loss(multiply: Any) -> Any:
        return lambda a, b: (multiply(a, b) ** 2).sum().real

    found, expected = (jax.jit(jax.grad(loss(x), (0, 1)))(a, b) for x in (bilinear.jax.matmul, jax.numpy.matmul))
    assert all(np.array_equal(x, y) for x, y in zip(found, expected, strict=True))


def test_gradients_of_gradients_and_of_mapped_products(jax: Any) -> None:
    a, b = operands(jax, ((3, 3), (6, 3, 3)))

    def twice(multiply: Any) -> Any:
        inner = jax.grad(lambda a, b: (multiply(multiply(a, b), a) ** 2).sum())
        return jax.grad(lambda a: (jax.vmap(inner, (None, 0))(a, b) * a).sum())(a)

    assert np.array_equal(twice(bilinear.jax.matmul), twice(jax.numpy.matmul))


def test_derivatives_forwards_and_of_both_modes(jax: Any) -> None:
    a, b = operands(jax, ((3, 4), (2, 4, 3)))

    def found(multiply: Any) -> list[Any]:
        def cube(a: Any) -> Any:
            return (multiply(a, b) ** 3).sum()

        return [
            jax.jvp(multiply, (a, b), (2 * a, 3 * b))[1],
            jax.jit(jax.jacfwd(multiply, (0, 1)))(a, b)[1],
            jax.hessian(cube)(a),
            jax.jacrev(jax.jacfwd(cube))(a),
            jax.linearize(partial(multiply, b=b), a)[1](a),
        ]

    for x, y in zip(found(bilinear.jax.matmul), found(jax.numpy.matmul), strict=True):
        assert np.array_equal(x, y)


def run(program: str, **variables: str) -> str:
    """What a program prints that begins JAX in its own way."""
    begin = "import jax, bilinear.jax; import numpy as np; from jax.sharding import *"
    command = [sys.executable, "-c", f"{begin}\n{dedent(program)}"]
    done = subprocess.run(command, check=False, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_arrays_on_several_devices_are_refused_and_their_parts_are_multiplied(jax: Any) -> None:
    program = """
        mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))
        a = jax.device_put(np.arange(64.0, dtype="f").reshape(8, 8), NamedSharding(mesh, PartitionSpec("i")))
        for call in (bilinear.jax.matmul, jax.jit(bilinear.jax.matmul)):
            try: call(a, a.T)
            except bilinear.BilinearError as error: print(str(error).split("\\n")[0])
        rows = jax.shard_map(bilinear.jax.matmul, mesh=mesh, in_specs=(PartitionSpec("i"), PartitionSpec()), out_specs=PartitionSpec("i"))
        print(bool((jax.jit(rows)(a, np.asarray(a)) == a @ a).all()))
        """
    said = run(program, XLA_FLAGS="--xla_force_host_platform_device_count=4", JAX_PLATFORMS="cpu").splitlines()
    assert said == ["error[E737]: these arrays lie on several devices"] * 2 + ["True"]


@pytest.mark.gpu
def test_on_a_gpu_nothing_goes_to_the_host(jax: Any) -> None:
    """Bits, integers, batches and both modes of derivatives, without a transfer, on XLA's stream and beside its memory."""
    program = """
        jax.config.update("jax_enable_x64", True)
        random = np.random.default_rng(1)
        def given(*shape, dtype="f"): return jax.device_put(random.integers(-3, 4, shape).astype(dtype), jax.devices("cuda")[0])
        same = lambda a, b: bilinear.jax.matmul(a, b, reproducible="bitwise")
        right = []
        for dtype in ("f", "d", "F", "D", "e", "i4"):
            a, b, small = given(2100, 600, dtype=dtype), given(600, 2050, dtype=dtype), given(3, 600, 5, dtype=dtype)
            wanted = np.asarray(a).astype("D" if dtype in "FD" else "d") @ np.asarray(b).astype("D" if dtype in "FD" else "d")
            few, batch = a[:9], np.asarray(a)[:9].astype(wanted.dtype) @ np.asarray(small).astype(wanted.dtype)
            with jax.transfer_guard("disallow"):
                found = jax.jit(lambda a, b: bilinear.jax.matmul(a, b) + a.dtype.type(0))(a, b)
                mapped = jax.jit(jax.vmap(bilinear.jax.matmul, (None, 0)))(few, small)
                jax.block_until_ready((found, mapped))
            right += [bool((np.asarray(found) == wanted).all()), bool((np.asarray(mapped) == batch).all())]
        a, b = given(700, 800), given(800, 600)
        p, q = np.asarray(a), np.asarray(b)
        for options in ({}, {"algorithm": "winograd", "levels": 1}):
            product = lambda a: bilinear.jax.matmul(a, b, **options)
            right.append(bool((jax.jit(lambda a: jax.jvp(product, (a,), (a,))[1])(a) == p @ q).all()))
            right.append(bool((jax.jit(jax.grad(lambda a: (product(a) ** 2).sum()))(a) == 2 * (p @ q) @ q.T).all()))
        decades = lambda *shape: (random.standard_normal(shape) * 10.0 ** random.integers(-20, 20, shape)).astype("f")
        x, y = decades(90, 300), decades(300, 70)
        wanted = bilinear.matmul(x, y, reproducible="bitwise")
        right.append(np.asarray(jax.jit(same)(*jax.device_put((x, y)))).tobytes() == wanted.tobytes())
        print(right)
        """
    said = run(program, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    assert "False" not in said and said.count("True") == 17


def test_a_named_algorithm_multiplies_the_gradients_too(jax: Any, calls: Any) -> None:
    a, b = operands(jax, ((8, 8), (8, 8)))
    found = jax.jit(jax.grad(lambda a: multiply(algorithm="strassen", levels=2)(a, b).sum()))(a)
    assert np.array_equal(found, jax.numpy.ones((8, 8)) @ b.T)
    assert {(options["algorithm"].scheme.name, options["levels"]) for options in calls} == {("strassen", 2)}


def test_a_large_product_does_not_wait_for_itself(jax: Any) -> None:
    """The callback holds a thread of JAX's while it reads its operands."""
    a, b = operands(jax, ((700, 700), (700, 700)))
    assert np.array_equal(jax.jit(lambda a, b: bilinear.jax.matmul(bilinear.jax.matmul(a, b), b))(a, b), a @ b @ b)


@each(
    ("options", "code"),
    [
        ({"levels": -1}, "E514"),
        ({"accuracy": 0.1, "algorithm": "strassen"}, "E519"),
        ({"algorithm": "nosuch"}, "E121"),
        ({"levels": 2}, "E514"),
        ({"algorithm": "complex3"}, "E799"),
        ({"algorithm": "walk_444_mod2"}, "E506"),
        ({"algorithm": "strassen", "levels": 20}, "E501"),
        ({"accuracy": 1e-30}, "E519"),
    ],
)
def test_options_without_a_meaning_are_refused_when_the_function_is_traced(jax: Any, options: Any, code: str) -> None:
    a, b = operands(jax, SHAPES[0])
    with pytest.raises(BilinearError, match=code):
        jax.jit(multiply(**options))(a, b)
    with pytest.raises(BilinearError, match=code):
        jax.grad(lambda a: multiply(**options)(a, b).sum())(a)


def test_what_jax_traces_is_refused_elsewhere_by_a_code_that_names_this_room(jax: Any) -> None:
    a, b = operands(jax, SHAPES[0])
    for call in (bilinear.matmul, lambda a, b: bilinear.einsum("ij,jk", a, b), lambda a, b: bilinear.gram(a)):
        with pytest.raises(TypeError, match=r"(?s)E518.*Tracer of jax.*bilinear\.jax\.matmul"):
            jax.jit(call)(a, b)
    assert np.array_equal(bilinear.matmul(a, b, algorithm="strassen", levels=1), a @ b)


def test_shapes_and_types_are_refused_when_the_function_is_traced(jax: Any) -> None:
    a, _ = operands(jax, SHAPES[0])
    with pytest.raises(TypeError, match="contracting dimensions"):
        jax.jit(bilinear.jax.matmul)(a, a)
    with pytest.raises(BilinearError, match=r"E736.*bfloat16"):
        bilinear.jax.matmul(a.astype("bfloat16"), a.T.astype("bfloat16"))


def test_the_example_of_the_docstring_runs(jax: Any) -> None:
    check_examples(bilinear.jax.matmul)


def test_without_jax_the_import_is_light_and_a_call_says_what_to_install() -> None:
    call = "try: bilinear.jax.matmul(1, 2)\nexcept bilinear.BilinearError as error: print(error)"
    program = f"import sys; sys.modules['jax'] = None; import bilinear.jax\n{call}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("error[E735]: JAX cannot be used") and "pip install '.[jax]'" in done.stdout
