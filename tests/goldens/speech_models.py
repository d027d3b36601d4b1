"""Golden values of models that write what is said in a clip of audio (Whisper), which `make.py` writes: `features` f32[frames, mels], the spectrogram that the encoder reads;
`starts`, the tokens that a transcription begins with, the language by the model itself where it knows several; `tokens` i32[40], these and what the decoder has written after
them; `at`, `logits`, `error_f32` and `error_bf16` as for other models, of these; `greedy` i32[24], what the decoder writes of the clip by itself after `starts`: by
`generate` of Transformers, and, for the margin between best and second-best, by the logits of whole texts. For a sound of a second, a quarter of `sounds.noise` of the seed
`sound` i32[1], `heard_starts` and `heard` i32[24] are the same, its spectrogram being made by `WhisperFeatureExtractor`."""

import numpy as np
import torch
import transformers

import sounds


def is_one(config):
    return config.model_type == "whisper"


def random_features(model, rng):
    """Numbers as spectrograms have them, mostly from -1 to 1."""
    frames = 2 * model.config.max_source_positions
    return torch.tensor(rng.normal(0, 0.5, (frames, model.config.num_mel_bins)), dtype=torch.float32)


def of_model(model, features):
    return features.T[None].to(next(model.parameters()).dtype)


@torch.no_grad()
def logits(model, features, tokens):
    return model(input_features=of_model(model, features), decoder_input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def starts(model, features):
    """The tokens that a transcription begins with."""
    config = model.generation_config
    if not config.is_multilingual:
        return [config.decoder_start_token_id, config.no_timestamps_token_id]
    language = model.detect_language(of_model(model, features), num_segment_frames=len(features)).item()
    return [config.decoder_start_token_id, language, config.task_to_id["transcribe"], config.no_timestamps_token_id]


@torch.no_grad()
def written(model, features, first, count):
    """The tokens that the model writes of a clip, and the smallest margin on its way; none if a token ends it."""
    config = model.generation_config
    ids, margin = list(first), float("inf")
    while len(ids) < len(first) + count:
        row = logits(model, features, ids)[-1]
        row[config.suppress_tokens] = float("-inf")
        if len(ids) == len(first):
            row[config.begin_suppress_tokens] = float("-inf")
        best = row.topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
    return (None, 0.0) if config.eos_token_id in ids[len(first) :] else (ids[len(first) :], margin)


def heard(model, folder, count, margin):
    """The text that the model writes of a sound: its seed, the first tokens and the others."""
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder)
    for seed in range(1, 100):
        wave = np.array([x >> 2 for x in sounds.noise(extractor.n_samples, seed)], dtype=np.float32) / 32768
        features = extractor(wave, sampling_rate=extractor.sampling_rate, return_tensors="pt").input_features[0].T
        start = starts(model, features)
        tokens, least = written(model, features, start, count)
        if tokens and least >= margin and len(set(tokens)) >= 4:
            assert generated(model, features, count) == tokens
            return {"sound": [seed], "heard_starts": start, "heard": tokens}
    raise RuntimeError("no sound with such a margin")


@torch.no_grad()
def generated(model, features, count):
    """The same by `generate`, which gives the text without the first tokens."""
    task = {"task": "transcribe"} if model.generation_config.is_multilingual else {}
    out = model.generate(of_model(model, features), max_new_tokens=count, do_sample=False, num_beams=1, **task)
    return out[0].tolist()
