"""The structures and functions of ``llmcc.h`` as ctypes sees them."""

from __future__ import annotations

import builtins
import ctypes as c
import operator
import os
import platform
import stat
import sys
import threading
from array import array
from typing import Any, Iterable, Optional

from ._errors import LlmccError, Status, Unique
from ._interrupt import Scope, again as _again
from ._integrity import LOADED, check

ABI_MAJOR = 1
ABI_MINOR = 12
#: Axes along which tokens have positions, where they do.
AXES = 3
#: How the rows of a text become one (``LLMCC_POOL_*``).
POOLINGS = {"mean": 1, "first": 2, "last": 3, "max": 4, "root": 5, "weighted": 6}
NEW_SEQ = -1
OPEN_PROFILE = 1
OPEN_PIN = 2
OPEN_PORTABLE = 4
ADD_SPECIAL = 1
SHOW_SPECIAL = 2
NO_PROMPT = 4
GEN_IGNORE_EOS = 1
GEN_NO_TEXT = 2
GEN_SHOW_SPECIAL = 4
GEN_LOGPROBS = 16
GEN_NO_DEFAULTS = 32
TOKEN_SPECIAL = 1
TOKEN_BYTE = 2
TOKEN_ENDS = 4
TOKEN_UNUSED = 8
HAS_TOKENIZER = 1
HAS_CHAT_TEMPLATE = 2
IS_NORMALIZED = 4
IS_WHOLE = 8
EMBED_NORMALIZE = 1
EMBED_RAW = 2
HAS_TYPES = 16
NEEDS_HIDDEN = 32
HAS_HIDDEN = 64
NEEDS_SOURCE = 128
HEARS = 256
SEES = 512
PAIR_TRUNCATE = 1
ENGINE_NO_PREFIXES = 1


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
        ("columns", c.c_uint64),
        ("output", c.c_uint32),
        ("entries", c.c_uint32),
        ("embed_columns", c.c_uint64),
        ("image_token", c.c_int32),
        ("reserved", c.c_uint32),
    ]


class AudioInfo(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("samples", c.c_uint64),
        ("rows", c.c_uint64),
        ("columns", c.c_uint64),
        ("rate", c.c_uint32),
        ("reserved", c.c_uint32),
    ]


class Batch(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("n_tokens", c.c_size_t),
        ("tokens", c.POINTER(c.c_int32)),
        ("seqs", c.POINTER(c.c_int32)),
        ("n_out", c.c_size_t),
        ("out_rows", c.POINTER(c.c_uint32)),
        ("hidden", c.POINTER(c.c_float)),
        ("hidden_out", c.POINTER(c.c_float)),
        ("positions", c.POINTER(c.c_int32)),
    ]


class EmbedRows(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("n_rows", c.c_size_t),
        ("lengths", c.POINTER(c.c_size_t)),
        ("tokens", c.POINTER(c.c_int32)),
        ("flags", c.c_uint32),
        ("pool", c.c_uint32),
        ("types", c.POINTER(c.c_int32)),
    ]


class TapInfo(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("columns", c.c_uint64),
        ("n_weights", c.c_uint64),
        ("experts", c.c_uint32),
        ("call", c.c_uint32),
    ]


class Moments(c.Structure):
    _fields_ = [
        ("tap", c.c_size_t),
        ("count", c.c_void_p),
        ("squares", c.c_void_p),
        ("min", c.c_void_p),
        ("max", c.c_void_p),
        ("products", c.c_void_p),
    ]


class Pair(c.Structure):
    _fields_ = [("first", c.c_char_p), ("first_len", c.c_size_t), ("second", c.c_char_p), ("second_len", c.c_size_t)]


class LogitBias(c.Structure):
    _fields_ = [("token", c.c_int32), ("value", c.c_float)]


class Sampling(c.Structure):
    _fields_ = [
        ("temperature", c.c_float),
        ("top_k", c.c_uint32),
        ("top_p", c.c_float),
        ("min_p", c.c_float),
        ("repetition_penalty", c.c_float),
        ("repetition_window", c.c_uint32),
        ("seed", c.c_uint64),
        ("bias", c.POINTER(LogitBias)),
        ("n_bias", c.c_uint32),
        ("reserved", c.c_uint32),
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
        ("top_logprobs", c.c_uint32),
        ("adapter", c.c_int32),
        ("reserved", c.c_uint32),
        ("reserved_1_4", c.c_uint64),
        ("guesses", c.c_uint32),
        ("most_guesses", c.c_uint32),
        ("guess", c.c_void_p),
        ("guess_user", c.c_void_p),
        ("image_rows", c.c_void_p),
        ("n_image_rows", c.c_size_t),
        ("image_grids", c.c_void_p),
        ("n_image_grids", c.c_size_t),
        ("min_tokens", c.c_uint64),
        ("presence_penalty", c.c_float),
        ("frequency_penalty", c.c_float),
        ("bad_words", c.POINTER(c.c_int32)),
        ("bad_lengths", c.POINTER(c.c_size_t)),
        ("n_bad", c.c_size_t),
        ("grammar", c.c_char_p),
        ("grammar_len", c.c_size_t),
        ("grammar_language", c.c_uint32),
        ("reserved_1_9", c.c_uint32),
        ("expected", c.POINTER(c.c_int32)),
        ("n_expected", c.c_size_t),
    ]


class Piece(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("text", c.c_void_p),
        ("text_len", c.c_size_t),
        ("token", c.c_int32),
        ("finish", c.c_int32),
        ("logprob", c.c_double),
        ("top_tokens", c.POINTER(c.c_int32)),
        ("top_logprobs", c.POINTER(c.c_double)),
        ("n_top", c.c_size_t),
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
        ("guessed", c.c_uint64),
        ("accepted", c.c_uint64),
        ("guess_steps", c.c_uint64),
    ]


class EngineOptions(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("max_running", c.c_uint32),
        ("flags", c.c_uint32),
        ("max_queued", c.c_uint64),
        ("target_ns", c.c_uint64),
        ("prefix_bytes", c.c_uint64),
        ("cache_dir", c.c_char_p),
        ("cache_dir_len", c.c_size_t),
        ("cache_dir_bytes", c.c_uint64),
    ]


class EngineRequest(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("text", c.c_char_p),
        ("len", c.c_size_t),
        ("tokens", c.POINTER(c.c_int32)),
        ("n_tokens", c.c_size_t),
        ("params", c.POINTER(GenParams)),
        ("priority", c.c_int32),
        ("reserved", c.c_uint32),
        ("timeout_ns", c.c_uint64),
        ("salt", c.c_uint64),
    ]


class EngineEvent(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("request", c.c_uint64),
        ("text", c.c_void_p),
        ("text_len", c.c_size_t),
        ("token", c.c_int32),
        ("finish", c.c_int32),
        ("logprob", c.c_double),
        ("top_tokens", c.POINTER(c.c_int32)),
        ("top_logprobs", c.POINTER(c.c_double)),
        ("n_top", c.c_size_t),
        ("ended", c.c_uint32),
        ("status", c.c_int32),
        ("message", c.c_void_p),
        ("prompt_tokens", c.c_uint64),
        ("reused_tokens", c.c_uint64),
        ("generated_tokens", c.c_uint64),
        ("waited_ns", c.c_uint64),
        ("first_token_ns", c.c_uint64),
        ("total_ns", c.c_uint64),
    ]


_P = c.c_void_p
_I32P = c.POINTER(c.c_int32)
_F64P = c.POINTER(c.c_double)
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
    "llmcc_sample": (c.c_int32, [_P, c.c_size_t, c.POINTER(Sampling), _I32P, c.c_size_t, c.c_uint64, _I32P]),
}
# As above, for those that artifacts with a smaller minor version of the API lack.
_SINCE: dict[int, dict[str, tuple[Any, list[Any]]]] = {
    1: {
        "llmcc_logprobs": (c.c_int32, [_P, c.c_size_t, _I32P, c.c_size_t, _F64P, c.c_size_t, _I32P, _F64P]),
        "llmcc_step_logprobs": (c.c_int32, [_P, c.POINTER(Batch), _I32P, _F64P, c.c_size_t, _I32P, _F64P]),
        "llmcc_gen_next_batch": (c.c_int32, [c.POINTER(_P), c.c_size_t, c.POINTER(Piece)]),
        "llmcc_token_piece": (c.c_int32, [_P, c.c_int32, c.c_char_p, c.c_size_t, _SIZEP]),
        "llmcc_piece_token": (c.c_int32, [_P, c.c_char_p, c.c_size_t, _I32P]),
        "llmcc_token_bytes": (c.c_int32, [_P, c.c_int32, c.c_char_p, c.c_size_t, _SIZEP]),
        "llmcc_token_flags": (c.c_int32, [_P, c.c_int32, c.POINTER(c.c_uint32)]),
        "llmcc_tokenizer_size": (c.c_int32, [_P, _SIZEP]),
    },
    2: {"llmcc_embed": (c.c_int32, [_P, c.POINTER(EmbedRows), _P, c.c_size_t])},
    3: {
        "llmcc_tokenize_pair": (c.c_int32, [_P, c.POINTER(Pair), c.c_size_t, _I32P, _I32P, c.c_size_t, _SIZEP]),
        "llmcc_score_pairs": (c.c_int32, [_P, c.POINTER(Pair), c.c_size_t, c.c_uint32, _P, c.c_size_t]),
        "llmcc_adapter_load": (c.c_int32, [_P, c.c_char_p, c.c_size_t, _I32P]),
        "llmcc_adapter_unload": (c.c_int32, [_P, c.c_int32]),
        "llmcc_seq_set_adapter": (c.c_int32, [_P, c.c_int32, c.c_int32]),
        "llmcc_gen_take": (c.c_int32, [_P, _P, c.c_size_t, c.POINTER(Piece)]),
    },
    4: {"llmcc_interrupt": (c.c_int32, [_P])},
    6: {
        "llmcc_run": (c.c_int32, [_P, c.c_uint32, c.POINTER(Batch), _P, c.c_size_t]),
        "llmcc_run_tree": (c.c_int32, [_P, c.c_uint32, c.POINTER(Batch), _I32P, _P, c.c_size_t, _I32P, c.c_size_t, _SIZEP]),
        "llmcc_drafter_new": (c.c_int32, [_P, c.POINTER(_P)]),
        "llmcc_drafter_guess": (c.c_int32, [_P, _I32P, c.c_size_t, _I32P, c.c_size_t]),
        "llmcc_drafter_free": (None, [_P]),
        "llmcc_seq_encode": (c.c_int32, [_P, c.c_int32, _I32P, c.c_size_t]),
        "llmcc_taps": (c.c_int32, [_P, _SIZEP]),
        "llmcc_tap": (c.c_int32, [_P, c.c_size_t, c.POINTER(TapInfo)]),
        "llmcc_tap_weight": (c.c_int32, [_P, c.c_size_t, c.c_size_t, _I32P, c.c_char_p, c.c_size_t, _SIZEP]),
        "llmcc_tap_moments": (c.c_int32, [_P, c.POINTER(EmbedRows), c.POINTER(Moments), c.c_size_t]),
    },
    7: {
        "llmcc_audio": (c.c_int32, [_P, c.POINTER(AudioInfo)]),
        "llmcc_audio_samples": (c.c_int32, [_P, _P, c.c_size_t, c.c_uint32, _P, c.c_size_t, _SIZEP]),
        "llmcc_seq_encode_audio": (c.c_int32, [_P, c.c_int32, _P, c.c_size_t]),
        "llmcc_seq_encode_rows": (c.c_int32, [_P, c.c_int32, _P, c.c_size_t]),
        "llmcc_audio_prompt": (c.c_int32, [_P, c.c_int32, c.c_char_p, c.c_size_t, c.c_char_p, c.c_size_t, _I32P, c.c_size_t, _SIZEP]),
        "llmcc_image_rows": (c.c_int32, [_P, c.c_char_p, c.c_size_t, c.c_uint32, c.c_uint32, _P, c.c_size_t, _SIZEP]),
        "llmcc_image_prompt": (c.c_int32, [_P, c.c_char_p, c.c_size_t, c.c_size_t, c.c_char_p, c.c_size_t, _SIZEP]),
    },
    8: {
        "llmcc_image_grid": (c.c_int32, [_P, c.c_char_p, c.c_size_t, c.c_uint32, c.c_uint32, _P]),
        "llmcc_image_prompt_of": (c.c_int32, [_P, c.c_char_p, c.c_size_t, _P, c.c_size_t, c.c_char_p, c.c_size_t, _SIZEP]),
    },
    9: {
        "llmcc_engine_open": (c.c_int32, [_P, c.POINTER(EngineOptions), c.POINTER(_P)]),
        "llmcc_engine_submit": (c.c_int32, [_P, c.POINTER(EngineRequest), c.POINTER(c.c_uint64)]),
        "llmcc_engine_poll": (c.c_int32, [_P, c.POINTER(EngineEvent), c.c_size_t, _SIZEP, c.c_int64]),
        "llmcc_engine_cancel": (c.c_int32, [_P, c.c_uint64]),
        "llmcc_engine_stats": (c.c_int32, [_P, c.c_char_p, c.c_size_t, _SIZEP]),
        "llmcc_engine_close": (None, [_P]),
    },
    10: {
        "llmcc_seq_save": (c.c_int32, [_P, c.c_int32, c.c_char_p, c.c_size_t, _SIZEP]),
        "llmcc_seq_load": (c.c_int32, [_P, c.c_char_p, c.c_size_t, _I32P]),
    },
    12: {
        "llmcc_corpus_new": (c.c_int32, [_P, _I32P, c.c_size_t, c.POINTER(_P)]),
        "llmcc_corpus_free": (None, [_P]),
        "llmcc_compress": (c.c_int32, [_P, _I32P, c.c_size_t, c.c_size_t, c.c_double, c.POINTER(c.c_uint8), c.POINTER(c.c_float)]),
    },
}


class Library(Unique):
    """An artifact's functions. Those that return a status raise :class:`LlmccError` instead.

    Models and generations of one file share a library, which is unloaded when the last of them lets go of it. So a file that was replaced is loaded anew, also while models of
    the old one are open.
    """

    _remedy = "load the artifact again"
    # By device and inode, which identify a library for the loader, too.
    _loaded: dict[tuple[int, int], Library] = {}
    # Reentrant: the garbage collector may free a model while its thread is in here.
    _lock = threading.RLock()
    _dll: Optional[c.CDLL] = None

    @classmethod
    def acquire(cls, path: str) -> Library:
        """The library of the file at ``path``, for one more user; see :meth:`release`."""
        with cls._lock:
            found = _stat(path)
            library = cls._loaded.get((found.st_dev, found.st_ino))
            if library is None:
                library = cls(path, found)
                cls._loaded[found.st_dev, found.st_ino] = library
            elif library._stamp != (found.st_size, found.st_mtime_ns):
                raise LlmccError(
                    f"{path} was overwritten while a model of it is open, which is damaged now. Close all its models and load it again; to replace an artifact in use, "
                    "write another file and rename it, as `llmcc compile` does",
                    Status.ARTIFACT,
                )
            library._users += 1
            return library

    def __init__(self, path: str, found: os.stat_result) -> None:
        self._users = 0
        self._key = (found.st_dev, found.st_ino)
        self._stamp = (found.st_size, found.st_mtime_ns)
        self._name = self._unused_name(path)
        try:
            # A damaged header would take the process down in the system's loader.
            self._root = check(path, LOADED)
        except (OSError, ValueError) as error:
            self._need_same(path)
            raise LlmccError(f"{path}: {error}; copy or compile it again", Status.ARTIFACT) from None
        try:
            # Local: two artifacts define the same names.
            self._dll = c.CDLL(self._name, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            self._need_same(path)
            raise LlmccError(f"{path} is not an artifact of llmcc that can be loaded here: {_why_not(path) or error}", Status.ARTIFACT) from None
        try:
            self._check(path, found)
        except BaseException:
            self._unload()
            raise

    def _check(self, path: str, found: os.stat_result) -> None:
        dll = self._dll
        assert dll is not None
        try:
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(dll, name)
                function.restype = result
                function.argtypes = arguments
        except AttributeError as error:
            raise LlmccError(f"{path} is not an artifact of llmcc ({error}), or made by an older one; compile it again", Status.ARTIFACT) from None
        version = dll.llmcc_abi_version()
        if version >> 16 != ABI_MAJOR:
            name = f"{version >> 16}.{version & 0xFFFF}"
            raise LlmccError(
                f"{path} speaks version {name} of llmcc's C API, and this package version {ABI_MAJOR}.{ABI_MINOR}: compile the model again with the llmcc that this "
                "package is of, or install the package of the llmcc that made it",
                Status.ARTIFACT,
            )
        self._path, self._minor = path, version & 0xFFFF
        for minor, functions in _SINCE.items():
            for name, (result, arguments) in functions.items() if minor <= self._minor else ():
                function = getattr(dll, name)
                function.restype = result
                function.argtypes = arguments
        self._need_same(path)

    def _need_same(self, path: str) -> None:
        """Whatever else is wrong with it: the file is the one that was to be loaded."""
        now = _stat(path)
        if (now.st_dev, now.st_ino) != self._key:
            raise LlmccError(f"{path} was replaced while it was being loaded; load it again", Status.ARTIFACT)
        if (now.st_size, now.st_mtime_ns) != self._stamp:
            raise LlmccError(
                f"{path} was changed while it was being loaded; load it again when it is complete (to replace an artifact in use, write another file and rename it, as "
                "`llmcc compile` does)",
                Status.ARTIFACT,
            )

    def _unused_name(self, path: str) -> str:
        """The path, spelled unlike the paths of all loaded libraries: for a known name the loader
        gives its library again, whatever file is there now."""
        names = {library._name for library in self._loaded.values()}
        folder, name = os.path.split(path)
        while os.path.join(folder, name) in names:
            name = os.path.join(".", name)
        return os.path.join(folder, name)

    def share(self) -> Library:
        """The same library, for one more user."""
        with self._lock:
            self._users += 1
        return self

    def release(self) -> None:
        """The user's last word: nobody may use it on their behalf any more."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._loaded.pop(self._key, None)
                self._unload()

    def address(self, name: str) -> c.c_void_p:
        """The address of a function."""
        if self._dll is None:
            raise LlmccError("the model is closed")
        return c.cast(getattr(self._dll, name), c.c_void_p)

    def _unload(self, is_finalizing: Any = sys.is_finalizing) -> None:
        dll, self._dll = self._dll, None
        # When Python ends, other threads may be in the library still; then the system cleans up.
        if dll is not None and not is_finalizing():
            c.CDLL(None).dlclose(c.c_void_p(dll._handle))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Python's own attributes, to copy the object, say.
            raise AttributeError(name)
        dll = self._dll
        if dll is None:
            raise LlmccError("the model is closed")
        if any("llmcc_" + name in functions for minor, functions in _SINCE.items() if minor > self._minor):
            message = f"{self._path} was made by an older llmcc, whose API has no llmcc_{name}; compile it again"
            raise LlmccError(message, Status.UNSUPPORTED)
        function = getattr(dll, "llmcc_" + name)
        if function.restype is not c.c_int32:
            return function

        def checked(*arguments: Any) -> None:
            status = function(*arguments)
            if status != 0:
                message = dll.llmcc_last_error().decode("utf-8", "replace")
                raise LlmccError(message, _status(status))

        return checked

    def interruptible(self, handle: Any, call: Any, worth: bool = True) -> Any:
        """The result of ``call()``, which works with the model ``handle`` for long. While C is at work, Python runs no handlers of signals: so another thread makes the call, and
        this one waits for it. If its wait is ended by an exception (``KeyboardInterrupt``), the call is, too.

        :param worth: whether the call may take so long that this is worth a thread.
        """
        scope = Scope.current()
        if scope is not None:
            return scope.run(self, handle, call)
        if not worth or self._minor < 4 or threading.current_thread() is not threading.main_thread():
            return _again(call)
        results: list[Any] = []
        errors: list[BaseException] = []
        done, ended = threading.Event(), threading.Event()

        def work() -> None:
            try:
                results.append(_again(call, ended.is_set))
            except BaseException as error:
                errors.append(error)
            finally:
                done.set()

        try:
            threading.Thread(target=work, name="llmcc-call", daemon=True).start()
        except RuntimeError:
            # There is no thread to be had.
            return _again(call)
        try:
            done.wait()
        except BaseException:
            ended.set()
            self._interrupt(handle, done)
            raise
        if errors:
            # (Not kept by this frame, which the error refers to.)
            raise errors.pop()
        return results[0]

    def _interrupt(self, handle: Any, done: threading.Event) -> None:
        while not done.is_set():
            # Again and again: the call may not have begun yet, or be waiting for another one.
            try:
                self.interrupt(handle)
                done.wait(0.02)
            except KeyboardInterrupt:
                continue
            except LlmccError:
                # The model is closed already.
                done.wait(0.02)

    def text(self, call: Any, guess: int = 4096) -> str:
        """Result of ``call(buffer, capacity, needed)``, which stores UTF-8."""
        data: builtins.bytes = _grown(call, c.create_string_buffer, guess, 1)
        return data.decode("utf-8")

    def bytes(self, call: Any, guess: int = 64) -> builtins.bytes:
        """Result of ``call(buffer, capacity, needed)``, which stores bytes."""
        data: builtins.bytes = _grown(call, c.create_string_buffer, guess, 0)
        return data

    def ints(self, call: Any, guess: int = 256) -> list[int]:
        """Result of ``call(buffer, capacity, needed)``, which stores int32."""
        return list(_grown(call, lambda n: (c.c_int32 * n)(), guess, 0))

    def floats(self, call: Any, guess: int) -> list[float]:
        """Result of ``call(buffer, capacity, needed)``, which stores float32."""
        return list(_grown(call, lambda n: (c.c_float * n)(), guess, 0))


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


def _stat(path: str) -> os.stat_result:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise LlmccError(f"{path} does not exist; make it with `llmcc compile`{_download(path)}", Status.ARTIFACT) from None
    except OSError as error:
        raise LlmccError(f"{path} cannot be read: {error.strerror}", Status.ARTIFACT) from None
    if os.path.exists(os.path.join(path, "config.json")) or path.endswith((".gguf", ".safetensors")):
        message = f"{path} is a checkpoint, not an artifact: compile it first (llmcc.compile({path!r}, 'model.so')), and load model.so"
        raise LlmccError(message, Status.ARTIFACT)
    if not stat.S_ISREG(found.st_mode):
        raise LlmccError(f"{path} is not a regular file; give the .so written by `llmcc compile`", Status.ARTIFACT)
    return found


def _download(path: str) -> str:
    """Advice where a path looks like the name of a model on the Hugging Face hub."""
    parts = os.path.relpath(path).split(os.sep)
    if len(parts) != 2 or parts[0] == os.pardir or os.path.isdir(os.path.dirname(path)) or path.endswith(".so"):
        return ""
    name = "/".join(parts)
    return f" of a checkpoint: for a model of the Hugging Face hub, download its files first (`hf download {name} --local-dir {parts[1]}`)"


_MACHINES = {62: "x86_64", 183: "aarch64"}


def _why_not(path: str) -> Optional[str]:
    """A better reason than the loader's for refusing a file."""
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except OSError as error:
        return error.strerror
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return "it is not a shared object; give the .so written by `llmcc compile`"
    machine = int.from_bytes(head[18:20], "little")
    found = _MACHINES.get(machine, f"machine {machine}")
    if found != platform.machine():
        return f"it is for {found}, and this machine is {platform.machine()}; compile it for this one"
    return None


def integers(values: Iterable[int], what: str) -> list[int]:
    """The values as a list, if they are integers: Python's or NumPy's, of any iterable, but no bytes, booleans or numbers with a fraction."""
    if hasattr(values, "dtype") and getattr(values, "size", 1) == 0 and getattr(values, "ndim", 0) == 1:
        # An empty list becomes an array of floats.
        return []
    if isinstance(values, (dict, set, frozenset)):
        raise TypeError(f"{what} must be a sequence of integers, which have an order, not a {type(values).__name__}")
    kind = getattr(getattr(values, "dtype", None), "kind", "i")
    if isinstance(values, (str, bytes, bytearray, memoryview)) or kind not in "iu":
        found = type(values).__name__ if kind in "iu" else f"an array of {getattr(values, 'dtype')}"
        raise TypeError(f"{what} must be a sequence of integers, not {found}")
    try:
        tolist: Any = getattr(values, "tolist", None) if hasattr(values, "dtype") else None
        items = list(values) if tolist is None else tolist()
    except TypeError:
        raise TypeError(f"{what} must be a sequence of integers, not {type(values).__name__}") from None
    if not isinstance(items, list):
        raise TypeError(f"{what} must be a sequence of integers, not a single one")
    for index, item in enumerate(items):
        try:
            # (NumPy's booleans have had an index, with a warning.)
            if isinstance(item, bool) or type(item).__name__ in ("bool", "bool_"):
                raise TypeError
            items[index] = operator.index(item)
        except TypeError:
            raise TypeError(f"{what} must be a sequence of integers; item {index} is {item!r}") from None
    return items


def int32_array(values: Iterable[int], what: str) -> Any:
    """A C array of the values, which must be integers of 32 bits."""
    numbers = integers(values, what)
    for number in numbers:
        if not -(2**31) <= number < 2**31:
            raise LlmccError(f"{what} holds {number}, which is not a 32-bit integer")
    return (c.c_int32 * len(numbers))(*numbers)


def float_row(values: Any, what: str) -> Any:
    """A C array of the floats: the memory of a one-dimensional float32 array (NumPy's, ``array.array("f")``, ...) itself, else a copy.

    :raises TypeError: not a row of numbers.
    """
    if isinstance(values, c.Array) and getattr(values, "_type_", None) is c.c_float:
        return values
    try:
        view = memoryview(values)
    except TypeError:
        view = None
    if view is not None and view.ndim != 1:
        raise TypeError(f"{what} must be one row, not an array of {view.ndim} dimensions")
    if view is not None and view.format == "f" and view.c_contiguous:
        kind = c.c_float * len(view)
        return kind.from_buffer_copy(view) if view.readonly else kind.from_buffer(view)
    if isinstance(values, (str, bytes, bytearray)):
        raise TypeError(f"{what} must be a row of floats, not {type(values).__name__}")
    try:
        copy = array("f", values)
    except TypeError as error:
        raise TypeError(f"{what} must be a row of floats ({error})") from None
    return (c.c_float * len(copy)).from_buffer(copy)
