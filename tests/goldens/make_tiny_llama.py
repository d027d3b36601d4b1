#!/usr/bin/env python3
"""Golden values of the example checkpoint (`examples/tiny-llama/model`): run again whenever its weights change.

    python make_tiny_llama.py

Writes into `tiny_llama/`:

- `prompts.json`: for each prompt its ids (BOS included), the ids and text of `GREEDY` greedy tokens in float64 (stops after the end token), and
  the smallest gap between best and second-best logit; also a rendered chat with its ids;
- `logits.safetensors`: `tokens` i32[n] (the first prompt), and the logits after its last `ROWS` tokens: `logits` f32[ROWS, vocab] (the
  float64 reference, rounded once), `error_f32` f32[ROWS] (the largest error of Transformers in f32);
- `ppl.json`: mean NLL over the documents of `text.txt` (split at <|endoftext|>, stripped, each preceded by BOS) by `quantized.py`, for f32
  and every quantized format at group 32, with and without folding of norm gains.
"""

import json

import torch
import transformers
from safetensors.torch import save_file

import make
import numpy_quant
import quantized

MODEL = make.HERE.parent.parent / "examples" / "tiny-llama" / "model"
OUT = make.HERE / "tiny_llama"
GREEDY, ROWS = 64, 8
PROMPTS = [
    'def read_config(path):\n    """Read the configuration file and return a dictionary."""',
    "import os\nimport sys\n\n\nclass",
    "# user: Return the number of items in the list.\n# assistant:\n",
    "    for i in range(10):\n        if",
]
CHAT = [
    {"role": "user", "content": "Return the size of the file."},
    {"role": "assistant", "content": "def size(path):\n    return os.stat(path).st_size"},
    {"role": "user", "content": "Close the file."},
]


@torch.no_grad()
def greedy(model, ids, eos):
    ids, margin, new = list(ids), float("inf"), []
    while len(new) < GREEDY and (not new or new[-1] != eos):
        best = make.logits_of(model, ids + new)[-1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        new.append(best.indices[0].item())
    return new, margin


def prompts(tok):
    model, inv_freq = make.load(MODEL, torch.float64)
    cases = []
    with make.NoFloat32(inv_freq), make.Float64Only():
        for text in PROMPTS:
            ids = tok(text).input_ids
            new, margin = greedy(model, ids, model.config.eos_token_id)
            cases.append({"prompt": text, "ids": ids, "greedy_ids": new, "greedy_text": tok.decode(new, skip_special_tokens=True), "margin": margin})
        logits = make.logits_of(model, cases[0]["ids"])
    return cases, logits


def perplexities():
    stories = [s.strip() for s in (OUT / "text.txt").read_text().split("<|endoftext|>")]
    sequences = [[0, *quantized.token_stream(MODEL, s)] for s in stories]
    assert max(map(len, sequences)) <= 256
    nll, count = quantized.story_nll(quantized.Model(MODEL), sequences)
    result = {"documents": len(stories), "tokens": count, "nll": {"f32": nll}}
    for fmt in numpy_quant.WEIGHT_FORMATS:
        for fold in (False, True):
            key = (fmt if fmt == "fp8" else f"{fmt}g32") + ("_folded" if fold else "")
            result["nll"][key] = quantized.story_nll(quantized.Model(MODEL, fmt, 32, fold), sequences)[0]
    return result


def main():
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    tok = transformers.AutoTokenizer.from_pretrained(MODEL)
    cases, f64 = prompts(tok)
    chat = tok.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    facts = {"cases": cases, "chat": {"messages": CHAT, "rendered": chat, "ids": tok(chat, add_special_tokens=False).input_ids}}
    (OUT / "prompts.json").write_text(json.dumps(facts, indent=1) + "\n")
    ids = cases[0]["ids"]
    f32 = make.logits_of(make.load(MODEL, torch.float32)[0], ids)[-ROWS:]
    golden = {"tokens": torch.tensor(ids, dtype=torch.int32), "logits": f64[-ROWS:].float(), "error_f32": (f32 - f64[-ROWS:]).abs().amax(1).float()}
    save_file(golden, OUT / "logits.safetensors")
    (OUT / "logits.safetensors").chmod(0o644)
    print("f32 error", golden["error_f32"].max().item())
    print("margins", [round(c["margin"], 5) for c in cases])
    result = perplexities()
    (OUT / "ppl.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
