"""Kernels whose speed is measured alone: their text, the step they run in, and what they should reach. `prepare.py` lowers them, `speed.py` runs them.

    python tools/gpu-check/shapes.py FOLDER --small

writes some that an emulator can run: `kernels.lir`, for `llmcc lower`, and `speed.json`.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Shape:
    """A kernel to be timed. `parts`: for each sequence the tokens before the step and in it."""

    name: str
    what: str
    text: str
    parts: list
    # Share of the copy bandwidth, or of PyTorch's speed, that it should reach; None: no matter.
    goal: tuple = field(default=None)

    def described(self):
        return {"name": self.name, "what": self.what, "parts": self.parts, "goal": self.goal}


def product(name, what, form, n, k, rows, tile_m, tile_n, goal=None, elem="bf16"):
    text = f"""kernel @{name} rows T {{
  param %x: rows {elem}[T, {k}]
  param %w: matrix {form}.frag[{n}, {k}]
  param %y: rows bf16[T, {n}]
  matmul x=%x tile_m={tile_m} {{
    segment n={n} tile_n={tile_n} weights(%w): %y[0..] = acc0
  }}
}}
"""
    return Shape(name, what, text, [[0, rows]], goal)


def attention(name, what, heads, kv_heads, d, parts, tile_m, cache="bf16", goal=None):
    width = heads * d
    text = f"""kernel @{name} rows T {{
  param %q: rows bf16[T, {width}]
  param %kv: kv<{cache}, {kv_heads}x{d}>
  param %y: rows bf16[T, {width}]
  attention q=%q kv=%kv heads={heads} scale={d**-0.5}{"" if tile_m == 1 else f" tile_m={tile_m}"} out=%y
}}
"""
    return Shape(name, what, text, parts, goal)


def shapes(small=False):
    """All of them; `small`: a few of the same kind that an emulator can run."""
    if small:
        yield product("s.w4", "w4 product, 1 token, 64×256", "w4g128", 64, 256, 1, 8, 16)
        yield product("s.bf16", "bf16 product, 70 tokens, 128×128", "bf16", 128, 128, 70, 128, 128)
        yield product("s.fp8", "fp8 product, 70 tokens, 128×256", "fp8", 128, 256, 70, 128, 128, elem="fp8")
        yield attention("s.decode", "attention, 1 token after 40", 4, 1, 64, [[40, 1]], 1)
        yield attention("s.decode8", "attention, 1 token after 40, int8 cache", 4, 1, 64, [[40, 1]], 1, "int8")
        yield attention("s.prompt", "attention, prompt of 40", 4, 1, 64, [[0, 40]], 32)
        return
    for form, label in (("w4g128", "w4"), ("w8g128", "w8"), ("bf16", "bf16")):
        for n, k in ((4096, 14336), (14336, 4096), (8192, 8192), (28672, 8192), (8192, 28672)):
            goal = ("copy", 85) if label == "w4" else None
            yield product(f"one.{label}_{n}_{k}", f"{label} product, 1 token, {n}×{k}", form, n, k, 1, 8, 16, goal)
    for rows, tile in ((8, 8), (16, 16), (32, 32), (64, 64)):
        yield product(f"few.w4_{rows}", f"w4 product, {rows} tokens, 14336×4096", "w4g128", 14336, 4096, rows, tile, 16 if tile == 8 else 128)
    for tile in (128, 256):
        yield product(f"many.bf16_{tile}", f"bf16 product, 8192³, tiles of {tile}", "bf16", 8192, 8192, 8192, tile, 128, ("torch", 80))
        yield product(f"many.w4_{tile}", f"w4 product, 8192³, tiles of {tile}", "w4g128", 8192, 8192, 8192, tile, 128)
        yield product(f"prompt.bf16_{tile}", f"bf16 product, 512 tokens, 14336×4096, tiles of {tile}", "bf16", 14336, 4096, 512, tile, 128)
        yield product(f"many.fp8_{tile}", f"fp8 product, 8192³, tiles of {tile}", "fp8", 8192, 8192, 8192, tile, 128, elem="fp8")
        yield product(f"prompt.fp8_{tile}", f"fp8 product, 512 tokens, 14336×4096, tiles of {tile}", "fp8", 14336, 4096, 512, tile, 128, elem="fp8")
    for heads, kv, d in ((32, 8, 64), (32, 8, 128)):
        for length in (2048, 8192):
            yield attention(f"prompt.d{d}_{length}", f"attention, prompt of {length}, heads of {d}", heads, kv, d, [[0, length]], 32, goal=("torch", 60))
        for batch, length in ((1, 4096), (1, 32768), (32, 4096)):
            for cache in ("bf16", "int8"):
                what = f"attention, {batch} × 1 token after {length}, heads of {d}, {cache} cache"
                yield attention(f"decode.d{d}_{batch}x{length}_{cache}", what, heads, kv, d, [[length, 1]] * batch, 1, cache)
    yield attention("prompt.int8", "attention, prompt of 2048, heads of 128, int8 cache", 32, 8, 128, [[0, 2048]], 32, "int8")


def write(folder, small=False):
    """Writes the kernels' text, and what is to be done with them; returns the file of the text."""
    folder.mkdir(parents=True, exist_ok=True)
    mine = list(shapes(small))
    (folder / "speed.json").write_text(json.dumps([s.described() for s in mine], indent=1, ensure_ascii=False) + "\n")
    file = folder / "kernels.lir"
    file.write_text("\n".join(s.text for s in mine))
    return file


if __name__ == "__main__":
    write(Path(sys.argv[1]), "--small" in sys.argv)
