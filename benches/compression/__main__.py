#!/usr/bin/env python3
"""Prints how far compressed models are from their checkpoint: ours beside llama.cpp's of the same bytes, and
mixtures beside uniform formats. The tables of docs/compression.md come from here.

    python3 benches/compression /tmp/trained-model --llama-bin DIR      # the model and texts that train.py makes
    python3 benches/compression examples/tiny-llama/model --window 256 --texts TEXTS --llama-bin DIR
    python3 benches/compression MODEL                                   # ours alone

The folder of the texts has `eval.txt`, by which everything is measured, and `calib.txt`, from which both sides have
their moments and by which mixtures are chosen; `python_text.py TEXTS` writes both for the example model. DIR has
`llama-imatrix`, `llama-quantize` and `llama-perplexity` (llama.cpp's own, built by the user).

The bytes of all matrices count, the embedding included; vectors (norms) are f32 on both sides and do not count. A
mixture may have as many bytes as the file of llama.cpp's that it stands beside. Beside `Q4_0` stands `c4` alone;
"Q4_0 pure" has the embedding in Q4_0 too, which llama.cpp keeps in Q6_K where it is also the head.

KL is the mean over tokens, in nats; behind ± stands its standard error. llama.cpp cuts the text into windows, each
with the beginning-of-text token, and predicts the second half of each. `llmcc eval kl` gets windows of the same
length that overlap by half, so all tokens behind the first window have as much context as those there. With
--same-file a column has llama.cpp's file, compiled with its own codes and measured by `llmcc eval kl`: the same
tokens, windows and reference as ours. (The products of its `IQ2` and `IQ3` types are slow here: minutes for each.)

Needs NumPy, and gguf==0.19.0 for llama.cpp's side. Results are kept in --work for the next run.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Iterator, Optional

import theirs
from ours import UNIFORM, Artifact, Compiler
from work import Work

ROOT = Path(__file__).resolve().parents[2]
# The largest ratio of our divergence to that of llama.cpp's file of the same bytes.
BARS = {"IQ3_S": 0.75, "IQ2_M": 0.6, "Q4_K_M": 1.0}
# Budgets of mixtures: the bytes of these.
BUDGETS = ("t3", "c3", "c4", "w4g32", "w4ag32")


def kl(found: tuple[float, float]) -> str:
    return f"{found[0]:.5f} ± {found[1]:.5f}"


def bits(size: int, elements: int) -> str:
    return f"{8 * size / elements:.3f}"


def in_words(artifact: Artifact) -> str:
    shares = sorted(artifact.formats.items(), key=lambda item: -item[1])
    return ", ".join(f"{fmt} {100 * size / artifact.bytes:.0f} %" for fmt, size in shares)


def verdict(ratio: float, bar: Optional[float]) -> str:
    return "" if bar is None else f"≤ {bar:g}: {'kept' if ratio <= bar else 'missed'}"


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def uniform_table(ours: Compiler) -> Iterator[str]:
    yield row("format", "bits per weight", "bytes", "KL")
    yield row("---", "---", "---", "---")
    for fmt in UNIFORM:
        made = ours.uniform(fmt)
        yield row(f"`{fmt}`", bits(made.bytes, made.elements), str(made.bytes), kl(ours.divergence(made)))


def best_uniform(ours: Compiler, size: int) -> Optional[Artifact]:
    """The uniform format of the least divergence whose matrices have at most `size` bytes."""
    within = [made for made in map(ours.uniform, UNIFORM) if made.bytes <= size]
    return min(within, key=lambda made: ours.divergence(made)[0], default=None)


def beside_uniform(ours: Compiler, size: int, found: float) -> str:
    best = best_uniform(ours, size)
    if best is None:
        return "none is as small"
    return f"{found / ours.divergence(best)[0]:.3f} of `{best.path.stem}`"


def budget_table(ours: Compiler) -> Iterator[str]:
    yield row("bytes of", "bits per weight", "best uniform format", "its KL", "mixture", "its bits", "its KL", "ratio")
    yield row(*["---"] * 8)
    for fmt in BUDGETS:
        own = ours.uniform(fmt)
        best, mixture = best_uniform(ours, own.bytes) or own, ours.mixture(own.bytes, fmt)
        a, b = ours.divergence(best), ours.divergence(mixture)
        cells = [f"`{fmt}`", bits(own.bytes, own.elements), f"`{best.path.stem}`", kl(a), in_words(mixture)]
        yield row(*cells, bits(mixture.bytes, mixture.elements), kl(b), f"{b[0] / a[0]:.3f}")


def beside_table(ours: Compiler, tools: theirs.Tools, formats: list[str], same_file: bool) -> Iterator[str]:
    head = ["llama.cpp", "bits per weight", "KL", "ours", "bits", "KL", "ratio", "bar", "to the best uniform format"]
    head += ["KL of llama.cpp's file here", "ratio to it"] if same_file else []
    yield row(*head)
    yield row(*["---"] * len(head))
    for fmt in formats:
        file = tools.quantized(fmt)
        size, elements, kinds = theirs.matrices(file)
        there = tools.divergence(fmt)
        types = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
        cells = [f"{fmt} ({types})", bits(size, elements), kl(there)]
        alone = fmt.startswith("Q4_0")
        made = ours.uniform("c4") if alone else ours.mixture(size, fmt)
        name, bar = ("`c4` alone", 1.0) if alone else (in_words(made), BARS.get(fmt))
        found = ours.divergence(made)
        ratio = found[0] / there[0]
        cells += [name, bits(made.bytes, made.elements), kl(found), f"{ratio:.3f}", verdict(ratio, bar)]
        cells.append("" if alone else beside_uniform(ours, size, found[0]))
        if same_file:
            here = ours.divergence(ours.of_gguf(file))
            cells += [kl(here), f"{found[0] / here[0]:.3f}"]
        yield row(*cells)


def same_tokens(ours: Compiler, tools: theirs.Tools) -> str:
    """Whether both sides read the same tokens from the text. (llama.cpp's has whole windows alone.)"""
    a, b = tools.tokens(), ours.tokens()
    unlike = sum(x != y for x, y in zip(a, b))
    if unlike:
        sys.exit(f"the two sides read different tokens: {unlike} of {len(a)}")
    return f"{len(a)} tokens, the same on both sides"


def arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="compression", description=__doc__, formatter_class=raw)
    p.add_argument("model", type=Path, help="a folder with a bf16 Llama checkpoint")
    p.add_argument("--texts", type=Path, help="folder with eval.txt and calib.txt [default: the model's]")
    p.add_argument("--llama-bin", type=Path, metavar="DIR", help="folder of llama.cpp's tools")
    p.add_argument("--formats", nargs="*", metavar="TYPE", help="llama.cpp's formats [default: all that theirs.py has]")
    p.add_argument("--method", default="gptq", help="`--method` of ours [default: gptq]")
    choice = "characters of calib.txt by which mixtures are chosen, at most [default: 1000000]"
    p.add_argument("--choice", type=int, default=1_000_000, help=choice)
    p.add_argument("--same-file", action="store_true", help="measure llama.cpp's files by `llmcc eval kl`, too")
    p.add_argument("--window", type=int, default=512, help="tokens of a window [default: 512]")
    option = "an option of `llmcc compile` for all of ours, such as --option=--act=f32"
    p.add_argument("--option", action="append", default=[], help=option)
    tables = ["uniform", "budgets", "llama.cpp"]
    p.add_argument("--only", choices=tables, action="append", help="one table; may be repeated")
    p.add_argument("--work", type=Path, default=ROOT / "build" / "compression", help="[default: build/compression]")
    compiler = ROOT / "target" / "release" / "llmcc"
    p.add_argument("--llmcc", type=Path, default=compiler, help="[default: target/release/llmcc]")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of llama.cpp's tools")
    args = p.parse_args()
    args.texts = args.texts or args.model
    for file in (args.llmcc, args.model / "model.safetensors", args.texts / "eval.txt", args.texts / "calib.txt"):
        if not file.exists():
            p.error(f"{file} is not there")
    return args


def main() -> None:
    args = arguments()
    name = args.model.resolve().name if args.model.resolve().name != "model" else args.model.resolve().parent.name
    work = Work(args.work.resolve() / f"{name}-{args.window}-{args.method}{''.join(args.option)}")
    calib, text = args.texts / "calib.txt", args.texts / "eval.txt"
    chosen = (tuple(args.option), args.method, args.choice)
    ours = Compiler(args.llmcc, work, args.model, calib, text, args.window, *chosen)
    wanted = args.only or ["uniform", "budgets", *(["llama.cpp"] if args.llama_bin else [])]
    print(f"{name}, windows of {args.window} tokens, `--method {args.method}`")
    if "uniform" in wanted:
        print("\nUniform formats:\n", flush=True)
        for line in uniform_table(ours):
            print(line, flush=True)
    if "budgets" in wanted:
        print("\nMixtures within the bytes of uniform formats:\n", flush=True)
        for line in budget_table(ours):
            print(line, flush=True)
    if "llama.cpp" in wanted:
        missing = [tool for tool in theirs.TOOLS if not (args.llama_bin / tool).exists()]
        if missing:
            sys.exit(f"{args.llama_bin} has no {', '.join(missing)}")
        tools = theirs.Tools(args.llama_bin, work, args.model, calib, text, args.window, args.threads)
        print(f"\nBeside llama.cpp; {same_tokens(ours, tools)}:\n", flush=True)
        for line in beside_table(ours, tools, args.formats or list(theirs.FORMATS), args.same_file):
            print(line, flush=True)


if __name__ == "__main__":
    main()
