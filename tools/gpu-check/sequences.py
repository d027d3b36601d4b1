"""The meaning of kernels that take the tokens of a sequence in order, or choose experts: the rest
of `evaluate.Evaluator`, and the operands that only they have.

Follows `ir/src/eval/recurrent.rs` and `ir/src/graph/op/route.rs`.
"""

import math
from dataclasses import dataclass

import numpy as np

from operands import Unknown, up


@dataclass
class States:
    """Slots of a state of fixed size: f32 `[slots, numbers]`, each padded to whole cache lines. That of a sequence is the first page of its table."""

    heads: int
    rows: int
    cols: int

    @property
    def numbers(self):
        return self.heads * self.rows * self.cols

    @property
    def bytes(self):
        return up(4 * self.numbers, 64)

    def pool(self, xp, slots, change):
        data = xp.full((slots, self.bytes), 0xFF, xp.bytes(1, 0).dtype)
        data[:, : 4 * self.numbers] = xp.encode(change(xp.normal((slots, self.numbers))), "f32")
        return data.reshape(-1)

    def read(self, xp, pool, slots, dtype):
        """`[sequences, numbers]`."""
        return xp.decode(pool.reshape((-1, self.bytes))[xp.array(slots, xp.int64), : 4 * self.numbers], "f32", dtype)


def changes(xp, kernel):
    """Changes to the random numbers of operands, so that states do not grow without bounds and
    routes name experts: a function by operand."""
    body, below_one = kernel["body"], lambda x: 1 / (1 + abs(x))
    if body["family"] == "recurrence":
        rows = kernel["params"][body["state"]]["rows"]
        short = lambda x: x / math.sqrt(2 * rows)
        found = {body["k"]: short, body["decay"]: below_one}
        if body["update"] in ("plain", "delta"):
            found[body["with"]] = below_one
        if body["update"] == "erase":
            found |= {body["with"]: short, body["write"]: short}
        if body["update"] == "scan":
            found[body["with"]] = lambda x: -abs(x)
        return found
    if body["family"] == "wkv":
        # Weights are not negative.
        return {body["decay"]: lambda x: -abs(x), body["state"]: lambda x: abs(x)}
    if body["family"] == "expert_matmul" and body["routes"] is not None:
        return {body["routes"]: lambda x: routes(xp, x, body["experts"], body["top"])}
    return {}


def routes(xp, x, experts, top):
    """Different experts for each row, and weights."""
    rng = np.random.default_rng(x.shape[0])
    chosen = np.argsort(rng.random((x.shape[0], experts)), 1)[:, :top]
    return xp.join([xp.array(chosen, xp.float32), abs(x[:, top:])], 1)


class Sequences:
    """Families of `Evaluator` that keep states or choose experts."""

    def per_token(self, param, start=0, n=None):
        """A row for each token; of a vector the same for all."""
        x = self.value(param)
        x = x if len(x.shape) == 2 else x[None] + self.xp.full((self.m, 1), 0, self.dtype)
        return x[:, start : None if n is None else start + n]

    def states(self, param):
        """The state's shape, the sequences of the step, and their contents: a copy."""
        states, pool = self.operands[param]
        return states, states.read(self.xp, pool, self.step.firsts(), self.dtype) + 0

    def mine(self, seq):
        return [i for i, s in enumerate(self.step.seqs) if s == seq]

    def causal_conv(self, body):
        xp, (states, kept) = self.xp, self.states(body["state"])
        width, channels = body["width"], states.cols
        x, taps = self.per_token(body["x"], body["start"], channels), self.value(body["taps"]).reshape((width, channels))
        out = xp.full((self.m, channels), 0, self.dtype)
        for seq in range(kept.shape[0]):
            rows = self.indices(self.mine(seq))
            inputs = xp.join([kept[seq].reshape((width - 1, channels)), x[rows]], 0)
            out[rows] = sum(taps[i] * inputs[i : i + len(rows)] for i in range(width))
            kept[seq] = inputs[-(width - 1) :].reshape(-1)
        return [self.to_rows(body["out"], out), (["state", body["state"]], kept)]

    def recurrence(self, body):
        xp, (states, kept) = self.xp, self.states(body["state"])
        heads, rows, cols, update, groups = states.heads, states.rows, states.cols, body["update"], body["groups"]
        of_group = lambda x: x.reshape((self.m, groups, rows))[:, self.indices([h // (heads // groups) for h in range(heads)])]
        q, k = (of_group(self.per_token(body[p], body[f"{p}_start"], groups * rows)) for p in ("q", "k"))
        v = self.per_token(body["v"], body["v_start"], heads * cols).reshape((self.m, heads, cols))
        decay, rate = self.per_token(body["decay"]), body["with"]
        if update == "scan":
            steps, rate = decay.reshape((self.m, heads, 1, cols)), self.value(rate).reshape((heads, rows, cols))
        else:
            decay = decay.reshape((self.m, heads, -1, 1))
        if update in ("plain", "delta"):
            rate = self.per_token(rate).reshape((self.m, heads, 1))
        elif update == "erase":
            rate, write = of_group(self.per_token(rate)), of_group(self.per_token(body["write"]))
        elif update == "bonus":
            rate = self.value(rate).reshape((heads, rows, 1))
        out = xp.full((self.m, heads, cols), 0, self.dtype)
        read = lambda by, s: (by[:, :, None] * s).sum(1)
        for t, seq in enumerate(self.step.seqs):
            before = kept[seq].reshape((heads, rows, cols))
            s = before * (xp.exp(rate * steps[t]) if update == "scan" else decay[t])
            if update in ("plain", "delta"):
                new = rate[t] * (v[t] - read(k[t], s) if update == "delta" else v[t])
            else:
                new = v[t]
            after = s + k[t][:, :, None] * new[:, None]
            if update == "erase":
                after = after - write[t][:, :, None] * read(rate[t], s)[:, None]
            seen = before + rate * k[t][:, :, None] * v[t][:, None] if update == "bonus" else after
            out[t] = read(q[t], seen)
            kept[seq] = after.reshape(-1)
        return [self.to_rows(body["out"], out.reshape((self.m, -1))), (["state", body["state"]], kept)]

    def wkv(self, body):
        xp, (states, kept) = self.xp, self.states(body["state"])
        channels = states.cols
        k, v = (self.per_token(body[p], body[f"{p}_start"], channels) for p in ("k", "v"))
        decay, bonus = self.value(body["decay"]), self.value(body["bonus"])
        out = xp.full((self.m, channels), 0, self.dtype)

        def joined(a, b, m, key, value):
            most = xp.maximum(m, key)
            old, new = xp.exp(m - most), xp.exp(key - most)
            return old * a + new * value, old * b + new, most

        for t, seq in enumerate(self.step.seqs):
            a, b, m = kept[seq].reshape((3, channels))
            m = xp.where(b > 0, m, xp.full((1,), -1e38, self.dtype))
            total, weights, _ = joined(a, b, m, k[t] + bonus, v[t])
            out[t] = total / weights
            kept[seq] = xp.join(list(joined(a, b, m + decay, k[t], v[t])), 0)
        return [self.to_rows(body["out"], out), (["state", body["state"]], kept)]

    def route(self, body):
        xp, groups, top = self.xp, body["groups"], body["top"]
        logits, bias = self.value(body["x"]), self.value(body["bias"])
        if body["score"] == "mixer":
            raise Unknown("experts chosen by the sparse mixer")
        m, experts = logits.shape
        powers = lambda x: xp.exp(x - xp.amax(x, -1)[..., None])
        softmax = lambda x: powers(x) / powers(x).sum(-1)[..., None]
        scores = {"softmax": softmax, "chosen": lambda x: x, "sigmoid": lambda x: 1 / (1 + xp.exp(-x))}[body["score"]](logits)
        order = scores + bias[None]
        if groups > 1:
            best = xp.top(order.reshape((m * groups, -1)), 2 if body["pairs"] else 1)[0].sum(-1).reshape((m, groups))
            kept = xp.top(best, body["kept"])[1]
            group = self.indices(np.arange(experts) // (experts // groups))[None]
            allowed = sum(xp.cast(group == kept[:, i : i + 1], xp.int32) for i in range(body["kept"]))
            order = xp.where(allowed > 0, order, xp.full((1,), -math.inf, self.dtype))
        chosen = xp.top(order, top)[1]
        number = self.indices(np.arange(experts))[None]
        of = lambda x, i: xp.where(number == chosen[:, i : i + 1], x, x - x).sum(-1)[:, None]
        weights = xp.join([of(scores, i) for i in range(top)], 1)
        weights = softmax(weights) if body["score"] == "chosen" else weights
        if body["normalize"]:
            weights = weights / (weights.sum(-1)[:, None] + body["eps"])
        return [self.to_rows(body["out"], xp.join([xp.cast(chosen, self.dtype), weights * body["scale"]], 1))]

    def expert_matmul(self, body):
        xp, top, experts = self.xp, body["top"], body["experts"]
        (s,), x = body["segments"], self.value(body["x"])
        elem, k = self.kernel["params"][body["x"]]["elem"], self.kernel["params"][s["weights"][0]]["k"]
        own = x.shape[1] != k or body["routes"] is None
        weights = [self.weight(w, elem).reshape((experts, -1, k))[:, : s["n"]] for w in s["weights"]]
        named = None if body["routes"] is None else np.array(self.value(body["routes"])[:, :top].tolist(), int)
        parts = []
        for slot in range(top):
            mine = np.full(self.m, slot) if named is None else named[:, slot]
            lanes = [xp.full((self.m, s["n"]), 0, self.dtype) for _ in weights]
            for e in sorted(set(mine.tolist())):
                rows = self.indices(np.flatnonzero(mine == e))
                for lane, w in zip(lanes, weights):
                    lane[rows] = (x[rows, slot * k : (slot + 1) * k] if own else x[rows]) @ w[e].T
            self.slot = slot
            parts.append(self.expr(s["expr"], s["n"], lanes) + xp.full((self.m, s["n"]), 0, self.dtype))
        self.slot = None
        store, values = s["store"], xp.join(parts, 1)
        return [(store, self.rounded(values, self.kernel["params"][store[1]]["elem"]))]

    def expert_vector(self, vector, named, top, n):
        """Each slot's expert's part of a vector; in products of experts that of the slot at hand."""
        chosen = np.array(self.value(named)[:, :top].tolist(), int)
        slots = range(top) if self.slot is None else [self.slot]
        parts = self.value(vector).reshape((-1, n // len(slots)))
        return self.xp.join([parts[self.indices(chosen[:, slot])] for slot in slots], 1)

    def combine(self, weights, first, y, count):
        """In order, as everywhere."""
        w, y = self.value(weights)[:, first : first + count], self.value(y)
        runs = y.reshape((y.shape[0], count, -1))
        return sum(w[:, i : i + 1] * runs[:, i] for i in range(count))
