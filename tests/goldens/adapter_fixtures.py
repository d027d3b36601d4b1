#!/usr/bin/env python3
"""Makes the fixtures of adapters with PEFT, and PEFT's merged tensors.

    pip install torch==2.9.1 transformers==5.23.0 peft==0.21.2 safetensors && python adapter_fixtures.py [NAME...]

`adapters/base`, `adapters/gpt2` and others are tiny models with random f32 weights; each other folder is an
adapter, with `merged.safetensors`, the tensors of the base that it changes, beside it.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

HERE = Path(__file__).parent / "adapters"
ALL = ["q_proj", "v_proj", "down_proj"]
# Folder, base, settings.
ADAPTERS = [
    ("lora", "base", dict(r=4, lora_alpha=6, target_modules=ALL, rank_pattern={"down_proj": 2}, alpha_pattern={"layers.0.self_attn.q_proj": 3, "^model.layers.1.self_attn.q_proj": 5})),
    ("rslora", "base", dict(r=4, lora_alpha=6, target_modules=ALL, use_rslora=True)),
    ("dora", "base", dict(r=4, lora_alpha=6, target_modules=ALL, use_dora=True)),
    ("embedding", "base", dict(r=3, lora_alpha=6, target_modules=["embed_tokens", "lm_head"])),
    ("saved", "base", dict(r=2, lora_alpha=4, target_modules=["k_proj"], modules_to_save=["lm_head", "norm"], bias="none")),
    ("bias", "biased", dict(r=2, lora_alpha=4, target_modules=["k_proj"], bias="all")),
    ("bias_only", "biased", dict(r=2, lora_alpha=4, target_modules=["k_proj"], bias="lora_only")),
    ("tokens", "base", dict(r=2, lora_alpha=4, target_modules=["v_proj"], trainable_token_indices={"embed_tokens": [9, 2], "lm_head": [4]})),
    ("experts", "mixture", dict(r=2, lora_alpha=6, target_modules=["v_proj"], target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], rank_pattern={"mlp.experts.down_proj": 3})),
    ("stacked", "stacked_base", dict(r=2, lora_alpha=3, target_modules=["q_proj"], target_parameters=["0.mlp.experts.gate_up_proj", "0.mlp.experts.down_proj"])),
    ("conv", "gpt2", dict(r=2, lora_alpha=4, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)),
    ("conv_dora", "gpt2", dict(r=2, lora_alpha=4, target_modules=["c_attn"], fan_in_fan_out=True, use_dora=True)),
]


def noise(model, scale=1.0):
    for p in model.parameters():
        p.data = torch.randn_like(p) * scale / p.shape[-1] ** 0.5 + (p.ndim == 1)


def bases(names):
    torch.manual_seed(1)
    sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                 vocab_size=32, max_position_embeddings=64, tie_word_embeddings=False)
    models = {
        "base": LlamaForCausalLM(LlamaConfig(**sizes)),
        "biased": LlamaForCausalLM(LlamaConfig(**sizes, attention_bias=True)),
        "gpt2": GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=32, n_positions=32, bos_token_id=0, eos_token_id=0)),
        "mixture": Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes | dict(num_hidden_layers=1), head_dim=8, moe_intermediate_size=8, num_experts=3, num_experts_per_tok=2, decoder_sparse_step=1)),
        # Matrices of experts are [in, out], and one is square.
        "stacked_base": GptOssForCausalLM(GptOssConfig(**sizes | dict(num_hidden_layers=1, intermediate_size=16), head_dim=8, num_local_experts=3, num_experts_per_tok=2, layer_types=["full_attention"])),
    }
    for name, model in models.items():
        noise(model)
        if names and name not in names:
            continue
        model.save_pretrained(HERE / name)
        (HERE / name / "generation_config.json").unlink(missing_ok=True)


def main(names):
    if not names:
        shutil.rmtree(HERE, ignore_errors=True)
    bases(names)
    for name, base, settings in ADAPTERS:
        if names and name not in names:
            continue
        torch.manual_seed(2)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(HERE / base, dtype=torch.float32), LoraConfig(task_type="CAUSAL_LM", **settings))
        for n, p in model.named_parameters():
            if "magnitude" in n:
                p.data *= 1 + 0.2 * torch.rand_like(p)
            elif p.requires_grad:
                p.data = torch.randn_like(p) * 0.3 + (p.ndim == 1)
        folder = HERE / name
        model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = base
        (folder / "adapter_config.json").write_text(json.dumps(config, sort_keys=True, indent=1))
        loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(HERE / base, dtype=torch.float32), folder)
        with tempfile.TemporaryDirectory() as scratch:
            loaded.merge_and_unload().save_pretrained(scratch)
            merged = load_file(Path(scratch) / "model.safetensors")
        before = load_file(HERE / base / "model.safetensors")
        changed = {n: x.contiguous() for n, x in merged.items() if n not in before or not torch.equal(x, before[n])}
        changed = {n: x for n, x in changed.items() if not (n == "lm_head.weight" and base == "gpt2")}
        save_file(changed, folder / "merged.safetensors")
        print(name, sorted(load_file(folder / "adapter_model.safetensors")), sorted(changed))
    if names:
        return
    # The other format.
    folder = HERE / "rslora"
    torch.save(load_file(folder / "adapter_model.safetensors"), folder / "adapter_model.bin")
    (folder / "adapter_model.safetensors").unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
