#!/usr/bin/env python3
"""Writes a random-weights Llama checkpoint of a given shape in Hugging Face layout, for benchmarks of compile time and speed.

    python make_checkpoint.py 1.2b OUT_FOLDER
    python make_checkpoint.py 135m OUT_FOLDER --layers 4 --seed 7

bf16, one `model.safetensors` and `config.json`, no tokenizer. Weights are normal with standard deviation 1/sqrt(columns), so that
activations keep their size; norm gains are near 1. Tensors are streamed in pieces: memory stays below 200 MB whatever the shape. The
same arguments and NumPy version give the same bytes. Needs NumPy only.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

PIECE = 4 << 20  # elements generated at a time

LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

PRESETS = {
    "1.2b": {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 8192,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": LLAMA3,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
    },
    "8b": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": LLAMA3 | {"factor": 8.0},
        "tie_word_embeddings": False,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
    },
    "135m": {
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rope_theta": 100000.0,
        "rope_scaling": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
}

OVERRIDES = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv-heads": "num_key_value_heads",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
}


def config_of(shape):
    head_dim = shape["hidden_size"] // shape["num_attention_heads"]
    return {"tie_word_embeddings": True} | shape | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
    }


def tensors_of(config):
    """(name, shape) of every tensor, in file order."""
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    q, kv = config["num_attention_heads"] * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (hidden,)
        yield p + "self_attn.q_proj.weight", (q, hidden)
        yield p + "self_attn.k_proj.weight", (kv, hidden)
        yield p + "self_attn.v_proj.weight", (kv, hidden)
        yield p + "self_attn.o_proj.weight", (hidden, q)
        yield p + "post_attention_layernorm.weight", (hidden,)
        yield p + "mlp.gate_proj.weight", (ffn, hidden)
        yield p + "mlp.up_proj.weight", (ffn, hidden)
        yield p + "mlp.down_proj.weight", (hidden, ffn)
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], hidden)


def header_of(tensors):
    """The safetensors header of tensors (name, type, shape, bytes): length, then JSON padded with spaces so that the data starts at a multiple of 64 bytes."""
    entries, at = {}, 0
    for name, dtype, shape, size in tensors:
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({"__metadata__": {"format": "pt"}} | entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text, at


def bf16(x):
    """f32 to bf16, nearest even; `x` is finite."""
    bits = x.view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")


def write_tensor(out, rng, shape):
    gain, scale = len(shape) == 1, np.float32(0.1 if len(shape) == 1 else shape[-1] ** -0.5)
    left = int(np.prod(shape))
    while left:
        x = rng.standard_normal(min(left, PIECE), dtype=np.float32)
        x *= scale
        if gain:
            x += np.float32(1)
        out.write(bf16(x).data)
        left -= len(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", choices=PRESETS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sparse", action="store_true", help="zeros that take no space on disk, for `llmcc compile --weights absent`")
    for flag in OVERRIDES:
        parser.add_argument("--" + flag, type=int)
    args = parser.parse_args()
    given = vars(args)
    shape = PRESETS[args.preset] | {key: given[flag.replace("-", "_")] for flag, key in OVERRIDES.items() if given[flag.replace("-", "_")]}
    config = config_of(shape)
    if shape["hidden_size"] % shape["num_attention_heads"] or shape["num_attention_heads"] % shape["num_key_value_heads"]:
        sys.exit("the hidden size must be a multiple of the heads, and the heads a multiple of the KV heads")

    began = time.time()
    args.out.mkdir(parents=True, exist_ok=True)
    tensors = list(tensors_of(config))
    header, size = header_of((name, "BF16", dims, 2 * int(np.prod(dims))) for name, dims in tensors)
    partial = args.out / "model.safetensors.partial"
    with open(partial, "wb") as out:
        out.write(header)
        for index, (_, dims) in enumerate([] if args.sparse else tensors):
            write_tensor(out, np.random.Generator(np.random.SFC64([args.seed, index])), dims)
        out.truncate(len(header) + size)
    os.replace(partial, args.out / "model.safetensors")
    (args.out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    parameters = size // 2
    print(f"{args.out}: {parameters / 1e6:.1f} M parameters, {size / 1e9:.3f} GB, {time.time() - began:.1f} s")


if __name__ == "__main__":
    main()
