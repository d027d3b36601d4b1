"""Models: loading, text, logits, generation."""

from __future__ import annotations

import ctypes as c
import json
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional, Sequence, Union

from . import _ffi as ffi
from ._errors import LlmccError, Status

if TYPE_CHECKING:
    import numpy as np

    from ._session import Session

Prompt = Union[str, Sequence[int]]
Message = Mapping[str, Any]

_FINISH = {0: None, 1: "token", 2: "text", 3: "length", 4: "context"}
_ISA = {1: "x86-64", 3: "x86-64-v3", 4: "x86-64-v4", 64: "aarch64"}


@dataclass(frozen=True)
class Piece:
    """One generated token.

    ``text`` is what it completes: whole characters, maybe none. ``finish`` is set on the last piece: ``"token"`` (an end-of-sequence or stop token),
    ``"text"`` (a stop string), ``"length"`` (``max_tokens``) or ``"context"`` (the model's longest context).
    """

    token: int
    text: str
    finish: Optional[str]


def load(
    path: Union[str, os.PathLike[str]],
    threads: Optional[int] = None,
    max_tokens: Optional[int] = None,
    *,
    max_batch_tokens: Optional[int] = None,
    profile: bool = False,
    pin: bool = False,
    portable: bool = False,
) -> Model:
    """Opens an artifact.

    :param threads: by default one per physical core.
    :param max_tokens: tokens the KV cache holds for all sequences together; by default the longest context, at least 16384, or what
        fits half of the memory.
    :param max_batch_tokens: tokens taken through the kernels at once; bounds the memory for activations (default 512).
    :param profile: measure every kernel, see :meth:`Model.stats`.
    :param pin: keep each thread on a processor of its own, the calling one while it computes.
    :param portable: the same bits on every processor, also of products of bf16 rows, which processors with AMX otherwise sum in another order, several times as fast.
    """
    return Model(path, threads, max_tokens, max_batch_tokens=max_batch_tokens, profile=profile, pin=pin, portable=portable)


class Model:
    """An open artifact. Close it, or use it in a ``with`` statement. Methods may be called from several threads; they wait for each other."""

    def __init__(
        self,
        path: Union[str, os.PathLike[str]],
        threads: Optional[int] = None,
        max_tokens: Optional[int] = None,
        *,
        max_batch_tokens: Optional[int] = None,
        profile: bool = False,
        pin: bool = False,
        portable: bool = False,
    ) -> None:
        self._handle: Optional[c.c_void_p] = None
        self._lock = threading.Lock()
        self._busy = 0
        self.path = os.path.abspath(os.fspath(path))
        options = ffi.Options(
            threads=_positive(threads, "threads", 32),
            max_tokens=_positive(max_tokens, "max_tokens", 64),
            max_batch_tokens=_positive(max_batch_tokens, "max_batch_tokens", 64),
            flags=(ffi.OPEN_PROFILE if profile else 0) | (ffi.OPEN_PIN if pin else 0) | (ffi.OPEN_PORTABLE if portable else 0),
        )
        handle = c.c_void_p()
        self._lib = ffi.Library.acquire(self.path)
        try:
            self._lib.open(c.byref(options), c.byref(handle))
        except BaseException:
            self._lib.release()
            raise
        self._handle = handle
        try:
            self._info = self._read_info()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Set before anything can fail in __init__, but __init__ may not have run at all.
        if getattr(self, "_handle", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"<llmcc.Model {self.path!r}{'' if self._handle else ' (closed)'}>"

    def close(self) -> None:
        """Frees the model's memory and threads, and unloads the artifact when nothing of it is open any more. Closing twice is fine. Streams still under way keep both until
        they end."""
        with self._lock:
            if self._busy:
                raise LlmccError("the model is in use by another thread; wait for that first")
            handle, self._handle = self._handle, None
        if handle is not None:
            self._lib.close(handle)
            self._lib.release()

    @property
    def info(self) -> dict[str, Any]:
        """Sizes (``vocab``, ``hidden``, ``layers``, ``max_context``), memory (``weights_bytes``, ``kv_bytes_per_token``, ``activation_bytes``...), ``threads``,
        ``isa``, ``bos_token``, ``eos_tokens``, ``has_tokenizer``, ``has_chat_template``."""
        return dict(self._info)

    @property
    def manifest(self) -> dict[str, Any]:
        """How the artifact was made: source, options, formats, hashes."""
        with self._use() as handle:
            result: dict[str, Any] = json.loads(self._lib.manifest(handle).decode("utf-8"))
        return result

    def stats(self) -> dict[str, Any]:
        """Memory in use and, with ``profile=True``, the time of every kernel."""
        with self._use() as handle:
            result: dict[str, Any] = json.loads(self._lib.text(lambda *out: self._lib.stats(handle, *out)))
        return result

    # ---- text

    def tokenize(self, text: str, add_special: bool = True) -> list[int]:
        """Tokens of ``text``. ``add_special`` adds what the model expects around a plain prompt (a beginning-of-sequence token, mostly)."""
        data = _utf8(text)
        flags = ffi.ADD_SPECIAL if add_special else 0
        with self._use() as handle:
            return self._lib.ints(lambda *out: self._lib.tokenize(handle, data, len(data), flags, *out), len(data) + 16)

    def detokenize(self, tokens: Sequence[int], show_special: bool = False) -> str:
        """Text of ``tokens``."""
        array = ffi.int32_array(tokens, "tokens")
        flags = ffi.SHOW_SPECIAL if show_special else 0
        with self._use() as handle:
            return self._lib.text(lambda *out: self._lib.detokenize(handle, array, len(array), flags, *out), 16 * len(array) + 64)

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt for a conversation, by the model's chat template. ``variables`` are passed to the template."""
        conversation: dict[str, Any] = {"messages": list(messages), "add_generation_prompt": add_generation_prompt, **variables}
        if tools is not None:
            conversation["tools"] = list(tools)
        try:
            data = _utf8(json.dumps(conversation, ensure_ascii=False))
        except TypeError as error:
            raise LlmccError(f"the conversation is not JSON: {error}") from None
        with self._use() as handle:
            return self._lib.text(lambda *out: self._lib.apply_chat_template(handle, data, len(data), *out), 2 * len(data) + 4096)

    # ---- generation

    def generate(self, prompt: Prompt, *, max_tokens: Optional[int] = None, **params: Any) -> str:
        """Continues ``prompt`` (text, or tokens) and returns the new text.

        :param max_tokens: most tokens to generate; by default until the model ends the text or its context is full.
        :param temperature: 0 (default) always takes the most probable token.
        :param top_k: keep this many of the most probable tokens.
        :param top_p: keep the most probable tokens with this sum of probabilities.
        :param min_p: drop tokens less probable than this fraction of the most probable one.
        :param repetition_penalty: above 1: makes tokens seen before less probable.
        :param repetition_window: how many of the last tokens count as seen (default: all).
        :param seed: equal seeds give equal texts.
        :param stop: texts that end the generation and are not part of it.
        :param stop_tokens: tokens that end the generation, besides the model's own.
        :param ignore_eos: go on after end-of-sequence tokens.
        :param show_special: keep special tokens in the text.
        """
        return "".join(self.stream(prompt, max_tokens=max_tokens, **params))

    def stream(self, prompt: Prompt, *, max_tokens: Optional[int] = None, **params: Any) -> Iterator[str]:
        """As :meth:`generate`, but yields the text as it comes, in whole characters."""
        return _texts(self.pieces(prompt, max_tokens=max_tokens, **params))

    def pieces(self, prompt: Prompt, *, max_tokens: Optional[int] = None, **params: Any) -> Iterator[Piece]:
        """As :meth:`generate`, but yields every token as a :class:`Piece`."""
        tokens = self.tokenize(prompt) if isinstance(prompt, str) else prompt
        return self._pieces(ffi.NEW_SEQ, tokens, _GenParams(max_tokens, **params))

    def chat(self, messages: Sequence[Message], *, tools: Optional[Sequence[Mapping[str, Any]]] = None, **params: Any) -> str:
        """The model's answer to a conversation. ``params`` as in :meth:`generate`. For many turns, :meth:`session` saves work."""
        return "".join(self.chat_stream(messages, tools=tools, **params))

    def chat_stream(self, messages: Sequence[Message], *, tools: Optional[Sequence[Mapping[str, Any]]] = None, **params: Any) -> Iterator[str]:
        """As :meth:`chat`, but yields the text as it comes."""
        prompt = self.tokenize(self.apply_chat_template(messages, tools), add_special=False)
        return self.stream(prompt, **params)

    def session(self) -> Session:
        """An empty sequence that keeps its cache between calls."""
        from ._session import Session

        return Session(self)

    # ---- logits

    def forward(self, tokens: Sequence[int], *, numpy: bool = True) -> np.ndarray[Any, Any]:
        """Logits after each of ``tokens``: float32 ``[len(tokens), vocab]``. With ``numpy=False`` nested lists, for which NumPy is not needed."""
        array = ffi.int32_array(tokens, "tokens")
        seq = self._seq_new()
        try:
            logits: np.ndarray[Any, Any] = self._step(array, [seq] * len(array), range(len(array)), numpy)
            return logits
        finally:
            self._seq_free(seq)

    def step(self, batch: Sequence[tuple[Session, Sequence[int]]], *, numpy: bool = True) -> np.ndarray[Any, Any]:
        """Appends tokens to several sessions at once, prompts and single tokens mixed, and returns the logits after the last token of each:
        float32 ``[len(batch), vocab]``. A session's logits do not depend on the others, but the work is shared."""
        all_tokens: list[int] = []
        seqs: list[int] = []
        rows: list[int] = []
        for session, tokens in batch:
            if session._model is not self or len(tokens) == 0:
                raise LlmccError("a batch holds pairs of a session of this model and at least one token")
            if session._need_seq() in seqs:
                raise LlmccError("a batch holds a session twice; join its tokens")
            pending = [*session._pending(), *ffi.integers(tokens, "tokens")]
            all_tokens += pending
            seqs += [session._need_seq()] * len(pending)
            rows.append(len(all_tokens) - 1)
        array = ffi.int32_array(all_tokens, "tokens")
        logits: np.ndarray[Any, Any] = self._step(array, seqs, rows, numpy)
        for session, tokens in batch:
            session._tokens.extend(int(t) for t in tokens)
        return logits

    # ---- for Session

    def _seq_new(self) -> int:
        seq = c.c_int32()
        with self._use() as handle:
            self._lib.seq_new(handle, c.byref(seq))
        return seq.value

    def _seq_free(self, seq: int) -> None:
        if self._handle is not None:
            with self._use() as handle:
                self._lib.seq_free(handle, seq)

    def _step(self, tokens: Any, seqs: Sequence[int], rows: Sequence[int], numpy: bool) -> Any:
        n, vocab = len(tokens), self._info["vocab"]
        np = _numpy() if numpy else None
        logits: Any = np.empty((len(rows), vocab), dtype=np.float32) if np else (c.c_float * (len(rows) * vocab))()
        batch = ffi.Batch(
            n_tokens=n,
            tokens=tokens,
            seqs=(c.c_int32 * n)(*seqs),
            n_out=len(rows),
            out_rows=(c.c_uint32 * len(rows))(*rows),
        )
        with self._use() as handle:
            pointer = logits.ctypes.data_as(c.c_void_p) if np else c.cast(logits, c.c_void_p)
            self._lib.step(handle, c.byref(batch), pointer, len(rows) * vocab)
        return logits if np else [list(logits[i * vocab : (i + 1) * vocab]) for i in range(len(rows))]

    def _pieces(self, seq: int, tokens: Sequence[int], params: _GenParams) -> Iterator[Piece]:
        array = ffi.int32_array(tokens, "the prompt")
        text = bool(self._info["has_tokenizer"])
        native = params.native(text)
        gen = c.c_void_p()
        # Here, not in the iterator, so that errors come from the call itself.
        with self._use() as handle:
            self._lib.gen_new(handle, seq, array, len(array), c.byref(native), c.byref(gen))
            return _Generation(self._lib, gen)

    def _read_info(self) -> dict[str, Any]:
        info = ffi.ModelInfo()
        with self._use() as handle:
            self._lib.info(handle, c.byref(info))
            eos = self._lib.ints(lambda *out: self._lib.eos_tokens(handle, *out))
        names = [field[0] for field in info._fields_]
        result: dict[str, Any] = {name: getattr(info, name) for name in names if name not in ("size", "flags")}
        result["isa"] = _ISA.get(info.isa, str(info.isa))
        result["bos_token"] = info.bos_token if info.bos_token >= 0 else None
        result["eos_tokens"] = eos
        result["has_tokenizer"] = bool(info.flags & ffi.HAS_TOKENIZER)
        result["has_chat_template"] = bool(info.flags & ffi.HAS_CHAT_TEMPLATE)
        result["llmcc_version"] = self._lib.version().decode("ascii")
        return result

    def _use(self) -> _Use:
        return _Use(self)


class _Use:
    """Keeps the model from being closed while its handle is in use."""

    def __init__(self, model: Model) -> None:
        self._model: Optional[Model] = model

    def __enter__(self) -> c.c_void_p:
        model = self._model
        assert model is not None
        with model._lock:
            if model._handle is None:
                raise LlmccError("the model is closed")
            model._busy += 1
            return model._handle

    def __exit__(self, *_: object) -> None:
        model, self._model = self._model, None
        if model is not None:
            with model._lock:
                model._busy -= 1


class _Generation(Iterator[Piece]):
    """Tokens of a generation; frees it at the end, on an error, and when it is no longer wanted."""

    def __init__(self, lib: ffi.Library, gen: c.c_void_p) -> None:
        self._lib, self._gen = lib.share(), gen
        # Held while the library works on it, so that nobody frees it meanwhile.
        self._lock = threading.RLock()

    def __next__(self) -> Piece:
        with self._lock:
            if not self._gen:
                raise StopIteration
            piece = ffi.Piece()
            try:
                self._lib.gen_next(self._gen, c.byref(piece))
                text = c.string_at(piece.text, piece.text_len).decode("utf-8")
            except BaseException:
                self.close()
                raise
            finish = _FINISH.get(piece.finish, "other")
            if finish is not None:
                self.close()
        if piece.token < 0:
            raise StopIteration
        return Piece(piece.token, text, finish)

    def close(self) -> None:
        with self._lock:
            gen, self._gen = self._gen, c.c_void_p()
            if gen:
                self._lib.gen_free(gen)
                self._lib.release()

    def __del__(self) -> None:
        self.close()


class _GenParams:
    """Checks the parameters of a generation and makes the C structure."""

    def __init__(
        self,
        max_tokens: Optional[int] = None,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        repetition_window: int = 0,
        seed: int = 0,
        stop: Union[str, Sequence[str]] = (),
        stop_tokens: Sequence[int] = (),
        ignore_eos: bool = False,
        show_special: bool = False,
    ) -> None:
        self.max_tokens = _positive(max_tokens, "max_tokens", 64)
        self.sampling = ffi.Sampling(
            temperature=temperature,
            top_k=_natural(top_k, "top_k", 32),
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            repetition_window=_natural(repetition_window, "repetition_window", 32),
            seed=_natural(seed, "seed", 64),
        )
        stops = [stop] if isinstance(stop, str) else list(stop)
        self.stop = [_utf8(s) for s in stops]
        if any(b"\0" in s for s in self.stop):
            raise LlmccError("a stop string holds a NUL character")
        self.stop_tokens = ffi.int32_array(stop_tokens, "stop_tokens")
        self.flags = (ffi.GEN_IGNORE_EOS if ignore_eos else 0) | (ffi.GEN_SHOW_SPECIAL if show_special else 0)

    def native(self, text: bool) -> ffi.GenParams:
        return ffi.GenParams(
            max_tokens=self.max_tokens,
            sampling=self.sampling,
            stop=(c.c_char_p * len(self.stop))(*self.stop),
            n_stop=len(self.stop),
            stop_tokens=self.stop_tokens,
            n_stop_tokens=len(self.stop_tokens),
            flags=self.flags | (0 if text else ffi.GEN_NO_TEXT),
        )


class _texts(Iterator[str]):
    """The texts of pieces, without empty ones."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces

    def __next__(self) -> str:
        while True:
            text = next(self._pieces).text
            if text:
                return text


def _natural(value: int, name: str, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**bits:
        raise LlmccError(f"{name} is {value!r}; use an integer from 0 to 2**{bits} - 1")
    return value


def _positive(value: Optional[int], name: str, bits: int) -> int:
    """For C, where 0 means the default; None does so here."""
    if value is None:
        return 0
    if _natural(value, name, bits) == 0:
        raise LlmccError(f"{name} is 0; use a positive number, or None for the default")
    return value


def _utf8(text: str) -> bytes:
    if not isinstance(text, str):
        raise LlmccError(f"expected text (str), got {type(text).__name__}")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise LlmccError(f"the text is not valid Unicode: {error}") from None


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        message = "logits need NumPy: `pip install numpy`, or pass numpy=False to get lists"
        raise LlmccError(message, Status.UNSUPPORTED) from None
    return numpy
