"""ONNX Runtime GenAI: int4 weights by its model builder. Its KV cache is f32 on CPUs. It stays out of 16384 tokens, which take it minutes to compute."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

# The builder's defaults (int8 activations, symmetric, the head in 4 bits); blocks as large as ours, and the head on the last token of a prompt only.
FORMATS = {"int4": 4}
CONVERTER = "convert"


def supports(case: Any) -> bool:
    return case.kv == "f16" and case.prompt <= 4096


def settings(case: Any, format: str) -> list[dict[str, Any]]:
    return [{}]


def stored(folder: Path, format: str, kv: str) -> Path:
    return folder / format


def convert(checkpoint: Path, out: Path, format: str, group: int, kv: str) -> None:
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(checkpoint), "-o", str(out), "-p", "int4", "-e", "cpu"]
    subprocess.run([*command, "-c", str(out / "cache"), "--extra_options", f"block_size={group}", "prune_lm_head=true", "hf_token=false"], check=True)


class Engine:
    def __init__(self, path: str, case: Any, context: int) -> None:
        import onnxruntime_genai as genai

        self.genai, self.case = genai, case
        config = genai.Config(path)
        session = {"intra_op_num_threads": case.threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}, "search": {"max_length": context}}))
        self.model = genai.Model(config)
        self.params = genai.GeneratorParams(self.model)
        # With a minimum no end-of-sequence token is chosen.
        self.params.set_search_options(max_length=context, min_length=context, batch_size=case.sequences, do_sample=False)
        self.generator: Any = None

    def prompt(self, prompts: list[list[int]]) -> None:
        import numpy as np

        self.generator = None
        self.generator = self.genai.Generator(self.model, self.params)
        self.generator.append_tokens(np.array(prompts, np.int32))
        self.generator.generate_next_token()

    def steps(self, n: int) -> None:
        for _ in range(n):
            self.generator.generate_next_token()

    def logits(self) -> Any:
        import numpy as np

        logits = self.generator.get_output("logits")
        row = logits.reshape(-1, logits.shape[-1])[0]
        # The minimum length has put the end-of-sequence tokens out of reach.
        return np.where(row < -1e30, 0, row)


def describe() -> str:
    import onnxruntime
    import onnxruntime_genai

    return f"ONNX Runtime {onnxruntime.__version__}, GenAI {onnxruntime_genai.__version__}: its KV cache is f32"
