"""The cost model of `passes/src/cost_gpu.rs`, for products and attention, as functions of its constants: what `fit.py` fits. That both say the same is tested.

Constants, by name: `memory`, `l2` (bytes per second), `f16`, `fp8`, `f32` (operations per second at the peak), `tensor` (share of it that is reached), `launch`,
`latency` (seconds); and `issue_FORMAT`, which the compiler's model does not have: seconds that a multiprocessor takes to multiply a unit (64 columns of 16 rows) of weights of a
format by a few rows, however fast they come.
"""

import math

import numpy as np

from operands import row_bytes

UNIT = 16 * 64
WIDTH = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1}


def constants(machine):
    """Those of a target, from `kernels.json`."""
    names = ("memory", "launch", "tensor", "latency")
    return {**{name: machine[name] for name in names}, **{name: machine["rates"][name] for name in ("l2", "f16", "fp8", "f32")}}


def rows_bytes(kernel, param):
    p = kernel["params"][param]
    return row_bytes(p["cols"], p["elem"]) if p["kind"] == "rows" else 0


def count_rows(expr):
    return (expr[0] == "rows") + sum(count_rows(x) for x in expr[1:] if isinstance(x, list) and x and isinstance(x[0], str))


def waves(blocks, slots):
    blocks = max(blocks, 1)
    return -(-blocks // slots) * slots / blocks


def terms(kernel, m, context, sms):
    """What of each resource a launch for `m` rows takes, all that the constants are applied to; `None` for kernels that are not modelled."""
    family = kernel["body"]["family"]
    return matmul(kernel, m, sms) if family == "matmul" and kernel["schedule"] else attention(kernel, m, context) if family == "attention" else None


def matmul(kernel, m, sms):
    body, params, plan = kernel["body"], kernel["params"], kernel["schedule"]
    row_tiles = max(1, -(-m // plan["rows"]))
    weights = macs = ends = 0
    units = {}
    for s in body["segments"]:
        for w in s["weights"]:
            p = params[w]
            weights += p["bytes"]
            macs += row_tiles * plan["rows"] * p["n"] * p["k"]
            units[p["format"]] = units.get(p["format"], 0) + p["n"] * p["k"] / UNIT / sms
        ends += m * s["n"] * (4 + 4 * count_rows(s["expr"]))
    # Every block reads the gain and the bias of its norm.
    parts = [(body["prologue"] or {}).get(part) for part in ("gain", "bias")]
    ends += plan["blocks"] * sum(4 * params[p]["len"] for p in parts if p is not None)
    rows = min(plan["rows"], m) * rows_bytes(kernel, body["x"])
    tiles = sum(p["tiles"] for p in plan["phases"])
    whole = all(p["cut"] for p in plan["phases"])
    return {
        "latencies": 2 if body["prologue"] else 1,
        "memory": weights,
        "l2": weights * (row_tiles - 1) + rows * (plan["blocks"] if body["prologue"] else tiles * row_tiles),
        "flops": 2 * macs,
        "rate": {"fma": "f32", "wgmmafp8": "fp8"}.get(plan["variant"], "f16"),
        "uneven": 1 if whole else waves(plan["blocks"] * row_tiles, sms * plan["resident"]),
        "ends": ends,
        # Of kernels that stream weights past few rows.
        "units": units if plan["variant"] == "gemv" else {},
    }


def attention(kernel, m, context):
    body = kernel["body"]
    kv = kernel["params"][body["kv"]]
    context = min(context, kv["window"] or context)
    keys, values = kv["head_dim"], kv.get("value_dim", kv["head_dim"])
    # The last columns of a latent cache's keys are its values, and lie there once.
    stored = values + (keys - values if kv.get("latent") else keys)
    return {
        "latencies": 1,
        "memory": context * kv["heads"] * stored * WIDTH[kv["elem"]],
        "l2": 0,
        "flops": 2 * m * context * body["heads"] * (keys + values),
        "rate": "f16",
        "uneven": 1,
        "ends": 0,
        "units": {},
    }


RATES = ("f16", "fp8", "f32")
SUMS = ("latencies", "memory", "l2", "flops", "uneven", "ends")


class Launches:
    """Terms of many launches, as arrays."""

    def __init__(self, terms):
        self.sums = {name: np.array([t[name] for t in terms], float) for name in SUMS}
        self.rate = np.array([RATES.index(t["rate"]) for t in terms])
        formats = sorted({form for t in terms for form in t["units"]})
        self.units = {form: np.array([t["units"].get(form, 0) for t in terms], float) for form in formats}

    def seconds(self, c):
        """Predicted times."""
        t = self.sums
        rate = np.array([c[name] * (1 if name == "f32" else c["tensor"]) for name in RATES])[self.rate]
        issue = sum((count * c.get(f"issue_{form}", 0) for form, count in self.units.items()), np.zeros(len(rate)))
        streamed = np.maximum(np.maximum(t["memory"] / c["memory"], t["l2"] / c["l2"]), np.maximum(t["flops"] / rate, issue))
        return c["launch"] + t["latencies"] * c["latency"] + streamed * t["uneven"] + t["ends"] / c["l2"]


def seconds(terms, c):
    """Predicted time of a launch with these terms."""
    return float(Launches([terms]).seconds(c)[0])


def of_step(parts):
    """Rows of a step, and the context that the model reckons with; `None` where sequences differ in a way that it does not know."""
    if len(parts) == 1:
        past, new = parts[0]
        return new, past + math.ceil(new / 2)
    return None
