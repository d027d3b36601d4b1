#!/usr/bin/env python3
"""Makes the fixtures of files that PyTorch, Llama's own code and llama2.c write.

    pip install torch==2.9.1 numpy safetensors && python pytorch_fixtures.py

`pytorch/zip.pt` and `pytorch/legacy.pt` hold the same tensors of all kinds, in PyTorch's two
formats, and `pytorch/values.safetensors` their values; `wrapped.pt` has them beside other
things, `fp8.pt` has types that only newer pickles have, `evil.pt` asks for a function.
`pytorch/model` is a Llama with random weights; `bin`, `llama` and `model*.bin` are the same
model sharded as Transformers did, cut in two as Meta does, and as llama2.c's `export.py` writes
it.
"""

import json
import os
import struct
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent / "pytorch"
HIDDEN, LAYERS, HEADS, KV_HEADS, FFN, VOCAB, CONTEXT = 32, 2, 4, 2, 48, 64, 64


def kinds():
    torch.manual_seed(14)
    base = torch.randn(6, 8)
    out = OrderedDict()
    out["f32"] = base
    out["transposed"] = base.t()
    out["view"] = base[1:3, 2:6]
    out["column"] = base[:, 3]
    out["cube"] = torch.randn(2, 3, 4).permute(2, 0, 1)
    out["f16"] = torch.randn(3, 4).half()
    out["bf16"] = torch.randn(5).bfloat16()
    out["f64"] = torch.randn(2).double()
    out["i64"] = torch.arange(3)
    out["bool"] = torch.tensor([True, False])
    out["scalar"] = torch.tensor(1.5)
    out["empty"] = torch.zeros(0, 4)
    out["parameter"] = torch.nn.Parameter(torch.randn(2, 2))
    # As modules have it.
    out._metadata = OrderedDict({"": {"version": 1}})
    return out


def model():
    torch.manual_seed(15)
    kv = HIDDEN // HEADS * KV_HEADS
    shapes = {"model.embed_tokens": (VOCAB, HIDDEN), "lm_head": (VOCAB, HIDDEN), "model.norm": (HIDDEN,)}
    for i in range(LAYERS):
        at = f"model.layers.{i}"
        shapes |= {f"{at}.self_attn.{n}_proj": (r, HIDDEN) for n, r in [("q", HIDDEN), ("k", kv), ("v", kv), ("o", HIDDEN)]}
        shapes |= {f"{at}.mlp.gate_proj": (FFN, HIDDEN), f"{at}.mlp.up_proj": (FFN, HIDDEN), f"{at}.mlp.down_proj": (HIDDEN, FFN)}
        shapes |= {f"{at}.{n}": (HIDDEN,) for n in ("input_layernorm", "post_attention_layernorm")}
    return {f"{n}.weight": (torch.randn(s) / s[-1] ** 0.5 + (len(s) == 1)).bfloat16() for n, s in shapes.items()}


def neighbours(x, heads):
    """Rows of heads from halves, as Transformers has them, to neighbours."""
    return x.view(heads, 2, x.shape[0] // heads // 2, -1).transpose(1, 2).reshape(x.shape)


LLAMA = {
    "model.embed_tokens": "tok_embeddings", "lm_head": "output", "model.norm": "norm", "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2",
}


def own_names(weights):
    out = OrderedDict()
    for name, x in weights.items():
        stem = name.removesuffix(".weight")
        layer = stem.split(".")[2] if stem.startswith("model.layers.") else None
        own = LLAMA[".".join(stem.split(".")[3:]) if layer else stem]
        if own in ("attention.wq", "attention.wk"):
            x = neighbours(x, HEADS if own.endswith("q") else KV_HEADS)
        out[f"layers.{layer}.{own}.weight" if layer else f"{own}.weight"] = x
    return out


def cut(name, x, i):
    if x.ndim == 1:
        return x.clone()
    columns = any(n in name for n in ("attention.wo", "feed_forward.w2", "tok_embeddings"))
    return x.chunk(2, dim=int(columns))[i].clone()


def llama2c(own, version):
    layers = lambda name: [own[f"layers.{i}.{name}.weight"] for i in range(LAYERS)]
    single = lambda name: [own[f"{name}.weight"]]
    attention = sum((layers(f"attention.w{n}") for n in "qkvo"), [])
    mlp = sum((layers(f"feed_forward.w{n}") for n in "123"), [])
    sizes = [HIDDEN, FFN, LAYERS, HEADS, KV_HEADS]
    if version == 0:
        # A negative vocabulary says that the head is not the table.
        header = struct.pack("7i", *sizes, -VOCAB, CONTEXT)
        rotary = [torch.zeros(CONTEXT, HIDDEN // HEADS // 2)] * 2
        parts = single("tok_embeddings") + layers("attention_norm") + attention + layers("ffn_norm") + mlp + single("norm") + rotary
    else:
        header = struct.pack("I8iB", 0x616B3432, 1, *sizes, VOCAB, CONTEXT, 0).ljust(256, b"\0")
        parts = layers("attention_norm") + layers("ffn_norm") + single("norm") + single("tok_embeddings") + attention + mlp
    parts += single("output")
    return header + b"".join(x.float().numpy().tobytes() for x in parts)


class Evil:
    def __reduce__(self):
        return (os.system, ("true",))


def main():
    for folder in ("model", "bin", "llama"):
        (HERE / folder).mkdir(parents=True, exist_ok=True)
    tensors = kinds()
    torch.save(tensors, HERE / "zip.pt")
    torch.save(tensors, HERE / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"model": tensors, "step": 3, "loss": np.float64(0.5)}, HERE / "wrapped.pt")
    fp8 = torch.randn(4, 4)
    torch.save({"e4m3": fp8.to(torch.float8_e4m3fn), "u16": torch.arange(4).to(torch.uint16)}, HERE / "fp8.pt")
    torch.save({"w": torch.ones(2), "x": Evil()}, HERE / "evil.pt")
    floats = ("f32", "f16", "bf16")
    save_file({n: x.detach().contiguous().clone() for n, x in tensors.items()}, HERE / "values.safetensors")
    assert all(n in tensors for n in floats)

    weights = model()
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "intermediate_size": FFN, "vocab_size": VOCAB,
        "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    }
    save_file(weights, HERE / "model/model.safetensors")
    names = sorted(weights)
    halves = [names[: len(names) // 2], names[len(names) // 2 :]]
    files = [f"pytorch_model-0000{i + 1}-of-00002.bin" for i in range(2)]
    for file, half in zip(files, halves):
        torch.save({n: weights[n] for n in half}, HERE / "bin" / file)
    index = {"metadata": {}, "weight_map": {n: files[n in halves[1]] for n in names}}
    (HERE / "bin/pytorch_model.bin.index.json").write_text(json.dumps(index))
    for folder in ("model", "bin"):
        (HERE / folder / "config.json").write_text(json.dumps(config))

    own = own_names(weights)
    params = {"dim": HIDDEN, "n_layers": LAYERS, "n_heads": HEADS, "n_kv_heads": KV_HEADS, "vocab_size": -1, "multiple_of": 16, "norm_eps": 1e-5, "max_seq_len": CONTEXT}
    (HERE / "llama/params.json").write_text(json.dumps(params))
    for i in range(2):
        slice = OrderedDict((n, cut(n, x, i)) for n, x in own.items())
        slice["rope.freqs"] = torch.ones(HIDDEN // HEADS // 2)
        torch.save(slice, HERE / f"llama/consolidated.0{i}.pth")
    for version in range(2):
        (HERE / f"model{version}.bin").write_bytes(llama2c(own, version))


if __name__ == "__main__":
    main()
