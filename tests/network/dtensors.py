"""A program for mpirun: PyTorch's DTensors multiplied, exact on integers, laid as PyTorch lays them, and refused where they must be.

`dtensors.py exact` or `refused`, after which rank 1 fails and all end; with `cuda` as well, on GPUs, one a rank.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from bilinear import matmul as bilinear_matmul
from bilinear.distributed import Slab, matmul, multiply
from bilinear.distributed.connection import connected
from bilinear.errors import BilinearError
from bilinear.ir.matrix import Array

TIMEOUT = 300.0
COMM = MPI.COMM_WORLD
DEVICE = "cuda" if "cuda" in sys.argv else "cpu"
ROWS, COLUMNS, COPIES, SUMMANDS = KINDS = Shard(0), Shard(1), Replicate(), Partial()
TABLE = {
    ROWS: dict.fromkeys(KINDS, ROWS),
    COLUMNS: {ROWS: SUMMANDS, COLUMNS: COLUMNS, COPIES: SUMMANDS, SUMMANDS: COLUMNS},
    COPIES: {ROWS: SUMMANDS, COLUMNS: COLUMNS, COPIES: COPIES, SUMMANDS: COLUMNS},
    SUMMANDS: dict.fromkeys(KINDS, ROWS),
}
"""C of A and B: the table of docs/distributed.md."""
AS_PYTORCH = [(ROWS, COPIES), (COPIES, COLUMNS), (COLUMNS, ROWS), (COLUMNS, COPIES), (COPIES, ROWS), (COPIES, COPIES)]
"""What PyTorch's own multiply needs no messages for, and so gives the same placements."""


def integers(*shape: int, seed: int = 0, dtype: Array = torch.float64) -> Array:
    return torch.from_numpy(np.random.default_rng(seed).integers(-9, 10, shape)).to(DEVICE, dtype)


def laid(full: Array, mesh: Array, placements: Sequence[Array]) -> Array:
    """The matrix as a DTensor; where summands are asked for, they are random, and their sum is the matrix."""
    dimensions = [at for at, placement in enumerate(placements) if placement == SUMMANDS]
    if not dimensions:
        return distribute_tensor(full, mesh, placements)
    count = prod(mesh.mesh.shape[at] for at in dimensions)
    summands = [integers(*full.shape, seed=9 + at, dtype=full.dtype) for at in range(count - 1)]
    summands.append(full - sum(summands))
    rest = [COPIES if at in dimensions else placement for at, placement in enumerate(placements)]
    pieces = [distribute_tensor(summand, mesh, rest).to_local() for summand in summands]
    place, own = mesh.get_coordinate(), 0
    for at in dimensions:
        own = own * mesh.mesh.shape[at] + place[at]
    return DTensor.from_local(pieces[own], mesh, placements, run_check=False, shape=full.shape, stride=full.stride())


def check(mesh: Array, lying: Sequence[Sequence[Array]], extents: tuple[int, int, int], dtype: Array, **options: Array) -> Array:
    """Multiply; C must be exact and lie as PyTorch would lay it."""
    (m, k, n), (left, right) = extents, lying
    a, b = integers(m, k, dtype=dtype), integers(k, n, seed=1, dtype=dtype)
    found = matmul(laid(a, mesh, left), laid(b, mesh, right), timeout=TIMEOUT, **options)
    wanted = tuple(options.get("placements") or (TABLE[x][y] for x, y in zip(left, right, strict=True)))
    told = f"{mesh} {left} {right} {extents} {dtype} {options}"
    assert isinstance(found, DTensor) and found.placements == wanted and found.device_mesh == mesh, told
    assert found.shape == (m, n) and found.dtype == dtype and found.stride() == (n, 1), told
    exact = a.double() @ b.double()
    assert torch.equal(found.full_tensor().double(), exact), told
    same = distribute_tensor(exact, mesh, [COPIES if placement == SUMMANDS else placement for placement in wanted]).to_local()
    piece = found.to_local()
    assert piece.shape == same.shape and piece.device.type == DEVICE and piece.is_contiguous(), told
    assert SUMMANDS in wanted or torch.equal(piece.double(), same), told
    return found


def exact() -> None:
    ranks, calls = COMM.size, 0
    line = init_device_mesh(DEVICE, (ranks,))
    for at, (left, right) in enumerate(product(KINDS, repeat=2)):
        types = [torch.float64, torch.float32]
        check(line, ([left], [right]), ((8, 12, 4), (7, 5, 9), (1, 2, 3))[at % 3], types[at % 2])
        check(line, ([left], [right]), (9, 10, 11), torch.float64, decomposition="strassen", placements=[KINDS[at % 4]])
        check(line, ([left], [right]), (6, 7, 8), types[(at + 1) % 2], placements=[KINDS[(at + 1) % 4]])
        calls += 3
    for left, right in AS_PYTORCH:
        a, b = (laid(integers(8, 8), line, [placement]) for placement in (left, right))
        assert ranks == 1 or torch.mm(a, b).placements == (TABLE[left][right],), (left, right)
    shapes = {shape: None for shape in ((ranks, 1), (1, ranks), (2, ranks // 2)) if prod(shape) == ranks}
    chosen = random.Random(ranks)
    for mesh in (init_device_mesh(DEVICE, shape) for shape in shapes):
        for at in range(20):
            placements = [[chosen.choice(KINDS) for _ in range(2)] for _ in range(3)]
            options = {"placements": placements[2]} if at % 2 else {}
            check(mesh, placements[:2], (9, 10, 7), torch.float64, decomposition="winograd" if at % 5 == 0 else "2d", **options)
            calls += 1
    others(line)
    print(f"rank {COMM.rank}: {calls} products")


def others(line: Array) -> None:
    """Without messages; meshes numbered by columns and of some ranks; pieces that are on their way; other types; a plan on each rank."""
    connection = connected(None, TIMEOUT)
    before = connection.sent, connection.received
    check(line, ([ROWS], [COPIES]), (9, 8, 7), torch.float64)
    check(line, ([COLUMNS], [ROWS]), (9, 8, 7), torch.float64)
    assert before == (connection.sent, connection.received)
    if COMM.size == 4:
        by_columns = DeviceMesh(DEVICE, [[0, 2], [1, 3]])
        for lying in (([ROWS, COLUMNS], [ROWS, COLUMNS]), ([COLUMNS, COPIES], [SUMMANDS, COLUMNS])):
            check(by_columns, lying, (9, 8, 7), torch.float64)
        check(by_columns, ([COLUMNS, COPIES], [COPIES, COPIES]), (9, 8, 7), torch.float64, placements=[COPIES, SUMMANDS])
        square = init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("outer", "inner"))
        row = COMM.Split(COMM.rank // 2, COMM.rank)
        check(square["inner"], ([ROWS], [COLUMNS]), (9, 8, 7), torch.float64, comm=row)
    a, b = laid(integers(6, 6), line, [ROWS]), laid(integers(6, 6, seed=1), line, [SUMMANDS])
    moving = a.redistribute(line, [COPIES], async_op=True)
    assert torch.equal(matmul(moving, b, timeout=TIMEOUT).full_tensor(), integers(6, 6) @ integers(6, 6, seed=1))
    a = laid(integers(7, 5), line, [ROWS])
    assert torch.equal(matmul(a.t(), a, timeout=TIMEOUT).full_tensor(), integers(7, 5).t() @ integers(7, 5))
    check(line, ([ROWS], [COLUMNS]), (5, 6, 7), torch.int64)
    check(line, ([ROWS], [COLUMNS]), (64, 64, 64), torch.float64, algorithm="strassen", local_levels=1, decomposition="winograd", levels=1)
    a = laid(integers(6, 6), line, [ROWS]).requires_grad_()
    with torch.no_grad():
        found = matmul(a, a, timeout=TIMEOUT)
    assert not found.requires_grad and torch.equal(found.full_tensor(), integers(6, 6) @ integers(6, 6))
    for lying in AS_PYTORCH:
        gradients(line, lying)
    bits(line)


def bits(mesh: Array) -> None:
    """Wherever k is cut in what ranks hold, C has the bits of one process."""
    random = np.random.default_rng(8)
    a, b = (torch.from_numpy(random.standard_normal(x) * 10.0 ** random.uniform(-15, 15, x)).to(DEVICE) for x in ((9, 50), (50, 7)))
    wanted = bilinear_matmul(a, b, reproducible="bitwise")
    for at, (left, right) in enumerate(product((ROWS, COLUMNS, COPIES), repeat=2)):
        to = [(ROWS, COLUMNS, COPIES)[at % 3]]
        found = matmul(distribute_tensor(a, mesh, [left]), distribute_tensor(b, mesh, [right]), placements=to, reproducible="bitwise")
        assert list(found.placements) == to and torch.equal(found.full_tensor(), wanted), (left, right)


def gradients(mesh: Array, lying: Sequence[Array]) -> None:
    """The operators multiply what each rank has: C and both gradients are exact and lie as PyTorch lays its own."""
    right, each = integers(12, 4, seed=1), mesh.size()  # matrices: fewer than ranks lie otherwise
    for shapes in ((integers(8, 12), right), (integers(each, 4, 12), right.expand(each, 12, 4))):
        results = []
        for multiplied in (bilinear_matmul, torch.matmul):
            a, b = (distribute_tensor(x, mesh, [to]).requires_grad_() for x, to in zip(shapes, lying, strict=True))
            c = multiplied(a, b)
            c.full_tensor().square().sum().backward()
            results.append((c, a.grad, b.grad))
        for found, wanted in zip(*results, strict=True):
            assert found.placements == wanted.placements and torch.equal(found.full_tensor(), wanted.full_tensor()), (lying, found, wanted)


def refused() -> None:
    """Prints the error of each call; rank 1 alone deviates where the name says so."""
    line, is_odd = init_device_mesh(DEVICE, (COMM.size,)), COMM.rank == 1
    a, b = (laid(integers(6, 6, seed=seed), line, [ROWS]) for seed in (0, 1))
    half = a.to(torch.bfloat16)
    uneven = DTensor.from_local(a.to_local()[: 1 if is_odd else None], line, [ROWS], run_check=False, shape=(6, 6), stride=(6, 1))
    backwards = COMM.Split(0, -COMM.rank)
    turned = DTensor.from_local(a.to_local(), DeviceMesh(DEVICE, [*range(1, COMM.size), 0]), [ROWS], run_check=False)
    stack = distribute_tensor(integers(6, 6, 2), line, [ROWS])
    calls: dict[str, Callable[[], Array]] = {
        "size": lambda: matmul(a, b, comm=MPI.COMM_SELF, timeout=TIMEOUT),
        "order": lambda: matmul(a, b, comm=backwards, timeout=TIMEOUT),
        "turned": lambda: matmul(turned, turned, timeout=TIMEOUT),
        "array": lambda: matmul(a, b.to_local(), timeout=TIMEOUT),
        "meshes": lambda: matmul(a, laid(integers(6, 6), init_device_mesh(DEVICE, (COMM.size, 1)), [ROWS, COPIES]), timeout=TIMEOUT),
        "stack": lambda: matmul(stack, b, timeout=TIMEOUT),
        "extents": lambda: matmul(a, laid(integers(5, 6), line, [ROWS]), timeout=TIMEOUT),
        "largest": lambda: matmul(a, DTensor.from_local(b.full_tensor(), line, [Partial("max")], run_check=False), timeout=TIMEOUT),
        "third": lambda: matmul(a, b, placements=[Shard(2)], timeout=TIMEOUT),
        "count": lambda: matmul(a, b, placements=[ROWS, ROWS], timeout=TIMEOUT),
        "one": lambda: matmul(a, b, placements=ROWS, timeout=TIMEOUT),
        "type": lambda: matmul(half, half, timeout=TIMEOUT),
        "types": lambda: matmul(a, b.to(torch.float32), timeout=TIMEOUT),
        "piece": lambda: matmul(uneven, b, timeout=TIMEOUT),
        "gradient": lambda: matmul(a.detach().requires_grad_(), b, timeout=TIMEOUT),
        "bits": lambda: matmul(a, laid(integers(6, 6), line, [SUMMANDS]), reproducible="bitwise", timeout=TIMEOUT),
        "levels": lambda: matmul(a, laid(integers(6, 6), line, [COPIES]), levels=0, timeout=TIMEOUT),
        "empty": lambda: matmul(a, laid(integers(6, 0), line, [COPIES]), timeout=TIMEOUT),
        "placements": lambda: matmul(a, b, placements=[COLUMNS if is_odd else ROWS], timeout=TIMEOUT),
        "shape": lambda: matmul(a, b, shape=(6, 6, 6), timeout=TIMEOUT),
        "arrays": lambda: matmul(a.to_local().numpy(force=True), b, placements=[ROWS], timeout=TIMEOUT),
        "no shape": lambda: matmul(np.ones((2, 2)), np.ones((2, 2)), distributions=Slab.X, timeout=TIMEOUT),
    }
    for name, call in calls.items():
        try:
            call()
        except (BilinearError, TypeError) as error:
            first = str(error).splitlines()[0]
            print(f"{name}: {first}", flush=True)
    check(line, ([ROWS], [ROWS]), (6, 6, 6), torch.float64)
    print("sound afterwards", flush=True)
    raised(a)


def raised(a: Array) -> None:
    """Rank 1 fails in its product."""

    def no_room(*_: Array, **__: Array) -> Array:
        raise MemoryError("no room for a product")

    if COMM.rank == 1:
        setattr(multiply, "multiply_here", no_room)  # noqa: B010
    matmul(a, a, decomposition="strassen", timeout=TIMEOUT)
    print("went on")


def main() -> None:
    torch.set_num_threads(1)
    if DEVICE == "cuda":
        torch.cuda.set_device(COMM.rank)
    folder = COMM.bcast(mkdtemp() if COMM.rank == 0 else None)
    store = dist.FileStore(str(Path(folder) / "store"), COMM.size)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo", store=store, rank=COMM.rank, world_size=COMM.size)
    {"exact": exact, "refused": refused}[sys.argv[1]]()
    dist.destroy_process_group()
    COMM.Barrier()
    if COMM.rank == 0:
        rmtree(folder)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
