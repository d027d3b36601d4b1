"""lm-evaluation-harness by its models for servers: choices, rolling likelihoods and generated texts, on tasks of its own."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path

# Nothing may be fetched.
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_EVALUATE_OFFLINE="1", OPENAI_API_KEY="none")

import lm_eval  # noqa: E402
import openai  # noqa: E402
from common import KEY, MODEL, URL  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

QUESTIONS = [
    {"question": "def read_file(path):\n    return", "choices": ["open(path).read()", "None", "path"], "answer": 0},
    {"question": "for i in range(10):\n    print", "choices": ["(i)", "ing money"], "answer": 0},
]
HEAD = "task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}\ntest_split: test\nmetadata: {{version: 1}}\n"
TASKS = {
    "choice": 'output_type: multiple_choice\ndoc_to_text: "{{question}}"\ndoc_to_target: "{{answer}}"\ndoc_to_choice: "{{choices}}"\nmetric_list: [{metric: acc}]\n',
    "rolling": 'output_type: loglikelihood_rolling\ndoc_to_text: ""\ndoc_to_target: "{{question}}"\nmetric_list: [{metric: bits_per_byte}]\n',
    "write": 'output_type: generate_until\ndoc_to_text: "{{question}}"\ndoc_to_target: "x"\ngeneration_kwargs: {until: ["\\n"], max_gen_toks: 12, temperature: 0}\nmetric_list: [{metric: exact_match}]\n',
}
# (The harness gives tokens, and no beginning-of-sequence token.)
BARE = {"add_special_tokens": False}
client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)


def evaluate(folder: Path, model: str, path: str, tasks: list[str], **more: object) -> dict:
    """Results and samples of some tasks."""
    args = dict(model=MODEL, base_url=URL + path, num_concurrent=2, max_retries=1, max_length=1024, **more)
    return lm_eval.simple_evaluate(model, model_args=args, tasks=tasks, task_manager=TaskManager(include_path=str(folder), include_defaults=False), apply_chat_template="chat" in model)


def logprob(context: str, more: str) -> float:
    """The log-probability of a text after another, by the server's `echo`. (Both begin with whole tokens here.)"""
    both = client.completions.create(model=MODEL, prompt=context + more, max_tokens=1, echo=True, logprobs=0, extra_body=BARE)
    found = both.choices[0].logprobs
    after = [p for p, offset in zip(found.token_logprobs, found.text_offset) if len(context) <= offset < len(context + more)]
    return sum(after)


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    for task, rest in TASKS.items():
        (folder / f"{task}.yaml").write_text(HEAD.format(name=f"llmcc_{task}", data=data) + rest)
    tasks = [f"llmcc_{task}" for task in TASKS]
    whole = evaluate(folder, "local-completions", "/v1/completions", tasks, tokenizer=os.environ["LLMCC_TOKENIZER"], tokenizer_backend="huggingface")
    scores = [float(response[0][0]) for sample in whole["samples"]["llmcc_choice"] for response in sample["resps"]]
    assert len(scores) == 5 and all(math.isfinite(score) and score < 0 for score in scores), scores
    expected = logprob(QUESTIONS[1]["question"], " " + QUESTIONS[1]["choices"][1])
    assert any(abs(score - expected) < 1e-3 for score in scores), (scores, expected)
    bits = whole["results"]["llmcc_rolling"]["bits_per_byte,none"]
    assert 0 < bits < 16, bits
    texts = [sample["resps"][0][0] for sample in whole["samples"]["llmcc_write"]]
    wanted = [client.completions.create(model=MODEL, prompt=q["question"], max_tokens=12, temperature=0, stop=["\n"], extra_body=BARE).choices[0].text for q in QUESTIONS]
    assert texts == wanted, (texts, wanted)
    chat = evaluate(folder, "local-chat-completions", "/v1/chat/completions", ["llmcc_write"])
    assert all(isinstance(sample["resps"][0][0], str) for sample in chat["samples"]["llmcc_write"])
