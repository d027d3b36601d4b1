#!/usr/bin/env python3
"""Makes the fixtures of quantized checkpoints.

    pip install bitsandbytes==0.48.2 torch safetensors numpy && python quantized_fixtures.py [NAME...]

`quantized/METHOD` has a `config.json` with nothing but `quantization_config`, and matrices as the
method stores them with what they stand for beside them (`NAME.expected`, F32). Those of bitsandbytes
are made and decoded by itself, on a CPU. The others are written out here by the methods' own
definitions: GPTQ's by `QuantLinear.pack` of AutoGPTQ, AWQ's by `WQLinear_GEMM` of AutoAWQ, FP8's by
DeepSeek's `weight_dequant`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent / "quantized"
RNG = np.random.default_rng(12)


def write(name, settings, tensors):
    folder = HERE / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"quantization_config": settings}) + "\n")
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")


def bitsandbytes():
    import bitsandbytes.functional as F

    torch.manual_seed(3)
    tensors = {}
    cases = [("nf4", "nf4", False, 64), ("nested", "nf4", True, 64), ("fp4", "fp4", False, 64), ("wide", "nf4", True, 128)]
    for name, kind, nested, block in cases:
        w = torch.randn(20, 256)
        q, state = F.quantize_4bit(w, blocksize=block, compress_statistics=nested, quant_type=kind)
        tensors[f"{name}.weight"] = q
        for key, value in state.as_dict(packed=True).items():
            tensors[f"{name}.weight.{key}"] = value
        tensors[f"{name}.expected"] = F.dequantize_4bit(q, state).float()
        if kind == "fp4":
            # Its decoder for CPUs rounds one number of the table (0.0052); the file has the table.
            codes = torch.stack([q.flatten() >> 4, q.flatten() & 15], 1).long()
            values = state.code[codes].reshape(-1, block) * state.absmax[:, None]
            tensors[f"{name}.expected"] = values.reshape(w.shape)
    write("bitsandbytes", {"quant_method": "bitsandbytes", "load_in_4bit": True}, tensors)


def words(codes, bits, axis):
    """32-bit words of adjacent codes, the first in the lowest bits."""
    per = 32 // bits
    codes = np.moveaxis(codes.astype(np.uint64), axis, -1)
    codes = codes.reshape(*codes.shape[:-1], -1, per)
    out = sum(codes[..., i] << np.uint64(bits * i) for i in range(per)).astype(np.uint32)
    return torch.from_numpy(np.moveaxis(out, -1, axis).copy().view(np.int32))


def gptq_matrix(tensors, name, n, k, group, bits=4, middle=False, order=False, less=1, rng=RNG, index=None, spread=0.02):
    """`index`: the group of each column, where it is given; `spread`: of the scales."""
    groups = k // group
    codes = rng.integers(0, 2**bits, (n, k))
    zeros = np.full((groups, n), 2 ** (bits - 1)) if middle else rng.integers(1, 2**bits, (groups, n))
    scales = np.abs(rng.normal(spread, spread / 2, (groups, n))).astype(np.float16)
    if index is None:
        index = np.arange(k) // group
    if order:
        index = rng.permutation(index)
    tensors[f"{name}.qweight"] = words(codes.T, bits, 0)
    tensors[f"{name}.qzeros"] = words(zeros - less, bits, 1)
    tensors[f"{name}.scales"] = torch.from_numpy(scales)
    tensors[f"{name}.g_idx"] = torch.from_numpy(index.astype(np.int32))
    values = scales.astype(np.float32)[index].T * (codes - zeros[index].T).astype(np.float32)
    tensors[f"{name}.expected"] = torch.from_numpy(values)


def gptq():
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
    t = {}
    gptq_matrix(t, "middle", 24, 256, 128, middle=True)
    write("gptq", settings, t)
    for name, changes, matrix in [
        ("gptq8", {"bits": 8, "group_size": 32}, dict(bits=8, middle=True)),
        ("gptq_v2", {"group_size": 32, "sym": False, "checkpoint_format": "gptq_v2"}, dict(less=0)),
    ]:
        t = {}
        gptq_matrix(t, "middle" if matrix.get("middle") else "zeros", 24, 160, 32, **matrix)
        write(name, settings | changes, t)


def gptq_groups():
    """Of other groups, and with act-order."""
    base = {"quant_method": "gptq", "bits": 4, "sym": False}
    t = {}
    gptq_matrix(t, "zeros", 16, 192, 64)
    gptq_matrix(t, "order", 16, 192, 64, order=True)
    write("gptq_order", base | {"group_size": 64, "desc_act": True}, t)
    t = {}
    gptq_matrix(t, "row", 16, 96, 96, middle=True)
    write("gptq_row", base | {"group_size": -1}, t)


def awq():
    n, k, group = 24, 192, 64
    codes, zeros = RNG.integers(0, 16, (n, k)), RNG.integers(0, 16, (k // group, n))
    scales = np.abs(RNG.normal(0.02, 0.01, (k // group, n))).astype(np.float16)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    mixed = lambda x: x.reshape(x.shape[0], -1, 8)[:, :, order].reshape(x.shape)
    values = np.repeat(scales.astype(np.float32), group, 0).T * (codes - np.repeat(zeros, group, 0).T).astype(np.float32)
    write("awq", {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}, {
        "zeros.qweight": words(mixed(codes.T.copy()), 4, 1),
        "zeros.qzeros": words(mixed(zeros), 4, 1),
        "zeros.scales": torch.from_numpy(scales),
        "zeros.expected": torch.from_numpy(values),
    })


def fp8():
    torch.manual_seed(5)
    w = torch.randn(144, 320).to(torch.float8_e4m3fn)
    scales = torch.rand(2, 3) * 0.01
    wide = scales.repeat_interleave(128, 0)[:144].repeat_interleave(128, 1)[:, :320]
    write("fp8", {"quant_method": "fp8", "weight_block_size": [128, 128]}, {
        "blocks.weight": w, "blocks.weight_scale_inv": scales, "blocks.expected": w.float() * wide,
    })


def mxfp4():
    """Of gpt-oss; decoded by Transformers, which transposes the matrix of each expert."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    rng = np.random.default_rng(31)
    blocks = torch.from_numpy(rng.integers(0, 256, (3, 10, 5, 16), dtype=np.uint8))
    scales = torch.from_numpy(rng.integers(0, 255, (3, 10, 5), dtype=np.uint8))
    values = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).transpose(1, 2)
    write("mxfp4", {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, {
        "experts_blocks": blocks, "experts_scales": scales, "experts.expected": values.reshape(30, 160),
    })


# In the order in which the first ones share their random numbers.
ALL = [bitsandbytes, gptq, gptq_groups, awq, fp8, mxfp4]

if __name__ == "__main__":
    for make in ALL:
        if len(sys.argv) == 1 or make.__name__ in sys.argv[1:]:
            make()
