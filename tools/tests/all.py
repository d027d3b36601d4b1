#!/usr/bin/env python3
"""Runs the test programs of `cargo test ARGUMENTS`, several at a time: python all.py LOG ARGUMENTS

`cargo test` runs one program after the other, and a core waits while the last test of each program runs. This script
runs as many programs at once as there are cores, the LONG ones first. record.sh says how Cargo would run each one.
Documentation tests are one more job. The output of a job is printed, and written to LOG, when the job has ended."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import slowest

HERE = Path(__file__).resolve().parent
# Jobs of more than a minute: if the last one to begin is long, a core waits for it.
LONG = [
    "tests emulated",
    "tests suite",
    "cli suite",
    "frontends llmcc_frontends",
    "gpu suite",
    "codegen llmcc_codegen",
    "documentation",
]


@dataclass
class Job:
    """A command, its folder, and its environment if not this one."""

    name: str
    command: list[str]
    folder: Optional[str] = None
    environment: Optional[dict[str, str]] = None

    def rank(self) -> int:
        """Its place in the order of starts."""
        return LONG.index(self.name) if self.name in LONG else len(LONG)

    def run(self) -> tuple[int, str]:
        """Its exit status, and its output under a heading."""
        began = time.monotonic()
        done = subprocess.run(
            self.command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output = done.stdout.decode(errors="replace")
        return done.returncode, f"{slowest.HEADING}{self.name} ({time.monotonic() - began:.1f} s)\n{output}"


def recorded(file: Path) -> Job:
    """The job that record.sh has written down."""
    lines = file.read_bytes().split(b"\n")
    folder, command = os.fsdecode(lines[0]), [os.fsdecode(line) for line in lines[2:-1]]
    pairs = [os.fsdecode(pair).partition("=") for pair in base64.b64decode(lines[1]).split(b"\0") if pair]
    # The option is unstable. The variable allows it to the test harness, which reads it when it runs.
    environment = {name: value for name, _, value in pairs} | {"RUSTC_BOOTSTRAP": "1"}
    name = f"{Path(folder).name} {Path(command[0]).name.rsplit('-', 1)[0]}"
    return Job(name, [*command, "-Z", "unstable-options", "--report-time"], folder, environment)


def programs(arguments: list[str]) -> list[Job]:
    """Builds the test programs; how each one is to be run, in Cargo's order."""
    with tempfile.TemporaryDirectory() as queue:
        runner = f'target."cfg(all())".runner = ["sh", "{HERE}/record.sh"]'
        built = subprocess.run(
            ["cargo", "test", *arguments, "--lib", "--bins", "--tests", "--examples", "--config", runner],
            env=os.environ | {"LLMCC_TEST_QUEUE": queue},
        )
        if built.returncode != 0:
            sys.exit(built.returncode)
        return [recorded(file) for file in sorted(Path(queue).iterdir(), key=lambda file: file.stat().st_mtime_ns)]


def main() -> None:
    log, arguments = Path(sys.argv[1]), sys.argv[2:]
    jobs = [*programs(arguments), Job("documentation", ["cargo", "test", *arguments, "--doc"])]
    jobs.sort(key=Job.rank)
    failed = []
    with log.open("w") as out, ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(job.run): job for job in jobs}
        for done in as_completed(running):
            status, output = done.result()
            print(output, end="", flush=True)
            out.write(output)
            if status != 0:
                failed.append(f"{running[done].name} (exit status {status})")
    slowest.report(log.read_text())
    if failed:
        sys.exit(f"{len(failed)} of {len(jobs)} failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
