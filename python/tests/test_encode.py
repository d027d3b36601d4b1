"""Embeddings and what is made of them, by an embedder with the files of sentence-transformers (LLMCC_TEST_EMBEDDER): prompts ``query`` and ``document``, similarity ``dot``, rows that are not
normalized; and pairs by a reranker (LLMCC_TEST_RANKER)."""

from __future__ import annotations

import math
import os

import pytest

import llmcc

PATH = os.environ.get("LLMCC_TEST_EMBEDDER")
RANKER = os.environ.get("LLMCC_TEST_RANKER")
pytestmark = pytest.mark.skipif(not (PATH and RANKER), reason="skipped: set LLMCC_TEST_EMBEDDER and LLMCC_TEST_RANKER")
np = pytest.importorskip("numpy")
TEXTS = ["the cat sat on the mat", "money", "the bank of the river", "what is a bank", "money"]


@pytest.fixture(scope="module")
def model():
    with llmcc.load(PATH) as opened:
        yield opened


@pytest.fixture(scope="module")
def ranker():
    with llmcc.load(RANKER) as opened:
        yield opened


def reference(name: str, a, b):
    """The functions of sentence-transformers' ``util``, in float64."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if name == "cosine":
        a, b = a / np.linalg.norm(a, axis=1, keepdims=True), b / np.linalg.norm(b, axis=1, keepdims=True)
    if name in ("cosine", "dot"):
        return a @ b.T
    difference = a[:, None] - b[None]
    return -np.sqrt((difference**2).sum(-1)) if name == "euclidean" else -np.abs(difference).sum(-1)


def test_similarities_are_those_of_sentence_transformers(model: llmcc.Model) -> None:
    a, b = model.embed(TEXTS), model.embed(TEXTS[1:3])
    assert not np.allclose(np.linalg.norm(a, axis=1), 1)
    for name in ("cosine", "dot", "euclidean", "manhattan"):
        expected = reference(name, a, b)
        found = model.similarity(a, b, similarity_fn_name=name)
        assert found.shape == (5, 2) and found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        lists = model.similarity(a, b, similarity_fn_name=name, numpy=False)
        np.testing.assert_allclose(lists, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(model.similarity(TEXTS, TEXTS[1:3], similarity_fn_name=name), found, rtol=1e-6, atol=1e-6)
    assert model.similarity_fn_name == "dot"
    np.testing.assert_array_equal(model.similarity(a, b), model.similarity(a, b, similarity_fn_name="dot"))


def test_similarity_takes_texts_tokens_and_rows(model: llmcc.Model) -> None:
    rows = model.embed(TEXTS)
    whole = model.similarity(TEXTS)
    np.testing.assert_array_equal(whole, model.similarity(rows))
    assert whole.shape == (5, 5) and whole[1, 4] == whole[1, 1]
    assert model.similarity(TEXTS[0], TEXTS).shape == (1, 5) and model.similarity(rows[0], rows[1]).shape == (1, 1)
    # (Products of matrices of other shapes are summed in another order.)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5)  # noqa: E731
    close(model.similarity([model.tokenize(t) for t in TEXTS], rows.tolist()), whole)
    close(model.similarity([rows[0], rows[1]], TEXTS), whole[:2])
    assert model.similarity([rows[0], rows[1]], TEXTS, numpy=False)[1][1] == pytest.approx(float(whole[1, 1]), rel=1e-5)
    with_prompt = model.embed(TEXTS, prompt_name="query")
    np.testing.assert_array_equal(model.similarity(TEXTS, rows, prompt_name="query"), model.similarity(with_prompt, rows))
    for empty in ([], np.zeros((0, rows.shape[1]), np.float32)):
        assert model.similarity(empty, rows).shape == (0, 5)
    zero = np.zeros(rows.shape[1], np.float32)
    for numpy in (True, False):
        assert model.similarity(zero, rows, similarity_fn_name="cosine", numpy=numpy)[0][0] == 0
        with pytest.raises(ValueError, match="rows of 3 and of .* numbers cannot be compared"):
            model.similarity(np.zeros((2, 3)), rows, numpy=numpy)
        with pytest.raises(ValueError, match="the similarity 'angle' is not known; use one of cosine, dot"):
            model.similarity(rows, rows, similarity_fn_name="angle", numpy=numpy)
    with pytest.raises(ValueError, match="rows of 1 and of 2 numbers; they must be equally long"):
        model.similarity([[1.0], [1.0, 2.0]], numpy=False)


def test_prompts_by_name_and_as_texts(model: llmcc.Model) -> None:
    assert model.prompts == {"document": "money ", "query": "the bank: "} and model.default_prompt_name is None
    for name, prompt in model.prompts.items():
        expected = model.embed([prompt + text for text in TEXTS])
        np.testing.assert_array_equal(model.embed(TEXTS, prompt_name=name), expected)
        np.testing.assert_array_equal(model.embed(TEXTS, prompt=prompt), expected)
    np.testing.assert_array_equal(model.embed(TEXTS, prompt=""), model.embed(TEXTS))
    with pytest.raises(ValueError, match="prompt_name is 'passage'; the prompts of this model are document, query"):
        model.embed(TEXTS, prompt_name="passage")
    with pytest.raises(ValueError, match="exclude each other"):
        model.embed(TEXTS, prompt_name="query", prompt="x")
    with pytest.raises(TypeError, match="tokens are taken as they are"):
        model.embed([[1, 2]], prompt="x")
    with pytest.raises(TypeError, match="prompt must be a text"):
        model.embed(TEXTS, prompt=3)  # type: ignore[call-overload]


def test_batches_change_nothing(model: llmcc.Model, ranker: llmcc.Model) -> None:
    rows = model.embed(TEXTS)
    pairs = [(TEXTS[3], text) for text in TEXTS]
    scores = ranker.score_pairs(pairs)
    tokens, types = (list(part) for part in zip(*(ranker.tokenize_pair(*pair) for pair in pairs)))
    for size in (1, 2, 5, 100):
        np.testing.assert_array_equal(model.embed(TEXTS, batch_size=size), rows)
        np.testing.assert_array_equal(ranker.embed(tokens, types=types, batch_size=size), scores)
        np.testing.assert_array_equal(ranker.score_pairs(pairs, batch_size=size), scores)
        assert ranker.rank(TEXTS[3], TEXTS, batch_size=size) == ranker.rank(TEXTS[3], TEXTS)
    assert model.embed([]).shape == (0, rows.shape[1]) and model.embed([], numpy=False, batch_size=2) == []
    for bad in (0, -1, 1.5, True):
        with pytest.raises(llmcc.LlmccError, match="batch_size is"):
            model.embed(TEXTS, batch_size=bad)  # type: ignore[call-overload]


def test_errors_count_all_texts(model: llmcc.Model, ranker: llmcc.Model) -> None:
    long = "the cat sat on the mat. " * 100
    with pytest.raises(llmcc.LlmccError, match="pair 3 has .* tokens, .*truncate=True"):
        ranker.score_pairs([("a", "b")] * 3 + [("a", long)], batch_size=2)
    with pytest.raises(llmcc.LlmccError, match="row 3 has no tokens"):
        model.embed([[1], [1], [1], []], batch_size=2)
    for name, says in [("normalize_embeddings", "use normalize"), ("show_progress_bar", "use progress"), ("promt_name", "use prompt_name")]:
        with pytest.raises(TypeError, match=f"{name} is not a parameter here; {says}"):
            model.embed(TEXTS, **{name: True})  # type: ignore[call-overload]


def test_the_best_documents(ranker: llmcc.Model) -> None:
    ranked = ranker.rank(TEXTS[3], TEXTS)
    assert [len(ranker.rank(TEXTS[3], TEXTS, top_k=k)) for k in (1, 3, 5, 9)] == [1, 3, 5, 5]
    assert ranker.rank(TEXTS[3], TEXTS, top_k=3) == ranked[:3]
    named = ranker.rank(TEXTS[3], iter(TEXTS), return_documents=True)
    assert [(d.index, d.score) for d in named] == ranked and all(d.document == TEXTS[d.index] for d in named)
    assert isinstance(named[0], llmcc.RankedDocument) and named[0]._fields == ("index", "score", "document")
    with llmcc.load(PATH) as embedder, pytest.raises(llmcc.LlmccError, match="rank by model.similarity"):
        embedder.rank(TEXTS[3], TEXTS)
    with pytest.raises(llmcc.LlmccError, match="top_k is 0"):
        ranker.rank(TEXTS[3], TEXTS, top_k=0)


def test_scores_of_pairs_as_cross_encoders_have_them(ranker: llmcc.Model) -> None:
    pairs = [(TEXTS[3], text) for text in TEXTS]
    raw = ranker.score_pairs(pairs, numpy=False)
    sigmoid = [[1 / (1 + math.exp(-x))] for [x] in raw]
    # Without a setting the sigmoid of a single class; `torch.nn.modules.linear.Identity` says that there is none.
    for own, expected in ((None, sigmoid), ("sigmoid", sigmoid), ("identity", raw), ("tanh", [[math.tanh(x)] for [x] in raw])):
        ranker._facts()["pair_activation"] = own
        np.testing.assert_allclose(ranker.score_pairs(pairs, activation="model"), expected, rtol=1e-6)
        assert [r.index for r in ranker.rank(TEXTS[3], TEXTS, activation="model")] == [r.index for r in ranker.rank(TEXTS[3], TEXTS)]
    ranker._facts()["pair_activation"] = "gelu"
    with pytest.raises(llmcc.LlmccError, match="the model's activation is 'gelu'; give activation="):
        ranker.score_pairs(pairs, activation="model")
    ranker._facts()["pair_activation"] = None
