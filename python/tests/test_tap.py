"""Moments of the inputs of products (``LLMCC_TEST_TAP``, an artifact without a tokenizer) against Transformers' (``LLMCC_TEST_TAP_GOLDEN``, which `tests/goldens/taps.py` writes)."""

from __future__ import annotations

import json
import os

import pytest

import llmcc

PATH, GOLDEN = os.environ.get("LLMCC_TEST_TAP"), os.environ.get("LLMCC_TEST_TAP_GOLDEN")
pytestmark = pytest.mark.skipif(not (PATH and GOLDEN), reason="skipped: set LLMCC_TEST_TAP and LLMCC_TEST_TAP_GOLDEN")
np = pytest.importorskip("numpy")


def golden():
    with open(GOLDEN, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    types = {"F64": np.float64, "I64": np.int64, "I32": np.int32}
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[slice(*of["data_offsets"])], types[of["dtype"]]).reshape(of["shape"]) for name, of in header.items()}


@pytest.fixture(scope="module")
def model():
    with llmcc.load(PATH) as opened:
        yield opened


def test_moments_are_those_of_transformers(model: llmcc.Model) -> None:
    want = golden()
    texts = np.split(want["tokens"], np.cumsum(want["lengths"])[:-1])
    found = model.tap([t.tolist() for t in texts], full=True)
    assert sorted(found) == sorted(name[: -len(".count")] for name in want if name.endswith(".count"))
    # Relative to the largest number of a tensor, the largest of all: ours, and of Transformers in float32.
    ours, theirs = {}, {}
    for weight, parts in found.items():
        assert parts["count"] == want[f"{weight}.count"] == len(want["tokens"])
        assert parts["squares"].dtype == np.float64 and parts["min"].dtype == np.float32
        for part, error in zip(("squares", "min", "max", "products"), want[f"{weight}.error"]):
            if (reference := want.get(f"{weight}.{part}")) is not None:
                largest = np.abs(reference).max()
                ours[part] = max(ours.get(part, 0.0), np.abs(parts[part] - reference).max() / largest)
                theirs[part] = max(theirs.get(part, 0.0), error / largest)
        np.testing.assert_array_equal(np.diag(parts["products"]), parts["squares"])
    assert all(ours[part] <= 2 * theirs[part] for part in ("squares", "min", "max", "products")), (ours, theirs)


def test_some_weights_alone(model: llmcc.Model) -> None:
    weight = "model.layers.1.mlp.down_proj.weight"
    text = [5, 9, 70, 11]
    alone, whole = model.tap(text, weights=[weight]), model.tap(text)
    assert list(alone) == [weight] and "products" not in alone[weight]
    for part, values in alone[weight].items():
        np.testing.assert_array_equal(values, whole[weight][part])
    with pytest.raises(ValueError, match="no product multiplies 'nothing'"):
        model.tap(text, weights=["nothing"])
    with pytest.raises(TypeError, match="a list of names"):
        model.tap(text, weights=weight)


@pytest.mark.skipif(not os.environ.get("LLMCC_TEST_ARTIFACT"), reason="skipped: set LLMCC_TEST_ARTIFACT")
def test_other_artifacts_say_how_to_get_them() -> None:
    with llmcc.load(os.environ["LLMCC_TEST_ARTIFACT"]) as plain, pytest.raises(llmcc.LlmccError, match="--tap"):
        plain.tap("a text")
