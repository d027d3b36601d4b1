#!/usr/bin/env python3
"""Makes the fixtures of architectures that only mlx-lm has a class for: tiny random checkpoints as
they are published, and mlx-lm's results for them.

    python -m venv V && V/bin/pip install mlx-lm==0.32.2 "mlx[cpu]==0.32.4" safetensors numpy && V/bin/python mlx_models.py [NAME...]
    V/bin/python mlx_models.py --check [NAME...]    # makes them elsewhere and compares

`make.py` describes the files; a folder's `config.json` is left as it is. mlx's f64 on a CPU is
not f64 everywhere: exponentials, the softmax, convolutions and fused operations compute in f32
inside, products by experts have no f64, and models ask for float32. While the reference runs,
those operations are NumPy's in f64, and float32 means float64 (`Exact`). That nothing narrow is
left is checked: a prompt at once, and token by token through mlx-lm's caches, where sums have
other orders and latent attention another form, must agree to `SAME`.
"""

import importlib
import json
import sys
import tempfile
import zlib
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from safetensors.numpy import load_file, save_file

import weights

HERE = Path(__file__).parent
PROMPT, GREEDY, MARGIN, SAME, PROMPTS, ORDERS = 40, 24, 0.01, 1e-11, 20, 6
# How far apart two runs on different machines may be.
CLOSE = {"logits": 4e-6, "error_f32": 1e-4, "error_bf16": 1.0}


def numpy_only(function):
    """An operation of NumPy on arrays of f64."""
    return lambda *arrays, **_: mx.array(function(*[np.array(a, dtype=np.float64) for a in arrays]), dtype=mx.float64)


def softmax(x, axis=-1, precise=False):
    x = np.array(x, dtype=np.float64)
    e = np.exp(x - x.max(axis, keepdims=True))
    return mx.array(e / e.sum(axis, keepdims=True), dtype=mx.float64)


def rms_norm(x, weight, eps):
    y = x * mx.rsqrt((x * x).mean(-1, keepdims=True) + eps)
    return y if weight is None else y * weight


def attention(q, k, v, *, scale, mask=None, sinks=None):
    """Scores of all heads; a mask is added, or marks the visible keys. Only the arguments the
    models here use."""
    assert sinks is None
    repeats = q.shape[1] // k.shape[1]
    k, v = (mx.repeat(x, repeats, 1) for x in (k, v))
    scores = (q * scale) @ k.swapaxes(-1, -2)
    if isinstance(mask, str):
        assert mask == "causal"
        mask = mx.array(np.tril(np.ones(scores.shape[-2:], dtype=bool), scores.shape[-1] - scores.shape[-2]))
    if mask is not None:
        scores = mx.where(mask, scores, mx.array(-np.inf, dtype=mx.float64)) if mask.dtype == mx.bool_ else scores + mask
    return softmax(scores) @ v


def gather_mm(x, w, rhs_indices, **_):
    return x @ w[rhs_indices]


def conv1d(x, w, stride=1, padding=0, dilation=1, groups=1, **_):
    """One filter per channel, over the columns present."""
    assert (stride, padding, dilation, w.shape[0], w.shape[2]) == (1, 0, 1, groups, 1) and x.shape[-1] == groups
    taps, rows = w.shape[1], x.shape[1] - w.shape[1] + 1
    return sum(x[:, i : i + rows] * w[:, i, 0] for i in range(taps))


class Exact:
    """mlx-lm's models in f64."""

    REPLACED = [
        (mx, "float32", mx.float64), (mx, "exp", numpy_only(np.exp)), (mx, "sigmoid", numpy_only(lambda x: 1 / (1 + np.exp(-x)))),
        (mx, "logaddexp", numpy_only(np.logaddexp)), (mx, "softmax", softmax), (mx, "gather_mm", gather_mm), (mx, "conv1d", conv1d), (mx.fast, "rms_norm", rms_norm),
        (mx.fast, "scaled_dot_product_attention", attention),
    ]

    def __enter__(self):
        mx.disable_compile()
        self.before = [(of, name, getattr(of, name)) for of, name, _ in self.REPLACED]
        for of, name, new in self.REPLACED:
            setattr(of, name, new)

    def __exit__(self, *_):
        for of, name, old in self.before:
            setattr(of, name, old)
        mx.enable_compile()


class Shuffled:
    """mlx-lm's linear layers, whose sums take their terms in another order."""

    def __init__(self, seed):
        self.rng, self.orders = np.random.default_rng(seed), {}

    def __enter__(self):
        self.before = nn.Linear.__call__

        def call(layer, x):
            order = self.orders.setdefault(id(layer), mx.array(self.rng.permutation(layer.weight.shape[1])))
            y = x[..., order] @ layer.weight[:, order].T
            return y + layer.bias if "bias" in layer else y

        nn.Linear.__call__ = call

    def __exit__(self, *_):
        nn.Linear.__call__ = self.before


# ---- Kimi K3


def kimi_k3(config):
    """Every tensor with its shape and type."""
    c = config["text_config"]
    n, vocab, linear = c["hidden_size"], c["vocab_size"], c["linear_attn_config"]
    heads, dim, conv = linear["num_heads"], linear["head_dim"], linear["short_conv_kernel_size"]
    width, rank, nope, rope, value = heads * dim, c["kv_lora_rank"], c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    queries, row, ffn = c["num_attention_heads"], c["routed_expert_hidden_size"], c["moe_intermediate_size"]
    out = {"model.embed_tokens.weight": (vocab, n), "lm_head.weight": (vocab, n), "model.norm.weight": (n,)}
    out |= {"model.output_attn_res_norm.weight": (n,), "model.output_attn_res_proj.weight": (1, n)}
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}"
        attn, moe = f"{at}.self_attn", f"{at}.block_sparse_moe"
        out |= {f"{at}.{norm}.weight": (n,) for norm in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm")}
        out |= {f"{at}.{query}.weight": (1, n) for query in ("self_attention_res_proj", "mlp_res_proj")}
        if i + 1 in linear["kda_layers"]:
            out |= {f"{attn}.{x}_proj.weight": (width, n) for x in "qkvg"} | {f"{attn}.{x}_conv1d.weight": (width, 1, conv) for x in "qkv"}
            out |= {f"{attn}.f_a_proj.weight": (dim, n), f"{attn}.f_b_proj.weight": (width, dim), f"{attn}.b_proj.weight": (heads, n)}
            # As many as a head has columns; only as many as there are heads count.
            out |= {f"{attn}.A_log": (dim,), f"{attn}.dt_bias": (width,), f"{attn}.o_norm.weight": (dim,), f"{attn}.o_proj.weight": (n, width)}
        else:
            out |= {f"{attn}.q_a_proj.weight": (c["q_lora_rank"], n), f"{attn}.q_a_layernorm.weight": (c["q_lora_rank"],)}
            out |= {f"{attn}.q_b_proj.weight": (queries * (nope + rope), c["q_lora_rank"]), f"{attn}.kv_a_proj_with_mqa.weight": (rank + rope, n)}
            out |= {f"{attn}.kv_a_layernorm.weight": (rank,), f"{attn}.kv_b_proj.weight": (queries * (nope + value), rank)}
            out |= {f"{attn}.g_proj.weight": (queries * value, n), f"{attn}.o_proj.weight": (n, queries * value)}
        if i < c["first_k_dense_replace"]:
            wide = c["intermediate_size"]
            out |= {f"{at}.mlp.gate_proj.weight": (wide, n), f"{at}.mlp.up_proj.weight": (wide, n), f"{at}.mlp.down_proj.weight": (n, wide)}
            continue
        shared = ffn * c["num_shared_experts"]
        out |= {f"{moe}.gate.weight": (c["num_experts"], n), f"{moe}.gate.e_score_correction_bias": (c["num_experts"],)}
        out |= {f"{moe}.routed_expert_down_proj.weight": (row, n), f"{moe}.routed_expert_up_proj.weight": (n, row), f"{moe}.routed_expert_norm.weight": (row,)}
        out |= {f"{moe}.shared_experts.{x}_proj.weight": shape for x, shape in (("gate", (shared, n)), ("up", (shared, n)), ("down", (n, shared)))}
        for e in range(c["num_experts"]):
            out |= {f"{moe}.experts.{e}.{x}.weight": shape for x, shape in (("w1", (ffn, row)), ("w2", (row, ffn)), ("w3", (ffn, row)))}
    out = {f"language_model.{name}": shape for name, shape in out.items()}
    return out | {"vision_tower.patch_embed.proj.weight": (2, 3), "mm_projector.post_norm.weight": (4,)}


def narrow(name):
    """Published files have these in f32."""
    return not name.endswith((".A_log", ".dt_bias", "_conv1d.weight", ".o_norm.weight", ".e_score_correction_bias"))


# The module of mlx-lm and the tensors, by `model_type`.
MODELS = {"kimi_k3": ("kimi_k3", kimi_k3)}


def random_tensors(shapes, seed):
    """Random values with enough spread that attention is not uniform and logits differ, and no gain 1 or bias 0."""
    rng = np.random.default_rng(seed)
    out = {}
    for name, shape in sorted(shapes.items()):
        x = rng.standard_normal(shape)
        if name.endswith(".dt_bias"):
            # States that are remembered for some tokens.
            x = x - 1.2
        elif name.endswith(".e_score_correction_bias"):
            x = 0.2 * x
        elif name.endswith(".bias"):
            x = 0.3 * x
        elif len(shape) == 1:
            x = 0.5 + rng.random(shape)
        elif "embed_tokens" in name or "lm_head" in name:
            x = 0.4 * x
        else:
            x = x * (1.2 / shape[-1] ** 0.5)
        out[name] = mx.array(x.astype(np.float32)).astype(mx.bfloat16 if narrow(name) else mx.float32)
    return out


def build(config, tensors, dtype):
    """mlx-lm's model with these weights in `dtype`; in bf16 those that are stored in f32 stay so."""
    module = importlib.import_module(f"mlx_lm.models.{MODELS[config['model_type']][0]}")
    model = module.Model(module.ModelArgs.from_dict(config))
    wide = lambda t: t if dtype == mx.bfloat16 else t.astype(dtype)
    model.load_weights(list(model.sanitize({name: wide(t) for name, t in tensors.items()}).items()), strict=True)
    return model.eval()


def rows(model, ids, cache=None):
    logits = model(mx.array([ids]), cache=cache)[0]
    mx.eval(logits)
    return np.array(logits.astype(mx.float64))


def exact(config, tensors, tokens):
    """f64 logits of the prompt, the greedy continuation, and the smallest margin on its way."""
    with Exact():
        model = build(config, tensors, mx.float64)
        logits = rows(model, tokens)
        cache = model.make_cache()
        by_token = np.concatenate([rows(model, [token], cache) for token in tokens])
        assert abs(by_token - logits).max() < SAME, abs(by_token - logits).max()
        greedy, margin, last = [], float("inf"), by_token[-1]
        for _ in range(GREEDY):
            second, best = np.sort(last)[-2:]
            margin = min(margin, best - second)
            greedy.append(int(last.argmax()))
            last = rows(model, greedy[-1:], cache)[-1]
    return logits, greedy, margin


def error(config, tensors, dtype, tokens, f64):
    """How far off mlx-lm is in each row, at most, in the two ways that it computes them: the prompt at once, and token by token."""
    model = build(config, tensors, dtype)
    cache = model.make_cache()
    both = rows(model, tokens), np.concatenate([rows(model, [token], cache) for token in tokens])
    return np.max([abs(own - f64).max(1) for own in both], 0)


def unevenness(config, tensors, tokens, f64):
    """How much larger the errors of the worst token are than the errors of the middle one, over
    several orders of sums. The error of a token that divides by next to nothing is chance in
    one order: the prompt that came off best in it would be taken for a harmless one."""
    squares = 0
    for seed in range(ORDERS):
        with Shuffled(seed):
            squares = squares + abs(rows(build(config, tensors, mx.float32), tokens) - f64).max(1) ** 2
    return (squares.max() / np.median(squares)) ** 0.5


def make(name, folder):
    config = json.loads((folder / "config.json").read_text())
    seed = zlib.crc32(name.encode())
    if not (folder / "model.recipe").exists():
        tensors = random_tensors(MODELS[config["model_type"]][1](config), seed)
        mx.save_safetensors(str(folder / "model.safetensors"), tensors, metadata={"format": "pt"})
        weights.remake(folder / "model.safetensors", seed)
    weights.make(folder)
    tensors = mx.load(str(folder / "model.safetensors"))
    prompts = []
    for attempt in range(PROMPTS):
        vocab = config.get("text_config", config)["vocab_size"]
        tokens = np.random.default_rng([seed, attempt]).integers(3, vocab, PROMPT).tolist()
        f64, greedy, margin = exact(config, tensors, tokens)
        if margin >= MARGIN:
            # That with the most even errors: where the worst token is no chance.
            prompts.append((unevenness(config, tensors, tokens, f64), attempt, tokens, greedy, margin, f64))
    _, _, tokens, greedy, margin, f64 = min(prompts, key=lambda p: p[:2])
    errors = {"error_f32": error(config, tensors, mx.float32, tokens, f64), "error_bf16": error(config, tensors, mx.bfloat16, tokens, f64)}
    golden = {"tokens": np.array(tokens, dtype=np.int32), "greedy": np.array(greedy, dtype=np.int32), "at": np.array(weights.AT, dtype=np.int32)}
    golden |= {"logits": f64[weights.AT].astype(np.float32)} | {name: e.astype(np.float32) for name, e in errors.items()}
    save_file(golden, folder / "golden.safetensors")
    (folder / "model.safetensors").unlink()
    e32, e16 = golden["error_f32"], golden["error_bf16"]
    print(f"| {name} | {f64.std():.2f} | {abs(f64).max():.1f} | {e32.max():.1e} | {e32.min():.1e}–{e32.max():.1e} | {e16.max():.2f} | {margin:.3f} |", flush=True)


def check(name):
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for file in ("config.json", "model.recipe"):
            (folder / file).write_bytes((HERE / name / file).read_bytes())
        make(name, folder)
        ours, theirs = (load_file(of / "golden.safetensors") for of in (folder, HERE / name))
        assert ours.keys() == theirs.keys()
        for key, t in ours.items():
            assert abs(t - theirs[key]).max() <= CLOSE.get(key, 0), f"{name}: {key} differs"


def main():
    mx.set_default_device(mx.cpu)
    checking = sys.argv[1:2] == ["--check"]
    for name in sys.argv[1 + checking :] or sorted(p.parent.name for p in HERE.glob("*_mlx/config.json")):
        check(name) if checking else make(name, HERE / name)


if __name__ == "__main__":
    main()
