"""The work to do, in the order in which it is worth doing when the time may not last: is everything right, how fast are whole models beside PyTorch's, how fast
are kernels, and then why.

Seconds are those that were seen on an H200 (2026-11-26)."""

import json
from dataclasses import asdict, dataclass, field

# Seconds: after which a process is killed, and which something usually takes.
LIMITS = {
    "machine": (30, 2),
    "kernel": (20, 0.3),
    "small": (90, 1),
    "architecture": (40, 1),
    "large": (150, 25),
    "large-peer": (150, 4),
    "speed": (20, 0.6),
    "peer": (40, 2),
    "variant": (20, 0.5),
    "counters": (60, 12),
    "memcheck": (60, 8),
    "racecheck": (60, 8),
}
# Workers that check architectures side by side: most of that is the driver's start.
SIDE_BY_SIDE = 8
# Large models, from their random weights to batches of 128; PyTorch's that are compiled.
LARGE = {"llama-3.2-1b-w4": 12, "llama-3-8b-w4": 25, "llama-3.2-1b-bf16": 15, "llama-3-8b-bf16": 45}
COMPILED = 40
# Batches of PyTorch's compiled step, which takes long to make.
PEER_BATCHES = {"llama-3.2-1b-bf16": (1,), "llama-3-8b-bf16": (1, 8)}
# Speeds whose counters are read: one row of the large models' layers.
COUNTED = ("llama_8b_w4.layer.matmul", "llama_1b_bf16.layer.matmul")
# Kernels that the checkers of memory and races are run on, and families of them.
CHECKED = 6


@dataclass
class Item:
    """`id` names its row in the report; `what`: the folder of its kernel, and the other parameters
    of its kind. Kernels of one `signature` are made by the same code."""

    id: str
    kind: str
    what: dict = field(default_factory=dict)
    signature: str = ""
    seconds: float = 0

    def limit(self):
        return LIMITS[self.kind][0]

    def usual(self):
        return self.seconds or LIMITS[self.kind][1]

    def described(self):
        return asdict(self)


def read(path):
    return json.loads(path.read_text()) if path.exists() else None


def described(folder):
    """Descriptions of the kernels in a folder, by name."""
    return {k["name"]: k for k in (read(folder / "kernels.json") or {"kernels": []})["kernels"]}


def risk(kernel):
    """Instructions and pipelines that only a GPU can judge come first."""
    schedule = kernel.get("schedule") or {}
    if "wgmma" in schedule.get("variant", ""):
        return 0
    return {"attention": 1, "matmul": 2}.get(kernel["body"]["family"], 3)


def signature(kernel):
    """All that a kernel's code depends on, but for sizes."""
    schedule, body = kernel.get("schedule") or {}, kernel["body"]
    operand = {
        (p["kind"], p.get("format"), p.get("elem"), p.get("head_dim") if p["kind"] == "kv" else None, p.get("value_dim"), p.get("latent")) for p in kernel["params"]
    }
    return json.dumps([body["family"], schedule.get("variant"), body.get("tile_m"), sorted(map(list, operand), key=str)])


def checks(folder):
    """Kernels to compare with their meaning: one of each signature, and the others; the most
    likely faults first."""
    firsts, others, seen = [], [], set()
    for kernel in sorted(described(folder / "kernels").values(), key=risk):
        item = Item(f"kernel:{kernel['name']}", "kernel", {"folder": "kernels", "kernel": kernel["name"]}, signature(kernel))
        (others if item.signature in seen else firsts).append(item)
        seen.add(item.signature)
    return firsts, others


def speeds(folder):
    """Kernels to measure, and PyTorch's beside them: by whether they are among the most important."""
    ours, peers, known = {True: [], False: []}, {True: [], False: []}, {}
    for shape in read(folder / "speed/speed.json") or []:
        what = {name: shape[name] for name in ("folder", "kernel", "parts", "what", "goal")}
        known.setdefault(shape["folder"], described(folder / shape["folder"]))
        mine = known[shape["folder"]].get(shape["kernel"])
        ours[shape["key"]].append(Item(f"speed:{shape['name']}", "speed", what, signature(mine) if mine else ""))
        if shape["peer"]:
            peers[shape["key"]].append(Item(f"peer:{shape['name']}", "peer", what))
    return ours, peers


def large(models):
    """Whole models for speed, each followed by PyTorch's."""
    for case in models["large"]:
        name = f"{case['name']}-{case['format']}"
        yield Item(f"large:{name}", "large", case, seconds=LARGE.get(name, 0))
        bf16 = case["format"] == "bf16"
        for batch in PEER_BATCHES.get(name, (1,)):
            what = f"decode{batch if batch > 1 else ''}"
            yield Item(f"large-peer:{name}/{what}", "large-peer", {**case, "measure": what}, seconds=COMPILED if bf16 else 0)
        for length in (128, 512, 2048) if bf16 else ():
            yield Item(f"large-peer:{name}/prompt{length}", "large-peer", {**case, "measure": f"prompt{length}"})


def architectures(folder):
    """A small model of each architecture, in each form that came along."""
    listed = read(folder / "architectures.json") or {}
    return [Item(f"architecture:{name}/{form}", "architecture", {"name": name, "form": form}) for form, names in listed.items() for name in names]


def variants(folder):
    """Kernels in other schedules."""
    known = {}
    for variant in read(folder / "variants/variants.json") or []:
        known.setdefault(variant["folder"], described(folder / variant["folder"]))
        mine = known[variant["folder"]].get(variant["kernel"])
        yield Item(f"variant:{variant['shape']}/{variant['schedule']}", "variant", variant, signature(mine) if mine else "")


def tools(checked, measured):
    """Runs under NVIDIA's profiler and checkers: counters of the most important kernels, memory and races of the most risky."""
    counted = [i for i in measured if i.id.removeprefix("speed:").startswith(COUNTED) and sum(count for _, count in i.what["parts"]) == 1]
    for item in counted[:CHECKED]:
        yield Item(f"counters:{item.id.removeprefix('speed:')}", "counters", {"of": item.id})
    for tool in ("memcheck", "racecheck"):
        for item in checked[:CHECKED]:
            yield Item(f"{tool}:{item.id.removeprefix('kernel:')}", tool, {"of": item.id})


def seconds(items):
    """The time that all of them usually take."""
    return sum(i.usual() / (SIDE_BY_SIDE if i.kind == "architecture" else 1) for i in items)


def items(folder):
    """Everything in `folder`, in order."""
    models = read(folder / "models.json") or {"small": [], "large": []}
    firsts, others = checks(folder)
    ours, peers = speeds(folder)
    return [
        Item("machine", "machine"),
        *firsts,
        *(Item(f"small:{case['name']}", "small", case) for case in models["small"]),
        *architectures(folder),
        *large(models),
        *ours[True],
        *peers[True],
        *others,
        *variants(folder),
        *ours[False],
        *peers[False],
        *tools(firsts, ours[True]),
    ]
