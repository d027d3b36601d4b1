#!/usr/bin/env python3
"""Makes the fixtures of quantized checkpoints.

    pip install bitsandbytes==0.48.2 compressed-tensors==0.12.2 hqq==0.2.8 torchao==0.15.0 transformers torch safetensors numpy && python quantized_fixtures.py [NAME...]

`quantized/METHOD` has a `config.json` with nothing but `quantization_config`, and matrices as the
method stores them with what they stand for beside them: `NAME.expected`, I64, has a hash of the numbers (FNV-1a of F32) and
the shape; for methods in `ROUNDED` the numbers themselves, F32. Those of bitsandbytes
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

import weights

HERE = Path(__file__).parent / "quantized"
RNG = np.random.default_rng(12)
# Their definitions divide, or round twice, which leaves some room.
ROUNDED = ("bitsandbytes8", "compressed_fp4")


def hashed(values):
    """A hash of numbers, zeros of both signs being the same, and the shape."""
    number = weights.fnv1a((values.float().contiguous().numpy() + np.float32(0)).tobytes())
    return torch.tensor([number - (number >> 63 << 64), *values.shape])


def write(name, settings, tensors, metadata=None):
    folder = HERE / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"quantization_config": settings} if settings else {}) + "\n")
    told = {k: hashed(v) if k.endswith(".expected") and name not in ROUNDED else v for k, v in tensors.items()}
    save_file({k: v.contiguous().clone() for k, v in told.items()}, folder / "model.safetensors", metadata)


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


def words3(codes, axis):
    """Three words of 32 codes of 3 bits, as `QuantLinear.pack` of AutoGPTQ writes them down: ten, a code that crosses, ten, another, ten."""
    codes = np.moveaxis(codes.astype(np.uint64), axis, 0)
    out = np.zeros((codes.shape[0] // 32 * 3, *codes.shape[1:]), np.uint64)
    for row, i in zip(range(0, len(out), 3), range(0, len(codes), 32)):
        for j in range(10):
            out[row] |= codes[i + j] << np.uint64(3 * j)
            out[row + 1] |= codes[i + 11 + j] << np.uint64(3 * j + 1)
            out[row + 2] |= codes[i + 22 + j] << np.uint64(3 * j + 2)
        out[row] |= (codes[i + 10] << np.uint64(30)) & np.uint64(0xFFFFFFFF)
        out[row + 1] |= codes[i + 10] >> np.uint64(2) & np.uint64(1)
        out[row + 1] |= (codes[i + 21] << np.uint64(31)) & np.uint64(0xFFFFFFFF)
        out[row + 2] |= codes[i + 21] >> np.uint64(1) & np.uint64(3)
    return torch.from_numpy(np.moveaxis(out.astype(np.uint32), 0, axis).copy().view(np.int32))


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
    pack = (lambda x, axis: words3(x, axis)) if bits == 3 else (lambda x, axis: words(x, bits, axis))
    tensors[f"{name}.qweight"] = pack(codes.T, 0)
    tensors[f"{name}.qzeros"] = pack(zeros - less, 1)
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
    """With other groups, and with act-order."""
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


def gptq_few():
    """With 2 and 3 bits, in both versions, with act-order, and with several widths in one
    checkpoint."""
    rng = np.random.default_rng(32)
    base = {"quant_method": "gptq", "group_size": 64, "desc_act": True}
    cases = [
        ("gptq2", 2, "gptq", dict(two=dict(bits=2), order=dict(bits=2, order=True), middle=dict(bits=2, middle=True))),
        ("gptq3", 3, "gptq_v2", dict(three=dict(bits=3, less=0), order=dict(bits=3, less=0, order=True), wide=dict(bits=8, less=0))),
    ]
    for name, bits, version, matrices in cases:
        t = {}
        for matrix, how in matrices.items():
            gptq_matrix(t, matrix, 32, 192, 64, rng=rng, **how)
        write(name, base | {"bits": bits, "checkpoint_format": version}, t)


def auto_round():
    """As AutoRound says of the order of GPTQ, with scales in bf16; of f16's range, and not."""
    rng = np.random.default_rng(33)
    t = {}
    for name, spread in [("half", 1.0), ("small", 1e-9)]:
        gptq_matrix(t, name, 16, 128, 32, middle=True, rng=rng)
        scales = t[f"{name}.scales"].to(torch.bfloat16) * spread
        number = (t[f"{name}.expected"].reshape(16, 4, 32) / t[f"{name}.scales"].float().T[:, :, None]).round()
        t[f"{name}.scales"], t[f"{name}.expected"] = scales, (number * scales.float().T[:, :, None]).reshape(16, 128)
    settings = {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": True, "packing_format": "auto_round:auto_gptq"}
    write("auto_round", settings, t)


def mxfp4():
    """As in gpt-oss; decoded by Transformers, which transposes the matrix of each expert."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    rng = np.random.default_rng(31)
    blocks = torch.from_numpy(rng.integers(0, 256, (3, 10, 5, 16), dtype=np.uint8))
    scales = torch.from_numpy(rng.integers(0, 255, (3, 10, 5), dtype=np.uint8))
    values = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).transpose(1, 2)
    write("mxfp4", {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, {
        "experts_blocks": blocks, "experts_scales": scales, "experts.expected": values.reshape(30, 160),
    })


def linear_settings(format, weights, **inputs):
    scheme = {"targets": ["Linear"], "weights": weights, "input_activations": inputs or None, "output_activations": None}
    return {"quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": scheme}, "ignore": ["lm_head"],
            "quantization_status": "compressed", "kv_cache_scheme": None}


def compressed():
    """Packed and decoded by compressed-tensors itself."""
    from compressed_tensors.compressors.quantized_compressors.pack_quantized import PackedQuantizationCompressor as Packed
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    torch.manual_seed(7)
    rng = np.random.default_rng(34)

    def matrix(t, name, n, k, bits, group, symmetric=True, dtype=torch.bfloat16, order=False):
        groups = k // group
        half = 2 ** (bits - 1)
        q = torch.from_numpy(rng.integers(-half, half, (n, k), dtype=np.int8))
        scale = (torch.rand(n, groups) * 0.02 + 1e-3).to(dtype)
        zero = None if symmetric else torch.from_numpy(rng.integers(-half, half, (n, groups), dtype=np.int8))
        index = torch.from_numpy(rng.permutation(np.arange(k) // group).astype(np.int32)) if order else None
        args = QuantizationArgs(num_bits=bits, symmetric=symmetric, strategy="channel" if groups == 1 else "group", group_size=None if groups == 1 else group)
        # Its compressor takes floats: whole numbers of scales, which come back as they were.
        exact = dequantize(q, scale.float(), zero, args=args, g_idx=index)
        packed = Packed().compress_weight(exact, scale.float(), args, zero, index)
        t |= {f"{name}.{key}": value for key, value in packed.items()} | {f"{name}.weight_scale": scale, f"{name}.expected": exact}
        if order:
            t[f"{name}.weight_g_idx"] = index

    t = {}
    matrix(t, "group", 24, 256, 4, 128)
    matrix(t, "zeros", 24, 256, 4, 32, symmetric=False)
    matrix(t, "row", 24, 160, 4, 160, dtype=torch.float16)
    matrix(t, "order", 24, 256, 4, 64, order=True)
    matrix(t, "wide", 24, 256, 4, 64, dtype=torch.float32)
    write("compressed_pack", linear_settings("pack-quantized", {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}), t)
    t = {}
    matrix(t, "eight", 16, 128, 8, 64)
    matrix(t, "two", 20, 128, 2, 64, symmetric=False)
    write("compressed_mixed", linear_settings("pack-quantized", {"num_bits": 8, "type": "int"}) | {
        "config_groups": {f"group_{i}": {"targets": [f"re:.*{i}"], "weights": {"num_bits": bits, "type": "int"}} for i, bits in enumerate([8, 2])}}, t)

    q = torch.randint(-128, 128, (20, 200), dtype=torch.int8)
    t = {}
    for name, scale, zero in [("row", (torch.rand(20, 1) * 0.02).bfloat16(), None), ("tensor", torch.tensor([0.0123]), None),
                              ("zeros", (torch.rand(20, 1) * 0.02).bfloat16(), torch.randint(-128, 128, (20, 1), dtype=torch.int8))]:
        t |= {f"{name}.weight": q.clone(), f"{name}.weight_scale": scale, f"{name}.expected": dequantize(q, scale.float(), zero)}
        if zero is not None:
            t[f"{name}.weight_zero_point"] = zero
    write("compressed_int", linear_settings("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}, num_bits=8, type="int", dynamic=True, strategy="token"), t)

    w = torch.randn(136, 160).to(torch.float8_e4m3fn)
    t = {}
    for name, scale in [("row", (torch.rand(136, 1) * 0.01 + 1e-3).bfloat16()), ("tensor", torch.tensor([0.0123])), ("block", torch.rand(2, 2) * 0.01)]:
        wide = scale.float().repeat_interleave(128, 0)[:136].repeat_interleave(128, 1)[:, :160] if name == "block" else scale.float()
        t |= {f"{name}.weight": w.clone(), f"{name}.weight_scale": scale, f"{name}.expected": w.float() * wide}
    t |= {f"{name}.input_scale": torch.tensor([0.5]) for name in ("row", "tensor", "block")}
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
    write("compressed_float", linear_settings("float-quantized", weights, num_bits=8, type="float", dynamic=False, strategy="tensor"), t)


def nvfp4():
    """By the definition of `NVFP4PackedCompressor` of compressed-tensors."""
    rng = np.random.default_rng(35)
    codes = rng.integers(0, 16, (12, 64))
    scales = torch.from_numpy(rng.uniform(1, 400, (12, 4))).to(torch.float8_e4m3fn)
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    wide = (scales.float() / torch.tensor([1234.5])).repeat_interleave(16, 1)
    weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    write("compressed_fp4", linear_settings("nvfp4-pack-quantized", weights), {
        "fp4.weight_packed": torch.from_numpy((codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)), "fp4.weight_scale": scales,
        "fp4.weight_global_scale": torch.tensor([1234.5]), "fp4.input_global_scale": torch.tensor([2.0]),
        "fp4.expected": torch.from_numpy(table[codes]) * wide,
    })


def modelopt():
    """NVFP4 and FP8 as TensorRT Model Optimizer exports them."""
    rng = np.random.default_rng(36)
    codes = rng.integers(0, 16, (12, 64))
    scales = torch.from_numpy(rng.uniform(1, 400, (12, 4))).to(torch.float8_e4m3fn)
    above, one = torch.tensor(0.00123), torch.tensor(0.03125)
    table = torch.from_numpy(np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)[codes])
    torch.manual_seed(11)
    w = torch.randn(16, 64).to(torch.float8_e4m3fn)
    write("modelopt", {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, {
        "fp4.weight": torch.from_numpy((codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)), "fp4.weight_scale": scales,
        "fp4.weight_scale_2": above, "fp4.input_scale": torch.tensor(0.5), "fp4.expected": table * (scales.float() * above).repeat_interleave(16, 1),
        "fp8.weight": w, "fp8.weight_scale": one, "fp8.input_scale": torch.tensor(0.5), "fp8.expected": w.float() * one,
        "k_proj.k_scale": torch.tensor(1.0),
    })


def int8():
    """LLM.int8() as Transformers decodes it."""
    torch.manual_seed(8)
    q, rows = torch.randint(-127, 128, (20, 192), dtype=torch.int8), torch.rand(20).half().float()
    write("bitsandbytes8", {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_threshold": 6.0}, {
        "int8.weight": q, "int8.SCB": rows, "int8.weight_format": torch.tensor(0, dtype=torch.uint8),
        "int8.expected": q * rows[:, None] * 7.874015718698502e-3,
    })


def fp8_scaled():
    """With a scale for each row (FBGEMM) and for each matrix."""
    torch.manual_seed(9)
    w = torch.randn(32, 96).to(torch.float8_e4m3fn)
    rows, one = torch.rand(32, 1) * 0.01, torch.tensor(0.0078125)
    write("fbgemm", {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, {
        "rows.weight": w, "rows.weight_scale": rows, "rows.input_scale_ub": torch.tensor([1200.0]), "rows.expected": w.float() * rows,
    })
    write("fp8_tensor", {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}, {
        "one.weight": w, "one.weight_scale_inv": one, "one.activation_scale": torch.tensor(0.3), "one.expected": w.float() * one,
    })


def bitnet():
    """Packed and unpacked by Transformers."""
    from transformers.integrations.bitnet import pack_weights

    torch.manual_seed(10)
    for name, linear in [("bitnet", "bitlinear"), ("bitnet_auto", "autobitlinear")]:
        w, scale = torch.randint(-1, 2, (24, 80), dtype=torch.int8), torch.tensor([1.2344], dtype=torch.bfloat16)
        times = 1 / scale.float() if linear == "bitlinear" else scale.float()
        write(name, {"quant_method": "bitnet", "linear_class": linear, "quantization_mode": "offline", "modules_to_not_convert": ["lm_head"]}, {
            "ternary.weight": pack_weights(w.clone()), "ternary.weight_scale": scale, "ternary.expected": w.float() * times,
        })


def awq_rows():
    """AWQ's GEMV and GEMV-fast, packed as `WQLinear_GEMV` and `WQLinear_GEMVFast` of AutoAWQ do."""
    rng = np.random.default_rng(37)

    def numbers(n, k, group):
        groups, words = k // group, (-(-(k // group) // 8) + 3) // 4 * 4 if group == 32 else -(-(k // group) // 8)
        codes, zeros = rng.integers(0, 16, (n, k)), rng.integers(0, 16, (n, groups))
        scales = np.abs(rng.normal(0.02, 0.01, (n, groups))).astype(np.float16)
        room = lambda x: np.pad(x, [(0, 0), (0, words * 8 - groups)])
        return codes, zeros, scales, room

    n, k, group = 24, 192, 64
    codes, zeros, scales, room = numbers(n, k, group)
    wide = lambda x: np.repeat(x, group, 1)
    write("awq_gemv", {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemv"}, {
        "zeros.qweight": words(codes, 4, 1), "zeros.qzeros": words(room(zeros), 4, 1), "zeros.scales": torch.from_numpy(room(scales)),
        "zeros.expected": torch.from_numpy(wide(scales.astype(np.float32)) * (codes - wide(zeros)).astype(np.float32)),
    })
    n, k, group = 16, 256, 32
    codes, zeros, scales, room = numbers(n, k, group)
    packed = codes.reshape(n, k // 32, 4, 4, 2).transpose(0, 1, 3, 2, 4).reshape(n, k // 32, 4, 4, 2).transpose(0, 1, 2, 4, 3)
    packed = packed.reshape(n // 4, 4, k // 64, 64).transpose(0, 2, 1, 3).reshape(n // 4, k // 64, 64, 4)
    packed = (packed[..., 0] | packed[..., 1] << 4 | packed[..., 2] << 8 | packed[..., 3] << 12).reshape(n // 4, k)
    minima = -(scales * zeros.astype(np.float32)).astype(np.float16)
    exact = wide(scales.astype(np.float64)) * codes + wide(minima.astype(np.float64))
    write("awq_gemv_fast", {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemv_fast"}, {
        "fast.qweight": torch.from_numpy(packed.astype(np.uint16).view(np.int16)), "fast.qzeros": torch.from_numpy(room(minima).T.copy()),
        "fast.scales": torch.from_numpy(room(scales).T.copy()), "fast.expected": torch.from_numpy(exact.astype(np.float32)),
    })


def hqq():
    """Quantized, packed and written down by hqq 0.2.8 (its file core/quantize.py) on a CPU; decoded by its rule in f64."""
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear, Quantizer

    torch.manual_seed(14)
    tensors = {}
    cases = [("eight", 8, 64, 1), ("four", 4, 64, 1), ("three", 3, 32, 1), ("two", 2, 128, 1), ("one", 1, 32, 1), ("turned", 4, 16, 0), ("small", 4, 8, 1)]
    for name, bits, group, axis in cases:
        config = BaseQuantizeConfig(nbits=bits, group_size=group, axis=axis)
        layer = HQQLinear(torch.nn.Linear(128, 24, bias=False), config, compute_dtype=torch.bfloat16 if bits == 3 else torch.float16, device="cpu")
        for key, value in layer.state_dict().items():
            tensors[f"{name}.{key}"] = value.data.clone()
        meta = layer.meta
        codes = Quantizer.unpack[meta["packing"]](layer.W_q, dtype=torch.float64)[: 24 * 128 // group if axis == 1 else group]
        values = (codes - meta["zero"].double()) * meta["scale"].double()
        tensors[f"{name}.expected"] = values.reshape(24, 128).float()
    settings = {"weight_quant_params": {"nbits": 4, "group_size": 64, "axis": 1}, "scale_quant_params": None, "zero_quant_params": None}
    write("hqq", {"quant_method": "hqq", "quant_config": settings, "skip_modules": ["lm_head"]}, tensors)


def sparse():
    """Compressed by compressed-tensors itself."""
    from compressed_tensors.compressors.sparse_compressors.sparse_24_bitmask import Sparse24BitMaskTensor
    from compressed_tensors.compressors.sparse_compressors.sparse_bitmask import BitmaskTensor

    torch.manual_seed(15)

    def matrix(t, name, w, kind=Sparse24BitMaskTensor, scale=None):
        stored = kind.from_dense(w)
        t |= stored.dict(f"{name}.weight" if kind is Sparse24BitMaskTensor else name)
        t[f"{name}.expected"] = stored.decompress().float() * (1 if scale is None else scale)
        if scale is not None:
            t[f"{name}.weight_scale"] = scale

    t = {}
    matrix(t, "half", torch.randn(12, 40).bfloat16())
    rows = (torch.rand(16, 1) * 0.01 + 1e-3).bfloat16()
    matrix(t, "fp8", torch.randn(16, 64).to(torch.float8_e4m3fn), scale=rows.float())
    t["fp8.weight_scale"] = rows
    write("sparse24", linear_settings("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}) | {
        "sparsity_config": {"format": "sparse-24-bitmask", "global_sparsity": 0.5, "sparsity_structure": "2:4"}}, t)
    t = {}
    matrix(t, "any", torch.randn(12, 40).half() * (torch.rand(12, 40) < 0.3), BitmaskTensor)
    matrix(t, "int8", torch.randint(-128, 128, (8, 64), dtype=torch.int8) * (torch.rand(8, 64) < 0.3), BitmaskTensor, torch.tensor([0.0123]))
    write("sparse", linear_settings("int-quantized", {"num_bits": 8, "type": "int", "strategy": "tensor"}) | {
        "sparsity_config": {"format": "sparse-bitmask", "global_sparsity": 0.7, "sparsity_structure": "unstructured"}}, t)


def torchao():
    """Quantized and taken apart by torchao itself (0.15.0, with torch 2.9)."""
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import Float8Tensor, Int8DynamicActivationIntxWeightConfig, IntxWeightOnlyConfig, MappingType, PerAxis, PerGroup, PerRow, PerTensor, quantize_

    torch.manual_seed(17)
    only = lambda dtype, granularity, **more: IntxWeightOnlyConfig(weight_dtype=dtype, granularity=granularity, **more)
    dynamic = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    cases = {"rows": PerRow(), "one": PerTensor(), "four": only(torch.int4, PerGroup(32)), "three": only(torch.int3, PerGroup(64)),
             "eight": only(torch.int8, PerAxis(0)), "zeros": only(torch.int4, PerGroup(32), mapping_type=MappingType.ASYMMETRIC), "dynamic": dynamic}
    state, expected = {}, {}
    for name, how in cases.items():
        layer = torch.nn.Linear(128, 12, bias=False, dtype=torch.bfloat16)
        if name in ("rows", "one"):
            w = Float8Tensor.from_hp(layer.weight.data, granularity=how)
            values = w.qdata.float() * w.scale
        else:
            quantize_(layer, how)
            w = layer.weight.data
            spread = lambda x: x.float().repeat_interleave(128 // x.shape[1], 1)
            values = (w.qdata.float() - spread(w.zero_point)) * spread(w.scale)
        assert torch.equal(values.to(torch.bfloat16), w.dequantize()), name
        state[f"{name}.weight"] = w
        expected[f"{name}.expected"] = values
    tensors, metadata = flatten_tensor_state_dict(state)
    write("torchao", {"quant_method": "torchao", "quant_type": {"default": {}}}, tensors | expected, metadata)


def dense(codes, bits, axis):
    """32-bit words of a stream of bits along an axis, the first code in the lowest bits."""
    codes = np.moveaxis(codes.astype(np.uint8), axis, -1)
    stream = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., :bits].reshape(*codes.shape[:-1], -1)
    stream = np.pad(stream, [(0, 0)] * (stream.ndim - 1) + [(0, -stream.shape[-1] % 32)])
    words = np.packbits(stream, axis=-1, bitorder="little").view(np.int32)
    return torch.from_numpy(np.moveaxis(words, -1, axis).copy())


def gptq_borrow():
    """Zeros of 0 in the first version of the format, as GPTQModel writes them: whole words less ones."""
    rng = np.random.default_rng(51)
    t = {}
    for name, bits in [("four", 4), ("two", 2), ("eight", 8)]:
        codes, zeros = rng.integers(0, 2**bits, (16, 32)), rng.integers(0, 2**bits, (1, 16)) * rng.integers(0, 2, (1, 16))
        scales = np.abs(rng.normal(0.02, 0.01, (1, 16))).astype(np.float16)
        ones = np.int64(sum(1 << i for i in range(0, 32, bits)))
        less = ((words(zeros, bits, 1).numpy().astype(np.int64) - ones) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        t |= {f"{name}.qweight": words(codes.T.copy(), bits, 0), f"{name}.qzeros": torch.from_numpy(less), f"{name}.scales": torch.from_numpy(scales)}
        t[f"{name}.expected"] = torch.from_numpy(scales.astype(np.float32).T * (codes - zeros.T).astype(np.float32))
    # Groups of 16, which no format has.
    gptq_matrix(t, "small", 16, 64, 16, rng=rng)
    write("gptq_borrow", {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}, t)


def compressed_dense():
    """Codes as compressed-tensors packs them from 0.13 on: across words."""
    rng = np.random.default_rng(52)
    t, groups = {}, {}
    for name, bits, group in [("three", 3, 32), ("six", 6, 32), ("whole", 5, 64), ("small", 4, 16), ("one", 1, 32)]:
        n, k = 12, 64
        codes = rng.integers(0, 2**bits, (n, k))
        one = name == "whole"
        zeros = rng.integers(0, 2**bits, (n, k // group)) if bits in (3, 6) else np.full((n, k // group), 2 ** (bits - 1))
        scales = torch.from_numpy(rng.uniform(0.01, 0.02, (1,) if one else (n, k // group))).bfloat16()
        wide = (scales.float().expand(n, 1) if one else scales.float()).repeat_interleave(group, 1).numpy()
        t |= {f"{name}.weight_packed": dense(codes, bits, 1), f"{name}.weight_shape": torch.tensor([n, k]), f"{name}.weight_scale": scales}
        if bits in (3, 6):
            t[f"{name}.weight_zero_point"] = dense(zeros, bits, 0)
        t[f"{name}.expected"] = torch.from_numpy((codes - zeros.repeat(group, 1)).astype(np.float32) * wide)
        groups[f"group_{bits}"] = {"targets": [f"re:{name}"], "weights": {"num_bits": bits, "type": "int", "group_size": group}}
    write("compressed_dense", {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}, t)


def microscaled(rng, n, k):
    """Codes and exponents of MXFP4, and the decoded values; FP8 with exponents."""
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    codes, scales = rng.integers(0, 16, (n, k)), torch.from_numpy(rng.integers(118, 124, (n, k // 32), dtype=np.uint8))
    wide = torch.exp2(scales.float() - 127).repeat_interleave(32, 1)
    w = torch.from_numpy(rng.normal(0, 9, (n, k))).to(torch.float8_e4m3fn)
    return torch.from_numpy((codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)), scales, torch.from_numpy(table[codes]) * wide, w, w.float() * wide


def exponents():
    """MXFP4 and MXFP8 of compressed-tensors."""
    codes, scales, four, w, eight = microscaled(np.random.default_rng(53), 8, 64)
    write("compressed_exponents", {"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {}}, {
        "four.weight_packed": codes, "four.weight_scale": scales, "four.expected": four,
        "eight.weight": w, "eight.weight_scale": scales.clone(), "eight.expected": eight,
    })


def modelopt_others():
    """Integers of 4 and 8 bits, MXFP4 and blocks as TensorRT Model Optimizer exports them."""
    rng = np.random.default_rng(54)
    codes, scales, four, w, _ = microscaled(rng, 8, 64)
    int4, int8 = rng.integers(-8, 8, (8, 64)), rng.integers(-128, 128, (8, 64))
    half = torch.from_numpy(rng.uniform(0.01, 0.02, (8, 2))).half()
    rows, blocks = torch.from_numpy(rng.uniform(0.01, 0.02, 8)).half(), torch.from_numpy(rng.uniform(0.01, 0.02, (2, 1, 1, 1)).astype(np.float32))
    wide = torch.from_numpy(rng.normal(0, 9, (256, 64))).to(torch.float8_e4m3fn)
    write("modelopt_others", {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, {
        "pairs.weight": torch.from_numpy(((int4[::2] & 15) | (int4[1::2] & 15) << 4).astype(np.uint8)), "pairs.weight_scale": half,
        "pairs.expected": torch.from_numpy(int4.astype(np.float32)) * half.float().repeat_interleave(32, 1),
        "bytes.weight": torch.from_numpy(int8.astype(np.int8)), "bytes.weight_scale": rows,
        "bytes.expected": torch.from_numpy(int8.astype(np.float32)) * rows.float()[:, None],
        "four.weight": codes, "four.weight_scale": scales, "four.expected": four,
        "blocks.weight": wide, "blocks.weight_scale": blocks, "blocks.expected": wide.float() * blocks.flatten().repeat_interleave(128)[:, None],
    })


def hqq_others():
    """More options of HQQ, as its own files have them, whose `config.json` says nothing; tensors of things that are `None` are not there."""
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear, Quantizer

    torch.manual_seed(61)
    tensors = {}
    cases = {"viewed": (4, 64, 1, {"view_as_float": True}), "three": (3, 16, 0, {"view_as_float": True}), "some": (1.58, 32, 1, {}), "five": (5, 64, 1, {}),
             "across": (4, 96, 1, {}), "rows": (8, None, 1, {}), "columns": (4, None, 0, {}), "one": (4, None, 1, {"channel_wise": False})}
    for name, (bits, group, axis, more) in cases.items():
        config = BaseQuantizeConfig(nbits=bits, group_size=group, axis=axis)
        config["weight_quant_params"].update(more)
        layer = HQQLinear(torch.nn.Linear(64, 24, bias=False), config, compute_dtype=torch.float16, device="cpu")
        state = layer.state_dict()
        meta = layer.meta
        q = layer.W_q.view(meta["unpack_view_dtype"]) if meta["view_as_float"] else layer.W_q
        rows = len(meta["scale"]) if axis == 1 and group else 24 if group is None else group
        codes = Quantizer.unpack[meta["packing"]](q, dtype=torch.float64)[:rows]
        tensors[f"{name}.expected"] = ((codes - meta["zero"].double()) * meta["scale"].double()).reshape(24, 64).float()
        # The parts it keeps of its own multiply alike, to the rounding of f16.
        assert torch.allclose(layer.dequantize().float(), tensors[f"{name}.expected"], atol=2e-2, rtol=2e-3), name
        if name == "five":
            # As it is with `offload_meta`, which needs a GPU.
            state["zero_scale"] = torch.stack((state.pop("zero"), state.pop("scale")))
        needed = ("W_q", "scale", "zero", "zero_scale", "shape", "axis", "group_size", "packing", "channel_wise")
        tensors |= {f"{name}.{key}": value.data.clone() for key, value in state.items() if value is not None and (name == "viewed" or key in needed)}
    write("hqq_others", None, tensors)


def fp8_others():
    """FP8 by other names, of blocks that the settings do not say, of stacked experts; MXFP4 of DeepSeek-V4's experts; decoded by Transformers."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    rng = np.random.default_rng(62)
    one = Fp8Dequantize(None)._dequantize_one
    fp8 = lambda *shape: torch.from_numpy(rng.normal(0, 9, shape)).to(torch.float8_e4m3fn)
    floats = lambda *shape: torch.from_numpy(rng.uniform(0.01, 0.02, shape).astype(np.float32))
    powers = lambda *shape: torch.from_numpy(rng.integers(118, 124, shape, dtype=np.uint8))
    t = {}

    def matrix(name, w, scales, ending, e8m0=True):
        scales = scales.view(torch.float8_e8m0fnu) if scales.dtype == torch.uint8 and e8m0 else scales
        stack = ending.startswith("_")
        t[name if stack else f"{name}.weight"], t[f"{name}{ending}" if stack else f"{name}.{ending}"] = w, scales
        t[f"{name}.expected"] = one(w, scales, torch.float32)

    matrix("named", fp8(16, 128), powers(1, 1), "scale")
    matrix("mistral", fp8(16, 64), floats(), "qscale_weight")
    t["mistral.qscale_act"] = torch.tensor(0.25)
    matrix("bytes", fp8(16, 256), powers(2, 2), "weight_scale_inv", e8m0=False)
    matrix("narrow", fp8(16, 64), powers(16, 2), "weight_scale_inv", e8m0=False)
    matrix("four", torch.from_numpy(rng.integers(-128, 128, (8, 32), dtype=np.int8)), powers(8, 2), "scale")
    matrix("experts.down_proj", fp8(3, 16, 64), floats(3, 2, 2), "_scale_inv")
    matrix("experts.up_proj", fp8(2, 16, 64), floats(2, 1, 1), "_scale_inv")
    t["experts.up_proj_activation_scale"] = torch.ones(2)
    t["norm.scale"] = t["norm.scale.expected"] = torch.ones(4)
    write("fp8_others", {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0", "expert_dtype": "fp4"}, t)


def bitnet_floats():
    """BitNet's matrices as floats: of −1, 0 and 1 as Transformers saves them again, and those that products round."""
    from transformers.integrations.bitnet import WeightQuant

    torch.manual_seed(63)
    settings = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
    w, scale = torch.randint(-1, 2, (10, 80)).bfloat16(), torch.tensor([1.2344], dtype=torch.bfloat16)
    write("bitnet_unpacked", settings, {"ternary.weight": w, "ternary.weight_scale": scale, "ternary.expected": w.float() * scale.float()})
    w, kept = torch.randn(10, 80).bfloat16(), torch.randn(4, 8).bfloat16()
    write("bitnet_online", settings | {"quantization_mode": "online", "modules_to_not_convert": None}, {
        "q_proj.weight": w, "q_proj.expected": WeightQuant.apply(w.float()), "lm_head.weight": kept, "lm_head.expected": kept.float(),
    })


def auto_round_others():
    """Packed by AutoRound 0.16.1 itself (which imports `datasets`), on a CPU: zeros as they are and less one, of all widths; a group is a row in one."""
    from auto_round_extension.torch import qlinear_torch, qlinear_torch_zp

    torch.manual_seed(64)

    def matrix(t, name, module, bits, group, symmetric=False, n=32, k=64):
        layer, size = torch.nn.Linear(k, n, bias=False), k if group == -1 else group
        w = layer.weight.data.reshape(n, -1, size)
        span = w.amax(-1) - w.amin(-1)
        scales = (2 * w.abs().amax(-1) / (2**bits - 2) if symmetric else 1.02 * span / (2**bits - 1)).half().float()
        zeros = 2 ** (bits - 1) if symmetric else torch.round(-w.amin(-1) / scales).clamp(1, 2**bits - 1)
        packed = module.QuantLinear(bits, group, k, n, False)
        packed.device = "cpu"
        packed.pack(layer, scales, zeros if symmetric else zeros.clone(), None, device="cpu")
        wide = lambda x: x.repeat_interleave(size, 1)
        zeros = torch.full((n, k // size), float(zeros)) if symmetric else zeros
        codes = torch.round(layer.weight.data / wide(scales) + wide(zeros)).clamp(0, 2**bits - 1)
        t |= {f"{name}.{key}": value for key, value in packed.state_dict().items()} | {f"{name}.expected": ((codes - wide(zeros)) * wide(scales)).detach()}

    settings = {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": False, "data_type": "int", "autoround_version": "0.16.1"}
    for folder, module, packing in [("auto_round_raw", qlinear_torch, "auto_round"), ("auto_round_less", qlinear_torch_zp, "auto_round:auto_gptq")]:
        t = {}
        for bits, name in enumerate(["two", "three", "four", "five", "six", "seven", "eight"], 2):
            matrix(t, name, module, bits, 32)
        if module is qlinear_torch:
            matrix(t, "row", module, 4, -1)
        else:
            matrix(t, "middle", module, 6, 32, symmetric=True)
        write(folder, settings | {"packing_format": packing}, t)


def six_bits():
    """MXFP6, packed and decoded by compressed-tensors itself (0.20.0)."""
    from compressed_tensors.compressors import MXFP6PackedCompressor
    from compressed_tensors.quantization.quant_scheme import QuantizationScheme, PRESET_SCHEMES

    torch.manual_seed(65)
    scheme = QuantizationScheme(targets=["Linear"], **PRESET_SCHEMES["MXFP6A16"])
    w = torch.randn(8, 96).bfloat16()
    scale = torch.exp2(torch.randint(-4, 2, (8, 3)).float()).bfloat16()
    state = MXFP6PackedCompressor.compress({"weight": w, "weight_scale": scale}, scheme)
    expected = MXFP6PackedCompressor.decompress(state, scheme)["weight"].float()
    write("compressed_six", linear_settings("mxfp6-pack-quantized", {"num_bits": 6, "type": "float", "strategy": "group", "group_size": 32}),
          {f"six.{key}": value for key, value in state.items()} | {"six.expected": expected})


def modelopt_before():
    """ModelOpt's matrices whose input is multiplied, NVFP4 of 32 columns, and 4 bits for products in FP8: as 0.47.0 exports them."""
    rng = np.random.default_rng(66)
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    four, int4, int8 = rng.integers(0, 16, (8, 64)), rng.integers(-8, 8, (8, 64)), rng.integers(-128, 128, (8, 64))
    scales = torch.from_numpy(rng.uniform(1, 400, (8, 2))).to(torch.float8_e4m3fn)
    groups, rows = (torch.from_numpy(rng.uniform(0.01, 0.02, size).astype(np.float32)) for size in ((8, 2), (8,)))
    before, above, wide = torch.from_numpy(rng.uniform(0.5, 2, 64)).bfloat16(), torch.tensor(0.00123), lambda x: x.float().repeat_interleave(32, 1)
    pairs = lambda: torch.from_numpy(((int4[::2] & 15) | (int4[1::2] & 15) << 4).astype(np.uint8))
    value = torch.from_numpy(int4.astype(np.float32)) * wide(groups)
    write("modelopt_before", {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, {
        "half.weight": torch.from_numpy((four[:, ::2] | four[:, 1::2] << 4).astype(np.uint8)), "half.weight_scale": scales, "half.weight_scale_2": above,
        "half.expected": torch.from_numpy(table[four]) * wide(scales.float() * above),
        "awq.weight": pairs(), "awq.weight_scale": groups, "awq.pre_quant_scale": before, "awq.expected": value * before.float(),
        "fp8.weight": pairs(), "fp8.weight_scale": groups.clone(), "fp8.weight_scale_2": torch.tensor(0.5), "fp8.input_scale": torch.tensor(0.25), "fp8.expected": value,
        "smooth.weight": torch.from_numpy(int8.astype(np.int8)), "smooth.weight_scale": rows, "smooth.pre_quant_scale": before.clone(), "smooth.input_scale": torch.tensor(0.25),
        "smooth.expected": torch.from_numpy(int8.astype(np.float32)) * rows[:, None] * before.float(),
    })


# In the order in which the first ones share their random numbers.
ALL = [bitsandbytes, gptq, gptq_groups, awq, fp8, mxfp4, gptq_few, auto_round, compressed, nvfp4, modelopt, int8, fp8_scaled, bitnet, awq_rows, hqq, sparse, torchao, gptq_borrow, compressed_dense, exponents, modelopt_others, hqq_others, fp8_others, bitnet_floats, auto_round_others, six_bits, modelopt_before]

if __name__ == "__main__":
    for make in ALL:
        if len(sys.argv) == 1 or make.__name__ in sys.argv[1:]:
            make()
