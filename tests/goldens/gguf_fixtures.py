#!/usr/bin/env python3
"""Makes the GGUF fixtures with llama.cpp's own package.

    pip install gguf==0.19.0 numpy safetensors && python gguf_fixtures.py

`gguf/blocks.gguf` has a tensor of random blocks of each type, and the package's decoded values
as F32 under the same name with `.values` behind it (`Q8_K`, which the package does not decode,
is written out here). `gguf/llama_f16.gguf` is the model of `llama_f16` as
`convert_hf_to_gguf.py` writes it: rows of Q and K in the order for rotating neighbours. Models of
random codes are made of `gguf/*.gguf.recipe` by the tests (`tests/support/src/gguf.rs`).
"""

import json
import struct
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file

import weights

HERE = Path(__file__).parent
# Type: bytes of a block, places of its f16 numbers.
BLOCKS = {
    Type.Q4_0: (18, [0]), Type.Q4_1: (20, [0, 2]), Type.Q5_0: (22, [0]), Type.Q5_1: (24, [0, 2]), Type.Q8_0: (34, [0]),
    Type.Q2_K: (84, [80, 82]), Type.Q3_K: (110, [108]), Type.Q4_K: (144, [0, 2]), Type.Q5_K: (176, [0, 2]),
    Type.Q6_K: (210, [208]), Type.Q8_K: (292, []), Type.IQ4_NL: (18, [0]), Type.IQ4_XS: (136, [0]),
    Type.TQ1_0: (54, [52]), Type.TQ2_0: (66, [64]), Type.MXFP4: (17, []),
    Type.IQ2_XXS: (66, [0]), Type.IQ2_XS: (74, [0]), Type.IQ2_S: (82, [0]), Type.IQ3_XXS: (98, [0]), Type.IQ3_S: (110, [0]),
    Type.IQ1_S: (50, [0]), Type.IQ1_M: (56, []), Type.NVFP4: (36, []),
}


def blocks():
    rng = np.random.default_rng(14)
    w = gguf.GGUFWriter(HERE / "gguf/blocks.gguf", "llama")
    for kind, (size, halves) in BLOCKS.items():
        count = 512 // gguf.GGML_QUANT_SIZES[kind][0]
        raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for at in halves:
            raw[:, at:at + 2] = rng.normal(0, 1, count).astype(np.float16).view(np.uint8).reshape(count, 2)
        if kind == Type.MXFP4:
            raw[:, 0] = rng.integers(0, 255, count)
        if kind == Type.TQ1_0:
            # Digits of base 3 as the package writes them.
            values = rng.integers(-1, 2, (count, 256)).astype(np.float32)
            raw = gguf.quantize(values, kind).reshape(count, size)
        if kind == Type.TQ2_0:
            raw[:, :64] &= raw[:, :64] >> 1 & 0x55 ^ 0xff
        if kind == Type.IQ1_M:
            # Bits of an f16 that is a number.
            raw[:, 55] &= 0xbf
        if kind == Type.NVFP4:
            raw[:, :4] &= 0x7f
        if kind == Type.Q8_K:
            raw[:, :4] = rng.normal(0, 1, count).astype(np.float32).view(np.uint8).reshape(count, 4)
            values = raw[:, :4].copy().view(np.float32) * raw[:, 4:260].view(np.int8).astype(np.float32)
        else:
            values = gguf.dequantize(raw, kind)
        raw, values = raw.reshape(2, -1), values.reshape(2, 256).astype(np.float32)
        w.add_tensor(kind.name, raw, raw_dtype=kind)
        w.add_tensor(kind.name + ".values", values)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def permute(x, heads):
    """As `LlamaModel.permute` of `convert_hf_to_gguf.py`."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def llama():
    folder = weights.fixture("llama_f16")
    c = json.loads((folder / "config.json").read_text())
    w = gguf.GGUFWriter(HERE / "gguf/llama_f16.gguf", "llama")
    w.add_name("llama_f16")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["head_dim"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c["rope_parameters"]["rope_theta"])
    w.add_vocab_size(c["vocab_size"])
    for name, x in sorted(load_file(folder / "model.safetensors").items()):
        stem, ending = name.rsplit(".", 1)
        layer = stem.split(".")[2] if stem.startswith("model.layers.") else None
        part = ".".join(stem.split(".")[3:]) if layer else stem
        if part == "self_attn.q_proj":
            x = permute(x, c["num_attention_heads"])
        if part == "self_attn.k_proj":
            x = permute(x, c["num_key_value_heads"])
        if x.ndim == 1:
            x = x.astype(np.float32)
        w.add_tensor(f"blk.{layer}.{NAMES[part]}.{ending}" if layer else f"{NAMES[part]}.{ending}", x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def corpus():
    """Small files for fuzzing, with both kinds of vocabularies."""
    for kind in ("llama", "gpt2"):
        w = gguf.GGUFWriter(HERE / f"../../fuzz/corpus/gguf/{kind}", "llama")
        w.add_context_length(64)
        w.add_embedding_length(8)
        w.add_block_count(1)
        w.add_feed_forward_length(32)
        w.add_head_count(2)
        w.add_layer_norm_rms_eps(1e-5)
        w.add_tokenizer_model(kind)
        w.add_tokenizer_pre("llama-bpe")
        w.add_token_list(["<unk>", "<s>", "a", "b", "ab", "\u2581a"])
        w.add_token_types([2, 3, 1, 1, 1, 1])
        if kind == "llama":
            w.add_token_scores([0.0, 0.0, -1.0, -2.0, -3.0, -4.0])
        else:
            w.add_token_merges(["a b"])
        w.add_bos_token_id(1)
        w.add_chat_template("{{ messages[0].content }}")
        w.add_tensor("token_embd.weight", np.zeros((6, 8), np.float32))
        w.add_tensor("rope_freqs.weight", np.ones(2, np.float32))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()

    rwkv_cpp(HERE / "../../fuzz/corpus/rwkv_cpp/four")


def rwkv_cpp(path):
    """A small RWKV-4 in a file of rwkv.cpp (its `docs/FILE_FORMAT.md`), with blocks of Q8_0, which is number 9 there."""
    vocab, hidden, ffn = 4, 32, 64
    out = struct.pack("<6I", 0x67676D66, 101, vocab, hidden, 1, 9)

    def tensor(name, shape, kind, data):
        nonlocal out
        out += struct.pack(f"<3I{len(shape)}I", len(shape), len(name), kind, *reversed(shape)) + name.encode() + data

    vectors = {"att.time_decay": -0.5, "att.time_first": 0.1} | {f"{part}.time_mix_{letter}": 0.5 for part, letters in (("att", "kvr"), ("ffn", "kr")) for letter in letters}
    vectors |= {f"{norm}.{end}": float(end == "weight") for norm in ("ln0", "ln1", "ln2") for end in ("weight", "bias")}
    for name, x in vectors.items():
        tensor(f"blocks.0.{name}", [hidden], 0, np.full(hidden, x, np.float32).tobytes())
    for end in ("weight", "bias"):
        tensor(f"ln_out.{end}", [hidden], 0, np.full(hidden, end == "weight", np.float32).tobytes())
    for name in ("emb", "head"):
        tensor(f"{name}.weight", [vocab, hidden], 0, np.full(vocab * hidden, 0.25, np.float32).tobytes())
    matrices = {f"att.{part}": (hidden, hidden) for part in ("key", "value", "receptance", "output")}
    for name, (n, k) in (matrices | {"ffn.key": (ffn, hidden), "ffn.value": (hidden, ffn), "ffn.receptance": (hidden, hidden)}).items():
        tensor(f"blocks.0.{name}.weight", [n, k], 9, (np.float16(0.5).tobytes() + bytes(range(32))) * (n * k // 32))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(out)


if __name__ == "__main__":
    (HERE / "gguf").mkdir(exist_ok=True)
    blocks()
    llama()
    corpus()
