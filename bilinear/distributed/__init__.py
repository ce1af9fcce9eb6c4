"""Matrices over many machines: products and chains on the ranks of MPI, and how pieces come and go (docs/distributed.md)."""

from bilinear.distributed.call import matmul
from bilinear.distributed.chain import Machine, chain_plan, multi_dot
from bilinear.distributed.distributions import BlockCyclic, BlockNonCyclic, Pieces, ProcessGrid, Slab, from_descriptor, shape
from bilinear.distributed.multiply import home

__all__ = [
    "BlockCyclic",
    "BlockNonCyclic",
    "Machine",
    "Pieces",
    "ProcessGrid",
    "Slab",
    "chain_plan",
    "from_descriptor",
    "home",
    "matmul",
    "multi_dot",
    "shape",
]


def __dir__() -> list[str]:
    return __all__
