"""Times single kernels: each in a CUDA graph of many launches over copies of its large operands, so that nothing is found in the L2 cache; beside PyTorch's
kernels for the same work, measured in the same way."""

import time

from kernels import Run
from operands import Step



LAUNCHES = 20


def cost(kernel, step):
    """Bytes that must be moved beside matrices, and floating-point operations."""
    body, params = kernel["body"], kernel["params"]
    m = step.rows(kernel["rows"])
    width = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1, "fp8": 1}
    moved = sum(m * p["cols"] * width[p["elem"]] for p in params if p["kind"] == "rows")
    work = 0
    if body["family"] == "matmul":
        for s in body["segments"]:
            work += 2 * m * sum(params[w]["n"] * params[w]["k"] for w in s["weights"])
    if body["family"] == "expert_matmul":
        for s in body["segments"]:
            work += 2 * m * body["top"] * s["n"] * sum(params[w]["k"] for w in s["weights"])
    if "state" in body:
        state = params[body["state"]]
        numbers = state["heads"] * state["rows"] * state["cols"]
        # Read and written once for each sequence; about four operations of each number for each token.
        moved, work = moved + 8 * numbers * len(step.lengths), 4 * m * numbers
    if body["family"] == "attention":
        kv = params[body["kv"]]
        value_d, latent = kv.get("value_dim", kv["head_dim"]), kv.get("latent", False)
        stored = kv["head_dim"] + (0 if latent else value_d)
        slot = kv["heads"] * (stored * width[kv["elem"]] + (8 if kv["elem"] == "int8" else 0))
        moved += slot * sum(step.lengths)
        # Each token sees itself and those before it.
        work = 2 * body["heads"] * (kv["head_dim"] + value_d) * int(sum(step.positions + 1))
    return moved, work


def share(run):
    """The share of matrices that a kernel reads: the chosen experts."""
    body = run.kernel["body"]
    if body["family"] != "expert_matmul" or body["routes"] is None:
        return 1.0
    chosen = run.values[body["routes"]][:, : body["top"]].tolist()
    return len({e for row in chosen for e in row}) / body["experts"]


class Timed:
    """A kernel with enough copies of its matrices and of its cache."""

    def __init__(self, xp, run, rotate):
        self.run, self.xp, self.copies = run, xp, []
        large = [i for i, p in enumerate(run.kernel["params"]) if p["kind"] in ("matrix", "kv", "state")]
        self.weights = int(share(run) * sum(run.initial[i].shape[0] for i in large if run.kernel["params"][i]["kind"] == "matrix"))
        size = sum(run.initial[i].shape[0] for i in large)
        count = min(64, max(2, -(-rotate // max(size, 1))))
        self.sets = [run.addresses]
        for _ in range(count - 1):
            mine = {i: xp.put(run.initial[i]) for i in large}
            self.copies += mine.values()
            self.sets.append([mine.get(i, a) for i, a in enumerate(run.addresses)])

    def seconds(self, repeat, warm, launches):
        """Seconds of a launch, from at least so many in a graph: median, least and most; after so
        many seconds of warming up."""
        launches = max(launches, len(self.sets))
        cuda = self.run.cuda
        graph = cuda.graph(lambda: [self.run.launch(self.sets[i % len(self.sets)]) for i in range(launches)])
        try:
            cuda.warm(lambda: cuda.replay(graph), warm)
            return [t / launches for t in cuda.seconds(lambda: cuda.replay(graph), repeat)]
        finally:
            cuda.drop(graph)

    def close(self):
        self.xp.release(self.copies)


def torch_seconds(torch, works, repeat, warm, launches=LAUNCHES):
    """Median seconds of one of `works`, which are run in turn in one CUDA graph, after so many seconds of warming up."""
    launches = max(launches, len(works))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for work in (works * 3)[:3]:
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            works[i % len(works)]()
    began = time.monotonic()
    while True:
        graph.replay()
        torch.cuda.synchronize()
        if time.monotonic() - began >= warm:
            break
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
            from peers import Int4

            some = [Int4(n, k, p["group"], "cuda") for _ in range(min(64, max(2, -(-2 * rotate // (n * k)))))]
            return {"_weight_int4pack_mm": [lambda w=w: w(x) for w in some]}
        if params[body["x"]]["elem"] == "fp8":
            form, one = torch.float8_e4m3fn, torch.ones((), device="cuda")
            some = [torch.randn(n, k, **options).to(form).t() for _ in range(2)]
            mine = x.to(form)
            return {"_scaled_mm": [lambda w=w: torch._scaled_mm(mine, w, scale_a=one, scale_b=one, out_dtype=torch.bfloat16) for w in some]}
    if body["family"] == "attention" and body["own"] is None:
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


def best_peer(torch, kernel, step, rotate, repeat, warm):
    """A row for PyTorch's fastest way; of the ways that do not work with this version, why."""
    found, said = {}, []
    for name, works in peers(torch, kernel, step, rotate).items():
        try:
            with torch.no_grad():
                seconds = torch_seconds(torch, works, repeat, warm)
            if not found or seconds < found["us"] / 1e6:
                found = {"us": seconds * 1e6, "by": name}
        except RuntimeError as error:
            said.append(f"{name}: {str(error).splitlines()[0][:80]}")
            # Where the context is lost, this fails as well, and the process ends.
            torch.cuda.synchronize()
    return {**found, "said": "; ".join(said)}


def whole(xp, parts):
    """A step with every row requested."""
    return Step(xp, [tuple(p) for p in parts], wanted=range(sum(new for _, new in parts)))


def measure(xp, cuda, folder, kernel, parts, options):
    """A row for a shape: first whether it is right, then its speed."""
    step = whole(xp, parts)
    run = Run(xp, cuda, folder, kernel, step)
    try:
        error, allowed = run.check(options["repeats"])
        timed = Timed(xp, run, options["rotate"])
        try:
            median, least, most = timed.seconds(options["timed"], options["warm"], options["launches"])
        finally:
            timed.close()
        moved, work = cost(kernel, step)
        seen = run.occupancy()
    finally:
        run.close()
    return {
        "error": error,
        "allowed": allowed,
        "right": error <= allowed,
        "us": median * 1e6,
        "us_range": [least * 1e6, most * 1e6],
        "bytes": moved + timed.weights,
        "flops": work,
        **seen,
    }
