"""Train a small transformer twice from one seed, by the library's multiply and by a named algorithm: losses, time and memory.

The task is synthetic: each token is the sum of the two before it. On a GPU it is trained there.
"""

import argparse
import resource
import sys
import time
from contextlib import nullcontext

try:
    import torch
except ImportError:
    print("PyTorch is not installed: pip install torch")
    sys.exit()
import bilinear.torch

TOKENS, LENGTH, BATCH = 16, 32, 16


def batch(generator: torch.Generator) -> torch.Tensor:
    tokens = torch.randint(TOKENS, (BATCH, LENGTH), generator=generator)
    for at in range(2, LENGTH):
        tokens[:, at] = (tokens[:, at - 1] + tokens[:, at - 2]) % TOKENS
    return tokens


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed, self.place = torch.nn.Embedding(TOKENS, width), torch.nn.Embedding(LENGTH, width)
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, TOKENS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.layers(self.embed(tokens) + self.place.weight[: tokens.shape[1]], mask=mask, is_causal=True))


def train(steps: int, width: int, device: str) -> list[float]:
    torch.manual_seed(0)
    generator, model = torch.Generator().manual_seed(1), Model(width).to(device)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=3e-3), []
    for _ in range(steps):
        tokens = batch(generator).to(device)
        guesses = model(tokens[:, :-1])[:, 1:]
        loss = torch.nn.functional.cross_entropy(guesses.reshape(-1, TOKENS), tokens[:, 2:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


parser = argparse.ArgumentParser()
for option, default in (("--steps", 20), ("--width", 32), ("--algorithm", "strassen"), ("--levels", 1)):
    parser.add_argument(option, type=type(default), default=default)
asked = parser.parse_args()
on_gpu, losses = torch.cuda.is_available(), []
for name, multiply in ("library", nullcontext()), (asked.algorithm, bilinear.torch.using(asked.algorithm, levels=asked.levels)):
    start = time.perf_counter()
    with multiply:
        losses.append(train(asked.steps, asked.width, "cuda" if on_gpu else "cpu"))
    seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    shown = " ".join(f"{loss:.4f}" for loss in losses[-1][:: max(1, asked.steps // 5)])
    print(f"{name:10} losses {shown}; {seconds:.2f} s; most memory so far {peak / 2**20:.0f} MiB")
print(f"the losses differ by {max(abs(x - y) / x for x, y in zip(*losses, strict=True)):.1e} of themselves at most")
