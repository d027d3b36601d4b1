"""Llama in PyTorch, in bf16 or with its 4-bit product: the speed to compare with."""

import math

import torch
import torch.nn.functional as F

def frequencies(config, device):
    d = config["head_dim"]
    inv = config["rope_theta"] ** (-torch.arange(0, d, 2, dtype=torch.float64, device=device) / d)
    scaling = config.get("rope_scaling")
    if not scaling:
        return inv
    low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    length = 2 * math.pi / inv
    smooth = (scaling["original_max_position_embeddings"] / length - scaling["low_freq_factor"]) / (
        scaling["high_freq_factor"] - scaling["low_freq_factor"]
    )
    between = (1 - smooth) * inv / scaling["factor"] + smooth * inv
    return torch.where(length > low, inv / scaling["factor"], torch.where(length < high, inv, between))


class Llama:
    """A Llama in one dtype. `linear(x, weight)` may be replaced, to multiply weights in another form."""

    def __init__(self, config, weights, dtype, device, linear=F.linear):
        self.config, self.dtype, self.linear = config, dtype, linear
        self.w = {k: v.to(device=device, dtype=dtype) if torch.is_tensor(v) else v for k, v in weights.items()}
        self.inv_freq = frequencies(config, device)
        self.head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])

    def norm(self, x, name):
        wide = x.to(torch.promote_types(self.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return wide.to(self.dtype) * self.w[name]

    def rope(self, x, positions):
        angle = positions.double()[:, None] * self.inv_freq
        cos, sin = (f(torch.cat([angle, angle], -1)).to(self.dtype)[:, None, :] for f in (torch.cos, torch.sin))
        half = x.shape[-1] // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def logits(self, tokens):
        """All rows, of a sequence from its start."""
        t = len(tokens)
        positions = torch.arange(t, device=self.inv_freq.device)
        c = self.config
        x = self.w["model.embed_tokens.weight"][torch.as_tensor(tokens, device=self.inv_freq.device)]
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            y = self.norm(x, p + "input_layernorm.weight")
            q, k, v = (
                self.linear(y, self.w[f"{p}self_attn.{n}_proj.weight"]).view(t, -1, c["head_dim"]) for n in "qkv"
            )
            q, k = self.rope(q, positions), self.rope(k, positions)
            y = F.scaled_dot_product_attention(
                q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None], is_causal=True, enable_gqa=True
            )
            x = x + self.linear(y[0].transpose(0, 1).reshape(t, -1), self.w[p + "self_attn.o_proj.weight"])
            x = x + self.mlp(self.norm(x, p + "post_attention_layernorm.weight"), p)
        return self.linear(self.norm(x, "model.norm.weight"), self.head)

    def mlp(self, y, p):
        gate, up = self.linear(y, self.w[p + "mlp.gate_proj.weight"]), self.linear(y, self.w[p + "mlp.up_proj.weight"])
        return self.linear(F.silu(gate) * up, self.w[p + "mlp.down_proj.weight"])


class Decoder(Llama):
    """One token of each of `batch` sequences that have `context` tokens in a static cache. Queries, keys and values come from one product, gates and others as well,
    where weights may be joined."""

    def __init__(self, config, weights, dtype, device, batch, context, linear=F.linear):
        super().__init__(config, weights, dtype, device, linear)
        shape = (batch, config["num_key_value_heads"], context + 1, config["head_dim"])
        self.context, self.batch = context, batch
        position = torch.full((1,), context, device=device)
        angle = position.double()[:, None] * self.inv_freq
        self.turn = [f(torch.cat([angle, angle], -1)).to(dtype) for f in (torch.cos, torch.sin)]
        self.tokens = torch.ones(batch, device=device, dtype=torch.long)
        self.layers = []
        for i in range(config["num_hidden_layers"]):
            p = f"model.layers.{i}."
            names = (("q", "k", "v"), ("gate", "up"))
            products = [self.joined([f"{p}{'self_attn' if 'q' in some else 'mlp'}.{n}_proj.weight" for n in some]) for some in names]
            cache = [torch.randn(shape, device=device, dtype=dtype) for _ in "kv"]
            others = [self.w.pop(f"{p}{name}.weight") for name in ("self_attn.o_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm")]
            self.layers.append((*products, *others, *cache))

    def joined(self, names):
        """Weights as one matrix, if they can be joined, else a list."""
        some = [self.w.pop(name) for name in names]
        return torch.cat(some) if torch.is_tensor(some[0]) else some

    def product(self, x, weights):
        if isinstance(weights, list):
            return torch.cat([self.linear(x, w) for w in weights], -1)
        return self.linear(x, weights)

    def gained(self, x, gain):
        wide = x.to(torch.promote_types(self.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return wide.to(self.dtype) * gain

    def turned(self, x):
        (cos, sin), half = self.turn, x.shape[-1] // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def layer(self, x, qkv, gate_up, o, down, first, second, k, v):
        c = self.config
        heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
        y = self.product(self.gained(x, first), qkv).view(self.batch, heads + 2 * kv, c["head_dim"])
        q, new_k, new_v = y.split([heads, kv, kv], 1)
        k[:, :, self.context], v[:, :, self.context] = self.turned(new_k), new_v
        y = F.scaled_dot_product_attention(self.turned(q)[:, :, None], k, v, enable_gqa=True)
        x = x + self.linear(y.reshape(self.batch, -1), o)
        gate, up = self.product(self.gained(x, second), gate_up).chunk(2, -1)
        return x + self.linear(F.silu(gate) * up, down)

    def last(self, x):
        return self.linear(self.gained(x, self.w["model.norm.weight"]), self.head).argmax(-1)

    def compiled(self):
        """Compiles a layer, which serves them all, and the head."""
        options = {"mode": "max-autotune-no-cudagraphs", "dynamic": False}
        self.layer, self.last = torch.compile(self.layer, **options), torch.compile(self.last, **options)

    def step(self):
        x = self.w["model.embed_tokens.weight"][self.tokens]
        for layer in self.layers:
            x = self.layer(x, *layer)
        self.tokens.copy_(self.last(x))


class Int4:
    """A matrix in the form of PyTorch's own 4-bit product."""

    def __init__(self, n, k, group, device):
        codes = torch.randint(0, 256, (n, k // 2), device=device, dtype=torch.uint8)
        self.packed = torch.ops.aten._convert_weight_to_int4pack(codes, 8)
        self.scales = torch.full((k // group, n, 2), k**-0.5 / 4.6, device=device, dtype=torch.bfloat16)
        self.group = group

    def __call__(self, x):
        return torch.ops.aten._weight_int4pack_mm(x, self.packed, self.group, self.scales)


def linear_of_any(x, w):
    return w(x) if isinstance(w, Int4) else F.linear(x, w)


def random_weights(config, device, int4=False):
    """Random weights of a shape, in bf16 or (the matrices of the layers and the head) in 4 bits."""
    hidden, ffn, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d

    def make(n, k):
        if int4:
            return Int4(n, k, 128, device)
        return (torch.randn(n, k, device=device, dtype=torch.bfloat16) * k**-0.5).to(torch.bfloat16)

    ones = torch.ones(hidden, device=device, dtype=torch.bfloat16)
    w = {"model.embed_tokens.weight": torch.randn(config["vocab_size"], hidden, device=device, dtype=torch.bfloat16) * hidden**-0.5}
    w["model.norm.weight"] = ones
    if int4 or not config["tie_word_embeddings"]:
        w["lm_head.weight"] = make(config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        w[p + "input_layernorm.weight"] = w[p + "post_attention_layernorm.weight"] = ones
        for name, n, k in [("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, q)]:
            w[f"{p}self_attn.{name}_proj.weight"] = make(n, k)
        for name, n, k in [("gate", ffn, hidden), ("up", ffn, hidden), ("down", hidden, ffn)]:
            w[f"{p}mlp.{name}_proj.weight"] = make(n, k)
    return w


def decode_rate(config, batch, context, int4, options):
    """Tokens per second of one captured CUDA graph per step, with a static cache: in bf16 the layer is compiled by `torch.compile` as well as it can."""
    from speed import torch_seconds

    with torch.no_grad():
        model = Decoder(config, random_weights(config, "cuda", int4), torch.bfloat16, "cuda", batch, context, linear_of_any)

        def rate():
            return batch / torch_seconds(torch, [model.step], options["timed"], options["warm"], launches=1)

        if int4:
            # Its product is no operation that is compiled.
            return {"rate": rate(), "by": "eager"}
        eager = (model.layer, model.last)
        try:
            model.compiled()
            return {"rate": rate(), "by": "compiled"}
        except Exception as error:  # noqa: BLE001: no compiler for C here, say
            model.layer, model.last = eager
            return {"rate": rate(), "by": "eager", "said": f"not compiled: {type(error).__name__}: {str(error)[:200]}"}


def prefill_rate(config, length, options):
    """Tokens per second of a prompt."""
    with torch.no_grad():
        model = Llama(config, random_weights(config, "cuda"), torch.bfloat16, "cuda")
        tokens = torch.ones(length, dtype=torch.long, device="cuda")
        times = []
        for _ in range(options["timed"] + 2):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            model.logits(tokens)
            last.record()
            torch.cuda.synchronize()
            times.append(first.elapsed_time(last) / 1e3)
        return length / sorted(times[2:])[options["timed"] // 2]
