#!/usr/bin/env python3
"""Writes `spectrograms.safetensors`: sounds as Transformers' `WhisperFeatureExtractor` sees them, and sounds at other rates as torchaudio makes them.

    pip install -r requirements.txt torchaudio==2.9.0 && python spectrograms.py

`runtime/media/tests/spectrograms.rs` makes the same sounds, of integers. For each sound and each number of filters, of clips of one second:

- `NAME.MELS` f32[len(AT), mels], the frames `AT` by the extractor's own functions of NumPy, whose sums are in f64;
- `NAME.MELS.error` f32[len(AT)], how far off its functions of torch are, which compute in f32;
- `long.80` the same of a clip of 30 seconds.

`rate.RATE` f32[2000] is the noise at that rate, resampled to 16000 samples per second, from sample 0 on.
"""

from pathlib import Path

import numpy as np
import torch
import torchaudio
from safetensors.numpy import save_file
from transformers import WhisperFeatureExtractor

from sounds import noise

HERE = Path(__file__).parent
RATE = 16000
AT = [0, 1, 2, 37, 50, 98, 99]
RATES = [8000, 11025, 22050, 44100, 48000, 16001]


def sine(n, factor):
    """A sine of integers, by its recurrence: `factor` is twice the cosine of a sample's angle, times 2^14."""
    before, now, out = 0, 1 << 12, []
    for _ in range(n):
        out.append(now)
        before, now = now, (factor * now >> 14) - before
    return [max(-32768, min(32767, x)) for x in out]


def sounds(n):
    """Sounds of `n` samples and shorter ones."""
    return {
        "silence": [0] * n,
        "noise": noise(n, 1),
        "quiet": [x >> 9 for x in noise(n, 2)],
        "low": sine(n, 32000),
        "high": sine(n, -20000),
        "short": [x >> 2 for x in noise(n // 3 + 7, 3)],
        "both": [a // 4 + b // 4 for a, b in zip(noise(n, 4), sine(n, 30000))],
    }


def described(name, samples, mels, seconds, at):
    extractor = WhisperFeatureExtractor(feature_size=mels, chunk_length=seconds)
    wave = np.asarray(samples, dtype=np.float32) / 32768
    of_torch = extractor(wave, sampling_rate=RATE, return_tensors="np").input_features[0].T[at]
    padded = np.pad(wave.astype(np.float64), (0, extractor.n_samples - len(wave)))
    of_numpy = extractor._np_extract_fbank_features(padded[None], "cpu")[0].T[at]
    error = np.abs(of_numpy.astype(np.float64) - of_torch).max(1).astype(np.float32)
    print(f"{name:8} {mels:3} filters: {of_numpy.min():.3f} to {of_numpy.max():.3f}, torch is off by {error.max():.1e}")
    return {f"{name}.{mels}": np.ascontiguousarray(of_numpy, dtype=np.float32), f"{name}.{mels}.error": error}


def main():
    torch.set_num_threads(1)
    out = {}
    for name, samples in sounds(RATE).items():
        for mels in (80, 128):
            out |= described(name, samples, mels, 1, AT)
    out |= described("long", noise(30 * RATE, 5), 80, 30, [0, 1500, 2999])
    for rate in RATES:
        wave = torch.tensor(noise(rate // 4, 6), dtype=torch.float64) / 32768
        own = torchaudio.functional.resample(wave, rate, RATE)[:2000].numpy().astype(np.float32)
        out[f"rate.{rate}"] = own
    save_file(out, HERE / "spectrograms.safetensors")


if __name__ == "__main__":
    main()
