#!/usr/bin/env python3
"""Decode and prefill speed of an artifact beside llama.cpp, on the same checkpoint and machine, interleaved.

    python -m venv build/peer && build/peer/bin/pip install numpy llama-cpp-python gguf ./python
    python benches/make_checkpoint.py 1.2b build/1.2b
    target/release/llmcc compile build/1.2b --w4 --group 128 -o build/1b.so
    build/peer/bin/python benches/peer_llama_cpp.py build/1.2b build/1b.so --threads 2

Writes the checkpoint as GGUF in Q4_0 (llama.cpp's fastest 4-bit format on CPUs) beside the artifact, then runs both in turn and prints each round and the median of the
ratios. Random weights give random text; speed does not depend on it.
"""

import argparse
import json
import statistics
import struct
import time
from pathlib import Path

import gguf
import numpy as np

HF_TO_GGUF = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def tensors(folder: Path):
    """Tensors of model.safetensors as (name, f32 array), one at a time."""
    path = folder / "model.safetensors"
    with path.open("rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
    data = np.memmap(path, np.uint8, "r", offset=8 + n)
    for name, t in header.items():
        if name != "__metadata__":
            assert t["dtype"] == "BF16", t["dtype"]
            raw = data[slice(*t["data_offsets"])].view("<u2")
            yield name, (raw.astype(np.uint32) << 16).view(np.float32).reshape(t["shape"])


def gguf_name(name: str) -> str:
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    if name == "lm_head.weight":
        return "output.weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{HF_TO_GGUF[rest.removesuffix('.weight')]}.weight"


def interleave(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q and k from half-split to interleaved rotary order, as llama.cpp has them."""
    rows, cols = w.shape
    return w.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def write_gguf(folder: Path, out: Path):
    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    w = gguf.GGUFWriter(str(out), "llama", use_temp_file=True)
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_dimension_count(config["hidden_size"] // heads)
    w.add_vocab_size(config["vocab_size"])
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    w.add_tokenizer_model("llama")
    w.add_token_list([f"<{i}>" for i in range(config["vocab_size"])])
    w.add_token_scores([0.0] * config["vocab_size"])
    w.add_token_types([gguf.TokenType.NORMAL] * config["vocab_size"])
    q4 = gguf.GGMLQuantizationType.Q4_0
    for name, t in tensors(folder):
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            t = interleave(t, heads if "q_proj" in name else kv_heads)
        if t.ndim == 1:
            w.add_tensor(gguf_name(name), t)
        else:
            w.add_tensor(gguf_name(name), gguf.quants.quantize(t, q4), raw_dtype=q4)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


class LlamaCpp:
    def __init__(self, path: Path, threads: int, context: int):
        import llama_cpp

        self.model = llama_cpp.Llama(str(path), n_ctx=context, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False)

    def run(self, prompt: list[int], steps: int) -> tuple[float, float]:
        self.model.reset()
        start = time.perf_counter()
        self.model.eval(prompt)
        prefill = time.perf_counter() - start
        start = time.perf_counter()
        for i in range(steps):
            self.model.eval([prompt[i % len(prompt)]])
        return len(prompt) / prefill, steps / (time.perf_counter() - start)


class Llmcc:
    def __init__(self, path: Path, threads: int):
        import llmcc

        self.model = llmcc.load(str(path), threads=threads)

    def run(self, prompt: list[int], steps: int) -> tuple[float, float]:
        with self.model.session() as s:
            start = time.perf_counter()
            s.step(prompt)
            prefill = time.perf_counter() - start
            start = time.perf_counter()
            for i in range(steps):
                s.step([prompt[i % len(prompt)]])
            return len(prompt) / prefill, steps / (time.perf_counter() - start)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("checkpoint", type=Path)
    p.add_argument("artifact", type=Path)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prompt", type=int, default=128)
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--rounds", type=int, default=5)
    args = p.parse_args()
    peer = args.artifact.with_suffix(".q4_0.gguf")
    if not peer.exists():
        write_gguf(args.checkpoint, peer)
    engines = {"llmcc": Llmcc(args.artifact, args.threads), "llama.cpp": LlamaCpp(peer, args.threads, 2048)}
    prompt = [(i * 7919 + 13) % 1000 for i in range(args.prompt)]
    rates = {name: [] for name in engines}
    for round_ in range(args.rounds + 1):
        for name, engine in engines.items():
            rate = engine.run(prompt, args.steps)
            if round_ > 0:
                rates[name].append(rate)
                print(f"round {round_} {name:>9}: prefill {rate[0]:7.1f} tokens/s, decode {rate[1]:6.1f} tokens/s")
    for i, what in enumerate(["prefill", "decode"]):
        ours, theirs = ([r[i] for r in rates[n]] for n in engines)
        ratios = sorted(a / b for a, b in zip(ours, theirs))
        print(
            f"{what}: llmcc {statistics.median(ours):.1f}, llama.cpp Q4_0 {statistics.median(theirs):.1f} tokens/s (medians), "
            f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
