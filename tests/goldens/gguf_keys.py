#!/usr/bin/env python3
"""Writes `gguf/keys.json`: the keys of architectures that llama.cpp has, and those that it reads of each.

    python gguf_keys.py LLAMA_CPP

`LLAMA_CPP`: the folder of its source (of October 2026: `src/llama-arch.cpp`,
`src/llama-model.cpp`, `src/models`). For each architecture that files here may have: the keys
beside the common ones, without its name before them.
"""

import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
FAMILIES = HERE.parent.parent / "frontends/src/checkpoint/gguf/families"


def main(source):
    arch, model = ((source / f"src/llama-{name}.cpp").read_text() for name in ("arch", "model"))
    names = dict(re.findall(r'\{\s*(LLM_KV_\w+),\s*"%s\.([^"]+)"\s*\}', arch))
    archs = dict(re.findall(r'\{\s*(LLM_ARCH_\w+),\s*"([^"]+)"\s*\}', arch))
    classes = {archs[a]: c for a, c in re.findall(r"case (LLM_ARCH_\w+):\s*\n\s*return new (llama_model_\w+)", model) if a in archs}
    parents = dict(re.findall(r"struct (llama_model_\w+)\s*:\s*public (llama_model_\w+)", (source / "src/models/models.h").read_text()))
    read = {}
    for file in sorted((source / "src/models").glob("*.cpp")):
        for found in re.finditer(r"void (llama_model_\w+)::load_arch_hparams\(.*?\n\}\n", file.read_text(), re.S):
            keys = set(re.findall(r"LLM_KV_\w+", found[0]))
            if "load_swa_pattern" in found[0]:
                keys.add("LLM_KV_ATTENTION_SLIDING_WINDOW_PATTERN")
            read.setdefault(found[1], set()).update(names[k] for k in keys if k in names)

    def of(name):
        while name and name not in read:
            name = parents.get(name)
        return sorted(read.get(name, ()))

    known = set(re.findall(r'name: "([^"]+)"', "".join(file.read_text() for file in FAMILIES.glob("*.rs"))))
    out = {"all": sorted(names.values()), "of": {name: of(classes[name]) for name in sorted(known) if name in classes}}
    lines = [f'"all": {json.dumps(" ".join(out["all"]))}']
    lines += [f'"{name}": {json.dumps(" ".join(keys))}' for name, keys in out["of"].items()]
    (HERE / "gguf/keys.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


main(Path(sys.argv[1]))
