"""Batches that show how far they are: by tqdm, and without it; results do not change. On real artifacts (LLMCC_TEST_ARTIFACT, LLMCC_TEST_RANKER, LLMCC_TEST_CLASSES)."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

import llmcc
from llmcc import _progress

PATH, RANKER, CLASSES = (os.environ.get(f"LLMCC_TEST_{name}") for name in ("ARTIFACT", "RANKER", "CLASSES"))
needs = pytest.mark.skipif(not (PATH and RANKER and CLASSES), reason="skipped: set LLMCC_TEST_ARTIFACT, LLMCC_TEST_RANKER and LLMCC_TEST_CLASSES")
PROMPT = os.environ.get("LLMCC_TEST_PROMPT", "Once upon a time")


class Bar:
    """A bar of tqdm, without tqdm."""

    made: "list[Bar]" = []

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what, self.done, self.closed = total, what, 0, 0
        self.made.append(self)

    def update(self, n: int) -> None:
        assert not self.closed
        self.done += n

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> "list[Bar]":
    monkeypatch.setattr(Bar, "made", [])
    monkeypatch.setattr(_progress, "_bar", Bar)
    return Bar.made


@needs
def test_every_batch_counts_its_texts(bars: "list[Bar]") -> None:
    texts = ["money", "the cat", "a bank"] * 20
    with llmcc.load(PATH, max_tokens=4096) as model, llmcc.load(RANKER) as ranker, llmcc.load(CLASSES) as classifier:
        tokens = model.tokenize(PROMPT)
        prompts = [tokens[: 1 + i % 3] for i in range(7)]
        works = [
            (7, lambda p: model.generate(prompts, max_tokens=4, progress=p)),
            (7, lambda p: model.complete(prompts, max_tokens=4, batch_size=2, progress=p)),
            (7, lambda p: sorted(model.stream(prompts, max_tokens=4, progress=p))),
            (7, lambda p: asyncio.run(model.agenerate(prompts, max_tokens=4, progress=p))),
            (7, lambda p: model.score([tokens[: 2 + i % 3] for i in range(7)], batch_size=3, progress=p)),
            (60, lambda p: ranker.embed(texts, numpy=False, progress=p)),
            (60, lambda p: ranker.rank("bank", texts, progress=p)),
            (60, lambda p: ranker.score_pairs([("bank", t) for t in texts], numpy=False, batch_size=7, progress=p)),
            (60, lambda p: classifier.classify([[1, 2 + i] for i in range(60)], progress=p)),
        ]
        for n, work in works:
            expected = work(False)
            assert bars == []
            assert work(True) == expected
            [bar] = bars
            assert (bar.total, bar.done, bar.closed >= 1) == (n, n, True), bar.what
            bars.clear()
        # Parts of 32, so that there is something to see.
        ranker.embed(texts, numpy=False, progress=True)
        # An error ends the bar.
        with pytest.raises(llmcc.LlmccError):
            model.score([tokens, [model.vocab_size, 1]], progress=True)
        assert bars[-1].closed
        with pytest.raises(TypeError, match="progress is for a list of prompts"):
            model.generate(PROMPT, progress=True)  # type: ignore[call-overload]
        for one in (model.complete, model.stream, model.pieces):
            with pytest.raises(TypeError, match="max_batch is for a list of prompts"):
                one(PROMPT, max_batch=2)  # type: ignore[operator]
        for awaited in (model.agenerate, model.acomplete):
            with pytest.raises(TypeError, match="progress is for a list of prompts"):
                asyncio.run(awaited(PROMPT, progress=True))  # type: ignore[operator]
        with pytest.raises(TypeError, match="progress is for a list of prompts as a whole"):
            model.generate(prompts, each=[{"progress": True}] * 7)
        with pytest.raises(ValueError, match="batch_size and max_batch are the same"):
            model.generate(prompts, batch_size=2, max_batch=2)
        with pytest.raises(TypeError, match="progress must be True or False, not str"):
            model.generate(prompts, progress="yes")  # type: ignore[call-overload]


def test_without_tqdm_there_is_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with _progress.Progress(3, "embed", True) as shown:
        shown.update(2)
        shown.update()
    assert capsys.readouterr().err == "\rembed: 2 of 3\rembed: 3 of 3\n"
    with _progress.Progress(3, "embed", False) as shown:
        shown.update(3)
    assert capsys.readouterr().err == ""


def test_tqdm_shows_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    with _progress.Progress(3, "embed", True) as shown:
        shown.update(3)
    assert "embed: 100%" in capsys.readouterr().err
