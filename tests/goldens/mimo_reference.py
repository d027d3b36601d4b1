"""MiMo (arXiv 2505.07608), as Transformers' Qwen2 with draft heads, by the rules of the authors' `modeling_mimo.py`
(XiaomiMiMo/MiMo-7B-Base): a head normalizes the embedding of a token and the hidden state of the one before, makes a
row of both, the hidden state first, and has one layer as the model's and a norm. Transformers has no class for it; the
authors' code is not used."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention, Qwen2MLP, Qwen2RMSNorm


class MimoConfig(Qwen2Config):
    model_type = "mimo"


class Head(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        for name in ("input_layernorm", "post_attention_layernorm", "token_layernorm", "hidden_layernorm", "final_layernorm"):
            self.add_module(name, Qwen2RMSNorm(config.hidden_size, eps=config.rms_norm_eps))
        self.input_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.self_attn = Qwen2Attention(config, layer_idx=0)
        self.mlp = Qwen2MLP(config)

    def forward(self, embedded, hidden, angles):
        x = self.input_proj(torch.cat([self.hidden_layernorm(hidden), self.token_layernorm(embedded)], -1))
        later = torch.full((x.shape[1], x.shape[1]), float("-inf"), dtype=x.dtype).triu(1)
        x = x + self.self_attn(self.input_layernorm(x), position_embeddings=angles, attention_mask=later[None, None])[0]
        return self.final_layernorm(x + self.mlp(self.post_attention_layernorm(x)))


class MimoForCausalLM(Qwen2ForCausalLM):
    config_class = MimoConfig

    def __init__(self, config):
        super().__init__(config)
        self.model.mtp_layers = torch.nn.ModuleList(Head(config) for _ in range(config.num_nextn_predict_layers))
        self.post_init()


AutoConfig.register("mimo", MimoConfig)
AutoModelForCausalLM.register(MimoConfig, MimoForCausalLM)


def computed(model, tokens):
    """Logits and last hidden states of the model, then of each head; and the tokens that the heads guess after the last."""
    ids = torch.tensor([tokens])
    out = model(ids, use_cache=False, output_hidden_states=True)
    hidden = out.hidden_states[-1]
    steps, drafted = [(out.logits[0], hidden[0])], []
    for k, head in enumerate(model.model.mtp_layers):
        ids, hidden = ids[:, 1:], hidden[:, :-1]
        embedded = model.model.embed_tokens(ids)
        angles = model.model.rotary_emb(embedded, torch.arange(1 + k, 1 + k + ids.shape[1])[None])
        hidden = head(embedded, hidden, angles)
        logits = model.lm_head(hidden)[0]
        drafted.append(logits[-1].argmax())
        steps.append((logits, hidden[0]))
    return steps, torch.stack(drafted)
