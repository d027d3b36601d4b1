"""Texts to rows: embeddings, or scores of classes."""

from __future__ import annotations

import ctypes as c
from typing import TYPE_CHECKING, Any, Optional, Sequence

from . import _ffi as ffi

if TYPE_CHECKING:
    from ._model import Model


def embed(model: Model, texts: Sequence[Sequence[int]], normalize: Optional[bool]) -> Any:
    """A row of float32 for each of `texts`, given by their tokens: a C array, `[texts, columns]`."""
    if normalize is not None and not isinstance(normalize, bool):
        raise TypeError(f"normalize must be True, False or None, not {type(normalize).__name__}")
    tokens = ffi.int32_array([t for text in texts for t in text], "tokens")
    lengths = (c.c_size_t * len(texts))(*map(len, texts))
    rows = ffi.EmbedRows(
        n_rows=len(texts),
        lengths=lengths,
        tokens=tokens,
        flags=0 if normalize is None else ffi.EMBED_NORMALIZE if normalize else ffi.EMBED_RAW,
    )
    out = (c.c_float * (len(texts) * model.info["columns"]))()
    with model._use() as handle:
        model._lib.embed(handle, c.byref(rows), out, len(out))
    return out
