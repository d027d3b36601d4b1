"""NVIDIA's profiler and checkers, run on single items of the plan."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rows import UNFINISHED

HERE = Path(__file__).resolve().parent
CHECKER = ["compute-sanitizer", "--tool"]
# Programs by kind of item.
KINDS = {
    # Not PyTorch's kernels; the first launch is that of the comparison.
    "counters": ["ncu", "--set", "full", "--kernel-name", "regex:^k_", "--launch-skip", "4", "--launch-count", "1"],
    "memcheck": [*CHECKER, "memcheck"],
    "racecheck": [*CHECKER, "racecheck"],
}
# Figures that go into the row: their names in the profiler's text.
FIGURES = {"us": r"Duration\s+us\s+([\d.,]+)", "dram": r"DRAM Throughput\s+%\s+([\d.,]+)", "issue": r"Issue Slots Busy\s+%\s+([\d.,]+)", "warps": r"Eligible Warps Per Scheduler\s+warp\s+([\d.,]+)"}


def run(shared, folder, results, items):
    """Runs the `items` for which there is time, one after the other; the whole text of each goes
    into a file of `results`."""
    for item in items:
        program = KINDS[item.kind]
        row = {"id": item.id, "kind": item.kind}
        if shared.rows.done(item.id):
            continue
        if time.monotonic() + item.usual() > shared.end:
            shared.not_run.append(item.id)
        elif "LLMCC_CUDA_LIBRARY" in os.environ or not shutil.which(program[0]):
            shared.add({**row, "status": "skipped", "said": f"no {program[0]} here"})
        else:
            shared.add({**row, **one(program, folder, results, item, shared.end)})


def one(program, folder, results, item, end):
    """A row about an item under a program."""
    began = time.monotonic()
    limit = min(item.limit(), end - began)
    with tempfile.TemporaryDirectory() as scratch:
        check = [sys.executable, str(HERE / "gpu_check.py"), str(folder), "--filter", f"^{re.escape(item.what['of'])}$"]
        command = [*program, *check, "--quick", "--repeats", "1", "--out", f"{scratch}/rows.jsonl"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            text, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            # With the processes it has started.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            late = began + limit >= end
            return {"status": UNFINISHED if late else "skipped", "said": f"killed after {limit:.0f} s"}
    file = results / (re.sub(r"[^\w.-]", "_", item.id) + ".txt")
    file.write_text(text)
    return {**told(item.kind, text), "file": file.name, "seconds": round(time.monotonic() - began, 1)}


def told(kind, text):
    """The facts in the text of a program."""
    if kind == "counters":
        found = {name: re.search(pattern, text) for name, pattern in FIGURES.items()}
        figures = {name: float(f.group(1).replace(",", "")) for name, f in found.items() if f}
        return {"status": "ok", "figures": figures} if figures else {"status": "skipped", "said": last(text)}
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", text)
    if not summary:
        return {"status": "skipped", "said": last(text)}
    count = int(summary.group(1))
    return {"status": "ok" if count == 0 else "wrong", "said": summary.group(0)}


def last(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "said nothing"
