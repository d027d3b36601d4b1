"""The rows of `benches/gpu`, as points that `fit.py` fits: kernels described by `llmcc lower`, each product
with the schedule that it had when it was measured. `Direct`: weights straight to registers."""

import json

import costs

VARIANTS = {"Gemv": "gemv", "Direct": "gemv", "Fma": "fma", "Mma": "mma", "Wgmma": "wgmma", "WgmmaFp8": "wgmmafp8"}
PHASE = ("first", "segments", "tiles", "strips", "columns", "parts", "cut", "stages")
SCHEDULE = ("variant", "rows", "warps", "producers", "resident", "blocks", "input", "apart", "depth", "phases")


def weights(kernel, number, tiles):
    """Facts about the weights of a phase: from the schedule that the kernel has now, whose phases are the same runs of segments."""
    phase = kernel["schedule"]["phases"][number]
    if phase["tiles"] != tiles:
        raise ValueError(f"{kernel['name']}: phase {number} has {tiles} tiles, not {phase['tiles']}")
    return {name: phase[name] for name in ("tile_n", "unit_bytes", "unit_instructions", "quantized")}


def schedule(kernel, columns):
    """The schedule of a line, as `llmcc lower` describes one; `None` if the kernel is no product."""
    found = dict(zip(SCHEDULE, columns))
    if found["variant"] not in VARIANTS:
        return None
    plan = {name: int(found[name]) for name in ("rows", "warps", "resident", "blocks", "depth")}
    variant, place = VARIANTS[found["variant"]], found["input"]
    phases = []
    for number, text in enumerate(found["phases"].split(";")):
        phase = dict(zip(PHASE, map(int, text.split(","))))
        phases.append(phase | {"cut": phase["cut"] == 1} | weights(kernel, number, phase["tiles"]))
    more = {"variant": variant, "units": 2 if variant == "wgmmafp8" else 1, "direct": found["variant"] == "Direct", "k": kernel["schedule"]["k"], "phases": phases}
    return plan | more | {"input": place if place in ("whole", "global", "tiles") else int(place)}


def read(folder, path):
    """`(name, asked, work, terms, seconds)` of each line, and the machine. `work`: its matrices and rows, or its name."""
    described = json.loads((folder / "kernels.json").read_text())
    kernels = {k["name"]: k for k in described["kernels"]}
    rows = []
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            continue
        name, asked, sequences, past, new, us, *plan = line.split("\t")
        sequences, past, new = int(sequences), int(past), int(new)
        m, context, _ = costs.of_step([(past, new)] * sequences)
        kernel = kernels[name]
        kernel = kernel | {"schedule": schedule(kernel, plan)}
        matrices = sorted(f"{p['format']} {p['n']}x{p['k']}" for p in kernel["params"] if p["kind"] == "matrix")
        work = f"{', '.join(matrices)} by {m}" if kernel["schedule"] else name
        rows.append((name, asked, work, costs.terms(kernel, m, context, sequences, described["machine"]), float(us) / 1e6))
    return rows, described["machine"]
