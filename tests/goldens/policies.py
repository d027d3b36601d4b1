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


POLICIES = {
    "sinks.3.9": lambda layer: Sinks(3, 9),
    "sinks.20.5": lambda layer: Sinks(20, 5),
    "sinks.1.1": lambda layer: Sinks(1, 1),
    "sinks.3.9.layers.1": lambda layer: Sinks(3, 9) if layer == 1 else Whole(),
    "heads": lambda layer: Heads([[True, False], [False, True]][layer], 3, 9),
    "heads.0": lambda layer: Heads([[True, True], [False, False]][layer], 2, 6),
    "shared": lambda layer: Reads(0) if layer == 1 else Whole(),
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
                scores = query @ keys.T / np.sqrt(c["head_dim"])
                p = np.exp(scores - scores.max(-1, keepdims=True))
                out[position, own] = p / p.sum(-1, keepdims=True) @ v[tokens, head]
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
    save_file(found, HERE / "llama" / "policies.safetensors")


if __name__ == "__main__":
    main()
