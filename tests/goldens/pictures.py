#!/usr/bin/env python3
"""Small pictures in the formats that artifacts read, and what Transformers makes of them: writes `pictures/`.

    python pictures.py

- Files with pixels by a formula: every kind of colours that formats have, and a turned one.
- `pixels.safetensors`: `FILE` u8[height, width, 3], the pixels by `transformers.image_utils.load_image`; of some files also `FILE PROCESSOR pil` and `FILE PROCESSOR
  torchvision` u8[3, height, width], what the two backends of an image processor make of these before they rescale and normalize, and `FILE PROCESSOR` f32[3, height, width],
  Pillow's normalized. `processors.json` has the settings by the processor's name.
- `patches.safetensors`: see `patches`."""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPImageProcessor, CLIPImageProcessorPil, Gemma3ImageProcessor, Gemma3ImageProcessorPil, SiglipImageProcessor, SiglipImageProcessorPil
from transformers import Qwen2VLImageProcessor, Qwen2VLImageProcessorPil
from transformers.image_utils import load_image
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

PLACE = Path(__file__).parent / "pictures"
WIDTH, HEIGHT = 47, 30


def channel(k, bits=8, width=WIDTH, height=HEIGHT):
    """Waves, edges and a gradient."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    v = 0.5 + 0.3 * np.sin((x * (k + 1) + y * (3 - k)) / 4) + 0.2 * (((x // 7 + y // 5 + k) % 2) - 0.5)
    return np.clip(np.rint(v * (2**bits - 1)), 0, 2**bits - 1).astype(np.uint16 if bits > 8 else np.uint8)


def pictures():
    """Names and images, with the arguments they are saved with."""
    rgb = Image.fromarray(np.stack([channel(k) for k in range(3)], -1))
    grey = Image.fromarray(channel(1))
    alpha = Image.fromarray(channel(2))
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    la = Image.merge("LA", (grey, alpha))
    palette = rgb.quantize(32)
    smooth = Image.fromarray(np.stack([channel(k) // 2 + 40 for k in range(3)], -1))
    turned = Image.Exif()
    turned[0x0112] = 6
    return {
        "rgb.png": (rgb, {}),
        "grey.png": (grey, {}),
        "rgba.png": (rgba, {}),
        "grey_alpha.png": (la, {}),
        "palette.png": (palette, {}),
        "palette_clear.png": (palette, {"transparency": 3}),
        "bits.png": (Image.fromarray(channel(0) > 127), {}),
        "grey16.png": (Image.fromarray(channel(1, 16)), {}),
        "turned.png": (rgb, {"exif": turned}),
        "rgb.jpg": (smooth, {"quality": 92, "subsampling": 0}),
        "halved.jpg": (smooth, {"quality": 90, "subsampling": 2}),
        "grey.jpg": (grey, {"quality": 90}),
        "turned.jpg": (smooth, {"quality": 92, "subsampling": 0, "exif": turned}),
        "progressive.jpg": (smooth, {"quality": 92, "subsampling": 0, "progressive": True}),
        "exact.webp": (rgba, {"lossless": True, "exact": True}),
        "lossy.webp": (smooth, {"quality": 90}),
        "two.gif": (palette, {"save_all": True, "append_images": [palette.rotate(180)]}),
        "rgb.bmp": (rgb, {}),
        "palette.bmp": (palette, {}),
        "wide.png": (Image.fromarray(np.stack([channel(k, width=90, height=9) for k in range(3)], -1)), {}),
        "tall.png": (Image.fromarray(np.stack([channel(k, width=8, height=61) for k in range(3)], -1)), {}),
    }


PROCESSORS = {
    "clip": (CLIPImageProcessorPil, CLIPImageProcessor, {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}}),
    "clip_larger": (CLIPImageProcessorPil, CLIPImageProcessor, {"size": {"shortest_edge": 40}, "crop_size": {"height": 40, "width": 40}}),
    "clip_padded": (CLIPImageProcessorPil, CLIPImageProcessor, {"size": {"shortest_edge": 21}, "crop_size": {"height": 24, "width": 24}}),
    "siglip": (SiglipImageProcessorPil, SiglipImageProcessor, {"size": {"height": 28, "width": 28}}),
    "gemma3": (Gemma3ImageProcessorPil, Gemma3ImageProcessor, {"size": {"height": 24, "width": 24}}),
    "gemma3_larger": (Gemma3ImageProcessorPil, Gemma3ImageProcessor, {"size": {"height": 40, "width": 40}}),
}
# Processors see these; the first one normalized, too.
SEEN = ("rgb.png", "wide.png", "tall.png")


def main():
    PLACE.mkdir(exist_ok=True)
    out = {}
    for name, (image, how) in pictures().items():
        image.save(PLACE / name, **how)
        loaded = load_image(str(PLACE / name))
        out[name] = torch.from_numpy(np.array(loaded))
        for of, (pil, tv, sizes) in PROCESSORS.items() if name in SEEN else ():
            for backend, cls in (("pil", pil), ("torchvision", tv)):
                pixels = cls(**sizes, do_rescale=False, do_normalize=False)(images=loaded, return_tensors="pt")["pixel_values"][0]
                assert pixels.dtype == torch.uint8, pixels.dtype
                out[f"{name} {of} {backend}"] = pixels.contiguous()
            if name == SEEN[0]:
                out[f"{name} {of}"] = pil(**sizes)(images=loaded, return_tensors="pt")["pixel_values"][0].float().contiguous()
    save_file(out, PLACE / "pixels.safetensors")
    fields = ("size", "crop_size", "do_center_crop", "resample", "rescale_factor", "image_mean", "image_std", "do_convert_rgb")
    settings = {of: {name: value for name, value in json.loads(cls(**sizes).to_json_string()).items() if name in fields} for of, (_, cls, sizes) in PROCESSORS.items()}
    (PLACE / "processors.json").write_text(json.dumps(settings, indent=2) + "\n")


def patches():
    """`patches.safetensors`: `FILE pil`, `FILE torchvision` u8[patches, columns] and `FILE grid` i32[2], what Qwen2-VL's processors make of files; `FILE` f32, Pillow's
    normalized; `smart` i32[n, 6]: heights, widths, least and most pixels, and what they become in multiples of 28."""
    out, sizes = {}, {"size": {"shortest_edge": 400, "longest_edge": 1600}, "patch_size": 4, "merge_size": 2, "temporal_patch_size": 2}
    for name in SEEN:
        loaded = load_image(str(PLACE / name))
        for backend, cls in (("pil", Qwen2VLImageProcessorPil), ("torchvision", Qwen2VLImageProcessor)):
            made = cls(**sizes, do_rescale=False, do_normalize=False)(images=loaded, return_tensors="pt")
            levels = made["pixel_values"]
            assert (levels == levels.round()).all()
            out[f"{name} {backend}"] = levels.to(torch.uint8).contiguous()
        out[f"{name} grid"] = made["image_grid_thw"][0, 1:].int()
        out[name] = Qwen2VLImageProcessorPil(**sizes)(images=loaded, return_tensors="pt")["pixel_values"].float().contiguous()
    sides = [(1, 1), (14, 14), (42, 70), (56, 56), (480, 640), (1080, 1920), (3000, 4000), (30, 5000), (5000, 30), (100, 19999), (333, 777), (1001, 1001)]
    limits = [(3136, 802816), (3136, 1003520), (100352, 12845056)]
    out["smart"] = torch.tensor([[h, w, least, most, *smart_resize(h, w, 28, least, most)] for h, w in sides for least, most in limits], dtype=torch.int32)
    save_file(out, PLACE / "patches.safetensors")


if __name__ == "__main__":
    main()
    patches()
