#!/usr/bin/env python3
"""Quantized weights in float64: Transformers with matrices that went through `numpy_quant`.

    python quantized.py ppl MODEL_FOLDER STORIES.txt [--quant w8|w4|w4a|fp8 --group 32 [--fold] [--act int8|fp8]] [--table]

`ppl` prints perplexities of a checkpoint. All matrices are quantized, an embedding table that is the head too (rows are looked up in the quantized table); norms are not.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

import make
import numpy_quant as quant


class Model:
    """A checkpoint after folding and quantization, and the forward pass of one sequence in float64."""

    def __init__(self, folder, fmt=None, group=32, fold=False, act=None):
        # The stored numbers as f32, which are folded and quantized.
        self.model, self.inv_freqs = make.load(folder, torch.float32)
        if fold:
            self._fold()
        matrices = {m.weight.data_ptr(): m.weight for m in self.model.modules() if isinstance(m, torch.nn.Linear)}
        decoded = {at: quant.weights(w.detach().numpy(), fmt, group) for at, w in matrices.items()} if fmt else {}
        replaced = {p: decoded[p.data_ptr()] for p in self.model.parameters() if p.data_ptr() in decoded}
        for p in self.model.parameters():
            p.data = torch.from_numpy(replaced[p]) if p in replaced else p.data.double()
        if act:
            round_rows = (lambda x: quant.int8_activations(x, group)) if act == "int8" else quant.fp8_activations
            for m in self.model.modules():
                if isinstance(m, torch.nn.Linear):
                    m.register_forward_pre_hook(lambda _, args: (torch.from_numpy(round_rows(args[0][0].numpy()))[None],))

    def _fold(self):
        """Multiplies norm gains into the projections that follow, in f32; the final one only where the head has its own matrix."""
        for layer in self.model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            fold(layer.input_layernorm, [attention.q_proj, attention.k_proj, attention.v_proj])
            fold(layer.post_attention_layernorm, [mlp.gate_proj, mlp.up_proj])
        if not self.model.config.tie_word_embeddings:
            fold(self.model.model.norm, [self.model.lm_head])

    @torch.no_grad()
    def forward(self, ids):
        """Logits f64[len(ids), vocab] of one sequence that starts at position 0."""
        with make.Float64Only():
            return make.logits_of(self.model, [int(i) for i in ids]).numpy()


@torch.no_grad()
def fold(norm, projections):
    for p in projections:
        p.weight.mul_(norm.weight)
    norm.weight.fill_(1.0)


def token_stream(folder, text):
    """Token ids without BOS, by whichever tokenizer the folder has."""
    if (folder / "tokenizer.model").exists():
        import sentencepiece

        return sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model")).encode(text)
    import tokenizers

    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text, add_special_tokens=False).ids


def story_nll(model, sequences):
    """(mean NLL in nats, number of predicted tokens) over sequences that begin with BOS; the BOS itself is not predicted."""
    total = count = 0
    for ids in sequences:
        logits = model.forward(ids[:-1])
        top = logits.max(axis=1, keepdims=True)
        log_sum = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))
        total += (log_sum - logits[np.arange(len(ids) - 1), ids[1:]]).sum()
        count += len(ids) - 1
    return total / count, count


def ppl(args):
    """Stories are split at <|endoftext|>, stripped, preceded by BOS and cut to the context length."""
    config = json.loads((args.model / "config.json").read_text())
    stories = [s.strip() for s in args.text.read_text().split("<|endoftext|>")][: args.stories]
    bos, limit = config["bos_token_id"], config["max_position_embeddings"]
    sequences = [np.array([bos, *token_stream(args.model, s)])[:limit] for s in stories]
    nll, count = story_nll(Model(args.model, args.quant, args.group, args.fold, args.act), sequences)
    print(f"{len(stories)} stories, {count} tokens, {args.quant or 'f32'}: mean NLL {nll:.7f}, perplexity {math.exp(nll):.6f}")
    if not args.table:
        return 0
    base, _ = story_nll(Model(args.model), sequences)
    print("| format | group | bits/weight | folded | activations | perplexity | NLL - f32 |\n|---|---|---|---|---|---|---|")
    print(f"| f32 | | 32 | no | f64 | {math.exp(base):.6f} | 0 |")
    for fmt in quant.WEIGHT_FORMATS:
        for group in (32,) if fmt == "fp8" else (32, 64, 128):
            for fold in (False, True):
                for act in (None, "fp8" if fmt == "fp8" else "int8"):
                    nll, _ = story_nll(Model(args.model, fmt, group, fold, act), sequences)
                    bits = quant.bits_per_weight(fmt, group)
                    cells = f"{bits:g} | {'yes' if fold else 'no'} | {act or 'f64'} | {math.exp(nll):.6f} | {nll - base:+.6f}"
                    print(f"| {fmt} | {group} | {cells} |", flush=True)
    return 0


def main():
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p = parser.add_subparsers(required=True).add_parser("ppl", help="perplexity of a checkpoint, plain or quantized")
    p.add_argument("model", type=Path)
    p.add_argument("text", type=Path)
    p.add_argument("--stories", type=int, default=60)
    p.add_argument("--quant", choices=quant.WEIGHT_FORMATS)
    p.add_argument("--group", type=int, default=32)
    p.add_argument("--fold", action="store_true", help="fold norm gains into the next projections before quantizing")
    p.add_argument("--act", choices=["int8", "fp8"], help="also round the inputs of every matmul to int8 groups, or to e4m3 with a scale per token")
    p.add_argument("--table", action="store_true", help="all formats, groups, with and without folding and int8 activations")
    sys.exit(ppl(parser.parse_args()))


if __name__ == "__main__":
    main()
