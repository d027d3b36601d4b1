#!/usr/bin/env python3
"""Fits the constants of the GPU cost model to measurements, and shows its error with the old and
with the new ones.

    python3 tools/gpu-check/fit.py FOLDER results.jsonl

FOLDER is the one that `gpu_check.py` had. With the rows of the repository,

    llmcc lower benches/gpu/h200-kernels.lir --target sm90 -o FOLDER
    python3 tools/gpu-check/fit.py FOLDER benches/gpu/h200.tsv benches/gpu/h200-direct.tsv --leave-out

`--leave-out` then tells how far predictions are from what was not fitted to: for each product (its
matrices and rows, in all tiles and schedules) constants are fitted without it, and predict it.

The constants are in `ir/src/gpu/rates.rs` (with the share of the memory's bandwidth), `l2_bandwidth` and `launch` in `ir/src/target.rs`, and
attention's in `passes/src/cost/attention.rs`. Counts and the vendor's figures stay: clock,
instructions, peaks, shared memory. Least squares of the logarithm of predicted over measured,
in which rows that are far off (a kernel with a problem of its own) count less, and in which
schedules of one shape count by how they differ, the fast ones most: the model is asked for the
fastest. Needs NumPy.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np

import committed
import costs
from rows import load

# Natural logarithms beyond which a row counts less; a constant that no row depends on.
FAR, NOTHING = 0.25, 1e-6
# Constants that are fitted, and where they are to be written down.
RATES = (
    "memory_share", "memory_direct", "tensor", "tensor_fp8", "start", "stage", "prologue", "copy_latency", "latency_byte", "fetch", "chain", "chain_strip", "chain_global", "chain_mma",
    "chain_wgmma", "part", "join", "join_sum",
)  # fmt: skip
ATTENTION = ("attention_start", "attention_merge", "attention_ramp", "attention_softmax", "attention_tensor")
SAID = {"memory_share": "memory", "copy_latency": "latency"}
PLACES = {
    **{name: f"rates.rs: `{SAID.get(name, name)}`" for name in RATES},
    **{name: f"attention.rs: `GPU_{name[10:].upper()}`" for name in ATTENTION},
    "l2": "target.rs: `l2_bandwidth`, bytes per second",
    "launch": "target.rs: `launch`, seconds",
}
# How much more the differences between schedules of a shape count than their times.
WITHIN = 3


class Point:
    """A row that the model describes. `shape`: of those whose schedules were varied. `work`: matrices and rows."""

    def __init__(self, name, terms, seconds, shape=None, work=None):
        self.name, self.terms, self.seconds, self.shape, self.work = name, terms, seconds, shape, work


def measured(folder, rows):
    """The rows that the model describes, the old constants, and the machine."""
    out, described, machine = [], {}, None
    for row in rows.values():
        if row.get("kind") not in ("speed", "variant") or "us" not in row or row.get("status") != "ok":
            continue
        step = costs.of_step(row["parts"])
        if row["folder"] not in described:
            text = json.loads((folder / row["folder"] / "kernels.json").read_text())
            described[row["folder"]] = {k["name"]: k for k in text["kernels"]}
            machine = text["machine"]
        terms = step and costs.terms(described[row["folder"]][row["kernel"]], *step, machine)
        if terms is not None:
            out.append(Point(row["id"], terms, row["us"] / 1e6, row.get("shape")))
    return out, costs.constants(machine) if machine else None, machine


def of_repository(folder, paths):
    """The same of the rows in `benches/gpu`."""
    points = []
    for path in paths:
        rows, machine = committed.read(folder, path)
        for name, asked, work, terms, seconds in rows:
            if terms is not None:
                varied = name if asked != "-" else None
                points.append(Point(f"{name}/{asked}", terms, seconds, varied, work))
    return points, costs.constants(machine), machine


def leave_out(points, old, sms, fixed):
    """Predicted over measured of each point by constants that were fitted without its matrices and rows, in any tiles and schedules; and for each varied shape
    what the schedule takes that these constants choose, relative to the fastest."""
    ratios, chosen = [], {}
    for work in sorted({p.work for p in points}):
        rest, mine = [p for p in points if p.work != work], [p for p in points if p.work == work]
        new, _ = fit(rest, old, sms, fixed)
        ratios.extend(costs.seconds(p.terms, new, sms) / p.seconds for p in mine)
        for shape in sorted({p.shape for p in mine if p.shape}):
            varied = [p for p in mine if p.shape == shape]
            best = min(p.seconds for p in varied)
            chosen[shape] = min(varied, key=lambda p: costs.seconds(p.terms, new, sms)).seconds / best
    return ratios, chosen


def left_out(points, old, sms, fixed):
    ratios, chosen = leave_out(points, old, sms, fixed)
    ratios = np.array(ratios)
    close = ((ratios >= 0.85) & (ratios <= 1.18)).sum()
    off = np.exp(np.abs(np.log(ratios)))
    lines = ["", "Without the shape itself:", ""]
    lines.append(f"{close} of {len(ratios)} between 0.85 and 1.18; half within {np.median(off):.3f}, nine of ten within {np.quantile(off, 0.9):.3f} times.")
    lines += ["", "| shape | its chosen schedule over the fastest |", "|---|---|"]
    return "\n".join(lines + [f"| {shape} | {over:.2f} |" for shape, over in chosen.items()])


def shapes(points):
    """For each shape that was varied the places of its points, and how much each counts."""
    places = {}
    for i, point in enumerate(points):
        if point.shape:
            places.setdefault(point.shape, []).append(i)
    for of in places.values():
        seconds = np.array([points[i].seconds for i in of])
        yield np.array(of), np.exp(-3 * (seconds / seconds.min() - 1))


def fit(points, old, sms, fixed=()):
    """Constants for the points, and the names of those that the points say nothing of."""
    names = [n for n in PLACES if n not in fixed]
    base = np.array([math.log(old[n]) for n in names])
    launches, seconds = costs.Launches([p.terms for p in points]), np.array([p.seconds for p in points])
    varied = list(shapes(points))

    def times(x):
        return np.log(launches.seconds({**old, **dict(zip(names, np.exp(x)))}, sms) / seconds)

    def residuals(x):
        r = times(x)
        return np.concatenate([r, *(WITHIN * w * (r[of] - (w * r[of]).sum() / w.sum()) for of, w in varied)])

    best = None
    # Which of the terms bounds a kernel may change on the way: from several beginnings.
    for factor in (0.0, -0.2, 0.2):
        x = refine(residuals, base + factor * np.array([n in ("memory_share", "tensor") for n in names]))
        value = loss(residuals(x))
        if best is None or value < best[0] - 1e-12:
            best = value, x
    x = best[1]
    unknown = {n for n, column in zip(names, jacobian(times, x).T) if np.abs(column).max() < NOTHING}
    return {**old, **{n: math.exp(v) for n, v in zip(names, x) if n not in unknown}}, unknown


def loss(r):
    """Square near zero, its logarithm beyond: a row that is far off for a reason of its own moves nothing."""
    return float((FAR * FAR * np.log1p((r / FAR) ** 2)).sum())


def jacobian(residuals, x, step=1e-5):
    return np.stack([(residuals(x + step * e) - residuals(x - step * e)) / (2 * step) for e in np.eye(len(x))], 1)


def refine(residuals, x, damping=1e-3):
    """Levenberg and Marquardt, with rows that are far off weighted down."""
    value = loss(residuals(x))
    for _ in range(60):
        r, j = residuals(x), jacobian(residuals, x)
        w = 1 / (1 + (r / FAR) ** 2)
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


def report(points, old, new, unknown, sms):
    lines = ["| constant | old | new | |", "|---|---|---|---|"]
    for name, place in PLACES.items():
        said = "these rows do not depend on it" if name in unknown else place
        lines.append(f"| {name} | {old[name]:.4g} | {new[name]:.4g} | {said} |")
    lines += ["", "| kernel | measured, µs | predicted / measured, old | new |", "|---|---|---|---|"]
    close = {}
    for p in points:
        ratios = [costs.seconds(p.terms, c, sms) / p.seconds for c in (old, new)]
        close[p.name] = 0.85 <= ratios[1] <= 1.18
        lines.append(f"| {p.name} | {p.seconds * 1e6:.1f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    lines += ["", f"{sum(close.values())} of {len(points)} between 0.85 and 1.18.", "", "| shape | fastest | chosen by the new constants takes |", "|---|---|---|"]
    for of, _ in shapes(points):
        mine = [points[i] for i in of]
        best, chosen = min(mine, key=lambda p: p.seconds), min(mine, key=lambda p: costs.seconds(p.terms, new, sms))
        lines.append(f"| {best.shape} | {best.name.split('/')[-1]} | {chosen.seconds / best.seconds:.2f}: {chosen.name.split('/')[-1]} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path, nargs="+", help="results of `gpu_check.py`, or tables of `benches/gpu`")
    parser.add_argument("--leave-out", action="store_true", help="predict each shape by constants that were fitted without it, too")
    args = parser.parse_args()
    rows, fixed = {}, ()
    if all(path.suffix == ".tsv" for path in args.results):
        points, old, machine = of_repository(args.folder, args.results)
        # Measured by itself.
        fixed = ("launch",)
    elif len(args.results) == 1:
        rows = load(args.results[0])
        points, old, machine = measured(args.folder, rows)
    else:
        parser.error("give one results.jsonl, or tables of benches/gpu")
    if not points:
        sys.exit(f"{args.results[0]} has no speeds of kernels")
    start = old
    if "launch_us" in rows.get("machine", {}):
        # Measured by itself.
        start, fixed = {**old, "launch": rows["machine"]["launch_us"] / 1e6}, ("launch",)
    new, unknown = fit(points, start, machine["sms"], fixed)
    print(report(points, old, new, unknown, machine["sms"]))
    if args.leave_out:
        print(left_out(points, start, machine["sms"], fixed))


if __name__ == "__main__":
    main()
