"""The adapter for lm-evaluation-harness, on tasks of its own: nothing is fetched.

Run on the artifacts LLMCC_TEST_ARTIFACT (any with a tokenizer) and, against values of Transformers, LLMCC_TEST_EXACT (the example model, all in float32).
With LLMCC_TEST_EVAL the harness must be installed.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

PATH = os.environ.get("LLMCC_TEST_ARTIFACT")
EXACT = os.environ.get("LLMCC_TEST_EXACT")
GOLDENS = Path(__file__).resolve().parents[2] / "tests" / "goldens" / "tiny_llama"
# Nothing may be fetched, and nothing left behind.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
os.environ.update(OFFLINE)

if os.environ.get("LLMCC_TEST_EVAL"):
    importlib.import_module("lm_eval")
else:
    pytest.importorskip("lm_eval")
np = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(not PATH, reason="skipped: set LLMCC_TEST_ARTIFACT to an artifact with a tokenizer")

import llmcc  # noqa: E402
from llmcc.lm_eval import LlmccLM  # noqa: E402

QUESTIONS = [
    {"question": "def read_file(path):\n    return", "choices": ["open(path).read()", "None", "path"], "answer": 0},
    {"question": "import os\nimport", "choices": ["sys", "banana", "the quick brown fox"], "answer": 0},
    {"question": "for i in range(10):\n    print", "choices": ["(i)", "ing money"], "answer": 1},
    {"question": "x = [1, 2, 3]\nfor", "choices": ["x", "y in x:", "i"], "answer": 1},
]
TEXTS = ["def size(path):\n    return os.stat(path).st_size\n", "class Error(Exception):\n    pass\n" * 40, "x"]
TASKS = {
    "llmcc_choice": """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
doc_to_choice: "{{choices}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "llmcc_rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: bits_per_byte}]
""",
    "llmcc_write": """
output_type: generate_until
doc_to_text: "{{prompt}}"
doc_to_target: "{{text}}"
target_delimiter: ""
generation_kwargs: {until: [], max_gen_toks: 64}
metric_list: [{metric: exact_match}]
""",
}


@pytest.fixture(scope="module")
def lm() -> Iterator[LlmccLM]:
    adapter = LlmccLM(PATH, max_tokens=4096)
    yield adapter
    adapter.model.close()


def requests(*args: tuple[Any, ...]) -> list[Any]:
    return [SimpleNamespace(args=a) for a in args]


def reference(model: llmcc.Model, tokens: list[int], start: int) -> tuple[float, bool]:
    """From all logits, in NumPy."""
    logits = model.forward(tokens[:-1])[start - 1 :].astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    rows = np.arange(len(tokens) - start)
    return float(logprobs[rows, tokens[start:]].sum()), bool((logits.argmax(axis=1) == tokens[start:]).all())


def write_tasks(folder: Path, data: dict[str, list[dict[str, Any]]]) -> None:
    for name, docs in data.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in docs))
        source = f"task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {folder / name}.jsonl}}}}\ntest_split: test\n"
        (folder / f"{name}.yaml").write_text(source + TASKS[name])


def evaluate(folder: Path, artifact: str, tasks: list[str], *options: str) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Runs the program as a user does; results of the tasks, and their samples."""
    out = folder / "out"
    command = [sys.executable, "-m", "llmcc.lm_eval", "--model", "llmcc", "--model_args", f"path={artifact},max_tokens=4096"]
    command += ["--tasks", ",".join(tasks), "--include_path", str(folder), "--output_path", str(out), "--log_samples", *options]
    environment = {**os.environ, **OFFLINE, "HF_HOME": str(folder / "hf"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    results = json.loads(next(out.glob("**/results_*.json")).read_text())["results"]
    samples = {}
    for task in tasks:
        lines = next(out.glob(f"**/samples_{task}_*.jsonl")).read_text().splitlines()
        samples[task] = sorted((json.loads(line) for line in lines), key=lambda s: s["doc_id"])
    return results, samples


def test_tasks_by_the_program(tmp_path: Path) -> None:
    artifact = EXACT or PATH
    data: dict[str, list[dict[str, Any]]] = {"llmcc_choice": QUESTIONS, "llmcc_rolling": [{"text": t} for t in TEXTS]}
    # The texts Transformers writes (greedily, in float64), in one batch.
    cases = json.loads((GOLDENS / "prompts.json").read_text())["cases"] if EXACT else []
    if cases:
        data["llmcc_write"] = [{"prompt": c["prompt"], "text": c["greedy_text"]} for c in cases]
    write_tasks(tmp_path, data)
    results, samples = evaluate(tmp_path, str(artifact), list(data), "--batch_size", "auto")
    if cases:
        assert [s["resps"][0][0] for s in samples["llmcc_write"]] == [c["greedy_text"] for c in cases]
        assert results["llmcc_write"]["exact_match,none"] == 1.0
    lm = LlmccLM(artifact, max_tokens=4096)
    model, right = lm.model, 0
    for doc, sample in zip(QUESTIONS, samples["llmcc_choice"]):
        context = model.tokenize(doc["question"])
        sums = []
        for choice, response in zip(doc["choices"], sample["filtered_resps"]):
            want = reference(model, model.tokenize(f"{doc['question']} {choice}"), len(context))
            assert abs(float(response[0]) - want[0]) < 1e-9 and str(response[1]) == str(want[1])
            sums.append(want[0])
        right += int(np.argmax(sums)) == doc["answer"]
    assert results["llmcc_choice"]["acc,none"] == right / len(QUESTIONS)
    bits = 0.0
    for text, sample in zip(TEXTS, samples["llmcc_rolling"]):
        tokens = [lm.prefix_token_id, *lm.tok_encode(text)]
        want = reference(model, tokens, 1)[0]
        assert abs(float(np.ravel(sample["filtered_resps"])[0]) - want) < 1e-8
        bits -= want / math.log(2)
    size = sum(len(t.encode()) for t in TEXTS)
    assert abs(results["llmcc_rolling"]["bits_per_byte,none"] - bits / size) < 1e-9
    model.close()


@pytest.mark.skipif(not EXACT or not GOLDENS.exists(), reason="skipped: set LLMCC_TEST_EXACT to the example model's artifact in float32")
def test_likelihoods_of_transformers() -> None:
    goldens = safetensors(GOLDENS / "logits.safetensors")
    tokens = goldens["tokens"].tolist()
    rows = len(goldens["logits"])

    def loglikelihood(logits: Any) -> float:
        x = logits.astype(np.float64)[:-1]
        x = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
        return float(x[np.arange(rows - 1), tokens[1 - rows :]].sum())

    want = loglikelihood(goldens["logits"])
    # Four times what Transformers' float32 may be off: each logit's error counts twice.
    bound = 4 * 2 * (rows - 1) * goldens["error_f32"].max()
    exact = LlmccLM(EXACT, max_tokens=2048)
    ((got, _),) = exact._loglikelihood_tokens([(None, tokens[: 1 - rows], tokens[1 - rows :])], disable_tqdm=True)
    assert abs(got - want) < bound < 0.01 * abs(want), (got, want, bound)
    # Documents of the reference text, each after the beginning-of-sequence token, as `make_tiny_llama.py` judges them in NumPy.
    ppl = json.loads((GOLDENS / "ppl.json").read_text())
    documents = [d.strip() for d in (GOLDENS / "text.txt").read_text().split("<|endoftext|>") if d.strip()]
    plain = LlmccLM(EXACT, max_tokens=2048, add_bos_token=False)
    totals = plain.loglikelihood_rolling(requests(*((d,) for d in documents)), disable_tqdm=True)
    assert len(documents) == ppl["documents"]
    assert abs(-sum(totals) / ppl["tokens"] / ppl["nll"]["f32"] - 1) < 2e-4
    for adapter in (exact, plain):
        adapter.model.close()


def safetensors(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    kinds = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64}
    result = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            result[name] = np.frombuffer(data[8 + size + start : 8 + size + end], kinds[entry["dtype"]]).reshape(entry["shape"])
    return result


def test_requests_of_all_kinds(lm: LlmccLM) -> None:
    model = lm.model
    pairs = [("def f(x):", " return x"), ("def f(x): ", "return x"), ("", "import os"), ("def f(x):", " pass"), ("a" * 3000, " b")]
    got = lm.loglikelihood(requests(*pairs), disable_tqdm=True)
    assert got[0] == got[1], "spaces belong to the continuation"
    for (context, continuation), answer in zip(pairs, got):
        if context:
            tokens = model.tokenize(context.rstrip() + continuation if context.endswith(" ") else context + continuation)
            if context.endswith(" "):
                tokens = model.tokenize(context + continuation)
            start = len(model.tokenize(context.rstrip()))
        else:
            tokens, start = [lm.prefix_token_id, *model.tokenize(continuation, add_special=False)], 1
        # Contexts too long lose their beginning.
        cut = max(0, len(tokens) - lm.max_length - 1)
        want = reference(model, tokens[cut:], start - cut)
        assert abs(answer[0] - want[0]) < 1e-9 and answer[1] == want[1]
    greedy = model.complete("import os", max_tokens=3, ignore_eos=True).tokens
    ((_, is_greedy),) = lm._loglikelihood_tokens([(None, model.tokenize("import os"), greedy)], disable_tqdm=True)
    assert is_greedy


def test_long_texts_roll(lm: LlmccLM) -> None:
    short = LlmccLM(PATH, max_length=16, max_tokens=512, threads=1)
    text = "def size(path):\n    return os.stat(path).st_size\n" * 3
    (got,) = short.loglikelihood_rolling(requests((text,)), disable_tqdm=True)
    tokens = [short.prefix_token_id, *short.tok_encode(text)]
    # Windows of 16 tokens; the last one has as much context as fits.
    want = 0.0
    for start in range(1, len(tokens), 16):
        end = min(start + 16, len(tokens))
        want += reference(short.model, tokens[max(0, end - 17) : end], start - max(0, end - 17))[0]
    assert abs(got - want) < 1e-9
    short.model.close()


def test_generations_stop_and_draw(lm: LlmccLM) -> None:
    model = lm.model
    prompts = ["def read_file(path):", "import os", "class A:"]
    texts = [model.generate(p, max_tokens=20) for p in prompts]
    assert lm.generate_until(requests(*((p, {"until": [], "max_gen_toks": 20}) for p in prompts)), disable_tqdm=True) == texts
    stop = texts[0][4:6]
    (got,) = lm.generate_until(requests((prompts[0], {"until": [stop, "never"], "max_new_tokens": 20})), disable_tqdm=True)
    assert got == texts[0][: texts[0].find(stop)]
    draw = {"until": [], "max_gen_toks": 12, "do_sample": True, "temperature": 1.0, "top_k": 50}
    drawn = lm.generate_until(requests(*[(prompts[0], draw)] * 4), disable_tqdm=True)
    assert len(set(drawn)) > 1, "repeats differ"
    with pytest.raises(ValueError, match="num_beams"):
        lm.generate_until(requests((prompts[0], {"num_beams": 4})), disable_tqdm=True)
    with pytest.raises(ValueError, match="max_gen_toks"):
        lm.generate_until(requests((prompts[0], {"max_gen_toks": 10**6})), disable_tqdm=True)


def test_chat_templates(lm: LlmccLM) -> None:
    if not lm.model.info["has_chat_template"]:
        pytest.skip("skipped: the artifact has no chat template")
    messages = [{"role": "user", "content": "Close the file."}, {"role": "assistant", "content": "def close"}]
    prompt = lm.apply_chat_template(messages[:1])
    assert prompt == lm.model.apply_chat_template(messages[:1])
    assert lm.apply_chat_template(messages, add_generation_prompt=False).endswith("def close")
    tokens = lm.tok_encode(prompt)
    assert tokens[0] == lm.model.bos_token != tokens[1], "the template has written the beginning already"
    assert lm.tokenizer_name.startswith("llmcc-") and lm.tokenizer_name == lm.tokenizer_name
    assert lm.chat_template(False) is None and "{{ content }}" in str(lm.chat_template(True))


@pytest.mark.parametrize(
    "bad, match",
    [({}, "path="), ({"path": "a", "pretrained": "b"}, "path="), ({"batch_size": "many"}, "batch_size"), ({"max_length": 1}, "max_length")],
)
def test_bad_arguments(bad: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        LlmccLM(**{**({"path": PATH, "max_tokens": 1024} if "batch_size" in bad or "max_length" in bad else {}), **bad})
