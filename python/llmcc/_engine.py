"""Engines: many requests on one model, from many threads and tasks."""

from __future__ import annotations

import ctypes as c
import json
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterator, Mapping, Optional, Sequence, Union, overload

from . import _batch, _ffi as ffi, _images
from ._errors import Closing, LlmccError, Status
from ._keywords import Generating, spelled_out
from ._params import GenParams, natural, positive, real, utf8
from ._pieces import Completion, piece_of
from ._request import Request, Times

if TYPE_CHECKING:
    from ._keywords import Unpack
    from ._model import Model
    from ._text import Message, Prompt, Prompts

#: Events that are taken at once.
_EVENTS = 64


class Engine(Closing):
    """Serves many requests on one model at once: each step takes all running ones a token further, and begins new ones. Close it, or use it in a ``with`` statement.

    Methods may be called from any number of threads and tasks. A request's text depends on its prompt and parameters alone: it is the one of :meth:`Model.generate`, bit for
    bit (on CPUs), whatever else runs. Requests that begin with the same tokens compute them once, and later ones find them, as long as the cache has room: open the model
    with a larger ``max_tokens`` for more.

    :param max_running: most requests in a step (default 64).
    :param max_queued: most requests beside these; further ones fail with ``Status.BUSY`` (default 4096).
    :param target: the longest time, in seconds, between two tokens of a request that prompts of others may cause. By default twice that of a step without prompts, or 50 ms if
        that is longer.
    :param prefix_bytes: most bytes of the cache's pages that stay after their requests; by default as many as there is room for.
    :param prefixes: whether requests share computed tokens.
    :param cache_dir: a folder in which computed beginnings survive the process, for this artifact and processor; made where it is missing, for this user only.
    :param cache_dir_bytes: most bytes of the files there; those used longest ago go first (default 8 GiB).
    """

    _remedy = "share it: its methods may be called from several threads"

    def __init__(
        self,
        model: Model,
        *,
        max_running: Optional[int] = None,
        max_queued: Optional[int] = None,
        target: Optional[float] = None,
        prefix_bytes: Optional[int] = None,
        prefixes: bool = True,
        cache_dir: Union[str, os.PathLike[str], None] = None,
        cache_dir_bytes: Optional[int] = None,
    ) -> None:
        self._engine = c.c_void_p()
        self._requests: dict[int, Request] = {}
        self._lock = threading.RLock()
        self._model, self._lib = model, model._lib
        folder = None if cache_dir is None else utf8(os.fspath(cache_dir))
        options = ffi.EngineOptions(
            max_running=positive(max_running, "max_running", 32),
            max_queued=positive(max_queued, "max_queued", 64),
            target_ns=_nanoseconds(target, "target"),
            prefix_bytes=positive(prefix_bytes, "prefix_bytes", 64),
            flags=0 if prefixes else ffi.ENGINE_NO_PREFIXES,
            cache_dir=folder,
            cache_dir_len=len(folder or b""),
            cache_dir_bytes=positive(cache_dir_bytes, "cache_dir_bytes", 64),
        )
        with model._use() as handle:
            self._lib.engine_open(handle, c.byref(options), c.byref(self._engine))
            self._lib.share()
        # The thread knows the engine weakly, so that one that is forgotten is closed.
        self._thread = threading.Thread(target=_dispatch, args=(weakref.ref(self), self._lib, self._engine), name="llmcc-engine", daemon=True)
        self._thread.start()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Ends all requests, with ``Status.INTERRUPTED``. Closing twice is fine."""
        with self._lock:
            engine, self._engine = self._engine, c.c_void_p()
        if not engine:
            return
        self._lib.engine_close(engine)
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._abandon()
        self._lib.release()

    @spelled_out(Generating)
    def submit(self, prompt: Prompt, *, priority: int = 0, timeout: Optional[float] = None, salt: int = 0, **params: Unpack[Generating]) -> Request:
        """Hands a request over and returns at once. The parameters of the text are as in :meth:`Model.generate`.

        :param prompt: text or tokens.
        :param priority: requests of larger ones go first; who waits for long rises.
        :param timeout: seconds after which the request ends with ``Status.DEADLINE``.
        :param salt: computed tokens are shared among requests of the same number only, for tenants that must not learn of each other.
        :raises LlmccError: a parameter or the prompt is wrong; the engine has as many requests as it may (``Status.BUSY``).
        """
        given = _batch.of_one(params)
        tokens, rows = _images.encoded(self._model, prompt, given.pop("images", None))
        own = GenParams(image_rows=rows, **given)
        if own.guesses.is_model:
            raise LlmccError('an engine takes no other model as draft: use draft="lookup", texts (Model.corpus), "jacobi", "lookahead", "heads" or "none"')
        native = _batch.native_of(self._model, own)
        array = ffi.int32_array(tokens, "the prompt")
        request = ffi.EngineRequest(
            tokens=array,
            n_tokens=len(array),
            params=c.pointer(native),
            priority=_priority(priority),
            timeout_ns=_nanoseconds(timeout, "timeout"),
            salt=natural(salt, "salt", 64),
        )
        number = c.c_uint64()
        # Held until the request is known, so that its first event finds it.
        with self._lock:
            self._lib.engine_submit(self._open(), c.byref(request), c.byref(number))
            made = Request(self, number.value, tokens, own.logprobs is not None)
            self._requests[made.id] = made
        return made

    @overload
    def complete(self, prompt: Prompt, *, priority: int = 0, timeout: Optional[float] = None, salt: int = 0, **params: Unpack[Generating]) -> Completion: ...  # type: ignore[overload-overlap]

    @overload
    def complete(self, prompt: Prompts, *, priority: int = 0, timeout: Optional[float] = None, salt: int = 0, **params: Unpack[Generating]) -> list[Completion]: ...

    @spelled_out(Generating)
    def complete(self, prompt: Union[Prompt, Prompts], **params: Any) -> Union[Completion, list[Completion]]:
        """Waits for a request, or for a list of them, and returns all results. See :meth:`submit`."""
        prompts, single = _batch.several(prompt)
        requests: list[Request] = []
        try:
            for one in prompts:
                requests.append(self.submit(one, **params))
            results = [request.result() for request in requests]
        except BaseException:
            for request in requests:
                request.cancel()
            raise
        return results[0] if single else results

    @overload
    def generate(self, prompt: Prompt, *, priority: int = 0, timeout: Optional[float] = None, salt: int = 0, **params: Unpack[Generating]) -> str: ...  # type: ignore[overload-overlap]

    @overload
    def generate(self, prompt: Prompts, *, priority: int = 0, timeout: Optional[float] = None, salt: int = 0, **params: Unpack[Generating]) -> list[str]: ...

    @spelled_out(Generating)
    def generate(self, prompt: Union[Prompt, Prompts], **params: Any) -> Union[str, list[str]]:
        """As :meth:`complete`, but returns the new text."""
        done = self.complete(prompt, **params)
        return [one.text for one in done] if isinstance(done, list) else done.text

    @spelled_out(Generating)
    def stream(self, prompt: Prompt, *, priority: int = 0, timeout: Optional[float] = None, salt: int = 0, **params: Unpack[Generating]) -> Iterator[str]:
        """As :meth:`generate`, but yields the text as it comes. Leaving the loop cancels the request."""
        return _texts(self.submit(prompt, priority=priority, timeout=timeout, salt=salt, **params))

    @spelled_out(Generating)
    async def acomplete(self, prompt: Prompt, *, priority: int = 0, timeout: Optional[float] = None, salt: int = 0, **params: Unpack[Generating]) -> Completion:
        """As :meth:`complete` for one prompt, awaited. Cancelling the task cancels the request."""
        request = self.submit(prompt, priority=priority, timeout=timeout, salt=salt, **params)
        try:
            return await request.aresult()
        finally:
            request.cancel()

    @spelled_out(Generating)
    async def agenerate(self, prompt: Prompt, *, priority: int = 0, timeout: Optional[float] = None, salt: int = 0, **params: Unpack[Generating]) -> str:
        """As :meth:`generate` for one prompt, awaited."""
        return (await self.acomplete(prompt, priority=priority, timeout=timeout, salt=salt, **params)).text

    @spelled_out(Generating)
    async def astream(
        self, prompt: Prompt, *, priority: int = 0, timeout: Optional[float] = None, salt: int = 0, **params: Unpack[Generating]
    ) -> AsyncIterator[str]:
        """As :meth:`stream`, for ``async for``."""
        request = self.submit(prompt, priority=priority, timeout=timeout, salt=salt, **params)
        try:
            async for piece in request:
                if piece.text:
                    yield piece.text
        finally:
            request.cancel()

    @spelled_out(Generating)
    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        template_vars: Optional[Mapping[str, object]] = None,
        priority: int = 0,
        timeout: Optional[float] = None,
        salt: int = 0,
        **params: Unpack[Generating],
    ) -> str:
        """The model's answer to a conversation. Its next turn computes what is new alone, while the cache has room for both. See :meth:`Model.chat` and :meth:`submit`."""
        tokens, given = _images.with_conversation(self._model, messages, tools, template_vars, params)
        return self.generate(tokens, priority=priority, timeout=timeout, salt=salt, **given)

    def stats(self) -> dict[str, Any]:
        """Counts since it was opened: requests (``running``, ``waiting``, ``submitted``, ``finished``, ``failed``, ``cancelled``, ``expired``), ``steps`` and the tokens in them
        (``step_tokens``), ``prompt_tokens``, ``reused_tokens``, ``generated_tokens``, ``guessed`` and ``accepted`` ones, ``kept_sequences``, ``kept_bytes``, ``busy_ns``.
        With a ``cache_dir`` also ``disk_parts``, ``disk_bytes``, ``disk_written``, ``disk_tokens`` that were to come from there, ``disk_errors`` and the last ``disk_error``."""
        with self._lock:
            engine = self._open()
            result: dict[str, Any] = json.loads(self._lib.text(lambda *out: self._lib.engine_stats(engine, *out)))
        return result

    def _open(self) -> c.c_void_p:
        if not self._engine:
            raise LlmccError("the engine is closed")
        return self._engine

    def _cancel(self, request: int) -> None:
        with self._lock:
            if self._engine and request in self._requests:
                self._lib.engine_cancel(self._engine, request)

    def _take(self, events: Any, n: int) -> None:
        """Hands events to their requests."""
        for event in events[:n]:
            with self._lock:
                request = self._requests.pop(event.request, None) if event.ended else self._requests.get(event.request)
            if request is not None:
                piece = piece_of(event, request._logprobs) if event.token >= 0 else None
                request._take(piece, _end(event) if event.ended else None)

    def _abandon(self) -> None:
        """Ends the requests that will hear nothing more."""
        with self._lock:
            requests, self._requests = self._requests, {}
        for request in requests.values():
            request._take(None, (LlmccError("the engine was closed", Status.INTERRUPTED), 0, Times(0.0, 0.0, 0.0)))


def _dispatch(engine: weakref.ref[Engine], lib: ffi.Library, handle: c.c_void_p) -> None:
    """Takes events until the engine is closed."""
    events, n = (ffi.EngineEvent * _EVENTS)(), c.c_size_t()
    for event in events:
        event.size = c.sizeof(ffi.EngineEvent)
    while True:
        try:
            lib.engine_poll(handle, events, _EVENTS, c.byref(n), -1)
        except LlmccError:
            own = engine()
            # (`llmcc_interrupt` ends the waits of others, too.)
            if own is None or not own._engine:
                return
            continue
        own = engine()
        if own is None:
            return
        own._take(events, n.value)
        del own


def _texts(request: Request) -> Iterator[str]:
    try:
        for piece in request:
            if piece.text:
                yield piece.text
    finally:
        request.cancel()


def _end(event: ffi.EngineEvent) -> tuple[Optional[LlmccError], int, Times]:
    error = None
    if event.status != 0:
        error = LlmccError(c.string_at(event.message).decode("utf-8", "replace"), ffi._status(event.status))
    return error, event.reused_tokens, Times(event.waited_ns / 1e9, event.first_token_ns / 1e9, event.total_ns / 1e9)


def _nanoseconds(seconds: Optional[float], name: str) -> int:
    """For C, where 0 means the default, or never."""
    if seconds is None:
        return 0
    number = real(seconds, name)
    if not 0 < number < 1e9:
        raise LlmccError(f"{name} is {number}; use a positive number of seconds, or None")
    return max(int(number * 1e9), 1)


def _priority(value: int) -> int:
    number = real(value, "priority")
    if number != int(number) or not -(2**31) <= number < 2**31:
        raise LlmccError(f"priority is {value}; use an integer of 32 bits")
    return int(number)
