#!/usr/bin/env python3
"""A small model of each architecture, on a GPU: compiled where the compiler is, compared where the GPU is.

    python tools/gpu-check/architectures.py build/gpu-architectures [--forms f32,bf16] [--jobs 2] [--only NAME,...]

compiles every fixture of `tests/goldens` for sm90, with weights, activations and caches of one form (`bf16-invariant`: with `--invariant`), and packs the artifacts of a form into
`architectures-FORM.tar.xz` with the results of the reference (30 MB). Files that are there are not compiled again. `one-call.sh` takes the folder along.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

# Where they are unpacked, in the folder of a call.
FOLDER = "architectures"
# Pieces in which a sequence is computed: as a whole, token by token, and unevenly.
PIECES = [[1 << 20], [1], [7, 13, 3, 17]]
# An error may be so many times that of the reference's own arithmetic in that form.
ALLOWED = 2


def dtype_of(form):
    return form.removesuffix("-invariant")


def archive(form):
    return f"architectures-{form}.tar.xz"


# ---- where the GPU is ----------------------------------------------------------------------------------------------------


def in_pieces(model, tokens, sizes):
    """Rows of the output of all tokens, which are computed in pieces of such sizes."""
    out, at, i = [], 0, 0
    with model.session() as session:
        while at < len(tokens):
            count = min(sizes[min(i, len(sizes) - 1)], len(tokens) - at)
            out.append(np.array(session.step(tokens[at : at + count], all_rows=True)))
            at, i = at + count, i + 1
    return np.concatenate(out)


def rows_of(model, stored):
    """The output of all tokens in each kind of pieces; of a model whose tokens see later ones, as a whole."""
    tokens = stored["tokens"].tolist()
    pieces = PIECES[:1] if model.info.get("whole") or "greedy" not in stored else PIECES
    try:
        return [in_pieces(model, tokens, sizes) for sizes in pieces]
    except Exception:
        if len(pieces) > 1:
            raise
        return [np.asarray(model.forward(tokens))]


def texts_of(stored):
    at, texts = 0, []
    for count in stored["lengths"].tolist():
        texts.append(stored["texts"][at : at + count].tolist())
        at += count
    return texts


def check(folder, name, form):
    """One model: its largest errors, the allowed ones, and whether pieces change bits."""
    from models import open_on

    stored = np.load(folder / f"{name}.npz")
    own = f"error_{dtype_of(form)}"
    began = time.perf_counter()
    with open_on(folder / f"{name}.{form}.so", "gpu") as model:
        row = {"took": time.perf_counter() - began, "parts": model.stats()["open_ns"]}
        if "want" in stored and "tokens" in stored:
            runs, want = rows_of(model, stored), stored["want"].astype(np.float64)
            kept = [run.astype(np.float64).reshape(len(stored["tokens"]), -1)[stored["at"]] for run in runs]
            found = [float(np.abs(rows - want).max()) for rows in kept]
            row["same_bits"] = all(np.array_equal(runs[0].reshape(-1), run.reshape(-1)) for run in runs[1:])
            row["allowed"] = ALLOWED * float(stored[own][0]) if own in stored else None
        elif "pooled" in stored and "types" not in stored:
            got = np.asarray(model.embed(texts_of(stored)), np.float64)
            found = [float(np.abs(got.ravel() - stored["pooled"].ravel()).max())]
            row["allowed"] = ALLOWED * float(stored["pooled_own"][0]) if dtype_of(form) == "f32" else None
        else:
            return {**row, "said": "nothing to compare with"}
    # Figures without a bound are told, not judged.
    judged = {"right": max(found) <= row["allowed"]} if row["allowed"] is not None else {"said": "no bound"}
    if form != dtype_of(form) and not row.get("same_bits", True):
        judged = {"right": False, "said": "other bits in other pieces"}
    return {**{name: value for name, value in row.items() if value is not None}, "errors": found, "error": max(found), **judged}


# ---- where the compiler is -----------------------------------------------------------------------------------------------


def with_weights(fixture):
    """The folder that has a fixture's weights."""
    sys.path.insert(0, str(fixture.parent))
    import weights

    return weights.fixture(fixture)


def reference(fixture):
    """Tokens, rows and errors of a fixture, in f32."""
    from reference import tensors_of

    t = tensors_of(fixture / "golden.safetensors")
    kept = {name: t[name] for name in ("tokens", "greedy", "texts", "lengths", "types") if name in t}
    for kind in ("hidden", "logits"):
        if kind in t:
            kept |= {"at": t["at"], "want": t[kind].reshape(len(t["at"]), -1)}
            break
    kept |= {name: np.array([t[name].max()]) for name in ("error_f32", "error_bf16") if name in t}
    if "pooled_f64" in t:
        exact = t["pooled_f64"].ravel()
        kept |= {"pooled": exact.astype(np.float32), "pooled_own": np.array([np.abs(exact - t["pooled_f32"].ravel()).max()])}
    return kept


def prepare(fixture, out, forms, llmcc):
    """Compiles a fixture in each form; the failures, by form."""
    np.savez_compressed(out / f"{fixture.name}.npz", **reference(fixture))
    failed = {}
    for form in forms:
        artifact = out / f"{fixture.name}.{form}.so"
        if not artifact.exists():
            part = out / f"{fixture.name}.{form}.part.so"
            dtype = dtype_of(form)
            options = ["--target", "sm90", "--dtype", dtype, "--kv", dtype, "--no-golden", "-q", "-o", part]
            options += ["--invariant"] if form != dtype else []
            done = subprocess.run([llmcc, "compile", with_weights(fixture), *options], capture_output=True, text=True)
            if done.returncode == 0:
                part.rename(artifact)
            else:
                failed[form] = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
    return failed


def pack(out, form):
    """All artifacts of a form, with the references, in one archive: they have the runtime in common."""
    names = sorted(f.name.removesuffix(f".{form}.so") for f in out.glob(f"*.{form}.so"))
    with tarfile.open(out / archive(form), "w:xz", preset=9) as packed:
        for name in names:
            for file in (out / f"{name}.npz", out / f"{name}.{form}.so"):
                member = tarfile.TarInfo(f"{FOLDER}/{file.name}")
                member.size = file.stat().st_size
                with open(file, "rb") as content:
                    packed.addfile(member, content)
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--forms", default="f32,bf16")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="fixtures, with commas (else: all)")
    args = parser.parse_args()
    from prepare import REPOSITORY, llmcc

    args.out.mkdir(parents=True, exist_ok=True)
    forms, goldens = args.forms.split(","), REPOSITORY / "tests/goldens"
    wanted = args.only.split(",") if args.only else sorted(os.listdir(goldens))
    fixtures = [goldens / name for name in wanted if (goldens / name / "config.json").exists() and (goldens / name / "golden.safetensors").exists()]
    with ThreadPoolExecutor(args.jobs) as pool:
        for fixture, failed in zip(fixtures, pool.map(lambda f: prepare(f, args.out, forms, llmcc()), fixtures)):
            print(fixture.name, *(f"{form}: {said}" for form, said in failed.items()), flush=True)
    listed = {form: pack(args.out, form) for form in forms}
    (args.out / "architectures.json").write_text(json.dumps(listed) + "\n")
    for form, names in listed.items():
        print(f"{form}: {len(names)} models, {(args.out / archive(form)).stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
