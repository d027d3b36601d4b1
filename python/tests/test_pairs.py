"""Pairs of texts, by a model that scores them, named by LLMCC_TEST_RANKER: one class, types of tokens."""

from __future__ import annotations

import math
import os

import pytest

import llmcc

PATH = os.environ.get("LLMCC_TEST_RANKER")
pytestmark = pytest.mark.skipif(not PATH, reason="skipped: set LLMCC_TEST_RANKER to an artifact that scores pairs")
QUERY = "what is a bank"
DOCUMENTS = ["money", "the cat sat on the mat", "the bank of the river", "money"]


@pytest.fixture(scope="module")
def model():
    with llmcc.load(PATH) as opened:
        yield opened


def test_scores_of_texts_are_those_of_their_tokens(model: llmcc.Model) -> None:
    np = pytest.importorskip("numpy")
    assert model.info["output"] == "scores" and model.info["columns"] == 1 and model.info["has_types"]
    scores = model.score_pairs([(QUERY, d) for d in DOCUMENTS])
    assert scores.shape == (4, 1) and scores.dtype == np.float32
    pairs = [model.tokenize_pair(QUERY, d) for d in DOCUMENTS]
    for tokens, types in pairs:
        border = tokens.index(tokens[-1]) + 1
        assert types == [0] * border + [1] * (len(tokens) - border)
    by_tokens = model.embed([tokens for tokens, _ in pairs], types=[types for _, types in pairs])
    assert (by_tokens == scores).all()
    tokens, types = pairs[0]
    assert (model.embed(tokens, types=types) == scores[0]).all()
    assert (model.embed(tokens) == model.embed(tokens, types=[0] * len(tokens))).all()
    assert (model.embed(tokens) != scores[0]).any()
    assert model.score_pairs([], numpy=False) == []


def test_activations(model: llmcc.Model) -> None:
    pair = [(QUERY, DOCUMENTS[0])]
    [[raw]], [[sigmoid]], softmax = (model.score_pairs(pair, activation=a, numpy=False) for a in (None, "sigmoid", "softmax"))
    assert math.isclose(sigmoid, 1 / (1 + math.exp(-raw))) and softmax == [[1.0]]
    with pytest.raises(ValueError, match="activation must be one of"):
        model.score_pairs(pair, activation="tanh")


def test_documents_are_ranked(model: llmcc.Model) -> None:
    scores = model.score_pairs([(QUERY, d) for d in DOCUMENTS], numpy=False)
    ranked = model.rank(QUERY, DOCUMENTS)
    assert sorted(r.index for r in ranked) == [0, 1, 2, 3]
    assert [r.score for r in ranked] == sorted((s for [s] in scores), reverse=True)
    assert all([r.score] == scores[r.index] for r in ranked)
    # Equal ones in their order.
    assert [r.index for r in ranked if r.index in (0, 3)] == [0, 3]
    assert [r.index for r in model.rank(QUERY, DOCUMENTS, activation="sigmoid")] == [r.index for r in ranked]


def test_long_pairs_are_told_or_cut(model: llmcc.Model) -> None:
    long = "the cat sat on the mat. " * 100
    with pytest.raises(llmcc.LlmccError, match="pair 0 has .* tokens, .*truncate=True"):
        model.score_pairs([(QUERY, long)])
    most = model.info["max_context"]
    tokens, types = model.tokenize_pair(QUERY, long, max_tokens=most)
    assert len(tokens) == most and tokens[:3] == model.tokenize_pair(QUERY, "money")[0][:3]
    assert (model.score_pairs([(QUERY, long)], truncate=True)[0] == model.embed(tokens, types=types)).all()
    with pytest.raises(llmcc.LlmccError, match="no text fits into 3 tokens"):
        model.tokenize_pair(QUERY, long, max_tokens=3)


def test_what_is_no_pair(model: llmcc.Model) -> None:
    with pytest.raises(TypeError, match="pair 0 must be two texts"):
        model.score_pairs(["ab"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a pair must be of two texts"):
        model.score_pairs([("a", 1)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="documents must be a list"):
        model.rank(QUERY, "money")
    with pytest.raises(ValueError, match="types must be one for each token"):
        model.embed([1, 2, 3], types=[0, 1])
    with pytest.raises(llmcc.LlmccError, match="type 2 of the token at index 1 is out of range: the model has 2 types, counted from 0"):
        model.embed([1, 2], types=[0, 2])
