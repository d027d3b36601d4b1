#!/usr/bin/env python3
"""The ten slowest tests, and test programs, of a log of `cargo test` run through `run.sh`: python slowest.py LOG"""

import re
import sys
from pathlib import Path

COUNT = 10


def times(log):
    """Seconds of each test with its program, and of each program."""
    program, tests, programs = "", [], []
    for line in log.splitlines():
        if started := re.match(r"\s+(?:Running (?:unittests )?(\S+) \(.*/([^/]+)-[0-9a-f]+\)|Doc-tests (\S+))", line):
            path, crate, doc = started.groups()
            program = f"{doc} (documentation)" if doc else f"{crate} {path}"
        elif done := re.match(r"test (.+?)(?: - should panic)? \.\.\. \S+ <([\d.]+)s>", line):
            tests.append((float(done[2]), f"{program}: {done[1]}"))
        elif ended := re.match(r"test result: .* finished in ([\d.]+)s", line):
            programs.append((float(ended[1]), program))
    return tests, programs


def main():
    for what, found in zip(("tests", "test programs"), times(Path(sys.argv[1]).read_text(errors="replace"))):
        print(f"The slowest {what}, of {len(found)} that took {sum(t for t, _ in found):.0f} s together:")
        for seconds, name in sorted(found, reverse=True)[:COUNT]:
            print(f"  {seconds:7.1f} s  {name}")


if __name__ == "__main__":
    main()
