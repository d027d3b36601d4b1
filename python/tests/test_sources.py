"""A model with an encoder and a decoder (``LLMCC_TEST_SOURCES``): prompts are sources, and texts are about them."""

import os

import pytest

import llmcc

ARTIFACT = os.environ.get("LLMCC_TEST_SOURCES")
pytestmark = pytest.mark.skipif(not ARTIFACT, reason="LLMCC_TEST_SOURCES names no artifact")
SOURCES = [[5, 9, 33], [45, 35, 44, 31, 58, 63, 45, 56, 13, 54, 20, 27, 26, 39, 24, 24, 63, 55], [3]] * 4
START = 0  # `decoder_start_token_id`


def test_texts_are_about_their_sources():
    with llmcc.load(ARTIFACT) as m:
        assert m.info["needs_source"] and not m.info["whole"]
        with m.session() as s, m.session() as t:
            s.encode(SOURCES[0])
            t.encode(SOURCES[1])
            first, second = s.step([START], numpy=False), t.step([START], numpy=False)
            assert first != second
            best = max(range(len(first)), key=first.__getitem__)
            assert [p.token for p in m.pieces(SOURCES[0], max_tokens=1)] == [best]
            # Another source, another text.
            s.encode(SOURCES[1])
            assert s.tokens == [] and s.step([START], numpy=False) == second
        with m.session() as s, pytest.raises(llmcc.LlmccError, match="give the source first"):
            s.step([START])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("max_tokens", [None, 64])
def test_batches_are_as_single_texts(temperature, max_tokens):
    with llmcc.load(ARTIFACT) as m, llmcc.load(ARTIFACT, max_tokens=max_tokens) as small:
        how = {"max_tokens": 24, "temperature": temperature, "seed": 7, "ignore_eos": True}
        alone = [[p.token for p in m.pieces(source, **how)] for source in SOURCES]
        assert len({tuple(a) for a in alone}) >= 2
        assert [c.tokens for c in small.complete(SOURCES, **how)] == alone


def test_other_models_take_no_source():
    other = os.environ.get("LLMCC_TEST_SLOTS")
    if not other:
        pytest.skip("LLMCC_TEST_SLOTS names no artifact")
    with llmcc.load(other) as m, m.session() as s, pytest.raises(llmcc.LlmccError, match="goes on with its prompt"):
        s.encode([1])
