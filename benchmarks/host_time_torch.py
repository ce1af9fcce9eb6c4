"""Host time of a repeated product of PyTorch's tensors on a GPU, beside `torch.mm`: calls in a row, the median of rounds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from common import median, need, need_gpu, orders, parser_of, save

CALLS, ROUNDS, SIZES = 100, 15, (64, 512, 1024)


def cases(n: int) -> dict[str, Callable[[], object]]:
    """The calls of n x n products, by name."""
    import torch

    import bilinear.torch

    a, b, c = (torch.randn(n, n, device="cuda") for _ in "ABC")
    half = [x.bfloat16() for x in (a, b, c)]
    asking, layer, other = a.clone().requires_grad_(), bilinear.torch.Linear(n, n, device="cuda"), torch.nn.Linear(n, n, device="cuda")
    return {
        "torch.mm, out": partial(torch.mm, a, b, out=c),
        "torch.mm": partial(torch.mm, a, b),
        "torch.mm, gradients": partial(torch.mm, asking, b),
        "torch.mm, bfloat16, out": partial(torch.mm, *half[:2], out=half[2]),
        "torch.nn.Linear": lambda: other.forward(a),
        "bilinear, out": partial(bilinear.matmul, a, b, c),
        "bilinear": partial(bilinear.matmul, a, b),
        "bilinear, gradients": partial(bilinear.matmul, asking, b),
        "bilinear, bfloat16, out": partial(bilinear.matmul, *half),
        "bilinear.torch.Linear": lambda: layer.forward(a),
    }


def microseconds(call: Callable[[], object]) -> float:
    """The host time of one of some calls in a row, the device idle at the start."""
    import torch

    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(CALLS):
        call()
    return (perf_counter() - start) / CALLS * 1e6


def main() -> None:
    parser = parser_of(__doc__)
    path = parser.parse_args().json
    need_gpu()
    need("torch")
    rows: list[dict[str, Any]] = []
    for n in SIZES:
        calls = cases(n)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for call in calls.values():
            call(), call()
        for order in orders(calls, ROUNDS):
            for name in order:
                times[name].append(microseconds(calls[name]))
        rows += [{"size": n, "case": name, "us": round(median(found), 1)} for name, found in times.items()]
        print(n, {row["case"]: row["us"] for row in rows if row["size"] == n}, flush=True)
    save("host_time_torch", rows, path)


if __name__ == "__main__":
    main()
