"""bilinear: fast matrix multiplication schemes, proved, scheduled, and compiled to CUDA kernels."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from bilinear.version import __version__

__all__ = [
    "Algorithm",
    "BilinearError",
    "StageError",
    "__version__",
    "check",
    "compile",
    "einsum",
    "free",
    "from_arrays",
    "gram",
    "import_table",
    "load",
    "load_plan",
    "matmul",
    "matmul_bits",
    "matmul_parts",
    "multi_dot",
    "plan",
    "plan_chain",
    "plan_gram",
    "prepare",
    "save_plan",
    "tensordot",
]

if TYPE_CHECKING:
    from bilinear.algorithm import Algorithm, from_arrays, import_table, load
    from bilinear.backends.capture import free
    from bilinear.driver import compile
    from bilinear.errors import BilinearError, StageError
    from bilinear.methods.planning import load_plan
    from bilinear.planner.kept_plans import save_plan
    from bilinear.runtime.auto import plan
    from bilinear.runtime.bits import matmul_bits
    from bilinear.runtime.check import check
    from bilinear.runtime.complex_parts import matmul_parts
    from bilinear.runtime.einsum import einsum, tensordot
    from bilinear.runtime.gram import gram
    from bilinear.runtime.gram_plans import plan_gram
    from bilinear.runtime.matmul import matmul
    from bilinear.runtime.multi_dot import multi_dot, plan_chain
    from bilinear.runtime.prepared import prepare

_HOMES = {
    "BilinearError": "bilinear.errors",
    "StageError": "bilinear.errors",
    "check": "bilinear.runtime.check",
    "compile": "bilinear.driver",
    "einsum": "bilinear.runtime.einsum",
    "Algorithm": "bilinear.algorithm",
    "free": "bilinear.backends.capture",
    "from_arrays": "bilinear.algorithm",
    "gram": "bilinear.runtime.gram",
    "import_table": "bilinear.algorithm",
    "load": "bilinear.algorithm",
    "load_plan": "bilinear.methods.planning",
    "matmul": "bilinear.runtime.matmul",
    "matmul_bits": "bilinear.runtime.bits",
    "matmul_parts": "bilinear.runtime.complex_parts",
    "multi_dot": "bilinear.runtime.multi_dot",
    "plan": "bilinear.runtime.auto",
    "plan_chain": "bilinear.runtime.multi_dot",
    "plan_gram": "bilinear.runtime.gram_plans",
    "prepare": "bilinear.runtime.prepared",
    "save_plan": "bilinear.planner.kept_plans",
    "tensordot": "bilinear.runtime.einsum",
    "transpose": "bilinear.runtime.einsum",  # opt_einsum asks its backends for it; it is not among the public names
}


def __dir__() -> list[str]:
    """Exactly the public names, whatever was imported before."""
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that `import bilinear` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bilinear' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
