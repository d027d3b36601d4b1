"""End to end on a real artifact, named by LLMCC_TEST_ARTIFACT; one with a tokenizer."""

from __future__ import annotations

import math
import os
import threading

import pytest

import llmcc

PATH = os.environ.get("LLMCC_TEST_ARTIFACT")
pytestmark = pytest.mark.skipif(not PATH, reason="skipped: set LLMCC_TEST_ARTIFACT to an artifact with a tokenizer")
PROMPT = os.environ.get("LLMCC_TEST_PROMPT", "Once upon a time")


@pytest.fixture(scope="module")
def model():
    with llmcc.load(PATH, max_tokens=4096) as opened:
        yield opened


def test_descriptions(model: llmcc.Model) -> None:
    info = model.info
    assert info["vocab"] > 0 and info["layers"] > 0 and info["weights_bytes"] > 0 and info["threads"] >= 1
    assert isinstance(model.manifest, dict) and model.manifest
    stats = model.stats()
    assert stats["profile"] is None and stats["kv_tokens_max"] >= 4096
    assert "llmcc.Model" in repr(model)


def test_text_round_trip(model: llmcc.Model) -> None:
    tokens = model.tokenize(PROMPT, add_special=False)
    assert tokens and model.detokenize(tokens).strip() == PROMPT
    if model.info["bos_token"] is not None and len(model.tokenize(PROMPT)) > len(tokens):
        assert model.tokenize(PROMPT)[0] == model.info["bos_token"]


def test_greedy_generation_is_repeatable_and_streams(model: llmcc.Model) -> None:
    text = model.generate(PROMPT, max_tokens=24)
    assert text == model.generate(PROMPT, max_tokens=24)
    assert "".join(model.stream(PROMPT, max_tokens=24)) == text
    pieces = list(model.pieces(PROMPT, max_tokens=24))
    assert "".join(p.text for p in pieces) == text
    assert [p.finish for p in pieces[:-1]] == [None] * (len(pieces) - 1) and pieces[-1].finish in ("length", "token")
    assert model.generate(model.tokenize(PROMPT), max_tokens=24) == text


def test_greedy_generation_follows_the_logits(model: llmcc.Model) -> None:
    np = pytest.importorskip("numpy")
    prompt = model.tokenize(PROMPT)
    tokens = [p.token for p in model.pieces(prompt, max_tokens=12)]
    logits = model.forward([*prompt, *tokens])
    assert logits.shape == (len(prompt) + len(tokens), model.info["vocab"]) and logits.dtype == np.float32
    assert [int(row.argmax()) for row in logits[len(prompt) - 1 : -1]] == tokens


def test_logits_do_not_depend_on_how_tokens_arrive(model: llmcc.Model) -> None:
    np = pytest.importorskip("numpy")
    tokens = (model.tokenize(PROMPT) * 8)[:40]
    whole = model.forward(tokens)
    with model.session() as s:
        one_by_one = np.stack([s.step([t]) for t in tokens])
    np.testing.assert_allclose(one_by_one, whole, rtol=1e-4, atol=1e-4)
    assert model.forward(tokens[:2], numpy=False)[1] == whole[1].tolist()


def test_sampling_is_reproducible(model: llmcc.Model) -> None:
    options = dict(max_tokens=20, temperature=1.0, top_k=50, top_p=0.95, min_p=0.01, repetition_penalty=1.1)
    assert model.generate(PROMPT, seed=1, **options) == model.generate(PROMPT, seed=1, **options)
    assert len({model.generate(PROMPT, seed=s, **options) for s in range(4)}) > 1


def test_stop_strings_are_cut_off(model: llmcc.Model) -> None:
    text = model.generate(PROMPT, max_tokens=24)
    stop = text[len(text) // 2 :][:3]
    assert model.generate(PROMPT, max_tokens=24, stop=stop) == text[: text.find(stop)]


def test_sessions_continue_and_fork(model: llmcc.Model) -> None:
    whole = [p.token for p in model.pieces(PROMPT, max_tokens=20, ignore_eos=True)]
    with model.session() as s:
        s.append(model.tokenize(PROMPT))
        n = len(s)
        s.generate(max_tokens=10, ignore_eos=True)
        with s.fork() as branch:
            branch.generate(max_tokens=10, ignore_eos=True)
            assert branch.tokens[n:] == whole
        assert s.tokens[n:] == whole[:10]
        s.truncate(n)
        s.generate(max_tokens=20, ignore_eos=True)
        assert s.tokens[n:] == whole
    with pytest.raises(llmcc.LlmccError, match="closed"):
        s.append([1])


def test_mixed_batches_equal_separate_steps(model: llmcc.Model) -> None:
    np = pytest.importorskip("numpy")
    tokens = model.tokenize(PROMPT) * 5
    with model.session() as a, model.session() as b, model.session() as c:
        a.append(tokens[:17])
        mixed = model.step([(a, tokens[17:18]), (b, tokens[:20]), (c, tokens[:1])])
        np.testing.assert_array_equal(a.tokens, tokens[:18])
        alone = model.forward(tokens[:20])
        np.testing.assert_allclose(mixed, alone[[17, 19, 0]], rtol=1e-4, atol=1e-4)
        with pytest.raises(llmcc.LlmccError, match="twice"):
            model.step([(a, [1]), (a, [1])])
        with pytest.raises(llmcc.LlmccError, match="at least one token"):
            model.step([(a, [])])


def test_errors(model: llmcc.Model) -> None:
    with pytest.raises(llmcc.LlmccError, match="outside the vocabulary") as caught:
        model.forward([model.info["vocab"]])
    assert caught.value.status == llmcc.Status.INVALID
    with pytest.raises(llmcc.LlmccError, match="top_p"):
        model.generate(PROMPT, top_p=2.0, temperature=1.0)
    if not model.info["has_chat_template"]:
        with pytest.raises(llmcc.LlmccError) as caught:
            model.chat([{"role": "user", "content": "Hi"}])
        assert caught.value.status == llmcc.Status.UNSUPPORTED


CHATML = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}{{ x }}{{ max_length }}"


def test_prompts_of_conversations(model: llmcc.Model) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "It is"}]
    whole = "<user>q<end><assistant>It is<end>"
    assert model.apply_chat_template(messages, chat_template=CHATML, x=3) == whole + "<assistant>3"
    assert model.apply_chat_template(messages, add_generation_prompt=False, chat_template=CHATML) == whole
    opened = model.apply_chat_template(messages, chat_template=CHATML, continue_final_message=True)
    assert opened == "<user>q<end><assistant>It is"
    tokens = model.apply_chat_template(messages, chat_template=CHATML, continue_final_message=True, tokenize=True)
    assert tokens == model.tokenize(opened, add_special=False)
    with pytest.raises(llmcc.LlmccError, match="exclude each other"):
        model.apply_chat_template(messages, add_generation_prompt=True, chat_template=CHATML, continue_final_message=True)
    with pytest.raises(llmcc.LlmccError, match="reasoning_content"):
        model.apply_chat_template(messages, chat_template=CHATML, continue_final_message="reasoning_content")
    with pytest.raises(TypeError, match="max_length"):
        model.apply_chat_template(messages, chat_template=CHATML, max_length=8)
    assert model.apply_chat_template(messages, chat_template=CHATML, max_length=None, padding=False) == whole + "<assistant>"


def test_a_full_cache_is_an_error() -> None:
    with llmcc.load(PATH, threads=1, max_tokens=16) as small:
        tokens = small.tokenize(PROMPT)
        with pytest.raises(llmcc.LlmccError, match="max_tokens") as caught:
            small.forward((tokens * 40)[:40])
        assert caught.value.status == llmcc.Status.CACHE_FULL
        assert small.generate(tokens, max_tokens=2, ignore_eos=True) is not None


def test_threads_and_models_do_not_disturb_each_other(model: llmcc.Model) -> None:
    expected = model.generate(PROMPT, max_tokens=16)
    results: list[str] = []
    with llmcc.load(PATH, threads=2, max_tokens=2048) as other:
        workers = [threading.Thread(target=lambda m=m: results.append(m.generate(PROMPT, max_tokens=16))) for m in [model, other] * 3]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert results == [expected] * 6


def test_closing() -> None:
    opened = llmcc.load(PATH, threads=1, max_tokens=1024)
    stream = opened.stream(PROMPT, max_tokens=3, ignore_eos=True)
    opened.close()
    opened.close()
    # A stream under way ends as if nothing had happened.
    assert isinstance("".join(stream), str)
    with pytest.raises(llmcc.LlmccError, match="closed"):
        opened.generate(PROMPT)


def test_profiles() -> None:
    with llmcc.load(PATH, threads=1, max_tokens=1024, profile=True) as profiled:
        profiled.generate(PROMPT, max_tokens=3, ignore_eos=True)
        profile = profiled.stats()["profile"]
        assert profile["batches"] == 3 and sum(s["ns"] for s in profile["steps"]) > 0


def test_damaged_artifacts_are_refused_before_they_are_loaded(tmp_path) -> None:
    whole = open(PATH, "rb").read()
    # The segments' addresses; machine code; the end of the file.
    headers = int.from_bytes(whole[32:40], "little")
    for at, says in [(headers + 56 + 17, "headers"), (500_000, "runtime"), (len(whole) - 1, "hashes")]:
        bad = bytearray(whole)
        bad[at] ^= 16
        path = tmp_path / "bad.so"
        path.write_bytes(bad)
        with pytest.raises(llmcc.LlmccError, match=says) as error:
            llmcc.load(path)
        assert error.value.status == llmcc.Status.ARTIFACT
    path.write_bytes(whole[:-1])
    with pytest.raises(llmcc.LlmccError, match="cut short"):
        llmcc.load(path)


def test_empty_batches_and_iterables(model: llmcc.Model) -> None:
    assert model.generate([]) == [] and model.complete([]) == [] and model.score([]) == [] and list(model.stream([])) == []
    tokens = model.tokenize(PROMPT)
    text = model.generate(tokens, max_tokens=4)
    assert model.generate((t for t in tokens), max_tokens=4) == text
    assert model.generate((p for p in [PROMPT, tokens]), max_tokens=4, seed=None) == [text, text]
    np = pytest.importorskip("numpy")
    assert model.generate(np.array(tokens), max_tokens=np.int64(4)) == text
    assert model.score(iter([tokens]))[0] == model.score(tokens)
    assert model.forward(iter(tokens)).shape[0] == len(tokens) and model.forward([]).shape == (0, model.vocab_size)
    assert model.detokenize(range(20, 24)) == model.detokenize([20, 21, 22, 23])


def test_no_share_takes_the_most_probable_token(model: llmcc.Model) -> None:
    with model.session() as session:
        row = model.step([(session, model.tokenize(PROMPT))], numpy=False)[0]
    best = max(range(len(row)), key=row.__getitem__)
    assert {model.sample(row, temperature=3.0, top_p=p, seed=s) for s in range(20) for p in (0.0, 1e-9)} == {best}
    greedy = model.generate(PROMPT, max_tokens=4)
    assert model.generate(PROMPT, max_tokens=4, temperature=3.0, top_p=0.0, seed=5) == greedy


def test_interrupts_end_long_calls(model: llmcc.Model) -> None:
    import gc
    import signal
    import time

    text = PROMPT + " and the cat sat on the mat;" * 200000
    rows = [[(7 * i + j) % 200 + 10 for j in range(200)] for i in range(4000)]

    def interrupted(work) -> float:
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            # (On a busy machine the signal may come before this returns.)
            timer.start()
            work()
        timer.join()
        return time.monotonic() - start

    # (Other tests may have left a session to the collector.)
    before = model.stats()["sequences"]
    for work in (lambda: model.score(rows), lambda: model.generate(rows, max_tokens=100, ignore_eos=True), lambda: model.tokenize(text)):
        assert interrupted(work) < 1.5
    # Nothing is left of an interrupted call, once the frames are gone that pytest's exceptions
    # refer to.
    gc.collect()
    assert model.stats()["sequences"] <= before
    assert model.generate(PROMPT, max_tokens=4) == model.generate(PROMPT, max_tokens=4)


@pytest.mark.skipif(not os.environ.get("LLMCC_TEST_DEFAULTS"), reason="skipped: set LLMCC_TEST_DEFAULTS to the example model with its generation_config.json")
def test_generations_are_as_the_model_says() -> None:
    with llmcc.load(os.environ["LLMCC_TEST_DEFAULTS"]) as own:
        assert own.generation_defaults == {"temperature": 0.7, "top_k": 40, "top_p": 0.95}
        given = dict(temperature=0.7, top_k=40, top_p=0.95)
        greedy = own.generate(PROMPT, max_tokens=24, greedy=True)
        for seed in (0, 5):
            drawn = own.generate(PROMPT, max_tokens=24, seed=seed)
            assert drawn == own.generate(PROMPT, max_tokens=24, seed=seed, **given)
            with own.session() as session:
                assert session.generate(PROMPT, max_tokens=24, seed=seed) == drawn
            assert own.generate([PROMPT], max_tokens=24, each=[{"seed": seed}]) == [drawn]
        assert any(own.generate(PROMPT, max_tokens=24, seed=s) != greedy for s in range(4))
        # A parameter takes the place of the model's; the others stay.
        assert own.generate(PROMPT, max_tokens=24, temperature=0) == greedy
        assert own.generate(PROMPT, max_tokens=24, top_k=1) == greedy
        with pytest.raises(ValueError, match="give one of them"):
            own.generate(PROMPT, greedy=True, temperature=1.0)


def test_a_model_without_settings_is_greedy(model: llmcc.Model) -> None:
    assert model.generation_defaults == {} and model.prompts == {} and model.classes == []
    assert model.generate(PROMPT, max_tokens=8) == model.generate(PROMPT, max_tokens=8, greedy=True)
    with pytest.raises(TypeError, match="max_new_tokens is not a parameter here; use max_tokens"):
        model.generate(PROMPT, max_new_tokens=8)
    with pytest.raises(TypeError, match="not a text; use "):
        model.chat("hi")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no named prompts"):
        model.embed(PROMPT, prompt_name="query")
    with pytest.raises(llmcc.LlmccError, match="scores no classes"):
        model.classify(PROMPT)


@pytest.mark.skipif(not os.environ.get("LLMCC_TEST_CLASSES"), reason="skipped: set LLMCC_TEST_CLASSES to a classifier")
def test_classes_have_names() -> None:
    with llmcc.load(os.environ["LLMCC_TEST_CLASSES"]) as classifier:
        assert classifier.classes == ["a", "b", "c"]
        scores = classifier.embed([1, 2, 3], numpy=False)
        found = classifier.classify([1, 2, 3], activation=None)
        assert sorted(found) == sorted(zip(classifier.classes, scores)) and found[0].score == max(scores)
        both = classifier.classify([[1, 2, 3], [4, 5]], activation="softmax")
        assert [c.name for c in both[0]] == [c.name for c in found] and abs(sum(c.score for c in both[1]) - 1) < 1e-6
        assert classifier.classify([[1, 2, 3], [4, 5]], top_k=2) == [classes[:2] for classes in both]
        for top_k in (0, -1, 1.5):
            with pytest.raises(llmcc.LlmccError, match="top_k is"):
                classifier.classify([1, 2, 3], top_k=top_k)  # type: ignore[arg-type]


@pytest.mark.skipif(not os.environ.get("LLMCC_TEST_CLASSES"), reason="skipped: set LLMCC_TEST_CLASSES to a classifier")
def test_scores_become_probabilities_as_the_model_says() -> None:
    with llmcc.load(os.environ["LLMCC_TEST_CLASSES"]) as classifier:
        raw = dict(classifier.classify([1, 2, 3], activation=None))
        total = sum(math.exp(x) for x in raw.values())
        softmax, sigmoid = {n: math.exp(x) / total for n, x in raw.items()}, {n: 1 / (1 + math.exp(-x)) for n, x in raw.items()}
        # As the text classification of Transformers chooses.
        for problem, expected in [
            (None, softmax),
            ("single_label_classification", softmax),
            ("multi_label_classification", sigmoid),
            ("regression", raw),
        ]:
            classifier._facts()["problem_type"] = problem
            assert classifier.problem_type == problem
            assert dict(classifier.classify([1, 2, 3])) == pytest.approx(expected)
        classifier._facts()["problem_type"] = "ordinal"
        with pytest.raises(llmcc.LlmccError, match="problem_type is 'ordinal'; give activation="):
            classifier.classify([1, 2, 3])
        assert dict(classifier.classify([1, 2, 3], activation="sigmoid")) == pytest.approx(sigmoid)
        with pytest.raises(ValueError, match="activation must be one of"):
            classifier.classify([1, 2, 3], activation="tanh")  # type: ignore[call-overload]
