#!/usr/bin/env python3
"""Checks and measures llmcc's kernels and models on a GPU, in one command that survives their faults.

    python3 tools/gpu-check/gpu_check.py FOLDER --results results [--seconds 480] [--resume]
    python3 tools/gpu-check/gpu_check.py report results/results.jsonl

FOLDER was made by `prepare.py` where the compiler is; `one-call.sh` packs it with everything needed here: an NVIDIA driver, Python and NumPy, and PyTorch only for the speeds to compare with; neither the
CUDA toolkit nor LLVM is.

Everything runs in worker processes. One that loses the GPU's context (a wild store in a kernel
ends every later call of its process) ends, and a new one goes on with the next item; one that
takes too long is killed, with its children. Each row is in the file before the next item
starts. `plan.py` lists the work, in order.

1. Kernels, each alone, in steps of one token, of several, of ragged sequences, against their meaning in f64; the error may be twice that of f32 arithmetic with 16-bit
   operands and results. Each runs eight times from the same operands and must store the same bits.
2. Speed of kernels, each alone, at the shapes of `shapes.py`, after a tenth of a second of warming up, over copies of their operands, so that nothing comes from the
   second-level cache; beside PyTorch's (cuBLAS, its 4-bit product, its attention). The same for other schedules of some shapes (`variants.py`).
3. Models: small ones in every weight format through all regimes, against references made by `prepare.py`; one of each architecture (`architectures.py`), several side by
   side; the shapes of Llama-3.2-1B and 3-8B for speed, alone and in batches, beside PyTorch's compiled step.
4. Counters of the most important kernels by `ncu`, and `compute-sanitizer` on the most risky, where these programs are.

Exit status 1 when something is wrong, so that it can be a test. `fit.py` fits the cost model's constants to the rows.
"""

import argparse
import itertools
import os
import re
import signal
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path

BEGAN = time.monotonic()
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python"), str(HERE)]

import plan  # noqa: E402
import report  # noqa: E402
import tools  # noqa: E402
from machine import Management, header  # noqa: E402
from rows import CODE_ARCHIVE, Rows, aside, load  # noqa: E402
from workers import Lane, Shared, side_by_side  # noqa: E402

class Run:
    """Items in workers, rows in a file."""

    def __init__(self, args, options, rows, scratch):
        self.args, self.options, self.scratch = args, options, scratch
        self.shared = Shared(rows, BEGAN + args.deadline, args.limit)
        # Archives are unpacked while the first kernels are checked.
        self.archives = [threading.Thread(target=unpack_all, args=(args.folder, scratch, some), daemon=True) for some in ([CODE_ARCHIVE], sorted(packed(args.folder)))]
        self.lane = Lane(self.shared, args.folder, options, scratch)

    def all(self, items):
        for thread in self.archives:
            thread.start()
        self.archives[0].join()
        try:
            for kind, some in itertools.groupby(items, lambda i: i.kind):
                some = list(some)
                if kind == "architecture":
                    self.architectures(some)
                elif kind in tools.KINDS:
                    # They have the GPU for themselves.
                    self.lane.end()
                    tools.run(self.shared, self.args.folder, self.args.out.parent, some)
                else:
                    self.lane.run(some)
        finally:
            self.lane.end()

    def architectures(self, items):
        """Many small models: in workers without PyTorch, side by side."""
        self.archives[1].join(max(0, self.shared.end - time.monotonic()))
        count = min(self.args.workers, len(items))
        side_by_side([Lane(self.shared, self.args.folder, {**self.options, "plain": True}, self.scratch) for _ in range(count)], items)


def packed(folder):
    """Archives of architectures."""
    return [f.name for f in folder.glob("architectures-*.tar.xz")]


def unpack_all(folder, scratch, names):
    from models import unpack

    for name in names:
        if (folder / name).exists():
            unpack(folder / name, scratch)


def here(args, options, rows, scratch, items):
    """Items in this process, for profilers and sanitizers."""
    from bench import Bench

    unpack_all(args.folder, scratch, [CODE_ARCHIVE, *(packed(args.folder) if any(i.kind == "architecture" for i in items) else ())])
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
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="where rows go as they come (results.jsonl), tables (results.md) and what profilers say")
    parser.add_argument("--out", type=Path, default=Path("gpu-check.jsonl"), help="another name for the rows; the tables go to the same name with .md")
    parser.add_argument("--seconds", "--deadline", type=float, default=1e9, dest="deadline", help="from the start: nothing begins that would not end by then")
    parser.add_argument("--workers", type=int, default=min(plan.SIDE_BY_SIDE, os.cpu_count() or 1), help="processes that check architectures side by side")
    parser.add_argument("--resume", action="store_true", help="go on with the rows in --out; else they are put aside")
    parser.add_argument("--only", help="kinds, with commas: kernel, speed, peer, small, architecture, large, large-peer, variant, counters, memcheck, racecheck")
    parser.add_argument("--filter", metavar="REGEX", help="only items with such a name, in this process: for profilers and sanitizers")
    parser.add_argument("--list", action="store_true", help="the items' names, in order")
    parser.add_argument("--repeats", type=int, default=8, help="runs of each kernel, which must give the same bits")
    parser.add_argument("--quick", action="store_true", help="fewer measurements")
    parser.add_argument("--limit", type=float, help="seconds after which any item is killed (else: 20 for kernels, 90 for models)")
    args = parser.parse_args()
    if args.results:
        args.out = args.results / "results.jsonl"
    return args


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
    # With a stand-in for the driver it only matters that everything runs.
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
        rows.add({**header(Management(), target), "commit": plan.read(args.folder / "commit.json")})
        # A call that is stopped leaves its tables as well.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        run = Run(args, options, rows, Path(scratch))
        try:
            if args.filter:
                here(args, options, rows, Path(scratch), items)
            else:
                run.all(items)
        finally:
            rows.add({"id": "plan", "items": len(items), "not_run": run.shared.not_run, "seconds": round(time.monotonic() - BEGAN, 1)})
            args.out.with_suffix(".md").write_text(report.markdown(rows.rows))
    bad = report.failures(rows.rows)
    print(f"{bad} wrong, {len(run.shared.not_run)} not run; tables: {args.out.with_suffix('.md')}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
