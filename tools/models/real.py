#!/usr/bin/env python3
"""Compiles published configurations at their real sizes, without weights, and tabulates what comes out.

Each folder in the given one has a `config.json`, and no tensors: `llmcc compile --weights absent` takes the
names, shapes and types of those from the architecture and from `quantization_config`. All are compiled for
this machine, every third for sm90 too. A file that is refused must be listed in `REFUSED` with the words of
its refusal; one that is listed and compiles is an error as well, and so is one that takes more processor time
or memory than the limits (for sm90 the memory alone: LLVM and ptxas take the time).

    python tools/models/real.py ../shared/data/real_configs --docs docs/models.md
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Why a file is refused, and words of the message: `MODEL: (words, reason)`.
REFUSED = {
    "DeepSeek-V4-Flash-FP8": ("`deepseek_ref`", "no model's file: its `model_type` is `deepseek_ref`"),
    "DeepSeek-V4-Pro-FP8": ("`deepseek_ref`", "no model's file: its `model_type` is `deepseek_ref`"),
    "Step-3.7-Flash": ("`step3p7`", "no model's file: published with its text model as a part"),
    "Step-3.7-Flash-FP8": ("`step3p7`", "no model's file: published with its text model as a part"),
    "MiniMax-M1-80k": ("`minimax_m1`", "its authors' class, which is not compiled"),
    "MiniMax-M3": ("`minimax_m3`", "no model's file: the text model is published in one of several parts"),
}
# Limits of a compilation.
MOST_SECONDS, MOST_BYTES = 20.0, 500e6
BEGIN, END = "<!-- real sizes -->\n", "<!-- end -->\n"


def compiled(llmcc, folder, target, scratch):
    """One compilation: its document (or None), the error's text, seconds of processor time, peak bytes."""
    out = Path(scratch) / "m.so"
    command = [llmcc, "compile", str(folder), "--weights", "absent", "--target", target, "--json", "-o", str(out)]
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=said, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        # Other programs may take the processors meanwhile.
        seconds = min(time.monotonic() - start, usage.ru_utime + usage.ru_stime)
        said.seek(0), errors.seek(0)
        text = said.read().decode(errors="replace")
        error = text + errors.read().decode(errors="replace")
    for made in Path(scratch).iterdir():
        made.unlink()
    document = json.loads(text) if process.returncode == 0 else None
    return document, error.strip(), seconds, usage.ru_maxrss * 1024


def formats(document):
    """The formats of the weights, the largest first, without formats of less than a hundredth."""
    by = document["weights"]["by_format"]
    total = sum(by.values()) or 1
    kept = [name for name, n in sorted(by.items(), key=lambda item: -item[1]) if n * 100 >= total]
    return ", ".join(f"`{name}`" for name in kept)


def gigabytes(n):
    return f"{n / 1e9:.1f}" if n < 100e9 else f"{n / 1e9:.0f}"


def row(name, target, result):
    """A row of the table, and what is wrong with the compilation, if anything is."""
    document, error, seconds, peak = result
    cost = f"{seconds:.1f} | {peak / 1e6:.0f}"
    words, reason = REFUSED.get(name, ("", ""))
    if document is None:
        wrong = None if words and words in error else f"refused: {error[-600:]}"
        return f"| {name} | {target} | refused: {reason or 'not listed'} | | {cost} | | |", wrong
    version = document["versions"][0]
    generic = len(version["generic"]) or "none"
    speed = version["predicted_tokens_per_second"]
    speed = f"{speed:.1f}" if speed < 100 else f"{speed:.0f}"
    wrong = None
    if words:
        wrong = "listed as refused, but compiled"
    elif seconds > MOST_SECONDS and target == "native" or peak > MOST_BYTES:
        wrong = f"took {seconds:.1f} s and {peak / 1e6:.0f} MB"
    size = gigabytes(document["weights"]["bytes"])
    return f"| {name} | {target} | {formats(document)} | {size} | {cost} | {generic} | {speed} |", wrong


def table(rows):
    head = (
        "| configuration | target | formats of weights | their GB | seconds | MB | generic kernels | predicted tokens/s |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(line + "\n" for line in rows)


def write(path, text):
    """Puts a table between the marks of a page."""
    page = path.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END, 1)
    path.write_text(before + BEGIN + text + END + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", type=Path, help="folder of folders with a config.json each")
    parser.add_argument("--llmcc", default=os.environ.get("LLMCC", "target/release/llmcc"))
    parser.add_argument("--docs", type=Path, help="the page that gets the table")
    parser.add_argument("--only", default="", help="configurations whose names have this in them")
    parser.add_argument("--target", help="this target alone, for all")
    args = parser.parse_args()
    if not args.configs.is_dir():
        print(f"skipped: there is no folder {args.configs} with published configurations")
        return 0
    names = sorted(p.parent.name for p in args.configs.glob("*/config.json") if args.only in p.parent.name)
    rows, faults = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for at, name in enumerate(names):
            targets = [args.target] if args.target else ["native"] + ["sm90"] * (at % 3 == 0)
            for target in targets:
                line, wrong = row(name, target, compiled(args.llmcc, args.configs / name, target, scratch))
                rows.append(line)
                print(line, flush=True)
                if wrong:
                    faults.append(f"{name} for {target}: {wrong}")
                    print(f"  {faults[-1]}", flush=True)
    if args.docs and not faults:
        write(args.docs, table(rows))
    print(f"{len(rows)} compilations of {len(names)} configurations, {len(faults)} faults")
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
