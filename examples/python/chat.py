"""Talks with a model that has a chat template: ``python chat.py model.so``. Each turn costs only
its new tokens."""

import sys

import llmcc


def main(path: str) -> None:
    messages: list = []
    with llmcc.load(path) as model, model.session() as session:
        while True:
            try:
                text = input("> ")
            except EOFError:
                return
            messages.append({"role": "user", "content": text})
            answer = ""
            for piece in session.chat_stream(messages, temperature=0.7, top_p=0.95, max_tokens=500):
                answer += piece
                print(piece, end="", flush=True)
            print()
            messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    try:
        main(sys.argv[1])
    except llmcc.LlmccError as error:
        raise SystemExit(f"error: {error}") from None
