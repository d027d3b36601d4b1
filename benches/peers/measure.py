"""Runs the engines in turns, one computing at a time."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

import environment
from cases import Case, Entrant, OURS

HERE = Path(__file__).parent
TRIALS = 2  # turns that decide between the settings of an engine, after one to warm up


class Failed(Exception):
    """An engine could not do it."""


@dataclass
class Plan:
    """The settings of the children: Python, log folder, and where the converted models are."""

    python: Path
    logs: Path
    rounds: int
    stored: Callable[[Entrant, str], Path]


@dataclass
class Measured:
    """One entrant in one case: seconds of each round, or why there are none."""

    entrant: Entrant
    seconds: list[float] = field(default_factory=list)
    peak: int = 0
    before: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    error: Optional[str] = None


class Child:
    """A worker. Stopped (SIGSTOP) whenever it is not its turn, so that spinning threads of one engine take nothing from the next."""

    def __init__(self, plan: Plan, entrant: Entrant) -> None:
        log = plan.logs / f"{entrant.engine} {entrant.format}.log".replace(" ", "-")
        env = environment.clean() | {"PYTHONPATH": str(HERE.parent.parent / "python")}
        with log.open("a") as err:
            command = [str(plan.python), str(HERE / "worker.py")]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True, env=env)
        self.log = log
        self.call("start", name=entrant.engine)

    def call(self, do: str, **arguments: Any) -> tuple[float, Any]:
        """Seconds as the worker measured them, and the result."""
        assert self.process.stdin and self.process.stdout
        os.kill(self.process.pid, signal.SIGCONT)
        try:
            self.process.stdin.write(json.dumps({"do": do} | arguments) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Failed(f"the process ended with status {self.process.wait()}, see {self.log}")
        os.kill(self.process.pid, signal.SIGSTOP)
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["seconds"], answer["result"]

    def quit(self) -> None:
        self.process.kill()
        self.process.wait()


def opened(plan: Plan, entrant: Entrant, case: Case, settings: dict[str, Any], turns: int) -> tuple[Child, float]:
    """A child with the model open, and how long that took."""
    child = Child(plan, entrant)
    task = {"kind": case.kind, "threads": case.threads, "sequences": case.sequences, "prompt": case.prompt, "depth": case.depth, "kv": case.kv}
    try:
        path = str(plan.stored(entrant, case.kv))
        return child, child.call("open", path=path, task=task, context=case.context(turns), settings=settings)[0]
    except Failed:
        child.quit()
        raise


class Player:
    """An entrant in a case, between turns."""

    def __init__(self, plan: Plan, entrant: Entrant, case: Case) -> None:
        self.plan, self.case = plan, case
        self.turns = plan.rounds + TRIALS + 1
        self.child: Optional[Child] = None
        self.result = Measured(entrant)

    def warm_up(self) -> None:
        """Tries every setting and keeps the fastest, open and ready."""
        best = math.inf
        for settings in self.result.entrant.module.settings(self.case, self.result.entrant.format):
            before, settings_before = self.child, self.result.settings
            self.child, self.result.settings = None, settings
            seconds = self._trial()
            if seconds < best:
                best, loser = seconds, before
            else:
                loser, self.child, self.result.settings = self.child, before, settings_before
            if loser:
                loser.quit()
        if math.isinf(best):
            raise Failed(self.result.error or "no setting works")
        self.result.error = None

    def _trial(self) -> float:
        try:
            if self.case.kind != "load":
                self.child, _ = opened(self.plan, self.result.entrant, self.case, self.result.settings, self.turns)
                if self.case.depth:
                    self.child.call("prompt")
            self.turn()
            return min(self.turn() for _ in range(TRIALS))
        except Failed as failure:
            self.result.error = str(failure)
            return math.inf

    def turn(self) -> float:
        """Seconds of one turn."""
        if self.case.kind == "load":
            self.quit()
            self.child, seconds = opened(self.plan, self.result.entrant, self.case, self.result.settings, 1)
            return seconds + self.child.call("prompt")[0]
        assert self.child
        if self.case.kind == "prefill":
            return self.child.call("prompt")[0]
        if not self.case.depth:
            self.child.call("prompt")
        return self.child.call("steps", n=self.case.steps)[0]

    def finish(self) -> Measured:
        if self.child and not self.result.error:
            memory = self.child.call("memory")[1]
            self.result.peak, self.result.before = memory["peak"], memory["before"]
            self.result.version = self.child.call("describe")[1]
        self.quit()
        return self.result

    def quit(self) -> None:
        if self.child:
            self.child.quit()
            self.child = None

    def attempt(self, action: Callable[[], Any]) -> Any:
        """The action's result, or None when it fails: then this entrant is out, and the result says why."""
        try:
            return action()
        except Failed as failure:
            self.result.error = str(failure)
            self.result.seconds = []
            self.quit()
            return None


def run_case(plan: Plan, case: Case, entrants: list[Entrant]) -> list[Measured]:
    """All entrants in turns: round by round, in an order that turns around each time."""
    players = [Player(plan, entrant, case) for entrant in entrants]
    try:
        for player in players:
            note(f"{case.name}: {player.result.entrant} warms up")
            player.attempt(player.warm_up)
        for index in range(plan.rounds):
            note(f"{case.name}: round {index + 1} of {plan.rounds}")
            for player in players if index % 2 == 0 else players[::-1]:
                seconds = None if player.result.error else player.attempt(player.turn)
                if seconds is not None:
                    player.result.seconds.append(seconds)
        return [player.attempt(player.finish) or player.result for player in players]
    finally:
        for player in players:
            player.quit()
        note("")


def agreement(plan: Plan, case: Case, entrants: list[Entrant]) -> dict[str, Optional[float]]:
    """Cosine between the logits of each entrant and the logits of our least rounded one, after the
    same prompt: whether all run the same model."""
    rows: dict[Entrant, Optional[array[float]]] = {}
    for entrant in sorted(set(entrants), key=lambda e: (e.engine != OURS, -e.bits, e.format)):
        note(f"logits: {entrant}")
        rows[entrant] = _logits(plan, case, entrant)
    note("")
    reference = next(iter(rows.values()))
    return {str(e): cosine(row, reference) if row and reference else None for e, row in rows.items()}


def _logits(plan: Plan, case: Case, entrant: Entrant) -> Optional[array[float]]:
    path = plan.logs / "logits.f32"
    for settings in entrant.module.settings(case, entrant.format):
        try:
            child, _ = opened(plan, entrant, case, settings, 1)
        except Failed as failure:
            print(f"{entrant}: {failure}", file=sys.stderr)
            continue
        try:
            child.call("prompt")
            if child.call("logits", path=str(path))[1]:
                return array("f", path.read_bytes())
        except Failed as failure:
            print(f"{entrant}: {failure}", file=sys.stderr)
        finally:
            child.quit()
    return None


def cosine(a: array[float], b: array[float]) -> float:
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def note(text: str) -> None:
    """A line of progress, on terminals only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
