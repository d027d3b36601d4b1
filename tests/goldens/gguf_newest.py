"""Forms (`gguf_forms.py`) of architectures that the `gguf` package's last release does not know:
their names and keys come from llama.cpp's own copy of it.

Kimi K3, DeepSeek V4 and Qwen 4 have no fixture that files can say: the product of two tensors is one there, or
lengths of windows and tables are always the published ones. Tests of their keys stand in the crate.
"""

import json
import re

from safetensors import safe_open

import gguf_forms
from gguf_forms import A, L, R, S
import weights

MLP = {f"{end}_proj": f"ffn_{end}" for end in ("gate", "up", "down")}
NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
EXPERTS = {
    "mlp.gate": "ffn_gate_inp", **{f"mlp.{a}": b for a, b in MLP.items()}, **{f"mlp.experts.{a}": f"{b}_exps" for a, b in MLP.items()},
    **{f"mlp.shared_experts.{a}": f"{b}_shexp" for a, b in MLP.items()},
}
ATTENTION = {f"self_attn.{a}_proj": f"attn_{b}" for a, b in zip("qkvo", ("q", "k", "v", "output"))}
LATENT = {"q_a_proj": "attn_q_a", "q_a_layernorm": "attn_q_a_norm", "q_b_proj": "attn_q_b", "kv_a_proj_with_mqa": "attn_kv_a_mqa", "kv_a_layernorm": "attn_kv_a_norm", "o_proj": "attn_output"}
INDEXER = {"indexer.wq_b": "indexer.attn_q_b", "indexer.wk": "indexer.attn_k", "indexer.weights_proj": "indexer.proj", "indexer.k_norm": "indexer.k_norm"}
OWN = {f"self_attn.{a}": b for a, b in (LATENT | INDEXER).items()}
DELTA = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "b_proj": "ssm_beta", "o_norm": "ssm_norm"}
KIMI = {f"self_attn.{a}": b for a, b in (DELTA | {f"{x}_{y}_proj": f"ssm_{x}_{y}" for x in "fg" for y in "ab"}).items()}
LING = {"dense": "attn_output", "q_proj": "attn_q", "kv_a_proj_with_mqa": "attn_kv_a_mqa", "kv_a_layernorm": "attn_kv_a_norm", **DELTA, "f_proj": "ssm_f_a",
        # Layers that attend have `attn_gate`, which is read as the same.
        "g_proj": "ssm_g_a"}
# Tensors of no module, which have an ending in files.
BARE = {f"hc_{site}_{part}": f"hc_{site}_{part}.weight" for site in ("attn", "ffn") for part in ("fn", "base", "scale")}
BARE |= {f"hc_{a}_layer.hc_pre.hc_{part}": f"hc_{b}_{part}.weight" for a, b in (("attn", "attn"), ("mlp", "ffn")) for part in ("fn", "base", "scale")}
BARE |= {f"self_attn.indexer.index_kpool_compress_{part}": f"indexer_compressor_{part}.weight" for part in ("ape", "gate")}
BARE |= {"self_attn.learnable_sink_param": "attn_sinks.weight"}
TOP = {"model.embed_tokens": "token_embd", "model.word_embeddings": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
TOP |= {f"model.hc_head.hc_head_{part}": f"output_hc_{part}.weight" for part in ("fn", "base", "scale")}

CLAMP = lambda c, keys: {key: [c["swiglu_limit"]] * c["num_hidden_layers"] for key in keys}
INDEX = lambda c: {"{arch}.attention.indexer.head_count": c["index_n_heads"], "{arch}.attention.indexer.key_length": c["index_head_dim"], "{arch}.attention.indexer.top_k": c["index_topk"]}
CONNECTIONS = lambda c: {"{arch}.hyper_connection.count": c["hc_mult"], "{arch}.hyper_connection.epsilon": c["hc_eps"]}
MIXTURE = lambda c: gguf_forms.experts(c) | {L.LEADING_DENSE_BLOCK_COUNT: 1, L.EXPERT_GATING_FUNC: 2}

# Fixture: architecture, keys beside the common ones, changes to values, modules of layers.
FIXTURES = {
    "cohere2_moe": ("cohere2moe", lambda c: {
        L.FEED_FORWARD_LENGTH: c["prefix_dense_intermediate_size"], L.LOGIT_SCALE: c["logit_scale"], A.SLIDING_WINDOW: c["sliding_window"], A.SLIDING_WINDOW_PATTERN: [False, True, False, True],
        L.EXPERT_FEED_FORWARD_LENGTH: c["intermediate_size"], L.LEADING_DENSE_BLOCK_COUNT: 1, L.EXPERT_WEIGHTS_NORM: True, L.EXPERT_GATING_FUNC: 2, L.EXPERT_SHARED_COUNT: 2,
        L.EXPERT_SHARED_FEED_FORWARD_LENGTH: 32, R.DIMENSION_COUNT: c["head_dim"], R.SCALING_TYPE: "none"}, "", {**NORMS, **EXPERTS, **ATTENTION}),
    "hy_v4": ("hy_v4", lambda c: MIXTURE(c) | gguf_forms.latent(c) | INDEX(c) | CONNECTIONS(c) | CLAMP(c, ["{arch}.swiglu_clamp_exp"]) | {
        "{arch}.hyper_connection.magnitude": c["hc_magnitude"], "{arch}.attention.indexer.types": [True, False, False]}, "", {**NORMS, **EXPERTS, **OWN, "self_attn.linear_gate": "attn_gate"}),
    "glm5_next_text": ("glm5-next", lambda c: MIXTURE(c) | gguf_forms.latent(c) | INDEX(c) | CONNECTIONS(c) | CLAMP(c, ["{arch}.swiglu_clamp_exp", "{arch}.swiglu_clamp_shexp"]) | {
        A.HEAD_COUNT_KV: [0, 1, 0, 1], A.LAYERNORM_EPS: 1e-6, S.CONV_KERNEL: c["linear_conv_kernel_dim"], "{arch}.kda.head_dim": c["linear_head_dim"], "{arch}.kda.gate_lower_bound": c["linear_lower_bound"],
        "{arch}.attention.indexer.kpool": c["index_kpool"], "{arch}.attention.indexer.kpool_select_tail": True, "{arch}.hyper_connection.sinkhorn_iterations": c["hc_sinkhorn_iters"]},
        "", {**NORMS, **EXPERTS, **OWN, **KIMI}),
    "minimax_m3_text": ("minimax-m3", lambda c: {
        L.FEED_FORWARD_LENGTH: c["dense_intermediate_size"], L.EXPERT_FEED_FORWARD_LENGTH: c["intermediate_size"], R.DIMENSION_COUNT: c["rotary_dim"], L.EXPERT_SHARED_COUNT: 1,
        L.EXPERT_WEIGHTS_SCALE: c["routed_scaling_factor"], L.EXPERT_WEIGHTS_NORM: True, L.LEADING_DENSE_BLOCK_COUNT: 1, "{arch}.attention.indexer.head_count": 4,
        "{arch}.attention.indexer.key_length": 8, "{arch}.attention.indexer.top_k": 16, "{arch}.attention.indexer.block_size": 128, "{arch}.attention.indexer.local_blocks": 1},
        "gain", {**NORMS, **EXPERTS, **ATTENTION, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}),
    "bailing_hybrid": ("bailingmoe3", lambda c: MIXTURE(c) | gguf_forms.latent(c) | {
        A.HEAD_COUNT_KV: [0, 1, 0], S.CONV_KERNEL: c["short_conv_kernel_size"], "{arch}.kda.head_dim": c["head_dim"], "{arch}.kda.safe_gate": True, "{arch}.kda.gate_lower_bound": c["kda_lower_bound"],
        L.EXPERT_SHARED_FEED_FORWARD_LENGTH: c["moe_intermediate_size"]}, "", {**NORMS, **EXPERTS, **{f"attention.{a}": b for a, b in LING.items()}}),
}


def form(c, fixture, name, shape, modules):
    """The form of a tensor; a text: it is renamed."""
    end, last = name.rsplit("layers.{}.", 1)[-1], shape[-1]
    blk = lambda n: f"blk.{{}}.{n}"
    plain = lambda to: {"to": [[to, shape]], "width": last if len(shape) > 1 else 1}
    if end in BARE or name in TOP:
        return plain(TOP[name] if name in TOP else blk(BARE[end]))
    stem, ending = end.rsplit(".", 1)
    if name.rsplit(".", 1)[0] in TOP:
        return f"{TOP[name.rsplit('.', 1)[0]]}.{ending}"
    if end.endswith("gate_up_proj") or stem.endswith("gate_up_proj"):
        post = "_exps" if ".experts" in end else "_shexp" if ".shared_experts" in end else ""
        e, n = (shape[0], shape[1] // 2) if len(shape) > 2 else (1, shape[0] // 2)
        own = ([e] if len(shape) > 2 else []) + [n, last]
        return {"to": [[blk(f"ffn_{part}{post}.weight"), own] for part in ("gate", "up")], "width": last, "turns": [0, e, [n, n]]}
    if end == "mlp.experts.down_proj":
        return plain(blk("ffn_down_exps.weight"))
    if end.endswith(("e_score_correction_bias", "expert_bias")):
        return plain(blk("exp_probs_b.bias"))
    if end.endswith("kv_b_proj.weight"):
        heads, n, v = c["num_attention_heads"], c["qk_nope_head_dim"], c["v_head_dim"]
        return {"to": [[blk("attn_k_b.weight"), [heads, last, n], [n, last]], [blk("attn_v_b.weight"), [heads, v, last]]], "width": last, "turns": [0, heads, [n, v]]}
    if end.endswith("conv1d.weight"):
        return {"to": [[blk(f"ssm_conv1d_{end.split('.')[1][0]}.weight"), [1, shape[0], 1, last]]], "width": last}
    if end.endswith("A_log"):
        slope = fixture == "bailing_hybrid"
        return {"to": [[blk("ssm_a"), [last, 1] if slope else shape]], "width": 1, "value": "slope" if slope else "rate"}
    if end.endswith("dt_bias"):
        return plain(blk("ssm_dt.bias"))
    return blk(f"{modules[stem]}.{ending}")


def table(here):
    out = {}
    for fixture, (arch, keys, done, modules) in FIXTURES.items():
        folder = weights.fixture(here / fixture)
        c = json.loads((folder / "config.json").read_text())
        tensors, files = {}, safe_open(folder / "model.safetensors", "pt")
        for name in files.keys():
            pattern = re.sub(r"(?<=\.)\d+(?=\.)", "{}", re.sub(r"experts\.\d+\.", "experts.", name))
            tensors[pattern] = form(c, fixture, pattern, list(files.get_slice(name).get_shape()), modules)
        said = {k.format(arch=arch): v for k, v in (gguf_forms.common(c) | keys(c)).items() if v is not None}
        out[fixture] = {"metadata": {"general.architecture": arch, **said}, "done": done, "whole": True, "tensors": dict(sorted(tensors.items())), "vectors": {}}
    return out
