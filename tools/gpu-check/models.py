"""Whole models through the runtime: small ones against stored references, large ones for speed."""

import json
import os
import shutil
import tarfile
import time
from pathlib import Path

import llmcc
import numpy as np
import weights
from reference import ARCHIVE, relative

# Tokens before those whose speed is measured; of each sequence of a batch before all are measured.
CONTEXT, EARLY = 512, 4
# Sequences that generate at once.
BATCHES = (8, 32, 128)
# Tokens of the cache, for the largest batch.
CACHE = BATCHES[-1] * (CONTEXT + 512)
# Longest prompt of the small models with the driver's stand-in.
SHORT = 17


def unpack(archive, to):
    """Unpacks an archive into a folder: each file is there whole or not at all."""
    with tarfile.open(archive, "r:xz") as packed:
        for member in packed:
            target = to / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            part = Path(f"{target}.part")
            with packed.extractfile(member) as source, open(part, "wb") as out:
                shutil.copyfileobj(source, out, 1 << 24)
            part.rename(target)


def unpacked(folder, artifact, shared, own):
    """The path of an artifact in a worker's folder `own`, with the files beside it. The first
    time, all are unpacked into `shared`: a worker writes only to its own folder, which goes
    with it."""
    if not (shared / artifact).exists():
        # An artifact comes after the files beside it: where it is, they are, too.
        unpack(folder / ARCHIVE, shared)
    for file in shared.glob(f"{artifact}*"):
        link = own / file.name
        if not link.exists() and file.suffix != ".part":
            link.symlink_to(file)
    return own / artifact


def open_on(path, device, **options):
    os.environ["LLMCC_DEVICE"] = device
    try:
        return llmcc.load(path, **options)
    finally:
        del os.environ["LLMCC_DEVICE"]


# ---- correctness -------------------------------------------------------------------------------------------------------


def run_prompts(model, prompts):
    """Logits of every token of each prompt, in one step each."""
    out = []
    for tokens in prompts:
        with model.session() as s:
            out.append(np.array(s.step(tokens, all_rows=True)))
    return out


def run_decoding(model, tokens, prefix):
    """The same logits, a prefix at once and then token by token."""
    with model.session() as s:
        rows = [np.array(s.step(tokens[:prefix], all_rows=True))]
        rows += [np.array(s.step([t]))[None] for t in tokens[prefix:]]
    return np.concatenate(rows)


def run_ragged(model, prompts):
    """The last logits of sequences that advance together: first all of their prompts but the last three tokens, then those one by one."""
    sessions = [model.session() for _ in prompts]
    model.step([(s, p[:-3]) for s, p in zip(sessions, prompts)])
    for i in (-3, -2):
        model.step([(s, [p[i]]) for s, p in zip(sessions, prompts)])
    logits = np.array(model.step([(s, [p[-1]]) for s, p in zip(sessions, prompts)]))
    for s in sessions:
        s.close()
    return logits


def check_small(path, folder, case, device, small, repeats):
    """One model in one format through all its regimes: a row."""
    stored = np.load(folder / case["reference"])
    count = sum(name.startswith("tokens") for name in stored.files)
    cases = [tuple(stored[f"{what}{i}"] for what in ("tokens", "rows", "logits")) for i in range(count)]
    if small:
        cases = [c for c in cases if len(c[0]) <= SHORT]
    prompts = [tokens.tolist() for tokens, _, _ in cases]

    def worst(i, logits):
        _, rows, want = cases[i]
        return relative(logits[rows], want)

    with open_on(path, device) as model:
        first = run_prompts(model, prompts)
        whole = max(worst(i, logits) for i, logits in enumerate(first))
        # Token by token, after a prompt of one token and after long ones.
        long = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))[-3:]
        single = max(worst(i, run_decoding(model, prompts[i], max(1, len(prompts[i]) - 10 if i != long[0] else 1))) for i in long)
        several = [i for i, p in enumerate(prompts) if len(p) > 4]
        last = np.stack([cases[i][2][-1] for i in several])
        ragged = relative(run_ragged(model, [prompts[i] for i in several]), last)
        same = all(np.array_equal(first[i], again) for _ in range(repeats - 1) for i, again in zip(long[-2:], run_prompts(model, [prompts[j] for j in long[-2:]])))
    errors = {"prompts": whole, "token_by_token": single, "ragged": ragged}
    return {**errors, "allowed": case["allowed"], "same_bits": same, "right": max(errors.values()) <= case["allowed"] and same}


# ---- speed -------------------------------------------------------------------------------------------------------------


def tokens(count):
    return np.random.default_rng(1).integers(0, 500, count).tolist()


def decode_rate(model, steps):
    """Tokens per second of greedy generation."""
    pieces = model.pieces(tokens(CONTEXT), max_tokens=steps + 8, ignore_eos=True)
    for _ in range(8):
        next(pieces)
    began = time.perf_counter()
    count = sum(1 for _ in pieces)
    return count / (time.perf_counter() - began)


class Batch:
    """Greedy generation of `count` sequences, a token of each in a step, after prompts of `context` tokens: tokens are chosen on the GPU, and logits stay there."""

    def __init__(self, model, count, steps, context=CONTEXT):
        self.count, self.steps = count, steps
        # The first go on while the prompts of the last are computed.
        most = count * context // model.info["max_batch_tokens"] + steps + 3 * EARLY
        prompts = [tokens(context) for _ in range(count)]
        self.pieces = model.pieces(prompts, max_tokens=most, ignore_eos=True, temperature=0, max_batch=count)

    def run(self, mark=lambda: None):
        """Tokens per second while all of them generate; `mark` is called at the beginning and at the end of that."""
        made, waiting = [0] * self.count, self.count
        while waiting:
            index, _ = next(self.pieces)
            made[index] += 1
            waiting -= made[index] == EARLY
        mark()
        began = time.perf_counter()
        for _ in range(self.count * self.steps):
            next(self.pieces)
        took = time.perf_counter() - began
        mark()
        self.pieces.close()
        return self.count * self.steps / took


def prefill_rate(model, length, repeat):
    prompt, times = tokens(length), []
    for _ in range(repeat + 1):
        with model.session() as s:
            began = time.perf_counter()
            s.step(prompt)
            times.append(time.perf_counter() - began)
    return length / sorted(times[1:])[repeat // 2]


def measure_large(path, steps, emit):
    """Rows for a model with random weights: each as soon as it is known. The last have the times
    of each kernel."""
    manifest = json.loads(Path(f"{path}.json").read_text())
    data = Path(f"{path}.weights")
    try:
        size, took = weights.write(manifest, data)
        emit("weights", {"bytes": size, "took": took})
        began = time.perf_counter()
        with open_on(path, "gpu", max_tokens=CACHE) as model:
            emit("open", {"took": time.perf_counter() - began, "parts": model.stats()["open_ns"]})
            read = manifest["weights"]["read_per_step"]
            emit("decode", {"rate": decode_rate(model, steps), "read": read})
            for length in (128, 512, 2048):
                emit(f"prompt{length}", {"rate": prefill_rate(model, length, 3)})
            for batch in BATCHES:
                emit(f"decode{batch}", {"rate": Batch(model, batch, steps // 2).run()})
        with open_on(path, "gpu", profile=True, max_tokens=CACHE) as model:
            emit("kernels", {"kernels": kernels(model)})
            emit("batch-kernels", {"kernels": [row for batch in BATCHES for row in batch_kernels(model, batch)]})
    finally:
        data.unlink(missing_ok=True)


def batch_kernels(model, batch, steps=8, context=CONTEXT):
    """Time of each kernel in steps of so many sequences."""
    marks = []
    Batch(model, batch, steps, context).run(lambda: marks.append(profile(model)))
    parts = subtract(marks[1], marks[0])
    return [{"step": f"{batch} sequences", "kernel": name, "calls": calls, "us": ns / calls / 1e3} for (_, name), (calls, ns) in parts.items()]


def kernels(model):
    """Times of each kernel of decoding and of a prompt inside of the model, and bytes and
    operations from the manifest."""
    predicted = {(k["regime"], k["kernel"]): k for k in model.manifest["versions"][0]["predicted"]["kernels"]}
    # Each part alone, so that the size of its steps is known.
    with model.session() as s:
        s.step([1] * CONTEXT)
        before = profile(model)
        for _ in range(16):
            s.step([1])
        decode = subtract(profile(model), before)
        before = profile(model)
    with model.session() as s:
        s.step([1] * 512)
        prompt = subtract(profile(model), before)
    rows = []
    for what, m, part in (("decode", 1, decode), ("prompt of 512", 512, prompt)):
        for (regime, kernel), (calls, ns) in part.items():
            row = {"step": what, "kernel": kernel, "calls": calls, "us": ns / calls / 1e3}
            cost = predicted.get((regime, kernel))
            if cost is not None:
                point = min(cost["points"], key=lambda p: abs(p["m"] - (1 if cost["of_logits"] else m)))
                at = CONTEXT if m == 1 else 256
                row["bytes"] = point["bytes"] + at * point.get("bytes_per_context", 0)
                row["flops"] = 2 * (point["macs"] + at * point.get("macs_per_context", 0))
            rows.append(row)
    return rows


def profile(model):
    out = {}
    for s in (model.stats()["profile"] or {"steps": []})["steps"]:
        calls, ns = out.get((s["regime"], s["kernel"]), (0, 0))
        out[s["regime"], s["kernel"]] = calls + s["calls"], ns + s["ns"]
    return out


def subtract(after, before):
    parts = {k: (c - before.get(k, (0, 0))[0], ns - before.get(k, (0, 0))[1]) for k, (c, ns) in after.items()}
    return {k: v for k, v in parts.items() if v[0]}
