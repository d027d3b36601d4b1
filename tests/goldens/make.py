#!/usr/bin/env python3
"""Makes the golden fixtures: tiny random checkpoints, and what Transformers computes with them in float64, float32 and bfloat16.

    pip install -r requirements.txt && python make.py [NAME...]

Each folder holds `config.json`, the weights, and `golden.safetensors` with

- `tokens` i32[40], the prompt; 40 tokens cross the boundaries of 16-token pages twice and end inside a page;
- `logits_f64` f64[40, vocab], the reference; `logits_f32`, `logits_bf16` f32[40, vocab], Transformers in those types, so that
  |logits_f32 - logits_f64| is the error that an implementation in f32 is entitled to;
- `greedy` i32[24], greedy continuation in float64 (best and second-best logit differ by at least `MARGIN` at each step, so that a
  correct f32 implementation picks the same);
- `inv_freq` f32[head_dim / 2], the inverse frequencies that Transformers computed in f32.

**Making float64 really float64.** Transformers computes RMSNorm, RoPE angles and the softmax in float32 whatever the model's type
(`.to(torch.float32)`, `.float()`, `softmax(dtype=torch.float32)`). `Float64Only` rewrites each such request to float64 while the
reference runs, and `NoFloat32` then fails if any operation still produces a float32 or narrower result. The one exception is on
purpose: `inv_freq` stays the float32 value that every implementation starts from (widened without change); angles, cosines
and sines are float64.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import numpy_llama
import numpy_quant

HERE = Path(__file__).parent
PROMPT, GREEDY, MARGIN = 40, 24, 0.01
NARROW = (torch.float32, torch.bfloat16, torch.float16)


class Float64Only(TorchFunctionMode):
    """Rewrites requests for float32 to float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        if func is torch.Tensor.float:
            func, args = torch.Tensor.to, (args[0], torch.float64)
        return func(*[torch.float64 if a is torch.float32 else a for a in args], **kwargs)


class NoFloat32(TorchDispatchMode):
    """Fails on any operation whose result is a narrow float, except views and copies of the stored `inv_freq`."""

    def __init__(self, inv_freq):
        super().__init__()
        self.allowed = {inv_freq.untyped_storage().data_ptr()}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(t, torch.Tensor) and t.dtype in NARROW and t.untyped_storage().data_ptr() not in self.allowed:
                raise AssertionError(f"{func} computed in {t.dtype} inside the float64 reference")
        return out


BASE = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

# name: (model type, config beyond BASE, stored dtype, layout of the RoPE part of config.json: "old" is rope_theta + rope_scaling, as in
# most published checkpoints, "new" is rope_parameters, as Transformers 5 writes it)
FIXTURES = {
    "llama": ("llama", {"rms_norm_eps": 1e-5, "tie_word_embeddings": False}, torch.float32, "old"),
    "llama3": ("llama", {"rms_norm_eps": 1e-5, "tie_word_embeddings": True, "rope": {"rope_theta": 10000.0} | LLAMA3}, torch.float32, "old"),
    "llama_linear": (
        "llama",
        {"rms_norm_eps": 1e-6, "tie_word_embeddings": False, "rope": {"rope_theta": 10000.0, "rope_type": "linear", "factor": 4.0}},
        torch.float32,
        "oldest",
    ),
    "llama_yarn": ("llama", {"rms_norm_eps": 1e-5, "tie_word_embeddings": True, "rope": {"rope_theta": 10000.0} | YARN}, torch.float32, "new"),
    "llama_bias": (
        "llama",
        {"rms_norm_eps": 1e-5, "tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True},
        torch.float32,
        "new",
    ),
    "llama_bf16": ("llama", {"rms_norm_eps": 1e-5, "tie_word_embeddings": True, "rope": {"rope_theta": 500000.0}}, torch.bfloat16, "old"),
    "llama_f16": ("llama", {"rms_norm_eps": 1e-5, "tie_word_embeddings": False}, torch.float16, "new"),
    "mistral": ("mistral", {"rms_norm_eps": 1e-5, "tie_word_embeddings": False, "sliding_window": 11, "head_dim": 24}, torch.float32, "old"),
    "qwen2": ("qwen2", {"rms_norm_eps": 1e-6, "tie_word_embeddings": True, "rope": {"rope_theta": 1000000.0}}, torch.float32, "old"),
    "qwen3": (
        "qwen3",
        {"rms_norm_eps": 1e-6, "tie_word_embeddings": False, "head_dim": 32, "rope": {"rope_theta": 1000000.0}},
        torch.float32,
        "new",
    ),
}


def config_of(kind, settings):
    settings = BASE | settings
    rope = settings.pop("rope", {"rope_theta": 10000.0})
    rope = {"rope_type": "default"} | rope
    return transformers.AutoConfig.for_model(kind, rope_parameters=rope, **settings)


def randomize(model, seed):
    """Random values with enough spread that attention is not uniform and logits differ, and no gain 1 or bias 0."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if name.endswith("norm.weight"):
                p.copy_(0.5 + torch.rand(p.shape, generator=rng))
            elif name.endswith(".bias"):
                p.copy_(0.3 * torch.randn(p.shape, generator=rng))
            elif "embed_tokens" in name or "lm_head" in name:
                p.copy_(0.4 * torch.randn(p.shape, generator=rng))
            else:
                p.copy_(torch.randn(p.shape, generator=rng) * (1.2 / p.shape[1] ** 0.5))


def rewrite_config(folder, layout):
    """Puts the RoPE settings of config.json into the layout of older Transformers, and drops what only Transformers 5 writes."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if layout != "new":
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        kind = rope.pop("rope_type")
        config["rope_scaling"] = None if kind == "default" else {"type" if layout == "oldest" else "rope_type": kind} | rope
        config["torch_dtype"] = config.pop("dtype")
        config.pop("layer_types", None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def load(folder, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    inv_freq = model.model.rotary_emb.inv_freq
    assert inv_freq.dtype == torch.float32
    return model, inv_freq


@torch.no_grad()
def logits_of(model, ids):
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def reference(folder, tokens):
    """float64 logits of the prompt, the greedy continuation and the smallest margin on its way."""
    model, inv_freq = load(folder, torch.float64)
    with NoFloat32(inv_freq), Float64Only():
        logits = logits_of(model, tokens)
        ids, margin = list(tokens), float("inf")
        for _ in range(GREEDY):
            best = logits_of(model, ids)[-1].topk(2)
            margin = min(margin, (best.values[0] - best.values[1]).item())
            ids.append(best.indices[0].item())
    assert logits.dtype == torch.float64
    return logits, ids[len(tokens) :], margin, inv_freq


def make(name, seed):
    kind, settings, dtype, layout = FIXTURES[name]
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    config = config_of(kind, settings)
    model = transformers.AutoModelForCausalLM.from_config(config)
    randomize(model, seed)
    model.to(dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    rewrite_config(folder, layout)

    for attempt in range(100):
        rng = np.random.default_rng([seed, attempt])
        tokens = rng.integers(3, BASE["vocab_size"], PROMPT).tolist()
        f64, greedy, margin, inv_freq = reference(folder, tokens)
        if margin >= MARGIN:
            break
    else:
        raise RuntimeError(f"{name}: no prompt with a margin of {MARGIN}")
    f32 = logits_of(load(folder, torch.float32)[0], tokens)
    bf16 = logits_of(load(folder, torch.bfloat16)[0], tokens).float()
    golden = {
        "tokens": torch.tensor(tokens, dtype=torch.int32),
        "greedy": torch.tensor(greedy, dtype=torch.int32),
        "inv_freq": inv_freq.clone(),
        "logits_f64": f64,
        "logits_f32": f32,
        "logits_bf16": bf16,
    }
    save_file(golden, folder / "golden.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    worst, relative, ulps, same = numpy_llama.check_fixture(folder)
    assert relative < 1e-12 and ulps == 0 and same, f"{name}: NumPy differs by {worst}"
    e32, e16 = (f32.double() - f64).abs(), (bf16.double() - f64).abs()
    rows = e32.amax(1)
    print(
        f"| {name} | {f64.std():.2f} | {f64.abs().max():.1f} | {e32.max():.1e} | {rows.min():.1e}–{rows.max():.1e} | {e16.max():.2f} | "
        f"{worst:.0e} | {ulps} | {margin:.3f} |",
        flush=True,
    )


def make_sharded(source="llama3", name="llama3_sharded"):
    """The same checkpoint in two shards with an index; the golden values are those of `source`."""
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    tensors = load_file(HERE / source / "model.safetensors")
    shards = [{}, {}]
    for tensor in sorted(tensors):
        shards["layers.1." in tensor or tensor == "model.norm.weight"][tensor] = tensors[tensor]
    weight_map = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        weight_map |= {tensor: file for tensor in shard}
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    for file in ("config.json", "golden.safetensors"):
        (folder / file).write_bytes((HERE / source / file).read_bytes())
    for file in folder.iterdir():
        file.chmod(0o644)


def quant_rows():
    """19 rows of 172 columns (more than a block of 16, groups that end short) with the cases that rules get wrong."""
    x = np.random.default_rng(5).standard_normal((19, 172)).astype(np.float32)
    x[1] = 0
    x[2] = 0.75  # constant: w4a has scale 0
    x[3] *= 1e-9  # scales round to 0 in f16
    x[4] *= 3e-6  # scales are subnormal in f16
    x[5] = np.tile(np.float32([1, -1, 0.5, -0.5]), 43)  # equal magnitudes of both signs: the first one sets the sign of w4's scale
    x[6] = np.round(x[6] * 2) / 2  # many ties in rounding
    x[7] = np.abs(x[7])
    x[8, 5] = 100.0  # one outlier
    x[9] *= 1e4
    return x


def make_quant():
    """`quant/`: codes and scales of `quant_rows` in every format, and float64 logits of two fixtures with quantized weights (as f32)."""
    folder = HERE / "quant"
    folder.mkdir(exist_ok=True)
    x = quant_rows()
    rows = {"rows": x}
    for group in (32, 64, 128):
        for fmt, bias in (("w8", 128), ("w4", 8), ("w4a", 0)):
            codes, scales, minima = numpy_quant.encode(x, fmt, group)
            rows[f"{fmt}g{group}.codes"] = (codes + bias).astype(np.uint8)
            rows[f"{fmt}g{group}.scales"] = scales
            rows[f"{fmt}g{group}.minima"] = minima
        codes, scales = numpy_quant.encode_int8(x, group)
        rows[f"act_g{group}.codes"], rows[f"act_g{group}.scales"] = codes, scales
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in rows.items()}, folder / "rows.safetensors")
    for name in ("llama", "llama3"):
        golden = numpy_llama.read_safetensors(HERE / name / "golden.safetensors")
        logits = {}
        for fmt in numpy_quant.WEIGHT_FORMATS:
            for fold in (False, True):
                model = numpy_llama.Model(HERE / name, fmt, 32, fold)
                key = f"{fmt}g32{'_folded' if fold else ''}"
                logits[key] = torch.from_numpy(model.forward(golden["tokens"]).astype(np.float32))
        save_file(logits, folder / f"logits_{name}.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)


def main():
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    names = sys.argv[1:] or list(FIXTURES)
    print("| fixture | logit std | max | f32 error | per row | bf16 error | NumPy − f64 | inv_freq ulps | margin |\n|---|---|---|---|---|---|---|---|---|")
    for name in names:
        make(name, seed=100 + list(FIXTURES).index(name))
    if "llama3" in names:
        make_sharded()
    make_quant()


if __name__ == "__main__":
    main()
