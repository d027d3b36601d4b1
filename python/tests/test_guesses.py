"""Guesses of next tokens, which change no token: by draft heads of artifacts in ``LLMCC_TEST_DRAFTED``, by the text, and by another model."""

import gc
import json
import os
import random
import struct
from pathlib import Path

import pytest

import llmcc
from llmcc import _guesses

FOLDER, GOLDENS = os.environ.get("LLMCC_TEST_DRAFTED"), Path(os.environ.get("LLMCC_TEST_GOLDENS", "."))
pytestmark = pytest.mark.skipif(not FOLDER, reason="LLMCC_TEST_DRAFTED names no folder of artifacts")
NAMES = ["deepseek_v3", "qwen3_5"]
#: Tokens that model and heads find much likelier than others, so that heads of random numbers are right, too.
LIKELY = {11: 6.0, 23: 5.5, 37: 5.0}


def opened(name):
    return llmcc.load(Path(FOLDER) / f"{name}.so", threads=1)


def prompt_of(name):
    """The tokens of a golden file."""
    data = (GOLDENS / name / "golden.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    start, end = json.loads(data[8 : 8 + n])["tokens"]["data_offsets"]
    return list(struct.unpack(f"<{(end - start) // 4}i", data[8 + n + start : 8 + n + end]))


@pytest.mark.parametrize("name", NAMES)
def test_completions_are_the_same(name):
    rng = random.Random(3)
    with opened(name) as model, opened(name) as other:
        prompt = prompt_of(name)
        right = 0
        for case in range(24):
            params = {"max_tokens": rng.randrange(1, 40), "temperature": rng.choice([0, 0.7]), "seed": case, "repetition_penalty": rng.choice([1, 1.3]), "logprobs": case % 3}
            params["logit_bias"] = LIKELY if case % 2 else None
            start = prompt[: rng.randrange(1, len(prompt))]
            want = model.complete(start, draft="none", **params)
            assert (want.guessed, want.accepted, want.guess_steps) == (0, 0, 0)
            for draft in (None, "heads", "lookup", other):
                got = model.complete([start], draft=draft, guesses=rng.choice([None, 1, 3, 9]), **params)[0]
                assert (got.text, got.tokens, got.finish, got.logprobs) == (want.text, want.tokens, want.finish, want.logprobs)
                assert got.accepted <= got.guessed and (got.guess_steps > 0) == (got.guessed > 0)
                right += got.accepted
                assert [p.token for p in model.pieces(start, draft=draft, **params)] == want.tokens
        assert right > 50
        assert not _guesses._USERS


@pytest.mark.parametrize("name", NAMES)
def test_many_at_once(name):
    with opened(name) as model, opened(name) as other:
        prompt = prompt_of(name)
        prompts = [prompt[:n] for n in (1, 4, 9, 16, 20)]
        params = {"max_tokens": 25, "temperature": 0.6, "logit_bias": LIKELY}
        want = [model.complete(p, draft="none", **params).tokens for p in prompts]
        each = [{"draft": d} for d in (None, "lookup", other, "none", "heads")]
        got = model.complete(prompts, each=each, max_batch=3, **params)
        assert [c.tokens for c in got] == want
        assert sum(c.accepted for c in got) > 2


def test_conversations_are_the_same():
    with opened("qwen3_5") as model:
        prompt = prompt_of("qwen3_5")
        texts = []
        for draft in ("none", "heads", "lookup"):
            session = model.session()
            for turn in range(3):
                session.generate(prompt[turn : turn + 5], max_tokens=12, draft=draft, logit_bias=LIKELY)
            texts.append(session.tokens)
            assert len(session.tokens) == 3 * 17
        assert texts[0] == texts[1] == texts[2]


def test_drafters_end_with_their_generations():
    model, other = opened("qwen3_5"), opened("deepseek_v3")
    for _ in range(5):
        pieces = model.pieces([1, 2, 3], draft=other, max_tokens=9)
        next(pieces)
        del pieces
    gc.collect()
    assert not _guesses._USERS
    assert other.stats()["sequences"] == 0
    other.close()
    model.close()


@pytest.mark.parametrize("name", NAMES)
def test_texts_and_predictions(name, tmp_path):
    with opened(name) as model:
        prompt = prompt_of(name)
        params = {"max_tokens": 40, "temperature": 0.6, "seed": 3, "logit_bias": LIKELY}
        want = model.complete(prompt, draft="none", **params)
        with model.corpus([[1, 2, 3], prompt + want.tokens]) as corpus:
            assert corpus.tokens == 3 + 1 + len(prompt) + 40 + 1
            for draft in (corpus, "jacobi", "lookahead"):
                got = model.complete(prompt, draft=draft, **params)
                assert got.tokens == want.tokens
                assert draft is not corpus or (got.accepted > 25 and got.guess_steps < 12)
            with llmcc.Engine(model) as engine:
                assert engine.complete(prompt, draft=corpus, **params).tokens == want.tokens
            # A generation that guesses from it goes on when it is closed.
            pieces = model.pieces(prompt, draft=corpus, **params)
            first = next(pieces)
        assert [first.token, *(p.token for p in pieces)] == want.tokens
        with pytest.raises(llmcc.LlmccError, match="the corpus of draft is closed"):
            model.generate(prompt, draft=corpus)
        for texts, error, message in (
            ("a text", TypeError, "put it into a list"),
            ([[1, -1]], ValueError, "a negative token"),
            ([[1, 10**6]], llmcc.LlmccError, "token 1000000 at index 1 of the corpus"),
            ([7], TypeError, "a text of the corpus"),
        ):
            with pytest.raises(error, match=message):
                model.corpus(texts)
        assert model.stats()["sequences"] == 0


def test_what_is_refused():
    with opened("qwen3_5") as model:
        for draft, message in ((True, "draft is True"), ("head", "draft is 'head'"), (7, "draft is 7")):
            with pytest.raises(TypeError, match=message):
                model.generate([1], draft=draft)
        with pytest.raises(llmcc.LlmccError, match="guesses is 0"):
            model.generate([1], guesses=0)
        with pytest.raises(llmcc.LlmccError, match="guesses is 32"):
            model.generate([1], guesses=32)


def test_texts_of_files(tmp_path):
    with llmcc.load(os.environ["LLMCC_TEST_ARTIFACT"]) as model:
        prompt = "Once upon a time"
        want = model.complete(prompt, max_tokens=40, ignore_eos=True)
        story = prompt + want.text
        (tmp_path / "texts").mkdir()
        (tmp_path / "texts" / "a.txt").write_text("Somebody else was there.")
        (tmp_path / "texts" / "b.jsonl").write_text(json.dumps({"text": story}) + "\n\n" + json.dumps("a string") + "\n")
        for texts in ([story], tmp_path / "texts", tmp_path / "texts" / "b.jsonl"):
            with model.corpus(texts) as corpus:
                got = model.complete(prompt, max_tokens=40, ignore_eos=True, draft=corpus)
            assert (got.text, got.tokens) == (want.text, want.tokens)
            assert got.accepted > 25
        (tmp_path / "bad.jsonl").write_text('"a string"\n{"words": 1}\n')
        with pytest.raises(ValueError, match="bad.jsonl: line 2: it is neither"):
            model.corpus(tmp_path / "bad.jsonl")


def test_without_heads():
    with llmcc.load(os.environ["LLMCC_TEST_ARTIFACT"]) as model:
        with pytest.raises(llmcc.LlmccError, match="no draft heads: compile the model with --draft-head"):
            model.generate([1], draft="heads")
        assert model.generate([1], max_tokens=5) == model.generate([1], max_tokens=5, draft="lookup")
