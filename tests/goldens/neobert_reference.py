"""NeoBERT (arXiv 2502.19587), as Transformers' EuroBERT with its differences: pairs of neighbours
are rotated as complex numbers, queries, keys and values of a head are stored together, and
classifiers activate by tanh. Transformers has no class for it; the authors' code is not used."""

import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, EuroBertConfig, EuroBertForSequenceClassification, EuroBertModel


class NeoConfig(EuroBertConfig):
    model_type = "neo_twin"


def turned(x, cos, sin):
    """`x` [.., heads·dim], each pair of neighbours being a complex number, times `cos + i·sin`
    [.., dim / 2]."""
    pairs = x.unflatten(-1, (-1, cos.shape[-1], 2))
    re, im = pairs.unbind(-1)
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    return torch.stack([re * cos - im * sin, re * sin + im * cos], -1).flatten(-3)


class NeoModel(EuroBertModel):
    """Vectors reach the class's rotation already rotated, and it turns them by nothing."""

    config_class = NeoConfig

    def __init__(self, config):
        super().__init__(config)

        def kept(_module, _args, angles):
            self.angles = [a[..., : a.shape[-1] // 2] for a in angles]
            return torch.ones_like(angles[0]), torch.zeros_like(angles[1])

        self.rotary_emb.register_forward_hook(kept)
        for layer in self.layers:
            for project in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                project.register_forward_hook(lambda _module, _args, x: turned(x, *self.angles))


class NeoForSequenceClassification(EuroBertForSequenceClassification):
    config_class = NeoConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = NeoModel(config)
        self.activation = torch.nn.Tanh()


AutoConfig.register("neo_twin", NeoConfig)
AutoModel.register(NeoConfig, NeoModel)
AutoModelForSequenceClassification.register(NeoConfig, NeoForSequenceClassification)


def twin(config):
    """The MLP has as many elements as one without a gate would have, rounded up to a multiple of 8."""
    classes = config["architectures"] == ["NeoBERTForSequenceClassification"]
    wide = int(2 * config["intermediate_size"] / 3)
    same = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "pad_token_id", "id2label", "label2id")
    return {k: v for k, v in config.items() if k in same} | {
        "architectures": ["NeoForSequenceClassification" if classes else "NeoModel"],
        "model_type": "neo_twin",
        "dtype": config["torch_dtype"],
        "num_key_value_heads": config["num_attention_heads"],
        "intermediate_size": 8 * ((wide + 7) // 8),
        "hidden_act": "silu",
        "rms_norm_eps": config["norm_eps"],
        "max_position_embeddings": config["max_length"],
        "rope_theta": 10000.0,
        "classifier_pooling": "bos",
    }


def renamed(tensors, config):
    """Names as the authors' code has them."""
    names = {
        "embed_tokens": "encoder", "norm": "layer_norm", "layers": "transformer_encoder", "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm", "self_attn": None, "o_proj": "wo", "mlp": "ffn", "down_proj": "w3", "q_proj": "qkv", "gate_proj": "w12",
    }
    out = {}
    for name, t in tensors.items():
        if "q_proj" in name:
            heads = [tensors[name.replace("q_proj", p)].unflatten(0, (config["num_attention_heads"], -1)) for p in ("q_proj", "k_proj", "v_proj")]
            t = torch.cat(heads, 1).flatten(0, 1).contiguous()
        elif "gate_proj" in name:
            t = torch.cat([t, tensors[name.replace("gate_proj", "up_proj")]])
        elif any(p in name for p in ("k_proj", "v_proj", "up_proj")):
            continue
        # A model without a head has them without the first part.
        whole = name if name.startswith(("model.", "dense.", "classifier.")) else "model." + name
        out[".".join(names.get(p, p) for p in whole.split(".") if names.get(p, p))] = t
    return out
