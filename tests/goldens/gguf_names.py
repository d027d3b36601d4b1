#!/usr/bin/env python3
"""Writes `gguf/names.json`: names of the tensors and settings of fixtures in GGUF files, by the
constants of llama.cpp's own package.

    pip install gguf==0.19.0 safetensors && python gguf_names.py

For each architecture: the fixture, the values of the keys that `convert_hf_to_gguf.py` writes
for such a configuration, and names of tensors with `{}` for the number of the layer. Its
changes to values (`permute`: rows of queries and keys, `gain`: one is added to norms) stand
beside. Tensors that are more than renamed have their changes in `gguf_forms.py`, from the
converter's classes.
"""

import json
import re
from pathlib import Path

import gguf
from gguf import Keys
from safetensors import safe_open

import gguf_drafts
import gguf_forms
import gguf_newest
import weights

HERE = Path(__file__).parent
L, A, R = Keys.LLM, Keys.Attention, Keys.Rope
COMMON = {
    L.CONTEXT_LENGTH: "max_position_embeddings", L.EMBEDDING_LENGTH: "hidden_size", L.BLOCK_COUNT: "num_hidden_layers",
    L.FEED_FORWARD_LENGTH: "intermediate_size", A.HEAD_COUNT: "num_attention_heads", A.HEAD_COUNT_KV: "num_key_value_heads",
    A.KEY_LENGTH: "head_dim", A.VALUE_LENGTH: "head_dim", L.VOCAB_SIZE: "vocab_size",
}
RMS = {A.LAYERNORM_RMS_EPS: "rms_norm_eps"}
EXPERTS = {L.EXPERT_COUNT: "num_experts", L.EXPERT_USED_COUNT: "num_experts_per_tok"}
WINDOW = {A.SLIDING_WINDOW: "sliding_window"}
# Fixture: architecture, keys beside the common ones, changes to values.
FIXTURES = {
    "arcee": ("arcee", RMS, "permute"),
    "cohere": ("command-r", {A.LAYERNORM_EPS: "layer_norm_eps", L.LOGIT_SCALE: "logit_scale"}, ""),
    "cohere2": ("cohere2", {A.LAYERNORM_EPS: "layer_norm_eps", L.LOGIT_SCALE: "logit_scale", **WINDOW}, ""),
    "ernie4_5": ("ernie4_5", RMS, ""),
    "exaone4": ("exaone4", {**RMS, **WINDOW}, ""),
    "gemma2": ("gemma2", {**RMS, **WINDOW, L.ATTN_LOGIT_SOFTCAPPING: "attn_logit_softcapping", L.FINAL_LOGIT_SOFTCAPPING: "final_logit_softcapping"}, "gain"),
    "glm4": ("glm4", RMS, ""),
    "hunyuan_v1_dense": ("hunyuan-dense", RMS, ""),
    "nemotron": ("nemotron", {A.LAYERNORM_EPS: "norm_eps"}, "gain"),
    "olmo": ("olmo", {A.CLAMP_KQV: "clip_qkv"}, "permute"),
    "olmoe": ("olmoe", {**RMS, **EXPERTS}, ""),
    "phi": ("phi2", {A.LAYERNORM_EPS: "layer_norm_eps"}, ""),
    "qwen2_moe": ("qwen2moe", {**RMS, **EXPERTS, L.EXPERT_FEED_FORWARD_LENGTH: "moe_intermediate_size", L.EXPERT_SHARED_FEED_FORWARD_LENGTH: "shared_expert_intermediate_size"}, ""),
    "seed_oss": ("seed_oss", RMS, ""),
    "smollm3": ("smollm3", RMS, "permute"),
    "stablelm": ("stablelm", {A.LAYERNORM_EPS: "layer_norm_eps", L.USE_PARALLEL_RESIDUAL: "use_parallel_residual"}, ""),
    "stablelm_parallel": ("stablelm", {A.LAYERNORM_EPS: "layer_norm_eps", L.USE_PARALLEL_RESIDUAL: "use_parallel_residual"}, ""),
    "starcoder2": ("starcoder2", {A.LAYERNORM_EPS: "norm_epsilon"}, ""),
}


def metadata(config, arch, keys):
    out = {"general.architecture": arch}
    for key, field in {**COMMON, **keys}.items():
        if config.get(field) is not None:
            out[key.format(arch=arch)] = config[field]
    rope = config.get("rope_parameters") or {}
    theta = config.get("rope_theta", rope.get("rope_theta"))
    if theta is not None:
        out[R.FREQ_BASE.format(arch=arch)] = float(theta)
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    part = config.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1.0))
    out[R.DIMENSION_COUNT.format(arch=arch)] = int(head * part)
    scaling = config.get("rope_scaling") or rope
    if scaling.get("rope_type") == "yarn":
        out[R.SCALING_TYPE.format(arch=arch)] = "yarn"
        out[R.SCALING_FACTOR.format(arch=arch)] = scaling["factor"]
        out[R.SCALING_ORIG_CTX_LEN.format(arch=arch)] = scaling["original_max_position_embeddings"]
    if arch == "exaone4":
        every = config["sliding_window_pattern"]
        out[A.SLIDING_WINDOW_PATTERN.format(arch=arch)] = [(i + 1) % every != 0 for i in range(config["num_hidden_layers"])]
    return out


def main():
    by_name = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    table = {}
    for fixture, (arch, keys, done) in FIXTURES.items():
        folder = weights.fixture(fixture)
        config = json.loads((folder / "config.json").read_text())
        names = gguf.get_tensor_name_map(by_name[arch], config["num_hidden_layers"])
        tensors, whole = {}, True
        for name in safe_open(folder / "model.safetensors", "numpy").keys():
            # The converter stacks the matrices of experts under these names.
            asked = re.sub(r"experts\.\d+\.", "experts.", name)
            found = names.get_name(asked, try_suffixes=(".weight", ".bias"))
            if not found:
                # The architecture has no such part in llama.cpp (norms of Phi's queries, dense layers of
                # Qwen2-MoE): of this fixture only names are checked.
                assert fixture in ("phi", "qwen2_moe"), f"{fixture}: {name}"
                whole = False
                continue
            tensors[re.sub(r"layers\.\d+", "layers.{}", asked)] = re.sub(r"blk\.\d+", "blk.{}", found)
        table[fixture] = {"metadata": metadata(config, arch, keys), "done": done, "whole": whole, "tensors": dict(sorted(tensors.items()))}
    table |= gguf_forms.table(HERE, by_name)
    table |= gguf_newest.table(HERE)
    (HERE / "gguf/names.json").write_text(text(table, 3) + "\n")
    (HERE / "gguf/drafts.json").write_text(text(gguf_drafts.table(HERE, by_name), 3) + "\n")


def text(value, depth):
    """JSON whose outer objects have a line for each member."""
    if not isinstance(value, dict) or depth == 0 or not value:
        return json.dumps(value)
    pad = " " * (4 - depth)
    return "{\n" + ",\n".join(f"{pad}{json.dumps(k)}: {text(v, depth - 1)}" for k, v in value.items()) + "\n" + pad[1:] + "}"


if __name__ == "__main__":
    main()
