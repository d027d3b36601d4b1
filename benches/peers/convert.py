"""Converts a checkpoint for one engine: convert.py ENGINE FORMAT KV CHECKPOINT OUT GROUP. Run by the Python whose environment has the converter."""

import sys
from pathlib import Path

import engines

if __name__ == "__main__":
    engine, fmt, kv, checkpoint, out, group = sys.argv[1:]
    engines.get(engine).convert(Path(checkpoint), Path(out), fmt, int(group), kv)
