#!/usr/bin/env python3
"""Prints the cost of compiling a checkpoint beside copying its file twice: seconds, and memory
beyond pages of files.

    python peers/gguf_models.py --write qwen3-moe Q4_K /tmp/moe.gguf
    python compile_time.py /tmp/moe.gguf --llmcc ../target/release/llmcc [--rounds 3]

Both write their result and wait until it is on the disk (fsync); the file is read once before, so that neither waits for that. In turns, medians.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

MIB = 1 << 20


def anonymous(pid):
    """Bytes that a process holds beyond pages of files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def sync(path):
    with path.open("rb") as file:
        os.fsync(file.fileno())


def copied(source, folder):
    begin = time.perf_counter()
    for name in ("one", "two"):
        shutil.copyfile(source, folder / name)
        sync(folder / name)
    seconds = time.perf_counter() - begin
    for name in ("one", "two"):
        (folder / name).unlink()
    return seconds


def compiled(source, folder, command):
    """Seconds, and the most memory that was seen."""
    out = folder / "m.so"
    begin = time.perf_counter()
    child = subprocess.Popen([*command, str(source), "-o", str(out), "--quiet"])
    most = [0]

    def watch():
        while child.poll() is None:
            most[0] = max(most[0], anonymous(child.pid))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    if child.wait() != 0:
        raise SystemExit("llmcc compile failed")
    sync(out)
    seconds = time.perf_counter() - begin
    watcher.join()
    out.unlink()
    return seconds, most[0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file", type=Path)
    p.add_argument("--llmcc", type=Path, default=Path(__file__).resolve().parents[1] / "target/release/llmcc")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--options", default="", help="of `llmcc compile`, as one text")
    args = p.parse_args()
    with tempfile.TemporaryDirectory(dir=args.file.parent) as folder:
        folder = Path(folder)
        command = [str(args.llmcc), "compile", *(args.options.split() or ["--target", "native"])]
        compiled(args.file, folder, command)
        rounds = [(copied(args.file, folder), *compiled(args.file, folder, command)) for _ in range(args.rounds)]
    copies, ours, memory = (statistics.median(r[i] for r in rounds) for i in range(3))
    print(f"{args.file.name}, {args.file.stat().st_size / MIB:.0f} MiB")
    print(f"  copied twice    {copies:6.1f} s")
    print(f"  compiled        {ours:6.1f} s, ratio {ours / copies:.2f}; {memory / MIB:.0f} MiB beyond pages of files at most")


if __name__ == "__main__":
    main()
