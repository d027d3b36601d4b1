#!/usr/bin/env python3
"""Checks and measures llmcc's kernels and models on a GPU, in one command that survives whatever they do.

    python3 tools/gpu-check/gpu_check.py FOLDER --out results.jsonl [--deadline 560] [--resume]
    python3 tools/gpu-check/gpu_check.py report results.jsonl

FOLDER was made by `prepare.py` where the compiler is. Here, an NVIDIA driver, Python and NumPy are needed, PyTorch only for the speeds to compare with; neither the
CUDA toolkit nor LLVM.

Everything runs in worker processes. One that loses the GPU's context (a wild store in a kernel ends every later call of its process) ends, and a new one goes on with
the next item; one that takes too long is killed, with its children. Each row is in the file before the next item starts. What is done, in which order: `plan.py`.

1. Kernels, each alone, in steps of one token, of several, of ragged sequences, against what they mean in f64; the error may be twice that of f32 arithmetic with 16-bit
   operands and results. Each runs eight times from the same operands and must store the same bits.
2. Speed of kernels, each alone, at the shapes of `shapes.py`, after a tenth of a second of warming up, over copies of their operands, so that nothing comes from the
   second-level cache; beside PyTorch's (cuBLAS, its 4-bit product, its attention). The same for other schedules of some shapes (`variants.py`).
3. Models: small ones in every weight format through all regimes, against references made by `prepare.py`; the shapes of Llama-3.2-1B and 3-8B for speed.

Exit status 1 when something is wrong, so that it can be a test. `fit.py` fits the cost model's constants to the rows.
"""

import argparse
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

BEGAN = time.monotonic()
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python"), str(HERE)]

import plan  # noqa: E402
import report  # noqa: E402
from machine import Management, header  # noqa: E402
from rows import UNFINISHED, Rows, aside, load  # noqa: E402

# Seconds that a worker may take to start (PyTorch from a cold disk), how often it may fail to, and how long a killed one may take to go: the driver tidies up after it.
START, STARTS, GONE = 120, 3, 20
# Bytes of a worker's own output that are kept of its end.
TAIL = 1500


class Worker:
    """A process that takes items."""

    def __init__(self, folder, options, scratch):
        ours, theirs = os.pipe()
        self.log = tempfile.TemporaryFile()
        start = json.dumps({"folder": str(folder), "options": options, "scratch": str(scratch)})
        command = [sys.executable, str(HERE / "worker.py"), start, str(theirs)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self.log, stderr=self.log, pass_fds=[theirs], start_new_session=True
        )
        os.close(theirs)
        self.pipe, self.left = ours, b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(ours, selectors.EVENT_READ)

    def send(self, item):
        self.process.stdin.write(json.dumps(item.described()).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self, until):
        """The next message; raises `TimeoutError` or, when the process has ended, `EOFError`."""
        while b"\n" not in self.left:
            if not self.selector.select(max(0, until - time.monotonic())):
                raise TimeoutError
            data = os.read(self.pipe, 1 << 16)
            if not data:
                raise EOFError
            self.left += data
        line, _, self.left = self.left.partition(b"\n")
        return json.loads(line)

    def said(self):
        """The end of what it printed."""
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - TAIL))
        return self.log.read().decode(errors="replace").strip()

    def end(self):
        """Kills it and its children; how it ended."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            status = self.process.wait(GONE)
        except subprocess.TimeoutExpired:
            # Inside the driver: it goes when the driver lets it.
            status = None
        self.selector.close()
        os.close(self.pipe)
        self.process.stdin.close()
        return status


class Run:
    """Items in workers, rows in a file."""

    def __init__(self, args, options, rows, scratch):
        self.args, self.options, self.rows, self.scratch = args, options, rows, scratch
        self.end, self.worker, self.not_run = BEGAN + args.deadline, None, []

    def all(self, items):
        try:
            for item in items:
                if self.rows.done(item.id):
                    continue
                # Something shorter may still fit.
                if time.monotonic() + item.usual() > self.end or not self.ready():
                    self.not_run.append(item.id)
                    continue
                self.one(item)
        finally:
            if self.worker:
                self.worker.end()

    def ready(self):
        """Whether there is a worker, started if need be."""
        for attempt in range(STARTS):
            if self.worker:
                return True
            worker = Worker(self.args.folder, self.options, self.scratch)
            try:
                facts = worker.receive(min(time.monotonic() + START, self.end))["ready"]
                self.worker = worker
                if "facts" not in self.rows.rows:
                    self.rows.add({"id": "facts", **facts})
            except (EOFError, TimeoutError):
                worker.end()
                if time.monotonic() >= self.end:
                    return False
                self.rows.add({"id": f"worker:{attempt}", "kind": "worker", "status": "died", "said": f"does not start: {worker.said()}"})
        if not self.worker:
            # Without one, nothing can be done.
            self.end = 0
        return self.worker is not None

    def one(self, item):
        began = time.monotonic()
        until = min(began + (self.args.limit or item.limit()), self.end)
        row = {"id": item.id, "kind": item.kind}
        try:
            self.worker.send(item)
            while not (message := self.worker.receive(until)).get("done"):
                self.rows.add({**message["row"], "seconds": round(time.monotonic() - began, 3)})
            row, alive = message["row"], message["alive"]
        except TimeoutError:
            # The deadline of the call is nobody's fault.
            row["status"] = UNFINISHED if until == self.end else "timeout"
            row["said"], alive = f"killed after {time.monotonic() - began:.0f} s", False
        except (EOFError, BrokenPipeError):
            row["status"], alive = "died", False
        if not alive:
            status, said = self.worker.end(), self.worker.said()
            if row["status"] == "died":
                row["said"] = f"ended with {status}: {said}"
            elif said:
                row["said"] = f"{row.get('said', '')}; it printed: {said[-600:]}"
            self.worker = None
            # Gigabytes that it can't remove any more.
            for file in self.scratch.glob("*.weights"):
                file.unlink()
        self.rows.add({**row, "seconds": round(time.monotonic() - began, 3)})


def here(args, options, rows, scratch, items):
    """Items in this process, for profilers and sanitizers."""
    from bench import Bench

    bench = Bench(args.folder, options, scratch)
    rows.add({"id": "facts", **bench.facts()})
    for item in items:
        row = bench.run(item.described(), lambda name, extra, kind=item.kind: rows.add({"id": name, "kind": kind, "status": "ok", **extra}))
        rows.add({"id": item.id, "kind": item.kind, **row})


def need_numpy(folder, scratch):
    """Where NumPy is missing, a wheel of it may lie in the folder."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        wheels = list((folder / "wheels").glob("*.whl"))
        for wheel in wheels:
            zipfile.ZipFile(wheel).extractall(scratch / "site")
        if not wheels:
            sys.exit(f"no NumPy here: put a wheel of it for this Python ({sys.version.split()[0]}, {os.uname().machine}) into {folder / 'wheels'}")
        sys.path.insert(0, str(scratch / "site"))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(scratch / "site"), os.environ.get("PYTHONPATH")]))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("gpu-check.jsonl"), help="rows, as they come; the tables go to the same name with .md")
    parser.add_argument("--deadline", type=float, default=1e9, metavar="SECONDS", help="from the start: nothing begins that would not end by then")
    parser.add_argument("--resume", action="store_true", help="go on with the rows in --out; else they are put aside")
    parser.add_argument("--only", help="kinds, with commas: kernel, speed, peer, small, large, large-peer, variant")
    parser.add_argument("--filter", metavar="REGEX", help="only items with such a name, in this process: for profilers and sanitizers")
    parser.add_argument("--list", action="store_true", help="the items' names, in order")
    parser.add_argument("--repeats", type=int, default=8, help="runs of each kernel, which must give the same bits")
    parser.add_argument("--quick", action="store_true", help="fewer measurements")
    parser.add_argument("--limit", type=float, help="seconds after which any item is killed (else: 20 for kernels, 90 for models)")
    return parser.parse_args()


def main():
    if sys.argv[1:2] == ["report"]:
        print(report.markdown(load(Path(sys.argv[2]))))
        return
    args = arguments()
    items = plan.items(args.folder)
    if args.only:
        items = [i for i in items if i.kind in args.only.split(",") or (i.kind == "machine" and "speed" in args.only)]
    if args.filter:
        items = [i for i in items if re.search(args.filter, i.id)]
    if args.list:
        print("\n".join(i.id for i in items))
        return
    # With a stand-in for the driver what counts is that everything runs.
    emulated = "LLMCC_CUDA_LIBRARY" in os.environ
    options = {
        "emulated": emulated,
        "repeats": args.repeats,
        "timed": 2 if emulated else 5 if args.quick else 20,
        "warm": 0.0 if emulated else 0.1,
        "launches": 2 if emulated else 20,
        "rotate": 1 << 16 if emulated else 400 << 20,
        "steps": 4 if emulated else 32 if args.quick else 128,
    }
    if not args.resume:
        aside(args.out)
    rows = Rows(args.out)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        need_numpy(args.folder, Path(scratch))
        target = (plan.read(args.folder / "models.json") or {}).get("target", "")
        rows.add(header(Management(), target))
        # A call that is stopped leaves its tables as well.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        run = Run(args, options, rows, Path(scratch))
        try:
            if args.filter:
                here(args, options, rows, Path(scratch), items)
            else:
                run.all(items)
        finally:
            rows.add({"id": "plan", "items": len(items), "not_run": run.not_run, "seconds": round(time.monotonic() - BEGAN, 1)})
            args.out.with_suffix(".md").write_text(report.markdown(rows.rows))
    bad = report.failures(rows.rows)
    print(f"{bad} wrong, {len(run.not_run)} not run; tables: {args.out.with_suffix('.md')}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
