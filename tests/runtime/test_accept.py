"""What calls accept: arrays of libraries that speak DLPack, and every kind that is refused, by a code, with all arrays as they were."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from each_case import each
from numpy.lib.stride_tricks import as_strided
from runtime.pretended_gpu import Array as Pretence

import bilinear
from bilinear.errors import BilinearError
from bilinear.runtime.accept import shares_memory

Call = Callable[[list[Any], Any], Any]
N = 8
MSMES: dict[str, Any] = {"algorithm": "msmes", "levels": 1}
FAST: dict[str, Any] = {"algorithm": "strassen", "levels": 1}


def _parts(x: list[Any], out: Any) -> Any:
    """`out` is the imaginary part."""
    return bilinear.matmul_parts((x[0], x[1]), (x[1], x[0]), (np.full((N, N), 7.0), out), levels=1)


CALLS: dict[str, tuple[str, Call]] = {
    "matmul": ("f8", lambda x, out: bilinear.matmul(x[0], x[1], out)),
    "matmul of integers": ("i8", lambda x, out: bilinear.matmul(x[0], x[1], out)),
    "matmul by a name": ("f8", lambda x, out: bilinear.matmul(x[0], x[1], out, **FAST)),
    "matmul with factors": ("f8", lambda x, out: bilinear.matmul(x[0], x[1], out, alpha=2, beta=1)),
    "matmul of complex numbers": ("c16", lambda x, out: bilinear.matmul(x[0], x[1], out, **FAST)),
    "matmul modulo": ("i8", lambda x, out: bilinear.matmul(x[0], x[1], out, modulus=7, **FAST)),
    "classical modulo": ("i8", lambda x, out: bilinear.matmul(x[0], x[1], out, modulus=7)),
    "matmul by a plan": ("f8", lambda x, out: bilinear.matmul(x[0], x[1], out, plan=bilinear.plan(N, N, N, device="h200"))),
    "matmul on GPUs": ("f8", lambda x, out: bilinear.matmul(x[0], x[1], out, gpus=1)),
    "prepared": ("f8", lambda x, out: bilinear.matmul(x[0], bilinear.prepare(np.ones((N, N), "f8"), rows=N, **FAST), out)),
    "parts": ("f8", _parts),
    "gram": ("f8", lambda x, out: bilinear.gram(x[0], out)),
    "gram by rxtx": ("f8", lambda x, out: bilinear.gram(x[0], out, beta=1, algorithm="rxtx", levels=1)),
    "a triangle": ("f8", lambda x, out: bilinear.gram(x[0], out, triangle="lower")),
    "einsum": ("f8", lambda x, out: bilinear.einsum("ij,jk->ki", x[0], x[1], out=out)),
    "einsum of one": ("f8", lambda x, out: bilinear.einsum("ij->ji", x[0], out=out)),
    "einsum of three": ("f8", lambda x, out: bilinear.einsum("ij,jk,kl->il", *x[:3], out=out, **FAST)),
    "multi_dot": ("f8", lambda x, out: bilinear.multi_dot(x, out=out)),
    "bits": ("u1", lambda x, out: bilinear.matmul_bits(x[0][:, :1], x[1], out, **FAST)),
}


def sealed(x: Any) -> Any:
    x = x.copy()
    x.flags.writeable = False
    return x


BAD_OUTS: dict[str, Callable[[Any], Any]] = {
    "read-only": sealed,
    "expanded": lambda x: as_strided(x, x.shape, (0, x.itemsize)),
    "folded": lambda x: as_strided(x, x.shape, (x.itemsize, x.itemsize)),
    "of another shape": lambda x: np.zeros((N, N + 1), x.dtype),
    "of a type that cannot hold it": lambda x: np.zeros(x.shape, "?"),
    "a list": lambda x: x.tolist(),
    "a number": lambda x: x[0, 0],
}


def arrays(dtype: str, count: int = 3) -> list[Any]:
    generator = np.random.default_rng(N)
    return [generator.integers(1, 4, (N, N)).astype(dtype) for _ in range(count)]


def refused(call: Call, given: list[Any], out: Any, codes: str) -> None:
    """The call is refused by one of these codes, and every byte is what it was."""
    every = [x for x in (*given, out) if isinstance(x, np.ndarray)]
    before = [x.tobytes() for x in every]
    with pytest.raises(BilinearError, match=codes):
        call(given, out)
    assert [x.tobytes() for x in every] == before


@each("bad", BAD_OUTS)
@each("name", CALLS)
def test_no_entry_point_writes_where_it_cannot(name: str, bad: str) -> None:
    dtype, call = CALLS[name]
    refused(call, arrays(dtype), BAD_OUTS[bad](np.full((N, N), 7, dtype)), "E518|E520|E530|E550|E598|E772|E79.|E80.")


class Stranger:
    """An array of another library, by its class's module."""

    shape, ndim, dtype = (N, N), 2, np.dtype("f8")


STRANGERS = [
    ("scipy.sparse._csr", "csr_matrix", "toarray"),
    ("dask.array.core", "Array", "compute"),
    ("pandas.core.frame", "DataFrame", "to_numpy"),
]
STRANGERS += [("jax._src.core", "Tracer", "bilinear.jax"), ("elsewhere", "Thing", "give an array")]


@each(("module", "kind", "hint"), STRANGERS)
@each("name", CALLS)
def test_what_is_no_matrix_in_memory_is_refused_by_its_type(name: str, module: str, kind: str, hint: str) -> None:
    dtype, call = CALLS[name]
    stranger = type(kind, (Stranger,), {"__module__": module})()
    with pytest.raises(TypeError, match=rf"(?s)E518.*{kind} of {module.partition('.')[0]}.*{hint}" if name != "bits" else "."):
        call([stranger, *arrays(dtype)[1:]], np.full((N, N), 7, dtype))


@each("name", CALLS)
def test_no_mask_is_lost(name: str) -> None:
    """Only `matmul` and chains of it call the multiply of a subclass."""
    dtype, call = CALLS[name]
    masked = np.ma.masked_array(arrays(dtype)[0], arrays(dtype)[0] > 2)
    if name in ("multi_dot", "prepared") or (name.startswith("matmul") and not name.endswith(("modulo", "GPUs"))):
        return
    refused(call, [masked, *arrays(dtype)[1:]], np.full((N, N), 7, dtype), "E733.*MaskedArray|E772")


@each("name", CALLS)
def test_no_operand_is_none(name: str) -> None:
    dtype, call = CALLS[name]
    if name not in ("parts", "bits"):
        refused(call, [None, *arrays(dtype)[1:]], np.full((N, N), 7, dtype), "E518.*is None")


IN_PLACE: dict[str, tuple[int, Callable[..., Any]]] = {
    "matmul": (2, lambda x, out, **how: bilinear.matmul(x[0], x[1], out, **how)),
    "matmul modulo": (2, lambda x, out, **how: bilinear.matmul(x[0], x[1], out, modulus=11, **how)),
    "einsum": (2, lambda x, out, **how: bilinear.einsum("ij,jk->ik", *x, out=out, **how)),
    "einsum of four": (4, lambda x, out, **how: bilinear.einsum("ij,jk,kl,lm->im", *x, out=out, **how)),
    "multi_dot of four": (4, lambda x, out, **how: bilinear.multi_dot(x, out=out, **how)),
}
BAD_OPERANDS: dict[str, tuple[str, Callable[[Any, Any, Any], Any]]] = {
    "read-only": ("E521", lambda x, other, out: sealed(x)),
    "expanded": ("E52[12]", lambda x, other, out: as_strided(x, x.shape, (0, x.itemsize))),
    "folded": ("E522", lambda x, other, out: as_strided(x, x.shape, (x.itemsize, x.itemsize))),
    "another operand": ("E523", lambda x, other, out: other),
    "another operand turned": ("E523", lambda x, other, out: other.T),
    "out": ("E523", lambda x, other, out: out),
    "of another byte order": ("E526|E599", lambda x, other, out: x.astype(x.dtype.newbyteorder())),
    "of another type": ("E526|E599", lambda x, other, out: x.astype(f"{x.dtype.kind}4")),
}


@each("inputs", ["restore", "consume"])
@each("bad", BAD_OPERANDS)
@each("name", IN_PLACE)
def test_a_chain_is_refused_before_its_first_product_writes(name: str, bad: str, inputs: str) -> None:
    """Whichever operand is bad, and wherever it is, every operand is as it was."""
    count, call = IN_PLACE[name]
    codes, spoil = BAD_OPERANDS[bad]
    dtype = "i8" if "modulo" in name else "f8"
    for at in range(count):
        given, out = arrays(dtype, count), np.full((N, N), 7, dtype)
        given[at] = spoil(given[at], given[(at + 1) % count], out)
        run = partial(call, inputs=inputs, **MSMES)
        if codes == "E523" and count > 2:  # allowed if no product has both, and nothing that is consumed is read
            wanted = np.linalg.multi_dot(given)
            with suppress(BilinearError):
                np.testing.assert_array_equal(run(given, out), wanted)
                continue
        refused(run, given, out, codes)


@pytest.mark.parametrize("bad", ["of another type", "read-only", "of another byte order"])
def test_a_chain_looks_at_its_out(bad: str) -> None:
    outs = {
        "of another type": np.full((N, N), 7.0, "f4"),
        "read-only": sealed(np.ones((N, N))),
        "of another byte order": np.ones((N, N), ">f8"),
    }
    for name in ("einsum of four", "multi_dot of four"):
        refused(partial(IN_PLACE[name][1], inputs="consume", **MSMES), arrays("f8", 4), outs[bad], "E520|E526")


def test_a_value_that_cannot_be_restored_is_found_in_any_operand() -> None:
    for name in ("einsum of four", "multi_dot of four"):
        for at in range(4):
            given = [x / 3 for x in arrays("f8", 4)]  # restoring rounds them
            given[at][3, 3] = np.nan
            refused(partial(IN_PLACE[name][1], inputs="restore", **MSMES), given, np.full((N, N), 7.0), "E524")


def test_parts_that_are_written_lie_apart() -> None:
    x, o = np.arange(64.0).reshape(N, N), np.full((N, 2 * N), 7.0)
    for out in ((o[:, :N], o[:, :N]), (o[:, :N], o[:, 4 : N + 4]), (sealed(o[:, :N]), o[:, N:])):
        with pytest.raises(ValueError, match="E520"):
            bilinear.matmul_parts((x, x), (x, x), out)
        assert (o == 7).all()


@each("x", [np.arange(60) % 5, (np.arange(60) % 5).astype("u1")])
@each("how", [{}, {"algorithm": "rxtx", "levels": 1}, {"triangle": "upper"}])
def test_gram_of_integers_into_floats(x: Any, how: Any) -> None:
    a = x.reshape(5, 12)
    for dtype in (float, a.dtype):
        out = np.full((5, 5), 2, dtype)
        wanted = a @ a.T + 3 * out
        found = bilinear.gram(a, out.copy(), alpha=1.0, beta=3, **how)
        mask = np.triu(np.ones((5, 5), bool)) if "triangle" in how else np.ones((5, 5), bool)
        np.testing.assert_array_equal(found, np.where(mask, wanted, out))
        for factors in ({"alpha": 0.5}, {"alpha": -1, "beta": 0.5} if dtype is not float else {"alpha": 1j}):
            refused(partial(lambda x, y, **factors: bilinear.gram(x[0], y, **factors, **how), **factors), [a], out, "E528")


def test_options_without_a_use_are_refused() -> None:
    x = arrays("f8")
    bits = np.ones((1, 1), "u1"), np.ones((8, 1), "u1")
    with_levels: tuple[Callable[..., Any], ...] = (
        lambda **how: bilinear.matmul(x[0], x[1], **how),
        lambda **how: bilinear.matmul(x[0].astype(int), x[1].astype(int), modulus=7, **how),
        lambda **how: bilinear.gram(x[0], **how),
        lambda **how: bilinear.multi_dot(x, **how),
        lambda **how: bilinear.matmul_bits(*bits, **how),
        lambda **how: bilinear.einsum("ij,jk", x[0], x[1], **how),
        lambda **how: bilinear.prepare(x[0], rows=N, **how),
    )
    for call in with_levels:
        with pytest.raises(BilinearError, match=r"E514.*levels=2 are those of"):
            call(levels=2)
    on_streams: tuple[Callable[..., Any], ...] = (
        lambda how: bilinear.matmul(x[0], x[1], stream=how),
        lambda how: bilinear.matmul(x[0].astype(int), x[1].astype(int), modulus=7, stream=how),
        lambda how: bilinear.matmul(x[0], bilinear.prepare(x[1], rows=N), stream=how),
        lambda how: bilinear.gram(x[0], stream=how),
        lambda how: bilinear.multi_dot(x, stream=how),
        lambda how: bilinear.matmul_bits(*bits, stream=how),
        lambda how: bilinear.matmul_parts((x[0], x[0]), (x[0], x[0]), stream=how),
        lambda how: bilinear.check(x[0], x[1], x[2], stream=how),
    )
    for call in on_streams:
        with pytest.raises(BilinearError, match=r"E510.*in the host's memory"):
            call("nonsense")


@pytest.mark.parametrize("on_gpu", [False, True])
def test_only_common_elements_are_shared_memory(on_gpu: bool) -> None:
    """Interleaved columns lie in one range of addresses, and have no element in common."""
    memory = np.zeros(64)
    column, beside, across = (as_strided(memory[at:], (5, 1), (40, 16)) for at in (1, 2, 6))
    own = Pretence if on_gpu else np.asarray
    assert not shares_memory(own(column), own(beside))
    assert shares_memory(own(column), own(across))
    assert not shares_memory(own(column), own(across[:0]))


class Plain:
    """An array that has DLPack's two methods and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Own(Plain):
    """An array whose class can also import arrays."""

    @classmethod
    def from_dlpack(cls, array: Any) -> Own:
        return cls(np.from_dlpack(array))


A, B = np.arange(35.0).reshape(5, 7), np.arange(28.0).reshape(7, 4)


@pytest.mark.parametrize("algorithm", ["auto", "strassen"])
def test_dlpack_goes_in(algorithm: str) -> None:
    left: Any = Plain(A)  # it has no more than `matmul` needs, and no shape by which mypy knows an array
    product = bilinear.matmul(left, Plain(B), algorithm=algorithm)
    assert type(product) is np.ndarray
    np.testing.assert_array_equal(product, A @ B)


@pytest.mark.parametrize("algorithm", ["auto", "strassen"])
def test_the_callers_kind_comes_back(algorithm: str) -> None:
    pairs: list[Any] = [(Own(A), Own(B)), (Own(A), B), (A.tolist(), Own(B)), (A, Own(B))]
    for left, right in pairs:
        product = bilinear.matmul(left, right, algorithm=algorithm)
        assert type(product) is Own
        np.testing.assert_array_equal(product.array, A @ B)
    row: Any = Own(A[0])
    scalar = bilinear.matmul(row, Own(A[1]), algorithm=algorithm)
    assert type(scalar) is Own and scalar.array.shape == () and scalar.array == A[0] @ A[1]


@pytest.mark.parametrize("algorithm", ["auto", "strassen"])
def test_out_of_another_library_takes_the_result(algorithm: str) -> None:
    out: Any = Own(np.zeros((5, 4)))
    if not np.from_dlpack(out).flags.writeable:
        with pytest.raises(ValueError, match="read-only"):
            bilinear.matmul(A, B, out, algorithm=algorithm)
        return
    assert bilinear.matmul(A, B, out, algorithm=algorithm) is out
    np.testing.assert_array_equal(out.array, A @ B)


class Copying:
    """An array-like whose memory cannot be viewed: a result written to its copy would be lost."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array.copy()


@pytest.mark.parametrize("algorithm", ["auto", "strassen"])
def test_an_out_that_would_lose_the_result_is_refused(algorithm: str) -> None:
    np.testing.assert_array_equal(bilinear.matmul(Copying(A), Copying(B), algorithm=algorithm), A @ B)
    out: Any = Copying(np.zeros((5, 4)))
    with pytest.raises(TypeError, match="Copying"):
        bilinear.matmul(A, B, out, algorithm=algorithm)


def test_memory_maps_go_in_and_an_array_comes_back(tmp_path: Any) -> None:
    path = tmp_path / "a"
    A.tofile(path)
    mapped = np.memmap(path, np.float64, "r", shape=A.shape)
    np.testing.assert_array_equal(bilinear.matmul(mapped, B, algorithm="strassen"), A @ B)


def test_cupy_without_a_driver_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a login node: CuPy can be imported, and everything else of it fails."""

    def fails(*_: object) -> None:
        raise RuntimeError("cudaErrorInsufficientDriver")

    cupy: Any = ModuleType("cupy")
    cupy.ndarray = type("ndarray", (), {})
    cupy.cuda = SimpleNamespace(get_current_stream=fails, Device=fails, runtime=SimpleNamespace(getDevice=fails, streamIsCapturing=fails))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cupy.cuda)
    a = np.arange(36.0).reshape(6, 6)
    for call in (
        bilinear.matmul,
        partial(bilinear.matmul, algorithm="winograd", levels=1),
        partial(bilinear.matmul, reproducible="bitwise"),
    ):
        assert (call(a, a) == a @ a).all() and (call(a, a, np.empty((6, 6))) == a @ a).all()
    assert (
        (bilinear.gram(a) == a @ a.T).all() and (bilinear.einsum("ij,jk", a, a) == a @ a).all() and bilinear.check(a, a, a @ a).bound < 1e-9
    )
