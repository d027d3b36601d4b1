"""Texts of what is said in sounds, by models such as Whisper."""

from __future__ import annotations

import ctypes as c
import os
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

from . import _batch, _ffi as ffi
from ._compress import Compress
from ._errors import LlmccError, Status
from ._keywords import Generating, spelled_out
from ._params import GenParams as _GenParams, natural as _natural

if TYPE_CHECKING:
    from ._keywords import Unpack

#: The path of a WAV file, its bytes, or samples (a NumPy array or a sequence of floats).
Sound = Union[str, "os.PathLike[str]", bytes, bytearray, Sequence[float], Any]


class Audio(Compress):
    """Methods of models that hear."""

    @spelled_out(Generating)
    def transcribe(
        self, audio: Sound, *, rate: int = 16000, language: Optional[str] = None, task: str = "transcribe", **params: Unpack[Generating]
    ) -> str:
        """The text of what is said in a sound. A sound that is longer than a clip of the model (30 seconds) is cut into clips, one after the other, whose texts follow each other:
        a word on the border of two clips may be lost or doubled.

        :param audio: the path of a WAV file or its bytes, or samples of one channel, mostly from -1 to 1.
        :param rate: of samples, how many are a second.
        :param language: a code such as ``"en"``; by default the most probable one, for each clip.
        :param task: ``"transcribe"``, or ``"translate"`` into English.
        :raises LlmccError: no WAV file; an unknown language or task; a model that does not hear.
        :raises FileNotFoundError: there is no such file.
        """
        given = _GenParams(**_batch.of_one(params))
        clip = self._clip()
        # (Fails where the artifact has no tokenizer.)
        self.tokenize("", add_special=False)
        samples = self._samples(audio, rate)
        texts = []
        seq = self._seq_new()
        try:
            # (Silence, too, is a clip.)
            for start in range(0, max(len(samples), 1), clip.samples):
                part = samples[start : start + clip.samples]
                tokens = self._heard(seq, (c.c_float * len(part))(*part), (language or "", task))
                texts.append("".join(_batch.Texts(self._pieces(seq, tokens, given))).strip())
        finally:
            self._seq_free(seq)
        return " ".join(text for text in texts if text)

    def _clip(self) -> ffi.AudioInfo:
        info = ffi.AudioInfo()
        if self._lib._minor < 7:
            raise LlmccError("this artifact does not read sounds: compile a model such as Whisper with this version of llmcc", Status.UNSUPPORTED)
        with self._use() as handle:
            self._lib.audio(handle, c.byref(info))
        return info

    def _samples(self, audio: Sound, rate: int) -> Sequence[float]:
        """Samples at the model's rate."""
        if isinstance(audio, (str, os.PathLike)):
            with open(audio, "rb") as file:
                audio = file.read()
        if isinstance(audio, (bytes, bytearray)):
            data: Any = bytes(audio)
            rate = 0
        else:
            data = _floats(audio)
            rate = _natural(rate, "rate", 32)
            if rate == 0:
                raise LlmccError("rate is 0; give the samples per second")
        with self._use() as handle:
            call = lambda *out: self._lib.interruptible(handle, lambda: self._lib.audio_samples(handle, data, len(data), rate, *out), True)
            return self._lib.floats(call, len(data))

    def _heard(self, seq: int, clip: Any, asked: tuple[str, str]) -> list[int]:
        """Gives a sequence a clip; the tokens that its text begins with."""
        language, task = (text.encode("utf-8") for text in asked)
        with self._use() as handle:
            self._lib.interruptible(handle, lambda: self._lib.seq_encode_audio(handle, seq, clip, len(clip)), True)
            return self._lib.ints(lambda *out: self._lib.audio_prompt(handle, seq, language, len(language), task, len(task), *out), 8)


def _floats(samples: Any) -> Any:
    """A C array of the samples of one channel."""
    if getattr(samples, "ndim", 1) != 1:
        raise LlmccError(f"samples have the shape {samples.shape}; give those of one channel: the mean of all, say")
    if getattr(getattr(samples, "dtype", None), "kind", "f") != "f":
        raise TypeError(f"samples are {samples.dtype}; give floats from -1 to 1: integers over the largest that their type has")
    return ffi.float_row(samples, "samples")
