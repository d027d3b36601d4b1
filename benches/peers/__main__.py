#!/usr/bin/env python3
"""Our speed, memory and time to the first token beside llama.cpp, OpenVINO GenAI and ONNX Runtime GenAI, on the same checkpoint and machine.

    python3 benches/peers 1.2b                      # everything, from an empty folder: environments, models, measurements
    python3 benches/peers 135m --only decode        # one case
    python3 benches/peers DIR --only 'batch-*' --only OpenVINO --json out.json
    python3 benches/peers 1.2b --prepare            # all but the measurements

The peers are installed with pip at pinned versions into scratch environments under --work, and the checkpoint is converted with their own tools; both are kept for the next run.
Each engine runs in a process of its own with its best settings (alternatives are tried in a warm-up). The engines take turns, one computing at a time and the others
stopped, and the ratio of each round is taken. Random weights give random text; speed does not depend on it. --only names cases, engines and formats (patterns; --list
shows them). Needs Linux on x86-64, Python 3.10 or newer with venv, a C++ compiler (llama.cpp has no wheel), `cargo build --release`, and for the 1.2b shape 16 GB of disk
and 12 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cases
import environment
import measure
import report
import safetensors_file
from cases import Case, Entrant

ROOT = Path(__file__).resolve().parents[2]
PRESETS = ("1.2b", "135m", "8b")


@dataclass
class Workshop:
    """The work folder: environments, checkpoint and converted models."""

    root: Path
    checkpoint: Path
    models: Path
    compiler: Path

    def run_python(self) -> Path:
        return environment.ensure(self.root / "run", environment.RUN)

    def stored(self, entrant: Entrant, kv: str) -> Path:
        return entrant.module.stored(self.models / entrant.engine.replace(" ", "-"), entrant.format, kv)

    def make_checkpoint(self, preset: str) -> None:
        """A checkpoint with random weights of that shape, if it is not there."""
        if not (self.checkpoint / "config.json").exists():
            command = [self.run_python(), ROOT / "benches" / "make_checkpoint.py", preset, self.checkpoint]
            subprocess.run(command, check=True, env=environment.clean(), stdout=sys.stderr)

    def group(self) -> int:
        table, _ = safetensors_file.header(self.checkpoint)
        size = cases.group_size([t["shape"][1] for t in table.values() if len(t["shape"]) == 2])
        if size is None:
            sys.exit(f"{self.checkpoint}: its widths are no multiples of 32, so 4-bit formats cannot be compared")
        return size

    def convert(self, entrant: Entrant, kv: str) -> None:
        """Makes the stored form, if it is not there (or, for ours, older than the compiler)."""
        path, module = self.stored(entrant, kv), entrant.module
        own = entrant.engine == cases.OURS
        if path.exists() and not (own and path.stat().st_mtime < self.compiler.stat().st_mtime):
            return
        python = {
            "run": self.run_python,
            "convert": lambda: environment.ensure(self.root / "convert", environment.CONVERT, environment.CONVERT_TORCH),
            "": lambda: Path(sys.executable),
        }[module.CONVERTER]()
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name("partial-" + path.name)
        log = self.root / "logs" / f"convert-{self.models.name}-{entrant}.log".replace(" ", "-")
        print(f"{entrant}: converting (log: {log})", file=sys.stderr)
        command = [str(python), str(measure.HERE / "convert.py"), entrant.engine, entrant.format, kv, self.checkpoint, partial, str(self.group())]
        with log.open("w") as out:
            env = environment.clean() | {"LLMCC": str(self.compiler)}
            done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=env)
        if done.returncode != 0:
            last = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
            sys.exit(f"{entrant} cannot be made from {self.checkpoint}; the last lines of {log} are\n{last}")
        if own:
            path.unlink(missing_ok=True)
        os.rename(partial, path)


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(prog="peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", nargs="?", help=f"{', '.join(PRESETS)} (random weights of that shape), or a folder with a bf16 Llama checkpoint")
    p.add_argument("--only", action="append", default=[], metavar="PATTERN", help="cases, engines or formats; may be repeated")
    p.add_argument("--quick", action="store_true", help="two short rounds, to see whether everything works; says nothing of speed")
    p.add_argument("--rounds", type=int, help="[default: 7]")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="[default: cores this process may use]")
    p.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    p.add_argument("--work", type=Path, default=ROOT / "build" / "peers", help="[default: build/peers]")
    p.add_argument("--llmcc", type=Path, default=ROOT / "target" / "release" / "llmcc", help="the compiler [default: target/release/llmcc]")
    p.add_argument("--prepare", action="store_true", help="install and convert only")
    p.add_argument("--no-check", action="store_true", help="do not compare the engines' logits")
    p.add_argument("--list", action="store_true", help="cases, engines and formats")
    args = p.parse_args()
    if args.model is None and not args.list:
        p.error(f"which model? One of {', '.join(PRESETS)}, or a folder")
    if not args.llmcc.exists() and not args.list:
        p.error(f"{args.llmcc} is not there: cargo build --release, or --llmcc")
    args.rounds = args.rounds or (2 if args.quick else 7)
    return args


def workshop(args: argparse.Namespace) -> Workshop:
    root, given = args.work.resolve(), Path(args.model)
    (root / "logs").mkdir(parents=True, exist_ok=True)
    if args.model in PRESETS:
        shop = Workshop(root, root / args.model / "checkpoint", root / args.model, args.llmcc.resolve())
        shop.make_checkpoint(args.model)
    elif (given / "model.safetensors").exists():
        name = f"{given.resolve().name}-{zlib.crc32(bytes(given.resolve())):08x}"
        shop = Workshop(root, given.resolve(), root / name, args.llmcc.resolve())
    else:
        sys.exit(f"{given} is neither {', '.join(PRESETS)} nor a folder with model.safetensors")
    return shop


def show_list(args: argparse.Namespace) -> None:
    for case in cases.all_cases(args.threads):
        print(f"{case.name:<14} {case.describe()}; {', '.join(map(str, case.bits))} bits")
    for entrant in cases.entrants():
        print(f"{entrant.engine:<14} {entrant.format} ({entrant.bits} bits)")


def main() -> None:
    args = arguments()
    if args.list:
        return show_list(args)
    try:
        every = cases.all_cases(args.threads)
        chosen = cases.select([cases.quick(c) for c in every] if args.quick else every, args.only)
    except ValueError as error:
        sys.exit(str(error))
    shop = workshop(args)
    for entrant, kv in dict.fromkeys((e, c.kv) for c, _, group in chosen for e in group):
        shop.convert(entrant, kv)
    if args.prepare:
        return None
    plan = measure.Plan(shop.run_python(), shop.root / "logs", args.rounds, shop.stored)
    found: dict[str, Any] = {"machine": report.machine(), "model": str(shop.checkpoint), "group": shop.group(), "rounds": args.rounds, "cases": []}
    print(f"{found['machine']['cpu']}, {found['machine']['cores']} cores; {shop.models.name}, our groups and OpenVINO's and ONNX Runtime's: {found['group']}")
    if os.getloadavg()[0] > 0.3 * args.threads:
        print(f"the machine is busy (load {os.getloadavg()[0]:.1f}): engines that spin suffer most, so these ratios mean little", file=sys.stderr)
    if not args.no_check:
        found["agreement"] = measure.agreement(plan, Case("logits", "decode", (), args.threads, steps=0), [e for _, _, group in chosen for e in group])
        print("\n".join(report.agreement(found["agreement"])), flush=True)
    print(report.LEGEND)
    versions = {}
    for case, _, group in chosen:
        results = measure.run_case(plan, case, group)
        versions |= {r.entrant.engine: r.version for r in results if r.version}
        found["cases"].append(report.as_json(case, results))
        print("\n".join(["", *report.block(case, results)]), flush=True)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")
    print("\n" + "\n".join(versions.values()))
    return None


if __name__ == "__main__":
    main()
