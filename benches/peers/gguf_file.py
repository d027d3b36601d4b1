"""Writes a Llama checkpoint in Hugging Face layout as GGUF in F16, or exactly: in F32 and with its own tokenizer. Runs where the packages gguf and numpy are."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Iterator

from safetensors_file import header, tensors

_BLOCK = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _name(name: str) -> str:
    name = name.removesuffix(".weight")
    if name in _TOP:
        return f"{_TOP[name]}.weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_BLOCK[rest]}.weight"


def _interleave(w: Any, heads: int) -> Any:
    """Rows of q and k from half-split to interleaved rotary order, as llama.cpp has them."""
    rows, cols = w.shape
    return w.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def _rope_factors(config: dict[str, Any], head_dim: int) -> Any:
    """Divisors of the rotary frequencies for "llama3" scaling (the formula of the Llama 3.1 release), or None."""
    import numpy as np

    scaling = config.get("rope_scaling")
    if not scaling:
        return None
    if scaling["rope_type"] != "llama3":
        raise ValueError(f"rope scaling {scaling['rope_type']} is not supported here")
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    divisors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * config["rope_theta"] ** (i / head_dim)
        turns = scaling["original_max_position_embeddings"] / wavelength
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)


def _converted(folder: Path, heads: int, kv_heads: int, matrices: Any) -> Iterator[Any]:
    for name, t in tensors(folder):
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            t = _interleave(t, heads if "q_proj" in name else kv_heads)
        yield t if t.ndim == 1 else t.astype(matrices)


def _placeholders(w: Any, vocab: int) -> None:
    """Tokens without text, for programs that take numbers."""
    import gguf

    w.add_tokenizer_model("llama")
    w.add_token_list([f"<{i}>" for i in range(vocab)])
    w.add_token_scores([0.0] * vocab)
    w.add_token_types([gguf.TokenType.NORMAL] * vocab)


def _tokenizer(w: Any, folder: Path, vocab: int) -> None:
    """The checkpoint's own: byte-level BPE whose digits stay single, as SmolLM has it."""
    import gguf

    tok = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    cuts = [(p["type"], p.get("individual_digits", p.get("use_regex", True))) for p in tok["pre_tokenizer"].get("pretokenizers", [])]
    if tok["model"]["type"] != "BPE" or tok.get("normalizer") or cuts != [("Digits", True), ("ByteLevel", True)]:
        raise ValueError(f"{folder}: only byte-level BPE with single digits is supported here")
    pieces = {i: piece for piece, i in tok["model"]["vocab"].items()}
    special = {t["id"]: t["content"] for t in tok["added_tokens"]}
    names = [special.get(i, pieces.get(i, f"<unused {i}>")) for i in range(vocab)]
    ids = {name: i for i, name in enumerate(names)}
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(names)
    w.add_token_types([gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(vocab)])
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tok["model"]["merges"]])
    w.add_bos_token_id(ids[config["bos_token"]])
    w.add_eos_token_id(ids[config["eos_token"]])
    template = (tok.get("post_processor") or {}).get("single", [])
    w.add_add_bos_token(any("SpecialToken" in part for part in template[:1]))


def write(folder: Path, out: Path, exact: bool = False) -> None:
    import gguf
    import numpy as np

    matrices = np.float32 if exact else np.float16
    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads, vocab = config["num_attention_heads"], config["num_key_value_heads"], config["vocab_size"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    w = gguf.GGUFWriter(str(out), "llama")
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_dimension_count(head_dim)
    w.add_rope_freq_base(config["rope_theta"] if "rope_theta" in config else config["rope_parameters"]["rope_theta"])
    w.add_vocab_size(vocab)
    w.add_file_type(gguf.LlamaFileType.ALL_F32 if exact else gguf.LlamaFileType.MOSTLY_F16)
    if exact:
        _tokenizer(w, folder, vocab)
    else:
        _placeholders(w, vocab)
    factors = _rope_factors(config, head_dim)
    if factors is not None:
        w.add_tensor_info("rope_freqs.weight", factors.shape, factors.dtype, factors.nbytes)
    # The table first, then the tensors in the same order: one at a time is in memory.
    for name, t in header(folder)[0].items():
        dtype = np.dtype(np.float32 if len(t["shape"]) == 1 else matrices)
        w.add_tensor_info(_name(name), t["shape"], dtype, math.prod(t["shape"]) * dtype.itemsize)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    if factors is not None:
        w.write_tensor_data(factors)
    for data in _converted(folder, heads, kv_heads, matrices):
        w.write_tensor_data(data)
    w.close()
