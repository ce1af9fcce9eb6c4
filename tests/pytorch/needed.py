"""PyTorch, or one reason to skip; and exact operands."""

from __future__ import annotations

import pytest

from bilinear.ir.matrix import Array

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test-torch installs it and runs these tests")


def integers(*shape: int, seed: int = 0, dtype: object = None) -> Array:
    """Small integers: their sums and products are exact in float32 and in wider types."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randint(-4, 5, shape, generator=generator).to(torch.float64 if dtype is None else dtype)
