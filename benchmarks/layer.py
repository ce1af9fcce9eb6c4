"""One transformer layer in bfloat16, prefill and training steps: plain PyTorch beside `bilinear.torch.using("auto")`.

The layer is attention and a gated feed-forward network (RMSNorm, SiLU), of 7B sizes by default. Both ways train from the same weights on
the same batch; the rounds of timed steps alternate. It tells times, losses, and for each product of a step forwards the plan of `auto`.
"""

from __future__ import annotations

from contextlib import nullcontext
from time import perf_counter
from typing import Any

from common import Call, median, need, orders, parser_of, save

import bilinear
from bilinear.errors import BilinearError


def layer_of(hidden: int, inner: int, heads: int, device: str) -> Any:
    """The layer as a module."""
    import torch
    from torch.nn import functional

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            make = {"bias": False, "dtype": torch.bfloat16, "device": device}
            self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(hidden, dtype=torch.bfloat16, device=device) for _ in range(2))
            self.qkv, self.out = torch.nn.Linear(hidden, 3 * hidden, **make), torch.nn.Linear(hidden, hidden, **make)
            self.up, self.down = torch.nn.Linear(hidden, 2 * inner, **make), torch.nn.Linear(inner, hidden, **make)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = (part.view(batch, length, heads, -1).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
            x = x + self.out(mixed)
            gate, value = self.up(self.norms[1](x)).chunk(2, -1)
            return x + self.down(functional.silu(gate) * value)

    return Layer()


def plans(tokens: int, products: dict[str, tuple[int, int]]) -> list[dict[str, Any]]:
    """What `auto` runs for each product of a forward step, and why."""
    rows = []
    for name, (inputs, outputs) in products.items():
        try:
            chosen = bilinear.plan(tokens, inputs, outputs, "bfloat16").chosen
            ran, why = chosen.name, chosen.why
        except BilinearError as error:
            ran, why = "PyTorch", str(error).splitlines()[0]
        rows.append({"product": name, "m": tokens, "k": inputs, "n": outputs, "ran": ran, "why": why})
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    for name, value in (("hidden", 4096), ("inner", 11008), ("heads", 32), ("length", 4096), ("batch", 2), ("steps", 20), ("repeats", 7)):
        parser.add_argument(f"--{name}", type=int, default=value)
    o = parser.parse_args()
    need("torch")
    import torch

    import bilinear.torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokens, rows, losses = o.batch * o.length, list[dict[str, Any]](), dict[str, list[float]]()
    products = {
        "q, k, v": (o.hidden, 3 * o.hidden),
        "out": (o.hidden, o.hidden),
        "up": (o.hidden, 2 * o.inner),
        "down": (o.inner, o.hidden),
    }
    for row in plans(tokens, products):
        rows.append(row)
        print("{product:8} {m:6} x {k:5} x {n:5}  {ran:12} {why}".format(**row), flush=True)
    ways = {"torch": nullcontext(), "using auto": bilinear.torch.using("auto")}
    runs: dict[tuple[str, str], Call] = {}
    for name, way in ways.items():
        torch.manual_seed(0)
        layer, data = layer_of(o.hidden, o.inner, o.heads, device), torch.Generator(device).manual_seed(1)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        x, to = (torch.randn(o.batch, o.length, o.hidden, device=device, generator=data).bfloat16() for _ in range(2))

        def step(layer: Any = layer, optimizer: Any = optimizer, x: Any = x, to: Any = to, way: Any = way) -> Any:
            with way:
                loss = (layer(x).float() - to.float()).square().mean()
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()
            return loss.detach()

        def prefill(layer: Any = layer, x: Any = x, way: Any = way) -> None:
            with torch.no_grad(), way:
                layer(x)

        losses[name] = [float(step()) for _ in range(o.steps)]
        runs |= {(name, "prefill"): prefill, (name, "training step"): step}
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in runs}
    for order in orders(runs, o.repeats + 1):
        for key in order:
            wait()
            start = perf_counter()
            runs[key]()
            wait()
            seconds[key].append(perf_counter() - start)
    for name, what in runs:
        ms, plain = (median(seconds[way, what][1:]) * 1e3 for way in (name, "torch"))
        rows.append({"way": name, "what": what, "ms": ms, "ratio": plain / ms, "losses": losses[name]})
        print(
            f"{name:10} {what:13} {ms:9.3f} ms, {plain / ms:.3f} of torch; losses {losses[name][0]:.5f} ... {losses[name][-1]:.5f}",
            flush=True,
        )
    far = max(abs(x - y) / x for x, y in zip(*losses.values(), strict=True))
    print(f"the losses of {o.steps} steps differ by {far:.1e} of themselves at most")
    if far > 0.01:
        raise SystemExit("the losses differ")
    if o.json is not None:
        save("layer", rows, o.json)


if __name__ == "__main__":
    main()
