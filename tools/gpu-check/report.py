"""Tables from the rows of a report."""

import math


def table(head, rows):
    if not rows:
        return []
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in row) + " |" for row in rows), ""]


def number(row, name, form):
    return format(row[name], form) if isinstance(row.get(name), (int, float)) else ""


# Kinds of rows about PyTorch.
PEERS = ("peer", "large-peer")


def wrong(row):
    return row.get("kind") not in PEERS and row.get("status") in ("wrong", "error", "timeout", "died")


def verdict(row):
    status = row.get("status", "")
    return f"**{status}** {row.get('said') or ''}".strip() if wrong(row) or status == "cut" else f"{status} {row.get('said') or ''}".strip()


def failures(rows):
    """How many rows say that something is wrong."""
    return sum(map(wrong, rows.values()))


def of_kind(rows, kind):
    return [row for row in rows.values() if row.get("kind") == kind]


def markdown(rows):
    """The whole report."""
    head, facts, machine = (rows.get(name, {}) for name in ("header", "facts", "machine"))
    name = facts.get("device") or head.get("gpu") or "No GPU"
    lines = [f"# {name}, {head.get('date', '')[:10]}", ""]
    about = {**head, **facts}
    names = ("commit", "target", "driver", "cuda", "torch", "power_limit_w", "sm_mhz_most", "processor", "python")
    lines += [", ".join(f"{k} {about[k]}" for k in names if about.get(k)) + f"; `{head.get('command', '')}`", ""]
    if "copy" in machine:
        text = f"Copying: {machine['copy'] / 1e9:.0f} GB/s (best {machine['copy_best'] / 1e9:.0f}). A launch in a graph: {machine['launch_us']:.2f} µs."
        text += f" bf16 product of 8192³ (cuBLAS): {machine['product'] / 1e12:.0f} TFLOP/s." if "product" in machine else ""
        lines += [text, ""]
    bad = [row for row in rows.values() if wrong(row)]
    lines += [f"**{len(bad)} wrong.**" if bad else "Everything that ran is right.", ""]
    lines += table(["what", "how"], [[row["id"], verdict(row)] for row in bad])
    lines += section("## Speed of kernels, each alone", speeds(rows, "speed", machine))
    lines += section("## Models: correctness", small(rows))
    lines += section("## Architectures", architectures(rows))
    lines += section("## Models: speed", large(rows, machine))
    lines += section("## Kernels inside of models", inside(rows, machine))
    lines += section("## Schedules: each shape, fastest first", variants(rows, machine))
    lines += section("## Counters", counters(rows))
    lines += section("## Checkers of memory and races", checkers(rows))
    lines += section("## Kernels: correctness", checks(rows))
    plan = rows.get("plan", {})
    if plan.get("not_run"):
        lines += ["## Not run", "", "The time was over: " + ", ".join(f"`{name}`" for name in plan["not_run"]) + ".", ""]
    return "\n".join(lines) + "\n"


def section(title, lines):
    return [title, "", *lines] if lines else []


def share(part, whole):
    return f"{100 * part / whole:.0f} %" if part and whole else ""


def occupancy(row):
    """Blocks on a multiprocessor: from the driver, and in the schedule."""
    if "resident" not in row:
        return ""
    wanted = row.get("wanted_resident")
    text = f"{row['resident']}" + (f" of {wanted}" if wanted else "")
    if row.get("local"):
        text += f", {row['local']} B spilled"
    return f"**{text}**" if row.get("local") or (wanted and row["resident"] < wanted) else text


def speeds(rows, kind, machine):
    out = []
    for row in of_kind(rows, kind):
        if "us" not in row:
            out.append([row.get("what", row["id"]), *[""] * 9, verdict(row)])
            continue
        peer = rows.get(row["id"].replace("speed:", "peer:"), {})
        rate, work = row["bytes"] / row["us"] * 1e6, row["flops"] / row["us"] * 1e6
        of_torch = 100 * peer["us"] / row["us"] if peer.get("us") else None
        beside = f"{peer['us']:.1f} µs, {peer['by']}: {of_torch:.0f} %" if of_torch else peer.get("said", "")
        met = goal(row.get("goal"), 100 * rate / machine["copy"] if "copy" in machine else None, of_torch)
        spread = (row["us_range"][1] - row["us_range"][0]) / row["us"]
        speed = [f"{row['us']:.1f}", f"{100 * spread:.0f} %", f"{rate / 1e9:.0f}", share(rate, machine.get("copy"))]
        speed += [f"{work / 1e12:.1f}", share(work, machine.get("product"))]
        out.append([row.get("what", row["id"]), *speed, occupancy(row), beside, met, f"{row['error']:.1e} {verdict(row)}"])
    head = ["kernel", "µs", "spread", "GB/s", "of copying", "TFLOP/s", "of cuBLAS", "blocks", "PyTorch; its time as a share of ours", "wanted", "error"]
    return table(head, out)


def goal(wanted, of_copy, of_torch):
    if not wanted:
        return ""
    reached = of_copy if wanted[0] == "copy" else of_torch
    if reached is None:
        return f"{wanted[1]} % wanted"
    return f"{wanted[1]} %: met" if reached >= wanted[1] else f"**{wanted[1]} %: missed**"


def small(rows):
    numbers = ("prompts", "token_by_token", "ragged", "allowed")
    same = {True: "yes", False: "**no**"}
    found = of_kind(rows, "small")
    out = [[row["id"], *(number(row, n, ".2e") for n in numbers), same.get(row.get("same_bits"), ""), verdict(row)] for row in found]
    return table(["model", "prompts", "token by token", "ragged", "allowed", "same bits again", ""], out)


def architectures(rows):
    """How many are right, by form; those that are not, and those whose bits depend on pieces."""
    found, lines = of_kind(rows, "architecture"), []
    for form in dict.fromkeys(row["id"].rpartition("/")[2] for row in found):
        mine = [row for row in found if row["id"].endswith(f"/{form}")]
        right = sum(row.get("status") == "ok" and "allowed" in row for row in mine)
        other = [row["id"].split(":")[1].split("/")[0] for row in mine if row.get("same_bits") is False]
        text = f"{form}: {right} right, {sum(map(wrong, mine))} wrong, {len(mine)} in all."
        lines += [text + (f" Other bits in other pieces: {', '.join(other)}." if other else ""), ""]
    bad = [[row["id"], number(row, "error", ".1e"), number(row, "allowed", ".1e"), verdict(row)] for row in found if wrong(row)]
    return lines + table(["architecture", "error", "allowed", ""], bad)


def large(rows, machine):
    out = []
    for row in of_kind(rows, "large"):
        model, _, what = row["id"].removeprefix("large:").partition("/")
        if "rate" in row:
            peer = rows.get(f"large-peer:{model}/{what}", {})
            roofline = share(row["rate"], machine["copy"] / row["read"]) if "read" in row and "copy" in machine else ""
            beside = f"{number(peer, 'rate', '.0f')} {peer.get('by', '')}".strip() or peer.get("said", "")
            out.append([model, what, f"{row['rate']:.0f}", beside, roofline])
        elif wrong(row) or row.get("status") == "cut":
            out.append([model, what, verdict(row), "", ""])
        elif "took" in row:
            parts = ", ".join(f"{name} {ns / 1e9:.2f}" for name, ns in row.get("parts", {}).items())
            out.append([model, what, f"{row['took']:.2f} s" + (f" ({parts})" if parts else ""), "", ""])
    return table(["model", "what", "tokens per second", "PyTorch", "of the roofline"], out)


def inside(rows, machine):
    out = []
    for row in of_kind(rows, "large"):
        for k in row.get("kernels", []):
            rate = k["bytes"] / k["us"] * 1e6 if "bytes" in k else None
            speed = [f"{rate / 1e9:.0f}", share(rate, machine.get("copy")), f"{k['flops'] / k['us'] / 1e6:.1f}"] if rate else [""] * 3
            out.append([row["id"].split("/")[0].removeprefix("large:"), k["step"], k["kernel"], k["calls"], f"{k['us']:.1f}", *speed])
    return table(["model", "step", "kernel", "calls", "µs", "GB/s", "of copying", "TFLOP/s"], out)


def variants(rows, machine):
    found = sorted(of_kind(rows, "variant"), key=lambda r: (r["id"].split("/")[0], r.get("us", math.inf)))
    out = []
    for row in found:
        rate = row["bytes"] / row["us"] * 1e6 if "us" in row else None
        shape, schedule = row["id"].removeprefix("variant:").split("/")
        out.append([shape, schedule, number(row, "us", ".1f"), share(rate, machine.get("copy")), occupancy(row), verdict(row)])
    return table(["shape", "schedule", "µs", "of copying", "blocks", ""], out)


def counters(rows):
    out = []
    for row in of_kind(rows, "counters"):
        figures = row.get("figures", {})
        numbers = [number(figures, n, ".1f") for n in ("us", "dram", "issue", "warps")]
        out.append([row["id"].removeprefix("counters:"), *numbers, row.get("file", ""), verdict(row)])
    return table(["kernel", "µs", "% of DRAM", "% of issue slots", "warps ready", "file", ""], out)


def checkers(rows):
    found = [row for kind in ("memcheck", "racecheck") for row in of_kind(rows, kind)]
    return table(["what", "how", "file"], [[row["id"], verdict(row), row.get("file", "")] for row in found])


def checks(rows):
    out = []
    for r in of_kind(rows, "kernel"):
        errors = [number(r, n, ".1e") for n in ("error", "allowed")]
        out.append([r["id"].removeprefix("kernel:"), r.get("family", ""), *errors, occupancy(r), verdict(r)])
    return table(["kernel", "family", "error", "allowed", "blocks", ""], out)
