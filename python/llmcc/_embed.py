"""Texts to rows: embeddings, or scores of classes."""

from __future__ import annotations

import ctypes as c
import re
from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence

from . import _batch, _ffi as ffi
from ._batch import FEW
from ._errors import LlmccError
from ._params import batch_of, unknown_keyword
from ._progress import Progress

if TYPE_CHECKING:
    from ._text import Text

#: Texts that are given to the model at once where their number is shown.
_SHOWN = 32


def embed(
    model: Text,
    texts: Sequence[Any],
    single: bool,
    *,
    prompt_name: Optional[str] = None,
    prompt: Optional[str] = None,
    normalize: Optional[bool] = None,
    pooling: Optional[str] = None,
    types: Optional[Sequence[Any]] = None,
    batch_size: Optional[int] = None,
    progress: bool = False,
    what: str = "embed",
    **unknown: Any,
) -> Any:
    """A row of float32 for each of ``texts``: a C array, ``[texts, columns]``.

    :param single: whether ``types`` belong to one text.
    :param what: what progress is of.
    """
    if unknown:
        raise _unknown(next(iter(unknown)))
    if normalize is not None and not isinstance(normalize, bool):
        raise TypeError(f"normalize must be True, False or None, not {type(normalize).__name__}")
    if pooling is not None and pooling not in ffi.POOLINGS:
        raise ValueError(f"pooling must be one of {', '.join(ffi.POOLINGS)}, not {pooling!r}")
    settings = (normalize, pooling)
    of_tokens = None if types is None else [ffi.integers(t, "types") for t in ([types] if single else types)]
    before = chosen_prompt(model, prompt_name, prompt)
    columns = model._info["embed_columns"]
    out = (c.c_float * (len(texts) * columns))()
    with Progress(len(texts), what, progress) as shown:
        for part in batches(len(texts), batch_size, progress):
            tokens = [encoded(model, text, before) for text in texts[part]]
            rows = (c.c_float * (len(tokens) * columns)).from_buffer(out, 4 * columns * part.start)
            _embed_into(model, tokens, settings, None if of_tokens is None else of_tokens[part], rows, part.start)
            shown.update(len(tokens))
    return out


def batches(n: int, batch_size: Optional[int], shown: bool) -> Iterator[slice]:
    """Cuts ``n`` texts into batches; without a size there is one, unless progress is ``shown``. Without texts there is one empty batch, which is checked like any other."""
    size = batch_of(batch_size) or (_SHOWN if shown else max(n, 1))
    return (slice(start, min(start + size, n)) for start in range(0, max(n, 1), size))


def _embed_into(
    model: Text,
    texts: Sequence[Sequence[int]],
    settings: tuple[Optional[bool], Optional[str]],
    types: Optional[Sequence[Sequence[int]]],
    out: Any,
    first: int,
) -> None:
    """Stores the rows of texts (with ``normalize`` and ``pooling``), given by their tokens (and their types, if not all are 0), in a C array. The first text has the index ``first`` among all."""
    normalize, pooling = settings
    tokens = ffi.int32_array([t for text in texts for t in text], "tokens")
    rows = ffi.EmbedRows(
        n_rows=len(texts),
        lengths=(c.c_size_t * len(texts))(*map(len, texts)),
        tokens=tokens,
        types=typed(texts, types),
        flags=0 if normalize is None else ffi.EMBED_NORMALIZE if normalize else ffi.EMBED_RAW,
        pool=ffi.POOLINGS[pooling] if pooling else 0,
    )
    with model._use() as handle:
        try:
            model._lib.interruptible(handle, lambda: model._lib.embed(handle, c.byref(rows), out, len(out)), len(tokens) >= FEW)
        except LlmccError as error:
            raise counted(error, "row", first) from None


def counted(error: LlmccError, what: str, first: int) -> LlmccError:
    """The error of a batch, which counts its texts from 0, with the index among all texts. ``first`` is that of the batch's first."""
    message = re.sub(rf"\b{what} (\d+)\b", lambda found: f"{what} {int(found[1]) + first}", str(error))
    return LlmccError(message, error.status)


def _unknown(name: str) -> TypeError:
    """The error for a keyword that embeddings do not have."""
    known = ("prompt_name", "prompt", "normalize", "pooling", "types", "batch_size", "progress", "numpy")
    return unknown_keyword(name, known, {"normalize_embeddings": "normalize", "show_progress_bar": "progress", "convert_to_numpy": "numpy", "convert_to_tensor": "numpy"})


def chosen_prompt(model: Text, name: Optional[str], prompt: Optional[str]) -> Optional[str]:
    """The text before each text; ``None``: the model's own.

    :raises ValueError: there is no prompt of this name, or both are given.
    """
    if prompt is not None and name is not None:
        raise ValueError("prompt and prompt_name exclude each other; give one of them")
    if prompt is not None and not isinstance(prompt, str):
        raise TypeError(f"prompt must be a text, not {type(prompt).__name__}")
    return prompt if name is None else named_prompt(model, name)


def named_prompt(model: Text, name: str) -> str:
    """The prompt of this name."""
    prompts = model.prompts
    if name not in prompts:
        known = f"the prompts of this model are {', '.join(prompts)}" if prompts else "this model has no named prompts"
        raise ValueError(f"prompt_name is {name!r}; {known}")
    return prompts[name]


def encoded(model: Text, text: Any, prompt: Optional[str]) -> list[int]:
    """Tokens of a text with a prompt before it (``None``: the model's own)."""
    if prompt is None:
        return _batch.encoded(model, text)
    if not isinstance(text, str):
        raise TypeError("prompt_name and prompt are for texts; tokens are taken as they are")
    return model._ids(prompt + text, ffi.ADD_SPECIAL | ffi.NO_PROMPT)


def typed(texts: Sequence[Sequence[int]], types: Optional[Sequence[Sequence[int]]]) -> Any:
    """Types of all tokens: a C array, or None."""
    if types is None:
        return None
    if list(map(len, types)) != list(map(len, texts)):
        raise ValueError(f"types must be one for each token: there are {list(map(len, types))} for {list(map(len, texts))}")
    return ffi.int32_array([t for of in types for t in of], "types")
