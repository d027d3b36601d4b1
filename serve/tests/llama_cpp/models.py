"""Models of llama.cpp's server tests: which of ours stands for each, compiled once.

stories260K is the suite's own model. Its embedder and its reranker are replaced by a small BERT with random weights and
the vocabulary of bge, which is among the files of llama.cpp. No model here stands for the others.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import bert
import gguf

STORIES = "stories260K-F32.gguf"
# Templates that llama.cpp knows by name.
TEMPLATES = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "llama3": "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
              "{{ m.content | trim }}<|eot_id|>{% endfor %}"
              "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    "command-r": "{% for m in messages %}<|START_OF_TURN_TOKEN|><|{{ {'assistant': 'CHATBOT'}.get(m.role, m.role | "
                 "upper) }}_TOKEN|>{{ m.content }}<|END_OF_TURN_TOKEN|>{% endfor %}"
                 "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
}
POOLINGS = {None: "cls", "cls": "cls", "mean": "mean", "last": "lasttoken"}


def template(given: argparse.Namespace) -> str:
    """The chat template."""
    if given.chat_template_file:
        return pathlib.Path(given.chat_template_file).read_text(encoding="utf-8")
    name = given.chat_template or "chatml"
    return TEMPLATES.get(name, name)


def stories(given: argparse.Namespace, folder: pathlib.Path) -> pathlib.Path:
    """stories260K with the template, and with positions for the context that is wanted."""
    source = pathlib.Path(os.environ.get("LLMCC_MODELS", ".")) / STORIES
    changed = gguf.changed(source.read_bytes(), template(given), context(given))
    path = folder / f"stories260K-{hashlib.sha256(changed).hexdigest()[:16]}.gguf"
    path.write_bytes(changed)
    return path


def context(given: argparse.Namespace) -> int:
    """Tokens of a sequence."""
    whole = given.ctx_size or 512
    return whole if given.kv_unified else whole // (given.parallel or 1)


def checkpoint(given: argparse.Namespace, folder: pathlib.Path):
    """The checkpoint of the model that is asked for, with options for it; None: there is none."""
    name = f"{given.hf_repo or ''}/{given.hf_file or given.model or ''}"
    vocabulary = pathlib.Path("../../../models/ggml-vocab-bert-bge.gguf")
    if "split" in name:
        return None
    if "stories260K" in name:
        return stories(given, folder), ["--max-context", str(context(given))]
    if "bert-bge-small" in name or "jina-reranker" in name:
        if given.pooling not in POOLINGS:
            sys.exit(f"llama-server: --pooling {given.pooling} is not supported: rows of tokens are no embedding")
        scores = "reranker" in name
        return bert.made(folder, vocabulary, POOLINGS[given.pooling], scores), []
    return None


def artifact(llmcc: str, given: argparse.Namespace):
    """The compiled model that is asked for; None: there is none."""
    folder = pathlib.Path(os.environ.get("LLMCC_ARTIFACTS", "tmp"))
    folder.mkdir(parents=True, exist_ok=True)
    found = checkpoint(given, folder)
    if found is None:
        return None
    path, options = found
    stamp = hashlib.sha256(json.dumps([str(path), options]).encode()).hexdigest()[:16]
    out = folder / f"{path.stem}-{stamp}.so"
    if not out.exists():
        command = [llmcc, "compile", str(path), "--quiet", "--no-golden", "-o", str(out), *options]
        subprocess.run(command, check=True)
    return str(out)
