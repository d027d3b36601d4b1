#!/usr/bin/env python3
"""Trains the example checkpoint: a 2.3 M-parameter Llama on the Python standard library's own sources.

    torchrun --nproc-per-node 2 train.py --minutes 100 --work RUN_FOLDER --out model

The corpus is the running interpreter's `Lib` folder without tests, generated tables and machine-dependent files, in sorted order; every
`HELD_OUT`-th file is kept for validation. Each file is one document; each function with a docstring is a second, chat-shaped document
("# user: <first docstring line>", "# assistant:", the function), so that the chat template has something to answer with.

Several processes of one thread each share a step by averaging gradients: one synchronisation per step instead of one per operation,
which matters on a machine that is busy with other things. The learning rate follows the elapsed share of `--minutes` (or of `--steps`,
which does not depend on the machine's speed): short warm-up, constant, then linear to zero. RUN_FOLDER holds the tokenizer, the log,
the newest resumable state and an export in Hugging Face layout, all rewritten every `--save-minutes`.
"""

import argparse
import ast
import hashlib
import json
import math
import os
import platform
import sysconfig
import textwrap
import time
from pathlib import Path

import numpy as np
import tokenizers
import torch
import torch.distributed as dist
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

VOCAB = 2048
CONTEXT = 256
BOS, EOS = "<|begin|>", "<|end|>"
HELD_OUT = 40
SKIP_FOLDERS = {"__pycache__", "test", "tests", "idle_test", "site-packages", "lib-dynload", "encodings", "pydoc_data", "_bundled", "config"}
# Each exchange is one document of the form of `chat_documents`, closed by the end token.
CHAT_TEMPLATE = (
    "{% for m in messages %}"
    "{% if m['content'] is string %}{% set text = m['content'] %}"
    "{% elif m['content'] %}{% set text = m['content'] | map(attribute='text') | join('') %}"
    "{% else %}{{ raise_exception('a message needs a text') }}{% endif %}"
    "{% if m['role'] == 'assistant' %}{{ '# assistant:\\n' + text + '\\n' + eos_token }}"
    "{% else %}{% if loop.first or messages[loop.index0 - 1]['role'] == 'assistant' %}{{ bos_token }}{% endif %}"
    "{{ '# ' + m['role'] + ': ' + text + '\\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '# assistant:\\n' }}{% endif %}"
)


def corpus_files():
    """(name, text) of the standard library's modules, sorted by name."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        folders = name.split("/")[:-1]
        if any(f in SKIP_FOLDERS or f.startswith("config-") for f in folders) or path.name.startswith("_sysconfigdata"):
            continue
        found.append((name, path.read_text(encoding="utf-8", errors="replace")))
    return sorted(found)


def chat_documents(text):
    """Chat-shaped documents: each documented function of `text`, asked for by the first line of its docstring."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    documents = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
            ask = ast.get_docstring(node).strip().splitlines()[0].strip()
            lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
            source = textwrap.dedent("\n".join(lines))
            if 8 <= len(ask) <= 120 and len(source) <= 1500:
                documents.append(f"# user: {ask}\n# assistant:\n{source}\n")
    return documents


def train_tokenizer(texts):
    """Byte-level BPE of `VOCAB` pieces; digits stay single, runs of white space may merge."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[BOS, EOS], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tok.train_from_iterator(texts, trainer)
    tok.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, tok.token_to_id(BOS))]
    )
    return tok


def encode(tok, documents):
    bos, eos = tok.token_to_id(BOS), tok.token_to_id(EOS)
    parts = []
    for item in tok.encode_batch(documents, add_special_tokens=False):
        parts.append(np.array([bos, *item.ids, eos], dtype=np.uint16))
    return np.concatenate(parts)


def prepare(work, rank):
    """Tokenizer and token streams in `work`, made by rank 0 if missing. Returns (tokenizer, train, validation, facts)."""
    facts_path = work / "corpus.json"
    if rank == 0 and not facts_path.exists():
        files = corpus_files()
        train_files = [f for i, f in enumerate(files) if i % HELD_OUT != HELD_OUT - 1]
        val_files = [f for i, f in enumerate(files) if i % HELD_OUT == HELD_OUT - 1]
        tok = train_tokenizer([text for _, text in train_files])
        tok.save(str(work / "tokenizer.json"))
        order = np.random.default_rng(1)
        documents = [d for _, text in train_files for d in [text, *chat_documents(text)]]
        train = encode(tok, [documents[i] for i in order.permutation(len(documents))])
        val = encode(tok, [text for _, text in val_files])
        np.save(work / "train.npy", train)
        np.save(work / "val.npy", val)
        digest = hashlib.sha256()
        for name, text in files:
            digest.update(name.encode() + b"\0" + text.encode() + b"\0")
        facts = {
            "python": platform.python_version(),
            "files": len(files),
            "held_out": [name for name, _ in val_files],
            "held_out_bytes": sum(len(text.encode()) for _, text in val_files),
            "corpus_bytes": sum(len(text.encode()) for _, text in files),
            "corpus_sha256": digest.hexdigest(),
            "train_tokens": len(train),
            "val_tokens": len(val),
            "chat_documents": len(documents) - len(train_files),
        }
        facts_path.write_text(json.dumps(facts, indent=1) + "\n")
    if dist.is_initialized():
        dist.barrier()
    tok = Tokenizer.from_file(str(work / "tokenizer.json"))
    return tok, np.load(work / "train.npy"), np.load(work / "val.npy"), json.loads(facts_path.read_text())


def new_model():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=1024,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.02,
    )
    torch.manual_seed(1)
    return LlamaForCausalLM(config)


def batch_loss(model, ids):
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        logits = model.lm_head(hidden)
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


@torch.no_grad()
def validation_loss(model, val, windows, autocast=True):
    """Mean NLL over non-overlapping windows of `CONTEXT` predictions (each window starts with no past)."""
    model.eval()
    total = count = 0.0
    starts = range(0, len(val) - CONTEXT - 1, CONTEXT)
    starts = list(starts)[:: max(1, len(starts) // windows)] if windows else list(starts)
    for i in range(0, len(starts), 8):
        ids = torch.from_numpy(np.stack([val[s : s + CONTEXT + 1] for s in starts[i : i + 8]]).astype(np.int64))
        if autocast:
            loss = batch_loss(model, ids)
        else:
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        total += loss.item() * ids.shape[0]
        count += ids.shape[0]
    model.train()
    return total / count


def export(model, tok, folder):
    """Writes the Hugging Face layout: bf16 weights, config, tokenizer with chat template, generation defaults."""
    folder.mkdir(parents=True, exist_ok=True)
    copy = LlamaForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    copy = copy.to(torch.bfloat16)
    copy.config.dtype = torch.bfloat16
    copy.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=1, do_sample=True, temperature=0.7, top_k=40, top_p=0.95)
    copy.save_pretrained(folder)
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return copy


def schedule(fraction, warmup=0.02, decay_from=0.6):
    """Learning-rate factor at `fraction` of the run."""
    if fraction < warmup:
        return fraction / warmup
    if fraction < decay_from:
        return 1.0
    return max(0.0, (1.0 - fraction) / (1.0 - decay_from))


def optimizer_of(model, lr):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)


def averaged(model, extra):
    """Averages gradients and the scalars `extra` over the processes; returns the averaged scalars."""
    if not dist.is_initialized():
        return extra
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in grads] + [torch.tensor(extra)])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    at = 0
    for g in grads:
        g.copy_(flat[at : at + g.numel()].view_as(g))
        at += g.numel()
    return flat[at:].tolist()


class Run:
    """Everything that one process needs to train, save and resume."""

    def __init__(self, args, rank, world):
        self.args, self.rank, self.world = args, rank, world
        self.tok, self.train_ids, self.val_ids, self.facts = prepare(args.work, rank)
        self.model = new_model()
        self.optimizer = optimizer_of(self.model, args.lr)
        self.step, self.past_seconds, self.tokens = 0, 0.0, 0
        self.state = args.work / "state.pt"
        if args.resume and self.state.exists():
            saved = torch.load(self.state)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step, self.past_seconds, self.tokens = saved["step"], saved["seconds"], saved["tokens"]
        self.rng = np.random.default_rng([7, rank, self.step])

    def sample(self):
        starts = self.rng.integers(0, len(self.train_ids) - CONTEXT - 1, self.args.batch // self.world)
        return torch.from_numpy(np.stack([self.train_ids[s : s + CONTEXT + 1] for s in starts]).astype(np.int64))

    def log(self, **entry):
        if self.rank == 0:
            with open(self.args.work / "log.jsonl", "a") as f:
                f.write(json.dumps(entry) + "\n")
            print(entry, flush=True)

    def save(self, seconds):
        loss = validation_loss(self.model, self.val_ids, 64)
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": seconds,
            "tokens": self.tokens,
        }
        torch.save(state, self.state.with_suffix(".new"))
        os.replace(self.state.with_suffix(".new"), self.state)
        export(self.model, self.tok, self.args.work / "latest")
        self.log(step=self.step, seconds=round(seconds), tokens=self.tokens, val_loss=round(loss, 4))

    def fraction(self, seconds):
        return self.step / self.args.steps if self.args.steps else seconds / (60 * self.args.minutes)

    def train(self):
        begin = time.time() - self.past_seconds
        seconds, next_save, recent = self.past_seconds, self.past_seconds + 60 * self.args.save_minutes, []
        while self.fraction(seconds) < 1.0:
            for group in self.optimizer.param_groups:
                group["lr"] = self.args.lr * schedule(self.fraction(seconds))
            loss = batch_loss(self.model, self.sample())
            self.optimizer.zero_grad(set_to_none=False)
            loss.backward()
            mean_loss, seconds = averaged(self.model, [loss.item(), time.time() - begin])
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.step += 1
            self.tokens += self.args.batch * CONTEXT
            recent.append(mean_loss)
            if self.step % 50 == 0:
                self.log(step=self.step, seconds=round(seconds), tokens=self.tokens, train_loss=round(sum(recent) / len(recent), 4))
                recent = []
            if seconds >= next_save:
                next_save = seconds + 60 * self.args.save_minutes
                if self.rank == 0:
                    self.save(seconds)
        if self.rank == 0:
            self.save(seconds)
            self.finish(seconds)

    def finish(self, seconds):
        """Final export with the facts that the model card quotes, measured on the exported (bf16-rounded) weights in f32."""
        rounded = export(self.model, self.tok, self.args.out).float()
        loss = validation_loss(rounded, self.val_ids, 0, autocast=False)
        per_byte = loss * self.facts["val_tokens"] / self.facts["held_out_bytes"] / math.log(2)
        facts = self.facts | {
            "steps": self.step,
            "batch": self.args.batch,
            "tokens": self.tokens,
            "minutes": round(seconds / 60, 1),
            "val_loss": round(loss, 4),
            "val_perplexity": round(math.exp(loss), 3),
            "val_bits_per_byte": round(per_byte, 4),
            "versions": {
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "tokenizers": tokenizers.__version__,
                "numpy": np.__version__,
            },
        }
        (self.args.work / "final.json").write_text(json.dumps(facts, indent=1) + "\n")
        self.log(**{k: v for k, v in facts.items() if k != "held_out"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for state, log and intermediate exports")
    parser.add_argument("--out", type=Path, required=True, help="folder of the final checkpoint")
    parser.add_argument("--minutes", type=float, default=100.0, help="length of the run; the learning rate follows it")
    parser.add_argument("--steps", type=int, default=0, help="length in steps instead of minutes")
    parser.add_argument("--batch", type=int, default=8, help="sequences per step, over all processes")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--save-minutes", type=float, default=5.0)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    if args.batch % world:
        parser.error(f"--batch {args.batch} is not a multiple of the {world} processes")
    args.work.mkdir(parents=True, exist_ok=True)
    Run(args, rank, world).train()
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
