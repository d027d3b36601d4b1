"""The meaning of kernels, in NumPy or PyTorch: twice, exactly (f64) and as PyTorch would compute
it (f32, with 16-bit operands and results where the kernel has them).

Follows the documentation of `ir/src/kernel/mod.rs`. A kernel is described by `llmcc lower` in `kernels.json`.
"""

import math

import numpy as np

from operands import PAGE, Quantized, Unknown
from sequences import Sequences

HALVES = ("f16", "bf16")


class Evaluator(Sequences):
    """A kernel with its operands (`values`: numbers of rows, matrices and vectors; `(shape, pool)` of a state) and a step."""

    # The slot in a product of experts.
    slot = None

    def __init__(self, xp, kernel, step, values, exact):
        self.xp, self.kernel, self.step, self.operands, self.exact = xp, kernel, step, values, exact
        self.dtype = xp.float64 if exact else xp.float32
        self.m = step.rows(kernel["rows"])

    def run(self):
        """`[(store, values)]`, where a store is `["rows", operand, first column]`, `["key", operand]`, `["value", operand]` or `["state", operand]`."""
        body = self.kernel["body"]
        return getattr(self, body["family"])(body)

    # ---- operands ----

    def value(self, param):
        operand = self.operands[param]
        return self.xp.cast(operand.value if isinstance(operand, Quantized) else operand, self.dtype)

    def weight(self, param, elem):
        """A matrix as it is multiplied with rows of `elem`: 16-bit products have scales and weights of these 16 bits, as PyTorch's 4-bit product has."""
        w, elem = self.operands[param], "f16" if elem == "fp8" else elem
        if self.exact or elem not in HALVES or not isinstance(w, Quantized):
            return self.rounded(self.value(param), elem)
        x = w.wide(self.xp, self.rounded(w.scale, elem)) * w.codes
        return self.rounded(x if w.minimum is None else x + w.wide(self.xp, self.rounded(w.minimum, elem)), elem)

    def rounded(self, x, elem):
        """`x` in 16 bits or, by rows, in fp8, where that is how it is stored; the exact value is not rounded."""
        if not self.exact and elem == "fp8":
            return self.fp8(x)
        if self.exact or elem not in HALVES:
            return x
        return self.xp.decode(self.xp.encode(x, elem), elem, self.dtype)

    def fp8(self, x):
        """Rows of e4m3 numbers, the largest being 448: three bits of mantissa, exponents from -6
        on."""
        xp = self.xp
        scale = xp.amax(abs(x), -1)[..., None] / 448 + 1e-30
        x = x / scale
        exponent = xp.floor(xp.log2(xp.maximum(abs(x), xp.full((1,), 2.0**-6, self.dtype))))
        step = xp.exp2(exponent - 3)
        return xp.round(x / step) * step * scale

    def indices(self, x):
        return self.xp.array(x, self.xp.int64)

    # ---- families ----

    def matmul(self, body):
        x = self.value(body["x"])
        elem = self.kernel["params"][body["x"]]["elem"]
        if body["prologue"]:
            p = body["prologue"]
            elem = p["elem"]
            x = self.rounded(self.plus(self.gain(self.norm(x, p["norm"]), p["gain"]), p["bias"]), elem)
        out = []
        for s in body["segments"]:
            lanes = [x @ self.weight(w, elem).T for w in s["weights"]]
            out.append(self.segment(s, lanes))
        return out

    def pointwise(self, body):
        return [self.segment(s, []) for s in body["segments"]]

    def row_norm(self, body):
        x = self.value(body["x"])
        if body["gather"]:
            x = x[self.indices(self.step.out_rows)]
        x = self.plus(self.gain(self.norm(x, body["norm"]), body["gain"]), body["bias"])
        if body["residual"] is not None:
            x = self.value(body["residual"]) + x
        return [self.to_rows(body["out"], x)]

    def embed(self, body):
        index = self.step.positions if body["positions"] else self.step.tokens
        x = self.value(body["table"])[self.indices(index)] * body["scale"]
        if body["add"] is not None:
            x = x + self.value(body["add"])
        return [self.to_rows(body["out"], x)]

    def rope_table(self, body):
        xp = self.xp
        positions = xp.array(self.step.positions, xp.float32)
        # The angle is rounded to f32, as in Transformers.
        angle = xp.cast(positions[:, None] * self.operands[body["inv_freq"]], self.dtype)
        return [self.to_rows(body["out"], body["scale"] * xp.join([xp.cos(angle), xp.sin(angle)], 1))]

    def attention(self, body):
        xp, step = self.xp, self.step
        cache, pool = self.operands[body["kv"]]
        keys, values = cache.read(xp, pool, self.dtype)
        if body["bias"] is not None or body["bidirectional"] or body["chunked"]:
            raise Unknown("attention with a bias, in chunks or both ways")
        half = cache.elem if cache.elem in HALVES else "f16" if cache.elem == "int8" else None
        group = body["heads"] // cache.heads
        q = self.rounded(self.value(body["q"]), half).reshape((self.m, cache.heads, group, -1))
        if cache.latent:
            # A key is its stored part, followed by the value.
            q = xp.join([self.rounded(self.value(body["own"]), half).reshape((self.m, cache.heads, group, -1)), q], 3)
            keys = xp.join([keys, values], 3)
        out = xp.full((self.m, cache.heads, group, cache.value_d), 0, self.dtype)
        sinks = None if body["sinks"] is None else self.value(body["sinks"]).reshape((cache.heads, group, 1, 1))
        window = self.kernel["params"][body["kv"]]["window"]
        for s, length in enumerate(step.lengths):
            mine = [i for i, seq in enumerate(step.seqs) if seq == s]
            if not mine:
                continue
            pages = self.indices(step.table[s][: -(-length // PAGE)])
            # [heads, positions, D]
            k, v = (xp.permute(x[pages], (1, 0, 2, 3)).reshape((cache.heads, -1, x.shape[-1]))[:, :length] for x in (keys, values))
            at = xp.array(list(range(length)), xp.int64)[None]
            for first in range(0, len(mine), 1024):
                rows = mine[first : first + 1024]
                position = self.indices(step.positions[rows])[:, None]
                seen = at <= position
                if window:
                    seen = seen & (at > position - window)
                for h in range(cache.heads):
                    scores = xp.permute(q[self.indices(rows), h], (1, 0, 2)) @ k[h].T * body["scale"]
                    if body["softcap"]:
                        scores = body["softcap"] * xp.tanh(scores / body["softcap"])
                    weights, total = self.softmax(scores, seen[None], None if sinks is None else sinks[h])
                    if half:
                        # The scale of an int8 value is part of its weight; only the code is multiplied.
                        weights = self.rounded(weights, half)
                    out[self.indices(rows), h] = xp.permute(weights @ v[h] / total, (1, 0, 2))
        return [self.to_rows(body["out"], out.reshape((self.m, -1)))]

    def top_k(self, body):
        xp, k = self.xp, body["k"]
        x = self.value(body["x"])
        values, ids = xp.top(x, k)
        power = xp.exp((x - values[:, :1]) * (self.step.scale * math.log(2)))
        parts = [values, xp.cast(ids, self.dtype), power.sum(-1)[..., None]]
        return [(["rows", body["out"], at], part) for at, part in zip((0, k, 2 * k), parts)]

    def softmax(self, scores, seen, sink=None):
        """Weights relative to the largest, and their sum; a sink is one more score, of a value that is zero."""
        xp = self.xp
        scores = xp.where(seen, scores, xp.full((1,), -math.inf, self.dtype))
        most = xp.amax(scores, -1)[..., None]
        most = most if sink is None else xp.maximum(most, sink)
        weights = xp.exp(scores - most)
        total = weights.sum(-1)[..., None]
        return weights, total if sink is None else total + xp.exp(sink - most)

    # ---- expressions ----

    def segment(self, s, lanes):
        values = self.expr(s["expr"], s["n"], lanes)
        values = values + self.xp.full((self.m, s["n"]), 0, self.dtype)
        store = s["store"]
        return (store, self.rounded(values, self.kernel["params"][store[1]]["elem"])) if store[0] == "rows" else (store, values)

    def to_rows(self, param, values):
        return ["rows", param, 0], self.rounded(values, self.kernel["params"][param]["elem"])

    def norm(self, x, norm):
        if not norm:
            return x
        runs = x.reshape((x.shape[0], -1, norm["width"]))
        if norm["center"]:
            runs = runs - runs.mean(-1)[..., None]
        runs = runs / self.xp.sqrt((runs * runs).mean(-1)[..., None] + norm["eps"])
        return runs.reshape(x.shape)

    def gain(self, x, param):
        return x if param is None else x * self.repeated(param, x.shape[1])

    def plus(self, x, param):
        return x if param is None else x + self.repeated(param, x.shape[1])

    def repeated(self, param, n):
        v = self.value(param)
        return self.xp.join([v] * -(-n // v.shape[0]), 0)[:n][None]

    def expr(self, e, n, lanes):
        xp, (kind, *rest) = self.xp, e
        if kind == "acc":
            return lanes[rest[0]]
        if kind == "rows":
            start = rest[1] + (self.slot or 0) * n
            return self.value(rest[0])[: self.m, start : start + n]
        if kind == "vector":
            return self.repeated(rest[0], n)
        if kind == "const":
            return xp.full((1, 1), rest[0], self.dtype)
        if kind == "expert":
            return self.expert_vector(*rest, n)
        if kind == "pick":
            return self.value(rest[0])[: self.m, self.indices(np.array(self.value(rest[1]).tolist(), int))]
        if kind == "combine":
            return self.combine(*rest)
        if kind == "norm":
            return self.norm(self.expr(rest[1], n, lanes), rest[0])
        if kind == "rope":
            return self.rope(rest[0], self.value(rest[1]), self.expr(rest[2], n, lanes))
        arguments = [self.expr(x, n, lanes) for x in rest]
        return unary(xp, kind, *arguments) if len(arguments) == 1 else binary(xp, kind, *arguments)

    def rope(self, head_dim, table, x):
        m, n = x.shape
        half = table.shape[1] // 2
        cos, sin = table[:, None, :half], table[:, None, half:]
        x = x.reshape((m, n // head_dim, head_dim))
        a, b = x[..., :half], x[..., half : 2 * half]
        return self.xp.join([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], 2).reshape((m, n))


def unary(xp, kind, x):
    if kind == "neg":
        return -x
    if kind == "exp":
        return xp.exp(x)
    if kind == "sigmoid":
        return 1 / (1 + xp.exp(-x))
    if kind == "silu":
        return x / (1 + xp.exp(-x))
    if kind == "gelu":
        return 0.5 * x * (1 + xp.erf(x * math.sqrt(0.5)))
    if kind == "gelu_tanh":
        return 0.5 * x * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    if kind == "relu":
        return xp.where(x < 0, x - x, x)
    if kind == "relu2":
        return xp.where(x < 0, x - x, x) ** 2
    if kind == "tanh":
        return xp.tanh(x)
    if kind == "sqrt":
        return xp.sqrt(x)
    if kind == "softplus":
        return xp.maximum(x, x - x) + xp.log1p(xp.exp(-abs(x)))
    raise Unknown(f"the function {kind}")


def binary(xp, kind, a, b):
    if kind in ("max", "min"):
        return (xp.maximum if kind == "max" else xp.minimum)(a, b)
    return {"add": a.__add__, "sub": a.__sub__, "mul": a.__mul__, "div": a.__truediv__}[kind](b)
