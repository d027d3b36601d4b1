"""The notebook of examples/python runs (LLMCC_TEST_EMBEDDER, LLMCC_TEST_RANKER, LLMCC_TEST_ARTIFACT)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import llmcc

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "python" / "notebook.py"
PATHS = [os.environ.get(f"LLMCC_TEST_{name}", "") for name in ("EMBEDDER", "RANKER", "ARTIFACT")]
pytestmark = pytest.mark.skipif(not (all(PATHS) and NOTEBOOK.exists()), reason="skipped: set LLMCC_TEST_EMBEDDER, LLMCC_TEST_RANKER and LLMCC_TEST_ARTIFACT")


def test_the_notebook_runs() -> None:
    pytest.importorskip("numpy")
    environment = {**os.environ, "PYTHONPATH": str(Path(llmcc.__file__).resolve().parents[1])}
    done = subprocess.run([sys.executable, str(NOTEBOOK), *PATHS], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == [f"<llmcc.Model {os.path.abspath(path)!r}" for path in PATHS]
    with llmcc.load(PATHS[2]) as model:
        for prompt in ("def read_file(path):", "import os"):
            assert repr(prompt + model.generate(prompt, max_tokens=20, greedy=True)) in lines
    with llmcc.load(PATHS[0]) as embedder:
        assert lines[3].startswith(f"{embedder.similarity_fn_name}: [")
    # Three documents, the best first.
    scores = [float(line.split()[0]) for line in lines[4:7]]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
    done = subprocess.run([sys.executable, str(NOTEBOOK)], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 1 and "python notebook.py embedder.so reranker.so model.so" in done.stderr
