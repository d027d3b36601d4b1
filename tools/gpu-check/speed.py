"""Times single kernels: each in a CUDA graph of many launches over copies of its large operands, so that nothing is found in the L2 cache; beside PyTorch's
kernels for the same work, measured in the same way."""

import json
from pathlib import Path

from kernels import Run
from operands import Step

# Bytes that the rotating operands have at least: several times the L2 cache of any GPU so far.
ROTATE = 400 << 20
LAUNCHES = 20


def cost(kernel, step):
    """Bytes that must be moved and floating-point operations, of a product or of attention."""
    body, params = kernel["body"], kernel["params"]
    m = step.rows(kernel["rows"])
    width = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1, "fp8": 1}
    moved = sum(m * p["cols"] * width[p["elem"]] for p in params if p["kind"] == "rows")
    work = 0
    if body["family"] == "matmul":
        for s in body["segments"]:
            work += 2 * m * sum(params[w]["n"] * params[w]["k"] for w in s["weights"])
    if body["family"] == "attention":
        kv = params[body["kv"]]
        slot = 2 * kv["heads"] * (kv["head_dim"] * width[kv["elem"]] + (4 if kv["elem"] == "int8" else 0))
        moved += slot * sum(step.lengths)
        # Each token sees itself and those before it.
        work = 4 * body["heads"] * kv["head_dim"] * int(sum(step.positions + 1))
    return moved, work


class Timed:
    """A kernel with enough copies of its matrices and of its cache."""

    def __init__(self, xp, run, rotate):
        self.run, self.xp, self.copies = run, xp, []
        large = [i for i, p in enumerate(run.kernel["params"]) if p["kind"] in ("matrix", "kv")]
        self.weights = sum(run.initial[i].shape[0] for i in large if run.kernel["params"][i]["kind"] == "matrix")
        size = sum(run.initial[i].shape[0] for i in large)
        count = min(64, max(2, -(-rotate // max(size, 1))))
        self.sets = [run.addresses]
        for _ in range(count - 1):
            mine = {i: xp.put(run.initial[i]) for i in large}
            self.copies += mine.values()
            self.sets.append([mine.get(i, a) for i, a in enumerate(run.addresses)])

    def seconds(self, repeat):
        launches = max(LAUNCHES, len(self.sets))
        cuda = self.run.cuda
        graph = cuda.graph(lambda: [self.run.launch(self.sets[i % len(self.sets)]) for i in range(launches)])
        try:
            cuda.replay(graph)
            return cuda.seconds(lambda: cuda.replay(graph), repeat) / launches
        finally:
            cuda.drop(graph)

    def close(self):
        self.xp.release(self.copies)


def torch_seconds(torch, works, repeat):
    """Median seconds of one of `works`, which are run in turn in one CUDA graph."""
    launches = max(LAUNCHES, len(works))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for work in works[:2]:
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            works[i % len(works)]()
    graph.replay()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeat)]
    for first, last in pairs:
        first.record()
        graph.replay()
        last.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in pairs)[repeat // 2] / 1e3 / launches


def peers(torch, kernel, step, rotate):
    """PyTorch's ways of doing the same: `{name: [work]}`."""
    body, params = kernel["body"], kernel["params"]
    m = step.rows(kernel["rows"])
    options = {"device": "cuda", "dtype": torch.bfloat16}
    if body["family"] == "matmul":
        p = params[body["segments"][0]["weights"][0]]
        n, k = p["n"], p["k"]
        x = torch.randn(m, k, **options)
        if p["format"] == "bf16":
            some = [torch.randn(n, k, **options) for _ in range(min(64, max(2, -(-rotate // (2 * n * k)))))]
            return {"F.linear": [lambda w=w: torch.nn.functional.linear(x, w) for w in some]}
        if p["format"] == "w4":
            from reference import Int4

            some = [Int4(n, k, p["group"], "cuda") for _ in range(min(64, max(2, -(-2 * rotate // (n * k)))))]
            return {"_weight_int4pack_mm": [lambda w=w: w(x) for w in some]}
        if params[body["x"]]["elem"] == "fp8":
            form, one = torch.float8_e4m3fn, torch.ones((), device="cuda")
            some = [torch.randn(n, k, **options).to(form).t() for _ in range(2)]
            mine = x.to(form)
            return {"_scaled_mm": [lambda w=w: torch._scaled_mm(mine, w, scale_a=one, scale_b=one, out_dtype=torch.bfloat16) for w in some]}
    if body["family"] == "attention":
        return attention_peers(torch, body, params[body["kv"]], step, rotate, options)
    return {}


def attention_peers(torch, body, kv, step, rotate, options):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    heads, kv_heads, d = body["heads"], kv["heads"], kv["head_dim"]
    batch, length, new = len(step.lengths), step.lengths[0], len(step.tokens) // len(step.lengths)
    q = torch.randn(batch, heads, new, d, **options)
    count = min(64, max(2, -(-rotate // (4 * batch * kv_heads * length * d)))) if new == 1 else 2
    some = [[torch.randn(batch, kv_heads, length, d, **options) for _ in range(2)] for _ in range(count)]
    repeated = [[x.repeat_interleave(heads // kv_heads, 1) for x in kv] for kv in some[:2]] if new > 1 else some

    def work(backend, k, v):
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=new > 1, enable_gqa=k.shape[1] != heads)

    return {
        # With repeated heads for prompts: not every version has kernels for grouped ones.
        f"SDPA {backend.name.split('_')[0].lower()}": [lambda b=backend, k=k, v=v: work(b, k, v) for k, v in repeated]
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
    }


def best_peer(torch, kernel, step, rotate, repeat):
    """Seconds of PyTorch's fastest way, and its name; or why there is none."""
    if torch is None:
        return None, ""
    found, said = (None, ""), ""
    try:
        for name, works in peers(torch, kernel, step, rotate).items():
            try:
                with torch.no_grad():
                    seconds = torch_seconds(torch, works, repeat)
                if found[0] is None or seconds < found[0]:
                    found = seconds, name
            except Exception as error:  # noqa: BLE001: not every way exists for every shape and version
                said = f"{name}: {type(error).__name__}"
                torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001
        said = f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
    torch.cuda.empty_cache()
    return found if found[0] else (None, said)


def verdict(goal, share_of_copy, share_of_torch):
    if not goal:
        return ""
    share = share_of_copy if goal[0] == "copy" else share_of_torch
    if share is None:
        return f"{goal[1]} % wanted"
    return f"{goal[1]} %: met" if share >= goal[1] else f"**{goal[1]} %: missed**"


def measure_all(folder, report, xp, cuda, copy, peak, torch=None, repeat=20, rotate=ROTATE):
    """A table with a row per shape: first whether it is right, then its speed. `copy`: bytes per second; `peak`: operations per second of bf16 products."""
    folder = Path(folder)
    described = {k["name"]: k for k in json.loads((folder / "kernels.json").read_text())["kernels"]}
    rows = []
    for shape in json.loads((folder / "speed.json").read_text()):
        try:
            rows.append(measure(folder, described[shape["name"]], shape, report, xp, cuda, (copy, peak), torch, repeat, rotate))
        except Exception as error:  # noqa: BLE001: one failing kernel must not hide the others
            report.wrong += 1
            rows.append([shape["what"], *[""] * 7, f"**{type(error).__name__}: {error}**"])
        print(rows[-1], flush=True)
    report.table(["kernel", "error", "µs", "GB/s", "of copying", "TFLOP/s", "of the bf16 peak", "PyTorch", "wanted"], rows)


def measure(folder, kernel, shape, report, xp, cuda, peaks, torch, repeat, rotate):
    step = Step(xp, [tuple(p) for p in shape["parts"]])
    run = Run(xp, cuda, folder, kernel, step)
    try:
        error, allowed = run.check()
        right = report.check(error <= allowed)
        timed = Timed(xp, run, rotate)
        try:
            seconds = timed.seconds(repeat)
        finally:
            timed.close()
        moved, work = cost(kernel, step)
        moved += timed.weights
    finally:
        run.close()
    theirs, name = best_peer(torch, kernel, step, rotate, repeat)
    of_copy, of_peak = 100 * moved / seconds / peaks[0], 100 * work / seconds / peaks[1]
    of_torch = 100 * theirs / seconds if theirs else None
    beside = f"{theirs * 1e6:.1f} µs, {name}: {of_torch:.0f} %" if theirs else name
    numbers = [f"{seconds * 1e6:.1f}", f"{moved / seconds / 1e9:.0f}", f"{of_copy:.0f} %", f"{work / seconds / 1e12:.1f}", f"{of_peak:.0f} %"]
    return [shape["what"], f"{error:.1e} {right}", *numbers, beside, verdict(shape["goal"], of_copy, of_torch)]
