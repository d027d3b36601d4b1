"""Pairs of texts, for models that compare them."""

from __future__ import annotations

import ctypes as c
import math
from typing import TYPE_CHECKING, Iterable, NamedTuple, Optional

from . import _ffi as ffi
from ._errors import LlmccError, Status
from ._params import utf8

if TYPE_CHECKING:
    from ._model import Model

#: What may become of the scores of a pair.
ACTIVATIONS = (None, "sigmoid", "softmax")


class Ranked(NamedTuple):
    """A document of :meth:`llmcc.Model.rank`."""

    #: Its place in the list that was given.
    index: int
    #: How well it fits the query.
    score: float


def native(first: str, second: str) -> ffi.Pair:
    """The pair as a structure of the C API. The strings live as long as the structure."""
    if not isinstance(first, str) or not isinstance(second, str):
        raise TypeError(f"a pair must be of two texts, not of {type(first).__name__} and {type(second).__name__}")
    texts = [utf8(text) for text in (first, second)]
    return ffi.Pair(texts[0], len(texts[0]), texts[1], len(texts[1]))


def tokenize(model: Model, first: str, second: str, most: int) -> tuple[list[int], list[int]]:
    """Tokens and types of a pair, no more than `most` (0: whole)."""
    pair = native(first, second)
    with model._use() as handle:
        needed = c.c_size_t()
        model._lib.tokenize_pair(handle, c.byref(pair), most, None, None, 0, c.byref(needed))
        tokens, types = ((c.c_int32 * needed.value)() for _ in range(2))
        model._lib.tokenize_pair(handle, c.byref(pair), most, tokens, types, needed, None)
    return list(tokens), list(types)


def score(model: Model, pairs: Iterable[Iterable[str]], activation: Optional[str], truncate: bool) -> list[list[float]]:
    """The scores of each pair, ``[pairs][columns]``."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {ACTIVATIONS}, not {activation!r}")
    if not isinstance(truncate, bool):
        raise TypeError(f"truncate must be True or False, not {type(truncate).__name__}")
    given = []
    if isinstance(pairs, (str, bytes)):
        raise TypeError("pairs must be a list of pairs of texts, not one text")
    for i, pair in enumerate(pairs):
        texts = [] if isinstance(pair, (str, bytes)) or not hasattr(pair, "__iter__") else list(pair)
        if len(texts) != 2:
            raise TypeError(f"pair {i} must be two texts, not {pair!r:.80}")
        given.append(native(*texts))
    columns: int = model.info["columns"]
    array = (ffi.Pair * len(given))(*given)
    out = (c.c_float * (len(given) * columns))()
    with model._use() as handle:
        flags = ffi.PAIR_TRUNCATE if truncate else 0
        model._lib.interruptible(handle, lambda: model._lib.score_pairs(handle, array, len(given), flags, out, len(out)), len(given) > 0)
    rows = [list(out[i * columns : (i + 1) * columns]) for i in range(len(given))]
    return [activated(row, activation) for row in rows]


def activated(row: list[float], activation: Optional[str]) -> list[float]:
    """Applies the activation to the scores of a pair."""
    if activation == "sigmoid":
        # Either form overflows on one side.
        return [1.0 / (1.0 + math.exp(-x)) if x >= 0.0 else math.exp(x) / (1.0 + math.exp(x)) for x in row]
    if activation == "softmax":
        powers = [math.exp(x - max(row)) for x in row]
        return [p / sum(powers) for p in powers]
    return row


def rank(model: Model, query: str, documents: Iterable[str], activation: Optional[str], truncate: bool) -> list[Ranked]:
    """The documents, the best first; equal ones in their order."""
    columns = model.info["columns"]
    if model.info["output"] == "scores" and columns != 1:
        message = f"this model scores {columns} classes, so there is no best document; use score_pairs, and choose by a class"
        raise LlmccError(message, Status.UNSUPPORTED)
    if isinstance(documents, str):
        raise TypeError("documents must be a list of texts, not one text")
    scores = score(model, [(query, document) for document in documents], activation, truncate)
    return sorted((Ranked(i, row[0]) for i, row in enumerate(scores)), key=lambda r: -r.score)
