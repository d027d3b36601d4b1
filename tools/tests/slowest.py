"""The slowest tests, and test programs, of the log that all.py writes."""

import re

COUNT = 10
# Begins the line before the output of a program.
HEADING = "== "


def times(log):
    """Seconds of each test with its program, and of each program."""
    program, tests, programs = "", [], []
    for line in log.splitlines():
        if started := re.fullmatch(HEADING + r"(.+) \(([\d.]+) s\)", line):
            program = started[1]
            programs.append((float(started[2]), program))
        elif done := re.match(r"test (.+?)(?: - should panic)? \.\.\. \S+ <([\d.]+)s>", line):
            tests.append((float(done[2]), f"{program}: {done[1]}"))
    return tests, programs


def report(log):
    """Prints both."""
    for what, found in zip(("tests", "test programs"), times(log)):
        print(f"The slowest {what}, of {len(found)} that took {sum(t for t, _ in found):.0f} s together:")
        for seconds, name in sorted(found, reverse=True)[:COUNT]:
            print(f"  {seconds:7.1f} s  {name}")
