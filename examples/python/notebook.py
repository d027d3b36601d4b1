"""Search and chat in the cells of a notebook (VS Code, Jupyter with jupytext): ``python notebook.py embedder.so reranker.so model.so`` runs all of them.

The embedder finds candidates, the reranker orders them, and the model writes, several prompts at once.
"""

# %% Models: each cell shows what it is.
import asyncio
import pickle
import sys

import llmcc

if len(sys.argv) != 4:
    raise SystemExit(__doc__)
try:
    embedder, reranker, model = (llmcc.load(path) for path in sys.argv[1:])
except llmcc.LlmccError as error:
    raise SystemExit(f"error: {error}") from None
print(embedder, reranker, model, sep="\n")

# %% Documents, and a question.
documents = ["the bank of the river", "the cat sat on the mat", "money in the bank", "what a cat is", "the river"] * 8
query = "what is a bank"


def name_of(kind: str) -> "str | None":
    """The embedder's prompt for queries or documents, if it has one."""
    return kind if kind in embedder.prompts else None


# %% The embedder compares the question with all documents: [1, documents].
rows = embedder.embed(documents, prompt_name=name_of("document"), batch_size=16, progress=True)
similar = embedder.similarity(embedder.embed(query, prompt_name=name_of("query")), rows)[0]
candidates = sorted(range(len(documents)), key=lambda i: -similar[i])[:10]
print(f"{embedder.similarity_fn_name}: {[round(float(similar[i]), 3) for i in candidates]}")

# %% The reranker reads question and document together.
for found in reranker.rank(query, [documents[i] for i in candidates], top_k=3, return_documents=True, activation="model"):
    print(f"{found.score:.3f} {found.document}")

# %% The model writes: two texts as they come, and a third one that is given up.
prompts = ["def read_file(path):", "import os"]


async def write(prompt: str) -> str:
    text = ""
    async for piece in model.astream(prompt, max_tokens=20, greedy=True):
        text += piece
    return text


async def main() -> "list[str]":
    too_long = asyncio.create_task(model.agenerate("class A:", max_tokens=1000, ignore_eos=True))
    texts = await asyncio.gather(*map(write, prompts))
    too_long.cancel()
    return list(texts)


# (In a notebook: `texts = await main()`.)
texts = asyncio.run(main())
for prompt, text in zip(prompts, texts):
    print(repr(prompt + text))

# %% Another process opens the same artifact, by the pickle; here it is the same process.
with pickle.loads(pickle.dumps(model)) as again:
    assert again.generate(prompts, max_tokens=20, greedy=True, progress=True) == texts
