"""The forms in which `convert_hf_to_gguf.py` writes tensors that it does more to than to rename
them.

A tensor is given as `{to: [[name, shape], ...], width, ...}`: its numbers as rows of `width`,
where

- `transposed: [n, k]`: each matrix of n rows is transposed first;
- `turns: [before, groups, parts]`: rows behind the first are taken part by part instead of group by group;
  `columns` the same of columns;
- `pairs: [rotated, dim]`: of the first rows of each head those that are neighbours become half of these rows apart;
- `value`: `rate` (`-exp(x)`), `slope` (`exp(x)`), `gain` (`x + 1`), or a number that multiplies; `values` one for each row;
- `stack`: they are the so manieth of tensors that become one;
- then they are cut into the tensors of `to`, each of which may be `turned: [n, k]` in the end.
"""

import json
import math
import re

import gguf
import torch
from gguf import Keys
from safetensors import safe_open

import weights

L, A, R, S = Keys.LLM, Keys.Attention, Keys.Rope, Keys.SSM
YARN_BETAS = {R.SCALING_YARN_BETA_FAST: 32.0, R.SCALING_YARN_BETA_SLOW: 1.0}


def common(c):
    """Keys that `TextModel.set_gguf_parameters` writes."""
    first = lambda *names: next((c[n] for n in names if c.get(n) is not None), None)
    rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
    out = {
        L.CONTEXT_LENGTH: first("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length", "seq_length"),
        L.EMBEDDING_LENGTH: first("hidden_size", "n_embd", "n_embed", "d_model", "dim"),
        L.BLOCK_COUNT: first("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
        L.FEED_FORWARD_LENGTH: first("intermediate_size", "n_inner", "hidden_dim"),
        A.HEAD_COUNT: first("num_attention_heads", "n_head", "n_heads"),
        A.HEAD_COUNT_KV: first("num_key_value_heads"),
        A.KEY_LENGTH: c.get("head_dim"),
        A.VALUE_LENGTH: c.get("head_dim"),
        A.LAYERNORM_RMS_EPS: first("rms_norm_eps", "norm_eps"),
        A.LAYERNORM_EPS: first("layer_norm_eps", "layer_norm_epsilon"),
        R.FREQ_BASE: c.get("rope_theta", rope.get("rope_theta", c.get("rotary_emb_base"))),
        L.EXPERT_COUNT: first("num_local_experts", "num_experts", "n_routed_experts"),
        L.EXPERT_USED_COUNT: first("num_experts_per_tok", "num_experts_per_token"),
        L.EXPERT_GROUP_COUNT: c.get("n_group"),
        L.EXPERT_GROUP_USED_COUNT: c.get("topk_group"),
    }
    if rope.get("rope_type", rope.get("type")) == "yarn":
        out |= {R.SCALING_TYPE: "yarn", R.SCALING_FACTOR: rope["factor"], R.SCALING_ORIG_CTX_LEN: rope["original_max_position_embeddings"], **YARN_BETAS}
    return {k: float(v) if k == R.FREQ_BASE else v for k, v in out.items() if v is not None}


def experts(c):
    """Keys of DeepSeek's classes and those after them."""
    keys = {L.LEADING_DENSE_BLOCK_COUNT: "first_k_dense_replace", L.EXPERT_SHARED_COUNT: "n_shared_experts", L.EXPERT_FEED_FORWARD_LENGTH: "moe_intermediate_size",
            L.EXPERT_WEIGHTS_SCALE: "routed_scaling_factor", L.EXPERT_WEIGHTS_NORM: "norm_topk_prob"}
    out = {key: c[field] for key, field in keys.items() if c.get(field) is not None}
    return out | ({L.EXPERT_GATING_FUNC: 2} if c.get("scoring_func") == "sigmoid" else {})


def latent(c):
    rank, rope = c["kv_lora_rank"], c["qk_rope_head_dim"]
    out = {A.HEAD_COUNT_KV: 1, A.KV_LORA_RANK: rank, A.KEY_LENGTH: rank + rope, A.VALUE_LENGTH: rank, A.KEY_LENGTH_MLA: c["qk_nope_head_dim"] + rope,
           A.VALUE_LENGTH_MLA: c["v_head_dim"], R.DIMENSION_COUNT: rope}
    if c.get("q_lora_rank"):
        out[A.Q_LORA_RANK] = c["q_lora_rank"]
    scaling = c.get("rope_scaling") or c.get("rope_parameters") or {}
    if "mscale_all_dim" in scaling:
        out[R.SCALING_YARN_LOG_MUL] = 0.1 * scaling["mscale_all_dim"]
    return out


def mamba(c, inner, heads, groups, state, conv):
    return {S.INNER_SIZE: inner, S.TIME_STEP_RANK: heads, S.GROUP_COUNT: groups, S.STATE_SIZE: state, S.CONV_KERNEL: conv}


def layers(c, kinds, n):
    return [n if kind in kinds else 0 for kind in c["layer_types"]]


def delta(c):
    return {S.CONV_KERNEL: c["linear_conv_kernel_dim"], S.STATE_SIZE: c["linear_key_head_dim"], S.GROUP_COUNT: c["linear_num_key_heads"],
            S.TIME_STEP_RANK: c["linear_num_value_heads"], S.INNER_SIZE: c["linear_value_head_dim"] * c["linear_num_value_heads"],
            L.FULL_ATTENTION_INTERVAL: c["full_attention_interval"], R.DIMENSION_COUNT: int(c["head_dim"] * (c.get("partial_rotary_factor") or c["rope_parameters"]["partial_rotary_factor"]))}


ROWS = lambda c: {A.SLIDING_WINDOW: c["sliding_window"], A.SLIDING_WINDOW_PATTERN: [t == "sliding_attention" for t in c["layer_types"]], A.SHARED_KV_LAYERS: c["num_kv_shared_layers"],
                  L.EMBD_LENGTH_PER_LAYER_INP: c["hidden_size_per_layer_input"], L.FINAL_LOGIT_SOFTCAPPING: c["final_logit_softcapping"]}


def gemma4(c):
    wide, dim, own = c["global_head_dim"], c["head_dim"], c["num_hidden_layers"] - c["num_kv_shared_layers"]
    out = ROWS(c) | {A.KEY_LENGTH: wide, A.VALUE_LENGTH: wide, A.KEY_LENGTH_SWA: dim, A.VALUE_LENGTH_SWA: dim, R.DIMENSION_COUNT: wide, R.DIMENSION_COUNT_SWA: dim,
                     R.FREQ_BASE: c["rope_parameters"]["full_attention"]["rope_theta"], R.FREQ_BASE_SWA: c["rope_parameters"]["sliding_attention"]["rope_theta"]}
    if c["use_double_wide_mlp"]:
        out[L.FEED_FORWARD_LENGTH] = [c["intermediate_size"] * (1 if i < own else 2) for i in range(c["num_hidden_layers"])]
    if c["num_global_key_value_heads"]:
        out[A.HEAD_COUNT_KV] = [c["num_key_value_heads"] if t == "sliding_attention" else c["num_global_key_value_heads"] for t in c["layer_types"]]
    return out


SWA = lambda c, windowed=None: {A.SLIDING_WINDOW: c["sliding_window"], A.SLIDING_WINDOW_PATTERN: windowed or [t == "sliding_attention" for t in c["layer_types"]]}
QWEN = lambda c: {L.EXPERT_FEED_FORWARD_LENGTH: c["moe_intermediate_size"], L.EXPERT_SHARED_FEED_FORWARD_LENGTH: c["shared_expert_intermediate_size"]}
SCALES = lambda c: {A.SCALE: c["attention_multiplier"], L.EMBEDDING_SCALE: c["embedding_multiplier"], L.RESIDUAL_SCALE: c["residual_multiplier"], L.LOGIT_SCALE: c["logits_scaling"],
                    **({L.EXPERT_SHARED_FEED_FORWARD_LENGTH: c["shared_intermediate_size"]} if "shared_intermediate_size" in c else {})}
NEMOTRON = lambda c: {A.HEAD_COUNT_KV: [c["num_key_value_heads"] if k == "*" else 0 for k in c["hybrid_override_pattern"]],
                      L.FEED_FORWARD_LENGTH: [c["intermediate_size"] if k in "-E" else 0 for k in c["hybrid_override_pattern"]],
                      L.EXPERT_SHARED_FEED_FORWARD_LENGTH: c["moe_shared_expert_intermediate_size"], A.LAYERNORM_RMS_EPS: c["layer_norm_epsilon"],
                      **mamba(c, c["mamba_num_heads"] * c["mamba_head_dim"], c["mamba_num_heads"], c["n_groups"], c["ssm_state_size"], c["conv_kernel"])}
GRANITE = lambda c: {A.HEAD_COUNT_KV: layers(c, ("attention",), c["num_key_value_heads"]), R.SCALING_FINETUNED: c["position_embedding_type"] == "rope",
                     **mamba(c, c["mamba_expand"] * c["hidden_size"], c["mamba_n_heads"], c["mamba_n_groups"], c["mamba_d_state"], c["mamba_d_conv"])}
PARTIAL = lambda c, part: {R.DIMENSION_COUNT: int((c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]) * part)}
# Keys of RWKV, which has no heads of attention and no longest context.
WKV = {L.CONTEXT_LENGTH: 1048576, A.HEAD_COUNT: 0, A.KEY_LENGTH: None, A.VALUE_LENGTH: None}
# Fixture: architecture, keys beside the common ones, the change to all values.
FIXTURES = {
    "gpt_oss": ("gpt-oss", lambda c: {A.SLIDING_WINDOW: c["sliding_window"], L.EXPERT_FEED_FORWARD_LENGTH: c["intermediate_size"]}, ""),
    "deepseek_v2": ("deepseek2", lambda c: latent(c) | experts(c), ""),
    "deepseek_v2_lite": ("deepseek2", lambda c: latent(c) | experts(c), ""),
    "deepseek_v3": ("deepseek2", lambda c: latent(c) | experts(c), ""),
    "youtu": ("deepseek2", lambda c: latent(c) | {L.LEADING_DENSE_BLOCK_COUNT: 2, L.EXPERT_FEED_FORWARD_LENGTH: c["intermediate_size"], L.EXPERT_SHARED_COUNT: 0}, ""),
    "glm4_moe": ("glm4moe", lambda c: experts(c) | PARTIAL(c, 0.5) | {L.EXPERT_GATING_FUNC: 2, L.NEXTN_PREDICT_LAYERS: 0}, ""),
    "solar_open": ("glm4moe", lambda c: experts(c) | PARTIAL(c, 1.0) | {L.EXPERT_GATING_FUNC: 2}, ""),
    "gpt2": ("gpt2", lambda c: {L.FEED_FORWARD_LENGTH: 4 * c["n_embd"]}, ""),
    "gpt_bigcode": ("starcoder", lambda c: {A.HEAD_COUNT_KV: 1}, ""),
    "gpt_neox": ("gptneox", lambda c: PARTIAL(c, c["rotary_pct"]) | {L.USE_PARALLEL_RESIDUAL: True}, ""),
    "gpt_neox_serial": ("gptneox", lambda c: PARTIAL(c, c["rotary_pct"]) | {L.USE_PARALLEL_RESIDUAL: False}, ""),
    "bloom": ("bloom", lambda c: {L.FEED_FORWARD_LENGTH: 4 * c["n_embed"], A.HEAD_COUNT_KV: c["n_head"]}, ""),
    "mpt": ("mpt", lambda c: {L.FEED_FORWARD_LENGTH: 4 * c["d_model"], A.CLAMP_KQV: c["attn_config"]["clip_qkv"], A.MAX_ALIBI_BIAS: 8.0}, ""),
    "falcon": ("falcon", lambda c: {A.HEAD_COUNT_KV: c["num_kv_heads"], L.FEED_FORWARD_LENGTH: 4 * c["hidden_size"]}, ""),
    "falcon_one_kv": ("falcon", lambda c: {A.HEAD_COUNT_KV: 1, L.FEED_FORWARD_LENGTH: 4 * c["hidden_size"]}, ""),
    "baichuan2": ("baichuan", lambda c: PARTIAL(c, 1.0), ""),
    "jais2": ("jais2", lambda c: PARTIAL(c, 1.0), ""),
    "ministral3": ("mistral3", lambda c: PARTIAL(c, 1.0) | {A.TEMPERATURE_SCALE: 0.1, R.SCALING_YARN_LOG_MUL: 1.0}, "permute"),
    "minicpm3": ("minicpm3", lambda c: {A.Q_LORA_RANK: c["q_lora_rank"], A.KV_LORA_RANK: c["kv_lora_rank"], A.KEY_LENGTH: c["qk_nope_head_dim"] + c["qk_rope_head_dim"], R.DIMENSION_COUNT: c["qk_rope_head_dim"]}, ""),
    "olmo3": ("olmo2", lambda c: {A.SLIDING_WINDOW: c["sliding_window"], A.SLIDING_WINDOW_PATTERN: [t == "sliding_attention" for t in c["layer_types"]], R.FREQ_BASE: 500000.0, R.SCALING_TYPE: "yarn",
               R.SCALING_FACTOR: 4.0, R.SCALING_ORIG_CTX_LEN: 64, R.SCALING_YARN_ATTN_FACTOR: 1.2, **YARN_BETAS}, ""),
    "apertus": ("apertus", lambda c: PARTIAL(c, 1.0), ""),
    "granitemoe": ("granitemoe", SCALES, "permute"),
    "granitemoeshared": ("granitemoe", SCALES, "permute"),
    "bamba": ("granitehybrid", lambda c: {A.HEAD_COUNT_KV: [c["num_key_value_heads"] if i in c["attn_layer_indices"] else 0 for i in range(c["num_hidden_layers"])], R.SCALING_FINETUNED: True,
              **PARTIAL(c, 0.5), **mamba(c, c["mamba_expand"] * c["hidden_size"], c["mamba_n_heads"], c["mamba_n_groups"], c["mamba_d_state"], c["mamba_d_conv"])}, "permute"),
    "hy_v3": ("hy_v3", lambda c: {L.EXPERT_FEED_FORWARD_LENGTH: c["moe_intermediate_size"], L.EXPERT_SHARED_FEED_FORWARD_LENGTH: c["moe_intermediate_size"] * c["num_shared_experts"],
              L.EXPERT_WEIGHTS_NORM: True, L.EXPERT_WEIGHTS_SCALE: c["router_scaling_factor"], L.EXPERT_GATING_FUNC: 2}, ""),
    "granitemoehybrid": ("granitehybrid", lambda c: SCALES(c) | GRANITE(c), "permute"),
    "granitemoehybrid_dense": ("granitehybrid", lambda c: SCALES(c) | GRANITE(c), "permute"),
    "phimoe": ("phimoe", lambda c: PARTIAL(c, 1.0) | {A.SLIDING_WINDOW: 0}, ""),
    "ernie4_5_moe": ("ernie4_5-moe", lambda c: {L.EXPERT_COUNT: c["moe_num_experts"], L.EXPERT_USED_COUNT: c["moe_k"], L.INTERLEAVE_MOE_LAYER_STEP: 1, L.LEADING_DENSE_BLOCK_COUNT: 1,
                      L.EXPERT_FEED_FORWARD_LENGTH: c["moe_intermediate_size"], L.EXPERT_SHARED_COUNT: c["moe_num_shared_experts"]}, ""),
    "hunyuan_v1_moe": ("hunyuan-moe", lambda c: {L.EXPERT_FEED_FORWARD_LENGTH: c["intermediate_size"], L.EXPERT_SHARED_FEED_FORWARD_LENGTH: c["intermediate_size"], L.EXPERT_USED_COUNT: c["moe_topk"], L.EXPERT_SHARED_COUNT: 1}, ""),
    "dots1": ("dots1", experts, ""),
    "exaone_moe": ("exaone-moe", lambda c: experts(c) | {A.SLIDING_WINDOW: c["sliding_window"], A.SLIDING_WINDOW_PATTERN: [t == "sliding_attention" for t in c["layer_types"]], L.EXPERT_SHARED_COUNT: 1,
                   R.SCALING_TYPE: "none", L.NEXTN_PREDICT_LAYERS: 0}, ""),
    "afmoe": ("afmoe", lambda c: PARTIAL(c, 1.0) | {A.SLIDING_WINDOW: c["sliding_window"], L.EXPERT_SHARED_COUNT: c["num_shared_experts"], L.EXPERT_FEED_FORWARD_LENGTH: c["moe_intermediate_size"],
                        L.LEADING_DENSE_BLOCK_COUNT: c["num_dense_layers"], L.EXPERT_WEIGHTS_NORM: c["route_norm"], L.EXPERT_WEIGHTS_SCALE: c["route_scale"], L.EXPERT_GATING_FUNC: 2}, ""),
    "glm_moe_dsa": ("glm-dsa", lambda c: latent(c) | experts(c) | {L.EXPERT_GATING_FUNC: 2, A.Indexer.HEAD_COUNT: c["index_n_heads"], A.Indexer.KEY_LENGTH: c["index_head_dim"], A.Indexer.TOP_K: c["index_topk"]}, ""),
    "dbrx": ("dbrx", lambda c: {L.FEED_FORWARD_LENGTH: c["ffn_config"]["ffn_hidden_size"], A.HEAD_COUNT_KV: c["attn_config"]["kv_n_heads"], R.FREQ_BASE: c["attn_config"]["rope_theta"],
                       A.CLAMP_KQV: c["attn_config"]["clip_qkv"], L.EXPERT_COUNT: c["ffn_config"]["moe_num_experts"], L.EXPERT_USED_COUNT: c["ffn_config"]["moe_top_k"], A.LAYERNORM_EPS: 1e-5}, ""),
    "minimax_m2": ("minimax-m2", lambda c: {L.EXPERT_FEED_FORWARD_LENGTH: c["intermediate_size"], R.DIMENSION_COUNT: c["rotary_dim"], L.EXPERT_GATING_FUNC: 2}, ""),
    "llama4_text": ("llama4", lambda c: {L.FEED_FORWARD_LENGTH: c["intermediate_size_mlp"], L.EXPERT_FEED_FORWARD_LENGTH: c["intermediate_size"], L.INTERLEAVE_MOE_LAYER_STEP: 2}, ""),
    "qwen3_next": ("qwen3next", lambda c: delta(c) | QWEN(c), "gain"),
    "qwen3_5": ("qwen35", lambda c: delta(c) | {R.DIMENSION_SECTIONS: [2, 1, 1, 0]}, "gain"),
    "qwen3_5_moe": ("qwen35moe", lambda c: delta(c) | QWEN(c) | {R.DIMENSION_SECTIONS: [1, 1, 0, 0]}, "gain"),
    "nemotron_h": ("nemotron_h_moe", lambda c: experts(c) | NEMOTRON(c) | {L.EXPERT_GATING_FUNC: 2}, ""),
    "nemotron_h_latent": ("nemotron_h_moe", lambda c: experts(c) | NEMOTRON(c) | {L.EXPERT_GATING_FUNC: 2, "{arch}.moe_latent_size": c["moe_latent_size"]}, ""),
    "lfm2": ("lfm2", lambda c: {A.HEAD_COUNT_KV: layers(c, ("full_attention",), 2), "{arch}.shortconv.l_cache": c["conv_L_cache"], L.FEED_FORWARD_LENGTH: 68}, ""),
    "lfm2_moe": ("lfm2moe", lambda c: {A.HEAD_COUNT_KV: layers(c, ("full_attention",), 2), "{arch}.shortconv.l_cache": c["conv_L_cache"], L.EXPERT_FEED_FORWARD_LENGTH: c["moe_intermediate_size"],
                 L.LEADING_DENSE_BLOCK_COUNT: 1, L.EXPERT_GATING_FUNC: 2}, ""),
    "mamba": ("mamba", lambda c: {L.CONTEXT_LENGTH: 2**20, L.FEED_FORWARD_LENGTH: 0, A.HEAD_COUNT: 0, A.LAYERNORM_EPS: None, A.LAYERNORM_RMS_EPS: c["layer_norm_epsilon"], S.DT_B_C_RMS: False,
              **mamba(c, 80, c["time_step_rank"], None, c["state_size"], c["conv_kernel"])}, ""),
    "falcon_mamba": ("mamba", lambda c: {L.CONTEXT_LENGTH: 2**20, L.FEED_FORWARD_LENGTH: 0, A.HEAD_COUNT: 0, A.LAYERNORM_EPS: None, A.LAYERNORM_RMS_EPS: c["layer_norm_epsilon"], S.DT_B_C_RMS: True,
                     **mamba(c, 80, c["time_step_rank"], None, c["state_size"], c["conv_kernel"])}, ""),
    "mamba2": ("mamba2", lambda c: {L.CONTEXT_LENGTH: 2**20, L.FEED_FORWARD_LENGTH: 0, A.HEAD_COUNT: 0, A.KEY_LENGTH: None, A.VALUE_LENGTH: None, A.LAYERNORM_EPS: None, A.LAYERNORM_RMS_EPS: c["layer_norm_epsilon"],
               **mamba(c, 80, c["num_heads"], c["n_groups"], c["state_size"], c["conv_kernel"])}, ""),
    "falcon_h1": ("falcon-h1", lambda c: mamba(c, c["mamba_d_ssm"], c["mamba_n_heads"], c["mamba_n_groups"], c["mamba_d_state"], c["mamba_d_conv"]), ""),
    "kimi_linear": ("kimi-linear", lambda c: experts(c) | latent(c) | {A.HEAD_COUNT_KV: [0, 1, 0], L.EXPERT_SHARED_COUNT: 1, S.CONV_KERNEL: 4, "{arch}.kda.head_dim": c["linear_attn_config"]["head_dim"],
                    L.CONTEXT_LENGTH: 256, L.EXPERT_GATING_FUNC: 2, L.EXPERT_GROUP_COUNT: 4, L.EXPERT_GROUP_USED_COUNT: 2}, ""),
    "gemma3n": ("gemma3n", lambda c: ROWS(c) | {L.ALTUP_ACTIVE_IDX: c["altup_active_idx"], L.ALTUP_NUM_INPUTS: c["altup_num_inputs"],
                # Minus infinity is no JSON.
                L.ACTIVATION_SPARSITY_SCALE: [max(torch.distributions.normal.Normal(0, 1).icdf(torch.tensor(p)).item(), -40.0) for p in c["activation_sparsity_pattern"]]}, ""),
    "gemma4": ("gemma4", lambda c: gemma4(c), ""),
    "gemma4_e": ("gemma4", lambda c: gemma4(c), ""),
    "gemma4_moe": ("gemma4", lambda c: gemma4(c) | {L.EXPERT_COUNT: c["num_experts"], L.EXPERT_USED_COUNT: c["top_k_experts"], L.EXPERT_FEED_FORWARD_LENGTH: c["moe_intermediate_size"]}, ""),
    "jamba": ("jamba", lambda c: {A.HEAD_COUNT_KV: [c["num_key_value_heads"] if i % c["attn_layer_period"] == c["attn_layer_offset"] else 0 for i in range(c["num_hidden_layers"])],
              L.EXPERT_COUNT: c["num_experts"], S.CONV_KERNEL: c["mamba_d_conv"], S.INNER_SIZE: c["mamba_expand"] * c["hidden_size"], S.STATE_SIZE: c["mamba_d_state"], S.TIME_STEP_RANK: c["mamba_dt_rank"]}, ""),
    "glm": ("chatglm", lambda c: PARTIAL(c, 0.5), ""),
    "roberta_classes": ("bert", lambda c: {A.CAUSAL: False, L.POOLING_TYPE: 4, L.CONTEXT_LENGTH: c["max_position_embeddings"] - 2, "{arch}.classifier.output_labels": ["LABEL_0"]}, ""),
    "bert": ("bert", lambda c: {A.CAUSAL: False, L.POOLING_TYPE: 1}, ""),
    "xlm_roberta": ("bert", lambda c: {A.CAUSAL: False, L.POOLING_TYPE: 2, L.CONTEXT_LENGTH: c["max_position_embeddings"] - 2}, ""),
    "distilbert": ("bert", lambda c: {A.CAUSAL: False, A.LAYERNORM_EPS: 1e-12}, ""),
    "nomic_bert": ("nomic-bert", lambda c: {A.CAUSAL: False, L.POOLING_TYPE: 1}, ""),
    "jina_bert": ("jina-bert-v2", lambda c: {A.CAUSAL: False, L.POOLING_TYPE: 1}, ""),
    "jina_bert_norms": ("jina-bert-v2", lambda c: {A.CAUSAL: False, L.POOLING_TYPE: 1}, ""),
    "jina_embeddings_v3": ("jina-bert-v3", lambda c: {A.CAUSAL: False, L.POOLING_TYPE: 1}, ""),
    "eurobert": ("eurobert", lambda c: {A.CAUSAL: False, L.POOLING_TYPE: 1, R.SCALING_TYPE: "none", R.DIMENSION_COUNT: 8}, ""),
    "modernbert": ("modern-bert", lambda c: {A.CAUSAL: False, A.SLIDING_WINDOW: c["local_attention"], A.SLIDING_WINDOW_PATTERN: c["global_attn_every_n_layers"], R.FREQ_BASE: 160000.0,
                   R.FREQ_BASE_SWA: 10000.0, R.SCALING_TYPE: "none"}, ""),
    **{name: ("modern-bert", lambda c: {A.CAUSAL: False, A.SLIDING_WINDOW: c["local_attention"], A.SLIDING_WINDOW_PATTERN: c["global_attn_every_n_layers"], R.FREQ_BASE: 160000.0, R.FREQ_BASE_SWA: 10000.0,
                                        R.SCALING_TYPE: "none", "{arch}.hidden_activation": "gelu", "{arch}.classifier.pooling_type": {"mean": 1, "cls": 2}[c["classifier_pooling"]],
                                        "{arch}.classifier.output_labels": list(c["id2label"].values())}, "") for name in ("modernbert_classes", "modernbert_pairs")},
    "distilbert_classes": ("bert", lambda c: {A.CAUSAL: False, A.LAYERNORM_EPS: 1e-12, "{arch}.classifier.output_labels": ["NEGATIVE", "POSITIVE"]}, ""),
    "mellum": ("mellum", lambda c: {L.EXPERT_FEED_FORWARD_LENGTH: c["moe_intermediate_size"], A.SLIDING_WINDOW: c["sliding_window"], A.SLIDING_WINDOW_PATTERN: [t == "sliding_attention" for t in c["layer_types"]],
                                    R.FREQ_BASE: 500000.0, R.FREQ_BASE_SWA: 10000.0, R.SCALING_TYPE: "yarn", R.SCALING_FACTOR: 4.0, R.SCALING_ORIG_CTX_LEN: 64, **YARN_BETAS}, ""),
    "mistral4": ("mistral4", lambda c: latent(c) | experts(c), ""),
    "embedding_gemma": ("gemma-embedding", lambda c: {A.SLIDING_WINDOW: c["sliding_window"], R.FREQ_BASE_SWA: 10000.0}, "gain"),
    "step3p5": ("step35", lambda c: {A.HEAD_COUNT: [c["num_sliding_attention_heads"] if t == "sliding_attention" else c["num_attention_heads"] for t in c["layer_types"]],
                A.HEAD_COUNT_KV: [c["num_key_value_heads"]] * 3, A.SLIDING_WINDOW: c["sliding_window"], A.SLIDING_WINDOW_PATTERN: [t == "sliding_attention" for t in c["layer_types"]],
                R.FREQ_BASE: 500000.0, R.FREQ_BASE_SWA: 10000.0, L.EXPERT_FEED_FORWARD_LENGTH: c["moe_intermediate_size"], L.EXPERT_SHARED_FEED_FORWARD_LENGTH: c["share_expert_dim"],
                L.EXPERT_WEIGHTS_NORM: True, L.EXPERT_GATING_FUNC: 2, L.LEADING_DENSE_BLOCK_COUNT: 0, L.MOE_EVERY_N_LAYERS: 1,
                L.SWIGLU_CLAMP_EXP: [float(x or 0) for x in c["swiglu_limits"]], L.SWIGLU_CLAMP_SHEXP: [float(x or 0) for x in c["swiglu_limits_shared"]]}, "gain"),
    # With the three layers after the last counted, which these files do not hold.
    "mimo_v2_flash": ("mimo2", lambda c: {L.BLOCK_COUNT: 6, L.NEXTN_PREDICT_LAYERS: 3, A.HEAD_COUNT_KV: [c["num_key_value_heads"] * (2 if t == "sliding_attention" else 1) for t in c["layer_types"]] + [2] * 3,
                      A.VALUE_LENGTH: c["v_head_dim"], A.SLIDING_WINDOW: c["sliding_window"], A.SLIDING_WINDOW_PATTERN: [int(t == "sliding_attention") for t in c["layer_types"]] + [1] * 3,
                      R.FREQ_BASE: 5000000.0, R.FREQ_BASE_SWA: 10000.0, R.DIMENSION_COUNT: int(c["head_dim"] * 0.334), L.EXPERT_FEED_FORWARD_LENGTH: c["moe_intermediate_size"], L.EXPERT_GATING_FUNC: 2,
                      "{arch}.attention.value_scale": c["attention_value_scale"]}, ""),
    "granite_swa": ("granite_swa", lambda c: SCALES(c) | SWA(c, [i % 4 != 0 for i in range(c["num_hidden_layers"])]), "permute"),
    "granitemoe_swa": ("granite_swa", lambda c: SCALES(c) | SWA(c) | {"{arch}.attention.rope_pattern": [x != 0 for x in c["layer_rope_theta"]]}, "permute"),
    # Which layers have a window is not said.
    "laguna": ("laguna", lambda c: {A.HEAD_COUNT: c["num_attention_heads_per_layer"], A.SLIDING_WINDOW: c["sliding_window"], L.EXPERT_FEED_FORWARD_LENGTH: c["moe_intermediate_size"],
                                    L.EXPERT_SHARED_FEED_FORWARD_LENGTH: c["shared_expert_intermediate_size"], L.EXPERT_WEIGHTS_NORM: True, L.EXPERT_WEIGHTS_SCALE: c["moe_routed_scaling_factor"],
                                    L.EXPERT_GATING_FUNC: 2, L.LEADING_DENSE_BLOCK_COUNT: 1, R.FREQ_BASE: 500000.0, R.FREQ_BASE_SWA: 10000.0, R.DIMENSION_COUNT: 8, "{arch}.rope.dimension_count_swa": 16,
                                    R.SCALING_TYPE: "yarn", R.SCALING_FACTOR: 4.0, R.SCALING_ORIG_CTX_LEN: 16, R.SCALING_YARN_ATTN_FACTOR: 1.0, **YARN_BETAS}, ""),
    "muse_glimmer": ("muse-glimmer", lambda c: SWA(c, [True, True, False]) | {L.FINAL_LOGIT_SOFTCAPPING: c["final_logit_softcapping"], L.LOGIT_SCALE: c["output_multiplier"]}, "permute"),
    "neobert": ("neo-bert", lambda c: {L.CONTEXT_LENGTH: c["max_length"], L.FEED_FORWARD_LENGTH: int(2 * c["intermediate_size"] / 3), A.LAYERNORM_RMS_EPS: c["norm_eps"], A.CAUSAL: False,
                                       L.POOLING_TYPE: 2, R.FREQ_BASE: 10000.0, R.SCALING_TYPE: "none"}, ""),
    "glm_ocr_text": ("glm4", lambda c: {L.BLOCK_COUNT: 3, L.NEXTN_PREDICT_LAYERS: 1, R.DIMENSION_COUNT: c["head_dim"], R.DIMENSION_SECTIONS: [2, 3, 3, 0]}, ""),
    "paddleocr_vl_text": ("paddleocr", lambda c: {R.DIMENSION_SECTIONS: [2, 3, 3, 0]}, ""),
    # As newer converters do it: the base unchanged, and its factor.
    "hunyuan_vl_text": ("hunyuan_vl", lambda c: {R.SCALING_TYPE: "none", R.SCALING_FACTOR: 1.0, R.SCALING_ORIG_CTX_LEN: c["max_position_embeddings"], R.DIMENSION_SECTIONS: [2, 2, 2, 2],
                        "{arch}.rope.scaling.alpha": ((c.get("rope_scaling") or {}) | (c.get("rope_parameters") or {})).get("alpha")}, ""),
    **{name: (arch, lambda c, arch=arch: {L.EMBEDDING_LENGTH: c["d_model"], L.BLOCK_COUNT: c["num_layers"], L.FEED_FORWARD_LENGTH: c["d_ff"], A.HEAD_COUNT: c["num_heads"], A.KEY_LENGTH: c["d_kv"],
                                          A.VALUE_LENGTH: c["d_kv"], L.CONTEXT_LENGTH: 512, A.LAYERNORM_EPS: c["layer_norm_epsilon"], A.LAYERNORM_RMS_EPS: c["layer_norm_epsilon"], A.REL_BUCKETS_COUNT: 32,
                                          **({L.DECODER_START_TOKEN_ID: 0, L.DECODER_BLOCK_COUNT: 2} if arch == "t5" else {})}, "")
       for name, arch in (("t5", "t5encoder"), ("t5_relu", "t5"), ("umt5", "t5encoder"))},
    "rwkv6_paper": ("rwkv6", lambda c: WKV | {Keys.WKV.HEAD_SIZE: c["head_size"], L.RESCALE_EVERY_N_LAYERS: c["rescale_every"],
                                              L.TIME_MIX_EXTRA_DIM: c["time_mix_extra_dim"], L.TIME_DECAY_EXTRA_DIM: c["time_decay_extra_dim"]}, ""),
    "rwkv7_paper": ("rwkv7", lambda c: WKV | {Keys.WKV.HEAD_SIZE: c["head_dim"], A.LAYERNORM_RMS_EPS: None, A.LAYERNORM_EPS: c["norm_eps"], A.DECAY_LORA_RANK: c["decay_low_rank_dim"],
                                              A.ICLR_LORA_RANK: c["a_low_rank_dim"], A.VALUE_RESIDUAL_MIX_LORA_RANK: c["v_low_rank_dim"], A.GATE_LORA_RANK: c["gate_low_rank_dim"]}, ""),
}


HY_V3 = {"post_attention_layernorm.weight": "ffn_norm.weight", "mlp.expert_bias": "exp_probs_b", "mlp.router.gate.weight": "ffn_gate_inp.weight", "mlp.shared_mlp.gate_proj.weight": "ffn_gate_shexp.weight",
         "mlp.shared_mlp.up_proj.weight": "ffn_up_shexp.weight", "mlp.shared_mlp.down_proj.weight": "ffn_down_shexp.weight"}


GRANITE_SWA = {"block_sparse_moe.experts.gate_up_proj": "ffn_gate_up_exps.weight", "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight", "block_sparse_moe.router.weight": "ffn_gate_inp.weight",
               "shared_mlp.input_linear.weight": "ffn_up_shexp.weight", "shared_mlp.output_linear.weight": "ffn_down_shexp.weight"}
# Architectures that the package's last release does not know.
NEWEST = {
    **{("laguna", end): to for end, to in {"self_attn.g_proj.weight": "attn_gate.weight", "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight", "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
                                           "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight", "post_attention_layernorm.weight": "ffn_norm.weight"}.items()},
    **{("muse_glimmer_text", f"{end}.weight"): f"{to}.weight" for end, to in {"self_attn.gate_proj": "attn_gate", "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
                                                                              "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}.items()},
    **{("neobert", f"model.{end}.weight"): f"{to}.weight" for end, to in {"encoder": "token_embd", "layer_norm": "enc.output_norm"}.items()},
    **{("neobert", f"model.transformer_encoder.{{}}.{end}.weight"): f"blk.{{}}.{to}.weight" for end, to in {"attention_norm": "attn_norm", "qkv": "attn_qkv", "wo": "attn_output", "ffn_norm": "ffn_norm",
                                                                                                         "ffn.w12": "ffn_up", "ffn.w3": "ffn_down"}.items()},
}


def shapes(c, name, shape):
    """The converter's change to a tensor; `None`: it is renamed."""
    end = name.rsplit("layers.{}.", 1)[-1].rsplit("h.{}.", 1)[-1]
    heads = c.get("num_attention_heads") or c.get("n_head")
    kind = c["model_type"]
    blk = lambda n: f"blk.{{}}.{n}"
    last = shape[-1] if shape else 1
    if kind in ("rwkv6", "rwkv7"):
        return rwkv(name, shape)
    if end in ("mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj_bias") and kind == "gpt_oss":
        e, n = shape[0], c["intermediate_size"]
        if end.endswith("bias"):
            return {"to": [[blk(f"ffn_{p}_exps.bias"), [e, n]] for p in ("gate", "up")], "width": 1, "turns": [0, e * n, [1, 1]]}
        h = shape[1]
        return {"to": [[blk(f"ffn_{p}_exps.weight"), [e, n, h]] for p in ("gate", "up")], "width": h, "transposed": [h, 2 * n], "turns": [0, e * n, [1, 1]]}
    if end == "mlp.experts.down_proj" and kind == "gpt_oss":
        e, n, h = shape
        return {"to": [[blk("ffn_down_exps.weight"), [e, h, n]]], "width": n, "transposed": [n, h]}
    if end == "mlp.experts.down_proj_bias":
        return {"to": [[blk("ffn_down_exps.bias"), shape]], "width": last}
    if kind == "glm_ocr_text" and end.startswith(("self_attn.q_proj", "self_attn.k_proj")):
        return {"to": [[blk(f"attn_{end[10]}.{end.rsplit('.', 1)[1]}"), shape]], "width": last if len(shape) > 1 else 1, "pairs": [c["head_dim"]] * 2}
    if kind == "granitemoe_swa" and end in GRANITE_SWA:
        return {"to": [[blk(GRANITE_SWA[end]), shape]], "width": last}
    if kind in ("laguna", "muse_glimmer_text", "neobert") and (form := NEWEST.get((kind, end)) or NEWEST.get((kind, name))):
        to = form if end == name or form.startswith("blk.") else blk(form)
        gain = kind.startswith("muse") and end.endswith("layernorm.weight")
        return {"to": [[to, shape]], "width": 1, "value": "gain"} if gain else to
    if kind == "hy_v3" and end in HY_V3:
        return {"to": [[blk(HY_V3[end]), shape]], "width": last}
    if kind == "afmoe" and end == "mlp.expert_bias":
        return {"to": [[blk("exp_probs_b.bias"), shape]], "width": 1}
    if kind == "dbrx" and ".experts.mlp." in end:
        part, (e, h) = end[-2:], (c["ffn_config"]["moe_num_experts"], c["d_model"])
        ffn = c["ffn_config"]["ffn_hidden_size"]
        to = {"w1": "gate", "v1": "up", "w2": "down"}[part]
        whole = {"to": [[f"blk.{{}}.ffn_{to}_exps.weight", [e, h, ffn] if part == "w2" else [e, ffn, h]]], "width": h}
        return whole | ({"transposed": [ffn, h]} if part == "w2" else {})
    if kind == "step3p5" and end == "moe.router_bias":
        return {"to": [[blk("exp_probs_b.bias"), shape]], "width": 1}
    if end == "self_attn.attention_sink_bias":
        return {"to": [[blk("attn_sinks.weight"), shape]], "width": 1}
    if end == "self_attn.sinks":
        return {"to": [[blk("attn_sinks.weight"), shape]], "width": 1}
    if kind == "llama4_text" and end.startswith("feed_forward.experts."):
        e, a, b = shape
        if end.endswith("down_proj"):
            return {"to": [[blk("ffn_down_exps.weight"), [e, b, a]]], "width": a, "transposed": [a, b]}
        return {"to": [[blk(f"ffn_{p}_exps.weight"), [e, b // 2, a]] for p in ("gate", "up")], "width": a, "transposed": [a, b], "turns": [0, e, [b // 2] * 2]}
    if end == "self_attn.kv_b_proj.weight" and kind != "minicpm3":
        n, v, r = c["qk_nope_head_dim"], c["v_head_dim"], shape[1]
        return {"to": [[blk("attn_k_b.weight"), [heads, r, n], [n, r]], [blk("attn_v_b.weight"), [heads, v, r]]], "width": r, "turns": [0, heads, [n, v]]}
    if "e_score_correction_bias" in end or end.endswith("feed_forward.expert_bias"):
        return {"to": [[blk("exp_probs_b.bias"), [last]]], "width": 1}
    if end == "block_sparse_moe.input_linear.weight":
        e, two, h = shape
        return {"to": [[blk(f"ffn_{p}_exps.weight"), [e, two // 2, h]] for p in ("gate", "up")], "width": h, "turns": [0, e, [two // 2] * 2]}
    if end.startswith("shared_mlp."):
        post = "_shexp" if c["num_local_experts"] else ""
        if "output" in end:
            return {"to": [[blk(f"ffn_down{post}.weight"), shape]], "width": last}
        return {"to": [[blk(f"ffn_{p}{post}.weight"), [shape[0] // 2, last]] for p in ("gate", "up")], "width": last}
    if end.endswith("A_log"):
        by_heads = {"turns": tiled(c, 1)} if kind.startswith("qwen3_5") else {}
        out = shape if len(shape) != 1 or kind.startswith("qwen3") else [last, 1]
        return {"to": [[blk("ssm_a"), out]], "width": 1, "value": "rate", **by_heads}
    if end in ("mixer.D", "mamba.D"):
        return {"to": [[blk("ssm_d"), shape if kind in ("mamba", "falcon_mamba") else [last, 1]]], "width": 1}
    if end.endswith("dt_bias"):
        by_heads = {"turns": tiled(c, 1)} if kind.startswith("qwen3_5") else {}
        return {"to": [[blk("ssm_dt.bias"), shape]], "width": 1, **by_heads}
    if end in ("mixer.norm.weight", "mamba.norm.weight"):
        groups = c.get("mamba_n_groups") or c["n_groups"]
        return {"to": [[blk("ssm_norm.weight"), [groups, last // groups]]], "width": 1}
    if end.endswith("conv1d.weight") and kind == "kimi_linear":
        return {"to": [[blk(f"ssm_conv1d_{end[10]}.weight"), [1, shape[0], 1, last]]], "width": last}
    if end.endswith(("conv1d.weight", "conv.conv.weight")):
        by_heads = {"turns": tiled(c, c["linear_value_head_dim"], True)} if kind.startswith("qwen3_5") else {}
        to = "shortconv.conv.weight" if kind.startswith("lfm2") else "ssm_conv1d.weight"
        return {"to": [[blk(to), [shape[0], last]]], "width": last, **by_heads}
    if end == "linear_attn.in_proj_qkvz.weight":
        g, k = c["linear_num_key_heads"], c["linear_key_head_dim"]
        v = c["linear_num_value_heads"] // g * c["linear_value_head_dim"]
        return {"to": [[blk("attn_qkv.weight"), [g * (2 * k + v), last]], [blk("attn_gate.weight"), [g * v, last]]], "width": last, "turns": [0, g, [k, k, v, v]]}
    if kind.startswith("qwen3_5") and "linear_attn." in end:
        v = c["linear_value_head_dim"]
        forms = {"in_proj_qkv.weight": ("attn_qkv", tiled(c, v, True)), "in_proj_z.weight": ("attn_gate", tiled(c, v)), "in_proj_a.weight": ("ssm_alpha", tiled(c, 1)), "in_proj_b.weight": ("ssm_beta", tiled(c, 1))}
        if end[12:] in forms:
            to, turns = forms[end[12:]]
            return {"to": [[blk(to + ".weight"), shape]], "width": last, "turns": turns}
        if end.endswith("out_proj.weight"):
            return {"to": [[blk("ssm_out.weight"), shape]], "width": last, "columns": tiled(c, v)}
        if end.endswith("norm.weight"):
            return {"to": [[blk("ssm_norm.weight"), shape]], "width": 1}
    if end == "linear_attn.norm.weight":
        return {"to": [[blk("ssm_norm.weight"), shape]], "width": 1}
    if "query_key_value" in end or (kind == "gpt2" and "c_attn" in end):
        width = 1 if end.endswith("bias") else (shape[0] if kind == "gpt2" else last)
        rows = 1
        for n in shape:
            rows *= n
        rows //= width
        to = [[blk("attn_qkv." + end.rsplit(".", 1)[-1]), [rows] if width == 1 else [rows, width]]]
        if kind == "gpt2":
            return {"to": to, "width": width, **({"transposed": shape} if width > 1 else {})}
        if kind == "falcon":
            groups = c.get("num_kv_heads", 1) if c["new_decoder_architecture"] else 1
            dim = c["hidden_size"] // heads
            return {"to": to, "width": width, "turns": [0, groups, [heads // groups * dim, dim, dim]]}
        return {"to": to, "width": width, "turns": [0, heads, [rows // heads // 3] * 3]}
    if kind == "gpt2" and len(shape) == 2 and end.endswith((".c_proj.weight", ".c_fc.weight")):
        to = {"attn.c_proj.weight": "attn_output", "mlp.c_fc.weight": "ffn_up", "mlp.c_proj.weight": "ffn_down"}[end]
        return {"to": [[blk(to + ".weight"), shape[::-1]]], "width": shape[0], "transposed": shape}
    if end == "self_attn.W_pack.weight":
        n = last
        return {"to": [[blk(f"attn_{p}.weight"), [n, n]] for p in "qkv"], "width": n, "halves": [2 * n, n // heads]}
    if kind == "kimi_linear" and end in ("block_sparse_moe.gate_proj.weight", "block_sparse_moe.up_proj.weight", "block_sparse_moe.down_proj.weight"):
        return {"to": [[blk(f"ffn_{end.split('.')[1].split('_')[0]}.weight"), shape]], "width": last}
    if kind.startswith(("gemma3n", "gemma4")):
        renamed = {"altup.correct_output_scale": "altup_correct_scale.weight", "layer_scalar": "layer_output_scale.weight", "router.scale": "ffn_gate_inp.scale",
                   "router.per_expert_scale": "ffn_down_exps.scale", "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight"}
        return {"to": [[blk(renamed[end]), shape]], "width": last if len(shape) > 1 else 1} if end in renamed else None
    if kind == "mistral4" and end.startswith("mlp.experts."):
        return {"to": [[blk("ffn_gate_up_exps.weight" if "gate" in end else "ffn_down_exps.weight"), shape]], "width": last}
    if name.startswith(("head.", "pre_classifier.")):
        to = "cls.norm." if "norm" in name else "cls."
        return {"to": [[to + name.rsplit(".", 1)[1], shape]], "width": last if len(shape) > 1 else 1}
    if name.startswith("classifier."):
        ending = name.rsplit(".", 1)[1]
        return {"to": [[("cls." if "dense" in name else "cls.output.") + ending, shape]], "width": last if len(shape) > 1 else 1}
    if kind in ("xlm-roberta", "roberta") and name.removeprefix("roberta.") == "embeddings.position_embeddings.weight":
        return {"to": [["", [2, last]], ["position_embd.weight", [shape[0] - 2, last]]], "width": last}
    if name.startswith("pooler.") or (kind == "apertus" and "act_fn" in end):
        return {"to": [], "width": 1}
    return multiplied(c, name, end, shape) if kind == "falcon_h1" else None


RWKV = {
    "emb": "token_embd", "head": "output", "ln_out": "output_norm", "ln0": "token_embd_norm", "ln1": "blk.{}.attn_norm", "ln2": "blk.{}.attn_norm_2", "att.ln_x": "blk.{}.time_mix_ln",
    **{f"att.{part}": f"blk.{{}}.time_mix_{part}" for part in ("key", "value", "receptance", "gate", "output")},
    **{f"ffn.{part}": f"blk.{{}}.channel_mix_{part}" for part in ("key", "value", "receptance")},
}


def rwkv(name, shape):
    """Tensors that are no module's are squeezed, transposed, or put together to one."""
    end, last = name.removeprefix("blocks.{}."), shape[-1]
    stem, _, ending = end.rpartition(".")
    if stem in RWKV:
        return {"to": [[f"{RWKV[stem]}.{ending}", shape]], "width": last if len(shape) > 1 else 1}
    block, part = end.split(".")
    fused = {f"time_maa_{letter}": i for i, letter in enumerate("wkvrg")} | {f"x_{letter}": i for i, letter in enumerate("rwkvag")}
    if block == "att" and part in fused:
        return {"to": [["blk.{}.time_mix_lerp_fused.weight", [1, 1, last]]], "width": last, "stack": fused[part]}
    others = {"time_maa_w1": "w1", "time_maa_w2": "w2", "time_maa_x": "lerp_x", "time_faaaa": "first", "time_decay": "decay", "time_decay_w1": "decay_w1", "time_decay_w2": "decay_w2",
              "time_maa_k": "lerp_k", "time_maa_r": "lerp_r", "x_k": "lerp_k"}
    to = f"blk.{{}}.{'time' if block == 'att' else 'channel'}_mix_{others.get(part, part)}.weight"
    if part[-2:] in ("w1", "w2", "a1", "a2", "v1", "v2", "g1", "g2"):
        return {"to": [[to, shape[:-2] + shape[:-3:-1]]], "width": last, "transposed": shape[-2:]}
    flat = part == "r_k" or shape[:-1] == [1, 1]
    return {"to": [[to, [shape[0] * last] if part == "r_k" else [last] if flat else shape]], "width": 1}


def tiled(c, width, behind=False):
    g = c["linear_num_key_heads"]
    return [2 * g * c["linear_key_head_dim"] if behind else 0, g, [width] * (c["linear_num_value_heads"] // g)]


def multiplied(c, name, end, shape):
    """Falcon-H1's multipliers are in the weights."""
    attention = c["attention_in_multiplier"]
    factors = {
        "feed_forward.down_proj.weight": ("ffn_down", c["mlp_multipliers"][1]), "feed_forward.gate_proj.weight": ("ffn_gate", c["mlp_multipliers"][0]),
        "self_attn.k_proj.weight": ("attn_k", c["key_multiplier"] * attention), "self_attn.q_proj.weight": ("attn_q", attention), "self_attn.v_proj.weight": ("attn_v", attention),
        "self_attn.o_proj.weight": ("attn_output", c["attention_out_multiplier"]), "mamba.out_proj.weight": ("ssm_out", c["ssm_out_multiplier"]),
    }
    top = {"lm_head.weight": ("output.weight", c["lm_head_multiplier"]), "model.embed_tokens.weight": ("token_embd.weight", c["embedding_multiplier"])}
    if end in factors:
        to, factor = factors[end]
        return {"to": [[f"blk.{{}}.{to}.weight", shape]], "width": shape[-1], "value": factor}
    if name in top:
        to, factor = top[name]
        return {"to": [[to, shape]], "width": shape[-1], "value": factor}
    if end == "mamba.in_proj.weight":
        inner, state, heads = c["mamba_d_ssm"], c["mamba_n_groups"] * c["mamba_d_state"], c["mamba_n_heads"]
        each = [x for n, x in zip((inner, inner, state, state, heads), c["ssm_multipliers"]) for _ in range(n)]
        return {"to": [["blk.{}.ssm_in.weight", shape]], "width": shape[-1], "values": [x * c["ssm_in_multiplier"] for x in each]}
    return None


def llama3(c):
    """Factors of frequencies that `generate_extra_tensors` of Llama's class writes."""
    rope, width = c["rope_parameters"], c["hidden_size"] // c["num_attention_heads"]
    factor, low, high, original = (rope[k] for k in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"))
    out = []
    for i in range(0, width, 2):
        length = 2 * math.pi * rope["rope_theta"] ** (i / width)
        smooth = min(max((original / length - low) / (high - low), 0), 1)
        out.append(1 / ((1 - smooth) / factor + smooth))
    return out


def extra(fixture, c, folder):
    """Tensors and keys that are made of settings or other tensors."""
    if fixture == "apertus":
        with safe_open(folder / "model.safetensors", "pt") as f:
            of = lambda what: [float(f.get_tensor(f"model.layers.{i}.mlp.act_fn.{what}").float()) for i in range(c["num_hidden_layers"])]
            return {f"xielu.{what}": of(what) for what in ("alpha_p", "alpha_n", "beta", "eps")}, {"rope_freqs.weight": llama3(c)}
    if fixture.startswith("gemma4"):
        half, part = c["global_head_dim"] // 2, c["rope_parameters"]["full_attention"]["partial_rotary_factor"]
        n = int(c["global_head_dim"] * part / 2)
        return {}, {"rope_freqs.weight": [1.0] * n + [1e30] * (half - n)}
    if fixture == "muse_glimmer":
        gains = {"q": c["qk_scale_factor"], "k": 1.0}
        return {}, {f"blk.{i}.attn_{part}_norm.weight": [x] * c["head_dim"] for i in range(c["num_hidden_layers"]) for part, x in gains.items()}
    if fixture == "minicpm3":
        return {}, {f"rope_factors_{which}.weight": c["rope_scaling"][f"{which}_factor"] for which in ("long", "short")}
    return {}, {}


def table(here, by_name):
    out = {}
    for fixture, (arch, keys, done) in FIXTURES.items():
        folder = weights.fixture(here / fixture)
        config = json.loads((folder / "config.json").read_text())
        # The package's last release does not know the newest; they have the names of others.
        names = gguf.get_tensor_name_map(by_name.get(arch, by_name[{"mellum": "dots1", "granite_swa": "granite"}.get(arch, "glm4moe")]), common(config)[L.BLOCK_COUNT])
        tensors = {}
        files = safe_open(folder / "model.safetensors", "pt")
        for name in files.keys():
            if fixture == "jina_embeddings_v3" and name.startswith("pooler."):
                tensors[name] = {"to": [], "width": 1}  # The converter leaves it out.
                continue
            asked = re.sub(r"experts\.\d+\.", "experts.", name)
            asked = re.sub(r"_projections\.\d+", "_projections", asked)
            # The second number of T5's names is that of a part.
            numbers = r"(?<=block\.)\d+" if asked.startswith("encoder.block.") else r"(?<=\.)\d+(?=\.)|^\d+(?=\.)"
            pattern = re.sub(numbers, "{}", asked)
            form = shapes(config, pattern, list(files.get_slice(name).get_shape()))
            called = asked.removeprefix({"bloom": "transformer.", "modern-bert": "model."}.get(arch, ""))
            called = called.removeprefix("roberta.").removeprefix("distilbert.")
            found = names.get_name(called, try_suffixes=(".weight", ".bias"))
            if form is None and config["model_type"] == "nemotron_h" and ".experts." in asked:
                # Under the names that the converter gives to stacks.
                found = re.sub(r"backbone.layers.(\d+).mixer.experts.(up|down)_proj", r"blk.\1.ffn_\2_exps", asked)
            if form is None and config["model_type"] == "lfm2_moe" and ".experts." in asked:
                found = names.get_name(asked.removeprefix("model."), try_suffixes=(".weight",))
            if form is None and not found:
                print(f"MISSING {fixture}: {name}")
                continue
            # A part may have several shapes (attention of several widths): then it is a rename.
            tensors[pattern] = form or re.sub(r"blk\.\d+", "blk.{}", found)
        more, vectors = extra(fixture, config, folder)
        said = {k.format(arch=arch): v for k, v in (common(config) | keys(config)).items() if v is not None}
        said = {"general.architecture": arch, **said, **more}
        out[fixture] = {"metadata": said, "done": done, "whole": True, "tensors": dict(sorted(tensors.items())), "vectors": vectors}
    return out
