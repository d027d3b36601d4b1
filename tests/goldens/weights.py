#!/usr/bin/env python3
"""Random weights from a seed: what a `.recipe` beside a fixture's `config.json` says, and `tests/support/src/weights.rs` makes in the same way, byte for byte.

    python weights.py NAME...     # prints folders under target/fixtures that have the weights
    python weights.py --measure FILE.safetensors > FILE.recipe
    python weights.py --hash FILE.recipe      # of the file that it makes, FNV-1a

Every line of a recipe is `DTYPE NAME SHAPE KIND`; `seed N` comes first. A name may have lists of numbers, `layers.{0..3,5}.weight`, and stands for all of them. Kinds:

- `normal MEAN DEVIATION`: the sum of four uniform 16-bit numbers, which is nearly normal;
- `uniform LOW HIGH`;
- `constant VALUE`;
- `bits HEX`: the tensor's bytes, of few or special numbers.

Number `i` of a tensor depends on the seed, the tensor's name and `i` only. All arithmetic is of integers, in units of 2^-36, and the last step rounds to even. Needs NumPy
only.
"""

import itertools
import json
import os
import re
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parent.parent / "target") / "fixtures"
# Counts up when the same recipe makes other bytes.
VERSION = 1
FRACTION = 36
# The deviation of a sum of four uniform 16-bit numbers.
DEVIATION = 37837
GOLDEN_RATIO = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
# Rows of results that goldens keep: the first, those at the ends of pages, and the last.
AT = [0, 1, 2, 7, 15, 16, 17, 23, 31, 32, 33, 39]
# Bytes, bits of the significand, the least exponent; integers have only the first.
DTYPES = {"f32": ("F32", 4, 24, -126), "bf16": ("BF16", 2, 8, -126), "f16": ("F16", 2, 11, -14), "i64": ("I64", 8, 0, 0)}


# ---- the generator


def fnv1a(data, h=0xCBF29CE484222325):
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & MASK
    return h


def mixed(z):
    """splitmix64's last step, of NumPy's or Python's numbers."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def random_bits(seed, name, count):
    """64 bits for each element."""
    key = mixed(fnv1a(name.encode()) ^ seed * GOLDEN_RATIO & MASK)
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN_RATIO) + np.uint64(key)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def micro(text):
    """Millionths of a decimal number."""
    match = re.fullmatch(r"(-?)(\d+)(?:\.(\d{1,6}))?", text)
    if not match:
        raise ValueError(f"`{text}` is not a decimal number of at most six places")
    sign, whole, part = match.groups()
    value = int(whole) * 10**6 + int((part or "").ljust(6, "0"))
    return -value if sign else value


def fixed(text):
    """A decimal number in units of 2^-36."""
    return (micro(text) << FRACTION) // 10**6


def numbers(kind, bits):
    """Numbers of a kind in units of 2^-36."""
    how, first, *second = kind
    if how == "normal":
        scale = (micro(second[0]) << FRACTION) // (10**6 * DEVIATION)
        parts = [(bits >> np.uint64(16 * i) & np.uint64(0xFFFF)).astype(np.int64) for i in range(4)]
        return fixed(first) + scale * (sum(parts) - 131070)
    if how == "uniform":
        low, high = fixed(first), fixed(second[0])
        return low + ((bits >> np.uint64(40)).astype(np.int64) * (high - low) >> 24)
    if how == "constant":
        return np.full(bits.shape, fixed(first), np.int64)
    raise ValueError(f"`{how}` is no kind of numbers")


def bit_length(a):
    length = np.zeros(a.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        large = a >> step > 0
        length += np.where(large, step, 0)
        a = np.where(large, a >> step, a)
    return length + (a > 0)


def rounded(v, dtype):
    """Bits of the nearest floating-point numbers, of equally near ones the even one."""
    _, size, digits, least = DTYPES[dtype]
    a = np.abs(v)
    # How many bits are cut off; numbers below the least exponent have fewer digits.
    cut = np.maximum(bit_length(a) - digits, FRACTION + least - (digits - 1))
    down, up = np.maximum(cut, 0), np.maximum(-cut, 0)
    half = np.where(down > 0, (np.int64(1) << np.maximum(down, 1) - 1) - 1 + (a >> down & 1), 0)
    q = a + half >> down << up
    # A significand that is full has one more exponent; one without its first digit has the least.
    exponent = cut - FRACTION + digits - 1 - least + 1
    code = np.where(q >> digits - 1 > 0, (exponent << digits - 1) + q - (1 << digits - 1), q)
    code = np.where(a == 0, 0, code) | np.where(v < 0, 1 << 8 * size - 1, 0)
    return code.astype(np.uint32 if size == 4 else np.uint16).tobytes()


def tensor(seed, dtype, name, shape, kind):
    """A tensor's bytes."""
    if kind[0] == "bits":
        return bytes.fromhex(kind[1])
    count = int(np.prod(shape, dtype=np.int64))
    with np.errstate(over="ignore"):
        return rounded(numbers(kind, random_bits(seed, name, count)), dtype)


# ---- recipes


def names_of(pattern):
    """All names that a pattern with lists of numbers stands for."""
    parts = re.split(r"\{([^}]*)\}", pattern)
    for i in range(1, len(parts), 2):
        parts[i] = [str(n) for run in parts[i].split(",") for n in range(int(run.split("..")[0]), int(run.split("..")[-1]) + 1)]
    return ["".join(one) for one in itertools.product(*([p] if isinstance(p, str) else p for p in parts))]


def read(text):
    """The seed, and for each tensor its type, name, shape and kind."""
    seed, tensors = None, []
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "seed":
            seed = int(words[1])
            continue
        dtype, pattern, shape, *kind = words
        sizes = [int(n) for n in shape.split("x")] if shape != "-" else []
        tensors += [(dtype, name, sizes, kind) for name in names_of(pattern)]
    return seed, tensors


def safetensors(text):
    """The file that a recipe makes: tensors in the order that the library writes them."""
    seed, tensors = read(text)
    tensors.sort(key=lambda t: (-DTYPES[t[0]][1], {"i64": 0, "f32": 1, "bf16": 2, "f16": 3}[t[0]], t[1]))
    header, data = {"__metadata__": {"format": "pt"}}, []
    at = 0
    for dtype, name, shape, kind in tensors:
        data.append(tensor(seed, dtype, name, shape, kind))
        header[name] = {"dtype": DTYPES[dtype][0], "shape": shape, "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + b"".join(data)


def make(folder):
    """Writes the weights of every recipe of a folder beside it."""
    for recipe in sorted(Path(folder).rglob("*.recipe")):
        recipe.with_suffix(".safetensors").write_bytes(safetensors(recipe.read_text()))


def fixture(source):
    """A folder with a fixture's files and its weights, made when first asked for; the fixture itself if it has no recipe."""
    source = Path(source)
    source = source if source.is_absolute() else HERE / source
    files = sorted(p.relative_to(source).as_posix() for p in source.rglob("*") if p.is_file())
    if not any(name.endswith(".recipe") for name in files):
        return source
    h = fnv1a(b"%d" % VERSION)
    for name in files:
        data = (source / name).read_bytes()
        h = fnv1a(b"%s\0%d\0" % (name.encode(), len(data)), h)
        h = fnv1a(data, h)
    place = TARGET / f"{h:016x}" / source.name
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="making-", dir=TARGET))
        for name in files:
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes((source / name).read_bytes())
        make(scratch)
        scratch.chmod(0o755)
        try:
            scratch.rename(place)
        except OSError:
            # Another process was first.
            for path in sorted(scratch.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            scratch.rmdir()
    return place


# ---- recipes of what a script drew


def pattern_of(names):
    """Patterns for names that differ in numbers only: one if the numbers are a product of lists, else more."""
    parts = [re.split(r"(?<![A-Za-z0-9])(\d+)(?![A-Za-z0-9])", name) for name in names]
    rows = sorted({tuple(int(n) for n in p[1::2]) for p in parts})
    lists = [sorted(set(column)) for column in zip(*rows)]
    if len(rows) != int(np.prod([len(column) for column in lists])):
        split = next(i for i, column in enumerate(lists) if len(column) > 1)
        groups = [[name for name, p in zip(names, parts) if int(p[1 + 2 * split]) == n] for n in lists[split]]
        return [pattern for group in groups for pattern in pattern_of(group)]
    words = list(parts[0])
    words[1::2] = [ranges(column) for column in lists]
    return ["".join(words)]


def ranges(numbers):
    if len(numbers) == 1:
        return str(numbers[0])
    runs = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return "{" + ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}..{r[-1]}" for r in runs) + "}"


def decimal(x, places):
    return f"{x:.{places}f}".rstrip("0").rstrip(".") if places else f"{x:.0f}"


def significant(x):
    """Two digits."""
    return decimal(x, max(0, min(6, 1 - int(np.floor(np.log10(abs(x)))))))


def kind_of(values):
    """The kind of numbers that are as these are; none where they are like no kind."""
    x = np.concatenate([v.ravel() for v in values]).astype(np.float64)
    if (x == x[0]).all() and float(decimal(x[0], 6)) == x[0]:
        return f"constant {decimal(x[0], 6)}"
    if any(v.size <= 8 for v in values):
        return None
    middle, deviation = x.mean(), x.std()
    far = np.abs(x - np.median(x)) > 8 * np.median(np.abs(x - np.median(x)))
    if x.size >= 32 and far.mean() > 0.02:
        return None
    if (0.49 <= x).all() and (x <= 1.51).all() and 0.75 < middle < 1.25:
        return "uniform 0.5 1.5"
    if x.size >= 64 and (((x - middle) / deviation) ** 4).mean() < 2.1:
        return f"uniform {decimal(x.min(), 1)} {decimal(x.max(), 1)}"
    error = 4 * deviation / x.size**0.5
    near = next((n for n in ("0", "1") if abs(middle - int(n)) < error), None)
    return f"normal {near or significant(middle)} {significant(deviation)}"


def measured(tensors, seed):
    """A recipe of tensors (`name: (dtype, shape, bytes)`): numbers as they have, the same kind for all that differ in numbers of their names only."""
    numpy_types = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "i64": np.dtype("<i8")}

    def values(dtype, data):
        if dtype == "bf16":
            return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        return np.frombuffer(data, numpy_types[dtype])

    alike = {}
    for name, (dtype, shape, data) in sorted(tensors.items()):
        alike.setdefault((re.sub(r"(?<![A-Za-z0-9])\d+(?![A-Za-z0-9])", "0", name), dtype, tuple(shape)), []).append((name, data))
    lines = []
    for (_, dtype, shape), found in alike.items():
        kind = None if dtype == "i64" else kind_of([values(dtype, data) for _, data in found])
        size = "x".join(map(str, shape)) or "-"
        if kind:
            lines += [f"{dtype} {pattern} {size} {kind}" for pattern in pattern_of([name for name, _ in found])]
        else:
            lines += [f"{dtype} {name} {size} bits {data.hex()}" for name, data in found]
    return f"seed {seed}\n" + "\n".join(lines) + "\n"


def written(seed, tensors):
    """A recipe that says the same as what `read` gives, tensor by tensor."""
    lines = [" ".join([dtype, name, "x".join(map(str, shape)) or "-", *kind]) for dtype, name, shape, kind in tensors]
    return f"seed {seed}\n" + "\n".join(lines) + "\n"


def tensors_in(path):
    """What a file of safetensors has."""
    whole = Path(path).read_bytes()
    size = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + size])
    dtypes = {stored: ours for ours, (stored, *_) in DTYPES.items()}
    return {
        name: (dtypes[t["dtype"]], t["shape"], whole[8 + size + t["data_offsets"][0] : 8 + size + t["data_offsets"][1]])
        for name, t in header.items()
        if name != "__metadata__"
    }


def remake(path, seed):
    """Puts a recipe beside a file of random weights; `make` then replaces the file."""
    path = Path(path)
    path.with_suffix(".recipe").write_text(measured(tensors_in(path), seed))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(measured(tensors_in(sys.argv[2]), fnv1a(Path(sys.argv[2]).parent.name.encode()) & 0xFFFFFFFF), end="")
    elif sys.argv[1:2] == ["--hash"]:
        print(f"{fnv1a(safetensors(Path(sys.argv[2]).read_text())):016x}")
    else:
        for name in sys.argv[1:]:
            print(fixture(name))
