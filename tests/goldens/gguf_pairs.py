#!/usr/bin/env python3
"""GGUF files whose stacked experts and latent attention are codes, and Transformers' results for
the decoded numbers.

    pip install -r requirements.txt gguf && python gguf_pairs.py

`quantized_models/NAME` holds `model.gguf`, and `golden.safetensors` as `make.py` describes it. Blocks are random; tensors that GGUF files take apart (gate and up of gpt-oss, `kv_b_proj` of
DeepSeek) are put together here as Transformers has them.
"""

import json
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from gguf.quants import dequantize
from safetensors.numpy import save_file

import make

HERE = Path(__file__).parent / "quantized_models"
Type = gguf.GGMLQuantizationType
VOCAB, HIDDEN, HEADS = 32, 32, 2


class Pair:
    """A file and a checkpoint that are being written."""

    def __init__(self, name, arch, seed):
        self.name, self.seed, self.rng, self.stored = name, seed, np.random.default_rng(seed), {}
        (HERE / name).mkdir(exist_ok=True)
        self.file = gguf.GGUFWriter(HERE / name / "model.gguf", arch)
        self.arch = arch

    def keys(self, **keys):
        for key, x in keys.items():
            key = f"{self.arch}.{key.replace('__', '.')}"
            add = self.file.add_bool if isinstance(x, bool) else self.file.add_uint32 if isinstance(x, int) else self.file.add_float32 if isinstance(x, float) else self.file.add_string
            add(key, x)

    def floats(self, name, *shape, around=0.0, spread=None):
        """A tensor of f32; returns its values."""
        spread = spread or (0.2 if len(shape) == 1 else shape[-1] ** -0.5)
        x = (around + spread * self.rng.standard_normal(shape)).astype(np.float32)
        self.file.add_tensor(name, x)
        return x

    def norm(self, name, n):
        return self.floats(name, n, around=1.0)

    def codes(self, name, kind, *shape):
        """A tensor of blocks of 32 columns; returns the decoded values."""
        size = {Type.MXFP4: 17, Type.Q8_0: 34, Type.Q4_0: 18}[kind]
        raw = self.rng.integers(0, 256, (*shape[:-1], shape[-1] // 32, size), dtype=np.uint8)
        if kind == Type.MXFP4:
            raw[..., 0] = self.rng.integers(122, 125, raw.shape[:-1])
        else:
            largest = 127 if kind == Type.Q8_0 else 8
            scales = self.rng.uniform(0.5, 1.5, raw.shape[:-1]) * 2 / largest / shape[-1] ** 0.5
            raw[..., :2] = scales.astype(np.float16).view(np.uint8).reshape(*raw.shape[:-1], 2)
        raw = raw.reshape(*shape[:-1], -1)
        self.file.add_tensor(name, raw, raw_dtype=kind)
        return dequantize(raw, kind).reshape(shape).astype(np.float32)

    def ends(self):
        self.stored["model.embed_tokens.weight"] = self.floats("token_embd.weight", VOCAB, HIDDEN, spread=1.0)
        self.stored["lm_head.weight"] = self.floats("output.weight", VOCAB, HIDDEN)
        self.stored["model.norm.weight"] = self.norm("output_norm.weight", HIDDEN)

    def close(self, config):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()
        with tempfile.TemporaryDirectory() as scratch:
            scratch = Path(scratch)
            (scratch / "config.json").write_text(json.dumps(config))
            save_file({k: np.ascontiguousarray(x) for k, x in self.stored.items()}, scratch / "model.safetensors", metadata={"format": "pt"})
            for attempt in range(100):
                tokens = np.random.default_rng([self.seed, attempt]).integers(3, VOCAB, make.PROMPT).tolist()
                f64, greedy, margin, inv_freqs = make.reference(scratch, tokens)
                if margin >= make.MARGIN:
                    break
            else:
                raise RuntimeError(f"{self.name}: no prompt with a margin of {make.MARGIN}")
            f32 = make.logits_of(make.load(scratch, torch.float32)[0], tokens)
            bf16 = make.logits_of(make.load(scratch, torch.bfloat16)[0], tokens)
        make.write_golden(self.name, HERE / self.name, tokens, greedy, margin, inv_freqs, [f64, f32, bf16])


def gpt_oss():
    kind = Type.MXFP4
    layers, dim, kv, count, top, ffn, window = 2, 16, 1, 3, 2, 32, 12
    p = Pair("gguf_gpt_oss", "gpt-oss", 53)
    p.keys(context_length=256, embedding_length=HIDDEN, block_count=layers, feed_forward_length=ffn, expert_feed_forward_length=ffn, expert_count=count, expert_used_count=top,
           attention__head_count=HEADS, attention__head_count_kv=kv, attention__key_length=dim, attention__value_length=dim, attention__layer_norm_rms_epsilon=1e-5,
           attention__sliding_window=window, rope__freq_base=150000.0, rope__scaling__type="yarn", rope__scaling__factor=8.0, rope__scaling__original_context_length=32)
    p.ends()
    for i in range(layers):
        at, to = f"blk.{i}.", f"model.layers.{i}."
        p.stored[to + "input_layernorm.weight"] = p.norm(at + "attn_norm.weight", HIDDEN)
        p.stored[to + "post_attention_layernorm.weight"] = p.norm(at + "post_attention_norm.weight", HIDDEN)
        for here, there, n, k in (("attn_q", "q_proj", HEADS * dim, HIDDEN), ("attn_k", "k_proj", kv * dim, HIDDEN), ("attn_v", "v_proj", kv * dim, HIDDEN), ("attn_output", "o_proj", HIDDEN, HEADS * dim)):
            p.stored[f"{to}self_attn.{there}.weight"] = p.floats(f"{at}{here}.weight", n, k)
            p.stored[f"{to}self_attn.{there}.bias"] = p.floats(f"{at}{here}.bias", n)
        p.stored[to + "self_attn.sinks"] = p.floats(at + "attn_sinks.weight", HEADS, spread=1.0)
        p.stored[to + "mlp.router.weight"] = p.floats(at + "ffn_gate_inp.weight", count, HIDDEN)
        p.stored[to + "mlp.router.bias"] = p.floats(at + "ffn_gate_inp.bias", count)
        gate, up = (p.codes(f"{at}ffn_{part}_exps.weight", kind, count, ffn, HIDDEN) for part in ("gate", "up"))
        gate_bias, up_bias = (p.floats(f"{at}ffn_{part}_exps.bias", count, ffn, spread=0.2) for part in ("gate", "up"))
        # Transformers has inputs in rows, and gate and up take turns.
        p.stored[to + "mlp.experts.gate_up_proj"] = np.stack([gate, up], axis=2).reshape(count, 2 * ffn, HIDDEN).swapaxes(1, 2)
        p.stored[to + "mlp.experts.gate_up_proj_bias"] = np.stack([gate_bias, up_bias], axis=2).reshape(count, 2 * ffn)
        p.stored[to + "mlp.experts.down_proj"] = p.codes(at + "ffn_down_exps.weight", kind, count, HIDDEN, ffn).swapaxes(1, 2)
        p.stored[to + "mlp.experts.down_proj_bias"] = p.floats(at + "ffn_down_exps.bias", count, HIDDEN, spread=0.2)
    scaling = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
    p.close({"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": layers, "num_attention_heads": HEADS,
             "num_key_value_heads": kv, "head_dim": dim, "intermediate_size": ffn, "num_local_experts": count, "num_experts_per_tok": top, "sliding_window": window,
             "layer_types": ["sliding_attention", "full_attention"][:layers], "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "rope_scaling": scaling,
             "swiglu_limit": 7.0, "hidden_act": "silu", "attention_bias": True, "tie_word_embeddings": False, "torch_dtype": "float32"})


def deepseek():
    layers, nope, rope, values, rank, count, top, ffn, dense = 2, 32, 8, 32, 32, 4, 2, 32, 32
    p = Pair("gguf_deepseek2", "deepseek2", 59)
    p.keys(context_length=256, embedding_length=HIDDEN, block_count=layers, feed_forward_length=dense, expert_feed_forward_length=ffn, expert_count=count, expert_used_count=top,
           expert_shared_count=1, expert_weights_scale=1.0, expert_weights_norm=False, expert_gating_func=1, leading_dense_block_count=1, attention__head_count=HEADS,
           attention__head_count_kv=1, attention__key_length=rank + rope, attention__value_length=rank, attention__key_length_mla=nope + rope, attention__value_length_mla=values,
           attention__kv_lora_rank=rank, attention__layer_norm_rms_epsilon=1e-5, rope__dimension_count=rope, rope__freq_base=10000.0, vocab_size=VOCAB)
    p.ends()
    for i in range(layers):
        at, to = f"blk.{i}.", f"model.layers.{i}."
        p.stored[to + "input_layernorm.weight"] = p.norm(at + "attn_norm.weight", HIDDEN)
        p.stored[to + "post_attention_layernorm.weight"] = p.norm(at + "ffn_norm.weight", HIDDEN)
        p.stored[to + "self_attn.kv_a_layernorm.weight"] = p.norm(at + "attn_kv_a_norm.weight", rank)
        p.stored[to + "self_attn.q_proj.weight"] = p.codes(at + "attn_q.weight", Type.Q8_0, HEADS * (nope + rope), HIDDEN)
        p.stored[to + "self_attn.kv_a_proj_with_mqa.weight"] = p.codes(at + "attn_kv_a_mqa.weight", Type.Q8_0, rank + rope, HIDDEN)
        keys = p.codes(at + "attn_k_b.weight", Type.Q8_0, HEADS, rank, nope).swapaxes(1, 2)
        p.stored[to + "self_attn.kv_b_proj.weight"] = np.concatenate([keys, p.codes(at + "attn_v_b.weight", Type.Q4_0, HEADS, values, rank)], axis=1).reshape(-1, rank)
        p.stored[to + "self_attn.o_proj.weight"] = p.codes(at + "attn_output.weight", Type.Q4_0, HIDDEN, HEADS * values)
        shapes = (("gate", ffn, HIDDEN), ("up", ffn, HIDDEN), ("down", HIDDEN, ffn))
        if i == 0:
            for part, n, k in (("gate", dense, HIDDEN), ("up", dense, HIDDEN), ("down", HIDDEN, dense)):
                p.stored[f"{to}mlp.{part}_proj.weight"] = p.codes(f"{at}ffn_{part}.weight", Type.Q4_0, n, k)
            continue
        p.stored[to + "mlp.gate.weight"] = p.floats(at + "ffn_gate_inp.weight", count, HIDDEN)
        for part, n, k in shapes:
            for e, x in enumerate(p.codes(f"{at}ffn_{part}_exps.weight", Type.Q4_0, count, n, k)):
                p.stored[f"{to}mlp.experts.{e}.{part}_proj.weight"] = x
            p.stored[f"{to}mlp.shared_experts.{part}_proj.weight"] = p.codes(f"{at}ffn_{part}_shexp.weight", Type.Q8_0, n, k)
    p.close({"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": layers, "num_attention_heads": HEADS,
             "num_key_value_heads": HEADS, "intermediate_size": dense, "moe_intermediate_size": ffn, "n_routed_experts": count, "num_experts_per_tok": top, "n_shared_experts": 1,
             "first_k_dense_replace": 1, "moe_layer_freq": 1, "kv_lora_rank": rank, "q_lora_rank": None, "qk_nope_head_dim": nope, "qk_rope_head_dim": rope, "v_head_dim": values,
             "n_group": 1, "topk_group": 1, "topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "max_position_embeddings": 256,
             "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None, "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False, "torch_dtype": "float32"})


if __name__ == "__main__":
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    gpt_oss()
    deepseek()
