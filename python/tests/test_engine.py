"""Engines, on a real artifact (LLMCC_TEST_ARTIFACT): texts, order, ends, threads and tasks."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

import llmcc

PATH = os.environ.get("LLMCC_TEST_ARTIFACT")
pytestmark = pytest.mark.skipif(not PATH, reason="skipped: set LLMCC_TEST_ARTIFACT to an artifact with a tokenizer")
PROMPT = os.environ.get("LLMCC_TEST_PROMPT", "Once upon a time")
LONG: dict[str, Any] = {"max_tokens": 100_000, "ignore_eos": True}


@pytest.fixture(scope="module")
def model() -> Iterator[llmcc.Model]:
    with llmcc.load(PATH or "", max_tokens=16384) as opened:
        yield opened


@pytest.fixture
def engine(model: llmcc.Model) -> Iterator[llmcc.Engine]:
    with llmcc.Engine(model) as opened:
        yield opened


def test_texts_are_those_of_the_model(model: llmcc.Model, engine: llmcc.Engine) -> None:
    drawn: dict[str, Any] = dict(temperature=0.9, seed=4, max_tokens=9)
    assert engine.generate(PROMPT, max_tokens=12) == model.generate(PROMPT, max_tokens=12)
    assert engine.complete(PROMPT, logprobs=2, **drawn) == model.complete(PROMPT, logprobs=2, **drawn)
    assert engine.generate([PROMPT, PROMPT + " x"], **drawn) == model.generate([PROMPT, PROMPT + " x"], **drawn)
    assert list(engine.stream(PROMPT, max_tokens=12)) == list(model.stream(PROMPT, max_tokens=12))
    tokens = model.tokenize(PROMPT)
    assert engine.generate(tokens, max_tokens=5) == model.generate(tokens, max_tokens=5)
    guessed = engine.complete(PROMPT, max_tokens=40, draft="lookup")
    assert guessed.tokens == model.complete(PROMPT, max_tokens=40).tokens


def test_many_threads(model: llmcc.Model, engine: llmcc.Engine) -> None:
    prompts = [PROMPT + " " + "a b"[i % 3 :] * (i % 5) for i in range(24)]
    expected = [model.generate(prompt, max_tokens=8, temperature=0.8, seed=i) for i, prompt in enumerate(prompts)]
    got: list[str] = [""] * len(prompts)

    def ask(i: int) -> None:
        got[i] = engine.generate(prompts[i], max_tokens=8, temperature=0.8, seed=i, priority=i % 3)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == expected
    stats = engine.stats()
    assert (stats["finished"], stats["running"], stats["waiting"]) == (24, 0, 0)
    assert stats["reused_tokens"] > 0 and stats["steps"] < sum(8 + len(p) for p in prompts)


def test_tasks(model: llmcc.Model, engine: llmcc.Engine) -> None:
    expected = model.generate(PROMPT, max_tokens=12)

    async def work() -> None:
        assert await asyncio.gather(*(engine.agenerate(PROMPT, max_tokens=12) for _ in range(9))) == [expected] * 9
        assert "".join([text async for text in engine.astream(PROMPT, max_tokens=12)]) == expected
        task = asyncio.create_task(engine.agenerate(PROMPT, **LONG))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    wait_until(lambda: engine.stats()["running"] == 0)
    assert engine.stats()["cancelled"] == 1


def test_a_prompt_is_computed_once(model: llmcc.Model, engine: llmcc.Engine) -> None:
    long = model.tokenize(PROMPT * 8)
    first = engine.submit(long, max_tokens=3)
    first.result()
    again = engine.submit(long, max_tokens=3)
    other = engine.submit(long, max_tokens=3, salt=7)
    assert first.result() == again.result() == other.result()
    assert (first.reused_tokens, again.reused_tokens, other.reused_tokens) == (0, len(long) - 1, 0)
    assert again.times is not None and 0 <= again.times.waited <= again.times.first_token <= again.times.total
    with llmcc.Engine(model, prefixes=False) as cold:
        cold.generate(long, max_tokens=3)
        request = cold.submit(long, max_tokens=3)
        assert request.result() == first.result() and request.reused_tokens == 0


def test_beginnings_survive(model: llmcc.Model, tmp_path: Path) -> None:
    folder, prompt = tmp_path / "cache", model.tokenize(PROMPT * 8)
    alone = model.generate(prompt, max_tokens=12)
    reused = []
    for _ in range(2):
        with llmcc.Engine(model, cache_dir=folder) as engine:
            request = engine.submit(prompt, max_tokens=12)
            assert request.result().text == alone
            reused.append(request.reused_tokens)
            stats = engine.stats()
    # Whole pages are in files.
    whole = (len(prompt) - 1) // 16 * 16
    assert reused[0] == 0 and whole <= reused[1] < len(prompt), (reused, len(prompt))
    assert stats["disk_parts"] >= 1 and stats["disk_bytes"] > 0 and stats["disk_errors"] == 0 and stats["disk_tokens"] >= whole
    with llmcc.Engine(model, cache_dir=folder, cache_dir_bytes=1) as engine:
        assert engine.stats().get("disk_parts", 0) == 0
    (tmp_path / "file").write_text("")
    with pytest.raises(llmcc.LlmccError, match="file"):
        llmcc.Engine(model, cache_dir=tmp_path / "file")
    with pytest.raises(llmcc.LlmccError, match="NO_PREFIXES"):
        llmcc.Engine(model, cache_dir=folder, prefixes=False)
    with pytest.raises(llmcc.LlmccError, match="without a cache_dir"):
        llmcc.Engine(model, cache_dir_bytes=1)


def test_sessions_are_saved(model: llmcc.Model) -> None:
    with model.session() as session:
        session.generate(PROMPT, max_tokens=10)
        saved = session.save()
        with model.session(saved=saved) as other:
            assert other.tokens == session.tokens
            assert other.generate(" and", max_tokens=20) == session.generate(" and", max_tokens=20)
    assert isinstance(saved, bytes)
    with pytest.raises(llmcc.LlmccError, match="damaged"):
        model.session(saved=saved[:-40] + bytes([saved[-40] ^ 1]) + saved[-39:])
    with pytest.raises(llmcc.LlmccError, match="type bytes"):
        model.session(saved="text")  # type: ignore[arg-type]


def test_ends(engine: llmcc.Engine) -> None:
    request = engine.submit(PROMPT, **LONG)
    assert next(iter(request)).token >= 0
    with pytest.raises(TimeoutError, match="goes on"):
        request.result(timeout=0.01)
    request.cancel()
    with pytest.raises(llmcc.LlmccError, match="cancelled") as error:
        request.result()
    assert error.value.status == llmcc.Status.INTERRUPTED and request.done
    with pytest.raises(llmcc.LlmccError, match="deadline") as error:
        engine.generate(PROMPT, timeout=0.05, **LONG)
    assert error.value.status == llmcc.Status.DEADLINE
    stream = engine.stream(PROMPT, **LONG)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    wait_until(lambda: engine.stats()["running"] == 0)


def test_errors(model: llmcc.Model, engine: llmcc.Engine) -> None:
    with pytest.raises(llmcc.LlmccError, match="outside the vocabulary"):
        engine.submit([1 << 30])
    with pytest.raises(llmcc.LlmccError, match="no tokens"):
        engine.submit([])
    with pytest.raises(TypeError, match="max_tokens"):
        engine.submit(PROMPT, max_new_tokens=3)  # type: ignore[call-arg]
    with pytest.raises(llmcc.LlmccError, match="positive number of seconds"):
        engine.submit(PROMPT, timeout=0)
    with pytest.raises(llmcc.LlmccError, match="no other model"):
        engine.submit(PROMPT, draft=model)
    with llmcc.Engine(model, max_running=1, max_queued=1) as small:
        kept = [small.submit(PROMPT, **LONG) for _ in range(2)]
        with pytest.raises(llmcc.LlmccError, match="max_queued") as error:
            small.submit(PROMPT)
        assert error.value.status == llmcc.Status.BUSY
    for request in kept:
        with pytest.raises(llmcc.LlmccError, match="closed"):
            request.result()
    with pytest.raises(llmcc.LlmccError, match="the engine is closed"):
        small.submit(PROMPT)


def test_forgotten_engines_are_closed(model: llmcc.Model) -> None:
    engine = llmcc.Engine(model)
    engine.submit(PROMPT, **LONG)
    thread = engine._thread
    del engine
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
    assert model.stats()["sequences"] == 0


def test_texts_are_steered(model: llmcc.Model, engine: llmcc.Engine) -> None:
    plain = model.complete(PROMPT, max_tokens=12)
    words = [model.detokenize([token]) for token in plain.tokens[:1]]
    banned = engine.complete(PROMPT, max_tokens=12, bad_words=[plain.tokens[:1], *[word for word in words if word.strip()]])
    assert plain.tokens[0] not in banned.tokens
    assert banned == model.complete(PROMPT, max_tokens=12, bad_words=[plain.tokens[:1], *[word for word in words if word.strip()]])
    varied = engine.complete(PROMPT, max_tokens=40, presence_penalty=100.0)
    assert len(set(varied.tokens)) == len(varied.tokens)
    assert engine.complete(PROMPT, max_tokens=12, frequency_penalty=0.5) == model.complete(PROMPT, max_tokens=12, frequency_penalty=0.5)
    stopped = engine.complete(PROMPT, max_tokens=12, stop_tokens=plain.tokens[:1])
    assert len(stopped.tokens) == 1
    later = engine.complete(PROMPT, max_tokens=12, stop_tokens=plain.tokens[:1], min_tokens=5)
    assert len(later.tokens) > 5 or later.finish == "token"
    assert plain.tokens[0] not in later.tokens[:5]


def test_texts_have_a_form(model: llmcc.Model, engine: llmcc.Engine) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"], "additionalProperties": False}
    for seed in range(6):
        drawn: dict[str, Any] = dict(temperature=1.0, seed=seed, max_tokens=480)
        text = engine.generate(PROMPT, json_schema=schema, **drawn)
        value = json.loads(text)
        assert set(value) == {"a", "b"} and value["a"] <= 99 and value["b"] in ("x", "y")
        assert model.generate(PROMPT, json_schema=json.dumps(schema), **drawn) == text
        assert engine.generate(PROMPT, json_schema=schema, draft="lookup", **drawn) == text
        assert engine.generate(PROMPT, choices=["yes", "no"], **drawn) in ("yes", "no")
        assert re.fullmatch("[0-9]{3}-[a-f]{2}", engine.generate(PROMPT, regex="[0-9]{3}-[a-f]{2}", **drawn))
        assert engine.generate(PROMPT, grammar='start: "(" start ")" | "."', **drawn).strip("()") in (".", "")
    with pytest.raises(llmcc.LlmccError, match="the JSON schema is refused"):
        engine.generate(PROMPT, json_schema={"type": "thing"})
    with pytest.raises(TypeError, match="one form"):
        engine.generate(PROMPT, regex="a", choices=["b"])
    with pytest.raises(TypeError, match="json_schema"):
        engine.generate(PROMPT, response_format={})  # type: ignore[call-overload]


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
