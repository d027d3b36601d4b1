"""Golden values of models with an encoder and a decoder, which `make.py` writes: `source` i32[40], the text that the encoder reads; `tokens` i32[40], what the decoder has
written of it, its start token first; `at`, `logits`, `error_f32` and `error_bf16` as for other models, of these; `greedy` i32[24], what the decoder writes of the source by itself after its first tokens:
by `generate` of Transformers, and, for the margin between best and second-best, by the logits of whole texts."""

import json

import torch
import transformers


def reader(folder):
    """The class of a folder whose model has an encoder and a decoder; else none."""
    config = json.loads((folder / "config.json").read_text())
    name = config["architectures"][0]
    whole = config.get("is_encoder_decoder") and not name.endswith("EncoderModel")
    return getattr(transformers, name) if whole else None


def starts(model):
    """The tokens that a decoder begins with."""
    forced = model.generation_config.forced_bos_token_id
    return [model.config.decoder_start_token_id] + ([] if forced is None else [forced])


@torch.no_grad()
def logits(model, source, tokens):
    return model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


@torch.no_grad()
def written(model, source, count):
    """The tokens that the model writes about a source, and the smallest margin on its way; none if a token ends it."""
    banned = [token for (token,) in model.generation_config.bad_words_ids or []]
    ids, margin = starts(model), float("inf")
    first = len(ids)
    while len(ids) < first + count:
        row = logits(model, source, ids)[-1]
        row[banned] = float("-inf")
        best = row.topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
    ends = model.generation_config.eos_token_id
    ends = [ends] if isinstance(ends, int) else ends or []
    return (None, 0.0) if any(token in ends for token in ids[first:]) else (ids[first:], margin)


@torch.no_grad()
def generated(model, source, count):
    """The same by `generate`."""
    first = len(starts(model))
    out = model.generate(torch.tensor([source]), max_new_tokens=first - 1 + count, do_sample=False, num_beams=1, forced_eos_token_id=None)
    return out[0, first:].tolist()
