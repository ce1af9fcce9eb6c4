"""Run emitted CUDA C on a CPU: the host's C++ compiler, one fiber per CUDA thread, undefined behaviour reported."""

from bilinear.emulator.compiler import CompileError, compile_on_cpu, compiler_name, skip_reason, without_barrier
from bilinear.emulator.guard import guarded, guarded_empty
from bilinear.emulator.launch import (
    ORDERS,
    AccessError,
    AlignmentError,
    AsyncError,
    BarrierError,
    CompiledModule,
    HangError,
    LaunchError,
    Order,
    TrapError,
    UndefinedError,
)

__all__ = [
    "ORDERS",
    "AccessError",
    "AlignmentError",
    "AsyncError",
    "BarrierError",
    "CompileError",
    "HangError",
    "LaunchError",
    "CompiledModule",
    "Order",
    "TrapError",
    "UndefinedError",
    "compile_on_cpu",
    "compiler_name",
    "guarded",
    "guarded_empty",
    "skip_reason",
    "without_barrier",
]
