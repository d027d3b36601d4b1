"""How similar rows are, by the functions of sentence-transformers."""

from __future__ import annotations

import math
import numbers
from typing import Any, Callable, Optional, Sequence

#: Rows shorter than this count as so long, in sentence-transformers' normalization.
_LEAST = 1e-12


def are_rows(values: Any) -> bool:
    """Whether these are rows of numbers, not texts or tokens."""
    dtype = getattr(values, "dtype", None)
    if dtype is not None:
        # (PyTorch's types have no kind.)
        return bool(getattr(dtype, "kind", None) == "f" or getattr(dtype, "is_floating_point", False))
    first = values
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
        if hasattr(first, "dtype"):
            return are_rows(first)
    return isinstance(first, numbers.Real) and not isinstance(first, numbers.Integral)


def as_rows(values: Any, name: str) -> list[list[float]]:
    """One row, or several, as lists.

    :raises ValueError: rows of different lengths, or with more than two dimensions.
    """
    given = values.tolist() if hasattr(values, "tolist") else [v.tolist() if hasattr(v, "tolist") else v for v in values]
    rows = given if given and isinstance(given[0], (list, tuple)) else [given]
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise ValueError(f"{name} has rows of {min(widths)} and of {max(widths)} numbers; they must be equally long")
    try:
        return [[float(x) for x in row] for row in rows]
    except TypeError:
        raise ValueError(f"{name} must be a row of numbers, or rows: [columns] or [rows, columns]") from None


def matrix(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], name: str) -> list[list[float]]:
    """The similarity of each row of ``a`` with each of ``b``: ``[len(a), len(b)]``, in float64.

    :raises ValueError: rows of different lengths.
    """
    if a and b:
        _need_same_width(len(a[0]), len(b[0]))
    if name == "cosine":
        a, b = [_unit(row) for row in a], [_unit(row) for row in b]
    compare = _COMPARE[name]
    return [[compare(x, y) for y in b] for x in a]


def numpy_matrix(np: Any, a: Any, b: Any, name: str) -> Any:
    """As :func:`matrix`, of arrays: float32 ``[len(a), len(b)]``."""
    a, b = (np.asarray(rows, dtype=np.float32) for rows in (a, b))
    a, b = (rows[None] if rows.ndim == 1 else rows for rows in (a, b))
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"rows must be [columns] or [rows, columns], not arrays of {a.ndim} and {b.ndim} dimensions")
    _need_same_width(a.shape[1], b.shape[1])
    if name == "cosine":
        a, b = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(_LEAST)) for rows in (a, b))
    if name in ("cosine", "dot"):
        return a @ b.T
    # (A row at a time, so that no array has three dimensions.)
    order = 2 if name == "euclidean" else 1
    return -np.stack([np.linalg.norm(b - row, order, axis=1) for row in a]) if len(a) else np.zeros((0, len(b)), np.float32)


def checked(name: Optional[str], own: str) -> str:
    """The function of this name; ``None``: the model's own."""
    name = own if name is None else name
    if name not in _COMPARE:
        raise ValueError(f"the similarity {name!r} is not known; use one of {', '.join(_COMPARE)}")
    return name


def _need_same_width(a: int, b: int) -> None:
    if a != b:
        raise ValueError(f"rows of {a} and of {b} numbers cannot be compared; they must be of one model")


def _unit(row: Sequence[float]) -> list[float]:
    length = max(math.sqrt(sum(x * x for x in row)), _LEAST)
    return [x / length for x in row]


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b))


def _euclidean(a: Sequence[float], b: Sequence[float]) -> float:
    return -math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)))


def _manhattan(a: Sequence[float], b: Sequence[float]) -> float:
    return -sum(abs(x - y) for x, y in zip(a, b))


#: By their names in ``similarity_fn_name`` of sentence-transformers.
_COMPARE: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "cosine": _dot,
    "dot": _dot,
    "euclidean": _euclidean,
    "manhattan": _manhattan,
}
