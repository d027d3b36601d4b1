"""A process that holds one engine and obeys commands, a line of JSON at a time: so that memory,
thread pools and libraries of the engines do not mix."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any

import engines


@dataclass
class Task:
    """The part of `cases.Case` that an engine sees."""

    kind: str
    threads: int
    sequences: int
    prompt: int
    depth: bool
    kv: str


def memory(field: str) -> int:
    """A line of /proc/self/status (VmHWM, VmRSS) in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field + ":"))


class Worker:
    def __init__(self, name: str) -> None:
        import numpy as np

        self.np = np
        self.module = engines.get(name)
        self.what = self.module.describe()  # imports the engine
        self.before = memory("VmRSS")
        self.rounds = 0

    def open(self, path: str, task: dict[str, Any], context: int, settings: dict[str, Any]) -> None:
        self.task = Task(**task)
        self.engine = self.module.Engine(path, self.task, context, **settings)

    def prompt(self) -> None:
        """A prompt for each sequence, different each time; small numbers are in every vocabulary."""
        self.rounds += 1
        n = range(self.task.prompt)
        self.engine.prompt([[(i * 7919 + s * 131 + self.rounds * 17) % 997 + 3 for i in n] for s in range(self.task.sequences)])

    def steps(self, n: int) -> None:
        self.engine.steps(n)

    def logits(self, path: str) -> bool:
        """Stores the logits after the last token of the first sequence."""
        row = self.engine.logits()
        if row is not None:
            self.np.asarray(row, "<f4").tofile(path)
        return row is not None

    def describe(self) -> str:
        return self.what

    def memory(self) -> dict[str, int]:
        """Most memory that was resident, and the amount before the engine opened anything (Python
        and the engine's libraries)."""
        return {"peak": memory("VmHWM"), "before": self.before}


def end_with_parent() -> None:
    """A stopped process would not notice that nobody is left to talk to."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    end_with_parent()
    # The engine's output goes to the log.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = None
    for line in sys.stdin:
        message = json.loads(line)
        name = message.pop("do")
        try:
            if name == "start":
                worker = Worker(**message)
                result, seconds = None, 0.0
            else:
                start = time.perf_counter()
                result = getattr(worker, name)(**message)
                seconds = time.perf_counter() - start
            answer = {"seconds": seconds, "result": result}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    # The engines' own clean-up at exit takes time and tells nothing.
    os._exit(0)


if __name__ == "__main__":
    main()
