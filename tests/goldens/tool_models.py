#!/usr/bin/env python3
"""Makes whole models that the methods' own tools have quantized and written, and Transformers'
results for the values these tools decode.

    pip install -r requirements.txt hqq==0.2.8.post1 accelerate==1.15.0 nvidia-modelopt==0.47.0 && CUDA_VISIBLE_DEVICES= python tool_models.py [NAME...]

As `quantized_models.py`, whose folders these are in: `golden.safetensors` is of the decoded model in float64. Nothing here packs: HQQ's files
are by `save_to_safetensors` and are decoded by HQQ, which read them again (Transformers 5.23 neither makes nor reads them: its quantizer of HQQ says that it
"is not available yet"); FP8 is made by the operation of Transformers' quantizer (on a CPU it refuses the way that leads there) and decoded by loading the
checkpoint; BitNet's matrices are packed by `pack_weights`, and decoded by products of Transformers' own layers with the identity, and its products round their inputs as
these layers do (`activation_quant`).
"""

import functools
import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import torch
import transformers
from safetensors.torch import load_file, save_file

import make
import quantized_models as models

LLAMA = models.LLAMA | {"num_hidden_layers": 1, "intermediate_size": 128}
SMALL = json.loads((make.HERE / "llama/config.json").read_text()) | {"num_hidden_layers": 1}


def is_matrix(name):
    return name.endswith("_proj.weight")


def hqq(tensors, rng, axis=1):
    """Options differ by matrix, which the tool takes by the names of layers. Groups along outputs (`axis` 0) in some."""
    from hqq.core.quantize import BaseQuantizeConfig as How, HQQLinear
    from hqq.models.hf.base import AutoHQQHFModel

    torch.manual_seed(21)
    how = {
        "self_attn.q_proj": How(nbits=4, group_size=64, axis=1), "self_attn.k_proj": How(nbits=8, group_size=32, axis=1),
        "self_attn.v_proj": How(nbits=8, group_size=64, axis=axis), "self_attn.o_proj": How(nbits=3, group_size=64, axis=1, view_as_float=True),
        "mlp.gate_proj": How(nbits=4, group_size=32, axis=axis), "mlp.up_proj": How(nbits=2, group_size=32, axis=1, view_as_float=True),
        "mlp.down_proj": How(nbits=3 if axis == 0 else 4, group_size=128, axis=axis),
    }
    with tempfile.TemporaryDirectory() as scratch:
        plain, made = Path(scratch) / "plain", Path(scratch) / "made"
        plain.mkdir()
        (plain / "config.json").write_text(json.dumps(LLAMA))
        save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
        model = transformers.AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float16)
        AutoHQQHFModel.quantize_model(model, quant_config=how, compute_dtype=torch.float16, device="cpu")
        AutoHQQHFModel.save_to_safetensors(model, str(made))
        assert "quantization_config" not in json.loads((made / "config.json").read_text())
        stored = load_file(made / "model.safetensors")
    for name in [n for n in tensors if is_matrix(n)]:
        stem = name.removesuffix(".weight") + "."
        layer = HQQLinear(None, None, compute_dtype=torch.float32, device="cpu")
        layer.load_state_dict({k.removeprefix(stem): v for k, v in stored.items() if k.startswith(stem)})
        tensors[name] = layer.dequantize().data
    # The tool has made f16 of the others.
    for name in tensors:
        if name in stored:
            tensors[name] = stored[name].clone()
    return stored


def fp8(tensors, model, config):
    """Blocks, by the quantizer's operation."""
    from transformers.integrations.finegrained_fp8 import Fp8Quantize
    from transformers.utils.quantization_config import FineGrainedFP8Config

    operation = Fp8Quantize(SimpleNamespace(quantization_config=FineGrainedFP8Config(**config)))
    kept = config["modules_to_not_convert"]
    stored = {}
    for name in [n for n in tensors if is_matrix(n) and not any(k in n for k in kept)]:
        made = operation.convert({name: tensors[name].float()})
        assert len(made) == 2, f"{name} {tuple(tensors[name].shape)} is no whole blocks"
        stored |= made
    # Decoded by loading: where there is no GPU, Transformers does so.
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        (scratch / "config.json").write_text(json.dumps(model | {"quantization_config": {"quant_method": "fp8"} | config}))
        save_file({k: v.contiguous() for k, v in (tensors | stored).items()}, scratch / "model.safetensors", metadata={"format": "pt"})
        loaded = transformers.AutoModelForCausalLM.from_pretrained(scratch, dtype=torch.float32).state_dict()
    for name in tensors:
        if name in stored:
            tensors[name] = loaded[name].clone()
    return stored


def bitnet(tensors, rng, of=is_matrix, **config):
    """Ternary matrices: packed, or the floats that products round (`online`)."""
    from transformers.integrations.bitnet import AutoBitLinear, BitLinear, WeightQuant, pack_weights

    stored = {}
    GAINS.clear()
    for name in [n for n in tensors if of(n)]:
        w, stem = tensors[name], name.removesuffix(".weight")
        n, k = w.shape
        if config.get("use_rms_norm"):
            GAINS[stem] = torch.from_numpy(rng.uniform(0.5, 1.5, k)).bfloat16()
            stored[f"{stem}.rms_norm.weight"] = GAINS[stem]
        if config["quantization_mode"] == "online":
            stored[name] = w
            tensors[name] = WeightQuant.apply(w.float())
            continue
        scale = (1 / w.float().abs().mean()).bfloat16()
        codes = (w.float() * scale.float()).round().clamp(-1, 1)
        auto = config["linear_class"] == "autobitlinear"
        stored |= {name: pack_weights(codes.to(torch.int8)), f"{stem}.weight_scale": (1 / scale.float() if auto else scale).reshape(1).bfloat16()}
        # The result of a product with the identity; activations of one number are exact in 8 bits.
        layer = BitLinear(k, n, bias=False, dtype=torch.float32)
        layer.weight, layer.weight_scale = stored[name], stored[f"{stem}.weight_scale"].float()
        if auto:
            layer = AutoBitLinear(k, n, bias=False, dtype=torch.float32)
            layer.weight.data, layer.weight_scale = codes, stored[f"{stem}.weight_scale"].float()
        with torch.no_grad():
            tensors[name] = layer(torch.eye(k)).T.contiguous()
    return stored


# Factors of the normalized inputs of products, where they normalize them.
GAINS = {}
# How near inputs are to the middle between two codes, and how near f32 may come.
NEAREST, SURE = [], 2e-5


def is_sure():
    least = min(NEAREST)
    NEAREST.clear()
    return least > SURE


def load_bitnet(folder, dtype):
    """The model, whose products round their inputs by a scale of each token."""
    from transformers.integrations.bitnet import BitLinear
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    model, inv_freqs = plain_load(folder, dtype)

    def times(x, w):
        # Codes, and their divisor: in the type of the input.
        codes, scale = BitLinear.activation_quant(None, x)
        if dtype is torch.float64:
            exact = x * scale
            NEAREST.append((exact - exact.floor() - 0.5).abs().min().item())
        return torch.nn.functional.linear(codes.to(x.dtype), w) / scale

    def product(layer, norm, x):
        return times(norm(x), layer.weight)

    def experts(module, x, chosen, weights):
        out = torch.zeros_like(x)
        for e in range(len(module.gate_up_proj)):
            rows, slots = torch.where(chosen == e)
            if len(rows):
                gate, up = (times(x[rows], w) for w in module.gate_up_proj[e].chunk(2))
                y = times(module.act_fn(gate) * up, module.down_proj[e])
                out.index_add_(0, rows, (y * weights[rows, slots, None]).to(out.dtype))
        return out

    parts = [m for name, m in model.named_modules() if name.endswith(".experts")]
    if parts:
        for module in parts:
            module.forward = functools.partial(experts, module)
        return model, inv_freqs
    layers = {name: m for name, m in model.named_modules() if name.endswith("_proj")}
    assert len(layers) == 7 * model.config.num_hidden_layers and all(m.bias is None for m in layers.values())
    for name, layer in layers.items():
        norm = torch.nn.Identity()
        if GAINS:
            norm = LlamaRMSNorm(layer.in_features, eps=EPS)
            norm.weight.data = GAINS[name].to(dtype)
        layer.forward = functools.partial(product, layer, norm)
    return model, inv_freqs


def modelopt(tensors, rng):
    """AWQ of 4 bits, calibrated and exported by ModelOpt: norms take the factors of the inputs
    behind them, `o_proj` and `down_proj` keep theirs. Decoded here, two rows of two's
    complement in a byte, as ModelOpt has no reader of its own."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    torch.manual_seed(22)
    with tempfile.TemporaryDirectory() as scratch:
        plain, made = Path(scratch) / "plain", Path(scratch) / "made"
        plain.mkdir()
        (plain / "config.json").write_text(json.dumps(LLAMA))
        save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
        model = transformers.AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16)
        model = mtq.quantize(model, mtq.INT4_AWQ_CFG, lambda m: [m(torch.from_numpy(rng.integers(3, 60, (2, 24)))) for _ in range(4)])
        with torch.no_grad():
            export_hf_checkpoint(model, export_dir=made)
        stored = load_file(made / "model.safetensors")
    kept = 0
    for name in tensors:
        stem = name.removesuffix(".weight")
        if not is_matrix(name):
            tensors[name] = stored[name].clone()
            continue
        two = torch.stack([stored[name] << 4, stored[name] & 0xF0], 1).view(torch.int8).reshape(tensors[name].shape) >> 4
        scale = stored[f"{stem}.weight_scale"]
        tensors[name] = two.float() * scale.repeat_interleave(two.shape[1] // scale.shape[1], 1)
        if f"{stem}.pre_quant_scale" in stored:
            tensors[name] *= stored[f"{stem}.pre_quant_scale"].float()
            kept += 1
    assert kept == 2
    return stored


FP8 = {"activation_scheme": "dynamic", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "o_proj"]}
POWERS = FP8 | {"weight_block_size": [64, 32], "scale_fmt": "ue8m0", "modules_to_not_convert": ["lm_head"]}
AUTO = {"linear_class": "autobitlinear", "quantization_mode": "offline", "modules_to_not_convert": ["lm_head"]}
ONLINE = {"linear_class": "autobitlinear", "quantization_mode": "online", "modules_to_not_convert": None}
PACKED = {"linear_class": "bitlinear", "quantization_mode": "offline", "modules_to_not_convert": ["lm_head"]}
EPS = 1e-4
NORMS = PACKED | {"use_rms_norm": True, "rms_norm_eps": EPS}
WHOLE = LLAMA | {"num_key_value_heads": 4}

MODELS = {
    "modelopt_awq": (LLAMA, {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "ignore": ["lm_head", "model.embed_tokens"], "producer": {"name": "modelopt", "version": "0.47.0"}}, modelopt),
    "hqq": (LLAMA, None, hqq),
    "hqq_columns": (LLAMA, None, lambda t, rng: hqq(t, rng, axis=0)),
    "fp8_blocks": (WHOLE, {"quant_method": "fp8"} | FP8, lambda t, rng: fp8(t, WHOLE, FP8)),
    "fp8_powers": (LLAMA, {"quant_method": "fp8"} | POWERS, lambda t, rng: fp8(t, LLAMA, POWERS)),
    "bitnet": (SMALL, {"quant_method": "bitnet"} | PACKED, lambda t, rng: bitnet(t, rng, **PACKED)),
    "bitnet_norms": (SMALL, {"quant_method": "bitnet"} | NORMS, lambda t, rng: bitnet(t, rng, **NORMS)),
    "bitnet_experts": (models.EXPERTS, {"quant_method": "bitnet"} | PACKED, lambda t, rng: bitnet(t, rng, of=lambda n: ".experts." in n, **PACKED)),
    "bitnet_auto": (SMALL, {"quant_method": "bitnet"} | AUTO, lambda t, rng: bitnet(t, rng, **AUTO)),
    "bitnet_online": (SMALL, {"quant_method": "bitnet"} | ONLINE, lambda t, rng: bitnet(t, rng, **ONLINE)),
}

if __name__ == "__main__":
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    plain_load = make.load
    for name in sys.argv[1:] or MODELS:
        ternary = name.startswith("bitnet")
        make.load = load_bitnet if ternary else plain_load
        models.model(name, *MODELS[name], **({"is_sure": is_sure} if ternary else {}))
