"""Functions of kernels, built and loaded once for a device."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

from bilinear.backends.bound_launches import Function
from bilinear.backends.capture import capturing_relaxed
from bilinear.backends.machine import target_here
from bilinear.codegen.build import build_kernels, build_program
from bilinear.codegen.cuda.nvrtc import Built
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.errors import fail
from bilinear.ir.element import Element
from bilinear.ir.launch import AnyKernel, Launch
from bilinear.ir.schedule import Schedule

NUM_REGS, MAX_DYNAMIC_SHARED_SIZE_BYTES = 4, 8  # `CU_FUNC_ATTRIBUTE_...`; the second is set for above 48 KiB.


def _function(kernel: AnyKernel, built: Built) -> Function:
    return load_function(built.image, kernel.name, kernel.shared_bytes)


def load_function(image: bytes, name: str, shared_bytes: int) -> Function:
    """The function of this name in an image, loaded on the current device; raises `BilinearError` (E531) if it needs too much there."""
    from cupy.cuda import driver
    from cupy.cuda.function import Module

    with capturing_relaxed():
        module = Module()
        module.load(image)
        function: Function = module.get_function(name)
        driver.funcGetAttribute(NUM_REGS, function.ptr)  # CUDA loads a function when it is first asked for something, or launched
        if shared_bytes:
            try:
                driver.funcSetAttribute(function.ptr, MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
            except driver.CUDADriverError as error:
                message = f"{name} needs {shared_bytes} bytes of shared memory for a block, which this GPU refuses: {error}"
                raise fail("E531", message, "plan with a description of this GPU") from None
        return function


_loaded: dict[tuple[AnyKernel, int, CudaTarget], Function] = {}


def built_function(kernel: AnyKernel, device: int) -> Function:
    """The function of a kernel that has no table, built and loaded once for a device, the current one, and a target."""
    return built_functions((kernel,), device)[0]


def built_functions(kernels: Sequence[AnyKernel], device: int) -> list[Function]:
    """The same for several kernels. Those that are missing are built side by side."""
    target = target_here(device)
    missing = [kernel for kernel in dict.fromkeys(kernels) if (kernel, device, target) not in _loaded]
    for kernel, built in zip(missing, build_kernels(missing, target) if missing else (), strict=True):
        _loaded[kernel, device, target] = _function(kernel, built)
    return [_loaded[kernel, device, target] for kernel in kernels]


_functions: dict[tuple[int, str, str, str, int, str], tuple[Schedule, list[tuple[Launch, Function]]]] = {}
_lock = RLock()  # a signal handler may multiply while its thread builds


def loaded_launches(schedule: Schedule, element: Element, tile: str, mode: str) -> list[tuple[Launch, Function]]:
    """The launches of a schedule with their functions on the current device, built and loaded once.

    The key is the schedule's identity: hashing a deep schedule at every call would cost more than the launches. The entry keeps the
    schedule alive, so an identity is never used twice.
    """
    import cupy

    device = cupy.cuda.Device().id
    target = target_here(device)
    key = (id(schedule), element.name, tile, mode, device, target.name)
    with _lock:
        if key not in _functions:
            program = build_program(schedule, element, [target], tile, mode=mode)
            functions = {own.kernel.name: _function(own.kernel, *own.images) for own in program.kernels}
            _functions[key] = (schedule, [(launch, functions[launch.kernel.name]) for launch in program.launches])
        return _functions[key][1]
