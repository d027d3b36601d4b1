"""Speculative decoding with a model's own draft heads (Leviathan et al., arXiv 2211.17192; heads as in arXiv 2412.19437).

Each round the heads guess some tokens, and one step of the model judges all of them. The model draws its own token at each place, as it would without heads,
and goes on as long as the guesses equal its draws: so the tokens are the same as from :meth:`Model.generate`, whatever the heads guess.
"""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence

from . import _batch, _ffi as ffi
from ._errors import LlmccError, Status
from ._params import GenParams
from ._pieces import Completion, piece_of

if TYPE_CHECKING:
    from ._logits import Logits


@dataclass(frozen=True)
class Speculation(Completion):
    """A generation with draft heads: ``drafted`` tokens were guessed in ``rounds`` steps of the
    model; ``accepted`` of them are part of the text."""

    drafted: int = 0
    accepted: int = 0
    rounds: int = 0


class _Sequence:
    """A sequence of a model, and the hidden states of its last tokens."""

    def __init__(self, model: Logits) -> None:
        self.model = model
        self.seq = model._seq_new()
        # Tokens in the cache, and of the last of them the hidden states, as bytes of float32.
        self.length = 0
        self._hidden: list[bytes] = []

    def close(self) -> None:
        self.model._seq_free(self.seq)

    def fork(self) -> _Sequence:
        """A copy that goes its own way."""
        copy = _Sequence.__new__(_Sequence)
        copy.model, copy.seq = self.model, self.model._seq_fork(self.seq)
        copy.length, copy._hidden = self.length, list(self._hidden)
        return copy

    def step(self, tokens: Sequence[int], given: Sequence[bytes], rows: int) -> list[Any]:
        """Appends tokens, each with a hidden state if it takes one. Returns the logits after the last ``rows``: C arrays."""
        return self._step(tokens, [self.seq] * len(tokens), given, range(len(tokens) - rows, len(tokens)), range(len(tokens)))

    def _step(self, tokens: Sequence[int], seqs: Sequence[int], given: Sequence[bytes], rows: range, new: range) -> list[Any]:
        """A step of this sequence and maybe others: the tokens ``new`` are new to this one, and
        there are logits after the tokens ``rows``."""
        columns, width = self.model.info["columns"], self.model.info["hidden"]
        logits, left = (c.c_float * (len(rows) * columns))(), (c.c_float * (len(tokens) * width))()
        hidden = (c.c_float * len(left)).from_buffer_copy(b"".join(given)) if given else None
        self.model._step_into(ffi.int32_array(tokens, "tokens"), seqs, rows, logits, hidden, left)
        bytes_of_row, data = 4 * width, memoryview(left).cast("B")
        self._hidden += [bytes(data[i * bytes_of_row : (i + 1) * bytes_of_row]) for i in new]
        self.length += len(new)
        return [(c.c_float * columns).from_buffer(logits, 4 * columns * i) for i in range(len(rows))]

    def hidden(self, start: int, end: int) -> list[bytes]:
        """The hidden states of tokens ``start..end``."""
        first = self.length - len(self._hidden)
        assert first <= start
        return self._hidden[start - first : end - first]

    def forget_before(self, start: int) -> None:
        """Hidden states that nothing reads any more."""
        first = self.length - len(self._hidden)
        del self._hidden[: max(0, start - first)]


class _Target(_Sequence):
    """The sequence of the model: one that can go back, whatever its states are."""

    def __init__(self, model: Logits) -> None:
        super().__init__(model)
        # A copy of the sequence before the tokens of the last step that were new.
        self._before: Optional[int] = None
        # Tokens that the sequence has to see again, since it went back to that copy.
        self._again: list[int] = []

    def close(self) -> None:
        super().close()
        self._drop_before()

    def _drop_before(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            self.model._seq_free(before)

    def judge(self, tokens: Sequence[int], draw: Callable[[int, Any], Optional[int]]) -> int:
        """Appends a known token and guesses after it; ``draw(i, logits)`` gives the token that follows the ``i``-th of them, or none at the end.
        Returns how many guesses equal the draws."""
        self._drop_before()
        # A known token alone is never taken back.
        if len(tokens) > 1:
            self._before = self.model._seq_fork(self.seq)
        again, n, start, right = self._again, len(self._again) + len(tokens), self.length, 0
        # The copy sees those tokens again, too, so that they are never more than one step's.
        copies = [] if self._before is None else [self._before] * len(again)
        rows = self._step([*again, *tokens, *again[: len(copies)]], [self.seq] * n + copies, [], range(len(again), n), range(len(again), n))
        self._again = []
        while right < len(tokens):
            token = draw(right, rows[right])
            if token is None or right + 1 == len(tokens) or token != tokens[right + 1]:
                break
            right += 1
        self._go_back(start + right + 1, tokens[: right + 1])
        return right

    def _go_back(self, length: int, tokens: Sequence[int]) -> None:
        """Forgets the tokens from ``length`` on, of a step whose new tokens begin with ``tokens``, which stay."""
        if length == self.length:
            return
        try:
            self.model._seq_truncate(self.seq, length)
        except LlmccError:
            # A recurrent state, or a window that has moved on: the state before the step is at
            # hand.
            assert self._before is not None
            self.model._seq_free(self.seq)
            self.seq, self._before = self._before, None
            self._again = list(tokens)
        del self._hidden[len(self._hidden) - (self.length - length) :]
        self.length = length


class _Heads:
    """Draft heads in a row, each with a sequence of its own: entry ``i`` of the ``k``-th is token ``i + 1 + k`` with the hidden state of entry ``i`` before it.

    The sequences have known tokens only: guesses are made on copies.
    """

    def __init__(self, models: Sequence[Logits]) -> None:
        self.sequences: list[_Sequence] = []
        try:
            for model in models:
                self.sequences.append(_Sequence(model))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for sequence in self.sequences:
            sequence.close()

    def guess(self, target: _Sequence, tokens: Sequence[int], n: int) -> list[int]:
        """``n`` tokens after ``tokens``; ``target`` has seen all but the last."""
        known, before, first = target.length, target, None
        for k, head in enumerate(self.sequences):
            start, end = head.length, known - k
            if start < end:
                [logits] = head.step(tokens[start + 1 + k : end + 1 + k], before.hidden(start, end), 1)
                first = logits if k == 0 else first
            before = head
        assert first is not None
        guesses = [self.sequences[0].model.sample(first)]
        copies: list[_Sequence] = []
        try:
            before = self.sequences[0]
            while len(guesses) < n:
                k = len(guesses)
                if k < len(self.sequences):
                    copies.append(self.sequences[k].fork())
                    given = before.hidden(copies[-1].length, known)
                else:
                    # Past the last head, which goes on with its own hidden states.
                    given = before.hidden(before.length - 1, before.length)
                    if not copies:
                        copies.append(before.fork())
                own = [*tokens, *guesses][-len(given) :]
                [logits] = copies[-1].step(own, given, 1)
                guesses.append(copies[-1].model.sample(logits))
                before = copies[-1]
        finally:
            for copy in copies:
                copy.close()
        # The next round begins behind the known tokens, less one for each head.
        for sequence in [target, *self.sequences]:
            sequence.forget_before(known - len(self.sequences) - 1)
        return guesses


def speculate(model: Logits, heads: Sequence[Logits], prompt: Sequence[int], *, max_tokens: Optional[int], guesses: int, params: GenParams) -> Speculation:
    """See :meth:`Model.speculate`."""
    _check(model, heads)
    # The last token of a full context is drawn, and no step sees it; heads may be compiled for shorter contexts.
    room, reach = model.info["max_context"] - len(prompt) + 1, min(head.info["max_context"] for head in heads)
    most = room if max_tokens is None else min(max_tokens, room)
    if len(prompt) == 0 or most < 1:
        raise LlmccError(f"a prompt of {len(prompt)} tokens, a context of {model.info['max_context']} and max_tokens={max_tokens} leave nothing to generate")
    tokens, drafted, accepted, rounds = list(prompt), 0, 0, 0
    texts: list[str] = []
    finish: Optional[str] = None
    # Chooses as any generation does; its sequence stays empty.
    gen = _batch.start(model, ffi.NEW_SEQ, prompt, params)
    try:
        target = _Target(model)
        try:
            drafts = _Heads(heads)
            try:

                def draw(_: int, logits: Any) -> Optional[int]:
                    nonlocal finish
                    piece = ffi.Piece()
                    model._lib.gen_take(gen, logits, len(logits), c.byref(piece))
                    found = piece_of(piece, False)
                    tokens.append(found.token)
                    texts.append(found.text)
                    finish = found.finish
                    return found.token if finish is None else None

                draw(0, target.step(tokens, [], 1)[0])
                while finish is None:
                    n = min(guesses, most - (len(tokens) - len(prompt)) - 1, reach - target.length + 1)
                    guessed: list[int] = []
                    before = len(tokens)
                    try:
                        guessed = drafts.guess(target, tokens, n) if n > 0 else []
                        right = target.judge([tokens[-1], *guessed], draw)
                    except LlmccError as error:
                        # Where a cache has no room for guesses and copies, the known token goes alone.
                        if error.status != Status.CACHE_FULL or len(tokens) != before:
                            raise
                        guessed, right = [], target.judge([tokens[-1]], draw)
                    # The last guess that was right may be where the text ends.
                    ended = finish is not None and len(tokens) - before <= len(guessed) and tokens[-1] == guessed[len(tokens) - before - 1]
                    drafted, accepted, rounds = drafted + len(guessed), accepted + right + bool(ended), rounds + 1
            finally:
                drafts.close()
        finally:
            target.close()
    finally:
        _batch.free(model._lib, gen)
    return Speculation("".join(texts), tokens[len(prompt) :], finish, list(prompt), drafted=drafted, accepted=accepted, rounds=rounds)


def _check(model: Logits, heads: Sequence[Logits]) -> None:
    if not model.info["keeps_hidden"] or model.info["needs_hidden"]:
        raise LlmccError("speculate needs a model compiled with --hidden-states, and draft heads compiled with --draft-head")
    if not heads:
        raise LlmccError("speculate needs at least one draft head: compile the model with --draft-head, too")
    for head in heads:
        if not head.info["needs_hidden"]:
            raise LlmccError(f"{head!r} is not a draft head: compile the model with --draft-head")
        for size in ("vocab", "hidden"):
            if head.info[size] != model.info[size]:
                raise LlmccError(f"{head!r} is the draft head of another model: its {size} is {head.info[size]}, the model's {model.info[size]}")
