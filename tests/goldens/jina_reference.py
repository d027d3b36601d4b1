"""Jina's BERT of version 2 (arXiv 2310.19923), as Transformers' BERT with the paper's changes:
attention is biased by distances in both directions (ALiBi, arXiv 2108.12409), there are no
learned positions, and the MLP has a gate. Transformers has no class for it; the authors' code
is not used."""

import torch
from transformers import AutoConfig, AutoModel, BertConfig, BertModel
from transformers.models.bert.modeling_bert import BertSelfOutput

ACTIVATIONS = {"geglu": torch.nn.functional.gelu, "reglu": torch.nn.functional.relu}


def slopes_of(heads):
    """The slopes of ALiBi, as its authors publish them."""
    if heads & (heads - 1) == 0:
        return [2 ** (-8 * (i + 1) / heads) for i in range(heads)]
    less = 1 << (heads.bit_length() - 1)
    return slopes_of(less) + slopes_of(2 * less)[0::2][: heads - less]


class NoPositions(torch.nn.Module):
    def forward(self, _):
        return 0.0


class Gated(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gated_layers = torch.nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.act = ACTIVATIONS[config.feed_forward_type]

    def forward(self, x):
        gate, up = self.gated_layers(x).chunk(2, -1)
        return self.act(gate) * up


class Normed(torch.nn.Linear):
    """Queries or keys, normalized over all heads."""

    def __init__(self, config):
        super().__init__(config.hidden_size, config.hidden_size)
        self.norm = torch.nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x):
        return self.norm(super().forward(x))


class Again(BertSelfOutput):
    """The output of attention, its input added and normalized twice."""

    def __init__(self, config):
        super().__init__(config)
        self.again = torch.nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x, given):
        return self.again(super().forward(x, given) + given)


class JinaConfig(BertConfig):
    model_type = "jina_twin"
    feed_forward_type: str = "geglu"
    qk_post_norm: bool = False


class JinaModel(BertModel):
    config_class = JinaConfig

    def __init__(self, config):
        super().__init__(config, add_pooling_layer=False)
        self.embeddings.position_embeddings = NoPositions()
        for layer in self.encoder.layer:
            layer.intermediate = Gated(config)
            if config.qk_post_norm:
                layer.attention.self.query, layer.attention.self.key = Normed(config), Normed(config)
                layer.attention.output = Again(config)

    def forward(self, input_ids, **more):
        places = torch.arange(input_ids.shape[1])
        far = (places[None, :] - places[:, None]).abs()
        dtype = self.embeddings.word_embeddings.weight.dtype
        slopes = torch.tensor(slopes_of(self.config.num_attention_heads), dtype=dtype)
        return super().forward(input_ids=input_ids, attention_mask=(-slopes[:, None, None] * far.to(dtype))[None], **more)


AutoConfig.register("jina_twin", JinaConfig)
AutoModel.register(JinaConfig, JinaModel)


def twin(config):
    other = ("architectures", "model_type", "position_embedding_type", "attn_implementation")
    same = {k: v for k, v in config.items() if k not in other}
    return same | {"architectures": ["JinaModel"], "model_type": "jina_twin"}


# Names of the model for code, as llama.cpp's tables have them.
CODE = {".self.query.norm.": ".self.layer_norm_q.", ".self.key.norm.": ".self.layer_norm_k.", ".attention.output.again.": ".layer_norm_1.",
        ".mlp.gated_layers.": ".mlp.up_gated_layer.", ".mlp.wo.": ".mlp.down_layer.", ".mlp.layernorm.": ".layer_norm_2."}


def renamed(tensors, _):
    """Names as the authors' code has them."""
    out = {}
    code = any(".again." in name for name in tensors)
    for name, t in tensors.items():
        for ours, theirs in ((".intermediate.gated_layers.", ".mlp.gated_layers."), (".output.dense.", ".mlp.wo."), (".output.LayerNorm.", ".mlp.layernorm.")):
            if ".attention." not in name:
                name = name.replace(ours, theirs)
        for ours, theirs in CODE.items() if code else ():
            name = name.replace(ours, theirs)
        out[name] = t
    return out
