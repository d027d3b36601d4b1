"""Prompts made shorter: tokens that a model foresees are left out."""

from __future__ import annotations

import ctypes as c
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Iterable, Optional, Union

from . import _ffi as ffi
from ._logits import Logits
from ._params import real

if TYPE_CHECKING:
    from ._text import Text

#: Stands for bytes that are no character.
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class Compressed:
    """A text that was made shorter."""

    #: The text.
    text: str
    #: Tokens of the whole text, for the model that scored it.
    tokens: int
    #: Tokens that were kept.
    kept: int
    #: The texts that were left out, each of tokens that follow each other.
    dropped: list[str]
    #: For each token of the whole text, how little the model foresaw it, ``-ln p`` in nats; ``inf`` for a first one.
    information: list[float]

    def __str__(self) -> str:
        return self.text


class Compress(Logits):
    """The methods of a model that make prompts shorter."""

    def compress(self, prompt: str, ratio: float, *, with_: Optional[Text] = None, keep: Union[str, Iterable[str]] = (), digits: bool = False) -> Compressed:
        """Leaves out the tokens of ``prompt`` that a small model foresees, by LLMLingua's criterion (arXiv 2310.05736).

        The text is taken in segments of 200 tokens. Each token is scored by its self-information after the tokens kept before the segment and the segment's
        tokens before it, and those with the most are kept. The result is a text, so the two models need no common tokenizer.

        :param ratio: the share of the text's tokens to keep, above 0 and up to 1: at the end of each segment ``ratio`` of the tokens so far, to the nearest
            number. The first and the last token, and those of ``keep`` and ``digits``, are kept in any case.
        :param with_: the small :class:`Model`, by whose tokens the text is scored; by default this one.
        :param keep: a text, or texts, whose tokens are kept wherever they stand, such as ``"\\n"`` or a name.
        :param digits: keep all tokens with a digit.
        :raises LlmccError: the ratio is out of range, or the small model writes no text or has no tokenizer.
        """
        small: Text = self if with_ is None else with_
        if not isinstance(prompt, str):
            raise TypeError(f"prompt must be a text, not {type(prompt).__name__}: tokens are the small model's")
        share, words = real(ratio, "ratio"), [keep] if isinstance(keep, str) else list(keep)
        bare, whole = small.tokenize(prompt, add_special=False), small.tokenize(prompt)
        # Special tokens before the text are its context; those behind it are left away.
        at = next((i for i in range(len(whole) - len(bare) + 1) if whole[i : i + len(bare)] == bare), 0)
        tokens = whole[:at] + bare
        forced = [False] * at + _forced(small, bare, words, digits)
        array, kept, nats = ffi.int32_array(tokens, "the prompt"), (c.c_uint8 * len(tokens))(*forced), (c.c_float * len(tokens))()
        with small._use() as handle:
            small._lib.interruptible(handle, lambda: small._lib.compress(handle, array, len(array), at, share, kept, nats))
        marked = [(token, bool(flag)) for token, flag in zip(bare, kept[at:])]
        short = small.detokenize([token for token, flag in marked if flag])
        if _REPLACEMENT not in prompt:
            # A character leaves with any token that has a part of it.
            short = short.replace(_REPLACEMENT, "")
        dropped = [small.detokenize([token for token, _ in run]) for flag, run in groupby(marked, lambda pair: pair[1]) if not flag]
        return Compressed(short, len(bare), sum(flag for _, flag in marked), dropped, list(nats[at:]))


def _forced(model: Text, tokens: list[int], words: list[str], digits: bool) -> list[bool]:
    """Which tokens must be kept."""
    spelled = [model.token_bytes(token) for token in tokens]
    forced = [digits and any(byte in b"0123456789" for byte in own) for own in spelled]
    if forced:
        forced[0] = forced[-1] = True
    text, ends = b"".join(spelled), list(accumulate(map(len, spelled)))
    starts = [0, *ends[:-1]]
    for word in (word.encode("utf-8") for word in words if word):
        at = text.find(word)
        while at >= 0:
            for i in range(bisect_right(ends, at), bisect_left(starts, at + len(word))):
                forced[i] = True
            at = text.find(word, at + 1)
    return forced
