"""One prompt with several adapters at once: ``python adapters.py model.so "Once upon" FOLDER...``, of a model compiled with ``--lora-slots``."""

import sys

import llmcc


def main(path: str, prompt: str, folders: "list[str]") -> None:
    with llmcc.load(path) as model:
        adapters = [0, *(model.load_adapter(folder) for folder in folders)]
        texts = model.generate([prompt] * len(adapters), each=[{"adapter": a} for a in adapters], max_tokens=60)
        for name, text in zip(["(none)", *folders], texts):
            print(f"{name}: {prompt}{text}\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    try:
        main(sys.argv[1], sys.argv[2], sys.argv[3:])
    except llmcc.LlmccError as error:
        raise SystemExit(f"error: {error}")
