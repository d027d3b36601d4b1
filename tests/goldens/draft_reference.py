#!/usr/bin/env python3
"""Makes fixtures of draft heads: `drafts/NAME/config.json` to `model.safetensors` (the tensors of the head alone, with table and head of the model) and `golden.safetensors`.

    CUDA_VISIBLE_DEVICES= /tmp/tv/bin/python draft_reference.py deepseek_v3

Transformers leaves such layers out. What they compute is written here from the paper (arXiv 2412.19437, section 2.2): norms of embedding and row, both through a matrix;
the layer, the norm and the head after it are those of Transformers' class with one layer, which is given the result in place of embeddings.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from make import HERE, errors, load, random_weights, seed_of
from safetensors.torch import load_file, save_file

TOKENS = 24
PARTS = ("enorm", "hnorm", "eh_proj")


def normed(x, gain, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gain


@torch.no_grad()
def logits(inner, parts, eps, tokens, rows, dtype):
    model, _ = load(inner, dtype)
    enorm, hnorm, eh_proj = (parts[p].to(dtype) for p in PARTS)
    embedded = model.get_input_embeddings()(torch.tensor([tokens]))
    joined = torch.cat([normed(embedded, enorm, eps), normed(rows.to(dtype)[None], hnorm, eps)], -1)
    return model(inputs_embeds=joined @ eh_proj.T, use_cache=False).logits[0]


def make(name):
    folder = HERE / "drafts" / name
    config = json.loads((folder / "config.json").read_text())
    seed, layer, width = seed_of(f"draft_{name}"), config["num_hidden_layers"], config["hidden_size"]
    rng = torch.Generator().manual_seed(seed)
    with tempfile.TemporaryDirectory() as scratch:
        inner = Path(scratch)
        (inner / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1, "first_k_dense_replace": 0}))
        random_weights(inner, seed)
        tensors = load_file(inner / "model.safetensors")
        parts = {
            "enorm": 0.5 + torch.rand(width, generator=rng),
            "hnorm": 0.5 + torch.rand(width, generator=rng),
            "eh_proj": torch.randn(width, 2 * width, generator=rng) * (0.8 / width**0.5),
        }
        parts = {k: v.bfloat16() for k, v in parts.items()}
        tokens = np.random.default_rng(seed).integers(3, config["vocab_size"], TOKENS).tolist()
        rows = torch.randn(TOKENS, width, generator=rng) * 1.5
        f64, f32, bf16 = (logits(inner, parts, config["rms_norm_eps"], tokens, rows, t).contiguous() for t in (torch.float64, torch.float32, torch.bfloat16))
    assert f64.dtype == torch.float64
    at = f"model.layers.{layer}"
    named = {k.replace("model.layers.0", at).replace("model.norm", f"{at}.shared_head.norm"): v for k, v in tensors.items()}
    save_file({**named, **{f"{at}.{k}.weight": v for k, v in parts.items()}}, folder / "model.safetensors", metadata={"format": "pt"})
    golden = {"tokens": torch.tensor(tokens, dtype=torch.int32), "hidden": rows, "logits_f64": f64, **errors(f64, f32, bf16)}
    save_file(golden, folder / "golden.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"| {name} | {f64.std():.2f} | {f64.abs().max():.1f} | {(f32.double() - f64).abs().max():.1e} | {(bf16.double() - f64).abs().max():.2f} |")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        make(name)
