"""The measurements: the cases, and which engines and formats meet in each."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, replace
from typing import Any, Optional

import engines

OURS = "llmcc"
COMPUTED = 4096


@dataclass(frozen=True)
class Case:
    """One row block of the table. `kind`: `decode` (a turn is `steps` tokens of every sequence),
    `prefill` (a turn is one prompt) or `load` (a turn is a new process that opens the model and
    gives one token). With `depth` the prompt is computed once and the turns go on from there;
    else each turn has a fresh one. Prompts beyond `COMPUTED` tokens need not be computed: only
    the number of cached tokens counts."""

    name: str
    kind: str
    bits: tuple[int, ...]
    threads: int = 0
    sequences: int = 1
    prompt: int = 16
    steps: int = 32
    depth: bool = False
    kv: str = "f16"

    def context(self, turns: int) -> int:
        """Tokens that a sequence needs room for, in `turns` turns."""
        return self.prompt + self.steps * (turns if self.depth else 1) + 16

    def describe(self) -> str:
        threads = f"{self.threads} thread" + "s" * (self.threads != 1)
        what = {
            "decode": f"{self.sequences} sequence{'s' * (self.sequences > 1)}, {self.steps} steps after {self.prompt} tokens",
            "prefill": f"prompt of {self.prompt} tokens",
            "load": f"open the model, prompt of {self.prompt} token{'s' * (self.prompt > 1)}, logits",
        }[self.kind]
        return f"{what}, {threads}, {self.kv} cache"


@dataclass(frozen=True)
class Entrant:
    """An engine with a stored format of the model."""

    engine: str
    format: str

    @property
    def module(self) -> Any:
        return engines.get(self.engine)

    @property
    def bits(self) -> int:
        return self.module.FORMATS[self.format]

    def __str__(self) -> str:
        return f"{self.engine} {self.format}"


def all_cases(threads: int) -> list[Case]:
    """In the order in which they run. `threads` is the number for all cases but `decode-1t`."""
    every, four = (4, 8, 16), (4,)
    one = [Case("decode-1t", "decode", every, threads=1)] if threads > 1 else []
    batched = [Case(f"batch-{n}", "decode", (4, 8), sequences=n, steps=16) for n in (4, 8, 16)]
    depth = [Case(f"depth-{kv}", "decode", four, prompt=4096, steps=16, depth=True, kv=kv) for kv in ("f16", "int8")]
    deep = [replace(case, name=case.name.replace("depth", "deep"), prompt=16384) for case in depth]
    cases = [
        *one,
        Case("decode", "decode", every),
        Case("prefill-512", "prefill", every, prompt=512, steps=0),
        *batched,
        *depth,
        *deep,
        Case("load", "load", every, prompt=1, steps=0),
    ]
    return [case if case.threads else replace(case, threads=threads) for case in cases]


def quick(case: Case) -> Case:
    """Small enough to see whether everything works."""
    return replace(case, prompt=min(case.prompt, 512 if case.depth else 128), steps=min(case.steps, 4))


def entrants() -> list[Entrant]:
    return [Entrant(name, fmt) for name in engines.NAMES for fmt in engines.get(name).FORMATS]


def select(cases: list[Case], words: list[str]) -> list[tuple[Case, int, list[Entrant]]]:
    """(case, bits, entrants with ours first) for the words of `--only`. A word is a pattern for a case, an engine or a format; words of one
    kind add up, kinds restrict each other. Ours always takes part, in its first format of those bits unless a word names another: without it there is no ratio.
    Raises ValueError for a word that fits nothing."""
    everyone = entrants()
    kinds = [sorted({c.name for c in cases}), sorted({e.engine for e in everyone}), sorted({e.format for e in everyone})]
    chosen: list[set[str]] = [set(), set(), set()]
    for word in words:
        found = [{n for n in names if fnmatch.fnmatchcase(n.lower(), word.lower())} for names in kinds]
        if not any(found):
            raise ValueError(f"--only {word} is no case, engine or format; there are {', '.join(sum(kinds, []))}")
        for have, new in zip(chosen, found):
            have |= new

    def wanted(kind: int, name: str) -> bool:
        return not chosen[kind] or name in chosen[kind]

    result = []
    for case in cases:
        for bits in case.bits if wanted(0, case.name) else ():
            group = [e for e in everyone if e.bits == bits and e.module.supports(case)]
            peers = [e for e in group if e.engine != OURS and wanted(1, e.engine) and wanted(2, e.format)]
            ours = [e for e in group if e.engine == OURS]
            ours = [e for e in ours if e.format in chosen[2]][:1] or ours[:1]
            alone = OURS in chosen[1] and wanted(2, ours[0].format) if ours else False
            if peers or alone:
                result.append((case, bits, ours + peers))
    return result


def group_size(widths: list[int]) -> Optional[int]:
    """Largest usual group that divides the width of every matrix, for formats that let one choose; None if there is none."""
    return next((g for g in (128, 64, 32) if all(w % g == 0 for w in widths)), None)
