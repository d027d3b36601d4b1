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
    sized = [hidden, *hidden] if hasattr(hidden, "__len__") and hasattr(hidden, "__iter__") else []
    if not sized or any(not hasattr(rows, "__len__") for rows in sized):
        raise TypeError(f"hidden must be a list of arrays [tokens, {width}], one for each entry of the batch")
    if len(hidden) != len(lengths):
        raise ValueError(f"hidden has {len(hidden)} entries, but the batch {len(lengths)}")
    values: list[float] = []
    for rows, n in zip(hidden, lengths):
        if len(rows) != n or any(len(row) != width for row in rows):
            raise ValueError(f"hidden must have a row of {width} numbers for each of {n} tokens")
        for row in rows:
            values.extend(map(float, row))
    return (c.c_float * len(values))(*values)


def axis_positions(positions: Optional[Sequence[Any]], lengths: Sequence[int], axes: int) -> Any:
    """The positions of so many new tokens of several sequences along axes, as integers one after the other; nothing if there are none.

    :param positions: an array, or lists, ``[tokens, axes]`` for each sequence.
    :raises ValueError: of another number of tokens or axes.
    """
    if positions is None:
        return None
    sized = [positions, *positions] if hasattr(positions, "__len__") and hasattr(positions, "__iter__") else []
    if not sized or any(not hasattr(rows, "__len__") for rows in sized):
        raise TypeError(f"positions must be a list of arrays [tokens, {axes}], one for each entry of the batch")
    if len(positions) != len(lengths):
        raise ValueError(f"positions has {len(positions)} entries, but the batch {len(lengths)}")
    values: list[int] = []
    for rows, n in zip(positions, lengths):
        if len(rows) != n or any(len(row) != axes for row in rows):
            raise ValueError(f"positions must be one along each of {axes} axes for each of {n} tokens")
        for row in rows:
            values.extend(row)
    return ffi.int32_array(values, "positions")


def rows_of(values: Any, range_: tuple[int, int], width: int, numpy: bool) -> Any:
    """The rows of a C array of floats: float32 ``[rows, width]``, or nested lists."""
    start, end = range_
    if not numpy:
        return [list(values[i * width : (i + 1) * width]) for i in range(start, end)]
    return numpy_of("rows").ctypeslib.as_array(values).reshape(-1, width)[start:end]
