"""The converter's forms of checkpoints with draft heads (`gguf_forms.py`), as layers after the
last; written to `gguf/drafts.json`.

The converter leaves DeepSeek-V3's own heads out, but it keeps the heads of GLM-4.7-Flash, which
has the same architecture in files. Heads that a checkpoint has in `mtp` are layers by number in
files, too.
"""

import json
import re

import gguf
from gguf import Keys
from safetensors import safe_open

import gguf_forms
import gguf_newest
import weights

FIXTURES = {"bailing_hybrid": "bailingmoe3", "deepseek_v3": "deepseek2", "glm4_moe": "glm4moe", "qwen3_5": "qwen35"}
# Which layers attend, the head's as well.
ATTEND = {"bailing_hybrid": [0, 0, 1, 1]}
PARTS = {"eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "shared_head.norm": "shared_head_norm"}
APART = {"mtp.fc": "eh_proj", "mtp.pre_fc_norm_embedding": "enorm", "mtp.pre_fc_norm_hidden": "hnorm", "mtp.norm": "shared_head_norm"}


def table(here, by_name):
    out = {}
    for fixture, arch in FIXTURES.items():
        folder = weights.fixture(here / "drafts" / fixture)
        config = json.loads((folder / "config.json").read_text())
        newest = gguf_newest.FIXTURES.get(fixture)
        keys, done, *modules = (newest or gguf_forms.FIXTURES[fixture])[1:]
        layers, heads = config["num_hidden_layers"], config.get("num_nextn_predict_layers", config.get("mtp_num_hidden_layers"))
        names = None if newest else gguf.get_tensor_name_map(by_name[arch], layers + heads)
        tensors = {}
        files = safe_open(folder / "model.safetensors", "pt")
        for name in files.keys():
            asked = re.sub(r"experts\.\d+\.", "experts.", name)
            # Heads in `mtp` have one number only, which is none of a layer's.
            to = lambda file: file.replace("{}", str(layers)) if name.startswith("mtp.") else file
            stem = name.rsplit(".", 1)[0]
            own = APART.get(stem) or next((to for part, to in PARTS.items() if stem.endswith(f".{part}")), None)
            pattern = re.sub(r"(?<=\.)\d+(?=\.)", "{}", asked)
            if own:
                tensors[pattern] = to(f"blk.{{}}.nextn.{own}.weight")
                continue
            like = re.sub(r"^mtp\.", "model.", asked)
            shape, plain = list(files.get_slice(name).get_shape()), re.sub(r"(?<=\.)\d+(?=\.)", "{}", like)
            form = gguf_newest.form(config, fixture, plain, shape, *modules) if newest else gguf_forms.shapes(config, plain, shape)
            found = form or re.sub(r"blk\.\d+", "blk.{}", names.get_name(like, try_suffixes=(".weight", ".bias")))
            tensors[pattern] = to(found) if isinstance(found, str) else found | {"to": [[to(file), *rest] for file, *rest in found["to"]]}
        said = gguf_forms.common(config) | keys(config) | {Keys.LLM.BLOCK_COUNT: layers + heads, Keys.LLM.NEXTN_PREDICT_LAYERS: heads}
        if fixture in ATTEND:
            said[Keys.Attention.HEAD_COUNT_KV] = ATTEND[fixture]
        said = {"general.architecture": arch, **{k.format(arch=arch): v for k, v in said.items() if v is not None}}
        out[fixture] = {"metadata": said, "done": done, "whole": True, "tensors": dict(sorted(tensors.items())), "vectors": {}}
    return out
