"""Nemotron-NAS (Puzzle, arXiv 2411.19146), as Transformers' Llama with layers that differ, by the rules of the authors'
`modeling_decilm.py` and `configuration_decilm.py` (nvidia/Llama-3_3-Nemotron-Super-49B-v1): a block that is absent adds
nothing, and has no norm; one that is replaced is a matrix without a bias behind the block's norm; an MLP's width follows
from `ffn_mult`. Transformers has no class for it; the authors' code is not used."""

import copy

import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer, LlamaMLP, LlamaRMSNorm


class NasConfig(LlamaConfig):
    model_type = "nas_twin"

    def __init__(self, block_configs=None, **kwargs):
        self.block_configs = block_configs or []
        super().__init__(**kwargs)


class Matrix(torch.nn.Module):
    def __init__(self, name, width):
        super().__init__()
        self.name = name
        self.add_module(name, torch.nn.Linear(width, width, bias=False))

    def forward(self, x):
        return getattr(self, self.name)(x)


def width(mult, hidden):
    ffn = int(2 * mult * hidden / 3)
    return ffn if ffn % 256 == 0 else ffn + 256 - ffn % 256


class NasLayer(LlamaDecoderLayer):
    def __init__(self, config, layer_idx):
        torch.nn.Module.__init__(self)
        attention, ffn = (config.block_configs[layer_idx][part] for part in ("attention", "ffn"))
        own = copy.deepcopy(config)
        self.whole = not (attention["no_op"] or attention["replace_with_linear"])
        if not attention["no_op"]:
            self.input_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        if self.whole:
            own.num_key_value_heads = config.num_attention_heads // attention["n_heads_in_group"]
            self.self_attn = LlamaAttention(own, layer_idx)
        elif not attention["no_op"]:
            self.self_attn = Matrix("linear_attn", config.hidden_size)
        if not ffn["no_op"]:
            self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
            if ffn["replace_with_linear"]:
                self.mlp = Matrix("linear_mlp", config.hidden_size)
            else:
                own.intermediate_size = width(ffn["ffn_mult"], config.hidden_size)
                self.mlp = LlamaMLP(own)

    def forward(self, x, **kwargs):
        if hasattr(self, "self_attn"):
            h = self.input_layernorm(x)
            x = x + (self.self_attn(hidden_states=h, **kwargs)[0] if self.whole else self.self_attn(h))
        return x + self.mlp(self.post_attention_layernorm(x)) if hasattr(self, "mlp") else x


class NasForCausalLM(LlamaForCausalLM):
    config_class = NasConfig

    def __init__(self, config):
        super().__init__(config)
        self.model.layers = torch.nn.ModuleList(NasLayer(config, i) for i in range(config.num_hidden_layers))
        self.post_init()


AutoConfig.register("nas_twin", NasConfig)
AutoModelForCausalLM.register(NasConfig, NasForCausalLM)


def twin(config):
    # Its own layers have other sizes.
    sizes = {"num_key_value_heads": config["num_attention_heads"], "intermediate_size": 8, "dtype": config["torch_dtype"]}
    kept = {k: v for k, v in config.items() if k not in ("auto_map", "torch_dtype")}
    return kept | sizes | {"architectures": ["NasForCausalLM"], "model_type": "nas_twin"}


def renamed(tensors, _config):
    return tensors
