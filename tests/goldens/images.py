#!/usr/bin/env python3
"""Golden values of models that see images, beside goldens of their text models by `make.py`: writes `images.safetensors` in the folders of `FIXTURES`.

    python images.py [NAME...]

- `pixels` f32[2, 3, side, side]: two images as the model's image processor would leave them; of models whose images have sides of their own `pixels0` and `pixels1` f32[3,
  height, width];
- `rows` f32[2·count, hidden]: the rows that its tower and projector make of them, from float64; `rows_error_f32` f32[1], the largest error of Transformers in float32;
- `tokens` i32[n]: text, the first image, text, the second image, text, the tokens of rows all being the configuration's image token;
- `logits` f32[n, vocab]: of these, from float64; `error_f32`, `error_bf16` f32[n]: the largest error of Transformers in those types after each token;
- `greedy` i32[8]: greedy continuation in float64 by the logits of whole texts, which `generate` gives too."""

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import Qwen2VLImageProcessor

import make
import weights

HERE = Path(__file__).parent
FIXTURES = ("llava", "gemma3_image", "qwen2_vl")
# Patches of two images of models whose images have sides of their own: rows and columns.
GRIDS = ((4, 6), (6, 4))
GREEDY = 8


def is_free(config):
    return config.model_type == "qwen2_vl"


def count_of(config):
    return getattr(config, "mm_tokens_per_image", None) or config.image_seq_length


def free_prompt(config, rng):
    """The same with images of different sizes, which differ in their tokens."""
    merged = config.vision_config.spatial_merge_size**2
    image = lambda grid: [config.vision_start_token_id] + [config.image_token_id] * (grid[0] * grid[1] // merged) + [config.vision_end_token_id]
    text = lambda n: torch.randint(3, 57, (n,), generator=rng).tolist()
    return text(5) + image(GRIDS[0]) + text(4) + image(GRIDS[1]) + text(6)


def prompt(config, rng):
    """Text, an image, text, an image, text."""
    if is_free(config):
        return free_prompt(config, rng)
    image = [config.image_token_index if hasattr(config, "image_token_index") else config.image_token_id] * count_of(config)
    around = [getattr(config, name, None) for name in ("boi_token_index", "eoi_token_index")]
    image = [t for t in (around[:1] + image + around[1:]) if t is not None]
    text = lambda n: torch.randint(3, 120, (n,), generator=rng).tolist()
    return text(5) + image + text(4) + image + text(6)


def patches_of(config, pixels):
    vision, cut = config.vision_config, Qwen2VLImageProcessor().patchify
    return torch.cat([cut(image[None], vision.patch_size, vision.spatial_merge_size, vision.temporal_patch_size)[0][0] for image in pixels])


def inputs(model, tokens, pixels):
    ids = torch.tensor([tokens])
    if is_free(model.config):
        seen = {"pixel_values": pixels.to(model.dtype), "image_grid_thw": torch.tensor([(1, *grid) for grid in GRIDS])}
        return {"input_ids": ids, **seen, "mm_token_type_ids": (ids == model.config.image_token_id).int()}
    more = {"token_type_ids": (ids == model.config.image_token_id).long()} if model.config.model_type == "gemma3" else {}
    return {"input_ids": ids, "pixel_values": pixels.to(model.dtype), **more}


@torch.no_grad()
def results(folder, dtype, tokens, pixels, greedy=0):
    """Rows of the images, logits, the greedy continuation and the smallest margin on its way."""
    model, inv_freqs = make.load(folder, dtype)

    def computed():
        seen = {k: v for k, v in inputs(model, tokens, pixels).items() if k in ("pixel_values", "image_grid_thw")}
        rows = model.model.get_image_features(**seen, return_dict=True).pooler_output
        rows = torch.cat([r.reshape(-1, r.shape[-1]) for r in rows])
        logits = model(**inputs(model, tokens, pixels), use_cache=False).logits[0]
        ids, margin = list(tokens), float("inf")
        for _ in range(greedy):
            best = model(**inputs(model, ids, pixels), use_cache=False).logits[0, -1].topk(2)
            margin = min(margin, (best.values[0] - best.values[1]).item())
            ids.append(best.indices[0].item())
        return rows, logits, ids[len(tokens) :], margin

    if dtype is not torch.float64:
        return computed()
    torch.set_default_dtype(torch.float64)
    with make.NoFloat32(inv_freqs), make.Float64Only():
        out = computed()
    torch.set_default_dtype(torch.float32)
    assert out[0].dtype == out[1].dtype == torch.float64
    made = model.generate(**inputs(model, tokens, pixels), max_new_tokens=greedy, do_sample=False)[0, len(tokens) :].tolist()
    assert made == out[2], (made, out[2])
    return out


def write(name):
    folder = weights.fixture(name)
    config = transformers.AutoConfig.from_pretrained(folder)
    rng = torch.Generator().manual_seed(make.seed_of(name))
    if is_free(config):
        side = config.vision_config.patch_size
        images = [torch.randn((3, side * rows, side * columns), generator=rng) for rows, columns in GRIDS]
        stored = {f"pixels{i}": image for i, image in enumerate(images)}
        pixels = patches_of(config, images)
    else:
        side = config.vision_config.image_size
        pixels = torch.randn((2, 3, side, side), generator=rng)
        stored = {"pixels": pixels}
    while True:
        tokens = prompt(config, rng)
        rows, logits, greedy, margin = results(folder, torch.float64, tokens, pixels, GREEDY)
        if margin >= make.MARGIN and not (is_free(config) and any(t >= config.vision_start_token_id for t in greedy)):
            break
    out = {**stored, "rows": rows.float(), "tokens": torch.tensor(tokens, dtype=torch.int32), "logits": logits.float(), "greedy": torch.tensor(greedy, dtype=torch.int32)}
    for dtype, of in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        own, narrow, *_ = results(folder, dtype, tokens, pixels)
        out[f"error_{of}"] = (narrow.double() - logits).abs().amax(-1).float()
        if dtype is torch.float32:
            out["rows_error_f32"] = (own.double() - rows).abs().max().float().reshape(1)
    save_file(out, HERE / name / "images.safetensors")
    print(name, len(tokens), "tokens; margin", round(margin, 3), "; errors", out["rows_error_f32"].item(), out["error_f32"].max().item(), "of", logits.abs().max().item())


if __name__ == "__main__":
    for fixture in sys.argv[1:] or FIXTURES:
        write(fixture)
