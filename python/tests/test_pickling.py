"""Models in pickles: the artifact is opened again, in this process or another; one that has changed is refused."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import shutil
from pathlib import Path

import pytest

import llmcc

PATH = os.environ.get("LLMCC_TEST_ARTIFACT", "")
OTHER = os.environ.get("LLMCC_TEST_OTHER_ARTIFACT", "")
SLOTS, FOLDER = os.environ.get("LLMCC_TEST_SLOTS", ""), Path(os.environ.get("LLMCC_TEST_ADAPTERS", "."))
pytestmark = pytest.mark.skipif(not (PATH and OTHER), reason="skipped: set LLMCC_TEST_ARTIFACT and LLMCC_TEST_OTHER_ARTIFACT")
PROMPT = os.environ.get("LLMCC_TEST_PROMPT", "Once upon a time")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copyfile(PATH, tmp_path / "m.so"))


def generated(model: llmcc.Model) -> "tuple[str, int, int]":
    """For another process: a function of a module."""
    return model.generate(PROMPT, max_tokens=8), model.info["threads"], model.info["max_tokens"]


def test_models_are_opened_again(file: Path) -> None:
    with llmcc.load(file, threads=1, max_tokens=512, max_batch_tokens=128, portable=True) as model:
        with pickle.loads(pickle.dumps(model)) as again:
            assert again is not model and again.path == model.path and again._options == model._options
            assert {**again.info} == {**model.info} and again.info["threads"] == 1
            assert again.generate(PROMPT, max_tokens=8) == model.generate(PROMPT, max_tokens=8)
        # Each is closed by itself.
        assert model.generate(PROMPT, max_tokens=1, ignore_eos=True) is not None


def test_other_processes_open_them(file: Path) -> None:
    with llmcc.load(file, threads=1, max_tokens=512) as model:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map(generated, [model]) == [generated(model)]


def test_another_artifact_is_refused(file: Path) -> None:
    with llmcc.load(file, threads=1, max_tokens=64) as model:
        made = pickle.dumps(model)
    os.remove(file)
    with pytest.raises(llmcc.LlmccError, match="does not exist"):
        pickle.loads(made)
    shutil.copyfile(OTHER, file)
    with pytest.raises(llmcc.LlmccError, match="is not the artifact that was pickled: its digest is .*; pickle the model anew") as caught:
        pickle.loads(made)
    assert caught.value.status == llmcc.Status.ARTIFACT
    shutil.copyfile(PATH, file)
    pickle.loads(made).close()


def test_a_pickle_is_of_the_artifact_that_is_open(file: Path) -> None:
    with llmcc.load(file, threads=1, max_tokens=64) as model:
        new = file.with_suffix(".new")
        shutil.copyfile(OTHER, new)
        os.replace(new, file)
        with pytest.raises(llmcc.LlmccError, match="is not the artifact that was pickled"):
            pickle.loads(pickle.dumps(model))


def test_closed_models_and_copies_are_refused() -> None:
    model = llmcc.load(PATH, threads=1, max_tokens=64)
    for made in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a Model cannot be copied: share it"):
            made(model)
    with model.session() as session, pytest.raises(TypeError, match="Session cannot be copied or pickled"):
        pickle.dumps(session)
    model.close()
    with pytest.raises(llmcc.LlmccError, match="the model is closed"):
        pickle.dumps(model)


@pytest.mark.skipif(not SLOTS, reason="skipped: set LLMCC_TEST_SLOTS and LLMCC_TEST_ADAPTERS")
def test_adapters_are_loaded_again_under_their_numbers(tmp_path: Path) -> None:
    def tokens(model: llmcc.Model, adapter: int) -> "list[int]":
        return model.complete([3, 17, 5], max_tokens=8, ignore_eos=True, adapter=adapter).tokens

    folder = Path(shutil.copytree(FOLDER / "some", tmp_path / "some"))
    with llmcc.load(SLOTS) as model:
        first, second = model.load_adapter(FOLDER / "all"), model.load_adapter(folder)
        with pickle.loads(pickle.dumps(model)) as again:
            assert [tokens(again, n) for n in (0, first, second)] == [tokens(model, n) for n in (0, first, second)]
        # One whose number does not follow from the order.
        model.unload_adapter(first)
        made = pickle.dumps(model)
        with pickle.loads(made) as again:
            assert tokens(again, second) == tokens(model, second) != tokens(again, 0)
            with pytest.raises(llmcc.LlmccError, match=f"no adapter {first} is loaded"):
                tokens(again, first)
            assert again.load_adapter(FOLDER / "one") == first
        weights = folder / "adapter_model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
        with pytest.raises(llmcc.LlmccError, match="the adapter .*some has changed since the model was pickled"):
            pickle.loads(made)
        with pytest.raises(llmcc.LlmccError, match="the adapter .*some has changed since it was loaded"):
            pickle.dumps(model)
        shutil.rmtree(folder)
        with pytest.raises(llmcc.LlmccError, match="does not exist"):
            pickle.loads(made)
