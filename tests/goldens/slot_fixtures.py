#!/usr/bin/env python3
"""Makes adapters with PEFT that are loaded while a model runs, and PEFT's results with each, in
f64.

    pip install torch==2.9.1 transformers==5.23.0 peft==0.21.2 safetensors && python slot_fixtures.py

The bases come from `adapter_fixtures.py`. Factors are such as bf16 holds once the second is
multiplied by its scale, so that nothing is lost when they are loaded. `logits.safetensors` has
the logits after each of its tokens.
"""

import json
import shutil
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent
BASES = HERE / "adapters"
OUT = HERE / "slots"
LAYER = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# Folder, base, settings.
ADAPTERS = [
    ("all", "base", dict(r=4, lora_alpha=8, target_modules=LAYER)),
    ("some", "base", dict(r=3, lora_alpha=5, target_modules=["q_proj", "v_proj", "down_proj"], use_rslora=True, rank_pattern={"v_proj": 1}, alpha_pattern={"layers.1.mlp.down_proj": 2})),
    ("one", "base", dict(r=2, lora_alpha=2, target_modules=["o_proj"])),
    ("conv", "gpt2", dict(r=2, lora_alpha=4, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)),
]
TOKENS = [3, 17, 5, 9, 30, 2, 11, 8, 25, 14, 1, 6, 29, 22, 7, 19, 4, 13, 10, 28]


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    for i, (name, base, settings) in enumerate(ADAPTERS):
        torch.manual_seed(10 + i)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(BASES / base, dtype=torch.float32), LoraConfig(task_type="CAUSAL_LM", **settings))
        for module in model.modules():
            if hasattr(module, "lora_A") and "default" in getattr(module, "lora_A", {}):
                a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
                a.data = (torch.randn_like(a) * 0.3).bfloat16().float()
                b.data = (torch.randn_like(b) * 0.3).bfloat16().float() / module.scaling["default"]
        folder = OUT / name
        model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = base
        (folder / "adapter_config.json").write_text(json.dumps(config, sort_keys=True, indent=1))
        loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(BASES / base, dtype=torch.float32), folder).double().eval()
        ids = torch.tensor([TOKENS])
        with torch.no_grad():
            logits = loaded(ids).logits[0]
        save_file({"tokens": ids[0].to(torch.int32), "logits": logits.contiguous()}, folder / "logits.safetensors")
        print(name, logits.dtype, logits.abs().max())


if __name__ == "__main__":
    main()
