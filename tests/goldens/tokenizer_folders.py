#!/usr/bin/env python3
"""Folders of tokenizers of every kind, with tokens that stand outside the tokenizer's file, and the ids that
Transformers' AutoTokenizer (mistral-common for `tekken.json`) gives for random texts.

    tokenizer_folders.py tokenizer_folders.json         the committed file: a folder of some kinds
    tokenizer_folders.py OUT.json CASES_PER_KIND [SEED]  more of all, for LLMCC_TOKENIZER_FOLDERS=OUT.json

Made with transformers 5.23, tokenizers 0.23, sentencepiece 0.2, mistral-common 1.13. `OUT.json` has the files of
each folder, texts, and ids. Folders that AutoTokenizer refuses are left out."""
import base64
import json
import logging
import random
import struct
import sys
import tempfile
from pathlib import Path

import transformers
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from transformers import AutoTokenizer

logging.disable(logging.CRITICAL)
transformers.logging.set_verbosity_error()

WORDS = ["hi", "a", "ab", "world", "Hi", "é", "中", "x", "1", "12", ".", ","]
NEW = ["<|im_start|>", "<|im_end|>", "<extra>", "[X]", "tok", "Tok", "a b", "▁", "##b", "é!", "<pad>", "zz", "<unk>"]


def varint(n):
    out = b""
    while True:
        out += bytes([n & 127 | (128 if n > 127 else 0)])
        n >>= 7
        if not n:
            return out


def field(number, kind, data):
    return varint(number << 3 | kind) + data


def message(number, data):
    return field(number, 2, varint(len(data)) + data)


def sentencepiece(pieces, kind, unk=0, byte_fallback=False, dummy_prefix=True):
    """A model: pieces are (text, score, type)."""
    out = b""
    for text, score, sort in pieces:
        one = message(1, text.encode()) + field(2, 5, struct.pack("<f", score))
        out += message(1, one + (field(3, 0, varint(sort)) if sort != 1 else b""))
    trainer = field(3, 0, varint(kind)) + field(35, 0, varint(int(byte_fallback))) + field(40, 0, varint(unk))
    normal = message(1, b"identity") + field(3, 0, varint(int(dummy_prefix))) + field(4, 0, varint(0)) + field(5, 0, varint(1))
    return out + message(2, trainer) + message(3, normal)


NORMAL = ["▁hi", "hi", "▁a", "▁w", "or", "ld", "orld", "▁world", "ab", "▁ab", "12", "▁H", "▁", "h", "i", "a", "b", "w", "o", "r", "l", "d", "H", "x", "1", "2", ".", ",", "é", "t", "k", "T", "z", "<", ">", "|", "m", "_", "s", "e", "n", "p", "u", "[", "]", "X", "#", "!"]
BYTES = [(f"<0x{i:02X}>", 0.0, 6) for i in range(256)]


def normal(start=1.0):
    return [(t, -start - i, 1) for i, t in enumerate(NORMAL)]


def alphabet():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return sorted([chr(b) for b in keep] + [chr(256 + i) for i in range(256 - len(keep))])


MERGES = [("h", "i"), ("Ġ", "hi"), ("Ġ", "a"), ("a", "b"), ("o", "r"), ("l", "d"), ("1", "2")]


def byte_vocab(*more):
    vocab = {c: i for i, c in enumerate(alphabet())}
    for t in ["".join(m) for m in MERGES] + list(more):
        vocab[t] = len(vocab)
    return vocab


def tokenizer_json(special, normalizer=None, cut=None):
    vocab = byte_vocab()
    added = [dict(id=len(vocab) + i, content=s, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i, s in enumerate(special)]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=cut is None)
    pre = level if cut is None else dict(type="Sequence", pretokenizers=[dict(type="Split", pattern=dict(Regex=cut), behavior="Isolated", invert=False), level])
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, ignore_merges=False, vocab=vocab, merges=[list(m) for m in MERGES])
    return json.dumps(dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=normalizer, pre_tokenizer=pre, post_processor=None, decoder=dict(level, use_regex=True), model=model)), len(vocab) + len(special)


QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class Maker:
    """Random settings beside a vocabulary of `size` tokens."""

    def __init__(self, g, size):
        self.g, self.size = g, size

    def flags(self, **fixed):
        g = self.g
        one = {k: g.random() < 0.3 for k in ("lstrip", "rstrip", "single_word", "normalized")}
        return one | dict(special=g.random() < 0.7) | fixed

    def token(self, text):
        """A text, or a token with flags."""
        return text if self.g.random() < 0.6 else dict(self.flags(), __type="AddedToken", content=text)

    def outside(self, roles, whole=False):
        """tokenizer_config.json, and other files; `whole`: a decoder has the tokens of the vocabulary's file, too."""
        g, config, files = self.g, {}, {}
        names = g.sample(NEW, g.randint(0, 4))
        how = g.choice(["decoder", "added", "map", "none", "none"])
        if how == "decoder":
            ids = [self.size + i + (g.random() < 0.1) * 3 for i in range(len(names))]
            config["added_tokens_decoder"] = {str(i): dict(self.flags(), content=t) for i, t in zip(ids, names)}
            for text, id in roles:
                if id is not None and (whole or g.random() < 0.4):
                    config["added_tokens_decoder"][str(id)] = dict(self.flags(), content=text)
        if how == "added":
            files["added_tokens.json"] = {t: self.size + i for i, t in enumerate(names)}
        if how in ("map", "added") and g.random() < 0.7:
            some = {}
            for role in g.sample(["bos_token", "eos_token", "pad_token", "cls_token", "mask_token"], g.randint(0, 3)):
                text = g.choice(names + NEW[:3])
                some[role] = text if g.random() < 0.5 else {k: v for k, v in dict(self.flags(), content=text).items() if k != "special"}
            if g.random() < 0.3:
                some["additional_special_tokens"] = g.sample(NEW, 2)
            if g.random() < 0.2:
                some["extra_special_tokens"] = g.sample(NEW, 2)
            files["special_tokens_map.json"] = some
        for role in g.sample(["bos_token", "eos_token", "pad_token", "unk_token", "sep_token"], g.randint(0, 2)):
            none = [] if role == "sep_token" else [None]
            config[role] = g.choice(none + [self.token(t) for t in names + NEW[:4]])
        if g.random() < 0.3:
            config["image_token"] = g.choice(NEW)
        if g.random() < 0.4:
            listed = [self.token(t) for t in g.sample(NEW, g.randint(0, 3))]
            named = {f"{n}_token": t for n, t in zip(["video", "audio", "image"], listed) if isinstance(t, str)}
            config[g.choice(["extra_special_tokens", "additional_special_tokens"])] = g.choice([listed, listed, named])
        if isinstance(config.get("additional_special_tokens"), dict):
            config["extra_special_tokens"] = config.pop("additional_special_tokens")
        return config, files, names

    def texts(self, tokens):
        g, out = self.g, []
        parts = WORDS + tokens + tokens + NEW
        for _ in range(6):
            out.append("".join(g.choice(["", " ", " ", "  ", "\n"]) + g.choice(parts) for _ in range(g.randint(1, 7))) + g.choice(["", " "]))
        return out


def of_pieces(name, file, pieces, kind, settings, roles, **spm):
    def make(g):
        m = Maker(g, len(pieces))
        config, files, names = m.outside(roles)
        config = dict(tokenizer_class=name) | {k: v(g) for k, v in settings.items() if g.random() < 0.6} | config
        return config, files | {file: sentencepiece(pieces, kind, **spm)}, names + [r for r, _ in roles], m
    return make


FLAG = lambda g: g.choice([True, False])
LLAMA = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)] + BYTES + normal() + [("zz", 0.0, 4)]
GEMMA = [("<pad>", 0.0, 3), ("<eos>", 0.0, 3), ("<bos>", 0.0, 3), ("<unk>", 0.0, 2), ("<mask>", 0.0, 4), ("▁▁", 0.0, 4)] + BYTES + normal()
FAIRSEQ = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)] + normal()
T5 = [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2)] + normal()
ALBERT = [("<pad>", 0.0, 3), ("<unk>", 0.0, 2), ("[CLS]", 0.0, 3), ("[SEP]", 0.0, 3), ("[MASK]", 0.0, 4)] + normal()
XLNET = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("<cls>", 0.0, 3), ("<sep>", 0.0, 3), ("<pad>", 0.0, 3), ("<mask>", 0.0, 3), ("<eod>", 0.0, 3), ("<eop>", 0.0, 3)] + normal()
BIG_BIRD = [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<s>", 0.0, 3), ("<unk>", 0.0, 2), ("[CLS]", 0.0, 3), ("[SEP]", 0.0, 3), ("[MASK]", 0.0, 3)] + normal()
REMBERT = [("<pad>", 0.0, 3), ("[CLS]", 0.0, 3), ("<unk>", 0.0, 2), ("[SEP]", 0.0, 3), ("[MASK]", 0.0, 3)] + normal()
DEBERTA = [("[PAD]", 0.0, 3), ("[CLS]", 0.0, 3), ("[SEP]", 0.0, 3), ("[UNK]", 0.0, 2)] + normal()
LOWER = dict(do_lower_case=FLAG, keep_accents=FLAG, add_prefix_space=FLAG)


def of_json(name, cut=None, model="llama", normalizer=None, special=("<s>", "</s>")):
    def make(g):
        text, size = tokenizer_json(special, normalizer, cut)
        m = Maker(g, size)
        config, files, names = m.outside([(s, size - len(special) + i) for i, s in enumerate(special)], whole=True)
        if name is not None:
            config["tokenizer_class"] = name
        return config, files | {"tokenizer.json": text}, names + list(special), m
    return make


def of_bytes(name, special):
    def make(g):
        vocab = byte_vocab(*special)
        m = Maker(g, len(vocab))
        config, files, names = m.outside([(s, vocab[s]) for s in special])
        config["tokenizer_class"] = name
        if g.random() < 0.3 and name != "Qwen2Tokenizer":
            config["add_prefix_space"] = FLAG(g)
        if g.random() < 0.3 and "bos_token" not in config and "RobertaTokenizer" != name != "DebertaTokenizer" != name:
            config["add_bos_token"] = FLAG(g)
        merges = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in MERGES)
        return config, files | {"vocab.json": json.dumps(vocab, ensure_ascii=False), "merges.txt": merges}, names + list(special), m
    return make


def of_words(name, special):
    def make(g):
        words = list(special) + ["hi", "##i", "h", "a", "##b", "world", "é", "e", "中", "x", "1", "##2", ".", ",", "<", ">", "|", "[", "]", "tok", "t", "##ok"]
        m = Maker(g, len(words))
        config, files, names = m.outside([(s, words.index(s)) for s in special])
        config["tokenizer_class"] = name
        for key in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
            if g.random() < 0.4:
                config[key] = FLAG(g)
        # Words must have these.
        for role in ("unk_token", "sep_token", "cls_token"):
            config.pop(role, None)
        if "special_tokens_map.json" in files:
            files["special_tokens_map.json"].pop("cls_token", None)
        return config, files | {"vocab.txt": "".join(w + "\n" for w in words)}, names + list(special), m
    return make


def ranks():
    tokens = [bytes([i]) for i in range(256)] + [b"hi", b" hi", b" a", b"ab", b"or", b"ld", b"12", b"world", b" w"]
    return tokens


def of_tiktoken(name, file="tokenizer.model"):
    def make(g):
        tokens = ranks()
        m = Maker(g, len(tokens))
        config, files, names = m.outside([])
        config["tokenizer_class"] = name
        # Without these there would be none that ends a text.
        config.setdefault("eos_token", "<|im_end|>")
        text = "".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(tokens))
        return config, files | {file: text}, names, m
    return make


def of_tekken(g):
    tokens, n = ranks(), g.choice([20, 25])
    named = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>"]
    config = dict(pattern=g.choice([r"\p{L}+|\s+|[^\s\p{L}]+", QWEN]), num_vocab_tokens=len(tokens), default_vocab_size=len(tokens) + n - g.choice([0, 1]), default_num_special_tokens=n, version=g.choice(["v3", "v7", "v11"]))
    vocab = [dict(rank=i, token_bytes=base64.b64encode(t).decode(), token_str=None) for i, t in enumerate(tokens)]
    out = dict(config=config, vocab=vocab)
    if config["version"] == "v11" or g.random() < 0.5:
        out["special_tokens"] = [dict(rank=i, token_str=t, is_control=True) for i, t in enumerate(named)]
    return {}, {"tekken.json": json.dumps(out)}, [], Maker(g, 0)


KINDS = {
    "json": of_json("PreTrainedTokenizerFast"),
    "json without a class": of_json(None, normalizer=dict(type="Lowercase")),
    "json of Qwen2": of_json("Qwen2TokenizerFast", QWEN, normalizer=dict(type="NFC"), special=("<|endoftext|>", "<|im_start|>")),
    "json of GPT-2": of_json("GPT2TokenizerFast", special=("<|endoftext|>",)),
    "Llama": of_pieces("LlamaTokenizer", "tokenizer.model", LLAMA, 2, dict(legacy=FLAG, add_prefix_space=FLAG, add_bos_token=FLAG, add_eos_token=FLAG), [("<s>", 1), ("</s>", 2)], byte_fallback=True),
    "CodeLlama": of_pieces("CodeLlamaTokenizer", "tokenizer.model", LLAMA, 2, dict(add_prefix_space=FLAG, add_bos_token=FLAG), [("<s>", 1), ("</s>", 2)], byte_fallback=True),
    "Gemma": of_pieces("GemmaTokenizer", "tokenizer.model", GEMMA, 2, dict(add_bos_token=FLAG), [("<bos>", 2), ("<eos>", 1)], unk=3, byte_fallback=True),
    "T5": of_pieces("T5Tokenizer", "spiece.model", T5, 1, dict(extra_ids=lambda g: 3), [("</s>", 1)], unk=2),
    "XLM-R": of_pieces("XLMRobertaTokenizer", "sentencepiece.bpe.model", FAIRSEQ, 1, dict(add_prefix_space=FLAG), [("<s>", 0), ("</s>", 2), ("<mask>", None)]),
    "CamemBERT": of_pieces("CamembertTokenizer", "sentencepiece.bpe.model", FAIRSEQ, 1, dict(add_prefix_space=FLAG), [("<s>", None), ("</s>", None), ("<mask>", None)]),
    "ALBERT": of_pieces("AlbertTokenizer", "spiece.model", ALBERT, 1, LOWER, [("[CLS]", 2), ("[SEP]", 3), ("[MASK]", 4)], unk=1),
    "BARThez": of_pieces("BarthezTokenizer", "sentencepiece.bpe.model", [("<s>", 0.0, 3), ("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2)] + normal(), 1, dict(add_prefix_space=FLAG, add_bos_token=FLAG), [("<s>", 0), ("</s>", 2)], unk=3),
    "XLNet": of_pieces("XLNetTokenizer", "spiece.model", XLNET, 1, dict(do_lower_case=FLAG), [("<sep>", 4), ("<mask>", 6)]),
    "BigBird": of_pieces("BigBirdTokenizer", "spiece.model", BIG_BIRD, 1, dict(add_prefix_space=FLAG), [("[SEP]", 5), ("[MASK]", 6)], unk=3),
    "RemBERT": of_pieces("RemBertTokenizer", "sentencepiece.model", REMBERT, 1, LOWER, [("[SEP]", 3), ("[MASK]", 4)], unk=2),
    "DeBERTa-v2": of_pieces("DebertaV2Tokenizer", "spm.model", DEBERTA, 1, dict(do_lower_case=FLAG, split_by_punct=FLAG, add_prefix_space=FLAG), [("[CLS]", 1), ("[SEP]", 2)], unk=3),
    "GPT-2": of_bytes("GPT2Tokenizer", ["<|endoftext|>"]),
    "GPT-NeoX": of_bytes("GPTNeoXTokenizer", ["<|endoftext|>", "<|padding|>"]),
    "Qwen2": of_bytes("Qwen2Tokenizer", ["<|endoftext|>"]),
    "RoBERTa": of_bytes("RobertaTokenizer", ["<s>", "</s>", "<mask>"]),
    "DeBERTa": of_bytes("DebertaTokenizer", ["[CLS]", "[SEP]", "[MASK]"]),
    "BERT": of_words("BertTokenizer", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]),
    "MPNet": of_words("MPNetTokenizer", ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]),
    "tiktoken": of_tiktoken("PreTrainedTokenizerFast"),
    "tekken": of_tekken,
}


def expected(folder, kind, texts):
    if kind == "tekken":
        t = Tekkenizer.from_file(folder / "tekken.json")
        return [[x, special, t.encode(x, special, False)] for x in texts for special in (False, True)], t.eos_id
    t = AutoTokenizer.from_pretrained(folder)
    # (Transformers 5.23 loses the post-processor that RemBertTokenizer sets.)
    kinds = (False,) if kind == "RemBERT" else (False, True)
    out = [[x, special, t(x, add_special_tokens=special)["input_ids"]] for x in texts for special in kinds]
    end = t.eos_token_id
    return out, end if t.eos_token is not None and end is not None and t.convert_ids_to_tokens(end) == t.eos_token else None


# Kinds without a committed folder, which are like another.
LIKE_OTHERS = ["json without a class", "json of GPT-2", "CodeLlama", "Gemma", "GPT-NeoX", "DeBERTa", "Qwen2"]


def main(out, count=0, seed=0):
    files, cases, refused = [], [], 0
    for kind, make in KINDS.items():
        if count == 0 and kind in LIKE_OTHERS:
            continue
        for i in range(int(count) or 1):
            g = random.Random(f"{seed} {kind} {i}")
            config, others, tokens, m = make(g)
            others = {"tokenizer_config.json": config, "config.json": {"model_type": "llama"}} | others
            if kind == "tekken":
                others.pop("tokenizer_config.json")
            with tempfile.TemporaryDirectory() as at:
                stored = {}
                for name, content in others.items():
                    data = content if isinstance(content, bytes) else (content if isinstance(content, str) else json.dumps(content)).encode()
                    (Path(at) / name).write_bytes(data)
                    if name == "config.json":
                        continue
                    text = {"base64": base64.b64encode(data).decode()} if name.endswith(".model") and kind != "tiktoken" else data.decode()
                    if name in ("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"):
                        stored[name] = data.decode()
                    else:
                        files.append(text) if text not in files else None
                        stored[name] = files.index(text)
                texts = m.texts(tokens)[: 6 if count else 3]
                # (Special tokens written out are plain text for mistral-common.)
                texts = [t.replace("<", "").replace("[", "") for t in texts] if kind == "tekken" else texts
                try:
                    vectors, end = expected(Path(at), kind, texts)
                except Exception as e:
                    refused += 1
                    if "-v" in sys.argv:
                        print(kind, i, type(e).__name__, str(e)[:150], file=sys.stderr)
                    continue
                cases.append(dict(name=f"{kind} {i}", files=stored, texts=vectors, eos=end))
    Path(out).write_text(json.dumps(dict(files=files, cases=cases), ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{len(cases)} folders, {refused} refused")


if __name__ == "__main__":
    main(*[a for a in sys.argv[1:] if a != "-v"])
