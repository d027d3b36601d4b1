"""Showing how far a batch is."""

from __future__ import annotations

import importlib
import sys
from types import TracebackType
from typing import Any, Optional, Type


class Progress:
    """Counts what is done: a bar of tqdm (in a notebook its widget), or, where tqdm is missing, a line of text on stderr. Without ``shown`` nothing.

    :param what: what is counted, before the numbers.
    :raises TypeError: ``shown`` is not a boolean.
    """

    def __init__(self, total: int, what: str, shown: bool) -> None:
        if not isinstance(shown, bool):
            raise TypeError(f"progress must be True or False, not {type(shown).__name__}")
        self._total, self._what, self._done = total, what, 0
        self._bar: Any = _bar(total, what) if shown else None
        self._plain = shown and self._bar is None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        """Ends the bar, or the line. Closing twice is fine."""
        if self._bar is not None:
            self._bar.close()
        elif self._plain:
            sys.stderr.write("\n")
        self._plain = False

    def update(self, n: int = 1) -> None:
        """So many more are done."""
        self._done += n
        if self._bar is not None:
            self._bar.update(n)
        elif self._plain:
            sys.stderr.write(f"\r{self._what}: {self._done} of {self._total}")
            sys.stderr.flush()


def _bar(total: int, what: str) -> Any:
    """A bar of tqdm, if it is installed."""
    try:
        # (Without its types, which are a package of their own.)
        tqdm = importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc=what)
