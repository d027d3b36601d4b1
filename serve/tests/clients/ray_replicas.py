#!/usr/bin/env python3
"""Three replicas under Ray on one machine, one killed during 48 streams: each stream ends with the bytes of an undisturbed run.

The Python that runs this has what ray-requirements.txt lists, and the package llmcc. Run by `make test-clients`.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from run import compiled

STREAMS = 48
URL = "http://127.0.0.1:{}"
PLACE = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 200}, "days": {"type": "integer"}}, "required": ["city", "days"]}


def ask(i: int) -> tuple[str, dict]:
    """A path and a request: greedy, seeded, of a form, with two choices, a response, a message."""
    prompt, messages = f"def f{i}(", [{"role": "user", "content": f"Say {i}."}]
    return [
        ("/v1/completions", {"prompt": prompt, "max_tokens": 300, "temperature": 0}),
        ("/v1/completions", {"prompt": prompt, "max_tokens": 300, "temperature": 1, "seed": i, "logprobs": 1}),
        ("/v1/chat/completions", {"messages": messages, "max_tokens": 300, "seed": i, "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PLACE}}}),
        ("/v1/chat/completions", {"messages": messages, "max_tokens": 200, "n": 2, "seed": i, "stream_options": {"include_usage": True}}),
        ("/v1/responses", {"input": f"Say {i}.", "max_output_tokens": 200, "seed": i}),
        ("/v1/messages", {"messages": messages, "max_tokens": 200, "seed": i}),
    ][i % 6]


def post(url: str, path: str, body: dict, heard: threading.Event | None = None) -> bytes:
    """The bytes of a stream; `heard` is set when some have come."""
    data = json.dumps({**body, "stream": True}).encode()
    request = urllib.request.Request(url + path, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        out = b""
        while new := answer.read1():
            out += new
            if heard is not None and len(out) > 2000:
                heard.set()
        return out


def constant(text: bytes) -> list[bytes]:
    """Events of a stream without what differs from run to run, each choice's together: several choices come in any order."""
    text = re.sub(rb'"(id|item_id)":"[^"]*"', rb'"\1":0', text)
    text = re.sub(rb'"(created|created_at|cached_tokens|cache_read_input_tokens|input_tokens)":[0-9]+', rb'"\1":0', text)
    index = re.compile(rb'"index":(\d+)')
    events = [event for event in text.split(b"\n\n") if event]
    return sorted(events, key=lambda event: int(found.group(1)) if b'"choices"' in event and (found := index.search(event)) else 0)


def streams(url: str, disturb: callable | None = None) -> list[list[bytes]]:
    """All streams at once."""
    results: list = [None] * STREAMS
    heard = [threading.Event() for _ in range(STREAMS)]

    def one(i: int) -> None:
        try:
            results[i] = constant(post(url, *ask(i), heard[i]))
        except (OSError, urllib.error.HTTPError) as error:
            results[i] = [repr(error).encode()]
        heard[i].set()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(STREAMS)]
    for thread in threads:
        thread.start()
    if disturb is not None:
        for event in heard[: STREAMS // 4]:
            event.wait()
        disturb()
    for thread in threads:
        thread.join()
    return results


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--llmcc", default=os.environ.get("LLMCC", "llmcc"), help="the compiler")
    args = args.parse_args()
    # (Ray's own patience is too short for machines that have much else to do.)
    os.environ.update(LLMCC=os.path.abspath(args.llmcc), RAY_USAGE_STATS_ENABLED="0", RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S="120", RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S="120")
    import llmcc.ray
    import ray
    from ray import serve
    from ray.serve._private import api

    api.HTTP_PROXY_TIMEOUT = 600
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error", runtime_env={"env_vars": {"LLMCC": os.environ["LLMCC"]}})
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        artifact = compiled(args.llmcc, pathlib.Path(folder))
        serve.start(http_options={"host": "127.0.0.1", "port": 8700}, logging_config={"log_level": "ERROR"})
        url = URL.format(8700)
        serve.run(llmcc.ray.app(artifact, replicas=3, cpus=0.25, options=["--threads", "1"]), name="llmcc", route_prefix="/")
        want = streams(url)
        assert all(len(events) > 5 for events in want), [events[:1] for events in want if len(events) <= 5]
        assert streams(url) == want, "streams differ without any fault"
        replicas = serve.get_deployment_handle("llmcc", "llmcc")
        for victim in ("the server's process", "the actor and its server", "the actor alone"):
            actor, server = replicas.pids.remote().result()

            def kill() -> None:
                for pid in {"the server's process": [server], "the actor alone": [actor]}.get(victim, [actor, server]):
                    os.kill(pid, signal.SIGKILL)

            began = time.monotonic()
            got = streams(url, kill)
            wrong = [i for i in range(STREAMS) if got[i] != want[i]]
            print(f"SIGKILL of {victim}: {STREAMS - len(wrong)} of {STREAMS} streams end as they would have ({time.monotonic() - began:.1f} s)", flush=True)
            for i in wrong[:3]:
                print(f"  stream {i}: {len(got[i])} events for {len(want[i])}; the last one: {got[i][-1][:300]!r}")
            failed += len(wrong)
            # Until Ray has another replica.
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and serve.status().applications["llmcc"].status != "RUNNING":
                time.sleep(0.2)
            time.sleep(3)
        serve.shutdown()
    ray.shutdown()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
