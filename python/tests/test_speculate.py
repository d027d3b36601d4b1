"""Draft heads: artifacts in ``LLMCC_TEST_DRAFTED`` of the fixtures in ``LLMCC_TEST_GOLDENS``, which hold the guesses of Transformers' ``MtpModel``."""

import ctypes as c
import json
import os
import random
import struct
from pathlib import Path

import pytest

import llmcc
from llmcc import _ffi as ffi, _speculate, _steps

FOLDER, GOLDENS = os.environ.get("LLMCC_TEST_DRAFTED"), Path(os.environ.get("LLMCC_TEST_GOLDENS", "."))
pytestmark = pytest.mark.skipif(not FOLDER, reason="LLMCC_TEST_DRAFTED names no folder of artifacts")
HEADS = {"deepseek_v3": 2, "qwen3_5": 1}


def artifact(name, which):
    return llmcc.load(Path(FOLDER) / f"{name}.{which}.so", threads=1)


def opened(name):
    return artifact(name, "model"), [artifact(name, f"head{k}") for k in range(HEADS[name])]


def integers(name, tensor):
    """An int32 tensor of a golden file."""
    data = (GOLDENS / name / "golden.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    start, end = json.loads(data[8 : 8 + n])[tensor]["data_offsets"]
    return list(struct.unpack(f"<{(end - start) // 4}i", data[8 + n + start : 8 + n + end]))


@pytest.mark.parametrize("name", HEADS)
def test_guesses_are_those_of_transformers(name):
    model, heads = opened(name)
    tokens, drafted = integers(name, "tokens"), integers(name, "drafted")
    target, drafts = _speculate._Target(model), _speculate._Heads(heads)
    target.step(tokens[:-1], [], 1)
    assert drafts.guess(target, tokens, len(heads)) == drafted
    # The same where the heads have seen a part of it before.
    target, drafts = _speculate._Target(model), _speculate._Heads(heads)
    target.step(tokens[:9], [], 1)
    drafts.guess(target, tokens[:10], len(heads) + 2)
    target.step(tokens[9:-1], [], 1)
    assert drafts.guess(target, tokens, len(heads)) == drafted


@pytest.mark.parametrize("name", HEADS)
def test_going_back_again_and_again_loses_nothing(name):
    """After rounds of wrong guesses a sequence is as one that never guessed, and has to see no more again than one round's tokens."""
    model, heads = opened(name)
    tokens, start = integers(name, "tokens"), 3
    target, drafts = _speculate._Target(model), _speculate._Heads(heads)
    target.step(tokens[:start], [], 1)
    for known in range(start + 1, len(tokens)):
        drafts.guess(target, tokens[:known], 2)
        wrong = [(tokens[known] + 1) % model.vocab_size, 3]
        assert target.judge([tokens[known - 1], *wrong], lambda _, logits: tokens[known]) == 0
        assert target.length == known and len(target._again) <= 1 and len(target._hidden) <= len(heads) + 3
    plain = _speculate._Target(model)
    plain.step(tokens[:-1], [], 1)
    assert target.hidden(target.length - 1, target.length) == plain.hidden(plain.length - 1, plain.length)
    assert drafts.guess(target, tokens, len(heads)) == integers(name, "drafted")
    for sequence in (target, drafts, plain):
        sequence.close()
    assert model.stats()["sequences"] == 0


def plans(vocab, n):
    """Prompts and parameters."""
    for seed in range(n):
        r = random.Random(seed)
        prompt = [r.randrange(3, vocab) for _ in range(r.randrange(1, 60))]
        params = {"max_tokens": r.randrange(1, 60), "ignore_eos": r.random() < 0.5}
        if seed % 2:
            params |= {"temperature": 0.4, "seed": seed, "top_k": 20, "repetition_penalty": 1.1}
        yield prompt, params


@pytest.mark.parametrize("name", HEADS)
def test_tokens_are_those_without_heads(name):
    model, heads = opened(name)
    for prompt, params in plans(model.vocab_size, 4):
        want = model.complete(prompt, **params)
        for guesses in (None, 1, 4):
            got = model.speculate(heads, prompt, guesses=guesses, **params)
            assert (got.tokens, got.finish, got.prompt_tokens) == (want.tokens, want.finish, prompt)
    assert model.stats()["sequences"] == 0 and all(h.stats()["sequences"] == 0 for h in heads)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("left", [0, 1, 2, 7])
def test_the_last_token_of_a_context(name, left):
    """A full context gives one more token, with heads and without; of a prompt that is too long both say so."""
    model, heads = opened(name)
    context = model.info["max_context"]
    prompt = [3 + (i * i) % (model.vocab_size - 3) for i in range(context - left)]
    for most in (None, left + 1, left + 2):
        want = model.complete(prompt, max_tokens=most, ignore_eos=True)
        for guesses in (1, 4):
            got = model.speculate(heads, prompt, max_tokens=most, guesses=guesses, ignore_eos=True)
            assert (got.tokens, got.finish, len(got.tokens)) == (want.tokens, want.finish, left + 1)
    for go in (model.complete, lambda p, **more: model.speculate(heads, p, **more)):
        with pytest.raises(llmcc.LlmccError, match=f"{context + 1} tokens.* context of {context}"):
            go(prompt + [3] * (left + 1), max_tokens=5)


@pytest.mark.parametrize("name", HEADS)
def test_heads_of_shorter_contexts(name, monkeypatch):
    """Past their contexts heads guess nothing."""
    model, heads = opened(name)
    monkeypatch.setitem(heads[-1]._info, "max_context", 20)
    reached = []
    guess = _speculate._Heads.guess

    def watched(self, target, tokens, n):
        reached.append(target.length + n - 1)
        return guess(self, target, tokens, n)

    monkeypatch.setattr(_speculate._Heads, "guess", watched)
    for length in (1, 15, 19, 20, 21, 30):
        prompt = list(range(3, 3 + length))
        want = model.complete(prompt, max_tokens=25, ignore_eos=True)
        assert model.speculate(heads, prompt, guesses=3, max_tokens=25, ignore_eos=True).tokens == want.tokens
    assert max(reached) == 20


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("small", ["model", "head0"])
def test_caches_without_room_for_guesses(name, small):
    """A cache with room for a prompt has room for it with heads, too: the known token goes alone."""
    model, heads = opened(name)
    tight = llmcc.load(Path(FOLDER) / f"{name}.{small}.so", threads=1, max_tokens=32)
    model, heads = (tight, heads) if small == "model" else (model, [tight, *heads[1:]])
    for length in (3, 16, 24, 30):
        prompt = [3 + i * i % 50 for i in range(length)]
        most = 33 - length
        want = model.complete(prompt, max_tokens=most, ignore_eos=True)
        got = model.speculate(heads, prompt, guesses=3, max_tokens=most, ignore_eos=True)
        assert (got.tokens, got.finish, len(got.tokens)) == (want.tokens, "length", most)
        assert got.rounds + got.accepted <= len(got.tokens) <= 1 + got.rounds + got.accepted
    assert all(m.stats()["sequences"] == 0 for m in (model, *heads))


@pytest.mark.parametrize("name", HEADS)
def test_the_context_ends_a_text(name):
    model, heads = opened(name)
    context = model.info["max_context"]
    for n in (context - 9, context - 1, context):
        prompt = [3 + i % 40 for i in range(n)]
        want = model.complete(prompt, ignore_eos=True)
        assert want.finish == "context" and len(want.tokens) == context - n + 1
        got = model.speculate(heads, prompt, guesses=3, ignore_eos=True)
        assert (got.tokens, got.finish) == (want.tokens, want.finish)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("right", [0.5, 0.9, 1.0])
def test_right_guesses_save_steps(name, right, monkeypatch):
    """With heads that know the text, and are wrong now and then."""
    model, heads = opened(name)
    for prompt, params in plans(model.vocab_size, 4):
        want = model.complete(prompt, **params)
        text, r = prompt + want.tokens + [3] * 8, random.Random(7)

        def guess(self, target, tokens, n):
            assert tokens == text[: len(tokens)] and target.length == len(tokens) - 1
            known = target.hidden(target.length - 1, target.length)
            assert len(known) == 1 and len(known[0]) == 4 * model.info["hidden"]
            target.forget_before(target.length - 2)
            following = text[len(tokens) : len(tokens) + n]
            return [t if r.random() < right else (t + 1) % model.vocab_size for t in following]

        monkeypatch.setattr(_speculate._Heads, "guess", guess)
        got = model.speculate(heads, prompt, guesses=3, **params)
        assert got.tokens == want.tokens and got.finish == want.finish
        # One token of each step is the model's own, unless a correct guess ended the text.
        assert got.rounds + got.accepted <= len(got.tokens) <= 1 + got.rounds + got.accepted
        if right == 1.0:
            assert got.rounds <= -(-len(got.tokens) // 4)


def test_hidden_states_of_steps():
    model, [first, _] = opened("deepseek_v3")
    tokens = integers("deepseek_v3", "tokens")
    with model.session() as s, model.session() as t:
        kept = []
        model.step([(s, tokens[:5]), (t, tokens)], hidden_out=kept)
        assert [k.shape for k in kept] == [(5, model.info["hidden"]), (len(tokens), model.info["hidden"])]
        assert (kept[0] == kept[1][:5]).all()
        with first.session() as u:
            [rows] = first.step([(u, tokens[1:])], rows="all", hidden=[kept[1][:-1]])
            assert rows.shape == (len(tokens) - 1, model.vocab_size)


def test_hidden_states_beside_log_probabilities():
    """``llmcc_step_logprobs`` takes and leaves them as ``llmcc_step`` does; a step of no tokens has none."""
    model, [first, _] = opened("deepseek_v3")
    tokens, width = integers("deepseek_v3", "tokens"), model.info["hidden"]

    def judged(m, n, hidden):
        left, logprob = (c.c_float * (n * width))(), (c.c_double * 1)()
        with m.session() as s, m._use() as handle:
            batch = _steps._native_batch(ffi.int32_array(tokens[:n], "tokens"), [s._need_seq()] * n, [n - 1] if n else [])
            batch.hidden_out = left
            if hidden is not None:
                batch.hidden = hidden
            m._lib.step_logprobs(handle, c.byref(batch), ffi.int32_array([5] if n else [], "targets"), logprob, 0, None, None)
        return list(left), logprob[0]

    kept = []
    with model.session() as s:
        logits = model.step([(s, tokens[:7])], hidden_out=kept)
    left, logprob = judged(model, 7, None)
    assert left == kept[0].ravel().tolist() and logprob == model.logprobs(logits[0], [5])[0][0]
    given = (c.c_float * (7 * width))(*left)
    own = []
    with first.session() as s:
        first.step([(s, tokens[:7])], hidden=[kept[0]], hidden_out=own)
    assert judged(first, 7, given)[0] == own[0].ravel().tolist()
    assert judged(first, 0, given)[0] == []


def test_mistakes_are_told():
    model, heads = opened("deepseek_v3")
    other = artifact("qwen3_5", "head0")
    for wrong, words in [
        (lambda: model.speculate([], [3]), "needs at least one draft head"),
        (lambda: model.speculate(model, [3]), "is not a draft head"),
        (lambda: model.speculate(other, [3]), "draft head of another model"),
        (lambda: heads[0].speculate(heads[1], [3]), "compiled with --hidden-states"),
        (lambda: model.speculate(heads, []), "nothing to generate"),
        (lambda: model.speculate(heads, [3], guesses=0), "guesses is 0"),
        (lambda: heads[0].generate([3]), "draft head"),
        (lambda: artifact("qwen3_5", "head0").forward([3]), "takes a hidden state of its model with each token"),
    ]:
        with pytest.raises(llmcc.LlmccError, match=words):
            wrong()
    with model.session() as s:
        for wrong, words in [
            (lambda: model.speculate(None, [3]), "heads must be a Model"),
            (lambda: model.speculate([None], [3]), "heads must be a Model"),
            (lambda: model.step([(s, [3])], hidden_out=()), "hidden_out must be a list"),
            (lambda: model.step([(s, [3])], hidden=[None]), "hidden must be a list of arrays"),
            (lambda: model.step([(s, [3])], hidden=3), "hidden must be a list of arrays"),
        ]:
            with pytest.raises(TypeError, match=words):
                wrong()
        assert len(s) == 0
