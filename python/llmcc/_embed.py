"""Texts to rows: embeddings, or scores of classes."""

from __future__ import annotations

import ctypes as c
from typing import TYPE_CHECKING, Any, Optional, Sequence

from . import _ffi as ffi
from ._batch import FEW

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


def typed(texts: Sequence[Sequence[int]], types: Optional[Sequence[Sequence[int]]]) -> Any:
    """Types of all tokens: a C array, or None."""
    if types is None:
        return None
    if list(map(len, types)) != list(map(len, texts)):
        raise ValueError(f"types must be one for each token: there are {list(map(len, types))} for {list(map(len, texts))}")
    return ffi.int32_array([t for of in types for t in of], "types")
