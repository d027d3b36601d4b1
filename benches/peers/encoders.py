#!/usr/bin/env python3
"""Sentences per second of an encoder of BERT-base's shape, in 8 bits, beside ONNX Runtime and OpenVINO.

    python3 benches/peers/encoders.py

Random weights; embeddings are the means of the last hidden rows. Ours: `--w8 --group 128`,
whose activations are 8 bits with a scale for each token and group. ONNX Runtime: its own
dynamic quantization, a scale for each row of weights. OpenVINO: NNCF's post-training
quantization of weights and activations, calibrated with random texts; the rest (attention,
norms, GELU) it computes in bf16 where the processor has instructions for that, ours and the
line `OpenVINO f32` in f32. Each engine has the best of several batch sizes; rounds alternate
between the engines, each in a process of its own. Environments and folders are shared with
benches/peers (--work).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

import environment
import report

ROOT = Path(__file__).resolve().parents[2]
# Tokens of a sentence, and how many of them a measurement has.
TEXTS = ((16, 64), (128, 16), (512, 4))
BATCHES = (1, 2, 4, 8, 16, 64)
VOCAB = 30522


def write(folder: Path) -> None:
    """The checkpoint, and its conversions by the peers' tools."""
    import numpy as np
    import nncf
    import openvino as ov
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(BertConfig(attn_implementation="eager")).eval()
    model.save_pretrained(folder)
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    entries = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"} for i, (kind, path) in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 768, "pooling_mode_mean_tokens": True}))

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            # The mask as it is added to scores: Transformers' conversion of a mask per token cannot
            # be traced.
            kept = attention_mask.to(torch.float32)
            added = (1.0 - kept)[:, None, None, :] * torch.finfo(torch.float32).min
            rows = self.model(input_ids=input_ids, attention_mask=added).last_hidden_state
            kept = kept.unsqueeze(-1)
            return (rows * kept).sum(1) / kept.sum(1)

    ids = torch.ones((2, 16), dtype=torch.long)
    axes = {"input_ids": {0: "texts", 1: "tokens"}, "attention_mask": {0: "texts", 1: "tokens"}, "rows": {0: "texts"}}
    plain = folder / "plain.onnx"
    torch.onnx.export(
        Pooled(), (ids, ids), plain, input_names=["input_ids", "attention_mask"], output_names=["rows"], dynamic_axes=axes, opset_version=17, dynamo=False
    )
    quantize_dynamic(plain, folder / "int8.onnx", per_channel=True, weight_type=QuantType.QInt8)
    rng = np.random.default_rng(0)
    texts = [inputs(rng.integers(1000, VOCAB, (1, 128))) for _ in range(30)]
    quantized = nncf.quantize(ov.convert_model(plain), nncf.Dataset(texts), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(texts))
    ov.save_model(quantized, folder / "int8.xml")


def inputs(ids: Any) -> dict[str, Any]:
    import numpy as np

    return {"input_ids": ids.astype(np.int64), "attention_mask": np.ones(ids.shape, np.int64)}


def ours(folder: Path, threads: int) -> Callable[[Any], Any]:
    sys.path.insert(0, str(ROOT / "python"))
    import llmcc

    model = llmcc.load(folder / "model.so", threads=threads)
    return lambda ids: model.embed(ids.tolist())


def onnxruntime(folder: Path, threads: int) -> Callable[[Any], Any]:
    import onnxruntime as rt

    options = rt.SessionOptions()
    options.intra_op_num_threads = threads
    session = rt.InferenceSession(folder / "int8.onnx", options, providers=["CPUExecutionProvider"])
    return lambda ids: session.run(None, inputs(ids))


def openvino(folder: Path, threads: int, **options: str) -> Callable[[Any], Any]:
    import openvino as ov

    compiled = ov.Core().compile_model(folder / "int8.xml", "CPU", {"INFERENCE_NUM_THREADS": threads, **options})
    request = compiled.create_infer_request()
    return lambda ids: request.infer(inputs(ids))


def openvino_f32(folder: Path, threads: int) -> Callable[[Any], Any]:
    return openvino(folder, threads, INFERENCE_PRECISION_HINT="f32")


ENGINES = {"llmcc": ours, "ONNX Runtime": onnxruntime, "OpenVINO": openvino, "OpenVINO f32": openvino_f32}


def measure(engine: str, folder: Path, threads: int) -> list[float]:
    """Sentences per second for each of `TEXTS`, with the best batch size."""
    import numpy as np

    rng, run = np.random.default_rng(0), ENGINES[engine](folder, threads)

    def rate(length: int, count: int, batch: int) -> float:
        texts = rng.integers(1000, VOCAB, (count // batch, batch, length))
        run(texts[0])
        times: list[float] = []
        # Threads that have just been made are slow for some tenths of a second.
        while len(times) < 5 or sum(times) < 1.5:
            start = time.perf_counter()
            for part in texts:
                run(part)
            times.append(time.perf_counter() - start)
        return count / statistics.median(times)

    return [max(rate(length, count, batch) for batch in BATCHES if batch <= count) for length, count in TEXTS]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--work", type=Path, default=ROOT / "build" / "peers")
    p.add_argument("--llmcc", type=Path, default=ROOT / "target" / "release" / "llmcc")
    p.add_argument("--write", type=Path, help="only write the models")
    p.add_argument("--measure", nargs=2, metavar=("ENGINE", "FOLDER"), help="only measure one engine, and print JSON")
    args = p.parse_args()
    if args.write:
        return write(args.write)
    if args.measure:
        return print(json.dumps(measure(args.measure[0], Path(args.measure[1]), args.threads)))
    work = args.work.resolve()
    folder = work / "bert-base"
    if not (folder / "int8.xml").exists():
        folder.mkdir(parents=True, exist_ok=True)
        python = environment.ensure(work / "convert", environment.CONVERT, environment.CONVERT_TORCH)
        subprocess.run([python, __file__, "--write", folder], check=True, env=environment.clean())
    subprocess.run([args.llmcc.resolve(), "compile", folder, "--target", "native", "--w8", "--group", "128", "--quiet", "--no-golden", "-o", folder / "model.so"], check=True)
    python = environment.ensure(work / "run", environment.RUN)
    found: dict[str, list[list[float]]] = {engine: [] for engine in ENGINES}
    for _ in range(args.rounds):
        for engine, rates in found.items():
            command = [python, __file__, "--measure", engine, folder, "--threads", str(args.threads)]
            rates.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment.clean()).stdout.splitlines()[-1]))
    print(f"{report.machine()['cpu']}, {args.threads} threads; sentences/s, and the ratio of ours to theirs")
    for i, (length, _) in enumerate(TEXTS):
        of = {engine: [r[i] for r in rates] for engine, rates in found.items()}
        for engine, rates in of.items():
            ratio = report.spread(sorted(a / b for a, b in zip(of["llmcc"], rates)))
            print(f"  {length:>4} tokens  {engine:<14} {statistics.median(rates):8.1f}" + ("" if engine == "llmcc" else f"  {ratio}"))


if __name__ == "__main__":
    main()
