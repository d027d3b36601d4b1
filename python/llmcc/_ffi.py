"""The structures and functions of ``llmcc.h`` as ctypes sees them. Everything unsafe of the package is in this file and in ``_model.py``."""

from __future__ import annotations

import ctypes as c
import os
from typing import Any, Sequence

from ._errors import LlmccError, Status
from ._integrity import LOADED, check

ABI_MAJOR = 1
NEW_SEQ = -1
OPEN_PROFILE = 1
OPEN_PIN = 2
OPEN_PORTABLE = 4
ADD_SPECIAL = 1
SHOW_SPECIAL = 2
GEN_IGNORE_EOS = 1
GEN_NO_TEXT = 2
GEN_SHOW_SPECIAL = 4
HAS_TOKENIZER = 1
HAS_CHAT_TEMPLATE = 2


class Sized(c.Structure):
    """A structure that starts with its own size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=c.sizeof(type(self)), **fields)


class Options(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("threads", c.c_uint32),
        ("flags", c.c_uint32),
        ("max_tokens", c.c_uint64),
        ("max_batch_tokens", c.c_uint64),
    ]


class ModelInfo(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("vocab", c.c_uint64),
        ("hidden", c.c_uint64),
        ("layers", c.c_uint64),
        ("max_context", c.c_uint64),
        ("weights_bytes", c.c_uint64),
        ("code_bytes", c.c_uint64),
        ("kv_bytes_per_token", c.c_uint64),
        ("max_tokens", c.c_uint64),
        ("max_batch_tokens", c.c_uint64),
        ("activation_bytes", c.c_uint64),
        ("threads", c.c_uint32),
        ("isa", c.c_uint32),
        ("bos_token", c.c_int32),
        ("flags", c.c_uint32),
    ]


class Batch(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("n_tokens", c.c_size_t),
        ("tokens", c.POINTER(c.c_int32)),
        ("seqs", c.POINTER(c.c_int32)),
        ("n_out", c.c_size_t),
        ("out_rows", c.POINTER(c.c_uint32)),
    ]


class Sampling(c.Structure):
    _fields_ = [
        ("temperature", c.c_float),
        ("top_k", c.c_uint32),
        ("top_p", c.c_float),
        ("min_p", c.c_float),
        ("repetition_penalty", c.c_float),
        ("repetition_window", c.c_uint32),
        ("seed", c.c_uint64),
        ("reserved", c.c_uint32 * 4),
    ]


class GenParams(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("max_tokens", c.c_uint64),
        ("sampling", Sampling),
        ("stop", c.POINTER(c.c_char_p)),
        ("n_stop", c.c_size_t),
        ("stop_tokens", c.POINTER(c.c_int32)),
        ("n_stop_tokens", c.c_size_t),
        ("flags", c.c_uint32),
        ("reserved", c.c_uint32),
    ]


class Piece(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("text", c.c_void_p),
        ("text_len", c.c_size_t),
        ("token", c.c_int32),
        ("finish", c.c_int32),
    ]


class GenStats(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("prompt_tokens", c.c_uint64),
        ("reused_tokens", c.c_uint64),
        ("generated_tokens", c.c_uint64),
        ("prefill_ns", c.c_uint64),
        ("decode_ns", c.c_uint64),
        ("finish", c.c_int32),
        ("reserved", c.c_uint32),
    ]


_P = c.c_void_p
_I32P = c.POINTER(c.c_int32)
_SIZEP = c.POINTER(c.c_size_t)

# Name: (result, arguments). A result of c_int32 is a status.
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "llmcc_abi_version": (c.c_uint32, []),
    "llmcc_version": (c.c_char_p, []),
    "llmcc_last_error": (c.c_char_p, []),
    "llmcc_open": (c.c_int32, [c.POINTER(Options), c.POINTER(_P)]),
    "llmcc_close": (None, [_P]),
    "llmcc_info": (c.c_int32, [_P, c.POINTER(ModelInfo)]),
    "llmcc_manifest": (c.c_char_p, [_P]),
    "llmcc_stats": (c.c_int32, [_P, c.c_char_p, c.c_size_t, _SIZEP]),
    "llmcc_seq_new": (c.c_int32, [_P, _I32P]),
    "llmcc_seq_free": (c.c_int32, [_P, c.c_int32]),
    "llmcc_seq_truncate": (c.c_int32, [_P, c.c_int32, c.c_size_t]),
    "llmcc_seq_fork": (c.c_int32, [_P, c.c_int32, _I32P]),
    "llmcc_seq_len": (c.c_int32, [_P, c.c_int32, _SIZEP]),
    "llmcc_seq_tokens": (c.c_int32, [_P, c.c_int32, _I32P, c.c_size_t, _SIZEP]),
    "llmcc_step": (c.c_int32, [_P, c.POINTER(Batch), _P, c.c_size_t]),
    "llmcc_tokenize": (c.c_int32, [_P, c.c_char_p, c.c_size_t, c.c_uint32, _I32P, c.c_size_t, _SIZEP]),
    "llmcc_detokenize": (c.c_int32, [_P, _I32P, c.c_size_t, c.c_uint32, c.c_char_p, c.c_size_t, _SIZEP]),
    "llmcc_apply_chat_template": (c.c_int32, [_P, c.c_char_p, c.c_size_t, c.c_char_p, c.c_size_t, _SIZEP]),
    "llmcc_eos_tokens": (c.c_int32, [_P, _I32P, c.c_size_t, _SIZEP]),
    "llmcc_gen_new": (c.c_int32, [_P, c.c_int32, _I32P, c.c_size_t, c.POINTER(GenParams), c.POINTER(_P)]),
    "llmcc_gen_next": (c.c_int32, [_P, c.POINTER(Piece)]),
    "llmcc_gen_stats": (c.c_int32, [_P, c.POINTER(GenStats)]),
    "llmcc_gen_free": (None, [_P]),
}


class Library:
    """An artifact's functions. Those that return a status raise :class:`LlmccError` instead."""

    def __init__(self, path: str) -> None:
        if not os.path.exists(path):
            raise LlmccError(f"{path} does not exist; make it with `llmcc compile`", Status.ARTIFACT)
        try:
            # A damaged header would take the process down in the system's loader.
            check(path, LOADED)
        except (OSError, ValueError) as error:
            raise LlmccError(f"{path}: {error}; copy or compile it again", Status.ARTIFACT) from None
        try:
            # Local: two artifacts define the same names.
            self._dll = c.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(self._dll, name)
                function.restype = result
                function.argtypes = arguments
        except (OSError, AttributeError) as error:
            raise LlmccError(f"{path} is not an artifact of llmcc ({error})", Status.ARTIFACT) from None
        version = self._dll.llmcc_abi_version()
        if version >> 16 != ABI_MAJOR:
            found = f"{version >> 16}.{version & 0xFFFF}"
            raise LlmccError(f"{path} has API version {found}, this package speaks {ABI_MAJOR}; compile it again", Status.ARTIFACT)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._dll, "llmcc_" + name)
        if function.restype is not c.c_int32:
            return function

        def checked(*arguments: Any) -> None:
            status = function(*arguments)
            if status != 0:
                message = self._dll.llmcc_last_error().decode("utf-8", "replace")
                raise LlmccError(message, _status(status))

        return checked

    def text(self, call: Any, guess: int = 4096) -> str:
        """Result of ``call(buffer, capacity, needed)``, which stores UTF-8."""
        data: bytes = _grown(call, c.create_string_buffer, guess, 1)
        return data.decode("utf-8")

    def ints(self, call: Any, guess: int = 256) -> list[int]:
        """Result of ``call(buffer, capacity, needed)``, which stores int32."""
        return list(_grown(call, lambda n: (c.c_int32 * n)(), guess, 0))


def _grown(call: Any, make: Any, capacity: int, extra: int) -> Any:
    needed = c.c_size_t()
    while True:
        buffer = make(capacity)
        try:
            call(buffer, capacity, c.byref(needed))
            return buffer[: needed.value]
        except LlmccError as error:
            if error.status != Status.BUFFER or needed.value + extra <= capacity:
                raise
            capacity = needed.value + extra


def _status(code: int) -> Status:
    try:
        return Status(code)
    except ValueError:
        return Status.INTERNAL


def int32_array(values: Sequence[int], what: str) -> Any:
    """A C array of the values, which must be integers of 32 bits."""
    try:
        numbers = [int(v) for v in values]
    except (TypeError, ValueError) as error:
        raise LlmccError(f"{what} must be a sequence of integers ({error})") from None
    for number in numbers:
        if not -(2**31) <= number < 2**31:
            raise LlmccError(f"{what} holds {number}, which is no 32-bit integer")
    return (c.c_int32 * len(numbers))(*numbers)
