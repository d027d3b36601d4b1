#!/usr/bin/env python3
"""Golden values of policies for caches (`--kv-policy`): NumPy in float64, from the papers. Writes `llama/policies.safetensors`.

    python policies.py

The model is the fixture `llama`. Without a policy its logits must equal those of Transformers in `llama/golden.safetensors`, or nothing is written. For each policy of `POLICIES` the file has `NAME` f32[n, vocab], the logits after each of the fixture's tokens."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

import weights

HERE = Path(__file__).parent


class Whole:
    """The whole text, at its positions."""

    def seen(self, position, head):
        """The tokens that a token sees in a KV head, itself as the last one, and the places by which they are rotated."""
        return list(range(position + 1)), list(range(position + 1))

    def chosen(self, queries, keys):
        """Which of the tokens it sees a token reads, by its queries [group, dim] and keys [n, dim], both rotated."""
        return list(range(len(keys)))

    def observe(self, position, head, weights, values, results):
        """What it does with the weights [group, n] and the results [group, dim] of the queries of a KV head."""

    def leave(self, position):
        """What it does after a token, when all heads have seen it."""


class Sinks(Whole):
    """StreamingLLM (arXiv 2309.17453): the cache has the first tokens and the last ones. Keys are kept before their rotation, and every token in the cache is rotated by its place there; so is the query, which comes last."""

    def __init__(self, first, window):
        self.first, self.window = first, window

    def tokens(self, position):
        last = range(max(0, position + 1 - self.window), position + 1)
        return [token for token in range(min(self.first, position + 1)) if token < last.start] + list(last)

    def seen(self, position, head):
        tokens = self.tokens(position)
        return tokens, list(range(len(tokens)))


class Heads(Sinks):
    """DuoAttention (arXiv 2410.10819): some KV heads see the whole text, the others its first tokens and its last ones; positions are those of the text."""

    def __init__(self, whole, first, window):
        super().__init__(first, window)
        self.whole = whole

    def seen(self, position, head):
        tokens = list(range(position + 1)) if self.whole[head] else self.tokens(position)
        return tokens, tokens


class Reads(Whole):
    """KVSharer (arXiv 2410.18517): the keys and values of another layer."""

    def __init__(self, layer):
        self.layer = layer


class Evicting(Whole):
    """A cache that drops tokens when it has `budget` of them: `drop` at once, those with the lowest scores; of equal scores the earliest. The `recent` last ones stay. Heads have caches of their own, or drop the same tokens (`together`). `margin` is the least difference of scores that decided."""

    margin = np.inf

    def __init__(self, budget, recent, drop=1, together=False):
        self.budget, self.recent, self.drop, self.together = budget, recent, drop, together
        self.kept = {}

    def seen(self, position, head):
        tokens = self.kept.setdefault(head, [])
        tokens.append(position)
        return list(tokens), list(tokens)

    def scores(self, position, head, candidates):
        raise NotImplementedError

    def forget(self):
        """After tokens have left."""

    def leave(self, position):
        if len(self.kept[0]) < self.budget:
            return
        scores = {}
        for head, tokens in self.kept.items():
            candidates = [token for token in tokens if position - token >= self.recent]
            scores[head] = dict(zip(candidates, self.scores(position, head, candidates)))
        for head, own in scores.items():
            of = {token: sum(scores[h][token] for h in scores) if self.together else own[token] for token in own}
            order = sorted(of, key=lambda token: (of[token], token))
            gone, stay = order[: self.drop], order[self.drop :]
            if stay and of[gone[-1]] != of[stay[0]]:
                Evicting.margin = min(Evicting.margin, of[stay[0]] - of[gone[-1]])
            self.kept[head] = [token for token in self.kept[head] if token not in gone]
        self.forget()


class H2o(Evicting):
    """Sums of weights (arXiv 2306.14048)."""

    def __init__(self, budget, recent):
        super().__init__(budget, recent)
        self.sums = {}

    def observe(self, position, head, weights, values, results):
        for token, weight in zip(self.kept[head], weights.mean(0)):
            self.sums[head, token] = self.sums.get((head, token), 0) + weight

    def scores(self, position, head, candidates):
        return [self.sums[head, token] for token in candidates]


class Tova(Evicting):
    """Weights of the last query, of all heads (arXiv 2401.06104)."""

    def __init__(self, budget):
        super().__init__(budget, 1, together=True)
        self.last = {}

    def observe(self, position, head, weights, values, results):
        self.last[head] = dict(zip(self.kept[head], weights.mean(0)))

    def scores(self, position, head, candidates):
        return [self.last[head][token] for token in candidates]


class Scissorhands(Evicting):
    """How often the weight was below the mean, in the last queries (arXiv 2305.17118)."""

    def __init__(self, budget, recent, drop, window):
        super().__init__(budget, recent, drop)
        self.window, self.low = window, {}

    def observe(self, position, head, weights, values, results):
        tokens = self.kept[head]
        for token, weight in zip(tokens, weights.mean(0)):
            if self.budget - len(tokens) < self.window and weight < 1 / len(tokens):
                self.low[head, token] = self.low.get((head, token), 0) + 1

    def scores(self, position, head, candidates):
        return [-self.low.get((head, token), 0) for token in candidates]

    def forget(self):
        self.low = {}


class Caote(Evicting):
    """How far the results of the last queries move without a token, by attention without it (arXiv 2504.14051)."""

    def observe(self, position, head, weights, values, results):
        moved = []
        for i in range(len(self.kept[head])):
            rest = np.arange(len(self.kept[head])) != i
            if not rest.any():
                return
            without = (weights[:, rest] / weights[:, rest].sum(-1, keepdims=True)) @ values[rest]
            moved.append(np.linalg.norm(without - results, axis=-1).sum())
        self.moved = getattr(self, "moved", {})
        self.moved[head] = dict(zip(self.kept[head], moved))

    def scores(self, position, head, candidates):
        return [self.moved[head][token] for token in candidates]


class Gkv(Evicting):
    """Weights in a window of last queries, and decaying scores of earlier times (arXiv 2512.00504 and its code, with scores of the largest query head)."""

    def __init__(self, budget, drop, window, decay):
        super().__init__(budget, window, drop)
        self.window, self.decay, self.local, self.cached = window, decay, {}, {}

    def observe(self, position, head, weights, values, results):
        if self.budget - len(self.kept[head]) < self.window:
            for token, weight in zip(self.kept[head], weights.max(0)):
                self.local.setdefault((head, token), []).append(weight)

    def scores(self, position, head, candidates):
        local = np.array([sum(self.local[head, token]) / self.window for token in candidates])
        local = local / local.max()
        final = [max(self.decay * self.cached.get((head, token), 0), own) for token, own in zip(candidates, local)]
        self.cached.update({(head, token): score for token, score in zip(candidates, final)})
        return final

    def forget(self):
        self.local = {}


class Lazy(Evicting):
    """Time since a token was important, and the longest time between two such queries (arXiv 2506.15969)."""

    def __init__(self, budget, window, threshold):
        super().__init__(budget, window, window)
        self.threshold, self.stamp, self.longest = threshold, {}, {}

    def observe(self, position, head, weights, values, results):
        for token, weight in zip(self.kept[head], weights.mean(0)):
            at = (head, token)
            if token == position:
                self.stamp[at], self.longest[at] = position, 0
            elif weight >= self.threshold:
                self.longest[at] = max(self.longest[at], position - self.stamp[at])
                self.stamp[at] = position

    def scores(self, position, head, candidates):
        twice = lambda x: 2 / (1 + np.exp(x))
        score = lambda since, longest: twice(since / longest) + twice(1 / longest) if longest else 0.0
        return [score(position - self.stamp[head, token], self.longest[head, token]) for token in candidates]


class Quest(Whole):
    """Pages of 16 tokens by bounds of the products of queries and keys, and the last page (arXiv 2406.10774)."""

    def __init__(self, budget):
        self.pages = budget // 16 - 1

    def chosen(self, queries, keys):
        before = (len(keys) - 1) // 16
        pages = keys[: 16 * before].reshape(before, 16, keys.shape[1])
        low, high = pages.min(1), pages.max(1)
        scores = [np.maximum(queries * low[page], queries * high[page]).sum() for page in range(before)]
        order = sorted(range(before), key=lambda page: (-scores[page], page))
        best = sorted(order[: self.pages])
        if len(order) > self.pages:
            Evicting.margin = min(Evicting.margin, scores[order[self.pages - 1]] - scores[order[self.pages]])
        return [16 * page + i for page in best for i in range(16)] + list(range(16 * before, len(keys)))


POLICIES = {
    "sinks.3.9": lambda layer: Sinks(3, 9),
    "sinks.20.5": lambda layer: Sinks(20, 5),
    "sinks.1.1": lambda layer: Sinks(1, 1),
    "sinks.3.9.layers.1": lambda layer: Sinks(3, 9) if layer == 1 else Whole(),
    "heads": lambda layer: Heads([[True, False], [False, True]][layer], 3, 9),
    "heads.0": lambda layer: Heads([[True, True], [False, False]][layer], 2, 6),
    "shared": lambda layer: Reads(0) if layer == 1 else Whole(),
    "h2o": lambda layer: H2o(10, 4),
    "h2o.layers.1": lambda layer: H2o(7, 1) if layer == 1 else Whole(),
    "tova": lambda layer: Tova(8),
    "scissorhands": lambda layer: Scissorhands(12, 3, 4, 3),
    "caote": lambda layer: Caote(9, 2),
    "gkv": lambda layer: Gkv(12, 5, 3, 0.8),
    "lazy": lambda layer: Lazy(13, 4, 0.1),
    "quest": lambda layer: Quest(32),
}


class Llama:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name: x.astype(np.float64) for name, x in load_file(weights.fixture(folder) / "model.safetensors").items()}
        c = self.config
        dim = c["head_dim"]
        # Transformers computes frequencies and angles in float32.
        self.frequencies = (1.0 / (np.float32(c["rope_theta"]) ** (np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)))).astype(np.float32)

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"]) * self.weights[name]

    def rotated(self, x, places):
        """Heads [n, heads, dim] at the places [n]."""
        angles = (np.array(places, np.float32)[:, None] * self.frequencies[None]).astype(np.float64)[:, None]
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    def attention(self, x, layer, policy, caches):
        """The result for each token; `caches` has the keys, not yet rotated, and the values of each layer before."""
        c, name = self.config, f"model.layers.{layer}.self_attn."
        heads = {"q": c["num_attention_heads"], "k": c["num_key_value_heads"], "v": c["num_key_value_heads"]}
        q, k, v = ((x @ self.weights[f"{name}{of}_proj.weight"].T).reshape(len(x), n, -1) for of, n in heads.items())
        caches.append((k, v))
        k, v = caches[getattr(policy, "layer", layer)]
        group, out = heads["q"] // heads["k"], np.zeros_like(q)
        for position in range(len(x)):
            for head in range(heads["k"]):
                tokens, places = policy.seen(position, head)
                own = slice(head * group, (head + 1) * group)
                keys = self.rotated(k[tokens, head : head + 1], places)[:, 0]
                query = self.rotated(q[position : position + 1, own], [places[-1]])[0]
                chosen = policy.chosen(query, keys)
                scores = query @ keys[chosen].T / np.sqrt(c["head_dim"])
                p = np.exp(scores - scores.max(-1, keepdims=True))
                p = p / p.sum(-1, keepdims=True)
                values = v[[tokens[i] for i in chosen], head]
                out[position, own] = p @ values
                policy.observe(position, head, p, values, out[position, own])
            policy.leave(position)
        return out.reshape(len(x), -1) @ self.weights[f"{name}o_proj.weight"].T

    def feed_forward(self, x, layer):
        gate, up, down = (self.weights[f"model.layers.{layer}.mlp.{of}_proj.weight"] for of in ("gate", "up", "down"))
        z = x @ gate.T
        return (z / (1 + np.exp(-z)) * (x @ up.T)) @ down.T

    def logits(self, tokens, policy):
        x, caches = self.weights["model.embed_tokens.weight"][tokens], []
        for layer in range(self.config["num_hidden_layers"]):
            norm = f"model.layers.{layer}.input_layernorm.weight"
            x = x + self.attention(self.norm(x, norm), layer, policy(layer), caches)
            norm = f"model.layers.{layer}.post_attention_layernorm.weight"
            x = x + self.feed_forward(self.norm(x, norm), layer)
        return self.norm(x, "model.norm.weight") @ self.weights["lm_head.weight"].T


def main():
    model, golden = Llama(HERE / "llama"), load_file(HERE / "llama" / "golden.safetensors")
    tokens = golden["tokens"]
    own = model.logits(tokens, lambda layer: Whole())
    error = np.abs(own[golden["at"]] - golden["logits"]).max()
    print(f"without a policy: {error:.1e} from Transformers")
    assert error < 1e-5, "the model is another one than Transformers'"
    found = {name: model.logits(tokens, policy).astype(np.float32) for name, policy in POLICIES.items()}
    for name, logits in found.items():
        print(f"{name}: {np.abs(logits - own).max():.2f} from the whole text")
    print(f"least difference of scores that decided: {Evicting.margin:.1e}")
    save_file(found, HERE / "llama" / "policies.safetensors")


if __name__ == "__main__":
    main()
