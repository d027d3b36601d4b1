"""The hashes of an artifact, checked without llmcc: a second implementation of "Hashes" in docs/abi.md. ``python _integrity.py m.so`` checks every byte and prints the root."""

from __future__ import annotations

import os
import struct
import sys
from hashlib import sha256
from typing import Any, BinaryIO, Iterator, NamedTuple

_BLOCK, _VERSION, _IMAGE = 1 << 20, 14, struct.Struct("<16sIIQQQQQQQQQQ32s")
_NAMES = "? headers runtime image code weights tables manifest tokenizer template padding label licences recipe".split()
# The parts that the system's loader reads before any code of the artifact can check them.
LOADED = ("headers", "runtime", "image")


class _Part(NamedTuple):
    kind: int
    file: int
    offset: int
    length: int
    hash: bytes


def _tagged(tag: str, *parts: bytes) -> bytes:
    return sha256(tag.encode().ljust(16, b"\0") + b"".join(parts)).digest()


def _image(file: BinaryIO) -> tuple[int, tuple[Any, ...]]:
    head, at = file.read(16 << 20), -1
    while (at := head.find(b"llmcc-image-ref\0", at + 1)) >= 0:
        if len(head) >= at + _IMAGE.size and 0 < (found := _IMAGE.unpack_from(head, at))[1] < 1 << 16 and found[6] and found[9]:
            return at, found
    raise ValueError("not an artifact of llmcc; make it with `llmcc compile`")


def _hash(file: BinaryIO, part: _Part, root_at: int) -> bytes:
    def leaves() -> Iterator[bytes]:
        for start in range(0, part.length, _BLOCK):
            file.seek(part.offset + start)
            block = file.read(min(_BLOCK, part.length - start))
            if _NAMES[part.kind] == "image":
                block = block[:root_at] + bytes(32) + block[root_at + 32 :]
            yield _tagged("llmcc leaf 1", block)

    return _tagged("llmcc part 1", struct.pack("<QQ", part.kind, part.length), *leaves())


def root_of(path: str) -> bytes:
    """The root that the artifact names, without a look at its bytes.

    :raises ValueError: the file is no artifact.
    """
    with open(path, "rb") as file:
        root: bytes = _image(file)[1][-1]
    return root


def check(path: str, kinds: tuple[str, ...] = ()) -> bytes:
    """Compares the bytes of the artifact (of the parts of these kinds, else of both files) with their hashes; returns the root.

    :raises ValueError: naming the part that differs from the compiler's output.
    """
    with open(path, "rb") as file:
        _, image = _image(file)
        (_, version, flags), (weights_len, length, _, table_len, count, root) = image[:3], image[8:]
        if version != _VERSION:
            raise ValueError(f"format {version}, this package reads {_VERSION}: use the package and the compiler of one release")
        size = os.fstat(file.fileno()).st_size
        if size != length:
            raise ValueError(f"it has {size} bytes instead of {length}: stripped, cut short or extended")
        if table_len > min(length, 88 * count + (length + weights_len) // _BLOCK * 32):
            raise ValueError("its image descriptor is damaged")
        file.seek(length - table_len)
        table = file.read(table_len)
        parts = [_Part(*struct.unpack_from("<IIQQ32s", table, 56 * i)) for i in range(min(count, len(table) // 56))]
        side = weights_len + 48 if flags & 3 == 1 else 0
        ends = [0, 0]
        for p in parts:
            if p.file > 1 or p.kind >= len(_NAMES) or p.offset != ends[p.file]:
                raise ValueError("its table of hashes is damaged")
            ends[p.file] += p.length
        leaves = sum(-(-p.length // _BLOCK) for p in parts)
        whole = ends == [length - table_len, side] and table_len == 56 * count + 32 * leaves
        if not whole or _tagged("llmcc root 1", struct.pack("<Q", len(parts)), table[: 56 * count]) != root:
            raise ValueError("its image descriptor or table of hashes is damaged")
        leaf = 56 * count
        for p in parts:
            stored, leaf = table[leaf : leaf + 32 * -(-p.length // _BLOCK)], leaf + 32 * -(-p.length // _BLOCK)
            if _tagged("llmcc part 1", struct.pack("<QQ", p.kind, p.length), stored) != p.hash:
                raise ValueError(f"its table of hashes is damaged, for the {_NAMES[p.kind]}")
            if kinds and _NAMES[p.kind] not in kinds:
                continue
            with open(path + ".weights" if p.file else path, "rb") as source:
                if _hash(source, p, _IMAGE.size - 32) != p.hash:
                    raise ValueError(f"its {_NAMES[p.kind]}, bytes {p.offset} to {p.offset + p.length}, have changed since they were compiled")
        found: bytes = root
        return found


if __name__ == "__main__":
    print(check(sys.argv[1]).hex())
