#!/usr/bin/env python3
"""Golden values of texts whose tokens have positions along three axes, beside goldens by `make.py`: writes `positions.safetensors` in the folders of `FIXTURES`.

    python positions.py [NAME...]

- `tokens` i32[n] and `positions` i32[n, 3]: a text around two runs of tokens that stand as an image's would, at one time and in rows and columns, and some that go back;
- `logits` f32[n, vocab]: of these, from float64; `error_f32` f32[n]: the largest error of Transformers in float32 after each token;
- `greedy` i32[8]: greedy continuation in float64, each token having along all axes one more than the largest position before it."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

import make
import weights

HERE = Path(__file__).parent
FIXTURES = ("qwen2_vl", "qwen3_vl")
GREEDY = 8


def text(positions, n):
    start = max((max(p) for p in positions), default=-1) + 1
    positions.extend([start + i] * 3 for i in range(n))


def image(positions, time, rows, columns):
    start = max(max(p) for p in positions) + 1
    positions.extend([start + t, start + i, start + j] for t in range(time) for i in range(rows) for j in range(columns))


def places():
    positions = []
    text(positions, 5)
    image(positions, 1, 2, 4)
    text(positions, 3)
    image(positions, 2, 3, 2)
    text(positions, 4)
    positions.extend([[40, 2, 7], [1, 40, 39], [9, 9, 1]])
    text(positions, 2)
    return positions


@torch.no_grad()
def results(folder, dtype, tokens, positions, greedy=0):
    """Logits, the greedy continuation and the smallest margin on its way."""
    model, inv_freqs = make.load(folder, dtype)

    def logits_of(ids, at):
        return model(input_ids=torch.tensor([ids]), position_ids=torch.tensor(at).T[:, None], use_cache=False).logits[0]

    def computed():
        ids, at, margin = list(tokens), list(positions), float("inf")
        logits = logits_of(ids, at)
        for _ in range(greedy):
            best = logits_of(ids, at)[-1].topk(2)
            margin = min(margin, (best.values[0] - best.values[1]).item())
            ids.append(best.indices[0].item())
            text(at, 1)
        return logits, ids[len(tokens) :], margin

    if dtype is not torch.float64:
        return computed()
    torch.set_default_dtype(torch.float64)
    with make.NoFloat32(inv_freqs), make.Float64Only():
        out = computed()
    torch.set_default_dtype(torch.float32)
    assert out[0].dtype == torch.float64
    return out


def write(name):
    folder = weights.fixture(name)
    rng = torch.Generator().manual_seed(make.seed_of(name))
    positions = places()
    while True:
        # Below the tokens that stand for parts of images.
        tokens = torch.randint(3, 58, (len(positions),), generator=rng).tolist()
        logits, greedy, margin = results(folder, torch.float64, tokens, positions, GREEDY)
        if margin >= make.MARGIN and not any(t >= 58 for t in greedy):
            break
    narrow, *_ = results(folder, torch.float32, tokens, positions)
    plain, *_ = results(folder, torch.float64, tokens, [[i] * 3 for i in range(len(tokens))])
    assert (plain - logits).abs().max() > 0.1, "positions do not matter"
    out = {
        "tokens": torch.tensor(tokens, dtype=torch.int32),
        "positions": torch.tensor(positions, dtype=torch.int32),
        "logits": logits.float(),
        "error_f32": (narrow.double() - logits).abs().amax(-1).float(),
        "greedy": torch.tensor(greedy, dtype=torch.int32),
    }
    save_file(out, HERE / name / "positions.safetensors")
    print(name, len(tokens), "tokens; margin", round(margin, 3), "; error", out["error_f32"].max().item(), "of", logits.abs().max().item())


if __name__ == "__main__":
    for fixture in sys.argv[1:] or FIXTURES:
        write(fixture)
