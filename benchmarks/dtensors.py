"""Times `bilinear.distributed.matmul` of DTensors beside PyTorch's own multiply of them, and checks C on integers.

mpirun -n 2 python benchmarks/dtensors.py --n 8192 --device cuda --a "Shard(0)" --b "Replicate()"

One GPU a rank with `--device cuda`. Without `--a` and `--b` some pairs of placements are timed. MASTER_ADDR and MASTER_PORT say where the
ranks of PyTorch meet; by default on this host at port 29500. Milliseconds are the medians of the slowest rank.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Callable
from functools import cache
from statistics import median
from time import perf_counter
from typing import Any

from common import Later, need

from bilinear.distributed import matmul
from bilinear.ir.matrix import Array

MPI: Any = Later("mpi4py.MPI")
torch: Any = Later("torch")
dist: Any = Later("torch.distributed")
tensors: Any = Later("torch.distributed.tensor")
KNOWN = {"Shard(0)": ("Shard", 0), "Shard(1)": ("Shard", 1), "Replicate()": ("Replicate",), "Partial()": ("Partial",)}
PAIRS = ("Shard(0)", "Replicate()"), ("Shard(1)", "Shard(0)"), ("Shard(0)", "Shard(0)"), ("Replicate()", "Replicate()")


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1024)
    parser.add_argument("--dtype", default="float64", choices=("float32", "float64"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--a", choices=KNOWN, help="the placement of A")
    parser.add_argument("--b", choices=KNOWN, help="the placement of B")
    parser.add_argument("--decomposition", default="2d")
    parser.add_argument("--algorithm", default="auto", help="of the products on each rank")
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    need("torch", "mpi4py")
    for name, value in (("MASTER_ADDR", "localhost"), ("MASTER_PORT", "29500")):
        os.environ.setdefault(name, value)
    if asked.device == "cuda":
        torch.cuda.set_device(world().rank)
    dist.init_process_group("nccl" if asked.device == "cuda" else "gloo", rank=world().rank, world_size=world().size)
    mesh = Later("torch.distributed.device_mesh").init_device_mesh(asked.device, (world().size,))
    generator = torch.Generator(asked.device).manual_seed(0)
    dtype = getattr(torch, asked.dtype)
    a, b = (torch.randint(-2, 3, (asked.n, asked.n), generator=generator, device=asked.device).to(dtype) for _ in range(2))
    say(f"{asked.n} x {asked.n} by {asked.n} x {asked.n}, {asked.dtype}, {world().size} ranks, {asked.device}, {asked.decomposition}")
    say("A             B             C             PyTorch's C   PyTorch ms  bilinear ms  exact")
    for names in [(asked.a, asked.b)] if asked.a and asked.b else PAIRS:
        left, right = (lay(x, mesh, name) for x, name in zip((a, b), names, strict=True))

        def own(left: Array = left, right: Array = right) -> Array:
            return matmul(left, right, decomposition=asked.decomposition, algorithm=asked.algorithm)

        def theirs(left: Array = left, right: Array = right) -> Array:
            return torch.mm(left, right)

        found, other = own(), theirs()
        is_exact = world().allreduce(torch.equal(found.full_tensor(), a @ b), MPI.LAND)
        lying = [x.placements[0] for x in (found, other)]
        times = [1e3 * slowest(call, asked.repeat, asked.device) for call in (theirs, own)]
        cells = [f"{name:<14}" for name in (*names, *map(named, lying))]
        say(f"{''.join(cells)}{times[0]:>10.2f}{times[1]:>13.2f}  {'yes' if is_exact else 'no'}")
    dist.destroy_process_group()


@cache
def world() -> Any:
    """All ranks."""
    return MPI.COMM_WORLD


def lay(matrix: Array, mesh: Array, name: str) -> Array:
    """The matrix in a placement; where summands are asked for, all but one are zero."""
    if name != "Partial()":
        return tensors.distribute_tensor(matrix, mesh, [placement(name)])
    return tensors.DTensor.from_local(matrix if world().rank == 0 else torch.zeros_like(matrix), mesh, [tensors.Partial()], run_check=False)


def placement(name: str) -> Array:
    kind, *dimension = KNOWN[name]
    return getattr(tensors, str(kind))(*dimension)


def named(lying: Array) -> str:
    return next(name for name in KNOWN if placement(name) == lying)


def slowest(call: Callable[[], Array], repeat: int, device: str) -> float:
    """The median of the seconds of the slowest rank."""
    found = []
    for _ in range(repeat):
        wait(device)
        world().Barrier()
        begin = perf_counter()
        call()
        wait(device)
        found.append(world().allreduce(perf_counter() - begin, MPI.MAX))
    return float(median(found))


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def say(line: str) -> None:
    if world().rank == 0:
        print(line, flush=True)


if __name__ == "__main__":
    main()
