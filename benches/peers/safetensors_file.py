"""Reads the bf16 checkpoints of make_checkpoint.py and their like."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Iterator


def header(folder: Path) -> tuple[dict[str, Any], int]:
    """Table of `model.safetensors` (name: dtype, shape, data_offsets) and where its data starts."""
    with (folder / "model.safetensors").open("rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        table = json.loads(f.read(size))
    table.pop("__metadata__", None)
    return table, 8 + size


def tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    """(name, f32 array) one at a time."""
    import numpy as np

    table, start = header(folder)
    data = np.memmap(folder / "model.safetensors", np.uint8, "r", offset=start)
    for name, t in table.items():
        if t["dtype"] != "BF16":
            raise ValueError(f"{name} is {t['dtype']}; only bf16 checkpoints are read here")
        raw = data[slice(*t["data_offsets"])].view("<u2")
        yield name, (raw.astype(np.uint32) << 16).view(np.float32).reshape(t["shape"])
