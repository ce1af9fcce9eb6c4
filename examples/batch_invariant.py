"""The logits of a small transformer at batch 1, 7 and 64: PyTorch's differ in their last bits, those by the same bits do not."""

import sys
import time
from contextlib import nullcontext

try:
    import torch
except ImportError:
    print("PyTorch is not installed: pip install torch")
    sys.exit()
import bilinear.torch

TOKENS, LENGTH, WIDTH, HEADS, BATCHES = 32, 8, 256, 2, (1, 7, 64)


class Layer(torch.nn.Module):  # type: ignore[misc]
    """Attention written as products, which the context takes; a fused one it would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.inside, self.outside = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.inside(self.before(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0], parts[1], parts[2]
        scores = query @ key.mT / (WIDTH // HEADS) ** 0.5
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=x.device).triu(1)
        seen = scores.masked_fill(mask, float("-inf")).softmax(-1) @ value
        x = x + self.outside(seen.transpose(1, 2).flatten(-2))
        return x + self.narrow(self.wide(self.after(x)).relu())


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(torch.nn.Embedding(TOKENS, WIDTH), Layer(), torch.nn.Linear(WIDTH, TOKENS)).to(device)
    tokens = torch.randint(TOKENS, (max(BATCHES), LENGTH), device=device)
    for name, context in ("PyTorch", nullcontext()), ("the same bits", bilinear.torch.using(reproducible="bitwise")):
        with torch.no_grad(), context:
            begin = time.perf_counter()
            logits = {batch: torch.cat([model(part) for part in tokens.split(batch)]) for batch in BATCHES}
            seconds = time.perf_counter() - begin
        whole = logits[max(BATCHES)]
        told = ", ".join(f"{int((logits[batch] != whole).sum())} at batch {batch}" for batch in BATCHES[:-1])
        print(f"{name}: of {whole.numel()} logits differ from those at batch {max(BATCHES)}: {told} ({seconds:.2f} s)")
        assert name == "PyTorch" or all(torch.equal(each, whole) for each in logits.values())


if __name__ == "__main__":
    main()
