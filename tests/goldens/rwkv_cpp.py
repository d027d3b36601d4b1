#!/usr/bin/env python3
"""Makes a folder that llmcc reads of an RWKV checkpoint that rwkv.cpp's converter wrote, as safetensors with its names: `python rwkv_cpp.py IN.safetensors OUT`.

That converter stores the numbers that its kernels use; here they are converted back to the
authors' form: logarithms of decays, matrices of low rank as `x @ w`, one tensor for each
mixture of tokens. Needs nothing but Python.
"""

import json
import math
import struct
import sys
from array import array
from pathlib import Path


def read(path):
    data = path.read_bytes()
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n])
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            assert t["dtype"] == "F32", name
            a, b = t["data_offsets"]
            out[name] = (t["shape"], array("f", data[8 + n + a : 8 + n + b]))
    return out


def write(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(data)]}
        at += 4 * len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data.tobytes() for _, data in tensors.values()))


def mapped(f, data):
    return array("f", [f(x) for x in data])


def turned(shape, data):
    rows, cols = shape
    return [cols, rows], array("f", [data[i * cols + j] for j in range(cols) for i in range(rows)])


def version(tensors):
    if any(f"blocks.0.att.{name}" in tensors for name in ("x_rwkvag", "x_r")):
        return 7
    return 5 if "blocks.0.att.time_faaaa" in tensors else 4


def restored(tensors):
    """The tensors as the authors have them."""
    v, out = version(tensors), {}
    for name, (shape, data) in tensors.items():
        last = name.rsplit(".", 1)[-1]
        if last == "x_rwkvag":
            n = len(data) // 6
            for i, letter in enumerate("rwkvag"):
                out[name.replace(last, f"x_{letter}")] = ([1, 1, n], data[i * n : (i + 1) * n])
            continue
        if v == 7 and last in ("w1", "w2", "a1", "a2", "v1", "v2", "g1", "g2"):
            shape, data = turned(shape, data)
        elif v == 4 and last == "time_decay":
            data = mapped(lambda x: math.log(-x), data)
        elif v == 5 and last == "time_decay":
            shape, data = shape[:2], mapped(lambda x: math.log(-math.log(x)), data)
        elif last == "time_faaaa":
            shape = shape[:2]
        elif last.startswith("time_mix_"):
            shape = [1, 1, len(data)]
        out[name] = (shape, data)
    return out


def config(t):
    v = version(t)
    vocab, hidden = t["emb.weight"][0]
    layers = 1 + max(int(name.split(".")[1]) for name in t if name.startswith("blocks."))
    common = {
        "model_type": {4: "rwkv", 5: "rwkv5", 7: "rwkv7"}[v],
        "architectures": [{4: "RwkvForCausalLM", 5: "RwkvForCausalLM", 7: "RWKV7ForCausalLM"}[v]],
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": t["blocks.0.ffn.key.weight"][0][0],
        "tie_word_embeddings": False,
    }
    if v == 5:
        # Published models have heads of 64 and the divisor 8; that of smaller ones is smaller.
        head = t["blocks.0.att.time_faaaa"][0][1]
        return common | {"head_size": head, "head_size_divisor": head // 8, "layer_norm_epsilon": 1e-5}
    if v == 7:
        ranks = {f"{rank}_low_rank_dim": t[f"blocks.1.att.{letter}1"][0][1] for rank, letter in (("decay", "w"), ("a", "a"), ("v", "v"), ("gate", "g"))}
        return common | ranks | {"head_dim": t["blocks.0.att.r_k"][0][1], "norm_eps": 1e-5}
    return common | {"layer_norm_epsilon": 1e-5}


def main():
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    tensors = restored(read(source))
    target.mkdir(parents=True, exist_ok=True)
    write(target / "model.safetensors", tensors)
    (target / "config.json").write_text(json.dumps(config(tensors), indent=2) + "\n")


if __name__ == "__main__":
    main()
