"""Gated linear attention (arXiv 2312.06635) and RetNet (2307.08621) token by token, from their papers, with the tensor names of flash-linear-attention's checkpoints.
Transformers has no classes for them."""

import torch
from torch.nn import functional as F

MODELS = ("gla", "retnet")
# No file has these: the rank of the decays, and the divisor of their logarithms.
RANK, TEMPERATURE = 16, 16


def widths(c):
    return int(c["hidden_size"] * c["expand_k"]), int(c["hidden_size"] * c["expand_v"])


def groups(c):
    """Heads of keys and values."""
    return c["num_kv_heads"] or c["num_heads"]


def norm(x, w, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * w


def convolved(w, past, x, at, letter):
    """The activated sum of a channel's last tokens, each times its tap."""
    rows = past.setdefault(letter, [torch.zeros_like(x)] * (w[f"{at}.{letter}_conv1d.weight"].shape[-1] - 1)) + [x]
    past[letter] = rows[1:]
    return F.silu((torch.stack(rows, -1) * w[f"{at}.{letter}_conv1d.weight"][:, 0]).sum(-1))


def rotated(x, position):
    """Halves of each head, by angles that are computed in f32 as everywhere."""
    half = x.shape[-1] // 2
    angles = position * 10000.0 ** -(torch.arange(half, dtype=torch.float32) / half)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def decays(w, c, h, at):
    """Decays of each row of each state."""
    if c["model_type"] == "retnet":
        return 1 - torch.exp2(-5 - torch.arange(c["num_heads"], dtype=h.dtype))[:, None]
    low = w[f"{at}.gk_proj.0.weight"] @ h
    return torch.sigmoid(w[f"{at}.gk_proj.1.weight"] @ low + w[f"{at}.gk_proj.1.bias"]) ** (1 / TEMPERATURE)


def layer(w, c, state, past, h, at, position):
    heads = c["num_heads"]
    q, k, v = (w[f"{at}.{letter}_proj.weight"] @ h for letter in "qkv")
    if c["use_short_conv"]:
        q, k, v = (convolved(w, past, x, at, letter) for x, letter in ((q, "q"), (k, "k"), (v, "v")))
    decay = decays(w, c, h, at)
    q, decay = q.reshape(heads, -1), decay.reshape(groups(c) if decay.dim() == 1 else heads, -1)
    k, v = (x.reshape(groups(c), -1) for x in (k, v))
    if c["model_type"] == "retnet":
        q, k = rotated(q, position), rotated(k, position)
    # Heads that follow each other have keys, values and decays in common.
    k, v, decay = (x.repeat_interleave(heads // len(x), 0) for x in (k, v, decay))
    state.copy_(decay[:, :, None] * state + k[:, :, None] * v[:, None, :])
    y = torch.einsum("hk,hkv->hv", q * q.shape[1] ** -0.5, state)
    y = norm(y, w[f"{at}.g_norm_swish_gate.weight"], c["norm_eps"]).reshape(-1)
    return w[f"{at}.o_proj.weight"] @ (y * F.silu(w[f"{at}.g_proj.weight"] @ h))


@torch.no_grad()
def logits(w, c, tokens, dtype):
    """`[tokens, vocab]`, computed in `dtype`."""
    w = {name: t.to(dtype) for name, t in w.items()}
    keys, values = widths(c)
    heads, eps = c["num_heads"], c["norm_eps"]
    states = [torch.zeros(heads, keys // heads, values // heads, dtype=dtype) for _ in range(c["num_hidden_layers"])]
    pasts = [{} for _ in states]
    rows = []
    for position, token in enumerate(tokens):
        x = w["model.embeddings.weight"][token]
        for i, (state, past) in enumerate(zip(states, pasts)):
            at = f"model.layers.{i}"
            x = x + layer(w, c, state, past, norm(x, w[f"{at}.attn_norm.weight"], eps), f"{at}.attn", position)
            h = norm(x, w[f"{at}.mlp_norm.weight"], eps)
            x = x + w[f"{at}.mlp.down_proj.weight"] @ (F.silu(w[f"{at}.mlp.gate_proj.weight"] @ h) * (w[f"{at}.mlp.up_proj.weight"] @ h))
        rows.append(w["lm_head.weight"] @ norm(x, w["model.norm.weight"], eps))
    return torch.stack(rows)


def shapes(c):
    """Every tensor of a checkpoint with its shape."""
    n, ffn, vocab = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    keys, values = widths(c)
    out = {"model.embeddings.weight": (vocab, n), "lm_head.weight": (vocab, n), "model.norm.weight": (n,)}
    for i in range(c["num_hidden_layers"]):
        at, attn = f"model.layers.{i}", f"model.layers.{i}.attn"
        out |= {f"{at}.attn_norm.weight": (n,), f"{at}.mlp_norm.weight": (n,)}
        k, v = (width // c["num_heads"] * groups(c) for width in (keys, values))
        out |= {f"{attn}.{letter}_proj.weight": (width, n) for letter, width in (("q", keys), ("k", k), ("v", v), ("g", values))}
        if c["use_short_conv"]:
            out |= {f"{attn}.{letter}_conv1d.weight": (width, 1, c["conv_size"]) for letter, width in (("q", keys), ("k", k), ("v", v))}
        if c["model_type"] == "gla":
            out |= {f"{attn}.gk_proj.0.weight": (RANK, n), f"{attn}.gk_proj.1.weight": (k, RANK), f"{attn}.gk_proj.1.bias": (k,)}
        out |= {f"{attn}.g_norm_swish_gate.weight": (values // c["num_heads"],), f"{attn}.o_proj.weight": (n, values)}
        out |= {f"{at}.mlp.gate_proj.weight": (ffn, n), f"{at}.mlp.up_proj.weight": (ffn, n), f"{at}.mlp.down_proj.weight": (n, ffn)}
    return out


def random_tensors(c, seed, dtype):
    """Random values with enough spread that decays and gates matter."""
    rng = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in sorted(shapes(c).items()):
        x = torch.randn(shape, generator=rng)
        if name.endswith(".bias"):
            # Half of the rows forget within some ten tokens.
            x = 2 * x - 1
        elif len(shape) == 1:
            x = 0.5 + torch.rand(shape, generator=rng)
        elif name in ("model.embeddings.weight", "lm_head.weight"):
            x = 0.4 * x
        else:
            x = x * (1.2 / shape[-1] ** 0.5)
        out[name] = x.to(dtype)
    return out
