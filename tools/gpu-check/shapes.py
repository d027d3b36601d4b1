"""Kernels whose speed is measured alone: their text, the step they run in, and the expected speed.
`prepare.py` lowers them, `speed.py` runs them.

    python tools/gpu-check/shapes.py FOLDER --small

writes some that an emulator can run: `kernels.lir`, for `llmcc lower`, and `speed.json`.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Shape:
    """A kernel to be timed. `parts`: for each sequence the tokens before the step and in it. `key`: among the first to be measured. `peer`: PyTorch has the like."""

    name: str
    what: str
    text: str
    parts: list
    # Share of the copy bandwidth, or of PyTorch's speed, that it should reach; None: no matter.
    goal: tuple = field(default=None)
    key: bool = False
    peer: bool = True
    # Where its code is.
    folder: str = "speed"
    kernel: str = ""

    def __post_init__(self):
        self.kernel = self.kernel or self.name

    def described(self):
        return {name: getattr(self, name) for name in ("name", "what", "parts", "goal", "key", "peer", "folder", "kernel")}


def product(name, what, form, n, k, rows, tile_m, tile_n, goal=None, elem="bf16", key=False):
    text = f"""kernel @{name} rows T {{
  param %x: rows {elem}[T, {k}]
  param %w: matrix {form}.frag[{n}, {k}]
  param %y: rows bf16[T, {n}]
  matmul x=%x tile_m={tile_m} {{
    segment n={n} tile_n={tile_n} weights(%w): %y[0..] = acc0
  }}
}}
"""
    return Shape(name, what, text, [[0, rows]], goal, key or bool(goal))


def attention(name, what, heads, kv_heads, d, parts, tile_m, cache="bf16", goal=None, key=False):
    width = heads * d
    text = f"""kernel @{name} rows T {{
  param %q: rows bf16[T, {width}]
  param %kv: kv<{cache}, {kv_heads}x{d}>
  param %y: rows bf16[T, {width}]
  attention q=%q kv=%kv heads={heads} scale={d**-0.5}{"" if tile_m == 1 else f" tile_m={tile_m}"} out=%y
}}
"""
    return Shape(name, what, text, parts, goal, key or bool(goal))


def latent(name, what, heads, own, d, parts, key=False):
    """DeepSeek's attention: keys that are `own` columns followed by the value's `d`, the same for all heads."""
    text = f"""kernel @{name} rows T {{
  param %q: rows bf16[T, {heads * d}]
  param %own: rows bf16[T, {heads * own}]
  param %kv: kv<bf16, 1x{own + d}/{d}, latent>
  param %y: rows bf16[T, {heads * d}]
  attention q=%q own=%own kv=%kv heads={heads} scale={(own + d) ** -0.5} out=%y
}}
"""
    return Shape(name, what, text, parts, key=key, peer=False)


def recurrence(name, what, update, heads, groups, rows, cols, parts, key=False):
    """Linear attention with decay, its delta rule (gated), or RWKV-7's."""
    keys, values = groups * rows, heads * cols
    rate = {"plain": f"rows f32[T, {heads}]", "delta": f"rows f32[T, {heads}]", "erase": f"rows f32[T, {keys}]"}[update]
    text = f"""kernel @{name} rows T {{
  param %x: rows f32[T, {2 * keys + values}]
  param %decay: rows f32[T, {heads * rows if update == "erase" else heads}]
  param %with: {rate}
  param %s: state<f32, {heads}x{rows}x{cols}>
  param %y: rows f32[T, {values}]
  recurrence q=%x q_start=0 k=%x k_start={keys} groups={groups} v=%x v_start={2 * keys} decay=%decay update={update} with=%with{
    " write=%with" if update == "erase" else ""
} state=%s out=%y
}}
"""
    return Shape(name, what, text, parts, key=key, peer=False)


def convolution(name, what, channels, parts):
    text = f"""kernel @{name} rows T {{
  param %x: rows f32[T, {channels}]
  param %taps: vector f32[{4 * channels}]
  param %s: state<f32, 1x3x{channels}>
  param %y: rows f32[T, {channels}]
  causal_conv x=%x start=0 taps=%taps width=4 state=%s out=%y
}}
"""
    return Shape(name, what, text, parts, peer=False)


def means(name, what, channels, parts):
    text = f"""kernel @{name} rows T {{
  param %k: rows f32[T, {channels}]
  param %v: rows f32[T, {channels}]
  param %decay: vector f32[{channels}]
  param %bonus: vector f32[{channels}]
  param %s: state<f32, 1x3x{channels}>
  param %y: rows f32[T, {channels}]
  wkv k=%k k_start=0 v=%v v_start=0 decay=%decay bonus=%bonus state=%s out=%y
}}
"""
    return Shape(name, what, text, parts, peer=False)


def experts(name, what, form, all_, top, n, k, rows, tile_m, key=False):
    """Gate and up of each token's experts."""
    text = f"""kernel @{name} rows T {{
  param %x: rows bf16[T, {k}]
  param %r: rows f32[T, {2 * top}]
  param %g: matrix {form}.frag[{all_ * n}, {k}]
  param %u: matrix {form}.frag[{all_ * n}, {k}]
  param %y: rows bf16[T, {top * n}]
  expert_matmul x=%x routes=%r experts={all_} top={top} tile_m={tile_m} {{
    segment n={n} tile_n=16 weights(%g, %u): %y[0..] = mul(silu(acc0), acc1)
  }}
}}
"""
    return Shape(name, what, text, [[0, rows]], key=key, peer=False)


def route(name, what, all_, top, groups, kept, rows):
    text = f"""kernel @{name} rows T {{
  param %x: rows f32[T, {all_}]
  param %b: vector f32[{all_}]
  param %y: rows f32[T, {2 * top}]
  route x=%x bias=%b score=sigmoid top={top} normalize eps=1e-20 scale=2.5 groups={groups} kept={kept}{" pairs" if groups > 1 else ""} out=%y
}}
"""
    return Shape(name, what, text, [[0, rows]], peer=False)


def of_sequences(small):
    """Kernels that keep states, choose experts, or read a latent cache."""
    if small:
        yield recurrence("s.delta", "gated delta rule, 9 tokens, 4 heads of 16×16", "delta", 4, 2, 16, 16, [[3, 9]])
        yield recurrence("s.erase", "RWKV-7, 9 tokens, 2 heads of 16×16", "erase", 2, 2, 16, 16, [[3, 9]])
        yield recurrence("s.plain", "Mamba-2, 5 tokens, 4 heads of 32×16", "plain", 4, 1, 32, 16, [[0, 5]])
        yield convolution("s.conv", "convolution, 9 tokens, 40 channels", 40, [[3, 9]])
        yield means("s.means", "RWKV-4, 9 tokens, 40 channels", 40, [[3, 9]])
        yield experts("s.experts", "w4 experts, 5 tokens, 2 of 8", "w4g32", 8, 2, 32, 64, 5, 8)
        yield route("s.route", "router, 5 tokens, 4 of 16 experts in 4 groups", 16, 4, 4, 2, 5)
        yield latent("s.latent", "latent attention, 1 token after 3", 2, 8, 16, [[3, 1]])
        return
    for rows in (1, 32):
        parts, of = [[512, 1]] * rows, f"{rows} × 1 token"
        yield recurrence(f"decode.delta_{rows}", f"gated delta rule, {of}, 32 heads of 128×128", "delta", 32, 16, 128, 128, parts, rows == 1)
        yield recurrence(f"decode.mamba2_{rows}", f"Mamba-2, {of}, 80 heads of 128×64", "plain", 80, 1, 128, 64, parts)
        yield recurrence(f"decode.rwkv7_{rows}", f"RWKV-7, {of}, 64 heads of 64×64", "erase", 64, 64, 64, 64, parts)
        yield convolution(f"decode.conv_{rows}", f"convolution, {of}, 8192 channels", 8192, parts)
        yield means(f"decode.rwkv4_{rows}", f"RWKV-4, {of}, 4096 channels", 4096, parts)
        yield latent(f"decode.latent_{rows}", f"latent attention, {of} after 4096, 16 heads, 64 + 512", 16, 64, 512, [[4096, 1]] * rows, rows == 1)
    for what, update, heads, groups, rows, cols in (("delta", "delta", 32, 16, 128, 128), ("mamba2", "plain", 80, 1, 128, 64), ("rwkv7", "erase", 64, 64, 64, 64)):
        yield recurrence(f"prompt.{what}", f"{what}, prompt of 512, {heads} heads of {rows}×{cols}", update, heads, groups, rows, cols, [[0, 512]], what == "delta")
    yield convolution("prompt.conv", "convolution, prompt of 512, 8192 channels", 8192, [[0, 512]])
    yield latent("prompt.latent", "latent attention, prompt of 512, 16 heads, 64 + 512", 16, 64, 512, [[0, 512]])
    # Qwen3-30B-A3B, in tiles of one row for one token.
    for rows, tile in ((1, 1), (8, 8), (64, 8), (512, 8)):
        yield experts(f"experts.w4_{rows}", f"w4 experts, {rows} tokens, 8 of 128, 768×2048, gate and up", "w4g128", 128, 8, 768, 2048, rows, tile, rows == 1)
        yield route(f"route_{rows}", f"router, {rows} tokens, 8 of 256 experts in 8 groups", 256, 8, 8, 4, rows)


def shapes(small=False):
    """All of them; `small`: a few of the same kind that an emulator can run."""
    if small:
        yield product("s.w4", "w4 product, 1 token, 64×256", "w4g128", 64, 256, 1, 8, 16)
        yield product("s.bf16", "bf16 product, 70 tokens, 128×128", "bf16", 128, 128, 70, 128, 128)
        yield product("s.fp8", "fp8 product, 70 tokens, 128×256", "fp8", 128, 256, 70, 128, 128, elem="fp8")
        yield attention("s.decode", "attention, 1 token after 40", 4, 1, 64, [[40, 1]], 1)
        yield attention("s.decode8", "attention, 1 token after 40, int8 cache", 4, 1, 64, [[40, 1]], 1, "int8")
        yield from of_sequences(small)
        yield attention("s.prompt", "attention, prompt of 40", 4, 1, 64, [[0, 40]], 32)
        return
    for form, label in (("w4g128", "w4"), ("w8g128", "w8"), ("bf16", "bf16")):
        for n, k in ((4096, 14336), (14336, 4096), (8192, 8192), (28672, 8192), (8192, 28672)):
            goal = ("copy", 85) if label == "w4" else None
            yield product(f"one.{label}_{n}_{k}", f"{label} product, 1 token, {n}×{k}", form, n, k, 1, 8, 16, goal)
    # Few rows in the tiles that models take for them.
    for rows, tile, width in ((8, 8, 16), (16, 16, 128), (32, 32, 128), (64, 64, 128), (96, 128, 128), (128, 128, 128)):
        yield product(f"few.w4_{rows}", f"w4 product, {rows} tokens, 14336×4096, tiles of {tile}", "w4g128", 14336, 4096, rows, tile, width, key=rows in (64, 128))
    for rows, tile in ((1, 16), (8, 16), (64, 64)):
        what = f"fp8 product, {rows} tokens, 14336×4096, tiles of {tile}"
        yield product(f"few.fp8_{rows}", what, "fp8", 14336, 4096, rows, tile, 128, elem="fp8", key=rows == 1)
    for tile in (128, 256):
        yield product(f"many.bf16_{tile}", f"bf16 product, 8192³, tiles of {tile}", "bf16", 8192, 8192, 8192, tile, 128, ("torch", 80))
        yield product(f"many.w4_{tile}", f"w4 product, 8192³, tiles of {tile}", "w4g128", 8192, 8192, 8192, tile, 128, key=True)
        yield product(f"prompt.bf16_{tile}", f"bf16 product, 512 tokens, 14336×4096, tiles of {tile}", "bf16", 14336, 4096, 512, tile, 128, key=True)
        yield product(f"many.fp8_{tile}", f"fp8 product, 8192³, tiles of {tile}", "fp8", 8192, 8192, 8192, tile, 128, elem="fp8", key=True)
        yield product(f"prompt.fp8_{tile}", f"fp8 product, 512 tokens, 14336×4096, tiles of {tile}", "fp8", 14336, 4096, 512, tile, 128, elem="fp8")
    # Four and eight query heads per KV head.
    for heads, kv, d in ((32, 8, 64), (32, 8, 128), (64, 8, 64), (64, 8, 128)):
        group = heads // kv
        for length in (2048, 8192):
            what = f"attention, prompt of {length}, {heads} heads of {d}, {group} to a KV head"
            yield attention(f"prompt.d{d}g{group}_{length}", what, heads, kv, d, [[0, length]], 128 // group, goal=("torch", 60))
        for batch, length in ((1, 4096), (1, 32768), (32, 4096)):
            for cache in ("bf16", "int8") if group == 4 else ("bf16",):
                what = f"attention, {batch} × 1 token after {length}, {heads} heads of {d}, {group} to a KV head, {cache} cache"
                name, parts = f"decode.d{d}g{group}_{batch}x{length}_{cache}", [[length, 1]] * batch
                yield attention(name, what, heads, kv, d, parts, 1, cache, key=(d, cache, batch) == (128, "bf16", 1))
    yield from of_sequences(small)
    yield attention("prompt.int8", "attention, prompt of 2048, heads of 128, int8 cache", 32, 8, 128, [[0, 2048]], 32, "int8")


# Rows, and tokens before them, by the rows of a product's tile; of attention.
STEPS = {8: [[1, 512], [8, 512]], 64: [[16, 512], [33, 512], [64, 512]], 256: [[96, 0], [128, 0], [512, 0], [2048, 0]]}
DECODING, PROMPT = [[1, 512], [1, 4096], [1, 32768]], [[512, 0], [2048, 0]]


def of_models(described, prefix="llama_"):
    """The kernels of large models, in the steps that they are made for: with prologues, stores to the cache, and the tiles that the compiler chose."""
    for kernel in described["kernels"]:
        family, tile = kernel["body"]["family"], kernel["body"].get("tile_m", 1)
        if not kernel["name"].startswith(prefix) or family not in ("matmul", "attention"):
            continue
        if family == "matmul":
            steps = next((steps for most, steps in STEPS.items() if tile <= most), [])
        else:
            steps = DECODING if tile == 1 else PROMPT
        for rows, past in steps:
            if kernel["rows"] == "R" and rows > 64:
                # Logits of so many rows nobody wants.
                continue
            # Rows of logits are of as many tokens.
            parts = [[past, 1]] * rows if rows <= 64 else [[0, rows]]
            what = f"{kernel['name']}, {rows} tokens after {past}" if past else f"{kernel['name']}, a prompt of {rows}"
            yield Shape(f"{kernel['name']}_{rows}_{past}", what, "", parts, peer=False, folder="kernels", kernel=kernel["name"], key=(rows, past) == (1, 512))


def describe(folder, mine):
    (folder / "speed.json").write_text(json.dumps([s.described() for s in mine], indent=1, ensure_ascii=False) + "\n")


def write(folder, small=False):
    """Writes the kernels' text, and the plan for them; returns the file of the text."""
    folder.mkdir(parents=True, exist_ok=True)
    mine = list(shapes(small))
    describe(folder, mine)
    file = folder / "kernels.lir"
    file.write_text("\n".join(s.text for s in mine))
    return file


if __name__ == "__main__":
    write(Path(sys.argv[1]), "--small" in sys.argv)
