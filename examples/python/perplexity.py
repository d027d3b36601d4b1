"""Perplexity of a text file from logits: ``python perplexity.py model.so text.txt``. Needs NumPy."""

import sys

import numpy as np

import llmcc


def main(path: str, file: str) -> None:
    with open(file, encoding="utf-8") as f:
        text = f.read()
    with llmcc.load(path) as model:
        tokens = model.tokenize(text)[: model.info["max_context"]]
        logits = model.forward(tokens)[:-1].astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        nll = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(tokens) - 1), tokens[1:]]
        print(f"{len(tokens)} tokens, perplexity {np.exp(nll.mean()):.4f}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    try:
        main(*sys.argv[1:])
    except (llmcc.LlmccError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
