"""A model that hears (``LLMCC_TEST_AUDIO``): texts of what is said in sounds."""

import array
import io
import os
import wave

import pytest

import llmcc

ARTIFACT = os.environ.get("LLMCC_TEST_AUDIO")
pytestmark = pytest.mark.skipif(not ARTIFACT, reason="LLMCC_TEST_AUDIO names no artifact")
MASK = (1 << 64) - 1


def noise(n, seed):
    """A quarter of ``noise`` of ``tests/goldens/sounds.py``."""
    out = []
    for i in range(1, n + 1):
        z = (seed + i * 0x9E3779B97F4A7C15) & MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        out.append(((z ^ z >> 31) >> 48) - 32768 >> 2)
    return out


def wav(samples, rate=16000):
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(array.array("h", samples).tobytes())
    return file.getvalue()


def test_sounds_are_files_bytes_and_samples(tmp_path):
    samples = noise(16000, 1)
    (tmp_path / "a.wav").write_bytes(wav(samples))
    floats = [x / 32768 for x in samples]
    how = {"max_tokens": 24}
    with llmcc.load(ARTIFACT) as m:
        assert m.info["hears"] and m.info["needs_source"]
        text = m.transcribe(tmp_path / "a.wav", **how)
        assert text.startswith("w") and len(text.split()) >= 8
        assert os.environ.get("LLMCC_TEST_AUDIO_TEXT", text) == text
        assert m.transcribe(str(tmp_path / "a.wav"), **how) == text
        assert m.transcribe(wav(samples), **how) == text
        assert m.transcribe(floats, **how) == text
        assert m.transcribe(array.array("f", floats), **how) == text
        # A language of its own choice, or one that is given.
        assert m.transcribe(floats, language="de", **how) == text
        assert m.transcribe(floats, language="en", task="translate", **how) != text
        # Two clips.
        both = m.transcribe(floats + [0.0], **how)
        assert both.startswith(text) and len(both) > len(text)
        assert m.transcribe([x / 32768 for x in noise(4000, 2)], rate=8000, **how)


def test_numpy_arrays_are_samples():
    np = pytest.importorskip("numpy")
    samples = np.array(noise(16000, 1), dtype=np.float32) / 32768
    with llmcc.load(ARTIFACT) as m:
        text = m.transcribe(samples, max_tokens=24)
        assert m.transcribe(samples.astype(np.float64), max_tokens=24) == text
        with pytest.raises(llmcc.LlmccError, match="one channel"):
            m.transcribe(np.stack([samples, samples]))
        with pytest.raises(TypeError, match="floats from -1 to 1"):
            m.transcribe((samples * 32768).astype(np.int16))


def test_wrong_sounds_are_refused():
    with llmcc.load(ARTIFACT) as m:
        for sound, why in [(b"ID3", "WAV file"), ([float("nan")], "sample 0"), (wav([0] * 8, 100), "100 samples per second")]:
            with pytest.raises(llmcc.LlmccError, match=why):
                m.transcribe(sound)
        with pytest.raises(llmcc.LlmccError, match="does not know the language"):
            m.transcribe([0.0], language="xx")
        with pytest.raises(llmcc.LlmccError, match="has no task"):
            m.transcribe([0.0], task="sing")
        with pytest.raises(FileNotFoundError):
            m.transcribe("none.wav")
        with pytest.raises(llmcc.LlmccError, match="give the clip first"):
            m.generate([1])


def test_other_models_hear_nothing():
    other = os.environ.get("LLMCC_TEST_OTHER_ARTIFACT")
    if not other:
        pytest.skip("LLMCC_TEST_OTHER_ARTIFACT names no artifact")
    with llmcc.load(other) as m, pytest.raises(llmcc.LlmccError, match="does not read sounds"):
        m.transcribe([0.0])
