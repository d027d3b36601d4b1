#!/usr/bin/env python3
"""Prints the cost of adapters that are loaded at run time: decoding four sequences without slots,
with slots and no adapter, with one adapter for all, and with four different ones.

    python make_checkpoint.py 1.2b /tmp/1.2b
    python adapters.py /tmp/1.2b --llmcc ../target/release/llmcc [--rank 16] [--format --w4] [--threads 2]

Adapters are random, of all matrices of the layers. Needs NumPy, safetensors and the `llmcc`
package. Each case takes the median of rounds, in turns, so that a machine that slows down slows
all of them.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import llmcc

SEQUENCES = 4
ROUNDS = 7
TOKENS = 24
PROMPT = 64


def shapes(config):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    kv = config.get("num_key_value_heads", heads) * head
    attention = {"q_proj": (heads * head, hidden), "k_proj": (kv, hidden), "v_proj": (kv, hidden), "o_proj": (hidden, heads * head)}
    mlp = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    return {**{f"self_attn.{n}": s for n, s in attention.items()}, **{f"mlp.{n}": s for n, s in mlp.items()}}


def write_adapter(folder, config, rank, seed):
    folder.mkdir()
    rng = np.random.default_rng(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name, (n, k) in shapes(config).items():
            module = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{module}.lora_A.weight"] = (rng.standard_normal((rank, k)) / k**0.5).astype(np.float16)
            tensors[f"{module}.lora_B.weight"] = (rng.standard_normal((n, rank)) * 0.01).astype(np.float16)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank}))


def decode(model, sessions, rng):
    """Seconds of a step with one token of each sequence."""
    vocab = model.info["vocab"]
    begin = time.perf_counter()
    for _ in range(TOKENS):
        model.step([(s, [int(rng.integers(vocab))]) for s in sessions])
    return (time.perf_counter() - begin) / TOKENS


def prefill(model, adapter, rng):
    """Seconds of a prompt."""
    prompt = [int(t) for t in rng.integers(model.info["vocab"], size=512)]
    with model.session(adapter=adapter) as s:
        begin = time.perf_counter()
        s.append(prompt)
        return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--llmcc", default="llmcc")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--format", nargs="*", default=["--w4"])
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    config = json.loads((args.checkpoint / "config.json").read_text())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for i in range(SEQUENCES):
            write_adapter(folder / f"adapter{i}", config, args.rank, i)
        common = [args.llmcc, "compile", str(args.checkpoint), "--target", "native", *args.format, "--max-context", "2048", "--quiet", "--no-golden"]
        subprocess.run([*common, "-o", str(folder / "plain.so")], check=True)
        slots = ["--lora-slots", str(SEQUENCES), "--lora-rank", str(args.rank)]
        subprocess.run([*common, *slots, "-o", str(folder / "slots.so")], check=True)
        options = {} if args.threads is None else {"threads": args.threads}
        plain, model = llmcc.load(folder / "plain.so", **options), llmcc.load(folder / "slots.so", **options)
        begin = time.perf_counter()
        numbers = [model.load_adapter(folder / f"adapter{i}") for i in range(SEQUENCES)]
        print(f"loading an adapter: {(time.perf_counter() - begin) / SEQUENCES * 1e3:.0f} ms")
        cases = {
            "no slots": (plain, [0] * SEQUENCES),
            "slots, no adapter": (model, [0] * SEQUENCES),
            "one adapter for all": (model, numbers[:1] * SEQUENCES),
            "four adapters": (model, numbers),
        }
        rng = np.random.default_rng(0)
        decoded, prompts = {c: [] for c in cases}, {c: [] for c in cases}
        for _ in range(ROUNDS):
            for case, (m, adapters) in cases.items():
                sessions = [m.session(adapter=a) if a else m.session() for a in adapters]
                for s in sessions:
                    s.append([int(t) for t in rng.integers(m.info["vocab"], size=PROMPT)])
                decoded[case].append(decode(m, sessions, rng))
                prompts[case].append(prefill(m, adapters[-1], rng))
                for s in sessions:
                    s.close()
        print(f"{'':22} {'step of 4 sequences':>20} {'':>8} {'prompt of 512':>15}")
        base = [statistics.median(times["no slots"]) for times in (decoded, prompts)]
        for case in cases:
            step, prompt = statistics.median(decoded[case]), statistics.median(prompts[case])
            print(f"{case:22} {step * 1e3:17.2f} ms {(step / base[0] - 1) * 100:+7.1f}% {prompt * 1e3:12.1f} ms {(prompt / base[1] - 1) * 100:+7.1f}%")
        plain.close()
        model.close()


if __name__ == "__main__":
    main()
