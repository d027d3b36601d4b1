"""Sessions: sequences that keep their cache."""

from __future__ import annotations

import ctypes as c
import numbers
from typing import TYPE_CHECKING, Any, Iterator, Literal, Mapping, Optional, Sequence, Union, overload

from . import _ffi as ffi, _images
from ._errors import Closing, LlmccError
from ._generate import Generate
from ._keywords import Generating, spelled_out
from ._batch import Texts as _texts, of_one
from ._params import GenParams as _GenParams
from ._pieces import Piece
from ._rows import Rows, chosen_rows
from ._text import Message, Prompt

if TYPE_CHECKING:
    from ._arrays import Floats
    from ._keywords import Unpack


class Session(Closing):
    """A sequence of tokens whose keys and values stay cached, so that nothing is computed twice.

    Made by :meth:`Model.session`. Close it to release its cache, or use it in a ``with`` statement.
    """

    _remedy = "use Session.fork(), whose copy goes its own way and shares what is cached"

    def __init__(self, model: Generate, _seq: Optional[int] = None, _tokens: Sequence[int] = ()) -> None:
        self._model = model
        self._seq: Optional[int] = model._seq_new() if _seq is None else _seq
        # All tokens; the model may not have seen the last generated one yet.
        self._tokens = list(_tokens)
        # The images among them, in their order.
        self._pictures = _images.Pictures()

    def __del__(self) -> None:
        if getattr(self, "_seq", None) is not None:
            self.close()

    def __len__(self) -> int:
        return len(self._tokens)

    def close(self) -> None:
        """Releases the cache. Closing twice is fine."""
        seq, self._seq = self._seq, None
        if seq is not None:
            self._model._seq_free(seq)

    @property
    def tokens(self) -> list[int]:
        """All tokens of the session."""
        return list(self._tokens)

    def append(self, tokens: Sequence[int]) -> None:
        """Appends tokens without asking for logits."""
        self._run(tokens, [], numpy=False)

    @overload
    def step(self, tokens: Sequence[int], *, all_rows: bool = ..., rows: Rows = ..., numpy: Literal[True] = ...) -> Floats: ...

    @overload
    def step(self, tokens: Sequence[int], *, all_rows: Literal[False] = ..., rows: None = ..., numpy: Literal[False]) -> list[float]: ...

    @overload
    def step(
        self, tokens: Sequence[int], *, all_rows: Literal[True], rows: None = ..., numpy: Literal[False]
    ) -> list[list[float]]: ...

    @overload
    def step(
        self,
        tokens: Sequence[int],
        *,
        all_rows: Literal[False] = ...,
        rows: Union[str, Sequence[int]],
        numpy: Literal[False],
    ) -> list[list[float]]: ...

    def step(self, tokens: Sequence[int], *, all_rows: bool = False, rows: Rows = None, numpy: bool = True) -> Any:
        """Appends tokens and returns the logits after the last: float32 ``[vocab]``, or after each: ``[len(tokens), vocab]``.

        :param rows: after which tokens: ``"all"``, ``"last"``, or their indices, which may be negative; then the result is ``[rows, vocab]``.
        """
        tokens = ffi.integers(tokens, "tokens")
        if len(tokens) == 0:
            raise LlmccError("a step needs at least one token")
        if all_rows and rows is not None:
            raise ValueError("all_rows and rows exclude each other")
        logits = self._run(tokens, chosen_rows("all" if all_rows else rows, len(tokens)), numpy)
        return logits if all_rows or rows is not None else logits[0]

    def encode(self, source: Sequence[int]) -> None:
        """Gives the session of a model that writes about sources (``info["needs_source"]``: an encoder and a decoder) its source. The session loses all tokens
        that it had, and its text begins with the model's start token."""
        source = ffi.integers(source, "source")
        self._model._seq_encode(self._need_seq(), source)
        self._tokens.clear()

    def truncate(self, length: int) -> None:
        """Forgets all tokens but the first ``length``."""
        if isinstance(length, bool) or not isinstance(length, numbers.Integral):
            raise TypeError(f"length must be an integer, not {type(length).__name__}")
        if not 0 <= length <= len(self._tokens):
            raise LlmccError(f"cannot truncate a session of {len(self._tokens)} tokens to {length}")
        cached = self._cached()
        if length < cached:
            seq = self._need_seq()
            try:
                self._model._seq_truncate(seq, length)
            except LlmccError:
                # Tokens that windows or recurrent states have left behind are evaluated again.
                self._model._seq_truncate(seq, 0)
        del self._tokens[length:]

    def fork(self) -> Session:
        """A copy that shares the cache, until they differ."""
        copy = Session(self._model, self._model._seq_fork(self._need_seq()), self._tokens)
        copy._pictures = self._pictures
        return copy

    def save(self) -> bytes:
        """The session as bytes, for ``Model.session(saved=...)`` in another process with the same artifact, or later: its prompt is computed here, its text goes on there. The
        bytes are as large as its cache. Their last page may have keys and values of sequences that had it before, so give them to nobody who may not see those.

        :raises LlmccError: a session with images, an adapter or a source.
        """
        if self._pictures.each:
            raise LlmccError("a session with images cannot be saved: its images are not part of the bytes")
        if self._pending():
            self.append([])
        return self._model._seq_save(self._need_seq())

    @spelled_out(Generating)
    def generate(self, prompt: Prompt = "", **params: Unpack[Generating]) -> str:
        """Appends ``prompt`` and continues; parameters as in :meth:`Model.generate`. Prompt, its images and the result become part of the session."""
        return "".join(self.stream(prompt, **params))

    @spelled_out(Generating)
    def stream(self, prompt: Prompt = "", **params: Unpack[Generating]) -> Iterator[str]:
        """As :meth:`generate`, but yields the text as it comes."""
        given: dict[str, Any] = dict(params)
        images, before = given.pop("images", None), self._seen()
        if images is not None:
            prompt, new = _images.encoded(self._model, prompt, images, add_special=not self._tokens)
            before = before + new if new is not None else before
        elif isinstance(prompt, str):
            prompt = self._model.tokenize(prompt, add_special=not self._tokens) if prompt or not self._tokens else []
        return _texts(self._pieces([*self._tokens, *ffi.integers(prompt, "the prompt")], given, before))

    @spelled_out(Generating)
    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        template_vars: Optional[Mapping[str, object]] = None,
        **params: Unpack[Generating],
    ) -> str:
        """The answer to a conversation, given whole each turn; tokens that the session holds are not computed again. Parameters as in :meth:`Model.chat`."""
        return "".join(self.chat_stream(messages, tools=tools, template_vars=template_vars, **params))

    @spelled_out(Generating)
    def chat_stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        template_vars: Optional[Mapping[str, object]] = None,
        **params: Unpack[Generating],
    ) -> Iterator[str]:
        """As :meth:`chat`, but yields the text as it comes."""
        if params.get("images") is not None:
            raise ValueError('the images of a conversation are parts of its messages: {"type": "image", "image": ...}')
        tokens, pictures = _images.conversation(self._model, messages, tools, template_vars)
        return _texts(self._pieces(tokens, params, pictures or _images.Pictures()))

    def _seen(self) -> _images.Pictures:
        """The images whose tokens the session has."""
        token = self._model._info["image_token"]
        return self._pictures.first(self._tokens.count(token)) if self._pictures.each else self._pictures

    def _pieces(self, tokens: list[int], params: Mapping[str, Any], pictures: _images.Pictures) -> Iterator[Piece]:
        given: dict[str, Any] = {**of_one(params), "image_rows": pictures if pictures.each else None}
        given.pop("images", None)
        pieces = self._model._pieces(self._need_seq(), tokens, _GenParams(**given))
        self._tokens, self._pictures = tokens, pictures

        def record() -> Iterator[Piece]:
            for piece in pieces:
                tokens.append(piece.token)
                yield piece

        return record()

    def _run(self, tokens: Sequence[int], rows: Sequence[int], numpy: bool) -> Any:
        seq = self._need_seq()
        pending = self._pending()
        array = ffi.int32_array([*pending, *ffi.integers(tokens, "tokens")], "tokens")
        logits = self._model._step(array, [seq] * len(array), [len(pending) + row for row in rows], numpy)
        self._tokens.extend(array[len(pending) :])
        return logits

    def _pending(self) -> list[int]:
        """Tokens the model has not seen yet."""
        cached = self._cached()
        if cached > len(self._tokens):
            # A step failed after a window had moved on: the remaining tokens are forgotten.
            self.truncate(len(self._tokens))
            cached = self._cached()
        return self._tokens[cached:]

    def _cached(self) -> int:
        length = c.c_size_t()
        with self._model._use() as handle:
            self._model._lib.seq_len(handle, self._need_seq(), c.byref(length))
        return length.value

    def _need_seq(self) -> int:
        if self._seq is None:
            raise LlmccError("the session is closed")
        return self._seq
