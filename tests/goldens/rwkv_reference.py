"""RWKV-5.2, 6 and 7 token by token, from their papers (arXiv 2404.05892, 2503.14456), with the tensor names of the authors' checkpoints. Transformers has no classes for them.

`python rwkv_reference.py FOLDER EXPECTED TOKEN...` prints how far the logits after these tokens are from stored ones (f32 numbers), for a folder with a `config.json` and a
`model.safetensors`, such as `rwkv_cpp.py` makes of published checkpoints.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn import functional as F


class State:
    """The state of a layer for a sequence: its last rows, and a matrix per head, rows for keys,
    columns for values."""

    def __init__(self, hidden, head, dtype):
        self.time = torch.zeros(hidden, dtype=dtype)
        self.channel = torch.zeros(hidden, dtype=dtype)
        self.heads = torch.zeros(hidden // head, head, head, dtype=dtype)


def norm(x, w, name, eps):
    return F.layer_norm(x, x.shape, w[f"{name}.weight"], w[f"{name}.bias"], eps)


def read_norm(y, w, name, heads, eps):
    return F.group_norm(y.reshape(1, -1), heads, w[f"{name}.weight"], w[f"{name}.bias"], eps)[0]


def heads_of(x, head):
    return x.reshape(-1, head)


def bonus_step(s, r, k, v, decay, bonus):
    """The result read from the states before, with the token itself weighted by the bonus; and the
    states after."""
    new = k[:, :, None] * v[:, None, :]
    y = torch.einsum("hk,hkv->hv", r, s.heads + bonus[:, :, None] * new)
    s.heads = decay[:, :, None] * s.heads + new
    return y.reshape(-1)


def time5(w, c, s, x, at, _):
    def mixed(letter):
        mu = w[f"{at}.time_mix_{letter}"].reshape(-1)
        return x * mu + s.time * (1 - mu)

    head = c["head_size"]
    r, k, v, g = (w[f"{at}.{name}.weight"] @ mixed(letter) for name, letter in (("receptance", "r"), ("key", "k"), ("value", "v"), ("gate", "g")))
    decay, bonus = torch.exp(-torch.exp(w[f"{at}.time_decay"])), w[f"{at}.time_faaaa"]
    y = bonus_step(s, heads_of(r, head), heads_of(k, head), heads_of(v, head), decay, bonus)
    # Division by the divisor before is more added to the variance.
    y = read_norm(y / c["head_size_divisor"], w, f"{at}.ln_x", len(y) // head, 1e-5)
    s.time = x
    return w[f"{at}.output.weight"] @ (y * F.silu(g))


def time6(w, c, s, x, at, _):
    head, way = c["head_size"], s.time - x
    low = torch.tanh((x + way * w[f"{at}.time_maa_x"].reshape(-1)) @ w[f"{at}.time_maa_w1"])
    moved = torch.einsum("id,idc->ic", low.reshape(5, -1), w[f"{at}.time_maa_w2"])
    xw, xk, xv, xr, xg = (x + way * (w[f"{at}.time_maa_{letter}"].reshape(-1) + moved[i]) for i, letter in enumerate("wkvrg"))
    r, k, v, g = (w[f"{at}.{name}.weight"] @ x for name, x in (("receptance", xr), ("key", xk), ("value", xv), ("gate", xg)))
    decay = w[f"{at}.time_decay"].reshape(-1) + torch.tanh(xw @ w[f"{at}.time_decay_w1"]) @ w[f"{at}.time_decay_w2"]
    decay = torch.exp(-torch.exp(decay))
    y = bonus_step(s, heads_of(r, head), heads_of(k, head), heads_of(v, head), heads_of(decay, head), w[f"{at}.time_faaaa"])
    y = read_norm(y, w, f"{at}.ln_x", len(y) // head, 1e-5 * c["head_size_divisor"] ** 2)
    s.time = x
    return w[f"{at}.output.weight"] @ (y * F.silu(g))


def time7(w, c, s, x, at, first):
    head, way = c["head_dim"], s.time - x
    xr, xw, xk, xv, xa, xg = (x + way * w[f"{at}.x_{letter}"].reshape(-1) for letter in "rwkvag")
    r, k, v = w[f"{at}.receptance.weight"] @ xr, w[f"{at}.key.weight"] @ xk, w[f"{at}.value.weight"] @ xv
    # As trained: log of minus log of the decay is at most −½.
    decay = -F.softplus(-(w[f"{at}.w0"].reshape(-1) + torch.tanh(xw @ w[f"{at}.w1"]) @ w[f"{at}.w2"])) - 0.5
    decay = torch.exp(-torch.exp(decay))
    if first.get("v") is None:
        first["v"] = v
    else:
        v = v + (first["v"] - v) * torch.sigmoid(w[f"{at}.v0"].reshape(-1) + (xv @ w[f"{at}.v1"]) @ w[f"{at}.v2"])
    a = torch.sigmoid(w[f"{at}.a0"].reshape(-1) + (xa @ w[f"{at}.a1"]) @ w[f"{at}.a2"])
    g = torch.sigmoid(xg @ w[f"{at}.g1"]) @ w[f"{at}.g2"]
    kk = F.normalize(heads_of(k * w[f"{at}.k_k"].reshape(-1), head), dim=-1)
    k = k * (1 + (a - 1) * w[f"{at}.k_a"].reshape(-1))
    r, k, v, a, decay = (heads_of(t, head) for t in (r, k, v, a, decay))
    held = torch.einsum("hk,hkv->hv", kk, s.heads)
    s.heads = decay[:, :, None] * s.heads - (kk * a)[:, :, None] * held[:, None, :] + k[:, :, None] * v[:, None, :]
    y = torch.einsum("hk,hkv->hv", r, s.heads).reshape(-1)
    y = read_norm(y, w, f"{at}.ln_x", len(r), head * c["norm_eps"])
    y = y + ((r * k * w[f"{at}.r_k"]).sum(-1, keepdim=True) * v).reshape(-1)
    s.time = x
    return w[f"{at}.output.weight"] @ (y * g)


def channel5(w, s, x, at):
    def mixed(letter):
        mu = w[f"{at}.time_mix_{letter}"].reshape(-1)
        return x * mu + s.channel * (1 - mu)

    y = w[f"{at}.value.weight"] @ torch.relu(w[f"{at}.key.weight"] @ mixed("k")) ** 2
    return torch.sigmoid(w[f"{at}.receptance.weight"] @ mixed("r")) * y


def channel6(w, s, x, at):
    xk, xr = (x + (s.channel - x) * w[f"{at}.time_maa_{letter}"].reshape(-1) for letter in "kr")
    y = w[f"{at}.value.weight"] @ torch.relu(w[f"{at}.key.weight"] @ xk) ** 2
    return torch.sigmoid(w[f"{at}.receptance.weight"] @ xr) * y


def channel7(w, s, x, at):
    xk = x + (s.channel - x) * w[f"{at}.x_k"].reshape(-1)
    return w[f"{at}.value.weight"] @ torch.relu(w[f"{at}.key.weight"] @ xk) ** 2


VERSIONS = {"rwkv5": (time5, channel5), "rwkv6": (time6, channel6), "rwkv7": (time7, channel7)}


@torch.no_grad()
def logits(w, c, tokens, dtype):
    """`[tokens, vocab]`, computed in `dtype`."""
    w = {name: t.to(dtype) for name, t in w.items()}
    time, channel = VERSIONS[c["model_type"]]
    eps = c.get("layer_norm_epsilon", c.get("norm_eps"))
    head = c.get("head_size", c.get("head_dim"))
    states = [State(c["hidden_size"], head, dtype) for _ in range(c["num_hidden_layers"])]
    rows = []
    for token in tokens:
        x, first = norm(w["emb.weight"][token], w, "blocks.0.ln0", eps), {}
        for i, s in enumerate(states):
            x = x + time(w, c, s, norm(x, w, f"blocks.{i}.ln1", eps), f"blocks.{i}.att", first)
            h = norm(x, w, f"blocks.{i}.ln2", eps)
            x = x + channel(w, s, h, f"blocks.{i}.ffn")
            s.channel = h
        rows.append(w["head.weight"] @ norm(x, w, "ln_out", eps))
    return torch.stack(rows)


def shapes(c):
    """Every tensor of a checkpoint with its shape."""
    n, ffn, vocab = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    out = {"emb.weight": (vocab, n), "head.weight": (vocab, n)}
    norms = ["ln_out", "blocks.0.ln0"]
    for i in range(c["num_hidden_layers"]):
        att, ffn_at = f"blocks.{i}.att", f"blocks.{i}.ffn"
        norms += [f"blocks.{i}.ln1", f"blocks.{i}.ln2", f"{att}.ln_x"]
        out |= {f"{att}.{name}.weight": (n, n) for name in ("receptance", "key", "value", "output")}
        out |= {f"{ffn_at}.key.weight": (ffn, n), f"{ffn_at}.value.weight": (n, ffn)}
        row = (1, 1, n)
        if c["model_type"] == "rwkv7":
            heads = (n // c["head_dim"], c["head_dim"])
            out |= {f"{att}.x_{letter}": row for letter in "rwkvag"} | {f"{ffn_at}.x_k": row, f"{att}.r_k": heads}
            out |= {f"{att}.{name}": row for name in ("w0", "a0", "k_k", "k_a")}
            for letter, rank in (("w", "decay"), ("a", "a"), ("g", "gate"), ("v", "v")):
                if letter != "v" or i > 0:
                    d = c[f"{rank}_low_rank_dim"]
                    out |= {f"{att}.{letter}1": (n, d), f"{att}.{letter}2": (d, n)}
            if i > 0:
                out[f"{att}.v0"] = row
            continue
        heads = (n // c["head_size"], c["head_size"])
        out |= {f"{att}.gate.weight": (n, n), f"{ffn_at}.receptance.weight": (n, n), f"{att}.time_faaaa": heads}
        if c["model_type"] == "rwkv5":
            out |= {f"{att}.time_mix_{letter}": row for letter in "rkvg"} | {f"{ffn_at}.time_mix_{letter}": row for letter in "kr"}
            out[f"{att}.time_decay"] = heads
        else:
            mix, decay = c["time_mix_extra_dim"], c["time_decay_extra_dim"]
            out |= {f"{att}.time_maa_{letter}": row for letter in "xwkvrg"} | {f"{ffn_at}.time_maa_{letter}": row for letter in "kr"}
            out |= {f"{att}.time_maa_w1": (n, 5 * mix), f"{att}.time_maa_w2": (5, mix, n), f"{att}.time_decay": row}
            out |= {f"{att}.time_decay_w1": (n, decay), f"{att}.time_decay_w2": (decay, n)}
    for name in norms:
        out |= {f"{name}.weight": (n,), f"{name}.bias": (n,)}
    return out


def random_tensors(c, seed, dtype):
    """Random values with enough spread that decays, mixtures and gates matter."""
    rng = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in sorted(shapes(c).items()):
        x = torch.randn(shape, generator=rng)
        last = name.rsplit(".", 1)[-1]
        if name.endswith(".bias"):
            x = 0.3 * x
        elif len(shape) == 1:
            x = 0.5 + torch.rand(shape, generator=rng)
        elif name in ("emb.weight", "head.weight"):
            x = 0.4 * x
        elif last == "time_decay":
            x = x - 1.0
        elif last.startswith(("time_m", "x_")) and shape[:2] == (1, 1):
            x = torch.rand(shape, generator=rng)
        elif shape[:2] != (1, 1) and last not in ("time_faaaa", "r_k"):
            x = x * (1.2 / shape[-1 if name.endswith(".weight") else -2] ** 0.5)
        out[name] = x.to(dtype)
    return out


def main():
    folder, expected, tokens = Path(sys.argv[1]), sys.argv[2], [int(t) for t in sys.argv[3:]]
    config = json.loads((folder / "config.json").read_text())
    ours = logits(load_file(folder / "model.safetensors"), config, tokens, torch.float64)[-1]
    theirs = torch.frombuffer(bytearray(Path(expected).read_bytes()), dtype=torch.float32).double()
    print(f"{config['model_type']}: {(ours - theirs).abs().max():.2e} away, of up to {theirs.abs().max():.1f}")


if __name__ == "__main__":
    main()
