"""Other schedules of some products than the one that the compiler chooses, lowered beforehand, so that an hour with a GPU is enough to tune them too."""

import json

from shapes import product

# For `llmcc lower --schedule`: of kernels that stream their weights, and of kernels of tiles.
STREAMED = [
    f"resident={resident},warps={warps},stages={stages},input={place}"
    for resident, warps in ((1, 8), (1, 16), (2, 4), (2, 8), (3, 8), (4, 4))
    for stages in (2, 4, 8)
    for place in ("whole", "global")
]
TILED = [f"resident={resident},stages={stages}" for resident in (1, 2) for stages in (2, 3, 4, 5, 6)]


def shapes(small):
    """Kernels, with the schedules that are tried."""
    if small:
        yield product("v.w4", "w4 product, 1 token, 64×256", "w4g128", 64, 256, 1, 8, 16), ["resident=2,warps=4,stages=2,input=whole", "resident=1,stages=3"]
        return
    # Down, gate and up, and the head of Llama-3-8B; then Llama-3.2-1B's.
    for form, label, n, k in (
        ("w4g128", "w4", 4096, 14336),
        ("w4g128", "w4", 14336, 4096),
        ("w4g128", "w4", 4096, 4096),
        ("bf16", "bf16", 2048, 8192),
        ("bf16", "bf16", 8192, 2048),
    ):
        for width in (16, 32) if form == "w4g128" else (16,):
            name = f"v.{label}_{n}_{k}_{width}"
            yield product(name, f"{label} product, 1 token, {n}×{k}, {width} columns to a tile", form, n, k, 1, 8, width), STREAMED
    for rows, tile in ((32, 32), (64, 64), (512, 128), (512, 256)):
        for form, label in (("w4g128", "w4"), ("bf16", "bf16")):
            name = f"v.{label}_rows{rows}_{tile}"
            yield product(name, f"{label} product, {rows} tokens, 14336×4096, tiles of {tile}", form, 14336, 4096, rows, tile, 128), TILED


def prepare(folder, lower, limit, small=False):
    """Lowers them into folders of their own, and lists those that differ, at most `limit`, in `variants.json`. `lower(file, schedule)` makes code beside the file; it
    leaves out the shapes for which that is no schedule, and says which and why."""
    folder.mkdir(parents=True, exist_ok=True)
    listed, seen = [], set()
    tried = [(schedule, shape) for shape, schedules in shapes(small) for schedule in schedules]
    for schedule in dict.fromkeys(schedule for schedule, _ in tried):
        at = folder / schedule.replace("=", "").replace(",", "-")
        mine = {shape.name: shape for s, shape in tried if s == schedule}
        at.mkdir(exist_ok=True)
        file = at / "kernels.lir"
        file.write_text("\n".join(shape.text for shape in mine.values()))
        lower(file, schedule)
        described = json.loads((at / "kernels.json").read_text())
        kept = []
        for kernel in described["kernels"]:
            code = next(p for p in at.iterdir() if p.name.startswith(kernel["file"]))
            what = kernel["name"], json.dumps(kernel["schedule"]), kernel["threads"], kernel["shared"]
            if what in seen or len(listed) >= limit:
                # Another wish had the same answer.
                code.unlink()
                continue
            seen.add(what)
            kept.append(kernel)
            shape = mine[kernel["name"]]
            listed.append({"shape": shape.name, "schedule": schedule, "what": shape.what, "folder": f"variants/{at.name}", "kernel": shape.name, "parts": shape.parts})
        (at / "kernels.json").write_text(json.dumps({**described, "kernels": kept}) + "\n")
    (folder / "variants.json").write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n")
    return len(listed)
