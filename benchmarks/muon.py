"""The five Newton-Schulz steps of Muon in bfloat16: by `bilinear.gram` beside PyTorch's products, eager and compiled.

X X^T and its square are symmetric, so each takes half of the multiplications; the square is A A^T of a symmetric A. All ways begin with the
same X. The singular values must come out as the polynomial's of those in float64, and the error by norm against float64 must be at most
twice that of PyTorch's products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from common import Call, by_clock, interleaved, median, need, parser_of, save

import bilinear

A, B, C, STEPS = 3.4445, -4.7750, 2.0315, 5
"""The quintic's coefficients: K. Jordan and others, Muon: an optimizer for hidden layers in neural networks (2024)."""


def by_torch(x: Any) -> Any:
    import torch

    for _ in range(STEPS):
        square = x @ x.mT
        x = torch.addmm(x, torch.addmm(square, square, square, beta=B, alpha=C), x, beta=A)
    return x


def by_bilinear(x: Any) -> Any:
    import torch

    for _ in range(STEPS):
        square = bilinear.gram(x)
        polynomial = bilinear.gram(square, square.clone(), alpha=C, beta=B)
        x = torch.addmm(x, polynomial, x, beta=A)
    return x


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--shapes", default="4096x11008,4096x4096,8192x8192", help="comma-separated ROWSxCOLUMNS, no more rows than columns"
    )
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    need("torch")
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    ways: dict[str, Callable[[Any], Any]] = {"torch": by_torch, "bilinear": by_bilinear}
    if not options.no_compile:
        ways["compiled"] = torch.compile(by_torch)
    rows: list[dict[str, Any]] = []
    for shape in options.shapes.split(","):
        n, k = map(int, shape.split("x"))
        g = torch.randn(n, k, device=device, generator=torch.Generator(device).manual_seed(1))
        start = (g / g.norm()).bfloat16()
        u, values, vt = torch.linalg.svd(start.double(), full_matrices=False)
        for _ in range(STEPS):
            values = A * values + B * values**3 + C * values**5
        wanted, errors = (u * values) @ vt, {}
        for name, way in ways.items():
            x = way(start).double()
            errors[name] = float((x - wanted).norm() / wanted.norm()), float((x @ x.mT - torch.eye(n, device=device)).norm() / n**0.5)
        del u, vt, wanted, x
        calls: dict[str, Call] = {name: partial(way, start) for name, way in ways.items()}
        times = interleaved(calls, options.repeats) if device == "cuda" else by_clock(calls, options.repeats, perf_counter)
        for name, found in times.items():
            ms = median(found) * (1 if device == "cuda" else 1e3)
            far, apart = errors[name]
            row = {"rows": n, "columns": k, "way": name, "ms": ms, "error": far, "not_orthogonal": apart}
            rows.append(row | {"ratio": median(times["torch"]) / median(found)})
            ratio = rows[-1]["ratio"]
            print(f"{n} x {k} {name:9} {ms:9.3f} ms, {ratio:.2f} of torch; error {far:.2e}, |XX^T - I| {apart:.3f}", flush=True)
        if errors["bilinear"][0] > 2 * errors["torch"][0]:
            raise SystemExit("the error is too large")
    if options.json is not None:
        save("muon", rows, options.json)


if __name__ == "__main__":
    main()
