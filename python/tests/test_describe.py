"""Descriptions of a model: a line, a table, names and values."""

from __future__ import annotations

import os

import pytest

import llmcc
from llmcc import _describe

PATH = os.environ.get("LLMCC_TEST_ARTIFACT")
CLASSES = os.environ.get("LLMCC_TEST_CLASSES")
needs = pytest.mark.skipif(not (PATH and CLASSES), reason="skipped: set LLMCC_TEST_ARTIFACT and LLMCC_TEST_CLASSES")


@needs
def test_a_line_says_what_is_open() -> None:
    model = llmcc.load(PATH, threads=1, max_tokens=1024)
    info, weights = model.info, model.manifest["weights"]
    line = repr(model)
    assert "\n" not in line and line.startswith(f"<llmcc.Model {model.path!r}: llama, ")
    for part in (f"context {info['max_context']} tokens", f"vocabulary {info['vocab']}", model.manifest["options"]["weights"], f"{info['isa']} with 1 threads"):
        assert part in line
    assert float(line.split(" M parameters")[0].split()[-1]) == pytest.approx(weights["parameters"] / 1e6, rel=0.01)
    model.close()
    assert repr(model) == f"<llmcc.Model {model.path!r} (closed)>" and "(closed)" in model._repr_html_()
    assert dict(model.__rich_repr__()) == {"path": model.path, "state": "closed"}


@needs
def test_notebooks_get_a_table() -> None:
    with llmcc.load(CLASSES) as model:
        facts = dict(model.__rich_repr__())
        assert facts["classes"] == "a, b, c" and facts["output"] == "scores of 3 classes" and facts["tokenizer"].startswith("none")
        assert facts["digest"] == model._lib._root.hex() and facts["targets in the file"].startswith(model.info["isa"])
        table = model._repr_html_()
        assert table.startswith("<table>") and table.count("<tr>") == len(facts)
        for value in facts.values():
            assert f">{value}</td>" in table
        model._facts()["classes"] = ["<b>", "&"]
        assert "&lt;b&gt;, &amp;" in model._repr_html_() and "<b>" not in model._repr_html_()


@needs
def test_rich_prints_it() -> None:
    console = pytest.importorskip("rich.console")
    with llmcc.load(PATH, threads=1, max_tokens=1024) as model:
        out = console.Console(width=100, record=True, file=open(os.devnull, "w"))
        out.print(model)
        text = out.export_text()
        assert "Model(" in text and "architecture='llama'" in text


def test_numbers_and_sizes() -> None:
    assert [_describe._count(n) for n in (12, 45_500, 2_293_760, 999_999_999, 1_234_567_890, 671 * 10**9)] == ["12", "45.5 K", "2.29 M", "1 B", "1.23 B", "671 B"]
    assert [_describe._bytes(n) for n in (12, 1 << 20, 5 << 29)] == ["12 B", "1.0 MiB", "2.5 GiB"]
    assert _describe._shortened(["x"] * 10) == "x, x, x, x, x, x, x, x and 2 more"
