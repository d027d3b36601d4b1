#!/usr/bin/env python3
"""A float64 NumPy forward of the Llama family (Llama, Mistral, Qwen2, Qwen3), written independently of Transformers.

It checks the golden logits (`check` compares every fixture in this folder) and is the reference for the quantized formats (`ppl` prints
perplexities of a checkpoint whose matrices went through `numpy_quant`). Everything is float64 except what the compiler itself does in
float32: inverse frequencies of RoPE, folding of norm gains, and the quantization rules.

    python numpy_llama.py check
    python numpy_llama.py ppl MODEL_FOLDER STORIES.txt [--quant w8|w4|w4a|fp8 --group 32 [--fold] [--act int8|fp8]] [--table]
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np

import numpy_quant as quant

F32, F64 = np.float32, np.float64


# --- checkpoint -------------------------------------------------------------------------------------------------------------------------


def _decode(raw, dtype, shape):
    if dtype == "BF16":
        return (np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16).view(F32).reshape(shape)
    kind = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}[dtype]
    return np.frombuffer(raw, dtype=kind).reshape(shape)


def read_safetensors(path):
    """All tensors of one file, bf16 widened to f32."""
    data = Path(path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            a, b = entry["data_offsets"]
            tensors[name] = _decode(data[start + a : start + b], entry["dtype"], entry["shape"])
    return tensors


def read_checkpoint(folder):
    """All tensors of a Hugging Face folder, single file or sharded, as f32."""
    folder = Path(folder)
    index = folder / "model.safetensors.index.json"
    names = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else ["model.safetensors"]
    tensors = {}
    for name in names:
        tensors |= read_safetensors(folder / name)
    return {name: tensor.astype(F32) for name, tensor in tensors.items()}


# --- rotary embedding -------------------------------------------------------------------------------------------------------------------


def rope_settings(config):
    """(type, theta, parameters) from either layout of config.json: `rope_parameters`, or `rope_theta` with `rope_scaling`."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = found.get("rope_type") or found.get("type") or "default"
    theta = found.get("rope_theta", config.get("rope_theta", 10000.0))
    return kind, theta, found


def _llama3(inv_freq, p):
    factor, low, high, old = (F32(p[k]) for k in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"))
    wavelen = F32(2 * math.pi) / inv_freq
    smooth = (old / wavelen - low) / (high - low)
    blended = (F32(1) - smooth) * inv_freq / factor + smooth * inv_freq
    return np.where(wavelen > old / low, inv_freq / factor, np.where(wavelen < old / high, inv_freq, blended))


def _yarn(powers, theta, p):
    dim, old = 2 * len(powers), p["original_max_position_embeddings"]

    def dimension(rotations):
        return dim * math.log(old / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(p.get("beta_fast") or 32), dimension(p.get("beta_slow") or 1)
    if p.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(dim // 2, dtype=F32) - F32(low)) / F32(high - low), F32(0), F32(1))
    keep = F32(1) - ramp
    return (F32(1) / (F32(p["factor"]) * powers)) * (F32(1) - keep) + (F32(1) / powers) * keep


def inverse_frequencies(config, head_dim):
    """(inv_freq f32[head_dim / 2], factor on cos and sin)."""
    kind, theta, p = rope_settings(config)
    # The f32 power correctly rounded, as torch's and libm's `powf` give here; NumPy's own f32 power is up to 2 ulps off.
    powers = (F64(theta) ** (np.arange(0, head_dim, 2, dtype=F32) / F32(head_dim)).astype(F64)).astype(F32)
    inv_freq = F32(1) / powers
    if kind == "default":
        return inv_freq, 1.0
    if kind == "linear":
        return inv_freq / F32(p["factor"]), 1.0
    if kind == "llama3":
        return _llama3(inv_freq, p), 1.0
    if kind == "yarn":
        factor = p["factor"]
        scale = p.get("attention_factor") or (0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0)
        return _yarn(powers, theta, p), scale
    raise ValueError(f"config.json: RoPE type {kind!r} is not known here")


def rotate(x, cos, sin):
    """RoPE on x[t, heads, head_dim], halves layout."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


# --- model ------------------------------------------------------------------------------------------------------------------------------


class Model:
    """Weights after folding and quantization, and the forward pass of one sequence."""

    def __init__(self, folder, fmt=None, group=32, fold=False, act=None, inv_freq=None):
        self.config = json.loads((Path(folder) / "config.json").read_text())
        c = self.config
        self.heads = c["num_attention_heads"]
        self.kv_heads = c.get("num_key_value_heads") or self.heads
        self.head_dim = c.get("head_dim") or c["hidden_size"] // self.heads
        self.layers = c["num_hidden_layers"]
        self.eps = c["rms_norm_eps"]
        self.group = group
        self.act = act
        own, self.rope_scale = inverse_frequencies(c, self.head_dim)
        self.inv_freq = own if inv_freq is None else inv_freq
        tensors = read_checkpoint(folder)
        tied = c.get("tie_word_embeddings", False) or "lm_head.weight" not in tensors
        if fold:
            self._fold(tensors, tied)
        self.tensors = {name: t.astype(F64) for name, t in tensors.items()}
        if fmt:
            for name, t in tensors.items():
                if name.endswith("_proj.weight") or name == "lm_head.weight" or (tied and name == "model.embed_tokens.weight"):
                    self.tensors[name] = quant.weights(t, fmt, group)
        self.head = "model.embed_tokens.weight" if tied else "lm_head.weight"

    def _fold(self, tensors, tied):
        """Multiplies norm gains into the projections that follow, in f32; the final one only where the head has its own matrix."""
        pairs = []
        for i in range(self.layers):
            layer = f"model.layers.{i}."
            pairs.append((layer + "input_layernorm.weight", [layer + f"self_attn.{p}_proj.weight" for p in "qkv"]))
            pairs.append((layer + "post_attention_layernorm.weight", [layer + f"mlp.{p}_proj.weight" for p in ("gate", "up")]))
        if not tied:
            pairs.append(("model.norm.weight", ["lm_head.weight"]))
        for norm, projections in pairs:
            for name in projections:
                tensors[name] = tensors[name] * tensors[norm]
            tensors[norm] = np.ones_like(tensors[norm])

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps) * self.tensors[name]

    def linear(self, x, name):
        if self.act == "int8":
            x = quant.int8_activations(x, self.group)
        elif self.act == "fp8":
            x = quant.fp8_activations(x)
        y = x @ self.tensors[name if name.endswith(".weight") else name + ".weight"].T
        bias = self.tensors.get(name + ".bias")
        return y if bias is None else y + bias

    def window(self, i):
        """Positions that layer `i` sees, itself included; None for all."""
        c = self.config
        if c["model_type"] in ("qwen2", "qwen3"):
            kinds = c.get("layer_types")
            sliding = kinds[i] == "sliding_attention" if kinds else c.get("use_sliding_window", False) and i >= c["max_window_layers"]
            return c.get("sliding_window") if sliding else None
        return c.get("sliding_window")

    def attention(self, x, i, cos, sin):
        t, p = len(x), f"model.layers.{i}.self_attn."
        q = self.linear(x, p + "q_proj").reshape(t, self.heads, self.head_dim)
        k = self.linear(x, p + "k_proj").reshape(t, self.kv_heads, self.head_dim)
        v = self.linear(x, p + "v_proj").reshape(t, self.kv_heads, self.head_dim)
        if p + "q_norm.weight" in self.tensors:
            q, k = self.norm(q, p + "q_norm.weight"), self.norm(k, p + "k_norm.weight")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        q = q.reshape(t, self.kv_heads, self.heads // self.kv_heads, self.head_dim)
        scores = np.einsum("ihgd,jhd->hgij", q, k, optimize=True) / math.sqrt(self.head_dim)
        row, col = np.arange(t)[:, None], np.arange(t)[None, :]
        seen = col <= row
        if self.window(i) is not None:
            seen &= col > row - self.window(i)
        scores = np.where(seen, scores, -np.inf)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        out = np.einsum("hgij,jhd->ihgd", scores, v, optimize=True).reshape(t, -1)
        return self.linear(out, p + "o_proj")

    def forward(self, ids):
        """Logits f64[len(ids), vocab] of one sequence that starts at position 0."""
        angles = np.arange(len(ids), dtype=F64)[:, None, None] * self.inv_freq.astype(F64)
        cos, sin = np.cos(angles) * self.rope_scale, np.sin(angles) * self.rope_scale
        x = self.tensors["model.embed_tokens.weight"][ids]
        for i in range(self.layers):
            p = f"model.layers.{i}."
            x = x + self.attention(self.norm(x, p + "input_layernorm.weight"), i, cos, sin)
            h = self.norm(x, p + "post_attention_layernorm.weight")
            gate = self.linear(h, p + "mlp.gate_proj")
            x = x + self.linear(gate / (1 + np.exp(-gate)) * self.linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
        return self.linear(self.norm(x, "model.norm.weight"), self.head)


# --- commands ---------------------------------------------------------------------------------------------------------------------------


def check_fixture(folder):
    """Largest |difference| from the stored f64 logits, absolute and relative to the largest logit; ulps of `inv_freq`; greedy equal?"""
    golden = read_safetensors(folder / "golden.safetensors")
    model = Model(folder, inv_freq=golden["inv_freq"])
    own, _ = inverse_frequencies(model.config, model.head_dim)
    ulps = np.abs(own.view(np.int32) - golden["inv_freq"].view(np.int32)).max()
    logits = model.forward(golden["tokens"])
    worst = np.abs(logits - golden["logits_f64"]).max()
    ids = list(golden["tokens"])
    for _ in golden["greedy"]:
        ids.append(int(model.forward(ids)[-1].argmax()))
    same = ids[len(golden["tokens"]) :] == golden["greedy"].tolist()
    return worst, worst / np.abs(golden["logits_f64"]).max(), ulps, same


def check(_):
    bad = 0
    for folder in sorted(p.parent for p in Path(__file__).parent.glob("*/golden.safetensors")):
        worst, relative, ulps, same = check_fixture(folder)
        ok = relative < 1e-12 and ulps == 0 and same
        bad += not ok
        print(f"{folder.name:16} max |diff| {worst:.2e} relative {relative:.2e} inv_freq {ulps} ulp greedy {'same' if same else 'DIFFERS'}")
    return 1 if bad else 0


def token_stream(folder, text):
    """Token ids without BOS, by whichever tokenizer the folder has."""
    if (folder / "tokenizer.model").exists():
        import sentencepiece

        return sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model")).encode(text)
    import tokenizers

    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text, add_special_tokens=False).ids


def story_nll(model, sequences):
    """(mean NLL in nats, number of predicted tokens) over sequences that begin with BOS; the BOS itself is not predicted."""
    total = count = 0
    for ids in sequences:
        logits = model.forward(ids[:-1])
        top = logits.max(axis=1, keepdims=True)
        log_sum = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))
        total += (log_sum - logits[np.arange(len(ids) - 1), ids[1:]]).sum()
        count += len(ids) - 1
    return total / count, count


def ppl(args):
    """Stories are split at <|endoftext|>, stripped, preceded by BOS and cut to the context length."""
    config = json.loads((args.model / "config.json").read_text())
    stories = [s.strip() for s in args.text.read_text().split("<|endoftext|>")][: args.stories]
    bos, limit = config["bos_token_id"], config["max_position_embeddings"]
    sequences = [np.array([bos, *token_stream(args.model, s)])[:limit] for s in stories]
    nll, count = story_nll(Model(args.model, args.quant, args.group, args.fold, args.act), sequences)
    base = nll
    print(f"{len(stories)} stories, {count} tokens, {args.quant or 'f32'}: mean NLL {nll:.7f}, perplexity {math.exp(nll):.6f}")
    if not args.table:
        return 0
    base, _ = story_nll(Model(args.model), sequences)
    print("| format | group | bits/weight | folded | activations | perplexity | NLL - f32 |\n|---|---|---|---|---|---|---|")
    print(f"| f32 | | 32 | no | f64 | {math.exp(base):.6f} | 0 |")
    for fmt in quant.WEIGHT_FORMATS:
        for group in (32,) if fmt == "fp8" else (32, 64, 128):
            for fold in (False, True):
                for act in (None, "fp8" if fmt == "fp8" else "int8"):
                    nll, _ = story_nll(Model(args.model, fmt, group, fold, act), sequences)
                    bits = quant.bits_per_weight(fmt, group)
                    cells = f"{bits:g} | {'yes' if fold else 'no'} | {act or 'f64'} | {math.exp(nll):.6f} | {nll - base:+.6f}"
                    print(f"| {fmt} | {group} | {cells} |", flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("check", help="compare every fixture of this folder").set_defaults(run=check)
    p = commands.add_parser("ppl", help="perplexity of a checkpoint, plain or quantized")
    p.set_defaults(run=ppl)
    p.add_argument("model", type=Path)
    p.add_argument("text", type=Path)
    p.add_argument("--stories", type=int, default=60)
    p.add_argument("--quant", choices=quant.WEIGHT_FORMATS)
    p.add_argument("--group", type=int, default=32)
    p.add_argument("--fold", action="store_true", help="fold norm gains into the next projections before quantizing")
    p.add_argument("--act", choices=["int8", "fp8"], help="also round the inputs of every matmul to int8 groups, or to e4m3 with a scale per token")
    p.add_argument("--table", action="store_true", help="all formats, groups, with and without folding and int8 activations")
    args = parser.parse_args()
    sys.exit(args.run(args))


if __name__ == "__main__":
    main()
