"""Awaited methods, on a real artifact (LLMCC_TEST_ARTIFACT): results, order, errors, cancellation."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import Any, Iterator

import pytest

import llmcc

PATH = os.environ.get("LLMCC_TEST_ARTIFACT")
RANKER = os.environ.get("LLMCC_TEST_RANKER")
CLASSES = os.environ.get("LLMCC_TEST_CLASSES")
pytestmark = pytest.mark.skipif(not PATH, reason="skipped: set LLMCC_TEST_ARTIFACT to an artifact with a tokenizer")
PROMPT = os.environ.get("LLMCC_TEST_PROMPT", "Once upon a time")
LONG = {"max_tokens": 100_000, "ignore_eos": True}


@pytest.fixture(scope="module")
def model():
    with llmcc.load(PATH, max_tokens=16384) as opened:
        yield opened


def sequences(model: llmcc.Model) -> int:
    # (Other tests may have left a session to the collector.)
    gc.collect()
    count: int = model.stats()["sequences"]
    return count


async def cancelled(task: "asyncio.Task[Any]") -> float:
    """Cancels a task; how long it took to end."""
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return time.monotonic() - start


def test_results_are_those_of_plain_calls(model: llmcc.Model) -> None:
    messages = [{"role": "user", "content": PROMPT}]
    tokens = model.tokenize(PROMPT)

    async def work() -> None:
        assert await model.agenerate(PROMPT, max_tokens=12) == model.generate(PROMPT, max_tokens=12)
        assert await model.agenerate([PROMPT, tokens[:2]], max_tokens=12, max_batch=1) == model.generate([PROMPT, tokens[:2]], max_tokens=12)
        drawn: dict[str, Any] = dict(temperature=0.9, seed=4, max_tokens=9, logprobs=2)
        assert await model.acomplete(PROMPT, prompt_logprobs=1, **drawn) == model.complete(PROMPT, prompt_logprobs=1, **drawn)
        assert [text async for text in model.astream(PROMPT, max_tokens=12)] == list(model.stream(PROMPT, max_tokens=12))
        both = [found async for found in model.astream([PROMPT, tokens[:2]], max_tokens=6)]
        assert sorted(both, key=lambda f: f[0]) == sorted(model.stream([PROMPT, tokens[:2]], max_tokens=6), key=lambda f: f[0])
        assert await model.agenerate([]) == []
        assert await model.ascore([tokens, tokens[:3]], top=2) == model.score([tokens, tokens[:3]], top=2)
        if model.info["has_chat_template"]:
            assert await model.achat(messages, max_tokens=8) == model.chat(messages, max_tokens=8)
            assert "".join([text async for text in model.achat_stream(messages, max_tokens=8)]) == model.chat(messages, max_tokens=8)

    asyncio.run(work())


@contextmanager
def counted_steps(model: llmcc.Model) -> "Iterator[list[int]]":
    """Counts the steps of awaited generations: for each how many there were in it."""
    library, worker, found = model._lib, model._worker, []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            if name != "gen_next_batch":
                return getattr(library, name)

            def step(handles: Any, n: int, pieces: Any) -> None:
                found.append(n)
                library.gen_next_batch(handles, n, pieces)

            return step

    add = worker.add
    worker.add = lambda _, lives: add(Counted(), lives)  # type: ignore[method-assign, arg-type]
    try:
        yield found
    finally:
        worker.add = add  # type: ignore[method-assign]


def test_generations_that_are_awaited_together_share_steps(model: llmcc.Model) -> None:
    prompts = [model.tokenize(PROMPT)[: 2 + i % 5] for i in range(24)]
    alone = [model.generate(p, max_tokens=10 + i, ignore_eos=True) for i, p in enumerate(prompts)]

    async def work() -> "list[str]":
        return list(await asyncio.gather(*(model.agenerate(p, max_tokens=10 + i, ignore_eos=True) for i, p in enumerate(prompts))))

    with counted_steps(model) as steps:
        assert asyncio.run(work()) == alone
    # One after the other they would take 516.
    assert 33 <= len(steps) < 150 and max(steps) > 1
    assert sequences(model) == 0


def test_lists_go_on_as_many_at_once_as_they_may(model: llmcc.Model) -> None:
    async def work() -> None:
        await asyncio.gather(
            model.agenerate([PROMPT] * 6, max_tokens=5, max_batch=2, ignore_eos=True), model.agenerate([PROMPT] * 6, max_tokens=5, max_batch=3, ignore_eos=True)
        )

    with counted_steps(model) as steps:
        asyncio.run(work())
    assert max(steps) <= 5 and sum(steps) >= 60


def test_cancelling_ends_a_generation_within_a_step(model: llmcc.Model) -> None:
    async def work(steps: "list[int]") -> None:
        for _ in range(5):
            task = asyncio.create_task(model.agenerate(PROMPT, max_tokens=900, ignore_eos=True))
            before = len(steps)
            while len(steps) < before + 3:
                await asyncio.sleep(0.001)
            at = len(steps)
            await cancelled(task)
            # The step under way, and one that may have begun before the loop came to count.
            assert len(steps) <= at + 2
            assert sequences(model) == 0

    with counted_steps(model) as steps:
        asyncio.run(work(steps))


def test_calls_are_made_in_their_order(model: llmcc.Model) -> None:
    done: list[int] = []

    async def score(i: int) -> None:
        await model.ascore(model.tokenize(PROMPT) * (20 if i == 0 else 1))
        done.append(i)

    async def work() -> None:
        await asyncio.gather(*map(score, range(8)))

    asyncio.run(work())
    assert done == list(range(8))


def test_a_long_generation_does_not_hold_up_other_calls(model: llmcc.Model) -> None:
    async def work() -> None:
        long = asyncio.create_task(model.agenerate(PROMPT, max_tokens=900, ignore_eos=True))
        await asyncio.sleep(0.05)
        assert await model.ascore(PROMPT) == model.score(PROMPT)
        assert await model.agenerate(PROMPT, max_tokens=2) == model.generate(PROMPT, max_tokens=2)
        assert not long.done()
        await cancelled(long)

    asyncio.run(work())


def test_cancelled_generations_end_and_free_their_sequences(model: llmcc.Model) -> None:
    async def work() -> None:
        other = asyncio.create_task(model.agenerate(PROMPT, max_tokens=60, ignore_eos=True))
        tasks = [asyncio.create_task(model.agenerate(PROMPT, max_tokens=900, ignore_eos=True)) for _ in range(3)]
        await asyncio.sleep(0.02)
        for task in tasks:
            assert await cancelled(task) < 5.0
        # The others go on.
        assert await other == model.generate(PROMPT, max_tokens=60, ignore_eos=True)
        assert sequences(model) == 0
        # Those that have not begun end, too.
        before = asyncio.create_task(model.agenerate(PROMPT, max_tokens=900))
        await asyncio.sleep(0)
        await cancelled(before)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(model.agenerate(PROMPT, max_tokens=900, ignore_eos=True), 0.05)
        assert sequences(model) == 0

    asyncio.run(work())
    assert model.generate(PROMPT, max_tokens=4) == model.generate(PROMPT, max_tokens=4)


def test_leaving_a_stream_ends_its_generation(model: llmcc.Model) -> None:
    async def work() -> None:
        stream = model.astream(PROMPT, max_tokens=900, ignore_eos=True)
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]
        assert sequences(model) == 0

        async def forgotten() -> None:
            async for _ in model.astream(PROMPT, max_tokens=900, ignore_eos=True):
                return

        await forgotten()
        gc.collect()
        for _ in range(200):
            await asyncio.sleep(0.01)
            if sequences(model) == 0:
                break
        assert sequences(model) == 0

    asyncio.run(work())


def test_cancelled_calls_are_interrupted_and_nothing_else_is(model: llmcc.Model) -> None:
    rows = [[(7 * i + j) % 200 + 10 for j in range(200)] for i in range(4000)]
    failures: list[BaseException] = []
    stop = threading.Event()
    expected = model.generate(PROMPT, max_tokens=12)

    def beside() -> None:
        # Calls of another thread, which the interrupts hit as well.
        try:
            while not stop.is_set():
                assert model.generate(PROMPT, max_tokens=12) == expected
        except BaseException as error:
            failures.append(error)

    async def work() -> None:
        for _ in range(3):
            task = asyncio.create_task(model.ascore(rows))
            await asyncio.sleep(0.2)
            # (Minutes, if nothing ended them.)
            assert await cancelled(task) < 10.0

    thread = threading.Thread(target=beside)
    thread.start()
    try:
        asyncio.run(work())
    finally:
        stop.set()
        thread.join()
    assert not failures
    assert sequences(model) == 0


def test_errors_come_from_the_await(model: llmcc.Model) -> None:
    async def work() -> None:
        with pytest.raises(TypeError, match="max_new_tokens is not a parameter here; use max_tokens"):
            await model.agenerate(PROMPT, max_new_tokens=8)  # type: ignore[call-overload]
        with pytest.raises(llmcc.LlmccError, match="top_p"):
            await model.agenerate(PROMPT, top_p=2.0)
        with pytest.raises(llmcc.LlmccError, match="outside the vocabulary"):
            async for _ in model.astream([model.vocab_size]):
                pass
        with pytest.raises(llmcc.LlmccError, match="scores no classes"):
            await model.aclassify(PROMPT)
        # One that fails does not disturb those beside it.
        results = await asyncio.gather(
            model.agenerate(PROMPT, max_tokens=5), model.agenerate([model.vocab_size]), model.agenerate(PROMPT, max_tokens=5), return_exceptions=True
        )
        assert results[0] == results[2] == model.generate(PROMPT, max_tokens=5) and isinstance(results[1], llmcc.LlmccError)

    asyncio.run(work())
    assert sequences(model) == 0


def test_an_error_of_a_step_comes_to_the_one_that_it_belongs_to() -> None:
    with llmcc.load(PATH, threads=1, max_tokens=64) as small:
        tokens = small.tokenize(PROMPT)

        async def work() -> None:
            fits = small.generate(tokens[:4], max_tokens=8, ignore_eos=True)
            long, short = await asyncio.gather(
                small.agenerate((tokens * 100)[:200], max_tokens=3), small.agenerate(tokens[:4], max_tokens=8, ignore_eos=True), return_exceptions=True
            )
            assert isinstance(long, llmcc.LlmccError) and long.status == llmcc.Status.CACHE_FULL
            assert short == fits

        asyncio.run(work())


def test_closed_models_say_so() -> None:
    opened = llmcc.load(PATH, threads=1, max_tokens=1024)

    async def work() -> None:
        stream = opened.astream(PROMPT, max_tokens=30, ignore_eos=True)
        first = await stream.__anext__()
        opened.close()
        # A stream under way goes on.
        assert first + "".join([text async for text in stream])
        with pytest.raises(llmcc.LlmccError, match="closed"):
            await opened.agenerate(PROMPT)

    asyncio.run(work())


def test_several_loops_share_a_model(model: llmcc.Model) -> None:
    expected = model.generate(PROMPT, max_tokens=16)
    found: list[str] = []

    async def work() -> None:
        found.extend(await asyncio.gather(*(model.agenerate(PROMPT, max_tokens=16) for _ in range(4))))

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 16


def test_a_loop_that_ends_leaves_nothing(model: llmcc.Model) -> None:
    async def work() -> None:
        asyncio.create_task(model.agenerate(PROMPT, max_tokens=900, ignore_eos=True))
        await asyncio.sleep(0.05)

    # (The loop cancels what is left, and waits for it.)
    asyncio.run(work())
    assert sequences(model) == 0


@pytest.mark.skipif(not (RANKER and CLASSES), reason="skipped: set LLMCC_TEST_RANKER and LLMCC_TEST_CLASSES")
def test_texts_are_embedded_ranked_and_classified() -> None:
    with llmcc.load(RANKER) as ranker, llmcc.load(CLASSES) as classifier:
        documents = ["money", "the cat sat on the mat", "the bank of the river"]

        async def work() -> None:
            ranked, rows, classes = await asyncio.gather(
                ranker.arank("what is a bank", documents, top_k=2, return_documents=True, batch_size=1),
                ranker.aembed(documents, numpy=False),
                classifier.aclassify([[1, 2, 3], [4, 5]], top_k=1),
            )
            assert ranked == ranker.rank("what is a bank", documents, top_k=2, return_documents=True) and len(ranked) == 2
            assert rows == ranker.embed(documents, numpy=False)
            assert classes == classifier.classify([[1, 2, 3], [4, 5]], top_k=1)

        asyncio.run(work())


INTERRUPTED = """
import asyncio, sys, time, llmcc
model = llmcc.load(sys.argv[1], max_tokens=16384)
async def one():
    async for text in model.astream("a", max_tokens=1000, ignore_eos=True):
        print("ready", flush=True)
async def main():
    await asyncio.gather(one(), model.agenerate(["a", "b"], max_tokens=1000, ignore_eos=True), model.ascore([[i % 200 + 9] * 900 for i in range(4000)]))
try:
    asyncio.run(main())
except KeyboardInterrupt:
    for _ in range(500):
        if model.stats()["sequences"] == 0:
            print("nothing is left")
            break
        time.sleep(0.01)
"""


def test_control_c_ends_a_loop(model: llmcc.Model) -> None:
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED, PATH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    out, said = child.communicate(timeout=60)
    assert (child.returncode, out.splitlines()[-1]) == (0, "nothing is left"), said
    # (Before Python 3.11 the interrupt comes in the middle of a task, which asyncio itself may complain about.)
    assert said == "" or sys.version_info < (3, 11)


def in_a_child() -> str:
    """For the child of a fork, which has the parent's objects, and no models."""

    async def work() -> str:
        try:
            return await asyncio.wait_for(FORKED[0].agenerate(PROMPT), 30)
        except llmcc.LlmccError as error:
            return f"LlmccError: {error}"

    return asyncio.run(work())


FORKED: "list[llmcc.Model]" = []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_child_of_a_fork_is_told(model: llmcc.Model) -> None:
    async def work() -> str:
        # While the parent's worker is at work.
        task = asyncio.create_task(model.agenerate(PROMPT, max_tokens=900, ignore_eos=True))
        await asyncio.sleep(0.05)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            said = pool.apply(in_a_child)
        await cancelled(task)
        return said

    FORKED.append(model)
    try:
        assert asyncio.run(work()).startswith("LlmccError: ")
    finally:
        FORKED.clear()
