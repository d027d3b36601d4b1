"""llama.cpp's side: its tools make an importance matrix, quantize and measure.

The tools are the user's own (`--llama-bin`): `llama-imatrix`, `llama-quantize` and `llama-perplexity`.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from work import Work

sys.path.append(str(Path(__file__).resolve().parents[1] / "peers"))
import gguf_file  # noqa: E402

TOOLS = ("llama-imatrix", "llama-quantize", "llama-perplexity")
# As `llama-quantize` calls them; "pure" has every matrix in the one type, the embedding too.
FORMATS = ("IQ2_M", "IQ3_XXS", "IQ3_S", "Q3_K_M", "IQ4_XS", "Q4_0", "Q4_0 pure", "Q4_K_M")
# Times that a measurement is repeated.
TRIES = 8


@dataclass(frozen=True)
class Tools:
    folder: Path
    work: Work
    checkpoint: Path
    calib: Path
    text: Path
    window: int
    threads: int

    def tool(self, name: str) -> Path:
        return self.folder / name

    def file(self, fmt: str) -> Path:
        return self.work.root / f"{fmt.replace(' ', '-')}.gguf"

    def _made(self, out: Path, sources: list[Path], name: str, command: list[object]) -> Path:
        """A file, made if it is missing or older than its sources."""
        newest = max(source.stat().st_mtime for source in sources)
        if not out.exists() or out.stat().st_mtime < newest:
            self.work.run(name, command)
        return out

    def source(self) -> Path:
        """The checkpoint in F32 with its own tokenizer."""
        out = self.file("F32")
        weights = self.checkpoint / "model.safetensors"
        if not out.exists() or out.stat().st_mtime < weights.stat().st_mtime:
            gguf_file.write(self.checkpoint, out, exact=True)
        return out

    def importance(self) -> Path:
        source, out = self.source(), self.work.root / "importance.gguf"
        command = [self.tool("llama-imatrix"), "-m", source, "-f", self.calib, "-o", out, "-t", self.threads]
        command += ["-c", self.window, "-b", self.window, "--no-ppl"]
        return self._made(out, [source, self.calib], "importance", command)

    def quantized(self, fmt: str) -> Path:
        source, matrix, out = self.source(), self.importance(), self.file(fmt)
        name, pure = fmt.removesuffix(" pure"), ["--pure"] if fmt.endswith(" pure") else []
        command = [self.tool("llama-quantize"), *pure, "--imatrix", matrix, source, out, name, self.threads]
        return self._made(out, [source, matrix], f"quantize-{fmt.replace(' ', '-')}", command)

    def base(self) -> Path:
        """Log-probabilities of the F32 model."""
        source, out = self.source(), self.work.root / "base.kld"
        command = [self.tool("llama-perplexity"), "-m", source, "-f", self.text, *self._windows()]
        return self._made(out, [source, self.text], "base", [*command, "--kl-divergence-base", out])

    def _windows(self) -> list[object]:
        return ["-c", self.window, "-b", self.window, "-t", self.threads]

    def divergence(self, fmt: str) -> tuple[float, float]:
        """Mean KL divergence in nats, and its standard error, as `llama-perplexity` prints them."""
        model, base = self.quantized(fmt), self.base()
        command = [self.tool("llama-perplexity"), "-m", model, *self._windows()]
        command += ["--kl-divergence-base", base, "--kl-divergence"]

        def measure() -> list[float]:
            # It sometimes ends before the last lines of its log are printed.
            for _ in range(TRIES):
                text = self.work.run(f"divergence-{fmt.replace(' ', '-')}", command)
                found = re.search(r"Mean\s+KLD:\s+(\S+)\s+±\s+(\S+)", text)
                if found:
                    return [float(found[1]), float(found[2])]
            raise RuntimeError(f"llama-perplexity printed no divergence of {fmt}: see {self.work.logs}")

        mean, error = self.work.remembered(command, [model, base], measure)
        return mean, error

    def tokens(self) -> list[int]:
        """The tokens of whole windows, as the tool has read them from the text."""
        import numpy as np

        with self.base().open("rb") as file:
            if file.read(8) != b"_logits_":
                raise RuntimeError("llama-perplexity has written another kind of file than is known here")
            window, _, count = np.frombuffer(file.read(12), np.int32)
            return [int(t) for t in np.frombuffer(file.read(4 * int(window) * int(count)), np.int32)]


def matrices(file: Path) -> tuple[int, int, dict[str, int]]:
    """Bytes of a GGUF file's matrices, their elements, and how many there are of each type."""
    import gguf

    size, elements, kinds = 0, 0, {}  # type: ignore[var-annotated]
    for tensor in gguf.GGUFReader(file).tensors:
        if len(tensor.shape) > 1:
            size += int(tensor.n_bytes)
            elements += int(tensor.n_elements)
            kinds[tensor.tensor_type.name] = kinds.get(tensor.tensor_type.name, 0) + 1
    return size, elements, kinds
