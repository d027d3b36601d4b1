"""Guesses of the next tokens, which make generations faster and change no token."""

from __future__ import annotations

import ctypes as c
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _ffi as ffi
from ._corpus import Corpus
from ._errors import LlmccError

if TYPE_CHECKING:
    from ._text import Text

#: Sources of guesses by name (``LLMCC_GUESS_*``).
_NAMES = {"none": 1, "heads": 2, "lookup": 3, "jacobi": 6, "lookahead": 7}
_OWN, _CALLER, _CORPUS = 0, 4, 5

#: Generations by handle, with the models that guess for them.
_USERS: dict[int, Drafter] = {}


class Drafter:
    """A model that guesses for one generation of another artifact, in a sequence of its own."""

    def __init__(self, model: Text) -> None:
        self._lib, self._handle = model._lib, c.c_void_p()
        with model._use() as handle:
            self._lib.drafter_new(handle, c.byref(self._handle))
            self._lib.share()

    def function(self) -> tuple[Any, Any]:
        """The C function that guesses, and its argument."""
        return self._lib.address("llmcc_drafter_guess"), self._handle

    def serves(self, gen: c.c_void_p) -> None:
        """Guesses until the generation is freed."""
        assert gen.value is not None
        _USERS[gen.value] = self

    def close(self) -> None:
        handle, self._handle = self._handle, c.c_void_p()
        if handle:
            self._lib.drafter_free(handle)
            self._lib.release()


def ended(gen: c.c_void_p) -> None:
    """Frees the drafter of a generation that has been freed."""
    drafter = _USERS.pop(gen.value or 0, None)
    if drafter is not None:
        drafter.close()


class Guesses:
    """Where guesses come from: the checked parameter ``draft``."""

    def __init__(self, draft: Union[None, bool, str, Text, Corpus]) -> None:
        from ._text import Text

        self._model: Optional[Text] = None
        self._corpus: Optional[Corpus] = None
        if draft is None:
            self.source = _OWN
        elif draft is False:
            self.source = _NAMES["none"]
        elif isinstance(draft, str) and draft in _NAMES:
            self.source = _NAMES[draft]
        elif isinstance(draft, Text):
            self.source, self._model = _CALLER, draft
        elif isinstance(draft, Corpus):
            self.source, self._corpus = _CORPUS, draft
        else:
            raise TypeError(
                f"draft is {draft!r}; use {', '.join(map(repr, _NAMES))}, a smaller Model with the same tokenizer, texts (Model.corpus), or None for the model's "
                "own draft heads"
            )

    @property
    def is_model(self) -> bool:
        """Whether another model guesses."""
        return self._model is not None

    def drafter(self) -> Optional[Drafter]:
        """A drafter for one generation, if another model guesses."""
        return None if self._model is None else Drafter(self._model)

    def write(self, native: ffi.GenParams, most: int, drafter: Optional[Drafter]) -> None:
        """Writes them to the C structure."""
        native.guesses, native.most_guesses = self.source, most
        if drafter is not None:
            native.guess, native.guess_user = drafter.function()
        if self._corpus is not None:
            if not self._corpus._handle:
                raise LlmccError("the corpus of draft is closed")
            native.guess_user = self._corpus._handle
