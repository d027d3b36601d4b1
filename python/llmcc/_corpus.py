"""Texts that generations guess from."""

from __future__ import annotations

import ctypes as c
import json
import os
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Sequence, Union

from . import _ffi as ffi
from ._errors import Closing
from ._interrupt import checkpoint

if TYPE_CHECKING:
    from ._text import Text

#: Stands between two texts.
_BORDER = -1


class Corpus(Closing):
    """Texts for ``draft=`` of any number of generations: see :meth:`Model.corpus`."""

    _remedy = "share it: any number of generations guess from it"

    def __init__(self, model: Text, texts: Union[str, os.PathLike[str], Iterable[Union[str, Sequence[int]]]]) -> None:
        self._handle = c.c_void_p()
        if isinstance(texts, str):
            raise TypeError("texts must be a path (pathlib.Path), or a list of texts, not a text; put it into a list")
        documents: Iterable[Any] = _documents(os.fspath(texts)) if isinstance(texts, os.PathLike) else texts
        tokens: list[int] = []
        for document in documents:
            checkpoint()
            tokens += _tokens(model, document)
            tokens.append(_BORDER)
        array, self._lib = ffi.int32_array(tokens, "the corpus"), model._lib
        #: How many tokens it has, with one for the end of each text.
        self.tokens = len(array)
        made = c.c_void_p()
        with model._use() as handle:
            try:
                self._lib.interruptible(handle, lambda: self._lib.corpus_new(handle, array, len(array), c.byref(made)), len(array) > 1 << 16)
            except BaseException:
                # The interrupt may have come after it was made.
                if made:
                    self._lib.corpus_free(made)
                raise
            self._lib.share()
        self._handle = made

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Frees it; generations that guess from it go on. Closing twice is fine."""
        handle, self._handle = getattr(self, "_handle", c.c_void_p()), c.c_void_p()
        if handle:
            self._lib.corpus_free(handle)
            self._lib.release()


def _tokens(model: Text, document: Any) -> list[int]:
    """Tokens of a text, or of a conversation as ``.jsonl`` files have it; tokens as they are."""
    if isinstance(document, dict):
        chat = model.apply_chat_template(document["messages"], add_generation_prompt=False)
        return model.tokenize(chat, add_special=False)
    if isinstance(document, str):
        return model.tokenize(document, add_special=False)
    tokens = ffi.integers(document, "a text of the corpus")
    if any(token < 0 for token in tokens):
        raise ValueError("a text of the corpus has a negative token")
    return tokens


def _documents(path: str) -> Iterator[Any]:
    """The documents of a file, or of the files of a folder by their names: its text, or one for each line of a ``.jsonl`` file."""
    files = sorted(entry.path for entry in os.scandir(path) if entry.is_file()) if os.path.isdir(path) else [path]
    for file in files:
        with open(file, encoding="utf-8", newline="") as source:
            text = source.read()
        if not file.lower().endswith(".jsonl"):
            yield text
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield _of_line(line, f"{file}: line {number}")


def _of_line(line: str, where: str) -> Any:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: it is not JSON: {error}") from None
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and isinstance(value.get("text"), str) and "messages" not in value:
        return value["text"]
    if isinstance(value, dict) and isinstance(value.get("messages"), list) and "text" not in value:
        return value
    raise ValueError(f'{where}: it is neither a string nor an object with "text", a string, or "messages", a list')
