"""The table and the JSON file."""

from __future__ import annotations

import os
import platform
import statistics
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any, Optional

from cases import Case
from measure import Measured

MIB = 1 << 20
SWITCH = {True: "on", False: "off"}


def rate(case: Case, seconds: float) -> float:
    """Tokens per second; for `load` seconds."""
    if case.kind == "load":
        return seconds
    return (case.prompt if case.kind == "prefill" else case.steps) * case.sequences / seconds


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """For each round, ours relative to theirs (times as fast), sorted."""
    return sorted(b / a for a, b in zip(ours, theirs))


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({values[0]:.2f} to {values[-1]:.2f})"


def block(case: Case, results: list[Measured]) -> list[str]:
    """Lines of one case. The first result is ours."""
    ours = results[0]
    unit = "seconds" if case.kind == "load" else "tokens/s"
    bits = results[0].entrant.bits
    lines = [f"{case.name}, {bits}-bit: {case.describe()}"]
    lines.append(f"  {'engine':<24} {unit:>8}  {'ratio (least to most)':<24} {'memory, MiB':>11}  {'ratio':>5}  setting")
    for r in results:
        if not r.seconds:
            lines.append(f"  {str(r.entrant):<24} failed: {r.error}")
            continue
        value = f"{rate(case, statistics.median(r.seconds)):.3f}" if case.kind == "load" else f"{rate(case, statistics.median(r.seconds)):.1f}"
        size, own = r.peak - r.before, ours.peak - ours.before
        compared = spread(ratios(ours.seconds, r.seconds)) if r is not ours and ours.seconds else ""
        memory = f"{size / own:.2f}" if r is not ours and own > 0 else ""
        settings = ", ".join(f"{k.replace('_', ' ')} {SWITCH.get(v, v)}" for k, v in r.settings.items())
        lines.append(f"  {str(r.entrant):<24} {value:>8}  {compared:<24} {size / MIB:>11.0f}  {memory:>5}  {settings}".rstrip())
    return lines


LEGEND = (
    "Medians of the rounds. Ratio: theirs to ours in time (and so ours to theirs in tokens/s), of each round; above 1 we are faster. Memory: most that was resident "
    "above what the process had before it opened the model; its ratio is theirs to ours."
)


def agreement(values: dict[str, Optional[float]]) -> list[str]:
    lines = ["logits after one prompt, cosine with those of the first (low: not the same model; 4-bit formats differ by their rounding)"]
    return lines + [f"  {name:<24} {'not given out' if value is None else f'{value:.4f}'}" for name, value in values.items()]


def machine() -> dict[str, Any]:
    with open("/proc/cpuinfo") as f:
        models = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB,
        "kernel": platform.release(),
        "load": os.getloadavg(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def as_json(case: Case, results: list[Measured]) -> dict[str, Any]:
    ours = results[0]
    rows = []
    for r in results:
        row = {"engine": r.entrant.engine, "format": r.entrant.format, "version": r.version, "settings": r.settings, "error": r.error}
        row |= {"seconds": r.seconds, "peak_rss": r.peak, "rss_before_opening": r.before}
        if r.seconds:
            row["median_seconds" if case.kind == "load" else "median_tokens_per_second"] = rate(case, statistics.median(r.seconds))
            row["ratios"] = ratios(ours.seconds, r.seconds)
        rows.append(row)
    return {"case": asdict(case), "bits": ours.entrant.bits, "results": rows}
