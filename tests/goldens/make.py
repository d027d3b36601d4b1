#!/usr/bin/env python3
"""Makes the golden fixtures: tiny random checkpoints, and Transformers' results for them in
float64, float32 and bfloat16.

    pip install -r requirements.txt && python make.py [NAME...]
    python make.py --saved      # saved.json alone

A fixture is a folder with a `config.json`: a new one needs nothing else, `make.py NAME` makes the rest. The file is left as it is, since the layouts that published
checkpoints have are part of what is tested. The script draws random weights, measures them, and writes a `model.recipe`, from which `weights.py` makes the weights, here and
in the tests; a folder that has a recipe keeps it (edit it, or remove it for other weights). Beside it, `golden.safetensors` has

- `tokens` i32[40], the prompt; 40 tokens cross the boundaries of 16-token pages twice and end inside a page;
- `at` i32[12], the tokens whose logits are kept, and `logits` f32[12, vocab], the float64 reference rounded once; `error_f32`, `error_bf16` f32[40], the largest error of
  Transformers in those types after each token: what an implementation in them is entitled to;
- `greedy` i32[24], greedy continuation in float64 (best and second-best logit differ by at least `MARGIN` at each step, so that a
  correct f32 implementation picks the same);
- for embedders and classifiers, in place of `logits` and `greedy`: `hidden` f32[12, columns], the last layer's rows of the prompt after the linear modules
  (embedders only), and for texts of 1, 7, 40 and 19 tokens (`texts`, one after the other, and their `lengths`) `pooled_f64`, `pooled_f32` [4, columns]: rows pooled and
  normalized as `modules.json` says (without one: their mean), or scores of classes;
- for models with an encoder and a decoder, beside `tokens`, the decoder's, the `source`: see `encoder_decoders.py`;
- for models that hear, beside `tokens`, the `features` of a clip: see `speech_models.py`;
- for classifiers with a file `pairs.json` the same for its pairs of texts, as the tokenizer of the folder puts them together, and the `types` of their tokens, if the
  tokenizer gives the model any;
- `inv_freq` f32[head_dim / 2], the inverse frequencies that Transformers computed in f32 (`inv_freq1`... where there are several tables).

**Making float64 really float64.** Transformers computes RMSNorm, RoPE angles and the softmax in float32 whatever the model's type
(`.to(torch.float32)`, `.float()`, `softmax(dtype=torch.float32)`). `Float64Only` rewrites each such request to float64 while the
reference runs, and `NoFloat32` then fails if any operation still produces a float32 or narrower result. The one exception is on
purpose: `inv_freq` stays the float32 value that every implementation starts from (widened without change); angles, cosines
and sines are float64.
"""

import json
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

import bitllama2c_reference
import encoder_decoders
import gla_reference
import jina_reference
import nas_reference
import neobert_reference
import numpy as np
import rwkv_reference
import speech_models
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import weights

HERE = Path(__file__).parent
PROMPT, GREEDY, MARGIN = 40, 24, 0.01
# Between scores of an indexer.
GAP = 1e-4
SHARDED = ("llama3", "llama3_sharded")
OLDEST = ["llama", "llama3", "llama_linear", "llama_yarn", "llama_bias", "llama_bf16", "llama_f16", "mistral", "qwen2", "qwen3"]
NARROW = (torch.float32, torch.bfloat16, torch.float16)


class Float64Only(TorchFunctionMode):
    """Rewrites requests for float32 to float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        if func is torch.Tensor.float:
            func, args = torch.Tensor.to, (args[0], torch.float64)
        return func(*[torch.float64 if a is torch.float32 else a for a in args], **kwargs)


class NoFloat32(TorchDispatchMode):
    """Fails on any operation whose result is a narrow float, except views and copies of the stored `inv_freq`."""

    def __init__(self, inv_freqs):
        super().__init__()
        self.allowed = {t.untyped_storage().data_ptr() for t in inv_freqs}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(t, torch.Tensor) and t.dtype in NARROW and t.untyped_storage().data_ptr() not in self.allowed:
                raise AssertionError(f"{func} computed in {t.dtype} inside the float64 reference")
        return out


class Selections(TorchFunctionMode):
    """The smallest gap between the scores of tokens that an indexer selects and those that it leaves out: an f32 implementation selects the same where it is wide."""

    def __init__(self, config):
        super().__init__()
        self.top, self.gap = getattr(config, "index_topk", None), float("inf")

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.topk and args[1] == self.top and args[0].shape[-1] > self.top:
            best = args[0].topk(self.top + 1, dim=-1).values[..., -2:]
            # Later tokens have the least number there is.
            gaps = (best[..., 0] - best[..., 1])[best[..., 1] > -1e30]
            self.gap = min(self.gap, gaps.min().item() if len(gaps) else self.gap)
        return func(*args, **(kwargs or {}))


def fixtures():
    """Folders with a config.json; `llama3_sharded` is `llama3` in two files, and `mlx_models.py` makes others."""
    return sorted(p.parent.name for p in HERE.glob("*/config.json") if p.parent.name != SHARDED[1] and not p.parent.name.endswith("_mlx"))


def seed_of(name):
    """A seed for the weights and the prompt. The oldest fixtures are numbered, so that they stay as they are."""
    return 100 + OLDEST.index(name) if name in OLDEST else zlib.crc32(name.encode())


def randomize(model, seed):
    """Random values with enough spread that attention is not uniform and logits differ, and no gain 1 or bias 0."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if name.endswith(("recurrent_param", "time_decay")):
                # States that are remembered for some tokens.
                p.copy_(-3 + 2 * torch.rand(p.shape, generator=rng))
            elif name.endswith("softmax_scaling.scale"):
                # Times logarithms of positions, and attention is still over several tokens.
                p.copy_(0.2 * torch.rand(p.shape, generator=rng))
            elif ".lambda_" in name:
                # Whose products' exponentials are near 1.
                p.copy_(0.3 * torch.randn(p.shape, generator=rng))
            elif name.endswith(("states_bias", "residual_bias")):
                # Every block adds some, and rows are to differ.
                p.copy_(0.1 * torch.randn(p.shape, generator=rng))
            elif ".rel_attn." in name and p.ndim == 3 and p.shape[0] > 2:
                # XLNet's matrices, whose columns are of heads.
                p.copy_(torch.randn(p.shape, generator=rng) * (1.2 / p.shape[0] ** 0.5))
            elif p.ndim == 1 and not name.endswith(".bias"):
                p.copy_(0.5 + torch.rand(p.shape, generator=rng))
            elif name.endswith(".bias"):
                p.copy_(0.3 * torch.randn(p.shape, generator=rng))
            elif "embed_tokens" in name or "lm_head" in name:
                p.copy_(0.4 * torch.randn(p.shape, generator=rng))
            else:
                p.copy_(torch.randn(p.shape, generator=rng) * (1.2 / p.shape[1] ** 0.5))
            if name.endswith(".compressor.gate_proj.weight"):
                # Some columns of gates whose exponentials no f32 holds, and some whose sums with places are none.
                p[::4] *= 80
            if name.endswith(".compressor.position_bias"):
                p[:, 1::4] += 100
        for name, b in sorted(model.named_buffers()):
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                b.copy_(0.2 * torch.randn(b.shape, generator=rng))
            if name.endswith("balancing_biases"):
                # For probabilities that differ little; the last, an expert that does nothing, is
                # chosen sometimes.
                b.copy_(0.02 * torch.randn(b.shape, generator=rng))
                b[-1] += 0.05
            if name.endswith("rotary_emb.alpha"):
                b.copy_(0.3 * torch.randn(b.shape, generator=rng))
            if name.endswith("tid2eid"):
                # Each token's experts.
                experts = model.config.n_routed_experts
                b.copy_(torch.stack([torch.randperm(experts, generator=rng)[: b.shape[1]] for _ in b]))
            if name.endswith("layer_scalar"):
                b.copy_(0.5 + torch.rand(b.shape, generator=rng))


# Classes that Transformers has, but not in its tables: parts of larger models.
ALONE = {"Emu3ForCausalLM", "Mistral4ForCausalLM", "T5EncoderModel", "MT5EncoderModel", "UMT5EncoderModel", "SwitchTransformersEncoderModel"}


def auto_class(folder):
    """The reader of a checkpoint: by its class, or by sentence-transformers' list of modules."""
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    if name in ALONE:
        return getattr(transformers, name)
    if two := encoder_decoders.reader(folder):
        return two
    if name.endswith("ForConditionalGeneration"):
        return transformers.AutoModelForImageTextToText
    if name.endswith("ForSequenceClassification"):
        return transformers.AutoModelForSequenceClassification
    return transformers.AutoModel if name.endswith("Model") and "LMHead" not in name or (folder / "modules.json").exists() else transformers.AutoModelForCausalLM


def load(folder, dtype):
    """A model, and the inverse frequencies of its rotary tables."""
    # The eager attention of Falcon's class adds slopes that the mask has already.
    attention = "sdpa" if json.loads((folder / "config.json").read_text()).get("alibi") is True else "eager"
    model = auto_class(folder).from_pretrained(folder, dtype=dtype, attn_implementation=attention, experts_implementation="eager").eval()
    if dtype is torch.float64 or model.config.model_type in ("deberta", "xlnet"):
        # Some classes keep the weights of routers, or some biases, in float32, whatever the model's type.
        for p in model.parameters():
            p.data = p.data.to(dtype)
    if model.config.model_type == "zaya":
        # Its class sets the last of each of these to its initial value, when they have been read.
        model.load_state_dict({k: t for k, t in load_file(folder / "model.safetensors").items() if k.endswith("balancing_biases")}, strict=False)
    model = as_asked(model)
    if model.config.model_type == "falcon" and model.config.alibi:
        round_slopes(model.config.num_attention_heads, dtype)
    inv_freqs = [b for name, b in model.named_buffers() if name.endswith("inv_freq")]
    assert all(b.dtype == torch.float32 for b in inv_freqs)
    return model, inv_freqs


def round_slopes(heads, dtype):
    """Falcon's slopes times positions, which its class rounds to bf16 whatever the model's type: computed here, where nobody watches."""
    from transformers.models.falcon import modeling_falcon as falcon

    falcon_slopes = getattr(falcon.build_alibi_tensor, "original", falcon.build_alibi_tensor)
    table = falcon_slopes(torch.ones(1, 512, dtype=torch.int64), heads, dtype)

    def cut(mask, *_, **__):
        return table[..., : mask.shape[-1]]

    cut.original = falcon_slopes
    falcon.build_alibi_tensor = cut


@torch.no_grad()
def logits_of(model, ids):
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def reference(folder, tokens):
    """float64 logits of the prompt, the greedy continuation, the smallest margin on its way, and the inverse frequencies."""
    model, inv_freqs = load(folder, torch.float64)
    # Tensors without a type (a mask of ones) are float64 too.
    torch.set_default_dtype(torch.float64)
    selections = Selections(model.config)
    with NoFloat32(inv_freqs), Float64Only(), selections:
        logits = logits_of(model, tokens)
        ids, margin = list(tokens), float("inf")
        for _ in range(GREEDY):
            best = logits_of(model, ids)[-1].topk(2)
            margin = min(margin, (best.values[0] - best.values[1]).item())
            ids.append(best.indices[0].item())
    torch.set_default_dtype(torch.float32)
    assert logits.dtype == torch.float64
    assert selections.gap > GAP, f"scores of selected tokens and others are as near as {selections.gap}"
    # Frequencies that some tables share are buffers twice.
    unique = {f"inv_freq{i or ''}": t.clone() for i, t in enumerate(t for n, t in enumerate(inv_freqs) if not any(t.equal(s) for s in inv_freqs[:n]))}
    return logits, ids[len(tokens) :], margin, unique


def random_weights(folder, seed):
    """Writes `model.safetensors` beside config.json."""
    config = transformers.AutoConfig.from_pretrained(folder)
    cls = auto_class(folder)
    model = cls.from_config(config) if hasattr(cls, "from_config") else cls(config)
    randomize(model, seed)
    for i, module in enumerate(dense_modules(folder)):
        random_dense(module, seed + i)
    with tempfile.TemporaryDirectory() as scratch:
        model.to(config.dtype).save_pretrained(scratch)
        (folder / "model.safetensors").write_bytes((Path(scratch) / "model.safetensors").read_bytes())
    of_others = OF_OTHERS.get(config.model_type, ())
    if of_others:
        without(folder, lambda name: any(part in name for part in of_others))
    if config.model_type == "minimax":
        without(folder, lambda name: name.endswith(COMPUTED))
    if config.model_type == "longcat_flash":
        without_spare(folder, config.n_routed_experts)
    if config.model_type == "hy_v4":
        as_published(folder)
    return config.get_text_config().vocab_size


def seeded_weights(name, folder):
    """Weights by the recipes of a folder, which are measured first where there are none."""
    if not any(folder.rglob("*.recipe")):
        random_weights(folder, seed_of(name))
        for i, path in enumerate(sorted(folder.rglob("*.safetensors"))):
            weights.remake(path, seed_of(name) + i)
    weights.make(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    if config.model_type == "longcat_flash":
        with_spare(folder, config)
    return config.get_text_config().vocab_size


def without(folder, spare):
    path = folder / "model.safetensors"
    save_file({k: v for k, v in load_file(path).items() if not spare(k)}, path, metadata={"format": "pt"})


def without_spare(folder, experts):
    """Takes out the matrices that Transformers' class has, and does not use, for experts that compute nothing; no published checkpoint has them."""
    without(folder, lambda name: ".experts." in name and int(name.split(".experts.")[1].split(".")[0]) >= experts)


def with_spare(folder, config):
    """Puts zeros where Transformers' class wants those matrices to be; it has no down projections for them."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    first = {name: t for name, t in tensors.items() if ".experts.0." in name and "down_proj" not in name}
    for i in range(config.n_routed_experts, config.n_routed_experts + config.zero_expert_num):
        tensors |= {name.replace(".experts.0.", f".experts.{i}."): torch.zeros_like(t) for name, t in first.items()}
    save_file(tensors, path, metadata={"format": "pt"})


# What of parts that see and hear would be most of a file, and no text reads.
OF_OTHERS = {"granite4_vision": ("_projectors.", "vision_tower."), "mllama": ("vision_model.",), "phi4_multimodal": ("embed_tokens_extend.",)}

# Values that Transformers' class computes from the configuration, and stores rounded to the type of
# the weights, where the numbers no longer fit each other.
COMPUTED = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")


def as_published(folder):
    """Names of Hy4's tensors as they are published; Transformers reads them, and writes some of them in another way."""
    path = folder / "model.safetensors"

    def name_of(name):
        name = name.replace(".hc_pre.hc_head.", ".hc_head.").replace("mlp.linear_gate.", "mlp.gate_proj.").replace("shared_experts.linear_gate.", "shared_experts.gate_proj.")
        for site in ("hc_attn_layer", "hc_mlp_layer"):
            name = name.replace(f".hc_pre.{site}.", f".{site}.hc_pre.")
        return name

    save_file({name_of(name): t for name, t in load_file(path).items()}, path, metadata={"format": "pt"})


# ---- embedders and classifiers

LENGTHS = [1, 7, PROMPT, 19]
# More texts where the largest error of four descriptions is that of the shortest, and chance.
MORE_LENGTHS = {"jina_bert": [2, 1, 3, 1, 5, 1, 11, 1]}
POOLS = {
    "cls": lambda rows: rows[0],
    "lasttoken": lambda rows: rows[-1],
    "mean": lambda rows: rows.mean(0),
    "max": lambda rows: rows.max(0).values,
    "mean_sqrt_len": lambda rows: rows.sum(0) / len(rows) ** 0.5,
    "weightedmean": lambda rows: (rows * torch.arange(1, len(rows) + 1, dtype=rows.dtype)[:, None]).sum(0) / (len(rows) * (len(rows) + 1) / 2),
}


def modules(folder):
    """The types and folders of sentence-transformers' modules."""
    path = folder / "modules.json"
    return [(m["type"].split(".")[-1], folder / m["path"]) for m in json.loads(path.read_text())] if path.exists() else []


def dense_modules(folder):
    return [path for kind, path in modules(folder) if kind == "Dense"]


def random_dense(folder, seed):
    settings = json.loads((folder / "config.json").read_text())
    rng = torch.Generator().manual_seed(seed)
    shape = (settings["out_features"], settings["in_features"])
    tensors = {"linear.weight": torch.randn(shape, generator=rng) * (1.2 / shape[1] ** 0.5)}
    if settings.get("bias", True):
        tensors["linear.bias"] = 0.3 * torch.randn(shape[0], generator=rng)
    save_file(tensors, folder / "model.safetensors")


def activation(module):
    """The activation of a linear module's result."""
    name = json.loads((module / "config.json").read_text())["activation_function"].split(".")[-1]
    return getattr(torch.nn, name)()


def kept(folder, rows):
    """As many columns as `truncate_dim` says."""
    path = folder / "config_sentence_transformers.json"
    return rows[..., : json.loads(path.read_text()).get("truncate_dim")] if path.exists() else rows


def projected(folder, dense, rows):
    """The linear modules' results for single rows; for the mean up to each row, where they are not
    linear and the mean is needed."""
    pooling = [json.loads((path / "config.json").read_text()) for kind, path in modules(folder) if kind == "Pooling"]
    if any(p.get("pooling_mode_mean_tokens") for p in pooling) and not all(isinstance(activation(module), torch.nn.Identity) for module in dense):
        rows = rows.cumsum(0) / torch.arange(1, len(rows) + 1, dtype=rows.dtype)[:, None]
    for module, t in dense.items():
        rows = activation(module)(torch.nn.functional.linear(rows, t["linear.weight"], t.get("linear.bias")))
    return kept(folder, rows)


def pooled(folder, dense, rows):
    """sentence-transformers' result for the rows of a text."""
    for kind, path in modules(folder) or [("Mean", None)]:
        settings = json.loads((path / "config.json").read_text()) if kind in ("Pooling", "Dense") else {}
        if kind == "Pooling":
            on = [k for k, v in settings.items() if k.startswith("pooling_mode_") and v is True] or np.atleast_1d(settings["pooling_mode"]).tolist()
            assert len(on) == 1
            rows = POOLS[on[0].removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")](rows)
        elif kind == "Dense":
            rows = activation(path)(torch.nn.functional.linear(rows, dense[path]["linear.weight"], dense[path].get("linear.bias")))
        elif kind == "Normalize":
            rows = torch.nn.functional.normalize(rows, dim=-1)
        elif kind == "Mean":
            rows = POOLS["mean"](rows)
    return kept(folder, rows)


@torch.no_grad()
def rows_of(model, ids):
    return model(input_ids=torch.tensor([ids])).last_hidden_state[0]


@torch.no_grad()
def describe(folder, dtype, texts, types=None):
    """Rows of the longest text (none for a classifier), the result for each, and inverse
    frequencies."""
    model, inv_freqs = load(folder, dtype)
    dense = {path: {k: v.to(dtype) for k, v in load_file(path / "model.safetensors").items()} for path in dense_modules(folder)}
    scores = auto_class(folder) is transformers.AutoModelForSequenceClassification

    def compute():
        if scores:
            of = [{} if types is None else {"token_type_ids": torch.tensor([t])} for t in types or texts]
            return None, torch.stack([model(input_ids=torch.tensor([t]), **more).logits[0] for t, more in zip(texts, of)])
        return projected(folder, dense, rows_of(model, texts[2])), torch.stack([pooled(folder, dense, rows_of(model, t)) for t in texts])

    if dtype is not torch.float64:
        return *compute(), inv_freqs
    # As in `reference`.
    torch.set_default_dtype(torch.float64)
    with NoFloat32(inv_freqs), Float64Only():
        computed = compute()
    torch.set_default_dtype(torch.float32)
    return *computed, inv_freqs


def pairs_of(folder):
    """Tokens and types of the pairs of texts (or texts alone, after all pairs), if there is a file of them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pairs = json.loads((folder / "pairs.json").read_text())
    found = [tokenizer(*texts) for texts in pairs]
    return [p["input_ids"] for p in found], [p["token_type_ids"] for p in found] if "token_type_ids" in found[0] else None


def make_embedder(name, folder, vocab):
    seed = seed_of(name)
    rng = np.random.default_rng(seed)
    texts, types = [rng.integers(3, vocab, n).tolist() for n in LENGTHS + MORE_LENGTHS.get(name, [])], None
    if (folder / "pairs.json").exists():
        texts, types = pairs_of(folder)
    rows, f64, inv_freqs = describe(folder, torch.float64, texts, types)
    rows32, f32, _ = describe(folder, torch.float32, texts, types)
    rows16, _, _ = describe(folder, torch.bfloat16, texts, types)
    assert f64.dtype == torch.float64
    unique = {f"inv_freq{i or ''}": t.clone() for i, t in enumerate(t for n, t in enumerate(inv_freqs) if not any(t.equal(s) for s in inv_freqs[:n]))}
    golden = {
        "tokens": torch.tensor(texts[2], dtype=torch.int32),
        "texts": torch.tensor(sum(texts, []), dtype=torch.int32),
        "lengths": torch.tensor([len(t) for t in texts], dtype=torch.int32),
        **({} if types is None else {"types": torch.tensor(sum(types, []), dtype=torch.int32)}),
        **unique,
        **({} if rows is None else kept_rows("hidden", rows) | errors(rows, rows32, rows16)),
        "pooled_f64": f64,
        "pooled_f32": f32,
    }
    save_file({k: v.contiguous() for k, v in golden.items()}, folder / "golden.safetensors")
    exact, narrow = (f64, f32) if rows is None else (rows, rows32)
    e32 = (narrow.double() - exact).abs()
    by_row = e32.amax(1)
    e16 = "" if rows is None else f"{(rows16.double() - rows).abs().max():.2f}"
    print(f"| {name} | {exact.std():.2f} | {exact.abs().max():.1f} | {e32.max():.1e} | {by_row.min():.1e}–{by_row.max():.1e} | {e16} | |", flush=True)


# ---- architectures that Transformers has no class for, by one that computes the same


def of_llama(config):
    """InternLM 2 as Llama."""
    same = {k: v for k, v in config.items() if k not in ("architectures", "model_type", "bias")}
    return same | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": config["bias"]}


def to_internlm2(tensors, config):
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config["hidden_size"] // heads
    names = {
        "embed_tokens": "tok_embeddings", "lm_head": "output", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2",
    }
    out = {}
    for name, t in tensors.items():
        if ".q_proj." in name:
            q, k, v = (tensors[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj"))
            groups = [q.reshape(kv, heads // kv, dim, *t.shape[1:]), k.reshape(kv, 1, dim, *t.shape[1:]), v.reshape(kv, 1, dim, *t.shape[1:])]
            out[name.replace("self_attn.q_proj", "attention.wqkv")] = torch.cat(groups, 1).reshape(-1, *t.shape[1:]).contiguous()
        elif ".k_proj." not in name and ".v_proj." not in name:
            for ours, theirs in names.items():
                name = name.replace(ours, theirs)
            out[name] = t
    return out


def of_granite(config):
    """MiniCPM as Granite, whose multipliers say the same."""
    same = {k: v for k, v in config.items() if k not in ("architectures", "model_type", "scale_emb", "scale_depth", "dim_model_base")}
    return same | {
        "architectures": ["GraniteForCausalLM"],
        "model_type": "granite",
        "embedding_multiplier": config["scale_emb"],
        "residual_multiplier": config["scale_depth"] / config["num_hidden_layers"] ** 0.5,
        "logits_scaling": config["hidden_size"] / config["dim_model_base"],
        "attention_multiplier": (config["hidden_size"] / config["num_attention_heads"]) ** -0.5,
    }


def of_llama_with_slopes(config):
    """Baichuan as Llama, changed by `as_asked`, which reads the settings written beside."""
    same = {k: v for k, v in config.items() if k not in ("architectures", "model_type", "model_max_length", "z_loss_weight")}
    twin = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "unit_head": "z_loss_weight" in config, "slopes": "max_position_embeddings" not in config}
    return same | twin | {"max_position_embeddings": config["model_max_length"]}


def to_baichuan(tensors, _):
    out = {}
    for name, t in tensors.items():
        if ".q_proj." in name:
            out[name.replace("q_proj", "W_pack")] = torch.cat([tensors[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")])
        elif ".k_proj." not in name and ".v_proj." not in name:
            out[name] = t
    return out


class NoRotation(torch.nn.Module):
    """Rotary tables that change nothing."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x, position_ids):
        shape = (*position_ids.shape, self.dim)
        return x.new_ones(shape), x.new_zeros(shape)


class WithSlopes(torch.nn.Module):
    """A model of Llama's class whose scores get `slope · (j - i)`, as a mask that is added to them."""

    def __init__(self, model):
        super().__init__()
        self.model, self.config = model, model.config
        model.model.rotary_emb = NoRotation(model.config.head_dim)

    def forward(self, input_ids, **more):
        dtype, n = next(self.model.parameters()).dtype, input_ids.shape[1]
        far = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        slopes = torch.tensor(jina_reference.slopes_of(self.config.num_attention_heads), dtype=dtype)
        mask = (slopes[:, None, None] * far.to(dtype)).masked_fill(far > 0, torch.finfo(dtype).min)
        return self.model(input_ids=input_ids, attention_mask=mask[None], **more)


def as_asked(model):
    """The settings of `of_llama_with_slopes` and `of_llama_twice`, and slopes that the class does
    not have."""
    max_bias = getattr(getattr(model.config, "attn_config", None), "alibi_bias_max", 8)
    if max_bias != 8:
        # MPT's class reads it and leaves it; the authors' code (llm-foundry) has the slopes it says.
        build = model.transformer.build_mpt_alibi_tensor
        model.transformer.build_mpt_alibi_tensor = lambda heads, n, device=None: build(heads, n, max_bias, device)
    if getattr(model.config, "twice", False):
        layers = model.model.layers
        for first, second in zip(layers[0::2], layers[1::2]):
            second.load_state_dict(first.state_dict())
    if getattr(model.config, "unit_head", False):
        model.lm_head.weight.data = torch.nn.functional.normalize(model.lm_head.weight.data)
    return WithSlopes(model) if getattr(model.config, "slopes", False) else model


def of_llama_twice(config):
    """MobileLLM as Llama: each layer computes twice, one after the other, if they are shared; see
    `as_asked`."""
    own = ("architectures", "model_type", "layer_sharing", "share_embedding")
    same = {k: v for k, v in config.items() if k not in own}
    twin = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": config["share_embedding"], "twice": config["layer_sharing"]}
    return same | twin | {"num_hidden_layers": config["num_hidden_layers"] * (1 + config["layer_sharing"])}


def to_mobilellm(tensors, config):
    """The first of each pair of layers, where they are shared."""
    if not config["layer_sharing"]:
        return tensors
    numbers = [f".layers.{2 * i}." for i in range(config["num_hidden_layers"])]
    names = {name.replace(old, f".layers.{i}."): name for name in tensors for i, old in enumerate(numbers) if old in name}
    return {new: tensors[old] for new, old in names.items()} | {name: t for name, t in tensors.items() if ".layers." not in name}


def of_parts(config, whole, vision, **more):
    """A text model as the part of one that sees images, which is all that Transformers has a class for."""
    text = {k: v for k, v in config.items() if k != "architectures"}
    return {
        "architectures": config["architectures"],
        "model_type": whole,
        "dtype": config["dtype"],
        "tie_word_embeddings": config["tie_word_embeddings"],
        "text_config": text,
        "vision_config": vision,
        **more,
    }


def text_part(tensors, _):
    names = {name: name.replace("model.language_model.", "model.") for name in tensors}
    return {new: tensors[old] for old, new in names.items() if new.startswith(("model.embed_tokens.", "model.layers.", "model.norm.", "lm_head."))}


def turned_stacks(tensors, config):
    """The text model with stacks of experts as they are published."""
    turned = lambda name, t: t.transpose(1, 2).contiguous() if ".experts." in name else t
    return {name: turned(name, t) for name, t in text_part(tensors, config).items()}


def published_text_part(tensors, _):
    """The same of a model whose tensors Transformers writes as they are published."""
    return {name: t for name, t in tensors.items() if name.startswith(("tok_embeddings.", "lerope.", "layers.", "norm.", "output."))}


VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
SMALL_VISION = {"depth": 1, "embed_dim": 16, "hidden_size": 32, "mlp_ratio": 1, "num_heads": 2, "patch_size": 2}
DEEP_VISION = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "out_hidden_size": 32, "patch_size": 2, "num_position_embeddings": 4, "deepstack_visual_indexes": [0]}
STEP_VISION = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14, "mlp_ratio": 1.0}
NEXT_VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 8, "projection_intermediate_size": 8, "num_heads": 2, "out_hidden_size": 32, "image_size": 8, "patch_size": 2}
AUDIO = {"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16, "num_mel_bins": 8, "output_dim": 32, "downsample_hidden_size": 8}

SPARK_AUDIO = {"patch_sizes": [2], "hidden_sizes": [4], "depths": [1], "num_hidden_layers": 1, "out_hidden_size": 32}

PIXTRAL_VISION = VISION | {"model_type": "pixtral", "image_size": 28, "patch_size": 14}

FOREIGN = {
    "mistral_large4_text": (lambda config: of_parts(config, "mistral_large4", PIXTRAL_VISION), published_text_part),
    "muse_glimmer_text": (lambda config: of_parts(config, "muse_glimmer", VISION), text_part),
    "muse_spark_text": (lambda config: of_parts(config, "muse_spark", VISION, audio_config=SPARK_AUDIO), text_part),
    "glm5_next_text": (lambda config: of_parts(config, "glm5_next", NEXT_VISION), text_part),
    "qwen2_vl_text": (lambda config: of_parts(config, "qwen2_vl", SMALL_VISION), text_part),
    "qwen3_vl_text": (lambda config: of_parts(config, "qwen3_vl", DEEP_VISION), text_part),
    "qwen3_vl_moe_text": (lambda config: of_parts(config, "qwen3_vl_moe", DEEP_VISION), turned_stacks),
    "step3p5": (lambda config: of_parts(config, "step3p7", STEP_VISION), text_part),
    "glm4v_text": (lambda config: of_parts(config, "glm4v", DEEP_VISION), text_part),
    "JinaBertForMaskedLM": (jina_reference.twin, jina_reference.renamed),
    "JinaBertModel": (jina_reference.twin, jina_reference.renamed),
    "neobert": (neobert_reference.twin, neobert_reference.renamed),
    "nemotron-nas": (nas_reference.twin, nas_reference.renamed),
    "glm4v_moe_text": (lambda config: of_parts(config, "glm4v_moe", DEEP_VISION), text_part),
    "glm_ocr_text": (lambda config: of_parts(config, "glm_ocr", DEEP_VISION), text_part),
    "paddleocr_vl_text": (lambda config: of_parts(config, "paddleocr_vl", VISION | {"image_size": 28, "patch_size": 14}), text_part),
    "hunyuan_vl_text": (lambda config: of_parts(config, "hunyuan_vl", VISION | {"max_image_size": 32, "out_hidden_size": 32, "text_hidden_size": 32}), text_part),
    "ernie4_5_vl_moe_text": (lambda config: of_parts(config, "ernie4_5_vl_moe", {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "patch_size": 2}), text_part),
    "qwen2_5_omni_text": (lambda config: of_parts(config, "qwen2_5_omni_thinker", DEEP_VISION, audio_config=AUDIO), text_part),
    "qwen3_omni_moe_text": (lambda config: of_parts(config, "qwen3_omni_moe_thinker", DEEP_VISION, audio_config=AUDIO), text_part),
    "internlm2": (of_llama, to_internlm2),
    "mobilellm": (of_llama_twice, to_mobilellm),
    "minicpm": (of_granite, lambda tensors, _: tensors),
    "baichuan": (of_llama_with_slopes, to_baichuan),
}


def foreign(config):
    """The class that stands in for an architecture that Transformers has no class for, by its
    class or its type."""
    return FOREIGN.get(config["architectures"][0]) or FOREIGN.get(config["model_type"])


def make_foreign(name, folder, config):
    twin, renamed = foreign(config)
    with tempfile.TemporaryDirectory() as scratch:
        other = Path(scratch) / name
        other.mkdir()
        (other / "config.json").write_text(json.dumps(twin(config)))
        vocab = random_weights(other, seed_of(name))
        drawn = load_file(other / "model.safetensors")
        if not (folder / "model.recipe").exists():
            save_file(renamed(drawn, config), folder / "model.safetensors", metadata={"format": "pt"})
            weights.remake(folder / "model.safetensors", seed_of(name))
        weights.make(folder)
        back(drawn, lambda tensors: renamed(tensors, config), load_file(folder / "model.safetensors"))
        save_file(drawn, other / "model.safetensors", metadata={"format": "pt"})
        describe_model(name, other, vocab)
        (folder / "golden.safetensors").write_bytes((other / "golden.safetensors").read_bytes())


def back(tensors, renamed, published):
    """Puts numbers of a published checkpoint where `renamed`, which only moves them, takes them from; what it leaves out stays."""
    count = sum(t.numel() for t in tensors.values())
    whole, at, numbered = torch.zeros(count, dtype=torch.float64), 0, {}
    for name, t in tensors.items():
        whole[at : at + t.numel()] = t.double().flatten()
        numbered[name] = torch.arange(at, at + t.numel()).reshape(t.shape)
        at += t.numel()
    places = renamed(dict(numbered))
    assert places.keys() == published.keys() and torch.cat([p.flatten() for p in places.values()]).unique().numel() == sum(p.numel() for p in places.values())
    for name, place in places.items():
        whole[place.flatten()] = published[name].double().flatten()
    for name, t in tensors.items():
        t.copy_(whole[numbered[name].flatten()].reshape(t.shape).to(t.dtype))


# ---- architectures that Transformers has nothing for, by references written from their papers


WRITTEN = {**dict.fromkeys(rwkv_reference.VERSIONS, rwkv_reference), **dict.fromkeys(gla_reference.MODELS, gla_reference), **dict.fromkeys(bitllama2c_reference.MODELS, bitllama2c_reference)}
# Number of prompts, from which the one with the most even errors is taken, for references and for
# fixtures whose states keep their errors: where a norm of heads divides by next to nothing, a
# single token has all the error, and how much of it is chance.
PROMPTS = 20
UNEVEN = {"olmo_hybrid"}


def unevenness(f32, f64):
    """The error of the worst token over that of the middle one."""
    by_row = (f32.double() - f64).abs().amax(1)
    return (by_row.max() / by_row.median()).item()


def make_written(name, folder, config):
    seed = seed_of(name)
    reference = WRITTEN[config["model_type"]]
    if not (folder / "model.recipe").exists():
        save_file(reference.random_tensors(config, seed, getattr(torch, config["dtype"])), folder / "model.safetensors", metadata={"format": "pt"})
        weights.remake(folder / "model.safetensors", seed)
    weights.make(folder)
    tensors = load_file(folder / "model.safetensors")

    def logits(ids, dtype):
        return reference.logits(tensors, config, ids, dtype)

    prompts = []
    for attempt in range(PROMPTS):
        rng = np.random.default_rng([seed, attempt])
        tokens = rng.integers(3, config["vocab_size"], PROMPT).tolist()
        ids, margin = list(tokens), float("inf")
        for _ in range(GREEDY):
            best = logits(ids, torch.float64)[-1].topk(2)
            margin = min(margin, (best.values[0] - best.values[1]).item())
            ids.append(best.indices[0].item())
        if margin >= MARGIN:
            uneven = unevenness(logits(tokens, torch.float32), logits(tokens, torch.float64))
            prompts.append((uneven, attempt, tokens, ids, margin))
    if not prompts:
        raise RuntimeError(f"{name}: no prompt with a margin of {MARGIN}")
    _, _, tokens, ids, margin = min(prompts)
    write_golden(name, folder, tokens, ids[PROMPT:], margin, {}, [logits(tokens, t).contiguous() for t in (torch.float64, torch.float32, torch.bfloat16)])


def errors(f64, f32, bf16):
    """How far off the results in narrower types are at most, row by row."""
    return {f"error_{name}": (own.double() - f64).abs().amax(1).float() for name, own in (("f32", f32), ("bf16", bf16))}


def kept_rows(name, f64):
    """The rows that are compared, rounded once."""
    return {"at": torch.tensor(weights.AT, dtype=torch.int32), name: f64[weights.AT].float().contiguous()}


def write_golden(name, folder, tokens, greedy, margin, inv_freqs, all_logits):
    """`golden.safetensors`, and a line about it."""
    f64, f32, bf16 = all_logits
    golden = {
        "tokens": torch.tensor(tokens, dtype=torch.int32),
        "greedy": torch.tensor(greedy, dtype=torch.int32),
        **inv_freqs,
        **kept_rows("logits", f64),
        **errors(f64, f32, bf16),
    }
    save_file(golden, folder / "golden.safetensors")
    e32, e16 = (f32.double() - f64).abs(), (bf16.double() - f64).abs()
    rows = e32.amax(1)
    print(
        f"| {name} | {f64.std():.2f} | {f64.abs().max():.1f} | {e32.max():.1e} | {rows.min():.1e}–{rows.max():.1e} | {e16.max():.2f} | {margin:.3f} |",
        flush=True,
    )


def make(name, folder):
    """Weights and golden values of a folder with the files of a fixture."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] in WRITTEN:
        make_written(name, folder, config)
    elif foreign(config):
        make_foreign(name, folder, config)
    else:
        describe_model(name, folder, seeded_weights(name, folder))


def make_encoder_decoder(name, folder, vocab):
    """Golden values of a folder with the weights of a model with an encoder and a decoder."""
    models = {dtype: load(folder, dtype)[0] for dtype in (torch.float64, torch.float32, torch.bfloat16)}
    start = encoder_decoders.starts(models[torch.float32])
    for attempt in range(100):
        rng = np.random.default_rng([seed_of(name), attempt])
        source = rng.integers(3, vocab, PROMPT).tolist()
        tokens = start + rng.integers(3, vocab, PROMPT - len(start)).tolist()
        torch.set_default_dtype(torch.float64)
        with NoFloat32([]), Float64Only():
            f64 = encoder_decoders.logits(models[torch.float64], source, tokens)
            greedy, margin = encoder_decoders.written(models[torch.float64], source, GREEDY)
        torch.set_default_dtype(torch.float32)
        # Text that says more than which token came last.
        if greedy and margin >= MARGIN and len(set(greedy)) >= 4:
            break
    else:
        raise RuntimeError(f"{name}: no source with a margin of {MARGIN}")
    assert f64.dtype == torch.float64
    assert encoder_decoders.generated(models[torch.float32], source, GREEDY) == greedy
    others = [encoder_decoders.logits(models[dtype], source, tokens) for dtype in (torch.float32, torch.bfloat16)]
    write_golden(name, folder, tokens, greedy, margin, {"source": torch.tensor(source, dtype=torch.int32)}, [f64, *others])


def make_speech_model(name, folder, vocab):
    """Golden values of a folder with the weights of a model that hears."""
    models = {dtype: load(folder, dtype)[0] for dtype in (torch.float64, torch.float32, torch.bfloat16)}
    for attempt in range(100):
        rng = np.random.default_rng([seed_of(name), attempt])
        features = speech_models.random_features(models[torch.float32], rng)
        start = speech_models.starts(models[torch.float32], features)
        tokens = start + rng.integers(3, vocab, PROMPT - len(start)).tolist()
        torch.set_default_dtype(torch.float64)
        with NoFloat32([features]), Float64Only():
            f64 = speech_models.logits(models[torch.float64], features, tokens)
            greedy, margin = speech_models.written(models[torch.float64], features, start, GREEDY)
        torch.set_default_dtype(torch.float32)
        if greedy and margin >= MARGIN and len(set(greedy)) >= 4:
            break
    else:
        raise RuntimeError(f"{name}: no clip with a margin of {MARGIN}")
    assert f64.dtype == torch.float64
    assert speech_models.generated(models[torch.float32], features, GREEDY) == greedy
    others = [speech_models.logits(models[dtype], features, tokens) for dtype in (torch.float32, torch.bfloat16)]
    of_sound = speech_models.heard(models[torch.float32], folder, GREEDY, MARGIN) | {"starts": start}
    more = {"features": features, **{key: torch.tensor(ids, dtype=torch.int32) for key, ids in of_sound.items()}}
    write_golden(name, folder, tokens, greedy, margin, more, [f64, *others])


def describe_model(name, folder, vocab):
    """Golden values of a folder that has its weights."""
    if speech_models.is_one(transformers.AutoConfig.from_pretrained(folder)):
        return make_speech_model(name, folder, vocab)
    if encoder_decoders.reader(folder):
        return make_encoder_decoder(name, folder, vocab)
    reader = auto_class(folder).__name__
    if reader in ("AutoModel", "AutoModelForSequenceClassification") or reader.endswith("EncoderModel"):
        return make_embedder(name, folder, vocab)
    seed = seed_of(name)
    prompts = []
    for attempt in range(100):
        rng = np.random.default_rng([seed, attempt])
        tokens = rng.integers(3, vocab, PROMPT).tolist()
        f64, greedy, margin, inv_freqs = reference(folder, tokens)
        if margin >= MARGIN:
            f32 = logits_of(load(folder, torch.float32)[0], tokens)
            prompts.append((unevenness(f32, f64), attempt, tokens, greedy, margin, inv_freqs, f64, f32))
            if name not in UNEVEN or attempt >= PROMPTS:
                break
    if not prompts:
        raise RuntimeError(f"{name}: no prompt with a margin of {MARGIN}")
    _, _, tokens, greedy, margin, inv_freqs, f64, f32 = min(prompts, key=lambda p: p[:2])
    bf16 = logits_of(load(folder, torch.bfloat16)[0], tokens)
    write_golden(name, folder, tokens, greedy, margin, inv_freqs, [f64, f32, bf16])


# How far apart two runs on different machines may be.
CLOSE = {"logits": 4e-6, "hidden": 4e-6, "error_f32": 1e-4, "error_bf16": 1.0, "pooled_f64": 1e-11, "pooled_f32": 1e-4}


def made_in(scratch, name):
    """A fixture that is made in another folder."""
    folder = Path(scratch) / name
    shutil.copytree(HERE / name, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    make(name, folder)
    return folder


def remake(name):
    """Makes a fixture; its folder gets all but the weights."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = made_in(scratch, name)
        for file in [folder / "golden.safetensors", *folder.rglob("*.recipe")]:
            (HERE / name / file.relative_to(folder)).write_bytes(file.read_bytes())


def check(name):
    """Makes a fixture again elsewhere and compares."""
    with tempfile.TemporaryDirectory() as scratch:
        ours, theirs = (load_file(folder / "golden.safetensors") for folder in (made_in(scratch, name), HERE / name))
        assert ours.keys() == theirs.keys(), f"{name}: {ours.keys() ^ theirs.keys()}"
        for key, t in ours.items():
            same = t.dtype == theirs[key].dtype and (t.double() - theirs[key].double()).abs().max() <= CLOSE.get(key, 0.0)
            assert same, f"{name}: {key} differs"


SAVED = HERE / "saved.json"


def saved(folder):
    """All fields of a configuration, as Transformers writes them; `None` if it has no class for it."""
    config = json.loads((folder / "config.json").read_text())
    if foreign(config) or config["model_type"] in WRITTEN:
        return None
    fields = json.loads(transformers.AutoConfig.from_pretrained(folder).to_json_string(use_diff=False))
    fields = {k: v for k, v in fields.items() if k not in ("_name_or_path", "transformers_version")}
    # That of a text model whose fields are the whole's is where the file was.
    for part in fields.values():
        if isinstance(part, dict) and part.get("_name_or_path"):
            part["_name_or_path"] = ""
    return fields | {"architectures": config["architectures"]}


# Fields that Transformers adds to most configurations.
ADDED = {
    "chunk_size_feed_forward": 0, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "is_encoder_decoder": False,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1}, "output_attentions": False, "output_hidden_states": False, "problem_type": None, "return_dict": True,
}


def changes(before, after):
    """The fields that differ; "absent" for those that are gone."""
    gone = {name: "absent" for name in before if name not in after}
    return {name: v for name, v in after.items() if name not in before or json.dumps(before[name]) != json.dumps(v)} | gone


def make_saved():
    """The configurations of all fixtures as Transformers saves them: how they differ from the fixture's `config.json` with the fields in "" added."""
    all_saved = {"": ADDED}
    for name in fixtures():
        if fields := saved(HERE / name):
            all_saved[name] = changes(ADDED | json.loads((HERE / name / "config.json").read_text()), fields)
    lines = [f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in all_saved.items()]
    SAVED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def make_sharded():
    """The same checkpoint in two shards with an index; the golden values are the same."""
    source, name = SHARDED
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    seed, tensors = weights.read((HERE / source / "model.recipe").read_text())
    shards, weight_map, total = [[], []], {}, 0
    for tensor in sorted(tensors, key=lambda t: t[1]):
        shards["layers.1." in tensor[1] or tensor[1] == "model.norm.weight"].append(tensor)
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}"
        (folder / f"{file}.recipe").write_text(weights.written(seed, shard))
        weight_map |= {tensor: f"{file}.safetensors" for _, tensor, _, _ in shard}
        total += sum(int(np.prod(shape)) * weights.DTYPES[dtype][1] for dtype, _, shape, _ in shard)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    for file in ("config.json", "golden.safetensors"):
        (folder / file).write_bytes((HERE / source / file).read_bytes())


def main():
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if sys.argv[1:] == ["--saved"]:
        return make_saved()
    checking = sys.argv[1:2] == ["--check"]
    names = sys.argv[1 + checking :] or fixtures()
    print("| fixture | logit std | max | f32 error | per row | bf16 error | margin |\n|---|---|---|---|---|---|---|")
    for name in names:
        if checking:
            check(name)
        else:
            remake(name)
    if SHARDED[0] in names and not checking:
        make_sharded()
    if not checking:
        make_saved()


if __name__ == "__main__":
    main()
