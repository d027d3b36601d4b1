"""Adapters that are loaded while a model runs: an artifact with room for two (``LLMCC_TEST_SLOTS``), and folders of adapters (``LLMCC_TEST_ADAPTERS``)."""

import os
from pathlib import Path

import pytest

import llmcc

ARTIFACT, FOLDER = os.environ.get("LLMCC_TEST_SLOTS"), Path(os.environ.get("LLMCC_TEST_ADAPTERS", "."))
pytestmark = pytest.mark.skipif(not ARTIFACT, reason="LLMCC_TEST_SLOTS names no artifact")
PROMPT = [3, 17, 5]


def tokens(model, **params):
    return [p.token for p in model.pieces(PROMPT, max_tokens=8, ignore_eos=True, **params)]


def test_generations_have_adapters_of_their_own():
    with llmcc.load(ARTIFACT) as m:
        plain = tokens(m)
        first, second = m.load_adapter(FOLDER / "all"), m.load_adapter(str(FOLDER / "some"))
        alone = [tokens(m, adapter=first), tokens(m, adapter=second), plain]
        assert tokens(m) == plain and alone[0] != plain
        each = [{"adapter": first}, {"adapter": second}, {}]
        together = m.complete([PROMPT] * 3, max_tokens=8, ignore_eos=True, each=each)
        assert [c.tokens for c in together] == alone
        with m.session(adapter=first) as s, m.session() as t:
            rows = m.step([(s, PROMPT), (t, PROMPT)], numpy=False)
            with m.session(adapter=first) as u:
                assert u.step(PROMPT, numpy=False) == rows[0] != rows[1]
            with pytest.raises(llmcc.LlmccError, match="1 sequences use adapter"):
                m.unload_adapter(first)
        m.unload_adapter(first)
        assert m.load_adapter(FOLDER / "one") == first


def test_mistakes_are_told():
    with llmcc.load(ARTIFACT) as m:
        with pytest.raises(llmcc.LlmccError, match="no adapter 1 is loaded; use a number that llmcc_adapter_load returned"):
            tokens(m, adapter=1)
        with pytest.raises(llmcc.LlmccError, match="does not exist"):
            m.load_adapter("/nowhere")
        with pytest.raises(llmcc.LlmccError, match="use an integer"):
            tokens(m, adapter=-1)
        with pytest.raises(llmcc.LlmccError, match="prompt_logprobs"):
            m.complete(PROMPT, adapter=1, prompt_logprobs=0)
