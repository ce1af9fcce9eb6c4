"""Exactness of 16-bit products on a GPU: results of float32, A*A^T, and two types; integers small enough that every sum is exact."""

from __future__ import annotations

from typing import Any

from common import need_gpu

import bilinear


def main() -> None:
    need_gpu()
    import torch

    ways: tuple[dict[str, Any], ...] = ({}, {"algorithm": "winograd", "levels": 1}, {"algorithm": "winograd", "levels": 2})
    generator = torch.Generator(device="cuda").manual_seed(3)
    for name in ("bfloat16", "float16"):
        dtype = getattr(torch, name)
        a, b = (torch.randint(-7, 8, shape, generator=generator, device="cuda").to(dtype) for shape in ((1500, 1100), (1100, 1300)))
        wanted = (a.double() @ b.double()).float()
        for options in ways:
            c = torch.full((1500, 1300), float("nan"), device="cuda")
            bilinear.matmul(a, b, c, **options)
            assert torch.equal(c, wanted), (name, options)
            small = (a > 0).to(dtype)[:, :48]  # products of sums of four are at most 192, so that they are exact in 16 bits, too
            found = bilinear.gram(small, **options)
            assert found.dtype == dtype and torch.equal(found.double(), small.double() @ small.double().T), (name, options)
        mixed = bilinear.matmul(a, b.float(), algorithm="winograd", levels=1)
        assert mixed.dtype == torch.float32 and torch.equal(mixed, wanted), name
    print("results of float32, A*A^T and mixed types: exact")


if __name__ == "__main__":
    main()
