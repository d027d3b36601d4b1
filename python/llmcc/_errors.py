"""Exceptions."""

from __future__ import annotations

import enum
from typing import Any, TypeVar

Self = TypeVar("Self", bound="Closing")


class Status(enum.IntEnum):
    """Status codes of the C API (``llmcc_status``)."""

    OK = 0
    INVALID = 1
    ARTIFACT = 2
    CPU = 3
    SYSTEM = 4
    CONTEXT_FULL = 5
    CACHE_FULL = 6
    BUFFER = 7
    UNSUPPORTED = 8
    TEMPLATE = 9
    NUMERIC = 10
    INTERNAL = 11
    INTERRUPTED = 12
    BUSY = 13
    DEADLINE = 14


class LlmccError(RuntimeError):
    """A failure, and the remedy. ``status`` tells the class of the failure."""

    def __init__(self, message: str, status: Status = Status.INVALID) -> None:
        super().__init__(message)
        self.status = status


class Unique:
    """An object of this process (an open model, a sequence, a generation) that cannot be copied:
    closing either copy would end it for both."""

    #: The remedy, instead of copying.
    _remedy = ""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self._uncopied("copied or pickled")

    def _uncopied(self, how: str) -> TypeError:
        return TypeError(f"a {type(self).__name__} cannot be {how}: {self._remedy}")


class Closing(Unique):
    """An object that is closed at the end of a ``with`` statement."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees what it has. Closing twice is fine."""
        raise NotImplementedError
