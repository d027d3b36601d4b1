#!/usr/bin/env python3
"""`llmcc serve` beside llama.cpp's server, on one GGUF file and machine.

    python3 benches/peers/serving.py MODEL.gguf --peer /path/to/llama-server
    python3 benches/peers/serving.py MODEL.gguf --peer ... --users 8 --rounds 5 --prompt 512 --tokens 32

Users ask for streams of /v1/completions in a closed loop: the next request follows when the last one has ended. Prompts are words, none the
same, so nothing is cached. Both servers have the same threads; llama.cpp's has as many slots as there are users. Servers take turns in each round, and the ratio
of each round is taken. The client's own share of the processor is printed, since it runs on the same cores. Needs a release build of llmcc (or
LLMCC=PATH) and a `llama-server` of yours: where llama.cpp crashes on a processor with AMX, build it with GGML_NATIVE=OFF and the other instruction sets.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

ROOT = Path(__file__).resolve().parents[2]
WORDS = "time year people way day man thing woman life child world school state family student group country problem hand part place case week".split()


@dataclass
class Load:
    """How much is asked for, of a server at `port`."""

    port: int
    model: str
    users: int
    requests: int
    prompt: int
    tokens: int
    seed: int


@dataclass
class Seen:
    """What the streams took, in seconds."""

    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    whole: float = 0.0
    client: float = 0.0


def request(load: Load, number: int) -> bytes:
    """The bytes of a request."""
    rng = random.Random(load.seed * 100_000 + number)
    body = {"model": load.model, "prompt": " ".join(rng.choice(WORDS) for _ in range(load.prompt)), "max_tokens": load.tokens, "temperature": 0}
    text = json.dumps({**body, "stream": True, "ignore_eos": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n"
    return head.encode() + text


async def stream(load: Load, number: int, seen: Seen) -> None:
    """One request, and the times of its events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", load.port)
    last = time.perf_counter()
    writer.write(request(load, number))
    events = 0
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        choices = json.loads(line[6:]).get("choices")
        if choices is None:
            sys.exit(f"the server refuses a request: {line.decode()}")
        if not choices or not choices[0]["text"]:
            continue
        now = time.perf_counter()
        (seen.gaps if events else seen.first).append(now - last)
        last, events = now, events + 1
    writer.close()
    if not events:
        sys.exit("a stream had no text")


async def measure(load: Load) -> Seen:
    """All requests, by as many users at once."""
    seen, numbers, began = Seen(), iter(range(load.requests)), time.perf_counter()

    async def user() -> None:
        for number in numbers:
            await stream(load, number, seen)

    used = resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.gather(*[user() for _ in range(load.users)])
    seen.whole, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    seen.client = (now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime) / seen.whole
    return seen


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def served(command: list[str], port: int, load: Load, log: Path) -> Seen:
    """Starts a server, warms it up, and measures it."""
    with log.open("w") as out, subprocess.Popen([*command, "--port", str(port)], stdout=out, stderr=out) as server:
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)
                    break
                except OSError:
                    if server.poll() is not None:
                        sys.exit(f"{command[0]} ended with {server.returncode}: {log.read_text()[-500:]}")
                    time.sleep(0.1)
            asyncio.run(measure(Load(port, load.model, 1, 1, load.prompt, 8, load.seed + 1)))
            return asyncio.run(measure(load))
        finally:
            server.terminate()


def at(values: list[float], part: float) -> float:
    """A quantile, in milliseconds."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] * 1e3


def line(name: str, load: Load, seen: Seen) -> str:
    rate = load.requests * load.tokens / seen.whole
    first, gap = (f"{at(v, 0.5):.1f}, {at(v, 0.95):.1f} ms" for v in (seen.first, seen.gaps))
    return f"{load.users:3} users  {name:10} {rate:8.1f} tokens/s  first token {first}  next {gap}  client {100 * seen.client:.0f} % of a core"


def main(arguments: Optional[list[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--peer", type=Path, required=True, help="a llama-server")
    parser.add_argument("--users", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=128, help="words of each prompt")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each text")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args(arguments)
    llmcc = os.environ.get("LLMCC", str(ROOT / "target/release/llmcc"))
    with tempfile.TemporaryDirectory() as folder:
        artifact = Path(folder) / "model.so"
        subprocess.run([llmcc, "compile", args.model, "--target", "native", "-o", artifact, "-q"], check=True)
        for users in args.users:
            ratios = []
            for turn in range(args.rounds):
                load = Load(free_port(), "model", users, max(6, 2 * users), args.prompt, args.tokens, turn)
                room = users * (2 * args.prompt + args.tokens + 64)
                ours = [llmcc, "serve", str(artifact), "--threads", str(args.threads)]
                theirs = [str(args.peer), "-m", str(args.model), "-t", str(args.threads), "-tb", str(args.threads), "-np", str(users), "-c", str(room)]
                pair = [("llmcc", ours), ("llama.cpp", theirs)]
                whole = {}
                for name, command in pair if turn % 2 == 0 else reversed(pair):
                    seen = served(command, load.port, load, Path(folder) / f"{name}.log")
                    print(line(name, load, seen), flush=True)
                    whole[name] = seen.whole
                ratios.append(whole["llama.cpp"] / whole["llmcc"])
            print(f"{users:3} users  ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


if __name__ == "__main__":
    main()
