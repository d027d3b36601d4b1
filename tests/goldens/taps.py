#!/usr/bin/env python3
"""Makes `taps.safetensors` beside the golden values of some fixtures: moments of what Transformers multiplies by each
matrix of a checkpoint.

    pip install -r requirements.txt && python taps.py [NAME...]

Every call of `torch.nn.functional.linear` is watched while the model runs on a few texts, in float64 as in `make.py`. Its
matrix is found among the checkpoint's tensors by its numbers, so names need no rules: it is a tensor, or two of them one
above the other (gate and up of experts that Transformers stores so). For each tensor `NAME` the file has

- `NAME.count` i64[], `NAME.squares` f64[k], `NAME.min`, `NAME.max` f64[k]: inputs, sums of squares, least and largest numbers by column;
- `NAME.products` f64[k, k] of the tensors in `FULL`: sums of products of two columns;
- `NAME.error` f64[4]: the largest differences of squares, min, max and products (0 without) in float32 from these.

`tokens` i32 has the texts one after the other, `lengths` i32 their lengths. Products that the compiled model does
not have (BERT's pooler) are left out: `LEFT`.
"""

import json
import sys
from pathlib import Path

import make
import numpy as np
import torch
import weights
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

HERE = Path(__file__).parent
LENGTHS = [40, 19, 1, 7]
# Fixtures: matrices whose products of two columns are kept.
FULL = {
    "llama": ["model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.down_proj.weight"],
    "mixtral": ["model.layers.0.block_sparse_moe.experts.2.w2.weight", "model.layers.1.block_sparse_moe.experts.0.w1.weight"],
    "deepseek_v2_lite": ["model.layers.1.self_attn.kv_b_proj.weight"],
    "bert": ["encoder.layer.1.intermediate.dense.weight"],
}
LEFT = ("pooler.dense.weight",)


class Watched(TorchFunctionMode):
    """Keeps the inputs of products by the tensors of the checkpoint that multiply them."""

    def __init__(self, tensors):
        super().__init__()
        self.tensors = {name: t.double() for name, t in tensors.items() if t.dim() == 2}
        self.inputs = {}
        self.known = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.linear:
            x, w = args[0].detach(), args[1].detach()
            for name in self.names(w):
                self.inputs.setdefault(name, []).append(x.reshape(-1, x.shape[-1]))
        return func(*args, **(kwargs or {}))

    def names(self, w):
        """Tensors with the numbers of `w`, or of either half of its rows."""
        key = (w.data_ptr(), w.shape)
        if key not in self.known:
            wide, half = w.double(), w.shape[0] // 2
            parts = [wide, wide[:half], wide[half:]]
            self.known[key] = [n for n, t in self.tensors.items() if any(t.shape == p.shape and t.equal(p) for p in parts)]
            assert self.known[key], f"no tensor is the matrix {tuple(w.shape)}"
        return self.known[key]


def inputs(folder, dtype, texts):
    """The inputs that multiply each tensor, in the order of the tokens."""
    model, inv_freqs = make.load(folder, dtype)
    watched = Watched(load_file(folder / "model.safetensors"))

    def run():
        with torch.no_grad(), watched:
            for text in texts:
                model(input_ids=torch.tensor([text]))

    if dtype is torch.float64:
        torch.set_default_dtype(torch.float64)
        with make.NoFloat32(inv_freqs), make.Float64Only():
            run()
        torch.set_default_dtype(torch.float32)
    else:
        run()
    return {name: torch.cat(x).double().numpy() for name, x in watched.inputs.items() if name not in LEFT}


def moments(x, full):
    # (Experts that no token chose have no inputs; they are left out.)
    return np.square(x).sum(0), x.min(0), x.max(0), x.T @ x if full else np.zeros((0, 0))


def main(name):
    folder = weights.fixture(HERE / name)
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    rng = np.random.default_rng([make.seed_of(name), 39])
    texts = [rng.integers(3, vocab, n).tolist() for n in LENGTHS]
    f64, f32 = (inputs(folder, dtype, texts) for dtype in (torch.float64, torch.float32))
    assert f64.keys() == f32.keys()
    out = {"tokens": np.array(sum(texts, []), np.int32), "lengths": np.array(LENGTHS, np.int32)}
    for tensor, x in sorted(f64.items()):
        assert x.shape == f32[tensor].shape, f"{tensor}: float32 chooses other experts"
        wide, narrow = (moments(inputs[tensor], tensor in FULL[name]) for inputs in (f64, f32))
        out[f"{tensor}.count"] = np.array(len(x), np.int64)
        out |= {f"{tensor}.{part}": v for part, v in zip(("squares", "min", "max", "products"), wide) if v.size}
        out[f"{tensor}.error"] = np.array([np.abs(a - b).max(initial=0.0) for a, b in zip(wide, narrow)])
    path = HERE / name / "taps.safetensors"
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in sorted(out.items())}, path)
    print(f"{name}: {len(f64)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    for fixture in sys.argv[1:] or FULL:
        main(fixture)
