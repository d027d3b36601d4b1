"""Tests of how `models.py` measures batches, on a small model: run by `tests/tests/gpu_check.rs` with the driver's stand-in.

    python tools/gpu-check/models_test.py ARTIFACT
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python"), str(HERE)]

import models  # noqa: E402

# Bytes of a row that gives candidates.
CANDIDATES = 4 * (2 * 64 + 1)
COUNT, STEPS = 3, 2

models.tokens = lambda count: [1 + i % 7 for i in range(count)]
with models.open_on(Path(sys.argv[1]), "gpu", profile=True) as model:
    rows = models.batch_kernels(model, COUNT, STEPS, 8)
    calls = {row["calls"] for row in rows}
    assert rows and all(row["us"] > 0 and row["step"] == f"{COUNT} sequences" for row in rows), rows
    # Kernels of the model run once a step, kernels of its layers as often as there are layers.
    assert min(calls) == STEPS and all(c % STEPS == 0 for c in calls), calls
    fetched = model.stats()["fetched_bytes"]
    assert fetched and fetched % CANDIDATES == 0, f"{fetched} bytes: not only candidates"
    parts = model.stats()["open_ns"]
    assert parts["all"] >= parts["driver"] + parts["memory"] + parts["weights"] and min(parts.values()) > 0, parts
print("all right")
