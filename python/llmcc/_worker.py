"""The thread behind a model's awaits: calls one after the other, and generations of all awaits together, a step for all of them at a time."""

from __future__ import annotations

import asyncio
import ctypes as c
import os
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Sequence, TypeVar

from . import _batch, _ffi as ffi
from ._interrupt import Scope
from ._pieces import Piece, finish_of, piece_of
from ._progress import Progress

T = TypeVar("T")

#: Seconds between two interrupts of a call that was cancelled: the first may have come before the call began.
_AGAIN = 0.02


@dataclass
class Job:
    """A call that is to be made."""

    work: Callable[[], Any]
    #: Takes the result or the error, in the worker's thread.
    settle: Callable[[Any, Optional[BaseException]], None]
    scope: Scope = field(default_factory=Scope)

    def run(self) -> None:
        """Makes the call."""
        result, error = None, None
        try:
            with self.scope:
                result = self.work()
        except BaseException as raised:
            error = raised
        self.settle(result, error)


@dataclass(eq=False)
class Live:
    """A generation under way."""

    gen: c.c_void_p
    logprobs: bool
    #: Takes each piece, and at the end nothing or the error, in the worker's thread.
    deliver: Callable[[Optional[Piece], Optional[BaseException]], None]
    #: The generations that were begun together, and how many of them go on at once.
    group: object
    most: int
    #: Nobody waits for it any more.
    cancelled: bool = False


class Worker:
    """A thread for one model. It begins when there is work and ends when there is none."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._lives: list[Live] = []
        self._library: Optional[ffi.Library] = None
        self._of_step = _batch.Step()
        self._running = False
        self._process = os.getpid()

    def submit(self, job: Job) -> None:
        """Queues a call behind the others."""
        if self._process != os.getpid():
            # The child of a fork has no threads (one of them may have held the lock), and no models either: the calls say so.
            self._reset()
        with self._lock:
            # (First, for there may be no thread to be had; it waits for the lock.)
            if not self._running:
                threading.Thread(target=self._run, name="llmcc-awaits", daemon=True).start()
                self._running = True
            self._jobs.append(job)

    def withdraw(self, job: Job) -> bool:
        """Takes a call back, if it has not begun."""
        with self._lock:
            try:
                self._jobs.remove(job)
            except ValueError:
                return False
        return True

    def add(self, library: ffi.Library, lives: Sequence[Live]) -> None:
        """Lets generations of the model go on with the others; for the worker's own thread."""
        self._library = library
        self._lives += lives

    def _run(self) -> None:
        while True:
            with self._lock:
                job = self._jobs.popleft() if self._jobs else None
                if job is None and not self._lives:
                    self._running = False
                    return
            if job is not None:
                job.run()
                # (No reference to its results, nor to their model, while waiting for others.)
                del job
            self._drop_cancelled()
            active = self._active()
            if active:
                self._step(active)

    def _active(self) -> list[Live]:
        """The generations of the next step: the first ones are served first."""
        found: list[Live] = []
        counts: dict[int, int] = {}
        for live in self._lives:
            if len(found) == self._most:
                break
            n = counts.get(id(live.group), 0)
            if n < live.most:
                counts[id(live.group)] = n + 1
                found.append(live)
        return found

    def _drop_cancelled(self) -> None:
        for live in [live for live in self._lives if live.cancelled]:
            self._end(live, None)

    def _end(self, live: Live, error: Optional[BaseException]) -> None:
        self._lives.remove(live)
        assert self._library is not None
        _batch.free(self._library, live.gen)
        live.deliver(None, error)

    def _step(self, active: list[Live]) -> None:
        """A token for each, or, where that fails, for each alone, so that the error comes to the one that it belongs to."""
        library = self._library
        assert library is not None
        try:
            pieces = self._of_step.run(library, None, [live.gen for live in active])
        except BaseException as error:
            if len(active) == 1:
                self._end(active[0], error)
                return
            for live in active:
                self._step([live])
            return
        for live, piece in zip(active, pieces):
            if piece.token >= 0:
                live.deliver(piece_of(piece, live.logprobs), None)
            if finish_of(piece) is not None:
                self._end(live, None)


async def call(worker: Worker, work: Callable[[], T]) -> T:
    """The result of ``work()``, made by the worker. If the await is cancelled, the call is ended first."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: Optional[BaseException]) -> None:
        _tell(loop, lambda: future.set_result(result) if error is None else future.set_exception(error))

    job = Job(work, settle)
    worker.submit(job)
    try:
        await asyncio.wait([future])
    except asyncio.CancelledError:
        if not worker.withdraw(job):
            try:
                await _settled(future, job.scope.cancel)
            finally:
                # (Nobody else asks for it.)
                future.exception()
        raise
    return future.result()


async def _settled(future: asyncio.Future[Any], hurry: Callable[[], None]) -> None:
    """Waits for the end of what was cancelled, also when it is cancelled once more."""
    again: Optional[asyncio.CancelledError] = None
    while not future.done():
        hurry()
        try:
            await asyncio.wait([future], timeout=_AGAIN)
        except asyncio.CancelledError as error:
            again = error
    if again is not None:
        raise again


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], object]) -> bool:
    """Has a loop do something; returns whether it still can."""
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:
        # The loop is closed: nobody waits any more.
        return False
    return True


class Stream:
    """The pieces of generations that are begun together, with the indices of their prompts. At the end of its ``async with`` they have ended.

    :param progress: counts those that have ended, and is closed with the stream.
    """

    def __init__(self, worker: Worker, progress: Progress) -> None:
        self._worker, self._progress = worker, progress
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[tuple[int, Optional[Piece], Optional[BaseException]]] = asyncio.Queue()
        self._lives: list[Live] = []
        self._left = 0
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._progress.close()
        self._cancel()
        # (Within a step.)
        if self._left > 0:
            await _settled(self._ended, lambda: None)

    async def begin(self, model: Any, prompts: Sequence[Any], params: Any) -> list[list[int]]:
        """Begins a generation for each prompt. Returns their tokens."""
        return await call(self._worker, lambda: self._begin(model, prompts, params))

    def _begin(self, model: Any, prompts: Sequence[Any], params: Any) -> list[list[int]]:
        tokens = [_batch.encoded(model, prompt) for prompt in prompts]
        begun = model._begin(tokens, params)
        library, gens, logprobs, most = begun.handed_over()
        self._lives = [Live(gen, wants, self._deliver_to(index), self, most) for index, (gen, wants) in enumerate(zip(gens, logprobs))]
        self._left = len(self._lives)
        self._worker.add(library, self._lives)
        return tokens

    def _deliver_to(self, index: int) -> Callable[[Optional[Piece], Optional[BaseException]], None]:
        def deliver(piece: Optional[Piece], error: Optional[BaseException]) -> None:
            if not _tell(self._loop, lambda: self._take(index, piece, error)):
                self._cancel()

        return deliver

    def _cancel(self) -> None:
        for live in self._lives:
            live.cancelled = True

    def _take(self, index: int, piece: Optional[Piece], error: Optional[BaseException]) -> None:
        self._items.put_nowait((index, piece, error))
        if piece is None:
            self._left -= 1
            if self._left == 0 and not self._ended.done():
                self._ended.set_result(None)

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> tuple[int, Piece]:
        while self._left > 0 or not self._items.empty():
            index, piece, error = await self._items.get()
            if error is not None:
                raise error
            if piece is not None:
                if piece.finish is not None:
                    self._progress.update()
                return index, piece
        raise StopAsyncIteration
