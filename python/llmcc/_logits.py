"""Logits of a model: steps, judging, choosing, draft heads."""

from __future__ import annotations

import ctypes as c
import itertools
from typing import TYPE_CHECKING, Any, Literal, Optional, Sequence, Union, overload

from . import _batch, _ffi as ffi, _score
from ._encode import Encode
from ._errors import LlmccError
from ._keywords import Choosing, Judging, spelled_out
from ._params import SAMPLING, GenParams as _GenParams, native_sampling, natural as _natural, positive as _positive, unknown_parameter
from ._pieces import TokenLogprob
from ._rows import Rows, axis_positions, batch_rows, hidden_rows, rows_of
from ._text import Prompt, Prompts

if TYPE_CHECKING:
    from ._arrays import Floats
    from ._keywords import Unpack
    from ._session import Session


class Logits(Encode):
    """The methods of a model that give or take logits."""

    @overload
    def score(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
        self, prompt: Prompt, continuation: Optional[Prompt] = None, *, top: int = 0, **params: Unpack[Judging]
    ) -> list[TokenLogprob]: ...

    @overload
    def score(self, prompt: Prompts, continuation: Optional[Prompts] = None, *, top: int = 0, **params: Unpack[Judging]) -> list[list[TokenLogprob]]: ...

    @spelled_out(Judging)
    def score(
        self, prompt: Union[Prompt, Prompts], continuation: Union[Prompt, Prompts, None] = None, *, top: int = 0, **params: Unpack[Judging]
    ) -> Union[list[TokenLogprob], list[list[TokenLogprob]]]:
        """Log-probabilities of the tokens of ``continuation`` after ``prompt``, or, without one, of the tokens of ``prompt`` from the second on.

        Lists of prompts (and continuations) give lists of results. They are evaluated together, and shared beginnings once.

        :param top: also give this many of the most probable tokens at each place.
        :param batch_size: how many texts are judged together; by default as many as the cache has room for. Results do not depend on it.
        :param progress: show how many texts are done, by tqdm where it is installed.
        :raises ValueError: a prompt has no tokens, or the lists are of different lengths.
        """
        _natural(top, "top", 31)
        prompts, single = _batch.several(prompt)
        continuations: Any = [_batch.listed(continuation)] if single else _batch.listed(continuation)
        if continuation is None:
            items = [(_batch.encoded(self, p), 1) for p in prompts]
        else:
            if isinstance(continuations, str) or len(continuations) != len(prompts):
                raise ValueError(f"continuation must be a list of {len(prompts)}, one for each prompt")
            items = [_score.encode_pair(self, p, q) for p, q in zip(prompts, continuations)]
        if any(len(tokens) == 0 or start == 0 for tokens, start in items):
            raise ValueError("a prompt has no tokens; give at least one (a beginning-of-sequence token, say)")
        results = _score.score(self, items, top, **params)
        return results[0] if single else results

    @spelled_out(Choosing)
    def sample(self, logits: Union[Floats, Sequence[float]], *, history: Sequence[int] = (), draw: int = 0, **sampling: Unpack[Choosing]) -> int:
        """Chooses a token from one row of logits, as :meth:`generate` does.

        :param logits: float32 ``[vocab]``: a row of :meth:`step` or :meth:`forward`, any array of float32, or numbers.
        :param history: the tokens so far, for the repetition penalty.
        :param draw: index of the choice among the choices of one seed; a generation's n-th token has ``draw=n`` (from 0).
        :param sampling: ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``repetition_penalty``, ``repetition_window``, ``seed``, ``logit_bias``, as in
            :meth:`generate`; defaults are off: the model's own settings are not used here.
        """
        row = ffi.float_row(logits, "logits")
        tokens = ffi.int32_array(history, "history")
        known = (*SAMPLING, "seed", "logit_bias")
        unknown = next((name for name in sampling if name not in known), None)
        if unknown is not None:
            raise unknown_parameter(unknown, known)
        native = native_sampling(**sampling)
        token = c.c_int32()
        number = _natural(draw, "draw", 64)
        with self._use():
            self._lib.sample(c.byref(row), len(row), c.byref(native), tokens, len(tokens), number, c.byref(token))
        return token.value

    def logprobs(self, logits: Union[Floats, Sequence[float]], tokens: Sequence[int] = (), *, top: int = 0) -> tuple[list[float], list[tuple[int, float]]]:
        """Log-probabilities (the log-softmax, in float64) of ``tokens`` by one row of logits, and the ``top`` most probable tokens with theirs."""
        row = ffi.float_row(logits, "logits")
        array, n = ffi.int32_array(tokens, "tokens"), _natural(top, "top", 31)
        if n > len(row):
            raise ValueError(f"top is {n}, but the row has {len(row)} logits")
        values, top_tokens, top_values = (c.c_double * len(array))(), (c.c_int32 * n)(), (c.c_double * n)()
        with self._use():
            self._lib.logprobs(c.byref(row), len(row), array, len(array), values, n, top_tokens, top_values)
        return list(values), list(zip(top_tokens, top_values))

    @overload
    def forward(self, tokens: Sequence[int], *, numpy: Literal[True] = ...) -> Floats: ...

    @overload
    def forward(self, tokens: Sequence[int], *, numpy: Literal[False]) -> list[list[float]]: ...

    def forward(self, tokens: Sequence[int], *, numpy: bool = True) -> Union[Floats, list[list[float]]]:
        """Logits after each of ``tokens``: float32 ``[len(tokens), vocab]``. With ``numpy=False`` nested lists, for which NumPy is not needed."""
        array = ffi.int32_array(tokens, "tokens")
        seq = self._seq_new()
        try:
            logits: Floats = self._step(array, [seq] * len(array), range(len(array)), numpy)
            return logits
        finally:
            self._seq_free(seq)

    @overload
    def step(
        self, batch: Sequence[tuple[Session, Sequence[int]]], *, rows: None = ..., hidden: Optional[Sequence[Any]] = ..., hidden_out: Optional[list[Any]] = ..., positions: Optional[Sequence[Any]] = ..., numpy: Literal[True] = ...
    ) -> Floats: ...

    @overload
    def step(
        self, batch: Sequence[tuple[Session, Sequence[int]]], *, rows: None = ..., hidden: Optional[Sequence[Any]] = ..., hidden_out: Optional[list[Any]] = ..., positions: Optional[Sequence[Any]] = ..., numpy: Literal[False]
    ) -> list[list[float]]: ...

    @overload
    def step(
        self, batch: Sequence[tuple[Session, Sequence[int]]], *, rows: Union[str, Sequence[Rows]], hidden: Optional[Sequence[Any]] = ..., hidden_out: Optional[list[Any]] = ..., positions: Optional[Sequence[Any]] = ..., numpy: Literal[True] = ...
    ) -> list[Floats]: ...

    @overload
    def step(
        self, batch: Sequence[tuple[Session, Sequence[int]]], *, rows: Union[str, Sequence[Rows]], hidden: Optional[Sequence[Any]] = ..., hidden_out: Optional[list[Any]] = ..., positions: Optional[Sequence[Any]] = ..., numpy: Literal[False]
    ) -> list[list[list[float]]]: ...

    def step(
        self,
        batch: Sequence[tuple[Session, Sequence[int]]],
        *,
        rows: Union[None, str, Sequence[Rows]] = None,
        hidden: Optional[Sequence[Any]] = None,
        hidden_out: Optional[list[Any]] = None,
        positions: Optional[Sequence[Any]] = None,
        numpy: bool = True,
    ) -> Any:
        """Appends tokens to several sessions at once, prompts and single tokens mixed, and returns the logits after the last token of each:
        float32 ``[len(batch), vocab]``. A session's logits do not depend on the others, but the work is shared.

        :param rows: the tokens after which logits are needed; then the result is a list of float32 ``[rows, vocab]``, one per session (parts of one array).
            ``"all"`` or ``"last"`` for all sessions, or a choice for each: ``"all"``, ``"last"``, or any indices of its tokens, which may be negative.
        :param hidden: only for a draft head (``info["needs_hidden"]``): for each session an array ``[tokens, hidden]``, which gives with each token the
            model's hidden state of the token before it.
        :param hidden_out: a list that gets the hidden states of the tokens (``info["keeps_hidden"]``): float32 ``[tokens, hidden]`` for each session.
        :param positions: only for a model whose tokens have positions along axes (time, height, width; Qwen2-VL and others): for each session an array
            ``[tokens, 3]``. Without it a token has along all axes one more than the largest position before it in its session, as in texts.
        """
        entries = [(session, ffi.integers(tokens, "tokens")) for session, tokens in map(_entry, batch)]
        hidden = _batch.listed(hidden)
        wanted = batch_rows(rows, [len(tokens) for _, tokens in entries])
        if hidden_out is not None and not isinstance(hidden_out, list):
            raise TypeError(f"hidden_out must be a list, to which hidden states are appended, not {type(hidden_out).__name__}")
        given = hidden_rows(hidden, [len(tokens) for _, tokens in entries], self._info["hidden"])
        places = axis_positions(_batch.listed(positions), [len(tokens) for _, tokens in entries], ffi.AXES)
        all_tokens: list[int] = []
        seqs: list[int] = []
        out: list[int] = []
        token_ends: list[int] = []
        for (session, tokens), indices in zip(entries, wanted):
            if session._model is not self or len(tokens) == 0:
                raise LlmccError("a batch holds pairs of a session of this model and at least one token")
            if session._need_seq() in seqs:
                raise LlmccError("a batch holds a session twice; join its tokens")
            pending = session._pending()
            if pending and (given is not None or places is not None):
                raise LlmccError("tokens of a session were forgotten, and their rows and positions with them: start it again")
            out += [len(all_tokens) + len(pending) + index for index in indices]
            all_tokens += [*pending, *tokens]
            seqs += [session._need_seq()] * (len(pending) + len(tokens))
            token_ends.append(len(all_tokens))
        array = ffi.int32_array(all_tokens, "tokens")
        left = None if hidden_out is None else (c.c_float * (len(array) * self._info["hidden"]))()
        logits: Any = self._step(array, seqs, out, numpy, given, left, places)
        for (session, tokens), end in zip(entries, token_ends):
            session._tokens.extend(tokens)
            if hidden_out is not None:
                hidden_out.append(rows_of(left, (end - len(tokens), end), self._info["hidden"], numpy))
        if rows is None:
            return logits
        ends = list(itertools.accumulate(len(indices) for indices in wanted))
        return [logits[end - len(indices) : end] for end, indices in zip(ends, wanted)]


def _entry(entry: Any) -> tuple[Session, Sequence[int]]:
    """A part of a batch: a session and its tokens."""
    from ._session import Session

    if not isinstance(entry, (tuple, list)) or len(entry) != 2 or not isinstance(entry[0], Session):
        raise TypeError(f"a batch holds pairs of a session and its tokens, not {entry!r:.80}")
    return entry[0], entry[1]
