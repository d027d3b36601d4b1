"""Our side: artifacts of one format or of a mixture, and their divergence from the checkpoint."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from work import Work

# From few bits to many.
UNIFORM = ("t2", "t3", "c3", "c4", "w4g32", "w4ag32", "w8g128")
# Room that `--budget bytes` keeps for the certificate, room for records of calibration and other code, and tries until
# the matrices alone keep the bound.
RECORDS, OTHER, TRIES = 131_072, 8_192, 5
# Characters of a document in the text by which mixtures are chosen. (Trials of single matrices take every third.)
DOCUMENT = 4000


@dataclass(frozen=True)
class Artifact:
    path: Path
    # Bytes and elements of the matrices, the embedding among them.
    bytes: int
    elements: int
    # Bytes of all weights, and of the file.
    weights: int
    file: int
    # Bytes of matrices by format.
    formats: dict[str, int]


@dataclass(frozen=True)
class Compiler:
    llmcc: Path
    work: Work
    checkpoint: Path
    calib: Path
    text: Path
    window: int
    options: tuple[str, ...]
    method: str
    # Characters of the text of calibration by which mixtures are chosen, at most.
    choice: int

    def _compile(self, name: str, options: list[Any], source: Optional[Path] = None) -> Artifact:
        """An artifact for this machine. The file is kept; with the same options it is not made again."""
        source = source or self.checkpoint
        out = self.work.root / f"{name}.so"
        command = [self.llmcc, "compile", source, "--target", "native", "--no-golden", "--quiet", *options, "-o", out]
        weights = source / "model.safetensors" if source.is_dir() else source

        def make() -> dict[str, Any]:
            self.work.run(f"compile-{name}", command)
            return described(self.llmcc, self.work, out)

        found = self.work.remembered(command, [self.llmcc, weights, self.calib], make)
        if not out.exists():
            self.work.run(f"compile-{name}", command)
        return Artifact(out, **found)

    def _calibration(self) -> list[Any]:
        """Options of calibration; its moments are measured once."""
        moments = self.work.root / "moments"
        newest = max(self.calib.stat().st_mtime, (self.checkpoint / "model.safetensors").stat().st_mtime)
        if not moments.exists() or moments.stat().st_mtime < max(newest, self.llmcc.stat().st_mtime):
            out = self.work.root / "calibrated.so"
            command = [self.llmcc, "compile", self.checkpoint, "--target", "native", "--no-golden", "--quiet", "--w4"]
            command += [*self.options, "--calib", self.calib, "--save-calib", moments, "--method", "gptq", "-o", out]
            self.work.run("calibration", command)
            os.utime(moments)
        return [*self.options, "--calib", moments, "--method", self.method]

    def uniform(self, fmt: str) -> Artifact:
        return self._compile(fmt, ["--format", fmt, *self._calibration()])

    def of_gguf(self, file: Path) -> Artifact:
        """A file of llama.cpp's, with its own codes."""
        return self._compile(f"gguf-{file.stem}", [*self.options], file)

    def _beside(self) -> int:
        """Bytes of an artifact beside its matrices, as `--budget bytes` counts them."""
        plain = self._compile("plain", [*self.options])
        return plain.file - plain.bytes + RECORDS + OTHER

    def _choice(self) -> Path:
        """The text of calibration as documents, by which mixtures are chosen."""
        out, documents = self.work.root / "choice.txt", [""]
        for paragraph in self.calib.read_text().split("\n\n"):
            if len(documents[-1]) > DOCUMENT:
                documents.append("")
            documents[-1] += paragraph + "\n\n"
        step = max(1, -(-sum(map(len, documents)) // self.choice))
        text = "<|document|>\n".join(documents[::step])
        if not out.exists() or out.read_text() != text:
            out.write_text(text)
        return out

    def mixture(self, size: int, name: str) -> Artifact:
        """A mixture whose matrices have at most `size` bytes."""
        bound = size + self._beside()
        for attempt in range(TRIES):
            options = ["--budget", f"bytes={bound}", "--budget-text", self._choice(), *self._calibration()]
            made = self._compile(f"mixture-{name}", options)
            if made.bytes <= size:
                return made
            bound -= made.bytes - size
        raise RuntimeError(f"no mixture has at most {size} bytes of matrices; the last has {made.bytes}")

    def divergence(self, artifact: Artifact) -> tuple[float, float]:
        """Mean KL divergence from the checkpoint in nats, and half of its interval of 95 % as a standard error."""
        cut = ["--window", self.window, "--stride", self.window // 2]
        command = [self.llmcc, "eval", "kl", self._reference(), artifact.path, self.text, *cut, "--json"]

        def measure() -> list[float]:
            printed = self.work.run(f"divergence-{artifact.path.stem}", command)
            kl = json.loads(printed[printed.index("{") :])["kl"]
            return [kl["mean"], (kl["high"] - kl["low"]) / 2 / 1.96]

        mean, error = self.work.remembered(command, [self.llmcc, artifact.path, self.text], measure)
        return mean, error

    def _reference(self) -> Path:
        """The checkpoint in its own types, with activations and cache of f32, as `eval kl` itself would compile it."""
        return self._compile("reference", ["--act", "f32", "--kv", "f32"]).path

    def tokens(self) -> list[int]:
        """The tokens of the text."""
        command = [self.llmcc, "tokenize", self._reference(), "--prompt-file", self.text, "--json"]
        printed = self.work.run("tokens", command)
        return [int(t) for t in json.loads(printed[printed.index("{") :])["ids"]]


def described(llmcc: Path, work: Work, artifact: Path) -> dict[str, Any]:
    printed = work.run(f"inspect-{artifact.stem}", [llmcc, "inspect", artifact, "--json"])
    weights = json.loads(printed[printed.index("{") :])["weights"]
    size, elements, formats = 0, 0, {}  # type: ignore[var-annotated]
    for tensor in weights["tensors"]:
        shape = re.fullmatch(r"(.+)\[(\d+), (\d+)\]", tensor["storage"])
        if shape:
            size += tensor["bytes"]
            elements += int(shape[2]) * int(shape[3])
            formats[shape[1]] = formats.get(shape[1], 0) + tensor["bytes"]
    found = {"bytes": size, "elements": elements, "weights": weights["bytes"], "formats": formats}
    return found | {"file": artifact.stat().st_size}
