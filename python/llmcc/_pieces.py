"""Results of generations and of judging texts."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass
from typing import Optional, Union

from . import _ffi as ffi

_FINISH = {0: None, 1: "token", 2: "text", 3: "length", 4: "context"}

#: Tokens with their log-probabilities, the most probable first.
Top = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class TokenLogprob:
    """How probable a token was.

    ``logprob`` is the natural logarithm of the probability that the model gave it, before bias, penalty, temperature and filters. ``top`` holds the most
    probable tokens at its place, as many as were asked for, with theirs.
    """

    token: int
    logprob: float
    top: Top = ()


@dataclass(frozen=True)
class Piece:
    """One generated token.

    ``text`` is the text it completes: whole characters, maybe none. ``finish`` is set on the last piece: ``"token"`` (an end-of-sequence or stop token),
    ``"text"`` (a stop string), ``"length"`` (``max_tokens``) or ``"context"`` (the model's longest context). ``logprob`` is set if ``logprobs`` asked for it.
    """

    token: int
    text: str
    finish: Optional[str]
    logprob: Optional[TokenLogprob] = None


@dataclass(frozen=True)
class Completion:
    """A whole generation.

    ``tokens`` are the generated ones, with the one that ended it, if any; ``text`` is theirs. ``finish`` is as in :class:`Piece`. ``logprobs`` has an entry
    per token, and ``prompt_logprobs`` one per token of the prompt (``None`` for the first, which nothing predicts), if they were asked for. ``guessed`` tokens
    were guessed (``draft``) in ``guess_steps`` steps; ``accepted`` of them are part of the text.
    """

    text: str
    tokens: list[int]
    finish: Optional[str]
    prompt_tokens: list[int]
    logprobs: Optional[list[TokenLogprob]] = None
    prompt_logprobs: Optional[list[Optional[TokenLogprob]]] = None
    guessed: int = 0
    accepted: int = 0
    guess_steps: int = 0


def piece_of(piece: Union[ffi.Piece, ffi.EngineEvent], logprobs: bool) -> Piece:
    """The token that C reported."""
    length = piece.text_len
    text = c.string_at(piece.text, length).decode("utf-8") if length else ""
    logprob = None
    if logprobs:
        top = tuple((piece.top_tokens[i], piece.top_logprobs[i]) for i in range(piece.n_top))
        logprob = TokenLogprob(piece.token, piece.logprob, top)
    return Piece(piece.token, text, finish_of(piece), logprob)


def finish_of(piece: Union[ffi.Piece, ffi.EngineEvent]) -> Optional[str]:
    """Why the generation ended, if it has."""
    return _FINISH.get(piece.finish, "other")
