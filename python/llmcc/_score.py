"""Judging texts: how probable the model finds their tokens.

Texts are taken in the order of their tokens, so that those with a common beginning follow each other. Tokens that a whole group shares are evaluated once and kept for
the next group (a few-shot prompt, say); the shared context of several continuations is evaluated once and forked. Results do not depend on it: a token's
logits are the same bits however its sequence came about.
"""

from __future__ import annotations

import ctypes as c
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Iterator, Optional, Sequence

from . import _ffi as ffi
from ._errors import LlmccError, Status
from ._interrupt import checkpoint
from ._embed import batches
from ._params import unknown_keyword
from ._pieces import TokenLogprob
from ._progress import Progress

if TYPE_CHECKING:
    from ._text import Prompt, Text

#: Tokens of the cache that are handed out at once.
PAGE = 16
#: Shared beginnings shorter than this are evaluated again.
WORTH_SHARING = 2 * PAGE


@dataclass
class Tail:
    """Tokens that need a row of logits after them, and who needs it: ``(item, tokens to
    be judged)``. Several may want the same rows."""

    tokens: tuple[int, ...]
    wanted: list[tuple[int, list[int]]] = field(default_factory=list)


@dataclass
class Stem:
    """A beginning without rows, and the tokens after it."""

    tokens: tuple[int, ...]
    tails: dict[tuple[int, ...], Tail] = field(default_factory=dict)


def score(
    model: Text, items: Sequence[tuple[Sequence[int], int]], top: int, batch_size: Optional[int] = None, progress: bool = False, **unknown: object
) -> list[list[TokenLogprob]]:
    """For each ``(tokens, start)`` the log-probabilities of ``tokens[start:]``, with the ``top`` most probable tokens there."""
    if unknown:
        raise unknown_keyword(next(iter(unknown)), ("top", "batch_size", "progress"), {"logprobs": "top", "show_progress_bar": "progress"})
    results: list[list[TokenLogprob]] = [[] for _ in items]
    with Progress(len(items), "score", progress) as shown:
        for part in batches(len(items), batch_size, False):
            for index, judged in score_each(model, items[part], top):
                results[part.start + index] = judged
                shown.update()
    return results


def score_each(model: Text, items: Sequence[tuple[Sequence[int], int]], top: int) -> Iterator[tuple[int, list[TokenLogprob]]]:
    """As :func:`score`, with the index of each item, as they are done."""
    stems: dict[tuple[int, ...], Stem] = {}
    for i, (tokens, start) in enumerate(items):
        checkpoint()
        if start >= len(tokens):
            yield i, []
            continue
        head, rows = tuple(tokens[: start - 1]), tuple(tokens[start - 1 : -1])
        stem = stems.setdefault(head, Stem(head))
        stem.tails.setdefault(rows, Tail(rows)).wanted.append((i, list(tokens[start:])))
    scorer = _Scorer(model, top)
    try:
        for group in _groups(model, sorted(stems.values(), key=lambda s: s.tokens)):
            scorer.run(group)
            results, scorer.results = scorer.results, {}
            yield from results.items()
    finally:
        scorer.close()


def encode_pair(model: Text, context: Prompt, continuation: Prompt) -> tuple[list[int], int]:
    """Tokens of a text and its continuation, and where the continuation begins.

    As lm-evaluation-harness does it: spaces at the end of the context belong to the continuation, and the whole text is tokenized at once, for a token may
    span the border only from the continuation's side.
    """
    if isinstance(context, str) and isinstance(continuation, str):
        bare = context.rstrip()
        return model.tokenize(context + continuation), len(model.tokenize(bare))
    if isinstance(context, str) or isinstance(continuation, str):
        raise TypeError("prompts and continuations must both be texts, or both be tokens")
    return [*context, *continuation], len(context)


def _groups(model: Text, stems: list[Stem]) -> list[list[Stem]]:
    """Cuts sorted stems into groups for a step each, by the tokens they add."""
    limit = max(4 * model._info["max_batch_tokens"], 2048)
    limit = min(limit, max(model._info["max_tokens"] // 2, PAGE))
    groups: list[list[Stem]] = []
    used = shared = 0
    for stem in stems:
        checkpoint()
        size = sum(-(-len(tail.tokens) // PAGE) * PAGE for tail in stem.tails.values()) + len(stem.tokens)
        common = _common(groups[-1][-1].tokens, stem.tokens) if groups else 0
        less_shared = shared >= WORTH_SHARING and min(shared, common) < shared // 2
        if not groups or less_shared or used + size - min(shared, common) > limit:
            groups.append([stem])
            used, shared = size, len(stem.tokens)
        else:
            groups[-1].append(stem)
            shared = min(shared, common)
            used += size - shared
    return groups


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)


class _Scorer:
    """Takes groups through the model, and keeps a sequence with the tokens that the last group
    shared."""

    def __init__(self, model: Text, top: int) -> None:
        self._model, self._top = model, top
        self.results: dict[int, list[TokenLogprob]] = {}
        self._base: Optional[int] = None
        self._base_tokens: tuple[int, ...] = ()

    def close(self) -> None:
        base, self._base, self._base_tokens = self._base, None, ()
        if base is not None:
            self._model._seq_free(base)

    def run(self, group: list[Stem]) -> None:
        """Judges a group; one for which the cache has no room in halves."""
        try:
            self._run(group)
        except LlmccError as error:
            if error.status != Status.CACHE_FULL:
                raise
            had_base = self._base is not None
            self.close()
            if len(group) > 1:
                self.run(group[: len(group) // 2])
                self.run(group[len(group) // 2 :])
            elif len(group[0].tails) > 1:
                for tail in group[0].tails.values():
                    self.run([Stem(group[0].tokens, {tail.tokens: tail})])
            elif had_base:
                self._run(group)
            else:
                raise

    def _run(self, group: list[Stem]) -> None:
        shared = min(_common(group[0].tokens, stem.tokens) for stem in group)
        shared = self._extend_base(group[0].tokens[:shared])
        seqs: list[int] = []
        try:
            # Contexts with several continuations first, then all that rows are wanted of.
            heads: list[tuple[int, tuple[int, ...]]] = []
            tails: list[tuple[int, tuple[int, ...], Tail]] = []
            for stem in group:
                rest = stem.tokens[shared:]
                if len(stem.tails) > 1 and len(rest) >= WORTH_SHARING:
                    head = self._fork(seqs)
                    heads.append((head, rest))
                    tails += [(head, (), tail) for tail in stem.tails.values()]
                else:
                    tails += [(-1, rest, tail) for tail in stem.tails.values()]
            if heads:
                self._model._step_rows([t for _, tokens in heads for t in tokens], [s for s, tokens in heads for _ in tokens])
            self._judge([(self._fork(seqs, head), rest, tail) for head, rest, tail in tails])
        finally:
            for seq in seqs:
                self._model._seq_free(seq)

    def _extend_base(self, tokens: tuple[int, ...]) -> int:
        """Makes the shared sequence hold ``tokens``, if that is worth it; returns how many it holds."""
        if len(tokens) < WORTH_SHARING:
            self.close()
            return 0
        kept = _common(self._base_tokens, tokens)
        if self._base is not None and kept < len(self._base_tokens):
            try:
                self._model._seq_truncate(self._base, kept)
                self._base_tokens = tokens[:kept]
            except LlmccError:
                # There is no way back to tokens that a sliding window has left behind.
                self.close()
                kept = 0
        if self._base is None:
            self._base, self._base_tokens = self._model._seq_new(), ()
        self._model._step_rows(tokens[kept:], [self._base] * (len(tokens) - kept))
        self._base_tokens = tokens
        return len(tokens)

    def _fork(self, seqs: list[int], head: int = -1) -> int:
        """A sequence that continues ``head``, or the shared tokens."""
        source = head if head >= 0 else self._base
        seqs.append(self._model._seq_new() if source is None else self._model._seq_fork(source))
        return seqs[-1]

    def _judge(self, parts: list[tuple[int, tuple[int, ...], Tail]]) -> None:
        tokens: list[int] = []
        seqs: list[int] = []
        rows: list[int] = []
        targets: list[int] = []
        owners: list[int] = []
        for seq, rest, tail in parts:
            first = len(tokens) + len(rest)
            tokens += [*rest, *tail.tokens]
            seqs += [seq] * (len(rest) + len(tail.tokens))
            for item, wanted in tail.wanted:
                rows += range(first, first + len(wanted))
                targets += wanted
                owners += [item] * len(wanted)
        judged = self._model._step_logprobs(tokens, seqs, rows, targets, self._top)
        for item, logprob in zip(owners, judged):
            if math.isnan(logprob.logprob):
                raise LlmccError("the logits hold NaN; the model's weights or inputs are damaged", Status.NUMERIC)
            self.results.setdefault(item, []).append(logprob)


def step_logprobs(lib: ffi.Library, handle: c.c_void_p, batch: ffi.Batch, targets: Sequence[int], top: int) -> list[TokenLogprob]:
    """``llmcc_step_logprobs``."""
    n = len(targets)
    logprobs = (c.c_double * n)()
    top_tokens = (c.c_int32 * (n * top))()
    top_logprobs = (c.c_double * (n * top))()
    array = ffi.int32_array(targets, "tokens")
    lib.step_logprobs(handle, c.byref(batch), array, logprobs, top, top_tokens, top_logprobs)
    tokens, values = list(top_tokens), list(top_logprobs)
    return [
        TokenLogprob(array[i], logprobs[i], tuple(zip(tokens[i * top : (i + 1) * top], values[i * top : (i + 1) * top])))
        for i in range(n)
    ]
