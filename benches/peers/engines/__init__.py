"""The engines, a file each, over one interface.

A module has `FORMATS` (name: bits per weight, roughly), `CONVERTER` (which environment converts: "run", "convert" or "" for none), and

- `supports(case)`: whether it can take part;
- `settings(case, format)`: alternatives to try, as keyword arguments of `Engine`; the fastest in the warm-up of a case is the one measured;
- `stored(folder, format, kv)`: path of the converted model;
- `convert(checkpoint, out, format, group, kv)`: makes it, from a checkpoint in Hugging Face layout; `out` is a temporary path, a file or a folder;
- `Engine(path, case, context, **settings)`: opens it, where `case` has `threads`, `sequences`, `kv` as in `cases.Case`:
  - `prompt(prompts)`: forgets everything, then computes `sequences` prompts of equal length, logits after the last token of each;
  - `steps(n)`: n tokens for each sequence, each the most probable one after the last;
  - `logits()`: logits of the first sequence, f32, or None if the engine does not give them out;
- `describe()`: version and build, for the report.

Nothing but the standard library is imported outside functions: the modules are also read by a Python without the engines.
"""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = {"llmcc": "ours", "llama.cpp": "llama", "OpenVINO": "openvino_genai_", "ONNX Runtime": "onnxruntime_genai_"}
NAMES = tuple(_MODULES)


def get(name: str) -> ModuleType:
    return importlib.import_module("engines." + _MODULES[name])
