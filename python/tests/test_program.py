"""Where the compiler is found, and how the wheel is built."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from llmcc import LlmccError
from llmcc._program import compiler


def program(folder: Path) -> str:
    folder.mkdir()
    path = folder / "llmcc"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_compiler_of_this_python_comes_before_that_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts, path = tmp_path / "scripts", tmp_path / "path"
    monkeypatch.setattr(sysconfig, "get_path", lambda name, scheme=None: str(scripts if scheme is None else tmp_path / "user"))
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.delenv("LLMCC", raising=False)
    with pytest.raises(LlmccError, match="pip install llmcc-aot"):
        compiler()
    for folder in (path, tmp_path / "user", scripts):
        made = program(folder)
        assert compiler() == made
    monkeypatch.setenv("LLMCC", "named")
    assert compiler() == "named"


def run_module(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "LLMCC": program}
    return subprocess.run([sys.executable, "-m", "llmcc", *arguments], capture_output=True, text=True, env=environment)


def test_the_module_is_the_program(tmp_path: Path) -> None:
    path = tmp_path / "llmcc"
    path.write_text('#!/bin/sh\nprintf "[%s]" "$@"\nexit 3\n')
    path.chmod(0o755)
    done = run_module(str(path), "run", "two words", "")
    assert (done.stdout, done.stderr, done.returncode) == ("[run][two words][]", "", 3)
    done = run_module(str(tmp_path / "none"))
    assert done.returncode == 1 and done.stderr == f"error: cannot run {tmp_path / 'none'}: No such file or directory\n"


def backend() -> Any:
    path = Path(__file__).parents[1] / "build-backend" / "llmcc_build.py"
    spec = importlib.util.spec_from_file_location("llmcc_build", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_wheel_has_the_compiler_in_it_unless_it_is_left_out() -> None:
    build = backend()
    for settings in (None, {}, {"compiler": "inside"}):
        assert build.get_requires_for_build_wheel(settings) == [build.MATURIN]
    assert build.get_requires_for_build_wheel({"compiler": "none"}) == [build.SETUPTOOLS]
    with pytest.raises(SystemExit, match="compiler=maybe"):
        build.get_requires_for_build_wheel({"compiler": "maybe"})
    with pytest.raises(SystemExit, match="pip wheel ./python"):
        build.build_sdist("dist")


def test_wheels_start_the_program_of_the_harness(tmp_path: Path) -> None:
    build = backend()
    with zipfile.ZipFile(tmp_path / "a.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("llmcc/__init__.py", "")
        wheel.writestr("a-1.dist-info/RECORD", "llmcc/__init__.py,,\na-1.dist-info/RECORD,,\n")
    assert build._with_entry_points(str(tmp_path), "a.whl") == "a.whl" and os.listdir(tmp_path) == ["a.whl"]
    with zipfile.ZipFile(tmp_path / "a.whl") as wheel:
        names = ["a-1.dist-info/RECORD", "a-1.dist-info/entry_points.txt", "llmcc/__init__.py"]
        assert sorted(wheel.namelist()) == names
        program = wheel.read("a-1.dist-info/entry_points.txt").decode().split(" = ")[1].strip()
        assert "entry_points.txt,sha256=" in wheel.read("a-1.dist-info/RECORD").decode()
    module, _, name = program.partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_versions_of_both_wheels_and_of_the_compiler_are_one() -> None:
    root = Path(__file__).parents[2]
    read = lambda path: (root / path).read_text(encoding="utf-8")  # noqa: E731
    line = 'version = "0.1.0.dev0"\n'
    assert line in read("python/pyproject.toml") and line in read("python/cuda/pyproject.toml")
    assert '"llmcc-aot==0.1.0.dev0"' in read("python/cuda/pyproject.toml")
    assert 'version = "0.1.0-pre"\n' in read("Cargo.toml")
    assert os.path.realpath(root / "python/LICENSE") == os.path.realpath(root / "LICENSE")
