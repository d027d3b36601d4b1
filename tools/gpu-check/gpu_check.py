#!/usr/bin/env python3
"""Checks and measures llmcc artifacts on a GPU, in one command.

    python tools/gpu-check/gpu_check.py target/gpu-check [--out results.md] [--quick]

Needs an NVIDIA driver, PyTorch and NumPy, and the folder that `prepare.py` made where the compiler is; neither the CUDA toolkit nor LLVM.

1. Kernels, each alone, through the driver: every kernel of all the models here, in steps of one token, of several, of ragged sequences, compared with what it means in
   PyTorch in f64 (`kernels.py`). The error may be twice that of PyTorch in f32 with 16-bit operands and results.
2. Models. Every small model in every weight format, through all regimes of the plan: prompts, several tokens, single tokens, ragged batches of several
   sequences. The reference of unquantized models is PyTorch in f64; of quantized ones the same weights in f32 arithmetic on the CPU. The error may be twice that of
   PyTorch in the model's 16-bit type.
3. Speed. Kernels at the shapes of `shapes.py`, alone, beside PyTorch's (cuBLAS, its 4-bit product, its attention) and the measured peaks of this machine; then the shapes of
   Llama-3.2-1B and 8B with random weights made here: tokens per second of decoding and of prompts, beside PyTorch in bf16 and in 4 bits; then every kernel of these
   with what it reaches inside of the model.

Exit status 1 when something is wrong, so that it can be a test.
"""

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "python"), str(Path(__file__).resolve().parent)]

import numpy as np  # noqa: E402
import torch  # noqa: E402

import arrays  # noqa: E402
import cuda  # noqa: E402
import kernels as alone  # noqa: E402
import llmcc  # noqa: E402
import reference  # noqa: E402
import speed as shapes  # noqa: E402
import weights  # noqa: E402

# Lengths that meet page borders and all regimes (up to 8, 16, 32, 64, 128 and 256 tokens, more).
PROMPTS = [1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 130, 300]
FLOOR = 1e-3


class Report:
    """Lines for the terminal and for a Markdown file."""

    def __init__(self):
        self.lines, self.wrong = [], 0

    def say(self, text=""):
        print(text, flush=True)
        self.lines.append(text)

    def table(self, head, rows):
        self.say("| " + " | ".join(head) + " |")
        self.say("|" + "---|" * len(head))
        for row in rows:
            self.say("| " + " | ".join(str(c) for c in row) + " |")
        self.say()

    def check(self, fine):
        self.wrong += not fine
        return "ok" if fine else "**WRONG**"


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


def relative(got, want):
    """Root mean square of the error over that of the reference, of the worst row; infinite when a number is missing."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if not np.isfinite(got).all():
        return float("inf")
    return float((np.sqrt(((got - want) ** 2).mean(-1)) / np.sqrt((want**2).mean(-1))).max())


def open_on(path, device):
    os.environ["LLMCC_DEVICE"] = device
    try:
        return llmcc.load(path)
    finally:
        del os.environ["LLMCC_DEVICE"]


def check_small(folder, case, report, cache, device):
    """One model in one format: a row of the table."""
    key = case["checkpoint"]
    config = json.loads((folder / key / "config.json").read_text())
    rng = np.random.default_rng(3)
    prompts = [rng.integers(0, config["vocab_size"], n).tolist() for n in PROMPTS]
    if key not in cache:
        tensors = reference.tensors(folder / key)
        where = "cpu" if device == "cpu" else "cuda"
        exact = reference.Llama(config, tensors, torch.float64, where)
        rounded = {d: reference.Llama(config, tensors, d, where) for d in (torch.bfloat16, torch.float16)}
        with torch.no_grad():
            want = [exact.logits(p).cpu().numpy() for p in prompts]
            theirs = {d: max(relative(m.logits(p).float().cpu().numpy(), w) for p, w in zip(prompts, want)) for d, m in rounded.items()}
        cache[key] = want, theirs
    want, theirs = cache[key]
    if "reference" in case:
        with open_on(folder / case["reference"], "cpu") as cpu:
            want = run_prompts(cpu, prompts)
    allowed = max(2 * theirs[torch.float16 if case["format"] == "f16" else torch.bfloat16], FLOOR)
    with open_on(folder / case["artifact"], device) as gpu:
        whole = max(relative(g, w) for g, w in zip(run_prompts(gpu, prompts), want))
        single = max(relative(run_decoding(gpu, prompts[i], n), want[i]) for i, n in ((5, 1), (9, 60), (11, 290)))
        several = [i for i, n in enumerate(PROMPTS) if n > 4]
        ragged = relative(run_ragged(gpu, [prompts[i] for i in several]), np.stack([want[i][-1] for i in several]))
        again = all(np.array_equal(a, b) for a, b in zip(run_prompts(gpu, prompts[-2:]), run_prompts(gpu, prompts[-2:])))
    verdict = report.check(max(whole, single, ragged) <= allowed and again)
    numbers = [f"{x:.2e}" for x in (whole, single, ragged, allowed)]
    return [case["name"], *numbers, "yes" if again else "no", verdict]


def correctness(folder, models, report, device):
    report.say("## Models\n")
    report.say("Largest relative error of a row of logits; PyTorch's own 16-bit error, doubled, is what is allowed.\n")
    cache, rows = {}, []
    for case in models["small"]:
        try:
            rows.append(check_small(folder, case, report, cache, device))
        except Exception as error:  # noqa: BLE001: one failing model must not hide the others
            report.wrong += 1
            rows.append([case["name"], *[""] * 5, f"**{type(error).__name__}: {error}**"])
        print(rows[-1], flush=True)
    report.table(["model", "prompts", "token by token", "ragged", "allowed", "repeats", ""], rows)


# ---- the machine -------------------------------------------------------------------------------------------------------


def seconds(work, repeat=20, warm=3):
    """Median seconds of GPU work, by events."""
    for _ in range(warm):
        work()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeat)]
    for first, last in pairs:
        first.record()
        work()
        last.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in pairs)[repeat // 2] / 1e3


def machine(report):
    """Bandwidth of copying and of reading, and the rate of a large product."""
    a = torch.empty(1 << 29, device="cuda", dtype=torch.int32).zero_()
    b = torch.empty_like(a)
    copy = 2 * a.numel() * 4 / seconds(lambda: b.copy_(a))
    del a, b
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    y = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    product = 2 * 8192**3 / seconds(lambda: x @ y)
    del x, y
    torch.cuda.empty_cache()
    report.say(f"Copying: {copy / 1e9:.0f} GB/s. bf16 product of 8192³ (cuBLAS): {product / 1e12:.0f} TFLOP/s.\n")
    return copy, product


# ---- speed -------------------------------------------------------------------------------------------------------------


def decode_rate(model, context, steps):
    """Tokens per second of greedy generation after `context` tokens."""
    prompt = np.random.default_rng(1).integers(0, 1000, context).tolist()
    pieces = model.pieces(prompt, max_tokens=steps + 8, ignore_eos=True)
    for _ in range(8):
        next(pieces)
    began = time.perf_counter()
    count = sum(1 for _ in pieces)
    return count / (time.perf_counter() - began)


def batch_rate(model, batch, context, steps):
    sessions = [model.session() for _ in range(batch)]
    for s in sessions:
        s.step(np.random.default_rng(1).integers(0, 1000, context).tolist())
    for _ in range(3):
        model.step([(s, [1]) for s in sessions])
    began = time.perf_counter()
    for _ in range(steps):
        model.step([(s, [1]) for s in sessions])
    rate = batch * steps / (time.perf_counter() - began)
    for s in sessions:
        s.close()
    return rate


def prefill_rate(model, length, repeat):
    prompt = np.random.default_rng(1).integers(0, 1000, length).tolist()
    times = []
    for _ in range(repeat + 1):
        with model.session() as s:
            began = time.perf_counter()
            s.step(prompt)
            times.append(time.perf_counter() - began)
    return length / sorted(times[1:])[repeat // 2]


def torch_decode(config, batch, context, int4):
    """Tokens per second of PyTorch: one captured CUDA graph per step, static cache."""
    with torch.no_grad():
        w = reference.random_weights(config, "cuda", int4)
        model = reference.Decoder(config, w, torch.bfloat16, "cuda", batch, context, reference.linear_of_any)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                model.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model.step()
        return batch / seconds(graph.replay)


def torch_prefill(config, length):
    with torch.no_grad():
        model = reference.Llama(config, reference.random_weights(config, "cuda"), torch.bfloat16, "cuda")
        tokens = torch.ones(length, dtype=torch.long, device="cuda")
        return length / seconds(lambda: model.logits(tokens), repeat=5)


def attempt(work):
    """A number, or what went wrong."""
    try:
        return f"{work():.0f}"
    except Exception as error:  # noqa: BLE001
        return f"({type(error).__name__}: {str(error).splitlines()[0][:60] if str(error) else ''})"
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def kernels(folder, case, context, report, copy):
    """What each kernel of decoding and of a prompt reaches: measured by the runtime, bytes and operations from the manifest."""
    path = folder / case["artifact"]
    with llmcc.load(path, profile=True, max_tokens=8192) as model:
        predicted = {(k["regime"], k["kernel"]): k for k in model.manifest["versions"][0]["predicted"]["kernels"]}
        # Each part alone, so that the size of its steps is known.
        with model.session() as s:
            s.step([1] * context)
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
            cost = predicted.get((regime, kernel))
            us = ns / calls / 1e3
            if cost is None:
                rows.append([what, kernel, calls, f"{us:.1f}", "", "", ""])
                continue
            rows_of = 1 if cost["of_logits"] else m
            point = min(cost["points"], key=lambda p: abs(p["m"] - rows_of))
            at = context if m == 1 else 256
            moved = point["bytes"] + at * point.get("bytes_per_context", 0)
            macs = point["macs"] + at * point.get("macs_per_context", 0)
            rate = moved / us / 1e3
            rows.append([what, kernel, calls, f"{us:.1f}", f"{rate:.0f}", f"{1e11 * rate / copy:.0f} %", f"{2 * macs / us / 1e6:.1f}"])
    report.say(f"### Kernels of {case['name']}, {case['format']}\n")
    report.table(["step", "kernel", "calls", "µs", "GB/s", "of copying", "TFLOP/s"], rows)


def profile(model):
    out = {}
    for s in (model.stats()["profile"] or {"steps": []})["steps"]:
        calls, ns = out.get((s["regime"], s["kernel"]), (0, 0))
        out[s["regime"], s["kernel"]] = calls + s["calls"], ns + s["ns"]
    return out


def subtract(after, before):
    parts = {k: (c - before.get(k, (0, 0))[0], ns - before.get(k, (0, 0))[1]) for k, (c, ns) in after.items()}
    return {k: v for k, v in parts.items() if v[0]}


def speed(folder, models, report, quick):
    report.say("## Speed\n")
    copy, peak = machine(report)
    report.say("### Kernels alone\n")
    report.say("In CUDA graphs of many launches, over copies of their large operands: nothing is found in the L2 cache. PyTorch's the same way; its share of our time.\n")
    driver = cuda.Cuda()
    shapes.measure_all(folder / "speed", report, arrays.Torch(driver), driver, copy, peak, torch, 5 if quick else 20)
    gc.collect()
    torch.cuda.empty_cache()
    report.say("### Models\n")
    rows = []
    context, steps = 512, 32 if quick else 128
    batches = [8] if quick else [8, 32]
    for case in models["large"]:
        path = folder / case["artifact"]
        manifest = json.loads(Path(f"{path}.json").read_text())
        size, took = weights.write(manifest, Path(f"{path}.weights"), "cuda")
        print(f"{path}.weights: {size / 1e9:.2f} GB in {took:.0f} s", flush=True)
        gc.collect()
        torch.cuda.empty_cache()
        config, int4 = case["config"], case["format"] != "bf16"
        try:
            with llmcc.load(path, max_tokens=32 * 2048) as model:
                ours = {"decode": decode_rate(model, context, steps)}
                ours |= {f"decode of {b}": batch_rate(model, b, context, steps) for b in batches}
                ours |= {f"prompt of {n}": prefill_rate(model, n, 3) for n in (512, 2048)}
            roofline = copy / manifest["weights"]["read_per_step"]
            for what, rate in ours.items():
                if what.startswith("prompt"):
                    theirs = attempt(lambda: torch_prefill(config, int(what.split()[-1]))) if not int4 else ""
                else:
                    theirs = attempt(lambda: torch_decode(config, int(what.split()[-1]) if " " in what else 1, context, int4))
                share = f"{100 * rate / roofline:.0f} %" if what == "decode" else ""
                rows.append([case["name"], case["format"], what, f"{rate:.0f}", theirs, share])
                print(rows[-1], flush=True)
            kernels(folder, case, context, report, copy)
        except Exception as error:  # noqa: BLE001
            report.wrong += 1
            rows.append([case["name"], case["format"], f"**{type(error).__name__}: {error}**", "", "", ""])
            print(rows[-1], flush=True)
        finally:
            Path(f"{path}.weights").unlink(missing_ok=True)
    report.say(f"Tokens per second after a context of {context}. PyTorch: bf16, or its 4-bit product, in a CUDA graph.\n")
    report.table(["model", "weights", "what", "llmcc", "PyTorch", "of the roofline"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="write the report here as well, as Markdown")
    parser.add_argument("--only", choices=["kernels", "models", "speed"])
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    parser.add_argument("--cpu", action="store_true", help="try the second part of this script on artifacts for this CPU (`prepare.py --target native`)")
    args = parser.parse_args()
    if not args.cpu and not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU: this is for a machine with one")
    torch.backends.cuda.matmul.allow_tf32 = False
    models = json.loads((args.folder / "models.json").read_text())
    report = Report()
    name = "No GPU" if args.cpu else torch.cuda.get_device_name()
    report.say(f"# {name}, {time.strftime('%Y-%m-%d')}\n")
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = "none" if args.cpu else subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    report.say(f"Target {models['target']}, driver {driver}, PyTorch {torch.__version__}, {platform.processor() or platform.machine()}; `{' '.join(sys.argv)}`\n")
    if args.only in (None, "kernels") and not args.cpu:
        report.say("## Kernels\n")
        report.say("Largest error of what is stored, relative to the root mean square of its row.\n")
        driver = cuda.Cuda()
        alone.check_all(args.folder / "kernels", report, arrays.Torch(driver), driver)
    if args.only in (None, "models"):
        correctness(args.folder, models, report, "cpu" if args.cpu else "gpu")
    if args.only in (None, "speed") and not args.cpu:
        speed(args.folder, models, report, args.quick)
    report.say(f"{report.wrong} wrong." if report.wrong else "Everything is right.")
    if args.out:
        args.out.write_text("\n".join(report.lines) + "\n")
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
