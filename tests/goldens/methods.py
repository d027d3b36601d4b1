#!/usr/bin/env python3
"""Errors of a layer whose weights are rounded by several methods, from the papers and the authors' code.

    python methods.py        # prints the tables of `passes/tests/methods.rs`

Needs NumPy only (`requirements.txt` has the version):

- least squares: scales of a group by least squares weighted with the mean squares of its columns' inputs, from some candidates;
- GPTQ (arXiv 2210.17323): columns by descending mean square, by the inverse of the damped means of products;
- clipping (OmniQuant, arXiv 2308.13137, searched without gradients): the scale of a group by the error of the whole row;
- AWQ (arXiv 2306.00978, `auto_scale.py`): `s = x^α`, normalized by `√(max s · min s)`, of 20 exponents the best; sizes of inputs are root mean squares;
- SmoothQuant (arXiv 2211.10438, `smooth.py`): `s = max|x|^α / max|w|^(1−α)`;
- pruning by magnitude, by Wanda (arXiv 2306.11695) and by SparseGPT (arXiv 2301.00774) and ROSE (arXiv 2603.05878), whose weights are compared within a row, not within a matrix, before rounding
  by least squares or by GPTQ.

Weights and inputs come from `weights.py`, whose integers Rust makes, too. Two matrices of one input are rounded together. An error is `Σ‖x·Ŵᵀ − x·Wᵀ‖² / Σ‖x·Wᵀ‖²` over all inputs; of
SmoothQuant inputs are rounded to int8 by groups of a row, too.
"""

import numpy as np

from weights import tensor

# No two exponents of AWQ are nearly equally good.
SEED = 56
ROWS = 192
COLUMNS = 256
SAMPLES = 512
COMMON = 16


def numbers(name, shape, kind):
    return np.frombuffer(tensor(SEED, "f32", name, shape, kind.split()), "<f4").astype(np.float64).reshape(shape)


def layer():
    """Two matrices, and inputs that have much in common and a few large columns."""
    w = [numbers(f"w{i}", [ROWS, COLUMNS], "normal 0 0.05") for i in range(2)]
    own = numbers("own", [SAMPLES, COLUMNS], "normal 0 0.5")
    common = numbers("common", [SAMPLES, COMMON], "normal 0 1") @ numbers("mix", [COMMON, COLUMNS], "normal 0 0.25")
    size = numbers("size", [COLUMNS], "uniform 0 1") ** 6 * 12 + 0.2
    return w, ((own + common) * size).astype(np.float32).astype(np.float64)


def f16(x):
    return np.asarray(x, np.float32).astype(np.float16).astype(np.float64)


class Integers:
    """Codes of so many bits with a scale of f16 for a group of columns."""

    def __init__(self, bits, group):
        self.group = group
        # The extreme of 4 bits is the code -8; 8 bits are symmetric.
        self.low, self.high = (-8, 7) if bits == 4 else (-127, 127)
        # Reaches of scales that are tried.
        step, count = (0.04, 9) if bits == 4 else (0.01, 3)
        self.reaches = [1 - step * i for i in range(-1, count)]

    def codes(self, w, scale):
        safe = np.where(scale == 0, 1, scale)
        return np.where(scale == 0, 0, np.rint(np.clip(w / safe, self.low, self.high)))

    def nearest_scales(self, w):
        at = np.abs(w).argmax(-1)
        extreme = np.take_along_axis(w, at[..., None], -1)
        return f16(extreme / -8 if self.low == -8 else np.abs(extreme) / 127)

    def scales(self, w, h):
        """A scale for each group: `w` is [rows, groups, group], `h` [groups, group]."""
        low, high = np.minimum(w.min(-1, keepdims=True), 0), np.maximum(w.max(-1, keepdims=True), 0)
        starts = [np.maximum(low / self.low, high / self.high), -np.maximum(np.abs(low) / self.high, high / -self.low)]
        best, most = np.zeros_like(low), np.zeros_like(low)
        for start in starts:
            for reach in self.reaches:
                q = self.codes(w, start * reach)
                xq, qq = (h * w * q).sum(-1, keepdims=True), (h * q * q).sum(-1, keepdims=True)
                gain = np.where(qq > 0, xq * xq / np.where(qq > 0, qq, 1), 0)
                better = gain > most
                best, most = np.where(better, xq / np.where(qq > 0, qq, 1), best), np.where(better, gain, most)
        best, own = f16(best), self.nearest_scales(w)
        error = [(h * (self.codes(w, s) * s - w) ** 2).sum(-1, keepdims=True) for s in (best, own)]
        return np.where(error[0] < error[1], best, own)

    def grouped(self, w):
        return w.reshape(*w.shape[:-1], -1, self.group)

    def nearest(self, w, moments):
        g = self.grouped(w)
        scale = self.nearest_scales(g)
        return (self.codes(g, scale) * scale).reshape(w.shape)

    def least_squares(self, w, moments):
        g = self.grouped(w)
        scale = self.scales(g, self.grouped(np.diag(moments)))
        return (self.codes(g, scale) * scale).reshape(w.shape)

    def clip(self, w, moments):
        """Group after group the scale with the least error of the whole row, in steps of 5 % around the one before."""
        g = self.grouped(w)
        scale = self.scales(g, self.grouped(np.diag(moments)))
        q = self.codes(g, scale) * scale

        def error(q):
            e = q.reshape(w.shape) - w
            return ((e @ moments) * e).sum(-1)

        for _ in range(3):
            for at in range(g.shape[1]):
                best, least, own = q.copy(), error(q), scale.copy()
                for step in range(-6, 7):
                    other = f16(own[:, at] * (1 + 0.05 * step))
                    trial = q.copy()
                    trial[:, at] = self.codes(g[:, at], other) * other
                    now = error(trial)
                    better = now < least
                    least = np.where(better, now, least)
                    best[better], scale[better, at] = trial[better], other[better]
                q = best
        return q.reshape(w.shape)

    def gptq(self, w, moments, zeros=None):
        """The inverse of the damped means, from which columns that are done are taken out. Pruned weights stay zeros."""
        zeros = np.zeros(w.shape, bool) if zeros is None else zeros
        scale = np.repeat(self.scales(self.grouped(w), self.grouped(np.diag(moments)))[..., 0], self.group, axis=1)
        order = np.argsort(-np.diag(moments), kind="stable")
        upper = factors(moments[np.ix_(order, order)])
        left, out = w[:, order].copy(), np.zeros_like(w)
        for i, column in enumerate(order):
            q = np.where(zeros[:, column], 0, self.codes(left[:, i], scale[:, column]) * scale[:, column])
            out[:, column] = q
            left[:, i:] -= np.outer((left[:, i] - q) / upper[i, i], upper[i, i:])
        return out


def factors(moments):
    """The triangle of the inverse of the damped means."""
    k = len(moments)
    return np.linalg.cholesky(np.linalg.inv(moments + 0.01 * np.trace(moments) / k * np.eye(k))).T


def zeros_of(cost, sparsity):
    """Where the least costs of each row of compared columns are."""
    share, of = sparsity
    count = cost.shape[1] * share // 100 if of is None else max(cost.shape[1] - share, 0)
    out = np.zeros(cost.shape, bool)
    np.put_along_axis(out, np.argsort(cost, axis=1, kind="stable")[:, :count], True, axis=1)
    return out


def by_cost(w, cost, sparsity):
    of = sparsity[1] or w.shape[1]
    zeros = np.concatenate([zeros_of(cost[:, at : at + of], sparsity) for at in range(0, w.shape[1], of)], axis=1)
    return np.where(zeros, 0, w), zeros


def magnitude(w, moments, sparsity):
    return by_cost(w, np.abs(w), sparsity)


def wanda(w, moments, sparsity):
    return by_cost(w, np.abs(w) * np.sqrt(np.diag(moments)), sparsity)


def sparsegpt(w, moments, sparsity):
    """From left to right; the mask of 128 columns, or of a tuple, is chosen when the first of them is reached."""
    return in_order(w, moments, sparsity)


def rose(w, moments, sparsity):
    """SparseGPT with blocks, and the columns of 128, by descending loss, if blocks are not nearly alike."""
    of, scores = sparsity[1] or 128, np.abs(w) * np.sqrt(np.diag(moments))
    blocks = [np.arange(at, at + of) for at in range(0, w.shape[1], of)]
    losses = np.concatenate([np.where(zeros_of(scores[:, b], sparsity), scores[:, b], 0).sum(0) for b in blocks])
    sums = np.array([losses[b].sum() for b in blocks])
    if (sums.max() - sums.min()) / sums.max() <= 0.5:
        return sparsegpt(w, moments, sparsity)
    inside = lambda b: b if sparsity[1] else b[np.argsort(-losses[b], kind="stable")]
    order = np.concatenate([inside(blocks[i]) for i in np.argsort(-sums, kind="stable")])
    back = np.argsort(order)
    return tuple(x[:, back] for x in in_order(w[:, order], moments[np.ix_(order, order)], sparsity))


def in_order(w, moments, sparsity):
    upper, of = factors(moments), sparsity[1] or 128
    left, zeros = w.copy(), np.zeros(w.shape, bool)
    for i in range(w.shape[1]):
        if i % of == 0:
            zeros[:, i : i + of] = zeros_of(left[:, i : i + of] ** 2 / np.diag(upper)[i : i + of] ** 2, sparsity)
        error = np.where(zeros[:, i], left[:, i], 0) / upper[i, i]
        left[:, i:] -= np.outer(error, upper[i, i:])
        left[:, i] = np.where(zeros[:, i], 0, left[:, i])
    return left, zeros


def squared(error, moments):
    return np.einsum("ij,jk,ik->", error, moments, error)


def awq(weights, moments, code):
    """The scales of the least error."""
    size = np.sqrt(np.diag(moments))
    best = None
    for i in range(20):
        s = np.maximum(size ** (i / 20), 1e-4)
        s = s / np.sqrt(s.max() * s.min())
        error = sum(squared(code(w * s, moments / np.outer(s, s)) / s - w, moments) for w in weights)
        if best is None or error < best[0]:
            best = (error, s)
    return best[1]


def smooth(weights, x, alpha):
    largest = np.maximum(np.max([np.abs(w).max(0) for w in weights], axis=0), 1e-5)
    return np.maximum(np.abs(x).max(0) ** alpha / largest ** (1 - alpha), 1e-5)


def int8(x, group):
    g = x.reshape(len(x), -1, group)
    scale = np.abs(g).max(-1, keepdims=True) / 127
    return (np.rint(g / np.where(scale == 0, 1, scale)) * scale).reshape(x.shape)


def main():
    weights, x = layer()
    moments = x.T @ x / len(x)
    signal = sum(squared(w, moments) for w in weights)
    ones = np.ones(COLUMNS)
    for name, format in [("w4g128", Integers(4, 128)), ("w4g32", Integers(4, 32)), ("w8g128", Integers(8, 128))]:
        scales = awq(weights, moments, format.least_squares)
        rows = [
            ("nearest", ones, format.nearest),
            ("least-squares", ones, format.least_squares),
            ("clip", ones, format.clip),
            ("gptq", ones, format.gptq),
            ("awq", scales, format.least_squares),
            ("awq+clip", scales, format.clip),
            ("awq+gptq", scales, format.gptq),
            ("smoothquant", smooth(weights, x, 0.5), format.least_squares),
        ]
        for method, s, code in rows:
            coded = [code(w * s, moments / np.outer(s, s)) for w in weights]
            own = sum(squared(q / s - w, moments) for q, w in zip(coded, weights)) / signal
            inputs = int8(x / s, format.group)
            rounded = sum((((inputs @ q.T) - x @ w.T) ** 2).sum() for q, w in zip(coded, weights)) / signal / len(x)
            print(f'    ("{name}", "{method}", {own:.4e}, {rounded:.4e}),')
    sparse(weights, moments, signal)


def sparse(weights, moments, signal):
    """Errors of pruned and rounded weights."""
    for name, format in [("w4g128", Integers(4, 128)), ("w8g128", Integers(8, 128))]:
        for sparsity, text in [((50, None), "50%"), ((2, 4), "2:4"), ((4, 8), "4:8")]:
            for prune in (magnitude, wanda, sparsegpt, rose):
                pruned = [prune(w, moments, sparsity) for w in weights]
                plain = sum(squared(format.least_squares(x, moments) - w, moments) for w, (x, _) in zip(weights, pruned))
                gptq = sum(squared(format.gptq(x, moments, zeros) - w, moments) for w, (x, zeros) in zip(weights, pruned))
                print(f'    ("{name}", "{text}", "{prune.__name__}", {plain / signal:.4e}, {gptq / signal:.4e}),')


if __name__ == "__main__":
    main()
