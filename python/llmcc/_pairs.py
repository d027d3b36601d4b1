"""Pairs of texts, for models that compare them."""

from __future__ import annotations

import ctypes as c
import math
from typing import TYPE_CHECKING, Iterable, Literal, Mapping, NamedTuple, Optional, Union

from . import _ffi as ffi
from ._errors import LlmccError, Status
from ._embed import batches, counted
from ._params import positive, utf8
from ._progress import Progress
from ._rows import rows_of

if TYPE_CHECKING:
    from ._text import Text

#: Functions of scores: none, or the one that the model asks for.
Activation = Literal[None, "sigmoid", "softmax", "model"]
ACTIVATIONS: tuple[Activation, ...] = (None, "sigmoid", "softmax", "model")
_OF_PYTORCH: Mapping[str, Optional[str]] = {"identity": None, "sigmoid": "sigmoid", "softmax": "softmax", "tanh": "tanh"}


class Ranked(NamedTuple):
    """A document of :meth:`llmcc.Model.rank`."""

    #: Its place in the list that was given.
    index: int  # type: ignore[assignment]  # not the method of tuples
    #: How well it fits the query.
    score: float


class RankedDocument(NamedTuple):
    """A document of :meth:`llmcc.Model.rank`, with its text."""

    #: Its place in the list that was given.
    index: int  # type: ignore[assignment]  # not the method of tuples
    #: How well it fits the query.
    score: float
    #: Its text.
    document: str


def native(first: str, second: str) -> ffi.Pair:
    """The pair as a structure of the C API. The strings live as long as the structure."""
    if not isinstance(first, str) or not isinstance(second, str):
        raise TypeError(f"a pair must be of two texts, not of {type(first).__name__} and {type(second).__name__}")
    texts = [utf8(text) for text in (first, second)]
    return ffi.Pair(texts[0], len(texts[0]), texts[1], len(texts[1]))


def tokenize(model: Text, first: str, second: str, most: int) -> tuple[list[int], list[int]]:
    """Tokens and types of a pair, no more than `most` (0: whole)."""
    pair = native(first, second)
    with model._use() as handle:
        needed = c.c_size_t()
        model._lib.tokenize_pair(handle, c.byref(pair), most, None, None, 0, c.byref(needed))
        tokens, types = ((c.c_int32 * needed.value)() for _ in range(2))
        model._lib.tokenize_pair(handle, c.byref(pair), most, tokens, types, needed, None)
    return list(tokens), list(types)


def checked(activation: Activation) -> Activation:
    """The same activation.

    :raises ValueError: it is not known.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {ACTIVATIONS}, not {activation!r}")
    return activation


def activation_of(model: Text, activation: Activation) -> Optional[str]:
    """The function of the scores of pairs, as sentence-transformers' ``CrossEncoder`` chooses it.

    :raises LlmccError: the model is to say, and says something unknown.
    """
    if checked(activation) != "model":
        return activation
    own = model._facts()["pair_activation"]
    if own is None:
        return "sigmoid" if model._info["embed_columns"] == 1 else None
    if own not in _OF_PYTORCH:
        message = f"the model's activation is {own!r}; give activation= (sigmoid, softmax or None) yourself"
        raise LlmccError(message, Status.UNSUPPORTED)
    return _OF_PYTORCH[own]


def score(
    model: Text, pairs: Iterable[Iterable[str]], activation: Activation, truncate: bool, batch_size: Optional[int], progress: bool
) -> list[list[float]]:
    """The scores of each pair, ``[pairs][columns]``."""
    function = activation_of(model, activation)
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
    rows: list[list[float]] = []
    with Progress(len(given), "pairs", progress) as shown:
        for part in batches(len(given), batch_size, progress):
            rows += _score(model, given[part], truncate, part.start)
            shown.update(part.stop - part.start)
    return [activated(row, function) for row in rows]


def _score(model: Text, pairs: list[ffi.Pair], truncate: bool, first: int) -> list[list[float]]:
    """The scores of a batch, whose first pair has the index ``first``."""
    columns: int = model._info["embed_columns"]
    array = (ffi.Pair * len(pairs))(*pairs)
    out = (c.c_float * (len(pairs) * columns))()
    flags = ffi.PAIR_TRUNCATE if truncate else 0
    with model._use() as handle:
        try:
            model._lib.interruptible(handle, lambda: model._lib.score_pairs(handle, array, len(pairs), flags, out, len(out)), len(pairs) > 0)
        except LlmccError as error:
            raise counted(error, "pair", first) from None
    rows: list[list[float]] = rows_of(out, (0, len(pairs)), columns, numpy=False)
    return rows


def activated(row: list[float], activation: Optional[str]) -> list[float]:
    """Applies the activation to the scores of a pair."""
    if activation == "sigmoid":
        # Either form overflows on one side.
        return [1.0 / (1.0 + math.exp(-x)) if x >= 0.0 else math.exp(x) / (1.0 + math.exp(x)) for x in row]
    if activation == "softmax":
        powers = [math.exp(x - max(row)) for x in row]
        return [p / sum(powers) for p in powers]
    if activation == "tanh":
        return [math.tanh(x) for x in row]
    return row


def most(top_k: Optional[int]) -> Optional[int]:
    """How many of the best are wanted; ``None``: all.

    :raises LlmccError: it is no positive integer.
    """
    return None if top_k is None else positive(top_k, "top_k", 31)


def rank(
    model: Text,
    query: str,
    documents: Iterable[str],
    top_k: Optional[int],
    return_documents: bool,
    activation: Activation,
    truncate: bool,
    batch_size: Optional[int],
    progress: bool,
) -> Union[list[Ranked], list[RankedDocument]]:
    """The documents, the best first; equal ones in their order."""
    columns = model._info["embed_columns"]
    if model._info["output"] == "embedding":
        message = "this model embeds texts one by one: rank by model.similarity(query, documents), or use a reranker (...ForSequenceClassification with one class)"
        raise LlmccError(message, Status.UNSUPPORTED)
    if model._info["output"] == "scores" and columns != 1:
        message = f"this model scores {columns} classes, so there is no best document; use score_pairs, and choose by a class"
        raise LlmccError(message, Status.UNSUPPORTED)
    if isinstance(documents, str):
        raise TypeError("documents must be a list of texts, not one text")
    texts = list(documents)
    scores = score(model, [(query, text) for text in texts], activation, truncate, batch_size, progress)
    best = sorted((Ranked(i, row[0]) for i, row in enumerate(scores)), key=lambda r: -r.score)[:top_k]
    return [RankedDocument(r.index, r.score, texts[r.index]) for r in best] if return_documents else best
