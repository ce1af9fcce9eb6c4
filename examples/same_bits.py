"""One matrix product in many ways: NumPy gives several results, `reproducible="bitwise"` gives one. On a GPU, its ways are shown, too."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np

import bilinear

M, K, N = 256, 384, 192


def checksum(c: Any) -> str:
    return sha256(np.ascontiguousarray(c).tobytes()).hexdigest()[:12]


def ways(product: Callable[[Any, Any], Any], a: Any, b: Any) -> dict[str, str]:
    """The checksums of A*B, computed in ways that mean the same sums."""
    random, half = np.random.default_rng(2), M // 2
    order, rows, columns = random.permutation(K), random.permutation(M), random.permutation(N)
    apart = np.zeros((2 * M, 3 * K), a.dtype)
    apart[::2, ::3] = a
    return {
        "whole": checksum(product(a, b)),
        "single rows": checksum(np.stack([product(row, b) for row in a])),
        "halves of the rows": checksum(np.concatenate([product(a[:half], b), product(a[half:], b)])),
        "quarters": checksum(np.block([[product(x, y) for y in np.split(b, 2, 1)] for x in np.split(a, 2)])),
        "rows in another order": checksum(product(a[rows], b)[np.argsort(rows)]),
        "columns in another order": checksum(product(a, b[:, columns])[:, np.argsort(columns)]),
        "single columns": checksum(np.stack([product(a, column) for column in b.T.copy()], 1)),
        "terms in another order": checksum(product(a[:, order], b[order])),
        "stored by columns": checksum(product(np.asfortranarray(a), np.asfortranarray(b))),
        "between other numbers": checksum(product(apart[::2, ::3], b)),
        "transposed": checksum(product(b.T, a.T).T),
        "a stack of four": checksum(product(a.reshape(4, M // 4, K), b).reshape(M, N)),
    }


def main() -> None:
    random = np.random.default_rng(1)
    for dtype in ("float64", "float32"):
        a, b = random.standard_normal((M, K)).astype(dtype), random.standard_normal((K, N)).astype(dtype)
        same = ways(lambda x, y: bilinear.matmul(x, y, reproducible="bitwise"), a, b)
        try:
            import cupy

            if cupy.cuda.is_available():
                on_gpu = ways(lambda x, y: bilinear.matmul(cupy.asarray(x), cupy.asarray(y), reproducible="bitwise").get(), a, b)
                same |= {f"{way}, on a GPU": found for way, found in on_gpu.items()}
        except ImportError:
            pass
        print(f"{dtype}: {len(set(ways(np.matmul, a, b).values()))} checksums by NumPy, {len(set(same.values()))} with the same bits")
        for way, found in same.items():
            print(f"  {found}  {way}")
        assert len(set(same.values())) == 1


if __name__ == "__main__":
    main()
