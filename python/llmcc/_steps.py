"""Steps of a model, and its sequences: what sessions, judging and speculation are made of."""

from __future__ import annotations

import ctypes as c
from typing import Any, Sequence

from . import _batch, _ffi as ffi, _score
from ._arrays import numpy_of
from ._errors import LlmccError
from ._handle import Opened
from ._pieces import TokenLogprob
from ._rows import rows_of


class Steps(Opened):
    """Sequences and steps, by their numbers in the C API."""

    def _seq_new(self) -> int:
        seq = c.c_int32()
        with self._use() as handle:
            self._lib.seq_new(handle, c.byref(seq))
        return seq.value

    def _seq_free(self, seq: int) -> None:
        if self._handle is not None:
            with self._use() as handle:
                self._lib.seq_free(handle, seq)

    def _seq_fork(self, seq: int) -> int:
        copy = c.c_int32()
        with self._use() as handle:
            self._lib.seq_fork(handle, seq, c.byref(copy))
        return copy.value

    def _seq_save(self, seq: int) -> bytes:
        with self._use() as handle:
            saved: bytes = self._lib.bytes(lambda *room: self._lib.seq_save(handle, seq, *room))
            return saved

    def _seq_load(self, saved: bytes) -> tuple[int, list[int]]:
        """A sequence from bytes, and its tokens."""
        if not isinstance(saved, bytes):
            raise LlmccError(f"a saved session is of type bytes, not {type(saved).__name__}: give what Session.save() returned")
        seq = c.c_int32()
        with self._use() as handle:
            self._lib.seq_load(handle, saved, len(saved), c.byref(seq))
            return seq.value, self._lib.ints(lambda *room: self._lib.seq_tokens(handle, seq.value, *room))

    def _seq_truncate(self, seq: int, length: int) -> None:
        with self._use() as handle:
            self._lib.seq_truncate(handle, seq, length)

    def _seq_encode(self, seq: int, source: Sequence[int]) -> None:
        with self._use() as handle:
            self._lib.seq_encode(handle, seq, ffi.int32_array(source, "source"), len(source))

    def _step_rows(self, tokens: Sequence[int], seqs: Sequence[int]) -> None:
        """A step without results."""
        if len(tokens) > 0:
            self._step(ffi.int32_array(tokens, "tokens"), seqs, [], numpy=False)

    def _step_logprobs(
        self, tokens: Sequence[int], seqs: Sequence[int], rows: Sequence[int], targets: Sequence[int], top: int
    ) -> list[TokenLogprob]:
        """A step that judges ``targets`` after the tokens ``rows``."""
        batch = _native_batch(ffi.int32_array(tokens, "tokens"), seqs, rows)
        with self._use() as handle:
            found: list[TokenLogprob] = self._lib.interruptible(
                handle, lambda: _score.step_logprobs(self._lib, handle, batch, targets, top), len(tokens) >= _batch.FEW
            )
            return found

    def _step(self, tokens: Any, seqs: Sequence[int], rows: Sequence[int], numpy: bool, hidden: Any = None, left: Any = None, places: Any = None) -> Any:
        vocab = self._info["columns"]
        np = numpy_of("logits") if numpy else None
        logits: Any = np.empty((len(rows), vocab), dtype=np.float32) if np else (c.c_float * (len(rows) * vocab))()
        self._step_into(tokens, seqs, rows, logits.ctypes.data_as(c.c_void_p) if np else logits, hidden, left, places)
        return logits if np else rows_of(logits, (0, len(rows)), vocab, numpy=False)

    def _step_into(self, tokens: Any, seqs: Sequence[int], rows: Sequence[int], logits: Any, hidden: Any, left: Any, places: Any) -> None:
        """A step with C arrays of floats for its results, for the hidden states that it takes and leaves, and of positions (or ``None``)."""
        batch = _native_batch(tokens, seqs, rows)
        if hidden is not None:
            batch.hidden = hidden
        if left is not None:
            batch.hidden_out = left
        if places is not None:
            batch.positions = places
        with self._use() as handle:
            out, room = c.cast(logits, c.c_void_p), len(rows) * self._info["columns"]
            self._lib.interruptible(handle, lambda: self._lib.step(handle, c.byref(batch), out, room), len(tokens) >= _batch.FEW)


def _native_batch(tokens: Any, seqs: Sequence[int], rows: Sequence[int]) -> ffi.Batch:
    n = len(tokens)
    return ffi.Batch(
        n_tokens=n,
        tokens=tokens,
        seqs=(c.c_int32 * n)(*seqs),
        n_out=len(rows),
        out_rows=(c.c_uint32 * len(rows))(*rows),
    )
