#!/usr/bin/env python3
"""Our speed beside llama.cpp's on the same GGUF file: families of models, and types of blocks.

    python3 benches/peers/gguf_models.py qwen3-moe:Q4_0 mamba2:Q4_0         # shapes and types
    python3 benches/peers/gguf_models.py llama:Q4_0 llama:Q4_K llama:Q6_K   # one shape in several types
    python3 benches/peers/gguf_models.py --list

Each file has random blocks in the shape of a model people use, with as many layers as fit (the
speed of a layer does not depend on how many there are); all matrices are of the named type,
except routers and norms, which are F32. llama.cpp opens the file, `llmcc compile` keeps its
codes. The engines take turns as in `benches/peers`, whose environment and folder (--work) this
uses. After each case come the bytes our step reads, and their share of the memory's bandwidth,
as `llmcc bench` prints it.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

import environment
import measure
import report
from cases import OURS, Case, Entrant

ROOT = Path(__file__).resolve().parents[2]
THEIRS = "llama.cpp"
Tensor = tuple[str, tuple[int, ...], bool]


@dataclass(frozen=True)
class Shape:
    """A model: its architecture in GGUF, keys after that prefix, and its tensors (name, shape as in NumPy, whether a matrix that is quantized)."""

    arch: str
    keys: dict[str, Any]
    tensors: Callable[["Shape"], Iterator[Tensor]]
    vocab: int = 32000

    def __getitem__(self, key: str) -> Any:
        return self.keys[key]


def ends(s: Shape) -> Iterator[Tensor]:
    hidden = s["embedding_length"]
    yield "token_embd.weight", (s.vocab, hidden), True
    yield "output_norm.weight", (hidden,), False


def heads(s: Shape, p: str) -> Iterator[Tensor]:
    hidden, dim = s["embedding_length"], s["attention.key_length"]
    q, kv = s["attention.head_count"] * dim, s["attention.head_count_kv"] * dim
    yield p + "attn_norm.weight", (hidden,), False
    for name, rows in (("q", q), ("k", kv), ("v", kv)):
        yield f"{p}attn_{name}.weight", (rows, hidden), True
    yield p + "attn_output.weight", (hidden, q), True


def mlp(s: Shape, p: str) -> Iterator[Tensor]:
    hidden, ffn = s["embedding_length"], s["feed_forward_length"]
    yield p + "ffn_norm.weight", (hidden,), False
    yield p + "ffn_gate.weight", (ffn, hidden), True
    yield p + "ffn_up.weight", (ffn, hidden), True
    yield p + "ffn_down.weight", (hidden, ffn), True


def experts(s: Shape, p: str) -> Iterator[Tensor]:
    hidden, ffn, count = s["embedding_length"], s["expert_feed_forward_length"], s["expert_count"]
    yield p + "ffn_gate_inp.weight", (count, hidden), False
    for name, shape in (("gate", (ffn, hidden)), ("up", (ffn, hidden)), ("down", (hidden, ffn))):
        yield f"{p}ffn_{name}_exps.weight", (count, *shape), True


def layers(s: Shape) -> Iterator[str]:
    return (f"blk.{i}." for i in range(s["block_count"]))


def llama(s: Shape) -> Iterator[Tensor]:
    yield from ends(s)
    for p in layers(s):
        yield from heads(s, p)
        yield from mlp(s, p)


def gemma3(s: Shape) -> Iterator[Tensor]:
    yield from ends(s)
    for p in layers(s):
        yield from heads(s, p)
        yield from mlp(s, p)
        for name, width in (("attn_q_norm", "attention.key_length"), ("attn_k_norm", "attention.key_length"), ("post_attention_norm", "embedding_length"), ("post_ffw_norm", "embedding_length")):
            yield f"{p}{name}.weight", (s[width],), False


def phi3(s: Shape) -> Iterator[Tensor]:
    hidden, ffn = s["embedding_length"], s["feed_forward_length"]
    yield from ends(s)
    yield "output.weight", (s.vocab, hidden), True
    for p in layers(s):
        yield p + "attn_norm.weight", (hidden,), False
        yield p + "attn_qkv.weight", (3 * hidden, hidden), True
        yield p + "attn_output.weight", (hidden, hidden), True
        yield p + "ffn_norm.weight", (hidden,), False
        yield p + "ffn_up.weight", (2 * ffn, hidden), True
        yield p + "ffn_down.weight", (hidden, ffn), True


def qwen3_moe(s: Shape) -> Iterator[Tensor]:
    yield from ends(s)
    yield "output.weight", (s.vocab, s["embedding_length"]), True
    for p in layers(s):
        yield from heads(s, p)
        for name in ("q", "k"):
            yield f"{p}attn_{name}_norm.weight", (s["attention.key_length"],), False
        yield p + "ffn_norm.weight", (s["embedding_length"],), False
        yield from experts(s, p)


def gpt_oss(s: Shape) -> Iterator[Tensor]:
    hidden, count, ffn = s["embedding_length"], s["expert_count"], s["expert_feed_forward_length"]
    yield from ends(s)
    yield "output.weight", (s.vocab, hidden), True
    for p in layers(s):
        for name, shape, matrix in heads(s, p):
            yield name, shape, matrix
            if matrix:
                yield name.replace("weight", "bias"), (shape[0],), False
        yield p + "attn_sinks.weight", (s["attention.head_count"],), False
        yield p + "post_attention_norm.weight", (hidden,), False
        yield from experts(s, p)
        yield p + "ffn_gate_inp.bias", (count,), False
        for name, width in (("gate", ffn), ("up", ffn), ("down", hidden)):
            yield f"{p}ffn_{name}_exps.bias", (count, width), False


def deepseek2(s: Shape) -> Iterator[Tensor]:
    hidden, count, rank, rope = s["embedding_length"], s["attention.head_count"], s["attention.kv_lora_rank"], s["rope.dimension_count"]
    keys, values = s["attention.key_length_mla"], s["attention.value_length_mla"]
    yield from ends(s)
    yield "output.weight", (s.vocab, hidden), True
    for i, p in enumerate(layers(s)):
        yield p + "attn_norm.weight", (hidden,), False
        yield p + "attn_q.weight", (count * keys, hidden), True
        yield p + "attn_kv_a_mqa.weight", (rank + rope, hidden), True
        yield p + "attn_kv_a_norm.weight", (rank,), False
        yield p + "attn_k_b.weight", (count, rank, keys - rope), True
        yield p + "attn_v_b.weight", (count, values, rank), True
        yield p + "attn_output.weight", (hidden, count * values), True
        if i < s["leading_dense_block_count"]:
            yield from mlp(s, p)
            continue
        yield p + "ffn_norm.weight", (hidden,), False
        yield from experts(s, p)
        shared = s["expert_shared_count"] * s["expert_feed_forward_length"]
        for name, shape in (("gate", (shared, hidden)), ("up", (shared, hidden)), ("down", (hidden, shared))):
            yield f"{p}ffn_{name}_shexp.weight", shape, True


def mamba2(s: Shape) -> Iterator[Tensor]:
    hidden, inner, state, count = s["embedding_length"], s["ssm.inner_size"], s["ssm.state_size"], s["ssm.time_step_rank"]
    mixed = inner + 2 * s["ssm.group_count"] * state
    yield from ends(s)
    for p in layers(s):
        yield p + "attn_norm.weight", (hidden,), False
        yield p + "ssm_in.weight", (inner + mixed + count, hidden), True
        yield p + "ssm_conv1d.weight", (mixed, s["ssm.conv_kernel"]), False
        yield p + "ssm_conv1d.bias", (mixed,), False
        yield p + "ssm_dt.bias", (count,), False
        yield p + "ssm_a", (count, 1), False
        yield p + "ssm_d", (count, 1), False
        yield p + "ssm_norm.weight", (s["ssm.group_count"], inner // s["ssm.group_count"]), False
        yield p + "ssm_out.weight", (hidden, inner), True


def decoder(hidden: int, layers: int, count: int, kv: int, dim: int, ffn: int, **more: Any) -> dict[str, Any]:
    keys = {"context_length": 32768, "embedding_length": hidden, "block_count": layers, "attention.head_count": count, "attention.head_count_kv": kv, "attention.key_length": dim}
    keys |= {"attention.value_length": dim, "feed_forward_length": ffn, "attention.layer_norm_rms_epsilon": 1e-6, "rope.dimension_count": dim, "rope.freq_base": 500000.0}
    return keys | {k.replace("__", "."): v for k, v in more.items()}


SHAPES = {
    # Llama 3.2 1B.
    "llama": Shape("llama", decoder(2048, 16, 32, 8, 64, 8192), llama, 128256),
    # BitNet b1.58 2B4T's widths.
    "ternary": Shape("llama", decoder(2560, 30, 20, 5, 128, 6912), llama, 128256),
    "gemma3": Shape("gemma3", decoder(1152, 26, 4, 1, 256, 6912, attention__sliding_window=512), gemma3, 262144),
    # Phi-3-mini, 16 layers of 32.
    "phi3": Shape("phi3", decoder(3072, 16, 32, 32, 96, 8192), phi3, 32064),
    # Qwen3-30B-A3B, 10 layers of 48 and a small vocabulary: 6.2 B parameters, 0.7 B at work.
    "qwen3-moe": Shape("qwen3moe", decoder(2048, 10, 32, 4, 128, 6144, expert_count=128, expert_used_count=8, expert_feed_forward_length=768), qwen3_moe),
    # gpt-oss-20b, 6 layers of 24.
    "gpt-oss": Shape("gpt-oss", decoder(2880, 6, 64, 8, 64, 2880, expert_count=32, expert_used_count=4, expert_feed_forward_length=2880, attention__sliding_window=128,
                                        rope__scaling__type="yarn", rope__scaling__factor=32.0, rope__scaling__original_context_length=4096), gpt_oss),
    # DeepSeek-V2-Lite, all layers (llama.cpp takes it for the larger V2 otherwise), with 16 experts of 64.
    "deepseek": Shape("deepseek2", decoder(2048, 27, 16, 1, 576, 10944, rope__dimension_count=64, attention__value_length=512, attention__kv_lora_rank=512, attention__key_length_mla=192,
                                           attention__value_length_mla=128, expert_count=16, expert_used_count=6, expert_feed_forward_length=1408, expert_shared_count=2, leading_dense_block_count=1,
                                           expert_gating_func=1, expert_weights_scale=1.0, expert_weights_norm=False, expert_group_count=1, expert_group_used_count=1), deepseek2),
    # Mamba-2 1.3B.
    "mamba2": Shape("mamba2", {"context_length": 1 << 20, "embedding_length": 2048, "feed_forward_length": 0, "attention.head_count": 0, "block_count": 48, "ssm.conv_kernel": 4, "ssm.inner_size": 4096,
                               "ssm.state_size": 128, "ssm.time_step_rank": 64, "ssm.group_count": 1, "attention.layer_norm_rms_epsilon": 1e-5}, mamba2, 50288),
}

# Bytes of a block, and its scales: places of f16 numbers, and about how large they are for weights
# of 1/50.
BLOCKS = {
    "Q4_0": (18, {0: 4e-3}), "Q4_1": (20, {0: 4e-3, 2: -3e-2}), "Q5_0": (22, {0: 2e-3}), "Q5_1": (24, {0: 2e-3, 2: -3e-2}), "Q8_0": (34, {0: 3e-4}),
    "Q2_K": (84, {80: 1e-3, 82: 1.5e-3}), "Q3_K": (110, {108: 4e-4}), "Q4_K": (144, {0: 1e-4, 2: 8e-4}), "Q5_K": (176, {0: 5e-5, 2: 8e-4}), "Q6_K": (210, {208: 2e-5}),
    "IQ4_NL": (18, {0: 3e-4}), "IQ4_XS": (136, {0: 2e-5}), "TQ2_0": (66, {64: 2e-2}), "MXFP4": (17, {}), "F16": (2, {}),
}


def blocks(kind: str, count: int, rng: Any) -> Any:
    """Random blocks."""
    import numpy as np

    if kind == "F16":
        return (rng.standard_normal(count, dtype=np.float32) / 50).astype(np.float16).view(np.uint8)
    size, places = BLOCKS[kind]
    raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at, scale in places.items():
        raw[:, at : at + 2] = (rng.uniform(0.5, 1, count) * scale).astype(np.float16).view(np.uint8).reshape(count, 2)
    if kind == "MXFP4":
        raw[:, 0] = 120
    if kind == "TQ2_0":
        raw[:, :64] &= raw[:, :64] >> 1 & 0x55 ^ 0xFF
    return raw


def write(shape: Shape, kind: str, out: Path) -> None:
    """The file. Blocks are drawn from a pool, since speed does not depend on their values."""
    import gguf
    import numpy as np

    rng = np.random.default_rng(1)
    ty = getattr(gguf.GGMLQuantizationType, kind)
    per, size = gguf.GGML_QUANT_SIZES[ty]
    pool = blocks(kind, (16 << 20) // per, rng).reshape(-1)
    w = gguf.GGUFWriter(out, shape.arch, use_temp_file=False)
    for key, value in shape.keys.items():
        add = w.add_bool if isinstance(value, bool) else w.add_uint32 if isinstance(value, int) else w.add_float32 if isinstance(value, float) else w.add_string
        add(f"{shape.arch}.{key}", value)
    w.add_tokenizer_model("none")
    w.add_vocab_size(shape.vocab)
    tensors = list(shape.tensors(shape))
    for name, dims, matrix in tensors:
        nbytes = int(np.prod(dims)) // per * size if matrix else int(np.prod(dims)) * 4
        dtype = np.dtype(np.float16 if kind == "F16" else np.uint8) if matrix else np.dtype(np.float32)
        stored = dims if not matrix or kind == "F16" else (*dims[:-1], dims[-1] // per * size)
        w.add_tensor_info(name, stored, dtype, nbytes, raw_dtype=ty if matrix else None)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    for name, dims, matrix in tensors:
        count = int(np.prod(dims))
        if matrix:
            data = np.resize(pool, count // per * size)
        elif name.endswith(("norm.weight", "ssm_d")):
            data = np.ones(count, np.float32)
        elif name.endswith("ssm_a"):
            data = -rng.uniform(1, 16, count).astype(np.float32)
        else:
            data = (rng.standard_normal(count) / 50).astype(np.float32)
        w.write_tensor_data(data.reshape(dims) if not matrix else data)
    w.close()


def prepare(work: Path, compiler: Path, name: str, kind: str) -> tuple[Path, Path]:
    """The file and our artifact, where they are not there yet."""
    folder = work / "gguf"
    folder.mkdir(parents=True, exist_ok=True)
    file, ours = folder / f"{name}-{kind}.gguf", folder / f"{name}-{kind}.so"
    if not file.exists():
        partial = file.with_name("partial-" + file.name)
        command = [environment.ensure(work / "run", environment.RUN), __file__, "--write", name, kind, partial]
        subprocess.run(command, check=True, env=environment.clean())
        os.rename(partial, file)
    if not ours.exists() or ours.stat().st_mtime < compiler.stat().st_mtime:
        subprocess.run([compiler, "compile", file, "--target", "native", "--quiet", "--no-golden", "--kv", "f16", "-o", ours], check=True)
    return file, ours


class Same(Entrant):
    """An engine with the file."""

    @property
    def bits(self) -> int:
        return 0

    def __str__(self) -> str:
        return self.engine


def lines(case: Case, results: list[measure.Measured]) -> Iterator[str]:
    ours = results[0]
    for r in results:
        if not r.seconds:
            yield f"    {r.entrant}: failed: {r.error}"
            continue
        ratio = f", ratio {report.spread(report.ratios(ours.seconds, r.seconds))}" if r is not ours and ours.seconds else ""
        yield f"    {str(r.entrant):<10} {report.rate(case, statistics.median(r.seconds)):8.1f} tokens/s{ratio}, {(r.peak - r.before) / report.MIB:.0f} MiB"


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", metavar="SHAPE:TYPE")
    p.add_argument("--case", action="append", metavar="NAME", help="decode, prefill-512, depth (after 4096 tokens); may be repeated [default: the first two]")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--work", type=Path, default=ROOT / "build" / "peers")
    p.add_argument("--llmcc", type=Path, default=ROOT / "target" / "release" / "llmcc")
    p.add_argument("--alone", action="store_true", help="ours only")
    p.add_argument("--list", action="store_true")
    p.add_argument("--write", nargs=3, metavar=("SHAPE", "TYPE", "FILE"), help="only write a file")
    return p.parse_args()


def main() -> None:
    args = arguments()
    if args.write:
        return write(SHAPES[args.write[0]], args.write[1], Path(args.write[2]))
    wanted = [model.partition(":")[::2] for model in args.models]
    if args.list or not wanted or any(name not in SHAPES or kind not in BLOCKS for name, kind in wanted):
        sys.exit(f"models are SHAPE:TYPE; shapes: {', '.join(SHAPES)}; types: {', '.join(BLOCKS)}")
    every = {
        "decode": Case("decode", "decode", (0,), args.threads),
        "prefill-512": Case("prefill-512", "prefill", (0,), args.threads, prompt=512, steps=0),
        "depth": Case("depth", "decode", (0,), args.threads, prompt=4096, steps=16, depth=True),
    }
    work = args.work.resolve()
    (work / "logs").mkdir(parents=True, exist_ok=True)
    python = environment.ensure(work / "run", environment.RUN)
    print(f"{report.machine()['cpu']}, {args.threads} threads; ratio: ours to theirs in tokens/s")
    for name, kind in wanted:
        file, ours = prepare(work, args.llmcc.resolve(), name, kind)
        plan = measure.Plan(python, work / "logs", args.rounds, lambda e, _: ours if e.engine == OURS else file)
        entrants = [Same(OURS, "w4")] + ([] if args.alone else [Same(THEIRS, "Q4_0")])
        print(f"{name} {kind}, {file.stat().st_size / report.MIB:.0f} MiB")
        for case in (every[c] for c in args.case or ("decode", "prefill-512")):
            print(f"  {case.describe()}", *lines(case, measure.run_case(plan, case, entrants)), sep="\n", flush=True)
        found = subprocess.run([args.llmcc, "bench", ours, "--threads", str(args.threads)], capture_output=True, text=True).stdout
        print(*("  " + line for line in found.splitlines() if re.search(r"roofline|bandwidth|GB/s", line)), sep="\n", flush=True)


if __name__ == "__main__":
    main()
