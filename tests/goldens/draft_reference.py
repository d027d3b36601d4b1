#!/usr/bin/env python3
"""Makes fixtures of draft heads: `drafts/NAME/config.json` to `model.recipe` (the model with its draft heads; see `weights.py`) and `golden.safetensors`.

    CUDA_VISIBLE_DEVICES= /tmp/tv/bin/python draft_reference.py deepseek_v3

The reference is `MtpModel` of Transformers on the model's last hidden states: head `k` takes
the hidden states of head `k - 1`, and the tokens after. Classes without `num_mtp_layers` in
Transformers (Qwen3-Next and 3.5, GLM-4.7-Flash) are told how many heads there are and of which
kind.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

import mimo_reference
import weights
from make import HERE, Float64Only, errors, load, random_weights, seed_of

TOKENS = 24
# Names of the parts in files whose heads are not numbered as layers.
APART = {"eh_proj": "mtp.fc", "enorm": "mtp.pre_fc_norm_embedding", "hnorm": "mtp.pre_fc_norm_hidden", "post_norm": "mtp.norm"}


def told(model):
    """The text configuration with the fields `MtpModel` needs, where the class lacks them; and the
    model with the names of its heads' tensors, for its number of layers."""
    of = model.config.get_text_config()
    raw = json.loads((Path(model.config.name_or_path) / "config.json").read_text())
    raw = raw.get("text_config", raw)
    if getattr(of, "num_mtp_layers", None) is None:
        of.num_mtp_layers = raw.get("num_nextn_predict_layers", raw.get("mtp_num_hidden_layers", 1))
    for lists, kinds in (("layer_types", ("full_attention", "indexed_attention")), ("mlp_layer_types", ("sparse",))):
        known = getattr(of, lists, None)
        if known is not None and getattr(of, f"mtp_{lists}", None) is None:
            setattr(of, f"mtp_{lists}", [next(kind for kind in kinds if kind in known)] * of.num_mtp_layers)
    if not is_apart(model):
        model._keys_to_ignore_on_load_unexpected = [rf"layers\.{of.num_hidden_layers + k}\." for k in range(of.num_mtp_layers)]
    return of


def is_apart(model):
    """Whether heads are under `mtp.`, and no layers by number."""
    return any("mtp" in pattern for pattern in model._keys_to_ignore_on_load_unexpected or [])


def like(of):
    """The layer of the model that the first head is like."""
    lists = [(getattr(of, name), getattr(of, f"mtp_{name}")[0]) for name in ("layer_types", "mlp_layer_types") if getattr(of, name, None) is not None]
    return max(i for i in range(of.num_hidden_layers) if all(kinds[i] == kind for kinds, kind in lists))


def with_heads(model, tensors, seed):
    """The tensors of random heads, by the names of files."""
    of = told(model)
    rng = torch.Generator().manual_seed(seed)
    apart, width, made = is_apart(model), of.hidden_size, {}
    [stem] = {name[: name.index("layers.")] for name in tensors if "layers." in name}
    before = f"{stem}layers.{like(of)}."
    for k in range(of.num_mtp_layers):
        at = f"mtp.layers.{k}." if apart else f"{stem}layers.{of.num_hidden_layers + k}."
        made |= {at + name.removeprefix(before): random(name, tensor, rng) for name, tensor in sorted(tensors.items()) if name.startswith(before)}
        for part, shape in (("enorm", (width,)), ("hnorm", (width,)), ("post_norm", (width,)), ("eh_proj", (width, 2 * width))):
            name = APART[part] if apart else at + ("shared_head.norm" if part == "post_norm" else part)
            made[f"{name}.weight"] = random(part, torch.empty(shape), rng)
    return {name: tensor.to(model.dtype).contiguous() for name, tensor in made.items()}


def random(name, tensor, rng):
    """With spread enough that a head's logits depend on more than its tokens."""
    if tensor.ndim == 1:
        return 0.5 + torch.rand(tensor.shape, generator=rng) if "bias" not in name else 0.3 * torch.randn(tensor.shape, generator=rng)
    return torch.randn(tensor.shape, generator=rng) * (1.2 / tensor.shape[-1] ** 0.5)


def run(folder, tokens, dtype):
    """Logits and last hidden states of the model, then of each head; and the tokens that the heads guess after the last."""
    if dtype is not torch.float64:
        return computed(load(folder, dtype)[0], tokens, dtype)
    # As in `make.py`: its classes compute some parts in float32 whatever their type is.
    model, _ = load(folder, dtype)
    torch.set_default_dtype(torch.float64)
    try:
        with Float64Only():
            return computed(model, tokens, dtype)
    finally:
        torch.set_default_dtype(torch.float32)


@torch.no_grad()
def computed(model, tokens, dtype):
    if model.config.model_type == "mimo":
        return mimo_reference.computed(model, tokens)
    of = told(model)
    heads = MtpModel.from_pretrained(model).eval()
    for p in heads.parameters():
        p.data = p.data.to(dtype)
    ids = torch.tensor([tokens])
    out = model(ids, use_cache=False, output_hidden_states=True)
    hidden = out.hidden_states[-1]
    positions = torch.arange(1, ids.shape[1])[None]
    drafted, _, _ = heads(ids[:, 1:], hidden[:, :-1], None, positions, MtpCache(config=model.config.get_mtp_config()))
    steps = [(out.logits[0], hidden[0])]
    cache = MtpCache(config=model.config.get_mtp_config())
    for k in range(of.num_mtp_layers):
        ids, hidden = ids[:, 1:], hidden[:, :-1]
        positions = torch.arange(1 + k, 1 + k + ids.shape[1])[None]
        hidden = heads.forward_layer(k, hidden, positions, cache, input_ids=ids)
        steps.append((heads._project_to_logits(hidden)[0], hidden[0]))
    return steps, drafted[0]


def make(name):
    """Golden values, and the recipe if there is none."""
    source = HERE / "drafts" / name
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        shutil.copytree(source, folder)
        make_in(name, folder)
        for file in ("model.recipe", "golden.safetensors"):
            (source / file).write_bytes((folder / file).read_bytes())


def make_in(name, folder):
    seed = seed_of(f"draft_{name}")
    if not (folder / "model.recipe").exists():
        random_weights(folder, seed)
        path = folder / "model.safetensors"
        # MiMo's class has its heads.
        if name != "mimo":
            model, _ = load(folder, torch.bfloat16)
            tensors = load_file(path)
            save_file({**tensors, **with_heads(model, tensors, seed)}, path, metadata={"format": "pt"})
        weights.remake(path, seed)
    weights.make(folder)
    model, _ = load(folder, torch.bfloat16)
    vocab = model.config.get_text_config().vocab_size
    tokens = np.random.default_rng(seed).integers(3, vocab, TOKENS).tolist()
    (f64, drafted), (f32, again), (bf16, _) = (run(folder, tokens, t) for t in (torch.float64, torch.float32, torch.bfloat16))
    assert torch.equal(drafted, again)
    golden = {"tokens": torch.tensor(tokens, dtype=torch.int32), "drafted": drafted.int()}
    for i, (exact, single, half) in enumerate(zip(f64, f32, bf16)):
        which = "model" if i == 0 else f"head{i - 1}"
        for what, *values in (("logits", exact[0], single[0], half[0]), ("hidden", exact[1], single[1], half[1])):
            assert values[0].dtype == torch.float64
            golden[f"{which}.{what}"] = values[0].float().contiguous()
            golden |= {f"{which}.{what}_{k}": v for k, v in errors(*values).items() if k == "error_f32"}
        e32 = (single[0].double() - exact[0]).abs().max()
        print(f"| {name} {which} | {exact[0].std():.2f} | {exact[0].abs().max():.1f} | {e32:.1e} | {(half[0].double() - exact[0]).abs().max():.2f} |")
    save_file(golden, folder / "golden.safetensors")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        make(name)
