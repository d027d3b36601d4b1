"""Requests of an engine: their tokens as they come, for threads and for ``asyncio``."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Iterator, Optional

from . import _batch
from ._errors import LlmccError, Unique
from ._pieces import Completion, Piece

if TYPE_CHECKING:
    from ._engine import Engine


@dataclass(frozen=True)
class Times:
    """Seconds from a request's arrival: until it first took part in a step, to its first token, and to its end."""

    waited: float
    first_token: float
    total: float


class Request(Unique):
    """A request that an :class:`Engine` serves. Its tokens may be read while it is served, by any number of readers, by ``for`` and by ``async for``."""

    _remedy = "submit another one with the same parameters"

    def __init__(self, engine: Engine, number: int, prompt: list[int], logprobs: bool) -> None:
        self._engine, self._prompt, self._logprobs = engine, prompt, logprobs
        #: Its number in the engine.
        self.id = number
        #: Tokens of the prompt that others had computed; known at its end.
        self.reused_tokens: Optional[int] = None
        #: Its times, known at its end.
        self.times: Optional[Times] = None
        self._pieces: list[Piece] = []
        self._ended = False
        self._error: Optional[LlmccError] = None
        self._changed = threading.Condition()
        # Called once at the next change.
        self._wakers: list[Callable[[], Any]] = []

    def __repr__(self) -> str:
        state = "ended" if self._ended else "running"
        return f"<llmcc.Request {self.id}: {state}, {len(self._pieces)} tokens>"

    @property
    def done(self) -> bool:
        """Whether it has ended, for whatever reason."""
        return self._ended

    def cancel(self) -> None:
        """Ends it after the step under way, if it has not ended. Readers get :class:`LlmccError` with ``Status.INTERRUPTED`` after the tokens so far."""
        self._engine._cancel(self.id)

    def result(self, timeout: Optional[float] = None) -> Completion:
        """Waits for its end.

        :param timeout: seconds after which to give up waiting; the request goes on.
        :raises LlmccError: it failed, was cancelled, or its deadline has passed.
        :raises TimeoutError: it has not ended in time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended, timeout):
                raise TimeoutError(f"request {self.id} has not ended within {timeout} seconds; it goes on")
        return self._completion()

    async def aresult(self) -> Completion:
        """As :meth:`result`, awaited."""
        async for _ in self:
            pass
        return self._completion()

    def __iter__(self) -> Iterator[Piece]:
        index = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or index < len(self._pieces))
                piece = self._pieces[index] if index < len(self._pieces) else None
            if piece is None:
                break
            yield piece
            index += 1
        self._check()

    async def __aiter__(self) -> AsyncIterator[Piece]:
        import asyncio

        loop, index = asyncio.get_running_loop(), 0
        while True:
            with self._changed:
                piece = self._pieces[index] if index < len(self._pieces) else None
                if piece is None and self._ended:
                    break
                changed = None
                if piece is None:
                    changed = asyncio.Event()
                    self._wakers.append(_waker(loop, changed))
            if piece is not None:
                yield piece
                index += 1
            elif changed is not None:
                await changed.wait()
        self._check()

    def _completion(self) -> Completion:
        self._check()
        return _batch.completion(self._prompt, self._pieces)

    def _check(self) -> None:
        if self._error is not None:
            raise LlmccError(str(self._error), self._error.status)

    def _take(self, piece: Optional[Piece], end: Optional[tuple[Optional[LlmccError], int, Times]] = None) -> None:
        """What the engine says: a token, its end, or both."""
        with self._changed:
            if piece is not None:
                self._pieces.append(piece)
            if end is not None:
                self._error, self.reused_tokens, self.times = end
                self._ended = True
            wakers, self._wakers = self._wakers, []
            self._changed.notify_all()
        for wake in wakers:
            wake()


def _waker(loop: Any, changed: Any) -> Callable[[], Any]:
    def wake() -> None:
        try:
            loop.call_soon_threadsafe(changed.set)
        except RuntimeError:
            # The loop is closed, and nobody waits.
            pass

    return wake
