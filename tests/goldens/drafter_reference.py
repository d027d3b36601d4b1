#!/usr/bin/env python3
"""Makes `drafters/model/golden.safetensors`: rows and logits of a small Llama, of drafts of EAGLE-1, EAGLE-3 and Medusa for it, and the tokens that they guess one after the other.

    python drafter_reference.py

Written from the papers (arXiv 2401.15077, 2503.01840, 2401.10774) with NumPy alone, in float64 and float32. A draft's entry `j` is the model's row `j` with token `j + 1`; its
own row stands in for the model's from there on. `NAME.guesses` i32[GUESSES] are the most probable tokens after the prompt and `NEXT`, the token that follows it.
"""

import json
import struct

import numpy as np

import weights

TOKENS, GUESSES, NEXT = 20, 4, 77
HERE = weights.HERE / "drafters"


def tensors(path):
    """Tensors as float64."""
    values = {}
    for name, (dtype, shape, data) in weights.tensors_in(path).items():
        if dtype == "i64":
            values[name] = np.frombuffer(data, "<i8").reshape(shape)
        else:
            values[name] = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64).reshape(shape)
    return values


def rms(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(eps)) * gain


def silu(x):
    return x / (1 + np.exp(-x))


def rotated(x, theta):
    """`x` [T, heads, dim], halves rotated by angles of positions; frequencies in float32, as implementations have them."""
    dim = x.shape[-1]
    frequencies = (1 / np.float32(theta) ** (np.arange(0, dim, 2, dtype=np.float32) / dim)).astype(np.float32)
    angles = np.arange(len(x), dtype=x.dtype)[:, None] * frequencies.astype(x.dtype)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., : dim // 2], x[..., dim // 2 :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(x, w, at, config):
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim", config["hidden_size"] // heads)

    def projected(name):
        return x @ w[f"{at}{name}.weight"].T + w.get(f"{at}{name}.bias", 0)

    q = rotated(projected("q_proj").reshape(-1, heads, dim), config["rope_theta"])
    k = rotated(projected("k_proj").reshape(-1, kv, dim), config["rope_theta"])
    v = projected("v_proj").reshape(-1, kv, dim)
    k, v = (np.repeat(t, heads // kv, 1) for t in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / x.dtype.type(dim**0.5)
    scores = np.where(np.tri(len(x), dtype=bool)[None], scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    y = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v)
    return y.reshape(len(x), -1) @ w[f"{at}o_proj.weight"].T


def fed(x, w, at):
    return (silu(x @ w[f"{at}gate_proj.weight"].T) * (x @ w[f"{at}up_proj.weight"].T)) @ w[f"{at}down_proj.weight"].T


def llama(tokens, w, config):
    """The inputs of all layers, the last hidden state after its norm, logits."""
    x, inputs, eps = w["model.embed_tokens.weight"][tokens], [], config["rms_norm_eps"]
    for i in range(config["num_hidden_layers"]):
        inputs.append(x)
        at = f"model.layers.{i}."
        x = x + attention(rms(x, w[f"{at}input_layernorm.weight"], eps), w, f"{at}self_attn.", config)
        x = x + fed(rms(x, w[f"{at}post_attention_layernorm.weight"], eps), w, f"{at}mlp.")
    hidden = rms(x, w["model.norm.weight"], eps)
    return inputs, hidden, hidden @ w["lm_head.weight"].T


def eagle(rows, tokens, w, base, config):
    """Rows and logits of EAGLE-1 for the model's rows and the tokens behind them."""
    x = np.concatenate([w["embed_tokens.weight"][tokens], rows], -1) @ w["fc.weight"].T + w["fc.bias"]
    x = x + attention(x, w, "layers.0.self_attn.", config)
    x = x + fed(rms(x, w["layers.0.post_attention_layernorm.weight"], config["rms_norm_eps"]), w, "layers.0.mlp.")
    return x, x @ base["lm_head.weight"].T


def eagle3(rows, tokens, w, base, config):
    """The same of EAGLE-3, with its rows made of three layers'; logits are of the draft's own tokens."""
    eps = config["rms_norm_eps"]
    x = rms(base["model.embed_tokens.weight"][tokens], w["midlayer.input_layernorm.weight"], eps)
    x = np.concatenate([x, rms(rows, w["midlayer.hidden_norm.weight"], eps)], -1)
    x = rows + attention(x, w, "midlayer.self_attn.", config)
    x = x + fed(rms(x, w["midlayer.post_attention_layernorm.weight"], eps), w, "midlayer.mlp.")
    return x, rms(x, w["norm.weight"], eps) @ w["lm_head.weight"].T


def medusa(rows, w, head, blocks):
    x = rows
    for i in range(blocks):
        x = x + silu(x @ w[f"{head}.{i}.linear.weight"].T + w[f"{head}.{i}.linear.bias"])
    return x @ w[f"{head}.{blocks}.weight"].T


def chain(draft, rows, tokens, targets):
    """Guesses after the prompt and `NEXT`: each is the most probable token, and goes on with the draft's own row. All are far from the second."""
    rows, tokens, guesses = rows, [*tokens[1:], NEXT], []
    for _ in range(GUESSES):
        left, logits = draft(rows, tokens)
        best = np.sort(logits[-1])
        assert best[-1] - best[-2] > 0.01, best[-2:]
        token = int(logits[-1].argmax())
        guesses.append(token if targets is None else int(token + targets[token]))
        rows, tokens = np.concatenate([rows, left[-1:]]), [*tokens, guesses[-1]]
    return np.array(guesses, np.int32)


def computed(dtype):
    """All results in a type."""
    kinds = {name: json.loads((HERE / name / "config.json").read_text()) for name in ("model", "eagle", "eagle3", "medusa")}
    made = weights.fixture(HERE)
    files = {}
    for name in kinds:
        path = made / name / ("medusa_lm_head.safetensors" if name == "medusa" else "model.safetensors")
        files[name] = {k: v if v.dtype == np.int64 else v.astype(dtype) for k, v in tensors(path).items()}
    base = files["model"]
    tokens = np.random.default_rng(8100).integers(3, kinds["model"]["vocab_size"], TOKENS)
    inputs, hidden, logits = llama(tokens, base, kinds["model"])
    assert logits.dtype == dtype
    fused = np.concatenate([inputs[2], inputs[3], inputs[4]], -1) @ files["eagle3"]["fc.weight"].T
    out = {"tokens": tokens.astype(np.int32), "model.hidden": hidden, "model.fused": fused}
    for name, of, rows in (("eagle", eagle, hidden), ("eagle3", eagle3, fused)):
        w, config, targets = files[name], kinds[name], files[name].get("d2t")
        left, logits = of(rows[:-1], tokens[1:], w, base, config)
        assert logits.dtype == dtype
        out[f"{name}.logits"], out[f"{name}.hidden"] = logits, left
        out[f"{name}.guesses"] = chain(lambda rows, tokens: of(rows, np.array(tokens), w, base, config), rows, list(tokens), targets)
    heads, blocks = kinds["medusa"]["medusa_num_heads"], kinds["medusa"]["medusa_num_layers"]
    for head in range(heads):
        out[f"medusa{head}.logits"] = medusa(hidden, files["medusa"], head, blocks)
    out["medusa.guesses"] = np.array([out[f"medusa{head}.logits"][-1].argmax() for head in range(heads)], np.int32)
    return out


def written(values):
    """A file of safetensors."""
    types = {np.dtype(np.float32): "F32", np.dtype(np.int32): "I32"}
    header, data = {}, b""
    for name, value in sorted(values.items()):
        header[name] = {"dtype": types[value.dtype], "shape": list(value.shape), "data_offsets": [len(data), len(data) + value.nbytes]}
        data += np.ascontiguousarray(value).tobytes()
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + data


if __name__ == "__main__":
    exact, single = computed(np.float64), computed(np.float32)
    golden = {}
    for name, value in exact.items():
        if value.dtype == np.int32:
            assert (value == single[name]).all(), name
            golden[name] = value
            continue
        golden[name] = value.astype(np.float32)
        golden[f"{name}_error_f32"] = np.abs(single[name] - value).max(keepdims=True).reshape(1).astype(np.float32)
        print(f"| {name} | {value.std():.2f} | {np.abs(single[name] - value).max():.1e} |")
    print({name: value.tolist() for name, value in exact.items() if name.endswith("guesses")})
    (HERE / "model" / "golden.safetensors").write_bytes(written(golden))
