"""The GPU cost model of `ir/src/gpu/cost.rs` (products) and `passes/src/cost/attention.rs`, as
functions of its constants, which `fit.py` fits. That both say the same is tested.

Constants, by name: `memory`, `l2` (bytes per second), `f16`, `fp8` (operations per second at
the peak), `launch` (seconds), and the rates of `ir/src/gpu/rates.rs`, where each has its unit.
"""

import math

import numpy as np

WIDTH = {"f32": 4, "f16": 2, "bf16": 2, "fp8": 1, "int8": 1}
# Schedulers of a multiprocessor; threads of a warp; columns of a unit, and its rows.
SCHEDULERS, WARP, TILE_K, BLOCK = 4, 32, 64, 16
# Rows of parts of a `wgmma` tile that are added at once.
PART_ROWS = 64


def constants(machine):
    """Constants of a target, from `kernels.json`."""
    return {name: machine[name] for name in ("memory", "launch")} | machine["rates"]


def count_rows(expr):
    return (expr[0] == "rows") + sum(count_rows(x) for x in expr[1:] if isinstance(x, list) and x and isinstance(x[0], str))


def terms(kernel, m, context, sequences, machine):
    """Costs of a launch for `m` rows: all that the constants are applied to; `None` for kernels that are not modelled."""
    family = kernel["body"]["family"]
    if family == "matmul" and kernel["schedule"]:
        return product(kernel, m, machine)
    return attention(kernel, m, context, sequences) if family == "attention" else None


NONE = {
    # A launch: bytes staged in a multiprocessor, prologues, bytes of epilogues.
    "staged": 0, "prologue": 0, "ends": 0,
    # The loop: how often a multiprocessor goes through it, turns each, copies before it that a scheduler starts, sums of parts, cut tiles and a thread's sums of these.
    "waves": 0, "turns": 0, "fills": 0, "parts": 0, "cut": 0, "joined": 0,
    # Parts of `wgmma` tiles that are added: trips to the cache, and bytes.
    "trips": 0, "exchanged": 0,
    # A turn: chains of instructions (streamed, its strips, from global memory, `mma`, `wgmma`), instructions issued by a scheduler, its tensor core's `mma`s, bytes in
    # shared memory, operations of `wgmma` by its rate, copies under way, bytes asked for by bulk copies, from memory, from the cache; share of multiprocessors that are busy.
    "streamed": 0, "strips": 0, "global": 0, "mma_turn": 0, "wgmma_turn": 0, "issued": 0, "turn": 0, "turn_direct": 0, "turn_wgmma": 0, "exchange": 0, "turn_fp8": 0, "widen": 0, "mma": 0,
    "shared_bytes": 0, "operations": 0, "operations_fp8": 0, "ahead": 1, "asked": 0, "first": 0, "cached": 0, "busy": 1, "direct": 0,
    # Attention: bytes of the cache, merged columns, pairs of a query and a key without and with the ramp, products of each.
    "attention": 0, "cache": 0, "merged": 0, "pairs": 0, "ramp_pairs": 0, "columns": 0,
}  # fmt: skip


def product(kernel, m, machine):
    body, plan, sms = kernel["body"], kernel["schedule"], machine["sms"]
    variant = plan["variant"]
    streamed, wgmma = variant in ("gemv", "fma"), variant.startswith("wgmma")
    m = max(m, 1)
    row_tiles, rows = -(-m // plan["rows"]), min(m, plan["rows"])
    blocks = plan["blocks"] * row_tiles
    held = min(max(-(-blocks // sms), 1), plan["resident"])
    elem = body["prologue"]["elem"] if body["prologue"] else kernel["params"][body["x"]]["elem"]
    staged = plan["input"] == "whole" or (isinstance(plan["input"], int) and rows <= plan["input"])
    ends = sum(m * s["n"] * (4 + 4 * count_rows(s["expr"])) for s in body["segments"])
    # Gains and biases, which every block reads.
    vectors = [v for v in ((body["prologue"] or {}).get(name) for name in ("gain", "bias")) if v is not None]
    ends += blocks * sum(4 * kernel["params"][v]["len"] for v in vectors)
    launch = {
        **NONE,
        "staged": rows * plan["k"] * (4 if variant == "fma" else 2) * held if staged else 0,
        "prologue": int(bool(body["prologue"])),
        "ends": ends,
    }
    return launch, [phase(p, plan, machine, (rows, row_tiles, blocks, held), (streamed, wgmma, staged), elem) for p in plan["phases"]]


def phase(p, plan, machine, launch, kind, elem):
    (rows, row_tiles, blocks, held), (streamed, wgmma, staged), sms = launch, kind, machine["sms"]
    together = plan["depth"] * plan["units"]
    units = -(-(-(-plan["k"] // TILE_K)) // together)
    sharing = p["parts"] if streamed else 1
    if p["cut"]:
        share = p["tiles"] * units / plan["blocks"]
        tiles = share / units + 1
        turns = share / sharing + (0.5 * (tiles - 1) if sharing > 1 else 0)
    else:
        tiles = -(-p["tiles"] // plan["blocks"])
        turns = tiles * -(-units // sharing)
    lanes = len(p["unit_bytes"])
    columns, strips = p["tile_n"] * lanes, p["strips"] * lanes
    weights = sum(p["unit_bytes"]) * (p["tile_n"] // BLOCK) * sharing * together * held
    x = 0 if streamed else plan["rows"] * TILE_K * together * WIDTH[elem] * held
    warps = held * (p["columns"] * p["parts"] if streamed else plan["warps"]) / SCHEDULERS
    decoded = p["strips"] * sum(p["unit_instructions"])
    waves = -(-blocks // (sms * plan["resident"]))
    first = weights / row_tiles
    out = {
        **NONE,
        "waves": waves,
        "turns": turns,
        "fills": min(turns, p["stages"] - 1) * held * plan["warps"] / SCHEDULERS if streamed else 0,
        "parts": waves * tiles * p["parts"] if streamed else 0,
        "cut": int(p["cut"]),
        "joined": p["cut"] * (rows * columns // (plan["warps"] * WARP)),
        "ahead": max(p["stages"], 2) - 1,
        "first": first,
        "cached": weights - first + x,
        "busy": min(1, blocks / sms),
    }
    if wgmma:
        fp8 = plan["variant"] == "wgmmafp8"
        rate = "operations_fp8" if fp8 else "operations"
        if p["cut"]:
            kept = (plan["blocks"] // p["tiles"] + 1) * plan["rows"] * columns * 4
            out |= {"joined": 0, "trips": -(-rows // PART_ROWS), "exchanged": kept}
        out |= {"wgmma_turn": 1, rate: 2 * plan["rows"] * columns * TILE_K * together * held, "asked": weights + x}
        if fp8:
            return out | {"turn_fp8": warps}
        return out | {"turn_wgmma": warps, "issued": warps * p["unit_instructions"][0], "exchange": warps * p["quantized"]}
    if plan["direct"]:
        out |= {"turn_direct": warps, "direct": 1}
    else:
        out |= {"turn": warps, "shared_bytes": 2 * (weights + x)}
    if streamed:
        f32 = BLOCK * TILE_K // WARP * plan["rows"] * strips if plan["variant"] == "fma" else 0
        return out | {"streamed": 1, "strips": strips, "global": int(not staged), "issued": warps * plan["depth"] * (decoded + f32)}
    groups = plan["rows"] // 8 // (1 if plan["depth"] > 1 else p["parts"])
    mma = 4 * groups * strips
    widened = groups if elem == "fp8" and not machine["fp8_mma"] else 0
    return out | {"mma_turn": 1, "issued": warps * (decoded + mma - 4 * strips), "mma": warps * mma, "widen": warps * widened}


def attention(kernel, m, context, sequences):
    body = kernel["body"]
    kv = kernel["params"][body["kv"]]
    context = min(context, kv["window"] or context)
    keys, values = kv["head_dim"], kv.get("value_dim", kv["head_dim"])
    # The last columns of a latent cache's keys are its values, and lie there once.
    stored = values + (keys - values if kv.get("latent") else keys)
    launch = {
        **NONE,
        "attention": 1,
        "cache": context * kv["heads"] * stored * WIDTH[kv["elem"]] * sequences,
        "merged": body["heads"] * values if m <= 64 else 0,
        "pairs": m * context * body["heads"],
        "ramp_pairs": m * body["heads"],
        "columns": 2 * (keys + values),
    }
    return launch, []


class Launches:
    """Terms of many launches, as arrays: of each launch, and of each phase of a product."""

    def __init__(self, terms):
        self.launch = {name: np.array([t[name] for t, _ in terms], float) for name in NONE}
        phases = [(i, p) for i, (_, all_phases) in enumerate(terms) for p in all_phases]
        self.of = np.array([i for i, _ in phases], int)
        self.phase = {name: np.array([p[name] for _, p in phases], float) for name in NONE}

    def seconds(self, c, sms):
        """Predicted times."""
        t, memory = self.launch, c["memory"] * c["memory_share"]
        paired = (t["pairs"] + t["ramp_pairs"] * c["attention_ramp"]) * (c["attention_softmax"] + t["columns"] / (c["f16"] * c["attention_tensor"]))
        attention = c["latency"] + c["attention_start"] + t["merged"] * c["attention_merge"] + np.maximum(t["cache"] / memory, paired)
        products = c["start"] + t["staged"] / c["stage"] + t["prologue"] * c["prologue"] + t["ends"] / c["l2"]
        loops = np.zeros(len(products))
        np.add.at(loops, self.of, self.loops(c, sms))
        return c["launch"] + np.where(t["attention"] > 0, attention, products + loops)

    def loops(self, c, sms):
        p = self.phase
        chain = p["streamed"] * c["chain"] + p["strips"] * c["chain_strip"] + p["global"] * c["chain_global"]
        chain = chain + p["mma_turn"] * c["chain_mma"] + p["wgmma_turn"] * c["chain_wgmma"]
        issued = p["issued"] + sum(p[name] * c[name] for name in ("turn", "turn_direct", "turn_wgmma", "exchange", "turn_fp8", "widen"))
        work = (chain + issued + p["mma"] * c["mma_cycles"] + p["shared_bytes"] / c["shared"]) / c["clock"]
        tensor = (p["operations"] / (c["f16"] * c["tensor"]) + p["operations_fp8"] / (c["fp8"] * c["tensor_fp8"])) * sms
        latency = (c["copy_latency"] + p["asked"] * c["latency_byte"]) / p["ahead"]
        cached = c["l2"] / sms
        reached = np.where(p["direct"] > 0, c["memory_direct"], c["memory_share"])
        data = p["first"] / np.minimum(c["memory"] * reached / (p["busy"] * sms), cached) + p["cached"] / cached
        q = c["sharpness"]
        turn = (work**q + tensor**q + latency**q + data**q) ** (1 / q)
        ends = p["fills"] * c["fetch"] / c["clock"] + p["parts"] * c["part"] + p["cut"] * c["join"] + p["joined"] * c["join_sum"]
        ends = ends + p["trips"] * c["copy_latency"] + p["exchanged"] / cached
        return p["waves"] * p["turns"] * turn + ends


def seconds(terms, c, sms):
    """Predicted time of a launch with these terms."""
    return float(Launches([terms]).seconds(c, sms)[0])


def of_step(parts):
    """Rows of a step, the context that the model reckons with, and its sequences; `None` where sequences differ in a way that it does not know."""
    past, new = parts[0]
    if any(p != parts[0] for p in parts):
        return None
    return new * len(parts), past + math.ceil(new / 2), len(parts)
