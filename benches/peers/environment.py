"""The scratch environments: one to run the engines, one with the requirements of their converters
(so that neither disturbs the other)."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Optional

# Versions as published in November 2026. llama-cpp-python has no wheel on the index: pip builds it for this machine (`-march=native`, its default), which
# takes a C++ compiler and some minutes.
RUN = [
    "numpy==2.4.6",
    "gguf==0.19.0",
    "llama-cpp-python==0.3.36",
    "openvino==2026.4.1",
    "openvino-genai==2026.4.1.0",
    "onnxruntime==1.31.1",
    "onnxruntime-genai==0.18.0",
]
CONVERT = [
    "torch==2.9.0",
    "torchvision==0.24.0",
    "numpy==2.4.6",
    "transformers==5.5.4",
    "optimum==2.3.0",
    "optimum-intel==2.2.0",
    "nncf==3.4.0",
    "openvino==2026.4.1",
    "openvino-tokenizers==2026.4.1.0",
    "onnx==1.23.2",
    "onnx-ir==1.1.0",
    "onnxruntime==1.31.1",
    "onnxruntime-genai==0.18.0",
]
# PyTorch for CPUs only is a tenth of the size on PyPI. Where this index cannot be reached, PyPI's
# is taken.
CONVERT_TORCH = ["--index-url", "https://download.pytorch.org/whl/cpu", "--retries", "0", *CONVERT[:2]]


def ensure(folder: Path, requirements: list[str], first: Optional[list[str]] = None) -> Path:
    """The Python of an environment at `folder` that has the requirements; makes it if need be. `first` are arguments of an installation before that, which
    may fail. Pip's output goes to <folder>.log."""
    python = folder / "bin" / "python"
    stamp = folder / "requirements.txt"
    wanted = "\n".join(requirements) + "\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    log = folder.with_suffix(".log")
    print(f"installing {', '.join(requirements)} into {folder} (log: {log})", file=sys.stderr)
    if not python.exists():
        venv.create(folder, with_pip=True)
    with log.open("w") as out:
        for what in (first, requirements):
            if what:
                done = subprocess.run([python, "-m", "pip", "install", *what], stdout=out, stderr=subprocess.STDOUT, env=clean())
    if done.returncode != 0:
        last = "\n".join(log.read_text().splitlines()[-5:])
        sys.exit(f"pip cannot install the peers into {folder}; the last lines of {log} are\n{last}")
    stamp.write_text(wanted)
    return python


def clean() -> dict[str, str]:
    """The environment of a child: no Python settings of the caller's, no threads or affinity set from outside, nothing fetched at run time."""
    drop = ("PYTHON", "VIRTUAL_ENV", "OMP_", "KMP_", "MKL_", "OV_", "OPENVINO_", "GGML_", "LLAMA_", "LLMCC_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    return kept | {"HF_HUB_OFFLINE": "1", "PYTHONNOUSERSITE": "1"}
