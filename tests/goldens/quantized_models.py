#!/usr/bin/env python3
"""Makes whole models in the forms of quantized checkpoints, and Transformers' results for their
numbers.

    pip install -r requirements.txt compressed-tensors==0.12.2 && python quantized_models.py [NAME...]

`quantized_models/NAME` holds `config.json` with its `quantization_config`, the packed tensors,
and `golden.safetensors` as `make.py` describes it, for the checkpoint that they decode to:
Transformers reads that one, in float64, so its own decoding of packed tensors is no part of the
reference. Matrices that are not packed are bf16.
"""

import json
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import make
import quantized_fixtures as fixtures

HERE = Path(__file__).parent / "quantized_models"

GPT_OSS = json.loads((make.HERE / "gpt_oss/config.json").read_text()) | {
    "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"],
}
LLAMA = json.loads((make.HERE / "llama/config.json").read_text()) | {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}


def mxfp4(tensors, rng):
    """Codes of all experts, each matrix `[out, in]`; decoded by Transformers, which turns them."""
    stored = {}
    for name in [n for n in tensors if n.endswith(("gate_up_proj", "down_proj"))]:
        count, k, n = tensors[name].shape
        blocks = torch.from_numpy(rng.integers(0, 256, (count, n, k // 32, 16), dtype=np.uint8))
        scales = torch.from_numpy(rng.integers(122, 125, (count, n, k // 32), dtype=np.uint8))
        stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        tensors[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
        assert tensors[name].shape == (count, k, n)
    return stored


def gptq(tensors, rng, **how):
    """Codes of all layers' matrices; those that have an input in common have an order in common, as the method gives them."""
    stored, orders = {}, {}
    for name in [n for n in tensors if n.endswith("_proj.weight")]:
        n, k = tensors[name].shape
        stem = name.removesuffix(".weight")
        shared = stem.rsplit(".", 1)[0] if stem.endswith(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")) else stem
        index = orders.setdefault(shared, rng.permutation(np.arange(k) // how["group"]))
        t = {}
        fixtures.gptq_matrix(t, stem, n, k, rng=rng, index=index, spread=0.6 / k**0.5, **how)
        tensors[name] = t.pop(f"{stem}.expected")
        stored |= t
    return stored


def compressed(tensors, rng):
    """A matrix of each kind: packed integers of 4 bits with and without zeros, int8 and FP8 of rows, NVFP4; the others are not quantized."""
    from compressed_tensors.compressors.quantized_compressors.pack_quantized import pack_to_int32

    stored = {}
    for name in [n for n in tensors if n.endswith("_proj.weight")]:
        n, k = tensors[name].shape
        stem, spread = name.removesuffix(".weight"), 0.6 / k**0.5
        scales = torch.from_numpy(np.abs(rng.normal(spread, spread / 2, (n, k // 32)))).bfloat16()
        wide = scales.float().repeat_interleave(32, 1)
        rows = torch.from_numpy(rng.uniform(0.5, 1, (n, 1)) * spread / 24).bfloat16()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            codes = torch.from_numpy(rng.integers(-8, 8, (n, k), dtype=np.int8))
            zeros = torch.from_numpy(rng.integers(-8, 8, (n, k // 32), dtype=np.int8)) * name.endswith("k_proj.weight")
            stored |= {f"{stem}.weight_packed": pack_to_int32(codes, 4), f"{stem}.weight_scale": scales, f"{stem}.weight_shape": torch.tensor([n, k])}
            if name.endswith("k_proj.weight"):
                stored[f"{stem}.weight_zero_point"] = pack_to_int32(zeros, 4, packed_dim=0)
            tensors[name] = (codes.float() - zeros.float().repeat_interleave(32, 1)) * wide
        elif name.endswith(("v_proj.weight", "gate_proj.weight")):
            codes = torch.from_numpy(rng.integers(-128, 128, (n, k), dtype=np.int8))
            stored |= {f"{stem}.weight": codes, f"{stem}.weight_scale": rows}
            tensors[name] = codes.float() * rows.float()
        elif name.endswith("up_proj.weight"):
            codes = torch.from_numpy(rng.normal(0, 40, (n, k))).to(torch.float8_e4m3fn)
            stored |= {f"{stem}.weight": codes, f"{stem}.weight_scale": rows}
            tensors[name] = codes.float() * rows.float()
        elif name.endswith("down_proj.weight"):
            codes = rng.integers(0, 16, (n, k))
            scales = torch.from_numpy(rng.uniform(50, 400, (n, k // 16))).to(torch.float8_e4m3fn)
            table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
            stored |= {f"{stem}.weight_packed": torch.from_numpy((codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)),
                       f"{stem}.weight_scale": scales, f"{stem}.weight_global_scale": torch.tensor([16384.0])}
            tensors[name] = table[torch.from_numpy(codes)] * (scales.float() / 16384).repeat_interleave(16, 1)
    return stored


# How the inputs of products are rounded: number, scale, zero.
INPUTS = {
    "q_proj": ("int8", 0.03, 0), "k_proj": ("int8", 0.03, 0), "v_proj": ("int8", 0.02, 0), "o_proj": ("fp8", 0.004, 0),
    "gate_proj": ("int8", 0.025, -11), "up_proj": ("int8", 0.025, -11), "down_proj": ("fp8", 0.01, 0),
}


def rounded(x, kind, scale, zero):
    """As compressed-tensors rounds: `_quantize` and `_dequantize` of its `lifecycle/forward.py`."""
    x = x / scale + zero
    if kind == "int8":
        x = x.clamp(-128, 127).round()
    else:
        # Rounding to e4m3, in any type of x: eighths of the power of two below, from 2⁻⁶ on.
        x = x.clamp(-448, 448)
        unit = torch.ldexp(torch.ones_like(x), torch.frexp(x.abs().clamp(min=2.0**-6))[1] - 4)
        x = (x / unit).round() * unit
    return (x - zero) * scale


def fixed(tensors, rng):
    """int8 and FP8 with scales of the inputs of products, which were fixed when quantizing; `load_rounded` has the model."""
    stored = {}
    for name in [n for n in tensors if n.endswith("_proj.weight")]:
        n, k = tensors[name].shape
        stem = name.removesuffix(".weight")
        kind, scale, zero = INPUTS[stem.rsplit(".", 1)[1]]
        rows = torch.from_numpy(rng.uniform(0.5, 1, (n, 1)) * 0.025 / k**0.5).bfloat16()
        codes = rng.normal(0, 40, (n, k)).clip(-127, 127)
        codes = torch.from_numpy(codes.round()).to(torch.int8) if kind == "int8" else torch.from_numpy(codes).to(torch.float8_e4m3fn)
        stored |= {f"{stem}.weight": codes, f"{stem}.weight_scale": rows, f"{stem}.input_scale": torch.tensor([scale])}
        if kind == "int8":
            stored[f"{stem}.input_zero_point"] = torch.tensor([zero], dtype=torch.int8)
        tensors[name] = codes.float() * rows.float()
    return stored


def load_rounded(folder, dtype, load=make.load):
    """The model of `fixed`, whose products round their inputs."""
    model, inv_freqs = load(folder, dtype)
    for name, module in model.named_modules():
        how = INPUTS.get(name.rsplit(".", 1)[-1])
        if how:
            kind, scale, zero = how
            scale = float(np.float32(scale))
            module.register_forward_pre_hook(lambda _, args, kind=kind, scale=scale, zero=zero: (rounded(args[0], kind, scale, zero),))
    return model, inv_freqs


# One layer of latent attention with an MLP, and one with experts.
EXPERTS = json.loads((make.HERE / "deepseek_v3/config.json").read_text()) | {
    "hidden_size": 32, "intermediate_size": 32, "moe_intermediate_size": 16, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
    "num_hidden_layers": 2, "vocab_size": 64,
}


def input_of(stem):
    """How the input of one product is rounded: the latent's by FP8, the experts' to int8, each by
    numbers of its own."""
    number = zlib.crc32(stem.encode())
    if ".kv_b_proj" in stem:
        return "fp8", float(np.float32(0.005)), 0
    return "int8", float(np.float32((0.02 if stem.endswith("down_proj") else 0.03) * (1 + number % 7 / 8))), number % 31 - 15


def fixed_experts(tensors, rng):
    """The same of experts and of the matrix that makes keys and values; the first expert's scale f16 holds, so that its matrix alone would be stored otherwise."""
    stored = {}
    for name in [n for n in tensors if ".experts." in n or ".kv_b_proj" in n]:
        n, k = tensors[name].shape
        stem = name.removesuffix(".weight")
        kind, scale, zero = input_of(stem)
        one = torch.tensor([2.0**-7 if ".experts.0." in name else 0.0083])
        codes = rng.normal(0, 40, (n, k)).clip(-127, 127)
        codes = torch.from_numpy(codes.round()).to(torch.int8) if kind == "int8" else torch.from_numpy(codes).to(torch.float8_e4m3fn)
        stored |= {name: codes, f"{stem}.weight_scale": one, f"{stem}.input_scale": torch.tensor([scale])}
        if kind == "int8":
            stored[f"{stem}.input_zero_point"] = torch.tensor([zero], dtype=torch.int8)
        tensors[name] = codes.float() * one
    return stored


def load_rounded_experts(folder, dtype, load=make.load):
    """The model of `fixed_experts`: Transformers' experts are one module, whose products are written out here."""
    model, inv_freqs = load(folder, dtype)

    def forward(module, stem):
        def run(x, chosen, weights):
            out = torch.zeros_like(x)
            for e in range(len(module.gate_up_proj)):
                rows, slots = torch.where(chosen == e)
                product = lambda x, part, w, e=e: rounded(x, *input_of(f"{stem}.{e}.{part}")) @ w.T
                gate, up = (product(x[rows], part, w) for part, w in zip(("gate_proj", "up_proj"), module.gate_up_proj[e].chunk(2)))
                y = product(module.act_fn(gate) * up, "down_proj", module.down_proj[e])
                out.index_add_(0, rows, (y * weights[rows, slots, None]).to(out.dtype))
            return out

        return run

    for name, module in model.named_modules():
        if name.endswith(".kv_b_proj"):
            module.register_forward_pre_hook(lambda _, args, how=input_of(name): (rounded(args[0], *how),))
        if name.endswith(".experts"):
            module.forward = forward(module, name)
    return model, inv_freqs


def both(name, bits, kind):
    """A group of matrices and their inputs alike."""
    scheme = {"num_bits": bits, "type": kind, "dynamic": False, "symmetric": True}
    inputs = scheme | {"strategy": "tensor", "symmetric": kind == "float"}
    return {"targets": name, "weights": scheme | {"strategy": "channel"}, "input_activations": inputs, "output_activations": None}


MODELS = {
    "mxfp4": (GPT_OSS, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}, mxfp4),
    "gptq_order": (
        LLAMA,
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": True},
        lambda t, rng: gptq(t, rng, group=32, middle=True),
    ),
    "gptq3": (
        LLAMA,
        {"quant_method": "gptq", "bits": 3, "group_size": 64, "desc_act": True, "sym": False, "checkpoint_format": "gptq_v2"},
        lambda t, rng: gptq(t, rng, group=64, bits=3, less=0),
    ),
    "fixed": (
        LLAMA,
        fixtures.linear_settings("mixed-precision", {}) | {"config_groups": {
            "group_0": both(["re:.*(q|k|v|gate|up)_proj"], 8, "int"), "group_1": both(["re:.*(o|down)_proj"], 8, "float")}},
        fixed,
    ),
    "fixed_experts": (
        EXPERTS,
        fixtures.linear_settings("mixed-precision", {}) | {"config_groups": {
            "group_0": both(["re:.*experts.*_proj"], 8, "int"), "group_1": both(["re:.*kv_b_proj"], 8, "float")}},
        fixed_experts,
    ),
    "compressed": (LLAMA, fixtures.linear_settings("mixed-precision", {"num_bits": 4, "type": "int"}), compressed),
}


def model(name, config, settings, pack, is_sure=lambda: True):
    """`is_sure`: whether a prompt that was just computed has no number that is rounded otherwise when it is next to nothing off."""
    seed = zlib.crc32(name.encode())
    folder = HERE / name
    plain_load, make.load = make.load, {fixed: load_rounded, fixed_experts: load_rounded_experts}.get(pack, make.load)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        (scratch / "config.json").write_text(json.dumps(config))
        vocab = make.random_weights(scratch, seed)
        tensors = {k: v.to(torch.bfloat16) for k, v in load_file(scratch / "model.safetensors").items()}
        plain = dict(tensors)
        stored = pack(tensors, np.random.default_rng(seed))
        stored |= {k: v for k, v in plain.items() if tensors[k] is v}
        save_file({k: v.float().contiguous() for k, v in tensors.items()}, scratch / "model.safetensors")
        for attempt in range(100):
            tokens = np.random.default_rng([seed, attempt]).integers(3, vocab, make.PROMPT).tolist()
            f64, greedy, margin, inv_freqs = make.reference(scratch, tokens)
            if margin >= make.MARGIN and is_sure():
                break
        else:
            raise RuntimeError(f"{name}: no prompt")
        f32 = make.logits_of(make.load(scratch, torch.float32)[0], tokens)
        bf16 = make.logits_of(make.load(scratch, torch.bfloat16)[0], tokens)
    make.load = plain_load
    (folder / "config.json").write_text(json.dumps(config | ({"quantization_config": settings} if settings else {}), indent=2) + "\n")
    save_file({k: v.contiguous() for k, v in stored.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    golden = {"tokens": torch.tensor(tokens, dtype=torch.int32), "greedy": torch.tensor(greedy, dtype=torch.int32), **inv_freqs}
    save_file(golden | make.kept_rows("logits", f64) | make.errors(f64, f32, bf16), folder / "golden.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"{name}: logits {f64.std():.2f}, f32 error {(f32.double() - f64).abs().max():.1e}, margin {margin:.3f}", flush=True)


if __name__ == "__main__":
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or MODELS:
        model(name, *MODELS[name])
