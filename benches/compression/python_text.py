#!/usr/bin/env python3
"""Writes `eval.txt` and `calib.txt` for the example model: Python source code.

    python3 benches/compression/python_text.py OUT

The text is the standard library of the interpreter that runs this. The example model was trained on that of Python
3.11.7 but for every 40th file (`examples/tiny-llama/train.py`). `eval.txt` has the beginnings of these files,
`calib.txt` the beginnings of as many others.
"""

from __future__ import annotations

import argparse
import platform
import sys
import sysconfig
from pathlib import Path

# As `examples/tiny-llama/train.py` has them.
HELD_OUT = 40
SKIPPED = {"__pycache__", "test", "tests", "idle_test", "site-packages", "lib-dynload", "encodings", "pydoc_data"}
SKIPPED |= {"_bundled", "config"}
PIECE = 12_000


def files(root: Path) -> list[Path]:
    """The files of the corpus, sorted by name."""
    found = []
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        folders = name.split("/")[:-1]
        if any(f in SKIPPED or f.startswith("config-") for f in folders) or path.name.startswith("_sysconfigdata"):
            continue
        found.append((name, path))
    return [path for _, path in sorted(found)]


def beginning(path: Path) -> str:
    """Whole lines."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return text if len(text) <= PIECE else text[: text.rfind("\n", 0, PIECE) + 1]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", type=Path)
    args = p.parse_args()
    if platform.python_version() != "3.11.7":
        print(f"Python {platform.python_version()}: other files may be held out than those of 3.11.7", file=sys.stderr)
    corpus = files(Path(sysconfig.get_paths()["stdlib"]))
    args.out.mkdir(parents=True, exist_ok=True)
    for name, first in (("eval.txt", HELD_OUT - 1), ("calib.txt", HELD_OUT // 2 - 1)):
        text = "\n".join(beginning(path) for path in corpus[first::HELD_OUT])
        (args.out / name).write_text(text)
        print(f"{name}: {len(corpus[first::HELD_OUT])} files, {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
