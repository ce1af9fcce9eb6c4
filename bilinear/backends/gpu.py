"""The name and the driver version of the current GPU. Both need CuPy and a device."""

from __future__ import annotations


def gpu_name() -> str:
    """The name of the current GPU."""
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode())


def driver_version() -> int:
    """The version of the driver of the GPU, as 13000 for CUDA 13.0."""
    import cupy

    return int(cupy.cuda.runtime.driverGetVersion())
