#!/usr/bin/env python3
"""llama.cpp's own server tests, unmodified, against `llmcc serve`.

SUITE is the folder tools/server/tests of llama.cpp's sources. It is copied, nothing in it is changed. expected.toml
names the files that are not run and each test that does not pass, with the reasons: a test that passes or fails
otherwise is an error. The Python that runs this needs what SUITE/requirements.txt lists.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent


def arguments() -> argparse.Namespace:
    """What to run."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("suite", type=pathlib.Path)
    args.add_argument("--llmcc", default="llmcc", help="the compiler [default: llmcc]")
    args.add_argument("--models", type=pathlib.Path, default=".", help="folder with stories260K-F32.gguf")
    args.add_argument("--artifacts", type=pathlib.Path, help="folder where compiled models stay")
    args.add_argument("-k", dest="only", help="pytest's expression of the tests to run; the table is not checked")
    return args.parse_args()


def ran(args: argparse.Namespace, folder: pathlib.Path, table: dict) -> dict:
    """Runs the tests in a copy of the suite. Returns their outcomes by their names."""
    suite, copy = args.suite.resolve(), folder / "tools" / "server" / "tests"
    shutil.copytree(suite, copy, ignore=shutil.ignore_patterns("tmp", "__pycache__"))
    (copy / "tmp").mkdir()
    (folder / "models").symlink_to(suite.parents[2] / "models")
    report = folder / "report.xml"
    environment = {
        **os.environ,
        "LLAMA_SERVER_BIN_PATH": str(HERE / "server.py"),
        "LLMCC": shutil.which(args.llmcc) or args.llmcc,
        "LLMCC_MODELS": str(args.models.resolve()),
        "LLMCC_ARTIFACTS": str((args.artifacts or folder / "artifacts").resolve()),
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # Slow tests are for models of several gigabytes.
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-m", "not slow", f"--junitxml={report}"]
    command += ["-k", args.only] if args.only else []
    command += [f"--ignore=unit/{file}" for entry in table["outside"] for file in entry["files"]]
    subprocess.run(command, cwd=copy, env=environment, stdout=None if args.only else subprocess.DEVNULL, check=False)
    found = {}
    for case in xml.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname').rsplit('.', 1)[-1]}::{case.get('name')}"
        failed = [case.find(kind) for kind in ("failure", "error", "skipped")]
        found[name] = next((one.get("message") or "failed" for one in failed if one is not None), None)
    return found


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern of the table, which may end with *, stands for a test."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def compared(outcomes: dict, table: dict) -> list:
    """Faults: tests that pass or fail otherwise than the table says."""
    faults, listed = [], set()
    for entry in table["listed"]:
        for pattern in entry["tests"]:
            names = [name for name in outcomes if matches(pattern, name)]
            faults += [f"{pattern}: the table names it, and there is no such test"] if not names else []
            faults += [f"{name}: passes, and the table names it" for name in names if outcomes[name] is None]
            listed.update(names)
    others = [name for name in outcomes if name not in listed and outcomes[name] is not None]
    return faults + [f"{name}: does not pass, and the table does not name it: {outcomes[name]:.200}" for name in others]


def summary(outcomes: dict, table: dict) -> None:
    """Prints counts by reasons."""
    def count(entry: dict) -> int:
        return sum(any(matches(pattern, name) for pattern in entry["tests"]) for name in outcomes)

    print(f"{sum(outcome is None for outcome in outcomes.values())} of {len(outcomes)} tests pass")
    for entry in sorted(table["listed"], key=count, reverse=True):
        print(f"{count(entry):4} listed: {entry['why']}")
    for entry in table["outside"]:
        print(f"not run: {', '.join(entry['files'])}: {entry['why']}")


def main() -> None:
    """Runs, compares, reports."""
    args = arguments()
    table = tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        outcomes = ran(args, pathlib.Path(folder), table)
    if args.only:
        for name, outcome in outcomes.items():
            print(name, "passes" if outcome is None else f"FAILS: {outcome:.300}")
        return
    summary(outcomes, table)
    faults = compared(outcomes, table)
    print("\n".join(faults))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
