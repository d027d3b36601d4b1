"""Which rows of logits a step gives."""

from __future__ import annotations

import ctypes as c
import numbers
from typing import Any, Optional, Sequence, Union

from . import _ffi as ffi
from ._arrays import numpy_of

#: After which of a sequence's new tokens: ``"all"``, ``"last"`` (as ``None``), or indices, which may be negative.
Rows = Union[None, str, Sequence[int]]


def chosen_rows(rows: Rows, n: int) -> list[int]:
    """Indices among ``n`` tokens.

    :raises TypeError: neither a known word nor integers.
    :raises ValueError: an unknown word.
    :raises IndexError: an index outside the tokens.
    """
    if rows is None or rows == "last":
        return [n - 1]
    if isinstance(rows, str):
        if rows != "all":
            raise ValueError(f'rows is {rows!r}; use "all", "last" or indices')
        return list(range(n))
    result: list[int] = []
    for row in rows:
        if isinstance(row, bool) or not isinstance(row, numbers.Integral):
            raise TypeError(f"rows must be integers, not {type(row).__name__}")
        if not -n <= row < n:
            raise IndexError(f"row {row} of a step of {n} tokens")
        result.append(int(row) % n)
    return result


def batch_rows(rows: Union[None, str, Sequence[Rows]], lengths: Sequence[int]) -> list[list[int]]:
    """Indices for each of several sequences with so many new tokens."""
    if rows is None or isinstance(rows, str):
        return [chosen_rows(rows, n) for n in lengths]
    choices = list(rows)
    if len(choices) != len(lengths):
        raise ValueError(f"rows has {len(choices)} entries, but the batch {len(lengths)}")
    return [chosen_rows(choice, n) for choice, n in zip(choices, lengths)]


def hidden_rows(hidden: Optional[Sequence[Any]], lengths: Sequence[int], width: int) -> Any:
    """The rows that come with so many new tokens of several sequences, as floats one after the other; nothing if there are none.

    :param hidden: an array, or lists, ``[tokens, width]`` for each sequence.
    :raises ValueError: rows of another number or width.
    """
    if hidden is None:
        return None
    values = list(map(float, _joined("hidden", hidden, lengths, width, f"have a row of {width} numbers")))
    return (c.c_float * len(values))(*values)


def axis_positions(positions: Optional[Sequence[Any]], lengths: Sequence[int], axes: int) -> Any:
    """The positions of so many new tokens of several sequences along axes, as integers one after the other; nothing if there are none.

    :param positions: an array, or lists, ``[tokens, axes]`` for each sequence.
    :raises ValueError: of another number of tokens or axes.
    """
    if positions is None:
        return None
    return ffi.int32_array(_joined("positions", positions, lengths, axes, f"be one along each of {axes} axes"), "positions")


def _joined(name: str, given: Sequence[Any], lengths: Sequence[int], width: int, must: str) -> list[Any]:
    """The numbers of arrays ``[tokens, width]`` of several sequences, one after the other; ``must`` says what each token's are, for an error."""
    sized = [given, *given] if hasattr(given, "__len__") and hasattr(given, "__iter__") else []
    if not sized or any(not hasattr(rows, "__len__") for rows in sized):
        raise TypeError(f"{name} must be a list of arrays [tokens, {width}], one for each entry of the batch")
    if len(given) != len(lengths):
        raise ValueError(f"{name} has {len(given)} entries, but the batch {len(lengths)}")
    values: list[Any] = []
    for rows, n in zip(given, lengths):
        if len(rows) != n or any(len(row) != width for row in rows):
            raise ValueError(f"{name} must {must} for each of {n} tokens")
        for row in rows:
            values.extend(row)
    return values


def rows_of(values: Any, range_: tuple[int, int], width: int, numpy: bool) -> Any:
    """The rows of a C array of floats: float32 ``[rows, width]``, or nested lists."""
    start, end = range_
    if not numpy:
        return [list(values[i * width : (i + 1) * width]) for i in range(start, end)]
    return numpy_of("rows").ctypeslib.as_array(values).reshape(-1, width)[start:end]
