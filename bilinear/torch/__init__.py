"""PyTorch with fast multiplies: operators with gradients, which `torch.compile` keeps whole, a layer, and a context for whole models.

Importing it imports PyTorch, 2.6 or newer (E571 without), and registers the operators `torch.ops.bilinear.mm` and `torch.ops.bilinear.bmm`.
"""

from __future__ import annotations

from bilinear.errors import fail

try:
    import torch
except ImportError:
    raise fail("E571", "bilinear.torch needs PyTorch, which is not installed", "pip install 'torch>=2.6'") from None
if not hasattr(torch.library, "register_vmap") or not hasattr(torch.library, "register_autocast"):
    raise fail("E571", f"PyTorch {torch.__version__} lacks rules that bilinear.torch registers", "pip install 'torch>=2.6'")

from bilinear.runtime.torch_operators import matmul
from bilinear.torch.mode import Linear, linear, using

__all__ = ["Linear", "linear", "matmul", "using"]


def __dir__() -> list[str]:
    return __all__
