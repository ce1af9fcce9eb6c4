"""Arrays of a GPU on their way through the host: copied out when they are sent, and in when they have arrived, not before."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bilinear.distributed.connection import Staging


@dataclass
class OnGpu:
    """What CuPy's arrays can do here: `get` and `set`."""

    content: NDArray[np.float32]
    calls: list[str] = field(default_factory=list)
    shape = property(lambda self: self.content.shape)
    dtype = property(lambda self: self.content.dtype)

    def get(self) -> NDArray[np.float32]:
        self.calls.append("get")
        return self.content.copy()

    def set(self, values: NDArray[np.float32]) -> None:
        self.calls.append("set")
        self.content[...] = values


def test_arrays_of_a_gpu_pass_through_the_host() -> None:
    there, here, staging = OnGpu(np.arange(6, dtype="float32").reshape(2, 3)), OnGpu(np.zeros((2, 3), "float32")), Staging()
    message, place = staging.leaving(there), staging.arriving(here)
    place[...] = message
    assert (there.calls, here.calls) == (["get"], []) and not here.content.any()
    staging.land()
    staging.land()
    assert here.calls == ["set"] and (here.content == there.content).all()


def test_arrays_of_the_host_are_sent_from_where_they_lie() -> None:
    array, staging = np.arange(6.0).reshape(2, 3), Staging()
    assert np.shares_memory(staging.leaving(array), array) and np.shares_memory(staging.arriving(array), array)
    assert not staging.arrivals
