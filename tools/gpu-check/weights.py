"""Random weights for an artifact that was compiled with `--weights absent`: its `.weights` file, by the tensor table of its manifest.

Values have the size that trained weights have after initialization: matrices are normal (quantized: uniform codes) with standard deviation 1/sqrt(columns), gains are
one, and frequencies fall from 1. A few pieces of random blocks are repeated: making all of 16 GB at random would take minutes.
"""

import re
import time

import numpy as np

ALIGN = 64
TILE_K = 64
TILE_BYTES = {"w8": 1024, "w4": 512, "w4a": 512}
FLOATS = {"f32": 4, "f16": 2, "bf16": 2}
# Standard deviation of the codes: uniform in 0..255 and in 0..15.
SPREAD = {"w8": 73.9, "w4": 4.61, "w4a": 4.61}
# Bytes of random blocks that are repeated: more than second-level caches hold.
PIECE = 1 << 27


def storage(text):
    """`w4g128.fragment[4096, 14336]` → (`w4`, 128, [4096, 14336])."""
    found = re.fullmatch(r"([a-z]+\d*a?)(?:16)?(?:g(\d+))?([^\[]*)\[([\d, ]+)\]", text)
    form = re.match(r"bf16|f16|f32|w8|w4a|w4", text)
    if not found or not form:
        raise ValueError(f"a tensor is stored as {text!r}, which this script does not know")
    group = re.match(form.group() + r"g(\d+)", text)
    return form.group(), int(group.group(1)) if group else 0, [int(x) for x in found.group(4).split(",")]


def floats(form, count, k, rng):
    x = rng.standard_normal(count, np.float32) * np.float32(k**-0.5)
    if form == "bf16":
        return (x.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return x.astype({"f32": np.float32, "f16": np.float16}[form]).view(np.uint8)


def blocks(form, group, k, each, count, rng):
    """So many packed blocks of 16 rows, `each` bytes long."""
    if form in FLOATS:
        # Blocks of floats have no other parts, so their order does not matter.
        return floats(form, count * each // FLOATS[form], k, rng)
    padded = -(-k // TILE_K) * TILE_K
    head = each - padded // TILE_K * TILE_BYTES[form]
    data = rng.integers(0, 256, (count, each), np.uint8)
    scales = np.full((count, padded // group * 16), k**-0.5 / SPREAD[form], np.float16)
    parts = scales if form != "w4a" else np.concatenate([scales, -7.5 * scales], 1)
    data[:, :head] = 0
    data[:, : 2 * parts.shape[1]] = np.ascontiguousarray(parts, np.float16).view(np.uint8)
    return data.reshape(-1)


def vector(name, length):
    if "inv_freq" in name or "rope" in name:
        return (500000.0 ** (-np.arange(length) / length)).astype(np.float32)
    return np.ones(length, np.float32)


def write(manifest, path, seed=1):
    """Writes the weights; returns bytes and seconds."""
    began, at = time.time(), 0
    rng, made = np.random.default_rng(seed), {}
    with open(path, "wb", buffering=0) as out:

        def put(data):
            nonlocal at
            view = memoryview(data).cast("B")
            while view:
                view = view[out.write(view) :]
            at += data.nbytes

        for tensor in manifest["weights"]["tensors"]:
            if tensor["offset"] != at:
                put(np.zeros(tensor["offset"] - at, np.uint8))
            form, group, shape = storage(tensor["storage"])
            if len(shape) == 1:
                put(vector(tensor["name"], shape[0]))
            else:
                n, k = shape
                count = -(-n // 16)
                each, left = tensor["bytes"] // count, tensor["bytes"]
                key = form, group, k
                if key not in made:
                    made[key] = blocks(form, group, k, each, max(1, min(count, PIECE // each)), rng)
                while left:
                    piece = made[key][:left]
                    put(piece)
                    left -= piece.nbytes
            if at != tensor["offset"] + tensor["bytes"]:
                raise ValueError(f"{tensor['name']}: made {at - tensor['offset']} bytes of {tensor['bytes']}")
        put(np.zeros(-at % ALIGN, np.uint8))
    return at, time.time() - began
