"""Matrices over many machines: `matmul` on the ranks of MPI, and the distributions in which pieces come and go (docs/distributed.md)."""

from bilinear.distributed.distributions import BlockCyclic, BlockNonCyclic, Pieces, ProcessGrid, Slab, from_descriptor, shape
from bilinear.distributed.multiply import home, matmul

__all__ = ["BlockCyclic", "BlockNonCyclic", "Pieces", "ProcessGrid", "Slab", "from_descriptor", "home", "matmul", "shape"]
