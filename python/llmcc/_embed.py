"""Texts to rows: embeddings, or scores of classes."""

from __future__ import annotations

import ctypes as c
from typing import TYPE_CHECKING, Any, Optional, Sequence

from . import _batch, _ffi as ffi
from ._batch import FEW
from ._params import utf8

if TYPE_CHECKING:
    from ._model import Model


def embed(model: Model, texts: Sequence[Sequence[int]], normalize: Optional[bool], types: Optional[Sequence[Sequence[int]]] = None) -> Any:
    """A row of float32 for each of `texts`, given by their tokens (and their types, if not all are 0): a C array, `[texts, columns]`."""
    if normalize is not None and not isinstance(normalize, bool):
        raise TypeError(f"normalize must be True, False or None, not {type(normalize).__name__}")
    tokens = ffi.int32_array([t for text in texts for t in text], "tokens")
    lengths = (c.c_size_t * len(texts))(*map(len, texts))
    rows = ffi.EmbedRows(
        n_rows=len(texts),
        lengths=lengths,
        tokens=tokens,
        types=typed(texts, types),
        flags=0 if normalize is None else ffi.EMBED_NORMALIZE if normalize else ffi.EMBED_RAW,
    )
    out = (c.c_float * (len(texts) * model.info["columns"]))()
    with model._use() as handle:
        model._lib.interruptible(handle, lambda: model._lib.embed(handle, c.byref(rows), out, len(out)), len(tokens) >= FEW)
    return out


def named_prompt(model: Model, name: str) -> str:
    """The prompt of this name."""
    prompts = model.prompts
    if name not in prompts:
        known = f"the prompts of this model are {', '.join(prompts)}" if prompts else "this model has no named prompts"
        raise ValueError(f"prompt_name is {name!r}; {known}")
    return prompts[name]


def encoded(model: Model, text: Any, prompt: Optional[str]) -> list[int]:
    """Tokens of a text with a prompt before it (``None``: the model's own)."""
    if prompt is None:
        return _batch.encoded(model, text)
    if not isinstance(text, str):
        raise TypeError("prompt_name is for texts; tokens are taken as they are")
    data = utf8(prompt + text)
    with model._use() as handle:
        flags = ffi.ADD_SPECIAL | ffi.NO_PROMPT
        return model._lib.ints(lambda *out: model._lib.tokenize(handle, data, len(data), flags, *out), len(data) + 16)


def typed(texts: Sequence[Sequence[int]], types: Optional[Sequence[Sequence[int]]]) -> Any:
    """Types of all tokens: a C array, or None."""
    if types is None:
        return None
    if list(map(len, types)) != list(map(len, texts)):
        raise ValueError(f"types must be one for each token: there are {list(map(len, types))} for {list(map(len, texts))}")
    return ffi.int32_array([t for of in types for t in of], "types")
