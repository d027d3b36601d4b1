"""What there is to do, in the order in which it is worth doing when the time may not last: what is most likely to be wrong on hardware, then the speeds that
matter most, then models, then the rest."""

import json
from dataclasses import asdict, dataclass, field

# Seconds: after which a process is killed, and which something usually takes.
LIMITS = {"machine": (30, 6), "kernel": (20, 1), "speed": (20, 2), "variant": (20, 2), "peer": (20, 3), "small": (90, 8), "large": (90, 45), "large-peer": (90, 15)}


@dataclass
class Item:
    """`id` names its row in the report; `what`: the folder of its kernel, and what else its kind needs."""

    id: str
    kind: str
    what: dict = field(default_factory=dict)

    def limit(self):
        return LIMITS[self.kind][0]

    def usual(self):
        return LIMITS[self.kind][1]

    def described(self):
        return asdict(self)


def read(path):
    return json.loads(path.read_text()) if path.exists() else None


def risk(kernel):
    """Instructions and pipelines that only a GPU can judge come first."""
    schedule = kernel.get("schedule") or {}
    if "wgmma" in schedule.get("variant", ""):
        return 0
    return {"attention": 1, "matmul": 2}.get(kernel["body"]["family"], 3)


def items(folder):
    """Everything in `folder`, in order."""
    models = read(folder / "models.json") or {"small": [], "large": []}
    kernels = (read(folder / "kernels/kernels.json") or {"kernels": []})["kernels"]
    checks = [(risk(k), Item(f"kernel:{k['name']}", "kernel", {"folder": "kernels", "kernel": k["name"]})) for k in kernels]
    checks.sort(key=lambda c: c[0])
    speeds, peers = {True: [], False: []}, {True: [], False: []}
    for shape in read(folder / "speed/speed.json") or []:
        what = {"folder": shape["folder"], "kernel": shape["kernel"], "parts": shape["parts"], "what": shape["what"], "goal": shape["goal"]}
        speeds[shape["key"]].append(Item(f"speed:{shape['name']}", "speed", what))
        if shape["peer"]:
            peers[shape["key"]].append(Item(f"peer:{shape['name']}", "peer", what))
    small = [Item(f"small:{case['name']}", "small", case) for case in models["small"]]
    large, large_peers = [], []
    for case in models["large"]:
        name = f"{case['name']}-{case['format']}"
        large.append(Item(f"large:{name}", "large", case))
        for what in ("decode", "decode8", "decode32", "prompt512", "prompt2048"):
            if not (what.startswith("prompt") and case["format"] != "bf16"):
                large_peers.append(Item(f"large-peer:{name}/{what}", "large-peer", {**case, "measure": what}))
    variants = []
    for variant in read(folder / "variants/variants.json") or []:
        variants.append(Item(f"variant:{variant['shape']}/{variant['schedule']}", "variant", variant))
    return [
        Item("machine", "machine"),
        *(item for level, item in checks if level < 2),
        *speeds[True],
        *peers[True],
        *small,
        *large,
        *(item for level, item in checks if level >= 2),
        *variants,
        *speeds[False],
        *large_peers,
        *peers[False],
    ]
