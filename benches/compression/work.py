"""The work folder of the benchmark: logs of commands, and results that are kept for the next run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable


class Work:
    """A folder. A result is kept under the command that made it and the sizes and times of the files it read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notes = root / "notes.json"
        self.logs = root / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.kept: dict[str, Any] = json.loads(self.notes.read_text()) if self.notes.exists() else {}

    def run(self, name: str, command: list[Any]) -> str:
        """Runs a command and returns all that it printed, which also is in its log."""
        words = [str(word) for word in command]
        log = self.logs / f"{name}.log"
        begin = time.monotonic()
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = done.stdout.decode(errors="replace")
        log.write_text(f"$ {shlex.join(words)}\n{text}")
        if done.returncode != 0:
            last = "\n".join(text.splitlines()[-5:])
            raise RuntimeError(f"{Path(words[0]).name} failed ({log}):\n{last}")
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        return text

    def remembered(self, key: list[Any], files: list[Path], make: Callable[[], Any]) -> Any:
        """The result of `make`, or that of an earlier run with the same key and files."""
        stamps = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        name = json.dumps([[str(k) for k in key], stamps])
        if name not in self.kept:
            self.kept[name] = make()
            partial = self.notes.with_suffix(".partial")
            partial.write_text(json.dumps(self.kept, indent=1) + "\n")
            os.replace(partial, self.notes)
        return self.kept[name]
