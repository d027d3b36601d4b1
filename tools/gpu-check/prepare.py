#!/usr/bin/env python3
"""Makes the input of `gpu_check.py`, where the compiler is: no GPU needed here.

    python tools/gpu-check/prepare.py build/gpu-check --target sm90

Compiles with the `llmcc` named by $LLMCC or in PATH, which must have the feature `gpu` (`make GPU=1`); with `ptxas` in PATH, or named by
$LLMCC_PTXAS, artifacts hold machine code beside PTX:
 - small checkpoints with random weights, whole, in every weight format, with the logits that they should give (`*.npz`): in f64 of unquantized models, of the same
   weights in f32 arithmetic on this machine's processor of quantized ones;
 - the shapes of Llama-3.2-1B and Llama-3-8B without weights (`--weights absent`): `gpu_check.py` makes those where it runs;
 - every kernel of all of them, those of `shapes.py`, and those of `variants.py` in other schedules.

The folder travels with the repository, but for `tests/goldens`, which nothing there reads: together they may have 64 MiB. Needs NumPy only.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

import shapes
import variants
from architectures import with_weights
from reference import ARCHIVE, FLOOR, Llama, bf16, exact, f16, relative, tensors

REPOSITORY = Path(__file__).resolve().parents[2]

# Head sizes 64 and 128, four and two query heads per KV head.
SMALL = {
    "d64": ["--hidden", "256", "--heads", "4", "--kv-heads", "1", "--ffn", "256", "--vocab", "512", "--layers", "2"],
    "d128": ["--hidden", "256", "--heads", "2", "--kv-heads", "1", "--ffn", "448", "--vocab", "512", "--layers", "2"],
}
SMALL_FORMATS = {
    "bf16": [],
    "f16": ["--dtype", "f16"],
    "w8": ["--w8", "--group", "64"],
    "w4": ["--w4", "--group", "128"],
    "w4a": ["--w4a", "--group", "32"],
    "fp8": ["--fp8"],
}
# Every format once, the most usual one twice: the folder has to travel.
CASES = {"d64": ["bf16", "w8", "w4", "fp8"], "d128": ["f16", "w4", "w4a"]}
LARGE = {"llama-3.2-1b": ("1.2b", "1b"), "llama-3-8b": ("8b", "8b")}
LARGE_FORMATS = {"bf16": [], "w4": ["--w4", "--group", "128"]}
# Largest size of the folder and the files of the repository, without the fixtures, from which
# kernels are made here.
MOST = 64 << 20
AT_HOME = Path("tests/goldens")
# Lengths of prompts that meet page borders and all regimes (up to 8, 16, 32, 64, 128 and 256 tokens, more).
PROMPTS = [1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 130, 300]
# Rows kept of longer prompts: every so manieth, and the last ones.
WHOLE, EVERY, LAST = 17, 8, 12
# Fixtures that have kernels no Llama has: recurrences, experts, latent attention.
FAMILIES = "recurrence|causal_conv|wkv|route|expert_matmul|attention"
FIXTURES = {
    "qwen3_5": ["--w4", "--group", "32"],
    "mamba2": [],
    "mamba": [],
    "rwkv": [],
    "rwkv7_paper": [],
    "qwen3_moe": ["--w4", "--group", "32"],
    "gpt_oss": [],
    "deepseek_v2_lite": [],
    "deepseek_v3": ["--w8", "--group", "32"],
}
# Kernels in other schedules.
VARIANTS = 300
CPU = "native"
QUANTIZED = ("w8", "w4", "w4a", "fp8")
# Weights beside the artifact, where they need no alignment to large pages.
SMALL_OPTIONS = ["--kv", "f16", "--max-context", "1024", "--weights", "external", "--no-golden", "--quiet"]


def llmcc():
    program = os.environ.get("LLMCC") or shutil.which("llmcc")
    if not program:
        sys.exit("llmcc is not in PATH: build it with `make GPU=1`, or set LLMCC to its path")
    return program


def run(*command):
    command = [os.fspath(c) for c in command]
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True)


class Kernels:
    """Text of the kernels of models, each once."""

    def __init__(self):
        self.texts = {}

    def add(self, model, folder, target, *options, families=""):
        """Kernels of a model; with `families`, a regular expression, only matching ones."""
        file = folder.parent / "kernels.lir"
        run(llmcc(), "compile", folder, "--target", target, *options, "--emit=kernels", "-o", file)
        for text in re.split(r"^(?=kernel )", file.read_text(), flags=re.M)[1:]:
            name, rest = re.match(r'kernel @"?([^\s"]+)"?([\s\S]*)', text).groups()
            if not re.search(rf"^ +({families})", rest, re.M):
                continue
            self.texts.setdefault(rest.strip(), f"{model}.{name}".replace("-", "_"))
        file.unlink()

    def write(self, folder):
        folder.mkdir(exist_ok=True)
        file = folder / "kernels.lir"
        file.write_text("".join(f"kernel @{name} {rest}\n" for rest, name in self.texts.items()))
        return file


def lower(file, target, *options):
    """Code beside a file of kernels, and no file any more."""
    run(llmcc(), "lower", file, "--target", target, *options, "-o", file.parent)
    file.unlink()
    listed = file.parent / "kernels.json"
    described = json.loads(listed.read_text())
    for kernel in described["kernels"]:
        del kernel["text"]
    listed.write_text(json.dumps(described) + "\n")
    for code in [*file.parent.glob("*.cubin"), *file.parent.glob("*.ptx")]:
        pack(code)


def pack(file):
    """The folder has to travel."""
    Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))
    file.unlink()


def travels(out):
    """Bytes of the folder, and of the repository's own files without the fixtures."""
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, check=True).stdout
    tree = [REPOSITORY / name for name in listed.decode().split("\0") if name and AT_HOME not in Path(name).parents]
    inside = {f for f in out.resolve().rglob("*") if f.is_file()}
    return sum(f.stat().st_size for f in inside), sum(f.stat().st_size for f in tree if f.is_file() and f.resolve() not in inside)


def check_size(out, most):
    """Refuses a folder that is too large to travel."""
    folder, tree = travels(out)
    text = f"{out}: {folder / 1e6:.1f} MB, with the repository {(folder + tree) / 1e6:.1f} MB"
    if folder + tree > most:
        sys.exit(f"{text}: more than the {most / 1e6:.1f} MB that may travel")
    return text


# ---- small models ---------------------------------------------------------------------------------------------------------------


def kept(length):
    """Rows of a prompt whose logits are stored."""
    return [i for i in range(length) if length <= WHOLE or i % EVERY == 0 or i >= length - LAST]


class Reference:
    """The expected results of a checkpoint's models, and the error of a library that computes in
    16 bits."""

    def __init__(self, folder):
        config, weights = json.loads((folder / "config.json").read_text()), tensors(folder)
        rng = np.random.default_rng(3)
        self.prompts = [rng.integers(0, config["vocab_size"], n) for n in PROMPTS]
        model = Llama(config, weights, exact)
        self.exact = [model.logits(p) for p in self.prompts]
        self.allowed = {}
        for name, rounded in (("bf16", bf16), ("f16", f16)):
            model = Llama(config, weights, rounded)
            error = max(relative(model.logits(p), w) for p, w in zip(self.prompts, self.exact))
            self.allowed[name] = max(2 * error, FLOOR)

    def write(self, file, logits):
        parts = {}
        for i, (tokens, rows) in enumerate(zip(self.prompts, logits)):
            some = kept(len(tokens))
            parts |= {f"tokens{i}": tokens.astype(np.int32), f"rows{i}": np.array(some), f"logits{i}": np.asarray(rows, np.float32)[some]}
        np.savez_compressed(file, **parts)


def logits_of(artifact, prompts):
    """All rows that an artifact computes on this processor."""
    sys.path.insert(0, str(REPOSITORY / "python"))
    from models import open_on, run_prompts

    with open_on(artifact, "cpu") as model:
        return run_prompts(model, [p.tolist() for p in prompts])


def checkpoint(preset, folder, *options):
    run(sys.executable, REPOSITORY / "benches" / "make_checkpoint.py", preset, folder, *options)


def small(out, target, scratch, kernels, cases):
    for name, shape in SMALL.items():
        if name not in cases:
            continue
        folder = scratch / name
        checkpoint("135m", folder, *shape)
        reference = Reference(folder)
        for form in cases[name]:
            options = SMALL_FORMATS[form]
            artifact = out / f"{name}-{form}.so"
            run(llmcc(), "compile", folder, "--target", target, *SMALL_OPTIONS, *options, "-o", artifact)
            kernels.add(f"{name}-{form}", folder, target, *options, "--kv", "f16", "--max-context", "1024")
            logits = reference.exact
            if form in QUANTIZED:
                # The same weights with exact activations, in f32 arithmetic.
                processor = scratch / f"{name}-{form}.so"
                run(llmcc(), "compile", folder, "--target", CPU, "--act", "f32", *SMALL_OPTIONS, *options, "-o", processor)
                logits = logits_of(processor, reference.prompts)
            reference.write(out / f"{name}-{form}.npz", logits)
            allowed = reference.allowed["f16" if form == "f16" else "bf16"]
            yield {"name": f"{name}-{form}", "format": form, "artifact": artifact.name, "reference": f"{name}-{form}.npz", "allowed": allowed}


def archive(out, artifacts):
    """Packs artifacts with the files beside them (weights; the manifest, which is inside, too, but
    artifacts without weights need it for their names)."""
    with tarfile.open(out / ARCHIVE, "w:xz", preset=9) as packed:
        for name in artifacts:
            for file in sorted(out.glob(f"{name}*"), reverse=True):
                member = tarfile.TarInfo(file.name)
                member.size = file.stat().st_size
                with open(file, "rb") as content:
                    packed.addfile(member, content)
                file.unlink()


# ---- large models ---------------------------------------------------------------------------------------------------------------


def large(out, target, scratch, kernels):
    for name, (preset, short) in LARGE.items():
        folder = scratch / short
        checkpoint(preset, folder, "--sparse")
        for form, options in LARGE_FORMATS.items():
            artifact = out / f"{short}-{form}.so"
            run(llmcc(), "compile", folder, "--target", target, "--max-context", "8192", "--weights", "absent", *options, "-o", artifact)
            kernels.add(f"llama-{short}-{form}", folder, target, *options, "--weights", "absent")
            config = json.loads((folder / "config.json").read_text())
            yield {"name": name, "format": form, "artifact": artifact.name, "config": config}
        shutil.rmtree(folder)


def more_kernels(kernels, scratch, target):
    """Kernels that none of the models has: other caches, fp8 activations."""
    for options in (["--kv", "bf16"], ["--kv", "int8"], ["--fp8", "--act", "fp8"]):
        name = "d128-" + "-".join(o.strip("-") for o in options)
        kernels.add(name, scratch / "d128", target, *options, "--max-context", "1024")
    for name, options in FIXTURES.items():
        kernels.add(name, with_weights(REPOSITORY / AT_HOME / name), target, *options, families=FAMILIES)


def prepare(out, target, scratch, tiny):
    kernels = Kernels()
    cases = {"d64": ["bf16", "w4"]} if tiny else CASES
    models = {
        "target": target,
        "small": list(small(out, target, scratch, kernels, cases)),
        "large": [] if tiny else list(large(out, target, scratch, kernels)),
    }
    archive(out, [m["artifact"] for m in [*models["small"], *models["large"]]])
    (out / "models.json").write_text(json.dumps(models, indent=1) + "\n")
    if not tiny:
        more_kernels(kernels, scratch, target)
    lower(kernels.write(out / "kernels"), target)
    lower(shapes.write(out / "speed", tiny), target)
    described = json.loads((out / "kernels" / "kernels.json").read_text())
    shapes.describe(out / "speed", [*shapes.shapes(tiny), *shapes.of_models(described)])
    count = variants.prepare(out / "variants", lambda file, schedule: lower(file, target, "--schedule", schedule, "--where-fits"), VARIANTS, tiny)
    print(f"{count} kernels in other schedules")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="sm90")
    parser.add_argument("--most", type=int, default=MOST, metavar="BYTES", help="of the folder and the repository together")
    parser.add_argument("--check", action="store_true", help="only whether a folder is small enough")
    parser.add_argument("--tiny", action="store_true", help="little of everything, to try the scripts with the driver's stand-in")
    args = parser.parse_args()
    if not args.check:
        if args.out.exists() and any(args.out.iterdir()) and not (args.out / "models.json").exists():
            sys.exit(f"{args.out} has other things in it: name a folder that is empty, new, or made by this script")
        shutil.rmtree(args.out, ignore_errors=True)
        args.out.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
            prepare(args.out, args.target, Path(scratch), args.tiny)
    text = check_size(args.out, args.most)
    print(f"{text}; now: tools/gpu-check/one-call.sh --folder {args.out}")


if __name__ == "__main__":
    main()
