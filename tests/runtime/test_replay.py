"""Repeated calls in C, on a pretended GPU whose driver and cuBLAS are recorded: the launches and the results are those of Python."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from artifact.built_folders import needs_emulator
from runtime.blas import gemm
from runtime.pretended_gpu import Array, Gpu

import bilinear
from bilinear.backends import capture, cublas, shared_library
from bilinear.errors import BilinearError, StageError
from bilinear.resources import templates_folder
from bilinear.runtime import replay
from bilinear.runtime.options import Options
from bilinear.runtime.repeat import Repeat
from bilinear.runtime.replay import replays

pytestmark = needs_emulator

INCLUDE = f"-I{sysconfig.get_path('include')}"
POINTER, INT, WINOGRAD = ctypes.c_void_p, ctypes.c_int, bilinear.load("winograd")
LIBRARYS, SHAPE = 2**40, (3, 2, 1, 32, 1, 1, 64)
"""The function and the launch of the one kernel that the pretended cuBLAS has."""


class Driver:
    """The driver as C and the capture know it, and cuBLAS as it is captured; `answered` counts the calls of C.

    The kernel of cuBLAS has two arguments: addresses, C's twice, with numbers; and the letter of its type. Its graph may have `nodes` of
    some `kind`, and a `special` attribute; `hidden` bytes are added to the address of A.
    """

    def __init__(self, gpu: Gpu, module: ModuleType) -> None:
        self.gpu, self.module, self.context, self.status, self.answered = gpu, module, 1, 0, 0
        self.nodes, self.kind, self.special, self.hidden, self.recorded = 1, 0, 0, 0, b""
        functions: list[tuple[Any, Callable[..., int]]] = [
            (ctypes.CFUNCTYPE(INT, ctypes.POINTER(POINTER)), self.current),
            (ctypes.CFUNCTYPE(INT, POINTER, ctypes.POINTER(INT)), self.capturing),
            (ctypes.CFUNCTYPE(INT, POINTER, *[ctypes.c_uint] * 7, POINTER, POINTER, POINTER), self.launch),
            (ctypes.CFUNCTYPE(ctypes.c_ssize_t), lambda: gpu.stream),
        ]
        self.alive: list[Any] = [kind(function) for kind, function in functions]
        *driver, stream = (ctypes.cast(function, POINTER).value for function in self.alive)
        module.use_driver(tuple(driver))
        module.use_arrays((Array, stream))

    def current(self, place: Any) -> int:
        place[0] = self.context
        return 0

    def capturing(self, _: int, place: Any) -> int:
        place[0] = self.gpu.is_capturing
        return 0

    def launch(self, function: int, *rest: Any) -> int:
        if self.status:
            return self.status
        if function != LIBRARYS:
            self.gpu.launch(function, *(x or 0 for x in rest))
            return 0
        assert rest[:7] == SHAPE
        numbers, letter = ((ctypes.c_uint64 * 2).from_address(rest[8])[i] for i in range(2))
        a, b, c, again, *own = struct.unpack("12Q", ctypes.string_at(numbers, 96))
        assert c == again
        kind = ctypes.string_at(letter, 1).decode()
        factors = ((ctypes.c_float if kind == "s" else ctypes.c_double) * 2)(1, 0)
        one = ctypes.addressof(factors)
        self.gpu.by_cublas.append((kind, rest[7]))
        first, second, m, n, k, lda, ldb, ldc = own
        gemm(kind, first, second, m, n, k, one, a, lda, b, ldb, one + ctypes.sizeof(factors) // 2, c, ldc)
        return 0

    def again(self, given: tuple[object, ...]) -> Any:
        found = self.module.replay(given)
        self.answered += found is not NotImplemented
        return found

    def record(self, kind: str, handle: int, *given: int) -> int:
        """`cublasSgemm` and `cublasDgemm` on a stream that is captured."""
        *sizes, _, a, lda, b, ldb, _, c, ldc = given
        self.recorded = struct.pack("12Q", a + self.hidden, b, c, c, *sizes, lda, ldb, ldc) + kind.encode()
        return 0

    def cuStreamCreate(self, place: Any, _: int) -> int:  # the driver's names
        place._obj.value = 900
        return 0

    def cuGraphGetNodes(self, _: Any, node: Any, count: Any) -> int:
        count._obj.value = self.nodes
        if node is not None:
            node._obj.value = 902
        return 0

    def cuStreamEndCapture(self, _: Any, place: Any) -> int:
        place._obj.value = 901
        return 0

    def cuGraphNodeGetType(self, _: Any, place: Any) -> int:
        place._obj.value = self.kind
        return 0

    def cuGraphKernelNodeGetParams_v2(self, _: Any, place: Any) -> int:
        self.memory = ctypes.create_string_buffer(self.recorded)
        begin = ctypes.addressof(self.memory)
        self.parameters = (POINTER * 2)(begin, begin + 96)
        node = place._obj
        node.function, node.shape = LIBRARYS, (ctypes.c_uint * 7)(*SHAPE)
        node.parameters = ctypes.cast(self.parameters, ctypes.POINTER(POINTER))
        return 0

    def cuGraphKernelNodeGetAttribute(self, _: Any, attribute: int, place: Any) -> int:
        place[0] = attribute == self.special
        return 0

    def cuFuncGetParamInfo(self, function: Any, number: Any, _: Any, size: Any) -> int:
        assert function.value == LIBRARYS
        size._obj.value = (96, 1, 0)[number.value]
        return int(number.value > 1)

    def __getattr__(self, name: str) -> Any:
        assert name in (
            "cuStreamBeginCapture_v2",
            "cuStreamEndCapture",
            "cuGraphDestroy",
            "cuStreamDestroy_v2",
            "cuThreadExchangeStreamCaptureMode",
        )
        return lambda *_: 0


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """An image of its own: where there is a GPU, that of the cache may stand before `matmul` already."""
    text = (templates_folder() / "replay.c").read_text()
    return replay.module_at(Path(shutil.copy(shared_library.shared_library("replay", text, INCLUDE), tmp_path_factory.mktemp("replay"))))


@pytest.fixture
def driver(gpu: Gpu, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Driver(gpu, module)
    monkeypatch.setattr(Repeat, "offers", 64)
    monkeypatch.setattr(replay, "_begin", lambda: None)
    monkeypatch.setattr(replay, "_uses_arrays", lambda: True)
    calls = {f"{kind}gemm": partial(found.record, kind) for kind in "sd"} | {"SetStream": lambda handle, stream: 0}
    monkeypatch.setattr(cublas, "_c_interface", lambda: calls)
    monkeypatch.setattr(capture, "cuda_driver", lambda: found)
    monkeypatch.setattr(replays, "module", module)
    monkeypatch.setattr(replays, "again", found.again)
    monkeypatch.setattr(replays, "stands_before", False)
    yield found
    module.forget()


def draw(shape: tuple[int, int], dtype: str, by_columns: bool = False) -> Any:
    whole = np.random.default_rng(shape).integers(-4, 5, shape).astype(dtype)
    return np.asfortranarray(whole) if by_columns else whole


@pytest.mark.parametrize("order", ["CCC", "FCC", "CFF"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (16, 8, 24)),
        ({"levels": 0}, (8, 8, 8)),
        ({"algorithm": WINOGRAD, "levels": 1}, (16, 16, 16)),
        ({"algorithm": "winograd", "levels": 1}, (16, 16, 16)),
        ({"algorithm": WINOGRAD, "levels": 2}, (18, 17, 21)),
        ({"algorithm": bilinear.load("strassen"), "levels": 1, "workspace": "1MiB"}, (16, 24, 8)),
    ],
)
@pytest.mark.parametrize("given", [True, False])
def test_c_issues_what_python_issues(options: dict[str, Any], shape: Any, dtype: str, order: str, given: bool, driver: Driver) -> None:
    gpu, (m, k, n) = driver.gpu, shape
    x, y, z = (draw(own, dtype, o == "F") for own, o in zip(((m, k), (k, n), (m, n)), order, strict=True))
    issued = []
    for call in range(4):
        for told in (gpu.launches, gpu.by_cublas, gpu.tiles):
            told.clear()
        driver.answered = 0
        a, b, c = Array(x.copy("K")), Array(y.copy("K")), Array(z.copy("K")) if given else None
        result = bilinear.matmul(a, b, c, **options)
        assert (result is c) == given
        np.testing.assert_array_equal(result.host, x @ y)
        assert result.host.dtype == x.dtype
        assert driver.answered == (call > 1), "the first decides, the second repeats and is kept"
        issued.append((list(gpu.launches), [own[:2] for own in gpu.by_cublas], list(gpu.tiles)))
    assert issued[1] == issued[2] == issued[3] != ([], [], [])
    gpu.launches.clear()
    gpu.by_cublas.clear()
    gpu.stream = 5
    bilinear.matmul(a, b, c, **options)
    assert {stream for _, stream in gpu.launches} | {own[1] for own in gpu.by_cublas} == {5} and driver.answered == 2


def kept(driver: Driver, **options: Any) -> tuple[Any, list[Any]]:
    x, y = draw((16, 16), "float64"), draw((16, 16), "float64").T.copy() + 1
    a, b, c = Array(x.copy()), Array(y.copy()), Array(np.zeros((16, 16)))
    for _ in range(3):
        bilinear.matmul(a, b, c, **options)
    assert driver.answered == 1
    driver.answered = 0
    return x @ y, [a, b, c]


def another_context(driver: Driver, *_: Any) -> dict[str, Any]:
    driver.context = 2
    return {}


def out_over_a(driver: Driver, operands: list[Any], _: Any) -> dict[str, Any]:
    operands[2] = operands[0]
    return {}


def uneven(driver: Driver, operands: list[Any], _: Any) -> dict[str, Any]:
    memory = np.zeros((17, 16)).ravel()[1:257].reshape(16, 16)
    memory[...] = operands[0].host
    operands[0] = Array(memory)
    return {}


CHANGES: dict[str, Callable[..., dict[str, Any]]] = {
    "alpha": lambda *_: {"alpha": 1.0},
    "a stream": lambda *_: {"stream": nullcontext()},
    "levels": lambda *_: {"levels": 2},
    "workspace": lambda *_: {"workspace": "unlimited"},
    "another context": another_context,
    "overlap": out_over_a,
    "other strides": lambda driver, operands, _: operands.__setitem__(0, Array(np.asfortranarray(operands[0].host))) or {},
    "the library is asked for": lambda driver, operands, patch: patch.setenv("BILINEAR_USE_LIBRARY", "1") or {},
    "a description is named": lambda driver, operands, patch: patch.setenv("BILINEAR_DEVICE", "h100") or {},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_differs_is_pythons(change: str, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"algorithm": WINOGRAD, "levels": 1}
    wanted, operands = kept(driver, **options)
    options |= CHANGES[change](driver, operands, monkeypatch)
    np.testing.assert_array_equal(bilinear.matmul(*operands, **options).host, wanted)
    assert not driver.answered


def test_a_graph_gets_what_python_gives_it(driver: Driver) -> None:
    _, operands = kept(driver, algorithm=WINOGRAD, levels=1)
    driver.gpu.is_capturing = True
    with pytest.raises(BilinearError, match="E536"):
        bilinear.matmul(*operands[:2], algorithm=WINOGRAD, levels=1)
    assert not driver.answered


def test_errors_and_short_memory_are_told_by_python(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"algorithm": WINOGRAD, "levels": 1}
    wanted, operands = kept(driver, **options)
    driver.status = 700
    np.testing.assert_array_equal(bilinear.matmul(*operands, **options).host, wanted)  # Python's own launches do not fail
    driver.gpu.before_launch = lambda number: (_ for _ in ()).throw(RuntimeError("CUDA error 700"))
    with pytest.raises(StageError, match="CUDA error 700"):
        bilinear.matmul(*operands, **options)

    def raising(error: BaseException) -> Callable[[int], Any]:
        return lambda size: (_ for _ in ()).throw(error)

    driver.gpu.allocate = raising(MemoryError("pool"))
    with pytest.raises(MemoryError, match=r"winograd.* needs a workspace of"):
        bilinear.matmul(*operands, **options)
    driver.gpu.allocate = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        bilinear.matmul(*operands, **options)
    assert not driver.answered


@pytest.mark.parametrize("fact", [{"nodes": 2}, {"kind": 10}, {"special": 4}, {"hidden": 8}, {"hidden": -(2**40)}])
def test_what_a_pointer_alone_does_not_move_is_not_taken_from_the_library(fact: dict[str, int], driver: Driver) -> None:
    vars(driver).update(fact)
    x, y = draw((16, 16), "float64"), draw((16, 8), "float64")
    for _ in range(4):
        np.testing.assert_array_equal(bilinear.matmul(Array(x.copy()), Array(y.copy())).host, x @ y)
    assert not driver.answered


def standing_before(module: ModuleType, told: list[Any]) -> Callable[..., Any]:
    """A function that notes its arguments, with C before it; up to Python 3.11, where it cannot be put there, as it would be called."""

    def usual(*args: Any, **options: Any) -> Any:
        told.append((args, options))
        return "Python's"

    usual.__kwdefaults__ = defaults = bilinear.matmul.__kwdefaults__ or {}
    if sys.version_info >= (3, 12):
        replay.stand_before(module, usual)
        return usual
    find = ctypes.pythonapi.PyVectorcall_Function
    find.argtypes, find.restype = [ctypes.py_object], POINTER
    before = module.stand_before((replay.GIVEN, tuple(map(defaults.get, replay.GIVEN)), find(usual)))
    call = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, POINTER, ctypes.c_size_t, POINTER)(before)

    def through(*args: Any, **options: Any) -> Any:
        names, values = tuple(options), (*args, *options.values())
        return call(usual, (ctypes.py_object * len(values))(*values), len(args) | 1 << 63, id(names) if names else None)

    return through


def test_c_reads_the_arguments_of_matmul(driver: Driver) -> None:
    named: dict[str, Any] = {"algorithm": WINOGRAD, "levels": 1}
    wanted, (a, b, c) = kept(driver)
    for _ in range(3):
        bilinear.matmul(a, b), bilinear.matmul(a, b, c, **named)
    told: list[Any] = []
    call = standing_before(driver.module, told)
    for args, options in [
        ((a, b, c), {}),
        ((a, b), {"out": c}),
        ((), {"out": c, "b": b, "a": a}),
        ((a, b), {"out": None}),
        ((a, b), {"beta": 0, "gpus": None}),
        ((a, b, c), named | {"alpha": 1}),
    ]:
        c.host[...] = -7
        found = call(*args, **options)
        np.testing.assert_array_equal(found.host, wanted)
        assert not told and (found is c) == (options.get("out", (*args, None)[2 if args else 0]) is c)
    for args, options in [
        ((a, b, c), {"alpha": 2}),
        ((a, b, c), {"out": c}),
        ((a, b), {"a": a}),
        ((a, b), {"dtype": None}),
        ((a, b), {"unknown": 1}),
        ((a, b, c, 1), {}),
        ((a,), {}),
        ((), {}),
        ((a, b, c), {"modulus": 7}),
        ((a.host, b.host), {}),
    ]:
        assert call(*args, **options) == "Python's" and told.pop() == (args, options) and not told


@pytest.mark.parametrize("by", ["places", "attributes"])
def test_cupys_own_arrays_are_read(by: str, module: ModuleType) -> None:
    """Without a driver, in invented memory: CuPy need only be installed."""
    cupy: Any = pytest.importorskip("cupy")
    places = replay._places_in_arrays(cupy)
    assert len(places) == 6, "this CuPy keeps other things"
    launched: list[tuple[int, ...]] = []

    def current(place: Any) -> int:
        place[0] = 1
        return 0

    def launch(function: int, *rest: Any) -> int:
        launched.append(tuple(ctypes.c_uint64.from_address(place).value for place in (ctypes.c_uint64 * 3).from_address(rest[8])))
        return 0

    alive = (
        ctypes.CFUNCTYPE(INT, ctypes.POINTER(POINTER))(current),
        ctypes.CFUNCTYPE(INT, POINTER, ctypes.POINTER(INT))(lambda stream, place: 0),
        ctypes.CFUNCTYPE(INT, POINTER, *[ctypes.c_uint] * 7, POINTER, POINTER, POINTER)(launch),
        ctypes.CFUNCTYPE(ctypes.c_ssize_t)(lambda: 0),
    )
    *driver, stream = (ctypes.cast(function, POINTER).value for function in alive)
    module.use_driver(tuple(driver))
    module.use_arrays((cupy.ndarray, stream, *(places if by == "places" else ())))
    memory = cupy.cuda.UnownedMemory(2**46, 2**20, None, 0)

    def array(place: int, shape: tuple[int, ...] = (8, 6), dtype: str = "f", order: str = "C") -> Any:
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, place), order=order)

    numbers = 0, 0, 0, *(-256, 256) * 2, 3, 0, 0, 0, 8, 1, 0, 16, 2, 0, 1, 77, 1, 1, 1, 32, 1, 1, 0, 3, 0, 8, 16
    a, b, c = array(0), array(1024, (6, 8)), array(2048, (8, 8))
    module.keep((replay.asked_of(a, b, c, Options()), (struct.pack(f"{len(numbers)}q", *numbers), bytes(24), None, None)))
    reshaped = array(0)
    reshaped.shape = 6, 8
    others = array(0, (8, 7)), array(0, order="F"), array(0, dtype="d"), array(0, (8, 6, 1)), array(0, (48,)), array(0)[::-1], array(0).T
    for other in (*others, reshaped, array(0).view(type("Own", (cupy.ndarray,), {})), a.data, None):
        assert module.replay(replay.asked_of(other, b, c, Options())) is NotImplemented
    assert not launched and module.replay(replay.asked_of(array(512), b, c, Options())) is c
    assert launched == [(2**46 + 512, 2**46 + 1024, 2**46 + 2048)]
    module.forget()


def test_nothing_that_was_given_is_kept_alive(driver: Driver) -> None:
    _, operands = kept(driver, algorithm=WINOGRAD, levels=1)
    counts = [sys.getrefcount(x) for x in operands]
    for _ in range(50):
        bilinear.matmul(*operands, algorithm=WINOGRAD, levels=1)
        bilinear.matmul(*operands[:2], algorithm=WINOGRAD, levels=1)
    assert [sys.getrefcount(x) for x in operands] == counts


def test_a_wheel_with_the_runtime_needs_no_compiler(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    names = "cuCtxGetCurrent", "cuStreamIsCapturing", "cuLaunchKernel"
    monkeypatch.setattr(replay, "cuda_driver", lambda: SimpleNamespace(**dict(zip(names, driver.alive, strict=False))))
    monkeypatch.setattr(replay, "shipped_runtime", lambda: Path(driver.module.__file__ or ""))
    monkeypatch.setattr(shared_library, "c_compiler", lambda: pytest.fail("a compiler is asked for"))
    assert replay.load().__file__ == driver.module.__file__


def test_the_text_compiles_without_a_warning(tmp_path: Path) -> None:
    strict = "gcc", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", *shared_library.FLAGS, INCLUDE
    subprocess.run([*strict, str(templates_folder() / "replay.c"), "-o", str(tmp_path / "replay.so")], check=True)
