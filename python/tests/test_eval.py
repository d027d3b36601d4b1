"""The functions evaluations need, on a real artifact (LLMCC_TEST_ARTIFACT): rows of logits, many generations at once, log-probabilities, bias, single tokens."""

from __future__ import annotations

import array
import math
import os
from typing import Any

import pytest

import llmcc
from llmcc import _ffi as ffi

PATH = os.environ.get("LLMCC_TEST_ARTIFACT")
pytestmark = pytest.mark.skipif(not PATH, reason="skipped: set LLMCC_TEST_ARTIFACT to an artifact with a tokenizer")
PROMPT = os.environ.get("LLMCC_TEST_PROMPT", "Once upon a time")
np = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def model():
    with llmcc.load(PATH, max_tokens=4096) as opened:
        yield opened


def log_softmax(logits: Any) -> Any:
    """The reference, in float64."""
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def some_prompts(model: llmcc.Model) -> list[list[int]]:
    tokens = model.tokenize(PROMPT)
    return [tokens, tokens[:1], tokens * 5, tokens[:3], (tokens * 9)[:100], tokens[:2] * 3]


# ---- rows


def test_rows_of_a_ragged_step(model: llmcc.Model) -> None:
    tokens = (model.tokenize(PROMPT) * 8)[:40]
    whole = model.forward(tokens)
    with model.session() as a, model.session() as b, model.session() as c:
        a.append(tokens[:7])
        rows = model.step([(a, tokens[7:20]), (b, tokens[:5]), (c, tokens[:3])], rows=["all", [0, -1, 0], []])
        assert [r.shape for r in rows] == [(13, model.vocab_size), (3, model.vocab_size), (0, model.vocab_size)]
        assert all(r.dtype == np.float32 for r in rows)
        np.testing.assert_array_equal(rows[0], whole[7:20])
        np.testing.assert_array_equal(rows[1], whole[[0, 4, 0]])
        assert rows[0].base is rows[1].base, "one array, not copies"
        everything = model.step([(a, tokens[20:22]), (b, tokens[5:6])], rows="all")
        np.testing.assert_array_equal(everything[0], whole[20:22])
        np.testing.assert_array_equal(everything[1], whole[5:6])
        last = model.step([(a, tokens[22:24]), (b, tokens[6:9])], rows="last")
        np.testing.assert_array_equal(np.concatenate(last), whole[[23, 8]])
        np.testing.assert_array_equal(c.step(tokens[3:9], rows=[5, 1]), whole[[8, 4]])
        np.testing.assert_array_equal(c.step(tokens[9:11]), whole[10])
        lists = model.step([(a, tokens[24:26])], rows="all", numpy=False)
        assert lists[0] == whole[24:26].tolist()


def test_bad_rows(model: llmcc.Model) -> None:
    with model.session() as s:
        for rows, error in [("first", ValueError), ([[2]], IndexError), ([[-3]], IndexError), ([[0.5]], TypeError), ([[0], [1]], ValueError)]:
            with pytest.raises(error, match="row"):
                model.step([(s, [1, 2])], rows=rows)
        with pytest.raises(ValueError, match="exclude"):
            s.step([1], all_rows=True, rows="all")
        assert len(s) == 0


# ---- generating


SAMPLING: dict[str, Any] = dict(temperature=0.9, top_k=40, top_p=0.95, repetition_penalty=1.1)


@pytest.mark.parametrize("params", [{}, SAMPLING, {"temperature": 1.0, "logit_bias": {5: 3.0, 7: -math.inf}}])
@pytest.mark.parametrize("max_batch", [1, 2, 64])
def test_batches_generate_what_each_prompt_does_alone(model: llmcc.Model, params: dict[str, Any], max_batch: int) -> None:
    prompts = some_prompts(model)
    each = [{"seed": i, "max_tokens": 3 + 7 * i} for i in range(len(prompts))]
    alone = [model.complete(p, **{**params, **e}, logprobs=2) for p, e in zip(prompts, each)]
    together = model.complete(prompts, each=each, max_batch=max_batch, logprobs=2, **params)
    assert together == alone
    assert model.generate(prompts, each=each, max_batch=max_batch, **params) == [c.text for c in alone]


def test_a_small_cache_makes_prompts_wait() -> None:
    with llmcc.load(PATH, threads=1, max_tokens=4096) as roomy:
        prompts = some_prompts(roomy)
        expected = roomy.complete(prompts, max_tokens=40, ignore_eos=True, seed=1, **SAMPLING)
    with llmcc.load(PATH, threads=2, max_tokens=144, max_batch_tokens=16) as small:
        assert small.complete(prompts, max_tokens=40, ignore_eos=True, seed=1, **SAMPLING) == expected
        assert small.stats()["kv_pages_used"] == 0 and small.stats()["sequences"] == 0
        with pytest.raises(llmcc.LlmccError, match="max_tokens") as caught:
            small.generate([prompts[0] * 20, prompts[1]], max_tokens=2)
        assert caught.value.status == llmcc.Status.CACHE_FULL
        assert small.stats()["sequences"] == 0


def test_batches_stream(model: llmcc.Model) -> None:
    prompts: list[Any] = [PROMPT, PROMPT + " x", model.tokenize(PROMPT)[:2]]
    expected = [model.generate(p, max_tokens=12) for p in prompts]
    texts = [""] * 3
    order = []
    for index, text in model.stream(prompts, max_tokens=12):
        texts[index] += text
        order.append(index)
    assert texts == expected
    assert order != sorted(order), "they come together"
    finishes = {i: p.finish for i, p in model.pieces(prompts, max_tokens=12) if p.finish}
    assert sorted(finishes) == [0, 1, 2]
    assert model.generate([PROMPT], max_tokens=3) == [model.generate(PROMPT, max_tokens=3)]
    stop = expected[0][3:6]
    assert model.generate(prompts, max_tokens=12, stop=stop)[0] == expected[0][: expected[0].find(stop)]


def test_artifacts_of_an_older_api_say_what_they_lack(model: llmcc.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffi, "_SINCE", {**ffi._SINCE, 999: {"llmcc_from_the_future": (None, [])}})
    with pytest.raises(llmcc.LlmccError, match="older llmcc, whose API has no llmcc_from_the_future; compile it again") as caught:
        model._lib.from_the_future()
    assert caught.value.status == llmcc.Status.UNSUPPORTED
    with llmcc.load(PATH, threads=1, max_tokens=1024) as opened:
        assert opened.generate(PROMPT, max_tokens=2) == model.generate(PROMPT, max_tokens=2)


def test_bad_batches(model: llmcc.Model) -> None:
    with pytest.raises(ValueError, match="each has 1 entries"):
        model.generate([PROMPT, PROMPT], each=[{}])
    for wrong in (0, -1, 2.5):
        for name in ("max_batch", "batch_size"):
            given: dict[str, Any] = {name: wrong}
            with pytest.raises(llmcc.LlmccError, match=f"{name} is {wrong}; use an integer from 1"):
                model.generate([PROMPT], **given)
    with pytest.raises(TypeError, match="sead"):
        model.generate([PROMPT], each=[{"sead": 1}])
    with pytest.raises(llmcc.LlmccError, match="outside the vocabulary"):
        model.generate([[1], [model.vocab_size]])
    stream = model.stream([PROMPT, PROMPT], max_tokens=5)
    next(stream)
    del stream
    assert model.stats()["sequences"] == 0


# ---- log-probabilities


def test_log_probabilities_of_generations(model: llmcc.Model) -> None:
    result = model.complete(PROMPT, max_tokens=12, temperature=1.0, seed=4, ignore_eos=True, logprobs=5, prompt_logprobs=1)
    tokens = [*result.prompt_tokens, *result.tokens]
    reference = log_softmax(model.forward(tokens))
    n = len(result.prompt_tokens)
    assert result.logprobs is not None and len(result.logprobs) == 12 and result.prompt_logprobs is not None
    assert result.prompt_logprobs[0] is None and len(result.prompt_logprobs) == n
    for i, logprob in enumerate([*result.prompt_logprobs, *result.logprobs]):
        if logprob is None:
            continue
        row = reference[i - 1]
        assert logprob.token == tokens[i] and abs(logprob.logprob - row[tokens[i]]) < 1e-12
        order = np.lexsort((np.arange(len(row)), -row))[: len(logprob.top)]
        assert [t for t, _ in logprob.top] == order.tolist() and len(logprob.top) == (5 if i >= n else 1)
        np.testing.assert_allclose([p for _, p in logprob.top], row[order], rtol=0, atol=1e-12)
    assert model.complete(PROMPT, max_tokens=2).logprobs is None
    # They are the model's own, whatever is done to choose.
    biased = model.complete(PROMPT, max_tokens=1, logit_bias={tokens[n]: 100.0}, temperature=0.3, logprobs=0)
    assert biased.tokens == [tokens[n]] and biased.logprobs is not None
    assert biased.logprobs[0] == llmcc.TokenLogprob(tokens[n], result.logprobs[0].logprob)


def test_log_probabilities_of_rows(model: llmcc.Model) -> None:
    row = model.forward(model.tokenize(PROMPT))[-1]
    reference = log_softmax(row)
    values, top = model.logprobs(row, [3, 0, 3], top=4)
    np.testing.assert_allclose(values, reference[[3, 0, 3]], rtol=0, atol=1e-12)
    assert [t for t, _ in top] == np.argsort(-reference, kind="stable")[:4].tolist()
    for other in (row.tolist(), array.array("f", row), row.astype(np.float64), row[::1], memoryview(row.tobytes()).cast("f")):
        assert model.logprobs(other, [3, 0, 3], top=4) == (values, top)
    with pytest.raises(TypeError, match="logits must be one row"):
        model.logprobs(np.zeros((2, 3), dtype=np.float32))
    for bad in ("abc", b"abcd", ["x"], 3):
        with pytest.raises(TypeError, match="logits"):
            model.logprobs(bad)
    with pytest.raises(llmcc.LlmccError, match="outside the vocabulary"):
        model.logprobs(row, [len(row)])
    with pytest.raises(ValueError, match="top is"):
        model.logprobs(row, top=len(row) + 1)


def test_scores(model: llmcc.Model) -> None:
    tokens = (model.tokenize(PROMPT) * 12)[:120]
    other = [*tokens[:70], *tokens[3:40]]
    texts = [tokens, tokens[:90], other, tokens[:2], tokens[:1], other]
    alone = [model.score(t, top=2) for t in texts]
    assert model.score(texts, top=2) == alone
    for text, judged in zip(texts, alone):
        reference = log_softmax(model.forward(text))
        assert [p.token for p in judged] == text[1:]
        np.testing.assert_allclose([p.logprob for p in judged], [reference[i][t] for i, t in enumerate(text[1:])], rtol=0, atol=1e-12)


def test_scores_of_continuations_share_their_contexts(model: llmcc.Model) -> None:
    """Few-shot prompts, questions with several answers, answers of one token: the same bits as each on its own, for a fraction of the tokens."""
    base = (model.tokenize(PROMPT) * 30)[:200]
    pairs = []
    for question in range(6):
        context = [*base, *base[question : question + 40], 7 + question]
        pairs += [(context, [answer]) for answer in (3, 4, 5, 3)]
        pairs += [(context, [answer, 8, 9]) for answer in (3, 4)]
    pairs += [([1], [2, 3]), (base[:50], base[50:90])]
    alone = [model.score([c], [a], top=1)[0] for c, a in pairs]
    assert model.score([c for c, _ in pairs], [a for _, a in pairs], top=1) == alone
    for (context, answer), judged in zip(pairs, alone):
        reference = log_softmax(model.forward([*context, *answer]))[len(context) - 1 : -1]
        np.testing.assert_allclose([p.logprob for p in judged], [r[t] for r, t in zip(reference, answer)], rtol=0, atol=1e-12)
    assert model.stats()["sequences"] == 0
    with llmcc.load(PATH, threads=1, max_tokens=304, profile=True) as small:
        assert small.score([c for c, _ in pairs], [a for _, a in pairs], top=1) == alone
    with llmcc.load(PATH, threads=1, max_tokens=4096, profile=True) as profiled:
        profiled.score([c for c, _ in pairs], [a for _, a in pairs])
        evaluated = profiled.stats()["profile"]["tokens"]
        assert evaluated < sum(len(c) + len(a) for c, a in pairs) / 5, evaluated


def test_texts_continue_at_a_border_of_tokens(model: llmcc.Model) -> None:
    text = PROMPT + " and more"
    judged = model.score(PROMPT + " ", "and more")
    assert [p.token for p in judged] == model.tokenize(text)[len(model.tokenize(PROMPT)) :]
    with pytest.raises(TypeError, match="both"):
        model.score([PROMPT], [[1]])
    with pytest.raises(ValueError, match="one for each prompt"):
        model.score([PROMPT], [PROMPT, PROMPT])
    with pytest.raises(ValueError, match="no tokens"):
        model.score([[]], [[1]])
    with pytest.raises(llmcc.LlmccError, match="longest context"):
        model.score([1] * (model.info["max_context"] + 2))
    assert model.stats()["sequences"] == 0


def test_what_is_no_session_or_prompt_is_said(model: llmcc.Model) -> None:
    for entry in ("all", [[1], [2]], (None, [1])):
        with pytest.raises(TypeError, match="pairs of a session and its tokens"):
            model.step([entry])
    with model.session() as session:
        with pytest.raises(TypeError, match="length must be an integer, not NoneType"):
            session.truncate(None)
    with pytest.raises(TypeError, match="a prompt must be a text or tokens, not NoneType"):
        model.complete(None)
    assert model.stats()["sequences"] == 0


# ---- choosing


def test_sample_chooses_as_generations_do(model: llmcc.Model) -> None:
    prompt = model.tokenize(PROMPT)
    for params in ({}, {**SAMPLING, "seed": 11}, {"temperature": 1.3, "min_p": 0.02, "seed": 5, "logit_bias": {9: 2.5, 11: -math.inf}}):
        tokens = model.complete(prompt, max_tokens=10, ignore_eos=True, **params).tokens
        logits = model.forward([*prompt, *tokens])
        for n, token in enumerate(tokens):
            at = len(prompt) + n
            assert model.sample(logits[at - 1], history=[*prompt, *tokens[:n]], draw=n, **params) == token
    assert model.sample([0.0, 3.0, 1.0]) == 1
    with pytest.raises(llmcc.LlmccError, match="top_p"):
        model.sample([0.0], top_p=3.0)
    with pytest.raises(TypeError, match="stop"):
        model.sample([0.0], stop="x")
    with pytest.raises(TypeError, match="temperature must be a number, not str"):
        model.sample([0.0], temperature="hot")


def test_logit_bias(model: llmcc.Model) -> None:
    first = model.complete(PROMPT, max_tokens=1).tokens[0]
    assert model.complete(PROMPT, max_tokens=4, logit_bias={first: -math.inf}).tokens[0] != first
    assert model.complete(PROMPT, max_tokens=3, logit_bias={3: 1e4}).tokens == [3, 3, 3]
    # Before the penalty, which divides the sum: a large one makes the favourite change each time.
    penalized = model.complete(PROMPT, max_tokens=2, logit_bias={3: 1e4, 4: 0.9e4}, repetition_penalty=2.0)
    assert penalized.tokens == [3, 4]
    types: list[Any] = [{"a": 1.0}, {1: "x"}, [1], {1: True}]
    values: list[Any] = [{-1: 1.0}, {1: math.nan}, {1: math.inf}, {1: 1e300}, {1: 10**400}]
    for bias, error in [*((b, TypeError) for b in types), *((b, ValueError) for b in values)]:
        with pytest.raises(error, match="logit_bias"):
            model.generate(PROMPT, logit_bias=bias)
    with pytest.raises(llmcc.LlmccError, match="outside the vocabulary"):
        model.generate(PROMPT, logit_bias={model.vocab_size: 1.0})


# ---- single tokens


def test_single_tokens(model: llmcc.Model) -> None:
    tokens = model.tokenize(PROMPT, add_special=False)
    assert b"".join(model.token_bytes(t) for t in tokens).decode().strip() == PROMPT
    for token in tokens:
        assert model.piece_to_token(model.token_to_piece(token)) == token
        assert not model.is_special(token)
    assert model.tokenizer_size <= model.vocab_size == model.info["vocab"]
    assert model.piece_to_token("no such \N{SNOWMAN} piece") is None
    for token in [*model.eos_tokens, *([] if model.bos_token is None else [model.bos_token])]:
        assert model.is_special(token) and model.token_bytes(token).decode() == model.token_to_piece(token)
    # Every byte can be written: by byte-level pieces, or by byte fallback.
    singles = {model.token_bytes(t) for t in range(model.tokenizer_size)}
    assert all(bytes([b]) in singles for b in range(256)) or any(model.is_byte(t) for t in range(model.tokenizer_size))
    for bad, error in [("x", TypeError), (1.0, TypeError), (True, TypeError), (-1, ValueError), (2**31, ValueError)]:
        with pytest.raises(error, match="token"):
            model.token_to_piece(bad)
    with pytest.raises(llmcc.LlmccError, match="outside the vocabulary"):
        model.token_bytes(model.vocab_size)
