"""Processes that do items of the plan, each with a folder of its own: one that dies takes nothing from the others."""

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from rows import UNFINISHED

HERE = Path(__file__).resolve().parent
# Seconds that a worker may take to start (PyTorch from a cold disk), how often it may fail to, and how long a killed one may take to go: the driver tidies up after it.
START, STARTS, GONE = 120, 3, 20
# Bytes of a worker's own output that are kept of its end.
TAIL = 1500
# Kernels of one signature that may hang before the others are left out.
HANGS = 2


class Worker:
    """A process that takes items."""

    def __init__(self, folder, options, scratch):
        ours, theirs = os.pipe()
        self.log = tempfile.TemporaryFile()
        start = json.dumps({"folder": str(folder), "options": options, "scratch": str(scratch)})
        command = [sys.executable, str(HERE / "worker.py"), start, str(theirs)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self.log, stderr=self.log, pass_fds=[theirs], start_new_session=True
        )
        os.close(theirs)
        self.pipe, self.left = ours, b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(ours, selectors.EVENT_READ)

    def send(self, item):
        self.process.stdin.write(json.dumps(item.described()).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self, until):
        """The next message; raises `TimeoutError` or, when the process has ended, `EOFError`."""
        while b"\n" not in self.left:
            if not self.selector.select(max(0, until - time.monotonic())):
                raise TimeoutError
            data = os.read(self.pipe, 1 << 16)
            if not data:
                raise EOFError
            self.left += data
        line, _, self.left = self.left.partition(b"\n")
        return json.loads(line)

    def said(self):
        """The end of its output."""
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - TAIL))
        return self.log.read().decode(errors="replace").strip()

    def end(self):
        """Kills it and its children; how it ended."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            status = self.process.wait(GONE)
        except subprocess.TimeoutExpired:
            # Inside the driver: it goes when the driver lets it.
            status = None
        self.selector.close()
        os.close(self.pipe)
        self.process.stdin.close()
        return status


class Shared:
    """State that all lanes of a call share: its end, its rows, the items not run, and the
    signatures that hang."""

    def __init__(self, rows, end, limit=None):
        self.rows, self.end, self.limit = rows, end, limit
        self.not_run, self.hangs, self.lock = [], Counter(), threading.Lock()

    def add(self, row):
        with self.lock:
            self.rows.add(row)

    def hung(self, signature):
        """Counts one more kernel of a signature that has hung."""
        with self.lock:
            self.hangs[signature] += bool(signature)

    def hopeless(self, item):
        """Whether an item would only hang as others have."""
        return self.hangs[item.signature] >= HANGS if item.signature else False


class Lane:
    """One worker after the other: a new one where the last has died."""

    def __init__(self, shared, folder, options, scratch, start=Worker):
        self.shared, self.folder, self.options, self.scratch, self.start = shared, folder, options, Path(scratch), start
        self.worker = self.own = None
        self.started = 0

    def run(self, items):
        """Runs the `items` for which there is time; several lanes may share them."""
        for item in items:
            if self.shared.rows.done(item.id):
                continue
            # Something shorter may still fit.
            if time.monotonic() + item.usual() > self.shared.end or not self.ready():
                self.shared.not_run.append(item.id)
            elif self.shared.hopeless(item):
                self.shared.add({"id": item.id, "kind": item.kind, "status": "skipped", "said": f"{HANGS} kernels of its signature hung"})
            else:
                self.one(item)

    def ready(self):
        """Whether there is a worker, started if need be."""
        for attempt in range(STARTS):
            if self.worker:
                return True
            self.own = self.scratch / f"worker-{id(self)}-{self.started}"
            self.own.mkdir()
            self.started += 1
            worker = self.start(self.folder, {**self.options, "shared": str(self.scratch)}, self.own)
            try:
                facts = worker.receive(min(time.monotonic() + START, self.shared.end))["ready"]
                self.worker = worker
                if facts and "facts" not in self.shared.rows.rows:
                    self.shared.add({"id": "facts", **facts})
            except (EOFError, TimeoutError):
                worker.end()
                self.clear()
                if time.monotonic() >= self.shared.end:
                    return False
                row = {"id": f"worker:{attempt}", "kind": "worker", "status": "died", "said": f"does not start: {worker.said()}"}
                self.shared.add(row)
        if not self.worker:
            # Without one, nothing can be done.
            self.shared.end = 0
        return self.worker is not None

    def one(self, item):
        began = time.monotonic()
        until = min(began + (self.shared.limit or item.limit()), self.shared.end)
        row = {"id": item.id, "kind": item.kind}
        try:
            self.worker.send(item)
            while not (message := self.worker.receive(until)).get("done"):
                self.shared.add({**message["row"], "seconds": round(time.monotonic() - began, 3)})
            row, alive = message["row"], message["alive"]
        except TimeoutError:
            # The deadline of the call is nobody's fault.
            row["status"] = UNFINISHED if until == self.shared.end else "timeout"
            row["said"], alive = f"killed after {time.monotonic() - began:.0f} s", False
            if row["status"] == "timeout":
                self.shared.hung(item.signature)
        except (EOFError, BrokenPipeError):
            row["status"], alive = "died", False
        if not alive:
            status, said = self.end()
            if row["status"] == "died":
                row["said"] = f"ended with {status}: {said}"
            elif said:
                row["said"] = f"{row.get('said', '')}; it printed: {said[-600:]}"
        self.shared.add({**row, "seconds": round(time.monotonic() - began, 3)})

    def end(self):
        """Ends the worker, if there is one: how it ended, and its output."""
        if not self.worker:
            return None, ""
        status, said = self.worker.end(), self.worker.said()
        self.worker = None
        self.clear()
        return status, said

    def clear(self):
        """Removes the worker's files: gigabytes of weights. Files of others lie elsewhere."""
        shutil.rmtree(self.own, ignore_errors=True)


def side_by_side(lanes, items):
    """Does `items` in several lanes, each taking the next."""
    queue, lock = iter(items), threading.Lock()

    def taken():
        while True:
            with lock:
                item = next(queue, None)
            if item is None:
                return
            yield item

    threads = [threading.Thread(target=lane.run, args=(taken(),), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for lane in lanes:
        lane.end()
