"""The report as it grows: a file with a line of JSON per row, each on the disk before the next item starts."""

import json
import os

# Status that another call with `--resume` does again.
UNFINISHED = "cut"
# Code of kernels that travels packed, and where it is unpacked.
CODE_ARCHIVE, CODE = "code.tar.xz", "code"


def load(path):
    """The rows so far, by id; a later row replaces an earlier one. A line that was not finished is no row."""
    rows = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                row = json.loads(line)
                rows[row["id"]] = row
            except (json.JSONDecodeError, KeyError, TypeError):
                continue
    return rows


def aside(path):
    """Gives the file of an earlier call another name."""
    if path.exists():
        number = 1
        while (to := path.with_name(f"{path.name}.{number}")).exists():
            number += 1
        path.rename(to)


class Rows:
    """An open report."""

    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.rows = path, load(path)
        data = path.read_bytes() if path.exists() else b""
        self.file = open(path, "ab")
        if data and not data.endswith(b"\n"):
            # A call was killed in the middle of a line.
            self.file.write(b"\n")

    def add(self, row):
        self.rows[row["id"]] = row
        self.file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())
        print(short(row), flush=True)

    def done(self, name):
        """Whether an item needs not be done again."""
        return name in self.rows and self.rows[name].get("status") != UNFINISHED


def short(row):
    """A row as a line for the terminal."""
    parts = [row["id"], row.get("status", "")]
    parts += [f"{row['us']:.1f} µs"] if "us" in row else []
    parts += [f"{row['rate']:.0f}/s"] if "rate" in row else []
    parts += [f"error {row['error']:.1e} of {row['allowed']:.1e}"] if "error" in row and "allowed" in row else []
    parts += [row["said"]] if row.get("said") else []
    return "  ".join(parts)
