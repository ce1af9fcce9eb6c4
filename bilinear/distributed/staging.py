"""Arrays as MPI takes them: NumPy's as they are, CuPy's through memory of the host."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bilinear.ir.matrix import Array

Bytes = NDArray[np.uint8]


@dataclass
class Staging:
    """Copies of arrays on a GPU, for messages. What has arrived is copied back by `land`."""

    arrivals: list[tuple[Array, NDArray[np.generic]]] = field(default_factory=list)

    def leaving(self, array: Array) -> Bytes:
        """The bytes to send."""
        host = array if isinstance(array, np.ndarray) else array.get()
        return _bytes_of(host)

    def arriving(self, array: Array) -> Bytes:
        """The bytes to receive into."""
        if isinstance(array, np.ndarray):
            return _bytes_of(array)
        host = np.empty(array.shape, array.dtype)
        self.arrivals.append((array, host))
        return _bytes_of(host)

    def land(self) -> None:
        """Copy to the GPU what has arrived."""
        for array, host in self.arrivals:
            array.set(host)
        self.arrivals.clear()


def _bytes_of(array: NDArray[np.generic]) -> Bytes:
    return array.reshape(-1).view(np.uint8)
