"""PyTorch's DTensors under a real MPI: exact, laid as PyTorch lays them, and refused on every rank alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from network.launch import ROOT, mpirun, needs_torch, told_by

pytestmark = needs_torch

REFUSED = {
    "size": "error[E795]: the mesh has 3 ranks, and the communicator of MPI 1",
    "order": "error[E767]: rank 0 cannot take part: MPI's rank 0 is PyTorch's rank 2, number 2 of the mesh (E795)",
    "turned": "error[E795]: the ranks of the mesh [1, 2, 0] do not ascend along each of its dimensions",
    "array": "error[E797]: B is of type Tensor, and the other operand a DTensor",
    "meshes": "error[E797]: A lies on DeviceMesh(",
    "stack": "error[E797]: A and B have the shapes (6, 6, 2) and (6, 6)",
    "extents": "error[E797]: A and B have the shapes (6, 6) and (5, 6)",
    "largest": "error[E796]: the placement Partial(max) is not one that is multiplied",
    "third": "error[E796]: the placement Shard(dim=2) is not one that is multiplied",
    "count": "error[E796]: placements=[Shard(dim=0), Shard(dim=0)] for a mesh of 1 dimensions",
    "one": "error[E796]: placements=Shard(dim=0) for a mesh of 1 dimensions",
    "type": "error[E517]: a tensor cannot be multiplied as it lies in memory",
    "types": "error[E767]: a piece of B of float32, and one of A of float64",
    "piece": "error[E767]: rank 1 cannot take part: its piece of A has the shape (1, 6), by the distribution it is 2 x 6 (E767)",
    "gradient": "error[E516]: a DTensor requires gradients, and this product records none",
    "bits": "error[E796]: reproducible= promises nothing of Partial, whose sums over ranks are rounded",
    "levels": "error[E760]: levels=0 is not a positive integer",
    "empty": "error[E760]: the shape (6, 6, 0) is not three positive integers",
    "placements": "error[E763]: the ranks differ in placements",
    "shape": "matmul: DTensors say their shapes and how they lie themselves",
    "arrays": "error[E797]: A is of type ndarray, and the other operand a DTensor",
    "no shape": "matmul: shape= and distributions= say how arrays lie",
}
"""What each rank is told."""


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_products_are_exact_and_lie_by_the_table(ranks: int) -> None:
    done = mpirun(ranks, "dtensors.py", "exact")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"rank \d: \d+ products", done.stdout)) == ranks


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    """On ranks that meet at a file; a port may be taken."""
    page = (ROOT / "docs" / "distributed.md").read_text().partition("### PyTorch's DTensors")[2]
    code = page.partition("```python\n")[2].partition("```")[0]
    start = 'init_process_group("gloo", '
    assert start in code
    program = code.replace(start, f'{start}init_method="file://{tmp_path}/store", ')
    checks = """
assert c.placements == (Shard(0),) and d.placements == (Replicate(),) and c.shape == d.shape == (1000, 600)
assert torch.allclose(c.full_tensor(), a.full_tensor() @ b.to_local(), atol=1e-3)
assert torch.allclose(d.to_local(), c.full_tensor(), atol=1e-2)
dist.destroy_process_group()
print("as the page says")
"""
    file = tmp_path / "page.py"
    file.write_text(program + checks)
    done = mpirun(2, str(file))
    assert done.returncode == 0 and done.stdout.count("as the page says") == 2, done.stdout + done.stderr


def test_what_is_refused_is_refused_by_all_ranks_and_a_rank_that_fails_ends_all() -> None:
    done = mpirun(3, "dtensors.py", "refused")
    for rank in range(3):
        lines = told_by(rank, done.stdout).splitlines()
        assert [line.partition(": ")[0] for line in lines] == [*REFUSED, "sound afterwards"], done.stderr
        assert all(line.partition(": ")[2].startswith(error) for line, error in zip(lines, REFUSED.values(), strict=False)), lines
    assert done.returncode != 0
    told = [rank for rank in (0, 2) if "error[E764]: rank 1 failed: MemoryError: no room for a product" in told_by(rank, done.stderr)]
    assert told, done.stderr  # the launcher ends the other one if this process was slow
