#!/usr/bin/env python3
"""Prints the speed of FP8 and NVFP4 checkpoints beside the same shape as `--w4 --group 128`: with a scale for each matrix, row, or
block of 128 x 128 in FP8, and NVFP4 with int8 rows (as usual) and f32 rows.

    python float_codes.py 1.2b --llmcc ../target/release/llmcc [--threads 2] [--layers 16] [--only tensor --only nvfp4] [--target native]

Codes are made from normal weights, scaled so that the largest of a block is the largest code. Embeddings, which are the output matrix
too, stay bf16, as published checkpoints have them; `--w4` makes 4 bits of them as well. In turns; medians, and ratios of each round's
times to w4's: of a decoded token, of a token of a prompt, and of the bytes of the artifact that pass per second of decoding. Needs
NumPy and the `llmcc` package.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import make_checkpoint as shapes

import llmcc

TOKENS, ROUNDS, BLOCK = 24, 7, 128
POOL = 1 << 22  # random codes, of which every matrix takes a stretch
E4M3_MAX, E2M1 = 448.0, [0, 0.5, 1, 1.5, 2, 3, 4, 6]
SETTINGS = {
    "tensor": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "row": {"quant_method": "fbgemm_fp8"},
    "block": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
}


def nearest(x, numbers):
    """Places of the numbers (ascending, from 0) nearest to `|x|`."""
    middles = (numbers[1:] + numbers[:-1]) / 2
    return np.searchsorted(middles, np.abs(x)).astype(np.uint8)


def e4m3_numbers():
    codes = np.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    return np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))


class Pool:
    """Codes of normal numbers with standard deviation 1, and what the codes are to be multiplied by."""

    def __init__(self, seed=1):
        rng = np.random.default_rng(seed)
        x, sign = rng.standard_normal(POOL), rng.integers(0, 2, POOL, dtype=np.uint8)
        self.fp8_scale = 4.2 / E4M3_MAX  # a block of 128 x 128 has about this as its largest
        self.fp8 = nearest(np.minimum(np.abs(x) / self.fp8_scale, E4M3_MAX), e4m3_numbers()) | sign << 7
        groups = np.abs(x).reshape(-1, 16)
        self.above = 4.2 / 6 / E4M3_MAX
        self.scales = nearest(groups.max(1) / 6 / self.above, e4m3_numbers())
        numbers = groups / (e4m3_numbers()[self.scales] * self.above)[:, None]
        nibbles = nearest(numbers, np.array(E2M1)).reshape(-1) | sign << 3
        self.fp4 = nibbles[::2] | nibbles[1::2] << 4
        self.at = 0

    def stretch(self, of, shape):
        self.at += 4093 * 16
        return np.resize(np.roll(of, -(self.at % len(of))), shape)


def coded(pool, kind, stem, n, k):
    """Tensors `(name, type, array)` of a matrix whose weights have standard deviation 1/sqrt(k)."""
    unit = k**-0.5
    if kind == "nvfp4":
        yield f"{stem}.weight", "U8", pool.stretch(pool.fp4, (n, k // 2))
        yield f"{stem}.weight_scale", "F8_E4M3", pool.stretch(pool.scales, (n, k // 16))
        yield f"{stem}.weight_scale_2", "F32", np.array(unit * pool.above, np.float32)
        return
    shape = {"tensor": (), "row": (n, 1), "block": (-(-n // BLOCK), -(-k // BLOCK))}[kind]
    name = "weight_scale_inv" if kind == "block" else "weight_scale"
    yield f"{stem}.weight", "F8_E4M3", pool.stretch(pool.fp8, (n, k))
    # Scales that f16 holds are another format: these are usual ones, which it does not.
    spread = np.random.default_rng(n).uniform(0.9, 1.1, shape)
    yield f"{stem}.{name}", "F32", np.asarray(unit * pool.fp8_scale * spread, np.float32)


def tensors(config, kind):
    pool, rng = Pool(), np.random.default_rng(2)
    for name, shape in shapes.tensors_of(config):
        if ".layers." in name and len(shape) == 2:
            yield from coded(pool, kind, name.removesuffix(".weight"), *shape)
            continue
        x = np.ones(shape, np.float32) if len(shape) == 1 else rng.standard_normal(shape, dtype=np.float32) * np.float32(shape[-1] ** -0.5)
        yield name, "BF16", shapes.bf16(x)


def write(folder, config, kind):
    """A checkpoint, tensor after tensor: the header first, with the sizes of all."""
    folder.mkdir()
    header, _ = shapes.header_of((name, dtype, data.shape, data.nbytes) for name, dtype, data in tensors(config, kind))
    with (folder / "model.safetensors").open("wb") as out:
        out.write(header)
        for _, _, data in tensors(config, kind):
            out.write(np.ascontiguousarray(data).tobytes())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": SETTINGS[kind]}))


def measure(model, rng, prompt):
    """Seconds of a decoded token, and of a token of a prompt."""
    ids = lambda count: [int(rng.integers(model.info["vocab"])) for _ in range(count)]
    with model.session() as session:
        begin = time.perf_counter()
        model.step([(session, ids(prompt))])
        filled = time.perf_counter()
        for _ in range(TOKENS):
            model.step([(session, ids(1))])
        return (time.perf_counter() - filled) / TOKENS, (filled - begin) / prompt


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("preset", choices=shapes.PRESETS)
    p.add_argument("--llmcc", default="llmcc")
    p.add_argument("--target", default="native")
    p.add_argument("--threads", type=int)
    p.add_argument("--layers", type=int)
    p.add_argument("--vocab", type=int)
    p.add_argument("--prompt", type=int, default=128)
    p.add_argument("--rounds", type=int, default=ROUNDS)
    p.add_argument("--only", action="append", help="formats to take: tensor, row, block, nvfp4, nvfp4-f32; all by default")
    args = p.parse_args()
    shape = shapes.PRESETS[args.preset] | ({"num_hidden_layers": args.layers} if args.layers else {})
    shape |= {"vocab_size": args.vocab} if args.vocab else {}
    config = shapes.config_of(shape)
    rng = np.random.default_rng(0)
    wanted = args.only or ["tensor", "row", "block", "nvfp4", "nvfp4-f32"]
    with tempfile.TemporaryDirectory() as folder:
        folder, models, weights = Path(folder), {}, {}
        for name in ["w4", *wanted]:
            source, out = folder / "checkpoint", folder / f"{name}.so"
            if name == "w4":
                argv = ["make_checkpoint.py", args.preset, str(source)]
                argv += ["--layers", str(args.layers)] if args.layers else []
                argv += ["--vocab", str(args.vocab)] if args.vocab else []
                subprocess.run([sys.executable, str(Path(__file__).with_name(argv[0])), *argv[1:]], check=True, stdout=subprocess.DEVNULL)
                flags = ["--w4", "--group", "128"]
            else:
                write(source, config, name.removesuffix("-f32"))
                flags = ["--act", "f32"] if name.endswith("-f32") else []
            command = [args.llmcc, "compile", source, "--target", args.target, "--kv", "f16", "--quiet", "--deny-fallback", *flags, "-o", out]
            subprocess.run(command, check=True)
            weights[name] = out.stat().st_size
            shutil.rmtree(source)
            models[name] = llmcc.Model(str(out), threads=args.threads)
        seconds = {name: [] for name in models}
        for _ in range(args.rounds):
            for name, model in models.items():
                seconds[name].append(measure(model, rng, args.prompt))
    print(f"{'format':<10} {'bytes':>9} {'decode/s':>9} {'time of w4 (least to most)':>28} {'bytes/s of w4':>14} {'prompt/s':>9} {'time of w4':>11}")
    for name, rounds in seconds.items():
        decode, prompt = (statistics.median(r[i] for r in rounds) for i in (0, 1))
        ratios = [[a[i] / b[i] for a, b in zip(rounds, seconds["w4"])] for i in (0, 1)]
        of_w4, of_prompt = (statistics.median(r) for r in ratios)
        spread = f"{of_w4:.2f} ({min(ratios[0]):.2f} to {max(ratios[0]):.2f})"
        rate = weights[name] / weights["w4"] / of_w4
        print(f"{name:<10} {weights[name] / 1e6:7.0f}MB {1 / decode:9.1f} {spread:>28} {rate:14.2f} {1 / prompt:9.1f} {of_prompt:11.2f}")


if __name__ == "__main__":
    main()
