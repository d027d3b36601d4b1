"""The quantization formats of `runtime/abi/src/layout.rs`, by value: the decoded numbers of a
packed weight or activation.

A row of `k` elements is cut into groups of `group` (the last may be short). Scales and minima are rounded to f16 first; codes are computed
in f32 with the rounded ones, halves to even. A scale of 0 gives codes 0.

- `w8`:  s = max|x| / 127;                              q = clamp(round(x / s), -127, 127);      value s * q
- `w4`:  s = (signed element of largest magnitude) / -8; q = clamp(round(x / s), -8, 7);          value s * q
- `w4a`: m = min(x), s = (max(x) - m) / 15;             q = clamp(round((x - m) / s), 0, 15);    value s * q + m
- `fp8`: s = max|x| / 448 of the whole row;             q = the e4m3 number nearest to x / s;    value s * q
- fp8 activations:     s = max|x| / 448 in f32;            q = nearest to x * (448 / max|x|);        value s * q
- int8 activations: s = max|x| / 127 in f32;            q = round(x * (127 / max|x|));           value s * q
"""

import numpy as np

F16, F32 = np.float16, np.float32
WEIGHT_FORMATS = ("w8", "w4", "w4a", "fp8")


def _divide(x, s):
    """x / s in f32, 0 where s is 0."""
    return np.where(s == 0, F32(0), x / np.where(s == 0, F32(1), s))


def _w8(x):
    s = (np.abs(x).max(axis=1, keepdims=True) / F32(127)).astype(F16)
    return np.clip(np.rint(_divide(x, s.astype(F32))), -127, 127), s, np.zeros_like(s)


def _w4(x):
    at = np.abs(x).argmax(axis=1)  # the first of equals, as a strict "greater" scan finds
    s = (x[np.arange(len(x)), at][:, None] / F32(-8)).astype(F16)
    return np.clip(np.rint(_divide(x, s.astype(F32))), -8, 7), s, np.zeros_like(s)


def _w4a(x):
    low = x.min(axis=1, keepdims=True)
    s = ((x.max(axis=1, keepdims=True) - low) / F32(15)).astype(F16)
    m = low.astype(F16)
    return np.clip(np.rint(_divide(x - m.astype(F32), s.astype(F32))), 0, 15), s, m


def _e4m3(x):
    """The e4m3 numbers nearest to `x` (halves to even), saturated, as f32."""
    import torch

    return torch.from_numpy(np.clip(x, F32(-448), F32(448))).to(torch.float8_e4m3fn).to(torch.float32).numpy()


def _fp8(x):
    """Codes are kept as the numbers they stand for."""
    s = (np.abs(x).max(axis=1, keepdims=True) / F32(448)).astype(F16)
    return _e4m3(_divide(x, s.astype(F32))), s, np.zeros_like(s)


_FORMATS = {"w8": _w8, "w4": _w4, "w4a": _w4a, "fp8": _fp8}


def encode(w, fmt, group):
    """(codes i16[n, k], scales f16[n, groups], minima f16[n, groups]) of the f32 matrix `w[n, k]`; minima are 0 in symmetric formats."""
    w = np.ascontiguousarray(w, dtype=F32)
    group = w.shape[1] if fmt == "fp8" else group
    parts = [_FORMATS[fmt](w[:, start : start + group]) for start in range(0, w.shape[1], group)]
    codes, scales, minima = (np.concatenate(p, axis=1) for p in zip(*parts))
    return codes if fmt == "fp8" else codes.astype(np.int16), scales, minima


def weights(w, fmt, group):
    """Decoded values (f64) of the f32 matrix `w[n, k]` in format `fmt`."""
    codes, scales, minima = encode(w, fmt, group)
    group = w.shape[1] if fmt == "fp8" else group
    spread = [np.repeat(part.astype(np.float64), group, axis=1)[:, : w.shape[1]] for part in (scales, minima)]
    return spread[0] * codes + spread[1]


def encode_int8(x, group):
    """(codes i8[t, k], scales f32[t, groups]) of the f32 rows `x[t, k]`."""
    x = np.ascontiguousarray(x, dtype=F32)
    codes, scales = [], []
    for start in range(0, x.shape[1], group):
        part = x[:, start : start + group]
        amax = np.abs(part).max(axis=1, keepdims=True)
        codes.append(np.rint(part * _divide(F32(127), amax)))
        scales.append(amax / F32(127))
    return np.concatenate(codes, axis=1).astype(np.int8), np.concatenate(scales, axis=1)


def int8_activations(x, group):
    """Decoded values (f64) of the rows `x[t, k]` as int8 activation rows."""
    codes, scales = encode_int8(x, group)
    return np.repeat(scales.astype(np.float64), group, axis=1)[:, : x.shape[1]] * codes


def fp8_activations(x):
    """Decoded values (f64) of the rows `x[t, k]` as fp8 activation rows: a scale per row."""
    x = np.ascontiguousarray(x, dtype=F32)
    amax = np.abs(x).max(axis=1, keepdims=True)
    return (amax / F32(448)).astype(np.float64) * _e4m3(x * _divide(F32(448), amax)).astype(np.float64)


def bits_per_weight(fmt, group):
    """Stored bits per weight when `k` is a multiple of `group`."""
    return {"w8": 8 + 16 / group, "w4": 4 + 16 / group, "w4a": 4 + 32 / group, "fp8": 8}[fmt]
