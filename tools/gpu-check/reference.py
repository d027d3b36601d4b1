"""Llama in NumPy: exactly (f64), and as a library computes it in 16 bits, each operation's result rounded. `prepare.py` makes the references of small models with it."""

import json

import numpy as np

# All artifacts of a prepared folder. They hold the same runtime; one archive has little more than
# one copy of it.
ARCHIVE = "artifacts.tar.xz"
# A rounding error that is none: sums in another order.
FLOOR = 1e-3


def exact(x):
    return x


def bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def f16(x):
    return x.astype(np.float16).astype(np.float32)


DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32}


def tensors_of(file):
    """The tensors of a file of safetensors: bf16 in f32, others as they are."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    out = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            raw = data[8 + size + entry["data_offsets"][0] : 8 + size + entry["data_offsets"][1]]
            if entry["dtype"] == "BF16":
                values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(raw, DTYPES[entry["dtype"]])
            out[name] = values.reshape(entry["shape"])
    return out


def tensors(folder):
    """The tensors of `model.safetensors`, in f32."""
    return {name: values.astype(np.float32) for name, values in tensors_of(folder / "model.safetensors").items()}


class Llama:
    """`rounded`: the rounding of a stored result."""

    def __init__(self, config, weights, rounded):
        self.config, self.rounded = config, rounded
        self.dtype = np.float64 if rounded is exact else np.float32
        self.w = {name: rounded(w).astype(self.dtype) for name, w in weights.items()}

    def linear(self, x, name):
        return self.rounded(x @ self.w[name].T)

    def norm(self, x, name):
        wide = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return self.rounded(self.rounded(wide) * self.w[name])

    def rope(self, x):
        d = x.shape[-1]
        angle = np.arange(x.shape[0])[:, None] * self.config["rope_theta"] ** (-np.arange(0, d, 2) / d)
        cos, sin = (self.rounded(np.concatenate([f(angle)] * 2, -1).astype(self.dtype))[:, None] for f in (np.cos, np.sin))
        turned = np.concatenate([-x[..., d // 2 :], x[..., : d // 2]], -1)
        return self.rounded(self.rounded(x * cos) + self.rounded(turned * sin))

    def attention(self, q, k, v):
        """Attention of all tokens `[tokens, heads, D]` to the tokens before them."""
        t, heads, d = q.shape
        k, v = (np.repeat(x, heads // x.shape[1], 1) for x in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(d)
        scores = np.where(np.tri(t, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out = np.einsum("hqk,khd->qhd", self.rounded(weights), v) / weights.sum(-1).T[..., None]
        return self.rounded(out.astype(self.dtype)).reshape(t, -1)

    def logits(self, tokens):
        """All rows, of a sequence from its start."""
        if self.config.get("rope_scaling"):
            raise ValueError("scaled rotary frequencies")
        t = len(tokens)
        x = self.w["model.embed_tokens.weight"][tokens]
        for i in range(self.config["num_hidden_layers"]):
            p = f"model.layers.{i}."
            y = self.norm(x, p + "input_layernorm.weight")
            q, k, v = (self.linear(y, f"{p}self_attn.{n}_proj.weight").reshape(t, -1, self.config["head_dim"]) for n in "qkv")
            y = self.attention(self.rope(q), self.rope(k), v)
            x = self.rounded(x + self.linear(y, p + "self_attn.o_proj.weight"))
            y = self.norm(x, p + "post_attention_layernorm.weight")
            gate = self.linear(y, p + "mlp.gate_proj.weight")
            gate = self.rounded(gate / (1 + np.exp(-gate)))
            x = self.rounded(x + self.linear(self.rounded(gate * self.linear(y, p + "mlp.up_proj.weight")), p + "mlp.down_proj.weight"))
        head = "lm_head.weight" if "lm_head.weight" in self.w else "model.embed_tokens.weight"
        return self.linear(self.norm(x, "model.norm.weight"), head)


def relative(got, want):
    """Root mean square of the error over that of the reference, of the worst row; infinite when a number is missing."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if not np.isfinite(got).all():
        return float("inf")
    return float((np.sqrt(((got - want) ** 2).mean(-1)) / np.sqrt((want**2).mean(-1))).max())
