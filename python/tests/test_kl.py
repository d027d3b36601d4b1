"""``llmcc eval kl`` (its document: ``LLMCC_TEST_KL``, of the text ``LLMCC_TEST_KL_TEXT``) against NumPy in float64, from the logits of both artifacts."""

from __future__ import annotations

import json
import os

import pytest

import llmcc

DOCUMENT, TEXT = os.environ.get("LLMCC_TEST_KL"), os.environ.get("LLMCC_TEST_KL_TEXT")
REFERENCE, OTHER = os.environ.get("LLMCC_TEST_EXACT"), os.environ.get("LLMCC_TEST_ARTIFACT")
pytestmark = pytest.mark.skipif(not (DOCUMENT and TEXT and REFERENCE and OTHER), reason="skipped: set LLMCC_TEST_KL, LLMCC_TEST_KL_TEXT and two artifacts")
np = pytest.importorskip("numpy")
BLOCK, NORMAL = 64, 1.959963984540054
#: Student's 97.5 % quantiles, from tables, by degrees of freedom.
STUDENT = {3: 3.182446, 4: 2.776445, 5: 2.570582, 6: 2.446912, 7: 2.364624, 8: 2.306004, 9: 2.262157, 10: 2.228139, 11: 2.200985, 12: 2.178813, 13: 2.160369, 14: 2.144787, 15: 2.131450,
           16: 2.119905, 17: 2.109816, 18: 2.100922, 19: 2.093024, 20: 2.085963, 21: 2.079614, 22: 2.073873, 23: 2.068658, 24: 2.063899, 25: 2.059539}


def log_probabilities(model: llmcc.Model, tokens: list[int]):
    x = model.forward(tokens).astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def test_divergence_agreement_and_intervals() -> None:
    found = json.loads(DOCUMENT)
    kl, agrees, nll, blocks = [], [], [], []
    with llmcc.load(REFERENCE) as reference, llmcc.load(OTHER) as other:
        for document in TEXT.split("<|document|>"):
            tokens = reference.tokenize(document.strip())
            p, q = (log_probabilities(m, tokens)[:-1] for m in (reference, other))
            rows, following = np.arange(len(tokens) - 1), np.array(tokens[1:])
            kl.append((np.exp(p) * (p - q)).sum(axis=-1))
            agrees.append((p.argmax(axis=-1) == q.argmax(axis=-1)).astype(np.float64))
            nll.append(np.stack([-p[rows, following], -q[rows, following]]))
            blocks += [len(kl[-1][at : at + BLOCK]) for at in range(0, len(kl[-1]), BLOCK)]
    values, agree, nll = np.concatenate(kl), np.concatenate(agrees), np.concatenate(nll, axis=1)
    n = len(values)
    assert (found["tokens"], found["blocks"]) == (n, len(blocks)) and len(blocks) - 1 in STUDENT, found
    close = dict(rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["kl"]["mean"], values.mean(), **close)
    np.testing.assert_allclose(found["kl"]["largest"], values.max(), **close)
    np.testing.assert_allclose(found["kl"]["p99"], np.sort(values)[-(-n * 99 // 100) - 1], **close)
    np.testing.assert_allclose([found["reference_perplexity"], found["perplexity"]], np.exp(nll.mean(axis=1)), **close)
    np.testing.assert_allclose(found["nll_difference"]["mean"], (nll[1] - nll[0]).mean(), **close)
    assert found["top1"]["mean"] == pytest.approx(agree.mean(), rel=1e-12)
    assert values.mean() > 1e-4 and agree.mean() < 1.0, "4 bits change something"

    def interval(x) -> tuple[float, float]:
        sums = np.array([part.sum() for part in np.split(x, np.cumsum(blocks)[:-1])])
        b = len(blocks)
        error = np.sqrt(((sums - x.mean() * np.array(blocks)) ** 2).sum() * b / (b - 1)) / n
        half = STUDENT[b - 1] * error
        return x.mean() - half, x.mean() + half

    # Quantiles are within 0.2 %.
    low, high = interval(values)
    assert found["kl"]["low"] == pytest.approx(max(low, 0.0), abs=2e-3 * (high - low))
    assert found["kl"]["high"] == pytest.approx(high, abs=2e-3 * (high - low))
    low, high = interval(agree)
    share, z = agree.mean(), NORMAL
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low, high = max(min(low, centre - half), 0.0), min(max(high, centre + half), 1.0)
    assert found["top1"]["low"] == pytest.approx(low, abs=2e-3 * (high - low))
    assert found["top1"]["high"] == pytest.approx(high, abs=2e-3 * (high - low))
