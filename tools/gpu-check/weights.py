"""Random weights for an artifact that was compiled with `--weights absent`: its `.weights` file, by the tensor table of its manifest.

The same seed gives the same file with the same version of PyTorch and the same device. Values have the size that trained weights have after initialization:
matrices are normal (quantized: uniform codes) with standard deviation 1/sqrt(columns), gains are one, and frequencies fall from 1.
"""

import re
import time

import torch

ALIGN = 64
TILE_K = 64
TILE_BYTES = {"w8": 1024, "w4": 512, "w4a": 512}
FLOATS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Standard deviation of the codes: uniform in 0..255 and in 0..15.
SPREAD = {"w8": 73.9, "w4": 4.61, "w4a": 4.61}
PIECE = 1 << 28


def storage(text):
    """`w4g128.fragment[4096, 14336]` → (`w4`, 128, [4096, 14336])."""
    found = re.fullmatch(r"([a-z]+\d*a?)(?:16)?(?:g(\d+))?([^\[]*)\[([\d, ]+)\]", text)
    form = re.match(r"bf16|f16|f32|w8|w4a|w4", text)
    if not found or not form:
        raise ValueError(f"a tensor is stored as {text!r}, which this script does not know")
    group = re.match(form.group() + r"g(\d+)", text)
    return form.group(), int(group.group(1)) if group else 0, [int(x) for x in found.group(4).split(",")]


def matrix(form, group, n, k, size, device, generator):
    """The bytes of a packed matrix, in pieces."""
    blocks = -(-n // 16)
    each = size // blocks
    if form in FLOATS:
        # Blocks of floats have no other parts, so their order does not matter.
        dtype, left = FLOATS[form], size // torch.empty(0, dtype=FLOATS[form]).element_size()
        while left:
            count = min(left, PIECE)
            yield (torch.randn(count, device=device, generator=generator, dtype=torch.float32) * k**-0.5).to(dtype).view(torch.uint8)
            left -= count
        return
    padded = -(-k // TILE_K) * TILE_K
    groups = -(-padded // group)
    codes = padded // TILE_K * TILE_BYTES[form]
    head = each - codes
    some = max(1, PIECE // each)
    for first in range(0, blocks, some):
        count = min(some, blocks - first)
        data = torch.randint(0, 256, (count, each), device=device, generator=generator, dtype=torch.uint8)
        step = k**-0.5 / SPREAD[form]
        scales = torch.full((count, groups * 16), step, device=device, dtype=torch.float16)
        parts = [scales] if form != "w4a" else [scales, -7.5 * scales]
        parts = torch.cat(parts, 1).view(torch.uint8)
        data[:, :head] = 0
        data[:, : parts.shape[1]] = parts
        yield data.reshape(-1)


def vector(name, length, device):
    if "inv_freq" in name or "rope" in name:
        i = torch.arange(length, device=device, dtype=torch.float64)
        return (500000.0 ** (-i / length)).to(torch.float32).view(torch.uint8)
    return torch.ones(length, device=device, dtype=torch.float32).view(torch.uint8)


def write(manifest, path, device, seed=1):
    """Writes the weights; returns bytes and seconds."""
    began = time.time()
    generator = torch.Generator(device=device).manual_seed(seed)
    at = 0
    with open(path, "wb", buffering=0) as out:

        def put(data):
            nonlocal at
            out.write(memoryview(data.cpu().numpy()))
            at += data.numel()

        for tensor in manifest["weights"]["tensors"]:
            if tensor["offset"] != at:
                out.write(bytes(tensor["offset"] - at))
                at = tensor["offset"]
            form, group, shape = storage(tensor["storage"])
            if len(shape) == 1:
                put(vector(tensor["name"], shape[0], device))
            else:
                for piece in matrix(form, group, *shape, tensor["bytes"], device, generator):
                    put(piece)
            if at != tensor["offset"] + tensor["bytes"]:
                raise ValueError(f"{tensor['name']}: made {at - tensor['offset']} bytes of {tensor['bytes']}")
        out.write(bytes(-at % ALIGN))
    return at + -at % ALIGN, time.time() - began
