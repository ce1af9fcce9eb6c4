"""Tensors as C reads them: what it answers, what it leaves to Python, and gradients. A launch only notes its arguments."""

from __future__ import annotations

import ctypes
import shutil
import sysconfig
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pytorch.needed import torch

from bilinear.backends.shared_library import shared_library
from bilinear.resources import templates_folder
from bilinear.runtime import replay
from bilinear.runtime.options import Options
from bilinear.runtime.replay import asked_of, replays

POINTER, INT = ctypes.c_void_p, ctypes.c_int
FUNCTION = 77


class Launches(list[tuple[int, ...]]):
    """The addresses of A, B and C that were launched."""

    def __init__(self) -> None:
        functions: list[tuple[Any, Callable[..., int]]] = [
            (ctypes.CFUNCTYPE(INT, ctypes.POINTER(POINTER)), lambda place: place.__setitem__(0, 1) or 0),
            (ctypes.CFUNCTYPE(INT, POINTER, ctypes.POINTER(INT)), lambda stream, place: place.__setitem__(0, 0) or 0),
            (ctypes.CFUNCTYPE(INT, POINTER, *[ctypes.c_uint] * 7, POINTER, POINTER, POINTER), self.note),
        ]
        self.alive: list[Any] = [kind(function) for kind, function in functions]
        self.addresses = tuple(ctypes.cast(function, POINTER).value for function in self.alive)

    def note(self, function: int, *rest: int) -> int:
        assert function == FUNCTION
        places = (ctypes.c_uint64 * 3).from_address(rest[8])
        self.append(tuple(ctypes.c_uint64.from_address(place).value for place in places))
        return 0


@pytest.fixture(params=["PyTorch's functions", "Python's"])
def launches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Launches]:
    """With products of 8 x 8 float32 kept, into `out` and as new tensors. What is asked of tensors is asked by functions of these."""
    found = Launches()
    text = (templates_folder() / "replay.c").read_text()
    module = replay.module_at(Path(shutil.copy(shared_library("replay", text, f"-I{sysconfig.get_path('include')}"), tmp_path)))
    module.use_driver(found.addresses)
    monkeypatch.setattr(replays, "module", module)
    monkeypatch.setattr(replays, "again", module.replay)
    replay._uses_tensors.cache_clear()
    functions = replay._functions_of(torch)
    assert functions, "this PyTorch lacks one of the functions"
    monkeypatch.setattr(replay, "_functions_of", lambda _: functions if request.param != "Python's" else ())
    if not replay._uses_tensors(torch):
        pytest.skip("this PyTorch has no C functions of DLPack")
    a, b, c = (torch.ones(8, 8) for _ in "ABC")
    for out in (c, None):
        own = 1, out is None, 0, *(-256, 256) * 2, 3, 0, 0, 0, 8, 1, 0, 16, 2, 0, 1, FUNCTION, 1, 1, 1, 32, 1, 1, 0, 3, 0, 8, 16
        kept = array("q", own).tobytes(), bytes(24), partial(torch.empty, (8, 8)), None
        module.keep((asked_of(a, b, out, Options()), kept))
    yield found
    module.forget()
    replay._uses_tensors.cache_clear()


def again(a: Any, b: Any, out: Any = None) -> Any:
    assert replays.again is not None
    return replays.again(asked_of(a, b, out, Options()))


def test_tensors_are_found_by_their_own_layout(launches: Launches) -> None:
    a, b, c = (torch.zeros(8, 8) for _ in "ABC")
    assert again(a, b, c) is c and c._version == 1, "gradients that need what it held are refused"
    new = again(a, b)
    assert new.shape == (8, 8) and not new.requires_grad
    assert launches == [tuple(x.data_ptr() for x in own) for own in ((a, b, c), (a, b, new))]


class Own(torch.Tensor):  # type: ignore[misc]
    """A subclass."""


def dense() -> Any:
    return torch.zeros(8, 8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: dense().t(),
        lambda: torch.zeros(8, 9)[:, :8],
        lambda: torch.zeros(8, 7),
        lambda: torch.zeros(2, 8, 8),
        lambda: dense().double(),
        lambda: dense().bfloat16(),
        lambda: torch.zeros(8, 8, dtype=torch.complex64),
        lambda: torch._neg_view(dense()),
        lambda: dense().to_sparse(),
        lambda: dense().to("meta"),
        lambda: dense().as_subclass(Own),
        lambda: dense()[0].expand(8, 8),
        lambda: [[1.0]],
    ],
)
def test_other_tensors_are_pythons(make: Callable[[], Any], launches: Launches) -> None:
    other = make()
    for a, b, out in ((other, dense(), None), (dense(), other, None), (dense(), dense(), other)):
        assert again(a, b, out) is NotImplemented
    shared = dense()
    assert again(shared, shared) is again(shared, dense(), shared) is NotImplemented
    assert not launches


def test_what_must_see_operators_is_pythons(launches: Launches) -> None:
    from torch.autograd import forward_ad
    from torch.utils._python_dispatch import TorchDispatchMode

    a, b = dense(), dense()
    found: list[Any] = []

    def note(x: Any) -> Any:
        found.append(again(a, b))
        return x

    torch.func.vmap(note)(torch.zeros(2))
    torch.func.grad(note)(torch.zeros(()))
    with forward_ad.dual_level():
        note(a)
    with TorchDispatchMode():
        note(a)
    torch._C._vmapmode_increment_nesting()
    note(a)
    torch._C._vmapmode_decrement_nesting()
    assert found == [NotImplemented] * 5 and not launches
    assert again(a, b) is not NotImplemented


def test_gradients_are_recorded(launches: Launches) -> None:
    import bilinear.torch  # noqa: F401  (with it come the operators)

    a, b = dense().requires_grad_(), dense()
    c = again(a, b)
    assert c.grad_fn is not None and len(launches) == 1
    assert again(a, b, dense()) is NotImplemented
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert again(a, b) is NotImplemented
    with torch.no_grad():
        assert again(a, b).grad_fn is None
    gradient = torch.rand(8, 8)
    c.backward(gradient)
    torch.testing.assert_close(a.grad, gradient @ b.mT)
