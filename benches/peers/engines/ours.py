"""llmcc, through its Python package."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

# "w4" has the largest groups that divide the widths, as the other engines that let one choose; "w4 g32" has the bits per weight of Q4_0 (4.5), and about its error.
FORMATS = {"w4": 4, "w4 g32": 4, "w8": 8, "bf16": 16}
CONVERTER = ""


def supports(case: Any) -> bool:
    return True


def settings(case: Any, format: str) -> list[dict[str, Any]]:
    return [{}]


def stored(folder: Path, format: str, kv: str) -> Path:
    return folder / f"{format.replace(' ', '-')}-{kv}.so"


def convert(checkpoint: Path, out: Path, format: str, group: int, kv: str) -> None:
    kind, _, own = format.partition(" g")
    weights = [] if kind == "bf16" else [f"--{kind}", "--group", own or str(group)]
    command = [os.environ["LLMCC"], "compile", str(checkpoint), "--target", "native", *weights, "--kv", kv, "--quiet", "--no-golden", "-o", str(out)]
    subprocess.run(command, check=True)


class Engine:
    def __init__(self, path: str, case: Any, context: int) -> None:
        import llmcc

        # Pages hold 16 tokens.
        tokens = case.sequences * -(-context // 16) * 16
        self.model = llmcc.load(path, threads=case.threads, max_tokens=tokens)
        self.sessions: list[Any] = []
        self.last: Any = None

    def prompt(self, prompts: list[list[int]]) -> None:
        for session in self.sessions:
            session.close()
        self.sessions = [self.model.session() for _ in prompts]
        self.last = self.model.step(list(zip(self.sessions, prompts)))

    def steps(self, n: int) -> None:
        for _ in range(n):
            tokens = self.last.argmax(axis=1)
            self.last = self.model.step([(s, [t]) for s, t in zip(self.sessions, tokens)])

    def logits(self) -> Any:
        return self.last[0]


def describe() -> str:
    import llmcc

    return f"llmcc {llmcc.__version__}"
