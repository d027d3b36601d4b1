"""Types: the package under ``mypy --strict``, programs that use it, and signatures as ``help`` shows them."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Callable, get_type_hints

import pytest

import llmcc

PACKAGE = Path(llmcc.__file__).resolve().parent
SOURCES = Path(__file__).resolve().parents[1]
needs_mypy = pytest.mark.skipif(importlib.util.find_spec("mypy") is None or not (SOURCES / "mypy.ini").exists(), reason="skipped: mypy is not installed (`make test` installs it)")


@pytest.fixture(scope="module")
def mypy(tmp_path_factory: pytest.TempPathFactory) -> "Callable[..., str]":
    cache = tmp_path_factory.mktemp("mypy")

    def run(*arguments: str, folder: Path = SOURCES) -> str:
        command = [sys.executable, "-m", "mypy", "--config-file", str(SOURCES / "mypy.ini"), f"--cache-dir={cache}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=folder).stdout

    return run


@needs_mypy
def test_the_package_has_types(mypy: "Callable[..., str]") -> None:
    assert mypy("llmcc").startswith("Success: no issues found")


PROGRAM = '''
import asyncio, llmcc
m = llmcc.load("m.so")
reveal_type(m.generate("a", max_tokens=3))
reveal_type(m.generate(["a", "b"], each=[{"seed": 1}, {}], progress=True))
reveal_type(m.complete([[1, 2]], logprobs=0))
reveal_type(m.stream("a"))
reveal_type(m.classify("a", top_k=1))
reveal_type(m.rank("a", ["b"]))
reveal_type(m.rank("a", ["b"], return_documents=True)[0].document)
reveal_type(m.embed("a", numpy=False))
reveal_type(m.embed(["a"], numpy=False, prompt_name="query"))
reveal_type(m.similarity("a", ["b"], numpy=False))
async def f() -> None:
    reveal_type(await m.agenerate("a"))
    async for text in m.astream("a"):
        reveal_type(text)
m.generate("a", max_new_tokens=3)
m.generate("a", temperature="hot")
m.classify("a", activation="tanh")
m.rank("a", ["b"], top_k="1")
m.embed(["a"], batch_size="1")
with m.session() as s:
    s.generate("a", seed=1.5)
'''
REVEALED = [
    "str",
    "list[str]",
    "list[llmcc._pieces.Completion]",
    "Iterator[str]",
    "list[tuple[str, float, fallback=llmcc._classes.Class]]",
    "list[tuple[int, float, fallback=llmcc._pairs.Ranked]]",
    "str",
    "list[float]",
    "list[list[float]]",
    "list[list[float]]",
    "str",
    "str",
]


@needs_mypy
def test_programs_are_checked_against_it(mypy: "Callable[..., str]", tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    # (As an installed package would be found.)
    (tmp_path / "llmcc").symlink_to(PACKAGE)
    said = mypy("program.py", folder=tmp_path)
    revealed = re.findall(r'Revealed type is "(.*)"', said)
    assert [text.replace("builtins.", "").replace("typing.", "") for text in revealed] == REVEALED
    wrong = {int(line) for line in re.findall(r"program\.py:(\d+): error", said)}
    lines = PROGRAM.splitlines()
    assert [lines[n - 1].strip() for n in sorted(wrong)] == [*lines[17:22], "s.generate(\"a\", seed=1.5)"], said


def public(kind: type) -> "list[tuple[str, object]]":
    return [(name, member) for name, member in inspect.getmembers(kind) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [llmcc.Model, llmcc.Session])
def test_every_function_spells_its_parameters_out(kind: type) -> None:
    for name, member in [*public(kind), ("load", llmcc.load), ("compile", llmcc.compile)]:
        if not inspect.isfunction(member):
            assert inspect.getdoc(member), name
            continue
        assert inspect.getdoc(member), name
        signature = inspect.signature(member)
        for parameter in signature.parameters.values():
            assert parameter.name == "self" or parameter.annotation is not parameter.empty, f"{name}: {parameter}"
            # Templates have variables of any name.
            assert parameter.kind is not parameter.VAR_KEYWORD or name == "apply_chat_template", f"{name}: {parameter}"
        assert signature.return_annotation is not signature.empty, name


def test_signatures_have_defaults_and_types() -> None:
    for function in (llmcc.Model.generate, llmcc.Model.agenerate, llmcc.Session.generate):
        parameters = inspect.signature(function).parameters
        assert list(parameters)[2] == "max_tokens"
        assert parameters["greedy"].default is False and parameters["temperature"].default is None and parameters["stop"].default == ()
        assert "each" in parameters or function is llmcc.Session.generate
        assert function.__annotations__["top_k"] == get_type_hints(llmcc._keywords.Generating)["top_k"]
    # All of them are parameters of a generation, and the other way round; images become rows.
    generating = {"image_rows" if name == "images" else name for name in get_type_hints(llmcc._keywords.Generating)}
    assert generating == set(inspect.signature(llmcc._params.GenParams).parameters) - {"unknown"}


def test_every_keyword_is_explained() -> None:
    said = inspect.getdoc(llmcc.Model.generate) or ""
    for name in inspect.signature(llmcc.Model.generate).parameters:
        assert name in ("self", "prompt") or f":param {name}:" in said, name
