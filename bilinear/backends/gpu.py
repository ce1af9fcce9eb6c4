"""The current GPU: its name, the version of its driver, and its description. All need CuPy and a device."""

from __future__ import annotations

from bilinear.planner.device import Device
from bilinear.planner.device_files import device_named, estimated
from bilinear.planner.estimates import DataSheet, data_sheet
from bilinear.planner.kept_plans import kept_description


def gpu_name() -> str:
    """The name of the current GPU."""
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode())


def driver_version() -> int:
    """The version of the driver of the GPU, as 13000 for CUDA 13.0."""
    import cupy

    return int(cupy.cuda.runtime.driverGetVersion())


def description(name: str, driver: int) -> Device | None:
    """The description of the current GPU: a kept one, a shipped one, or an estimate; None before sm_80 where nobody has made one."""
    return kept_description(name, driver) or device_named(name) or _estimated()


def _estimated() -> Device | None:
    sheet = reported_sheet()
    return None if sheet is None else estimated(sheet)


def reported_sheet() -> DataSheet | None:
    """The figures of the current GPU as its driver reports them; None if it has no estimate."""
    import cupy

    device = cupy.cuda.Device()
    found = device.attributes
    return data_sheet(
        gpu_name(),
        int(device.compute_capability),
        found["MultiProcessorCount"],
        int(cupy.cuda.runtime.getDeviceProperties(device.id)["totalGlobalMem"]),
        found["L2CacheSize"],
        found["MaxSharedMemoryPerBlockOptin"],
        found["ClockRate"] * 1e-3,
        found["MemoryClockRate"] * 1e-3,
        found["GlobalMemoryBusWidth"],
    )
