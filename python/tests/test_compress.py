"""Prompts made shorter, against LLMLingua's criterion over logits of whole texts."""

import math
import os

import pytest

import llmcc

ARTIFACT = os.environ.get("LLMCC_TEST_ARTIFACT")
pytestmark = pytest.mark.skipif(not ARTIFACT, reason="LLMCC_TEST_ARTIFACT names no artifact")
PROMPT = "Once upon a time, there was a little girl named Lily. She had 3 toys. One day, she found a big red ball in the park and showed it to her mother."


def by_definition(model, ratio):
    """The tokens that are kept of a text of one segment, its first and last one among them."""
    bare, whole = model.tokenize(PROMPT, add_special=False), model.tokenize(PROMPT)
    at = len(whole) - len(bare)
    rows = model.forward(whole, numpy=False)
    nats = []
    for i, token in enumerate(bare):
        row = rows[at + i - 1]
        nats.append(math.log(sum(math.exp(x) for x in row)) - row[token])
    forced = [0, len(bare) - 1]
    others = sorted(range(1, len(bare) - 1), key=lambda i: -nats[i])
    most = max(math.floor(ratio * len(bare) + 0.5), 2)
    return [bare[i] for i in sorted(forced + others[: most - 2])], nats


@pytest.mark.parametrize("ratio", [0.5, 0.2, 1.0, 0.01])
def test_the_least_foreseen_tokens_are_kept(ratio):
    with llmcc.load(ARTIFACT) as model:
        made = model.compress(PROMPT, ratio)
        tokens, nats = by_definition(model, ratio)
        assert made.text == str(made) == model.detokenize(tokens)
        assert (made.kept, made.tokens) == (len(tokens), len(nats))
        assert all(abs(a - b) < 1e-3 for a, b in zip(made.information, nats))
        assert (made.dropped == []) == (ratio == 1)
        with llmcc.load(ARTIFACT) as other:
            assert other.compress(PROMPT, ratio, with_=model) == made


def test_forced_tokens_stay():
    with llmcc.load(ARTIFACT) as model:
        plain = model.compress(PROMPT, 0.1)
        made = model.compress(PROMPT, 0.1, keep=[" little girl", "her mother"], digits=True)
        assert "little girl" not in plain.text and "her mother" not in plain.text
        assert "little girl" in made.text and "her mother" in made.text and "3" in made.text
        assert model.compress("", 0.5).text == ""
        # Characters of several tokens leave no halves of them.
        assert "\ufffd" not in model.compress("naïve 🙂🙃 日本語 " * 5, 0.4).text
        with pytest.raises(llmcc.LlmccError, match="the share of tokens to keep is 1.5"):
            model.compress(PROMPT, 1.5)
        with pytest.raises(TypeError, match="prompt must be a text"):
            model.compress([1, 2], 0.5)
        assert model.stats()["sequences"] == 0
