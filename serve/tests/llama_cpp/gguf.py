"""GGUF files: their members, and a file with other ones."""

import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, UINT32 = 8, 9, 4


class Reader:
    """A place in the bytes of a file."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, form: str):
        """A number."""
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self) -> bytes:
        """A text."""
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length:self.at]

    def skip(self, kind: int) -> None:
        """Passes a value."""
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            kind, count = self.take("I"), self.take("Q")
            if kind in SIZES:
                self.at += SIZES[kind] * count
            else:
                for _ in range(count):
                    self.skip(kind)
        else:
            self.at += SIZES[kind]


def members(data: bytes):
    """The number of tensors, the members as (name, kind, bytes), and where the tensors' descriptions begin."""
    reader = Reader(data)
    assert data[:4] == b"GGUF", "no GGUF file"
    reader.at = 8
    tensors, count = reader.take("Q"), reader.take("Q")
    found = []
    for _ in range(count):
        name, kind = reader.text().decode(), reader.take("I")
        begin = reader.at
        reader.skip(kind)
        found.append((name, kind, data[begin:reader.at]))
    return tensors, found, reader.at


def described(data: bytes, tensors: int, at: int) -> int:
    """Where the tensors' descriptions end."""
    reader = Reader(data)
    reader.at = at
    for _ in range(tensors):
        reader.text()
        axes = reader.take("I")
        reader.at += 8 * axes + 12
    return reader.at


def strings(value: bytes) -> list:
    """The texts of a list."""
    reader = Reader(value)
    assert reader.take("I") == STRING
    return [reader.text().decode("utf-8", "replace") for _ in range(reader.take("Q"))]


def packed(text: str) -> bytes:
    """A text as files have it."""
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def aligned(at: int, alignment: int) -> int:
    """The next place that is a multiple of the alignment."""
    return -(-at // alignment) * alignment


def changed(data: bytes, template: str, context: int) -> bytes:
    """The same model with a chat template, and with at least so many positions."""
    tensors, found, at = members(data)
    end = described(data, tensors, at)
    values = {name: (kind, value) for name, kind, value in found}
    alignment = struct.unpack("<I", values["general.alignment"][1])[0] if "general.alignment" in values else 32
    values["tokenizer.chat_template"] = (STRING, packed(template))
    name = next(name for name in values if name.endswith(".context_length"))
    (own,) = struct.unpack("<I", values[name][1])
    values[name] = (UINT32, struct.pack("<I", max(own, context)))
    out = data[:8] + struct.pack("<QQ", tensors, len(values))
    for name, (kind, value) in values.items():
        out += packed(name) + struct.pack("<I", kind) + value
    out += data[at:end]
    out += bytes(aligned(len(out), alignment) - len(out))
    return out + data[aligned(end, alignment):]
