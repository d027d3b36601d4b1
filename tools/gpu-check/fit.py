#!/usr/bin/env python3
"""Fits the constants of the GPU cost model to what was measured, and shows how far off it is with the old and with the new ones.

    python3 tools/gpu-check/fit.py FOLDER results.jsonl

FOLDER is the one that `gpu_check.py` had. The constants are those of `ir/src/target.rs` (memory, l2_bandwidth, launch) and `passes/src/cost_gpu.rs` (TENSOR, LATENCY), and for
each format of weights what a unit takes to be decoded and multiplied, which the compiler's model does not have: where it is more than reading the unit, decoding is what
bounds. Peak rates of arithmetic stay the vendor's: TENSOR is the share of them. Least squares of the logarithm of predicted over measured, in which rows that are far off
(a kernel with a problem of its own) count less. Needs NumPy.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np

import costs
from rows import load

# Natural logarithms beyond which a row counts less; a constant that no row depends on.
FAR, NOTHING = 0.25, 1e-6
# Where constants are to be written down.
PLACES = {
    "memory": "target.rs: `memory` of the target's line, bytes per second",
    "l2": "target.rs: `l2_bandwidth`, bytes per second",
    "launch": "target.rs: `launch`, seconds",
    "tensor": "cost_gpu.rs: `TENSOR`",
    "latency": "cost_gpu.rs: `LATENCY`, seconds",
}
# Seconds per unit on a multiprocessor to begin with: about a hundred instructions of a warp.
ISSUE = 1e-8


def measured(folder, rows):
    """`[(name, terms, seconds)]` of the rows that the model describes, and the old constants."""
    out, described = [], {}
    old, sms = None, 0
    for row in rows.values():
        if row.get("kind") not in ("speed", "variant") or "us" not in row or row.get("status") != "ok":
            continue
        step = costs.of_step(row["parts"])
        if row["folder"] not in described:
            text = json.loads((folder / row["folder"] / "kernels.json").read_text())
            described[row["folder"]] = {k["name"]: k for k in text["kernels"]}
            old, sms = costs.constants(text["machine"]), text["machine"]["rates"]["sms"]
        kernel = described[row["folder"]][row["kernel"]]
        if step is None and kernel["body"]["family"] == "attention":
            continue
        m, context = step or (len(row["parts"]), 0)
        terms = costs.terms(kernel, m, context, sms)
        if terms is not None:
            out.append((row["id"], terms, row["us"] / 1e6))
    return out, old


def fit(points, old, fixed=()):
    """Constants for `[(name, terms, seconds)]`, and the names of those that the points say nothing of."""
    start = dict(old)
    for _, terms, _ in points:
        start |= {f"issue_{form}": ISSUE for form in terms["units"]}
    names = [n for n in start if n not in ("f16", "fp8", "f32", *fixed)]
    base = np.array([math.log(start[n]) for n in names])

    launches, seconds = costs.Launches([t for _, t, _ in points]), np.array([s for _, _, s in points])

    def residuals(x):
        return np.log(launches.seconds({**start, **dict(zip(names, np.exp(x)))}) / seconds)

    best = None
    # Which of the terms bounds a kernel may change on the way: from several beginnings.
    for factor in (0.0, -0.4, 0.4):
        x = refine(residuals, scan(residuals, base + factor * np.array([n in ("memory", "tensor") for n in names])))
        value = loss(residuals(x))
        if best is None or value < best[0] - 1e-12:
            best = value, x
    x = best[1]
    unknown = {n for n, column in zip(names, jacobian(residuals, x).T) if np.abs(column).max() < NOTHING}
    c = {**start, **{n: math.exp(v) for n, v in zip(names, x) if n not in unknown}}
    return {n: v for n, v in c.items() if not (n in unknown and n.startswith("issue"))}, unknown


def loss(r):
    """Square near zero, linear beyond."""
    a = np.abs(r)
    return float(np.where(a < FAR, a * a, FAR * (2 * a - FAR)).sum())


def scan(residuals, x):
    """One constant after the other, over ever smaller ranges."""
    x, width = x.copy(), 1.5
    while width > 0.01:
        for i in range(len(x)):
            tried = [np.concatenate([x[:i], [x[i] + d], x[i + 1 :]]) for d in np.linspace(-width, width, 13)]
            x = min([x, *tried], key=lambda y: loss(residuals(y)))
        width *= 0.6
    return x


def jacobian(residuals, x, step=1e-5):
    return np.stack([(residuals(x + step * e) - residuals(x - step * e)) / (2 * step) for e in np.eye(len(x))], 1)


def refine(residuals, x, damping=1e-3):
    """Levenberg and Marquardt, with rows that are far off weighted down."""
    value = loss(residuals(x))
    for _ in range(60):
        r, j = residuals(x), jacobian(residuals, x)
        w = np.minimum(1, FAR / np.maximum(np.abs(r), 1e-12))
        a = j.T @ (w[:, None] * j)
        move = -np.linalg.solve(a + damping * np.diag(np.diag(a) + 1e-9), j.T @ (w * r))
        new = loss(residuals(x + np.clip(move, -0.5, 0.5)))
        if new < value:
            x, value, damping = x + np.clip(move, -0.5, 0.5), new, damping / 4
        else:
            damping *= 6
        if damping > 1e9:
            break
    return x


def report(points, old, new, unknown):
    lines = ["| constant | old | new | |", "|---|---|---|---|"]
    for name, value in new.items():
        if name in PLACES or name.startswith("issue"):
            place = PLACES.get(name, "seconds per unit and multiprocessor; cost_gpu.rs has no such term")
            said = "these rows do not depend on it" if name in unknown else place
            lines.append(f"| {name} | {old.get(name, 0):.4g} | {value:.4g} | {said} |")
    lines += ["", "| kernel | measured, µs | predicted / measured, old | new |", "|---|---|---|---|"]
    for name, terms, seconds in points:
        lines.append(f"| {name} | {seconds * 1e6:.1f} | {costs.seconds(terms, old) / seconds:.2f} | {costs.seconds(terms, new) / seconds:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    args = parser.parse_args()
    rows = load(args.results)
    points, old = measured(args.folder, rows)
    if not points:
        sys.exit(f"{args.results} has no speeds of kernels")
    fixed = ()
    if "launch_us" in rows.get("machine", {}):
        # Measured by itself.
        old, fixed = {**old}, ("launch",)
        start = {**old, "launch": rows["machine"]["launch_us"] / 1e6}
    else:
        start = old
    new, unknown = fit(points, start, fixed)
    print(report(points, old, new, unknown))


if __name__ == "__main__":
    main()
