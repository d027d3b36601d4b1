"""Moments of the inputs of a model's products, for calibration."""

from __future__ import annotations

import ctypes as c
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Optional, Sequence

from . import _batch, _ffi as ffi
from ._arrays import numpy_of
from ._batch import FEW
from ._progress import Progress

if TYPE_CHECKING:
    from ._text import Text


class _Tap(NamedTuple):
    """Inputs that products share: columns, experts (0: the products are the same for all tokens), and the weights with the only expert of each (-1: none, or all)."""

    columns: int
    experts: int
    weights: list[tuple[str, int]]


def tap(model: Text, texts: Sequence[Any], *, full: bool, weights: Optional[Sequence[str]], progress: bool) -> dict[str, dict[str, Any]]:
    """The moments of the inputs of each weight. See :meth:`llmcc.Model.tap`."""
    np = numpy_of("moments")
    taps = list(_taps(model))
    wanted = _wanted(taps, weights)
    sums = {i: _zeros(np, taps[i], full) for i in wanted}
    structures = (ffi.Moments * len(wanted))(*(_structure(i, sums[i]) for i in wanted))
    with Progress(len(texts), "tap", progress) as shown:
        for text in texts:
            _add(model, _batch.encoded(model, text), structures)
            shown.update(1)
    found: dict[str, dict[str, Any]] = {}
    for i in wanted:
        for name, expert in taps[i].weights:
            if weights is None or name in weights:
                own = _part(sums[i], taps[i], expert)
                found[name] = own if name not in found else _joined(np, found[name], own)
    return found


def _taps(model: Text) -> Iterator[_Tap]:
    with model._use() as handle:
        n = c.c_size_t()
        model._lib.taps(handle, c.byref(n))
        for i in range(n.value):
            info = ffi.TapInfo()
            model._lib.tap(handle, i, c.byref(info))
            weights = []
            for j in range(info.n_weights):
                expert = c.c_int32()

                def name(out: Any, capacity: int, needed: Any, tap: int = i, weight: int = j, expert: Any = expert) -> None:
                    model._lib.tap_weight(handle, tap, weight, c.byref(expert), out, capacity, needed)

                weights.append((model._lib.text(name, 256), expert.value))
            yield _Tap(info.columns, info.experts, weights)


def _wanted(taps: list[_Tap], weights: Optional[Sequence[str]]) -> list[int]:
    """Indices of the taps of these weights; ``None``: all."""
    if weights is None:
        return list(range(len(taps)))
    if isinstance(weights, str):
        raise TypeError(f"weights must be a list of names, not the text {weights!r}")
    known = {name for of in taps for name, _ in of.weights}
    unknown = [name for name in weights if name not in known]
    if taps and unknown:
        raise ValueError(f"no product multiplies {unknown[0]!r}; weights are {', '.join(sorted(known)[:4])}...")
    return [i for i, of in enumerate(taps) if any(name in weights for name, _ in of.weights)]


def _zeros(np: Any, of: _Tap, full: bool) -> dict[str, Any]:
    experts, columns = max(of.experts, 1), of.columns
    sums = {
        "count": np.zeros(experts, np.uint64),
        "squares": np.zeros((experts, columns)),
        "min": np.full((experts, columns), np.inf, np.float32),
        "max": np.full((experts, columns), -np.inf, np.float32),
    }
    return sums | {"products": np.zeros((experts, columns, columns))} if full else sums


def _structure(tap: int, sums: dict[str, Any]) -> ffi.Moments:
    return ffi.Moments(tap=tap, **{name: of.ctypes.data for name, of in sums.items()})


def _add(model: Text, ids: Sequence[int], structures: Any) -> None:
    tokens = ffi.int32_array(ids, "tokens")
    rows = ffi.EmbedRows(n_rows=1, lengths=(c.c_size_t * 1)(len(tokens)), tokens=tokens)
    with model._use() as handle:
        model._lib.interruptible(handle, lambda: model._lib.tap_moments(handle, c.byref(rows), structures, len(structures)), len(tokens) >= FEW)


def _part(sums: dict[str, Any], of: _Tap, expert: int) -> dict[str, Any]:
    """The sums of one expert, or of all; without experts there is one."""
    return {name: part if expert < 0 and of.experts else part[max(expert, 0)] for name, part in sums.items()}


def _joined(np: Any, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """The moments of the inputs of both."""
    join = {"min": np.minimum, "max": np.maximum}
    return {name: join.get(name, np.add)(a[name], b[name]) for name in a}
