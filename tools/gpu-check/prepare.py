#!/usr/bin/env python3
"""Makes what `gpu_check.py` needs, where the compiler is: no GPU needed here.

    python tools/gpu-check/prepare.py target/gpu-check --target sm90

Compiles with the `llmcc` named by $LLMCC or in PATH, which must have the feature `gpu` (`make GPU=1`); with `ptxas` in PATH, or named by
$LLMCC_PTXAS, artifacts hold machine code beside PTX:
 - small checkpoints with random weights, whole, in every weight format: for the GPU, and for the CPU as the reference of quantized ones;
 - the shapes of Llama-3.2-1B and Llama-3-8B without weights (`--weights absent`): `gpu_check.py` makes those where it runs;
 - every kernel of all of them, and those of `shapes.py`, alone.

The folder has about 50 MB. Take it and the repository's `tools/` and `python/` folders to the machine with the GPU. Needs NumPy only.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import shapes

REPOSITORY = Path(__file__).resolve().parents[2]

# Head sizes 64 and 128, four and two query heads per KV head.
SMALL = {
    "d64": ["--hidden", "256", "--heads", "4", "--kv-heads", "1", "--ffn", "512", "--vocab", "512", "--layers", "2"],
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
# Every format once or twice: the folder has to travel.
CASES = {"d64": ["bf16", "f16", "w8", "w4", "fp8"], "d128": ["bf16", "w4", "w4a"]}
LARGE = {"llama-3.2-1b": ("1.2b", "1b"), "llama-3-8b": ("8b", "8b")}
LARGE_FORMATS = {"bf16": [], "w4": ["--w4", "--group", "128"]}
CPU = "x86-64-v3"
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

    def add(self, model, folder, target, *options):
        file = folder.parent / "kernels.lir"
        run(llmcc(), "compile", folder, "--target", target, *options, "--emit=kernels", "-o", file)
        for text in re.split(r"^(?=kernel )", file.read_text(), flags=re.M)[1:]:
            name, rest = re.match(r'kernel @"?([^\s"]+)"?([\s\S]*)', text).groups()
            self.texts.setdefault(rest.strip(), f"{model}.{name}".replace("-", "_"))
        file.unlink()

    def write(self, folder):
        folder.mkdir(exist_ok=True)
        file = folder / "kernels.lir"
        file.write_text("".join(f"kernel @{name} {rest}\n" for rest, name in self.texts.items()))
        return file


def lower(file, target):
    run(llmcc(), "lower", file, "--target", target, "-o", file.parent)
    file.unlink()
    # The folder has to travel.
    for code in [*file.parent.glob("*.cubin"), *file.parent.glob("*.ptx")]:
        Path(f"{code}.gz").write_bytes(gzip.compress(code.read_bytes(), 9))
        code.unlink()


def checkpoint(preset, folder, *options):
    run(sys.executable, REPOSITORY / "benches" / "make_checkpoint.py", preset, folder, *options)


def small(out, target, kernels):
    for name, shape in SMALL.items():
        folder = out / name
        checkpoint("135m", folder, *shape)
        for form in CASES[name]:
            options = SMALL_FORMATS[form]
            artifact = out / f"{name}-{form}.so"
            # Of a CPU, to try the script: its own activations are int8, which is another error.
            exact = [] if target.startswith("sm") else ["--act", "f32"]
            run(llmcc(), "compile", folder, "--target", target, *exact, *SMALL_OPTIONS, *options, "-o", artifact)
            if target.startswith("sm"):
                kernels.add(f"{name}-{form}", folder, target, *options, "--kv", "f16", "--max-context", "1024")
            model = {"name": f"{name}-{form}", "checkpoint": name, "format": form, "artifact": artifact.name}
            if form in QUANTIZED:
                # The same weights with exact activations, in f32 arithmetic.
                reference = out / f"{name}-{form}.cpu.so"
                run(llmcc(), "compile", folder, "--target", CPU, "--act", "f32", *SMALL_OPTIONS, *options, "-o", reference)
                model["reference"] = reference.name
            yield model


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="sm90")
    parser.add_argument("--only", choices=["small", "large"])
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    scratch = args.out / "shapes"
    kernels = Kernels()
    models = {
        "target": args.target,
        "small": list(small(args.out, args.target, kernels)) if args.only != "large" else [],
        "large": list(large(args.out, args.target, scratch, kernels)) if args.only != "small" else [],
    }
    shutil.rmtree(scratch, ignore_errors=True)
    if args.target.startswith("sm"):
        # Kernels that none of the models has: other caches, fp8 activations.
        if args.only != "large":
            for options in (["--kv", "bf16"], ["--kv", "int8"], ["--fp8", "--act", "fp8"]):
                name = "d128-" + "-".join(o.strip("-") for o in options)
                kernels.add(name, args.out / "d128", args.target, *options, "--max-context", "1024")
        lower(kernels.write(args.out / "kernels"), args.target)
        lower(shapes.write(args.out / "speed"), args.target)
    (args.out / "models.json").write_text(json.dumps(models, indent=1) + "\n")
    size = sum(f.stat().st_size for f in args.out.rglob("*") if f.is_file())
    print(f"{args.out}: {size / 1e6:.1f} MB; now, where the GPU is: python tools/gpu-check/gpu_check.py {args.out}")


if __name__ == "__main__":
    main()
