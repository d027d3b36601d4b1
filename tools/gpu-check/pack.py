"""Packs all that a machine with a GPU needs into one file, and says how to run it: see `one-call.sh`."""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import plan
from rows import CODE, CODE_ARCHIVE

REPOSITORY = Path(__file__).resolve().parents[2]
# Name of the folder in the file, and of the check in it.
CALL, CHECK = "llmcc-gpu-call", "check"
# Folders that have code.
CODED = ("kernels", "speed", "variants")
# Files that are left out where there is no room for them, the most important first.
OPTIONAL = ("architectures-f32.tar.xz", "architectures-bf16.tar.xz", "variants")


def stage(folder, architectures, to):
    """Everything, as it will lie there."""
    for name in ("tools/gpu-check", "python/llmcc"):
        shutil.copytree(REPOSITORY / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    check = to / CHECK
    # Code travels in archives of its own: kernels are much alike, so together they take far less.
    shutil.copytree(folder, check, ignore=shutil.ignore_patterns("*.gz", "*.cubin", "*.ptx"))
    if architectures:
        for file in [*architectures.glob("architectures-*.tar.xz"), architectures / "architectures.json"]:
            shutil.copy2(file, check / file.name)


def add(packed, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        packed.addfile(member, file)


def code(folder, check):
    """The code of the kernels that travel, in one archive."""
    with tarfile.open(check / CODE_ARCHIVE, "w:xz", preset=9) as packed:
        for part in (name for name in CODED if (check / name).is_dir()):
            for file in sorted((folder / part).rglob("*")):
                name = f"{CODE}/{file.relative_to(folder).as_posix()}"
                if file.suffix == ".gz":
                    add(packed, name.removesuffix(".gz"), gzip.decompress(file.read_bytes()))
                elif file.suffix in (".cubin", ".ptx"):
                    add(packed, name, file.read_bytes())


def drop(check, name):
    """Leaves something out."""
    path = check / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
        listed = plan.read(check / "architectures.json")
        listed.pop(name.removeprefix("architectures-").removesuffix(".tar.xz"), None)
        (check / "architectures.json").write_text(json.dumps(listed) + "\n")


def tar(staged, out):
    """One file of everything; its bytes."""
    with tarfile.open(out, "w") as packed:
        packed.add(staged, CALL)
    return out.stat().st_size


def write(staged, folder, out, most):
    """The file, with as much as may travel, the most important first; returns the parts left out."""
    check, scratch = staged / CHECK, staged.parent
    code(folder, check)
    if tar(staged, out) <= most:
        return []
    # Without anything that may be left out, and then with one after the other.
    left = [name for name in OPTIONAL if (check / name).exists()]
    for name in left:
        (check / name).rename(scratch / name)
    code(folder, check)
    size = tar(staged, out)
    if size > most:
        out.unlink()
        sys.exit(f"{size / 2**20:.1f} MiB without anything that could be left out: more than the {most / 2**20:.0f} that may travel")
    for name in list(left):
        (scratch / name).rename(check / name)
        if name in CODED:
            code(folder, check)
        if tar(staged, out) <= most:
            left.remove(name)
            continue
        drop(check, name)
        if name in CODED:
            code(folder, check)
    tar(staged, out)
    return left


def commit():
    """The state of the repository, for the report."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "build/gpu-check", help="made by prepare.py")
    parser.add_argument("--architectures", type=Path, default=REPOSITORY / "build/gpu-architectures", help="made by architectures.py; may be missing")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build/gpu-call.tar")
    parser.add_argument("--mib", type=float, default=64, help="most that may travel")
    parser.add_argument("--seconds", type=float, default=480, help="of the call there")
    parser.add_argument("--results", default="results", help="folder for rows and tables there")
    parser.add_argument("--at", default="/dev/shm", help="where it is unpacked there: a folder in memory, with room for 40 GB of models")
    args = parser.parse_args()
    if not any((args.folder / name).exists() for name in ("models.json", *CODED)):
        sys.exit(f"{args.folder} has nothing to check: make it with tools/gpu-check/prepare.py")
    architectures = args.architectures if (args.architectures / "architectures.json").exists() else None
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-call-") as scratch:
        staged = Path(scratch) / CALL
        stage(args.folder, architectures, staged)
        (staged / CHECK / "commit.json").write_text(json.dumps(commit()) + "\n")
        left = write(staged, args.folder, args.out, args.mib * 2**20)
        items = plan.items(staged / CHECK)
    print(f"{args.out}: {args.out.stat().st_size / 2**20:.1f} MiB, {len(items)} items that take about {plan.seconds(items):.0f} s")
    if not architectures:
        print(f"without architectures: {args.architectures} is made by tools/gpu-check/architectures.py")
    if left:
        print(f"left out, for want of room: {', '.join(left)}")
    there = f"{args.at}/{CALL}"
    print("Where the GPU is, beside that file:")
    command = f"python3 {there}/tools/gpu-check/gpu_check.py {there}/{CHECK} --seconds {args.seconds:g} --results {args.results}"
    print(f"tar -xf {args.out.name} -C {args.at} && TMPDIR={args.at} {command}")


if __name__ == "__main__":
    os.umask(0o022)
    main()
