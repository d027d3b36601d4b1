"""Writes rope_goldens.json: rotary frequencies by Transformers (bits of f32) for the configurations below.

Made with torch 2.9.0 and transformers 5.23.0 on x86-64:  python rope_goldens.py > rope_goldens.json
"""
import json
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

LLAMA3 = dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32768)
CASES = [
    ("default 1e4 x 64", 64, 1e4, 4096, {}),
    ("default 5e5 x 64", 64, 5e5, 4096, {}),
    ("default 1e6 x 128", 128, 1e6, 32768, {}),
    ("default 1e4 x 24", 24, 1e4, 4096, {}),
    ("linear", 128, 1e4, 16384, dict(rope_type="linear", factor=4.0)),
    ("linear 2.5", 80, 1e4, 16384, dict(rope_type="linear", factor=2.5)),
    ("llama3.2", 64, 5e5, 131072, LLAMA3),
    ("llama3.1", 128, 5e5, 131072, LLAMA3 | dict(factor=8.0)),
    ("llama4 scout", 128, 5e5, 131072, LLAMA3 | dict(factor=16.0, high_freq_factor=1.0)),
    ("yarn qwen", 128, 1e6, 131072, YARN),
    ("yarn untruncated", 64, 1.5e5, 131072, YARN | dict(factor=32.0, original_max_position_embeddings=4096, truncate=False)),
    ("yarn mscale", 64, 1e4, 163840, YARN | dict(factor=40.0, original_max_position_embeddings=4096, mscale=1.0, mscale_all_dim=0.7)),
    ("yarn attention factor", 64, 1e4, 8192, YARN | dict(factor=2.0, original_max_position_embeddings=4096, attention_factor=1.25, beta_fast=24, beta_slow=2)),
    ("yarn short", 16, 1e4, 256, YARN | dict(original_max_position_embeddings=64)),
]
out = []
for name, dim, theta, positions, scaling in CASES:
    rope = dict(rope_type="default", rope_theta=theta) | scaling
    config = LlamaConfig(hidden_size=dim * 2, num_attention_heads=2, head_dim=dim, max_position_embeddings=positions, rope_parameters=rope)
    e = LlamaRotaryEmbedding(config)
    bits = e.inv_freq.numpy().view("uint32").tolist()
    out.append(dict(name=name, head_dim=dim, max_position_embeddings=positions, rope_parameters=rope, inv_freq_bits=bits, scale=float(e.attention_scaling)))
print("[\n" + ",\n".join(json.dumps(case) for case in out) + "\n]")
