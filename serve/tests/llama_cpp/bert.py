"""A small BERT with random weights, in the form of a checkpoint of Transformers."""

import json
import pathlib
import random
import struct

import gguf

WIDTH, INNER, LAYERS, HEADS, POSITIONS = 64, 128, 2, 4, 512


def words(vocabulary: pathlib.Path) -> list:
    """Pieces of words of a GGUF file, as WordPiece has them: those within words begin with ##."""
    values = {name: value for name, _, value in gguf.members(vocabulary.read_bytes())[1]}
    pieces = gguf.strings(values["tokenizer.ggml.tokens"])
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}

    def piece(text: str) -> str:
        if text in special or text.startswith("[unused"):
            return text
        return text[1:] if text.startswith("\u2581") else text if text.startswith("##") else "##" + text

    return [piece(text) for text in pieces]


def shapes(vocab: int, scores: bool) -> dict:
    """Tensors and their shapes."""
    head = "bert." if scores else ""
    found = {
        "embeddings.word_embeddings.weight": [vocab, WIDTH],
        "embeddings.position_embeddings.weight": [POSITIONS, WIDTH],
        "embeddings.token_type_embeddings.weight": [2, WIDTH],
        "embeddings.LayerNorm.weight": [WIDTH],
        "embeddings.LayerNorm.bias": [WIDTH],
        "pooler.dense.weight": [WIDTH, WIDTH],
        "pooler.dense.bias": [WIDTH],
    }
    for i in range(LAYERS):
        parts = {"attention.self.query": (WIDTH, WIDTH), "attention.self.key": (WIDTH, WIDTH),
                 "attention.self.value": (WIDTH, WIDTH), "attention.output.dense": (WIDTH, WIDTH),
                 "intermediate.dense": (INNER, WIDTH), "output.dense": (WIDTH, INNER)}
        for name, (rows, columns) in parts.items():
            found[f"encoder.layer.{i}.{name}.weight"] = [rows, columns]
            found[f"encoder.layer.{i}.{name}.bias"] = [rows]
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            found[f"encoder.layer.{i}.{name}.weight"] = [WIDTH]
            found[f"encoder.layer.{i}.{name}.bias"] = [WIDTH]
    found = {head + name: shape for name, shape in found.items()}
    return found | ({"classifier.weight": [1, WIDTH], "classifier.bias": [1]} if scores else {})


def weights(path: pathlib.Path, vocab: int, scores: bool) -> None:
    """Writes the tensors."""
    draw, header, data = random.Random(1), {}, bytearray()
    for name, shape in shapes(vocab, scores).items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        middle, width = (1.0, 0.1) if name.endswith("LayerNorm.weight") else (0.0, 0.2)
        begin = len(data)
        data += struct.pack(f"<{count}f", *(draw.gauss(middle, width) for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(data))


def tokenizer(pieces: list) -> dict:
    """tokenizer.json."""
    place = {piece: i for i, piece in enumerate(pieces)}
    special = [piece for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if piece in place]

    def mark(piece: str, kind: int) -> dict:
        return {"SpecialToken": {"id": piece, "type_id": kind}}

    def text(name: str, kind: int) -> dict:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [mark("[CLS]", 0), text("A", 0), mark("[SEP]", 0)]
    marks = {piece: {"id": piece, "ids": [place[piece]], "tokens": [piece]} for piece in ("[CLS]", "[SEP]")}
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": place[piece], "content": piece, **added} for piece in special],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": single,
                           "pair": [*single, text("B", 1), mark("[SEP]", 1)], "special_tokens": marks},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": place},
    }


def made(folder: pathlib.Path, vocabulary: pathlib.Path, pooling: str, scores: bool) -> pathlib.Path:
    """The checkpoint of an embedder, or of a model that scores pairs of texts."""
    out = folder / ("bert-scores" if scores else f"bert-{pooling}")
    if (out / "config.json").exists():
        return out
    (out / "1_Pooling").mkdir(parents=True, exist_ok=True)
    pieces = words(vocabulary)
    config = {
        "architectures": ["BertForSequenceClassification" if scores else "BertModel"], "model_type": "bert",
        "hidden_act": "gelu", "hidden_size": WIDTH, "intermediate_size": INNER, "layer_norm_eps": 1e-12,
        "max_position_embeddings": POSITIONS, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
        "pad_token_id": 0, "type_vocab_size": 2, "vocab_size": len(pieces), "torch_dtype": "float32",
    }
    if scores:
        config |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    else:
        kinds = ["Transformer", "Pooling", "Normalize"]
        paths = ["", "1_Pooling", "2_Normalize"]
        modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                   for i, (kind, path) in enumerate(zip(kinds, paths))]
        (out / "modules.json").write_text(json.dumps(modules))
        pool = {"word_embedding_dimension": WIDTH, "pooling_mode": pooling}
        (out / "1_Pooling" / "config.json").write_text(json.dumps(pool))
    (out / "tokenizer.json").write_text(json.dumps(tokenizer(pieces)))
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    (out / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **special}))
    weights(out / "model.safetensors", len(pieces), scores)
    # Last, as the sign that all else is there.
    (out / "config.json").write_text(json.dumps(config))
    return out
