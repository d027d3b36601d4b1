#!/usr/bin/env python3
"""Prints which dependencies a build compiles that another one has compiled with other features, and fails if there are any.

    RUSTC_BOOTSTRAP=1 cargo test --workspace --features llmcc/gpu --no-run --unit-graph -Z unstable-options >all.json
    RUSTC_BOOTSTRAP=1 cargo build -p llmcc -p llmcc-gpu -p llmcc-features --unit-graph -Z unstable-options >plain.json
    tools/tests/twice.py all.json plain.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

Unit = tuple[str, str, str]


def units(path: str) -> dict[int, tuple[Unit, frozenset[str]]]:
    """The units of a graph by a number that is the same for equal units: of the package, the profile, the features, and those of all that they need."""
    with open(path, encoding="utf-8") as file:
        all_units: list[dict[str, Any]] = json.load(file)["units"]
    known: dict[int, int] = {}

    def number(at: int) -> int:
        if at not in known:
            unit = all_units[at]
            profile = {name: value for name, value in unit["profile"].items() if name != "name"}
            needs = sorted(number(need["index"]) for need in unit["dependencies"])
            features = sorted(unit["features"])
            known[at] = hash(json.dumps([unit["pkg_id"], unit["target"]["name"], unit["target"]["kind"], unit["mode"], profile, features, needs], sort_keys=True))
        return known[at]

    def named(unit: dict[str, Any]) -> Unit:
        return unit["pkg_id"], unit["target"]["kind"][0], unit["mode"]

    return {number(i): (named(unit), frozenset(unit["features"])) for i, unit in enumerate(all_units)}


def main() -> int:
    """Compares the second build with the first."""
    first, second = (units(path) for path in sys.argv[1:3])
    of: dict[Unit, set[frozenset[str]]] = {}
    for unit, features in first.values():
        of.setdefault(unit, set()).add(features)
    again = [unit for number, unit in second.items() if number not in first and "registry+" in unit[0][0] and unit[0][1] != "custom-build"]
    for unit, features in sorted(again, key=lambda unit: unit[0]):
        for others in sorted(of.get(unit, set()) - {features}, key=sorted) if features not in of.get(unit, set()) else ():
            print(f"{unit[0].split('#')[-1]}: lacks {sorted(others - features)}, has also {sorted(features - others)}")
    print(f"{len(again)} dependencies are compiled again")
    return 1 if again else 0


if __name__ == "__main__":
    sys.exit(main())
