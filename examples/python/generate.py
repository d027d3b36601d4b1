"""Streams a continuation: ``python generate.py model.so "Once upon a time"``."""

import argparse

import llmcc


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("model")
    args.add_argument("prompt", nargs="?", default="Once upon a time")
    args.add_argument("--max-tokens", type=int, default=100)
    args.add_argument("--temperature", type=float, default=0.0)
    args.add_argument("--top-p", type=float, default=1.0)
    args.add_argument("--seed", type=int, default=0)
    a = args.parse_args()
    with llmcc.load(a.model) as model:
        print(a.prompt, end="", flush=True)
        for text in model.stream(a.prompt, max_tokens=a.max_tokens, temperature=a.temperature, top_p=a.top_p, seed=a.seed):
            print(text, end="", flush=True)
        print()


if __name__ == "__main__":
    try:
        main()
    except llmcc.LlmccError as error:
        raise SystemExit(f"error: {error}") from None
