"""Ending calls of the library. An interrupt ends all calls that are under way on a model, so those that it was not meant for are made again: a call that fails changes nothing."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

from ._errors import LlmccError, Status

_threads = threading.local()


class Cancelled(BaseException):
    """Work that nobody waits for any more."""


def again(call: Callable[[], Any], ended: Callable[[], bool] = lambda: False) -> Any:
    """The result of ``call()``, made again if an interrupt ends it, unless ``ended()``."""
    while True:
        try:
            return call()
        except LlmccError as error:
            if error.status != Status.INTERRUPTED or ended():
                raise


def checkpoint() -> None:
    """A place in long work of Python itself where it may end.

    :raises Cancelled: this thread's work was cancelled.
    """
    scope = Scope.current()
    if scope is not None:
        scope.check()


class Scope:
    """The calls of one piece of work in a thread of its own, which another thread may cancel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        # Library and handle of the model that a call is under way on.
        self._at: Optional[tuple[Any, Any]] = None

    @staticmethod
    def current() -> Optional[Scope]:
        """The scope of this thread."""
        scope: Optional[Scope] = getattr(_threads, "scope", None)
        return scope

    def __enter__(self) -> Scope:
        _threads.scope = self
        return self

    def __exit__(self, *_: object) -> None:
        _threads.scope = None

    def run(self, library: Any, handle: Any, call: Callable[[], Any]) -> Any:
        """The result of ``call()``.

        :raises Cancelled: the work was cancelled before, or while it was under way.
        """
        while True:
            with self._lock:
                if self._cancelled:
                    raise Cancelled
                self._at = (library, handle)
            try:
                return call()
            except LlmccError as error:
                if error.status != Status.INTERRUPTED:
                    raise
            finally:
                with self._lock:
                    self._at = None

    def check(self) -> None:
        """Ends the work if it was cancelled.

        :raises Cancelled: it was.
        """
        if self._cancelled:
            raise Cancelled

    def cancel(self) -> None:
        """Ends the call under way, and lets no other begin. To be called again until the work has ended: a call may be about to begin."""
        with self._lock:
            self._cancelled = True
            if self._at is not None:
                library, handle = self._at
                try:
                    library.interrupt(handle)
                except LlmccError:
                    # The model is closed, or its artifact older than interrupts: the call ends by itself.
                    pass
