"""Sounds of integers, which tests make in the same way."""

MASK = (1 << 64) - 1


def noise(n, seed):
    """Integers from -32768 to 32767: the upper bits of splitmix64."""
    out = []
    for i in range(1, n + 1):
        z = (seed + i * 0x9E3779B97F4A7C15) & MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        out.append(((z ^ z >> 31) >> 48) - 32768)
    return out
