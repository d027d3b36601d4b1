"""BitNet b1.58 (arXiv 2402.17764) as bitllama2.c trains it, token by token: every product divides
its input by the root of its mean square, and no block has a norm. The last norm alone has a
gain. Transformers has no class for it. Matrices are floats here, in Transformers' names and
order of rows; a file's are ternary and their inputs rounded, which `quantized_models/bitnet`
and the model in ../shared/data show."""

import torch
from torch.nn import functional as F

MODELS = ("bitllama2c",)


def product(w, x):
    return w @ (x / torch.sqrt((x * x).mean()))


def rotated(x, position, theta):
    """Halves of each head, by angles whose frequencies are computed in f32 as everywhere."""
    half = x.shape[-1] // 2
    frequencies = 1.0 / theta ** (torch.arange(half, dtype=torch.float32) / half)
    angles = position * frequencies.to(x.dtype)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(w, c, past, x, at, position):
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    q, k, v = (product(w[f"{at}.{letter}_proj.weight"], x) for letter in "qkv")
    q, k, v = q.reshape(heads, -1), k.reshape(kv, -1), v.reshape(kv, -1)
    past.append((rotated(k, position, c["rope_theta"]), v))
    q = rotated(q, position, c["rope_theta"])
    # Heads that follow each other have keys and values in common.
    keys, values = (torch.stack(each).repeat_interleave(heads // kv, 1) for each in zip(*past))
    scores = torch.einsum("hd,thd->ht", q, keys) * q.shape[1] ** -0.5
    found = torch.einsum("ht,thd->hd", scores.softmax(-1), values)
    return product(w[f"{at}.o_proj.weight"], found.reshape(-1))


@torch.no_grad()
def logits(w, c, tokens, dtype):
    """`[tokens, vocab]`, computed in `dtype`."""
    w = {name: t.to(dtype) for name, t in w.items()}
    pasts = [[] for _ in range(c["num_hidden_layers"])]
    rows = []
    for position, token in enumerate(tokens):
        x = w["model.embed_tokens.weight"][token]
        for i, past in enumerate(pasts):
            at = f"model.layers.{i}"
            x = x + attention(w, c, past, x, f"{at}.self_attn", position)
            h = F.silu(product(w[f"{at}.mlp.gate_proj.weight"], x)) * product(w[f"{at}.mlp.up_proj.weight"], x)
            x = x + product(w[f"{at}.mlp.down_proj.weight"], h)
        x = x / torch.sqrt((x * x).mean() + c["rms_norm_eps"]) * w["model.norm.weight"]
        rows.append(w["model.embed_tokens.weight"] @ x)
    return torch.stack(rows)


def random_tensors(c, seed, dtype):
    """Random values with enough spread that attention is not uniform."""
    rng = torch.Generator().manual_seed(seed)
    n, ffn, dim = c["hidden_size"], c["intermediate_size"], c["hidden_size"] // c["num_attention_heads"]
    kv = dim * c["num_key_value_heads"]
    matrices = {"self_attn.q": (n, n), "self_attn.k": (kv, n), "self_attn.v": (kv, n), "self_attn.o": (n, n), "mlp.gate": (ffn, n), "mlp.up": (ffn, n), "mlp.down": (n, ffn)}
    out = {
        "model.embed_tokens.weight": 0.4 * torch.randn((c["vocab_size"], n), generator=rng),
        "model.norm.weight": 0.5 + torch.rand(n, generator=rng),
    }
    for i in range(c["num_hidden_layers"]):
        for name, shape in matrices.items():
            out[f"model.layers.{i}.{name}_proj.weight"] = torch.randn(shape, generator=rng) * (1.2 / shape[1] ** 0.5)
    return {name: t.to(dtype) for name, t in out.items()}
