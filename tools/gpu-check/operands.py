"""Random operands of kernels: the bytes that a kernel reads, in the layouts of `runtime/abi/src/layout.rs`, and the numbers that they mean."""

from dataclasses import dataclass, field

import numpy as np

BLOCK, TILE_K, PAGE = 16, 64, 16
# Codes of quantized weights: how many, which of them is zero, and their standard deviation when all are equally likely.
CODES = {"w8": (256, 128, 73.9), "w4": (16, 8, 4.61), "w4a": (16, 0, 4.61)}
# The numbers that e4m3 codes stand for: sign, four bits of exponent, three of mantissa. The two
# codes that are no numbers get their neighbour's.
E4M3 = np.array([(1 - 2 * (c >> 7)) * ((1 + (c & 7) / 8) * 2.0 ** ((c >> 3 & 15) - 7) if c >> 3 & 15 else (c & 7) / 8 * 2.0**-6) for c in range(256)])


class Unknown(Exception):
    """Something that this script has not been taught."""


def up(x, to):
    return -(-x // to) * to


@dataclass
class Quantized:
    """A matrix of `scale·code`, or `scale·code + minimum`: numbers `[n, k]`, scales and minima for each group."""

    value: object
    codes: object
    scale: object
    minimum: object
    group: int

    def wide(self, xp, x):
        return wide(xp, x, self.group, self.codes.shape[1])


# ---- weights in fragment order --------------------------------------------------------------------------------------------------


def fragments(xp, tiles, form):
    """Elements `[blocks, 16 rows, columns]` in the order of tensor-core fragments: `[blocks, elements]`, or bytes for 4 bits.

    Row 8a + b and column 64t + 16c + 4d + 2e + f belong to tile t, lane 4b + c, step d, and are there half 4e + 2a + f.
    """
    blocks, _, columns = tiles.shape
    t = columns // TILE_K
    # blocks, a, b, tile, c, d, e, f
    x = tiles.reshape((blocks, 2, 8, t, 4, 4, 2, 2))
    if form in ("f16", "bf16"):
        order = (0, 3, 5, 2, 4, 6, 1, 7)
    elif form == "f32":
        order = (0, 3, 5, 6, 2, 4, 1, 7)
    elif form in ("w8", "fp8"):
        # d is two: the first chooses 512 bytes.
        x = x.reshape((blocks, 2, 8, t, 4, 2, 2, 2, 2))
        order = (0, 3, 5, 2, 4, 6, 7, 1, 8) if form == "w8" else (0, 3, 5, 2, 4, 6, 1, 7, 8)
    else:
        x = xp.permute(x, (0, 3, 2, 4, 5, 7, 6, 1)).reshape((blocks, -1, 2))
        return x[..., 0] + 16 * x[..., 1]
    return xp.permute(x, order).reshape((blocks, -1))


def padded(xp, x, rows, columns, value):
    """`x` with rows and columns of `value` added."""
    n, k = x.shape
    if columns > k:
        x = xp.join([x, xp.full((n, columns - k), value, x.dtype)], 1)
    if rows > n:
        x = xp.join([x, xp.full((rows - n, columns), value, x.dtype)], 0)
    return x


def matrix(xp, form, group, n, k):
    """A random packed matrix, and its values in f32 or their parts; their standard deviation is
    about 1/√k."""
    rows, columns = up(n, BLOCK), up(k, TILE_K)
    blocks = rows // BLOCK
    if form in ("f32", "f16", "bf16"):
        w = xp.normal((n, k)) * k**-0.5
        w = xp.decode(xp.encode(w, form), form, xp.float32)
        ordered = fragments(xp, padded(xp, w, rows, columns, 0).reshape((blocks, BLOCK, columns)), form)
        return xp.encode(ordered, form).reshape(-1), w
    if form == "fp8":
        return fp8_matrix(xp, n, k)
    if form not in CODES:
        raise Unknown(f"the weight format {form!r}")
    count, zero, spread = CODES[form]
    codes = padded(xp, xp.integers(0, count, (n, k)), rows, columns, zero)
    groups = -(-columns // group)

    def per_group(x):
        """f16 numbers `[n, groups]`, zero in the padding: their bytes, and their values."""
        x = padded(xp, xp.decode(xp.encode(x, "f16"), "f16", xp.float32), rows, groups, 0)
        data = xp.encode(xp.permute(x.reshape((blocks, BLOCK, groups)), (0, 2, 1)), "f16").reshape((blocks, -1))
        return data, x[:n]

    step = (0.5 + xp.cast(xp.integers(0, 1024, (n, groups)), xp.float32) / 1024) * (k**-0.5 / spread)
    head, scale = per_group(step)
    numbers = xp.cast(codes[:n, :k] - zero, xp.float32)
    value, minimum = wide(xp, scale, group, k) * numbers, None
    if form == "w4a":
        low, minimum = per_group(-7.5 * step)
        head = xp.join([head, low], 1)
        # Rounded once.
        parts = [xp.cast(wide(xp, x, group, k), xp.float64) for x in (scale, minimum)]
        value = xp.cast(parts[0] * xp.cast(numbers, xp.float64) + parts[1], xp.float32)
    size = up(head.shape[1], 64)
    head = padded(xp, head, blocks, size, 0)
    ordered = fragments(xp, codes.reshape((blocks, BLOCK, columns)), form)
    # Codes are below 256: the first of the four bytes of each.
    data = xp.encode(ordered, "int32").reshape((blocks, -1, 4))[..., 0]
    return xp.join([head, data], 1).reshape(-1), Quantized(value, numbers, scale, minimum, group)


def fp8_matrix(xp, n, k):
    """e4m3 codes with a scale per row."""
    rows, columns = up(n, BLOCK), up(k, TILE_K)
    blocks = rows // BLOCK
    codes = xp.integers(0, 127, (n, k)) + 128 * xp.integers(0, 2, (n, k))
    step = (0.5 + xp.cast(xp.integers(0, 1024, (n, 1)), xp.float32) / 1024) * (k**-0.5 / float(np.sqrt((E4M3[:127] ** 2).mean())))
    step = xp.decode(xp.encode(step, "f16"), "f16", xp.float32)
    value = step * xp.array(E4M3, xp.float32)[xp.cast(codes, xp.int64)]
    head = padded(xp, xp.encode(padded(xp, step, rows, 1, 0).reshape((blocks, BLOCK)), "f16"), blocks, 64, 0)
    ordered = fragments(xp, padded(xp, codes, rows, columns, 0).reshape((blocks, BLOCK, columns)), "fp8")
    return xp.join([head, xp.encode(ordered, "int32").reshape((blocks, -1, 4))[..., 0]], 1).reshape(-1), value


def wide(xp, x, group, k):
    """Each column `group` times, cut at `k`."""
    n, groups = x.shape
    return (x.reshape((n, groups, 1)) + xp.full((1, 1, group), 0, x.dtype)).reshape((n, groups * group))[:, :k]


# ---- rows of activations --------------------------------------------------------------------------------------------------------


def row_bytes(columns, elem):
    return columns * 4 if elem == "f32" else up(columns, TILE_K) + 16 if elem == "fp8" else up(columns * 2, 16)


def random_rows(xp, m, columns, elem):
    """Rows as they are stored, and their values; padding is NaN."""
    if elem == "fp8":
        codes = xp.integers(0, 127, (m, columns)) + 128 * xp.integers(0, 2, (m, columns))
        stored = xp.full((m, up(columns, TILE_K)), 0, codes.dtype)
        stored[:, fp8_places(xp, columns)] = codes
        scale = (0.5 + xp.cast(xp.integers(0, 1024, (m, 1)), xp.float32) / 1024) / 128
        data = xp.join([xp.encode(stored, "int32").reshape((m, -1, 4))[..., 0], xp.encode(scale, "f32"), xp.full((m, 12), 0xFF, xp.bytes(1, 0).dtype)], 1)
    else:
        data = xp.encode(xp.normal((m, columns)), elem)
        data = padded(xp, data, m, row_bytes(columns, elem), 0xFF)
    data = data.reshape(-1)
    return data, rows_from_bytes(xp, data, m, columns, elem, xp.float32)


def rows_from_bytes(xp, data, m, columns, elem, dtype):
    data = data.reshape((m, row_bytes(columns, elem)))
    if elem == "fp8":
        codes = xp.cast(data[:, fp8_places(xp, columns)], xp.int64)
        scale = xp.decode(data[:, up(columns, TILE_K) :][:, :4], "f32", dtype)
        return xp.array(E4M3, dtype)[codes] * scale
    return xp.decode(data[:, : columns * (4 if elem == "f32" else 2)], elem, dtype)


def fp8_places(xp, columns):
    """Where the code of each column of an fp8 row lies: column 16t + 8p + 4h + j of 64 at 32p + 16h + 4t + j."""
    k = np.arange(columns)
    return xp.array(k // 64 * 64 + 32 * (k // 8 % 2) + 16 * (k // 4 % 2) + 4 * (k % 64 // 16) + k % 4, xp.int64)


# ---- the cache ------------------------------------------------------------------------------------------------------------------


@dataclass
class Cache:
    """Pages of keys and values: `[pages, heads, D, 16]` and `[pages, heads, 16, V]`, and for int8
    scales `[pages, heads, 16]`. In a latent cache `D` is the stored part of a key beside the
    value."""

    elem: str
    heads: int
    d: int
    value_d: int
    latent: bool = False
    parts: list = field(default_factory=list)
    sizes: tuple = ()

    def shapes(self, pages):
        out = [(pages, self.heads, self.d, PAGE), (pages, self.heads, PAGE, self.value_d)]
        return out + 2 * [(pages, self.heads, PAGE)] if self.elem == "int8" else out

    def elems(self):
        return [self.elem] * 2 + ["f32"] * 2

    def layout(self):
        """First byte and bytes of each part of a page, and the bytes of a page."""
        width = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1}[self.elem]
        keys, values = (self.heads * d * PAGE * width for d in (self.d, self.value_d))
        part, both, scales = up(keys, 64), up(keys, 64) + up(values, 64), self.heads * PAGE * 4
        if self.elem == "int8":
            return [(0, keys), (part, values), (both, scales), (both + scales, scales)], both + 2 * scales
        return [(0, keys), (part, values)], both

    def pool(self, xp, pages, seen):
        """The bytes of random pages; `seen` `[pages, 16]`: slots that are not hold no numbers."""
        places, total = self.layout()
        pool = xp.full((pages, total), 0xFF, xp.bytes(1, 0).dtype)
        for i, ((at, size), shape, elem) in enumerate(zip(places, self.shapes(pages), self.elems())):
            if i >= 2:
                x = (0.5 + xp.cast(xp.integers(0, 1024, shape), xp.float32) / 1024) / 73.9
            elif elem == "int8":
                x = xp.integers(-127, 128, shape)
            else:
                x = xp.normal(shape)
            data = xp.encode(x, elem)
            width = data.shape[-1] // shape[-1]
            data = data.reshape((*shape, width))
            mask = seen.reshape((pages, 1, 1, PAGE, 1) if i == 0 else (pages, 1, PAGE, 1, 1) if i == 1 else (pages, 1, PAGE, 1))
            pool[:, at : at + size] = xp.where(mask, data, xp.bytes(1, 0xFF)).reshape((pages, size))
        return pool.reshape(-1)

    def read(self, xp, pool, dtype):
        """Keys `[pages, heads, 16, D]` and values `[pages, heads, 16, V]`."""
        places, total = self.layout()
        pages = pool.reshape((-1, total))
        parts = []
        for (at, size), shape, elem in zip(places, self.shapes(pages.shape[0]), self.elems()):
            parts.append(xp.decode(pages[:, at : at + size], elem, dtype).reshape(shape))
        keys, values = xp.permute(parts[0], (0, 1, 3, 2)), parts[1]
        if self.elem == "int8":
            keys, values = keys * parts[2][..., None], values * parts[3][..., None]
        return keys, values


# ---- a step ---------------------------------------------------------------------------------------------------------------------


class Step:
    """Tokens of several sequences. `parts`: for each sequence the number of tokens before the step, and in it."""

    # Factor of logits before they become powers of two: log2(e) over a temperature.
    scale = float(np.float32(np.log2(np.e) / 0.8))

    def __init__(self, xp, parts, vocabulary=32, wanted=None, shuffle=False):
        rng = np.random.default_rng(len(parts) + sum(n for _, n in parts))
        seqs = np.repeat(np.arange(len(parts)), [n for _, n in parts])
        if shuffle:
            rng.shuffle(seqs)
        at = [past for past, _ in parts]
        positions = []
        for s in seqs:
            positions.append(at[s])
            at[s] += 1
        self.seqs, self.positions = seqs, np.array(positions)
        self.tokens = rng.integers(0, vocabulary, len(seqs))
        # Every other row from the first, backwards, if nothing else is said.
        self.out_rows = np.arange(0, len(seqs), 2)[::-1] if wanted is None else np.array(wanted)
        self.lengths = [past + n for past, n in parts]
        stride = max(up(n, PAGE) for n in self.lengths) // PAGE
        # Pages scattered over a pool; every other one is not used.
        self.pages = 2 * stride * len(parts)
        self.table = (self.pages - 1 - 2 * rng.permutation(stride * len(parts))).reshape(len(parts), stride)
        seen = np.zeros((self.pages, PAGE), bool)
        for pages, length in zip(self.table, self.lengths):
            for i, page in enumerate(pages):
                seen[page] = np.arange(i * PAGE, (i + 1) * PAGE) < length
        self.seen = xp.array(seen, xp.int32) > 0

    def rows(self, which):
        return len(self.tokens) if which == "T" else len(self.out_rows)

    def firsts(self):
        """The slots of the sequences' states of fixed size."""
        return self.table[:, 0]

    def slots(self):
        """Page and place in it of each token."""
        return self.table[self.seqs, self.positions // PAGE], self.positions % PAGE

    def arrays(self):
        """Arrays of the step context, in its order."""
        return [np.ascontiguousarray(x, np.int32) for x in (self.tokens, self.positions, self.seqs, self.out_rows, self.table)]

    def counts(self):
        """Fields after their addresses in the step context: numbers, and then the addresses of
        `wanted_arrays`."""
        return [self.table.shape[1], len(self.tokens), len(self.out_rows), len(self.table)]

    def wanted_arrays(self):
        """The number of requested candidates of each row of logits (all), and the factors of
        logits."""
        rows = len(self.out_rows)
        return [np.full(rows, 1 << 20, np.int32), np.full(rows, self.scale, np.float32).view(np.int32)]
