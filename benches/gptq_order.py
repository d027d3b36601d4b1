#!/usr/bin/env python3
"""Prints the cost of decoding a GPTQ checkpoint with columns in the order of activations
(`desc_act`) beside the same shape as `--w4 --group 128`: all columns permuted, and 30 % of
them.

    python make_checkpoint.py 1.2b /tmp/1.2b
    python gptq_order.py /tmp/1.2b --llmcc ../target/release/llmcc [--threads 2]

Codes are random: of 4 bits, symmetric, groups of 128. Other tensors are the checkpoint's. In
turns; ratios of the medians. Needs NumPy, safetensors and the `llmcc` package.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

import llmcc

GROUP, TOKENS, ROUNDS, PROMPT = 128, 32, 9, 16
QUANTIZATION = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True, "sym": True, "checkpoint_format": "gptq"}


def order_of(columns, share, rng):
    """The group of each column, after a `share` of them have changed places."""
    place = np.arange(columns)
    moved = rng.choice(columns, int(columns * share), replace=False)
    place[moved] = rng.permutation(moved)
    return (place // GROUP).astype(np.int32)


def write(folder, source, share, seed=1):
    folder.mkdir()
    rng = np.random.default_rng(seed)
    config = json.loads((source / "config.json").read_text())
    tensors, orders = {}, {}
    with safe_open(source / "model.safetensors", "np") as file:
        for name in file.keys():
            n, *k = file.get_slice(name).get_shape()
            if ".layers." not in name or not k:
                shape = [n, *k]
                tensors[name] = (rng.standard_normal(shape, dtype=np.float32) / shape[-1] ** 0.5 if k else np.ones(shape)).astype(np.float16)
                continue
            layer, module, columns = name.split(".")[2], name.removesuffix(".weight"), k[0]
            # Matrices with the same input have the same order.
            reads = "qkv" if module.endswith(("q_proj", "k_proj", "v_proj")) else "ffn" if module.endswith(("gate_proj", "up_proj")) else module
            order = orders.setdefault((layer, reads), order_of(columns, share, rng))
            tensors[module + ".qweight"] = rng.integers(-(1 << 31), 1 << 31, (columns // 8, n), dtype=np.int32)
            tensors[module + ".qzeros"] = np.full((columns // GROUP, n // 8), 0x77777777, np.int32)
            tensors[module + ".scales"] = np.full((columns // GROUP, n), 0.2 / columns**0.5, np.float16)
            tensors[module + ".g_idx"] = order
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": "float16", "quantization_config": QUANTIZATION}))


def decode(model, rng):
    """Seconds of a token."""
    with model.session() as session:
        vocab = model.info["vocab"]
        model.step([(session, [int(rng.integers(vocab)) for _ in range(PROMPT)])])
        begin = time.perf_counter()
        for _ in range(TOKENS):
            model.step([(session, [int(rng.integers(vocab))])])
        return (time.perf_counter() - begin) / TOKENS


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkpoint", type=Path)
    p.add_argument("--llmcc", default="llmcc")
    p.add_argument("--threads", type=int)
    args = p.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        folder, models = Path(folder), {}
        for name, share in (("--w4 --group 128", None), ("in order", 0.0), ("30 % permuted", 0.3), ("all permuted", 1.0)):
            source, out = args.checkpoint, folder / f"{len(models)}.so"
            if share is not None:
                source = folder / f"checkpoint{len(models)}"
                write(source, args.checkpoint, share)
            subprocess.run([args.llmcc, "compile", source, "--target", "native", "--w4", "--group", "128", "--kv", "f16", "--quiet", "-o", out], check=True)
            models[name] = llmcc.Model(str(out), threads=args.threads)
        seconds = {name: [] for name in models}
        for _ in range(ROUNDS):
            for name, model in models.items():
                seconds[name].append(decode(model, rng))
    base = statistics.median(seconds["--w4 --group 128"])
    for name, of in seconds.items():
        ratios = sorted(s / b for s, b in zip(of, seconds["--w4 --group 128"]))
        print(f"{name:<18} {1 / statistics.median(of):6.1f} tokens/s, time {statistics.median(of) / base:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")


if __name__ == "__main__":
    main()
