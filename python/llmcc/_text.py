"""Tokens, texts and conversations of a model."""

from __future__ import annotations

import ctypes as c
import json
import numbers
from typing import Any, Literal, Mapping, Optional, Sequence, Union, overload

from . import _chat, _ffi as ffi
from ._errors import LlmccError
from ._params import scalar as _scalar, utf8 as _utf8
from ._steps import Steps

Prompt = Union[str, Sequence[int]]
Prompts = Sequence[Prompt]
Message = Mapping[str, Any]

# Keywords of Transformers that are not passed to its templates.
_NOT_OF_TEMPLATES = frozenset(
    ("padding", "truncation", "max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs", "sanitize_control_tokens")
)

#: Bytes of text with which work may take long.
_MUCH_TEXT = 1 << 15


class Text(Steps):
    """The methods of a model that work on text alone."""

    def tokenize(self, text: str, add_special: bool = True) -> list[int]:
        """Tokens of ``text``. ``add_special`` adds the special tokens around a plain prompt (a beginning-of-sequence token, mostly)."""
        return self._ids(text, ffi.ADD_SPECIAL if add_special else 0)

    def _ids(self, text: str, flags: int) -> list[int]:
        """Tokens of ``text``, by the flags of the C API."""
        data = _utf8(text)
        with self._use() as handle:
            ids: list[int] = self._lib.interruptible(
                handle,
                lambda: self._lib.ints(lambda *out: self._lib.tokenize(handle, data, len(data), flags, *out), len(data) + 16),
                len(data) >= _MUCH_TEXT or not self._has_read,
            )
            self._has_read = True
            return ids

    def detokenize(self, tokens: Sequence[int], show_special: bool = False) -> str:
        """Text of ``tokens``."""
        array = ffi.int32_array(tokens, "tokens")
        flags = ffi.SHOW_SPECIAL if show_special else 0
        with self._use() as handle:
            text: str = self._lib.interruptible(
                handle,
                lambda: self._lib.text(lambda *out: self._lib.detokenize(handle, array, len(array), flags, *out), 16 * len(array) + 64),
                4 * len(array) >= _MUCH_TEXT,
            )
            return text

    def token_to_piece(self, token: int) -> str:
        """The token as the tokenizer's vocabulary writes it (``"Ġthe"``, ``"▁the"``, ``"<0x0A>"``); empty for one that only the model has."""
        with self._use() as handle:
            return self._lib.text(lambda *out: self._lib.token_piece(handle, _token(token), *out), 64)

    def piece_to_token(self, piece: str) -> Optional[int]:
        """The token that the vocabulary writes so, if there is one."""
        data, token = _utf8(piece), c.c_int32()
        with self._use() as handle:
            self._lib.piece_token(handle, data, len(data), c.byref(token))
        return token.value if token.value >= 0 else None

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token adds in the middle of a text (``b" the"``), not always whole characters; of a special token its name."""
        with self._use() as handle:
            return self._lib.bytes(lambda *out: self._lib.token_bytes(handle, _token(token), *out))

    def is_special(self, token: int) -> bool:
        """Whether texts leave the token out, unless they are asked for it (``show_special``)."""
        return bool(self._token_flags(token) & ffi.TOKEN_SPECIAL)

    def is_byte(self, token: int) -> bool:
        """Whether the token is a single byte, for bytes without another token (``"<0x0A>"``)."""
        return bool(self._token_flags(token) & ffi.TOKEN_BYTE)

    @property
    def vocab_size(self) -> int:
        """Entries of the model's vocabulary: logits of a row."""
        vocab: int = self._info["vocab"]
        return vocab

    @property
    def tokenizer_size(self) -> int:
        """Entries of the tokenizer's vocabulary; the model's may be larger."""
        n = c.c_size_t()
        with self._use() as handle:
            self._lib.tokenizer_size(handle, c.byref(n))
        return n.value

    @property
    def bos_token(self) -> Optional[int]:
        """The token that begins a sequence, if one is known."""
        bos: Optional[int] = self._info["bos_token"]
        return bos

    @property
    def eos_tokens(self) -> list[int]:
        """Tokens that end a generation."""
        return list(self._info["eos_tokens"])

    def _token_flags(self, token: int) -> int:
        flags = c.c_uint32()
        with self._use() as handle:
            self._lib.token_flags(handle, _token(token), c.byref(flags))
        return flags.value

    @overload
    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Optional[Sequence[Mapping[str, Any]]] = ...,
        add_generation_prompt: Optional[bool] = ...,
        *,
        documents: Optional[Sequence[Mapping[str, Any]]] = ...,
        chat_template: Optional[str] = ...,
        continue_final_message: Union[bool, str] = ...,
        tokenize: Literal[False] = ...,
        **variables: object,
    ) -> str: ...

    @overload
    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Optional[Sequence[Mapping[str, Any]]] = ...,
        add_generation_prompt: Optional[bool] = ...,
        *,
        documents: Optional[Sequence[Mapping[str, Any]]] = ...,
        chat_template: Optional[str] = ...,
        continue_final_message: Union[bool, str] = ...,
        tokenize: Literal[True],
        **variables: object,
    ) -> list[int]: ...

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        add_generation_prompt: Optional[bool] = None,
        *,
        documents: Optional[Sequence[Mapping[str, Any]]] = None,
        chat_template: Optional[str] = None,
        continue_final_message: Union[bool, str] = False,
        tokenize: bool = False,
        **variables: object,
    ) -> Union[str, list[int]]:
        """The prompt for a conversation, by the model's chat template. ``variables`` (of JSON's types) are variables of the template, as ``enable_thinking=False``.

        :param add_generation_prompt: whether an answer begins at the end; by default yes, unless the last message is continued.
        :param chat_template: a template instead of the model's, or, of a model with several, the name of one.
        :param continue_final_message: leave the last message open, for the model to go on with it; a text names the member of the message
            that is gone on with (``"content"`` by default).
        :param tokenize: return the tokens of the prompt instead of its text.
        """
        for name in _NOT_OF_TEMPLATES & variables.keys():
            if variables.pop(name) not in (None, False):
                raise TypeError(f"apply_chat_template does not support {name}; it would not be a variable of the template")
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        conversation: dict[str, Any] = {"messages": _chat.as_messages(messages), "add_generation_prompt": add_generation_prompt, **variables}
        given = {"tools": tools, "documents": documents}
        conversation.update({name: list(value) for name, value in given.items() if value is not None})
        if chat_template is not None:
            conversation["chat_template"] = chat_template
        if continue_final_message:
            conversation["continue_final_message"] = continue_final_message
        try:
            data = _utf8(json.dumps(conversation, ensure_ascii=False))
        except TypeError as error:
            raise LlmccError(f"the conversation is not JSON: {error}") from None
        with self._use() as handle:
            text: str = self._lib.interruptible(
                handle, lambda: self._lib.text(lambda *out: self._lib.apply_chat_template(handle, data, len(data), *out), 2 * len(data) + 4096), len(data) >= _MUCH_TEXT
            )
        return self.tokenize(text, add_special=False) if tokenize else text


def _token(token: int) -> int:
    """A token id that fits C's type; C checks that the model has it."""
    token = _scalar(token)
    if isinstance(token, bool) or not isinstance(token, numbers.Integral):
        raise TypeError(f"token must be an integer, not {type(token).__name__}")
    if not 0 <= token < 2**31:
        raise ValueError(f"token {token} is outside the vocabulary")
    return int(token)
