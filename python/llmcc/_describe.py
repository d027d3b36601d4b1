"""Descriptions of a model: a line, a table, names and values."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from ._handle import Opened


def line(model: Opened) -> str:
    """One line: path, kind, parameters, format, sizes, target."""
    path = getattr(model, "path", None)
    if getattr(model, "_handle", None) is None:
        return f"<llmcc.Model {path!r} (closed)>"
    known = dict(facts(model))
    parts = [known["architecture"], f"{known['parameters'].partition(' (')[0]} parameters", known["format"], f"context {known['context']}", f"vocabulary {known['vocabulary']}", known["output"]]
    return f"<llmcc.Model {path!r}: {', '.join(parts)}, {known['target']}>"


def html(model: Opened) -> str:
    """A table; every value is escaped."""
    if getattr(model, "_handle", None) is None:
        return f"<code>{escape(line(model))}</code>"
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>' for name, value in facts(model)
    )
    return f"<table><caption>llmcc.Model</caption>{rows}</table>"


def facts(model: Opened) -> Iterator[tuple[str, str]]:
    """Names and values, in the order of their interest. A closed model has its path only."""
    yield "path", str(getattr(model, "path", None))
    if getattr(model, "_handle", None) is None:
        yield "state", "closed"
        return
    info, manifest = model._info, model._facts()
    weights, options = manifest["weights"], manifest["options"]
    yield "architecture", str(manifest["model"] or "unknown")
    yield "parameters", _parameters(weights)
    yield "format", f"{options.get('weights') or 'unknown format'} ({_bytes(info['weights_bytes'])})"
    yield "output", _output(info)
    yield "context", f"{info['max_context']} tokens"
    yield "vocabulary", str(info["vocab"])
    yield "tokenizer", "yes" if info["has_tokenizer"] else "none (takes tokens only)"
    yield "chat template", "yes" if info["has_chat_template"] else "none"
    if manifest["prompts"]:
        yield "prompts", ", ".join(manifest["prompts"])
    if manifest["classes"]:
        yield "classes", _shortened(manifest["classes"])
    yield "target", f"{info['isa']} with {info['threads']} threads"
    yield "targets in the file", ", ".join([str(version.get("target")) for version in manifest["versions"]]) or info["isa"]
    yield "digest", model._lib._root.hex()


def _parameters(weights: Any) -> str:
    whole, active = weights.get("parameters", 0), weights.get("active_parameters", 0)
    text = _count(whole)
    return text if active in (0, whole) else f"{text} ({_count(active)} of them multiplied for a token)"


def _output(info: Any) -> str:
    kind, columns = info["output"], info["columns"]
    if kind == "embedding":
        return f"embeddings of {columns} columns"
    if kind == "scores":
        return f"scores of {columns} class{'' if columns == 1 else 'es'}"
    return "logits"


def _shortened(names: list[str], most: int = 8) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _count(n: int) -> str:
    """A number of parameters in three digits."""
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        # (What rounds to 1000 of a unit is one of the next.)
        if n >= 0.9995 * size:
            return f"{n / size:.3g} {unit}" if n < 999.5 * size else f"{n / size:.0f} {unit}"
    return str(n)


def _bytes(n: int) -> str:
    """A size in binary units."""
    value = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
